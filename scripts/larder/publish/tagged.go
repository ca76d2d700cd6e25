package publish

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/sources/monorepo"
	"github.com/larder-registry/larder/pkg/text/printable"
	"github.com/larder-registry/larder/scripts/larder/arguments"
)

// useTag sets the version of a module to the one that a tag of the checked out
// commit names. It sets the folder to a temporary one with the files of this
// commit. The folder of the checkout must not differ, except for ignored files.
// useTag returns the tag, and the worktree, which the caller closes.
//
// If the repository's larder.hcl lists the module, the tag must match its
// pattern, and the folder must be its own. Then the module gets its description
// too. Otherwise the tag is v1.2.3 or 1.2.3.
func useTag(ctx context.Context, m *rules.Module) (string, *monorepo.Worktree, error) {
	fail := func(reason, hint string) (string, *monorepo.Worktree, error) {
		return "", nil, registry.WithHint(arguments.Errorf("VERSION is missing, and %s", reason), "%s", hint)
	}
	const name = "Name the version, such as 1.0.0."
	repository, err := monorepo.Open(ctx, m.Dir)
	if errors.Is(err, registry.ErrNotFound) && registry.Hint(err) == "" {
		return fail("the folder "+m.Dir+" is not in a Git repository", name)
	}
	if err != nil {
		return "", nil, err
	}
	path, err := repository.PathOf(m.Dir)
	if err != nil {
		return "", nil, err
	}
	all, err := repository.Modules(ctx)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", nil, err
	}
	patterns := []monorepo.Module{{Address: m.Address, Tag: "v*"}, {Address: m.Address, Tag: "*"}}
	if i := slices.IndexFunc(all, func(one monorepo.Module) bool { return one.Address == m.Address }); i >= 0 {
		patterns = all[i : i+1]
		if all[i].Path != path {
			return fail(monorepo.FileName+" lists "+m.Address.String()+" in the folder "+all[i].Path+", not in "+path, name)
		}
		m.Description = cmp.Or(m.Description, all[i].Description)
		m.AllowSecrets = slices.Concat(all[i].AllowSecrets, m.AllowSecrets)
	}
	tags, err := repository.TagsAtHead(ctx)
	if err != nil {
		return "", nil, err
	}
	var found []monorepo.Release
	for _, tag := range tags {
		if release, err := monorepo.Match(patterns, tag); err == nil {
			found = append(found, release)
		}
	}
	switch len(found) {
	case 0:
		return fail("no tag of the checked out commit matches "+patterns[0].Tag+" with a version", name)
	case 1:
		found[0].Path = path
		worktree, err := repository.Worktree(ctx)
		if err != nil {
			return "", nil, err
		}
		m.Version = found[0].Version
		err = worktree.Extract(ctx, found[0], m)
		edited := false
		if err == nil && len(m.Incomplete) == 0 { // the checkout has the content, and so differs
			edited, err = repository.Edited(ctx, []monorepo.Module{{Path: path}})
		}
		if err != nil {
			return "", nil, errors.Join(err, worktree.Close())
		}
		if edited {
			_ = worktree.Close() // the error is more important
			return fail("the folder differs from the tag "+printable.Escape(found[0].TagName), "Commit the changes and "+
				"create a tag, or name the version. A file with a filter in .gitattributes always differs.")
		}
		return found[0].TagName, worktree, nil
	}
	names := make([]string, len(found))
	for i, release := range found {
		names[i] = printable.Escape(release.TagName)
	}
	return fail("several tags of the checked out commit name a version: "+strings.Join(names, ", "), name)
}
