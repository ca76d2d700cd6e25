// Package stored reads the documentation of module versions from the object
// store.
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

// Objects reads documentation. Open returns registry.ErrNotFound if there is no
// object with the key.
type Objects interface {
	Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error)
}

// ErrDamaged means that documentation is missing or not as it was written.
var ErrDamaged = errors.New("missing or damaged documentation")

// Read reads the documentation in a file. The error is [ErrDamaged] or
// registry.ErrUnavailable.
func Read(ctx context.Context, from Objects, file registry.StoredFile) (docs.Documentation, error) {
	var none docs.Documentation
	if file.Size > docs.MaxSize {
		return none, fmt.Errorf("%w: object %s has %d bytes", ErrDamaged, file.Object, file.Size)
	}
	body, err := from.Open(ctx, file.Object, 0, -1)
	if errors.Is(err, registry.ErrNotFound) || errors.Is(err, registry.ErrInvalid) {
		return none, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if err != nil {
		return none, fmt.Errorf("%w: %w", registry.ErrUnavailable, err)
	}
	defer func() { _ = body.Close() }() // nothing was written
	var text bytes.Buffer
	err = objects.Copy(&text, body, objects.Digest{SHA256: file.SHA256, Size: file.Size})
	if errors.Is(err, registry.ErrInvalid) {
		return none, fmt.Errorf("%w: object %s: %w", ErrDamaged, file.Object, err)
	}
	if err != nil {
		return none, fmt.Errorf("%w: cannot read object %s: %w", registry.ErrUnavailable, file.Object, err)
	}
	d, err := docs.Decode(&text)
	if err != nil {
		return none, fmt.Errorf("%w: object %s: %w", ErrDamaged, file.Object, err)
	}
	return d, nil
}
