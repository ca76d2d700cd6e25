package access

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"

	"github.com/larder-registry/larder/pkg/registry"
)

// NewToken returns a new token and its digest. Show the token once, and store
// only the digest.
func NewToken() (token, digest string) {
	var random [32]byte
	_, _ = rand.Read(random[:]) // it never fails
	token = registry.FormatToken(random)
	sum := sha256.Sum256([]byte(token))
	return token, hex.EncodeToString(sum[:])
}
