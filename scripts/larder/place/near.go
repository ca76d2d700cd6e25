package place

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/metadata/metadataclient"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/search"
	"github.com/larder-registry/larder/pkg/text/suggest"
	"github.com/larder-registry/larder/scripts/larder/output"
)

// explain adds to an error why clients do not find a version. versions is a hint.
func explain(failed error, v protocol.VersionState, versions string) error {
	why := "it is " + v.State
	switch {
	case v.State == protocol.StateMissing:
		return registry.WithHint(fmt.Errorf("%w: its record is missing", failed),
			"Run `larder verify` to list the damage and how to repair it.")
	case v.Withdrawn != nil:
		why = "it was withdrawn on " + output.FormatTime(v.Withdrawn.At) + ": " + v.Withdrawn.Reason
	case v.Reason != "":
		why += ": " + v.Reason
	}
	return registry.WithHint(fmt.Errorf("%w: %s", failed, why), "%s", versions)
}

// isListed reports whether clients get a version, or its record is missing.
func isListed(v protocol.VersionState) bool {
	return v.State == "" || v.State == protocol.StateDeprecated || v.State == protocol.StateMissing
}

// maxNear bounds the modules and providers that suggestions consider.
const maxNear = 500

// Near returns the address, namespace or hostname that is nearest to what, or
// an empty string.
func (r *Reader) Near(ctx context.Context, what string) string {
	namespace, _, _ := strings.Cut(what, "/")
	if strings.Contains(namespace, ".") {
		mirrored, err := r.Mirrored(ctx)
		if err != nil {
			return ""
		}
		return search.Nearest(what, output.Mapped(mirrored, metadataclient.MirroredAddress))
	}
	for _, q := range []metadataclient.Query{{Namespace: namespace, Limit: maxNear}, {Limit: maxNear}} {
		modules, _, err := r.Modules(ctx, q)
		if err != nil {
			return ""
		}
		providers, _, err := r.Providers(ctx, q)
		if err != nil {
			return ""
		}
		near := search.Nearest(what, slices.Concat(
			output.Mapped(modules, metadataclient.ModuleAddress), output.Mapped(providers, metadataclient.ProviderAddress)))
		if near != "" {
			return near
		}
	}
	return ""
}

// NotFound returns the error for an address, or a version of it, that does not
// exist. do is the verb in the error. The hint suggests the nearest address or
// version. If failed is not [registry.ErrNotFound], NotFound returns failed.
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
	return s.Reader().NotFound(ctx, a, v, fmt.Errorf("cannot %s %s: %w", do, what, registry.ErrNotFound))
}

// ListHint is the hint if nothing similar exists.
const ListHint = "Run `larder list` to see what the registry contains."

// NotFound adds a hint with the nearest address or version to an error that is
// [registry.ErrNotFound]. It explains why clients do not find a hidden or withdrawn
// version.
func (r *Reader) NotFound(ctx context.Context, a registry.Address, v *registry.Version, failed error) error {
	if !errors.Is(failed, registry.ErrNotFound) || registry.Hint(failed) != "" {
		return failed
	}
	states, _ := r.States(ctx, a)
	versions := fmt.Sprintf("Run `larder list %s` to list the versions.", a)
	if v == nil && len(states) > 0 && !slices.ContainsFunc(states, isListed) {
		return registry.WithHint(fmt.Errorf("%w: clients get none of its versions", failed), "%s", versions)
	}
	if v != nil {
		var others []string
		for _, one := range states {
			switch {
			case one.Version == *v && one.State != "":
				return explain(failed, one, versions)
			case one.State == "" || one.State == protocol.StateDeprecated:
				others = append(others, one.Version.String())
			}
		}
		if near, ok := suggest.Nearest(v.String(), others); ok {
			return registry.WithHint(failed, "Did you mean %s? %s", near, versions)
		}
		if len(others) > 0 {
			return registry.WithHint(failed, "%s", versions)
		}
	}
	if near := r.Near(ctx, a.String()); near != "" && near != a.String() {
		return registry.WithHint(failed, "Did you mean %s?", near)
	}
	return registry.WithHint(failed, ListHint)
}
