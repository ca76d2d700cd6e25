package signing_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/ProtonMail/go-crypto/openpgp"
	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"
	"github.com/ProtonMail/go-crypto/openpgp/packet"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/content/signing"
	"github.com/larder-registry/larder/pkg/registry"
)

// clientsInstall tries the keys in the way of OpenTofu and Terraform, with the
// current time.
func clientsInstall(keys []string, message, signature []byte) bool {
	for _, key := range keys {
		ring, err := openpgp.ReadArmoredKeyRing(strings.NewReader(key))
		if err != nil {
			return false
		}
		_, err = openpgp.CheckDetachedSignature(ring, bytes.NewReader(message), bytes.NewReader(signature), nil)
		if errors.Is(err, pgperrors.ErrUnknownIssuer) {
			continue
		}
		return err == nil || errors.Is(err, pgperrors.ErrKeyExpired)
	}
	return false
}

// armors returns an armored block for each key.
func armors(t testing.TB, entities ...*openpgp.Entity) []string {
	t.Helper()
	var keys []string
	for _, e := range entities {
		keys = append(keys, string(public(t, e)))
	}
	return keys
}

func TestVerifyOrigin(t *testing.T) {
	t.Parallel()
	rsa, weak := generate(t, at(rsa2048, born, 0)), generate(t, at(rsa1024, born, 0))
	brief := generate(t, at(ed25519, born, time.Hour))
	withSubkey, withBrief := sealed(t, ed25519), sealed(t, ed25519)
	able := subkey(t, withSubkey, at(p256, born, 0)).PublicKey.KeyId
	lapsed := subkey(t, withBrief, at(ed25519, born, time.Hour)).PublicKey.KeyId
	byPlain, byOther := detached(t, plain(), at(ed25519, now, 0)), detached(t, other(), at(p256, now, 0))
	text := packetsOf(t, func(w io.Writer) error {
		return openpgp.DetachSignText(w, plain(), bytes.NewReader(message), at(ed25519, now, 0))
	})
	// The registry that names the key can choose any owner.
	rude := generate(t, at(ed25519, born, 0))
	for _, id := range rude.Identities {
		id.UserId.Id = "Ada\x1b[31m\r\nExample"
		id.Name = id.UserId.Id
		err := id.SelfSignature.SignUserId(id.UserId.Id, rude.PrimaryKey, rude.PrivateKey, at(ed25519, born, 0))
		if err != nil {
			t.Fatal(err)
		}
	}
	const owner = "Ada Example (packages) <ada@example.com>"
	for _, test := range []struct {
		what      string
		keys      []string
		signature []byte
		signer    *openpgp.Entity
		owner     string
		expired   bool
	}{
		{"RSA", armors(t, rsa), detached(t, rsa, at(rsa2048, now, 0)), rsa, owner, false},
		{"Ed25519", armors(t, plain()), byPlain, plain(), "Ada Example <ada@example.com>", false},
		{"P-256", armors(t, other()), byOther, other(), "Bob Example <bob@example.com>", false},
		{"too weak for a registry of ours", armors(t, weak), detached(t, weak, at(rsa1024, now, 0)), weak, owner, false},
		{"as text", armors(t, plain()), text, plain(), "Ada Example <ada@example.com>", false},
		{
			"a subkey", armors(t, withSubkey), detached(t, withSubkey, at(packet.Config{SigningKeyId: able}, now, 0)),
			withSubkey, owner, false,
		},
		{"an expired key", armors(t, brief), detached(t, brief, at(ed25519, born, 0)), brief, owner, true},
		{
			"an expired subkey", armors(t, withBrief),
			detached(t, withBrief, at(packet.Config{SigningKeyId: lapsed}, born, 0)), withBrief, owner, true,
		},
		{
			"several keys in one block", []string{string(public(t, plain(), other()))}, byOther, other(),
			"Bob Example <bob@example.com>", false,
		},
		{"the second of two keys", armors(t, plain(), other()), byOther, other(), "Bob Example <bob@example.com>", false},
		{"a key behind an expired one", armors(t, brief, other()), byOther, other(), "Bob Example <bob@example.com>", false},
		{
			"an undecodable key behind it, which nobody reaches", append(armors(t, plain()), "nonsense"), byPlain,
			plain(), "Ada Example <ada@example.com>", false,
		},
		{
			"two blocks in one text, of which the first is read",
			[]string{string(public(t, plain())) + string(public(t, other()))}, byPlain, plain(),
			"Ada Example <ada@example.com>", false,
		},
		{
			"two signatures, of which one is known", armors(t, plain()), slices.Concat(byOther, byPlain), plain(),
			"Ada Example <ada@example.com>", false,
		},
		{"a rude owner", armors(t, rude), detached(t, rude, at(ed25519, now, 0)), rude, "Ada[31mExample", false},
	} {
		got, err := signing.VerifyOrigin(test.keys, message, test.signature, now)
		want := signing.Signer{
			ID: test.signer.PrimaryKey.KeyIdString(), Owner: test.owner, Expired: test.expired,
			Fingerprint: fmt.Sprintf("%X", test.signer.PrimaryKey.Fingerprint), SignedAt: got.SignedAt,
		}
		if age := now.Sub(got.SignedAt); age < 0 || age > 48*time.Hour {
			t.Errorf("%s: signed at %s", test.what, got.SignedAt)
		}
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", test.what, got, err, want)
		}
		if !clientsInstall(test.keys, message, test.signature) {
			t.Errorf("%s: clients reject it", test.what)
		}
	}

	// The given time decides whether a key has expired.
	byBrief := detached(t, brief, at(ed25519, born, 0))
	got, err := signing.VerifyOrigin(armors(t, brief), message, byBrief, born.Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if got.Expired {
		t.Errorf("before it expires: the signer is %+v", got)
	}

	read := func(name string) []byte {
		data, err := os.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	gnupg := []string{string(read("gnupg.asc"))}
	got, err = signing.VerifyOrigin(gnupg, read("SHA256SUMS"), read("SHA256SUMS.sig"), now)
	if err != nil {
		t.Fatal(err)
	}
	if got.ID == "" || got.Expired {
		t.Errorf("the signer of GnuPG's file is %+v", got)
	}
}

// A release can have several signers. The first one is that of clients.
func TestVerifyOriginAll(t *testing.T) {
	t.Parallel()
	byPlain, byOther := detached(t, plain(), at(ed25519, now, 0)), detached(t, other(), at(p256, now, 0))
	both := slices.Concat(byPlain, byOther)
	brief, revoked := generate(t, at(ed25519, born, time.Hour)), generate(t, at(ed25519, born, 0))
	byBrief, byRevoked := detached(t, brief, at(ed25519, born, 0)), detached(t, revoked, at(ed25519, now, 0))
	if err := revoked.RevokeKey(packet.KeyCompromised, "", at(ed25519, now, 0)); err != nil {
		t.Fatal(err)
	}
	flipped := slices.Clone(byOther)
	flipped[len(flipped)-1] ^= 1
	for what, test := range map[string]struct {
		keys      []string
		signature []byte
		want      []*openpgp.Entity
	}{
		"two keys":             {armors(t, plain(), other()), both, []*openpgp.Entity{plain(), other()}},
		"two keys, reversed":   {armors(t, other(), plain()), both, []*openpgp.Entity{other(), plain()}},
		"two keys in a block":  {[]string{string(public(t, other(), plain()))}, both, []*openpgp.Entity{plain(), other()}},
		"a key twice":          {armors(t, plain(), plain()), both, []*openpgp.Entity{plain()}},
		"one signs":            {armors(t, plain(), other()), byPlain, []*openpgp.Entity{plain()}},
		"the second one signs": {armors(t, plain(), other()), byOther, []*openpgp.Entity{other()}},
		"an expired key":       {armors(t, plain(), brief), slices.Concat(byPlain, byBrief), []*openpgp.Entity{plain(), brief}},
		"a revoked key":        {armors(t, plain(), revoked), slices.Concat(byPlain, byRevoked), []*openpgp.Entity{plain()}},
		"another wrong one":    {armors(t, plain(), other()), slices.Concat(byPlain, flipped), []*openpgp.Entity{plain()}},
		"an unreadable key behind it": {append(armors(t, plain()), "nonsense", armors(t, other())[0]), both,
			[]*openpgp.Entity{plain(), other()}},
	} {
		got, err := signing.VerifyOriginAll(test.keys, message, test.signature, now)
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		var ids, want []string
		for _, s := range got {
			ids = append(ids, s.ID)
		}
		for _, e := range test.want {
			want = append(want, e.PrimaryKey.KeyIdString())
		}
		if !slices.Equal(ids, want) {
			t.Errorf("%s: signed by %s, want %s", what, ids, want)
		}
	}
}

func TestVerifyOriginRefuses(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	good := detached(t, plain(), at(ed25519, now, 0))
	keys := armors(t, plain())
	expired := at(ed25519, born, 0)
	expired.SigLifetimeSecs = 60
	revoked, briefRevoked := generate(t, at(ed25519, born, 0)), generate(t, at(ed25519, born, time.Hour))
	byRevoked, byBrief := detached(t, revoked, at(ed25519, now, 0)), detached(t, briefRevoked, at(ed25519, born, 0))
	for _, e := range []*openpgp.Entity{revoked, briefRevoked} {
		if err := e.RevokeKey(packet.KeyCompromised, "", at(ed25519, now, 0)); err != nil {
			t.Fatal(err)
		}
	}
	revokedSubkey := sealed(t, ed25519)
	part := subkey(t, revokedSubkey, at(ed25519, born, 0))
	byPart := detached(t, revokedSubkey, at(packet.Config{SigningKeyId: part.PublicKey.KeyId}, now, 0))
	if err := revokedSubkey.RevokeSubkey(part, packet.KeyCompromised, "", at(ed25519, now, 0)); err != nil {
		t.Fatal(err)
	}
	unable := sealed(t, ed25519)
	published := armors(t, unable)
	for _, id := range unable.Identities {
		id.SelfSignature.FlagSign = true
	}
	notation := at(ed25519, now, 0)
	notation.SignatureNotations = []*packet.Notation{
		{Name: "\x1b[31mevil\r\n@example.com", Value: []byte("x"), IsHumanReadable: true, IsCritical: true},
	}
	flipped := slices.Clone(good)
	flipped[len(flipped)-1] ^= 1
	for _, test := range []struct {
		what      string
		keys      []string
		message   []byte
		signature []byte
		names     []string
	}{
		{"a revoked key", armors(t, revoked), message, byRevoked, nil},
		// Clients accept an expired key, but not a revoked one.
		{"a revoked key that has expired", armors(t, briefRevoked), message, byBrief, nil},
		{"a revoked subkey", armors(t, revokedSubkey), message, byPart, nil},
		{"an expired signature", keys, message, detached(t, plain(), expired), nil},
		{"of tomorrow", keys, message, detached(t, plain(), at(ed25519, now.Add(24*time.Hour), 0)), nil},
		{"an undecodable key before it", append([]string{"nonsense"}, keys...), message, good, []string{"key 1"}},
		{"an empty key before it", append([]string{""}, keys...), message, good, []string{"key 1"}},
		{"half a key before it", append([]string{keys[0][:len(keys[0])/2]}, keys...), message, good, []string{"key 1"}},
		{
			"an undecodable key behind another one", append(armors(t, other()), "nonsense", keys[0]), message, good,
			[]string{"key 2"},
		},
		{
			"a signature for a key", []string{string(enclose(t, openpgp.SignatureType, good))}, message, good,
			[]string{"key 1"},
		},
		{"a foreign key", armors(t, other()), message, good, nil},
		{"foreign keys", armors(t, other(), revoked), message, good, nil},
		{
			"a key in a second block of the same text, which clients do not read",
			[]string{string(public(t, other())) + keys[0]}, message, good, nil,
		},
		{"a key that is not for signing", published, message, detached(t, unable, at(ed25519, now, 0)), nil},
		{"a changed message", keys, append(message[:len(message):len(message)], '\n'), good, nil},
		{"no message", keys, nil, good, nil},
		{"a changed signature", keys, message, flipped, nil},
		{"an armored signature", keys, message, enclose(t, openpgp.SignatureType, good), nil},
		{"no signature", keys, message, nil, nil},
		{"half a signature", keys, message, good[:len(good)/2], nil},
		{"garbage", keys, message, []byte("<html>"), nil},
		{"a key for a signature", keys, message, packetsOf(t, plain().PrimaryKey.Serialize), nil},
		{"no keys", nil, message, good, nil},
		{"a large signature", keys, message, append(slices.Clone(good), make([]byte, signing.MaxSignature)...), nil},
		{"a large key", []string{keys[0] + strings.Repeat("\n", 64<<10)}, message, good, []string{"key 1"}},
		{"what a signature says in a foreign tongue", keys, message, detached(t, plain(), notation), nil},
	} {
		t.Run(test.what, func(t *testing.T) {
			t.Parallel()
			signer, err := signing.VerifyOrigin(test.keys, test.message, test.signature, now)
			checkRefused(t, texts, err, test.names...)
			if signer != (signing.Signer{}) {
				t.Errorf("got the signer %+v with the error", signer)
			}
		})
	}
}

// FuzzVerifyOrigin checks that nothing panics, that clients accept what is
// accepted, and that the results are printable.
func FuzzVerifyOrigin(f *testing.F) {
	brief := generate(f, at(ed25519, born, time.Hour))
	for _, e := range []*openpgp.Entity{plain(), other(), large(), brief} {
		signature := detached(f, e, at(ed25519, born, 0))
		f.Add(public(f, e), message, signature)
		f.Add(packetsOf(f, e.Serialize), message, signature)
		f.Add(public(f, e, plain()), message, enclose(f, openpgp.SignatureType, signature))
	}
	known := string(public(f, plain()))
	f.Fuzz(func(t *testing.T, key, message, signature []byte) {
		enclosed := string(enclose(t, openpgp.PublicKeyType, key))
		for _, keys := range [][]string{{string(key)}, {enclosed}, {known, string(key)}} {
			signer, err := signing.VerifyOrigin(keys, message, signature, now)
			if err != nil {
				if !errors.Is(err, registry.ErrInvalid) || signer != (signing.Signer{}) {
					t.Errorf("%+v, %v", signer, err)
				}
				if strings.ContainsFunc(err.Error(), unicode.IsControl) {
					t.Errorf("%q contains control characters", err)
				}
				continue
			}
			if len(signer.ID) != 16 || strings.ContainsFunc(signer.Owner, unicode.IsControl) {
				t.Errorf("the signer is %+v", signer)
			}
			if !clientsInstall(keys, message, signature) {
				t.Errorf("clients reject the signature of %+v", signer)
			}
		}
	})
}
