package main

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/monorepo"
	"github.com/larder-registry/larder/pkg/printable"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/releases"
)

// setTaggedVersion sets the version of a module to the one that a tag of the
// checked out commit names, and returns this tag. The files must be those of the
// commit.
//
// If the repository's larder.hcl lists the module, the tag must match its
// pattern, and the folder must be its own. Then the module gets its description
// too. Otherwise the tag is v1.2.3 or 1.2.3.
func setTaggedVersion(ctx context.Context, m *releases.Module) (string, error) {
	fail := func(reason, hint string) (string, error) {
		return "", registry.WithHint(usagef("VERSION is missing, and %s", reason), "%s", hint)
	}
	const name = "Name the version, such as 1.0.0."
	repository, err := monorepo.Open(ctx, m.Dir)
	if errors.Is(err, registry.ErrNotFound) {
		return fail("the folder "+m.Dir+" is not in a Git repository", name)
	}
	if err != nil {
		return "", err
	}
	path, err := repository.PathOf(m.Dir)
	if err != nil {
		return "", err
	}
	all, err := monorepo.ReadModules(ctx, repository.Root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	patterns := []monorepo.Module{{Address: m.Address, Tag: "v*"}, {Address: m.Address, Tag: "*"}}
	if i := slices.IndexFunc(all, func(one monorepo.Module) bool { return one.Address == m.Address }); i >= 0 {
		patterns = all[i : i+1]
		if all[i].Path != path {
			return fail(monorepo.FileName+" lists "+m.Address.String()+" in the folder "+all[i].Path+", not in "+path, name)
		}
		m.Description = cmp.Or(m.Description, all[i].Description)
	}
	tags, err := repository.TagsAtHead(ctx)
	if err != nil {
		return "", err
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
		edited, err := repository.Edited(ctx, []monorepo.Module{{Path: path}})
		if err != nil {
			return "", err
		}
		if edited {
			return fail("the folder differs from the tag "+printable.Escape(found[0].TagName),
				"Commit the changes and create a tag, or name the version.")
		}
		m.Version = found[0].Version
		return found[0].TagName, nil
	}
	names := make([]string, len(found))
	for i, release := range found {
		names[i] = printable.Escape(release.TagName)
	}
	return fail("several tags of the checked out commit name a version: "+strings.Join(names, ", "), name)
}
