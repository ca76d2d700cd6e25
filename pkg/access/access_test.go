package access_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/registry"
)

// records are tokens by digest. They count how often they are asked.
type records struct {
	tokens map[string]registry.Token
	err    error
	reads  atomic.Int64
}

func (r *records) Token(_ context.Context, digest string) (registry.Token, error) {
	r.reads.Add(1)
	if r.err != nil {
		return registry.Token{}, r.err
	}
	t, ok := r.tokens[digest]
	if !ok {
		return t, registry.ErrNotFound
	}
	return t, nil
}

func (r *records) add(name string, scopes ...string) string {
	token, digest := access.NewToken()
	if r.tokens == nil {
		r.tokens = make(map[string]registry.Token)
	}
	r.tokens[digest] = registry.Token{Name: name, Scopes: scopes}
	return token
}

// testIssuer is an issuer that the tests sign for.
type testIssuer struct {
	*httptest.Server
	keys    []jose.JSONWebKey
	down    atomic.Bool
	fetches atomic.Int64
	as      string // the issuer that it says it is
}

func newIssuer(t testing.TB, keys ...jose.JSONWebKey) *testIssuer {
	t.Helper()
	i := &testIssuer{keys: keys}
	i.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.fetches.Add(1)
		if i.down.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		if strings.HasSuffix(r.URL.Path, "/keys") {
			_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: i.keys})
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]string{"issuer": i.as, "jwks_uri": i.URL + "/keys", "authorization_endpoint": i.URL + "/authorize?tenant=1", "token_endpoint": i.URL + "/token"})
	}))
	i.as = i.URL
	t.Cleanup(i.Close)
	return i
}

func public(key crypto.PublicKey, id string) jose.JSONWebKey {
	return jose.JSONWebKey{Key: key, KeyID: id, Use: "sig"}
}

// sign signs claims with a header of its own.
func sign(t testing.TB, algorithm jose.SignatureAlgorithm, key any, id string, claims map[string]any) string {
	t.Helper()
	options := (&jose.SignerOptions{}).WithType("JWT")
	if id != "" {
		options = options.WithHeader("kid", id)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, options)
	if err != nil {
		t.Fatal(err)
	}
	text, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func parse(t testing.TB, text string) access.Settings {
	t.Helper()
	s, err := access.ParseSettings([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// protected is a gate before a handler that counts what reaches it.
type protected struct {
	http.Handler
	reached atomic.Int64
	log     strings.Builder
}

func protect(gate *access.Gate) *protected {
	p := &protected{}
	p.Handler = httpapi.Wrap(slog.New(slog.NewTextHandler(&p.log, nil)), gate.Protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		p.reached.Add(1)
		httpapi.WriteJSON(w, http.StatusOK, httpapi.NoStore, "there")
	})))
	return p
}

const path = "/v1/modules/acme/vpc/aws/versions"

func (p *protected) get(t testing.TB, path string, authorization ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	for _, a := range authorization {
		r.Header.Add("Authorization", a)
	}
	w := httptest.NewRecorder()
	p.ServeHTTP(w, r)
	return w
}

func (p *protected) want(t testing.TB, status int, path string, authorization ...string) {
	t.Helper()
	if w := p.get(t, path, authorization...); w.Code != status {
		t.Errorf("%s with %.80q: %d, want %d; the log:\n%s", path, authorization, w.Code, status, &p.log)
	}
}

func TestToken(t *testing.T) {
	t.Parallel()
	store := &records{}
	ci, other, publisher := store.add("ci", "read:modules/acme/*"), store.add("other", "read:modules/other/**", "read:providers/**"), store.add("publisher", "publish:**")
	p := protect(access.New(access.Settings{}, store))
	p.want(t, 200, path, "Bearer "+ci)
	p.want(t, 200, path, "bearer   "+ci)
	p.want(t, 200, "/v1/modules/acme/vpc/aws/1.0.0/download", "Bearer "+ci)
	p.want(t, 403, "/v1/modules/acme2/vpc/aws/versions", "Bearer "+ci)
	p.want(t, 403, "/v1/providers/acme/x/versions", "Bearer "+ci)
	p.want(t, 403, path, "Bearer "+other)
	p.want(t, 200, "/v1/providers/acme/x/1.0.0/download/linux/amd64", "Bearer "+other)
	p.want(t, 403, path, "Bearer "+publisher)
	p.want(t, 401, path)
	if w := p.get(t, path); w.Header().Get("WWW-Authenticate") != `Bearer realm="larder"` || w.Header().Get("Cache-Control") != "no-store" {
		t.Error(w.Header())
	}
	if w := p.get(t, path, "Bearer larder_x"); w.Header().Get("WWW-Authenticate") != `Bearer realm="larder", error="invalid_token"` {
		t.Error(w.Header())
	}
	for _, secret := range []string{ci, other, ci[7:20]} {
		if strings.Contains(p.log.String(), secret) {
			t.Error("the log has a token")
		}
	}
	if !strings.Contains(p.log.String(), `caller="token ci"`) {
		t.Errorf("the log does not say who:\n%s", &p.log)
	}
}

// A decision is kept for a minute, good or bad; then it is made anew.
func TestDecisionsAreKept(t *testing.T) {
	t.Parallel()
	store := &records{}
	token := store.add("ci", "read:**")
	bad, _ := access.NewToken()
	gate := access.New(access.Settings{}, store)
	now := time.Now()
	access.SetClock(gate, func() time.Time { return now })
	p := protect(gate)
	for range 3 {
		p.want(t, 200, path, "Bearer "+token)
		p.want(t, 401, path, "Bearer "+bad)
	}
	if n := store.reads.Load(); n != 2 {
		t.Errorf("%d reads for two credentials", n)
	}
	clear(store.tokens) // revoked
	now = now.Add(59 * time.Second)
	p.want(t, 200, path, "Bearer "+token)
	now = now.Add(time.Second)
	p.want(t, 401, path, "Bearer "+token)
	// A table that cannot answer is no decision.
	store.err = registry.ErrUnavailable
	other, digest := access.NewToken()
	p.want(t, 503, path, "Bearer "+other)
	store.err = nil
	store.tokens[digest] = registry.Token{Name: "other", Scopes: []string{"read:**"}}
	p.want(t, 200, path, "Bearer "+other)
	// One that expires earlier is refused then.
	short, digest := access.NewToken()
	store.tokens[digest] = registry.Token{Name: "short", Scopes: []string{"read:**"}, ExpiresAt: now.Add(10 * time.Second)}
	p.want(t, 200, path, "Bearer "+short)
	now = now.Add(10 * time.Second)
	p.want(t, 401, path, "Bearer "+short)
}

func TestPublic(t *testing.T) {
	t.Parallel()
	p := protect(access.New(parse(t, `{"public": ["modules/acme/vpc/*", "mirror/**"]}`), &records{}))
	p.want(t, 200, path)
	p.want(t, 200, path, "Bearer ") // a variable that is set and empty
	p.want(t, 200, "/v1/mirror/registry.opentofu.org/hashicorp/null/index.json")
	p.want(t, 401, "/v1/modules/acme/other/aws/versions")
	p.want(t, 401, path, "Bearer nonsense") // a bad credential is never as good as none
	p.want(t, 401, "/v1/unknown/thing")
	p.want(t, 401, "/v1/modules")
}

// credentials are what clients may send, and what of it is good.
func TestBadCredentials(t *testing.T) {
	t.Parallel()
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	smallKey, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	ecKey, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	p384, _ := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	edPublic, edKey, _ := ed25519.GenerateKey(rand.Reader)
	strangerKey, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)

	people := newIssuer(t, public(&rsaKey.PublicKey, "rsa"), public(&ecKey.PublicKey, "ec"), public(edPublic, "ed"), public(&smallKey.PublicKey, "small"), public(&p384.PublicKey, "p384"),
		jose.JSONWebKey{Key: &ecKey.PublicKey, KeyID: "enc", Use: "enc"}, jose.JSONWebKey{Key: []byte("0123456789abcdef0123456789abcdef"), KeyID: "shared"})
	ci := newIssuer(t, public(&strangerKey.PublicKey, "ci"))
	const audience = "https://registry.example.com"
	settings := parse(t, fmt.Sprintf(`{"issuers": [
		{"issuer": %q, "audiences": [%q], "clientIds": ["cli"], "rules": [{"claims": {"sub": "**"}, "scopes": ["read:modules/acme/*"]}]},
		{"issuer": %q, "audiences": ["ci"], "rules": [{"claims": {"repository": "acme/*"}, "scopes": ["read:**"]}]}
	]}`, people.URL, audience, ci.URL))
	store := &records{}
	good, _ := access.NewToken()
	gate := access.New(settings, store)
	now := time.Unix(1_800_000_000, 0)
	access.SetClock(gate, func() time.Time { return now })
	p := protect(gate)

	claims := func(change ...any) map[string]any {
		c := map[string]any{"iss": people.URL, "sub": "ada", "aud": audience, "exp": now.Add(time.Hour).Unix(), "iat": now.Unix()}
		for i := 0; i < len(change); i += 2 {
			if change[i+1] == nil {
				delete(c, change[i].(string))
			} else {
				c[change[i].(string)] = change[i+1]
			}
		}
		return c
	}
	with := func(change ...any) string { return sign(t, jose.ES256, ecKey, "ec", claims(change...)) }
	at := func(d time.Duration) int64 { return now.Add(d).Unix() }
	segment := func(v string) string { return base64.RawURLEncoding.EncodeToString([]byte(v)) }
	body, _ := json.Marshal(claims())
	raw := func(header, signature string) string {
		return segment(header) + "." + segment(string(body)) + "." + segment(signature)
	}
	split := func(token string) []string { return strings.Split(token, ".") }
	valid := with()
	// The classic confusion: the public key as the secret of an HMAC.
	hmac := sign(t, jose.HS256, x509.MarshalPKCS1PublicKey(&rsaKey.PublicKey), "rsa", claims())

	for name, ok := range map[string]string{
		"RS256": sign(t, jose.RS256, rsaKey, "rsa", claims()), "ES256": valid, "EdDSA": sign(t, jose.EdDSA, edKey, "ed", claims()),
		"no key id":                       sign(t, jose.ES256, ecKey, "", claims()),
		"two audiences":                   with("aud", []string{"other", audience}),
		"expired by less than the leeway": with("exp", at(-29*time.Second)), "not before, by less than the leeway": with("nbf", at(29*time.Second)), "issued by a clock ahead": with("iat", at(29*time.Second)),
		"Cognito's": with("aud", nil, "client_id", "cli", "token_use", "access"),
	} {
		if w := p.get(t, path, "Bearer "+ok); w.Code != 200 {
			t.Errorf("%s: %d\n%s", name, w.Code, &p.log)
		}
	}
	p.reached.Store(0)
	bad := map[string][]string{
		"no header": nil, "empty header": {""}, "empty bearer": {"Bearer "}, "bearer alone": {"Bearer"}, "blanks": {"Bearer    "},
		"basic": {"Basic YTpi"}, "basic with a good token": {"Basic " + valid}, "token scheme": {"Token " + valid}, "no scheme": {valid},
		"two headers": {"Bearer " + valid, "Bearer " + valid}, "two headers, one bad": {"Bearer x", "Bearer " + valid}, "two headers as API Gateway has them": {"Bearer " + valid + ",Bearer " + valid},
		"two credentials": {"Bearer " + valid + " " + valid}, "scheme twice": {"Bearer Bearer " + valid}, "a tab": {"Bearer\t" + valid}, "quoted": {`Bearer "` + valid + `"`},
		"non-ASCII": {"Bearer t\u00f6ken"}, "invalid UTF-8": {"Bearer \xff\xfe"}, "a NUL": {"Bearer a\x00b"}, "as long as headers may be": {"Bearer " + strings.Repeat("a", 60<<10)},
		"dots alone": {"Bearer .."}, "many dots": {"Bearer " + strings.Repeat(".", 1000)}, "opaque": {"Bearer 0123456789abcdef"},
		"unknown token": {"Bearer " + good}, "cut token": {"Bearer " + good[:len(good)-1]}, "token with a wrong checksum": {"Bearer " + good[:len(good)-1] + "!"}, "token with one character changed": {"Bearer larder_" + flip(good[7:])}, "token with more": {"Bearer " + good + "0"}, "the digest of a token": {"Bearer " + hex.EncodeToString(make([]byte, 32))}, "prefix alone": {"Bearer larder_"},
		"alg none": {"Bearer " + raw(`{"alg":"none","typ":"JWT"}`, "")}, "alg None": {"Bearer " + raw(`{"alg":"None"}`, "x")}, "no alg": {"Bearer " + raw(`{"typ":"JWT"}`, "x")}, "HS256 with the public key": {"Bearer " + hmac},
		"HS256 with a shared key of the set": {"Bearer " + sign(t, jose.HS256, []byte("0123456789abcdef0123456789abcdef"), "shared", claims())},
		"RS512":                              {"Bearer " + sign(t, jose.RS512, rsaKey, "rsa", claims())}, "PS256": {"Bearer " + sign(t, jose.PS256, rsaKey, "rsa", claims())}, "ES384": {"Bearer " + sign(t, jose.ES384, p384, "p384", claims())},
		"a small key": {"Bearer " + forge(t, smallKey, "small", body)}, "a key for encryption": {"Bearer " + sign(t, jose.ES256, ecKey, "enc", claims())},
		"a stranger's signature":      {"Bearer " + sign(t, jose.ES256, strangerKey, "ec", claims())},
		"key id of another issuer":    {"Bearer " + sign(t, jose.ES256, strangerKey, "ci", claims())},
		"key id of another algorithm": {"Bearer " + sign(t, jose.ES256, ecKey, "rsa", claims())},
		"unknown key id":              {"Bearer " + sign(t, jose.ES256, ecKey, "nobody", claims())}, "a path for a key id": {"Bearer " + sign(t, jose.ES256, ecKey, "../../keys", claims())}, "a long key id": {"Bearer " + sign(t, jose.ES256, ecKey, strings.Repeat("k", 5000), claims())},
		"its own key in the header":       {"Bearer " + embedded(t, strangerKey, claims())},
		"a critical header":               {"Bearer " + raw(`{"alg":"ES256","kid":"ec","crit":["exp"],"exp":1}`, "x")},
		"another issuer":                  {"Bearer " + with("iss", "https://elsewhere.example.com")},
		"the other issuer's name":         {"Bearer " + with("iss", ci.URL)},
		"no issuer":                       {"Bearer " + with("iss", nil)},
		"issuer with a slash more":        {"Bearer " + with("iss", people.URL+"/")},
		"issuer of another type":          {"Bearer " + with("iss", []string{people.URL})},
		"another audience":                {"Bearer " + with("aud", "somebody")},
		"the other issuer's audience":     {"Bearer " + with("aud", "ci")},
		"no audience":                     {"Bearer " + with("aud", nil)},
		"empty audience":                  {"Bearer " + with("aud", "")},
		"another client":                  {"Bearer " + with("aud", nil, "client_id", "somebody", "token_use", "access")},
		"an ID token of the client":       {"Bearer " + with("aud", nil, "client_id", "cli", "token_use", "id")},
		"our client, for somebody else":   {"Bearer " + with("aud", "somebody", "client_id", "cli", "token_use", "access")},
		"expired":                         {"Bearer " + with("exp", at(-time.Hour))},
		"expired by more than the leeway": {"Bearer " + with("exp", at(-31*time.Second))},
		"never expires":                   {"Bearer " + with("exp", nil)},
		"expires at a text":               {"Bearer " + with("exp", "tomorrow")},
		"expires in the past, negative":   {"Bearer " + with("exp", -1)},
		"not yet valid":                   {"Bearer " + with("nbf", at(31*time.Second))},
		"issued in the future":            {"Bearer " + with("iat", at(31*time.Second))},
		"signature cut off":               {"Bearer " + strings.Join(split(valid)[:2], ".") + "."},
		"signature of another":            {"Bearer " + strings.Join(split(valid)[:2], ".") + "." + split(with("sub", "eve"))[2]},
		"claims changed":                  {"Bearer " + split(valid)[0] + "." + segment(strings.Replace(string(body), "ada", "eve", 1)) + "." + split(valid)[2]},
		"claims that are no JSON":         {"Bearer " + split(valid)[0] + "." + segment("{") + "." + split(valid)[2]},
		"claims that are a list":          {"Bearer " + split(valid)[0] + "." + segment("[]") + "." + split(valid)[2]},
		"a header that is no base64":      {"Bearer !!!." + split(valid)[1] + "." + split(valid)[2]},
		"encrypted":                       {"Bearer a.b.c.d.e"},
		"JSON serialisation":              {`Bearer {"payload":"a"}`},
	}
	if len(bad) < 40 {
		t.Errorf("%d credentials", len(bad))
	}
	for name, headers := range bad {
		w := p.get(t, path, headers...)
		if w.Code != 401 || !strings.HasPrefix(w.Header().Get("WWW-Authenticate"), "Bearer ") || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %v", name, w.Code, w.Header())
		}
	}
	if n := p.reached.Load(); n != 0 {
		t.Errorf("%d requests went through", n)
	}
	if n := people.fetches.Load() + ci.fetches.Load(); n > 4 {
		t.Errorf("%d fetches from two issuers", n)
	}
	if n := store.reads.Load(); n != 1 { // for the unknown one
		t.Errorf("%d look-ups of tokens", n)
	}
	if strings.Contains(p.log.String(), split(valid)[2]) || strings.Contains(p.log.String(), good) {
		t.Error("the log has a credential")
	}
	if longest := longestLine(p.log.String()); longest > 1000 {
		t.Errorf("a line of the log has %d bytes", longest)
	}
}

func longestLine(s string) int {
	longest := 0
	for line := range strings.SplitSeq(s, "\n") {
		longest = max(longest, len(line))
	}
	return longest
}

// flip changes the first character.
func flip(s string) string {
	if s[0] == 'a' {
		return "b" + s[1:]
	}
	return "a" + s[1:]
}

// forge signs with a key that the library itself would refuse.
func forge(t *testing.T, key *rsa.PrivateKey, id string, body []byte) string {
	t.Helper()
	text := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"RS256","kid":"`+id+`"}`)) + "." + base64.RawURLEncoding.EncodeToString(body)
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	if err != nil {
		t.Skip(err) // this release of Go signs with no such key
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// embedded carries its own key, which must count for nothing.
func embedded(t *testing.T, key *ecdsa.PrivateKey, claims map[string]any) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: key}, &jose.SignerOptions{EmbedJWK: true})
	if err != nil {
		t.Fatal(err)
	}
	text, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// A CI job reads by what its identity says: the right repository does, another does not.
func TestWorkloadIdentity(t *testing.T) {
	t.Parallel()
	key, _ := rsa.GenerateKey(rand.Reader, 2048)
	actions := newIssuer(t, public(&key.PublicKey, "a"))
	p := protect(access.New(parse(t, fmt.Sprintf(`{"issuers": [{"issuer": %q, "audiences": ["https://registry.example.com"], "rules": [
		{"claims": {"repository": "acme/infrastructure", "ref": "refs/heads/**"}, "scopes": ["read:modules/acme/*"]},
		{"claims": {"repository_owner_id": "123456", "environment": "production"}, "scopes": ["read:providers/**"]}
	]}]}`, actions.URL)), &records{}))
	job := func(change ...string) string {
		c := map[string]any{
			"iss": actions.URL, "aud": "https://registry.example.com", "sub": "repo:acme/infrastructure:ref:refs/heads/main", "jti": "1", "exp": time.Now().Add(5 * time.Minute).Unix(), "iat": time.Now().Unix(), "nbf": time.Now().Add(-5 * time.Minute).Unix(),
			"repository": "acme/infrastructure", "repository_owner": "acme", "repository_owner_id": "123456", "ref": "refs/heads/main", "event_name": "push", "run_id": "7", "job_workflow_ref": "acme/infrastructure/.github/workflows/ci.yml@refs/heads/main",
		}
		for i := 0; i < len(change); i += 2 {
			c[change[i]] = change[i+1]
		}
		return "Bearer " + sign(t, jose.RS256, key, "a", c)
	}
	p.want(t, 200, path, job())
	p.want(t, 200, path, job("ref", "refs/heads/feature/x"))
	p.want(t, 403, path, job("ref", "refs/tags/v1"))
	p.want(t, 403, path, job("repository", "eve/infrastructure"))
	p.want(t, 403, path, job("repository", "acme/infrastructure2"))
	p.want(t, 403, path, job("repository", "acme/infrastructure/x"))
	p.want(t, 403, "/v1/providers/acme/x/versions", job())
	p.want(t, 200, "/v1/providers/acme/x/versions", job("environment", "production"))
	p.want(t, 403, "/v1/providers/acme/x/versions", job("environment", "production", "repository_owner_id", "1"))
}

func TestClaims(t *testing.T) {
	t.Parallel()
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	i := newIssuer(t, public(&key.PublicKey, "a"))
	for _, test := range []struct {
		rule, claims string
		status       int
	}{
		{`{"groups": "platform"}`, `{"groups": ["dev", "platform"]}`, 200},
		{`{"groups": "platform"}`, `{"groups": "platform"}`, 200},
		{`{"groups": "platform"}`, `{"groups": ["platforms"]}`, 403},
		{`{"groups": "platform"}`, `{"groups": [["platform"]]}`, 403},
		{`{"groups": "platform"}`, `{"groups": null}`, 403},
		{`{"groups": "**"}`, `{}`, 403},
		{`{"email_verified": "true", "org": "7"}`, `{"email_verified": true, "org": 7}`, 200},
		{`{"email_verified": "true"}`, `{"email_verified": false}`, 403},
		{`{"/realm_access/roles": "reader"}`, `{"realm_access": {"roles": ["reader"]}}`, 200},
		{`{"/realm_access/roles": "reader"}`, `{"realm_access": ["roles"]}`, 403},
		{`{"https://example.com/role": "reader"}`, `{"https://example.com/role": "reader"}`, 200},
	} {
		p := protect(access.New(parse(t, fmt.Sprintf(`{"issuers": [{"issuer": %q, "audiences": ["a"], "rules": [{"claims": %s, "scopes": ["read:**"]}]}]}`, i.URL, test.rule)), &records{}))
		c := map[string]any{"iss": i.URL, "aud": "a", "sub": "x", "exp": time.Now().Add(time.Hour).Unix()}
		if err := json.Unmarshal([]byte(test.claims), &c); err != nil {
			t.Fatal(err)
		}
		p.want(t, test.status, path, "Bearer "+sign(t, jose.ES256, key, "a", c))
	}
}

// Keys are fetched when they are needed, kept, and asked for again seldom, whatever callers send.
func TestKeys(t *testing.T) {
	t.Parallel()
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	next, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	i := newIssuer(t, public(&key.PublicKey, "1"))
	gate := access.New(parse(t, fmt.Sprintf(`{"issuers": [{"issuer": %q, "audiences": ["a"], "rules": [{"claims": {"sub": "**"}, "scopes": ["read:**"]}]}]}`, i.URL)), &records{})
	now := time.Now()
	access.SetClock(gate, func() time.Time { return now })
	p := protect(gate)
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
	now = now.Add(time.Hour)
	p.want(t, 503, path, token(next, "2"))
	// Another's configuration is refused.
	i.down.Store(false)
	i.as = "https://elsewhere.example.com"
	now = now.Add(time.Minute)
	p.want(t, 503, path, token(next, "2"))
}

func TestSettingsRefused(t *testing.T) {
	t.Parallel()
	issuer := func(change string) string {
		return `{"issuers": [{"issuer": "https://a.example.com", "audiences": ["x"], "rules": [{"claims": {"sub": "a"}, "scopes": ["read:**"]}]` + change + `}]`
	}
	for text, want := range map[string]string{
		`{`: "", `[]`: "", `{"publik": []}`: "publik", `{} {}`: "behind",
		`{"public": ["modules/ac*me"]}`:                                                                                          "whole segment",
		`{"public": ["module/acme"]}`:                                                                                            "it begins with",
		`{"public": ["modules/a/b/c/d"]}`:                                                                                        "covers nothing",
		`{"public": ["modules//a"]}`:                                                                                             "segments",
		`{"public": ["/modules"]}`:                                                                                               "segments",
		`{"public": ["**/a/**/b/**"]}`:                                                                                           "more than two",
		`{"public": [""]}`:                                                                                                       "segments",
		`{"public": ["` + strings.Repeat("a", 300) + `"]}`:                                                                       "more than 256",
		`{"issuers": [{"issuer": "http://a.example.com", "audiences": ["x"]}]}`:                                                  "https",
		`{"issuers": [{"issuer": "a", "audiences": ["x"]}]}`:                                                                     "no URL",
		`{"issuers": [{"issuer": "https://a.example.com"}]}`:                                                                     "audiences is missing",
		`{"issuers": [{"issuer": "https://a.example.com", "audiences": [""]}]}`:                                                  "audiences is missing",
		`{"issuers": [{"issuer": "https://a.example.com", "audiences": ["x"]}]}`:                                                 "rules are missing",
		strings.Replace(issuer("")+"}", `{"sub": "a"}`, `{}`, 1):                                                                 "claims are missing",
		strings.Replace(issuer("")+"}", `"read:**"`, `"write:**"`, 1):                                                            "read:PATTERN",
		strings.Replace(issuer("")+"}", `["read:**"]`, `[]`, 1):                                                                  "0 scopes",
		strings.Replace(issuer("")+"}", `"sub": "a"`, `"sub": ""`, 1):                                                            "empty",
		strings.Replace(issuer("")+"}", `"sub": "a"`, `"sub": "**/a/**/b/**"`, 1):                                                "more than two",
		issuer("") + `, "login": {"issuer": "https://b.example.com", "client": "c"}}`:                                            "none of the issuers",
		issuer("") + `, "login": {"issuer": "https://a.example.com"}}`:                                                           "client is missing",
		issuer("") + `, "login": {"issuer": "https://a.example.com", "client": "c", "ports": [10000, 10009]}}`:                   "ports",
		issuer("") + `, "login": {"issuer": "https://a.example.com", "client": "c", "ports": [80, 10009]}}`:                      "ports",
		issuer("") + `, "login": {"issuer": "https://a.example.com", "client": "c", "authorize": {"redirect_uri": "http://x"}}}`: "own parameter",
	} {
		if _, err := access.ParseSettings([]byte(text)); !errors.Is(err, registry.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	twice := parse(t, issuer("")+"}").Issuers[0]
	both, _ := json.Marshal(access.Settings{Issuers: []access.Issuer{twice, twice}})
	if _, err := access.ParseSettings(both); err == nil {
		t.Error("an issuer twice is accepted")
	}
}

// What is parsed is written as it was.
func TestSettingsRoundTrip(t *testing.T) {
	t.Parallel()
	const text = `{"public":["modules/acme/*"],"issuers":[{"issuer":"https://a.example.com","audiences":["x"],"name":"email","rules":[{"claims":{"groups":"a"},"scopes":["read:**"]}]}],"login":{"issuer":"https://a.example.com","client":"c","scopes":["openid","groups"],"ports":[10000,10020],"authorize":{"audience":"x"}}}`
	again, err := json.Marshal(parse(t, text))
	if err != nil || string(again) != text {
		t.Errorf("%s, %v", again, err)
	}
}

func TestPatterns(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		pattern, path string
		covers        bool
	}{
		{"modules/acme/*", "/v1/modules/acme/vpc/aws/versions", true},
		{"modules/acme", "/v1/modules/acme/vpc/aws/versions", true},
		{"modules/acme/**", "/v1/modules/acme/vpc/aws/1.0.0/download", true},
		{"modules/acme/vpc/aws", "/v1/modules/acme/vpc/aws/versions", true},
		{"modules/acme/vpc/*", "/v1/modules/acme/vpc/aws/versions", true},
		{"modules/*/vpc", "/v1/modules/acme/vpc/aws/versions", true},
		{"modules/**/aws", "/v1/modules/acme/vpc/aws/versions", true},
		{"modules/**/azurerm", "/v1/modules/acme/vpc/aws/versions", false},
		{"modules/**/versions", "/v1/modules/acme/vpc/aws/versions", false}, // a document is nothing that is named
		{"*", "/v1/modules/acme/vpc/aws/versions", true},
		{"**", "/v1/mirror/example.com/a/b/index.json", true},
		{"*/acme", "/v1/providers/acme/x/versions", true},
		{"modules/acm", "/v1/modules/acme/vpc/aws/versions", false},
		{"modules/Acme", "/v1/modules/acme/vpc/aws/versions", false},
		{"modules/acme/vpc/azurerm", "/v1/modules/acme/vpc/aws/versions", false},
		{"providers/**", "/v1/modules/acme/vpc/aws/versions", false},
		{"providers/acme/x", "/v1/providers/acme/x/1.0.0/download/linux/amd64", true},
		{"mirror/registry.opentofu.org/hashicorp", "/v1/mirror/registry.opentofu.org/hashicorp/null/1.0.0.json", true},
		{"mirror/*/hashicorp", "/v1/mirror/registry.opentofu.org/acme/null/1.0.0.json", false},
		{"modules/acme/vpc/aws", "/v1/modules/acme/vpc", false},
	} {
		p := protect(access.New(access.Settings{Public: []access.Pattern{parse(t, `{"public": ["`+test.pattern+`"]}`).Public[0]}}, &records{}))
		if w := p.get(t, test.path); (w.Code == 200) != test.covers {
			t.Errorf("%s, %s: %d", test.pattern, test.path, w.Code)
		}
	}
}

func FuzzScope(f *testing.F) {
	for _, s := range []string{"read:modules/acme/*", "publish:**", "read:", ":", "read:a/**/b/**/c"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := access.ParseScope(text)
		if err != nil {
			if !errors.Is(err, registry.ErrInvalid) {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		if again, err := s.MarshalText(); err != nil || string(again) != text {
			t.Errorf("%q is written %q, %v", text, again, err)
		}
	})
}

// Whatever a client sends, it is answered, and nothing is let through.
func FuzzCredential(f *testing.F) {
	for _, s := range []string{"", "Bearer", "Bearer x", "Bearer a.b.c", "bearer larder_", "Basic a"} {
		f.Add(s)
	}
	gate := access.New(access.Settings{}, &records{})
	f.Fuzz(func(t *testing.T, header string) {
		p := protect(gate)
		p.want(t, 401, path, header)
	})
}

func TestLogin(t *testing.T) {
	t.Parallel()
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	i := newIssuer(t, public(&key.PublicKey, "1"))
	s := parse(t, fmt.Sprintf(`{"issuers": [{"issuer": %q, "audiences": ["a"], "rules": [{"claims": {"sub": "**"}, "scopes": ["read:**"]}]}], "login": {"issuer": %q, "client": "cli", "authorize": {"audience": "a b"}}}`, i.URL, i.URL))
	login, err := s.LoginService()(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	text, _ := json.Marshal(login)
	if want := `{"client":"cli","grant_types":["authz_code"],"authz":"` + i.URL + `/authorize?audience=a+b\u0026tenant=1","token":"` + i.URL + `/token","ports":[10000,10010],"scopes":["openid"]}`; string(text) != want {
		t.Errorf("%s\nwant %s", text, want)
	}
	i.down.Store(true)
	if _, err := s.LoginService()(t.Context()); !errors.Is(err, registry.ErrUnavailable) {
		t.Error(err)
	}
	if access.Settings.LoginService(access.Settings{}) != nil {
		t.Error("there is a login without an issuer")
	}
}

// A warm request decides without a look-up, a cold one with exactly one.
func BenchmarkGate(b *testing.B) {
	store := &records{}
	token := "Bearer " + store.add("ci", "read:modules/acme/*")
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	i := newIssuer(b, public(&key.PublicKey, "1"))
	s := parse(b, fmt.Sprintf(`{"issuers": [{"issuer": %q, "audiences": ["a"], "rules": [{"claims": {"sub": "**"}, "scopes": ["read:**"]}]}]}`, i.URL))
	identity := "Bearer " + sign(b, jose.ES256, key, "1", map[string]any{"iss": i.URL, "aud": "a", "sub": "x", "exp": time.Now().Add(time.Hour).Unix()})
	for name, bench := range map[string]struct {
		credential string
		cold       bool
		reads      float64
	}{"token/warm": {token, false, 0}, "token/cold": {token, true, 1}, "jwt/warm": {identity, false, 0}, "jwt/cold": {identity, true, 0}} {
		b.Run(name, func(b *testing.B) {
			gate := access.New(s, store)
			h := gate.Protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
			r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, path, nil)
			r.Header.Set("Authorization", bench.credential)
			h.ServeHTTP(httptest.NewRecorder(), r)
			store.reads.Store(0)
			for b.Loop() {
				if bench.cold {
					access.Forget(gate)
				}
				w := httptest.NewRecorder()
				if h.ServeHTTP(w, r); w.Code != http.StatusNoContent {
					b.Fatal(w.Code)
				}
			}
			reads := float64(store.reads.Load()) / float64(b.N)
			b.ReportMetric(reads, "reads/op")
			if reads != bench.reads {
				b.Errorf("%v look-ups for each request, want %v", reads, bench.reads)
			}
		})
	}
}
