// Package location parses the location of a module in a response. It
// interprets a location as OpenTofu and Terraform do, which use go-getter, and
// refuses those that could reach into the machine that reads them.
//
// Source: https://github.com/hashicorp/go-getter, "URL Format" and "Protocol-
// Specific Options", and the module registry protocol.
package location

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"net"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/printable"
)

// Location is where a module is: in an archive, or in a Git repository.
type Location struct {
	// URL is that of the archive or of the repository, without the parts below. A
	// repository has https or ssh, and an archive https, or http on this machine.
	URL *url.URL
	// Git means that URL is a repository.
	Git bool
	// Folder is the folder of the module, or empty for the root.
	Folder string
	// Ref is a branch, a tag or a commit of a repository. It is empty for the
	// default branch.
	Ref string
	// Type is the type of an archive, such as tar.gz. It is empty if the location
	// does not have it. Clients then request another location from the URL.
	Type string
	// Checksum is the checksum of an archive, with its algorithm.
	Checksum Checksum
}

// Checksum is a checksum in lower-case hexadecimal, or empty.
type Checksum struct{ Algorithm, Sum string }

// Types are the types of archives that clients know.
var Types = []string{"zip", "tar.gz", "tgz", "tar.bz2", "tar.tbz2", "tar.xz", "txz", "bz2", "gz", "xz"}

// TypeOf returns the longest type that a path ends in, or "".
func TypeOf(p string) (found string) {
	for _, t := range Types {
		if strings.HasSuffix(path.Base(p), "."+t) && len(t) > len(found) {
			found = t
		}
	}
	return found
}

// maxReference bounds a location, in bytes.
const maxReference = 8 << 10

// Parse parses a location. Relative locations refer to base, the URL of the
// request. direct means that the location is a plain URL without the syntax of
// go-getter.
//
// Errors are registry.ErrInvalid. They never contain a query or a password.
func Parse(reference string, base *url.URL, direct bool) (Location, error) {
	if len(reference) > maxReference {
		return Location{}, refused("it has more than %d bytes", maxReference)
	}
	if direct {
		return parseDirect(reference, base)
	}
	for _, start := range []string{"/", "./", "../"} {
		if strings.HasPrefix(reference, start) {
			return parseRelative(reference, base)
		}
	}
	kind, rest, forced := cutKind(reference)
	if !forced {
		rest = expand(reference)
		if rest != reference {
			kind = "git"
		}
	} else if kind == "git" {
		rest = expandSSH(rest)
	}
	if kind != "" && kind != "git" && kind != "http" && kind != "https" {
		return Location{}, registry.WithHint(refused("it is of the kind %s", printable.Mark(kind, 20)), kindsHint)
	}
	u, err := url.Parse(rest)
	if err != nil || u.Opaque != "" || u.Scheme == "" {
		return Location{}, registry.WithHint(refused("it is not a URL"), kindsHint)
	}
	if kind == "git" {
		return parseGit(u)
	}
	return parseArchive(u)
}

const kindsHint = "Modules can be copied from an archive at an https URL, and from a Git repository over https or ssh."

// forcedKind matches the beginning of a location that forces a kind.
var forcedKind = regexp.MustCompile(`^([A-Za-z0-9]+)::(.+)$`)

func cutKind(reference string) (kind, rest string, forced bool) {
	if match := forcedKind.FindStringSubmatch(reference); match != nil {
		return match[1], match[2], true
	}
	return "", reference, false
}

// expand expands the short forms of repositories of go-getter's detectors.
func expand(reference string) string {
	for _, host := range []string{"github.com", "gitlab.com", "bitbucket.org"} {
		if strings.HasPrefix(reference, host+"/") {
			before, query, hasQuery := strings.Cut(reference, "?")
			before, folder, hasFolder := strings.Cut(before, "//")
			if !strings.HasSuffix(before, ".git") {
				before += ".git"
			}
			if hasFolder {
				before += "//" + folder
			}
			if hasQuery {
				before += "?" + query
			}
			return "https://" + before
		}
	}
	return expandSSH(reference)
}

// sshForm matches USER@HOST:PATH, the form of ssh without a scheme.
var sshForm = regexp.MustCompile(`^([A-Za-z0-9_]+)@([A-Za-z0-9._-]+):/?([^/].*)$`)

func expandSSH(reference string) string {
	if match := sshForm.FindStringSubmatch(reference); match != nil {
		return "ssh://" + match[1] + "@" + match[2] + "/" + match[3]
	}
	return reference
}

func parseRelative(reference string, base *url.URL) (Location, error) {
	u, err := url.Parse(reference)
	if err != nil || base == nil || u.Host != "" {
		return Location{}, refused("it is not a relative URL")
	}
	return parseArchive(base.ResolveReference(u))
}

func parseDirect(reference string, base *url.URL) (Location, error) {
	u, err := url.Parse(reference)
	if err != nil || base == nil {
		return Location{}, refused("it is not a URL")
	}
	if u = base.ResolveReference(u); u.Fragment != "" {
		return Location{}, refused("its URL has a fragment")
	}
	return Location{URL: u}, checkURL(u, false)
}

func parseArchive(u *url.URL) (l Location, err error) {
	if err := checkURL(u, false); err != nil {
		return Location{}, err
	}
	if l.Folder, err = cutFolder(u); err != nil {
		return Location{}, err
	}
	query := u.Query()
	l.Type = query.Get("archive")
	switch {
	case l.Type == "":
		l.Type = TypeOf(u.Path)
	case l.Type == "false" || !slices.Contains(Types, l.Type):
		return Location{}, refused("it is not an archive of a known type")
	}
	if l.Checksum, err = parseChecksum(query.Get("checksum")); err != nil {
		return Location{}, err
	}
	if query.Has("archive") || query.Has("checksum") {
		query.Del("archive")
		query.Del("checksum")
		u.RawQuery = query.Encode()
	}
	u.Fragment, u.RawFragment = "", ""
	l.URL = u
	return l, nil
}

func parseGit(u *url.URL) (l Location, err error) {
	if err := checkURL(u, true); err != nil {
		return Location{}, err
	}
	if l.Folder, err = cutFolder(u); err != nil {
		return Location{}, err
	}
	query := u.Query()
	l.Ref = query.Get("ref")
	if strings.HasPrefix(l.Ref, "-") || !printable.Is(l.Ref) || strings.ContainsAny(l.Ref, " :^~?*[\\") {
		return Location{}, refused("its ref is not the name of a branch, a tag or a commit")
	}
	if query.Has("sshkey") {
		return Location{}, registry.WithHint(refused("it contains a private key"),
			"Configure the key for ssh on this machine.")
	}
	query.Del("ref")
	query.Del("depth") // how much history clients fetch
	if len(query) > 0 {
		// It may be a secret, which must not be an argument of git.
		return Location{}, refused("the URL of its repository has a query")
	}
	u.RawQuery, u.ForceQuery, u.Fragment, u.RawFragment = "", false, "", ""
	l.URL, l.Git = u, true
	return l, nil
}

func checkURL(u *url.URL, git bool) error {
	_, hasPassword := u.User.Password()
	user := u.User.Username()
	allowed := u.Scheme == "https" || git && u.Scheme == "ssh" || !git && u.Scheme == "http" && isLoopback(u)
	switch {
	case !allowed:
		return registry.WithHint(refused("its URL has the scheme %s", printable.Mark(cmp.Or(u.Scheme, "none"), 20)), kindsHint)
	case u.Hostname() == "" || strings.HasPrefix(u.Host, "-"):
		return refused("its URL has no host name")
	case hasPassword:
		return registry.WithHint(refused("its URL contains a password"),
			"For git, use a credential helper of git. For an archive, use a presigned URL.")
	case user != "" && !git || strings.HasPrefix(user, "-"):
		return refused("its URL contains a user")
	case user != "" && user != "git" && u.Scheme == "https":
		return registry.WithHint(refused("its URL contains a user, which can be a token"), "Use a credential helper of git.")
	}
	return nil
}

func isLoopback(u *url.URL) bool {
	return strings.EqualFold(u.Hostname(), "localhost") || net.ParseIP(u.Hostname()).IsLoopback()
}

// cutFolder removes the folder after // from a URL.
func cutFolder(u *url.URL) (string, error) {
	before, folder, found := strings.Cut(u.Path, "//")
	if !found {
		return "", nil
	}
	u.Path = before
	u.RawPath, _, _ = strings.Cut(u.RawPath, "//")
	if folder = strings.Trim(folder, "/"); folder == "" {
		return "", nil
	}
	for part := range strings.SplitSeq(folder, "/") {
		if part == ".." || strings.ContainsAny(part, "*?[\\\x00") || !printable.Is(part) {
			return "", refused("its folder //%s is not a path within it", printable.Mark(folder, 100))
		}
	}
	return strings.TrimPrefix(path.Clean("/"+folder), "/"), nil
}

// sums has the lengths of checksums in bytes.
var sums = map[string]int{"md5": 16, "sha1": 20, "sha256": 32, "sha512": 64}

// parseChecksum parses a checksum, as ALGORITHM:HEX or HEX.
func parseChecksum(text string) (c Checksum, err error) {
	if text == "" {
		return c, nil
	}
	algorithm, sum, found := strings.Cut(text, ":")
	if !found {
		sum = algorithm
		for name, length := range sums {
			if len(sum) == 2*length {
				algorithm = name
			}
		}
	}
	raw, err := hex.DecodeString(sum)
	if err != nil || len(raw) == 0 || len(raw) != sums[algorithm] {
		return c, refused("its checksum is not md5, sha1, sha256 or sha512 in hexadecimal")
	}
	return Checksum{algorithm, strings.ToLower(sum)}, nil
}

func refused(format string, args ...any) error {
	return fmt.Errorf("%w location of the module: %s", registry.ErrInvalid, fmt.Sprintf(format, args...))
}
