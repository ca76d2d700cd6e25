package signing_test

import (
	"bytes"
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
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
	oldopenpgp "golang.org/x/crypto/openpgp" //nolint:staticcheck // Terraform 1.5 uses it

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/content/signing"
	"github.com/larder-registry/larder/pkg/registry"
)

var (
	// Clients use the clock, so these keys must be valid now.
	now     = time.Now().Truncate(time.Second)
	born    = now.Add(-24 * time.Hour)
	message = []byte(strings.Repeat("0", 64) + "  terraform-provider-x_1.0.0_linux_amd64.zip\n")
)

// The library's configurations for each kind of key.
var (
	ed25519 = packet.Config{Algorithm: packet.PubKeyAlgoEdDSA}
	p256    = packet.Config{Algorithm: packet.PubKeyAlgoECDSA, Curve: packet.CurveNistP256}
	p384    = packet.Config{Algorithm: packet.PubKeyAlgoECDSA, Curve: packet.CurveNistP384}
	p521    = packet.Config{Algorithm: packet.PubKeyAlgoECDSA, Curve: packet.CurveNistP521}
	rsa1024 = packet.Config{Algorithm: packet.PubKeyAlgoRSA, RSABits: 1024}
	rsa2048 = packet.Config{Algorithm: packet.PubKeyAlgoRSA, RSABits: 2048}
	rsa4096 = packet.Config{Algorithm: packet.PubKeyAlgoRSA, RSABits: 4096}
)

// at returns the configuration with another time, and a lifetime for the
// result.
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

// sealed returns a key whose primary key can only certify.
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

// asClients verifies a signature in the way of OpenTofu and Terraform.
func asClients(key signing.Key, signature []byte) error {
	ring, err := openpgp.ReadArmoredKeyRing(strings.NewReader(key.ASCIIArmor))
	if err != nil {
		return err
	}
	_, err = openpgp.CheckDetachedSignature(ring, bytes.NewReader(message), bytes.NewReader(signature), nil)
	return err
}

// asOldClients verifies a signature in the way of Terraform 1.5.
func asOldClients(key signing.Key, signature []byte) error {
	ring, err := oldopenpgp.ReadArmoredKeyRing(strings.NewReader(key.ASCIIArmor))
	if err != nil {
		return err
	}
	_, err = oldopenpgp.CheckDetachedSignature(ring, bytes.NewReader(message), bytes.NewReader(signature))
	return err
}

// variable matches the parts of errors that differ between test runs: key IDs
// and times.
var variable = regexp.MustCompile(`\b[0-9A-F]{16}\b|\d{4}-\d\d-\d\d \d\d:\d\d UTC`)

// checkRefused checks that an error is ErrInvalid and has each of some names. The
// error and its hint must be one line each. It records both in texts.
func checkRefused(t testing.TB, texts *golden.Texts, err error, names ...string) {
	t.Helper()
	if !errors.Is(err, registry.ErrInvalid) {
		t.Errorf("got error %v, want ErrInvalid", err)
		return
	}
	for _, name := range names {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("the error %q does not contain %q", err, name)
		}
	}
	hint := registry.Hint(err)
	for _, line := range []string{err.Error(), hint} {
		if strings.ContainsAny(line, "\n\r\x1b") {
			t.Errorf("%q is not one line", line)
		}
		if len(line) > 500 {
			t.Errorf("%q has %d bytes", line, len(line))
		}
	}
	if strings.Contains(err.Error(), "gpg") {
		t.Errorf("the command of %q belongs in the hint", err)
	}
	var replace []string
	for _, text := range variable.FindAllString(err.Error(), -1) {
		replace = append(replace, text, "VARIABLE")
	}
	texts.Error(t, err, replace...)
}

// overSHA1 signs the message with SHA-1, which the library's own functions
// reject.
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

// withHash returns a signature of fewer than 192 bytes with another hash ID.
func withHash(signature []byte, id byte) []byte {
	const header, hash = 2, 3
	changed := slices.Clone(signature)
	changed[header+hash] = id
	return changed
}

// The keys that several tests use. Each is generated once.
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
	texts := golden.New(t)
	for _, test := range []struct {
		want   string
		config packet.Config
	}{
		{"RSA 2048", rsa2048}, {"RSA 4096", rsa4096}, {"Ed25519", ed25519}, {"ECDSA P-256", p256},
		{"ECDSA P-384", p384}, {"ECDSA P-521", p521},
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
				t.Errorf("Sign and ParseKey return different keys:\n%s", diff)
			}
			want := signing.Key{
				ID: e.PrimaryKey.KeyIdString(), Owner: key.Owner, Algorithm: test.want, CreatedAt: born.UTC(),
				ASCIIArmor: key.ASCIIArmor,
			}
			if diff := cmp.Diff(want, key); diff != "" {
				t.Error(diff)
			}
			if err := asClients(key, signature); err != nil {
				t.Errorf("clients reject it: %v", err)
			}
			if err := asOldClients(key, signature); signing.FitsOldClients(key) != (err == nil) {
				t.Errorf("FitsOldClients is %t; old clients: %v", signing.FitsOldClients(key), err)
			}
			keys := []signing.Key{parse(t, public(t, other())), key}
			if signer, err := signing.Verify(keys, message, signature, now); err != nil || signer != key {
				t.Errorf("Verify = %v, %v", signer, err)
			}
			_, err = signing.Verify(keys, append(message[:len(message):len(message)], '\n'), signature, now)
			checkRefused(t, texts, err, key.ID)
		})
	}
}

// TestOldClientsAndSubkeys checks that a subkey that old clients cannot read
// makes them reject the whole key.
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
	ends := []string{lines[0], lines[1], lines[len(lines)-1]}
	if diff := cmp.Diff([]string{"-----BEGIN PGP PUBLIC KEY BLOCK-----", "", ""}, ends); diff != "" {
		t.Errorf("the armor is\n%s\n%s", key.ASCIIArmor, diff)
	}
	if strings.Contains(key.ASCIIArmor, "Comment") {
		t.Errorf("the armor has a comment:\n%s", key.ASCIIArmor)
	}
	ring, err := openpgp.ReadArmoredKeyRing(strings.NewReader(key.ASCIIArmor))
	if err != nil || len(ring) != 1 || ring[0].PrivateKey != nil || len(ring[0].Subkeys) != 0 {
		t.Errorf("clients read %v, %v", ring, err)
	}
	encoded, err := json.Marshal(key)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(encoded), `{"id":"`+key.ID+`","owner":"Ada Example`) {
		t.Errorf("the JSON is %s", encoded)
	}
	if strings.Contains(string(encoded), "expires_at") {
		t.Errorf("the JSON has an expiry: %s", encoded)
	}
	// Other tools change the text of the same key.
	for what, variant := range map[string][]byte{
		"read again":   []byte(key.ASCIIArmor),
		"CR LF":        bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n")),
		"space around": []byte("\ufeff\n \n" + string(text) + "\n\t\n"),
		"UTF-16":       []byte("\xFF\xFE" + strings.Join(strings.Split(string(text), ""), "\x00") + "\x00"),
		"text before":  []byte("gpg: using key 1\nuid  -----BEGIN is not at the begin\n\n" + string(text)),
		"text behind":  []byte(string(text) + "-- \nCheers, Ada\n"),
		"indented":     regexp.MustCompile("(?m)^").ReplaceAll(text, []byte("  ")),
	} {
		if diff := cmp.Diff(key, parse(t, variant)); diff != "" {
			t.Errorf("%s:\n%s", what, diff)
		}
	}

	// The expiry is that of the last part that can sign, but not later than
	// that of the primary key.
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

// TestOwner checks that owners are safe to show in terminals and tables.
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

// TestSeveralUserIDs checks that the choice of the primary user ID and the
// served key are deterministic.
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
		// A signature by another person.
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
	texts := golden.New(t)
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
	part := subkey(t, revokedSubkey, at(ed25519, born, 0))
	if err := revokedSubkey.RevokeSubkey(part, packet.NoReason, "", at(ed25519, born, 0)); err != nil {
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
	dsa, err := os.ReadFile("testdata/dsa.asc")
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		what  string
		input []byte
		names []string
	}{
		{"DSA", dsa, nil},
		{"nothing", nil, nil},
		{"some text", []byte("hello"), nil},
		{"a binary key", packetsOf(t, plain().Serialize), nil},
		{"too much", append(slices.Clone(text), make([]byte, 64<<10)...), nil},
		{"a private key", private(t, plain()), nil},
		{"a private key that is called public", enclose(t, openpgp.PublicKeyType, privatePackets(t, plain())), nil},
		{"a signature", enclose(t, openpgp.SignatureType, detached(t, plain(), at(ed25519, now, 0))), nil},
		{
			"a signature that is called a key", enclose(t, openpgp.PublicKeyType, detached(t, plain(), at(ed25519, now, 0))),
			nil,
		},
		{"two blocks", append(slices.Clone(text), public(t, other())...), nil},
		{"two keys", public(t, plain(), other()), nil},
		{"text around two blocks", fmt.Appendf(nil, "Mine:\n%sOurs:\n%s", text, public(t, other())), nil},
		{"text that names the mark", []byte("A key begins with -----BEGIN PGP PUBLIC KEY BLOCK-----\n"), nil},
		{"half of it", short(text), nil},
		{"half of its packets", enclose(t, openpgp.PublicKeyType, short(packetsOf(t, plain().Serialize))), nil},
		{"no packets", enclose(t, openpgp.PublicKeyType, nil), nil},
		{"something else beside", enclose(t, openpgp.PublicKeyType, append(packetsOf(t, plain().Serialize), 0xcb, 0)), nil},
		{"damaged armor", bytes.Replace(text, []byte("\n\n"), []byte("\n\n!!!!"), 1), nil},
		{"compromised", public(t, revoked), []string{revoked.PrimaryKey.KeyIdString()}},
		{"superseded", public(t, superseded), nil},
		{
			"expired", public(t, generate(t, at(ed25519, born, time.Hour))),
			[]string{born.Add(time.Hour).UTC().Format("2006-01-02")},
		},
		{"of tomorrow", public(t, generate(t, at(ed25519, now.Add(24*time.Hour), 0))), nil},
		{"for encryption alone", public(t, sealed(t, ed25519)), nil},
		{"an expired subkey", public(t, expiredSubkey), nil},
		{"a revoked subkey", public(t, revokedSubkey), nil},
		{"a weak subkey", public(t, weakSubkey), []string{"RSA 1024"}},
		{"RSA 1024", public(t, generate(t, at(rsa1024, born, 0))), []string{"RSA 1024"}},
		{"nobody's", public(t, noOwner), nil},
		{
			"of version 6",
			public(t, generate(t, at(packet.Config{Algorithm: packet.PubKeyAlgoEd25519, V6Keys: true}, born, 0))), nil,
		},
		{"of a new algorithm", public(t, generate(t, at(packet.Config{Algorithm: packet.PubKeyAlgoEd25519}, born, 0))), nil},
	}
	for _, test := range tests {
		t.Run(test.what, func(t *testing.T) {
			t.Parallel()
			key, err := signing.ParseKey(test.input, now)
			checkRefused(t, texts, err, test.names...)
			if key != (signing.Key{}) {
				t.Errorf("got the key %+v with the error", key)
			}
		})
	}
}

// TestGnuPG reads a key of GnuPG that certifies. It has two user IDs, and
// subkeys that sign, encrypt and authenticate.
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
	if key.Owner != "Ada Example (packages) <ada@example.com>" || key.Algorithm != "ECDSA P-384" ||
		!key.ExpiresAt.IsZero() {
		t.Errorf("the key is %+v", key)
	}
	sums := read("SHA256SUMS")
	signer, err := signing.Verify([]signing.Key{key}, sums, read("SHA256SUMS.sig"), now)
	if err != nil || signer.ID != key.ID {
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
	// Clients accept earlier signatures of an expired key, and need the key for
	// them. The key makes no new signatures.
	byLapsed := detached(t, e, at(packet.Config{SigningKeyId: lapsed}, born.Add(time.Hour), 0))
	_, err = signing.Verify(keys, message, byLapsed, now)
	texts := golden.New(t)
	checkRefused(t, texts, err)
	if _, err := signing.Verify(keys, message, byLapsed, born.Add(time.Hour)); err != nil {
		t.Error(err)
	}
	// A revoked subkey remains in the key, so that clients see the revocation.
	if err := e.RevokeSubkey(&e.Subkeys[1], packet.KeyCompromised, "", at(rsa2048, now, 0)); err != nil {
		t.Fatal(err)
	}
	keys = []signing.Key{parse(t, public(t, e))}
	_, err = signing.Verify(keys, message, byOld, now)
	checkRefused(t, texts, err)
	if asClients(keys[0], byOld) == nil {
		t.Error("clients take what a revoked subkey has signed")
	}
}

func TestVerifyRefuses(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
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
	tests := []struct {
		what      string
		keys      []signing.Key
		signature []byte
		names     []string
	}{
		{"nothing", []signing.Key{key}, nil, nil},
		{"garbage", []signing.Key{key}, []byte("hello"), nil},
		{"armored", []signing.Key{key}, enclose(t, openpgp.SignatureType, good), nil},
		{"too much", []signing.Key{key}, make([]byte, 16<<10+1), nil},
		{"twice", []signing.Key{key}, append(slices.Clone(good), good...), nil},
		{"something behind", []signing.Key{key}, append(slices.Clone(good), 0), nil},
		{"half of it", []signing.Key{key}, good[:len(good)/2], nil},
		{"a key", []signing.Key{key}, packetsOf(t, e.PrimaryKey.Serialize), nil},
		{"altered", []signing.Key{key}, flipped, []string{key.ID}},
		{
			"another's", []signing.Key{key}, detached(t, other(), at(p256, now, 0)),
			[]string{other().PrimaryKey.KeyIdString(), key.ID},
		},
		{"no keys", nil, good, []string{key.ID}},
		{"a damaged key before it", []signing.Key{{ID: "0123456789ABCDEF"}, key}, good, []string{"0123456789ABCDEF"}},
		{"an expired signature", []signing.Key{key}, detached(t, e, expired), nil},
		{"a signature that will expire", []signing.Key{key}, detached(t, e, expiring), nil},
		{"of tomorrow", []signing.Key{key}, detached(t, e, at(ed25519, now.Add(24*time.Hour), 0)), nil},
		{"an expired key", []signing.Key{briefKey}, detached(t, brief, at(ed25519, born, 0)), []string{briefKey.ID}},
		{"a revoked key", []signing.Key{revokedKey}, byRevoked, []string{revokedKey.ID}},
		{"over SHA-1", []signing.Key{rsaKey}, sha1, nil},
		{"over MD5", []signing.Key{key}, withHash(good, 1), nil},
		{"over RIPEMD-160", []signing.Key{key}, withHash(good, 3), nil},
		{
			"a key that is not for signing", []signing.Key{unableKey}, detached(t, unable, at(ed25519, now, 0)),
			[]string{unableKey.ID},
		},
	}
	// Issuer rejects the signatures that are invalid for every key.
	withoutIssuer := []string{
		"nothing", "garbage", "armored", "too much", "twice", "something behind", "half of it", "a key",
		"an expired signature", "a signature that will expire", "of tomorrow", "over SHA-1", "over MD5", "over RIPEMD-160",
	}
	if id, err := signing.Issuer(good, now); err != nil || id != key.ID {
		t.Errorf("the issuer is %s, %v; want %s", id, err, key.ID)
	}
	for _, test := range tests {
		t.Run(test.what, func(t *testing.T) {
			t.Parallel()
			signer, err := signing.Verify(test.keys, message, test.signature, now)
			checkRefused(t, texts, err, test.names...)
			if signer != (signing.Key{}) {
				t.Errorf("got the signer %+v with the error", signer)
			}
			_, err = signing.Issuer(test.signature, now)
			if want := slices.Contains(withoutIssuer, test.what); (err != nil) != want {
				t.Errorf("Issuer: got error %v, want an error: %t", err, want)
			}
		})
	}
}

func TestSign(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
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
	argon := encrypted(&packet.Config{
		AEADConfig: &packet.AEADConfig{},
		S2KConfig: &s2k.Config{
			S2KMode:      s2k.Argon2S2K,
			Argon2Config: &s2k.Argon2Config{NumberOfPasses: 1, DegreeOfParallelism: 1, Memory: 1024},
		},
	})
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
	}{
		"missing": {iterated, ""}, "wrong": {iterated, "x"},
		"missing, Argon2": {argon, ""}, "wrong, Argon2": {argon, "x"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			_, _, err := signing.Sign(private(t, wrong.key), []byte(wrong.passphrase), message, now)
			checkRefused(t, texts, err)
			if !errors.Is(err, signing.ErrPassphrase) {
				t.Errorf("got error %v, want ErrPassphrase", err)
			}
		})
	}

	// The passphrase needs 2 TiB of memory.
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
		names []string
	}{
		{"nothing", nil, nil},
		{"some text", []byte("hello"), nil},
		{"too much", make([]byte, 64<<10+1), nil},
		{"public", public(t, clear), nil},
		{"a bomb", bomb, nil},
		{"two keys", two, nil},
		{"two armored keys", enclose(t, openpgp.PrivateKeyType, two), nil},
		{"two blocks", append(private(t, clear), private(t, other())...), nil},
		{"half of it", private(t, clear)[:200], nil},
		{"half of its packets", privatePackets(t, clear)[:80], nil},
		{"expired", private(t, generate(t, at(ed25519, born, time.Hour))), nil},
		{"encryption alone", private(t, sealed(t, ed25519)), nil},
		{"a stub", stubs(t, stub), nil},
	}
	for _, test := range tests {
		t.Run(test.what, func(t *testing.T) {
			t.Parallel()
			signature, key, err := signing.Sign(test.key, []byte(passphrase), message, now)
			checkRefused(t, texts, err, test.names...)
			if signature != nil {
				t.Error("got a signature with the error")
			}
			if key != (signing.Key{}) {
				t.Errorf("got the key %+v with the error", key)
			}
		})
	}

	// A subkey signs if the primary key is a stub, as after `gpg
	// --export-secret-subkeys`.
	subkey(t, stub, at(ed25519, born, 0))
	signature, key, err := signing.Sign(stubs(t, stub), nil, message, now)
	if err != nil {
		t.Fatal(err)
	}
	if err := asClients(key, signature); err != nil {
		t.Error(err)
	}
}

// stubs returns a private key without the secret of the primary key, in the
// format of GnuPG. Source: doc/DETAILS of GnuPG, "GNU extensions to the S2K
// algorithm".
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

// FuzzParseKey checks that an accepted key parses to itself, and that clients
// read it.
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
		// Damage to the packets finds more than damage to their armor.
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
		// Private keys need the same safety.
		for _, text := range [][]byte{data, enclose(t, openpgp.PrivateKeyType, data)} {
			if _, key, err := signing.Sign(text, nil, message, now); err == nil && strings.Contains(key.ASCIIArmor, "PRIVATE") {
				t.Errorf("the key is %s", key.ASCIIArmor)
			}
		}
	})
}

// FuzzVerify checks that clients accept every accepted signature.
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
			t.Errorf("clients reject it: %v", err)
		}
	})
}
