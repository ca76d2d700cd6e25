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
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/requestlog"
)

// A staged object has a marker, which is a file with its key in the folder staged; one without is kept. Who changes either
// holds the lock, so that of Keep and the sweep one comes first: Keep then finds no object, or the sweep no marker. A
// process or a machine that dies in between leaves what the next one can tell:
//
//   - a PUT makes the marker and then the object: a marker without an object, which PutOnce, a PUT or the sweep removes;
//   - the sweep removes the object and then the marker: the same;
//   - Keep removes the marker alone, and has the object on disk before.

// sweepEvery is how often a process that signs URLs sweeps.
const sweepEvery = time.Hour

// marker returns where the marker of a key is. Keys are longer than names can be, and have slashes.
func marker(key string) string { return path.Join(staged, sum([]byte(key))) }

// mark makes the marker of an object that is about to be stored. The caller holds the lock.
func (s *Store) mark(key string) error {
	// A new object does not get the age of what a killed PUT left, nor an object that is there another marker.
	if _, err := s.root.Lstat(path.Join(stored, key)); err == nil {
		return registry.ErrExists
	}
	if err := s.unmark(key); err != nil {
		return err
	}
	return s.place(strings.NewReader(key), objects.Digest{SHA256: sum([]byte(key)), Size: int64(len(key))}, marker(key))
}

// unmark removes the marker of an object, if it has one. The caller holds the lock.
func (s *Store) unmark(key string) error {
	if err := s.root.Remove(marker(key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// One that somebody else removed must not come back after a power cut either.
	return s.syncDir(staged)
}

// Keep implements objects.Stage.
func (s *Store) Keep(_ context.Context, key string) error {
	if err := objects.CheckKey(key); err != nil {
		return err
	}
	unlock, err := s.lock.Lock()
	if err != nil {
		return fmt.Errorf("object %s: %w", key, err)
	}
	defer unlock()
	name := path.Join(stored, key)
	info, err := s.root.Lstat(name)
	if err == nil && !info.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		return notFound(key, err)
	}
	// Whoever stored it may have been killed before it was durable.
	if err := s.syncDirs(name); err != nil {
		return err
	}
	if err := s.unmark(key); err != nil {
		return fmt.Errorf("object %s: %w", key, err)
	}
	return nil
}

// sweepStaged removes the objects that have been staged for too long.
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

// expire removes an object whose marker is old, and then the marker.
func (s *Store) expire(name string) error {
	unlock, err := s.lock.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	if !s.isOver(name) {
		return nil // it was kept, or is another one by now
	}
	key, err := s.root.ReadFile(name)
	if err != nil {
		return err
	}
	// What is no marker tells of no object.
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

// SignPut implements objects.Stage. The signature covers method, path, all of the query, and the headers.
func (s *Store) SignPut(_ context.Context, key string, digest objects.Digest) (objects.Upload, error) {
	if err := objects.CheckUpload(key, digest); err != nil {
		return objects.Upload{}, err
	}
	if last := s.swept.Load(); s.now().Sub(time.Unix(last, 0)) > sweepEvery && s.swept.CompareAndSwap(last, s.now().Unix()) {
		s.sweepStaged()
	}
	sum, _ := hex.DecodeString(digest.SHA256) // which was checked
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

// signedHeaders are those of an upload, in the order in which they are signed.
var signedHeaders = []string{"Content-Length", "Content-Type", "If-None-Match", "X-Amz-Checksum-Sha256", "X-Amz-Tagging"}

// receive answers a PUT.
func (s *Store) receive(w http.ResponseWriter, r *http.Request) error {
	key := r.PathValue("key")
	digest, err := s.verifyPut(r, key)
	if err != nil {
		return err
	}
	// Mostly that saves the client's sending it.
	_, err = s.root.Lstat(path.Join(stored, key))
	if err == nil {
		err = registry.ErrExists
	} else {
		err = s.add(&arriving{body: r.Body, control: http.NewResponseController(w)}, digest, key, s.mark)
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

// verifyPut says whether a PUT is one that was signed, and of what.
func (s *Store) verifyPut(r *http.Request, key string) (objects.Digest, error) {
	values := []string{strconv.FormatInt(r.ContentLength, 10)} // -1 where there is none
	for _, name := range signedHeaders[1:] {
		values = append(values, strings.Join(r.Header.Values(name), ","))
	}
	if err := s.verify(r, key, values...); err != nil {
		return objects.Digest{}, err
	}
	for name := range r.Header {
		// S3 refuses the first kind. The second it would store.
		if strings.HasPrefix(name, "X-Amz-") && name != "X-Amz-Checksum-Sha256" && name != "X-Amz-Tagging" || name == "Content-Encoding" {
			return objects.Digest{}, fmt.Errorf("%w: the header %s is not signed", registry.ErrForbidden, name)
		}
	}
	sum, err := base64.StdEncoding.DecodeString(r.Header.Get("X-Amz-Checksum-Sha256"))
	return objects.Digest{SHA256: hex.EncodeToString(sum), Size: r.ContentLength}, err
}

// patience is how long the body of a PUT may stand still. The whole of it may take as long as it takes.
const patience = time.Minute

// arriving is a body that is waited for as long as something comes. Where it breaks off, that is registry.ErrInvalid.
type arriving struct {
	body    io.Reader
	control *http.ResponseController
	renew   time.Time
}

func (a *arriving) Read(p []byte) (int, error) {
	if now := time.Now(); now.After(a.renew) {
		_ = a.control.SetReadDeadline(now.Add(patience)) // a writer that cannot do that has no such deadline
		a.renew = now.Add(patience / 4)
	}
	n, err := a.body.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w upload: it broke off: %w", registry.ErrInvalid, err)
	}
	return n, err
}
