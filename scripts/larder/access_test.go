package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/clients"
	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/internal/testkit/issuers"
	"github.com/larder-registry/larder/internal/testkit/nodejs"
)

// token creates a token.
func token(t *testing.T, data string, args ...string) string {
	t.Helper()
	var made struct{ Token string }
	out := larder(t, append([]string{"token", "create", "--json", "--store", "dir:" + data}, args...)...)
	if err := json.Unmarshal([]byte(out), &made); err != nil {
		t.Fatal(err)
	}
	return made.Token
}

// credentials returns a credentials block.
func credentials(host, token string) string {
	return fmt.Sprintf("credentials %q {\n  token = %q\n}\n", host, token)
}

// use writes a configuration that uses acme/vpc/aws from a registry.
func use(t *testing.T, host string) string {
	t.Helper()
	dir := t.TempDir()
	writeFiles(
		t,
		dir,
		map[string]string{
			"main.tf": fmt.Sprintf(
				"module \"it\" {\n  source = %q\n}\noutput \"it\" { value = module.it.it }\n",
				host+"/acme/vpc/aws",
			),
		},
	)
	return dir
}

// Clients install a module with a token of the right scope. Without one they
// print 401, and with a token for another namespace 403.
func TestToken(t *testing.T) {
	t.Parallel()
	clients.Need(t)
	s := serve(t, t.TempDir(), "--require-token")
	publishModule(t, s.data, "acme/vpc/aws", "1.0.0", withOutput("acme/vpc/aws"))
	good, other := token(
		t,
		s.data,
		"--name",
		"good",
		"--scope",
		"read:modules/acme/*",
	), token(
		t,
		s.data,
		"--name",
		"other",
		"--scope",
		"read:modules/other/*",
	)
	t.Run("clients", func(t *testing.T) {
		clients.Each(t, func(t *testing.T, c clients.Client) {
			for _, test := range []struct{ name, config, want string }{
				{"its own", credentials(s.Host, good), ""},
				{"none", "", "401 Unauthorized"},
				{"an empty one", credentials(s.Host, ""), "401 Unauthorized"},
				{"a wrong one", credentials(s.Host, good+"0"), "401 Unauthorized"},
				{"another namespace's", credentials(s.Host, other), "403 Forbidden"},
			} {
				session := session(t, c, s)
				session.Config = test.config
				out, err := session.Run(t.Context(), use(t, s.Host), "init", "-no-color")
				if test.want == "" && err != nil ||
					test.want != "" && (err == nil || !strings.Contains(out, test.want)) {
					t.Errorf("%s: %v\n%s", test.name, err, out)
				}
			}
		})
	})
	s.stop(t)
	if log := s.log.String(); strings.Contains(log, good) || !strings.Contains(log, `caller="token good"`) {
		t.Errorf("the log has no caller, or has the token:\n%s", log)
	}
}

// People sign in with tofu login and terraform login, and can then install
// modules.
func TestLogin(t *testing.T) {
	t.Parallel()
	clients.Need(t)
	issuer, err := issuers.StartIssuer(t.Context())
	if errors.Is(err, nodejs.ErrMissing) && !nodejs.Required() {
		t.Skip("LEFT OUT:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(issuer.Close)
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"access.json": fmt.Sprintf(`{
  "issuers": [{"issuer": %q, "audiences": ["https://registry.example.com"], "rules": [
    {"claims": {"groups": "platform"}, "scopes": ["read:modules/acme/*"]}
  ]}],
  "login": {"issuer": %q, "client": "larder-cli", "scopes": ["openid", "registry"], "ports": [10000, 10019],
    "authorize": {"resource": "https://registry.example.com"}}
}`, issuer.URL, issuer.URL), "opaque.json": fmt.Sprintf(`{
  "issuers": [{"issuer": %q, "audiences": ["https://registry.example.com"],
    "rules": [{"claims": {"sub": "**"}, "scopes": ["read:**"]}]}],
  "login": {"issuer": %q, "client": "larder-cli"}
}`, issuer.URL, issuer.URL)})
	s := serve(t, t.TempDir(), "--require-token", "--access", filepath.Join(dir, "access.json"))
	opaque := serve(t, t.TempDir(), "--require-token", "--access", filepath.Join(dir, "opaque.json"))
	publishModule(t, s.data, "acme/vpc/aws", "1.0.0", withOutput("acme/vpc/aws"))
	t.Run("clients", func(t *testing.T) {
		clients.Each(t, func(t *testing.T, c clients.Client) {
			login := func(s *server) clients.Session {
				session := session(t, c, s)
				// The client trusts the registry's authority. The issuer on
				// loopback has no TLS.
				out, err := session.Login(
					t.Context(),
					s.Host,
					func(url string) error { return issuer.SignIn(t.Context(), url, "ada") },
				)
				if err != nil {
					t.Fatal(err, out)
				}
				return session
			}
			if out, err := login(s).Run(t.Context(), use(t, s.Host), "init", "-no-color"); err != nil {
				t.Error(err, out)
			}
			// Without an audience, the issuer returns an opaque token. The log
			// has the reason for the rejection.
			if out, err := login(opaque).Run(t.Context(), use(t, opaque.Host), "init", "-no-color"); err == nil ||
				!strings.Contains(out, "401 Unauthorized") {
				t.Error(err, out)
			}
		})
	})
	s.stop(t)
	opaque.stop(t)
	if log := s.log.String(); !strings.Contains(log, `caller="ada of `+issuer.URL+`"`) {
		t.Errorf("the log names no caller:\n%s", log)
	}
	rejected := regexp.MustCompile(`status=401 .* (error=".*")`).FindStringSubmatch(opaque.log.String())
	if rejected == nil {
		t.Fatalf("the log has no rejected request:\n%s", opaque.log)
	}
	golden.New(t).Text(t, rejected[1])
}

// A server prints a warning at the start for a rule that may allow more jobs to
// publish than its author expects.
func TestServeWarnsOfAccess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"access.json": `{
  "issuers": [{"issuer": "http://127.0.0.1:1", "audiences": ["https://registry.example.com"], "rules": [
    {"claims": {"repository": "acme/terraform-aws-vpc", "repository_owner_id": "1234567"},
      "scopes": ["publish:modules/acme/vpc/aws"]},
    {"claims": {"repository": "acme/terraform-aws-vpc"}, "scopes": ["publish:modules/acme/vpc/aws"]}
  ]}]
}`})
	file := filepath.Join(dir, "access.json")
	s := serve(t, t.TempDir(), "--access", file)
	s.stop(t)
	want := "warning: " + file + ": issuer http://127.0.0.1:1, rule 2: "
	if log := s.log.String(); strings.Count(log, "warning: "+file) != 1 || !strings.Contains(log, want) {
		t.Errorf("want one line with %q:\n%s", want, log)
	}
}

// A server logs a warning at the start for an issuer that it cannot use.
func TestServeWarnsOfIssuers(t *testing.T) {
	t.Parallel()
	idp := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(idp.Close)
	idp.Config.ErrorLog = log.New(io.Discard, "", 0)
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"access.json": fmt.Sprintf(`{
  "issuers": [{"issuer": %q, "audiences": ["x"], "rules": [{"claims": {"groups": "platform"}, "scopes": ["read:**"]}]}]
}`, idp.URL)})
	s := serve(t, t.TempDir(), "--access", filepath.Join(dir, "access.json"))
	s.log.waitFor(t, "issuer="+idp.URL)
	s.stop(t)
	warnings := 0
	for line := range strings.Lines(s.log.String()) {
		if strings.Contains(line, "level=WARN") && strings.Contains(line, "issuer="+idp.URL) {
			warnings++
		}
	}
	if warnings != 1 {
		t.Errorf("%d warnings about the issuer, want 1:\n%s", warnings, s.log)
	}
}
