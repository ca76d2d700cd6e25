package publish

import (
	"fmt"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/signing"
)

// ReleaseNames are the files of a provider's release, as their names tell.
type ReleaseNames struct {
	Version registry.Version
	// Zips are the packages by their names.
	Zips map[string]registry.Platform
	// Sums is how SHA256SUMS is called, also where it is not there; the signature's name is the same with .sig at its end.
	Sums                  string
	HasSums, HasSignature bool
	// Manifest is empty where there is none.
	Manifest string
}

// NameRelease finds the files of a release by their names, which must all be of one version. Names that are of no release
// are left out. Errors are registry.ErrInvalid.
func NameRelease(providerType string, names []string) (ReleaseNames, error) {
	prefix := "terraform-provider-" + providerType + "_"
	found := ReleaseNames{Zips: make(map[string]registry.Platform)}
	var versions []string
	for _, name := range names {
		if !strings.HasPrefix(name, "terraform-provider-") {
			continue // goreleaser leaves more than a release
		}
		rest, ours := strings.CutPrefix(name, prefix)
		version, what, _ := strings.Cut(rest, "_")
		if !ours {
			if strings.HasSuffix(name, ".zip") || strings.HasSuffix(name, "_SHA256SUMS") {
				return found, fmt.Errorf("%w release: %s is of another provider than %s: name the type as its files do", registry.ErrInvalid, name, providerType)
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
		case strings.HasSuffix(what, ".zip"):
			var err error
			if found.Zips[name], err = registry.ParsePlatform(strings.TrimSuffix(what, ".zip")); err != nil {
				return found, fmt.Errorf("%s: %w", name, err)
			}
		case strings.HasSuffix(strings.ToLower(name), ".zip"):
			return found, fmt.Errorf("%w release: %s is not named as clients know it: %sVERSION_OS_ARCH.zip", registry.ErrInvalid, name, prefix)
		default:
			continue
		}
		if !slices.Contains(versions, version) {
			versions = append(versions, version)
		}
	}
	switch {
	case len(found.Zips) == 0:
		return found, fmt.Errorf("%w release: there is no %sVERSION_OS_ARCH.zip", registry.ErrInvalid, prefix)
	case len(versions) > 1:
		return found, fmt.Errorf("%w release: there are files of several versions, %s: publish one at a time", registry.ErrInvalid, strings.Join(versions, ", "))
	case strings.HasPrefix(versions[0], "v"):
		return found, fmt.Errorf("%w release: file names have the version without a v, and these have %s", registry.ErrInvalid, versions[0])
	case len(found.Zips) > maxPlatforms:
		return found, fmt.Errorf("%w release: it has %d platforms, more than %d", registry.ErrInvalid, len(found.Zips), maxPlatforms)
	}
	var err error
	if found.Version, err = registry.ParseTag(versions[0]); err != nil {
		return found, err
	}
	if found.Version == (registry.Version{}) {
		return found, fmt.Errorf("%w release: clients cannot use a version 0.0.0", registry.ErrInvalid)
	}
	found.Sums = prefix + versions[0] + "_SHA256SUMS"
	return found, nil
}

// CheckSums says whether SHA256SUMS speaks of these packages, with these sums, and of no zip besides. A manifest that it speaks
// of must be there, since what is signed says by it which protocols the provider speaks. Errors are registry.ErrInvalid.
func CheckSums(packages []registry.ProviderPackage, hasManifest bool, sums []signing.Sum) error {
	listed := make(map[string]string, len(sums))
	for _, s := range sums {
		listed[s.Filename] = s.SHA256
	}
	for _, pkg := range packages {
		switch want, there := listed[pkg.Filename]; {
		case !there:
			return fmt.Errorf("%w release: %s is not in SHA256SUMS: make the sums anew, or take the zip away", registry.ErrInvalid, pkg.Filename)
		case want != pkg.SHA256:
			return fmt.Errorf("%w release: %s is not the file that SHA256SUMS speaks of: it has sha256:%s, and %s is listed", registry.ErrInvalid, pkg.Filename, pkg.SHA256, want)
		}
	}
	for _, s := range sums {
		if strings.HasSuffix(s.Filename, "_manifest.json") && !hasManifest {
			return fmt.Errorf("%w release: %s is listed in SHA256SUMS, and is not there: put it back", registry.ErrInvalid, s.Filename)
		}
		if strings.HasSuffix(s.Filename, ".zip") && !slices.ContainsFunc(packages, func(p registry.ProviderPackage) bool { return p.Filename == s.Filename }) {
			return fmt.Errorf("%w release: %s is listed in SHA256SUMS, and is not there: put it back, or make the sums anew", registry.ErrInvalid, s.Filename)
		}
	}
	return nil
}
