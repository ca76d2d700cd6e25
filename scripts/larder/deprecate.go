package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/publishapi/publishclient"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/releases"
	"github.com/larder-registry/larder/pkg/suggest"
	"github.com/larder-registry/larder/pkg/terminal"
)

// deprecation is the deprecation of a module, a provider or a version, or its end.
type deprecation struct {
	address registry.Address
	version *registry.Version // nil: all versions

	message string
	undo    bool
	hide    bool
}

func (c *cli) deprecateCommand() *cobra.Command {
	var d deprecation
	cmd := &cobra.Command{
		Use:   "deprecate ADDRESS [VERSION]",
		Short: "Deprecate a module or provider",
		Long: `Deprecate a module or provider, or one version of it. ADDRESS is one of

  NAMESPACE/NAME/SYSTEM  a module
  NAMESPACE/TYPE         a provider

Both clients print the message of a provider as a warning at each init that uses
the provider. The protocol has nothing of the kind for modules: ` + "`larder list`" + `
shows it, and clients do not.

With --hide a version of a module is taken out of the listing too: no client
finds it, neither by a range nor by its exact version, and configurations that
need it fail to init. It stays stored, and --undo puts it back.` + throughRegistry,
		Example: `  larder deprecate acme/inventory 1.0.0 --message 'it leaks files: use 1.0.1'
  larder deprecate acme/vpc/aws --message 'use acme/network/aws'
  larder deprecate acme/vpc/aws 1.0.0 --message 'opens port 22' --hide
  larder deprecate acme/vpc/aws 1.0.0 --message x --registry https://HOST
  larder deprecate acme/vpc/aws 1.0.0 --undo`,
		Args: func(cmd *cobra.Command, args []string) error {
			// Another word may be a version, without which this would be of all.
			_, isKind := suggest.Nearest(strings.Join(args[:min(1, len(args))], ""), kinds)
			if isKind && !slices.Contains(kinds, args[0]) && len(args) > 1 && strings.Contains(args[1], "/") {
				return registry.WithHint(usagef("unknown kind %q", args[0]),
					"No kind is needed: `%s`.", completed(cmd, "", args[1:]))
			}
			return namedArguments(cmd, args)
		},
	}
	cmd.RunE = c.run(func(ctx context.Context, args []string) (view, error) {
		if err := d.parse(args); err != nil {
			return nil, err
		}
		to, err := c.publishPlace()
		if err != nil {
			return nil, err
		}
		if to.host != "" {
			return c.deprecateThrough(ctx, to, d)
		}
		return c.onStore(ctx, func(s *store) (view, error) { return c.deprecate(ctx, s, d) })
	})
	c.registryFlags(cmd)
	cmd.Flags().StringVar(&d.message, "message", "", "`TEXT` that says why, and what to use instead: one line")
	cmd.Flags().BoolVar(&d.undo, "undo", false, "end a deprecation")
	cmd.Flags().BoolVar(&d.hide, "hide", false, "take the version of a module out of the listing too")
	return cmd
}

// parse reads the arguments, and checks them and the flags.
func (d *deprecation) parse(args []string) (err error) {
	if d.address, err = registry.ParseAddress(args[0]); err != nil {
		return err
	}
	if len(args) > 1 {
		v, err := registry.ParseTag(args[1])
		if err != nil {
			return err
		}
		d.version = &v
	}
	if _, mirrored := d.address.(registry.MirrorProvider); mirrored {
		return registry.WithHint(
			fmt.Errorf("cannot deprecate %s: %w address: it is that of a mirrored provider", d.address, registry.ErrInvalid),
			"To take a version of it out of the registry for good, use `larder withdraw %s VERSION --reason WHY`.", d.address)
	}
	return d.check()
}

// check checks the flags.
func (d *deprecation) check() error {
	_, isModule := d.address.(registry.Module)
	switch {
	case d.undo && (d.message != "" || d.hide):
		return usagef("--undo ends a deprecation, and goes with neither --message nor --hide")
	case !d.undo && d.message == "":
		return registry.WithHint(usagef("--message is missing"),
			"Say why, such as with --message 'use 2.0.0'. To end a deprecation, use --undo.")
	case d.hide && !isModule:
		return registry.WithHint(usagef("--hide is for modules, and %s is a provider", d.address),
			"Leave out --hide: clients print the message of a provider at each init.")
	case d.hide && d.version == nil:
		return registry.WithHint(usagef("--hide is for one version, and VERSION is missing"),
			"Name the version to hide behind the address.")
	}
	if err := releases.CheckDeprecation(d.message); err != nil {
		return usageError{err}
	}
	return nil
}

// what returns the address, with the version if there is one.
func (d *deprecation) what() string {
	if d.version == nil {
		return d.address.String()
	}
	return d.address.String() + " " + d.version.String()
}

// warnOfHiding says what hiding a version does.
func (c *cli) warnOfHiding(d deprecation) {
	if d.hide {
		out := terminal.New(c.stderr)
		fmt.Fprintln(out, out.Wrap(fmt.Sprintf("Hiding %s breaks each configuration that asks for exactly this version, "+
			"or for a range with no other version in it. Others get another version.", d.what())))
	}
}

// deprecate changes a store.
func (c *cli) deprecate(ctx context.Context, s *store, d deprecation) (view, error) {
	c.warnOfHiding(d)
	by, err := s.by(ctx)
	if err != nil {
		return nil, err
	}
	change := catalog.Deprecation{Message: d.message, Hide: d.hide, By: by.String()}
	var result catalog.Deprecated
	if m, ok := d.address.(registry.Module); ok {
		result, err = s.catalog.Modules.Deprecate(ctx, m, d.version, change)
	} else if p, ok := d.address.(registry.Provider); ok {
		result, err = s.catalog.Providers.Deprecate(ctx, p, d.version, change)
	}
	if err != nil {
		return nil, s.notFound(ctx, "deprecate", d.address, d.version, err)
	}
	v := d.view()
	if result.Unchanged {
		v.Status = "unchanged"
	}
	v.Relisted = result.Relisted
	if d.hide {
		v.Latest = &result.Latest
	}
	return v, nil
}

// deprecateThrough goes through a registry's own endpoint.
func (c *cli) deprecateThrough(ctx context.Context, to place, d deprecation) (view, error) {
	c.sayAbout()
	err := c.throughEndpoint(ctx, to.host, func(p *publishclient.Publisher) error {
		c.warnOfHiding(d)
		return p.Deprecate(ctx, d.address.Path(), d.version, protocol.Deprecation{Message: d.message, Hide: d.hide})
	})
	if err != nil {
		return nil, err
	}
	return d.view(), nil
}

// deprecationView is what became of a deprecation.
type deprecationView struct {
	// Status is deprecated, undeprecated or, if it was so before, unchanged. Through
	// a registry's own endpoint nobody knows how it was before.
	Status  string            `json:"status"`
	Address string            `json:"address"`
	Version *registry.Version `json:"version,omitempty"`
	// Deprecated is the message; empty if the deprecation has ended.
	Deprecated string `json:"deprecated"`
	// Hidden says that the version is not listed any more.
	Hidden bool `json:"hidden"`
	// Relisted says that the version was hidden, and is listed again.
	Relisted bool `json:"relisted,omitempty"`
	// Latest is the latest version that is still listed. It is there if a version was
	// hidden in a store.
	Latest *registry.Version `json:"latest,omitempty"`

	what string
}

func (d *deprecation) view() deprecationView {
	v := deprecationView{
		Status: "deprecated", Address: d.address.String(), Version: d.version,
		Deprecated: d.message, Hidden: d.hide, what: d.what(),
	}
	if d.undo {
		v.Status = "undeprecated"
	}
	return v
}

func (v deprecationView) text(p page) {
	switch {
	case v.Status == "unchanged" && v.Deprecated == "":
		p.println("Unchanged: %s is not deprecated", v.what)
		return
	case v.Relisted:
		p.println("%s is no longer deprecated, and is listed again", v.what)
		return
	case v.Deprecated == "":
		p.println("%s is no longer deprecated", v.what)
		return
	case v.Status == "unchanged":
		p.println("Unchanged: %s is deprecated already: %s", v.what, v.Deprecated)
	default:
		p.println("%s is deprecated: %s", v.what, v.Deprecated)
	}
	if v.Latest != nil {
		p.println("It is hidden. The latest version that is listed is %s", v.Latest)
	}
}
