package signing

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"
	"github.com/ProtonMail/go-crypto/openpgp/packet"

	"github.com/larder-registry/larder/pkg/printable"
	"github.com/larder-registry/larder/pkg/registry"
)

// Signer is who has signed a release of another registry.
type Signer struct {
	// ID and Owner are as in Key.
	ID, Owner string
	// Expired says that the key does not hold any more, which clients accept.
	Expired bool
}

// CheckKey says whether clients can read an armored key, which may have expired.
func CheckKey(armored string) error {
	_, err := readPublic([]byte(armored))
	return err
}

// VerifyOrigin returns who made the signature of another registry's release, by the keys that this registry names. It
// accepts what both clients accept, and so more than Verify: also a key that has expired, and several in one block.
func VerifyOrigin(keys []string, message, signature []byte, now time.Time) (Signer, error) {
	if len(signature) > MaxSignature {
		return Signer{}, fmt.Errorf("%w signature: it has more than %d bytes", registry.ErrInvalid, MaxSignature)
	}
	config := &packet.Config{Time: func() time.Time { return now }}
	for i, armored := range keys {
		if len(armored) > maxKey {
			return Signer{}, fmt.Errorf("%w signing key %d of the origin: it has more than %d bytes", registry.ErrInvalid, i+1, maxKey)
		}
		ring, err := openpgp.ReadArmoredKeyRing(bytes.NewReader([]byte(armored)))
		if err != nil {
			return Signer{}, fmt.Errorf("%w signing key %d of the origin: it cannot be read, and clients stop there (%s)",
				registry.ErrInvalid, i+1, printable.Remove(err.Error(), maxOwner))
		}
		entity, err := openpgp.CheckDetachedSignature(ring, bytes.NewReader(message), bytes.NewReader(signature), config)
		switch {
		case errors.Is(err, pgperrors.ErrUnknownIssuer):
			continue
		// The library looks at the key's time when the signature has held, and names the key then.
		case err == nil, errors.Is(err, pgperrors.ErrKeyExpired) && entity != nil:
			signer := Signer{ID: keyID(entity.PrimaryKey.KeyId), Expired: err != nil}
			if identity := entity.PrimaryIdentity(); identity != nil {
				signer.Owner = printable.Remove(identity.Name, maxOwner)
			}
			return signer, nil
		}
		return Signer{}, fmt.Errorf("%w signature: it does not hold by the keys that the origin names, "+
			"so that clients would not install this either (%s)", registry.ErrInvalid, printable.Remove(err.Error(), maxOwner))
	}
	return Signer{}, fmt.Errorf("%w signature: it is by none of the %d keys that the origin names", registry.ErrInvalid, len(keys))
}
