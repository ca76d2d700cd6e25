package access_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/clock"
	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/internal/testkit/notimeout"
	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/access/openid"
	"github.com/larder-registry/larder/pkg/registry"
)

func TestMain(m *testing.M) { notimeout.Run(m) }

// testIssuer is an issuer for which tests sign tokens.
type testIssuer struct {
	*httptest.Server
	down    atomic.Bool
	fetches atomic.Int64
	takes   time.Duration // of each response to RoundTrip
	mu      sync.RWMutex
	keys    []jose.JSONWebKey
	as      string // the issuer in its configuration
}

func newIssuer(t testing.TB, keys ...jose.JSONWebKey) *testIssuer {
	t.Helper()
	i := &testIssuer{keys: keys}
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.fetches.Add(1)
		i.mu.RLock()
		defer i.mu.RUnlock()
		if i.down.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		if strings.HasSuffix(r.URL.Path, "/keys") {
			_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: i.keys})
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]string{"issuer": i.as, "jwks_uri": i.URL + "/keys"})
	}))
	i.as = i.URL
	t.Cleanup(i.Close)
	return i
}

// RoundTrip is the issuer without a network.
func (i *testIssuer) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-time.After(i.takes):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	w := httptest.NewRecorder()
	i.Config.Handler.ServeHTTP(w, r)
	return w.Result(), nil
}

// publish replaces the issuer's keys.
func (i *testIssuer) publish(keys ...jose.JSONWebKey) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys = keys
}

// pose replaces the issuer in the issuer's configuration.
func (i *testIssuer) pose(as string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.as = as
}

func public(key crypto.PublicKey, id string) jose.JSONWebKey {
	return jose.JSONWebKey{Key: key, KeyID: id, Use: "sig"}
}

// Keys are fetched when a token needs them, cached, and fetched again rarely,
// whatever callers send.
func TestKeys(t *testing.T) {
	t.Parallel()
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	next, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	i := newIssuer(t, public(&key.PublicKey, "1"))
	control := access.New(parse(t, anySubject(i.URL)), &records{})
	wall := clock.At(time.Now())
	access.SetClock(control, wall)
	p := protect(control)
	n := 0
	token := func(key *ecdsa.PrivateKey, id string) string {
		n++
		return "Bearer " + sign(
			t, jose.ES256, key, id,
			map[string]any{"iss": i.URL, "aud": "a", "sub": fmt.Sprint(n), "exp": wall.Now().Add(1000 * time.Hour).Unix()},
		)
	}
	// Unreachable, and without cached keys.
	i.down.Store(true)
	for range 20 {
		if w := p.get(t, path, token(key, "1")); w.Code != 503 || w.Header().Get("Retry-After") != "1" {
			t.Fatal(w.Code, w.Header())
		}
	}
	if f := i.fetches.Load(); f != 1 {
		t.Errorf("%d fetches from an issuer that is down", f)
	}
	i.down.Store(false)
	p.want(t, 503, path, token(key, "1")) // no second request immediately
	wall.Pass(10 * time.Second)
	p.want(t, 200, path, token(key, "1"))
	before := i.fetches.Load()
	// Unknown key ids cannot cause repeated fetches.
	for range 50 {
		p.want(t, 401, path, token(next, fmt.Sprint("unknown", n)))
	}
	if f := i.fetches.Load(); f != before {
		t.Errorf("unknown key ids: %d fetches more", f-before)
	}
	// A new key is accepted a minute after the last fetch. The old one is
	// rejected once the issuer stops publishing it.
	i.publish(public(&next.PublicKey, "2"))
	wall.Pass(time.Minute)
	p.want(t, 200, path, token(next, "2"))
	p.want(t, 401, path, token(key, "1"))
	// While the issuer is down, its keys are used for a day.
	i.down.Store(true)
	wall.Pass(23 * time.Hour)
	p.want(t, 200, path, token(next, "2"))
	wall.Pass(time.Hour - time.Second)
	expired := "Bearer " + sign(
		t, jose.ES256, next, "2",
		map[string]any{
			"iss": i.URL, "aud": "a",
			"iat": wall.Now().Add(-2 * time.Hour).Unix(), "exp": wall.Now().Add(-time.Hour).Unix(),
		},
	)
	p.want(t, 401, path, expired)
	wall.Pass(time.Second)
	p.want(t, 503, path, token(next, "2"))
	p.want(t, 401, path, expired) // cached
	// The configuration of another issuer is rejected.
	i.down.Store(false)
	i.pose("https://elsewhere.example.com")
	wall.Pass(time.Minute)
	p.want(t, 503, path, token(next, "2"))
}

// visitors send tokens of an issuer to access control, with a separate clock and
// without a network.
type visitors struct {
	*protected
	*clock.Clock
	issuer  *testIssuer
	control *access.Control
	sent    atomic.Int64
}

func visit(t testing.TB, i *testIssuer) *visitors {
	t.Helper()
	v := &visitors{
		Clock: clock.At(time.Unix(1_800_000_000, 0)), issuer: i,
		control: access.New(parse(t, anySubject(i.URL)), &records{}),
	}
	access.SetClock(v.control, v.Clock)
	access.SetTransport(v.control, i)
	v.protected = protect(v.control)
	return v
}

// fetches returns the number of fetches since its last call.
func (v *visitors) fetches() int64 { return v.issuer.fetches.Swap(0) }

// token signs another token each time.
func (v *visitors) token(t testing.TB, key *ecdsa.PrivateKey, id string) string {
	return "Bearer " + sign(
		t, jose.ES256, key, id,
		map[string]any{
			"iss": v.issuer.URL, "aud": "a", "sub": fmt.Sprint(v.sent.Add(1)), "exp": v.Now().Add(1000 * time.Hour).Unix(),
		},
	)
}

// crowd sends many requests at once, which must all have the same status. It
// returns the duration of the slowest.
func (v *visitors) crowd(
	t *testing.T, ctx context.Context, status int, key *ecdsa.PrivateKey, id string,
) time.Duration {
	t.Helper()
	var all sync.WaitGroup
	begin := time.Now()
	for range 30 {
		token := v.token(t, key, id)
		all.Go(func() {
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)
			r.Header.Set("Authorization", token)
			w := httptest.NewRecorder()
			if v.ServeHTTP(w, r); w.Code != status {
				t.Errorf("key %q: %d, want %d", id, w.Code, status)
			}
		})
	}
	all.Wait()
	return time.Since(begin)
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// Many concurrent callers cause no more fetches than one.
func TestCrowd(t *testing.T) {
	t.Parallel()
	key, stranger := newKey(t), newKey(t)
	i := newIssuer(t, public(&key.PublicKey, "1"))
	synctest.Test(t, func(t *testing.T) {
		v := visit(t, i)
		crowd := func(fetches int64, status int, key *ecdsa.PrivateKey, id string) {
			t.Helper()
			v.crowd(t, t.Context(), status, key, id)
			if n := v.fetches(); n != fetches {
				t.Errorf("key %q: %d fetches, want %d", id, n, fetches)
			}
		}
		v.issuer.down.Store(true)
		crowd(1, 503, key, "1")
		v.Pass(9 * time.Second)
		crowd(0, 503, key, "1")
		v.issuer.down.Store(false)
		v.Pass(time.Second)
		crowd(2, 200, key, "1")
		v.Pass(59 * time.Second)
		crowd(0, 401, stranger, "2")
		crowd(0, 401, stranger, "1")
		v.Pass(time.Second)
		crowd(2, 401, stranger, "2")
		crowd(0, 401, stranger, "1")
		crowd(0, 200, key, "1")
		// If the clock is set back, keys are fetched without waiting.
		v.Pass(-2 * time.Hour)
		crowd(2, 200, key, "1")
		// A day later, with the issuer down, there are ten seconds between two
		// fetches.
		v.issuer.down.Store(true)
		v.Pass(time.Hour)
		crowd(1, 200, key, "1")
		crowd(0, 401, stranger, "2")
		v.Pass(10 * time.Second)
		crowd(1, 401, stranger, "2")
	})
}

// A caller with a cached key does not wait for a fetch, or for a second if a
// fetch is due.
func TestSlowIssuer(t *testing.T) {
	t.Parallel()
	key, stranger := newKey(t), newKey(t)
	i := newIssuer(t, public(&key.PublicKey, "1"))
	synctest.Test(t, func(t *testing.T) {
		v := visit(t, i)
		v.want(t, 200, path, v.token(t, key, "1"))
		v.fetches()
		i.takes = 1500 * time.Millisecond // and there are two requests
		v.Pass(time.Minute)
		token := v.token(t, stranger, "2")
		var other sync.WaitGroup
		other.Go(func() { v.want(t, 401, path, token) })
		synctest.Wait()
		if took := v.crowd(t, t.Context(), 200, key, "1"); took > 0 {
			t.Errorf("a known key waited for another's fetch: %v", took)
		}
		other.Wait()
		v.fetches()

		v.Pass(2 * time.Hour)
		begin := time.Now()
		v.want(t, 200, path, v.token(t, key, "1"))
		if took := time.Since(begin); took != time.Second {
			t.Errorf("the first caller after an hour waited for %v", took)
		}
		if took := v.crowd(t, t.Context(), 200, key, "1"); took > 0 {
			t.Errorf("the next callers waited for %v", took)
		}
		v.want(t, 401, path, v.token(t, stranger, "2")) // this waits for the fetch
		if n := v.fetches(); n != 2 {
			t.Errorf("%d fetches", n)
		}
	})
}

// A caller that disconnects is not waited for, and causes no more fetches than
// one that stays.
func TestCallersCancel(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	i := newIssuer(t, public(&key.PublicKey, "1"))
	i.takes = time.Second
	synctest.Test(t, func(t *testing.T) {
		v := visit(t, i)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if took := v.crowd(t, ctx, 503, key, "1"); took != 100*time.Millisecond {
			t.Errorf("they were answered after %v", took)
		}
		v.crowd(t, ctx, 503, key, "1")
		v.want(t, 200, path, v.token(t, key, "1"))
		if n := v.fetches(); n != 2 {
			t.Errorf("%d fetches", n)
		}
	})
}

// Keys without an id, or with a reused id, can be replaced too.
func TestRotation(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"", "always"} {
		key, next := newKey(t), newKey(t)
		v := visit(t, newIssuer(t, public(&key.PublicKey, id)))
		v.want(t, 200, path, v.token(t, key, id))
		v.issuer.publish(public(&next.PublicKey, id))
		v.Pass(30 * time.Second)
		// It is too early, but that is not cached.
		early := v.token(t, next, id)
		v.want(t, 401, path, early)
		if _, bad := access.Decisions(v.control); bad != 0 {
			t.Error("a key that is not known yet is remembered as a bad one")
		}
		v.Pass(30 * time.Second)
		v.want(t, 200, path, early)
		v.want(t, 401, path, v.token(t, key, id))
		if n := v.fetches(); n != 4 {
			t.Errorf("id %q: %d fetches", id, n)
		}
	}
}

// Only usable keys of an issuer are accepted.
func TestPublishedKeys(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	key := newKey(t)
	good := public(&key.PublicKey, "1")
	many := func(n int) []jose.JSONWebKey {
		keys := []jose.JSONWebKey{good}
		for len(keys) < n {
			keys = append(keys, good)
		}
		return keys
	}
	for name, test := range map[string]struct {
		keys   []jose.JSONWebKey
		status int
	}{
		"the maximum":       {many(access.MaxKeys), 200},
		"too many":          {many(access.MaxKeys + 1), 503},
		"too long":          {[]jose.JSONWebKey{good, public(&key.PublicKey, strings.Repeat("a", openid.MaxDocument))}, 503},
		"none":              {nil, 503},
		"a private one":     {[]jose.JSONWebKey{public(key, "1")}, 503},
		"a secret":          {[]jose.JSONWebKey{public([]byte("0123456789abcdef0123456789abcdef"), "1")}, 503},
		"for encryption":    {[]jose.JSONWebKey{{Key: &key.PublicKey, KeyID: "1", Use: "enc"}}, 503},
		"for another alg":   {[]jose.JSONWebKey{{Key: &key.PublicKey, KeyID: "1", Algorithm: "ES384"}}, 401},
		"a private one too": {[]jose.JSONWebKey{public(key, "2"), good}, 200},
	} {
		t.Run(name, func(t *testing.T) {
			issuer := newIssuer(t, test.keys...)
			v := visit(t, issuer)
			if w := v.get(t, path, v.token(t, key, "1")); w.Code != test.status {
				t.Errorf("status %d, want %d\n%s", w.Code, test.status, &v.log)
			}
			if found := errorsOf(v.log.String()); found != "" {
				texts.Text(t, found, issuer.URL, "ISSUER")
			}
		})
	}
}

// elsewhere starts an issuer whose documents a test changes.
func elsewhere(
	t *testing.T, start func(http.Handler) *httptest.Server, change func(doc map[string]string, url string),
	redirects map[string]string,
) *httptest.Server {
	t.Helper()
	key := newKey(t)
	var s *httptest.Server
	s = start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if to, ok := redirects[r.URL.Path]; ok {
			http.Redirect(w, r, to, http.StatusFound)
			return
		}
		if r.URL.Path == "/keys" {
			_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{public(&key.PublicKey, "1")}})
			return
		}
		doc := map[string]string{"issuer": s.URL, "jwks_uri": s.URL + "/keys?p=1"}
		if change != nil {
			change(doc, s.URL)
		}
		_ = json.NewEncoder(w).Encode(doc)
	}))
	t.Cleanup(s.Close)
	return s
}

// An issuer's keys must be at a URL with TLS, or on this machine if the issuer
// is too. Package openid tests redirects and the login service.
func TestWhereKeysAre(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	var reached atomic.Int64
	here := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	defer here.Close()
	const configuration = "/.well-known/openid-configuration"
	set := func(name, value string) func(map[string]string, string) {
		return func(doc map[string]string, _ string) { doc[name] = value }
	}
	for name, test := range map[string]struct {
		start     func(http.Handler) *httptest.Server
		change    func(map[string]string, string)
		redirects map[string]string
		found     bool // the keys are used
	}{
		"TLS":          {start: httptest.NewTLSServer, found: true},
		"this machine": {start: httptest.NewServer, found: true},
		// The client follows these, but the last document has no keys.
		"redirects within": {
			httptest.NewTLSServer, nil, map[string]string{configuration: "/other", "/keys": "/other"}, false,
		},
		"redirects":              {httptest.NewTLSServer, nil, map[string]string{configuration: here.URL}, false},
		"redirects for the keys": {httptest.NewTLSServer, nil, map[string]string{"/keys": here.URL}, false},
		"endless redirects":      {httptest.NewTLSServer, nil, map[string]string{"/keys": "/keys"}, false},
		"keys on this machine":   {httptest.NewTLSServer, set("jwks_uri", here.URL), nil, false},
		"keys without TLS":       {httptest.NewServer, set("jwks_uri", "http://keys.example.com"), nil, false},
		"no URL of keys":         {httptest.NewServer, set("jwks_uri", ""), nil, false},
		"a redirect without TLS": {
			httptest.NewServer, nil, map[string]string{configuration: "http://keys.example.com"}, false,
		},
		"another issuer's": {httptest.NewServer, set("issuer", "https://a.example.com"), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := elsewhere(t, test.start, test.change, test.redirects)
			control := access.New(parse(t, anySubject(s.URL)), &records{})
			access.SetTransport(control, notimeout.Transport{RoundTripper: s.Client().Transport})
			p := protect(control)
			// The key is not published. If the keys are found, the token is
			// rejected for that reason.
			status := 503
			if test.found {
				status = 401
			}
			token := sign(t, jose.ES256, newKey(t), "1", map[string]any{"iss": s.URL})
			if w := p.get(t, path, "Bearer "+token); w.Code != status {
				t.Errorf("status %d, want %d\n%s", w.Code, status, &p.log)
			}
			texts.Text(t, errorsOf(p.log.String()), s.URL, "ISSUER", here.URL, "HERE")
		})
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("%d requests reached this machine", n)
	}
}

// A check finds each unusable issuer with the reason, and caches the keys of
// the others. It does not prevent later success.
func TestCheckIssuers(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	good, down, other, empty := newIssuer(t, public(&key.PublicKey, "1")), newIssuer(t, public(&key.PublicKey, "1")),
		newIssuer(t, public(&key.PublicKey, "1")), newIssuer(t)
	down.down.Store(true)
	other.pose("https://elsewhere.example.com")
	settings := access.Settings{}
	for _, i := range []*testIssuer{good, down, other, empty} {
		settings.Issuers = append(settings.Issuers, parse(t, anySubject(i.URL)).Issuers...)
	}
	control := access.New(settings, &records{})
	wall := clock.At(time.Now())
	access.SetClock(control, wall)
	want := map[string]bool{"down": false, "other": true, "empty": false} // unusable
	names := map[string]string{good.URL: "good", down.URL: "down", other.URL: "other", empty.URL: "empty"}
	got := make(map[string]bool)
	for _, p := range control.CheckIssuers(t.Context()) {
		name := names[p.Issuer]
		got[name] = errors.Is(p.Err, registry.ErrIssuer)
		t.Run(name, func(t *testing.T) {
			if registry.Hint(p.Err) == "" {
				t.Errorf("%v has no hint", p.Err)
			}
			texts.Error(t, p.Err, p.Issuer, "ISSUER")
		})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("unusable issuers (-want +got):\n%s", diff)
	}
	p := protect(control)
	token := func(i *testIssuer, id int) string {
		return "Bearer " + sign(
			t, jose.ES256, key, "1",
			map[string]any{"iss": i.URL, "aud": "a", "sub": fmt.Sprint(id), "exp": wall.Now().Add(time.Hour).Unix()},
		)
	}
	before := good.fetches.Load()
	p.want(t, 200, path, token(good, 1))
	if f := good.fetches.Load(); f != before {
		t.Errorf("%d fetches after the check", f-before)
	}
	p.want(t, 503, path, token(down, 1))
	p.want(t, 503, path, token(other, 1))
	down.down.Store(false)
	other.pose(other.URL)
	wall.Pass(10 * time.Second)
	p.want(t, 200, path, token(down, 2))
	p.want(t, 200, path, token(other, 2))
}

// A check that is interrupted reports nothing.
func TestCheckIssuersInterrupted(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	i.down.Store(true)
	ended, end := context.WithCancel(t.Context())
	end()
	if problems := access.New(parse(t, anySubject(i.URL)), &records{}).CheckIssuers(ended); problems != nil {
		t.Errorf("it reports %v", problems)
	}
}

// A publisher gets an error about the issuer if another attempt cannot succeed.
// A reader does not, and only the log has the reason.
func TestUnusableIssuer(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	i := newIssuer(t, public(&key.PublicKey, "1"))
	control := access.New(parse(t, anySubject(i.URL)), &records{})
	wall := clock.At(time.Now())
	access.SetClock(control, wall)
	publish, read := publishBy(t, control), protect(control)
	token := "Bearer " + sign(
		t, jose.ES256, key, "1",
		map[string]any{"iss": i.URL, "aud": "a", "sub": "s", "exp": wall.Now().Add(time.Hour).Unix()},
	)
	for name, test := range map[string]struct {
		change func()
		code   string
		retry  string
	}{
		"down":           {func() { i.down.Store(true) }, "unavailable", "1"},
		"another issuer": {func() { i.down.Store(false); i.pose("https://b.example.com") }, "issuer", ""},
	} {
		t.Run(name, func(t *testing.T) {
			test.change()
			wall.Pass(time.Minute)
			before := errorsOf(publish.log.String())
			check := func(what string, w *httptest.ResponseRecorder, code, retry string) {
				t.Helper()
				if w.Code != 503 {
					t.Errorf("%s: status %d, want 503", what, w.Code)
				}
				if got := w.Header().Get("Retry-After"); got != retry {
					t.Errorf("%s: Retry-After %q, want %q", what, got, retry)
				}
				var body struct{ Code string }
				if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
					t.Errorf("%s: %v", what, err)
				}
				if body.Code != code {
					t.Errorf("%s: code %q, want %q", what, body.Code, code)
				}
				texts.Text(t, what+": "+w.Body.String())
			}
			check("publishing", publish.get(t, publishModule, token), test.code, test.retry)
			texts.Text(t, "logged: "+strings.TrimPrefix(errorsOf(publish.log.String()), before), i.URL, "ISSUER")
			check("reading", read.get(t, path, token), "unavailable", "1")
		})
	}
}
