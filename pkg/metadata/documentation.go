package metadata

import (
	"context"

	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/docs/stored"
	"github.com/larder-registry/larder/pkg/registry"
)

// documentation reads stored documentation, without the fields for pages. It
// returns empty documentation and false if there is none, and also if it is
// damaged, which is stored.ErrDamaged. Any other error is
// registry.ErrUnavailable.
func documentation(ctx context.Context, objects Objects, file *registry.StoredFile) (docs.Documentation, bool, error) {
	if file == nil {
		return complete(docs.Documentation{}), false, nil
	}
	d, err := stored.Read(ctx, objects, *file)
	if err != nil {
		return complete(docs.Documentation{}), false, err
	}
	d.Schema, d.RebuiltAt = 0, "" // they describe the stored object
	return complete(d.WithoutHTML()), true, nil
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
