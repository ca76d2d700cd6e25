package oddities

import (
	"bytes"
	"crypto"
	"crypto/dsa" //nolint:staticcheck // old origins have such keys
	"crypto/rand"
	_ "crypto/sha1" // for a signature
	"io"
	"slices"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

// Signer signs SHA256SUMS.
type Signer func(t testing.TB, sums []byte) Signed

// Signed is a signature, and what belongs to it.
type Signed struct {
	Signature []byte
	// Keys are the armored public keys that the origin names.
	Keys []string
	// Earlier are Keys as they were when the signature was made, if they have
	// changed since.
	Earlier []string
}

// The kinds of keys.
var (
	ed25519 = packet.Config{Algorithm: packet.PubKeyAlgoEdDSA, Curve: packet.Curve25519}
	p256    = packet.Config{Algorithm: packet.PubKeyAlgoECDSA, Curve: packet.CurveNistP256}
	rsa1024 = packet.Config{Algorithm: packet.PubKeyAlgoRSA, RSABits: 1024}
	rsa2048 = packet.Config{Algorithm: packet.PubKeyAlgoRSA, RSABits: 2048}
)

// Keys are made at born, and sign then or at signed. brief ones expire in between
// or after that.
var (
	signed = time.Now().Add(-time.Hour).Truncate(time.Second)
	born   = signed.AddDate(0, 0, -30)
)

const day = 24 * time.Hour

// at returns a configuration with a time, and a lifetime for its result.
func at(c packet.Config, t time.Time, life time.Duration) *packet.Config {
	c.Time = func() time.Time { return t }
	c.KeyLifetimeSecs = uint32(life / time.Second)
	return &c
}

func newKey(t testing.TB, c *packet.Config) *openpgp.Entity {
	t.Helper()
	e, err := openpgp.NewEntity("Acme Releases", "", "releases@example.com", c)
	must(t, err)
	return e
}

// newDSA returns a DSA key, which the library reads, but does not make.
func newDSA(t testing.TB) *openpgp.Entity {
	t.Helper()
	var key dsa.PrivateKey
	must(t, dsa.GenerateParameters(&key.Parameters, rand.Reader, dsa.L1024N160))
	must(t, dsa.GenerateKey(&key, rand.Reader))
	e := &openpgp.Entity{
		PrimaryKey: packet.NewDSAPublicKey(born, &key.PublicKey), PrivateKey: packet.NewDSAPrivateKey(born, &key),
		Identities: make(map[string]*openpgp.Identity),
	}
	must(t, e.AddUserId("Acme Releases", "", "releases@example.com", at(packet.Config{}, born, 0)))
	return e
}

// newSubkey adds a signing subkey to a key, and returns its ID.
func newSubkey(t testing.TB, e *openpgp.Entity, c *packet.Config) uint64 {
	t.Helper()
	must(t, e.AddSigningSubkey(c))
	return e.Subkeys[len(e.Subkeys)-1].PublicKey.KeyId
}

// end makes a key expire after a time, from its creation on.
func end(t testing.TB, e *openpgp.Entity, life time.Duration) {
	t.Helper()
	seconds := uint32(life / time.Second)
	for _, id := range e.Identities {
		id.SelfSignature.KeyLifetimeSecs = &seconds
		must(t, id.SelfSignature.SignUserId(id.Name, e.PrimaryKey, e.PrivateKey, at(ed25519, born, 0)))
	}
}

// sign returns a signature. If c has no SigningKeyId, the library selects a part of
// the key.
func sign(t testing.TB, e *openpgp.Entity, message []byte, c *packet.Config) []byte {
	t.Helper()
	var out bytes.Buffer
	must(t, openpgp.DetachSign(&out, e, bytes.NewReader(message), c))
	return out.Bytes()
}

// signBySHA1 returns a signature by a digest with which the library does not sign.
func signBySHA1(t testing.TB, e *openpgp.Entity, message []byte) []byte {
	t.Helper()
	sig := &packet.Signature{
		SigType: packet.SigTypeBinary, PubKeyAlgo: e.PrimaryKey.PubKeyAlgo, Hash: crypto.SHA1,
		CreationTime: signed, IssuerKeyId: &e.PrimaryKey.KeyId,
	}
	hash := crypto.SHA1.New()
	_, _ = hash.Write(message)
	isSalted := false // a salt needs a newer digest
	must(t, sig.Sign(hash, e.PrivateKey, &packet.Config{NonDeterministicSignaturesViaNotation: &isSalted}))
	var out bytes.Buffer
	must(t, sig.Serialize(&out))
	return out.Bytes()
}

// enclose returns packets in armor.
func enclose(t testing.TB, kind string, write func(io.Writer) error) string {
	t.Helper()
	var out bytes.Buffer
	w, err := armor.Encode(&out, kind, nil)
	must(t, err)
	must(t, write(w))
	must(t, w.Close())
	return out.String() + "\n"
}

// armored returns the public parts of keys, each in armor.
func armored(t testing.TB, keys ...*openpgp.Entity) (all []string) {
	t.Helper()
	for _, e := range keys {
		all = append(all, enclose(t, openpgp.PublicKeyType, e.Serialize))
	}
	return all
}

// usual is the signer of releases without an odd signature.
func usual(t testing.TB, sums []byte) Signed { return signedBy(ed25519)(t, sums) }

// signedBy signs with a new key of a kind.
func signedBy(c packet.Config) Signer {
	return func(t testing.TB, sums []byte) Signed {
		key := newKey(t, at(c, born, 0))
		return Signed{Signature: sign(t, key, sums, at(c, signed, 0)), Keys: armored(t, key)}
	}
}

// changed returns the usual signer, whose result is changed.
func changed(change func(t testing.TB, sums []byte, s *Signed)) Signer {
	return func(t testing.TB, sums []byte) Signed {
		s := usual(t, sums)
		change(t, sums, &s)
		return s
	}
}

// servedKeys are the signers whose keys are odd only as the origin names them.
var servedKeys = []string{"another-key", "empty-key-first", "empty-key-last", "unreadable-key-first"}

// signers are those of odd signatures and keys, by the names of their variants.
var signers = map[string]Signer{
	"key-rsa-1024": signedBy(rsa1024),
	"key-rsa-2048": signedBy(rsa2048),
	"key-ed25519":  signedBy(ed25519),
	"key-p256":     signedBy(p256),
	"key-dsa": func(t testing.TB, sums []byte) Signed {
		key := newDSA(t)
		return Signed{Signature: sign(t, key, sums, at(packet.Config{}, signed, 0)), Keys: armored(t, key)}
	},
	"key-expired-since": func(t testing.TB, sums []byte) Signed {
		key := newKey(t, at(ed25519, born, day))
		return Signed{Signature: sign(t, key, sums, at(ed25519, born, 0)), Keys: armored(t, key)}
	},
	// Its owner has set the end later.
	"key-expired-before": func(t testing.TB, sums []byte) Signed {
		key := newKey(t, at(ed25519, born, 0))
		before, signature := armored(t, key), sign(t, key, sums, at(ed25519, signed, 0))
		end(t, key, day)
		return Signed{Signature: signature, Keys: armored(t, key), Earlier: before}
	},
	"key-revoked": func(t testing.TB, sums []byte) Signed {
		key := newKey(t, at(ed25519, born, 0))
		before, signature := armored(t, key), sign(t, key, sums, at(ed25519, signed, 0))
		must(t, key.RevokeKey(packet.KeyCompromised, "lost", at(ed25519, signed, 0)))
		return Signed{Signature: signature, Keys: armored(t, key), Earlier: before}
	},
	"key-replaced": func(t testing.TB, sums []byte) Signed {
		key := newKey(t, at(ed25519, born, 0))
		before, signature := armored(t, key), sign(t, key, sums, at(ed25519, born, 0))
		must(t, key.RevokeKey(packet.KeySuperseded, "new one", at(ed25519, signed, 0)))
		return Signed{Signature: signature, Keys: armored(t, key), Earlier: before}
	},
	"subkey": func(t testing.TB, sums []byte) Signed {
		key := newKey(t, at(ed25519, born, 0))
		part := newSubkey(t, key, at(ed25519, born, 0))
		c := packet.Config{SigningKeyId: part}
		return Signed{Signature: sign(t, key, sums, at(c, signed, 0)), Keys: armored(t, key)}
	},
	"subkey-expired": func(t testing.TB, sums []byte) Signed {
		key := newKey(t, at(ed25519, born, 0))
		part := newSubkey(t, key, at(ed25519, born, day))
		c := packet.Config{SigningKeyId: part}
		return Signed{Signature: sign(t, key, sums, at(c, born, 0)), Keys: armored(t, key)}
	},
	"subkey-renewed": func(t testing.TB, sums []byte) Signed {
		key := newKey(t, at(ed25519, born, 0))
		part := newSubkey(t, key, at(ed25519, born, day))
		before := armored(t, key)
		newSubkey(t, key, at(ed25519, signed, 0))
		c := packet.Config{SigningKeyId: part}
		return Signed{Signature: sign(t, key, sums, at(c, born, 0)), Keys: armored(t, key), Earlier: before}
	},
	"two-keys-one-expired": changed(func(t testing.TB, _ []byte, s *Signed) {
		s.Keys = append(armored(t, newKey(t, at(ed25519, born, day))), s.Keys...)
	}),
	"two-keys-in-one-armor": changed(func(t testing.TB, sums []byte, s *Signed) {
		one, two := newKey(t, at(ed25519, born, 0)), newKey(t, at(p256, born, 0))
		s.Signature = sign(t, two, sums, at(p256, signed, 0))
		s.Keys = []string{enclose(t, openpgp.PublicKeyType, func(w io.Writer) error {
			if err := one.Serialize(w); err != nil {
				return err
			}
			return two.Serialize(w)
		})}
	}),
	"two-armors-in-one-key": changed(func(t testing.TB, _ []byte, s *Signed) {
		s.Keys = []string{s.Keys[0] + armored(t, newKey(t, at(ed25519, born, 0)))[0]}
	}),
	"another-key": changed(func(t testing.TB, _ []byte, s *Signed) { s.Keys = armored(t, newKey(t, at(ed25519, born, 0))) }),
	"unreadable-key-first": changed(func(_ testing.TB, _ []byte, s *Signed) {
		s.Keys = append([]string{"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nbm8=\n-----END PGP PUBLIC KEY BLOCK-----\n"}, s.Keys...)
	}),
	"empty-key-last":  changed(func(_ testing.TB, _ []byte, s *Signed) { s.Keys = append(s.Keys, "") }),
	"empty-key-first": changed(func(_ testing.TB, _ []byte, s *Signed) { s.Keys = append([]string{""}, s.Keys...) }),
	"two-signatures": changed(func(t testing.TB, sums []byte, s *Signed) {
		other := newKey(t, at(p256, born, 0))
		s.Signature = slices.Concat(sign(t, other, sums, at(p256, signed, 0)), s.Signature)
	}),
	"signature-by-sha1": func(t testing.TB, sums []byte) Signed {
		key := newKey(t, at(rsa2048, born, 0))
		return Signed{Signature: signBySHA1(t, key, sums), Keys: armored(t, key)}
	},
	"signature-armored": changed(func(t testing.TB, _ []byte, s *Signed) {
		binary := s.Signature
		s.Signature = []byte(enclose(t, openpgp.SignatureType, func(w io.Writer) error {
			_, err := w.Write(binary)
			return err
		}))
	}),
	"signature-will-expire": func(t testing.TB, sums []byte) Signed {
		key, c := newKey(t, at(ed25519, born, 0)), at(ed25519, signed, 0)
		c.SigLifetimeSecs = uint32(10 * 365 * day / time.Second)
		return Signed{Signature: sign(t, key, sums, c), Keys: armored(t, key)}
	},
	"signature-expired": func(t testing.TB, sums []byte) Signed {
		key, c := newKey(t, at(ed25519, born, 0)), at(ed25519, born, 0)
		c.SigLifetimeSecs = uint32(day / time.Second)
		return Signed{Signature: sign(t, key, sums, c), Keys: armored(t, key)}
	},
	"signature-of-other-sums": changed(func(t testing.TB, sums []byte, s *Signed) {
		key := newKey(t, at(ed25519, born, 0))
		s.Signature, s.Keys = sign(t, key, append(sums, '\n'), at(ed25519, signed, 0)), armored(t, key)
	}),
	"signature-empty": changed(func(_ testing.TB, _ []byte, s *Signed) { s.Signature = nil }),
}
