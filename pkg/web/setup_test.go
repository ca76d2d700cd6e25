package web_test

import (
	"html"
	"net/http"
	"regexp"
	"testing"
)

// The page shows what the caller can read: one of the modules, and the mirror if
// it has something.
func TestSetup(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.module("acme/network/aws", "1.0.0", nil)
	s.module("acme/vpc/aws", "4.2.1", nil)
	s.module("beta/vpc/google", "2.0.0-rc.1", nil)
	s.deprecate("acme/network/aws", "", "old", false)
	s.mirrored("registry.example.net/hashicorp/aws", "6.20.0")
	const mirror, example = "network_mirror", `"registry.example.com/acme/vpc/aws"`
	pages := s.protect("{}")
	for name, test := range map[string]struct {
		scope string
		parts []string
	}{
		"everything":     {"read:**", []string{example, `"~> 4.2"`, mirror, "registry.opentofu.org and registry.terraform.io"}},
		"a deprecated":   {"read:modules/acme/network/*", []string{"/acme/network/aws", `"~> 1.0"`, "!" + mirror}},
		"a pre-release":  {"read:modules/beta/*", []string{"/beta/vpc/google", `"2.0.0-rc.1"`, "!" + mirror}},
		"only a mirror":  {"read:mirror/**", []string{example, "Write the address of a module", mirror}},
		"nothing exists": {"read:modules/none/*", []string{example, "Write the address of a module", "!" + mirror}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			caller := bearer(s.token(test.scope))
			contains(t, unescaped(pages.text(t, http.StatusOK, "/setup", caller...)), test.parts...)
			contains(t, unescaped(pages.text(t, http.StatusOK, "/setup.md", caller...)), test.parts...)
		})
	}
}

// unescaped returns the text of a page, without tags.
func unescaped(page string) string { return html.UnescapeString(tags.ReplaceAllString(page, "")) }

var tags = regexp.MustCompile(`</?[a-z][^>]*>`)
