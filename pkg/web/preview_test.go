package web_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/larder-registry/larder/pkg/registry"
)

// Programs that show a link get the title and the description of a page, if
// they may read it.
func TestPreview(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	described := func(text string) func(*registry.ModuleVersion) {
		return func(r *registry.ModuleVersion) { r.Description = text }
	}
	s.module("acme/vpc/aws", "1.0.0", nil, described("A \"VPC\" <b>\nwith\u202e subnets."))
	s.module("acme/vpc/aws", "1.1.0", nil, described(""))
	s.module("acme/long/aws", "1.0.0", nil, described("First. "+strings.Repeat("And more. ", 60)))
	s.module("other/db/aws", "1.0.0", nil)
	s.module("other/gone/aws", "1.0.0", nil)
	s.withdraw("other/gone/aws", "1.0.0", "It has a key.")
	s.module("acme/net/aws", "1.0.0", map[string]string{"main.tf": "variable \"a\" {}\nvariable \"b\" {}"})
	for _, version := range []string{"1.1.0", "1.2.0"} {
		s.module("acme/net/aws", version, map[string]string{"main.tf": "variable \"a\" { default = 1 }\nvariable \"other\" {}"})
	}
	s.provider("acme/inventory", "1.4.0")
	s.mirrored("registry.example.net/hashicorp/random", "3.6.0")
	const none = "!<meta name=\"description\""
	for path, parts := range map[string][]string{
		"/modules/acme/vpc/aws/1.0.0": {
			`<meta name="description" content="A &#34;VPC&#34; &lt;b&gt; with subnets.">`,
			`<meta property="og:title" content="acme/vpc/aws 1.0.0">`,
			`<meta property="og:description" content="A &#34;VPC&#34; &lt;b&gt; with subnets.">`,
			`<meta property="og:site_name" content="` + host + `">`,
			`<link rel="canonical" href="https://` + host + `/modules/acme/vpc/aws/1.0.0">`,
		},
		"/modules/acme/vpc/aws/1.1.0": {none, `<meta property="og:title" content="acme/vpc/aws 1.1.0">`, "!og:description"},
		"/":                           {none, `<meta property="og:title" content="` + host + `">`},
		"/modules/acme/vpc/aws/compare?from=1.0.0&to=1.0.0": {none, `content="acme/vpc/aws 1.0.0 → 1.0.0"`},
		"/modules/acme/net/aws/compare?from=1.0.0&to=1.1.0": {`content="2 breaking changes, 1 added, 1 removed, 1 changed, from 1.0.0 to 1.1.0."`},
		"/modules/acme/net/aws/compare?from=1.1.0&to=1.2.0": {`content="No changes, from 1.1.0 to 1.2.0."`},
		"/modules/acme/vpc/aws/used-by":                     {`content="Modules in ` + host + ` that use acme/vpc/aws."`},
		"/modules/acme/long/aws":                            {`content="First. And more. `, "!" + strings.Repeat("And more. ", 40)},
		"/providers/acme/inventory":                         {`content="A provider for OpenTofu and Terraform in ` + host + `."`},
		"/mirror/registry.example.net/hashicorp/random":     {`content="A copy of hashicorp/random from registry.example.net."`},
		"/modules/acme/vpc/aws/1.0.0/files":                 {none},
	} {
		page, _, _ := strings.Cut(s.serve().text(t, http.StatusOK, path), "</head>")
		contains(t, page, parts...)
	}
	bots := s.protect(`{"public": ["modules/acme/**"]}`)
	contains(t, bots.text(t, http.StatusOK, "/modules/acme/vpc/aws/1.0.0"), `property="og:description"`)
	for _, path := range []string{"/modules/other/db/aws", "/modules/other/gone/aws/1.0.0"} {
		contains(t, bots.text(t, http.StatusNotFound, path), none, "!og:", "!The description of")
	}
	w := s.protect(`{}`).get(t, "/modules/acme/vpc/aws/1.0.0", browsers...)
	if w.Code != http.StatusSeeOther || w.Body.Len() > 0 {
		t.Errorf("without an account, status %d with %d bytes, want a redirect", w.Code, w.Body.Len())
	}
	contains(t, s.protect(`{}`).text(t, http.StatusOK, "/login?next=%2Fmodules%2Facme%2Fvpc%2Faws"), none, "!og:")
}
