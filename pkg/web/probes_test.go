package web_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/registry"
)

// probes are paths with which a caller who may read only modules of acme tries
// to learn whether the namespace other exists. The first ones differ for a
// caller who may read everything.
var probes = []struct {
	path    string
	visible bool
}{
	{"/", true},
	{"/index.md", true},
	{"/search?q=db", true},
	{"/search?q=other/db/aws", true},
	{"/search?q=other/db", true},
	{"/search?q=secret_input", true},
	{"/search?q=description", true},
	{"/search?q=", true},
	{"/search?q=vpc", false},
	{"/search?ns=other", true},
	{"/search?kind=mirrored", true},
	{"/search?system=azure", true},
	{"/search?q=&after=1", true},
	{"/search?q=&after=20", true},
	{"/search.md?q=db", true},
	{"/modules", true},
	{"/modules.md", true},
	{"/modules/other", true},
	{"/providers", true},
	{"/providers/other", true},
	{"/mirror", true},
	{"/modules/acme", false},
	{"/modules/other/db/aws", true},
	{"/modules/other/db/aws/3.0.0", true},
	{"/modules/other/db/aws/3.0.0.md", true},
	{"/modules/other/db/aws/9.0.0", true},
	{"/modules/other/db/aws/3.0.0/modules/endpoints", true},
	{"/modules/other/db/aws/3.0.0/modules/none", false},
	{"/modules/other/db/aws/3.0.0/files", true},
	{"/modules/other/db/aws/3.0.0/files.md", true},
	{"/modules/other/db/aws/3.0.0/files/main.tf", true},
	{"/modules/other/db/aws/3.0.0/files/main.tf?raw", true},
	{"/modules/other/db/aws/3.0.0/files?path=main.tf&raw", true},
	{"/modules/other/db/aws/3.0.0/files/none.tf", false},
	{"/modules/other/db/aws/3.0.0/download", true},
	{"/modules/other/gone/aws/1.0.0/files/main.tf?raw", true},
	{"/modules/other/gone/aws/1.0.0/download", true},
	{"/modules/other/db/aws/versions", true},
	{"/modules/other/db/aws/versions.md", true},
	{"/modules/other/db/aws/compare?from=3.0.0&to=3.1.0", true},
	{"/modules/other/db/aws/compare?from=3.0.0&to=9.9.9", true},
	{"/modules/other/gone/aws", true},
	{"/modules/othr/db/azure", true},
	{"/modules/nobody/db/azure.md", true},
	{"/providers/othr/inventory", true},
	{"/mirror/registry.example.net/hashicorp/rnadom", true},
	{"/modules/other/gone/aws/1.0.0", true},
	{"/modules/other/-/aws", false},
	{"/modules/Other/db/aws", false},
	{"/modules/acme%2F..%2Fother/db/aws", false},
	{"/providers/other/inventory", true},
	{"/providers/other/inventory/1.0.0", true},
	{"/providers/other/inventory/versions", true},
	{"/providers/acme/inventory", true},
	{"/mirror/registry.example.net/hashicorp/random", true},
	{"/mirror/registry.example.net/hashicorp/random/3.6.0", true},
	{"/mirror/registry.example.net/hashicorp/random/versions", true},
	{"/mirror/registry.example.net/hashicorp/waits", true},
	{"/mirror/registry.example.net/hashicorp/waits/versions", true},
	{"/mirror/registry.example.net/hashicorp/waits.md", true},
	{"/setup", true},
	{"/setup.md", true},
	{"/status", true},
	{"/status.md", true},
	{"/login", false},
	{"/nothing", false},
	{"/hashicorp/random", true},
	{"/hashicorp/random?version=3.6.0", true},
	{"/hashicorp/random.md", true},
	{"/registry.example.net/hashicorp/random", false},
	{"/mirror/registry.example.net/hashicorp/random/9.0.0", true},
	{"/mirror/registry.example.net/hashicorp/waits/1.0.0", true},
	{"/modules/other/gone/aws/compare?from=1.0.0", true},
	{"/other.md", true},
	{"/other", true},
	{"/other/db", true},
	{"/other/db/aws", true},
	{"/other/db/aws/", false},
	{"/other/db/aws/3.0.0", true},
	{"/other/db/aws/9.0.0", true},
	{"/other/db/aws?version=3.0.0", true},
	{"/other/db/aws/modules/endpoints", true},
	{"/other/db/aws//modules/endpoints", false},
	{"/other/gone/aws", true},
	{"/other/inventory", true},
	{"/acme/inventory", true},
	{"/othr/db/azure", true},
}

// response is everything that a caller gets.
type response struct {
	Status int
	Header http.Header
	Body   string
}

func (s server) probe(t *testing.T, path, token string) response {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	r.Header.Set(browsers[0], browsers[1])
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return response{w.Code, w.Header(), w.Body.String()}
}

// A caller gets the same bytes, whether or not other namespaces exist.
func TestProbes(t *testing.T) {
	t.Parallel()
	limited, limitedSum := access.NewToken()
	all, allSum := access.NewToken()
	stores := []*store{newStore(t), newStore(t)}
	for _, s := range stores {
		s.addToken(limitedSum, "read:modules/acme/*")
		s.addToken(allSum, "read:**")
		s.module("acme/vpc/aws", "1.0.0", network)
		s.module("acme/vpc/google", "2.0.0", nil)
	}
	full := stores[0]
	files := map[string]string{"main.tf": `variable "secret_input" {}`, "modules/endpoints/main.tf": `variable "a" {}`}
	full.module("other/db/aws", "3.0.0", files)
	full.module("other/db/aws", "3.1.0", files)
	full.module("other/db/azure", "3.0.0", nil)
	full.module("other/gone/aws", "1.0.0", nil)
	full.withdraw("other/gone/aws", "1.0.0", "It has a key.")
	full.provider("other/inventory", "1.0.0")
	full.provider("acme/inventory", "1.0.0")
	full.mirrored("registry.example.net/hashicorp/random", "3.6.0")
	full.policy(registry.MirrorRule{MinAge: 1})
	full.origin("registry.example.net/hashicorp/waits", func(o *registry.MirrorOrigin) {
		full.sees(o, "1.0.0", time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), published)
	})
	for _, settings := range []string{"{}", `{"public": ["modules/acme/vpc/*"]}`} {
		with, without := full.protect(settings), stores[1].protect(settings)
		for _, p := range probes {
			for _, token := range []string{limited, "", "larder_mistyped"} {
				if diff := cmp.Diff(without.probe(t, p.path, token), with.probe(t, p.path, token)); diff != "" {
					t.Errorf("%s, with %.12q and %s (-without the namespace +with it):\n%s", p.path, token, settings, diff)
				}
			}
			differ := !cmp.Equal(without.probe(t, p.path, all), with.probe(t, p.path, all))
			if p.visible && !differ {
				t.Errorf("%s reveals nothing to a caller who may read everything", p.path)
			}
		}
	}
}

// What does not exist and what a caller may not read are the same page, but for
// the address.
func TestNotFoundIsForbidden(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.module("acme/vpc/aws", "1.0.0", nil)
	s.module("other/vpc/aws", "1.0.0", nil)
	token := s.token("read:modules/acme/*")
	pages := s.protect("{}")
	for _, path := range []string{
		"/modules/%s/vpc/aws", "/%s/vpc/aws", "/%s", "/%s/vpc", "/modules/%s/vpc/aws/1.0.0", "/modules/%s/vpc/aws/9.0.0",
		"/modules/%s/vpc/aws/compare?from=9.0.0", "/mirror/example.com/%s/vpc/1.0.0",
	} {
		unknown := pages.probe(t, fmt.Sprintf(path, "third"), token)
		forbidden := pages.probe(t, fmt.Sprintf(path, "other"), token)
		for _, r := range []*response{&unknown, &forbidden} {
			r.Body = strings.NewReplacer("third", "X", "other", "X").Replace(r.Body)
		}
		if unknown.Status != http.StatusNotFound {
			t.Errorf("%s: status %d, want 404", path, unknown.Status)
		}
		if diff := cmp.Diff(unknown, forbidden); diff != "" {
			t.Errorf("%s (-unknown +forbidden):\n%s", path, diff)
		}
	}
}
