// Package stored reads the documentation and the files of module versions from
// the object store.
package stored

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/registry"
)

// Objects reads objects. Open returns registry.ErrNotFound if there is no
// object with the key.
type Objects interface {
	Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error)
}

// ErrDamaged means that an object is missing or not as it was written.
var ErrDamaged = errors.New("missing or damaged documentation")

// Read reads the documentation in a file. The error is [ErrDamaged] or
// registry.ErrUnavailable.
func Read(ctx context.Context, from Objects, file registry.StoredFile) (docs.Documentation, error) {
	text, err := read(ctx, from, file, docs.MaxSize)
	if err != nil {
		return docs.Documentation{}, err
	}
	d, err := docs.Decode(text)
	if err != nil {
		return docs.Documentation{}, damaged(file, err)
	}
	return d, nil
}

func damaged(file registry.StoredFile, err error) error {
	return fmt.Errorf("%w: object %s: %w", ErrDamaged, file.Object, err)
}

// read returns the content of an object of at most limit bytes.
func read(ctx context.Context, from Objects, file registry.StoredFile, limit int64) (*bytes.Buffer, error) {
	if file.Size > limit {
		return nil, fmt.Errorf("%w: object %s has %d bytes", ErrDamaged, file.Object, file.Size)
	}
	body, err := from.Open(ctx, file.Object, 0, -1)
	if errors.Is(err, registry.ErrNotFound) || errors.Is(err, registry.ErrInvalid) {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", registry.ErrUnavailable, err)
	}
	defer func() { _ = body.Close() }() // nothing was written
	var data bytes.Buffer
	data.Grow(int(file.Size))
	err = objects.Copy(&data, body, objects.Digest{SHA256: file.SHA256, Size: file.Size})
	if errors.Is(err, registry.ErrInvalid) {
		return nil, damaged(file, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: cannot read object %s: %w", registry.ErrUnavailable, file.Object, err)
	}
	return &data, nil
}
