package sqlite

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/larder-registry/larder/pkg/files/regularfile"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
)

var (
	// ErrEmpty means that a file has no bytes, because it was created but never
	// written.
	ErrEmpty = errors.New("the database is empty")
	// ErrDamaged means that a file is not a database of this package, or is
	// incomplete.
	ErrDamaged = errors.New("the database is damaged")
	// ErrStaleLog means that the write-ahead log beside a database is from a
	// later state of it. That happens if a backup is copied over the database
	// file but not over its log. The two cannot be used together. ErrStaleLog
	// is also an [ErrDamaged].
	ErrStaleLog = fmt.Errorf("%w: the log beside it is from a later state", ErrDamaged)
	// ErrForeign means that a database belongs to another registry.
	ErrForeign = errors.New("the database belongs to another registry")
	// ErrReplaced means that the file was removed or replaced after the table
	// was opened. From then on the table reads and writes nothing. ErrReplaced
	// comes with [registry.ErrUnavailable].
	ErrReplaced = errors.New("the registry's database was removed or replaced while it was running")
)

// replaced is an [ErrReplaced] that describes what happened to the file, and
// what that means for the call.
type replaced struct{ what, call string }

func (r *replaced) Error() string {
	return "the registry's database was " + r.what + " while it was running: " + cmp.Or(r.call, "nothing was read")
}

func (*replaced) Unwrap() []error { return []error{ErrReplaced, registry.ErrUnavailable} }

// header is the part of a database file that is read without SQLite.
//
// Source: https://www.sqlite.org/fileformat.html#the_database_header.
type header [100]byte

const magic = "SQLite format 3\x00"

// size returns the minimum size of the file in bytes.
func (h *header) size() int64 {
	page := int64(binary.BigEndian.Uint16(h[16:]))
	if page == 1 {
		page = 65536
	}
	return page * int64(binary.BigEndian.Uint32(h[28:]))
}

// mark returns SQLite's application ID. It is the markOf the registry's ID.
func (h *header) mark() uint32 { return binary.BigEndian.Uint32(h[68:]) }

// counter returns SQLite's user version, which counts the writes of this
// package. It wraps around after 2³² writes.
func (h *header) counter() uint32 { return binary.BigEndian.Uint32(h[60:]) }

// before reports whether counter a precedes counter b.
func before(a, b uint32) bool { return int32(a-b) < 0 }

// markOf returns 32 bits derived from an ID. The result is never 0.
func markOf(id string) uint32 {
	sum := sha256.Sum256([]byte(id))
	return binary.BigEndian.Uint32(sum[:]) | 1
}

// Check inspects the first bytes of a database and its log without SQLite,
// which would change the folder. It returns [fs.ErrNotExist], [ErrEmpty],
// [ErrDamaged] or [ErrStaleLog], or [ErrForeign] if the file cannot be the
// database with the ID. An empty ID matches every database.
func Check(path, id string) error {
	target, err := filepath.EvalSymlinks(path) // SQLite puts the log beside the file itself
	if err != nil {
		return regularfile.Unreadable(filepath.Base(path), err)
	}
	for attempt := 1; ; attempt++ {
		err := check(target, id)
		if attempt == 3 || !errors.Is(err, ErrDamaged) {
			return err
		}
		// Another process may have moved the log into the file meanwhile.
	}
}

func check(path, id string) error {
	// Read the log first: the file can only become newer than it.
	first, logged, err := firstWrite(path + logEnding)
	if err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	h, err := readHeader(f)
	if err != nil {
		return err
	}
	if logged && before(h.counter(), first-1) {
		return ErrStaleLog
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	// Without a log, the file must be complete.
	log, err := os.Stat(path + logEnding)
	if (err != nil || log.Size() == 0) && info.Size() < h.size() {
		return ErrDamaged
	}
	if id != "" && h.mark() != markOf(id) {
		return ErrForeign
	}
	return nil
}

func readHeader(f *os.File) (*header, error) {
	var h header
	n, err := f.ReadAt(h[:], 0)
	switch {
	case errors.Is(err, io.EOF) && n == 0:
		return nil, ErrEmpty
	case err != nil && !errors.Is(err, io.EOF):
		return nil, err
	case n < len(h) || string(h[:len(magic)]) != magic:
		return nil, ErrDamaged
	}
	return &h, nil
}

// file is an open database file, with the data that shows whether the file at
// the path is still the same.
type file struct {
	path string
	// opened is closed after all connections. Closing a file releases all locks
	// of the process on it, including those of SQLite.
	opened openedFile
	info   fs.FileInfo
	mark   uint32 // of the header
	// written is the highest counter of writes that the header had.
	written atomic.Uint32
	// log is the write-ahead log at logPath. It stays the same file as long as
	// there is a connection. It is nil if the table has not read it.
	log     fs.FileInfo
	logPath string
}

type openedFile interface {
	io.ReaderAt
	io.Closer
}

// logEnding is the end of the name of a database's write-ahead log.
const logEnding = "-wal"

func openFile(path string) (*file, error) {
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	opened, err := os.Open(target)
	if err != nil {
		return nil, err
	}
	f := &file{path: path, opened: opened, logPath: target + logEnding}
	if f.info, err = opened.Stat(); err == nil {
		var h *header
		if h, err = readHeader(opened); err == nil {
			f.mark = h.mark()
			f.written.Store(h.counter())
		}
	}
	if err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	return f, nil
}

// check returns [ErrReplaced] if the file at the path is not the one that was
// opened, or has other content. It reads the header itself, because SQLite may
// return it from its cache.
func (f *file) check() error {
	info, err := os.Stat(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &replaced{what: "removed"}
	case err != nil:
		return fmt.Errorf("%w: cannot find the registry's database: %w", registry.ErrUnavailable, err)
	case !os.SameFile(f.info, info):
		return &replaced{what: "replaced"}
	}
	// Other calls can store a later counter while this one reads the header.
	written := f.written.Load()
	var h header
	_, err = f.opened.ReadAt(h[:], 0)
	if err != nil || h.mark() != f.mark || before(h.counter(), written) { // or an older copy
		return &replaced{what: "replaced"}
	}
	for ; before(written, h.counter()); written = f.written.Load() {
		if f.written.CompareAndSwap(written, h.counter()) {
			break
		}
	}
	if f.log == nil {
		return nil
	}
	if log, err := os.Stat(f.logPath); err != nil || !os.SameFile(f.log, log) {
		return &replaced{what: "replaced"}
	}
	return nil
}

// connector opens connections to the file that was opened. It returns an error
// if another file has taken its path.
type connector struct {
	driver.Connector
	file *file
}

// Connect implements [driver.Connector].
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	if err := c.file.check(); err != nil {
		return nil, err
	}
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.file.check(); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// isFull reports whether the disk or the quota of a folder has no room for the
// 32 KiB that SQLite needs first beside the database.
func isFull(dir string) bool {
	f, err := os.CreateTemp(dir, ".larder-room-*")
	if err == nil {
		_, err = f.Write(make([]byte, 64<<10))
		err = errors.Join(err, f.Sync(), f.Close(), os.Remove(f.Name()))
	}
	return errors.Is(errs.DiskFull(err), registry.ErrDiskFull)
}
