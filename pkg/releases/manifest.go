package releases

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/registry"
)

// MaxManifest bounds a manifest, in bytes.
const MaxManifest = 64 << 10

var pluginProtocol = regexp.MustCompile(`^(0|[1-9][0-9]{0,2})\.(0|[1-9][0-9]{0,2})$`)

// ParseManifest returns the protocols that a provider's manifest names. Errors
// are registry.ErrInvalid.
//
// Source: https://developer.hashicorp.com/terraform/registry/providers/publishing, "Terraform Registry Manifest File".
func ParseManifest(text []byte) ([]string, error) {
	var manifest struct {
		Version  int
		Metadata struct {
			ProtocolVersions []string `json:"protocol_versions"`
		}
	}
	if err := json.Unmarshal(text, &manifest); err != nil || manifest.Version != 1 {
		return nil, fmt.Errorf(
			`%w manifest: it must look like {"version": 1, "metadata": {"protocol_versions": ["6.0"]}}`,
			registry.ErrInvalid)
	}
	return manifest.Metadata.ProtocolVersions, CheckProtocols(manifest.Metadata.ProtocolVersions)
}

// CheckProtocols checks that clients can make sense of protocols: each major
// version once, and one that they speak. Errors are registry.ErrInvalid.
func CheckProtocols(protocols []string) error {
	majors := make(map[string]bool)
	for _, v := range protocols {
		major, _, _ := strings.Cut(v, ".")
		if !pluginProtocol.MatchString(v) || majors[major] {
			return fmt.Errorf("%w protocols %q: each is MAJOR.MINOR, such as 6.0, and no major version comes twice",
				registry.ErrInvalid, protocols)
		}
		majors[major] = true
	}
	if !majors["5"] && !majors["6"] {
		return registry.WithHint(
			fmt.Errorf("%w protocols %q: clients speak 5 and 6", registry.ErrInvalid, protocols),
			"Name one of these in the manifest or, if there is none, with `--protocol`.")
	}
	return nil
}

// CheckManifest checks that protocols which were given beside a manifest are
// those that it names. Errors are registry.ErrInvalid.
func CheckManifest(named, given []string) error {
	if !slices.Equal(named, given) {
		return fmt.Errorf("%w protocols %s: the manifest says %s",
			registry.ErrInvalid, strings.Join(given, ", "), strings.Join(named, ", "))
	}
	return nil
}
