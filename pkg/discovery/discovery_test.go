package discovery_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/larder-registry/larder/pkg/access/openid"
	"github.com/larder-registry/larder/pkg/discovery"
	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/modules"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/providers"
)

// Clients expect application/json, send any credential that they have, and
// resolve the paths against the document's URL.
func TestDocument(t *testing.T) {
	t.Parallel()
	h := discovery.New(discovery.Document{"modules.v1": "/v1/modules/"}, nil)
	for name, header := range map[string]http.Header{
		"anonymous":           {},
		"with a token":        {"Authorization": {"Bearer token"}},
		"with an empty token": {"Authorization": {"Bearer"}},
		"with two tokens":     {"Authorization": {"Bearer a", "Bearer b"}},
		"that takes no JSON":  {"Accept": {"text/html"}},
		"of Terraform": {
			"Accept": {"application/json"}, "User-Agent": {"HashiCorp Terraform/1.15.9 (+https://www.terraform.io)"},
		},
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

// The paths in the document are those of the packages that serve them.
func TestLarder(t *testing.T) {
	t.Parallel()
	want := discovery.Document{
		modules.Service: modules.Path, providers.Service: providers.Path, protocol.PublishService: protocol.PublishPath,
	}
	if got := discovery.Larder(); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// While login fails, the document has all other services, is not cacheable, and
// the log has the reason.
func TestLogin(t *testing.T) {
	t.Parallel()
	login := openid.LoginDocument{
		Client: "cli", GrantTypes: []string{"authz_code"}, Authz: "https://a.example.com/authorize",
		Token: "https://a.example.com/token", Ports: []int{10000, 10010}, Scopes: []string{"openid"},
	}
	var fails error
	doc := discovery.New(
		discovery.Document{"modules.v1": "/v1/modules/"},
		func(context.Context) (openid.LoginDocument, error) { return login, fails },
	)
	for _, test := range []struct {
		err             error
		body, cache, in string
	}{
		{
			nil,
			`{"login.v1":{"client":"cli","grant_types":["authz_code"],"authz":"https://a.example.com/authorize",` +
				`"token":"https://a.example.com/token","ports":[10000,10010],"scopes":["openid"]},"modules.v1":"/v1/modules/"}`,
			"public, max-age=300", "level=INFO",
		},
		{
			errors.New("the issuer is down"), `{"modules.v1":"/v1/modules/"}` + "\n", "no-store",
			`level=ERROR msg=request method=GET path=/.well-known/terraform.json status=200`,
		},
		{nil, `{"login.v1":`, "public, max-age=300", "level=INFO"}, // it is omitted only temporarily
	} {
		var log bytes.Buffer
		fails = test.err
		h := httpapi.Wrap(slog.New(slog.NewTextHandler(&log, nil)), doc)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/.well-known/terraform.json", nil))
		if w.Code != 200 || !strings.HasPrefix(w.Body.String(), test.body) || w.Header().Get("Cache-Control") != test.cache {
			t.Errorf("%v: %d %v %s", test.err, w.Code, w.Header(), w.Body)
		}
		if !strings.Contains(log.String(), test.in) || test.err != nil && !strings.Contains(log.String(), test.err.Error()) {
			t.Errorf("%v: logged %s", test.err, &log)
		}
	}
}
