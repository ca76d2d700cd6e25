// Package publish has the commands that publish modules and providers.
package publish

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/scripts/larder/arguments"
	"github.com/larder-registry/larder/scripts/larder/cli"
)

// Command returns `larder publish`.
func Command(c *cli.Program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "publish",
		Short: "Publish a module, a provider, or what Git tags name",
		Long:  tagsHelp,
		Example: `  larder publish
  larder publish --all-tags --store stack:larder
  larder publish module ./vpc acme/vpc/aws 1.0.0
  larder publish provider ./dist acme/inventory
  larder publish provider ./dist acme/inventory --registry https://HOST`,
		DisableFlagsInUseLine: true,

		Annotations: map[string]string{arguments.RunsAlone: "it publishes what tags name"},
		Args:        missingKind,
	}
	addTagFlags(c, cmd)
	cmd.AddCommand(moduleCommand(c), providerCommand(c))
	// If the kind is missing, parse its flags too, so that the hint can repeat
	// them.
	for _, sub := range cmd.Commands() {
		sub.Flags().VisitAll(func(f *pflag.Flag) {
			if cmd.Flags().Lookup(f.Name) == nil {
				hidden := *f
				hidden.Hidden = true
				cmd.Flags().AddFlag(&hidden)
			}
		})
	}
	return cmd
}

// missingKind returns an error that suggests the missing or mistyped
// subcommand, module or provider.
func missingKind(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return flagsOfKind(cmd)
	}
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return registry.WithHint(arguments.Errorf("unknown kind %q", args[0]),
			"Did you mean `%s`?", arguments.Completed(cmd, near[0], args[1:]))
	}
	if len(args) > 1 {
		kind := ""
		if _, err := registry.ParseModule(args[1]); err == nil {
			kind = "module"
		} else if _, err := registry.ParseProvider(args[1]); err == nil {
			kind = "provider"
		}
		if kind != "" {
			return registry.WithHint(arguments.Errorf("the kind is missing, module or provider"),
				"Did you mean `%s`?", arguments.Completed(cmd, kind, args))
		}
	}
	return arguments.UnknownCommand(cmd, args)
}

// flagsOfKind returns an error if a flag needs the missing kind.
func flagsOfKind(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		for _, sub := range cmd.Commands() {
			own := sub.Flags().Lookup(f.Name)
			if err == nil && f.Hidden && own != nil && !own.Hidden {
				err = registry.WithHint(arguments.Errorf("--%s needs a kind", f.Name), "Use it with `%s`.", sub.CommandPath())
			}
		}
	})
	return err
}
