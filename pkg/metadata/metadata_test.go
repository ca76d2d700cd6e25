package metadata_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/internal/testkit/stock"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// documentation describes a small module.
func documentation() docs.Documentation {
	return docs.Documentation{
		Root: docs.Folder{
			Readme: "# VPC\n", ReadmeHTML: "<h1>VPC</h1>",
			Inputs: []docs.Input{{Name: "cidr", Type: "string", Required: true, TypeHTML: "<b>string</b>"}},
		},
		Submodules: []docs.Folder{{Path: "modules/endpoints", Name: "endpoints"}},
	}
}

// sample has modules in all states, two providers, and a mirrored one.
func sample(t testing.TB) *store {
	t.Helper()
	s := newStore(t)
	latest := s.documented(moduleRecord(t, "acme/vpc/aws", "1.1.0"), documentation())
	latest.Contents = stock.Contents("cidr subnet_ids aws_vpc")
	hidden := moduleRecord(t, "acme/vpc/aws", "1.0.1")
	hidden.Hidden, hidden.Deprecated = true, "broken"
	old := moduleRecord(t, "acme/vpc/aws", "1.0.0")
	old.Deprecated = "use 1.1.0"
	withdrawn := registry.ModuleVersion{Version: version(t, "0.9.0"), Withdrawn: &registry.Withdrawal{Reason: "leaked"}}
	s.module("acme/vpc/aws", nil, latest, hidden, old, withdrawn)
	s.module("acme/vpc/google", nil, moduleRecord(t, "acme/vpc/google", "2.0.0"))
	s.module("acme/legacy/aws", func(s *registry.Summary) { s.Deprecated = "use acme/vpc/aws" },
		moduleRecord(t, "acme/legacy/aws", "1.0.0"))
	s.module("acme/gone/aws", nil, registry.ModuleVersion{Version: version(t, "1.0.0"), Withdrawn: &registry.Withdrawal{}})
	db := moduleRecord(t, "other/db/aws", "3.0.0")
	db.Contents = uses(t, "3.0.0")
	s.module("other/db/aws", nil, db)
	s.provider("acme/inventory")
	s.provider("other/inventory")
	s.mirrored("registry.opentofu.org/hashicorp/random", "3.6.0")
	s.origin(registry.MirrorOrigin{
		Address: "registry.opentofu.org/hashicorp/random", SeenAt: published,
		Versions: []registry.SeenVersion{
			{Version: version(t, "3.8.0"), PublishedAt: time.Date(2999, 1, 1, 0, 0, 0, 0, time.UTC), SeenAt: published},
			{
				Version: version(t, "3.6.0"), SeenAt: published,
				Admitted: &registry.Decision{At: published, By: "ada", Reason: "a security fix"},
			},
		},
		Keys: []registry.OriginKey{{
			ID: "51852D87348FFC4C", Fingerprint: "C874011F0AB405110D02105551852D87348FFC4C", Owner: "HashiCorp",
			SeenAt: published,
		}},
		Refused: []registry.RefusedVersion{
			{
				Version: version(t, "3.7.0"), At: published,
				Key: registry.OriginKey{ID: "34365D9472D7468F", Fingerprint: "C874011F0AB405110D02105534365D9472D7468F"},
			},
		},
	})
	s.policy(registry.MirrorRule{Pattern: "*/*/*", MinAge: 7 * 24 * 60 * 60})
	return s
}

// uses returns the contents of a module whose version uses modules and
// providers of the sample.
func uses(t testing.TB, number string) []byte {
	t.Helper()
	use := func(source, constraint string) registry.Use {
		return registry.Use{Source: source, Constraint: constraint, Versions: []registry.Version{version(t, number)}}
	}
	return contents(t, registry.Contents{
		Calls: []registry.Use{
			use("acme/vpc/aws", "1.1.0"), use("example.com/acme/gone/aws", ""), use("example.com/acme/vpc/aws", "~> 1.0"),
		},
		Requires: []registry.Use{use("example.com/acme/inventory", "1.0.0"), use("hashicorp/random", ">= 3.0")},
	})
}

func contents(t testing.TB, c registry.Contents) []byte {
	t.Helper()
	data, err := protocol.Compress(c)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// A 404 suggests what the caller may read, and nothing if the address exists.
func TestSuggestions(t *testing.T) {
	t.Parallel()
	s := sample(t)
	h := s.protect("{}")
	for _, test := range []struct{ scope, path, want string }{
		{"read:**", "modules/acme/vcp/aws", "acme/vpc/aws"},
		{"read:**", "modules/acme/vcp/aws/1.0.0", "acme/vpc/aws"},
		{"read:**", "modules/acme/vcp/aws/history", "acme/vpc/aws"},
		{"read:**", "modules/acme/vcp/aws/download", "acme/vpc/aws"},
		{"read:**", "modules/acme/vpc/aws/7.0.0", ""},
		{"read:**", "modules/nobody/db/azurerm", "other/db/aws"},
		{"read:modules/acme/** read:modules/nobody/**", "modules/nobody/db/azurerm", ""},
		{"read:modules/acme/vpc/google read:modules/acme/vpc/azure", "modules/acme/vpc/azure", "acme/vpc/google"},
		{"read:**", "providers/acme/inventroy", "acme/inventory"},
		{"read:**", "providers/nobody/inventory/dependents", "acme/inventory"},
		{"read:providers/other/** read:providers/nobody/*", "providers/nobody/inventory", "other/inventory"},
		{"read:**", "mirror/registry.terraform.io/hashicorp/random", "registry.opentofu.org/hashicorp/random"},
		{"read:**", "mirror-modules/registry.terraform.io/hashicorp/random/aws", ""},
	} {
		token := s.token(strings.Fields(test.scope)...)
		got := h.get(t, "/v1/"+test.path, "Authorization", "Bearer "+token).Body.String()
		want := `{"errors":["not found"],"code":"not_found"`
		if test.want != "" {
			want += `,"hint":"Did you mean ` + test.want + `?"`
		}
		if diff := cmp.Diff(want+"}\n", got); diff != "" {
			t.Errorf("%s with %s (-want +got):\n%s", test.path, test.scope, diff)
		}
	}
}

// Each route has a golden response.
func TestResponses(t *testing.T) {
	t.Parallel()
	h := sample(t).serve()
	texts := golden.New(t)
	for _, path := range []string{
		"/v1/modules", "/v1/modules?limit=1&offset=1&provider=aws&q=acme", "/v1/modules/search?q=subnet",
		"/v1/modules/search", "/v1/modules/acme", "/v1/modules/acme/vpc", "/v1/modules/acme/vpc/aws",
		"/v1/modules/acme/vpc/aws/1.0.0", "/v1/modules/acme/vpc/aws/download", "/v1/modules/acme/vpc/aws/1.0.1",
		"/v1/modules/acme/legacy/aws", "/v1/modules/none", "/v1/providers", "/v1/providers/acme",
		"/v1/providers/acme/inventory", "/v1/providers/acme/inventory/1.0.0", "/v1/providers/acme/none", "/v1/mirror",
		"/v1/mirror/registry.opentofu.org/hashicorp/random", "/v1/mirror/registry.opentofu.org/hashicorp/none",
		"/v1/modules/acme/vpc/aws/1.1.0/files", "/v1/modules/acme/vpc/google/2.0.0/files",
		"/v1/modules/acme/vpc/aws/history", "/v1/modules/acme/legacy/aws/history", "/v1/modules/acme/gone/aws/history",
		"/v1/modules/acme/none/aws/history", "/v1/providers/acme/inventory/history", "/v1/providers/acme/none/history",
		"/v1/mirror/registry.opentofu.org/hashicorp/random?history=true",
		"/v1/mirror/registry.opentofu.org/hashicorp/none?history=true",
		"/v1/modules/acme/vpc/aws/dependents", "/v1/modules/acme/gone/aws/dependents",
		"/v1/modules/other/db/aws/dependents?offset=1", "/v1/modules/acme/none/aws/dependents",
		"/v1/providers/acme/inventory/dependents", "/v1/providers/acme/none/dependents",
		"/v1/mirror-providers/registry.opentofu.org/hashicorp/random/dependents",
		"/v1/mirror-providers/registry.opentofu.org/hashicorp/none/dependents",
		"/v1/mirror-modules/registry.opentofu.org/acme/vpc/aws/dependents",
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			w := h.get(t, path)
			var headers strings.Builder
			for _, name := range []string{"Cache-Control", "Content-Type", "Location", "Vary"} {
				if values := w.Header().Values(name); len(values) > 0 {
					fmt.Fprintf(&headers, "%s: %s\n", name, strings.Join(values, ", "))
				}
			}
			texts.Text(t, fmt.Sprintf("%d\n%s\n%s", w.Code, headers.String(), w.Body))
			if got := w.Header().Get("X-Content-Type-Options"); got != "nosniff" {
				t.Errorf("X-Content-Type-Options is %q", got)
			}
		})
	}
}

// A version that is withdrawn is answered like one that never existed. So is an
// address without a listed version, but for the suggestion.
func TestUnlisted(t *testing.T) {
	t.Parallel()
	h := sample(t).serve()
	want := h.get(t, "/v1/modules/acme/vpc/aws/7.0.0")
	if want.Code != http.StatusNotFound {
		t.Fatalf("an unknown version: status %d, want 404", want.Code)
	}
	for _, path := range []string{
		"/v1/modules/acme/vpc/aws/0.9.0", "/v1/modules/acme/gone/aws",
		"/v1/modules/acme/gone/aws/1.0.0", "/v1/modules/acme/gone/aws/download", "/v1/modules/acme/none/aws",
		"/v1/providers/acme/none", "/v1/providers/acme/inventory/2.0.0",
	} {
		w := h.get(t, path)
		if w.Code != want.Code {
			t.Errorf("%s: status %d, want 404", path, w.Code)
		}
		body, _, _ := strings.Cut(w.Body.String(), `,"hint":"Did you mean acme/`)
		if diff := cmp.Diff(strings.TrimSuffix(want.Body.String(), "}\n"), strings.TrimSuffix(body, "}\n")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
}

// A list, a search and a description have the same deprecation, which is that
// of the latest version, or else that of all versions.
func TestDeprecations(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	for _, address := range []string{"acme/vpc/aws", "acme/vpc/google"} {
		s.module(address, nil, moduleRecord(t, address, "1.1.0"), moduleRecord(t, address, "1.0.0"))
	}
	s.provider("acme/inventory")
	c := catalog.New(s.table)
	vpc, err := registry.ParseModule("acme/vpc/aws")
	if err != nil {
		t.Fatal(err)
	}
	inventory, err := registry.ParseProvider("acme/inventory")
	if err != nil {
		t.Fatal(err)
	}
	latest, old, only := version(t, "1.1.0"), version(t, "1.0.0"), version(t, "1.0.0")
	both := []string{"acme/vpc/aws", "acme/vpc/google"}
	for _, step := range []struct {
		name, message string
		module        *registry.Version
		provider      *registry.Version
		want          string
		wantProvider  string
		found         []string
	}{
		{"an old version", "old", &old, nil, "", "old", both},
		{"the latest version", "bad", &latest, &only, "bad", "bad", []string{both[1], both[0]}},
		{"all versions", "all", nil, nil, "bad", "bad", []string{both[1], both[0]}},
		{"no longer the latest version", "", &latest, &only, "all", "all", []string{both[1], both[0]}},
		{"nothing", "", nil, nil, "", "", both},
	} {
		d := catalog.Deprecation{Message: step.message, By: "ada"}
		if _, err := c.Modules.Deprecate(t.Context(), vpc, step.module, d); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Providers.Deprecate(t.Context(), inventory, step.provider, d); err != nil {
			t.Fatal(err)
		}
		h := s.serve()
		note := deprecation(step.want)
		detail := read[protocol.ModuleDetail](t, h, "/v1/modules/acme/vpc/aws").Deprecation
		if diff := cmp.Diff(note, detail); diff != "" {
			t.Errorf("%s, description (-want +got):\n%s", step.name, diff)
		}
		list := read[protocol.ModuleList](t, h, "/v1/modules").Modules
		if diff := cmp.Diff(note, list[0].Deprecation); diff != "" {
			t.Errorf("%s, list (-want +got):\n%s", step.name, diff)
		}
		var found []string
		for _, m := range read[protocol.ModuleList](t, h, "/v1/modules/search?q=vpc").Modules {
			found = append(found, m.Namespace+"/"+m.Name+"/"+m.Provider)
		}
		if diff := cmp.Diff(step.found, found); diff != "" {
			t.Errorf("%s, search (-want +got):\n%s", step.name, diff)
		}
		note = deprecation(step.wantProvider)
		described := read[protocol.ProviderDetail](t, h, "/v1/providers/acme/inventory").Deprecation
		if diff := cmp.Diff(note, described); diff != "" {
			t.Errorf("%s, description of the provider (-want +got):\n%s", step.name, diff)
		}
		listed := read[protocol.ProviderList](t, h, "/v1/providers").Providers[0].Deprecation
		if diff := cmp.Diff(note, listed); diff != "" {
			t.Errorf("%s, list of providers (-want +got):\n%s", step.name, diff)
		}
	}
}

// deprecation returns the note with a reason, or nil without one.
func deprecation(reason string) *protocol.DeprecationNote {
	if reason == "" {
		return nil
	}
	return &protocol.DeprecationNote{Reason: reason}
}

// Requests that no client may send are 400. The text explains what is wrong
// with a query.
func TestBadRequests(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	h := sample(t).serve()
	for _, path := range []string{
		"/v1/modules?limit=0", "/v1/modules?limit=x", "/v1/modules?limit=-99999999999999999999", "/v1/modules?offset=-1",
		"/v1/modules?q=" + strings.Repeat("x", 201), "/v1/modules?q=" + strings.Repeat("x+", 9), "/v1/modules/search",
		"/v1/modules/search?q=+", "/v1/modules?namespace=acme%2F", "/v1/modules/-acme/vpc", "/v1/providers?namespace=a--b",
		"/v1/mirror?namespace=%1b%5B31m", "/v1/providers?limit=0", "/v1/mirror?limit=0", "/v1/modules/acme/vpc/aws/x.y",
		"/v1/modules/acme/v..c/aws", "/v1/providers/acme/x--", "/v1/providers/acme/inventory/x.y", "/v1/modules?q=%zz",
		"/v1/modules/acme/vpc/aws/dependents?limit=0", "/v1/providers/acme/x--/dependents",
		"/v1/modules/acme/v..c/aws/history", "/v1/providers/acme/x--/history", "/v1/mirror/x/hashicorp/x--?history=true",
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			w := h.get(t, path)
			if w.Code != http.StatusBadRequest {
				t.Errorf("status %d, want 400", w.Code)
			}
			texts.Text(t, w.Body.String())
		})
	}
}

// A large number is like the largest one that is possible.
func TestLargeNumbers(t *testing.T) {
	t.Parallel()
	h := sample(t).serve()
	for query, want := range map[string]int{
		"limit=100": 100, "limit=101": 100, "limit=99999999999999999999": 100, "offset=99999999999999999999": 20,
	} {
		if got := read[protocol.ModuleList](t, h, "/v1/modules?"+query).Meta.Limit; got != want {
			t.Errorf("%s: the limit is %d, want %d", query, got, want)
		}
	}
	if next := read[protocol.ModuleList](t, h, "/v1/modules?limit=500&offset=1").Meta.PrevURL; next !=
		"/v1/modules?limit=100&offset=0" {
		t.Errorf("the page before is %s", next)
	}
}

// The number of results and the pages before and after fit together.
func TestPages(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	for i := range 45 {
		s.module(fmt.Sprintf("acme/m%02d/aws", i), nil, moduleRecord(t, fmt.Sprintf("acme/m%02d/aws", i), "1.0.0"))
	}
	h := s.serve()
	var names []string
	next, pages := "/v1/modules?q=m&limit=20", 0
	for ; next != ""; pages++ {
		list := read[protocol.ModuleList](t, h, next)
		for _, m := range list.Modules {
			names = append(names, m.Name)
		}
		if list.Meta.Total != 45 {
			t.Errorf("%s: total %d, want 45", next, list.Meta.Total)
		}
		next = list.Meta.NextURL
	}
	if pages != 3 {
		t.Errorf("%d pages, want 3", pages)
	}
	if len(names) != 45 || names[0] != "m00" || names[44] != "m44" {
		t.Errorf("%d names: %v", len(names), names)
	}
	beyond := read[protocol.ModuleList](t, h, "/v1/modules?offset=100")
	if len(beyond.Modules) != 0 {
		t.Errorf("%d modules beyond the end, want 0", len(beyond.Modules))
	}
	if diff := cmp.Diff("/v1/modules?limit=20&offset=25", beyond.Meta.PrevURL); diff != "" {
		t.Errorf("the page before (-want +got):\n%s", diff)
	}
}

// A response has a tag, and a client that has the response gets a 304.
func TestTags(t *testing.T) {
	t.Parallel()
	h := sample(t).serve()
	for _, path := range []string{
		"/v1/modules", "/v1/modules/acme/vpc/aws", "/v1/providers/acme/inventory", "/v1/mirror", "/v1/openapi.json",
		"/v1/mirror/registry.opentofu.org/hashicorp/random", "/v1/modules/acme/vpc/aws/history",
		"/v1/providers/acme/inventory/history", "/v1/mirror/registry.opentofu.org/hashicorp/random?history=true",
	} {
		tag := h.get(t, path).Header().Get("ETag")
		for header, want := range map[string]int{
			tag: 304, "*": 304, `"x", ` + tag: 304, strings.TrimPrefix(tag, "W/"): 304, `"x"`: 200,
		} {
			w := h.get(t, path, "If-None-Match", header)
			if w.Code != want {
				t.Errorf("%s with %s: status %d, want %d", path, header, w.Code, want)
			}
			if got := w.Header().Get("X-Content-Type-Options"); got != "nosniff" {
				t.Errorf("%s with %s: X-Content-Type-Options is %q", path, header, got)
			}
			if want == 304 && w.Body.Len() > 0 {
				t.Errorf("%s: a 304 with a body of %d bytes", path, w.Body.Len())
			}
		}
	}
}

// Documentation that is missing or damaged does not hide the version. The
// damage is logged. A store that fails is a 503.
func TestDamagedDocumentation(t *testing.T) {
	t.Parallel()
	const path = "/v1/modules/acme/vpc/aws/1.1.0"
	for name, test := range map[string]struct {
		damage     func(*store, string)
		status     int
		documented bool
		logged     string
	}{
		"complete":   {func(*store, string) {}, 200, true, "level=INFO"},
		"missing":    {func(s *store, key string) { delete(s.objects.content, key) }, 200, false, "level=ERROR"},
		"changed":    {func(s *store, key string) { s.objects.content[key][30] ^= 1 }, 200, false, "level=ERROR"},
		"truncated":  {func(s *store, key string) { s.objects.content[key] = nil }, 200, false, "level=ERROR"},
		"unreadable": {func(s *store, _ string) { s.objects.err = fmt.Errorf("disk error") }, 503, false, "level=ERROR"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := sample(t)
			for key := range s.objects.content {
				test.damage(s, key)
			}
			h := s.serve()
			if w := h.get(t, path); w.Code != test.status {
				t.Fatalf("status %d, want %d", w.Code, test.status)
			}
			if log := h.log.String(); !strings.Contains(log, test.logged) || strings.Count(log, "\n") != 1 {
				t.Errorf("the log has no single line with %s: %s", test.logged, log)
			}
			if test.status != http.StatusOK {
				return
			}
			d := read[protocol.ModuleDetail](t, h, path)
			if d.Documented != test.documented {
				t.Errorf("documented is %t, want %t", d.Documented, test.documented)
			}
			if d.Root.Name != "vpc" {
				t.Errorf("the root has the name %q", d.Root.Name)
			}
			if d.Root.Inputs == nil {
				t.Error("the root has no list of inputs")
			}
		})
	}
}

// A request takes at most three calls of the table and one read of an object. A
// list takes none while the entries are cached.
func TestCalls(t *testing.T) {
	t.Parallel()
	s := sample(t)
	h := s.serve()
	for _, test := range []struct {
		path, calls, again string
		objects            int64
	}{
		// The names of namespaces, the entries of two, and the downloads.
		{"/v1/modules", "Query Query Query Query", "", 0},
		// The contents of the modules of two namespaces.
		{"/v1/modules/search?q=x", "Query Query", "", 0},
		{"/v1/modules/acme", "", "", 0},
		{"/v1/modules/acme/vpc", "", "", 0},
		{"/v1/modules/acme/vpc/aws", "Query Snapshot Get", "Query Snapshot Get", 1},
		{"/v1/modules/acme/vpc/aws/1.1.0", "Query Snapshot Get", "Query Snapshot Get", 1},
		{"/v1/modules/acme/vpc/aws/1.0.0", "Query Snapshot Get", "Query Snapshot Get", 0},
		{"/v1/modules/acme/vpc/aws/download", "Get", "Get", 0},
		{"/v1/modules/acme/vpc/aws/x.y", "", "", 0},
		{"/v1/providers", "Query Query Query", "", 0}, // the downloads are cached
		{"/v1/providers/acme", "", "", 0},
		{"/v1/providers/acme/inventory", "Get Snapshot Get", "Get Snapshot Get", 0},
		{"/v1/providers/acme/inventory/1.0.0", "Get Snapshot Get", "Get Snapshot Get", 0},
		{"/v1/mirror", "Query", "", 0},
		// The policy is cached for a minute.
		{"/v1/mirror/registry.opentofu.org/hashicorp/random", "Get Snapshot", "Snapshot", 0},
		{"/v1/mirror/registry.opentofu.org/hashicorp/none", "Snapshot", "Snapshot", 0},
		{"/v1/modules/acme/vpc/aws/history", "Snapshot Query", "Snapshot Query", 0},
		{"/v1/modules/acme/none/aws/history", "Snapshot", "Snapshot", 0},
		{"/v1/providers/acme/inventory/history", "Snapshot Query", "Snapshot Query", 0},
		{"/v1/mirror/registry.opentofu.org/hashicorp/random?history=true", "Snapshot Query", "Snapshot Query", 0},
		{"/v1/mirror/registry.opentofu.org/hashicorp/none?history=true", "Snapshot", "Snapshot", 0},
		{"/v1/modules/acme/vpc/aws/dependents", "Snapshot", "Snapshot", 0},
		{"/v1/mirror-providers/registry.opentofu.org/hashicorp/random/dependents", "Snapshot", "Snapshot", 0},
		{"/v1/openapi.json", "", "", 0},
	} {
		for n, want := range []string{test.calls, test.again} {
			s.table.Take()
			s.objects.reads.Store(0)
			h.get(t, test.path)
			if got := s.table.Take(); got != want {
				t.Errorf("%s, request %d: calls %q, want %q", test.path, n+1, got, want)
			}
			if got := s.objects.reads.Load(); got != test.objects {
				t.Errorf("%s: %d objects are read, want %d", test.path, got, test.objects)
			}
		}
	}
}

// A list that cannot have anything for the caller is empty without a call of
// the table. It is the same as a list without results that reads the table.
func TestNoCalls(t *testing.T) {
	t.Parallel()
	s := sample(t)
	h := s.protect(`{"public": ["mirror/registry.opentofu.org/**"]}`)
	acme, none, publisher := s.token("read:modules/acme/vpc"), s.token("read:providers/other/*"), s.token("publish:**")
	const all = "Query Query Query Query"
	for _, test := range []struct{ name, token, path, calls string }{
		{"another kind", acme, "/v1/providers", ""},
		{"another kind, of the namespace", acme, "/v1/providers/acme", ""},
		{"another namespace", acme, "/v1/modules/other", ""},
		{"another namespace as a parameter", acme, "/v1/modules?namespace=other", ""},
		{"an unknown namespace", acme, "/v1/modules/none", ""},
		{"another name", acme, "/v1/modules/acme/legacy", ""},
		{"a search in another namespace", acme, "/v1/modules/search?q=db&namespace=other", ""},
		{"only other scopes", none, "/v1/modules/search?q=vpc", ""},
		{"a publisher", publisher, "/v1/modules", ""},
		{"no credential", "", "/v1/modules", ""},
		{"all modules", acme, "/v1/modules", all},
		{"the namespace", acme, "/v1/modules/acme", ""},                           // is cached
		{"providers", none, "/v1/providers?namespace=other", "Query Query Query"}, // the downloads are cached
		{"public", "", "/v1/mirror?namespace=hashicorp", "Query"},
	} {
		var header []string
		if test.token != "" {
			header = []string{"Authorization", "Bearer " + test.token}
		}
		s.table.Take()
		w := h.get(t, test.path, header...)
		if w.Code != http.StatusOK {
			t.Errorf("%s: status %d, want 200: %s", test.name, w.Code, w.Body)
		}
		if got := s.table.Take(); got != test.calls {
			t.Errorf("%s: calls %q, want %q", test.name, got, test.calls)
		}
	}
	nothing := h.get(t, "/v1/modules/other?q=x", "Authorization", "Bearer "+acme)
	read := s.serve().get(t, "/v1/modules/none?q=x")
	// The address of the namespace is not in the response.
	if diff := cmp.Diff(read.Body.String(), nothing.Body.String()); diff != "" {
		t.Errorf("a list that is read and one that is not (-read +not):\n%s", diff)
	}
	if diff := cmp.Diff(read.Header(), nothing.Header()); diff != "" {
		t.Errorf("headers of a list that is read and one that is not (-read +not):\n%s", diff)
	}
}

// If the table fails, each route that reads it is a 503 and no list is empty.
func TestTableFails(t *testing.T) {
	t.Parallel()
	s := sample(t)
	h := s.serve()
	s.table.Fail(registry.ErrUnavailable)
	paths := []string{
		"/v1/modules", "/v1/modules/search?q=x", "/v1/modules/acme/vpc/aws", "/v1/modules/acme/vpc/aws/1.1.0",
		"/v1/modules/acme/vpc/aws/download", "/v1/providers", "/v1/providers/acme/inventory", "/v1/mirror",
		"/v1/mirror/registry.opentofu.org/hashicorp/random", "/v1/modules/acme/vpc/aws/history",
		"/v1/providers/acme/inventory/history", "/v1/mirror/registry.opentofu.org/hashicorp/random?history=true",
	}
	for _, path := range paths {
		if w := h.get(t, path); w.Code != http.StatusServiceUnavailable {
			t.Errorf("%s: status %d, want 503", path, w.Code)
		}
	}
	s.table.Fail(nil) // a failure is not cached
	for _, path := range paths {
		if w := h.get(t, path); w.Code >= 400 {
			t.Errorf("%s after the failure: status %d", path, w.Code)
		}
	}
}

// A scope for mirrored providers lists no mirrored module, and the other way round.
// Neither is in a list of the registry's own.
func TestMirroredModules(t *testing.T) {
	t.Parallel()
	s := sample(t)
	const vpc, random = "registry.opentofu.org/acme/vpc/aws", "registry.opentofu.org/hashicorp/random"
	s.put("catalog/mirror", "mirror-modules/"+vpc, registry.Summary{Address: vpc, Latest: version(t, "5.0.0")})
	h := s.protect("{}")
	for scope, want := range map[string]struct {
		providers []string
		mirrored  []string
		modules   int
	}{
		"read:**":                {[]string{random}, []string{vpc}, 4},
		"read:mirror/**":         {[]string{random}, nil, 0},
		"read:mirror-modules/**": {nil, []string{vpc}, 0},
		"read:modules/**":        {nil, nil, 4},
	} {
		token := []string{"Authorization", "Bearer " + s.token(scope)}
		var providers []string
		for _, p := range read[protocol.MirrorList](t, h, "/v1/mirror", token...).Providers {
			providers = append(providers, p.Hostname+"/"+p.Namespace+"/"+p.Name)
		}
		if diff := cmp.Diff(want.providers, providers); diff != "" {
			t.Errorf("%s: mirrored providers (-want +got):\n%s", scope, diff)
		}
		var mirrored []string
		for _, m := range read[protocol.MirroredModuleList](t, h, "/v1/mirror-modules?q=vpc&provider=aws", token...).Modules {
			mirrored = append(mirrored, strings.Join([]string{m.Hostname, m.Namespace, m.Name, m.Provider}, "/"))
		}
		if diff := cmp.Diff(want.mirrored, mirrored); diff != "" {
			t.Errorf("%s: mirrored modules (-want +got):\n%s", scope, diff)
		}
		if got := read[protocol.ModuleList](t, h, "/v1/modules", token...).Meta.Total; got != want.modules {
			t.Errorf("%s: %d modules, want %d", scope, got, want.modules)
		}
	}
	if log := h.log.String(); strings.Contains(log, "level=ERROR") {
		t.Errorf("the log has an error: %s", log)
	}
}

// Entries that cannot be read do not hide the others. They are logged once.
func TestDamagedEntries(t *testing.T) {
	t.Parallel()
	s := sample(t)
	s.put("catalog/acme", "modules/acme/bad/aws", "not an entry")
	s.put("catalog/other", "modules/other/bad/aws", registry.Summary{Address: "other/bad", Latest: version(t, "1.0.0")})
	h := s.serve()
	for n, want := range []string{"level=ERROR", "level=INFO"} {
		h.log.Reset()
		if list := read[protocol.ModuleList](t, h, "/v1/modules"); list.Meta.Total != 4 {
			t.Errorf("request %d: %d modules, want 4", n+1, list.Meta.Total)
		}
		if log := h.log.String(); !strings.Contains(log, want) {
			t.Errorf("request %d: the log has no %s: %s", n+1, want, log)
		}
	}
}

// Methods other than GET and HEAD are 405, and unknown paths 404.
func TestMethods(t *testing.T) {
	t.Parallel()
	h := sample(t).serve()
	for request, want := range map[string]int{
		"HEAD /v1/modules": 200, "POST /v1/modules": 405, "DELETE /v1/modules/acme/vpc/aws": 405,
		"PUT /v1/openapi.json": 405, "POST /v1/modules/acme/vpc/aws/history": 405, "GET /v1/modules/a/b/c/1.0.0/x/y": 404, "GET /v1/other": 404, "GET /v1/mirror/x": 404,
	} {
		method, path, _ := strings.Cut(request, " ")
		w := h.send(t, method, path)
		if w.Code != want {
			t.Errorf("%s: status %d, want %d", request, w.Code, want)
		}
		if want == 405 && w.Header().Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: Allow is %q", request, w.Header().Get("Allow"))
		}
	}
}

// Descriptions and lists have the downloads of an address. If they cannot be
// read, they have everything else.
func TestDownloads(t *testing.T) {
	t.Parallel()
	s := sample(t)
	counted := map[string]any{"callers": map[string]any{"": map[string]any{"count": 7, "last": time.Now()}}}
	s.put("usage/totals", "modules/acme/vpc/aws", counted)
	s.put("usage/totals", "providers/acme/inventory", counted)
	h := s.serve()
	if got := read[protocol.ModuleList](t, h, "/v1/modules/acme/vpc").Modules[0].Downloads; got != 7 {
		t.Errorf("the list of modules has %d downloads, want 7", got)
	}
	if got := read[protocol.ProviderList](t, h, "/v1/providers/acme").Providers[0].Downloads; got != 7 {
		t.Errorf("the list of providers has %d downloads, want 7", got)
	}
	type downloads struct{ Downloads int64 }
	for path, want := range map[string]int64{
		"/v1/modules/acme/vpc/aws": 7, "/v1/modules/acme/vpc/aws/1.0.0": 7, "/v1/providers/acme/inventory": 7,
		"/v1/modules/acme/vpc/google": 0,
	} {
		if got := read[downloads](t, h, path).Downloads; got != want {
			t.Errorf("%s has %d downloads, want %d", path, got, want)
		}
	}
	s.put("usage/totals", "modules/acme/vpc/aws", "damaged")
	if got := read[downloads](t, h, "/v1/modules/acme/vpc/aws").Downloads; got != 0 {
		t.Errorf("%d downloads of a damaged item, want 0", got)
	}
}
