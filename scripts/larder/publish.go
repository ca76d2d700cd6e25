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
	"github.com/spf13/pflag"

	"github.com/larder-registry/larder/pkg/archive"
	"github.com/larder-registry/larder/pkg/printable"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/publishapi/publishclient"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/releases"
	"github.com/larder-registry/larder/pkg/terminal"
)

func (c *cli) publishCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "publish",
		Short: "Publish a module or provider",
		Example: `  larder publish module ./vpc acme/vpc/aws 1.0.0
  larder publish provider ./dist acme/inventory
  larder publish provider ./dist acme/inventory --registry https://HOST`,
		DisableFlagsInUseLine: true,

		Args: missingKind,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(c.publishModuleCommand(), c.publishProviderCommand())
	// If the kind is missing, these are no mistake, and the hint repeats them.
	for _, sub := range cmd.Commands() {
		sub.Flags().VisitAll(func(f *pflag.Flag) {
			if cmd.Flags().Lookup(f.Name) == nil {
				hidden := *f
				hidden.Hidden = true
				cmd.Flags().AddFlag(&hidden)
			}
		})
	}
	return cmd
}

// missingKind suggests the command that says what is published, module or provider.
func missingKind(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return registry.WithHint(usagef("unknown kind %q", args[0]),
			"Did you mean `%s`?", completed(cmd, near[0], args[1:]))
	}
	if len(args) > 1 {
		kind := ""
		if _, err := registry.ParseModule(args[1]); err == nil {
			kind = "module"
		} else if _, err := registry.ParseProvider(args[1]); err == nil {
			kind = "provider"
		}
		if kind != "" {
			return registry.WithHint(usagef("the kind is missing, module or provider"),
				"Did you mean `%s`?", completed(cmd, kind, args))
		}
	}
	return unknownCommand(cmd, args)
}

// completed returns the command line with a word put before its arguments, and
// with the flags that were given. The word may be empty.
func completed(cmd *cobra.Command, word string, args []string) string {
	words := strings.Fields(cmd.CommandPath() + " " + word)
	for _, a := range args {
		words = append(words, quoted(a))
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, v := range values {
			words = append(words, "--"+f.Name)
			if f.Value.Type() != "bool" {
				words = append(words, quoted(v))
			}
		}
	})
	return strings.Join(words, " ")
}

func (c *cli) publishModuleCommand() *cobra.Command {
	var m releases.Module
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "module DIR NAMESPACE/NAME/SYSTEM VERSION",
		Short: "Publish the module in a folder",
		Long: `Publish the module in a folder, as one version that never changes.

The folder is packed as it is, except for what .terraformignore names, for
.terraform and .git, and for files that may hold secrets: state, saved plans,
*.tfvars, .env and .env.*, .aws, the clients' credential files, .netrc, crash
logs, private keys and data of registries. Templates such as .env.example and
.env.tpl are packed. --include packs files that are left out.

There must be configuration at the folder's root or below modules/, and all of
it must parse. Nothing that depends on values is checked. A leading v of the
version is dropped. A description belongs to its version, and does not change
either. ` + "`larder list`" + ` shows that of the latest version.

Publishing the same content again changes nothing and succeeds. Other content
under the same version is refused with exit code 4. A publish that was
interrupted has left nothing visible: run it again.` + throughRegistry + dryThroughRegistry,
		Example: `  larder publish module ./vpc acme/vpc/aws 1.0.0
  larder publish module ./vpc acme/vpc/aws v1.0.0 --dry-run
  larder publish module ./vpc acme/vpc/aws 1.0.0 --store stack:larder
  larder publish module ./vpc acme/vpc/aws 1.0.0 --registry https://HOST
  larder publish module . acme/vpc/aws 1.1.0 --include 'examples/**/*.tfvars'`,
		RunE: c.run(func(ctx context.Context, args []string) (_ view, err error) {
			m.Dir = args[0]
			if m.Address, err = registry.ParseModule(args[1]); err != nil {
				return nil, err
			}
			if m.Version, err = registry.ParseTag(args[2]); err != nil {
				return nil, err
			}
			to, err := c.publishPlace()
			if err != nil {
				return nil, err
			}
			if err := releases.CheckDescription(m.Description); err != nil {
				return nil, usagef("--description: %w", err)
			}
			v := publishedModuleView{Address: m.Address.String(), dryRun: dryRun, wanted: m}
			if to.host != "" {
				return c.publishModuleThrough(ctx, to, m, v)
			}
			return c.onStore(ctx, func(s *store) (view, error) { return c.publishModule(ctx, s, m, v) })
		}),
	}
	c.registryFlags(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "pack and check, show what would be published, and end")
	cmd.Flags().StringVar(&m.Description, "description", "", "`TEXT` of one line that larder list shows")
	cmd.Flags().StringArrayVar(&m.Pack.Include, "include", nil,
		"`PATTERN`, as in .terraformignore, of files to pack that are left out by default; can be repeated")
	return cmd
}

// publishModule publishes to a store.
func (c *cli) publishModule(
	ctx context.Context, s *store, m releases.Module, v publishedModuleView,
) (view, error) {
	m.Pack.Skip = c.about.dir
	publisher := publish.Publisher{Catalog: s.catalog, Objects: s.objects}
	var err error
	if publisher.By, err = s.by(ctx); err != nil {
		return nil, err
	}
	progress := newProgress(c)
	publisher.Progress = progress
	do := publisher.Module
	if v.dryRun {
		do = publisher.CheckModule
	}
	result, err := do(ctx, m)
	progress.stop()
	if err != nil {
		return nil, hintAtNext(ctx, s.catalog.Modules.All, m.Address, err)
	}
	v.to, v.host = c.about.name, c.addressingOf(s)
	return c.moduleResult(v, result), nil
}

// publishModuleThrough publishes through a registry's own endpoint. A dry run does
// not ask the registry.
func (c *cli) publishModuleThrough(
	ctx context.Context, to place, m releases.Module, v publishedModuleView,
) (view, error) {
	c.sayAbout()
	progress := newProgress(c)
	defer progress.stop()
	prepared, err := releases.Preparer{Progress: progress}.Module(ctx, m)
	if err != nil {
		return nil, err
	}
	defer prepared.Close()
	result := prepared.ModuleResult
	if v.dryRun {
		v.NotChecked = to.host
	} else {
		err = c.throughEndpoint(ctx, to.host, func(p *publishclient.Publisher) (err error) {
			p.Progress = progress
			result, err = p.Module(ctx, prepared)
			return err
		})
	}
	if err != nil {
		return nil, err
	}
	v.to, v.host = to.host, addressing{host: to.host}
	return c.moduleResult(v, result), nil
}

// hintAtNext adds the next free version to the error for one that is taken. all
// lists the versions of an address.
func hintAtNext[A registry.Address, R registry.Record](
	ctx context.Context, all func(context.Context, A) ([]R, error), address A, err error,
) error {
	exists, isPublished := errors.AsType[*releases.ExistsError](err)
	differs := isPublished && exists.Stored != ""
	if !differs && (!errors.Is(err, registry.ErrExists) || !errors.Is(err, registry.ErrWithdrawn)) {
		return err
	}
	records, problem := all(ctx, address)
	if problem != nil || len(records) == 0 {
		return err
	}
	numbers := make([]registry.Version, len(records))
	for i, r := range records {
		numbers[i] = r.Number()
	}
	return registry.WithHint(err, "Publish it as %s or higher.", nextVersion(slices.MaxFunc(numbers, registry.CompareVersions)))
}

// publishStatus returns the status of a publish.
func publishStatus(dryRun, unchanged, restored bool) string {
	switch {
	case restored:
		return "restored"
	case unchanged:
		return "unchanged"
	case dryRun:
		return "dry_run"
	}
	return "published"
}

// publishedModuleView is what became of the publish of a module.
type publishedModuleView struct {
	// Status is published, unchanged, restored or, if it was a dry run that found
	// nothing published, dry_run.
	Status  string `json:"status"`
	Address string `json:"address"`
	registry.ModuleVersion
	Files    []archive.File     `json:"files"`
	Excluded []archive.Excluded `json:"excluded"`
	// NotChecked is the registry that a dry run did not ask.
	NotChecked string `json:"not_checked,omitempty"`
	// NotCompared says that the registry cannot read the stored archive.
	NotCompared bool `json:"not_compared,omitempty"`
	// Source is that of a module block; empty if the registry's host is not known.
	Source string `json:"source,omitempty"`

	to     string
	dryRun bool
	host   addressing
	// wanted is what was to be published.
	wanted releases.Module
}

// moduleResult adds the result of a publish to a view.
func (c *cli) moduleResult(v publishedModuleView, result releases.ModuleResult) publishedModuleView {
	v.Status = publishStatus(v.dryRun, result.Unchanged, result.Restored)
	v.ModuleVersion, v.Files = result.Record, result.Files
	v.Excluded = append([]archive.Excluded{}, result.Excluded...)
	v.NotCompared = result.NotCompared
	if v.host.guessed == "" {
		v.Source = v.source()
	}
	c.warnQuietly(v.warnings())
	return v
}

// source returns the source of a module block: of the root, or else of the first
// folder with configuration.
func (v publishedModuleView) source() string {
	source := v.host.host + "/" + v.Address
	if folders := archive.Folders(v.Files); len(folders) > 0 && !slices.Contains(folders, ".") {
		source += "//" + folders[0]
	}
	return source
}

func (v publishedModuleView) text(p page) {
	if v.dryRun {
		v.printFiles(p)
	}
	what := v.Address + " " + v.Version.String()
	files := english.Plural(len(v.Files), "file", "files")
	size := humanize.IBytes(uint64(v.Size))
	switch v.Status {
	case "dry_run":
		p.println("Would publish %s: %s, %s packed", what, files, size)
	case "restored":
		p.println("Restored %s to %s: its archive was missing from the store, and is there again, %s", what, v.to, size)
	case "unchanged":
		p.println("Unchanged: %s is published already with this content, since %s", what, minute(v.PublishedAt))
	default:
		p.println("Published %s to %s: %s, %s packed", what, v.to, files, size)
	}
	p.printf("  archive %s\n  content %s\n", p.digest("sha256:"+v.SHA256), p.digest("sha256:"+v.ContentSHA256))
	p.notCompared(v.NotCompared)
	v.printExcluded(p)
	p.notChecked(v.NotChecked)
	if !v.dryRun {
		p.use(moduleBlock(strings.Split(v.Address, "/")[1], v.source(), v.Version.String()), v.host)
	}
}

// println prints one line of prose, wrapped to the terminal.
func (p page) println(format string, args ...any) {
	p.printf("%s\n", p.Wrap(fmt.Sprintf(format, args...)))
}

// digest returns a digest in full, or what a terminal shows of it.
func (p page) digest(sum string) string {
	if p.Width <= 0 {
		return sum
	}
	return terminal.CutEnd(sum, len("sha256:0123456789ab…"))
}

// notCompared prints that nobody has compared what is stored of an unchanged
// version.
func (p page) notCompared(notCompared bool) {
	if notCompared {
		p.println("  not compared with what is stored, since it was published with AWS credentials; " +
			"`larder verify` compares it")
	}
}

// notChecked prints what a dry run does not know.
func (p page) notChecked(host string) {
	if host != "" {
		p.println("%s was not asked: whether it accepts your credential and this content, and whether it has "+
			"this version already, is not known", host)
	}
}

// secrets returns what is left out because it may hold secrets.
func (v publishedModuleView) secrets() []archive.Excluded {
	return slices.DeleteFunc(slices.Clone(v.Excluded), func(l archive.Excluded) bool { return l.Ignored })
}

// printFiles lists the files of a dry run: each that is packed or may hold secrets,
// and how many each pattern of .terraformignore leaves out.
func (v publishedModuleView) printFiles(p page) {
	var rows [][]string
	for _, f := range v.Files {
		rows = append(rows, []string{humanize.IBytes(uint64(f.Size)), "", printable.Escape(f.Path), ""})
	}
	for _, f := range v.secrets() {
		rows = append(rows, []string{"", "left out", printable.Escape(f.Path), printable.Escape(f.Reason)})
	}
	numbers := make(map[string]int)
	for _, f := range v.Excluded {
		if f.Ignored {
			numbers[f.Pattern]++
		}
	}
	for _, pattern := range slices.Sorted(maps.Keys(numbers)) {
		what := english.Plural(numbers[pattern], "file or folder", "files and folders")
		rows = append(rows, []string{"", "left out", what, printable.Escape(pattern) + " in .terraformignore"})
	}
	p.Table([]terminal.Column{
		{Title: "SIZE", Right: true}, stateColumn, {Title: "FILE", Min: 20, Shorten: terminal.CutStart}, reasonColumn,
	}, rows)
	p.printf("\n")
}

// printExcluded prints how many files are not in the archive and by which patterns,
// and warns of each that the module's configuration names.
func (v publishedModuleView) printExcluded(p page) {
	defer func() { p.warnings(v.warnings()) }()
	left := v.secrets()
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
	p.println("  left out %s that may hold secrets (%s)%s%s",
		english.Plural(len(left), "file", "files"), strings.Join(reasons, ", "), such, strings.Join(first, ", "))
	p.println("  --dry-run lists what is left out, and --include PATTERN packs it")
}

// warnings returns what may be a mistake: the module's configuration names files
// that are left out, a pattern matches nothing, or a description is not stored.
func (v publishedModuleView) warnings() (all []string) {
	for _, pattern := range archive.Unmatched(v.wanted.Pack.Include, v.Files) {
		all = append(all, fmt.Sprintf("--include %s matches no file", quoted(printable.Escape(pattern))))
	}
	if wanted := v.wanted.Description; v.Status == "unchanged" && wanted != "" && wanted != v.Description {
		all = append(all, "the description is not changed: it belongs to the version, and versions do not change")
	}
	for _, l := range v.secrets() {
		if l.NamedBy != "" {
			path := printable.Escape(l.Path)
			all = append(all, fmt.Sprintf("%s names %s, which is left out; `--include '/%s'` packs it", l.NamedBy, path, path))
		}
	}
	return all
}

// warnings prints warnings below what they are about.
func (p page) warnings(all []string) {
	for _, w := range all {
		p.println("  %s: %s", p.Paint("warning", terminal.Yellow), w)
	}
}

// warnQuietly prints warnings on standard error, where --quiet leaves out the view
// that has them.
func (c *cli) warnQuietly(all []string) {
	if c.quiet && !c.json {
		page{terminal.New(c.stderr)}.warnings(all)
	}
}
