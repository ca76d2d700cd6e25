package releases

import (
	"fmt"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/registry"
)

// Names are the files of a provider's release, found by their names.
type Names struct {
	Version registry.Version
	// Zips are the packages by their names.
	Zips map[string]registry.Platform
	// Sums is the name of SHA256SUMS, also if it is not there.
	Sums                  string
	HasSums, HasSignature bool
	// Manifest is empty if there is none.
	Manifest string
}

// Signature returns the name of the signature.
func (n Names) Signature() string { return n.Sums + ".sig" }

// ManifestName returns the name by which SHA256SUMS lists the manifest, whatever
// it is called in its folder.
func (n Names) ManifestName() string {
	return strings.TrimSuffix(n.Sums, "SHA256SUMS") + "manifest.json"
}

// Has reports whether a name is one of the release's.
func (n Names) Has(name string) bool {
	_, zip := n.Zips[name]
	return zip || name == n.Sums || name == n.Signature() || name == n.Manifest
}

// maxPlatforms keeps a version's record well within an item of the table.
const maxPlatforms = 200

// ParseNames finds the files of a release by their names, which must all be of
// one version. It ignores names that belong to no release. Errors are
// registry.ErrInvalid.
func ParseNames(providerType string, names []string) (Names, error) {
	prefix := "terraform-provider-" + providerType + "_"
	found := Names{Zips: make(map[string]registry.Platform)}
	var versions []string
	for _, name := range names {
		if !strings.HasPrefix(name, "terraform-provider-") {
			continue // goreleaser leaves more than a release
		}
		rest, ours := strings.CutPrefix(name, prefix)
		version, what, _ := strings.Cut(rest, "_")
		if !ours {
			if strings.HasSuffix(name, ".zip") || strings.HasSuffix(name, "_SHA256SUMS") {
				return found, invalidRelease("%s is of another provider than %s: name the type as its files do",
					name, providerType)
			}
			continue
		}
		switch {
		case what == "SHA256SUMS":
			found.HasSums = true
		case what == "SHA256SUMS.sig":
			found.HasSignature = true
		case what == "manifest.json":
			found.Manifest = name
		case isZip(what):
			var err error
			if found.Zips[name], err = registry.ParsePlatform(strings.TrimSuffix(what, ".zip")); err != nil {
				return found, fmt.Errorf("%s: %w", name, err)
			}
		case strings.HasSuffix(strings.ToLower(name), ".zip"):
			return found, invalidRelease("%s is not named as clients know it: %sVERSION_OS_ARCH.zip", name, prefix)
		default:
			continue
		}
		if !slices.Contains(versions, version) {
			versions = append(versions, version)
		}
	}
	switch {
	case len(found.Zips) == 0:
		return found, invalidRelease("there is no %sVERSION_OS_ARCH.zip", prefix)
	case len(versions) > 1:
		return found, invalidRelease("there are files of several versions, %s: publish one at a time",
			strings.Join(versions, ", "))
	case strings.HasPrefix(versions[0], "v"):
		return found, invalidRelease("file names have the version without a v, and these have %s", versions[0])
	case len(found.Zips) > maxPlatforms:
		return found, invalidRelease("it has %d platforms, more than %d", len(found.Zips), maxPlatforms)
	}
	var err error
	if found.Version, err = registry.ParseTag(versions[0]); err != nil {
		return found, err
	}
	if found.Version == (registry.Version{}) {
		return found, invalidRelease("clients cannot use a version 0.0.0")
	}
	found.Sums = prefix + versions[0] + "_SHA256SUMS"
	return found, nil
}

// invalidRelease returns a registry.ErrInvalid with what is wrong with a release.
func invalidRelease(format string, args ...any) error {
	return fmt.Errorf("%w release: %s", registry.ErrInvalid, fmt.Sprintf(format, args...))
}
