package mirror

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/mirror/filling"
	"github.com/larder-registry/larder/pkg/mirror/hostblock"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/publish/inspection"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/scripts/larder/arguments"
	"github.com/larder-registry/larder/scripts/larder/cli"
	"github.com/larder-registry/larder/scripts/larder/output"
	"github.com/larder-registry/larder/scripts/larder/place"
)

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

// fillFlags are the flags of all commands that fill the mirror.
type fillFlags struct {
	dryRun   bool
	overrule string
	accept   string
	// allowHosts are the hosts for which git may use credentials.
	allowHosts []string
}

func addFillFlags(c *cli.Program, cmd *cobra.Command, fill *fillFlags) {
	c.StoreFlags(cmd)
	cmd.Flags().BoolVar(&fill.dryRun, "dry-run", false, "show what would be mirrored without mirroring it")
	cmd.Flags().Func("overrule",
		"mirror also what the policy does not allow, for a `REASON` of one line; the audit trail shows it for each version",
		reasonFor(&fill.overrule))
}

// reasonFor returns what sets the reason of a flag.
func reasonFor(to *string) func(reason string) error {
	return func(reason string) error {
		*to = reason
		return rules.CheckReason(reason)
	}
}

// gitFlag adds the flag of commands that can run git.
func gitFlag(cmd *cobra.Command, fill *fillFlags) {
	cmd.Flags().StringSliceVar(&fill.allowHosts, "allow-host", nil,
		"`HOST` of repositories for which git may use your credentials and keys; can be repeated")
}

func upstreamFlag(cmd *cobra.Command, upstream *string) {
	cmd.Flags().StringVar(upstream, "upstream", "",
		"`URL` of the origin, if not its hostname: without a path, "+
			"or with the path of its registry protocol")
}

func unsignedFlag(cmd *cobra.Command, unsigned *bool) {
	cmd.Flags().BoolVar(unsigned, "allow-unsigned", false,
		"if the origin has no keys, accept packages without a signature, as for some providers of "+
			"registry.opentofu.org")
}

// refuseProviderFlags returns an error if a flag of providers is given for a module.
func refuseProviderFlags(platforms []string, unsigned bool) error {
	switch {
	case len(platforms) > 0:
		return arguments.Errorf("--platform is not for modules")
	case unsigned:
		return arguments.Errorf("--allow-unsigned is not for modules")
	}
	return nil
}

// requirePlatforms parses --platform. It returns an error if the flag is
// missing. The address is that of a provider, or empty.
func requirePlatforms(address registry.MirrorAddress, names []string) ([]registry.Platform, error) {
	if len(names) == 0 {
		err := registry.WithHint(arguments.Errorf("--platform is missing"),
			"Give platforms, for example `--platform linux_amd64,darwin_arm64` or `--platform all`.")
		if address.Name != "" && !strings.Contains(address.Hostname, ".") {
			err = registry.WithHint(err, "If you mean a module, name its host, such as registry.opentofu.org/%s.", address)
		}
		return nil, err
	}
	platforms, err := filling.ParsePlatforms(names)
	if err != nil {
		return nil, arguments.Errorf("--platform: %w", err)
	}
	return platforms, nil
}

// mirrorWork adds packages to the mirror and returns the result for each
// version.
type mirrorWork = func(*filling.Mirror) ([]filling.Result, error)

// mirrorFromOrigins is like runWork, for work that reads from origin registries.
func mirrorFromOrigins(
	ctx context.Context, c *cli.Program, fill fillFlags, v ResultView, work mirrorWork,
) (output.View, error) {
	configuration, err := place.ClientConfiguration()
	if err != nil {
		return nil, err
	}
	configuration.IgnoreServices(hostblock.ModulesPath, hostblock.ProvidersPath) // a mirror cannot be filled from itself
	return runWork(ctx, c, fill, &v, func(m *filling.Mirror) ([]filling.Result, error) {
		m.Client = client.New(configuration, c.Agent, nil)
		m.Git, m.GitHosts = true, fill.allowHosts
		m.Skip = func(address, reason string) { v.Skipped = append(v.Skipped, skippedAddress{address, reason}) }
		return work(m)
	})
}

// runWork opens the store, calls work, and adds its results to the view. If work
// fails, the view has the versions that it mirrored before.
func runWork(ctx context.Context, c *cli.Program, fill fillFlags, v *ResultView, work mirrorWork) (output.View, error) {
	v.DryRun = fill.dryRun
	return c.OnStore(ctx, func(s *place.Store) (output.View, error) {
		m, err := newMirror(ctx, c, s)
		if err != nil {
			return nil, err
		}
		progress := c.NewProgress()
		m.Progress, m.Publisher.Progress = progress, progress
		m.DryRun, m.Overrule, m.Accept = fill.dryRun, fill.overrule, fill.accept
		results, err := work(m)
		progress.Stop()
		v.Versions = mirrored(results)
		return output.Partial(*v, len(v.Versions)+len(v.Skipped), err)
	})
}

func newMirror(ctx context.Context, c *cli.Program, s *place.Store) (*filling.Mirror, error) {
	by, err := s.By(ctx)
	if err != nil {
		return nil, err
	}
	return &filling.Mirror{
		Catalog: s.Catalog, Objects: s.Objects, Inspector: inspection.Process{}, Now: c.Now,
		Publisher: &publish.Publisher{Catalog: s.Catalog, Objects: s.Objects, By: by},
	}, nil
}

func platformFlag(cmd *cobra.Command, platforms *[]string) {
	cmd.Flags().StringSliceVar(platforms, "platform", nil,
		"`PLATFORMS` to mirror, such as linux_amd64,darwin_arm64, or all; can be repeated")
}
