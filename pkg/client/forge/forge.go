// Package forge finds the archive of a commit at a forge, such as GitHub. It
// needs no program git, and not the API of the forge, which limits the
// requests.
package forge

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/client/location"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/printable"
)

var public = map[registry.Host]registry.Forge{
	"github.com": registry.GitHub, "gitlab.com": registry.GitLab, "bitbucket.org": registry.Bitbucket,
	"codeberg.org": registry.Forgejo,
}

// Repository is a repository at a forge. Get one with [Find].
type Repository struct {
	Kind registry.Forge
	// Host is canonical, and can have a port.
	Host string
	// Path has neither a slash at its ends nor the suffix .git. It is as in the
	// location, in upper or lower case.
	Path string
}

// part matches a part of a repository's path. It is not "-", which begins the
// paths of a GitLab's own pages.
var part = regexp.MustCompile(`^[.-]?[A-Za-z0-9_][A-Za-z0-9_.-]*$`)

// maxParts bounds the parts of a path in a GitLab. Groups can have 20 levels.
const maxParts = 22

const forgesHint = "Without Git, modules can be copied from GitHub, GitLab, Bitbucket and Forgejo over https. " +
	"Name other hosts of these in `forges` of the mirror policy. On a machine with Git, `larder mirror add` can copy others."

// Find returns the repository of a location. hosts has the kinds of hosts other
// than github.com, gitlab.com, bitbucket.org and codeberg.org. They can have
// ports.
//
// It returns registry.ErrInvalid if the location is not a repository at such a
// forge over https, or has a user.
func Find(at location.Location, hosts map[string]registry.Forge) (Repository, error) {
	if !at.Git {
		return Repository{}, refused("it is not a Git repository")
	}
	host := registry.CanonicalHost(at.URL.Host)
	kind := public[host]
	for name, k := range hosts {
		if kind == "" && registry.CanonicalHost(name) == host {
			kind = k
		}
	}
	switch {
	case at.URL.Scheme != "https":
		return Repository{}, refused("its URL has the scheme %s", printable.Mark(at.URL.Scheme, 20))
	case at.URL.User != nil:
		return Repository{}, refused("its URL contains a user")
	case !slices.Contains(registry.Forges, kind):
		return Repository{}, refused("%s is not a known forge", printable.Mark(host.Display(), 300))
	}
	path := strings.TrimSuffix(strings.Trim(at.URL.Path, "/"), ".git")
	parts := strings.Split(path, "/")
	form, most := "OWNER/NAME", 2
	if kind == registry.GitLab {
		form, most = "GROUP/NAME", maxParts
	}
	isOther := func(text string) bool { return !part.MatchString(text) }
	if at.URL.RawPath != "" || len(parts) < 2 || len(parts) > most || slices.ContainsFunc(parts, isOther) {
		return Repository{}, refused("the path of its repository at %s does not have the form %s", host.Display(), form)
	}
	return Repository{kind, string(host), path}, nil
}

func refused(format string, args ...any) error {
	return registry.WithHint(
		fmt.Errorf("%w location of the module: %s", registry.ErrInvalid, fmt.Sprintf(format, args...)), forgesHint)
}

// String returns https://HOST/PATH.
func (r Repository) String() string { return "https://" + r.Host + "/" + r.Path }

// Archive returns the URL of the .tar.gz of a commit. All files are in one
// folder, whose name depends on the forge.
func (r Repository) Archive(commit string) string {
	switch r.Kind {
	case registry.GitLab:
		name := r.Path[strings.LastIndexByte(r.Path, '/')+1:]
		return r.String() + "/-/archive/" + commit + "/" + name + "-" + commit + ".tar.gz"
	case registry.Bitbucket:
		return r.String() + "/get/" + commit + ".tar.gz"
	default:
		return r.String() + "/archive/" + commit + ".tar.gz"
	}
}
