package main

import (
	"context"
	"errors"
	"fmt"
	"os/user"
	"strings"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/suggest"
	downloads "github.com/larder-registry/larder/pkg/usage"
)

// store is a registry's data, wherever it is.
type store struct {
	catalog *catalog.Catalog
	objects objects.Store
	remover publish.Remover
	// host is what addresses begin with; empty if the store does not know it.
	host string
	// by returns the operator, as whom a change is recorded.
	by    func(context.Context) (registry.Publisher, error)
	close func() error
	// requests is where requests are logged. It is nil if they are not, or if that is
	// not known, as noRequests says.
	requests   *downloads.Log
	noRequests string
	// withdrawPolicy is the ARN of the policy that permits withdrawing; empty if there
	// is none.
	withdrawPolicy string
}

// localLog is why it is not known who downloads what from a registry on this
// machine.
const localLog = "a registry on this machine writes its log of requests to the standard error of larder serve, " +
	"and stores none"

// openStore opens the store. It makes nothing: a folder without a registry is
// [local.NoRegistryError], and a stack that is not there registry.ErrNotFound.
func (c *cli) openStore(ctx context.Context) (*store, error) {
	p, err := c.storePlace()
	if err != nil {
		return nil, err
	}
	c.sayAbout()
	if p.stack != "" {
		defer c.waiting("opening stack " + p.stack)()
		return openStack(ctx, p.stack)
	}
	return openFolder(ctx, p.dir)
}

// openFolder opens the registry in a folder of this machine.
func openFolder(ctx context.Context, dir string) (*store, error) {
	data, err := local.Open(ctx, dir)
	if err != nil {
		return nil, err
	}
	return &store{
		catalog: data.Catalog, objects: data.Objects, remover: data.Objects, host: data.Host,
		noRequests: localLog,
		by:         whoami, close: data.Close,
	}, nil
}

// whoami returns the user of this machine.
func whoami(context.Context) (registry.Publisher, error) {
	by := registry.Publisher{Kind: registry.PublisherUser, Name: "unknown"}
	// A machine without a list of users is no reason not to publish.
	if u, err := user.Current(); err == nil {
		by.Name = u.Username
	}
	return by, nil
}

// notFound returns the error of doing something with an address, or a version of
// it, that does not exist, with a hint at the nearest that does. Other errors it
// returns as they are.
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
	versions := (&lookup{ctx, s}).versions(a.String())
	if v == nil || len(versions) == 0 {
		if near := nearAddress(ctx, s.catalog, a.String()); near != "" && near != a.String() {
			return registry.WithHint(err, "Did you mean %s?", near)
		}
		return registry.WithHint(err, "`larder list` lists what there is.")
	}
	for i := range versions {
		versions[i], _, _ = strings.Cut(versions[i], "\t")
	}
	if near, ok := suggest.Nearest(v.String(), versions); ok {
		return registry.WithHint(err, "Did you mean %s? `larder list %s` lists the versions.", near, a)
	}
	return registry.WithHint(err, "`larder list %s` lists the versions.", a)
}
