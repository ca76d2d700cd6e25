package mirror

import (
	"context"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/mirror/filling"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/scripts/larder/arguments"
	"github.com/larder-registry/larder/scripts/larder/cli"
	"github.com/larder-registry/larder/scripts/larder/output"
)

func addCommand(c *cli.Program) *cobra.Command {
	var w filling.Wanted
	var platforms []string
	var fill fillFlags
	cmd := &cobra.Command{
		Use:   "add ADDRESS",
		Short: "Mirror a provider or a module from its origin registry",
		Long: `Mirror a provider or a module from its origin registry: the newest version that
matches --version, or with --all every version that matches. An ADDRESS is
HOSTNAME/NAMESPACE/TYPE of a provider, or HOSTNAME/NAMESPACE/NAME/SYSTEM of a
module. A provider needs --platform. You can add platforms to a mirrored version
later.

The command follows the registry modules that a module calls, and those that
these call. It mirrors the newest version of each that the constraint allows,
and lists those that the mirror policy denies. If a module is at no known forge,
the command runs git.

You cannot mirror what has a hostname with a port, because clients do not use
mirrors for it.` + fromOrigins,
		Example: `  larder mirror add registry.opentofu.org/hashicorp/random --version '~> 3.5' \
    --platform linux_amd64,darwin_arm64
  larder mirror add registry.opentofu.org/terraform-aws-modules/vpc/aws \
    --version '~> 5.0'
  larder mirror add registry.terraform.io/hashicorp/aws --version 5.100.0 \
    --platform all
  larder mirror add registry.example.com/acme/inventory --platform linux_amd64 \
    --upstream https://10.0.0.7:8443`,
		RunE: c.Run(func(ctx context.Context, args []string) (_ output.View, err error) {
			if w.Address, err = registry.ParseMirrorAddress(args[0]); err != nil {
				return nil, err
			}
			if w.Address.IsModule() {
				err = refuseProviderFlags(platforms, w.AllowUnsigned)
			} else {
				w.Platforms, err = requirePlatforms(w.Address, platforms)
			}
			if err != nil {
				return nil, err
			}
			return mirrorFromOrigins(ctx, c, fill, ResultView{}, func(m *filling.Mirror) ([]filling.Result, error) {
				return m.Add(ctx, w)
			})
		}),
	}
	gitFlag(cmd, &fill)
	addFillFlags(c, cmd, &fill)
	platformFlag(cmd, &platforms)
	cmd.Flags().StringVar(&w.Constraint, "version", "",
		"version `CONSTRAINT`, as in a configuration, such as '~> 3.5' (default the newest version)")
	cmd.Flags().BoolVar(&w.All, "all", false, "mirror every version that matches the constraint, not only the newest")
	upstreamFlag(cmd, &w.Upstream)
	unsignedFlag(cmd, &w.AllowUnsigned)
	return cmd
}

func lockCommand(c *cli.Program) *cobra.Command {
	var platforms, exclude []string
	var unsigned bool
	var fill fillFlags
	cmd := &cobra.Command{
		Use:   "lock FILE…",
		Short: "Mirror the exact versions in lock files",
		Long: `Mirror the exact versions in lock files (.terraform.lock.hcl) from their origin
registries. Each package must match a hash in the lock file, so that clients can
install it without changing the lock file.

Use --exclude for providers that clients install directly, such as those of your
own registry. The command skips providers whose hostname has a port, because
clients do not use mirrors for them.` + findsOrigins + `

An origin can lead only to public addresses. If your origin is on a private
network, give its URL in a host block.`,
		Example: `  larder mirror lock .terraform.lock.hcl --platform linux_amd64,darwin_arm64
  larder mirror lock */.terraform.lock.hcl --platform linux_amd64 \
    --exclude registry.example.com --store stack:larder`,
		RunE: c.Run(func(ctx context.Context, args []string) (output.View, error) {
			wanted, err := requirePlatforms(registry.MirrorAddress{}, platforms)
			if err != nil {
				return nil, err
			}
			var v ResultView
			var locked []filling.Locked
			for _, name := range args {
				text, err := arguments.ReadFile(name, filling.MaxText)
				if err != nil {
					return nil, err
				}
				found, excluded, err := filling.ParseLock(ctx, name, text)
				if err != nil {
					return nil, err
				}
				for _, address := range excluded {
					v.Skipped = append(v.Skipped, skippedAddress{address, filling.PortReason})
				}
				locked = append(locked, found...)
			}
			locked = slices.DeleteFunc(locked, func(l filling.Locked) bool { return slices.ContainsFunc(exclude, l.Address.IsWithin) })
			return mirrorFromOrigins(ctx, c, fill, v, func(m *filling.Mirror) ([]filling.Result, error) {
				return m.Lock(ctx, locked, wanted, unsigned)
			})
		}),
	}
	addFillFlags(c, cmd, &fill)
	platformFlag(cmd, &platforms)
	excludeFlag(cmd, &exclude)
	unsignedFlag(cmd, &unsigned)
	return cmd
}

func excludeFlag(cmd *cobra.Command, exclude *[]string) {
	cmd.Flags().StringSliceVar(exclude, "exclude", nil,
		"exclude `ADDRESSES`, such as your own: HOSTNAME, HOSTNAME/NAMESPACE or whole ones; can be repeated")
}

func syncCommand(c *cli.Program) *cobra.Command {
	var fill fillFlags
	var exclude []string
	cmd := &cobra.Command{
		Use:   "sync PATH…",
		Short: "Mirror the providers and modules in a list",
		Long: `Mirror the providers and modules in a list from their origin registries, except
for what the mirror already has. The list is a file such as

  platforms = ["linux_amd64", "darwin_arm64"]

  provider "registry.opentofu.org/hashicorp/random" {
    versions = ["~> 3.5", "3.1.0"]    # the newest version that matches each
  }

  provider "registry.example.com/acme/inventory" {
    versions       = [">= 1.0.0"]
    all            = true             # every version that matches
    platforms      = ["all"]          # instead of the platforms above
    upstream       = "https://10.0.0.7:8443"
    allow_unsigned = true
  }

  module "registry.opentofu.org/terraform-aws-modules/vpc/aws" {
    versions = ["~> 5.0"]
  }

PATH can also be the folder of a configuration after init. The command then
mirrors the exact versions of the registry modules that init has installed. The
file .terraform/modules/modules.json names them. Use --exclude for modules that
clients install directly, such as your own. For providers, use larder mirror
lock.

The command follows the registry modules that modules call, as larder mirror add
does. Versions that you remove from the list stay mirrored, because lock files
may need them.` + fromOrigins,
		Example: `  larder mirror sync mirror.hcl --dry-run
  larder mirror sync mirror.hcl --store stack:larder
  larder mirror sync ./network ./cluster --exclude registry.example.com`,
		RunE: c.Run(func(ctx context.Context, args []string) (output.View, error) {
			var v ResultView
			var list []filling.Wanted
			for _, name := range args {
				wanted, err := readWanted(ctx, name, func(source, reason string) {
					v.Skipped = append(v.Skipped, skippedAddress{source, reason})
				})
				if err != nil {
					return nil, err
				}
				list = append(list, wanted...)
			}
			list = slices.DeleteFunc(list, func(w filling.Wanted) bool { return slices.ContainsFunc(exclude, w.Address.IsWithin) })
			return mirrorFromOrigins(ctx, c, fill, v, func(m *filling.Mirror) ([]filling.Result, error) {
				return m.Sync(ctx, list)
			})
		}),
	}
	addFillFlags(c, cmd, &fill)
	gitFlag(cmd, &fill)
	excludeFlag(cmd, &exclude)
	return cmd
}

// readWanted reads a list, or the modules in the folder of a configuration. skip is
// that of [filling.ReadInstalled].
func readWanted(ctx context.Context, name string, skip func(source, reason string)) ([]filling.Wanted, error) {
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return filling.ReadInstalled(name, skip)
	}
	text, err := arguments.ReadFile(name, filling.MaxText)
	if err != nil {
		return nil, err
	}
	return filling.ParseList(ctx, name, text)
}
