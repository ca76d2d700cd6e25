package publish

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

	"github.com/larder-registry/larder/pkg/content/archive"
	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/publish/publishclient"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
	"github.com/larder-registry/larder/pkg/sources/monorepo"
	"github.com/larder-registry/larder/pkg/text/printable"
	"github.com/larder-registry/larder/pkg/text/terminal"
	"github.com/larder-registry/larder/scripts/larder/arguments"
	"github.com/larder-registry/larder/scripts/larder/cli"
	"github.com/larder-registry/larder/scripts/larder/output"
	"github.com/larder-registry/larder/scripts/larder/place"
)

func moduleCommand(c *cli.Program) *cobra.Command {
	var m rules.Module
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "module DIR NAMESPACE/NAME/SYSTEM [VERSION]",
		Short: "Publish a module",
		Long: `Publish the module in a folder, as a version that never changes.

The command packs all files of the folder. It excludes files that
.terraformignore names, .terraform and .git. It also excludes files that may
contain secrets. These are state, saved plans, *.tfvars, .env and .env.*, .aws,
the clients' credential files, .netrc, crash logs, private keys and registry
data. It packs templates such as .env.example and .env.tpl. Use --include to
pack an excluded file.

The folder's root or a folder below modules/ must contain configuration, and all
of it must parse. The command does not evaluate the configuration. It removes a
leading v from the version. A description belongs to its version and never
changes. ` + "`larder list`, `search` and `show`" + ` print it.

If a packed file contains a well-known secret, such as a private key or an
access token, the publish fails with exit code 3. The error names the file and
the line. Use --allow-secret for a file or a folder that may be public.

Without a version, the command uses a Git tag of the checked out commit. If the
repository's larder.hcl lists the module, the tag must match the pattern there.
Otherwise the tag must be like v1.2.3 or 1.2.3. The published files are those of
the commit.

If the folder is in Git, the command records the commit, its tag, the remote
without a password, and whether the folder has uncommitted changes. The registry
shows them as your claim.

Publishing the same content again changes nothing and succeeds. If the version
exists with other content, the publish fails with exit code 4. An interrupted
publish leaves nothing visible. Run it again.` + place.ThroughRegistry + place.DryThroughRegistry,
		Example: `  larder publish module ./vpc acme/vpc/aws 1.0.0
  larder publish module ./vpc acme/vpc/aws v1.0.0 --dry-run
  larder publish module ./vpc acme/vpc/aws --registry https://HOST
  larder publish module ./vpc acme/vpc/aws 1.0.0 --store stack:larder
  larder publish module . acme/vpc/aws 1.1.0 --include 'examples/**/*.tfvars'`,
		RunE: c.Run(func(ctx context.Context, args []string) (_ output.View, err error) {
			m.Dir = args[0]
			if m.Address, err = registry.ParseModule(args[1]); err != nil {
				return nil, err
			}
			var tag string
			if len(args) < 3 {
				var files *monorepo.Worktree
				if tag, files, err = useTag(ctx, &m); err != nil {
					return nil, err
				}
				defer func() { err = errors.Join(err, files.Close()) }()
			} else if m.Version, err = registry.ParseTag(args[2]); err != nil {
				return nil, err
			}
			to, err := c.FindAny()
			if err != nil {
				return nil, err
			}
			if err := rules.CheckDescription(m.Description); err != nil {
				return nil, arguments.Errorf("--description: %w", err)
			}
			if err := CheckAllowSecrets(m.AllowSecrets); err != nil {
				return nil, err
			}
			var sourceNotes []string
			if tag == "" {
				if sourceNotes, err = addSource(ctx, &m); err != nil {
					return nil, err
				}
			}
			v := PublishedModuleView{
				Address: m.Address.String(), Tag: tag, DryRun: dryRun, wanted: m, sourceNotes: sourceNotes,
			}
			if to.Host != "" {
				return publishModuleThrough(ctx, c, to, m, v)
			}
			return c.OnStore(ctx, func(s *place.Store) (output.View, error) { return publishModule(ctx, c, s, m, v) })
		}),
	}
	c.RegistryFlags(cmd)
	yesFlag(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "pack and check the module and show the result without publishing")
	cmd.Flags().StringVar(&m.Description, "description", "", "`TEXT` of one line about the module")
	cmd.Flags().StringArrayVar(&m.Pack.Include, "include", nil,
		"`PATTERN` of excluded files to pack, as in .terraformignore; can be repeated")
	AllowSecretsFlag(cmd, &m.AllowSecrets)
	return cmd
}

func publishModule(
	ctx context.Context, c *cli.Program, s *place.Store, m rules.Module, v PublishedModuleView,
) (output.View, error) {
	m.Pack.Skip = c.About.Dir
	publisher := publish.Publisher{Catalog: s.Catalog, Objects: s.Objects}
	var err error
	if publisher.By, err = s.By(ctx); err != nil {
		return nil, err
	}
	progress := c.NewProgress()
	publisher.Progress, publisher.Confirm = progress, confirmer(ctx, c, progress)
	do := publisher.Module
	if v.DryRun {
		do = publisher.CheckModule
	}
	result, err := do(ctx, m)
	progress.Stop()
	if err != nil {
		return nil, hintAtNext(ctx, s.Catalog.Modules.All, m.Address, err)
	}
	v.To, v.Host = c.About.Name, s.Addressing
	return moduleResult(c, v, result), nil
}

// publishModuleThrough publishes a module through a registry's own endpoint. A
// dry run sends no request.
func publishModuleThrough(
	ctx context.Context, c *cli.Program, to place.Place, m rules.Module, v PublishedModuleView,
) (output.View, error) {
	c.PrintRegistry()
	progress := c.NewProgress()
	defer progress.Stop()
	prepared, err := rules.Preparer{Progress: progress}.Module(ctx, m)
	if err != nil {
		return nil, err
	}
	defer prepared.Close()
	result := prepared.ModuleResult
	if v.DryRun {
		v.NotChecked = to.Host
		err = prepared.CheckNew()
	} else {
		err = c.ThroughEndpoint(ctx, to.Host, func(p *publishclient.Publisher) (err error) {
			p.Progress, p.Confirm = progress, confirmer(ctx, c, progress)
			result, err = p.Module(ctx, prepared)
			return err
		})
		err = authorFirst(ctx, err, prepared.CheckNew)
	}
	if err != nil {
		return nil, err
	}
	v.To, v.Host = to.Host, place.Addressing{Host: to.Host}
	return moduleResult(c, v, result), nil
}

// authorFirst replaces an error of a registry by what the author of a new version
// corrects first. It does not if the registry refuses the caller, or has the version.
func authorFirst(ctx context.Context, err error, check func() error) error {
	if err == nil || ctx.Err() != nil || !slices.Contains([]string{"", "invalid", "unavailable"}, errs.Code(err)) {
		return err
	}
	return cmp.Or(check(), err)
}

// PublishedModuleView is the result of publishing a module.
type PublishedModuleView struct {
	// Status is published, unchanged or restored. It is dry_run if a dry run
	// would publish a new version.
	Status  string `json:"status"`
	Address string `json:"address"`
	registry.ModuleVersion
	// Tag is the Git tag that the version comes from. It is missing if the
	// command line has the version.
	Tag      string             `json:"tag,omitempty"`
	Files    []archive.File     `json:"files"`
	Excluded []archive.Excluded `json:"excluded"`
	// NotChecked is the host of the registry if a dry run sent it no request.
	NotChecked string `json:"not_checked,omitempty"`
	// NotCompared is true if the registry could not read the stored archive to
	// compare it.
	NotCompared bool `json:"not_compared,omitempty"`
	// Source is the source of a module block. It is missing if the registry's
	// Host is unknown.
	Source string `json:"source,omitempty"`
	// Newcomer is set if the publish creates a namespace, or an address that looks like
	// another one.
	Newcomer *protocol.Newcomer `json:"newcomer,omitempty"`
	// Notes describe what is missing in the documentation, what not all clients
	// load, and why a Git source is missing.
	Notes []string `json:"notes,omitempty"`

	To     string           `json:"-"`
	DryRun bool             `json:"-"`
	Host   place.Addressing `json:"-"`
	// Callable are the folders to suggest in module blocks.
	Callable []docs.Folder `json:"-"`
	// wanted is the module to publish.
	wanted rules.Module
	// sourceNotes are those of addSource.
	sourceNotes []string
	// unmatched are the paths where secrets are allowed, but no file is.
	unmatched []string
}

func moduleResult(c *cli.Program, v PublishedModuleView, result rules.ModuleResult) PublishedModuleView {
	v.Status = publishStatus(v.DryRun, result.Unchanged, result.Restored)
	v.ModuleVersion, v.Files, v.unmatched = result.Record, result.Files, result.Unmatched
	v.Contents = nil // they are what the files have
	v.Callable = result.Callable
	v.Excluded = append([]archive.Excluded{}, result.Excluded...)
	v.Newcomer = result.Newcomer
	v.NotCompared = result.NotCompared
	v.Notes = slices.Concat(result.Notes, result.LoadNotes, secretNotes(result.Secrets), v.sourceNotes)
	if v.Host.Guessed == "" {
		v.Source = v.source()
	}
	c.WarnQuietly(v.warnings())
	return v
}

// source returns the source of a module block. If the root has no
// configuration, it names the first folder that does.
func (v PublishedModuleView) source() string {
	source := v.Host.Host + "/" + v.Address
	if folders := archive.Folders(v.Files); len(folders) > 0 && !slices.Contains(folders, ".") {
		source += "//" + folders[0]
	}
	return source
}

// block returns the module blocks to paste.
func (v PublishedModuleView) block() string {
	m, _ := registry.ParseModule(v.Address) // it is valid
	if len(v.Callable) == 0 {
		return place.ModuleBlock(m.Name, v.source(), v.Version.String(), place.UnknownInputs)
	}
	return place.ModuleBlocks(v.Host.Host, m, v.Version, v.Callable)
}

// Text implements [output.View].
func (v PublishedModuleView) Text(p output.Page) {
	if v.DryRun {
		v.printFiles(p)
	}
	what := v.Address + " " + v.Version.String()
	files := english.Plural(len(v.Files), "file", "files")
	size := humanize.IBytes(uint64(v.Size))
	switch v.Status {
	case "dry_run":
		p.Println("Would publish %s: %s, %s packed", what, files, size)
	case "restored":
		p.Println("Restored %s to %s: the store has its missing archive again, %s", what, v.To, size)
	case "unchanged":
		p.Println("Unchanged: %s was already published with this content on %s", what, output.FormatTime(v.PublishedAt))
	default:
		p.Println("Published %s to %s: %s, %s packed", what, v.To, files, size)
	}
	if v.Tag != "" {
		p.Println("  version from the Git tag %s", printable.Escape(v.Tag))
	}
	if v.Claimed != nil && v.Status != "unchanged" {
		p.Println("  recorded as your claim: %s", v.Claimed)
	}
	p.Printf("  archive %s\n  content %s\n", p.Digest("sha256:"+v.SHA256), p.Digest("sha256:"+v.ContentSHA256))
	printNotCompared(p, v.NotCompared)
	v.printExcluded(p)
	p.Notes(v.Notes)
	printNotChecked(p, v.NotChecked)
	if !v.DryRun {
		place.PrintUse(p, v.block(), v.Host)
	}
}

// secrets returns the excluded files that may contain secrets.
func (v PublishedModuleView) secrets() []archive.Excluded {
	return slices.DeleteFunc(slices.Clone(v.Excluded), func(l archive.Excluded) bool { return l.Ignored })
}

// printFiles lists the files of a dry run: packed files, and files that may
// contain secrets. For each pattern of .terraformignore it prints only a
// number.
func (v PublishedModuleView) printFiles(p output.Page) {
	var rows [][]string
	for _, f := range v.Files {
		rows = append(rows, []string{humanize.IBytes(uint64(f.Size)), "", printable.Escape(f.Path), ""})
	}
	for _, f := range v.secrets() {
		rows = append(rows, []string{"", "excluded", printable.Escape(f.Path), printable.Escape(f.Reason)})
	}
	numbers := make(map[string]int)
	for _, f := range v.Excluded {
		if f.Ignored {
			numbers[f.Pattern]++
		}
	}
	for _, pattern := range slices.Sorted(maps.Keys(numbers)) {
		what := english.Plural(numbers[pattern], "file or folder", "files and folders")
		rows = append(rows, []string{"", "excluded", what, printable.Escape(pattern) + " in .terraformignore"})
	}
	p.Table([]terminal.Column{
		{Title: "SIZE", Right: true}, output.StateColumn, {Title: "FILE", Min: 20, Shorten: terminal.CutStart}, output.ReasonColumn,
	}, rows)
	p.Printf("\n")
}

// printExcluded prints how many files may contain secrets and are not in the
// archive, with the patterns that they match. It also prints the warnings.
func (v PublishedModuleView) printExcluded(p output.Page) {
	defer func() { p.Warnings(v.warnings()) }()
	excluded := v.secrets()
	if len(excluded) == 0 {
		return
	}
	const byContent = "content" // no pattern is this word
	numbers := make(map[string]int)
	for _, l := range excluded {
		numbers[cmp.Or(l.Pattern, byContent)]++
	}
	reasons := slices.SortedFunc(maps.Keys(numbers), func(a, b string) int {
		return cmp.Or(cmp.Compare(numbers[b], numbers[a]), cmp.Compare(a, b))
	})
	for i, reason := range reasons {
		reasons[i] = fmt.Sprintf("%d by %s", numbers[reason], reason)
	}
	var first []string
	for _, l := range excluded[:min(3, len(excluded))] {
		first = append(first, printable.Escape(l.Path))
	}
	separator := ": "
	if len(excluded) > len(first) {
		separator = ", such as "
	}
	p.Println("  excluded %s that may contain secrets (%s)%s%s",
		english.Plural(len(excluded), "file", "files"), strings.Join(reasons, ", "), separator, strings.Join(first, ", "))
	p.Println("  to list excluded files, use --dry-run; to pack one, use --include PATTERN")
}

// warnings returns warnings about likely mistakes: the configuration names an
// excluded file, a pattern matches nothing, or the description was not stored.
func (v PublishedModuleView) warnings() []string {
	all := newcomerWarnings(v.Newcomer)
	for _, pattern := range archive.Unmatched(v.wanted.Pack.Include, v.Files) {
		all = append(all, fmt.Sprintf("--include %s matches no file", arguments.Quoted(printable.Escape(pattern))))
	}
	all = append(all, UnmatchedWarnings(v.unmatched)...)
	if wanted := v.wanted.Description; v.Status == "unchanged" && wanted != "" && wanted != v.Description {
		all = append(all, "the description is unchanged, because a published version never changes")
	}
	for _, l := range v.secrets() {
		if l.NamedBy != "" {
			path := printable.Escape(l.Path)
			all = append(all, fmt.Sprintf("%s names %s, which is excluded; to pack it, use `--include '/%s'`",
				l.NamedBy, path, path))
		}
	}
	return all
}
