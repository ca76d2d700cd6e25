// Package objects defines how archives are stored: each object is stored once,
// is never replaced, and is served to clients via presigned URLs.
//
// There are two ways to store an object. An operator with write access to a
// [Store] calls PutOnce, and the object is permanent. The publish API hands out
// a URL from a [Stage], and an object uploaded with it is staged. A staged
// object has its final key, but it expires unless Keep is called.
package objects

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
)

// Store stores objects under keys. Keys are slash-separated paths without
// empty, "." or ".." parts.
//
// Methods return registry.ErrNotFound for a key without an object, and
// registry.ErrInvalid for a key that [CheckKey] rejects.
type Store interface {
	// PutOnce stores an object completely or not at all. It returns
	// registry.ErrExists if the key has an object. It returns registry.ErrInvalid
	// if the bytes do not match the digest, which the store itself verifies. When
	// it returns nil or ErrExists, the object is durable.
	//
	// It reads the body from its current position, and again for each retry.
	PutOnce(ctx context.Context, key string, body io.ReadSeeker, digest Digest) error
	// SignGet returns an absolute URL from which anyone can GET the object for a
	// limited time. It does not check whether the object exists.
	SignGet(ctx context.Context, key string) (string, error)
	// Open reads length bytes of an object from an offset. A negative length reads
	// to its end. The caller closes the result.
	Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error)
	// Stat returns the key, the size and the time of an object.
	Stat(ctx context.Context, key string) (Info, error)
	// Walk calls visit for each object whose key begins with a prefix, in the
	// order of keys. It stops at the first error of visit, and returns it.
	Walk(ctx context.Context, prefix string, visit func(Info) error) error
}

// Stage lets people without write access to a [Store] upload objects. Open,
// Stat, Walk and SignGet of the store include these objects, staged or
// permanent. Errors are those of Store.
//
// A staged object expires after [StagedFor], or some time later. PutOnce of a
// staged object makes it permanent, or fails with registry.ErrConflict.
type Stage interface {
	// SignPut returns a request that lets anyone store exactly the bytes of the
	// digest under the key, once and within a limited time. It does not check
	// whether the key has an object.
	SignPut(ctx context.Context, key string, digest Digest) (Upload, error)
	// PutStaged is like PutOnce of a [Store], but a new object is staged. It
	// does not change an existing object.
	PutStaged(ctx context.Context, key string, body io.ReadSeeker, digest Digest) error
	// Keep makes an object permanent, unless it is already, and returns what Stat
	// does. It returns registry.ErrInvalid if the object was uploaded with headers
	// that change what clients download.
	Keep(ctx context.Context, key string) (Info, error)
}

// Upload is a PUT request to URL. The client sends the headers unchanged, and
// the bytes as the body.
//
// The response is 200 if the object is stored. It is 412 if the key has an
// object, with any bytes. It is 409 if another request is storing one, and the
// client should try again. It is 400 if the bytes do not match the digest. It
// is 403 if the request is not the signed one, or has expired.
//
// The response may arrive before the body is read, and the connection may then
// close. Clients with large bodies should also send Expect: 100-continue, which
// is not signed.
type Upload struct {
	URL string `json:"url"`
	// Header has one value for each header, including Content-Length.
	Header map[string]string `json:"header"`
}

// The tag of staged objects in S3, its values, and the ID of the lifecycle
// rule. A lifecycle rule and the policies of roles must use the same names.
const (
	Tag        = "larder"
	TagStaged  = "staged"
	TagKept    = "kept"
	StagedRule = "larder-staged"
)

// StagedFor is how long an object can be staged. A lifecycle rule of the same
// number of days expires it at the next midnight.
const StagedFor = 48 * time.Hour

// maxUpload is the largest object that S3 accepts in one PUT, in bytes.
const maxUpload = 5 << 30

// CheckUpload returns registry.ErrInvalid if a [Stage] cannot accept an object.
func CheckUpload(key string, digest Digest) error {
	if err := errors.Join(CheckKey(key), digest.Check()); err != nil {
		return err
	}
	// The signatures of S3 omit a length of zero.
	if digest.Size == 0 || digest.Size > maxUpload {
		return fmt.Errorf("%w object %s: it has %d bytes, and an upload must have 1 to %d",
			registry.ErrInvalid, key, digest.Size, int64(maxUpload))
	}
	return nil
}

// CheckFolder returns registry.ErrInvalid unless a prefix of keys ends at a
// part, so that it only matches keys below it.
func CheckFolder(prefix string) error {
	key, ok := strings.CutSuffix(prefix, "/")
	if !ok {
		return fmt.Errorf("%w prefix %q: it does not end in a slash", registry.ErrInvalid, prefix)
	}
	return CheckKey(key)
}

// Digest identifies the bytes of an object.
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
	// Modified is when it was stored.
	Modified time.Time
}

// maxKey is the largest length of a key, in bytes. It leaves room for a prefix
// in a URL's path.
const maxKey = 1000

// CheckKey returns registry.ErrInvalid unless every backend can store and serve
// the key. It must be a plain path without special parts or characters.
func CheckKey(key string) error {
	if !fs.ValidPath(key) || key == "." || len(key) > maxKey || !errs.IsPlain(key) {
		return fmt.Errorf("%w object key %q", registry.ErrInvalid, key)
	}
	return nil
}

// Check returns registry.ErrInvalid if no object can have the digest.
func (d Digest) Check() error {
	if !registry.IsSHA256(d.SHA256) || d.Size < 0 {
		return fmt.Errorf("%w digest: sha256:%s, %d bytes", registry.ErrInvalid, d.SHA256, d.Size)
	}
	return nil
}

// Copy copies a body, and returns registry.ErrInvalid if its digest is not
// want. It reads at most one byte more than the expected size.
func Copy(w io.Writer, body io.Reader, want Digest) error {
	hash := sha256.New()
	n, err := io.Copy(io.MultiWriter(w, hash), io.LimitReader(body, want.Size+1))
	if err != nil {
		return err
	}
	if got := hex.EncodeToString(hash.Sum(nil)); n != want.Size || got != want.SHA256 {
		return fmt.Errorf("%w object: its content is not the expected %d bytes with sha256:%s",
			registry.ErrInvalid, want.Size, want.SHA256)
	}
	return nil
}
