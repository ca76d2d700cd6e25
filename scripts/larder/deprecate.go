package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/publishapi/publishclient"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/releases"
)

// deprecation is what a user says of something that should not be used any more.
type deprecation struct {
	message string
	undo    bool
	hide    bool
}

func (d deprecation) check() error {
	switch {
	case d.undo && (d.message != "" || d.hide):
		return usageError{errors.New("--undo takes a deprecation back, and goes with nothing else")}
	case !d.undo && d.message == "":
		return usageError{errors.New("say why with --message, such as --message 'use 2.0.0', or take it back with --undo")}
	}
	if err := releases.CheckDeprecation(d.message); err != nil {
		return usageError{err}
	}
	return nil
}

func (c *cli) deprecateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "deprecate",
		Short: "Say that something should not be used any more",
		Args:  usage(cobra.NoArgs),
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(c.deprecateProviderCommand(), c.deprecateModuleCommand())
	return cmd
}

func (c *cli) deprecationFlags(cmd *cobra.Command, d *deprecation) {
	c.targetFlags(cmd)
	cmd.Flags().StringVar(&d.message, "message", "", "why, and what to use instead: one line")
	cmd.Flags().BoolVar(&d.undo, "undo", false, "take a deprecation back")
}

// parseDeprecated reads the optional version behind an address.
func parseDeprecated(args []string) (*registry.Version, error) {
	if len(args) < 2 {
		return nil, nil
	}
	v, err := registry.ParseTag(args[1])
	return &v, err
}

func (c *cli) deprecateProviderCommand() *cobra.Command {
	var d deprecation
	cmd := &cobra.Command{
		Use:   "provider NAMESPACE/TYPE [VERSION]",
		Short: "Deprecate a provider, or one version of it",
		Long:  `Deprecate a provider, or one version of it. Both clients print the message as a warning at each init that uses the provider.` + throughRegistry,
		Example: `  larder deprecate provider acme/inventory 1.0.0 --message 'it leaks files: use 1.0.1'
  larder deprecate provider acme/inventory --message 'use acme/stock' --registry https://registry.example.com
  larder deprecate provider acme/inventory 1.0.0 --undo`,
		Args: usage(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := registry.ParseProvider(args[0])
			if err != nil {
				return err
			}
			v, err := parseDeprecated(args)
			if err != nil {
				return err
			}
			return c.deprecate(cmd, args, subject{p.Path(), v}, d, func(ctx context.Context, data *store, by string) error {
				_, err := data.catalog.Providers.Deprecate(ctx, p, v, catalog.Deprecation{Message: d.message, By: by})
				return err
			})
		},
	}
	c.deprecationFlags(cmd, &d)
	return cmd
}

func (c *cli) deprecateModuleCommand() *cobra.Command {
	var d deprecation
	cmd := &cobra.Command{
		Use:   "module NAMESPACE/NAME/SYSTEM [VERSION]",
		Short: "Deprecate a module, or one version of it",
		Long: `Deprecate a module, or one version of it. The protocol has no word for that, so that larder list shows it, and clients do not.

With --hide a version is taken out of the listing too: no client finds it any more, neither by a range nor by its exact version,
and configurations that have it fail to init. It stays stored, and --undo puts it back.` + throughRegistry,
		Example: `  larder deprecate module acme/vpc/aws --message 'use acme/network/aws'
  larder deprecate module acme/vpc/aws 1.0.0 --message 'opens port 22 to the world' --hide
  larder deprecate module acme/vpc/aws 1.0.0 --message 'use 1.0.1' --registry https://registry.example.com
  larder deprecate module acme/vpc/aws 1.0.0 --undo`,
		Args: usage(cobra.RangeArgs(1, 2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := registry.ParseModule(args[0])
			if err != nil {
				return err
			}
			v, err := parseDeprecated(args)
			if err != nil {
				return err
			}
			if d.hide && v == nil {
				return usageError{errors.New("--hide takes one version out of the listing: name it")}
			}
			return c.deprecate(cmd, args, subject{m.Path(), v}, d, func(ctx context.Context, data *store, by string) error {
				latest, err := data.catalog.Modules.Deprecate(ctx, m, v, catalog.Deprecation{Message: d.message, Hide: d.hide, By: by})
				if err == nil && d.hide && !c.json {
					c.printf("The latest version that is listed is %s now\n", latest)
				}
				return err
			})
		},
	}
	c.deprecationFlags(cmd, &d)
	cmd.Flags().BoolVar(&d.hide, "hide", false, "take the version out of the listing too")
	return cmd
}

// subject is what is deprecated: all of it where there is no version.
type subject struct {
	path    string
	version *registry.Version
}

func (c *cli) deprecate(cmd *cobra.Command, args []string, what subject, d deprecation, onStore func(ctx context.Context, data *store, by string) error) error {
	if err := d.check(); err != nil {
		return err
	}
	host, err := c.target(cmd)
	if err != nil {
		return err
	}
	warn := func() {
		if d.hide {
			fmt.Fprintf(c.stderr, "Hiding %s breaks each configuration that asks for exactly it, or for a range with nothing else in it; others get another version\n", strings.Join(args, " "))
		}
	}
	if host != "" {
		err = c.throughEndpoint(cmd.Context(), host, func(p *publishclient.Publisher) error {
			warn()
			return p.Deprecate(cmd.Context(), what.path, what.version, protocol.Deprecation{Message: d.message, Hide: d.hide})
		})
	} else {
		err = c.onStore(cmd.Context(), func(data *store) error {
			warn()
			by, err := data.by(cmd.Context())
			if err != nil {
				return err
			}
			err = onStore(cmd.Context(), data, by.String())
			if errors.Is(err, registry.ErrNotFound) && !errors.Is(err, registry.ErrWithdrawn) {
				// What the catalogue misses are items of its table.
				return fmt.Errorf("%s: %w: no version of that is published", strings.Join(args, " "), registry.ErrNotFound)
			}
			return err
		})
	}
	if err != nil {
		return err
	}
	return c.reportDeprecation(args, d)
}

// onStore does something with a store that is there.
func (c *cli) onStore(ctx context.Context, do func(*store) error) (err error) {
	data, err := c.openStore(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, data.close()) }()
	return do(data)
}

func (c *cli) reportDeprecation(args []string, d deprecation) error {
	what := strings.Join(args, " ")
	switch {
	case c.json:
		return c.printJSON(struct {
			What       string `json:"what"`
			Deprecated string `json:"deprecated"`
			Hidden     bool   `json:"hidden"`
		}{what, d.message, d.hide})
	case d.undo:
		c.printf("%s is deprecated no longer\n", what)
	default:
		c.printf("%s is deprecated: %s\n", what, d.message)
	}
	return nil
}
