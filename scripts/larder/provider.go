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

  terraform-provider-TYPE_VERSION_OS_ARCH.zip      one for each platform
  terraform-provider-TYPE_VERSION_SHA256SUMS       and SHA256SUMS.sig, its detached signature
  terraform-provider-TYPE_VERSION_manifest.json    which protocol of plugins it speaks

The version is that of the file names. Before anything is sent it checks names, sums, the signature by a key of the namespace
(see larder key), and what each zip says of its files; zips are unpacked on their way to a store, and one that is damaged ends
the publish before the store has it whole. With --sign-key it makes SHA256SUMS and signs it here, for who has only zips; the passphrase
is taken from ` + passphraseFromEnv + `, or asked for at a terminal.

Publishing the same SHA256SUMS again changes nothing and succeeds. Another one under the same version is refused with exit
code 4. A publish that was interrupted has left nothing visible: run it again, and it sends only what is missing.` + throughRegistry + dryThroughRegistry,
		Example: `  larder publish provider ./dist acme/inventory
  larder publish provider ./dist acme/inventory --store stack:larder
  larder publish provider ./dist acme/inventory --registry https://registry.example.com
  larder publish provider ./zips acme/inventory --sign-key private.asc --protocol 6.0`,
		Args: usage(func(cmd *cobra.Command, args []string) error {
			if len(args) == 3 {
				if _, err := registry.ParseTag(args[2]); err == nil {
					return fmt.Errorf("the version of a provider comes from the names of its files: leave out %s", args[2])
				}
			}
			return cobra.ExactArgs(2)(cmd, args)
		}),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			m.Dir = args[0]
			if m.Address, err = registry.ParseProvider(args[1]); err != nil {
				return err
			}
			if signKey != "" {
				if m.SignKey, err = readFile(signKey, maxKeyFile); err != nil {
					return err
				}
				m.Passphrase = []byte(os.Getenv(passphraseFromEnv))
			}
			host, err := c.target(cmd)
			if err != nil {
				return err
			}
			if host != "" {
				return c.publishProviderThrough(cmd.Context(), host, m, dryRun, signKey)
			}
			return c.publishProvider(cmd.Context(), m, dryRun, signKey)
		},
	}
	c.targetFlags(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "check everything, show what would be published, and end")
	cmd.Flags().StringVar(&signKey, "sign-key", "", "file with the private key to sign with, where the release is not signed")
	cmd.Flags().StringArrayVar(&m.Protocols, "protocol", nil, "protocol of plugins that the provider speaks, such as 6.0, where there is no manifest; can be repeated")
	return cmd
}

// publishProvider publishes to a store.
func (c *cli) publishProvider(ctx context.Context, m releases.Provider, dryRun bool, signKey string) (err error) {
	data, err := c.openStore(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, data.close()) }()
	publisher := publish.Publisher{Catalog: data.catalog, Objects: data.objects}
	if publisher.By, err = data.by(ctx); err != nil {
		return err
	}
	var result releases.ProviderResult
	err = c.withPassphrase(ctx, &m, signKey, func(progress *steps) (err error) {
		publisher.Progress = progress
		do := publisher.Provider
		if dryRun {
			do = publisher.CheckProvider
		}
		result, err = do(ctx, m)
		return err
	})
	if err != nil {
		return err
	}
	return c.reportProvider(m, dryRun, result, c.placeOf(data))
}

// publishProviderThrough publishes through a registry's own endpoint. A dry run does not ask it.
func (c *cli) publishProviderThrough(ctx context.Context, host string, m releases.Provider, dryRun bool, signKey string) error {
	var result releases.ProviderResult
	err := c.withPassphrase(ctx, &m, signKey, func(progress *steps) error {
		prepared, err := releases.Preparer{Progress: progress}.Provider(ctx, m)
		if err != nil {
			return err
		}
		if dryRun {
			result = prepared.ProviderResult
			return nil
		}
		return c.throughEndpoint(ctx, host, func(p *publishclient.Publisher) error {
			p.Progress = progress
			result, err = p.Provider(ctx, prepared)
			return err
		})
	})
	if err != nil {
		return err
	}
	return c.reportProvider(m, dryRun, result, through(host, dryRun))
}

// withPassphrase publishes, and a second time where that takes a passphrase and there is somebody to ask.
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
		return fmt.Errorf("%s: %w: give it in %s, or at a terminal", signKey, err, passphraseFromEnv)
	}
	return err
}

// readPassphrase reads a line of the terminal without showing it, and leaves the terminal as it was when it is interrupted.
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

func (c *cli) reportProvider(m releases.Provider, dryRun bool, result releases.ProviderResult, to place) error {
	status := publishStatus(dryRun, result.Unchanged, result.Restored)
	record := result.Record
	if c.json {
		return c.printJSON(struct {
			Status  string `json:"status"`
			Address string `json:"address"`
			registry.ProviderVersion
			// Shared are platforms with the same content, for which OpenTofu gets no hashes.
			Shared []registry.Platform `json:"shared,omitempty"`
			// Dropped are platforms that the version before has, and this one has not.
			Dropped *protocol.DroppedPlatforms `json:"dropped_platforms,omitempty"`
			// NotAsked is the registry that a dry run did not ask.
			NotAsked string `json:"not_asked,omitempty"`
			// NotCompared says that the registry cannot read all that it has stored.
			NotCompared bool `json:"not_compared,omitempty"`
		}{status, m.Address.String(), record, result.Shared, result.Dropped, to.notAsked, result.NotCompared})
	}
	var size int64
	for _, p := range record.Packages {
		size += p.Size
	}
	platforms := english.Plural(len(record.Packages), "platform", "platforms")
	switch status {
	case "dry run":
		c.printf("Would publish %s %s for %s, %s\n", m.Address, record.Version, platforms, humanize.IBytes(uint64(size)))
	case "restored":
		c.printf("Restored %s %s to %s: what was missing from the store is there again\n", m.Address, record.Version, to.name)
	case "unchanged":
		c.printf("Unchanged: %s %s is published already with these sums, since %s\n", m.Address, record.Version, record.PublishedAt.Format("2006-01-02 15:04 MST"))
	default:
		c.printf("Published %s %s to %s for %s, %s\n", m.Address, record.Version, to.name, platforms, humanize.IBytes(uint64(size)))
	}
	c.printf("  protocols %s, signed by %s\n", strings.Join(record.Protocols, ", "), record.SigningKey)
	for _, p := range record.Packages {
		c.printf("  %-16s %10s  %s\n", p.Platform, humanize.IBytes(uint64(p.Size)), p.H1)
	}
	if len(result.Shared) > 0 {
		c.printf("  %s have the same content; OpenTofu crashes on that among the hashes of all platforms, and so gets none\n",
			platformNames(result.Shared))
	}
	if d := result.Dropped; d != nil {
		c.printf("  warning: %s is also for %s, and %s is not: clients there that choose it find no package\n",
			d.Since, platformNames(d.Platforms), record.Version)
	}
	c.printNotCompared(result.NotCompared)
	c.printNotAsked(to)
	if to.host != "" && !dryRun {
		c.useProvider(to.host, m.Address, record.Version)
	}
	return nil
}
