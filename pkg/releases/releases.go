// Package releases holds the rules of what may be published, and makes modules
// and providers ready for it: it reads a module's folder or the folder of a
// provider's release, checks what is there, and packs and signs it.
//
// Package publish, the server of the publish API and its client share it, so
// that each rule exists once. It needs no registry: its callers know whether a
// version is free, and which keys a namespace has.
package releases

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"time"

	"github.com/larder-registry/larder/pkg/archive"
	"github.com/larder-registry/larder/pkg/progress"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/regularfile"
)

// Preparer makes modules and providers ready to be published. Its zero value can
// be used.
type Preparer struct {
	// Progress receives the steps. If nil, they are dropped.
	Progress progress.Reporter
	// Now returns the time. If nil, time.Now is used.
	Now func() time.Time
}

func (p Preparer) step(what string) {
	progress.Or(p.Progress).Step(what)
}

func (p Preparer) now() time.Time {
	if p.Now != nil {
		return p.Now()
	}
	return time.Now()
}

// File is a file that is ready to be stored.
type File struct {
	// Name is the one that a release has for it.
	Name string
	registry.StoredFile
	// Zip is set for a provider's zip that is not unpacked yet, so that its H1 is
	// unknown.
	Zip *archive.ProviderZip

	open func() (io.ReadSeekCloser, error)
}

// FileAt returns the file at a path. What it holds is read when it is opened.
func FileAt(path, name string, stored registry.StoredFile) File {
	open := func() (io.ReadSeekCloser, error) { return regularfile.Open(path) }
	return File{Name: name, StoredFile: stored, open: open}
}

// fileOf returns a file that holds data.
func fileOf(name string, data []byte) File {
	stored := registry.StoredFile{SHA256: sha256Of(data), Size: int64(len(data))}
	open := func() (io.ReadSeekCloser, error) { return unclosed{bytes.NewReader(data)}, nil }
	return File{Name: name, StoredFile: stored, open: open}
}

// Open returns the content from its beginning. It can be called more than once,
// and concurrently. The caller closes what it returns.
func (f File) Open() (io.ReadSeekCloser, error) { return f.open() }

// unclosed is a reader with nothing to close.
type unclosed struct{ io.ReadSeeker }

func (unclosed) Close() error { return nil }

func sha256Of(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
