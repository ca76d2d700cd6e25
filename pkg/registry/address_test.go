package registry_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/registry"
)

// The error for an invalid address has the required form or the part that is
// wrong. It has a hint if the text is something else.
func TestInvalidAddress(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	module := func(s string) error { _, err := registry.ParseModule(s); return err }
	provider := func(s string) error { _, err := registry.ParseProvider(s); return err }
	mirrored := func(s string) error { _, err := registry.ParseMirrorProvider(s); return err }
	any := func(s string) error { _, err := registry.ParseAddress(s); return err }
	for _, test := range []struct {
		name  string
		parse func(string) error
		in    string
		part  string // the name of the wrong part; empty: the form is wrong
		hint  bool
	}{
		{"module, a relative path", module, "./mods/vpc", "", true},
		{"module, an absolute path", module, "/srv/vpc", "", true},
		{"module, a path in a home", module, "~/vpc/aws", "", true},
		{"module, a path with a backslash", module, `mods\vpc`, "", true},
		{"module, a version", module, "1.3.0", "", true},
		{"module, a version after the address", module, "acme/vpc/aws@1.2.0", "", true},
		{"module, too few parts", module, "acme/vpc", "", false},
		{"module, a subdirectory", module, "acme/vpc/aws//sub", "", false},
		{"module, a bad namespace", module, "ac me/vpc/aws", "namespace", false},
		{"module, a bad name", module, "acme/vpc./aws", "name", false},
		{"module, a bad system", module, "acme/vpc/AWS", "system", false},
		{"module, an empty name", module, "acme//aws", "name", false},
		{"provider, too few parts", provider, "acme", "", false},
		{"provider, a hostname", provider, "example.com/acme/note", "", false},
		{"provider, a path", provider, "./dist", "", true},
		{"provider, a bad type", provider, "acme/no--te", "type", false},
		{"provider, a capital letter", provider, "acme/Note", "", false},
		{"provider, a prefix", provider, "acme/terraform-note", "type", false},
		{"mirror, too few parts", mirrored, "hashicorp/random", "", false},
		{"mirror, a bad namespace", mirrored, "example.com/a b/c", "namespace", false},
		{"mirror, a bad hostname", mirrored, "exa mple.com/a/c", "hostname", false},
		{"mirror, a port", mirrored, "example.com:1/a/c", "", false},
		{"any, a path", any, "./mods/vpc", "", true},
		{"any, a bad namespace", any, "ac me/vpc/aws", "namespace", false},
		{"any, a version after the address", any, "acme/vpc/aws@1.2.0", "", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := test.parse(test.in)
			if !errors.Is(err, registry.ErrInvalid) {
				t.Fatalf("%v, want ErrInvalid", err)
			}
			if quoted := fmt.Sprintf("%q", test.in); !strings.Contains(err.Error(), quoted) {
				t.Errorf("%v, want an error with the address %s", err, quoted)
			}
			if test.part != "" && !strings.Contains(err.Error(), "its "+test.part+" ") {
				t.Errorf("%v, want an error with the part %s", err, test.part)
			}
			if hint := registry.Hint(err); (hint != "") != test.hint {
				t.Errorf("hint %q, want one: %t", hint, test.hint)
			}
			texts.Error(t, err)
		})
	}
}
