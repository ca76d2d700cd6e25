package rules

import (
	"maps"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/content/signing"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
)

// ParseSums parses a SHA256SUMS file with [signing.ParseSums]. It returns the
// sums by file name.
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

// IsManifest reports whether a name in SHA256SUMS is that of the manifest. The
// file in the folder may have another name.
func IsManifest(name string) bool { return strings.HasSuffix(name, "_manifest.json") }

// DropManifest removes the manifest from the sums of a SHA256SUMS.
func DropManifest(listed map[string]string) {
	maps.DeleteFunc(listed, func(name, _ string) bool { return IsManifest(name) })
}

// CheckSums compares a SHA256SUMS with the files of a release. files and listed
// are SHA256 sums by file name. manifest is the sum of the manifest, or empty
// if there is none. CheckSums returns all problems as a
// [*errs.ProblemsError].
//
// SHA256SUMS must list exactly the zips of the release. A listed manifest must
// exist too, because the signature covers its protocols. Other listed files may
// be missing, because clients do not read them.
func CheckSums(files map[string]string, manifest string, listed map[string]string) error {
	var problems []error
	add := func(hint, format string, args ...any) {
		problems = append(problems, registry.WithHint(invalidRelease(format, args...), "%s", hint))
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if _, there := listed[name]; !there && isZip(name) {
			add("Create SHA256SUMS again, or remove the zip.", "%s is not in SHA256SUMS", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		sum, there := files[name]
		if IsManifest(name) {
			sum, there = manifest, manifest != ""
		}
		switch {
		case there && sum != listed[name]:
			add("Publish the files of one build, or create SHA256SUMS again.",
				"%s has sha256:%s, but SHA256SUMS lists %s", name, sum, listed[name])
		case !there && IsManifest(name):
			add("Restore it.", "%s is listed in SHA256SUMS, but is missing", name)
		case !there && isZip(name):
			add("Restore it, or create SHA256SUMS again.", "%s is listed in SHA256SUMS, but is missing", name)
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return &errs.ProblemsError{Problems: problems}
}

func isZip(name string) bool { return strings.HasSuffix(name, ".zip") }
