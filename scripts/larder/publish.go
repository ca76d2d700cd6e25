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

	"github.com/larder-registry/larder/pkg/content/archive"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/publish/publishclient"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/sources/monorepo"
	"github.com/larder-registry/larder/pkg/text/printable"
	"github.com/larder-registry/larder/pkg/text/terminal"
)

func (c *cli) publishCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "publish",
		Short: "Publish a module, a provider, or what Git tags name",
		Long:  tagsHelp,
		Example: `  larder publish
  larder publish --all-tags --store stack:larder
  larder publish module ./vpc acme/vpc/aws 1.0.0
  larder publish provider ./dist acme/inventory
  larder publish provider ./dist acme/inventory --registry https://HOST`,
		DisableFlagsInUseLine: true,

		Annotations: map[string]string{runsAlone: "it publishes what tags name"},
		Args:        missingKind,
	}
	c.addTagFlags(cmd)
	cmd.AddCommand(c.publishModuleCommand(), c.publishProviderCommand())
	// If the kind is missing, parse its flags too, so that the hint can repeat
	// them.
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

// missingKind returns an error that suggests the missing or mistyped
// subcommand, module or provider.
func missingKind(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return flagsOfKind(cmd)
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

// flagsOfKind returns an error if a flag needs the missing kind.
func flagsOfKind(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		for _, sub := range cmd.Commands() {
			own := sub.Flags().Lookup(f.Name)
			if err == nil && f.Hidden && own != nil && !own.Hidden {
				err = registry.WithHint(usagef("--%s needs a kind", f.Name), "Use it with `%s`.", sub.CommandPath())
			}
		}
	})
	return err
}

// completed returns the command line with word before args and with its flags.
// The word may be empty.
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

Publishing the same content again changes nothing and succeeds. If the version
exists with other content, the publish fails with exit code 4. An interrupted
publish leaves nothing visible. Run it again.` + throughRegistry + dryThroughRegistry,
		Example: `  larder publish module ./vpc acme/vpc/aws 1.0.0
  larder publish module ./vpc acme/vpc/aws v1.0.0 --dry-run
  larder publish module ./vpc acme/vpc/aws --registry https://HOST
  larder publish module ./vpc acme/vpc/aws 1.0.0 --store stack:larder
  larder publish module . acme/vpc/aws 1.1.0 --include 'examples/**/*.tfvars'`,
		RunE: c.run(func(ctx context.Context, args []string) (_ view, err error) {
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
			to, err := c.anyPlace()
			if err != nil {
				return nil, err
			}
			if err := rules.CheckDescription(m.Description); err != nil {
				return nil, usagef("--description: %w", err)
			}
			if err := checkAllowSecrets(m.AllowSecrets); err != nil {
				return nil, err
			}
			v := publishedModuleView{Address: m.Address.String(), Tag: tag, dryRun: dryRun, wanted: m}
			if to.host != "" {
				return c.publishModuleThrough(ctx, to, m, v)
			}
			return c.onStore(ctx, func(s *store) (view, error) { return c.publishModule(ctx, s, m, v) })
		}),
	}
	c.registryFlags(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "pack and check the module and show the result without publishing")
	cmd.Flags().StringVar(&m.Description, "description", "", "`TEXT` of one line about the module")
	cmd.Flags().StringArrayVar(&m.Pack.Include, "include", nil,
		"`PATTERN` of excluded files to pack, as in .terraformignore; can be repeated")
	allowSecretsFlag(cmd, &m.AllowSecrets)
	return cmd
}

func (c *cli) publishModule(
	ctx context.Context, s *store, m rules.Module, v publishedModuleView,
) (view, error) {
	m.Pack.Skip = c.about.dir
	publisher := publish.Publisher{Catalog: s.catalog, Objects: s.objects}
	var err error
	if publisher.By, err = s.by(ctx); err != nil {
		return nil, err
	}
	progress := c.newProgress()
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

// publishModuleThrough publishes a module through a registry's own endpoint. A
// dry run sends no request.
func (c *cli) publishModuleThrough(
	ctx context.Context, to place, m rules.Module, v publishedModuleView,
) (view, error) {
	c.printRegistry()
	progress := c.newProgress()
	defer progress.stop()
	prepared, err := rules.Preparer{Progress: progress}.Module(ctx, m)
	if err != nil {
		return nil, err
	}
	defer prepared.Close()
	result := prepared.ModuleResult
	if v.dryRun {
		v.NotChecked = to.host
		err = prepared.CheckContent()
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

// hintAtNext adds a hint with the next unused version if err reports that the
// version exists. all lists the versions of an address.
func hintAtNext[A registry.Address, R registry.Record](
	ctx context.Context, all func(context.Context, A) ([]R, error), address A, err error,
) error {
	exists, isPublished := errors.AsType[*rules.ExistsError](err)
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
	return registry.WithHint(err, "Publish it as %s or higher.",
		registry.NextRelease(slices.MaxFunc(numbers, registry.CompareVersions)))
}

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

// publishedModuleView is the result of publishing a module.
type publishedModuleView struct {
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
	// host is unknown.
	Source string `json:"source,omitempty"`
	// Notes describe what is missing in the documentation.
	Notes []string `json:"notes,omitempty"`

	to     string
	dryRun bool
	host   addressing
	// wanted is the module to publish.
	wanted rules.Module
	// unmatched are the paths where secrets are allowed, but no file is.
	unmatched []string
}

func (c *cli) moduleResult(v publishedModuleView, result rules.ModuleResult) publishedModuleView {
	v.Status = publishStatus(v.dryRun, result.Unchanged, result.Restored)
	v.ModuleVersion, v.Files, v.unmatched = result.Record, result.Files, result.Unmatched
	v.Excluded = append([]archive.Excluded{}, result.Excluded...)
	v.NotCompared, v.Notes = result.NotCompared, append(result.Notes, secretNotes(result.Secrets)...)
	if v.host.guessed == "" {
		v.Source = v.source()
	}
	c.warnQuietly(v.warnings())
	return v
}

// source returns the source of a module block. If the root has no
// configuration, it names the first folder that does.
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
		p.println("Restored %s to %s: the store has its missing archive again, %s", what, v.to, size)
	case "unchanged":
		p.println("Unchanged: %s was already published with this content on %s", what, formatTime(v.PublishedAt))
	default:
		p.println("Published %s to %s: %s, %s packed", what, v.to, files, size)
	}
	if v.Tag != "" {
		p.println("  version from the Git tag %s", printable.Escape(v.Tag))
	}
	p.printf("  archive %s\n  content %s\n", p.digest("sha256:"+v.SHA256), p.digest("sha256:"+v.ContentSHA256))
	p.notCompared(v.NotCompared)
	v.printExcluded(p)
	p.notes(v.Notes)
	p.notChecked(v.NotChecked)
	if !v.dryRun {
		p.use(moduleBlock(strings.Split(v.Address, "/")[1], v.source(), v.Version.String()), v.host)
	}
}

// notCompared prints that the registry did not compare the stored objects of an
// unchanged version.
func (p page) notCompared(notCompared bool) {
	if notCompared {
		p.println("  not compared with the stored objects, because it was published with AWS credentials; " +
			"to compare them, run `larder verify`")
	}
}

// notChecked prints what a dry run without requests cannot check.
func (p page) notChecked(host string) {
	if host != "" {
		p.println("The dry run sent no request to %s. It did not check your credential, nor whether the registry "+
			"accepts this content or already has this version.", host)
	}
}

// secrets returns the excluded files that may contain secrets.
func (v publishedModuleView) secrets() []archive.Excluded {
	return slices.DeleteFunc(slices.Clone(v.Excluded), func(l archive.Excluded) bool { return l.Ignored })
}

// printFiles lists the files of a dry run: packed files, and files that may
// contain secrets. For each pattern of .terraformignore it prints only a
// number.
func (v publishedModuleView) printFiles(p page) {
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
		{Title: "SIZE", Right: true}, stateColumn, {Title: "FILE", Min: 20, Shorten: terminal.CutStart}, reasonColumn,
	}, rows)
	p.printf("\n")
}

// printExcluded prints how many files may contain secrets and are not in the
// archive, with the patterns that they match. It also prints the warnings.
func (v publishedModuleView) printExcluded(p page) {
	defer func() { p.warnings(v.warnings()) }()
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
	p.println("  excluded %s that may contain secrets (%s)%s%s",
		english.Plural(len(excluded), "file", "files"), strings.Join(reasons, ", "), separator, strings.Join(first, ", "))
	p.println("  to list excluded files, use --dry-run; to pack one, use --include PATTERN")
}

// warnings returns warnings about likely mistakes: the configuration names an
// excluded file, a pattern matches nothing, or the description was not stored.
func (v publishedModuleView) warnings() (all []string) {
	for _, pattern := range archive.Unmatched(v.wanted.Pack.Include, v.Files) {
		all = append(all, fmt.Sprintf("--include %s matches no file", quoted(printable.Escape(pattern))))
	}
	all = append(all, unmatchedWarnings(v.unmatched)...)
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
