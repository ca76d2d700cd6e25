package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/metadata/metadataclient"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/publish/publishclient"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/terminal"
	"github.com/larder-registry/larder/scripts/larder/arguments"
	"github.com/larder-registry/larder/scripts/larder/cli"
	"github.com/larder-registry/larder/scripts/larder/output"
	"github.com/larder-registry/larder/scripts/larder/place"
)

// deprecation has the arguments and flags of the command.
type deprecation struct {
	address registry.Address
	version *registry.Version // nil for all versions

	message string
	undo    bool
	hide    bool
}

func deprecateCommand(c *cli.Program) *cobra.Command {
	var d deprecation
	cmd := &cobra.Command{
		Use:   "deprecate ADDRESS [VERSION]",
		Short: "Deprecate a module or provider",
		Long: `Deprecate a module or provider, or one version of it. ADDRESS is one of

  NAMESPACE/NAME/SYSTEM  a module
  NAMESPACE/TYPE         a provider

Both clients print the message of a provider as a warning at each init that uses
the provider. The module protocol has no deprecation messages. For modules, only
` + "`larder list`, `show` and `search`" + ` show that they are deprecated.

The command prints which modules of this registry use the address, if it can
read that.

With --hide, the registry also removes a version of a module from its listing.
No client can select it, neither by a range nor by its exact version, and ` + "`init`" + `
fails in configurations that need it. The version stays stored. --undo lists it
again.` + place.ThroughRegistry,
		Example: `  larder deprecate acme/inventory 1.0.0 --message 'it leaks files: use 1.0.1'
  larder deprecate acme/vpc/aws --message 'use acme/network/aws'
  larder deprecate acme/vpc/aws 1.0.0 --message 'opens port 22' --hide
  larder deprecate acme/vpc/aws 1.0.0 --message x --registry https://HOST
  larder deprecate acme/vpc/aws 1.0.0 --undo`,
	}
	cmd.RunE = c.Run(func(ctx context.Context, args []string) (output.View, error) {
		if err := d.parse(args); err != nil {
			return nil, err
		}
		to, err := c.FindAny()
		if err != nil {
			return nil, err
		}
		if to.Host != "" {
			return deprecateThrough(ctx, c, to, d)
		}
		return c.OnStore(ctx, func(s *place.Store) (output.View, error) { return deprecate(ctx, c, s, d) })
	})
	c.RegistryFlags(cmd)
	cmd.Flags().StringVar(&d.message, "message", "", "`TEXT` with the reason and what to use instead: one line")
	cmd.Flags().BoolVar(&d.undo, "undo", false, "remove the deprecation")
	cmd.Flags().BoolVar(&d.hide, "hide", false, "also remove the version of a module from the listing")
	return cmd
}

// parse parses the arguments, and checks the arguments and the flags.
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
	if a, mirrored := d.address.(registry.MirrorAddress); mirrored {
		return registry.WithHint(
			fmt.Errorf("cannot deprecate %s: %w address: it is a mirrored %s", a, registry.ErrInvalid, a.Kind()),
			"To permanently remove a version of it, use `larder withdraw %s VERSION --reason WHY`.", d.address)
	}
	return d.check()
}

func (d *deprecation) check() error {
	_, isModule := d.address.(registry.Module)
	switch {
	case d.undo && (d.message != "" || d.hide):
		return arguments.Errorf("--undo cannot be combined with --message or --hide")
	case !d.undo && d.message == "":
		return registry.WithHint(arguments.Errorf("--message is missing"),
			"Give a message, for example --message 'use 2.0.0'. To remove a deprecation, use --undo.")
	case d.hide && !isModule:
		return registry.WithHint(arguments.Errorf("--hide is only for modules, but %s is a provider", d.address),
			"Remove --hide: clients print the message of a provider at each init.")
	case d.hide && d.version == nil:
		return registry.WithHint(arguments.Errorf("--hide is for one version, but VERSION is missing"),
			"Give the version to hide after the address.")
	}
	if err := rules.CheckDeprecation(d.message); err != nil {
		return arguments.Wrong(err)
	}
	return nil
}

// subject returns the address, and the version if there is one.
func (d *deprecation) subject() string {
	if d.version == nil {
		return d.address.String()
	}
	return d.address.String() + " " + d.version.String()
}

// warnOfHiding prints a warning if the command hides a version.
func warnOfHiding(c *cli.Program, d deprecation) {
	if d.hide {
		out := terminal.New(c.Stderr)
		fmt.Fprintln(out, out.Wrap(fmt.Sprintf("Hiding %s breaks each configuration that requires exactly this version, "+
			"or a range that contains no other version. Other configurations get another version.", d.subject())))
	}
}

func deprecate(ctx context.Context, c *cli.Program, s *place.Store, d deprecation) (output.View, error) {
	warnOfHiding(c, d)
	by, err := s.By(ctx)
	if err != nil {
		return nil, err
	}
	change := catalog.Deprecation{Message: d.message, Hide: d.hide, By: by.String()}
	var result catalog.Deprecated
	if m, ok := d.address.(registry.Module); ok {
		result, err = s.Catalog.Modules.Deprecate(ctx, m, d.version, change)
	} else if p, ok := d.address.(registry.Provider); ok {
		result, err = s.Catalog.Providers.Deprecate(ctx, p, d.version, change)
	}
	if err != nil {
		return nil, s.NotFound(ctx, "deprecate", d.address, d.version, err)
	}
	if !d.undo {
		printDependents(ctx, c, s.Reader(), d.address, d.version)
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

// deprecateThrough sends the change to a registry's own endpoint.
func deprecateThrough(ctx context.Context, c *cli.Program, to place.Place, d deprecation) (output.View, error) {
	c.PrintRegistry()
	err := c.OnHost(to.Host, func(credentials *client.Client) error {
		p, err := publishclient.Open(ctx, credentials, to.Host)
		if err != nil {
			return err
		}
		warnOfHiding(c, d)
		change := protocol.Deprecation{Message: d.message, Hide: d.hide}
		if err := p.Deprecate(ctx, d.address.Path(), d.version, change); err != nil {
			return err
		}
		// The host may have no metadata API.
		if api, err := metadataclient.Open(ctx, credentials, to.Host); err == nil && !d.undo {
			printDependents(ctx, c, &place.Reader{Client: api}, d.address, d.version)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return d.view(), nil
}

// deprecationView is the result of a deprecation.
type deprecationView struct {
	// Status is deprecated, undeprecated or unchanged. A registry's own
	// endpoint does not report whether something changed, so the status is
	// never unchanged there.
	Status  string            `json:"status"`
	Address string            `json:"address"`
	Version *registry.Version `json:"version,omitempty"`
	// Deprecated is the message. It is empty if the deprecation was removed.
	Deprecated string `json:"deprecated"`
	// Hidden is true if the version is no longer listed.
	Hidden bool `json:"hidden"`
	// Relisted is true if the version was hidden and is listed again.
	Relisted bool `json:"relisted,omitempty"`
	// Latest is the latest version that is still listed. It is present if the
	// command hid a version in a store.
	Latest *registry.Version `json:"latest,omitempty"`

	subject string
}

func (d *deprecation) view() deprecationView {
	v := deprecationView{
		Status: "deprecated", Address: d.address.String(), Version: d.version,
		Deprecated: d.message, Hidden: d.hide, subject: d.subject(),
	}
	if d.undo {
		v.Status = "undeprecated"
	}
	return v
}

func (v deprecationView) Text(p output.Page) {
	switch {
	case v.Status == "unchanged" && v.Deprecated == "":
		p.Println("Unchanged: %s is not deprecated", v.subject)
		return
	case v.Relisted:
		p.Println("%s is no longer deprecated, and is listed again", v.subject)
		return
	case v.Deprecated == "":
		p.Println("%s is no longer deprecated", v.subject)
		return
	case v.Status == "unchanged":
		p.Println("Unchanged: %s is already deprecated: %s", v.subject, v.Deprecated)
	default:
		p.Println("%s is deprecated: %s", v.subject, v.Deprecated)
	}
	switch {
	case v.Latest != nil:
		p.Println("It is hidden. The latest listed version is %s", v.Latest)
	case v.Hidden:
		p.Println("It is hidden.")
	}
}
