package main

import (
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

// taggedVersion returns the version of a module that a tag of the checked out
// commit names, and this tag. If the repository's larder.hcl lists the module,
// the tag must match its pattern. Otherwise the tag is v1.2.3 or 1.2.3.
func taggedVersion(ctx context.Context, m releases.Module) (registry.Version, string, error) {
	fail := func(reason, hint string) (registry.Version, string, error) {
		return registry.Version{}, "", registry.WithHint(usagef("VERSION is missing, and %s", reason), "%s", hint)
	}
	const name = "Name the version, such as 1.0.0."
	repository, err := monorepo.Open(ctx, m.Dir)
	if errors.Is(err, registry.ErrNotFound) {
		return fail("the folder "+m.Dir+" is in no Git repository", name)
	}
	if err != nil {
		return registry.Version{}, "", err
	}
	all, err := monorepo.ReadModules(ctx, repository.Root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return registry.Version{}, "", err
	}
	patterns := []monorepo.Module{{Address: m.Address, Tag: "v*"}, {Address: m.Address, Tag: "*"}}
	if i := slices.IndexFunc(all, func(one monorepo.Module) bool { return one.Address == m.Address }); i >= 0 {
		patterns = all[i : i+1]
	}
	tags, err := repository.TagsAtHead(ctx)
	if err != nil {
		return registry.Version{}, "", err
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
		return found[0].Version, found[0].TagName, nil
	}
	names := make([]string, len(found))
	for i, release := range found {
		names[i] = printable.Escape(release.TagName)
	}
	return fail("several tags of the checked out commit name one: "+strings.Join(names, ", "), name)
}
