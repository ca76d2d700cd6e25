package registry

import (
	"fmt"
	"math"
	"strings"

	"github.com/apparentlymart/go-versions/versions"
	"golang.org/x/mod/semver"
)

// Version is a semantic version, as the clients' own library has it.
type Version = versions.Version

// maxVersionLength keeps a version usable as one part of an object key and of a file's path.
const maxVersionLength = 128

// ParseVersion reads a version as clients write it in a request, where 1.0 means 1.0.0. Errors are ErrInvalid.
func ParseVersion(s string) (Version, error) {
	if len(s) > maxVersionLength {
		return Version{}, fmt.Errorf("%w version: it has %d characters, more than %d", ErrInvalid, len(s), maxVersionLength)
	}
	// The library panics on a number that does not fit 64 bits.
	if hasLongNumber(s) {
		return Version{}, fmt.Errorf("%w version %q: a number is larger than clients can hold", ErrInvalid, s)
	}
	v, err := versions.ParseVersion(s)
	if err != nil {
		return Version{}, fmt.Errorf("%w version %q: it is not a semantic version such as 1.4.0 or 2.0.0-rc.1", ErrInvalid, s)
	}
	// The module installers of both clients hold each number in 64 bits with a sign.
	if max(v.Major, v.Minor, v.Patch) > math.MaxInt64 {
		return Version{}, fmt.Errorf("%w version %q: a number is larger than clients can hold", ErrInvalid, s)
	}
	// What is normalised here must mean the same once more when it comes back from a client.
	if len(v.String()) > maxVersionLength || !semver.IsValid("v"+v.String()) {
		return Version{}, fmt.Errorf("%w version %q: it is not a semantic version such as 1.4.0 or 2.0.0-rc.1", ErrInvalid, s)
	}
	return v, nil
}

// hasLongNumber says whether one of a version's numbers has 20 digits or more.
func hasLongNumber(s string) bool {
	if at := strings.IndexAny(s, "-+"); at >= 0 {
		s = s[:at]
	}
	for number := range strings.FieldsFuncSeq(s, func(r rune) bool { return r < '0' || r > '9' }) {
		if len(number) >= 20 {
			return true
		}
	}
	return false
}

// ParseTag reads the version that is to be published: a full semantic version, whose leading v, as git tags have it, is
// taken off. Errors are ErrInvalid.
func ParseTag(s string) (Version, error) {
	bare := strings.TrimPrefix(s, "v")
	v, err := ParseVersion(bare)
	if err != nil {
		return Version{}, err
	}
	if v.String() != bare {
		return Version{}, fmt.Errorf("%w version %q: write it in full, as %s", ErrInvalid, s, v)
	}
	return v, nil
}

// CompareVersions orders versions by precedence, and those that differ in build metadata alone by its text, so that any
// set of versions has one order.
func CompareVersions(a, b Version) int {
	switch {
	case a.LessThan(b):
		return -1
	case b.LessThan(a):
		return 1
	}
	return strings.Compare(string(a.Metadata), string(b.Metadata))
}
