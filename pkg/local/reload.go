package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/larder-registry/larder/pkg/files/regularfile"
	"github.com/larder-registry/larder/pkg/registry"
)

const (
	// reloadInterval is how often a running server reads its files again.
	reloadInterval = time.Second
	// failureInterval is the interval between log records for the same files
	// that cannot be used.
	failureInterval = time.Hour
	// maxFile is the maximum size of one of these files in bytes.
	maxFile = 1 << 20
)

// reloaded is a part of a running server that depends on files. update reads
// them and uses them if they have changed. If they cannot be used, it logs why
// and uses what it had. logAgain makes it log that also if it has done so
// recently.
type reloaded interface {
	update(ctx context.Context)
	logAgain()
}

// watchFiles updates parts of a server until ctx ends.
func watchFiles(ctx context.Context, parts ...reloaded) {
	ticker := time.NewTicker(reloadInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			for _, part := range parts {
				part.update(ctx)
			}
		}
	}
}

// failure is why files cannot be used. It is empty if they can.
type failure struct {
	mu     sync.Mutex // held during an update
	text   string
	logged time.Time
}

// logAgain makes the next update log the error even if it did so recently.
func (f *failure) logAgain() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.logged = time.Time{}
}

// end reports whether the files could not be used until now.
func (f *failure) end() bool {
	failed := f.text != ""
	f.text, f.logged = "", time.Time{}
	return failed
}

// fail stores an error of an update. It reports whether the error is new, and whether to log
// it, now or again.
func (f *failure) fail(err error, now time.Time) (isNew, isDue bool) {
	isNew = err.Error() != f.text
	isDue = isNew || now.Sub(f.logged) >= failureInterval
	if f.text = err.Error(); isDue {
		f.logged = now
	}
	return isNew, isDue
}

// readFile reads a regular file of at most maxFile bytes. page continues the hint
// for a file that the server's user may not read.
func readFile(path, page string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, unreadable(path, page, err)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("cannot read %s: it is not a regular file", path)
	case info.Size() > maxFile:
		return nil, fmt.Errorf("cannot read %s: it has more than %d MiB", path, maxFile>>20)
	}
	text, err := os.ReadFile(path)
	return text, unreadable(path, page, err)
}

// unreadable returns the error for a file that the server cannot read.
func unreadable(path, page string, err error) error {
	err = regularfile.Unreadable(path, err)
	if errors.Is(err, fs.ErrPermission) {
		return registry.WithHint(err, "The server's user must be able to read the file and its folder%s.", page)
	}
	return err
}
