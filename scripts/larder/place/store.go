package place

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/suggest"
	"github.com/larder-registry/larder/pkg/usage"
)

// Collect returns the elements of a sequence, or its first error.
func Collect[T any](all iter.Seq2[T, error]) ([]T, error) {
	found := []T{}
	for one, err := range all {
		if err != nil {
			return nil, err
		}
		found = append(found, one)
	}
	return found, nil
}

// Store gives access to a registry's data, in a folder or on AWS.
type Store struct {
	Catalog *catalog.Catalog
	Objects objects.Store
	Remover publish.Remover
	// Host is the host in addresses. It is empty if the store does not have it.
	Host string
	// By returns the operator, whom the audit trail names for a change.
	By        func(context.Context) (registry.Publisher, error)
	Close     func() error
	Downloads downloadCounter
	// WithdrawPolicy is the ARN of the policy that permits withdrawing. It may
	// be empty.
	WithdrawPolicy string
}

// downloadCounter counts the downloads of a registry.
type downloadCounter interface {
	Count(ctx context.Context, q usage.Query) (usage.Report, error)
}

// ListHint is the hint if nothing similar exists. Its argument is that of
// [Finder.RepeatedFlags].
const ListHint = "Run `larder list%s` to see what the registry contains."

// NotFound returns the error for an address, or a version of it, that does not
// exist. do is the verb in the error. The hint suggests the nearest address or
// version. If failed is not [registry.ErrNotFound], notFound returns failed.
func (s *Store) NotFound(
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
	versions := (&Reader{Client: s.reader()}).versions(ctx, a)
	if v == nil || len(versions) == 0 {
		if near := NearAddress(ctx, s.Catalog, a.String()); near != "" && near != a.String() {
			return registry.WithHint(err, "Did you mean %s?", near)
		}
		return registry.WithHint(err, ListHint, "")
	}
	if near, ok := suggest.Nearest(v.String(), versions); ok {
		return registry.WithHint(err, "Did you mean %s? Run `larder list %s` to list the versions.", near, a)
	}
	return registry.WithHint(err, "Run `larder list %s` to list the versions.", a)
}
