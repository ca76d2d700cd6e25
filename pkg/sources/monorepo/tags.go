package monorepo

import (
	"errors"
	"regexp"
	"strings"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/printable"
)

// defaultPattern returns the pattern of the tags of a module in a folder.
func defaultPattern(path string) string {
	if path == "." {
		return "v*"
	}
	return path + "/v*"
}

// checkPattern returns what is wrong with a tag pattern, and a hint. Both are
// empty if the pattern is valid.
func checkPattern(pattern string) (problem, hint string) {
	switch {
	case strings.Count(pattern, "*") != 1:
		return "must have exactly one *, which stands for the version", "Write it as \"vpc/v*\"."
	case !printable.Is(pattern) || strings.ContainsAny(pattern, ` ~^:?[\`) || strings.Contains(pattern, "..") ||
		strings.HasPrefix(pattern, "/") || strings.HasPrefix(pattern, "-") || strings.Contains(pattern, "//"):
		return "has characters that Git does not allow in a tag", ""
	case strings.HasPrefix(pattern, "refs/"):
		return "begins with refs/", "Write it as in the output of `git tag`, such as \"vpc/v*\"."
	}
	return "", ""
}

// overlap reports whether a tag could match two patterns. A version begins with
// a digit, and has only letters, digits and the characters .+- after it. So v*
// and vpc/v* never match the same tag.
func overlap(a, b string) bool {
	startA, endA, _ := strings.Cut(a, "*")
	startB, endB, _ := strings.Cut(b, "*")
	if len(startA) > len(startB) {
		startA, startB = startB, startA
	}
	if len(endA) > len(endB) {
		endA, endB = endB, endA
	}
	moreStart, startsAlike := strings.CutPrefix(startB, startA)
	moreEnd, endsAlike := strings.CutSuffix(endB, endA)
	if !startsAlike || !endsAlike {
		return false
	}
	if moreStart != "" && (moreStart[0] < '0' || moreStart[0] > '9') {
		return false
	}
	return !strings.ContainsFunc(moreStart+moreEnd, func(r rune) bool {
		isInVersion := r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune(".+-", r)
		return !isInVersion
	})
}

// Release is a version of a module that a tag names.
type Release struct {
	Module
	Version registry.Version
	// TagName is the name of the tag, without refs/tags/.
	TagName string
}

// String returns the address and the version.
func (r Release) String() string { return r.Address.String() + " " + r.Version.String() }

// Ignored is a tag that names no version of a module.
type Ignored struct {
	Tag    string `json:"tag"`
	Reason string `json:"reason"`
}

// Match returns the release that a tag names. It returns registry.ErrNotFound
// if the tag matches no module, and registry.ErrInvalid if the version in it is
// not a full semantic version. A tag never matches two modules that [Parse]
// returned together.
func Match(modules []Module, tag string) (Release, error) {
	failed := registry.Errorf(registry.ErrNotFound, "it matches no module")
	for _, m := range modules {
		text, ok := m.versionIn(tag)
		if ok && !versionLike.MatchString(text) {
			start, _, _ := strings.Cut(m.Tag, "*")
			if strings.TrimSuffix(start, "v") != "" && errors.Is(failed, registry.ErrNotFound) { // v* matches other tags too
				failed = registry.Errorf(registry.ErrNotFound, "it matches %s of %s, but %q is not a version", m.Tag, m.Address, text)
			}
		}
		if !ok || !versionLike.MatchString(text) {
			continue
		}
		v, err := registry.ParseVersion(text)
		if err == nil && v.String() == text {
			return Release{m, v, tag}, nil
		}
		failed = registry.Errorf(registry.ErrInvalid, "it matches %s of %s, but %q is not a full semantic version",
			m.Tag, m.Address, text)
	}
	return Release{}, failed
}

// versionLike matches what people mean as a version.
var versionLike = regexp.MustCompile(`^v?[0-9]`)

// versionIn returns what a tag has in place of the * of the pattern.
func (m Module) versionIn(tag string) (string, bool) {
	start, end, _ := strings.Cut(m.Tag, "*")
	rest, starts := strings.CutPrefix(tag, start)
	version, ends := strings.CutSuffix(rest, end)
	return version, starts && ends
}
