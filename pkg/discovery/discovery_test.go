package discovery_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/larder-registry/larder/pkg/discovery"
)

// Clients want application/json and nothing else, ask with whatever credential they have, and resolve the paths against
// where they found them.
func TestDocument(t *testing.T) {
	t.Parallel()
	h := discovery.New(discovery.Document{"modules.v1": "/v1/modules/"}, nil)
	for name, header := range map[string]http.Header{
		"anonymous":            {},
		"with a token":         {"Authorization": {"Bearer token"}},
		"with an empty token":  {"Authorization": {"Bearer"}},
		"with two tokens":      {"Authorization": {"Bearer a", "Bearer b"}},
		"that takes no JSON":   {"Accept": {"text/html"}},
		"of Terraform":         {"Accept": {"application/json"}, "User-Agent": {"HashiCorp Terraform/1.15.9 (+https://www.terraform.io)"}},
		"that knows it before": {"If-None-Match": {`"x"`}, "If-Modified-Since": {"Sat, 21 Nov 2026 00:00:00 GMT"}},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/.well-known/terraform.json?x=y", nil)
		r.Header = header
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if got := w.Body.String(); w.Code != 200 || got != `{"modules.v1":"/v1/modules/"}`+"\n" {
			t.Errorf("a request %s: %d %s", name, w.Code, got)
		}
		if w.Header().Get("Content-Type") != "application/json" || w.Header().Get("Cache-Control") == "" {
			t.Errorf("a request %s: %v", name, w.Header())
		}
		var doc map[string]string
		if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
			t.Error(err)
		}
		for service, path := range doc {
			if !strings.HasPrefix(path, "/") || !strings.HasSuffix(path, "/") {
				t.Errorf("%s: %q does not begin and end with a slash", service, path)
			}
		}
	}
}
