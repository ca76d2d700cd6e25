package rules

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/content/signing"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
	"github.com/larder-registry/larder/pkg/text/printable"
)

// ReadSums reads a SHA256SUMS file with [signing.ReadSums]. It returns the sums by
// file name.
func ReadSums(text []byte, t *errs.Tolerated) (sums map[string]string, err error) {
	lines, tolerated, err := signing.ReadSums(text)
	if err != nil {
		return nil, err
	}
	t.Add(tolerated...)
	sums = make(map[string]string, len(lines))
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
// SHA256SUMS must list all zips of the release. Listed zips and manifests that are
// missing are tolerated. A new version must have a listed manifest, because the
// signature covers its protocols. Other listed files may be missing, because clients
// do not read them.
func CheckSums(files map[string]string, manifest string, listed map[string]string, t *errs.Tolerated) error {
	var problems errs.Problems
	problem := func(hint, format string, args ...any) error {
		return registry.WithHint(invalidRelease(format, args...), "%s", hint)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if _, there := listed[name]; !there && isZip(name) {
			_ = problems.Add(problem("Create SHA256SUMS again, or remove the zip.", "%s is not in SHA256SUMS", name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		sum, there := files[name]
		if IsManifest(name) {
			sum, there = manifest, manifest != ""
		}
		switch {
		case there && sum != listed[name]:
			_ = problems.Add(problem("Publish the files of one build, or create SHA256SUMS again.",
				"%s has sha256:%s, but SHA256SUMS lists %s", name, sum, listed[name]))
		case !there && IsManifest(name):
			t.Add(problem("Restore it.", "%s is listed in SHA256SUMS, but is missing", shownName(name)))
		case !there && isZip(name):
			t.Add(problem("Restore it, or create SHA256SUMS again.",
				"%s is listed in SHA256SUMS, but is missing", shownName(name)))
		}
	}
	return problems.Err("")
}

// CheckSignature verifies the signature of a SHA256SUMS with [signing.Check]. It returns
// the ID of the key.
func CheckSignature(
	names Names, keys []registry.SigningKey, sums, signature []byte, now time.Time, t *errs.Tolerated,
) (string, error) {
	signer, tolerated, err := signing.Check(keys, sums, signature, now)
	if err != nil {
		return "", fmt.Errorf("%s: %w", names.Signature(), err)
	}
	if tolerated != nil {
		t.AddFirst(fmt.Errorf("%s: %w", names.Signature(), tolerated))
	}
	return signer.ID, nil
}

func shownName(name string) string { return printable.Mark(name, 300) }

func isZip(name string) bool { return strings.HasSuffix(name, ".zip") }
