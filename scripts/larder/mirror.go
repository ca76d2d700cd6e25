package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/mirror/filling"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/printable"
)

func (c *cli) mirrorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mirror",
		Short: "Mirror providers from other registries",
		Long: `Mirror providers from other registries. Clients then get them from this registry
through the provider network mirror protocol.

The mirror verifies each package before it stores it. It verifies the signature
of the origin registry, as clients do, or the hashes in an imported folder. A
mirrored package never changes. You can add platforms to a version later. If a
command is interrupted, run it again to finish.

A version is not mirrored if it is younger than the mirror policy allows, or if
the key that signed it is not trusted. The exit code is then 8.`,
		Example: `  larder mirror add registry.opentofu.org/hashicorp/random --platform all
  larder mirror lock .terraform.lock.hcl --platform linux_amd64
  larder mirror sync mirror.hcl
  larder mirror import ./folder
  larder mirror trust registry.opentofu.org/hashicorp/random 34365D9472D7468F`,
	}
	cmd.AddCommand(c.mirrorAddCommand(), c.mirrorLockCommand(), c.mirrorSyncCommand(),
		c.mirrorImportCommand(), c.mirrorExportCommand(), c.mirrorAdmitCommand(), c.mirrorTrustCommand(),
		c.mirrorPolicyCommand())
	return cmd
}

// fromOrigins is part of the help of commands that read from origin registries.
const fromOrigins = findsOrigins + `

An origin can lead only to public addresses. If your origin is on a private
network, give its URL with --upstream, with upstream in a list, or in a host
block.`

// findsOrigins is how these commands find an origin.
const findsOrigins = `

The command finds the origin registry by its hostname, in the same way as
clients do. It uses the clients' credentials: TF_TOKEN_… variables, tokens that
` + "`tofu login`" + ` or ` + "`terraform login`" + ` has stored, and the credentials and host
blocks of their configuration.`

func (c *cli) mirrorAddCommand() *cobra.Command {
	var w filling.Wanted
	var platforms []string
	var fill fillFlags
	cmd := &cobra.Command{
		Use:   "add HOSTNAME/NAMESPACE/TYPE",
		Short: "Mirror a provider from its origin registry",
		Long: `Mirror a provider from its origin registry: the newest version that matches
--version, or with --all every version that matches. You can add platforms to a
mirrored version later.

You cannot mirror a provider whose hostname has a port, because clients do not
use mirrors for it.` + fromOrigins,
		Example: `  larder mirror add registry.opentofu.org/hashicorp/random --version '~> 3.5' \
    --platform linux_amd64,darwin_arm64
  larder mirror add registry.terraform.io/hashicorp/aws --version 5.100.0 \
    --platform all
  larder mirror add registry.example.com/acme/inventory --platform linux_amd64 \
    --upstream https://10.0.0.7:8443`,
		RunE: c.run(func(ctx context.Context, args []string) (_ view, err error) {
			if w.Address, err = registry.ParseMirrorProvider(args[0]); err != nil {
				return nil, err
			}
			if w.Platforms, err = requirePlatforms(platforms); err != nil {
				return nil, err
			}
			return c.mirrorFromOrigins(ctx, fill, mirrorView{}, func(m *filling.Mirror) ([]filling.Result, error) {
				return m.Add(ctx, w)
			})
		}),
	}
	c.fillFlags(cmd, &fill)
	platformFlag(cmd, &platforms)
	cmd.Flags().StringVar(&w.Constraint, "version", "",
		"version `CONSTRAINT`, as in required_providers, such as '~> 3.5' (default the newest version)")
	cmd.Flags().BoolVar(&w.All, "all", false, "mirror every version that matches the constraint, not only the newest")
	upstreamFlag(cmd, &w.Upstream)
	unsignedFlag(cmd, &w.AllowUnsigned)
	return cmd
}

func (c *cli) mirrorLockCommand() *cobra.Command {
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
		RunE: c.run(func(ctx context.Context, args []string) (view, error) {
			wanted, err := requirePlatforms(platforms)
			if err != nil {
				return nil, err
			}
			var v mirrorView
			var locked []filling.Locked
			for _, name := range args {
				text, err := readFile(name, filling.MaxText)
				if err != nil {
					return nil, err
				}
				found, excluded, err := filling.ParseLock(ctx, name, text)
				if err != nil {
					return nil, err
				}
				for _, address := range excluded {
					v.Skipped = append(v.Skipped, skippedProvider{address, "clients do not use mirrors for a hostname with a port"})
				}
				locked = append(locked, found...)
			}
			locked = slices.DeleteFunc(locked, func(l filling.Locked) bool { return slices.ContainsFunc(exclude, l.Named) })
			return c.mirrorFromOrigins(ctx, fill, v, func(m *filling.Mirror) ([]filling.Result, error) {
				return m.Lock(ctx, locked, wanted, unsigned)
			})
		}),
	}
	c.fillFlags(cmd, &fill)
	platformFlag(cmd, &platforms)
	cmd.Flags().StringSliceVar(&exclude, "exclude", nil,
		"exclude `PROVIDERS`, such as your own: HOSTNAME, HOSTNAME/NAMESPACE or "+
			"HOSTNAME/NAMESPACE/TYPE; can be repeated")
	unsignedFlag(cmd, &unsigned)
	return cmd
}

func (c *cli) mirrorSyncCommand() *cobra.Command {
	var fill fillFlags
	cmd := &cobra.Command{
		Use:   "sync FILE",
		Short: "Mirror the providers in a list",
		Long: `Mirror the providers in a list from their origin registries, except for packages
that the mirror already has. The list is a file such as

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

Versions that you remove from the list stay mirrored, because lock files may
need them.` + fromOrigins,
		Example: `  larder mirror sync mirror.hcl --dry-run
  larder mirror sync mirror.hcl --store stack:larder`,
		RunE: c.run(func(ctx context.Context, args []string) (view, error) {
			text, err := readFile(args[0], filling.MaxText)
			if err != nil {
				return nil, err
			}
			list, err := filling.ParseList(ctx, args[0], text)
			if err != nil {
				return nil, err
			}
			return c.mirrorFromOrigins(ctx, fill, mirrorView{}, func(m *filling.Mirror) ([]filling.Result, error) {
				return m.Sync(ctx, list)
			})
		}),
	}
	c.fillFlags(cmd, &fill)
	return cmd
}

func (c *cli) mirrorImportCommand() *cobra.Command {
	var fill fillFlags
	cmd := &cobra.Command{
		Use:   "import DIR",
		Short: "Mirror providers from a folder",
		Long: "Mirror providers from a folder that `tofu providers mirror` or\n" +
			"`terraform providers mirror` has written. The command verifies the hashes in\n" +
			"the folder's JSON files. If `larder mirror export` has written the folder, the\n" +
			"command also verifies the signature of the origin. Otherwise you can verify it\n" +
			"later with `larder mirror add`.\n\n" +
			"The command skips providers whose hostname has a port, because clients do not\n" +
			"use mirrors for them. If the folder has no other provider, the exit code is 3.",
		Example: `  tofu providers mirror -platform=linux_amd64 ./folder
  larder mirror import ./folder`,
		RunE: c.run(func(ctx context.Context, args []string) (view, error) {
			var v mirrorView
			return c.mirror(ctx, fill, &v, func(m *filling.Mirror) ([]filling.Result, error) {
				m.Skip = func(address, reason string) {
					v.Skipped = append(v.Skipped, skippedProvider{address, reason})
				}
				return m.Import(ctx, args[0])
			})
		}),
	}
	c.fillFlags(cmd, &fill)
	return cmd
}

func (c *cli) mirrorExportCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export DIR [HOSTNAME/NAMESPACE/TYPE…]",
		Short: "Write mirrored providers to a folder",
		Long: `Write all mirrored providers, or those that you name, to a folder in the format
of ` + "`tofu providers mirror`" + `. Use the folder as the filesystem_mirror of a machine
without a network, serve it with a static web server, or import it into another
registry. Run the command again to add new versions. Hostnames with non-ASCII
letters are in punycode, as web servers need them.

Beside the zips of a version, the folder has SHA256SUMS as its origin signed it,
the signature, and the origin's keys. Clients ignore these files.`,
		Example: `  larder mirror export ./folder
  larder mirror export ./folder registry.opentofu.org/hashicorp/random`,
		RunE: c.run(func(ctx context.Context, args []string) (view, error) {
			var addresses []registry.MirrorProvider
			for _, arg := range args[1:] {
				address, err := registry.ParseMirrorProvider(arg)
				if err != nil {
					return nil, err
				}
				addresses = append(addresses, address)
			}
			return c.onStore(ctx, func(s *store) (view, error) {
				progress := c.newProgress()
				m := &filling.Mirror{Catalog: s.catalog, Objects: s.objects, Progress: progress}
				results, err := m.Export(ctx, args[0], addresses)
				progress.stop()
				return partialView(exportView{args[0], mirrored(results)}, len(results), err)
			})
		}),
	}
	c.storeFlags(cmd)
	return cmd
}

// fillFlags are the flags of all commands that fill the mirror.
type fillFlags struct {
	dryRun   bool
	overrule string
}

func (c *cli) fillFlags(cmd *cobra.Command, fill *fillFlags) {
	c.storeFlags(cmd)
	cmd.Flags().BoolVar(&fill.dryRun, "dry-run", false, "show what would be mirrored without mirroring it")
	cmd.Flags().Func("overrule",
		"mirror also what the policy does not allow, for a `REASON` of one line; the audit trail shows it for each version",
		func(reason string) error {
			fill.overrule = reason
			return rules.CheckReason(reason)
		})
}

func platformFlag(cmd *cobra.Command, platforms *[]string) {
	cmd.Flags().StringSliceVar(platforms, "platform", nil,
		"`PLATFORMS` to mirror, such as linux_amd64,darwin_arm64, or all; can be repeated")
}

func upstreamFlag(cmd *cobra.Command, upstream *string) {
	cmd.Flags().StringVar(upstream, "upstream", "",
		"`URL` of the origin, if not its hostname: without a path, "+
			"or with the path of its provider registry protocol")
}

func unsignedFlag(cmd *cobra.Command, unsigned *bool) {
	cmd.Flags().BoolVar(unsigned, "allow-unsigned", false,
		"if the origin has no keys, accept packages without a signature, as for some providers of "+
			"registry.opentofu.org")
}

// requirePlatforms parses --platform. It returns an error if the flag is
// missing.
func requirePlatforms(names []string) ([]registry.Platform, error) {
	if len(names) == 0 {
		return nil, registry.WithHint(usagef("--platform is missing"),
			"Give platforms, for example `--platform linux_amd64,darwin_arm64` or `--platform all`.")
	}
	platforms, err := filling.ParsePlatforms(names)
	if err != nil {
		return nil, usagef("--platform: %w", err)
	}
	return platforms, nil
}

// mirrorWork adds packages to the mirror and returns the result for each
// version.
type mirrorWork = func(*filling.Mirror) ([]filling.Result, error)

// mirrorFromOrigins is like mirror, for work that reads from origin registries.
func (c *cli) mirrorFromOrigins(ctx context.Context, fill fillFlags, v mirrorView, work mirrorWork) (view, error) {
	configuration, err := clientConfiguration()
	if err != nil {
		return nil, err
	}
	return c.mirror(ctx, fill, &v, func(m *filling.Mirror) ([]filling.Result, error) {
		m.Client = client.New(configuration, c.agent, nil)
		return work(m)
	})
}

// mirror opens the store, calls work, and adds its results to the view. If work
// fails, the view has the versions that it mirrored before.
func (c *cli) mirror(ctx context.Context, fill fillFlags, v *mirrorView, work mirrorWork) (view, error) {
	v.DryRun = fill.dryRun
	return c.onStore(ctx, func(s *store) (view, error) {
		m, err := c.newMirror(ctx, s)
		if err != nil {
			return nil, err
		}
		progress := c.newProgress()
		m.Progress, m.Publisher.Progress = progress, progress
		m.DryRun, m.Overrule = fill.dryRun, fill.overrule
		results, err := work(m)
		progress.stop()
		v.Versions = mirrored(results)
		return partialView(*v, len(v.Versions)+len(v.Skipped), err)
	})
}

func (c *cli) newMirror(ctx context.Context, s *store) (*filling.Mirror, error) {
	by, err := s.by(ctx)
	if err != nil {
		return nil, err
	}
	return &filling.Mirror{
		Catalog: s.catalog, Objects: s.objects, Now: c.now,
		Publisher: &publish.Publisher{Catalog: s.catalog, Objects: s.objects, By: by},
	}, nil
}

// partialView returns v and err. It returns only err if v has no entries. n is
// the number of entries in v.
func partialView(v view, n int, err error) (view, error) {
	if n == 0 && err != nil {
		return nil, err
	}
	return v, err
}

// mirrorView is the result of mirroring providers.
type mirrorView struct {
	// DryRun is true if the command mirrored nothing and only lists what it
	// would mirror.
	DryRun   bool              `json:"dry_run"`
	Versions []mirroredVersion `json:"versions"`
	// Skipped lists the providers that cannot be mirrored.
	Skipped []skippedProvider `json:"skipped,omitempty"`
}

// skippedProvider is a provider that cannot be mirrored, and why.
type skippedProvider struct {
	Address string `json:"address"`
	Reason  string `json:"reason"`
}

// mirroredVersion is the result for one version of a provider.
type mirroredVersion struct {
	Address string           `json:"address"`
	Version registry.Version `json:"version"`
	// SigningKey is the ID of the key that has signed the version. It is
	// missing if no signature was verified.
	SigningKey string            `json:"signing_key,omitempty"`
	Packages   []mirroredPackage `json:"packages"`
	// Notes are remarks for users of the mirror.
	Notes []string `json:"notes,omitempty"`

	changed bool
	owner   string
}

// mirroredPackage is the result for the package of one platform.
type mirroredPackage struct {
	Platform string `json:"platform"`
	// Status is added, unchanged, verified or restored. It is verified if the
	// mirror had the package without a signature, and restored if the store had
	// lost the file.
	Status string `json:"status"`
}

func mirrored(results []filling.Result) []mirroredVersion {
	versions := []mirroredVersion{}
	for _, r := range results {
		v := mirroredVersion{
			Address: r.Address.String(), Version: r.Version, SigningKey: r.Signer, Packages: []mirroredPackage{},
			Notes: r.Notes, changed: r.Changed(), owner: cmp.Or(r.Owner, "which names no owner"),
		}
		for _, p := range r.Packages {
			v.Packages = append(v.Packages, mirroredPackage{p.Platform.String(), p.Status})
		}
		versions = append(versions, v)
	}
	return versions
}

func (v mirrorView) text(p page) {
	verb := "Mirrored"
	if v.DryRun {
		verb = "Would mirror"
	}
	if len(v.Versions)+len(v.Skipped) == 0 {
		p.printf("There are no providers to mirror.\n")
	}
	for _, one := range v.Versions {
		one.text(p, verb)
	}
	for _, s := range v.Skipped {
		p.printf("%s\n", p.Wrap("Skipped "+printable.Escape(s.Address)+": "+s.Reason))
	}
}

func (v mirroredVersion) text(p page, verb string) {
	switch {
	case len(v.Packages) == 0: // a note has the reason
		verb = "Skipped"
	case !v.changed:
		verb = "Unchanged:"
	}
	p.printf("%s\n", p.Wrap(fmt.Sprintf("%s %s %s", verb, v.Address, v.Version)))
	for _, pkg := range v.Packages {
		p.printf("  %-16s %s\n", pkg.Platform, p.Paint(pkg.Status, paintState(pkg.Status)))
	}
	if v.SigningKey != "" {
		p.printf("%s\n", p.Wrap(fmt.Sprintf("  signed by %s, %s", v.SigningKey, printable.Escape(v.owner))))
	}
	for _, note := range v.Notes {
		p.printf("%s\n", p.Wrap("  note: "+note))
	}
}

// exportView is the result of writing mirrored providers to a folder.
type exportView struct {
	Folder   string            `json:"folder"`
	Versions []mirroredVersion `json:"versions"`
}

func (v exportView) text(p page) {
	if len(v.Versions) == 0 {
		p.printf("Nothing is mirrored yet.\n")
	}
	for _, one := range v.Versions {
		one.text(p, "Exported")
	}
}
