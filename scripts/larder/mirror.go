package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/mirroring"
	"github.com/larder-registry/larder/pkg/printable"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/registry"
)

func (c *cli) mirrorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "mirror",
		Short: "Mirror providers of other registries",
		Long: `Mirror providers of other registries. Clients then get them from this registry,
by the provider network mirror protocol.

Nothing is stored before it is verified: by the signature of its origin, as
clients do, or by the hashes of the folder that it comes from. A mirrored
package does not change any more. You can add platforms to a version later. Run
any of these commands again, and it does what is left to do.`,
		Example: `  larder mirror add registry.opentofu.org/hashicorp/random --platform all
  larder mirror lock .terraform.lock.hcl --platform linux_amd64
  larder mirror sync mirror.hcl
  larder mirror import ./folder`,
	}
	cmd.AddCommand(c.mirrorAddCommand(), c.mirrorLockCommand(), c.mirrorSyncCommand(),
		c.mirrorImportCommand(), c.mirrorExportCommand())
	return cmd
}

// fromOrigins is part of the help of commands that read from origin registries.
const fromOrigins = `

An origin is found by its hostname, as clients find it, and with the credentials
that they have for it: TF_TOKEN_… in the environment, what ` + "`tofu login`" + ` or
` + "`terraform login`" + ` has stored, and the credentials and host blocks of their
configuration.

An origin must lead to public addresses only. If it is on your own network, name
its URL with --upstream, with upstream in a list, or in a host block.`

func (c *cli) mirrorAddCommand() *cobra.Command {
	var w mirroring.Wanted
	var platforms []string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "add HOSTNAME/NAMESPACE/TYPE",
		Short: "Mirror a provider from its origin registry",
		Long: `Mirror a provider from its origin registry: the newest version that meets
--version, as clients choose it, or all of them with --all. You can add
platforms to a mirrored version later.

A provider whose hostname has a port cannot be mirrored, since no client asks a
mirror for it.` + fromOrigins,
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
			return c.mirrorFromOrigins(ctx, mirrorView{DryRun: dryRun}, func(m *mirroring.Mirror) ([]mirroring.Result, error) {
				return m.Add(ctx, w)
			})
		}),
	}
	c.mirrorFlags(cmd, &dryRun)
	c.platformFlag(cmd, &platforms)
	cmd.Flags().StringVar(&w.Constraint, "version", "",
		"version `CONSTRAINT`, as in required_providers, such as '~> 3.5' (default the newest version)")
	cmd.Flags().BoolVar(&w.All, "all", false, "mirror every version that meets the constraint, not only the newest")
	cmd.Flags().StringVar(&w.Upstream, "upstream", "",
		"`URL` of the origin if it cannot be reached by its hostname: without a path, "+
			"or with that of its provider registry protocol")
	unsignedFlag(cmd, &w.AllowUnsigned)
	return cmd
}

func (c *cli) mirrorLockCommand() *cobra.Command {
	var platforms, exclude []string
	var unsigned, dryRun bool
	cmd := &cobra.Command{
		Use:   "lock FILE…",
		Short: "Mirror exactly what lock files name",
		Long: `Mirror exactly the versions that lock files (.terraform.lock.hcl) name, from
their origin registries. Each package must have a hash that the lock file names,
so that clients can install it with the lock file as it is.

Use --exclude for providers that clients get directly, such as those of your own
registry. Providers whose hostname has a port are skipped, since no client asks
a mirror for them.` + fromOrigins,
		Example: `  larder mirror lock .terraform.lock.hcl --platform linux_amd64,darwin_arm64
  larder mirror lock */.terraform.lock.hcl --platform linux_amd64 \
    --exclude registry.example.com --store stack:larder`,
		RunE: c.run(func(ctx context.Context, args []string) (view, error) {
			wanted, err := requirePlatforms(platforms)
			if err != nil {
				return nil, err
			}
			v := mirrorView{DryRun: dryRun}
			var locked []mirroring.Locked
			for _, name := range args {
				text, err := readFile(name, mirroring.MaxText)
				if err != nil {
					return nil, err
				}
				found, excluded, err := mirroring.ParseLock(ctx, name, text)
				if err != nil {
					return nil, err
				}
				for _, address := range excluded {
					v.Skipped = append(v.Skipped, skippedProvider{address, "no client can use a mirror for a hostname with a port"})
				}
				locked = append(locked, found...)
			}
			locked = slices.DeleteFunc(locked, func(l mirroring.Locked) bool { return slices.ContainsFunc(exclude, l.Named) })
			return c.mirrorFromOrigins(ctx, v, func(m *mirroring.Mirror) ([]mirroring.Result, error) {
				return m.Lock(ctx, locked, wanted, unsigned)
			})
		}),
	}
	c.mirrorFlags(cmd, &dryRun)
	c.platformFlag(cmd, &platforms)
	cmd.Flags().StringSliceVar(&exclude, "exclude", nil,
		"leave out `PROVIDERS`, such as your own: HOSTNAME, HOSTNAME/NAMESPACE or HOSTNAME/NAMESPACE/TYPE; can be repeated")
	unsignedFlag(cmd, &unsigned)
	return cmd
}

func (c *cli) mirrorSyncCommand() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "sync FILE",
		Short: "Mirror what a list names",
		Long: `Mirror what a list names and the mirror lacks, from the origin registries. The
list is a file such as

  platforms = ["linux_amd64", "darwin_arm64"]

  provider "registry.opentofu.org/hashicorp/random" {
    versions = ["~> 3.5", "3.1.0"]    # the newest version that meets each
  }

  provider "registry.example.com/acme/inventory" {
    versions       = [">= 1.0.0"]
    all            = true             # every version that meets it
    platforms      = ["all"]          # in place of those above
    upstream       = "https://10.0.0.7:8443"
    allow_unsigned = true
  }

What you take off the list stays mirrored, since lock files rely on it.` + fromOrigins,
		Example: `  larder mirror sync mirror.hcl --dry-run
  larder mirror sync mirror.hcl --store stack:larder`,
		RunE: c.run(func(ctx context.Context, args []string) (view, error) {
			text, err := readFile(args[0], mirroring.MaxText)
			if err != nil {
				return nil, err
			}
			list, err := mirroring.ParseList(ctx, args[0], text)
			if err != nil {
				return nil, err
			}
			return c.mirrorFromOrigins(ctx, mirrorView{DryRun: dryRun}, func(m *mirroring.Mirror) ([]mirroring.Result, error) {
				return m.Sync(ctx, list)
			})
		}),
	}
	c.mirrorFlags(cmd, &dryRun)
	return cmd
}

func (c *cli) mirrorImportCommand() *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "import DIR",
		Short: "Mirror a folder that `providers mirror` has written",
		Long: "Mirror what is in a folder that `tofu providers mirror` or\n" +
			"`terraform providers mirror` has written. Packages are checked against the\n" +
			"hashes in the folder's own documents. These do not tell who has signed a\n" +
			"package; `larder mirror add` of the same version finds that out later.\n\n" +
			"Providers whose hostname has a port are skipped, since no client asks a mirror\n" +
			"for them. The exit code is 0 if the folder has others, and 3 if it has none.",
		Example: `  tofu providers mirror -platform=linux_amd64 ./folder
  larder mirror import ./folder`,
		RunE: c.run(func(ctx context.Context, args []string) (view, error) {
			v := mirrorView{DryRun: dryRun}
			return c.mirror(ctx, &v, func(m *mirroring.Mirror) ([]mirroring.Result, error) {
				m.Skip = func(address, reason string) {
					v.Skipped = append(v.Skipped, skippedProvider{address, reason})
				}
				return m.Import(ctx, args[0])
			})
		}),
	}
	c.mirrorFlags(cmd, &dryRun)
	return cmd
}

func (c *cli) mirrorExportCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export DIR [HOSTNAME/NAMESPACE/TYPE…]",
		Short: "Write mirrored providers to a folder",
		Long: `Write all mirrored providers, or some, to a folder, as ` + "`tofu providers mirror`" + `
does. Use the folder as the filesystem_mirror of a machine without a network, on
a static web server, or import it into another registry. Run it again to write
what is new. Hostnames with letters outside ASCII are written in punycode, as
web servers need them.`,
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
				progress := newProgress(c)
				m := &mirroring.Mirror{Catalog: s.catalog, Objects: s.objects, Progress: progress}
				results, err := m.Export(ctx, args[0], addresses)
				progress.stop()
				return found(exportView{args[0], mirrored(results)}, len(results), err)
			})
		}),
	}
	c.storeFlags(cmd)
	return cmd
}

func (c *cli) mirrorFlags(cmd *cobra.Command, dryRun *bool) {
	c.storeFlags(cmd)
	cmd.Flags().BoolVar(dryRun, "dry-run", false, "show what would be mirrored, and stop")
}

func (c *cli) platformFlag(cmd *cobra.Command, platforms *[]string) {
	cmd.Flags().StringSliceVar(platforms, "platform", nil,
		"`PLATFORMS` to mirror, such as linux_amd64,darwin_arm64, or all; can be repeated")
}

func unsignedFlag(cmd *cobra.Command, unsigned *bool) {
	cmd.Flags().BoolVar(unsigned, "allow-unsigned", false,
		"accept packages by SHA256SUMS alone if the origin has no keys, as for some of registry.opentofu.org")
}

func requirePlatforms(names []string) ([]registry.Platform, error) {
	if len(names) == 0 {
		return nil, registry.WithHint(usagef("--platform is missing"),
			"Name platforms, such as `--platform linux_amd64,darwin_arm64`, or `--platform all`.")
	}
	platforms, err := mirroring.ParsePlatforms(names)
	if err != nil {
		return nil, usagef("--platform: %w", err)
	}
	return platforms, nil
}

// mirrorWork does something with the mirror.
type mirrorWork = func(*mirroring.Mirror) ([]mirroring.Result, error)

// mirrorFromOrigins fills the mirror by work that reads from origin registries.
func (c *cli) mirrorFromOrigins(ctx context.Context, v mirrorView, work mirrorWork) (view, error) {
	configuration, err := clientConfiguration()
	if err != nil {
		return nil, err
	}
	return c.mirror(ctx, &v, func(m *mirroring.Mirror) ([]mirroring.Result, error) {
		m.Client = client.New(configuration, "larder/"+version(), nil)
		return work(m)
	})
}

// mirror opens the store, fills the mirror by some work, and adds to a view what
// became of it. Versions that were mirrored before an error are in the view.
func (c *cli) mirror(ctx context.Context, v *mirrorView, work mirrorWork) (view, error) {
	return c.onStore(ctx, func(s *store) (view, error) {
		by, err := s.by(ctx)
		if err != nil {
			return nil, err
		}
		progress := newProgress(c)
		m := &mirroring.Mirror{
			Catalog: s.catalog, Objects: s.objects, Progress: progress, DryRun: v.DryRun,
			Publisher: &publish.Publisher{Catalog: s.catalog, Objects: s.objects, Progress: progress, By: by},
		}
		results, err := work(m)
		progress.stop()
		v.Versions = mirrored(results)
		return found(*v, len(v.Versions)+len(v.Skipped), err)
	})
}

// found returns a view with an error, and the error alone if the view has nothing.
func found(v view, n int, err error) (view, error) {
	if n == 0 && err != nil {
		return nil, err
	}
	return v, err
}

// mirrorView is what became of the providers to mirror.
type mirrorView struct {
	// DryRun says that nothing was mirrored, and only what would be is listed.
	DryRun   bool              `json:"dry_run"`
	Versions []mirroredVersion `json:"versions"`
	// Skipped are providers that cannot be mirrored.
	Skipped []skippedProvider `json:"skipped,omitempty"`
}

// skippedProvider is a provider that cannot be mirrored, and why.
type skippedProvider struct {
	Address string `json:"address"`
	Reason  string `json:"reason"`
}

// mirroredVersion is what became of one version of a provider.
type mirroredVersion struct {
	Address string           `json:"address"`
	Version registry.Version `json:"version"`
	// SigningKey is the id of the key that has signed the version; empty if no
	// signature was verified.
	SigningKey string            `json:"signing_key,omitempty"`
	Packages   []mirroredPackage `json:"packages"`
	// Notes are what those who rely on the mirror should know.
	Notes []string `json:"notes,omitempty"`

	changed bool
	owner   string
}

// mirroredPackage is what became of the package for one platform.
type mirroredPackage struct {
	Platform string `json:"platform"`
	// Status is added, unchanged, verified (it was there without a signature) or
	// restored (its file was missing from the store).
	Status string `json:"status"`
}

func mirrored(results []mirroring.Result) []mirroredVersion {
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
		p.printf("There is nothing to do.\n")
	}
	for _, one := range v.Versions {
		one.text(p, verb)
	}
	for _, s := range v.Skipped {
		p.printf("%s\n", p.Wrap("Skipped "+printable.Escape(s.Address)+": "+s.Reason))
	}
}

func (v mirroredVersion) text(p page, verb string) {
	if !v.changed {
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

// exportView is what was written to a folder.
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
