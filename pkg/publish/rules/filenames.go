package rules

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
)

// Names has the files of a provider's release, found by their names.
type Names struct {
	Version registry.Version
	// Zips are the packages by file name.
	Zips map[string]registry.Platform
	// Sums is the name of SHA256SUMS, even if the file is missing.
	Sums                  string
	HasSums, HasSignature bool
	// Manifest is the name of the manifest, or empty.
	Manifest string
}

// Signature returns the name of the signature.
func (n Names) Signature() string { return n.Sums + ".sig" }

// ManifestName returns the manifest's name in SHA256SUMS. The file in the
// folder may have another name.
func (n Names) ManifestName() string {
	return strings.TrimSuffix(n.Sums, "SHA256SUMS") + "manifest.json"
}

// Has reports whether a file belongs to the release.
func (n Names) Has(name string) bool {
	_, zip := n.Zips[name]
	return zip || name == n.Sums || name == n.Signature() || name == n.Manifest
}

// MaxPlatforms limits the size of a version's record and of its upload, so that each
// fits into an item of the table.
const MaxPlatforms = 200

// ParseNames finds the files of a release by their names, which must all have
// the same version. It ignores other files. It returns all problems as a
// [*errs.ProblemsError]. If the names do not identify one version, it
// leaves Names.Sums empty.
func ParseNames(providerType string, names []string) (Names, error) {
	prefix := "terraform-provider-" + providerType + "_"
	found := Names{Zips: make(map[string]registry.Platform)}
	var problems []error
	add := func(err error) { problems = append(problems, err) }
	var versions, others []string
	var misnamed bool
	for _, name := range names {
		if !strings.HasPrefix(name, "terraform-provider-") {
			continue // goreleaser leaves other files too
		}
		rest, ours := strings.CutPrefix(name, prefix)
		version, what, _ := strings.Cut(rest, "_")
		isPackage := strings.HasSuffix(strings.ToLower(name), ".zip")
		switch {
		case !ours && isPackage && misspelt.MatchString(strings.TrimPrefix(name, prefix[:len(prefix)-1])):
			add(errMisnamed(name, prefix))
			misnamed = true
			continue
		case !ours:
			if strings.HasSuffix(name, ".zip") || strings.HasSuffix(name, "_SHA256SUMS") {
				others = append(others, name)
			}
			continue
		case what == "SHA256SUMS":
			found.HasSums = true
		case what == "SHA256SUMS.sig":
			found.HasSignature = true
		case what == "manifest.json":
			found.Manifest = name
		case isZip(what):
			platform, err := registry.ParsePlatform(strings.TrimSuffix(what, ".zip"))
			if err != nil {
				err = fmt.Errorf("%s: %w", name, err)
				if meant := MeantPlatform(strings.TrimSuffix(what, ".zip")); meant != "" {
					err = registry.WithHint(err, "Did you mean %s?", meant)
				}
				add(err)
				misnamed = true
			} else {
				found.Zips[name] = platform
			}
		case isPackage:
			add(errMisnamed(name, prefix))
			misnamed = true
			continue
		default:
			continue
		}
		if !slices.Contains(versions, version) {
			versions = append(versions, version)
		}
	}
	if len(others) > 0 {
		add(errOtherProvider(providerType, others))
	}
	if len(found.Zips) == 0 && len(problems) == 0 {
		add(registry.WithHint(invalidRelease("there is no %sVERSION_OS_ARCH.zip", prefix),
			"Use the folder with the zips, and the provider's type from their names."))
	}
	switch {
	case len(versions) == 1:
		found.Sums = prefix + versions[0] + "_SHA256SUMS"
		var err error
		if found.Version, err = parseFileVersion(versions[0]); err != nil {
			add(err)
		}
	case len(versions) > 1:
		add(registry.WithHint(invalidRelease("there are files of several versions: %s", strings.Join(versions, ", ")),
			"Publish one version at a time, from a folder without other versions."))
	case misnamed:
		found.Sums = prefix + "VERSION_SHA256SUMS"
	}
	if len(found.Zips) > MaxPlatforms {
		add(registry.WithHint(
			invalidRelease("it has %d platforms, and at most %d are allowed", len(found.Zips), MaxPlatforms),
			"Leave out the platforms that nobody uses, also in SHA256SUMS."))
	}
	if len(problems) > 0 {
		return found, &errs.ProblemsError{Problems: problems}
	}
	return found, nil
}

// misspelt matches the rest of a file name after the provider's type if the
// type ends there and the name is malformed.
var misspelt = regexp.MustCompile(`^([-.]v?[0-9]|\.zip$)`)

func errMisnamed(name, prefix string) error {
	return registry.WithHint(invalidRelease("clients do not recognize the name %s", name),
		"Name it %sVERSION_OS_ARCH.zip, such as %s1.0.0_linux_amd64.zip.", prefix, prefix)
}

func errOtherProvider(providerType string, names []string) error {
	which := names[0] + " belongs"
	if more := len(names) - 1; more > 0 {
		which = fmt.Sprintf("%s and %d more belong", names[0], more)
	}
	return registry.WithHint(invalidRelease("%s to another provider than %s", which, providerType),
		"Use the provider's type from the names of its files, and publish it from a folder without other providers.")
}

func parseFileVersion(text string) (registry.Version, error) {
	if strings.HasPrefix(text, "v") {
		return registry.Version{}, registry.WithHint(
			invalidRelease("the version %s in the file names begins with a v", text), "Remove the v from the file names.")
	}
	v, err := registry.ParseTag(text)
	if err == nil && v == (registry.Version{}) {
		err = invalidRelease("clients cannot use the version 0.0.0")
	}
	return v, err
}

// CheckNamespace returns registry.ErrInvalid for a namespace to which nothing
// can be published, because another resource has its address.
func CheckNamespace(namespace string) error {
	if namespace != "search" {
		return nil
	}
	return registry.WithHint(
		fmt.Errorf("%w namespace %s: it is reserved for the registry's search", registry.ErrInvalid, namespace),
		"Choose another namespace.")
}

func invalidRelease(format string, args ...any) error {
	return fmt.Errorf("%w release: %s", registry.ErrInvalid, fmt.Sprintf(format, args...))
}
