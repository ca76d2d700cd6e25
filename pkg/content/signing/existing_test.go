package signing_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/content/signing"
	"github.com/larder-registry/larder/pkg/registry"
)

// TestCheck compares the two readings of a signature: that of a new version, and that
// of one which exists. Clients install what exists.
func TestCheck(t *testing.T) {
	t.Parallel()
	brief := generate(t, at(ed25519, born, time.Hour))
	withBrief := sealed(t, ed25519)
	lapsed := subkey(t, withBrief, at(ed25519, born, time.Hour)).PublicKey.KeyId
	renewed := sealed(t, ed25519)
	first := subkey(t, renewed, at(ed25519, born, time.Hour)).PublicKey.KeyId
	second := subkey(t, renewed, at(ed25519, born, 0)).PublicKey.KeyId
	ended := generate(t, at(ed25519, born, 0))
	byEnded := detached(t, ended, at(ed25519, now, 0)) // before its owner sets the earlier end
	hour := uint32(time.Hour / time.Second)
	for _, id := range ended.Identities {
		id.SelfSignature.KeyLifetimeSecs = &hour
		if err := id.SelfSignature.SignUserId(id.Name, ended.PrimaryKey, ended.PrivateKey, at(ed25519, born, 0)); err != nil {
			t.Fatal(err)
		}
	}
	revoked := generate(t, at(ed25519, born, 0))
	byRevoked := detached(t, revoked, at(ed25519, born, 0))
	if err := revoked.RevokeKey(packet.KeyCompromised, "lost", at(ed25519, now, 0)); err != nil {
		t.Fatal(err)
	}
	byPlain := detached(t, plain(), at(ed25519, now, 0))
	byOther := detached(t, other(), at(p256, now, 0))
	expiring := at(ed25519, now, 0)
	expiring.SigLifetimeSecs = hour
	for _, test := range []struct {
		what      string
		keys      []*openpgp.Entity
		signature []byte
		// odd and refused are parts of the texts. Clients install what is only odd.
		odd, refused string
	}{
		{"a valid key", []*openpgp.Entity{plain()}, byPlain, "", ""},
		{"a key behind an expired one", []*openpgp.Entity{brief, other()}, byOther, "", ""},
		{"a key expired since", []*openpgp.Entity{brief}, detached(t, brief, at(ed25519, born, 0)), ", after it signed on", ""},
		{"a key expired before", []*openpgp.Entity{ended}, byEnded, ", before it signed on", ""},
		{
			"a subkey expired since", []*openpgp.Entity{withBrief},
			detached(t, withBrief, at(packet.Config{SigningKeyId: lapsed}, born, 0)), "expired", "",
		},
		{
			"a subkey renewed since", []*openpgp.Entity{renewed},
			detached(t, renewed, at(packet.Config{SigningKeyId: first}, born, 0)), "expired", "",
		},
		{
			"the renewed subkey", []*openpgp.Entity{renewed},
			detached(t, renewed, at(packet.Config{SigningKeyId: second}, now, 0)), "", "",
		},
		{"two signatures", []*openpgp.Entity{plain()}, slices.Concat(byOther, byPlain), "bytes after it", ""},
		{"SHA-1", []*openpgp.Entity{plain()}, overSHA1(t, plain()), "SHA-1", ""},
		{"a signature that will expire", []*openpgp.Entity{plain()}, detached(t, plain(), expiring), "it expires", ""},
		{"a revoked key", []*openpgp.Entity{revoked}, byRevoked, "", "revoked"},
		{"another key", []*openpgp.Entity{other()}, byPlain, "", "the key is not one of"},
		{"no key", nil, byPlain, "", "there is no key"},
		{"armor", []*openpgp.Entity{plain()}, []byte("-----BEGIN PGP SIGNATURE-----\n"), "", "armored"},
	} {
		var keys []signing.Key
		for _, e := range test.keys {
			key, err := signing.ReadKey(public(t, e), now)
			if err != nil { // a revoked key was added before
				key = signing.Key{ID: e.PrimaryKey.KeyIdString(), ASCIIArmor: string(public(t, e))}
			}
			keys = append(keys, key)
		}
		signer, odd, err := signing.Check(keys, message, test.signature, now)
		if test.refused != "" {
			if !errors.Is(err, registry.ErrInvalid) || !strings.Contains(err.Error(), test.refused) {
				t.Errorf("%s: got the error %v, want %q", test.what, err, test.refused)
			}
			continue
		}
		if err != nil || signer.ID == "" {
			t.Errorf("%s: got the signer %q and the error %v", test.what, signer.ID, err)
			continue
		}
		if test.odd == "" && odd != nil || test.odd != "" && (!errors.Is(odd, registry.ErrInvalid) || !strings.Contains(odd.Error(), test.odd)) {
			t.Errorf("%s: odd is %v, want %q", test.what, odd, test.odd)
		}
		if !clientsInstall(armors(t, test.keys...), message, test.signature) {
			t.Errorf("%s: clients reject it", test.what)
		}
		if _, err := signing.Verify(keys, message, test.signature, now); (err != nil) != (odd != nil) {
			t.Errorf("%s: a new version: %v", test.what, err)
		}
	}
}

// TestKeyOf takes the keys of signers out of what an origin names.
func TestKeyOf(t *testing.T) {
	t.Parallel()
	brief := generate(t, at(ed25519, born, time.Hour))
	weak := generate(t, at(rsa1024, born, 0))
	for _, test := range []struct {
		what   string
		keys   []string
		signer *openpgp.Entity
		want   error
	}{
		{"a key", armors(t, plain()), plain(), nil},
		{"one of several in a block", []string{string(public(t, plain(), other()))}, other(), nil},
		{"behind one that nobody can read", append([]string{"nonsense"}, armors(t, other())...), other(), nil},
		{"an expired key", armors(t, brief), brief, nil},
		{"a weak key", armors(t, weak), weak, registry.ErrInvalid},
		{"none", armors(t, plain()), other(), registry.ErrNotFound},
	} {
		signer := signing.Signer{ID: test.signer.PrimaryKey.KeyIdString()}
		key, err := signing.KeyOf(test.keys, signer, now)
		if !errors.Is(err, test.want) {
			t.Errorf("%s: got the error %v, want %v", test.what, err, test.want)
		}
		if err == nil && key.ID != signer.ID {
			t.Errorf("%s: got the key %s, want %s", test.what, key.ID, signer.ID)
		}
		if err == nil && signing.CheckKey(key.ASCIIArmor) != nil {
			t.Errorf("%s: clients cannot read the key", test.what)
		}
	}
	strict, err := signing.ParseKey(public(t, plain()), now)
	if err != nil {
		t.Fatal(err)
	}
	// A revocation counts although the key could sign before.
	superseded := generate(t, at(ed25519, born, time.Hour))
	if err := superseded.RevokeKey(packet.KeySuperseded, "new one", at(ed25519, now, 0)); err != nil {
		t.Fatal(err)
	}
	if _, err := signing.ReadKey(public(t, superseded), now); !errors.Is(err, registry.ErrInvalid) || !strings.Contains(err.Error(), "revoked") {
		t.Errorf("ReadKey of a key that is revoked since it expired: %v", err)
	}
	read, err := signing.ReadKey(public(t, plain()), now)
	if diff := cmp.Diff(strict, read); err != nil || diff != "" {
		t.Errorf("ReadKey of a valid key: %v\n%s", err, diff)
	}
	if _, err := signing.ParseKey(public(t, brief), now); !errors.Is(err, registry.ErrInvalid) {
		t.Errorf("ParseKey of an expired key: %v", err)
	}
	if read, err = signing.ReadKey(public(t, brief), now); err != nil || !read.ExpiresAt.Equal(born.Add(time.Hour).UTC().Truncate(time.Second)) {
		t.Errorf("ReadKey of an expired key: %+v, %v", read, err)
	}
}

// Clients use the first two words of a line of SHA256SUMS.
func TestReadSums(t *testing.T) {
	t.Parallel()
	line := a + "  first.zip\n"
	for what, test := range map[string]struct {
		text string
		odd  int
		want []signing.Sum
	}{
		"sha256sum":      {line, 0, []signing.Sum{{SHA256: a, Filename: "first.zip"}}},
		"a comment":      {"# of build 7\n" + line, 1, []signing.Sum{{SHA256: a, Filename: "first.zip"}}},
		"one word":       {"checksums\n" + line, 1, []signing.Sum{{SHA256: a, Filename: "first.zip"}}},
		"upper case":     {strings.ToUpper(a) + "  first.zip\n", 1, []signing.Sum{{SHA256: a, Filename: "first.zip"}}},
		"one space":      {a + " first.zip\n", 1, []signing.Sum{{SHA256: a, Filename: "first.zip"}}},
		"twice":          {line + b + "  first.zip\n", 1, []signing.Sum{{SHA256: a, Filename: "first.zip"}}},
		"mixed ends":     {line + b + "  b.zip\r\n", 1, []signing.Sum{{SHA256: a, Filename: "first.zip"}, {SHA256: b, Filename: "b.zip"}}},
		"sha256sum -b":   {a + " *first.zip\n", 1, []signing.Sum{{SHA256: a, Filename: "*first.zip"}}},
		"another folder": {a + "  ./first.zip\n", 1, []signing.Sum{{SHA256: a, Filename: "./first.zip"}}},
		"no digest":      {a[1:] + "  first.zip\n", 1, nil},
		// Clients find the first line with the name, and read no sums after a line that is none.
		"a name in a comment":          {"# first.zip\n" + line, 2, nil},
		"a blank line after a comment": {"# of build 7\n\n" + line, 2, []signing.Sum{{SHA256: a, Filename: "first.zip"}}},
	} {
		got, odd, err := signing.ReadSums([]byte(test.text))
		if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", what, err, diff)
		}
		if len(odd) != test.odd {
			t.Errorf("%s: odd are %v, want %d", what, odd, test.odd)
		}
		for _, sum := range test.want {
			if !signing.Lists([]byte(test.text), sum.Filename, sum.SHA256) {
				t.Errorf("%s: clients do not find %s", what, sum.Filename)
			}
		}
	}
	if _, odd, err := signing.ReadSums([]byte(strings.Repeat("x\n", 19000))); err != nil || len(odd) > 30 {
		t.Errorf("many lines: %d are odd, %v", len(odd), err)
	}
	for what, text := range map[string]string{
		"a blank line": line + "\n", "a line of spaces": " \n" + line, "nothing": "", "too many lines": strings.Repeat("x\n", 30000),
	} {
		if got, _, err := signing.ReadSums([]byte(text)); !errors.Is(err, registry.ErrInvalid) || got != nil {
			t.Errorf("%s: got %v, %v", what, got, err)
		}
	}
}

// TestNeverSigned reads a key whose only user ID was revoked but never signed. The
// library panics when it verifies a signature by its subkey.
func TestNeverSigned(t *testing.T) {
	t.Parallel()
	e := sealed(t, ed25519)
	signs := subkey(t, e, at(ed25519, born, 0)).PublicKey.KeyId
	signature := detached(t, e, at(packet.Config{SigningKeyId: signs}, now, 0))
	for _, id := range e.Identities {
		revocation := id.SelfSignature
		revocation.SigType = packet.SigTypeCertificationRevocation
		if err := revocation.SignUserId(id.Name, e.PrimaryKey, e.PrivateKey, at(ed25519, born, 0)); err != nil {
			t.Fatal(err)
		}
		id.SelfSignature, id.Revocations, id.Signatures = nil, []*packet.Signature{revocation}, []*packet.Signature{revocation}
	}
	keys := armors(t, e)
	ring, err := openpgp.ReadArmoredKeyRing(strings.NewReader(keys[0]))
	if err != nil || len(ring) != 1 {
		t.Fatalf("the library reads %d keys, %v", len(ring), err)
	}
	if self, _ := ring[0].PrimarySelfSignature(); self != nil {
		t.Fatal("the key has a self-signature")
	}
	if _, err := signing.VerifyOrigin(keys, message, signature, now); !errors.Is(err, registry.ErrInvalid) {
		t.Errorf("VerifyOrigin returns %v, want ErrInvalid", err)
	}
	if _, err := signing.KeyOf(keys, signing.Signer{ID: e.PrimaryKey.KeyIdString()}, now); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("KeyOf returns %v, want ErrNotFound", err)
	}
}
