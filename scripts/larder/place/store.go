package place

import (
	"context"
	"iter"
	"time"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/metadata"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/registry"
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
	// Dir is the folder of the registry. It is empty on AWS.
	Dir     string
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
	// Addressing describes the registry's host in configurations.
	Addressing Addressing

	// Now returns the time.
	Now func() time.Time
	// flags are those of [Finder.RepeatedFlags].
	flags string
}

// downloadCounter counts the downloads of a registry.
type downloadCounter interface {
	Count(ctx context.Context, q usage.Query) (usage.Report, error)
	metadata.Downloads
}
