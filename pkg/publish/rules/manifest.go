package rules

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/files/textfile"
	"github.com/larder-registry/larder/pkg/registry"
)

// MaxManifest is the largest size of a manifest, in bytes.
const MaxManifest = 64 << 10

var pluginProtocol = regexp.MustCompile(`^(0|[1-9][0-9]{0,2})\.(0|[1-9][0-9]{0,2})$`)

// ParseManifest returns the protocols of a provider's manifest, or
// registry.ErrInvalid.
//
// Source:
// https://developer.hashicorp.com/terraform/registry/providers/publishing,
// "Terraform Registry Manifest File".
func ParseManifest(text []byte) ([]string, error) {
	var manifest struct {
		Version  int
		Metadata struct {
			ProtocolVersions []string `json:"protocol_versions"`
		}
	}
	text, err := textfile.Decode("the manifest", text)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &manifest); err != nil || manifest.Version != 1 {
		return nil, fmt.Errorf(
			`%w manifest: it is not of the form {"version": 1, "metadata": {"protocol_versions": ["6.0"]}}`,
			registry.ErrInvalid)
	}
	return manifest.Metadata.ProtocolVersions, CheckProtocols(manifest.Metadata.ProtocolVersions)
}

// CheckProtocols returns registry.ErrInvalid unless each major version occurs
// once and clients support at least one.
func CheckProtocols(protocols []string) error {
	majors := make(map[string]bool)
	for _, v := range protocols {
		major, _, _ := strings.Cut(v, ".")
		if !pluginProtocol.MatchString(v) || majors[major] {
			return fmt.Errorf("%w protocols %q: each must be MAJOR.MINOR, such as 6.0, with a different major version",
				registry.ErrInvalid, protocols)
		}
		majors[major] = true
	}
	if !majors["5"] && !majors["6"] {
		return registry.WithHint(
			fmt.Errorf("%w protocols %q: clients support 5 and 6", registry.ErrInvalid, protocols),
			"Name one of these in the manifest. Without a manifest, use `--protocol`.")
	}
	return nil
}

// CheckManifest returns registry.ErrInvalid if the given protocols differ from
// those of the manifest.
func CheckManifest(named, given []string) error {
	if !slices.Equal(named, given) {
		return fmt.Errorf("%w protocols %s: the manifest has %s",
			registry.ErrInvalid, strings.Join(given, ", "), strings.Join(named, ", "))
	}
	return nil
}
