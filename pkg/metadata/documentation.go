package metadata

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/registry"
)

// errDamaged means that documentation is missing or not as it was written.
var errDamaged = errors.New("missing or damaged documentation")

func isDamage(err error) bool { return errors.Is(err, errDamaged) }

// documentation reads stored documentation, without the fields for pages. It
// returns empty documentation and false if there is none, and also if it is
// damaged, which is an error with errDamaged. Any other error is
// registry.ErrUnavailable.
func documentation(ctx context.Context, stored Objects, file *registry.StoredFile) (docs.Documentation, bool, error) {
	if file == nil {
		return complete(docs.Documentation{}), false, nil
	}
	d, err := readDocumentation(ctx, stored, *file)
	if err != nil {
		return complete(docs.Documentation{}), false, err
	}
	d.Schema, d.RebuiltAt = 0, "" // they describe the stored object
	return complete(d.WithoutHTML()), true, nil
}

func readDocumentation(ctx context.Context, stored Objects, file registry.StoredFile) (docs.Documentation, error) {
	var none docs.Documentation
	if file.Size > docs.MaxSize {
		return none, fmt.Errorf("%w: object %s has %d bytes", errDamaged, file.Object, file.Size)
	}
	body, err := stored.Open(ctx, file.Object, 0, -1)
	if errors.Is(err, registry.ErrNotFound) || errors.Is(err, registry.ErrInvalid) {
		return none, fmt.Errorf("%w: %w", errDamaged, err)
	}
	if err != nil {
		return none, fmt.Errorf("%w: %w", registry.ErrUnavailable, err)
	}
	defer func() { _ = body.Close() }() // nothing was written
	var text bytes.Buffer
	err = objects.Copy(&text, body, objects.Digest{SHA256: file.SHA256, Size: file.Size})
	if errors.Is(err, registry.ErrInvalid) {
		return none, fmt.Errorf("%w: object %s: %w", errDamaged, file.Object, err)
	}
	if err != nil {
		return none, fmt.Errorf("%w: cannot read object %s: %w", registry.ErrUnavailable, file.Object, err)
	}
	d, err := docs.Decode(&text)
	if err != nil {
		return none, fmt.Errorf("%w: object %s: %w", errDamaged, file.Object, err)
	}
	return d, nil
}

// complete returns documentation in which empty lists are not null.
func complete(d docs.Documentation) docs.Documentation {
	d.Root = completeFolder(d.Root)
	d.Submodules, d.Examples = completeFolders(d.Submodules), completeFolders(d.Examples)
	return d
}

func completeFolders(folders []docs.Folder) []docs.Folder {
	out := make([]docs.Folder, len(folders))
	for i, f := range folders {
		out[i] = completeFolder(f)
	}
	return out
}

func completeFolder(f docs.Folder) docs.Folder {
	f.Inputs, f.Outputs = notNil(f.Inputs), notNil(f.Outputs)
	f.Dependencies, f.ProviderDependencies = notNil(f.Dependencies), notNil(f.ProviderDependencies)
	f.Resources, f.DataResources = notNil(f.Resources), notNil(f.DataResources)
	return f
}

func notNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
