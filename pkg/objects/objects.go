// Package objects keeps archives: put once, never replaced, handed to clients by presigned URLs.
//
// They come in one of two ways. An operator, who may write to a Store, puts them,
// and they stay. The publish API hands out a URL from a Stage, and an object that
// is put with it is staged: it has its final key, and expires unless it is kept.
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

// Stage takes objects from those who may not write to a Store. It is the same objects that Open, Stat, Walk and SignGet of
// the store beside it see, staged or kept. Errors are as those of Store.
//
// What stays staged is gone after StagedFor, or some time later; PutOnce of a staged object keeps it, or fails with registry.ErrConflict.
type Stage interface {
	// SignPut returns what lets anyone put just the bytes of the digest under the key, once and within a limited time. It
	// does not look whether the key holds an object.
	SignPut(ctx context.Context, key string, digest Digest) (Upload, error)
	// Keep has an object stay for good. It changes nothing where that is so already. registry.ErrInvalid is an object that
	// was put with headers by which clients would get other bytes.
	Keep(ctx context.Context, key string) error
}

// Upload is one request: a PUT to the URL, with the headers as they are and the bytes as its body.
//
// The answer is 200 where the object is stored; 412 where the key holds one, whatever its bytes are; 409 where another
// request is putting one, and this is to be tried again; 400 where the bytes are not those of the digest; 403 where the
// request is not the one that was signed, or is too late. It may come before the body is read, and the connection end with
// it: who sends much sends Expect: 100-continue too, which is not signed.
type Upload struct {
	URL string `json:"url"`
	// Header has each header once, Content-Length among them.
	Header map[string]string `json:"header"`
}

// What S3 knows staged objects by, of which a lifecycle rule and the policies of roles must have the same idea: the tag,
// its values, and the rule's ID.
const (
	Tag        = "larder"
	TagStaged  = "staged"
	TagKept    = "kept"
	StagedRule = "larder-staged"
)

// StagedFor is how long an object can stay staged. A lifecycle rule of as many days waits for the midnight that follows.
const StagedFor = 48 * time.Hour

// maxUpload is the most that S3 takes in one PUT, in bytes.
const maxUpload = 5 << 30

// CheckUpload says whether a Stage can take an object. Errors are registry.ErrInvalid.
func CheckUpload(key string, digest Digest) error {
	if err := errors.Join(CheckKey(key), digest.Check()); err != nil {
		return err
	}
	// A length of nothing is one that S3's signatures leave out.
	if digest.Size == 0 || digest.Size > maxUpload {
		return fmt.Errorf("%w object %s: an upload has 1 to %d bytes, not %d", registry.ErrInvalid, key, int64(maxUpload), digest.Size)
	}
	return nil
}

// CheckFolder says whether a prefix of keys is one of whole parts, so that what begins with it is below it. Errors are
// registry.ErrInvalid.
func CheckFolder(prefix string) error {
	key, ok := strings.CutSuffix(prefix, "/")
	if !ok {
		return fmt.Errorf("%w prefix %q: it does not end in a slash", registry.ErrInvalid, prefix)
	}
	return CheckKey(key)
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
	// Modified is when it was stored.
	Modified time.Time
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
	if !registry.IsSHA256(d.SHA256) || d.Size < 0 {
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

// ContextReader returns a reader of r that fails with the error of ctx once ctx
// has ended.
func ContextReader(ctx context.Context, r io.Reader) io.Reader { return &contextReader{ctx, r} }

type contextReader struct {
	ctx context.Context //nolint:containedctx // io.Reader has none, and it is that of the caller who reads
	r   io.Reader
}

func (c *contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
