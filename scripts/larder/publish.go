package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/archive"
	"github.com/larder-registry/larder/pkg/printable"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/publishapi/publishclient"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/releases"
)

func (c *cli) publishCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "publish",
		Short: "Publish to a registry",
		Example: `  larder publish module ./vpc acme/vpc/aws 1.0.0
  larder publish provider ./dist acme/inventory
  larder publish provider ./dist acme/inventory --registry https://registry.example.com`,
		Args: usage(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(c.publishModuleCommand(), c.publishProviderCommand())
	return cmd
}

func (c *cli) publishModuleCommand() *cobra.Command {
	var m releases.Module
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "module DIR NAMESPACE/NAME/SYSTEM VERSION",
		Short: "Publish the module in a folder",
		Long: `Publish the module in a folder, as one version that does not change any more.

The folder is packed as it is, without what .terraformignore names, without .git and .terraform, and without what may hold
secrets: state, saved plans, *.tfvars, .env and .env.*, .aws, the clients' credential files, .netrc, crash logs, private
keys and registries' data. Templates such as .env.example and .env.tpl are packed. --include takes in what is left out.

There must be configuration at the folder's root or below modules/, and all of it must parse; what depends on
values is not checked. A leading v of the version is taken off.

Publishing the same content again changes nothing and succeeds. Other content under the same version is refused with exit
code 4. A publish that was interrupted has left nothing visible: run it again.` + throughRegistry + dryThroughRegistry,
		Example: `  larder publish module ./vpc acme/vpc/aws 1.0.0
  larder publish module ./vpc acme/vpc/aws v1.0.0 --dry-run
  larder publish module ./vpc acme/vpc/aws 1.0.0 --store stack:larder
  larder publish module ./vpc acme/vpc/aws 1.0.0 --registry https://registry.example.com
  larder publish module . acme/vpc/aws 1.1.0 --include 'examples/**/*.tfvars' --json`,
		Args: usage(cobra.ExactArgs(3)),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			m.Dir = args[0]
			if m.Address, err = registry.ParseModule(args[1]); err != nil {
				return err
			}
			if m.Version, err = registry.ParseTag(args[2]); err != nil {
				return err
			}
			host, err := c.target(cmd)
			if err != nil {
				return err
			}
			if host != "" {
				return c.publishModuleThrough(cmd.Context(), host, m, dryRun)
			}
			return c.publishModule(cmd.Context(), m, dryRun)
		},
	}
	c.targetFlags(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "pack and check, show what would be published, and end")
	cmd.Flags().StringVar(&m.Description, "description", "", "one line that larder list shows")
	cmd.Flags().StringArrayVar(&m.Pack.Include, "include", nil, "pattern, as in .terraformignore, of files to pack although they are left out by default; can be repeated")
	return cmd
}

// publishModule publishes to a store.
func (c *cli) publishModule(ctx context.Context, m releases.Module, dryRun bool) (err error) {
	if m.Pack.Skip, _, err = parseStore(c.store); err != nil {
		return err
	}
	data, err := c.openStore(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, data.close()) }()
	publisher := publish.Publisher{Catalog: data.catalog, Objects: data.objects}
	if publisher.By, err = data.by(ctx); err != nil {
		return err
	}
	progress := newProgress(c)
	publisher.Progress = progress
	do := publisher.Module
	if dryRun {
		do = publisher.CheckModule
	}
	result, err := do(ctx, m)
	progress.stop()
	if err != nil {
		return err
	}
	return c.reportModule(m, dryRun, result, c.placeOf(data))
}

// publishModuleThrough publishes through a registry's own endpoint. A dry run does not ask it.
func (c *cli) publishModuleThrough(ctx context.Context, host string, m releases.Module, dryRun bool) error {
	progress := newProgress(c)
	result, err := func() (result releases.ModuleResult, err error) {
		defer progress.stop()
		prepared, err := releases.Preparer{Progress: progress}.Module(ctx, m)
		if err != nil {
			return result, err
		}
		defer prepared.Close()
		if dryRun {
			return prepared.ModuleResult, nil
		}
		return result, c.throughEndpoint(ctx, host, func(p *publishclient.Publisher) error {
			p.Progress = progress
			result, err = p.Module(ctx, prepared)
			return err
		})
	}()
	if err != nil {
		return err
	}
	return c.reportModule(m, dryRun, result, through(host, dryRun))
}

// publishStatus says what became of a publish.
func publishStatus(dryRun, unchanged, restored bool) string {
	switch {
	case restored:
		return "restored"
	case unchanged:
		return "unchanged"
	case dryRun:
		return "dry run"
	}
	return "published"
}

func (c *cli) reportModule(m releases.Module, dryRun bool, result releases.ModuleResult, to place) error {
	status := publishStatus(dryRun, result.Unchanged, result.Restored)
	if c.json {
		return c.printJSON(struct {
			Status  string `json:"status"`
			Address string `json:"address"`
			registry.ModuleVersion
			Files   []archive.File    `json:"files"`
			LeftOut []archive.LeftOut `json:"left_out"`
			// NotAsked is the registry that a dry run did not ask.
			NotAsked string `json:"not_asked,omitempty"`
			// NotCompared says that the registry cannot read the stored archive.
			NotCompared bool `json:"not_compared,omitempty"`
		}{
			status, m.Address.String(), result.Record, result.Files, append([]archive.LeftOut{}, result.LeftOut...),
			to.notAsked, result.NotCompared,
		})
	}
	if dryRun {
		for _, f := range result.Files {
			c.printf("%12s  %s\n", humanize.IBytes(uint64(f.Size)), f.Path)
		}
		for _, f := range result.LeftOut {
			c.printf("    left out  %s\n", printable.Escape(f.String()))
		}
	}
	files := english.Plural(len(result.Files), "file", "files")
	size := humanize.IBytes(uint64(result.Record.Size))
	switch status {
	case "dry run":
		c.printf("Would publish %s %s: %s, %s packed\n", m.Address, m.Version, files, size)
	case "restored":
		c.printf("Restored %s %s to %s: its archive was missing from the store, and is there again, %s\n", m.Address, m.Version, to.name, size)
	case "unchanged":
		c.printf("Unchanged: %s %s is published already with this content, since %s\n", m.Address, m.Version, result.Record.PublishedAt.Format("2006-01-02 15:04 MST"))
	default:
		c.printf("Published %s %s to %s: %s, %s packed\n", m.Address, m.Version, to.name, files, size)
	}
	c.printf("  archive sha256:%s\n  content sha256:%s\n", result.Record.SHA256, result.Record.ContentSHA256)
	c.printNotCompared(result.NotCompared)
	c.printLeftOut(result.LeftOut)
	c.printNotAsked(to)
	if to.host != "" && !dryRun {
		c.useModule(to.host, m.Address, m.Version, archive.Folders(result.Files))
	}
	return nil
}

// printNotCompared says of an unchanged version that nobody has compared what is
// stored of it.
func (c *cli) printNotCompared(notCompared bool) {
	if notCompared {
		c.printf("  not compared with what is stored, since it was published with AWS credentials; " +
			"`larder verify` compares it\n")
	}
}

// printLeftOut prints how many files are not in the archive and by which patterns,
// and warns of each that the module's configuration names.
func (c *cli) printLeftOut(left []archive.LeftOut) {
	if len(left) == 0 {
		return
	}
	const byContent = "content" // beside patterns, none of which is this word
	numbers := make(map[string]int)
	for _, l := range left {
		numbers[cmp.Or(l.Pattern, byContent)]++
	}
	reasons := slices.SortedFunc(maps.Keys(numbers), func(a, b string) int {
		return cmp.Or(cmp.Compare(numbers[b], numbers[a]), cmp.Compare(a, b))
	})
	for i, reason := range reasons {
		reasons[i] = fmt.Sprintf("%d by %s", numbers[reason], reason)
	}
	var first []string
	for _, l := range left[:min(3, len(left))] {
		first = append(first, printable.Escape(l.Path))
	}
	such := ": "
	if len(left) > len(first) {
		such = ", such as "
	}
	c.printf("  left out %s that may hold secrets (%s)%s%s\n",
		english.Plural(len(left), "file", "files"), strings.Join(reasons, ", "), such, strings.Join(first, ", "))
	c.printf("  --dry-run lists what is left out, and --include PATTERN packs it\n")
	for _, l := range left {
		if l.NamedBy != "" {
			path := printable.Escape(l.Path)
			c.printf("  warning: %s names %s, which is left out; --include '/%s' packs it\n", l.NamedBy, path, path)
		}
	}
}
