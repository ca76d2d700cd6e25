package monorepo

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/registry"
)

// claimTimeout bounds how long [Claim] reads a repository.
const claimTimeout = 10 * time.Second

// Claim returns the commit that is checked out in a folder, as the source of a
// version. It returns nil without git or a repository, or if the commit has no
// file of the folder.
//
// It returns registry.ErrInvalid if git refuses the repository, and
// registry.ErrUnavailable if it takes too long. Then the folder can be
// published without a source. Other errors are those of ctx.
func Claim(ctx context.Context, dir string, m registry.Module, v registry.Version) (*registry.ClaimedSource, error) {
	return claimWithin(ctx, claimTimeout, dir, m, v)
}

func claimWithin(
	ctx context.Context, timeout time.Duration, dir string, m registry.Module, v registry.Version,
) (*registry.ClaimedSource, error) {
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	claimed, err := claim(bounded, dir, m, v)
	switch {
	case errors.Is(err, registry.ErrNotFound):
		return nil, nil //nolint:nilnil // as [Claim] documents
	case err != nil && ctx.Err() == nil && bounded.Err() != nil:
		return nil, registry.Errorf(registry.ErrUnavailable, "reading the Git repository takes longer than %s", timeout)
	}
	return claimed, err
}

func claim(ctx context.Context, dir string, m registry.Module, v registry.Version) (*registry.ClaimedSource, error) {
	r, err := Open(ctx, dir)
	if err != nil {
		return nil, err
	}
	commit, err := r.commit(ctx, "HEAD")
	if errors.Is(err, registry.ErrInvalid) { // before the first commit
		return nil, registry.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	path, err := r.PathOf(dir)
	if err != nil {
		return nil, err
	}
	found := registry.ClaimedSource{Commit: commit}
	if found.Dirty, err = r.folderDiffers(ctx, commit, path); err != nil {
		return nil, err
	}
	if found.Remote, err = r.remote(ctx); err != nil {
		return nil, err
	}
	tags, err := r.TagsAtHead(ctx)
	patterns := r.patterns(ctx, m, path)
	for _, tag := range tags {
		if release, err := Match(patterns, tag); err == nil && release.Version == v {
			found.Tag = tag
			break
		}
	}
	return checked(found), err
}

// folderDiffers reports whether a folder differs from a commit. A submodule
// differs, because its files are not in the commit. Without a file in the
// commit, folderDiffers returns registry.ErrNotFound.
func (r *Repository) folderDiffers(ctx context.Context, commit, path string) (bool, error) {
	args := []string{"ls-tree", "-r", "-z", "--full-tree", commit}
	if path != "." {
		args = append(args, "--", ":(literal)"+path)
	}
	out, err := r.Run(ctx, args...)
	if err != nil {
		return false, err
	}
	if len(out) == 0 {
		return false, registry.ErrNotFound
	}
	if slices.ContainsFunc(strings.Split(string(out), "\x00"), func(entry string) bool {
		return strings.HasPrefix(entry, "160000 ")
	}) {
		return true, nil
	}
	return r.differ(ctx, []string{path})
}

// patterns returns the patterns of the tags that name versions of a module in a
// folder. An invalid file of the repository lists no modules.
func (r *Repository) patterns(ctx context.Context, m registry.Module, path string) []Module {
	all, _ := r.Modules(ctx)
	if i := slices.IndexFunc(all, func(one Module) bool { return one.Address == m }); i >= 0 {
		return all[i : i+1]
	}
	return []Module{{Address: m, Tag: defaultPattern(path)}, {Address: m, Tag: "v*"}, {Address: m, Tag: "*"}}
}

// remote returns the URL of the remote origin, or of the only remote, as
// [registry.RemoteURL] does. It is empty if there is no such remote.
func (r *Repository) remote(ctx context.Context) (string, error) {
	// Not `git remote get-url`: settings of this machine can replace the URL,
	// for example by that of a proxy.
	out, err := r.Run(ctx, "config", "--null", "--get-regexp", `^remote\..*\.url$`)
	if errors.Is(err, registry.ErrInvalid) { // there are none
		return "", nil
	}
	urls := make(map[string]string)
	for setting := range strings.SplitSeq(string(out), "\x00") {
		key, value, _ := strings.Cut(setting, "\n")
		if _, has := urls[key]; !has && key != "" { // git fetches from the first one
			urls[key] = value
		}
	}
	only := urls["remote.origin.url"]
	if len(urls) == 1 {
		for _, value := range urls {
			only = value
		}
	}
	return registry.RemoteURL(only), err
}

// checked returns a source without a tag that cannot be recorded.
func checked(c registry.ClaimedSource) *registry.ClaimedSource {
	if c.Check() != nil {
		c.Tag = ""
	}
	return &c
}
