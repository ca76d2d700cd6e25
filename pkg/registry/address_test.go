package registry_test

import (
	"errors"
	"testing"

	"github.com/larder-registry/larder/pkg/registry"
)

// An address that is refused is refused in plain words: the form that it must have,
// or the part that is wrong, and a hint if it is something else.
func TestInvalidAddress(t *testing.T) {
	t.Parallel()
	const (
		moduleForm = "a module is NAMESPACE/NAME/SYSTEM"
		nameRule   = "must be 1 to 64 letters, digits, - and _, with a letter or a digit at both ends"
		partRule   = "must be small letters, digits and single hyphens, with a letter or a digit at both ends"
		path       = "This is a path. The arguments may be in another order."
	)
	module := func(s string) error { _, err := registry.ParseModule(s); return err }
	provider := func(s string) error { _, err := registry.ParseProvider(s); return err }
	mirrored := func(s string) error { _, err := registry.ParseMirrorProvider(s); return err }
	any := func(s string) error { _, err := registry.ParseAddress(s); return err }
	for _, test := range []struct {
		parse            func(string) error
		in, reason, hint string
	}{
		{module, "./mods/vpc", moduleForm, path},
		{module, "/srv/vpc", moduleForm, path},
		{module, "~/vpc/aws", moduleForm, path},
		{module, `mods\vpc`, moduleForm, path},
		{module, "1.3.0", moduleForm, "This is a version. The arguments may be in another order."},
		{module, "acme/vpc/aws@1.2.0", moduleForm, "The version is an argument of its own: write acme/vpc/aws 1.2.0."},
		{module, "acme/vpc", moduleForm, ""},
		{module, "acme/vpc/aws//sub", moduleForm + ", without a hostname or a subdirectory", ""},
		{module, "ac me/vpc/aws", `its namespace "ac me" ` + nameRule, ""},
		{module, "acme/vpc./aws", `its name "vpc." ` + nameRule, ""},
		{module, "acme/vpc/AWS", `its system "AWS" must be 1 to 64 small letters and digits`, ""},
		{module, "acme//aws", "its name is empty: " + moduleForm, ""},
		{provider, "acme", "a provider is NAMESPACE/TYPE", ""},
		{provider, "example.com/acme/note", "a provider is NAMESPACE/TYPE, without a hostname", ""},
		{provider, "./dist", "a provider is NAMESPACE/TYPE", path},
		{provider, "acme/no--te", `its type "no--te" ` + partRule, ""},
		{provider, "acme/Note", "it must be written in small letters, digits and hyphens, as clients send it", ""},
		{provider, "acme/terraform-note", `its type "terraform-note" must not begin with terraform-: clients refuse it`, ""},
		{mirrored, "hashicorp/random", "a mirrored provider is HOSTNAME/NAMESPACE/TYPE, such as " +
			"registry.opentofu.org/hashicorp/random", ""},
		{mirrored, "example.com/a b/c", `its namespace "a b" ` + partRule, ""},
		{mirrored, "exa mple.com/a/c", `its hostname "exa mple.com" must be a hostname`, ""},
		{mirrored, "example.com:1/a/c", "no client can use a mirror for a hostname with a port", ""},
		{any, "./mods/vpc", "a module is NAMESPACE/NAME/SYSTEM, a provider NAMESPACE/TYPE, and a mirrored provider " +
			"HOSTNAME/NAMESPACE/TYPE, or mirror/HOSTNAME/NAMESPACE/TYPE if the hostname has no dot", path},
		{any, "ac me/vpc/aws", `its namespace "ac me" ` + nameRule, ""},
		{any, "acme/vpc/aws@1.2.0", moduleForm, "The version is an argument of its own: write acme/vpc/aws 1.2.0."},
	} {
		err := test.parse(test.in)
		if !errors.Is(err, registry.ErrInvalid) {
			t.Errorf("%s: %v", test.in, err)
			continue
		}
		if want := "invalid address \"" + test.in + "\": " + test.reason; test.in != `mods\vpc` && err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
		if hint := registry.Hint(err); hint != test.hint {
			t.Errorf("%s: hint %q, want %q", test.in, hint, test.hint)
		}
	}
}
