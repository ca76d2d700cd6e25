package web_test

import (
	"html"
	"net/http"
	"regexp"
	"testing"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/web"
	"github.com/larder-registry/larder/pkg/web/session"
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
	const mirror, example = "providers-of", `"registry.example.com/acme/vpc/aws"`
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

// However a host is written, sources and credentials have it as clients read it,
// and URLs and audiences as it is sent.
func TestHostForms(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.module("acme/vpc/aws", "4.2.1", map[string]string{
		"main.tf": `module "x" {
  source = "BÜCHER.example:443/acme/vpc/aws"
}
terraform {
  required_providers {
    inventory = { source = "bücher.example/acme/inventory" }
  }
}
`,
	})
	s.provider("acme/inventory", "1.4.2")
	s.mirrored("xn--mnchen-3ya.example/hashicorp/aws", "6.20.0")
	control := access.New(access.Settings{}, s.catalog)
	caller := bearer(s.token("read:**"))
	for _, given := range []string{"xn--bcher-kva.example", "bücher.example", "Bücher.Example.:443"} {
		pages := web.New(web.Options{
			Catalog: s.catalog, Objects: s.objects, Host: given,
			Accounts: session.New(session.Options{Control: control, Store: s.catalog}),
		})
		text := func(path string) string {
			return unescaped(server{Handler: pages}.text(t, http.StatusOK, path, caller...))
		}
		contains(t, text("/setup"), `"bücher.example/acme/vpc/aws"`, `credentials "bücher.example"`,
			`"https://xn--bcher-kva.example/v1/providers-of/registry.opentofu.org/"`, "aud: https://xn--bcher-kva.example\n",
			"TF_TOKEN_xn____bcher__kva_example=", "!:443", `!"xn--`)
		contains(t, text("/modules/acme/vpc/aws/4.2.1"), `"bücher.example/acme/vpc/aws"`, `!"xn--`)
		contains(t, text("/mirror/xn--mnchen-3ya.example/hashicorp/aws"), `host "münchen.example"`,
			"keep münchen.example/hashicorp/aws as the source")
		page := server{Handler: pages}.text(t, http.StatusOK, "/modules/acme/vpc/aws/4.2.1", caller...)
		contains(t, page, `href="/providers/acme/inventory"`)
	}
}

// unescaped returns the text of a page, without tags.
func unescaped(page string) string { return html.UnescapeString(tags.ReplaceAllString(page, "")) }

var tags = regexp.MustCompile(`</?[a-z][^>]*>`)
