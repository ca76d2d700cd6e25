package registry

import (
	"fmt"
	"math"
	"regexp"
	"strings"

	"github.com/apparentlymart/go-versions/versions"
	"golang.org/x/mod/semver"
)

// Version is a semantic version, of the type of the clients' own library.
type Version = versions.Version

// maxVersionLength bounds a version in bytes, so that it fits into an object
// key and a file name.
const maxVersionLength = 128

// ParseVersion parses a version as clients write it in a request, where 1.0
// means 1.0.0. Errors are [ErrInvalid].
func ParseVersion(s string) (Version, error) { return parsedVersions.get(s, parseVersion) }

var parsedVersions parsed[Version]

func parseVersion(s string) (Version, error) {
	if len(s) > maxVersionLength {
		return Version{}, fmt.Errorf("%w version: it has %d characters, more than %d",
			ErrInvalid, len(s), maxVersionLength)
	}
	// The library panics on a number that does not fit 64 bits.
	if hasLongNumber(s) {
		return Version{}, fmt.Errorf("%w version %q: a number is too large for clients", ErrInvalid, s)
	}
	v, err := versions.ParseVersion(s)
	if err != nil {
		return Version{}, notSemantic(s)
	}
	// The module installers of both clients store each number in a signed
	// 64-bit integer.
	if max(v.Major, v.Minor, v.Patch) > math.MaxInt64 {
		return Version{}, fmt.Errorf("%w version %q: a number is too large for clients", ErrInvalid, s)
	}
	// The normalized version must mean the same when a client sends it back.
	if len(v.String()) > maxVersionLength || !semver.IsValid("v"+v.String()) {
		return Version{}, notSemantic(s)
	}
	return v, nil
}

func notSemantic(s string) error {
	return fmt.Errorf("%w version %q: it is not a semantic version such as 1.4.0 or 2.0.0-rc.1", ErrInvalid, s)
}

// hasLongNumber reports whether one of a version's numbers has 20 digits or
// more.
func hasLongNumber(s string) bool {
	if at := strings.IndexAny(s, "-+"); at >= 0 {
		s = s[:at]
	}
	return hasDigits(s, 20)
}

// hasDigits reports whether a text has n digits or more in a row.
func hasDigits(s string, n int) bool {
	for number := range strings.FieldsFuncSeq(s, func(r rune) bool { return r < '0' || r > '9' }) {
		if len(number) >= n {
			return true
		}
	}
	return false
}

// ParseTag parses the version to publish. It must be a full semantic version.
// ParseTag removes a leading v, as in Git tags. Errors are [ErrInvalid].
func ParseTag(s string) (Version, error) {
	bare := strings.TrimPrefix(s, "v")
	v, err := ParseVersion(bare)
	if err != nil {
		return Version{}, err
	}
	if v.String() != bare {
		return Version{}, WithHint(fmt.Errorf("%w version %q: it is not a full semantic version", ErrInvalid, s),
			"Write it as %s.", v)
	}
	return v, nil
}

// CompareVersions compares versions by precedence. It compares versions that
// differ only in build metadata by the text of that, so that the order is
// total.
func CompareVersions(a, b Version) int {
	switch {
	case a.LessThan(b):
		return -1
	case b.LessThan(a):
		return 1
	}
	return strings.Compare(string(a.Metadata), string(b.Metadata))
}

// Before returns the version with which people compare n: the highest one below it.
// Releases are compared only with releases. versions has the newest first.
func Before(n Version, versions []Version) (before Version, found bool) {
	for _, v := range versions {
		if v.LessThan(n) && (v.Prerelease == "" || n.Prerelease != "") {
			return v, true
		}
	}
	return Version{}, false
}

// ParseConstraint parses a constraint in the syntax of required_providers. An
// empty one matches all versions that are not pre-releases. Errors are
// [ErrInvalid].
func ParseConstraint(s string) (versions.Set, error) {
	if strings.TrimSpace(s) == "" {
		return versions.Released, nil
	}
	// The library panics on a number that exceeds 64 bits.
	const longest = 256
	if len(s) > longest || hasDigits(s, 19) {
		return versions.Set{}, fmt.Errorf("%w version constraint: it is too long", ErrInvalid)
	}
	acceptable, err := versions.MeetingConstraintsStringRuby(s)
	if err != nil {
		return versions.Set{}, WithHint(
			fmt.Errorf("%w version constraint %q: %w", ErrInvalid, s, err),
			"Use a constraint such as \"~> 3.5\" or \">= 1.0, < 3.0\".")
	}
	return acceptable, nil
}

// prefixed finds the v of versions such as v1.2.0.
var prefixed = regexp.MustCompile(`(^|[\s,=<>~!])v([0-9])`)

// ModuleConstraint returns the version constraint of a module block in the syntax of
// [ParseConstraint]. Clients ignore the v of versions in constraints of modules.
func ModuleConstraint(s string) string {
	return prefixed.ReplaceAllString(strings.TrimSpace(s), "$1$2")
}

// NextRelease returns the lowest release that follows a version.
func NextRelease(v Version) Version {
	next := Version{Major: v.Major, Minor: v.Minor, Patch: v.Patch}
	if v.Prerelease == "" {
		next.Patch++
	}
	return next
}
