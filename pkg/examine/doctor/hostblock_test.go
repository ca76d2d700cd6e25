package doctor_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/examine/doctor"
	"github.com/larder-registry/larder/pkg/registry"
)

type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Blocks and tokens of other registries. %s is a URL, or a token of Larder.
const (
	providersOf  = "host \"registry.opentofu.org\" {\n  services = {\n    \"providers.v1\" = %q\n  }\n}\n"
	modulesOf    = "host \"registry.opentofu.org\" {\n  services = {\n    \"modules.v1\" = %q\n  }\n}\n"
	mixed        = "host \"registry.opentofu.org\" {\n  services = {\n    \"providers.v1\" = %q\n    \"modules.v1\" = %q\n  }\n}\n"
	publicURL    = "https://registry.opentofu.org/v1/modules/"
	mirroredURL  = "https://registry.example.com/v1/providers-of/registry.opentofu.org/"
	publicMirror = "https://registry.example.com/v1/modules-of/registry.opentofu.org/"
)

// Without a request, doctor finds blocks and tokens that do not fit together.
func TestHostBlocks(t *testing.T) {
	t.Parallel()
	own := registry.FormatToken([32]byte{1})
	texts := golden.New(t)
	inVariable := "TF_TOKEN_registry_opentofu_org=" + own
	leadingTo := func(url string) map[string]string {
		return map[string]string{".tofurc": fmt.Sprintf(providersOf, url)}
	}
	credential := func(token string) string { return credentials("registry.opentofu.org", token) }
	for name, test := range map[string]struct {
		environ  []string
		files    map[string]string // below the home folder
		folder   map[string]string // below the examined folder
		mirrored bool              // a provider of mirror.example.com is examined
		outcomes string
	}{
		"nothing": {outcomes: "ok"},
		"set up": {
			files:    map[string]string{".terraform.d/larder-mirror.tfrc": fmt.Sprintf(providersOf, mirroredURL) + credential(own)},
			outcomes: "ok",
		},
		"both services": {
			files:    map[string]string{".terraform.d/larder-mirror.tfrc": fmt.Sprintf(mixed, mirroredURL, publicMirror) + credential(own)},
			outcomes: "ok",
		},
		"variable without a block":    {environ: []string{inVariable}, outcomes: "wrong"},
		"credentials without a block": {files: map[string]string{".tofurc": credential(own)}, outcomes: "wrong"},
		"another token without a block": {
			environ: []string{"TF_TOKEN_registry_terraform_io=s3cr3t"}, outcomes: "ok",
		},
		"variable of a mirrored host": {
			environ: []string{"TF_TOKEN_mirror_example_com=" + own}, mirrored: true, outcomes: "wrong",
		},
		"variable of another host": {environ: []string{"TF_TOKEN_mirror_example_com=" + own}, outcomes: "ok"},
		"public URL beside the registry": {
			files:    map[string]string{".tofurc": fmt.Sprintf(mixed, mirroredURL, publicURL) + credential(own)},
			outcomes: "wrong",
		},
		"public URL without a token": {
			files: map[string]string{".tofurc": fmt.Sprintf(mixed, mirroredURL, publicURL)}, outcomes: "ok",
		},
		"only a public URL": {
			files: map[string]string{".tofurc": fmt.Sprintf(modulesOf, publicURL) + credential(own)}, outcomes: "wrong",
		},
		"only a public URL with its own token": {
			files: map[string]string{".tofurc": fmt.Sprintf(modulesOf, publicURL) + credential("s3cr3t")}, outcomes: "ok",
		},
		"stored login": {
			files: map[string]string{
				".terraform.d/credentials.tfrc.json": `{"credentials":{"registry.opentofu.org":{"token":"s3cr3t"}}}`,
				".terraform.d/larder-mirror.tfrc":    fmt.Sprintf(providersOf, mirroredURL),
			},
			outcomes: "wrong ok",
		},
		"shadowed login": {
			files: map[string]string{
				".terraform.d/credentials.tfrc.json": `{"credentials":{"registry.opentofu.org":{"token":"s3cr3t"}}}`,
				".terraform.d/larder-mirror.tfrc":    fmt.Sprintf(providersOf, mirroredURL) + credential(own),
			},
			outcomes: "warning ok",
		},
		"variable with a block": {
			environ:  []string{inVariable},
			files:    map[string]string{".terraform.d/larder-mirror.tfrc": fmt.Sprintf(providersOf, mirroredURL)},
			outcomes: "warning ok",
		},
		"another token in a variable": {
			environ:  []string{"TF_TOKEN_registry_opentofu_org=s3cr3t"},
			files:    map[string]string{".terraform.d/larder-mirror.tfrc": fmt.Sprintf(providersOf, mirroredURL)},
			outcomes: "wrong ok",
		},
		"another token in the file": {
			files: map[string]string{
				".terraform.d/larder-mirror.tfrc": fmt.Sprintf(providersOf, mirroredURL) + credential("s3cr3t"),
			},
			outcomes: "wrong ok",
		},
		"URL without a slash":  {files: leadingTo(strings.TrimSuffix(mirroredURL, "/")), outcomes: "wrong ok"},
		"URL of own providers": {files: leadingTo("https://registry.example.com/v1/providers/"), outcomes: "wrong ok"},
		"another name of the registry": {
			files: map[string]string{".tofurc": strings.Replace(fmt.Sprintf(mixed, "https://registry.example.com/v1/providers/",
				"https://registry.example.com/v1/modules/"), "registry.opentofu.org", "alias.example.com", 1)},
			outcomes: "ok",
		},
		"URL of the network mirror": {files: leadingTo("https://registry.example.com/v1/mirror"), outcomes: "wrong ok"},
		"URL without https":         {files: leadingTo(strings.Replace(mirroredURL, "https", "http", 1)), outcomes: "wrong ok"},
		"URL for another host":      {files: leadingTo(strings.Replace(mirroredURL, "opentofu", "terraform", 1)), outcomes: "wrong ok"},
		"URL of something else":     {files: leadingTo("https://registry.example.com/other/"), outcomes: "ok"},
		"URL at another registry":   {files: leadingTo(strings.Replace(mirroredURL, "example.com", "example.org", 1)), outcomes: "warning ok"},
		"no slash at another registry": {
			files: leadingTo(strings.TrimSuffix(strings.Replace(mirroredURL, "example.com", "example.org", 1), "/")), outcomes: "wrong ok",
		},
		"modules in the configuration": {
			files: leadingTo(mirroredURL),
			folder: map[string]string{
				"broken.tf": "module {",
				"main.tf":   "module \"a\" {\n  source = \"./a\"\n}\nmodule \"b\" {\n  source = \"registry.opentofu.org/acme/b/aws//sub\"\n}\n",
			},
			outcomes: "wrong",
		},
		"modules of the default host": {
			files:    leadingTo(mirroredURL),
			folder:   map[string]string{"main.tofu": "module \"vpc\" {\n  source = \"terraform-aws-modules/vpc/aws\"\n}\n"},
			outcomes: "wrong",
		},
		"modules of the mirror": {
			files:    map[string]string{".tofurc": fmt.Sprintf(mixed, mirroredURL, publicMirror)},
			folder:   map[string]string{"main.tofu": "module \"vpc\" {\n  source = \"terraform-aws-modules/vpc/aws\"\n}\n"},
			outcomes: "ok",
		},
		"modules without a slash": {
			files:    map[string]string{".tofurc": fmt.Sprintf(mixed, mirroredURL, strings.TrimSuffix(publicMirror, "/"))},
			outcomes: "warning",
		},
		"modules of another registry": {
			files: map[string]string{
				".tofurc": fmt.Sprintf(mixed, mirroredURL, strings.Replace(publicMirror, "example.com", "example.org", 1)),
			},
			outcomes: "warning",
		},
		"modules of a URL of another host": {
			files: map[string]string{
				".tofurc": fmt.Sprintf(mixed, mirroredURL, strings.Replace(publicMirror, "opentofu", "terraform", 1)),
			},
			outcomes: "wrong",
		},
		"modules of the URL of providers": {
			files: map[string]string{".tofurc": fmt.Sprintf(mixed, mirroredURL, mirroredURL)}, outcomes: "wrong",
		},
		"own modules as those of another host": {
			files:    map[string]string{".tofurc": fmt.Sprintf(mixed, mirroredURL, "https://registry.example.com/v1/modules/")},
			outcomes: "wrong",
		},
		"other modules in the configuration": {
			files: leadingTo(mirroredURL),
			folder: map[string]string{"main.tf": "module \"a\" {\n  source = \"registry.example.com/acme/a/aws\"\n}\n" +
				"module \"b\" {\n  source = \"github.com/acme/b\"\n}\nmodule \"c\" {\n  source = var.c\n}\n"},
			outcomes: "ok",
		},
		"variable with a block that Terraform does not read": {
			environ: []string{inVariable}, files: map[string]string{".tofurc": fmt.Sprintf(providersOf, mirroredURL)},
			outcomes: "warning ok",
		},
		"modules that the folder needs": {
			files: map[string]string{".tofurc": fmt.Sprintf(providersOf, mirroredURL) + credential(own)},
			folder: map[string]string{".terraform/modules/modules.json": `{"Modules":[{"Key":"","Source":"","Dir":"."},` +
				`{"Key":"vpc","Source":"registry.opentofu.org/terraform-aws-modules/vpc/aws","Version":"6.0.0"}]}`},
			outcomes: "wrong",
		},
		"modules of another host": {
			files: map[string]string{".tofurc": fmt.Sprintf(providersOf, mirroredURL) + credential(own)},
			folder: map[string]string{".terraform/modules/modules.json": `{"Modules":[` +
				`{"Key":"vpc","Source":"registry.example.com/acme/vpc/aws","Version":"6.0.0"}]}`},
			outcomes: "ok",
		},
		"providers that the folder needs": {
			files:    map[string]string{".tofurc": fmt.Sprintf(modulesOf, publicMirror) + credential(own)},
			folder:   map[string]string{".terraform.lock.hcl": "provider \"registry.opentofu.org/hashicorp/random\" {\n}\n"},
			outcomes: "wrong",
		},
		"providers by network_mirror": {
			files: map[string]string{".tofurc": fmt.Sprintf(modulesOf, publicMirror) + credential(own) +
				installation("https://registry.example.com/v1/mirror/", "*/*/*", "*/*/*")},
			folder:   map[string]string{".terraform.lock.hcl": "provider \"registry.opentofu.org/hashicorp/random\" {\n}\n"},
			outcomes: "ok",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			home, folder := t.TempDir(), t.TempDir()
			writeAll(t, home, test.files)
			writeAll(t, folder, test.folder)
			config, err := client.LoadConfig(test.environ, home)
			if err != nil {
				t.Fatal(err)
			}
			requested := false
			var outcomes []string
			var found strings.Builder
			d := doctor.Doctor{
				Host: "registry.example.com", Config: config, Folder: folder, Token: "given",
				Transport: transportFunc(func(*http.Request) (*http.Response, error) {
					requested = true
					return nil, errors.New("offline")
				}),
				Found: func(s doctor.Step) {
					if s.Name == "configuration" {
						outcomes = append(outcomes, string(s.Outcome))
						found.WriteString(strings.TrimSpace(fmt.Sprintf("%s: %s\n  %s", s.Outcome, s.Result, s.Fix)) + "\n")
						if requested {
							t.Errorf("a request was sent before the step %q", s.Result)
						}
					}
				},
			}
			if test.mirrored {
				d.Mirror = &registry.MirrorAddress{Hostname: "mirror.example.com", Namespace: random.Namespace, Name: random.Name}
			}
			report, err := d.Examine(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, token := range []string{own, "s3cr3t"} {
				if strings.Contains(text(report), token) {
					t.Errorf("the report has a token\n%s", text(report))
				}
			}
			if got := strings.Join(outcomes, " "); got != test.outcomes {
				t.Errorf("outcomes %q, want %q\n%s", got, test.outcomes, found.String())
			}
			texts.Text(t, strings.ReplaceAll(found.String(), home, "HOME"))
		})
	}
}

func writeAll(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// A token of a host block can be only for providers or only for modules, or for a part of
// them. The doctor reports what the examined folder needs and the token does not allow.
func TestScopesOfHostBlocks(t *testing.T) {
	t.Parallel()
	const label = "module \"label\" {\n  source = \"cloudposse/label/null\"\n}\n"
	for name, test := range map[string]struct {
		scope, configuration, lock string
		want                       doctor.Outcome
		request                    string // a part of the URL
	}{
		"providers":                    {"mirror/**", "", "", doctor.OK, "/v1/providers-of/"},
		"providers, for modules":       {"mirror/**", label, "", doctor.Wrong, "/cloudposse/label/null/versions"},
		"modules":                      {"mirror-modules/**", "", "", doctor.OK, "/v1/modules-of/"},
		"modules, for modules":         {"mirror-modules/**", label, "", doctor.OK, "/cloudposse/label/null/versions"},
		"modules, for providers":       {"mirror-modules/**", "", "hashicorp/random", doctor.Wrong, "/v1/providers-of/"},
		"other modules":                {"mirror-modules/*/acme/**", label, "", doctor.Wrong, "/v1/providers-of/"},
		"some modules, for one":        {"mirror-modules/*/cloudposse/**", label, "", doctor.OK, "/cloudposse/label/null/versions"},
		"modules of the registry only": {"modules/**", label, "", doctor.Wrong, "/v1/providers-of/"},
		"all":                          {"**", label, "hashicorp/random", doctor.OK, "/v1/providers-of/"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, setUp{closed: true, prepare: each(byBlock("read:"+test.scope), examining())})
			files := map[string]string{"main.tf": test.configuration}
			if test.lock != "" {
				files[".terraform.lock.hcl"] = fmt.Sprintf("provider \"registry.opentofu.org/%s\" {\n}\n", test.lock)
			}
			p.doctor.Folder = t.TempDir()
			for file, text := range files {
				if err := os.WriteFile(filepath.Join(p.doctor.Folder, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			report := p.examine(t)
			var steps []doctor.Step
			for _, s := range report.Steps {
				if s.Name == "credential" && strings.Contains(s.Request, "-of/registry.opentofu.org/") {
					steps = append(steps, s)
				}
			}
			if len(steps) != 1 || steps[0].Outcome != test.want || !strings.Contains(steps[0].Request, test.request) {
				t.Errorf("there is not one step with the outcome %s and the request %s\n%s", test.want, test.request, text(report))
			}
		})
	}
}
