// Package objects keeps archives: put once, never replaced, handed to clients by presigned URLs.
package objects

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"

	"github.com/larder-registry/larder/pkg/registry"
)

// Store keeps objects under keys, which are slash-separated paths without empty, "." or ".." parts.
//
// Errors that a caller may act on are registry's sentinels: ErrNotFound for a key that holds nothing, ErrInvalid for one
// that CheckKey refuses.
type Store interface {
	// PutOnce stores an object whole or not at all. It refuses with registry.ErrExists where the key holds an object,
	// and with registry.ErrInvalid where the bytes are not those of the digest and size, which the store itself
	// verifies. When it returns nil or ErrExists the object is durable.
	//
	// It reads the body from where it stands, more than once where it must try again.
	PutOnce(ctx context.Context, key string, body io.ReadSeeker, digest Digest) error
	// SignGet returns an absolute URL from which anyone can GET the object for a limited time. It does not look whether
	// the object is there.
	SignGet(ctx context.Context, key string) (string, error)
	// Open reads an object from an offset on, to its end where length is negative.
	Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error)
	// Stat describes an object.
	Stat(ctx context.Context, key string) (Info, error)
	// Walk calls visit with each object whose key begins with a prefix, in the order of keys, until visit fails.
	Walk(ctx context.Context, prefix string, visit func(Info) error) error
}

// Digest says what the bytes of an object are.
type Digest struct {
	// SHA256 in lower-case hexadecimal.
	SHA256 string
	// Size in bytes.
	Size int64
}

// Info describes a stored object.
type Info struct {
	Key  string
	Size int64
}

// maxKey leaves room for what comes before a key in a URL's path.
const maxKey = 1000

// CheckKey says whether a key is one that every backend can keep and hand out: a plain path that can lead nowhere else.
// Errors are registry.ErrInvalid.
func CheckKey(key string) error {
	if !fs.ValidPath(key) || key == "." || len(key) > maxKey || !registry.IsPlain(key) {
		return fmt.Errorf("%w object key %q", registry.ErrInvalid, key)
	}
	return nil
}

// Check says whether a digest is one that an object can have. Errors are registry.ErrInvalid.
func (d Digest) Check() error {
	sum, err := hex.DecodeString(d.SHA256)
	if err != nil || len(sum) != sha256.Size || d.SHA256 != hex.EncodeToString(sum) || d.Size < 0 {
		return fmt.Errorf("%w digest: sha256:%s, %d bytes", registry.ErrInvalid, d.SHA256, d.Size)
	}
	return nil
}

// Copy copies a body whose digest is known, and fails with registry.ErrInvalid where it is another one. It reads no
// more than a byte beyond the expected size.
func Copy(w io.Writer, body io.Reader, want Digest) error {
	hash := sha256.New()
	n, err := io.Copy(io.MultiWriter(w, hash), io.LimitReader(body, want.Size+1))
	if err != nil {
		return err
	}
	if got := hex.EncodeToString(hash.Sum(nil)); n != want.Size || got != want.SHA256 {
		return fmt.Errorf("%w object: its bytes are not those of sha256:%s, %d bytes", registry.ErrInvalid, want.SHA256, want.Size)
	}
	return nil
}
