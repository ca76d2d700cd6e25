package search

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/registry"
)

// Dependent is a module that uses another module or a provider.
type Dependent struct {
	// Version is its newest version with the use.
	Version registry.Version
	// Constraints are the distinct ones of that version. An empty one allows
	// every version.
	Constraints []string
	// Versions is the number of its versions with the use.
	Versions int
}

// Dependents finds the modules that call a module or require a provider. Own
// modules come first, and both are sorted by address. host is that of this
// registry. It considers only modules that include accepts.
//
// Left counts the modules whose uses are too many to be stored. If contents
// cannot be read in time, Waiting counts them. Errors are those of
// [Index.Entries].
func (x *Index) Dependents(
	ctx context.Context, a registry.Address, host string, include func(*Entry) bool,
) (found Found, err error) {
	n, err := x.load(ctx, []Kind{Modules, MirroredModules})
	if err != nil {
		return found, err
	}
	used := usedOf(a, host)
	n.mu.RLock()
	defer n.mu.RUnlock()
	users := make(map[int32]bool)
	for s, documents := range n.users {
		if s.isCall == used.isCall && used.isSource(s.text) {
			for _, at := range documents {
				users[at] = true
			}
		}
	}
	found.names, found.index, found.used = n, x, used
	for at, d := range n.documents {
		isUser := users[int32(at)]
		if d.entry == nil || !isUser && !d.isPending && !d.tooMany || !include(d.entry) {
			continue
		}
		switch {
		case isUser:
			found.Entries = append(found.Entries, d.entry)
		case d.isPending:
			found.Waiting++
		default:
			found.Left++
		}
	}
	slices.SortFunc(found.Entries, func(a, b *Entry) int {
		return cmp.Or(cmp.Compare(b.Kind, a.Kind), strings.Compare(a.Address, b.Address)) // own ones first
	})
	return found, nil
}

// Dependent describes an entry of [Index.Dependents]. In a large catalog it
// reads the contents of the module. It returns false if they cannot be read, or
// have changed.
func (f *Found) Dependent(ctx context.Context, e *Entry) (d Dependent, found bool) {
	c := f.index.contents(ctx, f.names, e)
	all := make(map[registry.Version]bool)
	for _, u := range f.used.in(c) {
		if !f.used.isSource(u.Source) || len(u.Versions) == 0 {
			continue
		}
		if newest := u.Versions[0]; len(all) == 0 || registry.CompareVersions(newest, d.Version) > 0 {
			d.Version, d.Constraints = newest, nil
		}
		if u.Versions[0] == d.Version && !slices.Contains(d.Constraints, u.Constraint) {
			d.Constraints = append(d.Constraints, u.Constraint)
		}
		for _, v := range u.Versions {
			all[v] = true
		}
	}
	if !f.used.isCall && len(d.Constraints) > 1 { // all of them apply to the one version of a provider
		d.Constraints = slices.DeleteFunc(d.Constraints, func(c string) bool { return c == "" })
	}
	d.Versions = len(all)
	return d, len(all) > 0
}

// source is the source of a call of a module, or of a requirement of a
// provider.
type source struct {
	isCall bool
	text   string
}

// sourcesOf returns the distinct sources in the contents of a module, in lower
// case.
func sourcesOf(c registry.Contents) map[source]bool {
	all := make(map[source]bool)
	for _, u := range c.Calls {
		all[source{true, strings.ToLower(u.Source)}] = true
	}
	for _, u := range c.Requires {
		all[source{false, strings.ToLower(u.Source)}] = true
	}
	return all
}

// used is a module or a provider, as sources of modules have it.
type used struct {
	isCall bool
	host   registry.Host
	// address is in lower case. isPublic means that the clients' default host
	// has it, so that sources need no host.
	address  string
	isPublic bool
}

func usedOf(a registry.Address, host string) used {
	u := used{host: registry.CanonicalHost(host), address: a.String()}
	switch a := a.(type) {
	case registry.Module:
		u.isCall = true
	case registry.Provider:
	case registry.MirrorAddress:
		u.host, u.address = registry.CanonicalHost(a.Hostname), a.AtOrigin().String()
		u.isPublic = a.Source() == u.address
		u.isCall = a.IsModule()
	default:
		panic(fmt.Sprintf("search: unexpected address %T", a))
	}
	u.address = strings.ToLower(u.address)
	return u
}

// in returns the uses of that kind.
func (u used) in(c registry.Contents) []registry.Use {
	if u.isCall {
		return c.Calls
	}
	return c.Requires
}

// isSource reports whether clients resolve a source to the address.
func (u used) isSource(source string) bool {
	source = strings.ToLower(source)
	host, found := strings.CutSuffix(source, "/"+u.address)
	return u.isPublic && source == u.address ||
		found && !strings.Contains(host, "/") && registry.CanonicalHost(host) == u.host
}
