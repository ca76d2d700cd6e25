package signing

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"
	"github.com/ProtonMail/go-crypto/openpgp/packet"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/printable"
)

// Signer is the signer of a release of another registry.
type Signer struct {
	// ID and Owner are those of [Key].
	ID, Owner string
	// Fingerprint of the primary key, in upper-case hexadecimal.
	Fingerprint string
	// Expired reports whether the key has expired. Clients accept expired keys.
	Expired bool
	// SignedAt is when the signature was made, as it claims.
	SignedAt time.Time
}

// CheckKey returns nil if clients can read an armored key, which may have
// expired.
func CheckKey(armored string) error {
	_, err := readPublic([]byte(armored))
	return err
}

// KeyOf returns the key of the signer of a release, from the keys that its registry
// names. A key that has expired is judged at its last moment. KeyOf returns
// registry.ErrInvalid if some client cannot read the key. Clients would then fail for
// the other keys of the namespace too.
func KeyOf(armored []string, s Signer, now time.Time) (Key, error) {
	for _, text := range armored {
		ring, err := readRing(text)
		if err != nil {
			continue
		}
		for _, entity := range ring {
			if keyID(entity.PrimaryKey.KeyId) != s.ID {
				continue
			}
			var packets bytes.Buffer
			if err := entity.Serialize(&packets); err != nil {
				return Key{}, fmt.Errorf("%w signing key %s: it cannot be serialized", registry.ErrInvalid, s.ID)
			}
			e, err := read(packets.Bytes())
			if err != nil {
				return Key{}, fmt.Errorf("%w signing key %s: %w", registry.ErrInvalid, s.ID, err)
			}
			return describeExpired(e, now)
		}
	}
	return Key{}, fmt.Errorf("signing key %s: %w", s.ID, registry.ErrNotFound)
}

// readRing reads the keys of an armored block. The library panics when it verifies a
// signature by a key without a self-signature, so readRing leaves it out.
func readRing(armored string) (openpgp.EntityList, error) {
	ring, err := openpgp.ReadArmoredKeyRing(strings.NewReader(armored))
	return slices.DeleteFunc(ring, func(e *openpgp.Entity) bool {
		self, _ := e.PrimarySelfSignature()
		return self == nil
	}), err
}

// VerifyOrigin returns the signer of a release of another registry, using the
// keys that the registry names. It is the first one of [VerifyOriginAll].
func VerifyOrigin(keys []string, message, signature []byte, now time.Time) (Signer, error) {
	signers, err := VerifyOriginAll(keys, message, signature, now)
	if err != nil {
		return Signer{}, err
	}
	return signers[0], nil
}

// VerifyOriginAll returns the signers of a release of another registry, using the
// keys that the registry names. The first signer is the one that clients find.
// It returns registry.ErrInvalid if clients would reject the signature.
//
// It accepts everything that both clients accept, which is more than [Verify]
// accepts. For example, it accepts expired keys, and several keys in one block.
func VerifyOriginAll(keys []string, message, signature []byte, now time.Time) ([]Signer, error) {
	if len(signature) > MaxSignature {
		return nil, fmt.Errorf("%w signature: it has more than %d bytes", registry.ErrInvalid, MaxSignature)
	}
	config := &packet.Config{Time: func() time.Time { return now }}
	for i, armored := range keys {
		if len(armored) > maxKey {
			return nil, fmt.Errorf("%w signing key %d of the origin: it has more than %d bytes",
				registry.ErrInvalid, i+1, maxKey)
		}
		ring, err := readRing(armored)
		if err != nil {
			return nil, fmt.Errorf(
				"%w signing key %d of the origin: clients cannot read it, and do not try other keys (%s)",
				registry.ErrInvalid, i+1, printable.Remove(err.Error(), maxOwner))
		}
		signer, err := verifyWith(ring, message, signature, config)
		if errors.Is(err, pgperrors.ErrUnknownIssuer) {
			continue
		}
		if errors.Is(err, pgperrors.ErrSignatureExpired) {
			err = explainTime(ring, signature, err, now)
		}
		if err != nil {
			return nil, fmt.Errorf("%w signature: it does not verify with the origin's keys, "+
				"so clients would not install this version either (%s)",
				registry.ErrInvalid, printable.Remove(err.Error(), maxOwner))
		}
		return append([]Signer{signer}, otherSigners(signer, keys[i:], message, signature, config)...), nil
	}
	return nil, fmt.Errorf("%w signature: it was not made with a key of the origin", registry.ErrInvalid)
}

// explainTime returns the error for a signature that is not valid at the time
// now. The library calls it expired too if it is from the future.
func explainTime(ring openpgp.EntityList, signature []byte, err error, now time.Time) error {
	for packets := packet.NewReader(bytes.NewReader(signature)); ; {
		p, end := packets.Next()
		if end != nil {
			return err
		}
		sig, ok := p.(*packet.Signature)
		if ok && sig.IssuerKeyId != nil && len(ring.KeysById(*sig.IssuerKeyId)) > 0 {
			if sig.CreationTime.Unix() > now.Unix() {
				return fmt.Errorf("it is from %s, which is in the future", date(sig.CreationTime))
			}
			return err
		}
	}
}

// otherSigners returns the signers other than the first one. It skips keys that
// it cannot read and other signatures, because clients do not look for them.
func otherSigners(first Signer, keys []string, message, signature []byte, config *packet.Config) []Signer {
	var others []Signer
	found := map[string]bool{first.Fingerprint: true}
	for _, armored := range keys {
		if len(armored) > maxKey {
			continue
		}
		ring, err := readRing(armored)
		if err != nil {
			continue
		}
		for _, entity := range ring {
			signer, err := verifyWith(openpgp.EntityList{entity}, message, signature, config)
			if err == nil && !found[signer.Fingerprint] {
				found[signer.Fingerprint] = true
				others = append(others, signer)
			}
		}
	}
	return others
}

// verifyWith returns the signer with a key of a ring. It returns
// [pgperrors.ErrUnknownIssuer] if none of them has signed.
func verifyWith(ring openpgp.EntityList, message, signature []byte, config *packet.Config) (Signer, error) {
	sig, entity, err := openpgp.VerifyDetachedSignature(ring, bytes.NewReader(message), bytes.NewReader(signature), config)
	// The library checks the key's expiry after it has verified the signature,
	// and returns the key with this error.
	expired := errors.Is(err, pgperrors.ErrKeyExpired) && entity != nil
	if err != nil && !expired {
		return Signer{}, err
	}
	signer := Signer{
		ID: keyID(entity.PrimaryKey.KeyId), Fingerprint: fmt.Sprintf("%X", entity.PrimaryKey.Fingerprint),
		Expired: expired, SignedAt: sig.CreationTime.UTC(),
	}
	if identity := entity.PrimaryIdentity(); identity != nil {
		signer.Owner = printable.Remove(identity.Name, maxOwner)
	}
	return signer, nil
}

// Lists reports whether the SHA256SUMS of an origin contains a file with a
// SHA-256, by the rules of clients. It ignores malformed lines, as they do.
func Lists(sums []byte, filename, sha256 string) bool {
	listed, found := ListedSum(sums, filename)
	return found && strings.EqualFold(listed, sha256)
}

// ListedSum returns the SHA-256 of a file in the SHA256SUMS of an origin, like
// [Lists].
func ListedSum(sums []byte, filename string) (sha256 string, found bool) {
	for line := range strings.Lines(string(sums)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[1] == filename {
			return fields[0], true
		}
	}
	return "", false
}
