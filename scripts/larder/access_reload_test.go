package main

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/registry"
)

// person is a person with a session in a browser and a token of an issuer.
type person struct {
	*server
	cookie, token string
	client        *http.Client
}

// person adds a session of the holder of claims, as a login does. token has the
// same claims.
func (s *server) person(t *testing.T, issuer, token string, claims map[string]any) person {
	t.Helper()
	data, err := local.Open(t.Context(), s.data)
	if err != nil {
		t.Fatal(err)
	}
	defer data.Close()
	id, expires := base64.RawURLEncoding.EncodeToString(make([]byte, 32)), time.Now().Add(time.Hour).Truncate(time.Second)
	claims["iss"], claims["exp"] = issuer, expires.Unix()
	sum := sha256.Sum256([]byte(id))
	err = data.Catalog.AddSession(t.Context(), hex.EncodeToString(sum[:]), registry.Session{
		Identity:  registry.Identity{Issuer: issuer, Claims: claims, Name: "ada", ExpiresAt: expires},
		CreatedAt: time.Now().UTC(), ExpiresAt: expires.UTC(),
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(must(os.ReadFile(s.CAFile)))
	return person{s, id, token, &http.Client{
		Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, DisableKeepAlives: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// want requests a page with the cookie, or a path of the API with the token. It
// fails the test if the status is another.
func (p person) want(t *testing.T, status int, path string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+p.Host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(path, "/v1/") {
		request.Header.Set("Authorization", "Bearer "+p.token)
	} else {
		request.AddCookie(&http.Cookie{Name: "__Host-larder-session", Value: p.cookie})
	}
	response, err := p.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != status {
		t.Errorf("the person gets %s for %s, want %d", response.Status, path, status)
	}
}

// metric returns the value of a metric of the server.
func (s *server) metric(t *testing.T, name string) string {
	t.Helper()
	response, err := http.Get(s.Metrics) //nolint:noctx // of this test
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^` + name + ` (.*)$`).FindSubmatch(text)
	if found == nil {
		t.Fatalf("there is no metric %s:\n%s", name, text)
	}
	return string(found[1])
}

// A running server uses a changed access file without a restart. A rule that is
// removed no longer applies to jobs whose decisions are cached, nor to sessions.
// With a broken file, the earlier rules stay.
func TestAccessReload(t *testing.T) {
	t.Parallel()
	j, dir := newJobs(t, ""), t.TempDir()
	file := filepath.Join(dir, "access.json")
	const (
		audience = "https://registry.example.com"
		jobRule  = `{"claims": {"repository_owner_id": "1234567", "repository": "acme/vpc", "ref": "refs/tags/*"},
      "scopes": ["publish:modules/acme/**"]}`
		groupRule = `{"claims": {"groups": "platform"}, "scopes": ["read:modules/acme/**"]}`
		adminRule = `{"claims": {"groups": "admins"}, "scopes": ["read:**"]}`
	)
	write := func(text string) {
		t.Helper()
		// A rename replaces it at once, so the server never reads a part of it.
		writeFiles(t, dir, map[string]string{"access.json.new": text})
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	settings := func(rules ...string) string {
		return fmt.Sprintf(`{
  "issuers": [{"issuer": %q, "audiences": [%q], "rules": [
    %s
  ]}]
}`, j.url, audience, strings.Join(rules, ",\n    "))
	}
	write(settings(jobRule, groupRule, adminRule))
	s := serve(t, t.TempDir(), "--require-token", "--access", file, "--metrics", "0")
	job := s.publisher(t, "", "LARDER_ID_TOKEN="+j.token(t, audience, `{"sub": "repo:acme/vpc", "repository": "acme/vpc",
		"repository_owner_id": "1234567", "ref": "refs/tags/v1"}`))
	module := t.TempDir()
	writeFiles(t, module, output("x"))
	publish := func(code int, number string, texts ...string) {
		t.Helper()
		job.run(t, code, texts, "publish", "module", module, "acme/vpc/aws", number, "--ci-identity", "--audience", audience)
	}
	texts := golden.New(t)
	// logged records the lines of the log that have a text, since the last call.
	seen := 0
	logged := func(text string) {
		t.Helper()
		s.log.waitFor(t, text)
		log := s.log.String()[seen:]
		seen += strings.LastIndex(log, "\n") + 1
		for line := range strings.Lines(log) {
			if regexp.MustCompile(`msg=".*access|status=403`).MatchString(line) {
				texts.Text(t, times.ReplaceAllString(line, ""), file, "FILE", j.url, "ISSUER", s.Host, "HOST")
			}
		}
	}
	valid := func(want string) {
		t.Helper()
		if got := s.metric(t, "larder_access_file_valid"); got != want {
			t.Errorf("larder_access_file_valid is %s, want %s", got, want)
		}
	}

	publish(0, "1.0.0")
	ada := s.person(t, j.url, j.token(t, audience, `{"sub": "ada", "groups": ["platform"]}`),
		map[string]any{"sub": "ada", "aud": audience, "groups": []string{"platform"}})
	const page, versions = "/modules/acme/vpc/aws", "/v1/modules/acme/vpc/aws/versions"
	ada.want(t, http.StatusOK, page)
	ada.want(t, http.StatusOK, versions)
	valid("1")

	write(strings.Replace(settings(jobRule, groupRule, adminRule), `"rules"`, `"rule"`, 1))
	logged("cannot use the changed access settings")
	publish(0, "1.1.0")
	ada.want(t, http.StatusOK, page)
	ada.want(t, http.StatusOK, versions)
	valid("0")
	if status, body := s.get(t, "/readyz"); status != http.StatusOK || strings.Contains(string(body), j.url) {
		t.Errorf("/readyz: %d %s", status, body)
	}

	write(settings(adminRule))
	logged(`change="rule removed" issuer=` + j.url + ` claims="groups=platform"`)
	publish(exitFailed, "1.2.0", "403")
	ada.want(t, http.StatusNotFound, page) // a page does not reveal whether it exists
	ada.want(t, http.StatusForbidden, versions)
	logged(`caller="ada of ` + j.url + `" error="forbidden`)
	valid("1")

	write(`{}`)
	logged(`change="rule removed" issuer=` + j.url + ` claims="groups=admins"`)
	publish(exitFailed, "1.2.0", "401")
	ada.want(t, http.StatusSeeOther, page) // to the login, because the session has ended
	ada.want(t, http.StatusUnauthorized, versions)
}

// times are what differs in the log of each run.
var times = regexp.MustCompile(`(time|duration_ms)=\S+ `)
