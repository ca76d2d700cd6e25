// Package disk is the embedded default of objects.Store and objects.Stage: a folder, whose files a server on the same
// machine hands out, and takes, through signed URLs.
//
// The URLs behave as presigned S3 URLs do: they are for one object and one method, they expire, and a changed one, be it
// by an added query parameter, is refused with 403. What PutOnce has returned from is on disk, and so is what a PUT was
// answered 200 for. Several processes can share a folder.
package disk

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rogpeppe/go-internal/lockedfile"

	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/regularfile"
)

// Where things are in the store's folder.
const (
	stored     = "objects"
	unfinished = "unfinished"
	staged     = "staged" // a marker for each staged object
	keyFile    = "url.key"
	lockFile   = "objects.lock"
)

// Names returns what a store makes in its folder.
func Names() []string { return []string{stored, unfinished, staged, keyFile, lockFile} }

// Where Handler serves objects, and where it takes them.
const (
	Path    = "/objects/"
	PutPath = "/uploads/"
)

// Store is an objects.Store and an objects.Stage in a folder.
type Store struct {
	root *os.Root
	key  []byte
	// lock is held, by one process at a time, while an object's name and its marker change; see stage.go.
	lock  *lockedfile.Mutex
	swept *atomic.Int64 // Unix time

	// BaseURL is where Handler is served, such as https://127.0.0.1:8443. SignGet and SignPut need it.
	BaseURL string
	// Lifetime is how long signed URLs hold; 60 minutes where it is zero. One init of a client reuses the URLs it got
	// first.
	Lifetime time.Duration
	// PutLifetime is that of URLs to PUT; 60 minutes where it is zero. A request must begin within it.
	PutLifetime time.Duration
	// Now tells the time; time.Now where it is nil.
	Now func() time.Time
}

var (
	_ objects.Store = (*Store)(nil)
	_ objects.Stage = (*Store)(nil)
)

// Open opens the store in a folder, which it makes if there is none.
func Open(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot open the object store: %w", regularfile.Unwritable(dir, err))
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot open the object store: %w", regularfile.Unreadable(dir, err))
	}
	s := &Store{root: root, swept: new(atomic.Int64)}
	if err := s.prepare(); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot open the object store %s: %w", dir, registry.DiskFull(err)), root.Close())
	}
	return s, nil
}

// Close releases the folder.
func (s *Store) Close() error { return s.root.Close() }

func (s *Store) prepare() error {
	for _, dir := range []string{stored, unfinished, staged} {
		if err := s.root.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	dir, err := filepath.Abs(s.root.Name())
	if err != nil {
		return err
	}
	if err := s.makeLock(); err != nil {
		return err
	}
	s.lock = lockedfile.MutexAt(filepath.Join(dir, lockFile))
	s.sweep()
	s.key, err = s.root.ReadFile(keyFile)
	if errors.Is(err, fs.ErrNotExist) {
		key := make([]byte, 32)
		_, _ = rand.Read(key) // never fails
		if err := s.place(strings.NewReader(string(key)), objects.Digest{SHA256: sum(key), Size: int64(len(key))}, keyFile); err != nil && !errors.Is(err, registry.ErrExists) {
			return err
		}
		s.key, err = s.root.ReadFile(keyFile)
	}
	if err == nil && len(s.key) != 32 {
		return fmt.Errorf("%s has %d bytes, not 32: remove it to have a new one made", keyFile, len(s.key))
	}
	return err
}

// makeLock makes the file for the lock, since a lockedfile.Mutex makes one that
// others may read. It tightens one of an older release if that is this user's.
func (s *Store) makeLock() error {
	f, err := s.root.OpenFile(lockFile, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_ = f.Chmod(0o600)
	return f.Close()
}

// sweep removes what killed writers left long ago, and staged objects that were not kept. What it cannot remove it tries
// again the next time.
func (s *Store) sweep() {
	s.swept.Store(s.now().Unix())
	s.sweepStaged()
	entries, err := fs.ReadDir(s.root.FS(), unfinished)
	if err != nil {
		return
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && s.now().Sub(info.ModTime()) > 24*time.Hour {
			_ = s.root.Remove(path.Join(unfinished, e.Name()))
		}
	}
}

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

func (s *Store) now() time.Time {
	if s.Now != nil {
		return s.Now()
	}
	return time.Now()
}

// PutOnce implements objects.Store.
func (s *Store) PutOnce(ctx context.Context, key string, body io.ReadSeeker, digest objects.Digest) error {
	if err := errors.Join(objects.CheckKey(key), digest.Check()); err != nil {
		return err
	}
	// Who puts an object counts on it, even if somebody else has staged it.
	if err := s.Keep(ctx, key); err == nil {
		return fmt.Errorf("object %s: %w", key, registry.ErrExists)
	} else if !errors.Is(err, registry.ErrNotFound) {
		return err
	}
	return s.add(objects.ContextReader(ctx, body), digest, key, s.unmark)
}

// HasObjects reports whether a folder, which need not be a store's, has an object: a
// kept one if kept is set, and any one otherwise. It changes nothing.
func HasObjects(dir string, kept bool) (bool, error) {
	found := errors.New("there is one")
	// Above an object there is at least a folder for its kind.
	err := fs.WalkDir(os.DirFS(filepath.Join(dir, stored)), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || !strings.Contains(name, "/") {
			return err
		}
		if _, err := os.Lstat(filepath.Join(dir, marker(name))); kept && err == nil {
			return nil
		}
		return found
	})
	switch {
	case errors.Is(err, found):
		return true, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	}
	return false, err
}

// add stores an object, with its marker prepared right before it has its name.
func (s *Store) add(body io.Reader, digest objects.Digest, key string, prepare func(key string) error) (err error) {
	defer func() { err = registry.DiskFull(err) }()
	name := path.Join(stored, key)
	return s.write(body, digest, name, func(temporary string) error {
		unlock, err := s.lock.Lock()
		if err != nil {
			return fmt.Errorf("object %s: %w", key, err)
		}
		defer unlock()
		// Not before the lock is held: Remove removes folders that are empty.
		if err := s.root.MkdirAll(path.Dir(name), 0o700); err != nil {
			return fmt.Errorf("object %s: %w", key, err)
		}
		if err := prepare(key); err != nil {
			return fmt.Errorf("object %s: %w", key, err)
		}
		return s.link(temporary, name)
	})
}

// place writes a file that is no object. It fails if the name is taken.
func (s *Store) place(body io.Reader, digest objects.Digest, name string) error {
	return s.write(body, digest, name, func(temporary string) error { return s.link(temporary, name) })
}

// write writes a file beside the others, has it named, and removes the name that it had until then.
func (s *Store) write(body io.Reader, digest objects.Digest, name string, link func(temporary string) error) (err error) {
	temporary := path.Join(unfinished, rand.Text())
	f, err := s.root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return regularfile.Unwritable(name, err)
	}
	defer func() {
		if e := s.root.Remove(temporary); e != nil && err == nil {
			err = regularfile.Unwritable(name, e)
		}
	}()
	if err := errors.Join(objects.Copy(f, body, digest), f.Sync(), f.Close()); err != nil {
		return regularfile.Unwritable(name, err)
	}
	return link(temporary)
}

// link gives a file its name, which fails if the name is taken.
func (s *Store) link(temporary, name string) error {
	if err := s.root.Link(temporary, name); errors.Is(err, fs.ErrExist) {
		if info, err := s.root.Lstat(name); err == nil && !info.Mode().IsRegular() {
			return fmt.Errorf("cannot store %s: something else than a file is there", name)
		}
		return errors.Join(fmt.Errorf("%s: %w", name, registry.ErrExists), s.syncDirs(name))
	} else if err != nil {
		return regularfile.Unwritable(name, err)
	}
	return s.syncDirs(name)
}

// syncDirs makes a file's name, and those of the folders that it is in, outlive a power cut as its bytes do.
func (s *Store) syncDirs(name string) error {
	for dir := path.Dir(name); ; dir = path.Dir(dir) {
		if err := s.syncDir(dir); err != nil {
			return regularfile.Unwritable(name, err)
		}
		if dir == "." {
			return nil
		}
	}
}

func (s *Store) syncDir(name string) error {
	dir, err := s.root.Open(name)
	if err != nil {
		return err
	}
	_ = dir.Sync() // not every system syncs folders
	return dir.Close()
}

// Open implements objects.Store.
func (s *Store) Open(_ context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	f, info, err := s.open(key)
	if err != nil {
		return nil, err
	}
	if offset < 0 || offset > info.Size() {
		return nil, errors.Join(fmt.Errorf("%w range: object %s has %d bytes", registry.ErrInvalid, key, info.Size()), f.Close())
	}
	if length < 0 {
		length = info.Size() - offset
	}
	return struct {
		io.Reader
		io.Closer
	}{io.NewSectionReader(f, offset, length), f}, nil
}

func (s *Store) open(key string) (*os.File, fs.FileInfo, error) {
	if err := objects.CheckKey(key); err != nil {
		return nil, nil, err
	}
	f, err := s.root.Open(path.Join(stored, key))
	if err != nil {
		return nil, nil, notFound(key, err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, nil, errors.Join(notFound(key, err), f.Close())
	}
	return f, info, nil
}

func notFound(key string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("object %s: %w", key, registry.ErrNotFound)
	}
	return fmt.Errorf("object %s: %w", key, err)
}

// Stat implements objects.Store.
func (s *Store) Stat(_ context.Context, key string) (objects.Info, error) {
	f, info, err := s.open(key)
	if err != nil {
		return objects.Info{}, err
	}
	return objects.Info{Key: key, Size: info.Size(), Modified: info.ModTime()}, f.Close()
}

// Walk implements objects.Store.
func (s *Store) Walk(ctx context.Context, prefix string, visit func(objects.Info) error) error {
	tree, err := fs.Sub(s.root.FS(), stored)
	if err != nil {
		return fmt.Errorf("walking objects: %w", err)
	}
	var found []objects.Info
	err = fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && name != "." {
			return nil // it was removed meanwhile
		}
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if d.IsDir() {
			if name == "." || strings.HasPrefix(name+"/", prefix) || strings.HasPrefix(prefix, name+"/") {
				return nil
			}
			return fs.SkipDir
		}
		if !strings.HasPrefix(name, prefix) {
			return nil
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		found = append(found, objects.Info{Key: name, Size: info.Size(), Modified: info.ModTime()})
		return nil
	})
	if err != nil {
		return fmt.Errorf("walking objects: %w", err)
	}
	// A walk goes folder by folder, in which a/b comes before a-b; keys order by their bytes.
	slices.SortFunc(found, func(a, b objects.Info) int { return strings.Compare(a.Key, b.Key) })
	for _, info := range found {
		if err := visit(info); err != nil {
			return err
		}
	}
	return nil
}

// SignGet implements objects.Store. The signature covers method, path and all of the query.
func (s *Store) SignGet(_ context.Context, key string) (string, error) {
	if err := objects.CheckKey(key); err != nil {
		return "", err
	}
	return s.signURL(http.MethodGet, Path, key, s.Lifetime)
}

func (s *Store) signURL(method, under, key string, lifetime time.Duration, header ...string) (string, error) {
	if s.BaseURL == "" {
		return "", errors.New("signing a URL: the store has no base URL")
	}
	expires := strconv.FormatInt(s.now().Add(cmp.Or(lifetime, time.Hour)).Unix(), 10)
	query := url.Values{"expires": {expires}, "signature": {s.sign(method, key, expires, header...)}}
	u := url.URL{Path: under + key, RawQuery: query.Encode()}
	return s.BaseURL + u.String(), nil
}

// sign covers the values of headers too, of which each method has a fixed number.
func (s *Store) sign(method, key, expires string, header ...string) string {
	mac := hmac.New(sha256.New, s.key)
	// No part of what is signed can hold a line break, so that no two requests have one text.
	_, _ = io.WriteString(mac, "larder object v1\n"+strings.Join(append([]string{method, key, expires}, header...), "\n")+"\n")
	return hex.EncodeToString(mac.Sum(nil))
}

// Routes are those of Handler.
func Routes() []httpapi.Route { return httpapi.Routes((&Store{}).endpoints()) }

// Handler serves the objects to whoever has a signed URL, and takes them from whoever has one to PUT.
func (s *Store) Handler() http.Handler { return httpapi.Mux(s.endpoints()...) }

func (s *Store) endpoints() []httpapi.Endpoint {
	return []httpapi.Endpoint{
		{Route: httpapi.Route{Method: http.MethodGet, Path: Path + "{key...}"}, Serve: s.serve},
		{Route: httpapi.Route{Method: http.MethodPut, Path: PutPath + "{key...}"}, Serve: s.receive},
	}
}

func (s *Store) serve(w http.ResponseWriter, r *http.Request) error {
	key := r.PathValue("key")
	if err := s.verify(r, key); err != nil {
		return err
	}
	f, info, err := s.open(key)
	if err != nil {
		return err
	}
	defer f.Close()
	h := w.Header()
	h.Set("Content-Type", contentType(key))
	h.Set("Cache-Control", httpapi.Revalidate)
	h.Set("X-Content-Type-Options", "nosniff")
	// The key names the content.
	h.Set("ETag", `"`+path.Base(key)+`"`)
	http.ServeContent(&jsonErrors{ResponseWriter: w}, r, "", info.ModTime(), f)
	return nil
}

// jsonErrors gives what http.ServeContent says of a range or a condition the form of all errors.
type jsonErrors struct {
	http.ResponseWriter
	failed bool
}

func (j *jsonErrors) WriteHeader(status int) {
	if status < http.StatusBadRequest {
		j.ResponseWriter.WriteHeader(status)
		return
	}
	j.failed = true
	httpapi.StatusError(j.ResponseWriter, status)
}

func (j *jsonErrors) Write(b []byte) (int, error) {
	if j.failed {
		return len(b), nil
	}
	return j.ResponseWriter.Write(b)
}

// contentType is never with a Content-Encoding: Go's clients would unpack an archive on the way.
func contentType(key string) string {
	if strings.HasSuffix(key, ".tar.gz") {
		return "application/gzip"
	}
	return "application/octet-stream"
}

// verify says whether a request, with the values of its headers that count, is the one that was signed for a key, and
// comes in time. Errors are registry.ErrForbidden.
func (s *Store) verify(r *http.Request, key string, header ...string) error {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil || len(query) != 2 || len(query["expires"]) != 1 || len(query["signature"]) != 1 {
		return fmt.Errorf("%w: the query is not that of a signed URL", registry.ErrForbidden)
	}
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	expires := query.Get("expires")
	if !hmac.Equal([]byte(query.Get("signature")), []byte(s.sign(method, key, expires, header...))) {
		return fmt.Errorf("%w: the signature does not match", registry.ErrForbidden)
	}
	until, err := strconv.ParseInt(expires, 10, 64)
	if err != nil || s.now().Unix() >= until {
		return fmt.Errorf("%w: the signed URL has expired", registry.ErrForbidden)
	}
	return nil
}
