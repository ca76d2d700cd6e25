package publish

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

	"github.com/larder-registry/larder/pkg/content/signing"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/publish/publishclient"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/scripts/larder/arguments"
	"github.com/larder-registry/larder/scripts/larder/cli"
	"github.com/larder-registry/larder/scripts/larder/output"
	"github.com/larder-registry/larder/scripts/larder/place"
)

// passphraseFromEnv names the variable with what opens a private key.
const passphraseFromEnv = "LARDER_SIGN_PASSPHRASE" //nolint:gosec // a name, not a secret

func providerCommand(c *cli.Program) *cobra.Command {
	var m rules.Provider
	var dryRun bool
	var signKey string
	cmd := &cobra.Command{
		Use:   "provider DIR NAMESPACE/TYPE",
		Short: "Publish a provider release",
		Long: `Publish a provider release from a folder that goreleaser has written:

  terraform-provider-TYPE_VERSION_OS_ARCH.zip     one for each platform
  terraform-provider-TYPE_VERSION_SHA256SUMS      the sums of these files
  terraform-provider-TYPE_VERSION_SHA256SUMS.sig  its detached signature
  terraform-provider-TYPE_VERSION_manifest.json   the plugin protocols

The file names contain the version. Before it sends anything, the command checks
the names, the sums, the file lists of the zips, and the signature. A key of the
namespace must have signed the release: see ` + "`larder key`" + `. The command unpacks
each zip while it uploads it to a store. If a zip is damaged, the publish fails.

If you only have zips, use --sign-key: it creates SHA256SUMS and signs it. The
passphrase comes from ` + passphraseFromEnv + `, or from a prompt at a terminal.

Publishing the same SHA256SUMS again changes nothing and succeeds. If the
version exists with other sums, the publish fails with exit code 4. An
interrupted publish leaves nothing visible. Run it again to upload the rest.` + place.ThroughRegistry + place.DryThroughRegistry,
		Example: `  larder publish provider ./dist acme/inventory
  larder publish provider ./dist acme/inventory --store stack:larder
  larder publish provider ./dist acme/inventory --registry https://HOST
  larder publish provider ./zips acme/inventory --sign-key k.asc --protocol 6.0`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 3 {
				if _, err := registry.ParseTag(args[2]); err == nil {
					return registry.WithHint(arguments.Errorf("unexpected argument %q", args[2]),
						"The version of a provider comes from its file names. Remove %s.", args[2])
				}
			}
			return arguments.NamedArguments(cmd, args)
		},
		RunE: c.Run(func(ctx context.Context, args []string) (_ output.View, err error) {
			m.Dir = args[0]
			if m.Address, err = registry.ParseProvider(args[1]); err != nil {
				return nil, err
			}
			if signKey != "" {
				if m.SignKey, err = arguments.ReadFile(signKey, arguments.MaxKeyFile); err != nil {
					return nil, err
				}
				m.Passphrase = []byte(os.Getenv(passphraseFromEnv))
			}
			to, err := c.FindAny()
			if err != nil {
				return nil, err
			}
			v := PublishedProviderView{Address: m.Address.String(), dryRun: dryRun}
			if to.Host != "" {
				return publishProviderThrough(ctx, c, to, m, v, signKey)
			}
			return c.OnStore(ctx, func(s *place.Store) (output.View, error) { return publishProvider(ctx, c, s, m, v, signKey) })
		}),
	}
	c.RegistryFlags(cmd)
	yesFlag(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "check everything and show the result without publishing")
	cmd.Flags().StringVar(&signKey, "sign-key", "",
		"`FILE` with the private key that signs an unsigned release")
	cmd.Flags().StringArrayVar(&m.AllowPlatforms, "allow-platform", nil,
		"`OS_ARCH` of a package that only later releases of clients request; can be repeated")
	cmd.Flags().StringArrayVar(&m.Protocols, "protocol", nil,
		"plugin `PROTOCOL` of the provider, such as 6.0, if there is no manifest; can be repeated")
	return cmd
}

func publishProvider(
	ctx context.Context, c *cli.Program, s *place.Store, m rules.Provider, v PublishedProviderView, signKey string,
) (output.View, error) {
	publisher := publish.Publisher{Catalog: s.Catalog, Objects: s.Objects}
	var err error
	if publisher.By, err = s.By(ctx); err != nil {
		return nil, err
	}
	var result rules.ProviderResult
	err = withPassphrase(ctx, c, &m, signKey, func(progress *output.Steps) (err error) {
		publisher.Progress, publisher.Confirm = progress, confirmer(ctx, c, progress)
		do := publisher.Provider
		if v.dryRun {
			do = publisher.CheckProvider
		}
		result, err = do(ctx, m)
		return err
	})
	if err != nil {
		return nil, hintAtNext(ctx, s.Catalog.Providers.All, m.Address, err)
	}
	v.To, v.Host = c.About.Name, s.Addressing
	return providerResult(c, v, result), nil
}

// publishProviderThrough publishes a provider through a registry's own
// endpoint. A dry run sends no request.
func publishProviderThrough(
	ctx context.Context, c *cli.Program, to place.Place, m rules.Provider, v PublishedProviderView, signKey string,
) (output.View, error) {
	c.PrintRegistry()
	var result rules.ProviderResult
	err := withPassphrase(ctx, c, &m, signKey, func(progress *output.Steps) error {
		prepared, err := rules.Preparer{Progress: progress}.Provider(ctx, m)
		if err != nil {
			return err
		}
		if v.dryRun {
			result = prepared.ProviderResult
			return prepared.CheckNew()
		}
		err = c.ThroughEndpoint(ctx, to.Host, func(p *publishclient.Publisher) error {
			p.Progress, p.Confirm = progress, confirmer(ctx, c, progress)
			result, err = p.Provider(ctx, prepared)
			return err
		})
		return authorFirst(ctx, err, prepared.CheckNew)
	})
	if err != nil {
		return nil, err
	}
	if v.dryRun {
		v.NotChecked = to.Host
	}
	v.To, v.Host = to.Host, place.Addressing{Host: to.Host}
	return providerResult(c, v, result), nil
}

// withPassphrase calls do to publish. If that needs a passphrase and there is a
// terminal, it prompts for one and calls do again.
func withPassphrase(
	ctx context.Context, c *cli.Program, m *rules.Provider, signKey string, do func(*output.Steps) error,
) error {
	progress := c.NewProgress()
	err := do(progress)
	progress.Stop()
	if errors.Is(err, signing.ErrPassphrase) && len(m.Passphrase) == 0 && term.IsTerminal(int(os.Stdin.Fd())) {
		fmt.Fprintf(c.Stderr, "Passphrase of %s: ", signKey)
		m.Passphrase, err = readPassphrase(ctx)
		fmt.Fprintln(c.Stderr)
		if err != nil {
			return err
		}
		progress = c.NewProgress()
		err = do(progress)
		progress.Stop()
	}
	if errors.Is(err, signing.ErrPassphrase) {
		return registry.WithHint(fmt.Errorf("cannot sign with %s: %w", signKey, err),
			"Set %s to the passphrase, or run the command at a terminal.", passphraseFromEnv)
	}
	return err
}

// readPassphrase reads a line from the terminal without echo. If ctx is
// canceled, it restores the terminal's state.
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

// PublishedProviderView is the result of publishing a provider.
type PublishedProviderView struct {
	// Status is published, unchanged or restored. It is dry_run if a dry run
	// would publish a new version.
	Status  string `json:"status"`
	Address string `json:"address"`
	registry.ProviderVersion
	// Shared lists platforms with identical content. OpenTofu gets no hashes
	// for the version then.
	Shared []registry.Platform `json:"shared,omitempty"`
	// Dropped lists platforms that the previous version has and this one lacks.
	Dropped *protocol.DroppedPlatforms `json:"dropped_platforms,omitempty"`
	// NotChecked is the host of the registry if a dry run sent it no request.
	NotChecked string `json:"not_checked,omitempty"`
	// NotCompared is true if the registry could not read the stored objects to
	// compare them.
	NotCompared bool `json:"not_compared,omitempty"`
	// Newcomer is set if the publish creates a namespace.
	Newcomer *protocol.Newcomer `json:"newcomer,omitempty"`
	// Source is the source in required_providers. It is missing if the
	// registry's host is unknown.
	Source string `json:"source,omitempty"`

	To     string `json:"-"`
	dryRun bool
	Host   place.Addressing `json:"-"`
}

func providerResult(c *cli.Program, v PublishedProviderView, result rules.ProviderResult) PublishedProviderView {
	v.Status = publishStatus(v.dryRun, result.Unchanged, result.Restored)
	v.ProviderVersion, v.Shared, v.Dropped = result.Record, result.Shared, result.Dropped
	v.NotCompared, v.Newcomer = result.NotCompared, result.Newcomer
	if v.Host.Guessed == "" {
		v.Source = v.Host.Host + "/" + v.Address
	}
	c.WarnQuietly(v.warnings())
	return v
}

// Text implements [output.View].
func (v PublishedProviderView) Text(p output.Page) {
	var size int64
	for _, pkg := range v.Packages {
		size += pkg.Size
	}
	what := v.Address + " " + v.Version.String()
	platforms := english.Plural(len(v.Packages), "platform", "platforms")
	switch v.Status {
	case "dry_run":
		p.Println("Would publish %s for %s, %s", what, platforms, humanize.IBytes(uint64(size)))
	case "restored":
		p.Println("Restored %s to %s: the store has its missing objects again", what, v.To)
	case "unchanged":
		p.Println("Unchanged: %s was already published with these sums on %s", what, output.FormatTime(v.PublishedAt))
	default:
		p.Println("Published %s to %s for %s, %s", what, v.To, platforms, humanize.IBytes(uint64(size)))
	}
	p.Println("  protocols %s, signed by %s", strings.Join(v.Protocols, ", "), v.SigningKey)
	for _, pkg := range v.Packages {
		p.Printf("  %-16s %10s  %s\n", pkg.Platform, humanize.IBytes(uint64(pkg.Size)), p.Digest(pkg.H1))
	}
	if len(v.Shared) > 0 {
		p.Println("  %s have the same content. The registry sends OpenTofu no list of hashes for this version, "+
			"because OpenTofu crashes if two hashes are equal.", platformNames(v.Shared))
	}
	p.Warnings(v.warnings())
	p.Notes(v.Notes)
	printNotCompared(p, v.NotCompared)
	printNotChecked(p, v.NotChecked)
	if !v.dryRun {
		_, name, _ := strings.Cut(v.Address, "/")
		place.PrintUse(p, place.ProviderBlock(name, v.Host.Host+"/"+v.Address, v.Version.String()), v.Host)
	}
}

// warnings returns a warning if the version lacks platforms of the previous one, or
// if the namespace is new.
func (v PublishedProviderView) warnings() []string {
	all := newcomerWarnings(v.Newcomer)
	if v.Dropped == nil {
		return all
	}
	return append(all, fmt.Sprintf("%s supports %s, but %s does not: clients on these platforms cannot install it",
		v.Dropped.Since, platformNames(v.Dropped.Platforms), v.Version))
}
