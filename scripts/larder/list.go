package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/terminal"
	"github.com/larder-registry/larder/scripts/larder/cli"
	"github.com/larder-registry/larder/scripts/larder/output"
	"github.com/larder-registry/larder/scripts/larder/place"
)

func listCommand(c *cli.Program) *cobra.Command {
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
first. It omits versions that clients cannot select.` + place.ReadThroughRegistry + `
For modules and providers, it then omits versions that clients cannot select.`,
		Example: `  larder list
  larder list acme
  larder list acme/vpc/aws --json
  larder list acme/inventory
  larder list registry.opentofu.org/hashicorp/random
  larder list --registry https://registry.example.com`,
		RunE: c.Run(func(ctx context.Context, args []string) (output.View, error) {
			what := strings.Join(args, "")
			list, err := listing(c, what)
			if err != nil {
				return nil, err
			}
			from, err := c.FindAny()
			if err != nil {
				return nil, err
			}
			if from.Host != "" {
				return c.OnRemote(ctx, from, func(r *place.Reader) (output.View, error) { return listRemote(ctx, r, what) })
			}
			return c.OnStore(ctx, func(s *place.Store) (output.View, error) {
				defer c.Waiting("reading the catalog")()
				v, err := list(ctx, s.Catalog)
				if errors.Is(err, registry.ErrNotFound) {
					return v, suggestAddress(ctx, s.Catalog, args[0], c.RepeatedFlags(), err)
				}
				return v, err
			})
		}),
	}
	c.RegistryFlags(cmd)
	return cmd
}

// suggestAddress adds a hint with the nearest existing address to the error for
// listing something that does not exist. flags are those of
// [place.Finder.RepeatedFlags].
func suggestAddress(ctx context.Context, from *catalog.Catalog, what, flags string, failed error) error {
	if near := place.NearAddress(ctx, from, what); near != "" {
		return registry.WithHint(failed, "Did you mean `larder list %s%s`?", near, flags)
	}
	return registry.WithHint(failed, place.ListHint, flags)
}

// listing returns the function that lists a namespace, a hostname, an address,
// or everything if what is empty.
func listing(c *cli.Program, what string) (func(context.Context, *catalog.Catalog) (output.View, error), error) {
	first, _, _ := strings.Cut(what, "/")
	hostname := strings.Contains(first, ".") // no namespace has a dot
	slashes := strings.Count(what, "/")
	ofMirrored := func(ctx context.Context, from *catalog.Catalog, a registry.MirrorProvider) (mirrorProviderView, error) {
		v, err := listMirrorProvider(ctx, from, a, c.Now())
		v.flags = c.RepeatedFlags()
		c.WarnQuietly(v.Warnings)
		return v, err
	}
	switch {
	case first == "mirror" && slashes == 3:
		return listVersions(strings.TrimPrefix(what, "mirror/"), registry.ParseMirrorProvider, ofMirrored)
	case hostname && slashes < 2:
		return func(ctx context.Context, from *catalog.Catalog) (output.View, error) {
			return output.As(listMirrored(ctx, from, what))
		}, nil
	case hostname:
		return listVersions(what, registry.ParseMirrorProvider, ofMirrored)
	case slashes == 0:
		return func(ctx context.Context, from *catalog.Catalog) (output.View, error) {
			return output.As(listNamespace(ctx, from, what))
		}, nil
	case slashes == 1:
		return listVersions(what, registry.ParseProvider, listProvider)
	}
	return listVersions(what, registry.ParseModule, listModule)
}

func listVersions[A any, V output.View](
	what string, parse func(string) (A, error), list func(context.Context, *catalog.Catalog, A) (V, error),
) (func(context.Context, *catalog.Catalog) (output.View, error), error) {
	address, err := parse(what)
	return func(ctx context.Context, from *catalog.Catalog) (output.View, error) {
		v, err := list(ctx, from, address)
		if errors.Is(err, registry.ErrNotFound) {
			err = fmt.Errorf("cannot list %w", err)
		}
		return output.As(v, err)
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
		modules, err := place.Collect(from.Modules.Summaries(ctx, name))
		if err != nil {
			return v, err
		}
		providers, err := place.Collect(from.Providers.Summaries(ctx, name))
		if err != nil {
			return v, err
		}
		v.Modules, v.Providers = append(v.Modules, modules...), append(v.Providers, providers...)
	}
	if namespace == "" {
		v.Mirrored, err = place.Collect(from.Mirror.Summaries(ctx, ""))
	} else if len(v.Modules)+len(v.Providers) == 0 {
		err = fmt.Errorf("cannot list namespace %s: %w", namespace, registry.ErrNotFound)
	}
	return v, err
}

// listMirrored lists the mirrored providers of HOSTNAME or HOSTNAME/NAMESPACE.
func listMirrored(ctx context.Context, from *catalog.Catalog, part string) (v summariesView, err error) {
	all, err := place.Collect(from.Mirror.Summaries(ctx, ""))
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

func (v summariesView) Text(p output.Page) {
	first := true
	for _, part := range []struct {
		title string
		all   []registry.Summary
	}{{"MODULE", v.Modules}, {"PROVIDER", v.Providers}, {"MIRRORED PROVIDER", v.Mirrored}} {
		if len(part.all) == 0 {
			continue
		}
		if !first {
			p.Printf("\n")
		}
		first = false
		rows := make([][]string, len(part.all))
		for i, s := range part.all {
			state, why := output.State(s.LatestDeprecation(), false)
			rows[i] = []string{s.Address, s.Latest.String(), state, s.Description, why}
		}
		p.Table([]terminal.Column{
			{Title: part.title}, {Title: "LATEST"}, output.StateColumn, {Title: "DESCRIPTION", Min: 12}, output.ReasonColumn,
		}, rows)
	}
	switch {
	case !first:
	case v.remote:
		p.Println("You can see nothing in this registry. It is empty, or the credential does not allow reading it.")
	default:
		p.Printf("The registry is empty.\n")
	}
}

func (v summariesView) Quiet(p output.Page) {
	for _, s := range slices.Concat(v.Modules, v.Providers, v.Mirrored) {
		p.Printf("%s\n", s.Address)
	}
}
