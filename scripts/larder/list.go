package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/suggest"
	"github.com/larder-registry/larder/pkg/text/terminal"
)

func (c *cli) listCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list [NAMESPACE|ADDRESS]",
		Short: "List modules, providers and versions",
		Long: `List modules, providers and mirrored providers: all of them, or those of a
namespace or a hostname. With ADDRESS, list the versions of one module or
provider. ADDRESS is one of

  NAMESPACE/NAME/SYSTEM    a module
  NAMESPACE/TYPE           a provider
  HOSTNAME/NAMESPACE/TYPE  a mirrored provider

The state of a version is deprecated, hidden, withdrawn or missing. A version is
missing if its record is missing.

For a mirrored provider, the list also has the versions that the mirror found at
the origin and may not mirror. Their state is too new or refused. If the mirror
policy lets clients fetch versions, the list also has the number of such
versions and the latest check of the origin.

With --quiet the command prints only addresses or versions, the newest version
first. It omits versions that clients cannot select.` + readThroughRegistry + `
For modules and providers, it then omits versions that clients cannot select.`,
		Example: `  larder list
  larder list acme
  larder list acme/vpc/aws --json
  larder list acme/inventory
  larder list registry.opentofu.org/hashicorp/random
  larder list --registry https://registry.example.com`,
		RunE: c.run(func(ctx context.Context, args []string) (view, error) {
			what := strings.Join(args, "")
			list, err := c.listing(what)
			if err != nil {
				return nil, err
			}
			from, err := c.anyPlace()
			if err != nil {
				return nil, err
			}
			if from.host != "" {
				return c.onRemote(ctx, from, func(r *reader) (view, error) { return r.list(ctx, what) })
			}
			return c.onStore(ctx, func(s *store) (view, error) {
				defer c.waiting("reading the catalog")()
				v, err := list(ctx, s.catalog)
				if errors.Is(err, registry.ErrNotFound) {
					return v, suggestAddress(ctx, s.catalog, args[0], c.repeatedFlags(), err)
				}
				return v, err
			})
		}),
	}
	c.registryFlags(cmd)
	return cmd
}

// suggestAddress adds a hint with the nearest existing address to the error for
// listing something that does not exist. flags are those of
// [cli.repeatedFlags].
func suggestAddress(ctx context.Context, from *catalog.Catalog, what, flags string, failed error) error {
	if near := nearAddress(ctx, from, what); near != "" {
		return registry.WithHint(failed, "Did you mean `larder list %s%s`?", near, flags)
	}
	return registry.WithHint(failed, listHint, flags)
}

// nearAddress returns the address, namespace or hostname in a store that is
// nearest to what, or an empty string.
func nearAddress(ctx context.Context, from *catalog.Catalog, what string) string {
	paths, err := from.AllEntries(ctx)
	if err != nil {
		return "" // the caller already reports an error
	}
	return nearest(what, mapped(paths, func(path string) string {
		_, address, _ := strings.Cut(path, "/")
		return address
	}))
}

// nearest returns the address, or the namespace or hostname of an address, that
// is nearest to what. It returns an empty string if none is near.
func nearest(what string, addresses []string) string {
	first, _, _ := strings.Cut(what, "/")
	var sameNamespace, all []string
	for _, address := range addresses {
		parts := strings.Split(address, "/")
		all = append(all, address, parts[0])
		if strings.Contains(parts[0], ".") && len(parts) > 1 { // a hostname: its namespaces can be listed too
			all = append(all, parts[0]+"/"+parts[1])
		}
		if strings.HasPrefix(address, what+"/") {
			return address
		}
		if parts[0] == first {
			sameNamespace = append(sameNamespace, address)
		}
	}
	for _, words := range [][]string{sameNamespace, all} {
		if near, ok := suggest.Nearest(what, words); ok {
			return near
		}
	}
	return ""
}

// listing returns the function that lists a namespace, a hostname, an address,
// or everything if what is empty.
func (c *cli) listing(what string) (func(context.Context, *catalog.Catalog) (view, error), error) {
	first, _, _ := strings.Cut(what, "/")
	hostname := strings.Contains(first, ".") // no namespace has a dot
	slashes := strings.Count(what, "/")
	ofMirrored := func(ctx context.Context, from *catalog.Catalog, a registry.MirrorProvider) (mirrorProviderView, error) {
		v, err := listMirrorProvider(ctx, from, a, c.now())
		v.flags = c.repeatedFlags()
		c.warnQuietly(v.Warnings)
		return v, err
	}
	switch {
	case first == "mirror" && slashes == 3:
		return listVersions(strings.TrimPrefix(what, "mirror/"), registry.ParseMirrorProvider, ofMirrored)
	case hostname && slashes < 2:
		return func(ctx context.Context, from *catalog.Catalog) (view, error) {
			return asView(listMirrored(ctx, from, what))
		}, nil
	case hostname:
		return listVersions(what, registry.ParseMirrorProvider, ofMirrored)
	case slashes == 0:
		return func(ctx context.Context, from *catalog.Catalog) (view, error) {
			return asView(listNamespace(ctx, from, what))
		}, nil
	case slashes == 1:
		return listVersions(what, registry.ParseProvider, listProvider)
	}
	return listVersions(what, registry.ParseModule, listModule)
}

func listVersions[A any, V view](
	what string, parse func(string) (A, error), list func(context.Context, *catalog.Catalog, A) (V, error),
) (func(context.Context, *catalog.Catalog) (view, error), error) {
	address, err := parse(what)
	return func(ctx context.Context, from *catalog.Catalog) (view, error) {
		v, err := list(ctx, from, address)
		if errors.Is(err, registry.ErrNotFound) {
			err = fmt.Errorf("cannot list %w", err)
		}
		return asView(v, err)
	}, err
}

// summariesView is a list of modules, providers and mirrored providers.
type summariesView struct {
	Modules   []registry.Summary `json:"modules"`
	Providers []registry.Summary `json:"providers"`
	Mirrored  []registry.Summary `json:"mirrored"`
	// remote reports whether the list has only what a credential can read.
	remote bool
}

// listNamespace lists a namespace, or everything if namespace is empty.
func listNamespace(ctx context.Context, from *catalog.Catalog, namespace string) (v summariesView, err error) {
	names := []string{namespace}
	if namespace == "" {
		if names, err = from.Namespaces(ctx); err != nil {
			return v, err
		}
	}
	v = summariesView{
		Modules: []registry.Summary{}, Providers: []registry.Summary{}, Mirrored: []registry.Summary{},
	}
	for _, name := range names {
		modules, err := collect(from.Modules.Summaries(ctx, name))
		if err != nil {
			return v, err
		}
		providers, err := collect(from.Providers.Summaries(ctx, name))
		if err != nil {
			return v, err
		}
		v.Modules, v.Providers = append(v.Modules, modules...), append(v.Providers, providers...)
	}
	if namespace == "" {
		v.Mirrored, err = collect(from.Mirror.Summaries(ctx, ""))
	} else if len(v.Modules)+len(v.Providers) == 0 {
		err = fmt.Errorf("cannot list namespace %s: %w", namespace, registry.ErrNotFound)
	}
	return v, err
}

// listMirrored lists the mirrored providers of HOSTNAME or HOSTNAME/NAMESPACE.
func listMirrored(ctx context.Context, from *catalog.Catalog, part string) (v summariesView, err error) {
	all, err := collect(from.Mirror.Summaries(ctx, ""))
	if err != nil {
		return v, err
	}
	v = summariesView{Modules: []registry.Summary{}, Providers: []registry.Summary{}}
	v.Mirrored = slices.DeleteFunc(all, func(s registry.Summary) bool {
		return !strings.HasPrefix(s.Address, strings.TrimSuffix(part, "/")+"/")
	})
	if len(v.Mirrored) == 0 {
		return v, fmt.Errorf("cannot list mirrored providers of %s: %w", part, registry.ErrNotFound)
	}
	return v, nil
}

func (v summariesView) text(p page) {
	first := true
	for _, part := range []struct {
		title string
		all   []registry.Summary
	}{{"MODULE", v.Modules}, {"PROVIDER", v.Providers}, {"MIRRORED PROVIDER", v.Mirrored}} {
		if len(part.all) == 0 {
			continue
		}
		if !first {
			p.printf("\n")
		}
		first = false
		rows := make([][]string, len(part.all))
		for i, s := range part.all {
			state, why := state(s.LatestDeprecation(), false)
			rows[i] = []string{s.Address, s.Latest.String(), state, s.Description, why}
		}
		p.Table([]terminal.Column{
			{Title: part.title}, {Title: "LATEST"}, stateColumn, {Title: "DESCRIPTION", Min: 12}, reasonColumn,
		}, rows)
	}
	switch {
	case !first:
	case v.remote:
		p.println("You can see nothing in this registry. It is empty, or the credential does not allow reading it.")
	default:
		p.printf("The registry is empty.\n")
	}
}

func (v summariesView) quiet(p page) {
	for _, s := range slices.Concat(v.Modules, v.Providers, v.Mirrored) {
		p.printf("%s\n", s.Address)
	}
}

// collect returns the elements of a sequence, or its first error.
func collect[T any](all iter.Seq2[T, error]) ([]T, error) {
	found := []T{}
	for one, err := range all {
		if err != nil {
			return nil, err
		}
		found = append(found, one)
	}
	return found, nil
}

// state returns the state of a version that is not withdrawn, with the reason.
// Both are empty if the version is neither hidden nor deprecated.
func state(deprecated string, hidden bool) (name, why string) {
	switch {
	case hidden:
		return "hidden", deprecated
	case deprecated != "":
		return "deprecated", deprecated
	}
	return "", ""
}

var (
	versionColumn   = terminal.Column{Title: "VERSION"}
	stateColumn     = terminal.Column{Title: "STATE", Paint: paintState}
	publishedColumn = terminal.Column{Title: "PUBLISHED", Min: len("2006-01-02"), Shorten: shortTime}
	byColumn        = terminal.Column{Title: "BY", Min: 10, Shorten: shortIdentity}
	reasonColumn    = terminal.Column{Title: "REASON", Below: true}
)
