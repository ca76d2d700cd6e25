package publish

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/content/archive"
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
	"github.com/larder-registry/larder/scripts/larder/failure"
	"github.com/larder-registry/larder/scripts/larder/output"
	"github.com/larder-registry/larder/scripts/larder/place"
)

// tagsHelp is the help of `larder publish` without a kind.
const tagsHelp = `Publish a module, a provider, or the modules of a Git repository.

Without a kind, the command reads larder.hcl at the root of the repository that
contains the working directory. The file lists the modules of the repository:

  module "acme/vpc/aws" {
    path        = "modules/vpc"
    tag         = "vpc/v*"  # the * is the version; default: PATH/v*
    description = "A VPC"
    # allow_secrets = ["examples/key.pem"]  # files that may have secrets
  }

The command publishes each version that a tag of the checked out commit names.
It publishes the files of that commit, and not those of the checkout, and uses
the larder.hcl of that commit. With --tag it publishes the version of another
tag, and with --all-tags the versions of all tags. Then it uses the larder.hcl
on disk. A version that is already published with the same content is unchanged,
and the command succeeds. It never changes your checkout and runs no Git hooks.

If some versions cannot be published, the command publishes the others, and then
fails with exit code 3 or 4. With --all-tags, a withdrawn version stays
withdrawn, and the command succeeds.` + place.ThroughRegistry + place.DryThroughRegistry

// tagFlags are the flags of `larder publish` without a kind.
type tagFlags struct {
	tag     string
	allTags bool
	dryRun  bool
	// allowSecrets are paths in the modules that may have secrets.
	allowSecrets []string
}

// addTagFlags makes `larder publish` run without a kind.
func addTagFlags(c *cli.Program, cmd *cobra.Command) {
	var flags tagFlags
	c.RegistryFlags(cmd)
	cmd.Flags().BoolVar(&flags.allTags, "all-tags", false, "publish the versions that all tags name")
	cmd.Flags().StringVar(&flags.tag, "tag", "", "publish the version that the `TAG` names, instead of those at HEAD")
	cmd.Flags().BoolVar(&flags.dryRun, "dry-run", false,
		"pack and check the modules and show the result without publishing")
	AllowSecretsFlag(cmd, &flags.allowSecrets)
	yesFlag(cmd)
	cmd.RunE = c.Run(func(ctx context.Context, _ []string) (output.View, error) { return publishTags(ctx, c, flags) })
}

// publishTags publishes the versions that tags of a repository name.
func publishTags(ctx context.Context, c *cli.Program, flags tagFlags) (output.View, error) {
	if flags.allTags && c.Flags.Changed("tag") {
		return nil, registry.WithHint(arguments.Errorf("--tag and --all-tags exclude each other"), "Use only one of them.")
	}
	if c.Flags.Changed("tag") && flags.tag == "" {
		return nil, arguments.Errorf("--tag is empty")
	}
	if err := CheckAllowSecrets(flags.allowSecrets); err != nil {
		return nil, err
	}
	to, err := c.FindAny()
	if err != nil {
		return nil, err
	}
	repository, modules, err := openMonorepo(ctx, flags)
	if err != nil {
		return nil, err
	}
	found, ignored, err := findReleases(ctx, repository, modules, flags)
	if err != nil {
		return nil, err
	}
	v := PublishedTagsView{Ignored: ignored, to: to.Name, dryRun: flags.dryRun}
	if v.Notes, err = notesOf(ctx, repository, found, flags); err != nil {
		return nil, err
	}
	if to.Host == "" {
		return c.OnStore(ctx, func(s *place.Store) (output.View, error) {
			publisher := publish.Publisher{Catalog: s.Catalog, Objects: s.Objects}
			var err error
			if publisher.By, err = s.By(ctx); err != nil {
				return nil, err
			}
			do := publisher.Module
			if flags.dryRun {
				do = publisher.CheckModule
			}
			return publishReleases(ctx, c, repository, found, flags, v,
				func(ctx context.Context, m rules.Module, progress *output.Steps) (rules.ModuleResult, error) {
					publisher.Confirm = confirmer(ctx, c, progress)
					return do(ctx, m)
				})
		})
	}
	c.PrintRegistry()
	if flags.dryRun {
		v.NotChecked = to.Host
		return publishReleases(ctx, c, repository, found, flags, v,
			func(ctx context.Context, m rules.Module, _ *output.Steps) (rules.ModuleResult, error) {
				return rules.Preparer{}.Plan(ctx, m)
			})
	}
	var result output.View
	err = c.ThroughEndpoint(ctx, to.Host, func(p *publishclient.Publisher) (err error) {
		result, err = publishReleases(ctx, c, repository, found, flags, v,
			func(ctx context.Context, m rules.Module, progress *output.Steps) (rules.ModuleResult, error) {
				p.Confirm = confirmer(ctx, c, progress)
				prepared, err := rules.Preparer{}.Module(ctx, m)
				if err != nil {
					return rules.ModuleResult{}, err
				}
				defer prepared.Close()
				return p.Module(ctx, prepared)
			})
		return err
	})
	return result, err
}

// openMonorepo returns the repository that contains the working directory, and
// its modules. They are those of the commit that is checked out if it is the one
// to publish, and otherwise those on disk.
func openMonorepo(ctx context.Context, flags tagFlags) (*monorepo.Repository, []monorepo.Module, error) {
	const otherwise = "To publish one folder, use `larder publish module DIR NAMESPACE/NAME/SYSTEM VERSION`."
	repository, err := monorepo.Open(ctx, ".")
	if errors.Is(err, registry.ErrNotFound) && registry.Hint(err) == "" {
		return nil, nil, registry.WithHint(err, "Run the command in a Git repository with %s. %s", monorepo.FileName, otherwise)
	}
	if err != nil {
		return nil, nil, err
	}
	var modules []monorepo.Module
	if flags.allTags || flags.tag != "" {
		modules, err = monorepo.ReadModules(ctx, repository.Root)
	} else {
		modules, err = repository.Modules(ctx)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, registry.WithHint(registry.Errorf(registry.ErrNotFound, "the repository has no %s at its root",
			monorepo.FileName), "Add it as in `larder publish --help`. %s", otherwise)
	}
	return repository, modules, err
}

// findReleases returns the versions to publish, in the order of the modules and
// then of the versions. There is at least one. It also returns the tags that
// name none.
func findReleases(
	ctx context.Context, repository *monorepo.Repository, modules []monorepo.Module, flags tagFlags,
) (found []monorepo.Release, ignored []monorepo.Ignored, err error) {
	tags, err := tagsOf(ctx, repository, flags)
	if err != nil {
		return nil, nil, err
	}
	for _, tag := range tags {
		release, err := monorepo.Match(modules, tag)
		if err != nil {
			ignored = append(ignored, monorepo.Ignored{Tag: tag, Reason: err.Error()})
			continue
		}
		found = append(found, release)
	}
	if len(found) == 0 {
		return nil, nil, noRelease(modules, ignored, flags)
	}
	order := make(map[registry.Module]int)
	for i, m := range modules {
		order[m.Address] = i
	}
	slices.SortFunc(found, func(a, b monorepo.Release) int {
		return cmp.Or(cmp.Compare(order[a.Address], order[b.Address]), registry.CompareVersions(a.Version, b.Version))
	})
	return found, ignored, nil
}

// tagsOf returns the tags that name versions to publish.
func tagsOf(ctx context.Context, repository *monorepo.Repository, flags tagFlags) ([]string, error) {
	switch {
	case flags.allTags:
		return repository.Tags(ctx)
	case flags.tag == "":
		return repository.TagsAtHead(ctx)
	}
	name := strings.TrimPrefix(flags.tag, "refs/tags/")
	switch has, err := repository.HasTag(ctx, name); {
	case err != nil:
		return nil, err
	case !has:
		return nil, registry.WithHint(registry.Errorf(registry.ErrNotFound, "the repository has no tag%s", arguments.InError(name)),
			"Run `git tag` to list the tags, and `git fetch --tags` to fetch those of the remote repository.")
	}
	return []string{name}, nil
}

// noRelease returns the error if no tag names a version.
func noRelease(modules []monorepo.Module, ignored []monorepo.Ignored, flags tagFlags) error {
	create := "`git tag " + arguments.Quoted(strings.Replace(modules[0].Tag, "*", "1.0.0", 1)) + "`"
	which, hint := "the checked out commit has no tag", "Create one, for example with "+create+
		", or publish the versions of all tags with --all-tags."
	if flags.allTags {
		which, hint = "the repository has no tag", "Fetch the tags with `git fetch --tags`, or create one, for example with "+
			create+"."
	}
	err := registry.Errorf(registry.ErrInvalid, "cannot find a version to publish: %s", which)
	if len(ignored) > 0 {
		first := ignored[0]
		err = registry.Errorf(registry.ErrInvalid, "cannot find a version to publish: the tag %s names none: %s",
			printable.Escape(first.Tag), first.Reason)
		if more := len(ignored) - 1; more > 0 {
			err = registry.Errorf(registry.ErrInvalid, "%w (and %s)", err,
				english.Plural(more, "other tag", "other tags"))
		}
	}
	if flags.tag != "" {
		examples := make([]string, min(len(modules), 5))
		for i := range examples {
			examples[i] = strings.Replace(modules[i].Tag, "*", "1.0.0", 1)
		}
		hint = "Tags name versions of the modules, such as " + strings.Join(examples, ", ") + "."
	}
	return registry.WithHint(err, "%s", hint)
}

// notesOf returns what people may not expect of the versions to publish.
func notesOf(
	ctx context.Context, repository *monorepo.Repository, found []monorepo.Release, flags tagFlags,
) (notes []string, err error) {
	if flags.allTags {
		shallow, err := repository.IsShallow(ctx)
		if shallow {
			notes = append(notes, "the clone is shallow, so some tags may be missing")
		}
		return notes, err
	}
	if flags.tag != "" {
		return nil, nil
	}
	var modules []monorepo.Module
	for _, r := range found {
		modules = append(modules, r.Module)
	}
	edited, err := repository.Edited(ctx, modules)
	if edited {
		notes = append(notes, "the checkout has changes that are not committed; "+
			"the published files are those of the commit, without these changes")
	}
	return notes, err
}

// publishReleases publishes the versions one after another with do. If it stops
// early, the view has the versions before that.
func publishReleases(
	ctx context.Context, c *cli.Program, repository *monorepo.Repository, found []monorepo.Release, flags tagFlags, v PublishedTagsView,
	do func(context.Context, rules.Module, *output.Steps) (rules.ModuleResult, error),
) (_ output.View, err error) {
	worktree, err := repository.Worktree(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, worktree.Close()) }()
	progress := c.NewProgress()
	defer progress.Stop()
	var failed []error
	unused := slices.Clone(flags.allowSecrets)
	for i, r := range found {
		progress.Step(fmt.Sprintf("%s, %d of %d", r, i+1, len(found)))
		one := publishedTag{Address: r.Address.String(), Version: r.Version, Tag: r.TagName, Path: r.Path}
		m := rules.Module{
			Address: r.Address, Version: r.Version, Description: r.Description,
			AllowSecrets: slices.Concat(r.AllowSecrets, flags.allowSecrets),
		}
		err := worktree.Extract(ctx, r, &m)
		var result rules.ModuleResult
		if err == nil {
			result, err = do(ctx, m, progress)
		} else if ctx.Err() == nil {
			err = fmt.Errorf("cannot publish %s: %w", r, err)
		}
		switch {
		case err == nil:
			one.Status = publishStatus(flags.dryRun, result.Unchanged, result.Restored)
			one.SHA256, one.ContentSHA256 = result.Record.SHA256, result.Record.ContentSHA256
			one.Notes, one.excluded = slices.Concat(result.Notes, result.LoadNotes, secretNotes(result.Secrets)), result.Excluded
			one.Newcomer = result.Newcomer
			one.unmatched = InBoth(r.AllowSecrets, result.Unmatched)
		case ctx.Err() != nil && errors.Is(err, registry.ErrInvalid): // git, for example, was interrupted too
			return output.Partial(v, len(v.Versions), ctx.Err())
		case errors.Is(err, output.ErrNotConfirmed):
			err = fmt.Errorf("cannot publish %s: not confirmed", r)
			one.Status, one.Problems = "failed", failure.All(err)
			failed = append(failed, err)
		case flags.allTags && errors.Is(err, registry.ErrWithdrawn):
			one.Status = "withdrawn"
		case errors.Is(err, registry.ErrInvalid), errors.Is(err, registry.ErrExists), errors.Is(err, registry.ErrWithdrawn):
			one.Status, one.Problems = "failed", failure.All(err)
			failed = append(failed, err)
		default:
			return output.Partial(v, len(v.Versions), err)
		}
		unused = InBoth(unused, result.Unmatched)
		v.Versions = append(v.Versions, one)
		c.WarnQuietly(tagWarnings(one))
	}
	v.Notes = append(v.Notes, UnmatchedWarnings(unused)...)
	return v, failure.Join(failed, fmt.Sprintf("publish %d of %d versions", len(failed), len(found)))
}

// PublishedTagsView is the result of publishing the versions that tags name.
type PublishedTagsView struct {
	Versions []publishedTag `json:"versions"`
	// Ignored are tags that name no version.
	Ignored []monorepo.Ignored `json:"ignored,omitempty"`
	// NotChecked is the host of the registry if a dry run sent it no request.
	NotChecked string `json:"not_checked,omitempty"`
	// Notes describe what people may not expect.
	Notes []string `json:"notes,omitempty"`

	to     string
	dryRun bool
}

// publishedTag is a version that a tag names.
type publishedTag struct {
	// Status is published, unchanged, restored, withdrawn or failed. It is
	// dry_run if a dry run would publish a new version.
	Status  string           `json:"status"`
	Address string           `json:"address"`
	Version registry.Version `json:"version"`
	Tag     string           `json:"tag"`
	// Path is the folder of the module in the repository.
	Path string `json:"path"`
	// SHA256 is the SHA-256 sum of the archive. It is missing if the version
	// failed or is withdrawn.
	SHA256 string `json:"sha256,omitempty"`
	// ContentSHA256 is the SHA-256 sum of the module's files. It is missing if the
	// version failed or is withdrawn.
	ContentSHA256 string `json:"content_sha256,omitempty"`
	// Problems describe why the version could not be published.
	Problems []failure.Problem `json:"problems,omitempty"`
	// Newcomer is set if the publish creates a namespace, or an address that looks like
	// another one.
	Newcomer *protocol.Newcomer `json:"newcomer,omitempty"`
	// Notes describe what is missing in the documentation.
	Notes []string `json:"notes,omitempty"`

	excluded  []archive.Excluded
	unmatched []string // paths where secrets are allowed
}

// Text implements [output.View].
func (v PublishedTagsView) Text(p output.Page) {
	rows := make([][]string, len(v.Versions))
	numbers := make(map[string]int)
	for i, one := range v.Versions {
		numbers[one.Status]++
		rows[i] = []string{one.Address, one.Version.String(), printable.Escape(one.Tag), strings.ReplaceAll(one.Status, "_", " ")}
	}
	p.Table([]terminal.Column{
		{Title: "MODULE"}, output.VersionColumn, {Title: "TAG", Min: 12}, {Title: "STATUS", Paint: output.PaintState},
	}, rows)
	var counts []string
	for _, status := range []string{"published", "dry_run", "restored", "unchanged", "withdrawn", "failed"} {
		if n := numbers[status]; n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", n, map[bool]string{true: "to publish", false: status}[status == "dry_run"]))
		}
	}
	p.Println("%s: %s in %s", english.Plural(len(v.Versions), "version", "versions"), strings.Join(counts, ", "), v.to)
	for i, ignored := range v.Ignored {
		if i == errs.ShownProblems {
			p.Println("  and %d more; --json lists them all", len(v.Ignored)-i)
			break
		}
		p.Println("  ignored the tag %s: %s", printable.Escape(ignored.Tag), printable.Escape(ignored.Reason))
	}
	for _, one := range v.Versions {
		p.Warnings(tagWarnings(one))
		for _, note := range one.Notes {
			p.Notes([]string{fmt.Sprintf("%s %s: %s", one.Address, one.Version, note)})
		}
	}
	p.Notes(v.Notes)
	printNotChecked(p, v.NotChecked)
}

// tagWarnings warns of files that the configuration names, but that were not
// packed, and of allowed paths that contain no file.
func tagWarnings(t publishedTag) []string {
	var all []string
	for _, warning := range newcomerWarnings(t.Newcomer) {
		all = append(all, fmt.Sprintf("%s %s: %s", t.Address, t.Version, warning))
	}
	for _, e := range t.excluded {
		if e.NamedBy != "" && !e.Ignored {
			all = append(all, fmt.Sprintf("%s %s: %s names %s, which is excluded", t.Address, t.Version, e.NamedBy,
				printable.Escape(e.Path)))
		}
	}
	for _, warning := range UnmatchedWarnings(t.unmatched) {
		all = append(all, fmt.Sprintf("%s %s: %s", t.Address, t.Version, warning))
	}
	return all
}
