package hostile_test

import (
	"testing"

	"github.com/larder-registry/larder/internal/testkit/hostile"
	"github.com/larder-registry/larder/internal/testkit/keys"
)

func TestModules(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for _, a := range hostile.Modules() {
		if seen[a.Name] {
			t.Errorf("two modules are named %q", a.Name)
		}
		seen[a.Name] = true
		if len(a.Make()) == 0 {
			t.Errorf("%s: it is empty", a.Name)
		}
	}
}

func TestReleases(t *testing.T) {
	t.Parallel()
	key, err := keys.NewSigningKey("RSA 2048", 0)
	if err != nil {
		t.Fatal(err)
	}
	signers := hostile.Signers{Good: key.Private, Expired: key.Private, Foreign: key.Private}
	seen := make(map[string]bool)
	for _, r := range hostile.Releases() {
		if seen[r.Name] {
			t.Errorf("two releases are named %q", r.Name)
		}
		seen[r.Name] = true
		if files, err := r.Make("evil", "1.0.0", signers); err != nil || len(files) < 3 {
			t.Errorf("%s: it has %d files: %v", r.Name, len(files), err)
		}
	}
}

func TestTexts(t *testing.T) {
	t.Parallel()
	for kind, texts := range map[string][]hostile.Text{
		"READMEs": hostile.Readmes(), "large READMEs": hostile.LargeReadmes(1000), "texts": hostile.Texts(),
		"identifiers": hostile.Identifiers(), "sources": hostile.Sources(), "URLs": hostile.URLs(), "folders": hostile.Folders(),
		"visits": hostile.Visits(), "hosts": hostile.Hosts(),
	} {
		names, contents := make(map[string]bool), make(map[string]bool)
		for _, text := range texts {
			if names[text.Name] || contents[text.Content] {
				t.Errorf("%s: two are named %q, or are the same", kind, text.Name)
			}
			names[text.Name], contents[text.Content] = true, true
		}
	}
}
