package signing_test

import (
	"bytes"
	"crypto"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/ProtonMail/go-crypto/openpgp/s2k"
	"github.com/google/go-cmp/cmp"
	oldopenpgp "golang.org/x/crypto/openpgp" //nolint:staticcheck // Terraform 1.5 has it

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/signing"
)

var (
	// Clients go by the clock, so that these keys have to be good at present.
	now     = time.Now().Truncate(time.Second)
	born    = now.Add(-24 * time.Hour)
	message = []byte(strings.Repeat("0", 64) + "  terraform-provider-x_1.0.0_linux_amd64.zip\n")
)

// The kinds of keys, as the library is told to make them.
var (
	ed25519 = packet.Config{Algorithm: packet.PubKeyAlgoEdDSA}
	p256    = packet.Config{Algorithm: packet.PubKeyAlgoECDSA, Curve: packet.CurveNistP256}
	p384    = packet.Config{Algorithm: packet.PubKeyAlgoECDSA, Curve: packet.CurveNistP384}
	p521    = packet.Config{Algorithm: packet.PubKeyAlgoECDSA, Curve: packet.CurveNistP521}
	rsa1024 = packet.Config{Algorithm: packet.PubKeyAlgoRSA, RSABits: 1024}
	rsa2048 = packet.Config{Algorithm: packet.PubKeyAlgoRSA, RSABits: 2048}
	rsa4096 = packet.Config{Algorithm: packet.PubKeyAlgoRSA, RSABits: 4096}
)

// at lets the library believe that it is another time, and that what it makes lasts for so long.
func at(c packet.Config, t time.Time, life time.Duration) *packet.Config {
	c.Time = func() time.Time { return t }
	c.KeyLifetimeSecs = uint32(life / time.Second)
	return &c
}

func generate(t testing.TB, c *packet.Config) *openpgp.Entity {
	t.Helper()
	e, err := openpgp.NewEntity("Ada Example", "packages", "ada@example.com", c)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// sealed makes a key of which the primary one only certifies.
func sealed(t testing.TB, c packet.Config) *openpgp.Entity {
	t.Helper()
	e := generate(t, at(c, born, 0))
	for _, id := range e.Identities {
		id.SelfSignature.FlagSign = false
		if err := id.SelfSignature.SignUserId(id.Name, e.PrimaryKey, e.PrivateKey, at(c, born, 0)); err != nil {
			t.Fatal(err)
		}
	}
	return e
}

func subkey(t testing.TB, e *openpgp.Entity, c *packet.Config) *openpgp.Subkey {
	t.Helper()
	if err := e.AddSigningSubkey(c); err != nil {
		t.Fatal(err)
	}
	return &e.Subkeys[len(e.Subkeys)-1]
}

func enclose(t testing.TB, kind string, packets []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := armor.Encode(&out, kind, map[string]string{"Comment": "made by hand", "Version": "GnuPG v1"})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = w.Write(packets)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return append(out.Bytes(), '\n')
}

func packetsOf(t testing.TB, serialize func(io.Writer) error) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := serialize(&out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func public(t testing.TB, entities ...*openpgp.Entity) []byte {
	t.Helper()
	var packets []byte
	for _, e := range entities {
		packets = append(packets, packetsOf(t, e.Serialize)...)
	}
	return enclose(t, openpgp.PublicKeyType, packets)
}

func privatePackets(t testing.TB, e *openpgp.Entity) []byte {
	t.Helper()
	return packetsOf(t, func(w io.Writer) error { return e.SerializePrivateWithoutSigning(w, nil) })
}

func private(t testing.TB, e *openpgp.Entity) []byte {
	t.Helper()
	return enclose(t, openpgp.PrivateKeyType, privatePackets(t, e))
}

func detached(t testing.TB, e *openpgp.Entity, c *packet.Config) []byte {
	t.Helper()
	return packetsOf(t, func(w io.Writer) error { return openpgp.DetachSign(w, e, bytes.NewReader(message), c) })
}

func parse(t testing.TB, armored []byte) signing.Key {
	t.Helper()
	key, err := signing.ParseKey(armored, now)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// asClients verifies as OpenTofu and Terraform do.
func asClients(key signing.Key, signature []byte) error {
	ring, err := openpgp.ReadArmoredKeyRing(strings.NewReader(key.ASCIIArmor))
	if err != nil {
		return err
	}
	_, err = openpgp.CheckDetachedSignature(ring, bytes.NewReader(message), bytes.NewReader(signature), nil)
	return err
}

// asOldClients verifies as Terraform 1.5 does.
func asOldClients(key signing.Key, signature []byte) error {
	ring, err := oldopenpgp.ReadArmoredKeyRing(strings.NewReader(key.ASCIIArmor))
	if err != nil {
		return err
	}
	_, err = oldopenpgp.CheckDetachedSignature(ring, bytes.NewReader(message), bytes.NewReader(signature))
	return err
}

// refused checks that an error is ErrInvalid, that it and its hint are a line each,
// and that one of the two has each of some words.
func refused(t testing.TB, what string, err error, words ...string) {
	t.Helper()
	if !errors.Is(err, registry.ErrInvalid) {
		t.Errorf("%s: %v is not ErrInvalid", what, err)
		return
	}
	hint := registry.Hint(err)
	for _, w := range words {
		if !strings.Contains(err.Error(), w) && !strings.Contains(hint, w) {
			t.Errorf("%s: %q with the hint %q does not tell %q", what, err, hint, w)
		}
	}
	for _, line := range []string{err.Error(), hint} {
		if strings.ContainsAny(line, "\n\r\x1b") || len(line) > 500 {
			t.Errorf("%s: %q is not one short line", what, line)
		}
	}
	if strings.Contains(err.Error(), "gpg") {
		t.Errorf("%s: the command of %q belongs in the hint", what, err)
	}
}

// overSHA1 signs the message by SHA-1, which the library's own functions refuse.
func overSHA1(t testing.TB, e *openpgp.Entity) []byte {
	t.Helper()
	sig := &packet.Signature{
		SigType: packet.SigTypeBinary, PubKeyAlgo: e.PrimaryKey.PubKeyAlgo, Hash: crypto.SHA1,
		CreationTime: now, IssuerKeyId: &e.PrimaryKey.KeyId,
	}
	hash := crypto.SHA1.New()
	_, _ = hash.Write(message)
	unsalted := false // a salt would need a newer hash
	c := packet.Config{NonDeterministicSignaturesViaNotation: &unsalted}
	if err := sig.Sign(hash, e.PrivateKey, &c); err != nil {
		t.Fatal(err)
	}
	return packetsOf(t, sig.Serialize)
}

// withHash returns a signature of fewer than 192 bytes that names another hash.
func withHash(signature []byte, id byte) []byte {
	const header, hash = 2, 3
	changed := slices.Clone(signature)
	changed[header+hash] = id
	return changed
}

// The keys that several tests use, made once.
var (
	plain = sync.OnceValue(func() *openpgp.Entity {
		return must(openpgp.NewEntity("Ada Example", "", "ada@example.com", at(ed25519, born, 0)))
	})
	other = sync.OnceValue(func() *openpgp.Entity {
		return must(openpgp.NewEntity("Bob Example", "", "bob@example.com", at(p256, born, 0)))
	})
	large = sync.OnceValue(func() *openpgp.Entity {
		return must(openpgp.NewEntity("Ada Example", "", "ada@example.com", at(rsa4096, born, 0)))
	})
)

func must(e *openpgp.Entity, err error) *openpgp.Entity {
	if err != nil {
		panic(err)
	}
	return e
}

func TestAlgorithms(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		want   string
		config packet.Config
	}{
		{"RSA 2048", rsa2048}, {"RSA 4096", rsa4096}, {"Ed25519", ed25519}, {"ECDSA P-256", p256}, {"ECDSA P-384", p384}, {"ECDSA P-521", p521},
		{"ECDSA secp256k1", packet.Config{Algorithm: packet.PubKeyAlgoECDSA, Curve: packet.CurveSecP256k1}},
		{"ECDSA brainpoolP256r1", packet.Config{Algorithm: packet.PubKeyAlgoECDSA, Curve: packet.CurveBrainpoolP256}},
	} {
		t.Run(test.want, func(t *testing.T) {
			t.Parallel()
			e := large()
			if test.want != "RSA 4096" {
				e = generate(t, at(test.config, born, 0))
			}
			signature, key, err := signing.Sign(private(t, e), nil, message, now)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(parse(t, public(t, e)), key); diff != "" {
				t.Errorf("the key that Sign returns is another one than ParseKey reads:\n%s", diff)
			}
			if key.Algorithm != test.want || key.ID != e.PrimaryKey.KeyIdString() || !key.CreatedAt.Equal(born) || !key.ExpiresAt.IsZero() {
				t.Errorf("the key is %+v", key)
			}
			if err := asClients(key, signature); err != nil {
				t.Errorf("clients do not take it: %v", err)
			}
			if err := asOldClients(key, signature); signing.FitsOldClients(key) != (err == nil) {
				t.Errorf("FitsOldClients is %t; old clients: %v", signing.FitsOldClients(key), err)
			}
			keys := []signing.Key{parse(t, public(t, other())), key}
			if signer, err := signing.Verify(keys, message, signature, now); err != nil || signer != key {
				t.Errorf("Verify = %v, %v", signer, err)
			}
			_, err = signing.Verify(keys, append(message[:len(message):len(message)], '\n'), signature, now)
			refused(t, "another message", err, key.ID, "exactly the file")
		})
	}
}

// A subkey that old clients cannot read has them refuse the whole key.
func TestOldClientsAndSubkeys(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		subkey packet.Config
		want   bool
	}{"RSA": {rsa2048, true}, "P-256": {p256, true}, "Ed25519": {ed25519, false}} {
		e := sealed(t, rsa2048)
		subkey(t, e, at(test.subkey, born, 0))
		signature, key, err := signing.Sign(private(t, e), nil, message, now)
		if err != nil {
			t.Fatal(err)
		}
		got, err := signing.FitsOldClients(key), asOldClients(key, signature)
		if got != test.want || got != (err == nil) {
			t.Errorf("a subkey of %s: FitsOldClients is %t; old clients: %v", name, got, err)
		}
	}
}

func TestParseKey(t *testing.T) {
	t.Parallel()
	year := 365 * 24 * time.Hour
	text := public(t, plain())
	key := parse(t, text)
	if key.Owner != "Ada Example <ada@example.com>" || key.CreatedAt.Location() != time.UTC {
		t.Errorf("the key is %+v", key)
	}
	lines := strings.Split(key.ASCIIArmor, "\n")
	if lines[0] != "-----BEGIN PGP PUBLIC KEY BLOCK-----" || lines[1] != "" || lines[len(lines)-1] != "" || strings.Contains(key.ASCIIArmor, "Comment") {
		t.Errorf("the armor is\n%s", key.ASCIIArmor)
	}
	ring, err := openpgp.ReadArmoredKeyRing(strings.NewReader(key.ASCIIArmor))
	if err != nil || len(ring) != 1 || ring[0].PrivateKey != nil || len(ring[0].Subkeys) != 0 {
		t.Errorf("clients read %v, %v", ring, err)
	}
	encoded, err := json.Marshal(key)
	if err != nil || !strings.HasPrefix(string(encoded), `{"id":"`+key.ID+`","owner":"Ada Example`) || strings.Contains(string(encoded), "expires_at") {
		t.Errorf("as JSON it is %s, %v", encoded, err)
	}
	// What others make of the same key.
	for what, variant := range map[string][]byte{
		"read again": []byte(key.ASCIIArmor), "CR LF": bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n")), "space around": []byte("\ufeff\n \n" + string(text) + "\n\t\n"),
	} {
		if diff := cmp.Diff(key, parse(t, variant)); diff != "" {
			t.Errorf("%s:\n%s", what, diff)
		}
	}

	// Of an expiry, that of the last part that can sign counts, and none lasts longer than the primary key.
	for _, test := range []struct {
		what          string
		life, subLife time.Duration
		sealed        bool
		want          time.Duration
	}{
		{what: "none"},
		{what: "the primary key's", life: year, want: year},
		{what: "a subkey's beside a primary key that signs", subLife: year},
		{what: "a subkey's that alone signs", subLife: year, sealed: true, want: year},
		{what: "a subkey's that outlasts the primary key", life: year, subLife: 2 * year, want: year},
	} {
		e := generate(t, at(ed25519, born, test.life))
		if test.sealed {
			e = sealed(t, ed25519)
		}
		if test.subLife > 0 {
			subkey(t, e, at(ed25519, born, test.subLife))
		}
		var want time.Time
		if test.want > 0 {
			want = born.Add(test.want).UTC()
		}
		if got := parse(t, public(t, e)); !got.ExpiresAt.Equal(want) {
			t.Errorf("expiry, %s: %s, not %s", test.what, got.ExpiresAt, want)
		}
	}
}

// Owners are shown in terminals and tables.
func TestOwner(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]string{
		"Ada\x1b[31m\u202e Example\r\n":   "Ada[31m Example",
		strings.Repeat("é", 200):          strings.Repeat("é", 126) + "…",
		"x" + strings.Repeat("é", 200):    "x" + strings.Repeat("é", 126) + "…",
		"\xffAda":                         "\ufffdAda",
		strings.Repeat("\x00", 100) + "b": "b",
	} {
		e := generate(t, at(ed25519, born, 0))
		for _, identity := range e.Identities {
			identity.UserId.Id = id
			if err := identity.SelfSignature.SignUserId(id, e.PrimaryKey, e.PrivateKey, at(ed25519, born, 0)); err != nil {
				t.Fatal(err)
			}
		}
		if key := parse(t, public(t, e)); key.Owner != want {
			t.Errorf("the owner of %q is %q, not %q", id, key.Owner, want)
		}
	}
}

// Which user id is the primary one is not left to luck, and neither is what is served.
func TestSeveralUserIDs(t *testing.T) {
	t.Parallel()
	e := generate(t, at(ed25519, born, 0))
	for _, name := range []string{"C", "B", "D"} {
		if err := e.AddUserId(name, "", "", at(ed25519, born, 0)); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range e.Identities {
		id.SelfSignature.IsPrimaryId = nil
		if err := id.SelfSignature.SignUserId(id.Name, e.PrimaryKey, e.PrivateKey, at(ed25519, born, 0)); err != nil {
			t.Fatal(err)
		}
		// Someone else's opinion of it.
		if err := e.SignIdentity(id.Name, other(), at(p256, born, 0)); err != nil {
			t.Fatal(err)
		}
	}
	first := parse(t, public(t, e))
	for range 20 {
		if key := parse(t, public(t, e)); key != first || key.Owner != "Ada Example (packages) <ada@example.com>" {
			t.Fatalf("%+v is not %+v", key, first)
		}
	}
	ring, err := openpgp.ReadArmoredKeyRing(strings.NewReader(first.ASCIIArmor))
	if err != nil || len(ring[0].Identities) != 1 || len(ring[0].PrimaryIdentity().Signatures) != 1 {
		t.Errorf("clients read %v, %v", ring, err)
	}
}

func TestParseKeyRefuses(t *testing.T) {
	t.Parallel()
	text := public(t, plain())
	revoked := generate(t, at(ed25519, born, 0))
	if err := revoked.RevokeKey(packet.KeyCompromised, "", at(ed25519, born, 0)); err != nil {
		t.Fatal(err)
	}
	superseded := generate(t, at(ed25519, born, 0))
	if err := superseded.RevokeKey(packet.KeySuperseded, "", at(ed25519, born, 0)); err != nil {
		t.Fatal(err)
	}
	expiredSubkey, revokedSubkey, weakSubkey := sealed(t, ed25519), sealed(t, ed25519), sealed(t, ed25519)
	subkey(t, expiredSubkey, at(ed25519, born, time.Hour))
	if err := revokedSubkey.RevokeSubkey(subkey(t, revokedSubkey, at(ed25519, born, 0)), packet.NoReason, "", at(ed25519, born, 0)); err != nil {
		t.Fatal(err)
	}
	subkey(t, weakSubkey, at(rsa1024, born, 0))
	noOwner := generate(t, at(ed25519, born, 0))
	for _, id := range noOwner.Identities {
		if err := noOwner.SignIdentity(id.Name, other(), at(p256, born, 0)); err != nil {
			t.Fatal(err)
		}
		id.Signatures = id.Signatures[1:]
	}
	short := func(data []byte) []byte { return data[:len(data)/2] }
	tests := []struct {
		what  string
		input []byte
		words []string
	}{
		{"nothing", nil, []string{"armored"}},
		{"some text", []byte("hello"), []string{"armored", "gpg --armor --export"}},
		{"a binary key", packetsOf(t, plain().Serialize), []string{"armored", "gpg --armor --export"}},
		{"too much", append(slices.Clone(text), make([]byte, 64<<10)...), []string{"65536", "export-minimal"}},
		{"a private key", private(t, plain()), []string{"private key", "must not leave its owner", "`gpg --armor --export`"}},
		{"a private key that is called public", enclose(t, openpgp.PublicKeyType, privatePackets(t, plain())), []string{"private key", "must not leave its owner"}},
		{"a signature", enclose(t, openpgp.SignatureType, detached(t, plain(), at(ed25519, now, 0))), []string{"PGP SIGNATURE"}},
		{"a signature that is called a key", enclose(t, openpgp.PublicKeyType, detached(t, plain(), at(ed25519, now, 0))), []string{"cannot be read"}},
		{"two blocks", append(slices.Clone(text), public(t, other())...), []string{"several armored blocks"}},
		{"two keys", public(t, plain(), other()), []string{"2 keys", "one by one"}},
		{"text before", append([]byte("My key:\n"), text...), []string{"not an armored"}},
		{"text behind", append(slices.Clone(text), "Cheers\n"...), []string{"something follows"}},
		{"half of it", short(text), []string{"cut short"}},
		{"half of its packets", enclose(t, openpgp.PublicKeyType, short(packetsOf(t, plain().Serialize))), []string{"cannot be read"}},
		{"no packets", enclose(t, openpgp.PublicKeyType, nil), []string{"cannot be read"}},
		{"something else beside", enclose(t, openpgp.PublicKeyType, append(packetsOf(t, plain().Serialize), 0xcb, 0)), []string{"type 11"}},
		{"damaged armor", bytes.Replace(text, []byte("\n\n"), []byte("\n\n!!!!"), 1), []string{"damaged"}},
		{"compromised", public(t, revoked), []string{revoked.PrimaryKey.KeyIdString(), "revoked"}},
		{"superseded", public(t, superseded), []string{"revoked"}},
		{"expired", public(t, generate(t, at(ed25519, born, time.Hour))), []string{"expired", born.Add(time.Hour).UTC().Format("2006-01-02"), "--quick-set-expire"}},
		{"of tomorrow", public(t, generate(t, at(ed25519, now.Add(24*time.Hour), 0))), []string{"future"}},
		{"for encryption alone", public(t, sealed(t, ed25519)), []string{"may sign", "--quick-add-key"}},
		{"an expired subkey", public(t, expiredSubkey), []string{"may sign"}},
		{"a revoked subkey", public(t, revokedSubkey), []string{"may sign"}},
		{"a weak subkey", public(t, weakSubkey), []string{"subkey", "RSA 1024", "2048"}},
		{"RSA 1024", public(t, generate(t, at(rsa1024, born, 0))), []string{"RSA 1024", "2048"}},
		{"nobody's", public(t, noOwner), []string{"cannot be read"}},
		{"of version 6", public(t, generate(t, at(packet.Config{Algorithm: packet.PubKeyAlgoEd25519, V6Keys: true}, born, 0))), []string{"version 6"}},
		{"of a new algorithm", public(t, generate(t, at(packet.Config{Algorithm: packet.PubKeyAlgoEd25519}, born, 0))), []string{"algorithm 27"}},
	}
	for _, test := range tests {
		key, err := signing.ParseKey(test.input, now)
		refused(t, test.what, err, test.words...)
		if key != (signing.Key{}) {
			t.Errorf("%s: there is a key", test.what)
		}
	}
	dsa, err := os.ReadFile("testdata/dsa.asc")
	if err != nil {
		t.Fatal(err)
	}
	_, err = signing.ParseKey(dsa, now)
	refused(t, "DSA", err, "DSA", "too weak")
}

// What GnuPG makes: a key to certify, two user ids, subkeys to sign, encrypt and authenticate.
func TestGnuPG(t *testing.T) {
	t.Parallel()
	read := func(name string) []byte {
		data, err := os.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	key := parse(t, read("gnupg.asc"))
	if key.Owner != "Ada Example (packages) <ada@example.com>" || key.Algorithm != "ECDSA P-384" || !key.ExpiresAt.IsZero() {
		t.Errorf("the key is %+v", key)
	}
	sums := read("SHA256SUMS")
	if signer, err := signing.Verify([]signing.Key{key}, sums, read("SHA256SUMS.sig"), now); err != nil || signer.ID != key.ID {
		t.Errorf("Verify = %v, %v", signer, err)
	}
	if got, err := signing.ParseSums(sums); err != nil || len(got) != 2 || !bytes.Equal(signing.RenderSums(got), sums) {
		t.Errorf("ParseSums = %v, %v", got, err)
	}
}

func TestSubkeys(t *testing.T) {
	t.Parallel()
	e := sealed(t, rsa2048)
	old := subkey(t, e, at(ed25519, born, 0)).PublicKey.KeyId
	newer := subkey(t, e, at(p256, born.Add(time.Hour), 0)).PublicKey.KeyId
	lapsed := subkey(t, e, at(ed25519, born, 2*time.Hour)).PublicKey.KeyId
	signature, key, err := signing.Sign(private(t, e), nil, message, now)
	if err != nil {
		t.Fatal(err)
	}
	p, err := packet.Read(bytes.NewReader(signature))
	if sig, ok := p.(*packet.Signature); err != nil || !ok || *sig.IssuerKeyId != newer || sig.Hash != crypto.SHA512 {
		t.Errorf("the signature is %+v, %v", p, err)
	}
	if err := asClients(key, signature); err != nil {
		t.Error(err)
	}
	keys := []signing.Key{key}
	byOld := detached(t, e, at(packet.Config{SigningKeyId: old}, now, 0))
	if signer, err := signing.Verify(keys, message, byOld, now); err != nil || signer.ID != e.PrimaryKey.KeyIdString() {
		t.Errorf("Verify = %v, %v", signer, err)
	}
	// Clients take what a key has signed that has expired since, and need it for that; it signs nothing new.
	byLapsed := detached(t, e, at(packet.Config{SigningKeyId: lapsed}, born.Add(time.Hour), 0))
	_, err = signing.Verify(keys, message, byLapsed, now)
	refused(t, "an expired subkey", err, "expired")
	if _, err := signing.Verify(keys, message, byLapsed, born.Add(time.Hour)); err != nil {
		t.Error(err)
	}
	// A revoked one stays, for clients to know.
	if err := e.RevokeSubkey(&e.Subkeys[1], packet.KeyCompromised, "", at(rsa2048, now, 0)); err != nil {
		t.Fatal(err)
	}
	keys = []signing.Key{parse(t, public(t, e))}
	_, err = signing.Verify(keys, message, byOld, now)
	refused(t, "a revoked subkey", err, "revoked")
	if asClients(keys[0], byOld) == nil {
		t.Error("clients take what a revoked subkey has signed")
	}
}

func TestVerifyRefuses(t *testing.T) {
	t.Parallel()
	e := plain()
	key := parse(t, public(t, e))
	good := detached(t, e, at(ed25519, now, 0))
	if _, err := signing.Verify([]signing.Key{key}, message, good, now); err != nil {
		t.Fatal(err)
	}
	expired := at(ed25519, born, 0)
	expired.SigLifetimeSecs = 60
	expiring := at(ed25519, now, 0)
	expiring.SigLifetimeSecs = 86400
	brief := generate(t, at(ed25519, born, time.Hour))
	briefKey, err := signing.ParseKey(public(t, brief), born.Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	revoked := generate(t, at(ed25519, born, 0))
	byRevoked := detached(t, revoked, at(ed25519, now, 0))
	if err := revoked.RevokeKey(packet.KeyCompromised, "", at(ed25519, now, 0)); err != nil {
		t.Fatal(err)
	}
	revokedKey := signing.Key{ID: revoked.PrimaryKey.KeyIdString(), ASCIIArmor: string(public(t, revoked))}
	unable := sealed(t, ed25519)
	unableKey := signing.Key{ID: unable.PrimaryKey.KeyIdString(), ASCIIArmor: string(public(t, unable))}
	for _, id := range unable.Identities {
		id.SelfSignature.FlagSign = true
	}
	flipped := slices.Clone(good)
	flipped[len(flipped)-1] ^= 1
	rsaKey := parse(t, public(t, large()))
	sha1 := overSHA1(t, large())
	if err := asClients(rsaKey, sha1); err != nil {
		t.Errorf("clients refuse SHA-1 themselves: %v", err)
	}
	const digest = "gpg --digest-algo SHA512 --detach-sign"
	tests := []struct {
		what      string
		keys      []signing.Key
		signature []byte
		words     []string
	}{
		{"nothing", []signing.Key{key}, nil, []string{"gpg --detach-sign"}},
		{"garbage", []signing.Key{key}, []byte("hello"), []string{"gpg --detach-sign"}},
		{"armored", []signing.Key{key}, enclose(t, openpgp.SignatureType, good), []string{"armored", "`gpg --detach-sign`, without `--armor`"}},
		{"too much", []signing.Key{key}, make([]byte, 16<<10+1), []string{"16384"}},
		{"twice", []signing.Key{key}, append(slices.Clone(good), good...), []string{"behind it"}},
		{"something behind", []signing.Key{key}, append(slices.Clone(good), 0), []string{"behind it"}},
		{"half of it", []signing.Key{key}, good[:len(good)/2], []string{"cannot be read"}},
		{"a key", []signing.Key{key}, packetsOf(t, e.PrimaryKey.Serialize), []string{"something else"}},
		{"altered", []signing.Key{key}, flipped, []string{key.ID, "exactly the file"}},
		{"another's", []signing.Key{key}, detached(t, other(), at(p256, now, 0)), []string{other().PrimaryKey.KeyIdString(), "none of the keys " + key.ID}},
		{"no keys", nil, good, []string{key.ID, "Add the public key"}},
		{"a damaged key before it", []signing.Key{{ID: "0123456789ABCDEF"}, key}, good, []string{"0123456789ABCDEF"}},
		{"an expired signature", []signing.Key{key}, detached(t, e, expired), []string{"expires", "--default-sig-expire"}},
		{"a signature that will expire", []signing.Key{key}, detached(t, e, expiring), []string{"expires", "--default-sig-expire"}},
		{"of tomorrow", []signing.Key{key}, detached(t, e, at(ed25519, now.Add(24*time.Hour), 0)), []string{"future"}},
		{"an expired key", []signing.Key{briefKey}, detached(t, brief, at(ed25519, born, 0)), []string{briefKey.ID, "this key has expired"}},
		{"a revoked key", []signing.Key{revokedKey}, byRevoked, []string{revokedKey.ID, "revoked"}},
		{"over SHA-1", []signing.Key{rsaKey}, sha1, []string{"SHA-1", digest}},
		{"over MD5", []signing.Key{key}, withHash(good, 1), []string{"MD5", digest}},
		{"over RIPEMD-160", []signing.Key{key}, withHash(good, 3), []string{"RIPEMD-160", digest}},
		{"a key that is not for signing", []signing.Key{unableKey}, detached(t, unable, at(ed25519, now, 0)), []string{unableKey.ID, "not for signing"}},
	}
	// What no key could help is refused without one.
	hopeless := []string{"nothing", "garbage", "armored", "too much", "twice", "something behind", "half of it", "a key", "an expired signature", "a signature that will expire", "of tomorrow", "over SHA-1", "over MD5", "over RIPEMD-160"}
	if id, err := signing.Issuer(good, now); err != nil || id != key.ID {
		t.Errorf("the issuer is %s, %v; want %s", id, err, key.ID)
	}
	for _, test := range tests {
		signer, err := signing.Verify(test.keys, message, test.signature, now)
		refused(t, test.what, err, test.words...)
		if _, err := signing.Issuer(test.signature, now); (err != nil) != slices.Contains(hopeless, test.what) {
			t.Errorf("%s: the issuer is known: %v", test.what, err)
		}
		if signer != (signing.Key{}) {
			t.Errorf("%s: there is a signer", test.what)
		}
	}
}

func TestSign(t *testing.T) {
	t.Parallel()
	const passphrase = "correct horse"
	encrypted := func(config *packet.Config) *openpgp.Entity {
		e := generate(t, at(ed25519, born, 0))
		subkey(t, e, at(ed25519, born, 0))
		if err := e.EncryptPrivateKeys([]byte(passphrase), config); err != nil {
			t.Fatal(err)
		}
		return e
	}
	iterated := encrypted(&packet.Config{S2KConfig: &s2k.Config{S2KMode: s2k.IteratedSaltedS2K, S2KCount: 65536}})
	argon := encrypted(&packet.Config{AEADConfig: &packet.AEADConfig{}, S2KConfig: &s2k.Config{S2KMode: s2k.Argon2S2K, Argon2Config: &s2k.Argon2Config{NumberOfPasses: 1, DegreeOfParallelism: 1, Memory: 1024}}})
	clear := generate(t, at(ed25519, born, 0))

	for what, input := range map[string]struct{ key, passphrase []byte }{
		"armored":             {private(t, clear), nil},
		"binary":              {privatePackets(t, clear), nil},
		"a needless one":      {private(t, clear), []byte("x")},
		"encrypted":           {private(t, iterated), []byte(passphrase)},
		"encrypted, binary":   {privatePackets(t, iterated), []byte(passphrase)},
		"encrypted by Argon2": {private(t, argon), []byte(passphrase)},
	} {
		signature, key, err := signing.Sign(input.key, input.passphrase, message, now)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if err := asClients(key, signature); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if strings.Contains(key.ASCIIArmor, "PRIVATE") {
			t.Errorf("%s: the key is %s", what, key.ASCIIArmor)
		}
	}

	for what, wrong := range map[string]struct {
		key        *openpgp.Entity
		passphrase string
		words      string
	}{
		"missing": {iterated, "", "missing"}, "wrong": {iterated, "x", "wrong"}, "missing, Argon2": {argon, "", "missing"}, "wrong, Argon2": {argon, "x", "wrong"},
	} {
		_, _, err := signing.Sign(private(t, wrong.key), []byte(wrong.passphrase), message, now)
		if refused(t, what, err, wrong.words); !errors.Is(err, signing.ErrPassphrase) {
			t.Errorf("%s: %v is not ErrPassphrase", what, err)
		}
	}

	// 2 TiB of memory for a passphrase.
	bomb := privatePackets(t, argon)
	specifier := []byte{byte(packet.S2KAEAD), byte(packet.CipherAES128), byte(packet.AEADModeOCB), 4}
	for i := bytes.Index(bomb, specifier); i >= 0; {
		bomb[i+22] = 31
		next := bytes.Index(bomb[i+1:], specifier)
		if next < 0 {
			break
		}
		i += 1 + next
	}
	two := append(privatePackets(t, clear), privatePackets(t, other())...)
	stub := generate(t, at(ed25519, born, 0))
	tests := []struct {
		what  string
		key   []byte
		words []string
	}{
		{"nothing", nil, []string{"--export-secret-keys"}},
		{"some text", []byte("hello"), []string{"--export-secret-keys"}},
		{"too much", make([]byte, 64<<10+1), []string{"65536"}},
		{"public", public(t, clear), []string{"public", "--export-secret-keys"}},
		{"a bomb", bomb, []string{"2048 MiB", "--change-passphrase"}},
		{"two keys", two, []string{"several"}},
		{"two armored keys", enclose(t, openpgp.PrivateKeyType, two), []string{"several"}},
		{"two blocks", append(private(t, clear), private(t, other())...), []string{"not one armored"}},
		{"half of it", private(t, clear)[:200], []string{"not one armored"}},
		{"half of its packets", privatePackets(t, clear)[:80], []string{"cannot be read"}},
		{"expired", private(t, generate(t, at(ed25519, born, time.Hour))), []string{"expired"}},
		{"encryption alone", private(t, sealed(t, ed25519)), []string{"may sign"}},
		{"a stub", stubs(t, stub), []string{"smart card"}},
	}
	for _, test := range tests {
		signature, key, err := signing.Sign(test.key, []byte(passphrase), message, now)
		refused(t, test.what, err, test.words...)
		if signature != nil || key != (signing.Key{}) {
			t.Errorf("%s: there is a signature or a key", test.what)
		}
	}

	// With the primary key a stub, as `gpg --export-secret-subkeys` leaves it, a subkey signs.
	subkey(t, stub, at(ed25519, born, 0))
	signature, key, err := signing.Sign(stubs(t, stub), nil, message, now)
	if err != nil {
		t.Fatal(err)
	}
	if err := asClients(key, signature); err != nil {
		t.Error(err)
	}
}

// stubs writes a private key as GnuPG does without the secret of the primary key. Source: doc/DETAILS of GnuPG, "GNU
// extensions to the S2K algorithm".
func stubs(t testing.TB, e *openpgp.Entity) []byte {
	t.Helper()
	all := privatePackets(t, e)
	first, err := packet.NewOpaqueReader(bytes.NewReader(all)).Next()
	if err != nil {
		t.Fatal(err)
	}
	whole := packetsOf(t, first.Serialize)
	own, err := packet.NewOpaqueReader(bytes.NewReader(packetsOf(t, e.PrimaryKey.Serialize))).Next()
	if err != nil {
		t.Fatal(err)
	}
	first.Contents = append(slices.Clone(own.Contents), 255, 0, 101, 0, 'G', 'N', 'U', 1)
	return append(packetsOf(t, first.Serialize), all[len(whole):]...)
}

// What is accepted reads as itself, and clients read it.
func FuzzParseKey(f *testing.F) {
	f.Add(public(f, plain()))
	f.Add(packetsOf(f, plain().Serialize))
	f.Add(packetsOf(f, other().Serialize))
	f.Add(private(f, plain()))
	for _, name := range []string{"gnupg.asc", "dsa.asc"} {
		data, err := os.ReadFile("testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		block, err := armor.Decode(bytes.NewReader(data))
		if err != nil {
			f.Fatal(err)
		}
		packets, err := io.ReadAll(block.Body)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
		f.Add(packets)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		// Damage within the packets is more telling than in their armor.
		for _, text := range [][]byte{data, enclose(t, openpgp.PublicKeyType, data)} {
			key, err := signing.ParseKey(text, now)
			if err != nil {
				if !errors.Is(err, registry.ErrInvalid) {
					t.Errorf("%v is not ErrInvalid", err)
				}
				continue
			}
			if again, err := signing.ParseKey([]byte(key.ASCIIArmor), now); err != nil || again != key {
				t.Errorf("%+v reads as %+v, %v", key, again, err)
			}
			ring, err := openpgp.ReadArmoredKeyRing(strings.NewReader(key.ASCIIArmor))
			if err != nil || len(ring) != 1 || ring[0].PrivateKey != nil || strings.ContainsAny(key.Owner, "\x00\n\r\x1b") {
				t.Errorf("%+v is read as %v, %v", key, ring, err)
			}
		}
		// A private key is no safer to read.
		for _, text := range [][]byte{data, enclose(t, openpgp.PrivateKeyType, data)} {
			if _, key, err := signing.Sign(text, nil, message, now); err == nil && strings.Contains(key.ASCIIArmor, "PRIVATE") {
				t.Errorf("the key is %s", key.ASCIIArmor)
			}
		}
	})
}

// What is accepted, clients accept.
func FuzzVerify(f *testing.F) {
	var keys []signing.Key
	for _, e := range []*openpgp.Entity{plain(), other(), large()} {
		keys = append(keys, parse(f, public(f, e)))
		f.Add(detached(f, e, at(ed25519, now, 0)))
		f.Add(enclose(f, openpgp.SignatureType, detached(f, e, at(ed25519, now, 0))))
	}
	f.Fuzz(func(t *testing.T, signature []byte) {
		signer, err := signing.Verify(keys, message, signature, now)
		if err != nil {
			if !errors.Is(err, registry.ErrInvalid) {
				t.Errorf("%v is not ErrInvalid", err)
			}
			return
		}
		if err := asClients(signer, signature); err != nil {
			t.Errorf("clients do not take it: %v", err)
		}
	})
}
