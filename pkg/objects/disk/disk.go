// Package disk implements [objects.Store] and [objects.Stage] in a folder. A
// server on the same machine serves and receives the files via signed URLs.
//
// The URLs behave like presigned S3 URLs. Each is for one object and one
// method, and expires. A changed URL, for example with another query parameter,
// is denied with 403. When PutOnce returns, and when a PUT is answered with
// 200, the object is on disk. Several processes can share a folder.
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

	"github.com/larder-registry/larder/pkg/files/regularfile"
	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/progress"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
)

// The names in the store's folder.
const (
	stored     = "objects"
	unfinished = "unfinished"
	staged     = "staged" // a marker for each staged object
	keyFile    = "url.key"
	lockFile   = "objects.lock"
)

// Names returns the names that a store creates in its folder.
func Names() []string { return []string{stored, unfinished, staged, keyFile, lockFile} }

// Secrets returns the names of files with secrets.
func Secrets() []string { return []string{keyFile} }

// The paths at which Handler serves and receives objects.
const (
	Path    = "/objects/"
	PutPath = "/uploads/"
)

// Store is an [objects.Store] and an [objects.Stage] in a folder.
type Store struct {
	root *os.Root
	key  []byte
	// lock is held, by one process at a time, while an object's name and its
	// marker change; see stage.go.
	lock  *lockedfile.Mutex
	swept *atomic.Int64 // Unix time

	// BaseURL is the URL of Handler, such as https://127.0.0.1:8443. SignGet and
	// SignPut need it.
	BaseURL string
	// Lifetime of signed URLs. If zero, it is 60 minutes. During an init, a client
	// reuses the first URLs that it receives.
	Lifetime time.Duration
	// PutLifetime is the lifetime of URLs to PUT. If zero, it is 60 minutes. A
	// request must begin within it.
	PutLifetime time.Duration
	// Now returns the time. If nil, time.Now is used.
	Now func() time.Time
}

var (
	_ objects.Store = (*Store)(nil)
	_ objects.Stage = (*Store)(nil)
)

// Open opens the store in a folder, and creates the folder if necessary. The
// caller closes the store.
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
		err = fmt.Errorf("cannot open the object store %s: %w", dir, errs.DiskFull(err))
		return nil, errors.Join(err, root.Close())
	}
	return s, nil
}

// Close closes the folder.
func (s *Store) Close() error { return s.root.Close() }

func (s *Store) prepare() error {
	for _, dir := range []string{stored, unfinished, staged} {
		if err := s.root.MkdirAll(dir, 0o700); err != nil {
			return regularfile.Unwritable(dir, err)
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
		digest := objects.Digest{SHA256: sum(key), Size: int64(len(key))}
		err = s.place(strings.NewReader(string(key)), digest, keyFile)
		if err != nil && !errors.Is(err, registry.ErrExists) {
			return err
		}
		s.key, err = s.root.ReadFile(keyFile)
	}
	if err != nil {
		return regularfile.Unreadable(keyFile, err)
	}
	if len(s.key) != 32 {
		return registry.WithHint(fmt.Errorf("%s has %d bytes instead of 32", keyFile, len(s.key)),
			"Remove this file. A new key is created when the store is opened again.")
	}
	return nil
}

// makeLock creates the lock file with mode 0600, because a lockedfile.Mutex
// would let others read it. makeLock changes the mode of a file that this user
// owns, such as of a copied folder.
func (s *Store) makeLock() error {
	f, err := s.root.OpenFile(lockFile, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return regularfile.Unwritable(lockFile, err)
	}
	_ = f.Chmod(0o600)
	return regularfile.Unwritable(lockFile, f.Close())
}

// sweep removes files that killed writers left long ago, and expired staged
// objects. The next sweep retries what cannot be removed.
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
	// The caller relies on the object, even if someone else has staged it.
	if _, err := s.Keep(ctx, key); err == nil {
		return fmt.Errorf("object %s: %w", key, registry.ErrExists)
	} else if !errors.Is(err, registry.ErrNotFound) {
		return err
	}
	return s.add(progress.WithContext(ctx, body), digest, key, s.unmark)
}

// HasObjects reports whether a folder has any object, or a permanent object if
// permanent is set. The folder does not have to contain a store. HasObjects changes
// nothing.
func HasObjects(dir string, permanent bool) (bool, error) {
	found := errors.New("there is one")
	// An object is at least one folder below.
	err := fs.WalkDir(os.DirFS(filepath.Join(dir, stored)), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return regularfile.Denied(dir, path.Join(stored, name), err)
		}
		if !d.Type().IsRegular() || !strings.Contains(name, "/") {
			return nil
		}
		if _, err := os.Lstat(filepath.Join(dir, marker(name))); permanent && err == nil {
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
	return false, regularfile.Unreadable(stored, err)
}

// add stores an object. It calls prepare for its marker just before the object
// gets its name.
func (s *Store) add(body io.Reader, digest objects.Digest, key string, prepare func(key string) error) (err error) {
	name := path.Join(stored, key)
	defer func() { err = s.denied(name, errs.DiskFull(err)) }()
	if err := CheckRoom(s.root.Name(), digest.Size); err != nil {
		if info, err := s.root.Lstat(name); err == nil && info.Mode().IsRegular() {
			return fmt.Errorf("object %s: %w", key, registry.ErrExists)
		}
		return fmt.Errorf("cannot store object %s: %w", key, err)
	}
	return s.write(&roomReader{r: body, dir: s.root.Name()}, digest, name, func(temporary string) error {
		unlock, err := s.lock.Lock()
		if err != nil {
			return registry.Errorf(err, "object %s: cannot lock %s: %s", key, lockFile, regularfile.Reason(err))
		}
		defer unlock()
		// Create the folders while the lock is held, because Remove removes empty
		// folders.
		if err := s.root.MkdirAll(path.Dir(name), 0o700); err != nil {
			return regularfile.Unwritable("object "+key, err)
		}
		if err := prepare(key); err != nil {
			return fmt.Errorf("object %s: %w", key, err)
		}
		return s.link(temporary, name)
	})
}

// maxMinFree is the most that a Store leaves free on its disk in bytes.
const maxMinFree = 16 << 20

// MinFree returns the space in bytes that a Store leaves free on a disk of a
// size in bytes. Other parts of a registry need it for records and withdrawals.
func MinFree(size uint64) uint64 { return min(maxMinFree, size/16) }

// CheckRoom returns [registry.ErrDiskFull] if the store in a folder may not
// store an object of a size in bytes.
func CheckRoom(dir string, size int64) error {
	for _, of := range []string{dir, filepath.Join(dir, stored)} { // which may be another disk
		free, total, err := Space(of)
		// Some file systems report no size.
		if err == nil && total > 0 && free < MinFree(total)+uint64(size) {
			mib := float64(MinFree(total)) / (1 << 20)
			return registry.WithHint(fmt.Errorf("%w: %.3g MiB of it must stay free", registry.ErrDiskFull, mib),
				"Make room on the disk of %s. `larder withdraw` works, and deletes the archives of a version.", dir)
		}
	}
	return nil
}

// roomReader calls [CheckRoom] before each MiB, so that uploads that began
// earlier do not use the space that a withdrawal frees.
type roomReader struct {
	r    io.Reader
	dir  string
	left int // bytes until the next check
}

func (r *roomReader) Read(p []byte) (int, error) {
	if r.left <= 0 {
		if err := CheckRoom(r.dir, 0); err != nil {
			return 0, err
		}
		r.left = 1 << 20
	}
	n, err := r.r.Read(p)
	r.left -= n
	return n, err
}

// place writes a file that is not an object. It fails if the name is taken.
func (s *Store) place(body io.Reader, digest objects.Digest, name string) error {
	return s.write(body, digest, name, func(temporary string) error { return s.link(temporary, name) })
}

// write writes a temporary file, calls link to give it its final name, and
// removes the temporary name.
func (s *Store) write(
	body io.Reader,
	digest objects.Digest,
	name string,
	link func(temporary string) error,
) (err error) {
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

// link gives a file its final name. It fails if the name is taken.
func (s *Store) link(temporary, name string) error {
	if err := s.root.Link(temporary, name); errors.Is(err, fs.ErrExist) {
		if info, err := s.root.Lstat(name); err == nil && !info.Mode().IsRegular() {
			return fmt.Errorf("cannot store %s: there is something other than a file", name)
		}
		return errors.Join(fmt.Errorf("%s: %w", name, registry.ErrExists), s.syncDirs(name))
	} else if err != nil {
		return regularfile.Unwritable(name, err)
	}
	return s.syncDirs(name)
}

// syncDirs makes a file's name, and those of its folders, survive a power
// failure.
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
		err := fmt.Errorf("%w range: object %s has %d bytes", registry.ErrInvalid, key, info.Size())
		return nil, errors.Join(err, f.Close())
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
		return nil, nil, s.notFound(key, err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		return nil, nil, errors.Join(s.notFound(key, err), f.Close())
	}
	return f, info, nil
}

func (s *Store) notFound(key string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("object %s: %w", key, registry.ErrNotFound)
	}
	return regularfile.Unreadable("object "+key, s.denied(path.Join(stored, key), err))
}

// denied names the file or folder that denied the permission, if err is
// [fs.ErrPermission].
func (s *Store) denied(name string, err error) error {
	return regularfile.Denied(s.root.Name(), name, err)
}

// Stat implements objects.Store.
func (s *Store) Stat(_ context.Context, key string) (objects.Info, error) {
	f, info, err := s.open(key)
	if err != nil {
		return objects.Info{}, err
	}
	return objects.Info{Key: key, Size: info.Size(), Modified: info.ModTime()}, f.Close()
}

// Walk implements objects.Store. If it may not read some folders, it visits all
// others, and returns [fs.ErrPermission] with the errors of these folders.
func (s *Store) Walk(ctx context.Context, prefix string, visit func(objects.Info) error) error {
	tree, err := fs.Sub(s.root.FS(), stored)
	if err != nil {
		return registry.Errorf(err, "cannot list the objects: %s", regularfile.Reason(err))
	}
	var found []objects.Info
	var denied []error
	err = fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && name != "." {
			return nil // it was removed meanwhile
		}
		if errors.Is(err, fs.ErrPermission) {
			denied = append(denied, s.denied(path.Join(stored, name), err))
			return fs.SkipDir
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
		return registry.Errorf(err, "cannot list the objects: %s", regularfile.Reason(err))
	}
	// WalkDir visits a/b before a-b, but keys are ordered by their bytes.
	slices.SortFunc(found, func(a, b objects.Info) int { return strings.Compare(a.Key, b.Key) })
	for _, info := range found {
		if err := visit(info); err != nil {
			return err
		}
	}
	return errors.Join(denied...)
}

// SignGet implements [objects.Store]. The signature covers the method, the path
// and the whole query.
func (s *Store) SignGet(_ context.Context, key string) (string, error) {
	if err := objects.CheckKey(key); err != nil {
		return "", err
	}
	return s.signURL(http.MethodGet, Path, key, s.Lifetime)
}

func (s *Store) signURL(method, under, key string, lifetime time.Duration, header ...string) (string, error) {
	if s.BaseURL == "" {
		return "", errors.New("cannot sign a URL: the store has no base URL")
	}
	expires := strconv.FormatInt(s.now().Add(cmp.Or(lifetime, time.Hour)).Unix(), 10)
	// A URL needs no escaping, because CheckKey has accepted the key.
	return s.BaseURL + under + key + "?expires=" + expires + "&signature=" + s.sign(method, key, expires, header...), nil
}

// sign returns the signature of a request. It covers the values of headers, of
// which each method has a fixed number.
func (s *Store) sign(method, key, expires string, header ...string) string {
	mac := hmac.New(sha256.New, s.key)
	// No signed part can contain a line break, so the text is unique for each
	// request.
	parts := append([]string{"larder object v1", method, key, expires}, header...)
	_, _ = io.WriteString(mac, strings.Join(parts, "\n")+"\n")
	return hex.EncodeToString(mac.Sum(nil))
}

// Routes returns the routes of Handler.
func Routes() []httpapi.Route { return httpapi.Routes((&Store{}).endpoints()) }

// Handler serves objects to anyone with a signed URL, and receives objects from
// anyone with a signed URL to PUT.
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
	// The key identifies the content.
	h.Set("ETag", `"`+path.Base(key)+`"`)
	http.ServeContent(&jsonErrors{ResponseWriter: w}, r, "", info.ModTime(), f)
	return nil
}

// jsonErrors converts the errors of http.ServeContent to JSON.
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

// contentType returns the Content-Type of an object. There is never a
// Content-Encoding, because Go's clients would then unpack the archive.
func contentType(key string) string {
	if strings.HasSuffix(key, ".tar.gz") {
		return "application/gzip"
	}
	return "application/octet-stream"
}

// verify returns registry.ErrForbidden unless a request is the signed one for a
// key, and has not expired. header has the values of the signed headers.
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
