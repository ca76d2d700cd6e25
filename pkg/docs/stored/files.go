package stored

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/ttlcache"
)

// The limits of cached files. A page can have many images, each of which is a
// request of its own.
const (
	cachedFiles    = 4
	maxCached      = 2 << 20 // bytes of each
	cachedLifetime = 30 * time.Second
	// reads is how many objects are read at the same time. Each takes up to 16
	// MiB.
	reads = 2
)

// Files reads the files of module versions, and caches small ones. Callers must
// first read the record of a version, which is gone after a withdrawal. It is
// safe for concurrent use.
type Files struct {
	objects Objects
	now     func() time.Time
	cached  *ttlcache.Cache[registry.StoredFile, *docs.Files]
	slots   chan struct{}
}

// NewFiles returns a reader of files.
func NewFiles(objects Objects, now func() time.Time) *Files {
	return &Files{
		objects, now, ttlcache.New[registry.StoredFile, *docs.Files](cachedFiles, cachedLifetime), make(chan struct{}, reads),
	}
}

// Read reads the files of a version. The error is [ErrDamaged] or
// registry.ErrUnavailable.
func (f *Files) Read(ctx context.Context, file registry.StoredFile) (*docs.Files, error) {
	if found, ok := f.cached.Get(file, f.now()); ok {
		return found, nil
	}
	select {
	case f.slots <- struct{}{}:
		defer func() { <-f.slots }()
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: too many files are read: %w", registry.ErrUnavailable, ctx.Err())
	}
	if found, ok := f.cached.Get(file, f.now()); ok {
		return found, nil
	}
	data, err := read(ctx, f.objects, file, docs.MaxFiles)
	if err != nil {
		return nil, err
	}
	found, err := docs.DecodeFiles(data.Bytes())
	if err != nil {
		return nil, damaged(file, err)
	}
	if file.Size <= maxCached {
		f.cached.Add(file, found, f.now(), time.Time{})
	}
	return found, nil
}

// File returns the description and the content of one of the files of a version,
// which are nil if none are stored. The error is registry.ErrNotFound unless the
// path is that of a text or an image. registry.ErrCorrupt means damage.
func File(files *docs.Files, path string) (docs.SourceFile, []byte, error) {
	if files == nil {
		return docs.SourceFile{}, nil, fmt.Errorf("the files are not stored: %w", registry.ErrNotFound)
	}
	f, data, err := files.Read(path)
	switch {
	case errors.Is(err, docs.ErrNoFile):
		err = fmt.Errorf("file %.300q: %w", path, registry.ErrNotFound)
	case err != nil:
		err = fmt.Errorf("%w files: %s", registry.ErrCorrupt, err.Error())
	}
	return f, data, err
}
