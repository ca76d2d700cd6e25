package client_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/registry"
)

// The credential for a host and its source are available without sending it,
// and the source does not contain it.
func TestCredential(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	text := `credentials "registry.example.com:8443" { token = "of-the-file" }
credentials "Bücher.example" { token = "of-the-file" }
credentials "dotted.example.com." { token = "for-another-host-of-the-clients" }
host "other.example.com" { services = {} }`
	if err := os.WriteFile(filepath.Join(home, ".tofurc"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := client.LoadConfig([]string{"TF_TOKEN_registry_example_com=of-the-variable"}, home)
	if err != nil {
		t.Fatal(err)
	}
	file := "of the credentials block in " + filepath.Join(home, ".tofurc")
	for host, want := range map[string]client.Credential{
		"registry.example.com":      {Token: "of-the-variable", Place: "in TF_TOKEN_registry_example_com"},
		"Registry.example.com.:443": {Token: "of-the-variable", Place: "in TF_TOKEN_registry_example_com"},
		"REGISTRY.example.com:8443": {Token: "of-the-file", Place: file},
		"bücher.example":            {Token: "of-the-file", Place: file},
		"XN--bcher-kva.example.":    {Token: "of-the-file", Place: file},
		"other.example.com":         {},
		"dotted.example.com":        {},
	} {
		if got, err := config.Credential(t.Context(), host); err != nil || got != want {
			t.Errorf("%s: %+v, %v", host, got, err)
		}
	}
	if _, err := config.Credential(t.Context(), "https://registry.example.com"); err == nil {
		t.Error("a URL is taken for a host")
	}
	if got := config.Hosts(); !slices.Equal(got, []string{
		"dotted.example.com.", "registry.example.com", "registry.example.com:8443", "bücher.example",
	}) {
		t.Errorf("hosts %q", got)
	}
	if !config.Services("other.example.com") || config.Services("registry.example.com") {
		t.Error("another host has a host block")
	}
}

// The blocks are found in either syntax, and a mistake in one does not hide a
// credential.
func TestInstallations(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"provider_installation {\n network_mirror {\n url = \"https://a/v1/mirror\"\n include = [\"*/*\", \"a/*/*\"]\n " +
			"}\n network_mirror {\n url = \"https://b/\"\n }\n direct {\n exclude " +
			"= [\"a/*/*\"]\n }\n}": "network_mirror https://a/v1/mirror [*/* a/*/*] []; network_mirror https://b/ [] []; " +
			"direct  [] [a/*/*]; | ",
		`{"provider_installation": {"network_mirror": [{"url": "https://a/", "exclude": ` +
			`["*/*"]}], "direct": [{}]}}`: "network_mirror https://a/ [] [*/*]; direct  [] []; | ",
		`{"provider_installation": {"network_mirror": {"url": ` +
			`"https://a/"}, "direct": {}}}`: "refused ",
		"provider_installation {\n direct {}\n}\nprovider_installation {\n filesystem_mirror {\n " +
			"path = \"/a\"\n }\n}": "direct  [] []; | filesystem_mirror  [] []; | ",
		"provider_installation {\n " +
			"network_mirror {\n url = 3\n }\n}": "network_mirror  [] []; | ",
		"provider_installation = 3": "",
		"":                          "",
	} {
		home := t.TempDir()
		if err := os.WriteFile(filepath.Join(home, ".tofurc"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		config, err := client.LoadConfig([]string{"TF_TOKEN_a_b=token"}, home)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got := ""
		for _, i := range config.Installations() {
			if i.File != filepath.Join(home, ".tofurc") || i.Reader != "" {
				t.Errorf("%+v", i)
			}
			for _, m := range i.Methods {
				got += fmt.Sprintf("%s %s %s %s; ", m.Kind, m.URL, m.Include, m.Exclude)
			}
			got += map[bool]string{true: "refused ", false: "| "}[i.Refused]
		}
		if got != want || len(config.Hosts()) != 1 {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// Patterns match what they match in the CLIs.
func TestSelects(t *testing.T) {
	t.Parallel()
	random := registry.MirrorAddress{
		Hostname: "registry.opentofu.org", Namespace: "hashicorp", Name: "random",
	}
	for _, test := range []struct {
		include, exclude []string
		want             bool
	}{
		{nil, nil, true},
		{[]string{"registry.opentofu.org/*/*"}, nil, true},
		{[]string{"Registry.OpenTofu.org/hashicorp/*"}, nil, true},
		{[]string{"hashicorp/random"}, nil, true},
		{[]string{"*/*/*"}, nil, true},
		{[]string{"registry.terraform.io/*/*", "hashicorp/aws"}, nil, false},
		{[]string{"*/*"}, []string{"hashicorp/random"}, false},
		{nil, []string{"registry.opentofu.org/*/*"}, false},
		{[]string{"random"}, nil, false},
	} {
		if got := (client.Method{Include: test.include, Exclude: test.exclude}).Selects(random); got != test.want {
			t.Errorf("%q without %q: %t", test.include, test.exclude, got)
		}
	}
	other := registry.MirrorAddress{Hostname: "registry.example.com", Namespace: random.Namespace, Name: random.Name}
	if (client.Method{Include: []string{"*/*"}}).Selects(other) {
		t.Error("a pattern without a host selects another registry's")
	}
	other.Hostname = "xn--bcher-kva.example"
	for pattern, want := range map[string]bool{"BÜCHER.example/*/*": true, "xn--bcher-kva.example/*/*": false} {
		if got := (client.Method{Include: []string{pattern}}).Selects(other); got != want {
			t.Errorf("%s: %t, want %t", pattern, got, want)
		}
	}
}

// Problems that the CLIs ignore are found. These are files that do not exist or
// are not read, tokens that differ between the CLIs, and a missing credentials
// helper.
func TestProblems(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	token := func(value string) string { return "credentials \"a.example.com\" {\n token = \"" + value + "\"\n}\n" }
	for name, test := range map[string]struct {
		files    map[string]string
		variable string // value of TF_CLI_CONFIG_FILE, below the home folder
		environ  []string
		problems int
	}{
		"nothing":          {},
		"one file":         {files: map[string]string{".tofurc": token("1")}},
		"the same in both": {files: map[string]string{".tofurc": token("1"), ".terraformrc": token("1")}},
		"another in each":  {files: map[string]string{".tofurc": token("1"), ".terraformrc": token("2")}, problems: 1},
		"in one of two":    {files: map[string]string{".tofurc": "", ".terraformrc": token("2")}, problems: 1},
		"overridden": {
			files: map[string]string{
				".tofurc": token("1"), ".terraformrc": token("2"),
				".terraform.d/credentials.tfrc.json": "{\"credentials\": {\"a.example.com\": {\"token\": \"3\"}}}",
			},
		},
		"by a variable": {
			files:   map[string]string{".tofurc": token("1"), ".terraformrc": token("2")},
			environ: []string{"TF_TOKEN_a_example_com=3"},
		},
		"named":              {files: map[string]string{"rc": token("1")}, variable: "rc"},
		"named, not there":   {files: map[string]string{".tofurc": token("1")}, variable: "rc", problems: 1},
		"named, with others": {files: map[string]string{".tofurc": token("1"), "rc": ""}, variable: "rc", problems: 1},
		"no program":         {files: map[string]string{".tofurc": "credentials_helper \"none\" {}\n"}, problems: 1},
	} {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			for path, text := range test.files {
				path = filepath.Join(home, path)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			if test.variable != "" {
				test.environ = append(test.environ, "TF_CLI_CONFIG_FILE="+filepath.Join(home, test.variable))
			}
			config, err := client.LoadConfig(test.environ, home)
			if err != nil {
				t.Fatal(err)
			}
			found := config.Problems("a.example.com")
			if len(found) != test.problems {
				t.Errorf("%d problems, want %d", len(found), test.problems)
			}
			for _, problem := range found {
				texts.Text(t, problem.Result+"\nfix: "+problem.Fix+"\n", home, "HOME")
			}
		})
	}
}

func TestTokenVariable(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]string{
		"registry.example-a.com": "TF_TOKEN_registry_example__a_com",
		"bücher.example.com":     "TF_TOKEN_xn____bcher__kva_example_com",
		"example.com:8443":       "",
		"https://example.com":    "",
	} {
		if got := client.TokenVariable(host); got != want {
			t.Errorf("%s: %q, want %q", host, got, want)
		}
	}
}
