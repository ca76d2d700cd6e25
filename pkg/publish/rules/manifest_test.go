package rules_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
)

func TestParseManifestRefuses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "evil", "{}", `{"version":2,"metadata":{"protocol_versions":["6.0"]}}`,
		`{"version":1,"metadata":{"protocol_versions":[]}}`, strings.Repeat("[", 100_000),
		"{\"version\":1,\"metadata\":{\"protocol_versions\":[\"6.0\"]},\"x\":\"\xe9\"}",
	} {
		if protocols, err := rules.ParseManifest([]byte(text)); !errors.Is(err, registry.ErrInvalid) {
			t.Errorf("%.60q: protocols %v and error %v, want ErrInvalid", text, protocols, err)
		}
	}
}

// Windows adds a byte order mark.
func TestParseMarkedManifest(t *testing.T) {
	t.Parallel()
	text := "\ufeff" + `{"version":1,"metadata":{"protocol_versions":["6.0"]}}`
	if protocols, err := rules.ParseManifest([]byte(text)); err != nil || len(protocols) != 1 {
		t.Errorf("protocols %v and error %v", protocols, err)
	}
}

func FuzzParseManifest(f *testing.F) {
	for _, text := range []string{
		`{"version": 1, "metadata": {"protocol_versions": ["6.0"]}}`, "{}", "null", "[",
		`{"version": 1, "metadata": {"protocol_versions": ["6.0", "6.1"]}}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		protocols, err := rules.ParseManifest(text)
		if err != nil && !errors.Is(err, registry.ErrInvalid) || err == nil && len(protocols) == 0 {
			t.Errorf("%q: %v, %v", text, protocols, err)
		}
	})
}
