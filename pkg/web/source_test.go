package web_test

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// browsers is the header of a request that a browser sends for a page.
var browsers = []string{"Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,image/webp,*/*;q=0.8"}

// A browser that opens a source as configurations have it gets to its page.
func TestSources(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.module("acme/vpc/aws", "1.0.0", nil)
	s.module("acme/vpc/aws", "1.1.0", map[string]string{"modules/endpoints/main.tf": ""})
	s.module("modules/vpc/aws", "1.0.0", nil)
	s.module("other/db/aws", "1.0.0", nil)
	s.provider("acme/inventory", "1.4.0")
	for _, copied := range []string{
		"registry.example.net/acme/inventory", "registry.example.net/hashicorp/aws", "registry.example.net/hashicorp/dns",
		"registry.example.org/hashicorp/dns", "registry.example.org/secret/aws",
	} {
		s.mirrored(copied, "1.0.0")
	}
	pages := s.protect(`{}`)
	header := append(bearer(s.token(
		"read:modules/acme/*", "read:modules/modules/*", "read:providers/acme/*", "read:mirror/*/hashicorp/*", "read:mirror/*/acme/*",
	)), browsers...)
	for path, want := range map[string]string{
		"/acme/vpc/aws":                                  "/modules/acme/vpc/aws",
		"/acme/vpc/aws.md":                               "/modules/acme/vpc/aws.md",
		"/acme/vpc/aws/":                                 "/acme/vpc/aws",
		"/acme/vpc/aws/1.0.0":                            "/modules/acme/vpc/aws/1.0.0",
		"/acme/vpc/aws?version=1.0.0":                    "/modules/acme/vpc/aws/1.0.0",
		"/acme/vpc/aws//modules/endpoints":               "/acme/vpc/aws/modules/endpoints",
		"/acme/vpc/aws//modules/endpoints?version=1.0.0": "/acme/vpc/aws/modules/endpoints?version=1.0.0",
		"/acme/vpc/aws/modules/endpoints":                "/modules/acme/vpc/aws/1.1.0/modules/endpoints",
		"/acme/vpc/aws/modules/endpoints?version=1.0.0":  "/modules/acme/vpc/aws/1.0.0/modules/endpoints",
		"/acme/vpc/aws/v1.0.0/examples/complete":         "/modules/acme/vpc/aws/1.0.0/examples/complete",
		"/modules/vpc/aws":                               "/modules/modules/vpc/aws",
		"/acme/inventory":                                "/providers/acme/inventory",
		"/acme/inventory?version=1.4":                    "/providers/acme/inventory/1.4.0",
		"/acme/inventory/1.4.0":                          "/providers/acme/inventory/1.4.0",
		"/modules/acme/vpc/aws/":                         "/modules/acme/vpc/aws",
		"/providers//acme":                               "/providers/acme",
		"//registry.example.net/acme":                    "/registry.example.net/acme",
		"/acme":                                          "/search?ns=acme",
		"/acme.md":                                       "/search.md?ns=acme",
		"/hashicorp/aws":                                 "/mirror/registry.example.net/hashicorp/aws",
		"/hashicorp/aws.md":                              "/mirror/registry.example.net/hashicorp/aws.md",
		"/hashicorp/aws?version=6.20.2":                  "/mirror/registry.example.net/hashicorp/aws/6.20.2",
		"/registry.example.net/hashicorp/aws":            "/mirror/registry.example.net/hashicorp/aws",
		"/registry.example.net/hashicorp/aws/6.20.2":     "/mirror/registry.example.net/hashicorp/aws/6.20.2",
		"/registry.example.net/acme/vpc/aws":             "/mirror-modules/registry.example.net/acme/vpc/aws",
		"/registry.example.net/acme/vpc/aws/6.0.1":       "/mirror-modules/registry.example.net/acme/vpc/aws/6.0.1",
		"/registry.example.net/none/none?version=1.0.0":  "/mirror/registry.example.net/none/none/1.0.0",
	} {
		w := pages.get(t, path, header...)
		if w.Code != http.StatusSeeOther {
			t.Errorf("%s: status %d, want 303", path, w.Code)
		}
		if to := w.Header().Get("Location"); to != want {
			t.Errorf("%s leads to %q, want %q", path, to, want)
		}
	}
	for path, parts := range map[string][]string{
		"/acme/vcp/aws":               {"<code>acme/vcp/aws</code> does not exist", `<a href="/modules/acme/vpc/aws">`, `value="vcp"`},
		"/acme/vpc":                   {`<a href="/modules/acme/vpc/aws">`},
		"/acme/inventroy":             {`<a href="/providers/acme/inventory">`},
		"/modules/acme/vpc":           {`<a href="/modules/acme/vpc/aws">`},
		"/acme/vpc/aws/9.0.0":         {`<a href="/modules/acme/vpc/aws">`, "has no version <code>9.0.0</code>", "!does not exist"},
		"/acme/inventory?version=9":   {`<a href="/providers/acme/inventory">`, "has no version <code>9.0.0</code>"},
		"/modules/acme/vpc/aws/9.0.0": {`<a href="/modules/acme/vpc/aws/versions">`, "has no version <code>9.0.0</code>"},
		"/hashicorp/dns": {
			`Did you mean <a href="/mirror/registry.example.net/hashicorp/dns">`, ` or <a href="/mirror/registry.example.org/hashicorp/dns">`,
		},
		"/secret/aws":                 {"<code>secret/aws</code> does not exist", "!Did you mean"},
		"/other":                      {"<code>other</code> does not exist", "!Did you mean"},
		"/acme/vpc/aws/network":       {`<a href="/modules/acme/vpc/aws">`},
		"/acme/vpc/aws/modules/a/b":   {`<a href="/modules/acme/vpc/aws">`},
		"/acme/vpc/aws?version=~>1.0": {`<a href="/modules/acme/vpc/aws">`},
		"/other/db/aws":               {"<code>other/db/aws</code> does not exist", "!Did you mean"},
		"/nothing":                    {"<code>nothing</code> does not exist", "!Did you mean"},
	} {
		contains(t, pages.text(t, http.StatusNotFound, path, header...), parts...)
	}
	w := pages.get(t, "/acme/vpc/aws?version=1.0.0", browsers...)
	if to := w.Header().Get("Location"); to != "/login?next=%2Facme%2Fvpc%2Faws%3Fversion%3D1.0.0" {
		t.Errorf("without an account, the source leads to %q", to)
	}
}

// Programs get the same error for each path that is none of a page, and nothing
// is read for it.
func TestProgramsElsewhere(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.module("acme/vpc/aws", "1.0.0", nil)
	pages := s.protect(`{}`)
	token := bearer(s.token("read:**"))
	s.table.Take()
	get := func(path, accept string) response {
		w := pages.get(t, path, append(token, "Accept", accept)...)
		return response{w.Code, w.Header(), w.Body.String()}
	}
	want := get("/nothing", "*/*")
	if diff := cmp.Diff(`{"errors":["not found"],"code":"not_found"}`+"\n", want.Body); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string(nil), want.Header["Vary"]); diff != "" {
		t.Errorf("Vary (-want +got):\n%s", diff)
	}
	for _, path := range []string{"/acme/vpc/aws", "/acme/vpc/aws/", "/acme/vpc/aws.md", "/modules/acme/vpc/aws/1.0.0/none"} {
		for _, accept := range []string{"", "*/*", "application/json", "text/html;q=0"} {
			if diff := cmp.Diff(want, get(path, accept)); diff != "" {
				t.Errorf("%s with %q (-want +got):\n%s", path, accept, diff)
			}
		}
	}
	if w := pages.get(t, "/acme/vpc/aws//modules/endpoints", token...); w.Code != http.StatusBadRequest {
		t.Errorf("a path with two slashes: status %d, want 400", w.Code)
	}
	if reads := s.table.Take(); reads != "" {
		t.Errorf("the table is read: %s", reads)
	}
}
