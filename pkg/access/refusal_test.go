package access_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/httpapi"
)

// A caller with a token of an issuer and without a scope sees the claims of the own
// token. Only the log has the nearest rule, and the first claim that does not match.
func TestRefusals(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	issuer := newIssuer(t, public(&key.PublicKey, "1"))
	p := protect(access.New(parse(t, fmt.Sprintf(`{"issuers": [{"issuer": %q, "audiences": ["a"], "rules": [
		{"claims": {"repository": "acme/*"}, "scopes": ["read:providers/acme/*"]},
		{"claims": {"repository_owner_id": "1", "ref": "refs/tags/*", "environment": "release"},
			"scopes": ["read:modules/acme/*"]},
		{"claims": {"/realm_access/roles": "reader", "repository_owner_id": "2"}, "scopes": ["read:modules/acme/*"]}
	]}]}`, issuer.URL)), &records{}))
	for name, test := range map[string]struct {
		claims    string
		path      string
		hint, log string
	}{
		"a claim differs": {
			`{"repository": "acme/vpc", "repository_owner_id": 1, "ref": "refs/heads/main", "environment": "release"}`, path,
			"repository acme/vpc, repository_owner_id 1, ref refs/heads/main, environment release",
			`rule 2 is the nearest: claim ref is "refs/heads/main", and must match "refs/tags/*"`,
		},
		"a claim is missing": {
			`{"repository_owner_id": "1", "ref": "refs/tags/v1"}`, path, "repository_owner_id 1, ref refs/tags/v1",
			`rule 2 is the nearest: claim environment is missing, and must match "release"`,
		},
		"the first claim of several": {
			`{"sub": "job"}`, path, "sub job", `rule 2 is the nearest: claim environment is missing, and must match "release"`,
		},
		"a list in an object": {
			`{"repository_owner_id": "2", "realm_access": {"roles": ["writer", "owner"]}}`, path,
			"repository_owner_id 2, /realm_access/roles writer and owner",
			`rule 3 is the nearest: claim /realm_access/roles is "writer and owner", and must match "reader"`,
		},
		"no rule for the path": {
			`{"repository": "acme/vpc"}`, "/v1/mirror/a.example.com/acme/x/1.0.0.json", "repository acme/vpc",
			"no rule has a scope for it, and rule 1 is the nearest: all its claims match",
		},
		"unprintable and long": {
			`{"repository": "a\u001b[31m` + strings.Repeat("b", 5000) + `", "environment": "` + strings.Repeat("c", 300) + `"}`,
			path,
			"repository a\uFFFD[31m" + strings.Repeat("b", 194) + "…, environment " + strings.Repeat("c", 200) + "…",
			`rule 2 is the nearest: claim environment is "` + strings.Repeat("c", 100) + `", and must match "release"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			claims := map[string]any{
				"iss": issuer.URL, "aud": "a", "exp": time.Now().Add(time.Hour).Unix(), "secret": "private", "jti": "unique",
			}
			if err := json.Unmarshal([]byte(test.claims), &claims); err != nil {
				t.Fatal(err)
			}
			token := sign(t, jose.ES256, key, "1", claims)
			for _, decision := range []string{"first", "cached"} {
				p.log.Reset()
				w := p.get(t, test.path, "Bearer "+token)
				want := fmt.Sprintf("The token has the claims iss %s, aud a, %s. "+
					"The registry's operator can find the nearest rule in the log.", issuer.URL, test.hint)
				checkRefusal(t, w, want)
				log := strings.ReplaceAll(p.log.String(), `\"`, `"`)
				if want := "issuer " + issuer.URL + ": " + test.log; !strings.Contains(log, want) {
					t.Errorf("%s decision: the log is %s\nwithout %q", decision, log, want)
				}
				if parts := strings.Split(token, "."); strings.Contains(log+w.Body.String(), parts[1]) {
					t.Errorf("%s decision: the token is in the log or in the response", decision)
				}
			}
		})
	}
}

func checkRefusal(t *testing.T, w *httptest.ResponseRecorder, hint string) {
	t.Helper()
	if w.Code != http.StatusForbidden {
		t.Errorf("status %d", w.Code)
	}
	var body struct {
		Errors     []string
		Code, Hint string
	}
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	if text := fmt.Sprint(body.Errors, body.Code); text != "[forbidden]forbidden" {
		t.Errorf("the response is %s", text)
	}
	if body.Hint != hint {
		t.Errorf("the hint is\n%s\nwant\n%s", body.Hint, hint)
	}
}

// The claims of a session and of a bearer are shown by handlers that check each
// resource. A token of the registry has no claims.
func TestRefusalsOfReaders(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	issuer := newIssuer(t, public(&key.PublicKey, "1"))
	tokens := &records{}
	control := access.New(parse(t, fmt.Sprintf(`{"issuers": [{"issuer": %q, "audiences": ["a"], "rules": [
		{"claims": {"repository": "acme/vpc"}, "scopes": ["read:modules/acme/vpc/aws"]}]}]}`, issuer.URL)), tokens)
	checked := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		httpapi.Error(w, r, access.CheckRead(r.Context(), "modules/acme/vpc/aws"))
	})
	token := sign(t, jose.ES256, key, "1", map[string]any{
		"iss": issuer.URL, "aud": "a", "sub": "job", "exp": time.Now().Add(time.Hour).Unix(), "repository": "acme/dns",
	})
	hint := "The token has the claims iss " + issuer.URL + ", aud a, sub job, repository acme/dns. " +
		"The registry's operator can find the nearest rule in the log."
	for credential, want := range map[string]string{token: hint, tokens.add("ci", "read:providers/**"): ""} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.Header.Set("Authorization", "Bearer "+credential)
		for _, h := range []http.Handler{
			control.Identify(checked), control.RequireRead(checked), control.RequirePublish(checked),
		} {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			checkRefusal(t, w, want)
		}
		id, err := control.Verify(t.Context(), credential)
		if err != nil {
			t.Fatal(err)
		}
		ctx, err := control.WithIdentity(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		checked.ServeHTTP(w, r.WithContext(ctx))
		checkRefusal(t, w, want)
	}
}
