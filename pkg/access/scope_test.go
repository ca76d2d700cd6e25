package access_test

import (
	"testing"

	"github.com/larder-registry/larder/pkg/access"
)

// A pattern covers another one only if it covers everything that the other
// does.
func TestCovers(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		pattern, other string
		want           bool
	}{
		{"**", "modules/acme/*", true},
		{"**", "**", true},
		{"modules/**", "modules/acme/vpc/aws", true},
		{"modules/acme", "modules/acme/vpc/aws", true},
		{"modules/acme", "modules/acme/**", true},
		{"modules/acme/*", "modules/acme/vpc", true},
		{"modules/*/*/aws", "modules/acme/*/aws", true},
		{"**/aws", "modules/*/vpc/aws", true},
		{"modules/acme/*", "modules/acme", false},
		{"modules/acme/*", "modules/acme/**", false},
		{"modules/acme/vpc", "modules/acme/*", false},
		{"modules/*/*/aws", "modules/**", false},
		{"modules/acme/*", "modules/other/vpc", false},
		{"providers/**", "modules/**", false},
		{"mirror/**", "mirror-modules/example.com/acme/vpc/aws", false},
		{"**/aws", "**", false},
	} {
		p, err := access.ParsePattern(test.pattern)
		if err != nil {
			t.Fatal(err)
		}
		other, err := access.ParsePattern(test.other)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Covers(other); got != test.want {
			t.Errorf("%s covers %s: %v", test.pattern, test.other, got)
		}
	}
}

// A rule accepts all tokens of another one only if it demands no more of each
// claim. Unlike patterns of scopes, patterns of claims match complete values.
func TestAcceptsAll(t *testing.T) {
	t.Parallel()
	type claims = map[string]string
	for _, test := range []struct {
		rule, other claims
		want        bool
	}{
		{claims{"group": "a"}, claims{"group": "a"}, true},
		{claims{"group": "**"}, claims{"group": "a/b"}, true},
		{claims{"group": "a/**"}, claims{"group": "a"}, true},
		{claims{"group": "a/*"}, claims{"group": "a/b"}, true},
		{claims{"group": "a"}, claims{"group": "a", "ref": "main"}, true},
		{claims{"group": "a", "ref": "**"}, claims{"group": "a"}, false},
		{claims{"group": "a"}, claims{"group": "a/b"}, false},
		{claims{"group": "a"}, claims{"group": "a/**"}, false},
		{claims{"group": "a/*"}, claims{"group": "a/**"}, false},
		{claims{"group": "*"}, claims{"group": "a/b"}, false},
	} {
		rule, other := access.Rule{Claims: test.rule}, access.Rule{Claims: test.other}
		if got := rule.AcceptsAll(other); got != test.want {
			t.Errorf("%v accepts all of %v: %v", test.rule, test.other, got)
		}
	}
}
