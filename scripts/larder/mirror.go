package main

import (
	"cmp"
	"errors"
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
		Long: `Mirror providers of other registries, so that clients get them from this one, by the provider network mirror protocol.

Before anything is stored it is verified: by the signature of its origin, as clients do, or by the hashes of the folder that it
comes from. What is mirrored does not change any more; platforms can be added to a version later. All of this can be run
again, and does then what is left to do.`,
		Example: `  larder mirror add registry.opentofu.org/hashicorp/random --version '~> 3.5' --platform linux_amd64,darwin_arm64
  larder mirror lock .terraform.lock.hcl --platform linux_amd64
  larder mirror sync mirror.hcl
  larder mirror import ./folder`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(c.mirrorAddCommand(), c.mirrorLockCommand(), c.mirrorSyncCommand(), c.mirrorImportCommand(), c.mirrorExportCommand())
	return cmd
}

// fromOrigins is what commands that read from origin registries tell their users of it.
const fromOrigins = `

An origin is found by its hostname, as clients find it. Its credentials are theirs too: TF_TOKEN_… in the environment, what
` + "`tofu login`" + ` or ` + "`terraform login`" + ` has stored, and the credentials and host blocks of the configuration.

An origin may lead only to public addresses. If it is on your own network, name its URL by --upstream, by upstream in a
list, or in a host block.`

func (c *cli) mirrorAddCommand() *cobra.Command {
	var w mirroring.Wanted
	var platforms []string
	cmd := &cobra.Command{
		Use:   "add HOSTNAME/NAMESPACE/TYPE",
		Short: "Mirror a provider from its origin registry",
		Long: `Mirror a provider from its origin registry: the newest version that meets --version, as clients choose it, or with --all all of
them. Later platforms can be added to a version that is mirrored.

Provider addresses whose hostname has a port cannot be mirrored: no client asks a mirror for them.` + fromOrigins,
		Example: `  larder mirror add registry.opentofu.org/hashicorp/random --version '~> 3.5' --platform linux_amd64,darwin_arm64
  larder mirror add registry.terraform.io/hashicorp/aws --version 5.100.0 --platform all
  larder mirror add registry.example.com/acme/inventory --upstream https://10.0.0.7:8443 --platform linux_amd64`,
		Args: usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if w.Address, err = registry.ParseMirrorProvider(args[0]); err != nil {
				return err
			}
			if w.Platforms, err = requirePlatforms(platforms); err != nil {
				return err
			}
			return c.mirrorFromOrigins(cmd, func(m *mirroring.Mirror) ([]mirroring.Result, error) { return m.Add(cmd.Context(), w) })
		},
	}
	c.mirrorFlags(cmd)
	platformFlag(cmd, &platforms)
	cmd.Flags().StringVar(&w.Constraint, "version", "", "version constraint, as in required_providers, such as '~> 3.5'; without it the newest version is taken")
	cmd.Flags().BoolVar(&w.All, "all", false, "mirror every version that meets the constraint, not only the newest")
	cmd.Flags().StringVar(&w.Upstream, "upstream", "", "where the origin is, if it cannot be reached by its hostname: a URL without a path, or with that of its provider registry protocol")
	unsignedFlag(cmd, &w.AllowUnsigned)
	return cmd
}

func (c *cli) mirrorLockCommand() *cobra.Command {
	var platforms, exclude []string
	var unsigned bool
	cmd := &cobra.Command{
		Use:   "lock FILE…",
		Short: "Mirror exactly what lock files name",
		Long: `Mirror exactly the versions that lock files (.terraform.lock.hcl) name, from their origin registries. Each package must have a hash
that the lock file names, so that clients install it with the lock file as it is. Providers of your own registry, which clients get from
there directly, are left out by --exclude.` + fromOrigins,
		Example: `  larder mirror lock .terraform.lock.hcl --platform linux_amd64,darwin_arm64
  larder mirror lock */.terraform.lock.hcl --platform linux_amd64 --exclude registry.example.com --store stack:larder`,
		Args: usage(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			wanted, err := requirePlatforms(platforms)
			if err != nil {
				return err
			}
			var locked []mirroring.Locked
			for _, name := range args {
				text, err := readFile(name, mirroring.MaxText)
				if err != nil {
					return err
				}
				found, leftOut, err := mirroring.ParseLock(cmd.Context(), name, text)
				if err != nil {
					return err
				}
				for _, address := range leftOut {
					fmt.Fprintf(c.stderr, "leaving out %s: no client asks a mirror for a hostname with a port\n", address)
				}
				locked = append(locked, found...)
			}
			locked = slices.DeleteFunc(locked, func(l mirroring.Locked) bool { return slices.ContainsFunc(exclude, l.Named) })
			return c.mirrorFromOrigins(cmd, func(m *mirroring.Mirror) ([]mirroring.Result, error) {
				return m.Lock(cmd.Context(), locked, wanted, unsigned)
			})
		},
	}
	c.mirrorFlags(cmd)
	platformFlag(cmd, &platforms)
	cmd.Flags().StringSliceVar(&exclude, "exclude", nil, "leave out providers of HOSTNAME, HOSTNAME/NAMESPACE or HOSTNAME/NAMESPACE/TYPE, such as your own; can be repeated")
	unsignedFlag(cmd, &unsigned)
	return cmd
}

func (c *cli) mirrorSyncCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sync FILE",
		Short: "Mirror what a list names",
		Long: `Mirror what a list names and the mirror lacks, from the origin registries. The list is a file such as

  platforms = ["linux_amd64", "darwin_arm64"]

  provider "registry.opentofu.org/hashicorp/random" {
    versions = ["~> 3.5", "3.1.0"]    # of each the newest that meets it
  }

  provider "registry.example.com/acme/inventory" {
    versions       = [">= 1.0.0"]
    all            = true             # every version that meets it
    platforms      = ["all"]          # what there is, in place of those above
    upstream       = "https://10.0.0.7:8443"
    allow_unsigned = true
  }

What the list does not name, or not any more, stays mirrored, since lock files rely on it.` + fromOrigins,
		Example: `  larder mirror sync mirror.hcl --dry-run
  larder mirror sync mirror.hcl --store stack:larder`,
		Args: usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := readFile(args[0], mirroring.MaxText)
			if err != nil {
				return err
			}
			list, err := mirroring.ParseList(cmd.Context(), args[0], text)
			if err != nil {
				return err
			}
			return c.mirrorFromOrigins(cmd, func(m *mirroring.Mirror) ([]mirroring.Result, error) { return m.Sync(cmd.Context(), list) })
		},
	}
	c.mirrorFlags(cmd)
	return cmd
}

func (c *cli) mirrorImportCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "import DIR",
		Short: "Mirror what is in a folder that `providers mirror` has written",
		Long: "Mirror what is in a folder that `tofu providers mirror` or `terraform providers mirror` has written, checked against the hashes that the\n" +
			"folder's own documents name. Nothing says who signed it; `larder mirror add` of the same version finds that out later.\n\n" +
			"Providers whose hostname has a port are skipped and named, because no client asks a mirror for them.\n" +
			"The exit code is 0 if the folder has others, and 3 if it has none.",
		Example: `  tofu providers mirror -platform=linux_amd64 ./folder
  larder mirror import ./folder`,
		Args: usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.mirror(cmd, true, func(m *mirroring.Mirror) ([]mirroring.Result, error) {
				m.Skip = func(address, reason string) {
					c.skipped = append(c.skipped, skippedProvider{address, reason})
				}
				return m.Import(cmd.Context(), args[0])
			})
		},
	}
	c.mirrorFlags(cmd)
	return cmd
}

func (c *cli) mirrorExportCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export DIR [HOSTNAME/NAMESPACE/TYPE…]",
		Short: "Write what is mirrored to a folder",
		Long: `Write what is mirrored, all of it or some providers, to a folder as ` + "`tofu providers mirror`" + ` does: for clients' filesystem_mirror on a
machine without a network, for a static web server, or for another registry to import. Run again it writes what is new. A hostname with
other letters than ASCII's is written as a web server needs it, in punycode.`,
		Example: `  larder mirror export ./folder
  larder mirror export ./folder registry.opentofu.org/hashicorp/random`,
		Args: usage(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			var addresses []registry.MirrorProvider
			for _, arg := range args[1:] {
				address, err := registry.ParseMirrorProvider(arg)
				if err != nil {
					return err
				}
				addresses = append(addresses, address)
			}
			return c.mirror(cmd, false, func(m *mirroring.Mirror) ([]mirroring.Result, error) {
				return m.Export(cmd.Context(), args[0], addresses)
			})
		},
	}
	c.storeFlag(cmd)
	return cmd
}

func (c *cli) mirrorFlags(cmd *cobra.Command) {
	c.storeFlag(cmd)
	cmd.Flags().BoolVar(&c.dryRun, "dry-run", false, "show what would be mirrored, and end")
}

func platformFlag(cmd *cobra.Command, platforms *[]string) {
	cmd.Flags().StringSliceVar(platforms, "platform", nil, "platforms to mirror, such as linux_amd64,darwin_arm64, or all; can be repeated")
}

func unsignedFlag(cmd *cobra.Command, unsigned *bool) {
	cmd.Flags().BoolVar(unsigned, "allow-unsigned", false, "take packages by SHA256SUMS alone where the origin names no keys, as some of registry.opentofu.org do")
}

func requirePlatforms(names []string) ([]registry.Platform, error) {
	if len(names) == 0 {
		return nil, usageError{errors.New("say which platforms to mirror, such as --platform linux_amd64,darwin_arm64, or --platform all")}
	}
	return mirroring.ParsePlatforms(names)
}

// mirrorFromOrigins does work that reads from origin registries.
func (c *cli) mirrorFromOrigins(cmd *cobra.Command, work func(*mirroring.Mirror) ([]mirroring.Result, error)) error {
	configuration, err := clientConfiguration()
	if err != nil {
		return err
	}
	return c.mirror(cmd, true, func(m *mirroring.Mirror) ([]mirroring.Result, error) {
		m.Client = client.New(configuration, "larder/"+version(), nil)
		return work(m)
	})
}

// mirror opens the store, does work that writes to it or only reads, and reports it.
func (c *cli) mirror(cmd *cobra.Command, writes bool, work func(*mirroring.Mirror) ([]mirroring.Result, error)) (err error) {
	data, err := c.openStore(cmd.Context())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, data.close()) }()
	progress := newProgress(c)
	m := &mirroring.Mirror{
		Catalog: data.catalog, Objects: data.objects, Progress: progress, DryRun: c.dryRun,
		Publisher: &publish.Publisher{Catalog: data.catalog, Objects: data.objects, Progress: progress},
	}
	if writes {
		if m.Publisher.By, err = data.by(cmd.Context()); err != nil {
			progress.stop()
			return err
		}
	}
	results, err := work(m)
	progress.stop()
	if err != nil && c.json {
		return err
	}
	if len(results) == 0 && len(c.skipped) == 0 && err == nil && !c.json {
		c.printf("There is nothing to do.\n")
	}
	return errors.Join(err, c.reportMirror(results, writes))
}

// reportMirror tells what became of versions: mirrored ones, or exported.
func (c *cli) reportMirror(results []mirroring.Result, mirrored bool) error {
	verb := "Mirrored"
	switch {
	case c.dryRun:
		verb = "Would mirror"
	case !mirrored:
		verb = "Exported"
	}
	if c.json {
		type platform struct {
			Platform string `json:"platform"`
			Status   string `json:"status"`
		}
		type version struct {
			Address    string           `json:"address"`
			Version    registry.Version `json:"version"`
			SigningKey string           `json:"signing_key,omitempty"`
			Packages   []platform       `json:"packages"`
			Notes      []string         `json:"notes,omitempty"`
		}
		out := []version{}
		for _, r := range results {
			v := version{r.Address.String(), r.Version, r.Signer, []platform{}, r.Notes}
			for _, p := range r.Packages {
				v.Packages = append(v.Packages, platform{p.Platform.String(), p.Status})
			}
			out = append(out, v)
		}
		return c.printJSON(struct {
			DryRun   bool              `json:"dry_run"`
			Versions []version         `json:"versions"`
			Skipped  []skippedProvider `json:"skipped,omitempty"`
		}{c.dryRun, out, c.skipped})
	}
	for _, r := range results {
		say := verb
		if !r.Changed() {
			say = "Unchanged:"
		}
		c.printf("%s %s %s\n", say, r.Address, r.Version)
		for _, p := range r.Packages {
			c.printf("  %-16s %s\n", p.Platform, p.Status)
		}
		if r.Signer != "" {
			c.printf("  signed by %s, %s\n", r.Signer, cmp.Or(r.Owner, "which names no owner"))
		}
		for _, note := range r.Notes {
			c.printf("  note: %s\n", note)
		}
	}
	for _, s := range c.skipped {
		c.printf("Skipped %s: %s\n", printable.Escape(s.Address), s.Reason)
	}
	return nil
}

// skippedProvider is a provider that cannot be mirrored, and why.
type skippedProvider struct {
	Address string `json:"address"`
	Reason  string `json:"reason"`
}
