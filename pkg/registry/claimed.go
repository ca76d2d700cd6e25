package registry

import (
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strings"

	"github.com/larder-registry/larder/pkg/text/printable"
)

// ClaimedSource is the Git commit from which a version was published. The
// publisher states it, and nothing verifies it. No decision may depend on it.
type ClaimedSource struct {
	// Remote is the URL of the repository, without password and query. It is
	// empty if the repository has no remote on a server.
	Remote string `json:"remote,omitempty"`
	// Commit is the full hash of the commit.
	Commit string `json:"commit"`
	// Tag is the tag of the commit that names the version. It is empty if there
	// is none.
	Tag string `json:"tag,omitempty"`
	// Dirty means that the published folder differed from the commit.
	Dirty bool `json:"dirty,omitempty"`
}

// maxRemote and maxTag bound the texts of a [ClaimedSource] in bytes.
const maxRemote, maxTag = 255, 255

// commitHash matches the full hash of a commit.
var commitHash = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

// Check returns ErrInvalid if the remote differs from what [RemoteURL] returns.
// It does so too if the commit is not a full hash, or Git does not allow the
// tag. Its errors contain none of these texts, which could be credentials.
func (c ClaimedSource) Check() error {
	switch {
	case c.Remote != "" && RemoteURL(c.Remote) != c.Remote:
		return fmt.Errorf("%w claimed source: the remote is not a plain URL of at most %d bytes, "+
			"such as https://git.example.com/acme/vpc.git", ErrInvalid, maxRemote)
	case !commitHash.MatchString(c.Commit):
		return fmt.Errorf("%w claimed source: the commit is not a full hash in lower-case hexadecimal", ErrInvalid)
	case len(c.Tag) > maxTag || !printable.Is(c.Tag) || strings.ContainsAny(c.Tag, ` ~^:?*[\`):
		return fmt.Errorf("%w claimed source: the tag is not a name of a Git tag of at most %d bytes", ErrInvalid, maxTag)
	}
	return nil
}

// Repository returns the host and the path of the remote, for people, such as
// github.com/acme/vpc. It is empty if there is no remote.
func (c ClaimedSource) Repository() string {
	_, text, _ := strings.Cut(c.Remote, "://")
	return strings.TrimSuffix(strings.TrimPrefix(text, "git@"), ".git")
}

// String describes the source in one line, for people. The commit has all its
// digits.
func (c ClaimedSource) String() string { return c.describe(c.Commit) }

// Short is like [ClaimedSource.String], but with the first digits of the
// commit.
func (c ClaimedSource) Short() string { return c.describe(c.Commit[:min(7, len(c.Commit))]) }

func (c ClaimedSource) describe(commit string) string {
	text := "commit " + commit
	if repository := c.Repository(); repository != "" {
		text += " of " + repository
	}
	if c.Tag != "" {
		text += ", tag " + c.Tag
	}
	if c.Dirty {
		text += ", with uncommitted changes"
	}
	return text
}

// Beside returns the source if it adds something to the identity of its
// publisher, and nil otherwise. The identity of a CI job proves the commit of
// the job. A publisher without an identity that proves one always adds
// something.
func (c *ClaimedSource) Beside(by Publisher) *ClaimedSource {
	if c == nil || c.Commit == by.Commit && !c.Dirty {
		return nil
	}
	return c
}

// remoteHost and remotePath match the parts of a URL that [RemoteURL] accepts.
// A path with an @ could contain a part of a password, because people forget to
// escape a slash in it.
var (
	remoteHost = regexp.MustCompile(`^[a-z0-9]+([.-]+[a-z0-9]+)*(:[0-9]{1,5})?$`)
	remotePath = regexp.MustCompile(`^(/[A-Za-z0-9._~%+,()-]+)+/?$`)
)

// RemoteURL returns the URL of a Git remote on a server, without password,
// query and fragment. The only user in it is git with SSH, which is the same
// for everybody. For git@HOST:PATH it returns ssh://git@HOST/PATH. For other
// remotes, such as a local path, it returns an empty string.
func RemoteURL(remote string) string {
	if host, path, found := strings.Cut(remote, ":"); found && !strings.Contains(remote, "://") {
		// Others are a path, a drive of Windows, or a short form of the user's
		// settings.
		if strings.Contains(host, "/") || !strings.ContainsAny(host, "@.") {
			return ""
		}
		remote = "ssh://" + host + "/" + strings.TrimPrefix(path, "/")
	}
	u, err := url.Parse(remote)
	if err != nil {
		return ""
	}
	clean := url.URL{Scheme: u.Scheme, Host: strings.ToLower(u.Host), Path: u.Path, RawPath: u.RawPath}
	switch u.Scheme {
	case "https", "http", "git":
	case "ssh":
		if u.User.Username() == "git" {
			clean.User = url.User("git")
		}
	default:
		return ""
	}
	if !remoteHost.MatchString(clean.Host) || !remotePath.MatchString(clean.EscapedPath()) ||
		path.Clean(u.Path) != strings.TrimSuffix(u.Path, "/") || !printable.Is(u.Path) || strings.Contains(u.Path, "@") {
		return ""
	}
	if text := clean.String(); len(text) <= maxRemote {
		return text
	}
	return ""
}
