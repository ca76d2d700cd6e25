// Package list has the command that lists modules, providers and versions.
package list

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/metadata/metadataclient"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/terminal"
	"github.com/larder-registry/larder/scripts/larder/arguments"
	"github.com/larder-registry/larder/scripts/larder/cli"
	"github.com/larder-registry/larder/scripts/larder/output"
	"github.com/larder-registry/larder/scripts/larder/place"
)

// Command returns `larder list`.
func Command(c *cli.Program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list [NAMESPACE|ADDRESS]",
		Short: "List modules, providers and versions",
		Long: `List modules and providers, and those that are mirrored: all of them, or those
of a namespace or a hostname. With ADDRESS, list the versions of one module or
provider. ADDRESS is one of

  NAMESPACE/NAME/SYSTEM           a module
  NAMESPACE/TYPE                  a provider
  HOSTNAME/NAMESPACE/TYPE         a mirrored provider
  HOSTNAME/NAMESPACE/NAME/SYSTEM  a mirrored module

The state of a version is deprecated, hidden, withdrawn or missing. A version is
missing if its record is missing.

For something mirrored, the list also has the versions that the mirror found at
the origin and may not mirror. Their state is too new or refused. If the mirror
policy lets clients fetch versions, the list also has the number of such
versions and the latest check of the origin. For a mirrored module, it shows
whether the origin has changed a version since the mirror first saw it.

With --quiet the command prints only addresses or versions, the newest version
first. It omits versions that clients cannot select.` + place.ReadThroughRegistry,
		Example: `  larder list
  larder list acme
  larder list acme/vpc/aws --json
  larder list acme/inventory
  larder list registry.opentofu.org/hashicorp/random
  larder list registry.opentofu.org/terraform-aws-modules/vpc/aws
  larder list --registry https://registry.example.com`,
		RunE: c.Run(func(ctx context.Context, args []string) (output.View, error) {
			what := strings.Join(args, "")
			list, err := listing(what)
			if err != nil {
				return nil, err
			}
			return c.OnReader(ctx, func(r *place.Reader) (output.View, error) {
				v, err := list(ctx, r)
				if errors.Is(err, registry.ErrNotFound) && registry.Hint(err) == "" {
					return nil, suggest(ctx, r, what, err)
				}
				if warned, ok := v.(MirroredView); ok {
					c.WarnQuietly(warned.Warnings)
				} else if err == nil {
					err = r.Damage() // something is not listed
				}
				return v, err
			})
		}),
	}
	c.RegistryFlags(cmd)
	return cmd
}

// suggest adds a hint with the nearest existing address to the error for listing
// something that does not exist.
func suggest(ctx context.Context, r *place.Reader, what string, failed error) error {
	if near := r.Near(ctx, what); near != "" {
		return registry.WithHint(failed, "Did you mean `larder list %s`?", near)
	}
	return registry.WithHint(failed, place.ListHint)
}

// listing returns the function that lists a namespace, a hostname, an address,
// or everything if what is empty.
func listing(what string) (lister, error) {
	if flag := place.FlagFor(what); flag != "" {
		return nil, registry.WithHint(arguments.Errorf("%s names a registry, and no namespace or address", what),
			"Did you mean `larder list --%s %s`?", flag, arguments.Quoted(what))
	}
	first, _, _ := strings.Cut(what, "/")
	hostname := strings.Contains(first, ".") // no namespace has a dot
	switch slashes := strings.Count(what, "/"); {
	case hostname && slashes < 2:
		return func(ctx context.Context, r *place.Reader) (output.View, error) {
			return output.As(listHost(ctx, r, what))
		}, nil
	case slashes == 0:
		return func(ctx context.Context, r *place.Reader) (output.View, error) {
			return output.As(listNamespace(ctx, r, what))
		}, nil
	}
	address, err := registry.ParseAddress(what)
	return listVersions(address, func(ctx context.Context, r *place.Reader) (output.View, error) {
		switch a := address.(type) {
		case registry.Provider:
			history, err := r.ProviderHistory(ctx, a)
			return output.As(ProviderView{history}, err)
		case registry.MirrorAddress:
			return output.As(listMirrored(ctx, r, a))
		}
		module, _ := address.(registry.Module)
		history, err := r.ModuleHistory(ctx, module)
		return output.As(ModuleView{history}, err)
	}), err
}

type lister = func(context.Context, *place.Reader) (output.View, error)

// listVersions returns list with an error that names the address if it does not exist.
func listVersions(a registry.Address, list lister) lister {
	return func(ctx context.Context, r *place.Reader) (output.View, error) {
		v, err := list(ctx, r)
		if errors.Is(err, registry.ErrNotFound) && registry.Hint(err) == "" {
			err = fmt.Errorf("cannot list %s: %w", a, registry.ErrNotFound)
		}
		return v, err
	}
}

// ContentsView is a list of modules and providers, own and mirrored ones.
type ContentsView struct {
	Modules   []registry.Summary `json:"modules"`
	Providers []registry.Summary `json:"providers"`
	// Mirrored has the mirrored providers.
	Mirrored        []registry.Summary `json:"mirrored"`
	MirroredModules []registry.Summary `json:"mirrored_modules"`
	// remote reports whether the list has only what a credential can read.
	remote bool
}

// listNamespace lists a namespace, or everything if namespace is empty.
func listNamespace(ctx context.Context, r *place.Reader, namespace string) (v ContentsView, err error) {
	modules, _, err := r.Modules(ctx, metadataclient.Query{Namespace: namespace})
	if err != nil {
		return v, err
	}
	providers, _, err := r.Providers(ctx, metadataclient.Query{Namespace: namespace})
	if err != nil {
		return v, err
	}
	v = ContentsView{
		Modules: output.Mapped(modules, moduleSummary), Providers: output.Mapped(providers, providerSummary),
		Mirrored: []registry.Summary{}, MirroredModules: []registry.Summary{}, remote: !r.Store,
	}
	if namespace != "" {
		if len(modules)+len(providers) == 0 {
			err = cmp.Or(needsCredential(ctx, r), fmt.Errorf("cannot list namespace %s: %w", namespace, registry.ErrNotFound))
		}
		return v, err
	}
	mirrored, err := r.Mirrored(ctx)
	v.setMirrored(mirrored)
	if err == nil && len(v.Modules)+len(v.Providers)+len(mirrored) == 0 {
		err = needsCredential(ctx, r)
	}
	return v, err
}

// needsCredential returns registry.ErrUnauthenticated if a request without a
// credential may read only a part of the registry. The registry answers that before it
// looks whether the module exists.
func needsCredential(ctx context.Context, r *place.Reader) error {
	_, err := r.Module(ctx, registry.Module{Namespace: "larder", Name: "larder", System: "none"}, nil)
	if errors.Is(err, registry.ErrUnauthenticated) {
		return err
	}
	return nil
}

// listHost lists the mirrored providers and modules of HOSTNAME or HOSTNAME/NAMESPACE.
func listHost(ctx context.Context, r *place.Reader, part string) (v ContentsView, err error) {
	mirrored, err := r.Mirrored(ctx)
	v = ContentsView{Modules: []registry.Summary{}, Providers: []registry.Summary{}, remote: !r.Store}
	v.setMirrored(slices.DeleteFunc(mirrored, func(m protocol.MirroredDetail) bool {
		a, err := registry.ParseMirrorAddress(metadataclient.MirroredAddress(m))
		return err != nil || !a.IsWithin(part)
	}))
	if err == nil && len(v.Mirrored)+len(v.MirroredModules) == 0 {
		err = cmp.Or(needsCredential(ctx, r),
			fmt.Errorf("cannot list mirrored modules or providers of %s: %w", part, registry.ErrNotFound))
	}
	return v, err
}

// setMirrored sets the lists of mirrored providers and modules. The providers come
// first in all.
func (v *ContentsView) setMirrored(all []protocol.MirroredDetail) {
	first := slices.IndexFunc(all, func(m protocol.MirroredDetail) bool { return m.Provider != "" })
	if first < 0 {
		first = len(all)
	}
	v.Mirrored = output.Mapped(all[:first], mirroredSummary)
	v.MirroredModules = output.Mapped(all[first:], mirroredSummary)
}

func moduleSummary(m protocol.ModuleSummary) registry.Summary {
	return registry.Summary{
		Address: metadataclient.ModuleAddress(m), Latest: m.Version, Description: m.Description,
		PublishedAt: m.PublishedAt, Source: m.Source,
		Deprecated: m.AllDeprecated, LatestDeprecated: ofLatest(m.Deprecation, m.AllDeprecated),
	}
}

func providerSummary(p protocol.ProviderSummary) registry.Summary {
	return registry.Summary{
		Address: metadataclient.ProviderAddress(p), Latest: p.Version, Description: p.Description,
		PublishedAt: p.PublishedAt, Source: p.Source, SigningKey: p.SigningKey,
		Deprecated: p.AllDeprecated, LatestDeprecated: ofLatest(p.Deprecation, p.AllDeprecated),
	}
}

func mirroredSummary(m protocol.MirroredDetail) registry.Summary {
	return registry.Summary{Address: metadataclient.MirroredAddress(m), Latest: m.Version, PublishedAt: m.PublishedAt}
}

// ofLatest returns the reason for deprecating a latest version. It is empty if the
// note is about all versions.
func ofLatest(note *protocol.DeprecationNote, all string) string {
	if note == nil || note.Reason == all {
		return ""
	}
	return note.Reason
}

// Text implements [output.View].
func (v ContentsView) Text(p output.Page) {
	first := true
	for _, part := range []struct {
		title string
		all   []registry.Summary
	}{{"MODULE", v.Modules}, {"PROVIDER", v.Providers}, {"MIRRORED PROVIDER", v.Mirrored}, {"MIRRORED MODULE", v.MirroredModules}} {
		if len(part.all) == 0 {
			continue
		}
		if !first {
			p.Printf("\n")
		}
		first = false
		rows := make([][]string, len(part.all))
		for i, s := range part.all {
			state, why := "", cmp.Or(s.LatestDeprecated, s.Deprecated)
			if why != "" {
				state = protocol.StateDeprecated
			}
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

// Quiet prints what a script needs.
func (v ContentsView) Quiet(p output.Page) {
	for _, s := range slices.Concat(v.Modules, v.Providers, v.Mirrored, v.MirroredModules) {
		p.Printf("%s\n", s.Address)
	}
}
