package metadata_test

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/registry"
)

// probe is a request of a caller who may read only modules of acme. With
// visible set, the response to a caller who may read everything reveals the
// other namespace, so the probe can fail.
type probe struct {
	name, request string
	header        []string
	visible       bool
}

// probes try to learn whether the namespace other exists.
var probes = []probe{
	{"all modules", "GET /v1/modules", nil, true},
	{"all modules, HEAD", "HEAD /v1/modules", nil, true},
	{"all providers", "GET /v1/providers", nil, true},
	{"all providers, HEAD", "HEAD /v1/providers", nil, true},
	{"all mirrored providers", "GET /v1/mirror", nil, true},
	{"first page", "GET /v1/modules?limit=1", nil, true},
	{"second page", "GET /v1/modules?limit=1&offset=1", nil, true},
	{"last page", "GET /v1/modules?limit=1&offset=3", nil, true},
	{"beyond the end", "GET /v1/modules?offset=100", nil, true},
	{"a page that ends at the own end", "GET /v1/modules?limit=3", nil, true},
	{"by namespace", "GET /v1/modules?namespace=other", nil, true},
	{"by system", "GET /v1/modules?provider=aws", nil, true},
	{"by the other system", "GET /v1/modules?provider=azure", nil, true},
	{"namespace", "GET /v1/modules/other", nil, true},
	{"namespace, HEAD", "HEAD /v1/modules/other", nil, true},
	{"name", "GET /v1/modules/other/db", nil, true},
	{"name in the own namespace", "GET /v1/modules/acme/db", nil, false},
	{"namespace of providers", "GET /v1/providers/other", nil, true},
	{"namespace of mirrored providers", "GET /v1/mirror?namespace=hashicorp", nil, true},
	{"search by name", "GET /v1/modules/search?q=db", nil, true},
	{"search by address", "GET /v1/modules/search?q=other/db/aws", nil, true},
	{"search by part of the address", "GET /v1/modules/search?q=other+db+aw", nil, true},
	{"search by description", "GET /v1/modules/search?q=network", nil, true},
	{"search by input", "GET /v1/modules/search?q=secret_input", nil, true},
	{"search by two words", "GET /v1/modules/search?q=other+secret_input", nil, true},
	{"search by part of a word", "GET /v1/modules/search?q=ecre_input", nil, true},
	{"search for a mistyped word", "GET /v1/modules/search?q=secrt", nil, true},
	{"search for all", "GET /v1/modules/search?q=aws", nil, true},
	{"search, second page", "GET /v1/modules/search?q=aws&limit=1&offset=1", nil, true},
	{"search for nothing", "GET /v1/modules/search?q=no-such-thing", nil, false},
	{"search without words", "GET /v1/modules/search?q=", nil, false},
	{"search with a bad limit", "GET /v1/modules/search?q=db&limit=x", nil, false},
	{"search in a list", "GET /v1/modules?q=db", nil, true},
	{"search in the namespace", "GET /v1/modules/other?q=db", nil, true},
	{"search for providers", "GET /v1/providers?q=other", nil, true},
	{"search for mirrored providers", "GET /v1/mirror?q=random", nil, true},
	{"files", "GET /v1/modules/other/db/aws/3.0.0/files", nil, true},
	{"files, HEAD", "HEAD /v1/modules/other/db/aws/3.0.0/files", nil, true},
	{"files of an unknown version", "GET /v1/modules/other/db/aws/9.0.0/files", nil, false},
	{"file", "GET /v1/modules/other/db/aws/3.0.0/files/main.tf", nil, true},
	{"file, HEAD", "HEAD /v1/modules/other/db/aws/3.0.0/files/main.tf", nil, true},
	{"unknown file", "GET /v1/modules/other/db/aws/3.0.0/files/none.tf", nil, false},
	{"file by query", "GET /v1/modules/other/db/aws/3.0.0/files?path=main.tf", nil, true},
	{"image", "GET /v1/modules/other/db/aws/3.0.0/files/docs/plan.svg", nil, true},
	{"file across versions", "GET /v1/modules/acme/vpc/aws/1.1.0/files/..%2f..%2f..%2f..%2fother/db/aws", nil, false},
	{"files of a mirrored module", "GET /v1/mirror-modules/" + mirroredVPC + "/1.0.0/files", nil, true},
	{"file of a mirrored module", "GET /v1/mirror-modules/" + mirroredVPC + "/1.0.0/files/main.tf", nil, true},
	{"newest version", "GET /v1/modules/other/db/aws", nil, true},
	{"newest version, HEAD", "HEAD /v1/modules/other/db/aws", nil, true},
	{"version", "GET /v1/modules/other/db/aws/3.0.0", nil, true},
	{"version, HEAD", "HEAD /v1/modules/other/db/aws/3.0.0", nil, true},
	{"unknown version", "GET /v1/modules/other/db/aws/9.0.0", nil, false},
	{"malformed version", "GET /v1/modules/other/db/aws/x.y", nil, false},
	{"unknown system", "GET /v1/modules/other/db/none", nil, false},
	{"download", "GET /v1/modules/other/db/aws/download", nil, true},
	{"download, HEAD", "HEAD /v1/modules/other/db/aws/download", nil, true},
	{"history", "GET /v1/modules/other/db/aws/history", nil, true},
	{"history, HEAD", "HEAD /v1/modules/other/db/aws/history", nil, true},
	{"history of an unknown system", "GET /v1/modules/other/db/none/history", nil, false},
	{"system of another caller", "GET /v1/modules/acme/shared/aws", nil, false},
	{"provider", "GET /v1/providers/other/inventory", nil, true},
	{"provider, version", "GET /v1/providers/other/inventory/1.0.0", nil, true},
	{"provider, unknown version", "GET /v1/providers/other/inventory/9.0.0", nil, false},
	{"provider, history", "GET /v1/providers/other/inventory/history", nil, true},
	{"unknown provider, history", "GET /v1/providers/other/none/history", nil, false},
	{"mirrored provider", "GET /v1/mirror/registry.opentofu.org/hashicorp/random", nil, true},
	{"mirrored provider, HEAD", "HEAD /v1/mirror/registry.opentofu.org/hashicorp/random", nil, true},
	{"mirrored provider that waits", "GET /v1/mirror/registry.opentofu.org/hashicorp/null", nil, true},
	{"unknown mirrored provider", "GET /v1/mirror/registry.opentofu.org/hashicorp/none", nil, false},
	{"mirrored provider, history", "GET /v1/mirror/registry.opentofu.org/hashicorp/random?history=true", nil, true},
	{"mirrored provider that waits, history", "GET /v1/mirror/registry.opentofu.org/hashicorp/null?history=true", nil, true},
	{"unknown mirrored provider, history", "GET /v1/mirror/registry.opentofu.org/hashicorp/none?history=true", nil, false},
	{"mirrored provider, capital letters", "GET /v1/mirror/registry.opentofu.org/Hashicorp/random", nil, false},
	{"mirrored provider, any tag", "GET /v1/mirror/registry.opentofu.org/hashicorp/random",
		[]string{"If-None-Match", "*"}, true},
	{"dependents of the own module", "GET /v1/modules/acme/vpc/aws/dependents", nil, true},
	{"dependents, HEAD", "HEAD /v1/modules/acme/vpc/aws/dependents", nil, true},
	{"dependents, beyond the end", "GET /v1/modules/acme/vpc/aws/dependents?offset=5", nil, true},
	{"dependents of the other module", "GET /v1/modules/other/db/aws/dependents", nil, true},
	{"dependents of an unknown module", "GET /v1/modules/acme/none/aws/dependents", nil, false},
	{"dependents of a provider", "GET /v1/providers/acme/inventory/dependents", nil, true},
	{"dependents of a mirrored provider", "GET /v1/mirror-providers/registry.opentofu.org/hashicorp/random/dependents", nil,
		true},
	{"dependents of an unknown mirrored provider",
		"GET /v1/mirror-providers/registry.opentofu.org/hashicorp/none/dependents", nil, false},
	{"dependents of a mirrored module", "GET /v1/mirror-modules/registry.opentofu.org/acme/none/aws/dependents", nil, false},
	{"suggestion for a mistyped name", "GET /v1/modules/acme/dbb/aws", nil, false},
	{"suggestion for the name of the other module", "GET /v1/modules/acme/db/aws", nil, false},
	{"suggestion for another system", "GET /v1/modules/acme/db/azure/history", nil, true},
	{"suggestion for the namespace", "GET /v1/modules/othr/db/aws", nil, true},
	{"suggestion for a provider", "GET /v1/providers/othr/inventory", nil, true},
	{"suggestion for a mirrored provider", "GET /v1/mirror/registry.opentofu.org/hashicorp/rnadom", nil, true},
	{"escaped slash", "GET /v1/modules/acme%2F..%2Fother/db/aws", nil, false},
	{"escaped address", "GET /v1/modules/other%2Fdb%2Faws", nil, false},
	{"address across segments", "GET /v1/modules/acme%2Fvpc/aws/3.0.0", nil, false},
	{"dot segment", "GET /v1/modules/acme/../other/db/aws", nil, false},
	{"capital letters", "GET /v1/modules/Other/db/aws", nil, false},
	{"any tag", "GET /v1/modules", []string{"If-None-Match", "*"}, true},
	{"any tag of a history", "GET /v1/modules/other/db/aws/history", []string{"If-None-Match", "*"}, true},
	{"escaped address of a history", "GET /v1/modules/other%2Fdb%2Faws/history", nil, false},
	{"any tag of a version", "GET /v1/modules/other/db/aws", []string{"If-None-Match", "*"}, true},
	{"compressed", "GET /v1/modules", []string{"Accept-Encoding", "gzip"}, true},
	{"a method that writes", "DELETE /v1/modules/other/db/aws", nil, false},
	{"an unknown path", "GET /v1/modules/other/db/aws/3.0.0/x", nil, false},
	{"the description of the API", "GET /v1/openapi.json", nil, false},
}

// host is that of the registry in probes.
const host = "registry.example.com"

// response is everything that a caller gets.
type response struct {
	Status int
	Header http.Header
	Body   string
}

func (s server) probe(t *testing.T, p probe, token string) response {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
	var target string
	r.Method, target = cut(p.request)
	u, err := r.URL.Parse("http://" + host + target)
	if err != nil {
		t.Fatal(err)
	}
	r.URL, r.Host = u, host
	if p.name == "dot segment" {
		r.URL.Path = target // as a client without normalization sends it
	}
	for i := 0; i < len(p.header); i += 2 {
		r.Header.Set(p.header[i], p.header[i+1])
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	header := maps.Clone(w.Header())
	return response{w.Code, header, w.Body.String()}
}

func cut(request string) (method, target string) {
	for i := range request {
		if request[i] == ' ' {
			return request[:i], request[i+1:]
		}
	}
	return request, ""
}

// A caller gets the same bytes, whether or not other namespaces exist.
func TestProbes(t *testing.T) {
	t.Parallel()
	limited, limitedDigest := access.NewToken()
	all, allDigest := access.NewToken()
	stores := []*store{newStore(t), newStore(t)}
	for _, s := range stores {
		s.addToken(limitedDigest, "read:modules/acme/*")
		s.addToken(allDigest, "read:**")
		vpc := s.documented(moduleRecord(t, "acme/vpc/aws", "1.1.0"), documentation())
		s.module("acme/vpc/aws", nil, vpc)
		s.module("acme/vpc/google", nil, moduleRecord(t, "acme/vpc/google", "2.0.0"))
		s.module("acme/legacy/aws", nil, moduleRecord(t, "acme/legacy/aws", "1.0.0"))
	}
	full := stores[0]
	db := moduleRecord(t, "other/db/aws", "3.0.0")
	db.Contents = contents(t, registry.Contents{
		Names: registry.Names{Inputs: "secret_input"},
		Calls: []registry.Use{{Source: host + "/acme/vpc/aws", Versions: []registry.Version{db.Version}}},
	})
	full.module("other/db/aws", nil, full.documented(db, documentation()))
	full.module("other/db/azure", nil, moduleRecord(t, "other/db/azure", "3.0.0"))
	full.provider("other/inventory")
	full.provider("acme/inventory")
	full.mirrored("registry.opentofu.org/hashicorp/random", "3.6.0")
	full.mirroredModule("1.0.0")
	full.origin(registry.MirrorOrigin{
		Address: "registry.opentofu.org/hashicorp/null",
		Refused: []registry.RefusedVersion{{Version: version(t, "3.2.0"), At: published}},
	})
	full.policy(registry.MirrorRule{Pattern: "*/*/*", MinAge: 60})
	full.put("catalog/other", "modules/other/bad/aws", "damaged")
	full.put("usage/totals", "modules/other/db/aws", map[string]any{"callers": map[string]any{"": map[string]any{"count": 7}}})

	for _, settings := range []string{"{}", `{"public": ["modules/acme/vpc/*"]}`} {
		with, without := full.protect(settings), stores[1].protect(settings)
		for _, p := range probes {
			for _, token := range []string{limited, "", "larder_mistyped"} {
				if diff := cmp.Diff(without.probe(t, p, token), with.probe(t, p, token)); diff != "" {
					t.Errorf("%s, with %.12q and %s (-without the namespace +with it):\n%s", p.name, token, settings, diff)
				}
			}
			differ := !cmp.Equal(without.probe(t, p, all), with.probe(t, p, all))
			// With any tag, a caller who may read all sees a 304 in both.
			if p.visible && !differ && len(p.header) == 0 {
				t.Errorf("%s reveals nothing to a caller who may read everything", p.name)
			}
		}
	}
}

// The statuses do not depend on what exists.
func TestStatuses(t *testing.T) {
	t.Parallel()
	s := sample(t)
	limited, mirror := s.token("read:modules/acme/*"), s.token("read:mirror/**")
	h := s.protect(`{"public": ["providers/acme/**"]}`)
	for _, test := range []struct {
		path, token string
		want        int
	}{
		{"/v1/modules/acme/vpc/aws", limited, 200},
		{"/v1/modules/acme/none/aws", limited, 404},
		{"/v1/modules/other/db/aws", limited, 403},
		{"/v1/modules/other/none/aws", limited, 403},
		{"/v1/modules/other/-/aws", limited, 403},
		{"/v1/providers/other/inventory", limited, 403},
		{"/v1/providers/acme/inventory", limited, 200},
		{"/v1/providers/acme/inventory", "", 200},
		{"/v1/modules/acme/vpc/aws", "", 401},
		{"/v1/modules/none/none/aws", "", 401},
		{"/v1/modules/acme/vpc/aws/download", "", 401},
		{"/v1/mirror/registry.opentofu.org/hashicorp/random", limited, 403},
		{"/v1/mirror/registry.opentofu.org/hashicorp/none", limited, 403},
		{"/v1/mirror/-/-/-", limited, 403},
		{"/v1/mirror/registry.opentofu.org/hashicorp/random", "", 401},
		{"/v1/mirror/registry.opentofu.org/hashicorp/random", mirror, 200},
		{"/v1/mirror/registry.opentofu.org/hashicorp/none", mirror, 404},
		{"/v1/mirror/registry.opentofu.org/Hashicorp/random", mirror, 400},
		{"/v1/mirror/registry.opentofu.org/hashicorp/-", mirror, 400},
		{"/v1/modules/acme/vpc/aws/1.1.0/files", limited, 200},
		{"/v1/modules/acme/vpc/aws/1.1.0/files/main.tf", limited, 200},
		{"/v1/modules/acme/vpc/aws/1.1.0/files/none", limited, 404},
		{"/v1/modules/acme/vpc/aws/1.1.0/files/main.tf", "", 401},
		{"/v1/modules/other/db/aws/3.0.0/files", limited, 403},
		{"/v1/modules/other/db/aws/3.0.0/files/none", limited, 403},
		{"/v1/mirror-modules/" + mirroredVPC + "/1.0.0/files", limited, 403},
		{"/v1/mirror-modules/" + mirroredVPC + "/1.0.0/files/main.tf", mirror, 403},
		{"/v1/modules/acme/gone/aws/history", limited, 200},
		{"/v1/modules/acme/none/aws/history", limited, 404},
		{"/v1/modules/other/db/aws/history", limited, 403},
		{"/v1/modules/acme/vpc/aws/history", "", 401},
		{"/v1/providers/acme/inventory/history", "", 200},
		{"/v1/providers/other/inventory/history", limited, 403},
		{"/v1/mirror/registry.opentofu.org/hashicorp/random?history=true", limited, 403},
		{"/v1/mirror/registry.opentofu.org/hashicorp/random?history=true", mirror, 200},
		{"/v1/mirror/registry.opentofu.org/hashicorp/none?history=true", mirror, 404},
		{"/v1/mirror/registry.opentofu.org/Hashicorp/random?history=true", mirror, 400},
		{"/v1/modules/acme/gone/aws/dependents", limited, 200},
		{"/v1/modules/acme/none/aws/dependents", limited, 404},
		{"/v1/modules/other/db/aws/dependents", limited, 403},
		{"/v1/modules/acme/vpc/aws/dependents", "", 401},
		{"/v1/providers/acme/inventory/dependents", "", 200},
		{"/v1/mirror-providers/registry.opentofu.org/hashicorp/random/dependents", limited, 403},
		{"/v1/mirror-providers/registry.opentofu.org/hashicorp/random/dependents", mirror, 200},
		{"/v1/mirror-providers/registry.opentofu.org/hashicorp/none/dependents", mirror, 404},
		{"/v1/mirror-providers/registry.opentofu.org/Hashicorp/random/dependents", mirror, 400},
		{"/v1/modules", "", 200},
		{"/v1/modules", "larder_mistyped", 401},
		{"/v1/openapi.json", "", 200},
	} {
		if got := h.probe(t, probe{request: "GET " + test.path}, test.token); got.Status != test.want {
			t.Errorf("%s with %.12q: status %d, want %d", test.path, test.token, got.Status, test.want)
		}
	}
	private := s.protect("{}")
	for path, want := range map[string]int{"/v1/modules": 401, "/v1/mirror": 401, "/v1/openapi.json": 200} {
		if got := private.probe(t, probe{request: "GET " + path}, ""); got.Status != want {
			t.Errorf("%s of a private registry: status %d, want %d", path, got.Status, want)
		}
	}
}

// A module's systems are those that the caller may read.
func TestSystems(t *testing.T) {
	t.Parallel()
	s := sample(t)
	h := s.protect("{}")
	for scope, want := range map[string][]string{
		"read:modules/acme/*": {"aws", "google"}, "read:modules/acme/vpc/aws": {"aws"},
	} {
		type detail struct {
			Providers []string
			Version   registry.Version
		}
		got := read[detail](t, h, "/v1/modules/acme/vpc/aws", "Authorization", "Bearer "+s.token(scope))
		if diff := cmp.Diff(want, got.Providers); diff != "" {
			t.Errorf("%s (-want +got):\n%s", scope, diff)
		}
	}
}
