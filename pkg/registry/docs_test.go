package registry_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/registry"
)

// Too many words are cut between two of them.
func TestSetDocs(t *testing.T) {
	t.Parallel()
	full := strings.Repeat("x", registry.MaxWords)
	for name, test := range map[string]struct{ description, words, want string }{
		"few":                {"", "a b", "a b"},
		"as many as fit":     {"", full, full},
		"one word more":      {"", full + " y", full},
		"a long last word":   {"", "a b " + full, "a b"},
		"one long word":      {"", full + "x", ""},
		"a description":      {full[:registry.MaxWords-3], "a b c", "a b"},
		"a long description": {full + full, "a b", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			record := registry.ModuleVersion{Description: test.description}
			docs := registry.StoredFile{Object: "modules/acme/vpc/aws/1.0.0/d0c/docs.json.gz", SHA256: "d0c", Size: 3}
			record.SetDocs(docs, test.words)
			want := registry.ModuleVersion{Description: test.description, Docs: &docs, Words: test.want}
			if diff := cmp.Diff(want, record); diff != "" {
				t.Error(diff)
			}
		})
	}
}
