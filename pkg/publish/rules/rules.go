// Package rules defines what may be published, and prepares modules and
// providers for publishing. It reads the folder of a module or of a provider's
// release, verifies the files, and packs and signs them.
//
// Package publish, the server of the publish API and its client share these
// rules. The package does not access a registry. Its callers check whether a
// version is free, and which keys a namespace has.
package rules

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/larder-registry/larder/pkg/content/archive"
	"github.com/larder-registry/larder/pkg/files/regularfile"
	"github.com/larder-registry/larder/pkg/progress"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
)

// Preparer prepares modules and providers for publishing. Its zero value is
// ready for use.
type Preparer struct {
	// Progress receives the steps. If nil, they are not reported.
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
	// Name of the file in its release.
	Name string
	registry.StoredFile
	// Zip is set for a provider's zip that is not unpacked yet. Its H1 is then
	// unknown.
	Zip *archive.ProviderZip

	open func() (io.ReadSeekCloser, error)
}

// FileAt returns the file at a path. Its content is read when it is opened.
func FileAt(path, name string, stored registry.StoredFile) File {
	open := func() (io.ReadSeekCloser, error) { return regularfile.Open(path) }
	return File{Name: name, StoredFile: stored, open: open}
}

func fileOf(name string, data []byte) File {
	return FileOf(name, data, registry.StoredFile{SHA256: sha256Of(data), Size: int64(len(data))})
}

// FileOf returns a file with the content data, which is that of stored.
func FileOf(name string, data []byte, stored registry.StoredFile) File {
	open := func() (io.ReadSeekCloser, error) { return unclosed{bytes.NewReader(data)}, nil }
	return File{Name: name, StoredFile: stored, open: open}
}

// Open returns the content from its beginning. It can be called several times,
// and concurrently. The caller closes the result.
func (f File) Open() (io.ReadSeekCloser, error) { return f.open() }

// hintOfCopy replaces the hints for the author in the problems of a copy. About others,
// the person who copies can do something, so their hints stay.
func hintOfCopy(err error, what string, others ...error) error {
	several, ok := errors.AsType[*errs.ProblemsError](err)
	if !ok {
		return err
	}
	for i, problem := range several.Problems {
		if registry.Hint(problem) != "" && !slices.Contains(others, problem) {
			several.Problems[i] = registry.WithHint(problem, "Only the author of the %s can correct this.", what)
		}
	}
	return err
}

// unclosed is a reader whose Close does nothing.
type unclosed struct{ io.ReadSeeker }

func (unclosed) Close() error { return nil }

func sha256Of(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
