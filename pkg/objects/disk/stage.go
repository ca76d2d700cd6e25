package disk

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/progress"
	"github.com/larder-registry/larder/pkg/registry"
)

// A staged object has a marker, which is a file with its key in the folder
// staged. A permanent object has none. A process changes either of them while it
// holds the lock, which orders Keep and the sweep. Either Keep finds no object,
// or the sweep finds no marker.
//
// If a process or the machine stops in between, the next process can detect the
// state:
//
//   - A PUT creates the marker and then the object. This can leave a marker without
//     an object, which PutOnce, a PUT or the sweep removes.
//   - The sweep removes the object and then the marker. This can leave the same.
//   - Keep removes only the marker, and syncs the object to disk before.

// sweepEvery is the time between two sweeps of a process that signs URLs.
const sweepEvery = time.Hour

// marker returns the path of a key's marker. Its name is a hash, because keys
// have slashes and can be longer than a name.
func marker(key string) string { return path.Join(staged, sum([]byte(key))) }

// mark creates the marker of an object that is about to be stored. The caller
// holds the lock.
func (s *Store) mark(key string) error {
	// Do not give an existing object a marker. Remove the marker of a killed PUT,
	// so that the new object does not have its age.
	if _, err := s.root.Lstat(path.Join(stored, key)); err == nil {
		return registry.ErrExists
	}
	if err := s.unmark(key); err != nil {
		return err
	}
	return s.place(strings.NewReader(key), objects.Digest{SHA256: sum([]byte(key)), Size: int64(len(key))}, marker(key))
}

// unmark removes the marker of an object, if any. The caller holds the lock.
func (s *Store) unmark(key string) error {
	if err := s.root.Remove(marker(key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// A marker removed by another process must not return after a power failure.
	return s.syncDir(staged)
}

// PutStaged implements [objects.Stage].
func (s *Store) PutStaged(ctx context.Context, key string, body io.ReadSeeker, digest objects.Digest) error {
	if err := objects.CheckUpload(key, digest); err != nil {
		return err
	}
	return s.add(progress.WithContext(ctx, body), digest, key, s.mark)
}

// Keep implements [objects.Stage].
func (s *Store) Keep(_ context.Context, key string) (objects.Info, error) {
	if err := objects.CheckKey(key); err != nil {
		return objects.Info{}, err
	}
	unlock, err := s.lock.Lock()
	if err != nil {
		return objects.Info{}, fmt.Errorf("object %s: %w", key, err)
	}
	defer unlock()
	name := path.Join(stored, key)
	info, err := s.root.Lstat(name)
	if err == nil && !info.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		return objects.Info{}, s.notFound(key, err)
	}
	// The process that stored the object may have been killed before it was
	// durable.
	if err := s.syncDirs(name); err != nil {
		return objects.Info{}, err
	}
	if err := s.unmark(key); err != nil {
		return objects.Info{}, fmt.Errorf("object %s: %w", key, err)
	}
	return objects.Info{Key: key, Size: info.Size(), Modified: info.ModTime()}, nil
}

// sweepStaged removes expired staged objects.
func (s *Store) sweepStaged() {
	entries, err := fs.ReadDir(s.root.FS(), staged)
	if err != nil {
		return
	}
	for _, e := range entries {
		if name := path.Join(staged, e.Name()); s.isOver(name) {
			_ = s.expire(name)
		}
	}
}

func (s *Store) isOver(marker string) bool {
	info, err := s.root.Lstat(marker)
	return err == nil && s.now().Sub(info.ModTime()) > objects.StagedFor
}

// expire removes an object with an expired marker, and then the marker.
func (s *Store) expire(name string) error {
	unlock, err := s.lock.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	if !s.isOver(name) {
		return nil // the object is permanent, or the marker is a new one
	}
	key, err := s.root.ReadFile(name)
	if err != nil {
		return err
	}
	// Only a valid marker identifies an object.
	if objects.CheckKey(string(key)) == nil && name == marker(string(key)) {
		object := path.Join(stored, string(key))
		err := s.root.Remove(object)
		if err == nil {
			err = s.syncDir(path.Dir(object))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return s.root.Remove(name)
}

// SignPut implements [objects.Stage]. The signature covers the method, the
// path, the whole query, and the headers.
func (s *Store) SignPut(_ context.Context, key string, digest objects.Digest) (objects.Upload, error) {
	if err := objects.CheckUpload(key, digest); err != nil {
		return objects.Upload{}, err
	}
	last := s.swept.Load()
	if s.now().Sub(time.Unix(last, 0)) > sweepEvery && s.swept.CompareAndSwap(last, s.now().Unix()) {
		s.sweepStaged()
	}
	sum, _ := hex.DecodeString(digest.SHA256) // CheckUpload has verified it
	header := map[string]string{
		"Content-Length":        strconv.FormatInt(digest.Size, 10),
		"Content-Type":          "application/octet-stream",
		"If-None-Match":         "*",
		"X-Amz-Checksum-Sha256": base64.StdEncoding.EncodeToString(sum),
		"X-Amz-Tagging":         objects.Tag + "=" + objects.TagStaged,
	}
	values := make([]string, len(signedHeaders))
	for i, name := range signedHeaders {
		values[i] = header[name]
	}
	u, err := s.signURL(http.MethodPut, PutPath, key, s.PutLifetime, values...)
	return objects.Upload{URL: u, Header: header}, err
}

// signedHeaders are the signed headers of an upload, in the order of their
// values in the signature.
var signedHeaders = []string{
	"Content-Length", "Content-Type", "If-None-Match", "X-Amz-Checksum-Sha256", "X-Amz-Tagging",
}

func (s *Store) receive(w http.ResponseWriter, r *http.Request) error {
	key := r.PathValue("key")
	digest, err := s.verifyPut(r, key)
	if err != nil {
		return err
	}
	// This early check usually saves the client from sending the body.
	_, err = s.root.Lstat(path.Join(stored, key))
	if err == nil {
		err = registry.ErrExists
	} else {
		err = s.add(arriving{r.Body}, digest, key, s.mark)
	}
	switch {
	case errors.Is(err, registry.ErrExists):
		requestlog.From(r.Context()).Err = err
		httpapi.StatusError(w, http.StatusPreconditionFailed)
	case err != nil:
		return err
	default:
		httpapi.WriteJSON(w, http.StatusOK, httpapi.NoStore, struct{}{})
	}
	return nil
}

// verifyPut checks that a PUT is the signed request, and returns the digest of
// its body.
func (s *Store) verifyPut(r *http.Request, key string) (objects.Digest, error) {
	values := []string{strconv.FormatInt(r.ContentLength, 10)} // -1 if it is missing
	for _, name := range signedHeaders[1:] {
		values = append(values, strings.Join(r.Header.Values(name), ","))
	}
	if err := s.verify(r, key, values...); err != nil {
		return objects.Digest{}, err
	}
	for name := range r.Header {
		// S3 rejects unsigned X-Amz headers. It would store a Content-Encoding.
		signed := name == "X-Amz-Checksum-Sha256" || name == "X-Amz-Tagging"
		if strings.HasPrefix(name, "X-Amz-") && !signed || name == "Content-Encoding" {
			return objects.Digest{}, fmt.Errorf("%w: the header %s is not signed", registry.ErrForbidden, name)
		}
	}
	sum, err := base64.StdEncoding.DecodeString(r.Header.Get("X-Amz-Checksum-Sha256"))
	return objects.Digest{SHA256: hex.EncodeToString(sum), Size: r.ContentLength}, err
}

// arriving is the body of a PUT. If it breaks off, the error is
// registry.ErrInvalid.
type arriving struct{ body io.Reader }

func (a arriving) Read(p []byte) (int, error) {
	n, err := a.body.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w upload: it broke off: %w", registry.ErrInvalid, err)
	}
	return n, err
}
