// Package keys creates OpenPGP keys that sign releases of providers in tests.
package keys

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

// SigningKey is an armored OpenPGP key that signs releases. The private key has
// no passphrase.
type SigningKey struct{ Public, Private []byte }

// algorithms are the kinds of keys, all of version 4. Ed25519 is the legacy
// form of RFC 9580, since older clients support no other.
var algorithms = map[string]packet.Config{
	"RSA 2048": {Algorithm: packet.PubKeyAlgoRSA, RSABits: 2048},
	"RSA 4096": {Algorithm: packet.PubKeyAlgoRSA, RSABits: 4096},
	"Ed25519":  {Algorithm: packet.PubKeyAlgoEdDSA, Curve: packet.Curve25519},
	"P-256":    {Algorithm: packet.PubKeyAlgoECDSA, Curve: packet.CurveNistP256},
	"P-384":    {Algorithm: packet.PubKeyAlgoECDSA, Curve: packet.CurveNistP384},
}

// NewSigningKey creates a key with the algorithm RSA 2048, RSA 4096, Ed25519,
// P-256 or P-384. It expires after whole seconds, and never if expires is 0. If
// expires is negative, the key expired that long ago.
func NewSigningKey(algorithm string, expires time.Duration) (SigningKey, error) {
	config, known := algorithms[algorithm]
	if !known {
		return SigningKey{}, fmt.Errorf("unknown algorithm %q of a signing key", algorithm)
	}
	// Less than a second would be rounded to 0, which means never.
	if expires%time.Second != 0 || expires.Abs() > math.MaxUint32*time.Second {
		return SigningKey{}, fmt.Errorf("a key cannot expire after %s", expires)
	}
	made := time.Now()
	if expires < 0 {
		made = made.Add(2 * expires)
	}
	config.Time = func() time.Time { return made }
	config.KeyLifetimeSecs = uint32(expires.Abs() / time.Second)
	entity, err := openpgp.NewEntity("Acme Releases", "", "releases@example.com", &config)
	if err != nil {
		return SigningKey{}, fmt.Errorf("cannot create a key %s: %w", algorithm, err)
	}
	var key SigningKey
	if key.Public, err = armored(openpgp.PublicKeyType, entity.Serialize); err != nil {
		return SigningKey{}, err
	}
	key.Private, err = armored(openpgp.PrivateKeyType, func(w io.Writer) error {
		return entity.SerializePrivateWithoutSigning(w, &config)
	})
	return key, err
}

func armored(kind string, serialize func(io.Writer) error) ([]byte, error) {
	var out bytes.Buffer
	w, err := armor.Encode(&out, kind, nil)
	if err != nil {
		return nil, err
	}
	if err := serialize(w); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// SignRelease writes a detached signature next to the one file in dir whose
// name ends in _SHA256SUMS.
func (k SigningKey) SignRelease(dir string) error {
	found, err := filepath.Glob(filepath.Join(dir, "*_SHA256SUMS"))
	if err != nil {
		return err
	}
	if len(found) != 1 {
		return fmt.Errorf("cannot sign the release: %d files in %s end in _SHA256SUMS", len(found), dir)
	}
	sums, err := os.ReadFile(found[0])
	if err != nil {
		return err
	}
	keys, err := openpgp.ReadArmoredKeyRing(bytes.NewReader(k.Private))
	if err != nil {
		return fmt.Errorf("cannot sign the release: %w", err)
	}
	if len(keys) != 1 {
		return errors.New("cannot sign the release: there is not exactly one key")
	}
	// The time of the signature is the key's creation, so that signatures of
	// expired keys can be tested.
	made := keys[0].PrimaryKey.CreationTime
	var signature bytes.Buffer
	if err := openpgp.DetachSign(&signature, keys[0], bytes.NewReader(sums),
		&packet.Config{Time: func() time.Time { return made }}); err != nil {
		return fmt.Errorf("cannot sign the release: %w", err)
	}
	return os.WriteFile(found[0]+".sig", signature.Bytes(), 0o644)
}
