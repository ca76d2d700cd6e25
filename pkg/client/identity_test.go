package client_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opentofu/svchost"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/registry"
)

// jwt returns a token with claims and an arbitrary signature.
func jwt(claims string) string {
	return "aGVhZGVy." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2lnbmF0dXJl"
}

const (
	bearer = "r3quest-t0ken"
	host   = "registry.example.com"
)

// actions returns the environment of a GitHub Actions job.
func actions(url string) []string {
	return []string{
		"GITHUB_ACTIONS=true", "ACTIONS_ID_TOKEN_REQUEST_URL=" + url, "ACTIONS_ID_TOKEN_REQUEST_TOKEN=" + bearer,
	}
}

func load(t *testing.T, environ ...string) *client.Config {
	t.Helper()
	config, err := client.LoadConfig(environ, "")
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// One request to GitHub serves a token until it expires, for one audience and
// one host.
func TestIdentityOfGitHub(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	for name, test := range map[string]struct {
		claims   string
		audience string
		want     string
		requests int32
	}{
		"fresh":           {`{"iat": 1000, "exp": 1300}`, "", "https://registry.example.com", 1},
		"of an audience":  {`{"iat": 1000, "exp": 1300}`, "larder & co", "larder & co", 1},
		"without a time":  {`{}`, "", "https://registry.example.com", 1},
		"unreadable":      {`x`, "", "https://registry.example.com", 1},
		"of another time": {`{"iat": 1e18, "exp": -1e300}`, "", "https://registry.example.com", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			token1 := jwt(test.claims)
			w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
				if r.Host != "token.actions.example.com" || r.URL.Path != "/a/b" || r.URL.Query().Get("api-version") != "2.0" ||
					r.URL.Query().Get("audience") != test.want || r.Header.Get("Authorization") != "Bearer "+bearer {
					t.Errorf("%s%s %v", r.Host, r.URL, r.Header)
				}
				answerJSON(rw, 200, fmt.Sprintf(`{"count": 1, "value": %q}`, token1))
			})
			config := load(t)
			if err := config.UseIdentity(
				actions("https://token.actions.example.com/a/b?api-version=2.0"), host,
				client.Identity{Audience: test.audience, Transport: w.transport},
			); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if got := token(t, config, host); got != token1 {
					t.Errorf("token %q", got)
				}
			}
			if got := token(t, config, "other.example.com"); got != "" {
				t.Errorf("another host is sent %q", got)
			}
			if w.requests.Load() != test.requests {
				t.Errorf("%d requests", w.requests.Load())
			}
			sent := config.IdentitySent()
			texts.Text(t, sent)
			if !strings.Contains(sent, test.want) {
				t.Errorf("%q does not have the audience %q", sent, test.want)
			}
			if strings.Contains(sent, token1) {
				t.Errorf("%q has the token", sent)
			}
			if advice := config.IdentityAdvice(); advice != "" {
				t.Errorf("advice: %q", advice)
			}
		})
	}
}

// The token is sent to the endpoint only, and is never in errors.
func TestIdentityIsSent(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	token1 := jwt(`{"iat": 1000, "exp": 1300}`)
	var seen atomic.Int32
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		switch {
		case r.Host == "token.actions.example.com":
			answerJSON(rw, 200, fmt.Sprintf(`{"value": %q}`, token1))
		case r.URL.Path == "/.well-known/terraform.json":
			answerJSON(rw, 200, `{"larder-publish.v1": "/v1/publish/"}`)
		default:
			if r.Header.Get("Authorization") == "Bearer "+token1 {
				seen.Add(1)
			}
			answerJSON(rw, 401, fmt.Sprintf(`{"errors": ["no such %s"]}`, token1))
		}
	})
	config := load(t)
	if err := config.UseIdentity(
		actions("https://token.actions.example.com/"), host, client.Identity{Transport: w.transport},
	); err != nil {
		t.Fatal(err)
	}
	service, err := client.New(config, "larder/test", w.transport).Service(t.Context(), host, "larder-publish.v1")
	if err != nil {
		t.Fatal(err)
	}
	_, err = service.Do(t.Context(), http.MethodPost, "x", nil, nil)
	if !errors.Is(err, registry.ErrBadCredential) || strings.Contains(err.Error(), token1) || seen.Load() != 1 {
		t.Errorf("%v, sent %d times", err, seen.Load())
	}
	// A job cannot log in, so the hint must not suggest it.
	texts.Error(t, err)
	for _, never := range []string{"login", "TF_TOKEN", token1} {
		if strings.Contains(shown(err), never) {
			t.Errorf("%q has %q in it", shown(err), never)
		}
	}
}

func TestIdentityThatIsRefused(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		err    error
	}{
		"forbidden": {status(403), registry.ErrUnauthenticated},
		"broken":    {status(500), registry.ErrUnavailable},
		"no JSON":   {document("x"), registry.ErrInvalid},
		"no token":  {document(`{"value": ""}`), registry.ErrInvalid},
		"odd token": {document(`{"value": "a.b.c\nd"}`), registry.ErrInvalid},
		"too long":  {document(`{"value": "a.` + strings.Repeat("b", 20<<10) + `.c"}`), registry.ErrInvalid},
		"redirecting": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://other.example.com/", http.StatusFound)
		}, registry.ErrUnauthenticated},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
				if r.Host != "token.actions.example.com" {
					t.Errorf("%s is asked", r.Host)
				}
				test.answer(rw, r)
			})
			config := load(t)
			if err := config.UseIdentity(
				actions("https://token.actions.example.com/?x="+secret), host, client.Identity{Transport: w.transport},
			); err != nil {
				t.Fatal(err)
			}
			_, err := config.ForHost(t.Context(), svchost.Hostname(host))
			check(t, texts, err, test.err)
			if strings.Contains(shown(err), bearer) {
				t.Errorf("%q has the bearer token in it", shown(err))
			}
		})
	}
}

// Other credentials take precedence, unless Only is set.
func TestIdentityOfGitLab(t *testing.T) {
	t.Parallel()
	given := jwt(`{"aud": "https://registry.example.com"}`)
	gitlab := []string{"GITLAB_CI=true", "LARDER_ID_TOKEN=" + given + "\n"}
	for name, test := range map[string]struct {
		environ []string
		only    bool
		want    string
	}{
		"alone":                  {nil, false, given},
		"beside a token":         {[]string{"TF_TOKEN_registry_example_com=x"}, false, "x"},
		"beside an empty token":  {[]string{"TF_TOKEN_registry_example_com="}, false, ""},
		"beside another's token": {[]string{"TF_TOKEN_other_example_com=x"}, false, given},
		"in place of a token":    {[]string{"TF_TOKEN_registry_example_com=x"}, true, given},
	} {
		config := load(t, test.environ...)
		// GitHub's variables may be set too, and then LARDER_ID_TOKEN takes
		// precedence.
		if err := config.UseIdentity(
			append(actions("https://example.com/"), gitlab...), "Registry.example.com:443", client.Identity{Only: test.only},
		); err != nil {
			t.Fatal(err)
		}
		if got := token(t, config, host); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// A token for another audience is not sent. It is not an error if there is
// another credential.
func TestIdentityForAnother(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	for name, test := range map[string]struct {
		claims   string
		audience string
		rejected bool
	}{
		"for the host":        {`{"aud": "https://registry.example.com"}`, "", false},
		"for several":         {`{"aud": ["https://other.example.com", "https://registry.example.com"]}`, "", false},
		"for it in capitals":  {`{"aud": "https://Registry.example.com:443"}`, "", false},
		"for what is said":    {`{"aud": "larder"}`, "larder", false},
		"for another":         {`{"aud": "https://vault.example.com"}`, "", true},
		"for several others":  {`{"aud": ["https://vault.example.com", "sts.amazonaws.com", 5, {}]}`, "", true},
		"for the host, alone": {`{"aud": "https://registry.example.com"}`, "larder", true},
		"for a part of it":    {`{"aud": "https://registry.example.com.example.org"}`, "", true},
		"for nobody":          {`{}`, "", true},
		"for an odd one":      {`{"aud": "a\u001b[31m` + strings.Repeat("x", 300) + `"}`, "", true},
		"unreadable":          {`x`, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			given := jwt(test.claims)
			config := load(t)
			if err := config.UseIdentity(
				[]string{"LARDER_ID_TOKEN=" + given}, host, client.Identity{Audience: test.audience},
			); err != nil {
				t.Fatal(err)
			}
			found, err := config.ForHost(t.Context(), svchost.Hostname(host))
			if !test.rejected {
				if err != nil || found == nil {
					t.Errorf("%v, %v", found, err)
				}
				return
			}
			check(t, texts, err, registry.ErrInvalid)
			if found != nil {
				t.Errorf("a credential was found: %v", found)
			}
			if strings.Contains(shown(err), given) {
				t.Errorf("%q has the token in it", shown(err))
			}
			if sent := config.IdentitySent(); sent != "" {
				t.Errorf("sent: %q", sent)
			}
			config = load(t, "TF_TOKEN_registry_example_com=x")
			if err := config.UseIdentity([]string{"LARDER_ID_TOKEN=" + given}, host, client.Identity{}); err != nil ||
				token(t, config, host) != "x" {
				t.Errorf("%v", err)
			}
		})
	}
}

// The hint describes a token that was sent with the claims that help to write a
// rule, and without the token.
func TestIdentitySent(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	for name, claims := range map[string]string{
		"GitLab": `{"iss": "https://gitlab.com", "aud": ["x", "https://registry.example.com"], "sub": "s", ` +
			`"project_path": "a/b", "ref": "v1", "environment": null, "jti": "` + secret + `"}`,
		"long and not printable": `{"aud": "https://registry.example.com", ` +
			`"repository": "a/b\n\u001b[31m` + strings.Repeat("x", 300) + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config, given := load(t), jwt(claims)
			if err := config.UseIdentity([]string{"LARDER_ID_TOKEN=" + given}, host, client.Identity{}); err != nil {
				t.Fatal(err)
			}
			if sent := config.IdentitySent(); sent != "" {
				t.Errorf("before it is sent: %s", sent)
			}
			_ = token(t, config, host)
			sent := config.IdentitySent()
			texts.Text(t, sent)
			for _, never := range []string{given, secret} {
				if strings.Contains(sent, never) {
					t.Errorf("%q has %q in it", sent, never)
				}
			}
		})
	}
	if sent := new(client.Config).IdentitySent(); sent != "" {
		t.Errorf("sent: %q", sent)
	}
}

// A token that has expired or is not valid yet is not sent.
func TestIdentityExpired(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	clockTime := regexp.MustCompile(`(\d{4}-\d\d-\d\d )?\d\d:\d\d UTC`)
	now := time.Now()
	for name, test := range map[string]struct {
		begin, expiry time.Time
		rejected      string // format of the time in the error; empty if the token is accepted
	}{
		"valid":       {now.Add(-time.Hour), now.Add(time.Hour), ""},
		"forever":     {time.Time{}, time.Time{}, ""},
		"expired":     {now.Add(-2 * time.Hour), now.Add(-time.Hour), "15:04 UTC"},
		"long ago":    {now.Add(-99 * time.Hour), now.Add(-98 * time.Hour), "2006-01-02 15:04 UTC"},
		"a while ago": {now.Add(-2 * time.Hour), now.Add(-2 * time.Minute), ""},
		"not yet":     {now.Add(time.Hour), now.Add(2 * time.Hour), "15:04 UTC"},
		"soon":        {now.Add(2 * time.Minute), now.Add(time.Hour), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			given := jwt(
				fmt.Sprintf(
					`{"aud": "https://registry.example.com", "nbf": %d, "exp": %d}`, max(test.begin.Unix(), 0),
					max(test.expiry.Unix(), 0),
				),
			)
			environ := []string{"LARDER_ID_TOKEN=" + given}
			config := load(t)
			if err := config.UseIdentity(environ, host, client.Identity{}); err != nil {
				t.Fatal(err)
			}
			found, err := config.ForHost(t.Context(), svchost.Hostname(host))
			early := load(t).UseIdentity(environ, host, client.Identity{Only: true})
			if test.rejected == "" {
				if err != nil || found == nil || early != nil {
					t.Fatalf("%v, %v, %v", found, err, early)
				}
				texts.Text(t, clockTime.ReplaceAllString(config.IdentitySent(), "TIME"))
				return
			}
			at := test.expiry
			if test.begin.After(now) {
				at = test.begin
			}
			for which, err := range map[string]error{"on use": err, "at once": early} {
				if !errors.Is(err, registry.ErrBadCredential) {
					t.Fatalf("%s: %v is not registry.ErrBadCredential", which, err)
				}
				if want := at.UTC().Format(test.rejected); !strings.HasSuffix(err.Error(), want) {
					t.Errorf("%s: %q does not end in %s", which, err, want)
				}
				texts.Text(t, clockTime.ReplaceAllString(shown(err), "TIME")+"\n")
			}
			if sent := config.IdentitySent(); sent != "" {
				t.Errorf("it was sent: %s", sent)
			}
			// Another credential is sent regardless.
			config = load(t, "TF_TOKEN_registry_example_com=x")
			if err := config.UseIdentity(environ, host, client.Identity{}); err != nil || token(t, config, host) != "x" {
				t.Errorf("beside another credential: %v", err)
			}
		})
	}
}

func TestNoIdentity(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	for name, test := range map[string]struct {
		environ []string
		advice  bool
	}{
		"nowhere":          {nil, false},
		"GitHub":           {[]string{"GITHUB_ACTIONS=true"}, true},
		"GitLab":           {[]string{"GITLAB_CI=true", "LARDER_ID_TOKEN="}, true},
		"half of GitHub's": {[]string{"GITHUB_ACTIONS=true", "ACTIONS_ID_TOKEN_REQUEST_URL=https://example.com/"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			config := load(t)
			if err := config.UseIdentity(test.environ, host, client.Identity{}); err != nil {
				t.Fatal(err)
			}
			if got := token(t, config, host); got != "" {
				t.Errorf("%q", got)
			}
			advice := config.IdentityAdvice()
			if (advice != "") != test.advice {
				t.Errorf("advice %q, want some: %t", advice, test.advice)
			}
			texts.Text(t, "advice: "+advice+"\n")
			err := config.UseIdentity(test.environ, host, client.Identity{Only: true})
			check(t, texts, err, registry.ErrUnauthenticated)
		})
	}
	for _, environ := range [][]string{
		actions("http://example.com/?" + secret), actions(
			"https://u:" + secret + "@example.com/",
		), actions("%" + secret), {"LARDER_ID_TOKEN=" + secret}, {"LARDER_ID_TOKEN=a.b.c\nd"},
	} {
		if err := load(t).UseIdentity(environ, host, client.Identity{}); !errors.Is(err, registry.ErrInvalid) ||
			strings.Contains(err.Error(), secret) {
			t.Errorf("%q: %v", environ, err)
		}
	}
	if err := load(t).UseIdentity(nil, "https://x/", client.Identity{}); !errors.Is(err, registry.ErrInvalid) {
		t.Errorf("%v", err)
	}
	if advice := new(client.Config).IdentityAdvice(); advice != "" {
		t.Errorf("advice: %q", advice)
	}
}
