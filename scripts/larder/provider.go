package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/publishapi/publishclient"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/releases"
	"github.com/larder-registry/larder/pkg/signing"
)

// passphraseFromEnv names the variable with what opens a private key.
const passphraseFromEnv = "LARDER_SIGN_PASSPHRASE" //nolint:gosec // a name, not a secret

func (c *cli) publishProviderCommand() *cobra.Command {
	var m releases.Provider
	var dryRun bool
	var signKey string
	cmd := &cobra.Command{
		Use:   "provider DIR NAMESPACE/TYPE",
		Short: "Publish the release of a provider in a folder",
		Long: `Publish the release of a provider in a folder, as goreleaser leaves it:

  terraform-provider-TYPE_VERSION_OS_ARCH.zip     one for each platform
  terraform-provider-TYPE_VERSION_SHA256SUMS      the sums of these files
  terraform-provider-TYPE_VERSION_SHA256SUMS.sig  its detached signature
  terraform-provider-TYPE_VERSION_manifest.json   the protocols of plugins

The version is that of the file names. Names, sums, the files of each zip and
the signature by a key of the namespace (see larder key) are checked before
anything is sent. Zips are unpacked on their way to a store: if one is damaged,
the publish ends before the store has all of it.

If you only have zips, use --sign-key: it makes SHA256SUMS and signs it. The
passphrase is that of ` + passphraseFromEnv + `, or is asked for at a terminal.

Publishing the same SHA256SUMS again changes nothing and succeeds. Other sums
under the same version are refused with exit code 4. A publish that was
interrupted has left nothing visible: run it again, and it sends only what is
missing.` + throughRegistry + dryThroughRegistry,
		Example: `  larder publish provider ./dist acme/inventory
  larder publish provider ./dist acme/inventory --store stack:larder
  larder publish provider ./dist acme/inventory --registry https://HOST
  larder publish provider ./zips acme/inventory --sign-key k.asc --protocol 6.0`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 3 {
				if _, err := registry.ParseTag(args[2]); err == nil {
					return registry.WithHint(usagef("unexpected argument %q", args[2]),
						"The version of a provider comes from the names of its files: leave out %s.", args[2])
				}
			}
			return namedArguments(cmd, args)
		},
		RunE: c.run(func(ctx context.Context, args []string) (_ view, err error) {
			m.Dir = args[0]
			if m.Address, err = registry.ParseProvider(args[1]); err != nil {
				return nil, err
			}
			if signKey != "" {
				if m.SignKey, err = readFile(signKey, maxKeyFile); err != nil {
					return nil, err
				}
				m.Passphrase = []byte(os.Getenv(passphraseFromEnv))
			}
			to, err := c.publishPlace()
			if err != nil {
				return nil, err
			}
			v := publishedProviderView{Address: m.Address.String(), dryRun: dryRun}
			if to.host != "" {
				return c.publishProviderThrough(ctx, to, m, v, signKey)
			}
			return c.onStore(ctx, func(s *store) (view, error) { return c.publishProvider(ctx, s, m, v, signKey) })
		}),
	}
	c.registryFlags(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "check everything, show what would be published, and end")
	cmd.Flags().StringVar(&signKey, "sign-key", "",
		"`FILE` with the private key to sign with, if the release is not signed")
	cmd.Flags().StringArrayVar(&m.Protocols, "protocol", nil,
		"`PROTOCOL` of plugins that the provider speaks, such as 6.0, if there is no manifest; can be repeated")
	return cmd
}

// publishProvider publishes to a store.
func (c *cli) publishProvider(
	ctx context.Context, s *store, m releases.Provider, v publishedProviderView, signKey string,
) (view, error) {
	publisher := publish.Publisher{Catalog: s.catalog, Objects: s.objects}
	var err error
	if publisher.By, err = s.by(ctx); err != nil {
		return nil, err
	}
	var result releases.ProviderResult
	err = c.withPassphrase(ctx, &m, signKey, func(progress *steps) (err error) {
		publisher.Progress = progress
		do := publisher.Provider
		if v.dryRun {
			do = publisher.CheckProvider
		}
		result, err = do(ctx, m)
		return err
	})
	if err != nil {
		return nil, hintAtNext(ctx, s.catalog.Providers.All, m.Address, err)
	}
	v.to, v.host = c.about.name, c.addressingOf(s)
	return c.providerResult(v, result), nil
}

// publishProviderThrough publishes through a registry's own endpoint. A dry run
// does not ask the registry.
func (c *cli) publishProviderThrough(
	ctx context.Context, to place, m releases.Provider, v publishedProviderView, signKey string,
) (view, error) {
	c.sayAbout()
	var result releases.ProviderResult
	err := c.withPassphrase(ctx, &m, signKey, func(progress *steps) error {
		prepared, err := releases.Preparer{Progress: progress}.Provider(ctx, m)
		if err != nil {
			return err
		}
		if v.dryRun {
			result = prepared.ProviderResult
			return nil
		}
		return c.throughEndpoint(ctx, to.host, func(p *publishclient.Publisher) error {
			p.Progress = progress
			result, err = p.Provider(ctx, prepared)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	if v.dryRun {
		v.NotChecked = to.host
	}
	v.to, v.host = to.host, addressing{host: to.host}
	return c.providerResult(v, result), nil
}

// withPassphrase publishes, and does so again if that needs a passphrase and there
// is somebody to ask for it.
func (c *cli) withPassphrase(ctx context.Context, m *releases.Provider, signKey string, do func(*steps) error) error {
	progress := newProgress(c)
	err := do(progress)
	progress.stop()
	if errors.Is(err, signing.ErrPassphrase) && len(m.Passphrase) == 0 && term.IsTerminal(int(os.Stdin.Fd())) {
		fmt.Fprintf(c.stderr, "Passphrase of %s: ", signKey)
		m.Passphrase, err = readPassphrase(ctx)
		fmt.Fprintln(c.stderr)
		if err != nil {
			return err
		}
		progress = newProgress(c)
		err = do(progress)
		progress.stop()
	}
	if errors.Is(err, signing.ErrPassphrase) {
		return registry.WithHint(fmt.Errorf("cannot sign with %s: %w", signKey, err),
			"Put the passphrase into %s, or run this at a terminal.", passphraseFromEnv)
	}
	return err
}

// readPassphrase reads a line of the terminal without showing it. If it is
// interrupted, it leaves the terminal as it was.
func readPassphrase(ctx context.Context) ([]byte, error) {
	terminal := int(os.Stdin.Fd())
	state, err := term.GetState(terminal)
	if err != nil {
		return nil, err
	}
	type answer struct {
		text []byte
		err  error
	}
	read := make(chan answer, 1)
	go func() {
		text, err := term.ReadPassword(terminal)
		read <- answer{text, err}
	}()
	select {
	case a := <-read:
		return a.text, a.err
	case <-ctx.Done():
		return nil, errors.Join(ctx.Err(), term.Restore(terminal, state))
	}
}

func platformNames(platforms []registry.Platform) string {
	names := make([]string, len(platforms))
	for i, p := range platforms {
		names[i] = p.String()
	}
	return strings.Join(names, ", ")
}

// publishedProviderView is what became of the publish of a provider.
type publishedProviderView struct {
	// Status is published, unchanged, restored or, if it was a dry run that found
	// nothing published, dry_run.
	Status  string `json:"status"`
	Address string `json:"address"`
	registry.ProviderVersion
	// Shared are platforms with the same content, for which OpenTofu gets no hashes.
	Shared []registry.Platform `json:"shared,omitempty"`
	// Dropped are platforms that the version before has, and this one has not.
	Dropped *protocol.DroppedPlatforms `json:"dropped_platforms,omitempty"`
	// NotChecked is the registry that a dry run did not ask.
	NotChecked string `json:"not_checked,omitempty"`
	// NotCompared says that the registry cannot read all that it has stored.
	NotCompared bool `json:"not_compared,omitempty"`
	// Source is that of required_providers; empty if the registry's host is not known.
	Source string `json:"source,omitempty"`

	to     string
	dryRun bool
	host   addressing
}

// providerResult adds the result of a publish to a view.
func (c *cli) providerResult(v publishedProviderView, result releases.ProviderResult) publishedProviderView {
	v.Status = publishStatus(v.dryRun, result.Unchanged, result.Restored)
	v.ProviderVersion, v.Shared, v.Dropped = result.Record, result.Shared, result.Dropped
	v.NotCompared = result.NotCompared
	if v.host.guessed == "" {
		v.Source = v.host.host + "/" + v.Address
	}
	c.warnQuietly(v.warnings())
	return v
}

func (v publishedProviderView) text(p page) {
	var size int64
	for _, pkg := range v.Packages {
		size += pkg.Size
	}
	what := v.Address + " " + v.Version.String()
	platforms := english.Plural(len(v.Packages), "platform", "platforms")
	switch v.Status {
	case "dry_run":
		p.println("Would publish %s for %s, %s", what, platforms, humanize.IBytes(uint64(size)))
	case "restored":
		p.println("Restored %s to %s: what was missing from the store is there again", what, v.to)
	case "unchanged":
		p.println("Unchanged: %s is published already with these sums, since %s", what, minute(v.PublishedAt))
	default:
		p.println("Published %s to %s for %s, %s", what, v.to, platforms, humanize.IBytes(uint64(size)))
	}
	p.println("  protocols %s, signed by %s", strings.Join(v.Protocols, ", "), v.SigningKey)
	for _, pkg := range v.Packages {
		p.printf("  %-16s %10s  %s\n", pkg.Platform, humanize.IBytes(uint64(pkg.Size)), p.digest(pkg.H1))
	}
	if len(v.Shared) > 0 {
		p.println("  %s have the same content. OpenTofu gets no hashes of all platforms, "+
			"because it crashes if two are equal.", platformNames(v.Shared))
	}
	p.warnings(v.warnings())
	p.notCompared(v.NotCompared)
	p.notChecked(v.NotChecked)
	if !v.dryRun {
		_, name, _ := strings.Cut(v.Address, "/")
		p.use(providerBlock(name, v.host.host+"/"+v.Address, v.Version.String()), v.host)
	}
}

// warnings returns what may be a mistake: platforms are missing that the version
// before has.
func (v publishedProviderView) warnings() []string {
	if v.Dropped == nil {
		return nil
	}
	return []string{fmt.Sprintf("%s is also for %s, and %s is not: clients there that choose it find no package",
		v.Dropped.Since, platformNames(v.Dropped.Platforms), v.Version)}
}
