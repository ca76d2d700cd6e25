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

// Signer is the signer of a release of another registry.
type Signer struct {
	// ID and Owner are those of [Key].
	ID, Owner string
	// Expired reports whether the key has expired. Clients accept expired keys.
	Expired bool
}

// CheckKey returns nil if clients can read an armored key, which may have
// expired.
func CheckKey(armored string) error {
	_, err := readPublic([]byte(armored))
	return err
}

// VerifyOrigin returns the signer of a release of another registry, using the
// keys that the registry names. It returns registry.ErrInvalid if clients would
// reject the signature.
//
// It accepts everything that both clients accept, which is more than [Verify]
// accepts. For example, it accepts expired keys, and several keys in one block.
func VerifyOrigin(keys []string, message, signature []byte, now time.Time) (Signer, error) {
	if len(signature) > MaxSignature {
		return Signer{}, fmt.Errorf("%w signature: it has more than %d bytes", registry.ErrInvalid, MaxSignature)
	}
	config := &packet.Config{Time: func() time.Time { return now }}
	for i, armored := range keys {
		if len(armored) > maxKey {
			return Signer{}, fmt.Errorf("%w signing key %d of the origin: it has more than %d bytes",
				registry.ErrInvalid, i+1, maxKey)
		}
		ring, err := openpgp.ReadArmoredKeyRing(bytes.NewReader([]byte(armored)))
		if err != nil {
			return Signer{}, fmt.Errorf(
				"%w signing key %d of the origin: clients cannot read it, and do not try other keys (%s)",
				registry.ErrInvalid, i+1, printable.Remove(err.Error(), maxOwner))
		}
		entity, err := openpgp.CheckDetachedSignature(ring, bytes.NewReader(message), bytes.NewReader(signature), config)
		switch {
		case errors.Is(err, pgperrors.ErrUnknownIssuer):
			continue
			// The library checks the key's expiry after it has verified the signature,
			// and returns the key with this error.
		case err == nil, errors.Is(err, pgperrors.ErrKeyExpired) && entity != nil:
			signer := Signer{ID: keyID(entity.PrimaryKey.KeyId), Expired: err != nil}
			if identity := entity.PrimaryIdentity(); identity != nil {
				signer.Owner = printable.Remove(identity.Name, maxOwner)
			}
			return signer, nil
		}
		return Signer{}, fmt.Errorf("%w signature: it does not verify with the origin's keys, "+
			"so clients would not install this version either (%s)",
			registry.ErrInvalid, printable.Remove(err.Error(), maxOwner))
	}
	return Signer{}, fmt.Errorf("%w signature: it was not made with a key of the origin", registry.ErrInvalid)
}
