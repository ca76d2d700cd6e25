package releases

import (
	"maps"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/signing"
)

// ParseSums reads a SHA256SUMS by the rules of signing.ParseSums. It returns the
// sums by the names of the files.
func ParseSums(text []byte) (map[string]string, error) {
	lines, err := signing.ParseSums(text)
	if err != nil {
		return nil, err
	}
	sums := make(map[string]string, len(lines))
	for _, line := range lines {
		sums[line.Filename] = line.SHA256
	}
	return sums, nil
}

// IsManifest reports whether a SHA256SUMS calls the manifest by a name. In a
// folder the manifest may have another one.
func IsManifest(name string) bool { return strings.HasSuffix(name, "_manifest.json") }

// CheckSums checks a SHA256SUMS against the files of a release, by their SHA256
// sums. It must list all zips that are there and no other, with their sums. A
// listed manifest must be there too, because it says for which protocols the
// release is signed; its sum is empty if there is none. Other listed files may be
// missing, because no client reads them. Errors are registry.ErrInvalid.
func CheckSums(files map[string]string, manifest string, listed map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if _, there := listed[name]; !there && isZip(name) {
			return invalidRelease("%s is not in SHA256SUMS: make the sums anew, or take the zip away", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		sum, there := files[name]
		if IsManifest(name) {
			sum, there = manifest, manifest != ""
		}
		switch {
		case there && sum != listed[name]:
			return invalidRelease("%s is not the file that SHA256SUMS speaks of: it has sha256:%s, and %s is listed",
				name, sum, listed[name])
		case !there && IsManifest(name):
			return invalidRelease("%s is listed in SHA256SUMS, and is not there: put it back", name)
		case !there && isZip(name):
			return invalidRelease("%s is listed in SHA256SUMS, and is not there: put it back, or make the sums anew",
				name)
		}
	}
	return nil
}

func isZip(name string) bool { return strings.HasSuffix(name, ".zip") }
