package client_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/larder-registry/larder/pkg/client"
)

// What a host is sent can be told without sending it, and where it is from without what it is.
func TestCredential(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	text := `credentials "registry.example.com:8443" { token = "of-the-file" }
host "other.example.com" { services = {} }`
	if err := os.WriteFile(filepath.Join(home, ".tofurc"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := client.LoadConfig([]string{"TF_TOKEN_registry_example_com=of-the-variable"}, home)
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]client.Credential{
		"registry.example.com":      {Token: "of-the-variable", Place: "in TF_TOKEN_registry_example_com"},
		"REGISTRY.example.com:8443": {Token: "of-the-file", Place: "of the credentials block in " + filepath.Join(home, ".tofurc")},
		"other.example.com":         {},
	} {
		if got, err := config.Credential(t.Context(), host); err != nil || got != want {
			t.Errorf("%s: %+v, %v", host, got, err)
		}
	}
	if _, err := config.Credential(t.Context(), "https://registry.example.com"); err == nil {
		t.Error("a URL is taken for a host")
	}
	if got := config.Hosts(); !slices.Equal(got, []string{"registry.example.com", "registry.example.com:8443"}) {
		t.Errorf("hosts %q", got)
	}
	if !config.Services("other.example.com") || config.Services("registry.example.com") {
		t.Error("another host has a host block")
	}
}

// Mirrors are found in either syntax, and nothing that is wrong there hides a credential.
func TestMirrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"provider_installation {\n network_mirror {\n url = \"https://a/v1/mirror\"\n include = [\"*/*\"]\n }\n network_mirror {\n url = \"https://b/\"\n }\n direct {}\n}": "https://a/v1/mirror https://b/",
		`{"provider_installation": {"network_mirror": {"url": "https://a/"}, "direct": {}}}`:                                                                                "https://a/",
		"provider_installation {\n direct {}\n}":                      "",
		"provider_installation {\n network_mirror {\n url = 3\n }\n}": "",
		"provider_installation = 3":                                   "",
		"":                                                            "",
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
		if got := strings.Join(config.Mirrors(), " "); got != want || len(config.Hosts()) != 1 {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
