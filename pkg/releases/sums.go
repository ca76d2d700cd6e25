package releases

import (
	"maps"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/registry"
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
// missing, because no client reads them. It returns all problems, as a
// registry.ProblemsError.
func CheckSums(files map[string]string, manifest string, listed map[string]string) error {
	var problems []error
	add := func(hint, format string, args ...any) {
		problems = append(problems, registry.WithHint(invalidRelease(format, args...), "%s", hint))
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if _, there := listed[name]; !there && isZip(name) {
			add("Make the sums anew, or take the zip away.", "%s is not in SHA256SUMS", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		sum, there := files[name]
		if IsManifest(name) {
			sum, there = manifest, manifest != ""
		}
		switch {
		case there && sum != listed[name]:
			add("Publish the files as one build has made them, or make the sums anew.",
				"%s is not the file that SHA256SUMS lists: it has sha256:%s, and %s is listed", name, sum, listed[name])
		case !there && IsManifest(name):
			add("Put it back.", "%s is listed in SHA256SUMS, and is not there", name)
		case !there && isZip(name):
			add("Put it back, or make the sums anew.", "%s is listed in SHA256SUMS, and is not there", name)
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return &registry.ProblemsError{Problems: problems}
}

func isZip(name string) bool { return strings.HasSuffix(name, ".zip") }
