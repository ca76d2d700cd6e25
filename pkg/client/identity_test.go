package client_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/opentofu/svchost"

	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/registry"
)

// jwt is a token of a form that nobody verifies here.
func jwt(claims string) string {
	return "aGVhZGVy." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2lnbmF0dXJl"
}

const (
	bearer = "r3quest-t0ken"
	host   = "registry.example.com"
)

// actions is the environment of a job of GitHub Actions.
func actions(url string) []string {
	return []string{"GITHUB_ACTIONS=true", "ACTIONS_ID_TOKEN_REQUEST_URL=" + url, "ACTIONS_ID_TOKEN_REQUEST_TOKEN=" + bearer}
}

func load(t *testing.T, environ ...string) *client.Config {
	t.Helper()
	config, err := client.LoadConfig(environ, "")
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// GitHub is asked once as long as a token holds, for the audience, and for one host alone.
func TestIdentityOfGitHub(t *testing.T) {
	t.Parallel()
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
				if r.Host != "token.actions.example.com" || r.URL.Path != "/a/b" || r.URL.Query().Get("api-version") != "2.0" || r.URL.Query().Get("audience") != test.want || r.Header.Get("Authorization") != "Bearer "+bearer {
					t.Errorf("%s%s %v", r.Host, r.URL, r.Header)
				}
				answerJSON(rw, 200, fmt.Sprintf(`{"count": 1, "value": %q}`, token1))
			})
			config := load(t)
			if err := config.UseIdentity(actions("https://token.actions.example.com/a/b?api-version=2.0"), host, client.Identity{Audience: test.audience, Transport: w.transport}); err != nil {
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
			if sent := config.IdentitySent(); !strings.Contains(sent, "for the audience "+test.want) || strings.Contains(sent, token1) || config.IdentityAdvice() != "" {
				t.Errorf("sent: %s", sent)
			}
		})
	}
}

// It goes to the endpoint, and neither to plain hosts nor into errors.
func TestIdentityIsSent(t *testing.T) {
	t.Parallel()
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
	if err := config.UseIdentity(actions("https://token.actions.example.com/"), host, client.Identity{Transport: w.transport}); err != nil {
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
	// Logging in is no way out for a job.
	if all := shown(err); !strings.Contains(all, "this job's identity") || strings.Contains(all, "login") ||
		strings.Contains(all, "TF_TOKEN") || strings.Contains(all, token1) {
		t.Errorf("%v", err)
	}
}

func TestIdentityThatIsRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		err    error
		says   string
	}{
		"forbidden": {status(403), registry.ErrUnauthenticated, "id-token: write"},
		"broken":    {status(500), registry.ErrUnavailable, "Try again later."},
		"no JSON":   {document("x"), registry.ErrInvalid, "no token in the answer"},
		"no token":  {document(`{"value": ""}`), registry.ErrInvalid, "no token in the answer"},
		"odd token": {document(`{"value": "a.b.c\nd"}`), registry.ErrInvalid, "no token in the answer"},
		"too long":  {document(`{"value": "a.` + strings.Repeat("b", 20<<10) + `.c"}`), registry.ErrInvalid, "no token in the answer"},
		"redirecting": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://other.example.com/", http.StatusFound)
		}, registry.ErrUnauthenticated, "302"},
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
			if err := config.UseIdentity(actions("https://token.actions.example.com/?x="+secret), host, client.Identity{Transport: w.transport}); err != nil {
				t.Fatal(err)
			}
			_, err := config.ForHost(t.Context(), svchost.Hostname(host))
			if !errors.Is(err, test.err) || !strings.Contains(shown(err), test.says) || strings.Contains(shown(err), secret) || strings.Contains(shown(err), bearer) {
				t.Errorf("%v", err)
			}
		})
	}
}

// Other credentials come first, unless it is said that they shall not.
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
		// GitHub's variables are there too where a job has asked for the other one by hand.
		if err := config.UseIdentity(append(actions("https://example.com/"), gitlab...), "Registry.example.com:443", client.Identity{Only: test.only}); err != nil {
			t.Fatal(err)
		}
		if got := token(t, config, host); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// A token that is for others is not sent to whoever is named, and not spoken of where another credential is.
func TestIdentityForAnother(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		claims   string
		audience string
		says     []string // nothing: it is sent
	}{
		"for the host":        {`{"aud": "https://registry.example.com"}`, "", nil},
		"for several":         {`{"aud": ["https://other.example.com", "https://registry.example.com"]}`, "", nil},
		"for what is said":    {`{"aud": "larder"}`, "larder", nil},
		"for another":         {`{"aud": "https://vault.example.com"}`, "", []string{"is for the audience https://vault.example.com, and not for https://registry.example.com", "name the audience"}},
		"for several others":  {`{"aud": ["https://vault.example.com", "sts.amazonaws.com", 5, {}]}`, "", []string{"https://vault.example.com and sts.amazonaws.com and 5"}},
		"for the host, alone": {`{"aud": "https://registry.example.com"}`, "larder", []string{"is for the audience https://registry.example.com, and not for larder"}},
		"for a part of it":    {`{"aud": "https://registry.example.com.example.org"}`, "", []string{"example.org"}},
		"for nobody":          {`{}`, "", []string{"no audience"}},
		"for an odd one":      {`{"aud": "a\u001b[31m` + strings.Repeat("x", 300) + `"}`, "", []string{"a\ufffd[31mxxx", "x…"}},
		"unreadable":          {`x`, "", []string{"cannot be read"}},
	} {
		given := jwt(test.claims)
		config := load(t)
		if err := config.UseIdentity([]string{"LARDER_ID_TOKEN=" + given}, host, client.Identity{Audience: test.audience}); err != nil {
			t.Fatal(err)
		}
		found, err := config.ForHost(t.Context(), svchost.Hostname(host))
		if test.says == nil {
			if err != nil || found == nil {
				t.Errorf("%s: %v, %v", name, found, err)
			}
			continue
		}
		if !errors.Is(err, registry.ErrInvalid) || found != nil || strings.Contains(shown(err), given) || config.IdentitySent() != "" {
			t.Errorf("%s: %v, %v", name, found, err)
			continue
		}
		for _, want := range test.says {
			if !strings.Contains(shown(err), want) {
				t.Errorf("%s: %v, want %q", name, shown(err), want)
			}
		}
		config = load(t, "TF_TOKEN_registry_example_com=x")
		if err := config.UseIdentity([]string{"LARDER_ID_TOKEN=" + given}, host, client.Identity{}); err != nil || token(t, config, host) != "x" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What a registry needs to know for a rule is told of a token that was sent, and the token is not.
func TestIdentitySent(t *testing.T) {
	t.Parallel()
	for claims, want := range map[string]string{
		`{"iss": "https://gitlab.com", "aud": ["x", "https://registry.example.com"], "sub": "s", "project_path": "a/b", "ref": "v1", "environment": null, "jti": "` + secret + `"}`: ", which says iss https://gitlab.com, aud x and https://registry.example.com, sub s, project_path a/b, ref v1. ",
		`{"aud": "https://registry.example.com", "repository": "a/b\n\u001b[31m` + strings.Repeat("x", 300) + `"}`:                                                                  ", repository a/b\ufffd\ufffd[31m" + strings.Repeat("x", 191) + "…. ",
	} {
		config, given := load(t), jwt(claims)
		if err := config.UseIdentity([]string{"LARDER_ID_TOKEN=" + given}, host, client.Identity{}); err != nil {
			t.Fatal(err)
		}
		if sent := config.IdentitySent(); sent != "" {
			t.Errorf("before it is sent: %s", sent)
		}
		_ = token(t, config, host)
		if sent := config.IdentitySent(); !strings.HasPrefix(sent, "This job's identity was sent, that of LARDER_ID_TOKEN, which says ") || !strings.Contains(sent, want) || strings.Contains(sent, given) || strings.Contains(sent, secret) {
			t.Errorf("%s, want %q", sent, want)
		}
	}
	if sent := new(client.Config).IdentitySent(); sent != "" {
		t.Errorf("sent: %q", sent)
	}
}

// A token that has expired is not sent, and neither is one that is not valid yet.
func TestIdentityExpired(t *testing.T) {
	t.Parallel()
	clock := func(t time.Time) string { return t.UTC().Format("15:04 UTC") }
	now := time.Now()
	for name, test := range map[string]struct {
		begin, expiry time.Time
		refused       string
		sent          string // behind what it says
	}{
		"valid":       {now.Add(-time.Hour), now.Add(time.Hour), "", ". The registry must trust this issuer"},
		"forever":     {time.Time{}, time.Time{}, "", ". The registry must trust this issuer"},
		"expired":     {now.Add(-2 * time.Hour), now.Add(-time.Hour), "expired at ", ""},
		"long ago":    {now.Add(-99 * time.Hour), now.Add(-98 * time.Hour), "expired at " + now.Add(-98*time.Hour).UTC().Format("2006-01-02 "), ""},
		"a while ago": {now.Add(-2 * time.Hour), now.Add(-2 * time.Minute), "", ". It expired at "},
		"not yet":     {now.Add(time.Hour), now.Add(2 * time.Hour), "is not valid before ", ""},
		"soon":        {now.Add(2 * time.Minute), now.Add(time.Hour), "", ". The registry must trust this issuer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			given := jwt(fmt.Sprintf(`{"aud": "https://registry.example.com", "nbf": %d, "exp": %d}`, max(test.begin.Unix(), 0), max(test.expiry.Unix(), 0)))
			environ := []string{"LARDER_ID_TOKEN=" + given}
			config := load(t)
			if err := config.UseIdentity(environ, host, client.Identity{}); err != nil {
				t.Fatal(err)
			}
			found, err := config.ForHost(t.Context(), svchost.Hostname(host))
			early := load(t).UseIdentity(environ, host, client.Identity{Only: true})
			if test.refused == "" {
				if err != nil || found == nil || early != nil {
					t.Fatalf("%v, %v, %v", found, err, early)
				}
				if sent := config.IdentitySent(); !strings.Contains(sent, test.sent) {
					t.Errorf("sent: %q, want %q in it", sent, test.sent)
				}
				return
			}
			at := test.expiry
			if strings.Contains(test.refused, "before") {
				at = test.begin
			}
			for which, err := range map[string]error{"when it is needed": err, "at once": early} {
				if !errors.Is(err, registry.ErrBadCredential) {
					t.Fatalf("%s: %v is not registry.ErrBadCredential", which, err)
				}
				if !strings.Contains(err.Error(), "cannot use this job's identity: the token in LARDER_ID_TOKEN "+test.refused) || !strings.HasSuffix(err.Error(), clock(at)) {
					t.Errorf("%s: %v, want %q and %s", which, err, test.refused, clock(at))
				}
				if hint := registry.Hint(err); !strings.Contains(hint, "clock, which shows ") {
					t.Errorf("%s: hint %q", which, hint)
				}
			}
			if sent := config.IdentitySent(); sent != "" {
				t.Errorf("it was sent: %s", sent)
			}
			// Another credential is not held up by it.
			config = load(t, "TF_TOKEN_registry_example_com=x")
			if err := config.UseIdentity(environ, host, client.Identity{}); err != nil || token(t, config, host) != "x" {
				t.Errorf("beside another credential: %v", err)
			}
		})
	}
}

func TestNoIdentity(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		environ []string
		advice  string
	}{
		"nowhere":          {nil, ""},
		"GitHub":           {[]string{"GITHUB_ACTIONS=true"}, "give the job `permissions: id-token: write`"},
		"GitLab":           {[]string{"GITLAB_CI=true", "LARDER_ID_TOKEN="}, "give the job `id_tokens: {LARDER_ID_TOKEN: {aud: \"https://registry.example.com\"}}`"},
		"half of GitHub's": {[]string{"GITHUB_ACTIONS=true", "ACTIONS_ID_TOKEN_REQUEST_URL=https://example.com/"}, "id-token: write"},
	} {
		config := load(t)
		if err := config.UseIdentity(test.environ, host, client.Identity{}); err != nil {
			t.Fatal(err)
		}
		if got := token(t, config, host); got != "" {
			t.Errorf("%s: %q", name, got)
		}
		if got := config.IdentityAdvice(); (got == "") != (test.advice == "") || !strings.Contains(got, test.advice) {
			t.Errorf("%s: %q", name, got)
		}
		err := config.UseIdentity(test.environ, host, client.Identity{Only: true})
		if !errors.Is(err, registry.ErrUnauthenticated) || !strings.Contains(strings.ToLower(shown(err)), strings.ToLower(test.advice)) ||
			!strings.Contains(strings.ToLower(shown(err)), "give the job") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, environ := range [][]string{
		actions("http://example.com/?" + secret), actions("https://u:" + secret + "@example.com/"), actions("%" + secret), {"LARDER_ID_TOKEN=" + secret}, {"LARDER_ID_TOKEN=a.b.c\nd"},
	} {
		if err := load(t).UseIdentity(environ, host, client.Identity{}); !errors.Is(err, registry.ErrInvalid) || strings.Contains(err.Error(), secret) {
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
