package hostile_test

import (
	"testing"

	"github.com/larder-registry/larder/internal/testkit/hostile"
)

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
