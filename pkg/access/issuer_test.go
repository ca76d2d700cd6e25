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
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/openid"
	"github.com/larder-registry/larder/pkg/registry"
)

// testIssuer is an issuer that the tests sign for.
type testIssuer struct {
	*httptest.Server
	keys    []jose.JSONWebKey
	down    atomic.Bool
	fetches atomic.Int64
	hold    sync.RWMutex // who locks it has it answer later
	as      string       // the issuer that it says it is
}

func newIssuer(t testing.TB, keys ...jose.JSONWebKey) *testIssuer {
	t.Helper()
	i := &testIssuer{keys: keys}
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.fetches.Add(1)
		i.hold.RLock()
		defer i.hold.RUnlock()
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

func public(key crypto.PublicKey, id string) jose.JSONWebKey {
	return jose.JSONWebKey{Key: key, KeyID: id, Use: "sig"}
}

// Keys are fetched when they are needed, kept, and asked for again seldom, whatever callers send.
func TestKeys(t *testing.T) {
	t.Parallel()
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	next, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	i := newIssuer(t, public(&key.PublicKey, "1"))
	control := access.New(parse(t, anySubject(i.URL)), &records{})
	now := time.Now()
	access.SetClock(control, func() time.Time { return now })
	p := protect(control)
	n := 0
	token := func(key *ecdsa.PrivateKey, id string) string {
		n++
		return "Bearer " + sign(t, jose.ES256, key, id, map[string]any{"iss": i.URL, "aud": "a", "sub": fmt.Sprint(n), "exp": now.Add(1000 * time.Hour).Unix()})
	}
	// Unreachable, and none cached.
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
	p.want(t, 503, path, token(key, "1")) // it is not asked again at once
	now = now.Add(10 * time.Second)
	p.want(t, 200, path, token(key, "1"))
	before := i.fetches.Load()
	// Unknown key ids cannot have them fetched again and again.
	for range 50 {
		p.want(t, 401, path, token(next, fmt.Sprint("unknown", n)))
	}
	if f := i.fetches.Load(); f != before {
		t.Errorf("unknown key ids: %d fetches more", f-before)
	}
	// A new key holds a minute after the last fetch, and the old one no longer than the issuer says.
	i.keys = []jose.JSONWebKey{public(&next.PublicKey, "2")}
	now = now.Add(time.Minute)
	p.want(t, 200, path, token(next, "2"))
	p.want(t, 401, path, token(key, "1"))
	// While the issuer is down its keys hold for a day.
	i.down.Store(true)
	now = now.Add(23 * time.Hour)
	p.want(t, 200, path, token(next, "2"))
	now = now.Add(time.Hour - time.Second)
	expired := "Bearer " + sign(t, jose.ES256, next, "2", map[string]any{"iss": i.URL, "aud": "a", "iat": now.Add(-2 * time.Hour).Unix(), "exp": now.Add(-time.Hour).Unix()})
	p.want(t, 401, path, expired)
	now = now.Add(time.Second)
	p.want(t, 503, path, token(next, "2"))
	p.want(t, 401, path, expired) // that is remembered
	// Another's configuration is refused.
	i.down.Store(false)
	i.as = "https://elsewhere.example.com"
	now = now.Add(time.Minute)
	p.want(t, 503, path, token(next, "2"))
}

// visitors send what an issuer has signed to access control, with a clock of their own.
type visitors struct {
	*protected
	issuer  *testIssuer
	control *access.Control
	passed  atomic.Int64 // of the clock
	sent    atomic.Int64
}

func visit(t testing.TB, i *testIssuer) *visitors {
	t.Helper()
	v := &visitors{issuer: i, control: access.New(parse(t, anySubject(i.URL)), &records{})}
	access.SetClock(v.control, v.now)
	v.protected = protect(v.control)
	return v
}

func (v *visitors) now() time.Time       { return time.Unix(1_800_000_000, v.passed.Load()) }
func (v *visitors) pass(d time.Duration) { v.passed.Add(int64(d)) }

// fetches returns how many there were since it was called last.
func (v *visitors) fetches() int64 { return v.issuer.fetches.Swap(0) }

// token signs another token each time.
func (v *visitors) token(t testing.TB, key *ecdsa.PrivateKey, id string) string {
	return "Bearer " + sign(t, jose.ES256, key, id, map[string]any{"iss": v.issuer.URL, "aud": "a", "sub": fmt.Sprint(v.sent.Add(1)), "exp": v.now().Add(1000 * time.Hour).Unix()})
}

// crowd sends many at once, which must all be answered alike, and returns how long the last one took.
func (v *visitors) crowd(t *testing.T, ctx context.Context, status int, key *ecdsa.PrivateKey, id string) time.Duration {
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

// Many callers at once cause no more fetches than one.
func TestCrowd(t *testing.T) {
	t.Parallel()
	key, stranger := newKey(t), newKey(t)
	v := visit(t, newIssuer(t, public(&key.PublicKey, "1")))
	crowd := func(fetches int64, status int, key *ecdsa.PrivateKey, id string) {
		t.Helper()
		v.crowd(t, t.Context(), status, key, id)
		if n := v.fetches(); n != fetches {
			t.Errorf("key %q: %d fetches, want %d", id, n, fetches)
		}
	}
	v.issuer.down.Store(true)
	crowd(1, 503, key, "1")
	v.pass(9 * time.Second)
	crowd(0, 503, key, "1")
	v.issuer.down.Store(false)
	v.pass(time.Second)
	crowd(2, 200, key, "1")
	v.pass(59 * time.Second)
	crowd(0, 401, stranger, "2")
	crowd(0, 401, stranger, "1")
	v.pass(time.Second)
	crowd(2, 401, stranger, "2")
	crowd(0, 401, stranger, "1")
	crowd(0, 200, key, "1")
	// Where the clock is set back, it is not waited until it is where it was.
	v.pass(-2 * time.Hour)
	crowd(2, 200, key, "1")
	// A day later, and down: ten seconds between two.
	v.issuer.down.Store(true)
	v.pass(time.Hour)
	crowd(1, 200, key, "1")
	crowd(0, 401, stranger, "2")
	v.pass(10 * time.Second)
	crowd(1, 401, stranger, "2")
}

// aWhile is far longer than anybody may wait who need not wait for the issuer, and shorter than the issuer is waited for.
const (
	aWhile  = 30 * time.Second
	forEver = time.Minute
)

// Who has a known key does not wait for a fetch, or for a second where it is time for one.
func TestSlowIssuer(t *testing.T) {
	t.Parallel()
	key, stranger := newKey(t), newKey(t)
	v := visit(t, newIssuer(t, public(&key.PublicKey, "1")))
	access.SetPatience(v.control, forEver)
	v.want(t, 200, path, v.token(t, key, "1"))
	v.fetches()

	v.pass(time.Minute)
	v.issuer.hold.Lock()
	waiting := make(chan int, 1)
	token := v.token(t, stranger, "2")
	go func() { waiting <- v.get(t, path, token).Code }()
	for n := 0; n < 1000 && v.issuer.fetches.Load() == 0; n++ {
		time.Sleep(time.Millisecond)
	}
	if took := v.crowd(t, t.Context(), 200, key, "1"); took > aWhile {
		t.Errorf("a known key waited for another's fetch: %v", took)
	}
	v.issuer.hold.Unlock()
	if code := <-waiting; code != 401 {
		t.Error(code)
	}
	v.fetches()

	v.pass(2 * time.Hour)
	v.issuer.hold.Lock()
	begin := time.Now()
	v.want(t, 200, path, v.token(t, key, "1"))
	if took := time.Since(begin); took > aWhile {
		t.Errorf("the first caller after an hour waited for %v", took)
	}
	if took := v.crowd(t, t.Context(), 200, key, "1"); took > aWhile {
		t.Errorf("the next callers waited for %v", took)
	}
	v.issuer.hold.Unlock()
	v.want(t, 401, path, v.token(t, stranger, "2")) // it has waited for the fetch
	if n := v.fetches(); n > 2 {
		t.Errorf("%d fetches", n)
	}
}

// Who goes away is not waited for, and causes no more fetches than who stays.
func TestCallersCancel(t *testing.T) {
	t.Parallel()
	key := newKey(t)
	v := visit(t, newIssuer(t, public(&key.PublicKey, "1")))
	access.SetPatience(v.control, forEver)
	v.issuer.hold.Lock()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if took := v.crowd(t, ctx, 503, key, "1"); took > aWhile {
		t.Errorf("they were answered after %v", took)
	}
	v.crowd(t, ctx, 503, key, "1")
	v.issuer.hold.Unlock()
	v.want(t, 200, path, v.token(t, key, "1"))
	if n := v.fetches(); n != 2 {
		t.Errorf("%d fetches", n)
	}
}

// Keys without an id, or with one that is used again, change as others do.
func TestRotation(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"", "always"} {
		key, next := newKey(t), newKey(t)
		v := visit(t, newIssuer(t, public(&key.PublicKey, id)))
		v.want(t, 200, path, v.token(t, key, id))
		v.issuer.keys = []jose.JSONWebKey{public(&next.PublicKey, id)}
		v.pass(30 * time.Second)
		// It is too early, but that is not kept.
		early := v.token(t, next, id)
		v.want(t, 401, path, early)
		if _, bad := access.Decisions(v.control); bad != 0 {
			t.Error("a key that is not known yet is remembered as a bad one")
		}
		v.pass(30 * time.Second)
		v.want(t, 200, path, early)
		v.want(t, 401, path, v.token(t, key, id))
		if n := v.fetches(); n != 4 {
			t.Errorf("id %q: %d fetches", id, n)
		}
	}
}

// What an issuer may publish.
func TestPublishedKeys(t *testing.T) {
	t.Parallel()
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
		log    string
	}{
		"as many as may be": {many(access.MaxKeys), 200, ""},
		"too many":          {many(access.MaxKeys + 1), 503, "101 keys"},
		"too long":          {[]jose.JSONWebKey{good, public(&key.PublicKey, strings.Repeat("a", openid.MaxDocument))}, 503, "more than 1048576 bytes"},
		"none":              {nil, 503, "no key that can be used"},
		"a private one":     {[]jose.JSONWebKey{public(key, "1")}, 503, "no key that can be used"},
		"a secret":          {[]jose.JSONWebKey{public([]byte("0123456789abcdef0123456789abcdef"), "1")}, 503, "no key that can be used"},
		"for encryption":    {[]jose.JSONWebKey{{Key: &key.PublicKey, KeyID: "1", Use: "enc"}}, 503, "no key that can be used"},
		"for another alg":   {[]jose.JSONWebKey{{Key: &key.PublicKey, KeyID: "1", Algorithm: "ES384"}}, 401, "no key"},
		"a private one too": {[]jose.JSONWebKey{public(key, "2"), good}, 200, ""},
	} {
		v := visit(t, newIssuer(t, test.keys...))
		if w := v.get(t, path, v.token(t, key, "1")); w.Code != test.status || !strings.Contains(v.log.String(), test.log) {
			t.Errorf("%s: %d\n%s", name, w.Code, &v.log)
		}
	}
}

// elsewhere is an issuer whose documents a test makes.
func elsewhere(t *testing.T, start func(http.Handler) *httptest.Server, change func(doc map[string]string, url string), redirects map[string]string) *httptest.Server {
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

// An issuer's keys are nowhere where there is no TLS, nor on this machine unless the issuer is. That no redirect leads there
// either, and where people are sent to log in, is package openid's.
func TestWhereKeysAre(t *testing.T) {
	t.Parallel()
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
		want      string // what the error has; nothing if there is none
	}{
		"TLS":                    {start: httptest.NewTLSServer},
		"this machine":           {start: httptest.NewServer},
		"redirects within":       {httptest.NewTLSServer, nil, map[string]string{configuration: "/other", "/keys": "/other"}, "no key that can be used"}, // followed, to what has none
		"redirects":              {httptest.NewTLSServer, nil, map[string]string{configuration: here.URL}, "redirect"},
		"redirects for the keys": {httptest.NewTLSServer, nil, map[string]string{"/keys": here.URL}, "redirect"},
		"without an end":         {httptest.NewTLSServer, nil, map[string]string{"/keys": "/keys"}, "too many redirects"},
		"keys on this machine":   {httptest.NewTLSServer, set("jwks_uri", here.URL), nil, "jwks_uri"},
		"keys without TLS":       {httptest.NewServer, set("jwks_uri", "http://keys.example.com"), nil, "jwks_uri"},
		"keys nowhere":           {httptest.NewServer, set("jwks_uri", ""), nil, "jwks_uri"},
		"a redirect without TLS": {httptest.NewServer, nil, map[string]string{configuration: "http://keys.example.com"}, "must be an https URL"},
		"another issuer's":       {httptest.NewServer, set("issuer", "https://a.example.com"), nil, "of the issuer"},
	} {
		s := elsewhere(t, test.start, test.change, test.redirects)
		control := access.New(parse(t, anySubject(s.URL)), &records{})
		access.SetTransport(control, s.Client().Transport)
		p := protect(control)
		// No key signs it; where the keys are there, it is refused for that.
		status, in := 503, test.want
		if test.want == "" {
			status, in = 401, "no key that the issuer has published"
		}
		token := sign(t, jose.ES256, newKey(t), "1", map[string]any{"iss": s.URL})
		if w := p.get(t, path, "Bearer "+token); w.Code != status || !strings.Contains(p.log.String(), in) {
			t.Errorf("%s: %d\n%s", name, w.Code, &p.log)
		}
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("%d requests reached this machine", n)
	}
}

// A check finds each issuer that cannot be used, says why, and caches the keys of the
// others. It keeps nothing from working later.
func TestCheckIssuers(t *testing.T) {
	t.Parallel()
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	good, down, other, empty := newIssuer(t, public(&key.PublicKey, "1")), newIssuer(t, public(&key.PublicKey, "1")),
		newIssuer(t, public(&key.PublicKey, "1")), newIssuer(t)
	down.down.Store(true)
	other.as = "https://elsewhere.example.com"
	settings := access.Settings{}
	for _, i := range []*testIssuer{good, down, other, empty} {
		settings.Issuers = append(settings.Issuers, parse(t, anySubject(i.URL)).Issuers...)
	}
	control := access.New(settings, &records{})
	now := time.Now()
	access.SetClock(control, func() time.Time { return now })
	type problem struct {
		reason   string
		unusable bool
	}
	want := map[string]problem{
		down.URL:  {"GET " + down.URL + "/.well-known/openid-configuration: it answers 502 Bad Gateway", false},
		other.URL: {`its configuration is of the issuer "https://elsewhere.example.com"`, true},
		empty.URL: {"it has no key that can be used", false},
	}
	got := make(map[string]problem)
	for _, p := range control.CheckIssuers(t.Context()) {
		got[p.Issuer] = problem{p.Err.Error(), errors.Is(p.Err, registry.ErrIssuer)}
		if registry.Hint(p.Err) == "" {
			t.Errorf("%v has no hint", p.Err)
		}
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(problem{})); diff != "" {
		t.Error(diff)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if problems := control.CheckIssuers(ended); problems != nil {
		t.Errorf("it was interrupted, and blames %v", problems)
	}
	p := protect(control)
	token := func(i *testIssuer, id int) string {
		return "Bearer " + sign(t, jose.ES256, key, "1", map[string]any{"iss": i.URL, "aud": "a", "sub": fmt.Sprint(id), "exp": now.Add(time.Hour).Unix()})
	}
	before := good.fetches.Load()
	p.want(t, 200, path, token(good, 1))
	if f := good.fetches.Load(); f != before {
		t.Errorf("%d fetches after the check", f-before)
	}
	p.want(t, 503, path, token(down, 1))
	p.want(t, 503, path, token(other, 1))
	down.down.Store(false)
	other.as = other.URL
	now = now.Add(10 * time.Second)
	p.want(t, 200, path, token(down, 2))
	p.want(t, 200, path, token(other, 2))
}

// A publisher learns that his identity cannot be checked if trying again does not
// mend it. A reader does not, and the reason is in the log alone.
func TestUnusableIssuer(t *testing.T) {
	t.Parallel()
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	i := newIssuer(t, public(&key.PublicKey, "1"))
	control := access.New(parse(t, anySubject(i.URL)), &records{})
	now := time.Now()
	access.SetClock(control, func() time.Time { return now })
	publish, read := publishBy(t, control), protect(control)
	token := "Bearer " + sign(t, jose.ES256, key, "1", map[string]any{"iss": i.URL, "aud": "a", "sub": "s", "exp": now.Add(time.Hour).Unix()})
	const fixed = `{"errors":["temporarily unavailable, try again"],"code":"unavailable"}`
	const explained = `{"errors":["the registry cannot check this identity, because it cannot use its issuer"],` +
		`"code":"issuer","hint":"The registry's operator finds the reason in its log."}`
	for name, test := range map[string]struct {
		change func()
		body   string
		retry  string
		reason string
	}{
		"down":           {func() { i.down.Store(true) }, fixed, "1", "it answers 502 Bad Gateway"},
		"another issuer": {func() { i.down.Store(false); i.as = "https://b.example.com" }, explained, "", "its configuration is of the issuer"},
	} {
		test.change()
		now = now.Add(time.Minute)
		w := publish.get(t, publishModule, token)
		if w.Code != 503 || strings.TrimSpace(w.Body.String()) != test.body || w.Header().Get("Retry-After") != test.retry {
			t.Errorf("%s: publishing: %d %s %v", name, w.Code, w.Body, w.Header())
		}
		if logged := publish.log.String(); !strings.Contains(logged, test.reason) {
			t.Errorf("%s: logged %s", name, logged)
		}
		w = read.get(t, path, token)
		if w.Code != 503 || strings.TrimSpace(w.Body.String()) != fixed || w.Header().Get("Retry-After") != "1" {
			t.Errorf("%s: reading: %d %s %v", name, w.Code, w.Body, w.Header())
		}
	}
}
