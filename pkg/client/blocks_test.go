package client_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/registry"
)

func hostBlock(host, url string) string {
	return "host \"" + host + "\" {\n  services = {\n    \"providers.v1\" = \"" + url + "\"\n  }\n}\n"
}

// Blocks have the only CLI that reads their file.
func TestBlocks(t *testing.T) {
	t.Parallel()
	block, url := hostBlock("a.example.com", "https://b.example.com/"), "https://b.example.com/"
	for name, test := range map[string]struct {
		files map[string]string
		want  map[string]string // files to CLIs
	}{
		"nothing":           {nil, map[string]string{}},
		"folder of both":    {map[string]string{".terraform.d/x.tfrc": block}, map[string]string{".terraform.d/x.tfrc": ""}},
		"terraformrc alone": {map[string]string{".terraformrc": block}, map[string]string{".terraformrc": ""}},
		"tofurc alone":      {map[string]string{".tofurc": block}, map[string]string{".tofurc": "OpenTofu"}},
		"both files": {
			map[string]string{".tofurc": block, ".terraformrc": block},
			map[string]string{".tofurc": "OpenTofu", ".terraformrc": "Terraform"},
		},
		"newer file":   {map[string]string{"c/opentofu/tofurc": block}, map[string]string{"c/opentofu/tofurc": "OpenTofu"}},
		"newer folder": {map[string]string{"c/opentofu/x.tfrc": block}, map[string]string{"c/opentofu/x.tfrc": "OpenTofu"}},
		"newer file, older folder": {
			map[string]string{"c/opentofu/tofurc": block, ".terraform.d/x.tfrc": block},
			map[string]string{"c/opentofu/tofurc": "OpenTofu", ".terraform.d/x.tfrc": ""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := home(t, test.files)
			config, err := client.LoadConfigOn([]string{"XDG_CONFIG_HOME=" + filepath.Join(dir, "c")}, dir, "linux")
			if err != nil {
				t.Fatal(err)
			}
			got := make(map[string]string)
			for _, b := range config.Blocks() {
				if b.Kind != client.HostBlock || b.Host != "a.example.com" || b.Services["providers.v1"] != url {
					t.Errorf("unexpected block %+v", b)
				}
				name, err := filepath.Rel(dir, b.File)
				if err != nil {
					t.Fatal(err)
				}
				got[filepath.ToSlash(name)] = b.Reader
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("readers (-want +got):\n%s", diff)
			}
		})
	}
}

// A command that reads from the origin ignores a block that leads to a mirror. It does
// not send Larder's token to the origin.
func TestIgnoreServices(t *testing.T) {
	t.Parallel()
	const mirrored, other = "https://larder.example.com/v1/providers-of/a.example.com/", "https://b.example.com/"
	modules := strings.Replace(mirrored, "providers", "modules", 1)
	own := registry.FormatToken([32]byte{1})
	for name, test := range map[string]struct {
		url, token string
		services   bool
		want       string
	}{
		"mirror with its token":      {mirrored, own, false, ""},
		"mirror with another token":  {mirrored, "a", false, ""}, // such as that of an identity
		"mirror of modules":          {modules, own, false, ""},
		"another place with a token": {other, own, true, own},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config, err := client.LoadConfigOn(nil, home(t, map[string]string{
				".tofurc": hostBlock("a.example.com", test.url) + credentials("a.example.com", test.token),
			}), "linux")
			if err != nil {
				t.Fatal(err)
			}
			config.IgnoreServices("/v1/modules-of/", "/v1/providers-of/")
			if got := config.Services("a.example.com"); got != test.services {
				t.Errorf("there is a host block: %t, want %t", got, test.services)
			}
			if got := token(t, config, "a.example.com"); got != test.want {
				t.Errorf("token %q, want %q", got, test.want)
			}
		})
	}
}

// A token of Larder for a public registry never reaches it.
func TestIgnoreServicesPublic(t *testing.T) {
	t.Parallel()
	own := registry.FormatToken([32]byte{1})
	for configured, want := range map[string]string{own: "", "another": "another"} {
		config, err := client.LoadConfigOn([]string{"TF_TOKEN_registry_terraform_io=" + configured}, t.TempDir(), "linux")
		if err != nil {
			t.Fatal(err)
		}
		config.IgnoreServices("/v1/modules-of/", "/v1/providers-of/")
		if got := token(t, config, "registry.terraform.io"); got != want {
			t.Errorf("token %q, want %q", got, want)
		}
	}
}

// A shared file is in a folder that both CLIs read.
func TestSharedFile(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		system  string
		environ []string
		files   map[string]string
		want    string
	}{
		"Linux":        {system: "linux", want: ".terraform.d/x.tfrc"},
		"Windows":      {system: "windows", environ: []string{"APPDATA=HOME/a"}, want: "a/terraform.d/x.tfrc"},
		"named file":   {system: "linux", environ: []string{"TF_CLI_CONFIG_FILE=HOME/x"}},
		"newer folder": {system: "linux", environ: []string{"XDG_CONFIG_HOME=HOME/c"}, files: map[string]string{"c/opentofu/x.tfrc": ""}},
		"both folders": {
			system: "linux", environ: []string{"XDG_CONFIG_HOME=HOME/c"},
			files: map[string]string{"c/opentofu/x.tfrc": "", ".terraform.d/y.tfrc": ""}, want: ".terraform.d/x.tfrc",
		},
		"no home on Windows": {system: "windows"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := home(t, test.files)
			var environ []string
			for _, variable := range test.environ {
				environ = append(environ, strings.Replace(variable, "HOME/", dir+string(filepath.Separator), 1))
			}
			config, err := client.LoadConfigOn(environ, dir, test.system)
			if err != nil {
				t.Fatal(err)
			}
			got, err := config.SharedFile("x.tfrc")
			if (err != nil) != (test.want == "") {
				t.Fatalf("unexpected error %v", err)
			}
			if err != nil && !errors.Is(err, registry.ErrInvalid) && !errors.Is(err, registry.ErrNotFound) {
				t.Errorf("%v has no kind", err)
			}
			if want := filepath.Join(dir, filepath.FromSlash(test.want)); err == nil && got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

func TestSelectsHost(t *testing.T) {
	t.Parallel()
	type list = []string
	for name, test := range map[string]struct {
		include, exclude list
		want             bool
	}{
		"everything":          {want: true},
		"the host":            {include: list{"registry.opentofu.org/*/*"}, want: true},
		"all hosts":           {include: list{"*/*/*"}, want: true},
		"some of the host":    {include: list{"registry.opentofu.org/hashicorp/*"}, want: true},
		"without a host":      {include: list{"hashicorp/*"}, want: true},
		"another host":        {include: list{"registry.example.com/*/*"}},
		"all but the host":    {exclude: list{"registry.opentofu.org/*/*"}},
		"all but some of it":  {exclude: list{"registry.opentofu.org/hashicorp/*"}, want: true},
		"all but another one": {exclude: list{"registry.example.com/*/*"}, want: true},
	} {
		m := client.Method{Kind: client.NetworkMirror, Include: test.include, Exclude: test.exclude}
		if got := m.SelectsHost("registry.opentofu.org"); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}
