package functions_test

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/registry"
)

// visit sends a request like a browser, with the cookies of an earlier response.
// It follows no redirect.
func (d deployed) visit(t *testing.T, method, path, form string, cookies []*http.Cookie) (*http.Response, string) {
	t.Helper()
	origin := "https://" + d.gateway.Host
	r, err := http.NewRequestWithContext(t.Context(), method, origin+path, strings.NewReader(form))
	if err != nil {
		t.Fatal(err)
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Origin", origin)
	}
	for _, c := range cookies {
		r.AddCookie(&http.Cookie{Name: c.Name, Value: c.Value})
	}
	client := *d.gateway.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}

// The function logs people in, and serves pages from the table and the bucket.
// The session ends with the logout. The log has neither the token nor the id of
// the session.
func TestWeb(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	d.publish(t, "acme/vpc/aws", "1.0.0", "")
	d.document(t, registry.Module{Namespace: "acme", Name: "vpc", System: "aws"}, "1.0.0", false)
	leads := func(method, path, form string, cookies []*http.Cookie, want string) *http.Response {
		t.Helper()
		response, body := d.visit(t, method, path, form, cookies)
		if diff := cmp.Diff("303 "+want, response.Status[:4]+response.Header.Get("Location")); diff != "" {
			t.Fatalf("%s %s (-want +got):\n%s%s", method, path, diff, body)
		}
		return response
	}
	leads("GET", "/modules", "", nil, "/login?next=%2Fmodules")
	login := url.Values{"token": {d.token}, "next": {"/modules"}}.Encode()
	session := leads("POST", "/login", login, nil, "/modules").Cookies()
	if len(session) != 1 {
		t.Fatalf("the login sets the cookies %v, want one", session)
	}
	for path, text := range map[string]string{
		"/": "acme/vpc/aws", "/modules": "acme/vpc/aws", "/search?q=vpc": "acme/vpc/aws", "/index.md": "acme/vpc/aws",
		"/modules/acme/vpc/aws/versions": "1.0.0",
	} {
		response, body := d.visit(t, "GET", path, "", session)
		if response.StatusCode != http.StatusOK || !strings.Contains(body, text) {
			t.Errorf("%s: %s, without %s: %s", path, response.Status, text, body)
		}
	}
	leads("POST", "/logout", "", session, "/")
	leads("GET", "/modules", "", session, "/login?next=%2Fmodules&ended=1")
	log := d.functions["web"].Log()
	for _, secret := range []string{d.token, session[0].Value} {
		if strings.Contains(log, secret) {
			t.Errorf("the log has a secret:\n%s", log)
		}
	}
	if strings.Contains(log, `"level":"ERROR"`) {
		t.Errorf("the log has errors:\n%s", log)
	}
}
