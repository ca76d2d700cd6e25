package rules

import (
	"slices"

	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/suggest"
)

// FindNewcomer returns what a publish to a vacant version creates, and the existing
// namespace or address that looks like it. It names only those for which isKnown
// returns true. Paths are modules/acme/vpc/aws for an address, and modules/acme or
// providers/acme for a namespace.
//
// FindNewcomer returns nil if the namespace exists and no known address looks like
// the new one. It also returns nil if the registry has no namespace yet. It calls
// namespaces, which returns those of the registry, only if the namespace is new.
func FindNewcomer(
	v registry.Vacancy, namespaces func() ([]string, error), isKnown func(path string) bool,
) (*protocol.Newcomer, error) {
	if v.NewNamespace == "" {
		if v.Similar == "" || !isKnown("modules/"+v.Similar) {
			return nil, nil //nolint:nilnil // documented above
		}
		return &protocol.Newcomer{NewAddress: v.Address, Near: v.Similar}, nil
	}
	names, err := namespaces()
	if err != nil || len(names) == 0 {
		return nil, err
	}
	near, _ := suggest.Similar(v.NewNamespace, slices.DeleteFunc(names, func(name string) bool {
		return !isKnown("modules/"+name) && !isKnown("providers/"+name)
	}))
	return &protocol.Newcomer{NewNamespace: v.NewNamespace, Near: near}, nil
}
