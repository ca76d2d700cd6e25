package main

import (
	"context"
	"errors"
	"fmt"
	"os/user"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/suggest"
	"github.com/larder-registry/larder/pkg/usage"
	"github.com/larder-registry/larder/pkg/usage/daily"
)

// store gives access to a registry's data, in a folder or on AWS.
type store struct {
	catalog *catalog.Catalog
	objects objects.Store
	remover publish.Remover
	// host is the host in addresses. It is empty if the store does not have it.
	host string
	// by returns the operator, whom the audit trail names for a change.
	by        func(context.Context) (registry.Publisher, error)
	close     func() error
	downloads downloadCounter
	// withdrawPolicy is the ARN of the policy that permits withdrawing. It may
	// be empty.
	withdrawPolicy string
}

// downloadCounter counts the downloads of a registry.
type downloadCounter interface {
	Count(ctx context.Context, q usage.Query) (usage.Report, error)
}

// openStore opens the store. It creates nothing. It returns a
// [local.NoRegistryError] for a folder without a registry, and
// [registry.ErrNotFound] for a stack that does not exist.
func (f *finder) openStore(ctx context.Context, open folderOpener) (*store, error) {
	p, err := f.storePlace()
	if err != nil {
		return nil, err
	}
	f.printRegistry()
	return f.openPlace(ctx, p, open)
}

func (f *finder) openPlace(ctx context.Context, p place, open folderOpener) (*store, error) {
	if p.stack != "" {
		defer f.waiting("opening stack " + p.stack)()
		return openStack(ctx, p.stack)
	}
	return openFolder(ctx, p.dir, open)
}

// folderOpener opens a registry in a folder, as [local.Open] does.
type folderOpener func(ctx context.Context, dir string) (*local.Data, error)

// openFolder opens the registry in a folder of this machine. Tests replace it to
// kill the process at a change of the registry.
var openFolder = func(ctx context.Context, dir string, open folderOpener) (*store, error) {
	data, err := open(ctx, dir)
	if err != nil {
		return nil, err
	}
	return &store{
		catalog: data.Catalog, objects: data.Objects, remover: data, host: data.Host,
		downloads: daily.Open(dir),
		by:        whoami, close: data.Close,
	}, nil
}

func whoami(context.Context) (registry.Publisher, error) {
	by := registry.Publisher{Kind: registry.PublisherUser, Name: "unknown"}
	// A machine without a list of users can still publish.
	if u, err := user.Current(); err == nil {
		by.Name = u.Username
	}
	return by, nil
}

// listHint is the hint if nothing similar exists. Its argument is that of
// [cli.repeatedFlags].
const listHint = "Run `larder list%s` to see what the registry contains."

// notFound returns the error for an address, or a version of it, that does not
// exist. do is the verb in the error. The hint suggests the nearest address or
// version. If failed is not [registry.ErrNotFound], notFound returns failed.
func (s *store) notFound(
	ctx context.Context, do string, a registry.Address, v *registry.Version, failed error,
) error {
	if !errors.Is(failed, registry.ErrNotFound) || errors.Is(failed, registry.ErrWithdrawn) {
		return failed
	}
	what := a.String()
	if v != nil {
		what += " " + v.String()
	}
	err := fmt.Errorf("cannot %s %s: %w", do, what, registry.ErrNotFound)
	versions := (&reader{Client: s.reader()}).versions(ctx, a)
	if v == nil || len(versions) == 0 {
		if near := nearAddress(ctx, s.catalog, a.String()); near != "" && near != a.String() {
			return registry.WithHint(err, "Did you mean %s?", near)
		}
		return registry.WithHint(err, listHint, "")
	}
	if near, ok := suggest.Nearest(v.String(), versions); ok {
		return registry.WithHint(err, "Did you mean %s? Run `larder list %s` to list the versions.", near, a)
	}
	return registry.WithHint(err, "Run `larder list %s` to list the versions.", a)
}
