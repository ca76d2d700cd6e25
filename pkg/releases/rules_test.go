package releases_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/releases"
)

const (
	zip      = "terraform-provider-inventory_1.0.0_linux_amd64.zip"
	manifest = "terraform-provider-inventory_1.0.0_manifest.json"
)

func TestCheckSums(t *testing.T) {
	t.Parallel()
	type sums = map[string]string
	for name, test := range map[string]struct {
		files    sums
		manifest string
		listed   sums
		want     string // empty if they are good
	}{
		"all of them":                     {sums{zip: "a", "x.txt": "c"}, "b", sums{zip: "a", manifest: "b", "x.txt": "c"}, ""},
		"a file that no client reads":     {sums{zip: "a"}, "", sums{zip: "a", "x.txt": "c"}, ""},
		"a manifest that is not listed":   {sums{zip: "a", manifest: "b"}, "b", sums{zip: "a"}, ""},
		"a manifest by another name":      {sums{zip: "a", manifest: "b"}, "b", sums{zip: "a", "x_manifest.json": "b"}, ""},
		"another zip":                     {sums{zip: "a"}, "", sums{zip: "b"}, zip + " is not the file"},
		"another manifest":                {sums{zip: "a", manifest: "c"}, "c", sums{zip: "a", manifest: "b"}, manifest + " is not the file"},
		"another manifest by such a name": {sums{zip: "a"}, "c", sums{zip: "a", "x_manifest.json": "b"}, "x_manifest.json is not the file"},
		"another file":                    {sums{zip: "a", "x.txt": "d"}, "", sums{zip: "a", "x.txt": "c"}, "x.txt is not the file"},
		"a zip that is not listed":        {sums{zip: "a"}, "", sums{}, zip + " is not in SHA256SUMS"},
		"a zip that is missing":           {sums{}, "", sums{zip: "a"}, zip + " is listed in SHA256SUMS, and is not there"},
		"a manifest that is missing":      {sums{zip: "a"}, "", sums{zip: "a", manifest: "b"}, manifest + " is listed in SHA256SUMS, and is not there"},
	} {
		err := releases.CheckSums(test.files, test.manifest, test.listed)
		if test.want == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if !errors.Is(err, registry.ErrInvalid) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

// What is published is compared by its content, whichever way it was published.
func TestCheckSame(t *testing.T) {
	t.Parallel()
	vpc := registry.Module{Namespace: "acme", Name: "vpc", System: "aws"}
	stored := registry.ModuleVersion{Version: registry.Version{Major: 1}, SHA256: "archive", ContentSHA256: "content"}
	inventory := registry.Provider{Namespace: "acme", Type: "inventory"}
	release := registry.ProviderVersion{
		Version: registry.Version{Major: 1}, Protocols: []string{"5.0", "6.0"},
		Sums: registry.StoredFile{SHA256: "sums"}, SigningKey: "KEY",
	}
	for name, test := range map[string]struct {
		err  error
		want string // empty if it is the same
	}{
		"the same archive":         {releases.CheckSameModule(vpc, stored, "archive", ""), ""},
		"the same content":         {releases.CheckSameModule(vpc, stored, "another", "content"), ""},
		"another module":           {releases.CheckSameModule(vpc, stored, "another", "other"), "cannot publish acme/vpc/aws 1.0.0: it is published already with other content"},
		"the same release":         {releases.CheckSameProvider(inventory, release, "sums", release.Protocols), ""},
		"other sums":               {releases.CheckSameProvider(inventory, release, "other", release.Protocols), "cannot publish acme/inventory 1.0.0: it is published already with other content"},
		"other protocols":          {releases.CheckSameProvider(inventory, release, "sums", []string{"6.0"}), "it is published already for protocols 5.0, 6.0"},
		"its key":                  {releases.CheckSigner(inventory, release, []registry.SigningKey{{ID: "X"}, {ID: "KEY"}}), ""},
		"a key that is not there":  {releases.CheckSigner(inventory, release, []registry.SigningKey{{ID: "X"}}), "with a signature by key KEY"},
		"a namespace without keys": {releases.CheckSigner(inventory, release, nil), "with a signature by key KEY"},
	} {
		if test.want == "" {
			if test.err != nil {
				t.Errorf("%s: %v", name, test.err)
			}
			continue
		}
		if !errors.Is(test.err, registry.ErrExists) || !strings.Contains(test.err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, test.err, test.want)
		}
		if hint := registry.Hint(test.err); !strings.Contains(hint, " under a new version.") {
			t.Errorf("%s: the hint is %q", name, hint)
		}
	}
	// A publisher may not be a reader.
	if err := releases.CheckSameModule(vpc, stored, "another", "other"); strings.Contains(err.Error(), "sha256") {
		t.Errorf("it tells what is stored: %v", err)
	}
}
