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
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/larder-registry/larder/internal/testkit/clock"
	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/registry"
)

// records stores tokens by digest, and counts lookups.
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

// sign signs claims with a key id in the header.
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

// anySubject returns settings in which every token of an issuer with the
// audience a may read everything.
func anySubject(issuer string) string {
	return fmt.Sprintf(
		`{"issuers": [{"issuer": %q, "audiences": ["a"], "rules": [{"claims": {"sub": "**"}, "scopes": ["read:**"]}]}]}`,
		issuer,
	)
}

// protected is access control in front of a handler that counts its requests.
type protected struct {
	http.Handler
	reached atomic.Int64
	log     strings.Builder
}

func protect(control *access.Control) *protected {
	p := &protected{}
	p.Handler = httpapi.Wrap(slog.New(
		slog.NewTextHandler(&p.log, nil),
	), control.RequireRead(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
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

// errorsOf returns the errors of a request log, one per line.
func errorsOf(log string) string {
	var found strings.Builder
	for line := range strings.Lines(log) {
		if _, err, ok := strings.Cut(line, " error="); ok {
			found.WriteString(err)
		}
	}
	return found.String()
}

func TestToken(t *testing.T) {
	t.Parallel()
	store := &records{}
	ci, other, publisher := store.add("ci", "read:modules/acme/*"), store.add(
		"other", "read:modules/other/**", "read:providers/**",
	), store.add("publisher", "publish:**")
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
	if w := p.get(t, path); w.Header().Get("WWW-Authenticate") != `Bearer realm="larder"` ||
		w.Header().Get("Cache-Control") != "no-store" {
		t.Error(w.Header())
	}
	const challenge = `Bearer realm="larder", error="invalid_token"`
	if w := p.get(t, path, "Bearer larder_x"); w.Header().Get("WWW-Authenticate") != challenge {
		t.Error(w.Header())
	}
	for _, secret := range []string{ci, other, ci[7:20]} {
		if strings.Contains(p.log.String(), secret) {
			t.Error("the log has a token")
		}
	}
	if !strings.Contains(p.log.String(), `caller="token ci"`) {
		t.Errorf("the log does not name the caller:\n%s", &p.log)
	}
}

// A decision is cached for a minute, whether good or bad, and then made again.
func TestDecisionsAreCached(t *testing.T) {
	t.Parallel()
	store := &records{}
	token := store.add("ci", "read:**")
	bad, _ := access.NewToken()
	control := access.New(access.Settings{}, store)
	wall := clock.At(time.Now())
	access.SetClock(control, wall)
	p := protect(control)
	for range 3 {
		p.want(t, 200, path, "Bearer "+token)
		p.want(t, 401, path, "Bearer "+bad)
	}
	if n := store.reads.Load(); n != 2 {
		t.Errorf("%d reads for two credentials", n)
	}
	clear(store.tokens) // revoked
	wall.Pass(59 * time.Second)
	p.want(t, 200, path, "Bearer "+token)
	wall.Pass(time.Second)
	p.want(t, 401, path, "Bearer "+token)
	// A table that fails is not a decision.
	store.err = registry.ErrUnavailable
	other, digest := access.NewToken()
	p.want(t, 503, path, "Bearer "+other)
	store.err = nil
	store.tokens[digest] = registry.Token{Name: "other", Scopes: []string{"read:**"}}
	p.want(t, 200, path, "Bearer "+other)
	// An invalid record is not the caller's mistake.
	p.want(t, 500, path, "Bearer "+store.add("invalid", "read"))
	// A clock that is set back does not extend a decision.
	wall.Pass(-time.Hour)
	delete(store.tokens, digest)
	p.want(t, 401, path, "Bearer "+other)
	wall.Pass(time.Hour + time.Second)
	p.want(t, 401, path, "Bearer "+other)
	// A token that expires earlier is rejected then.
	short, digest := access.NewToken()
	ends := wall.Now().Add(10 * time.Second)
	store.tokens[digest] = registry.Token{Name: "short", Scopes: []string{"read:**"}, ExpiresAt: ends}
	p.want(t, 200, path, "Bearer "+short)
	wall.Set(ends)
	p.want(t, 401, path, "Bearer "+short)
}

// A credential that expires or becomes valid within the minute does so on time.
func TestDecisionsEnd(t *testing.T) {
	t.Parallel()
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	i := newIssuer(t, public(&key.PublicKey, "1"))
	for name, test := range map[string]struct {
		claim         string
		at            time.Duration
		before, after int
		turn          time.Duration
	}{
		"expires":    {"exp", 10 * time.Second, 200, 401, 40*time.Second + 1},
		"not before": {"nbf", 40 * time.Second, 401, 200, 10 * time.Second},
		"issued at":  {"iat", 50 * time.Second, 401, 200, 20 * time.Second},
	} {
		control := access.New(parse(t, anySubject(i.URL)), &records{})
		begin := time.Unix(1_800_000_000, 0)
		wall := clock.At(begin)
		access.SetClock(control, wall)
		p := protect(control)
		c := map[string]any{"iss": i.URL, "aud": "a", "sub": name, "exp": begin.Add(time.Hour).Unix()}
		c[test.claim] = begin.Add(test.at).Unix()
		token := "Bearer " + sign(t, jose.ES256, key, "1", c)
		p.want(t, test.before, path, token)
		wall.Set(begin.Add(test.turn - 2))
		p.want(t, test.before, path, token)
		wall.Set(begin.Add(test.turn))
		p.want(t, test.after, path, token)
	}
}

// The clocks count the time during which a laptop sleeps or a function is
// frozen.
func TestClocks(t *testing.T) {
	t.Parallel()
	for n, now := range access.Clocks(access.New(parse(t, anySubject("https://a.example.com")), &records{})) {
		if text := now().String(); strings.Contains(text, "m=") {
			t.Errorf("clock %d counts the time of the process: %s", n, text)
		}
	}
}

// The caches are bounded. Bad credentials cannot evict good ones, and neither
// can credentials without a scope.
func TestFlood(t *testing.T) {
	t.Parallel()
	store := &records{}
	token := "Bearer " + store.add("ci", "read:**")
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	i := newIssuer(t, public(&key.PublicKey, "1"))
	control := access.New(parse(t, strings.Replace(anySubject(i.URL), `"**"`, `"somebody"`, 1)), store)
	begin := time.Now()
	access.SetClock(control, clock.At(begin))
	h := control.RequireRead(http.NotFoundHandler())
	send := func(credential string) int {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		r.Header.Set("Authorization", credential)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	send(token)
	send(
		"Bearer " + sign(
			t, jose.ES256, key, "1",
			map[string]any{"iss": i.URL, "aud": "a", "sub": "anybody", "exp": begin.Add(time.Hour).Unix()},
		),
	)
	if good, bad := access.Decisions(control); good != 1 || bad != 1 {
		t.Errorf("%d good and %d bad decisions are cached", good, bad)
	}
	for n := range access.MaxDecisions + 100 {
		if code := send(fmt.Sprint("Bearer bad", n)); code != 401 {
			t.Fatal(code)
		}
	}
	if send(token); store.reads.Load() != 1 {
		t.Error("a good one was driven out")
	}
	for n := range access.MaxDecisions + 100 {
		send("Bearer " + store.add(fmt.Sprint(n), "read:**"))
	}
	if good, bad := access.Decisions(control); good != access.MaxDecisions || bad != access.MaxDecisions {
		t.Errorf("%d good and %d bad decisions are cached", good, bad)
	}
}

func TestPublic(t *testing.T) {
	t.Parallel()
	p := protect(access.New(parse(t, `{"public": ["modules/acme/vpc/*", "mirror/**"]}`), &records{}))
	p.want(t, 200, path)
	p.want(t, 200, path, "Bearer ") // a variable that is set to an empty value
	p.want(t, 200, "/v1/mirror/registry.opentofu.org/hashicorp/null/index.json")
	p.want(t, 401, "/v1/modules/acme/other/aws/versions")
	p.want(t, 401, path, "Bearer nonsense") // a bad credential is never treated like none
	p.want(t, 401, "/v1/unknown/thing")
	p.want(t, 401, "/v1/modules")
}

// TestBadCredentials sends credentials that clients may send, and checks which
// are valid.
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

	people := newIssuer(t, public(&rsaKey.PublicKey, "rsa"), public(&ecKey.PublicKey, "ec"), public(edPublic, "ed"),
		public(&smallKey.PublicKey, "small"), public(&p384.PublicKey, "p384"),
		jose.JSONWebKey{Key: &rsaKey.PublicKey, KeyID: "rs512", Algorithm: "RS512"},
		jose.JSONWebKey{
			Key: &ecKey.PublicKey, KeyID: "enc", Use: "enc",
		}, jose.JSONWebKey{Key: []byte("0123456789abcdef0123456789abcdef"), KeyID: "shared"})
	ci := newIssuer(t, public(&strangerKey.PublicKey, "ci"))
	const audience = "https://registry.example.com"
	settings := parse(t, fmt.Sprintf(`{"issuers": [
		{"issuer": %q, "audiences": [%q], "clientIds": ["cli"],
		"rules": [{"claims": {"sub": "**"}, "scopes": ["read:modules/acme/*"]}]},
		{"issuer": %q, "audiences": ["ci"], "rules": [{"claims": {"repository": "acme/*"}, "scopes": ["read:**"]}]}
	]}`, people.URL, audience, ci.URL))
	store := &records{}
	good, _ := access.NewToken()
	control := access.New(settings, store)
	now := time.Unix(1_800_000_000, 0)
	access.SetClock(control, clock.At(now))
	p := protect(control)

	claims := func(change ...any) map[string]any {
		c := map[string]any{
			"iss": people.URL, "sub": "ada", "aud": audience, "exp": now.Add(time.Hour).Unix(), "iat": now.Unix(),
		}
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
	// headed returns a token that is valid except for its header.
	headed := func(header string) string { return forge(t, rsaKey, `{"alg":"RS256","kid":"rsa"`+header+`}`, body) }
	split := func(token string) []string { return strings.Split(token, ".") }
	valid := with()
	// A well-known attack: the public key as the secret of an HMAC.
	hmac := sign(t, jose.HS256, x509.MarshalPKCS1PublicKey(&rsaKey.PublicKey), "rsa", claims())

	for name, ok := range map[string]string{
		"RS256":                               sign(t, jose.RS256, rsaKey, "rsa", claims()),
		"ES256":                               valid,
		"EdDSA":                               sign(t, jose.EdDSA, edKey, "ed", claims()),
		"no key id":                           sign(t, jose.ES256, ecKey, "", claims()),
		"nearly the longest":                  with("pad", strings.Repeat("a", access.MaxCredential*3/4-1000)),
		"the host written in another way":     with("aud", "https://Registry.example.com:443"),
		"two audiences":                       with("aud", []string{"other", audience}),
		"expired by less than the leeway":     with("exp", at(-29*time.Second)),
		"not before, by less than the leeway": with("nbf", at(29*time.Second)),
		"issued by a clock ahead":             with("iat", at(29*time.Second)),
		"Cognito's":                           with("aud", nil, "client_id", "cli", "token_use", "access"),
		"no type":                             headed(``),
		"type in small letters":               headed(`,"typ":"jwt"`),
		"media type":                          headed(`,"typ":"application/jwt"`),
		"access token":                        headed(`,"typ":"at+jwt"`),
		"access token's media type":           headed(`,"typ":"Application/AT+JWT"`),
	} {
		if w := p.get(t, path, "Bearer "+ok); w.Code != 200 {
			t.Errorf("%s: %d\n%s", name, w.Code, &p.log)
		}
	}
	p.reached.Store(0)
	bad := map[string][]string{
		"no header":                        nil,
		"empty header":                     {""},
		"empty bearer":                     {"Bearer "},
		"bearer alone":                     {"Bearer"},
		"blanks":                           {"Bearer    "},
		"basic":                            {"Basic YTpi"},
		"basic with a good token":          {"Basic " + valid},
		"token scheme":                     {"Token " + valid},
		"no scheme":                        {valid},
		"two headers":                      {"Bearer " + valid, "Bearer " + valid},
		"two headers, one bad":             {"Bearer x", "Bearer " + valid},
		"scheme twice":                     {"Bearer Bearer " + valid},
		"a tab":                            {"Bearer\t" + valid},
		"quoted":                           {`Bearer "` + valid + `"`},
		"non-ASCII":                        {"Bearer t\u00f6ken"},
		"invalid UTF-8":                    {"Bearer \xff\xfe"},
		"a NUL":                            {"Bearer a\x00b"},
		"only dots":                        {"Bearer .."},
		"opaque":                           {"Bearer 0123456789abcdef"},
		"token with one character changed": {"Bearer larder_" + flip(good[7:])},
		"prefix alone":                     {"Bearer larder_"},
		"a header that is not base64":      {"Bearer !!!." + split(valid)[1] + "." + split(valid)[2]},
		"encrypted":                        {"Bearer a.b.c.d.e"},
		"JSON serialisation":               {`Bearer {"payload":"a"}`},
	}
	for name, token := range map[string]string{
		"two headers as API Gateway has them": valid + ",Bearer " + valid,
		"two credentials":                     valid + " " + valid,
		"as long as headers may be":           strings.Repeat("a", 60<<10),
		"many dots":                           strings.Repeat(".", 1000),
		"unknown token":                       good,
		"cut token":                           good[:len(good)-1],
		"token with a wrong checksum":         good[:len(good)-1] + "!",
		"token with more":                     good + "0",
		"the digest of a token":               hex.EncodeToString(make([]byte, 32)),
		"alg none":                            raw(`{"alg":"none","typ":"JWT"}`, ""),
		"alg None":                            raw(`{"alg":"None"}`, "x"),
		"no alg":                              raw(`{"typ":"JWT"}`, "x"),
		"HS256 with the public key":           hmac,
		"HS256 with a shared key of the set": sign(
			t, jose.HS256, []byte("0123456789abcdef0123456789abcdef"), "shared", claims(),
		),
		"RS512":                            sign(t, jose.RS512, rsaKey, "rsa", claims()),
		"PS256":                            sign(t, jose.PS256, rsaKey, "rsa", claims()),
		"ES384":                            sign(t, jose.ES384, p384, "p384", claims()),
		"ES256 with a P-384 key":           forge(t, p384, `{"alg":"ES256","kid":"p384"}`, body),
		"ES256 with a P-384 key and no id": forge(t, p384, `{"alg":"ES256"}`, body),
		"a key of another algorithm by its own word": sign(t, jose.RS256, rsaKey, "rs512", claims()),
		"a blank within":                  valid[:30] + " " + valid[30:],
		"a tab within":                    valid[:30] + "\t" + valid[30:],
		"longer than any":                 with("pad", strings.Repeat("a", access.MaxCredential*3/4)),
		"many audiences":                  with("aud", strings.Split(strings.Repeat("somebody ", 500), " ")),
		"a key for encryption":            sign(t, jose.ES256, ecKey, "enc", claims()),
		"a stranger's signature":          sign(t, jose.ES256, strangerKey, "ec", claims()),
		"key id of another issuer":        sign(t, jose.ES256, strangerKey, "ci", claims()),
		"key id of another algorithm":     sign(t, jose.ES256, ecKey, "rsa", claims()),
		"unknown key id":                  sign(t, jose.ES256, ecKey, "nobody", claims()),
		"a path for a key id":             sign(t, jose.ES256, ecKey, "../../keys", claims()),
		"a long key id":                   sign(t, jose.ES256, ecKey, strings.Repeat("k", 5000), claims()),
		"its own key in the header":       embedded(t, strangerKey, claims()),
		"a critical header":               raw(`{"alg":"ES256","kid":"ec","crit":["exp"],"exp":1}`, "x"),
		"no critical header, as a list":   headed(`,"crit":[]`),
		"no critical header, as null":     headed(`,"crit":null`),
		"a critical header that is there": headed(`,"crit":["b64"],"b64":true`),
		"logout token":                    headed(`,"typ":"logout+jwt"`),
		"DPoP proof":                      headed(`,"typ":"dpop+jwt"`),
		"security event":                  headed(`,"typ":"secevent+jwt"`),
		"client's assertion":              headed(`,"typ":"client-authentication+jwt"`),
		"JWE's type":                      headed(`,"typ":"JOSE"`),
		"another media type":              headed(`,"typ":"text/jwt"`),
		"prefix of a type twice":          headed(`,"typ":"application/application/jwt"`),
		"empty type":                      headed(`,"typ":""`),
		"a type that is not a string":     headed(`,"typ":["JWT"]`),
		"another issuer":                  with("iss", "https://elsewhere.example.com"),
		"the other issuer's name":         with("iss", ci.URL),
		"no issuer":                       with("iss", nil),
		"issuer with a slash more":        with("iss", people.URL+"/"),
		"issuer of another type":          with("iss", []string{people.URL}),
		"another audience":                with("aud", "somebody"),
		"another path":                    with("aud", audience+"/a"),
		"the other issuer's audience":     with("aud", "ci"),
		"no audience":                     with("aud", nil),
		"empty audience":                  with("aud", ""),
		"another client":                  with("aud", nil, "client_id", "somebody", "token_use", "access"),
		"an ID token of the client":       with("aud", nil, "client_id", "cli", "token_use", "id"),
		"our client, for somebody else":   with("aud", "somebody", "client_id", "cli", "token_use", "access"),
		"expired":                         with("exp", at(-time.Hour)),
		"expired by more than the leeway": with("exp", at(-31*time.Second)),
		"never expires":                   with("exp", nil),
		"expires at a text":               with("exp", "tomorrow"),
		"expires in the past, negative":   with("exp", -1),
		"not yet valid":                   with("nbf", at(31*time.Second)),
		"issued in the future":            with("iat", at(31*time.Second)),
		"signature cut off":               strings.Join(split(valid)[:2], ".") + ".",
		"signature of another":            strings.Join(split(valid)[:2], ".") + "." + split(with("sub", "eve"))[2],
		"claims changed": split(valid)[0] + "." + segment(strings.Replace(string(body), "ada", "eve", 1)) + "." +
			split(valid)[2],
		"claims that are no JSON": split(valid)[0] + "." + segment("{") + "." + split(valid)[2],
		"claims that are a list":  split(valid)[0] + "." + segment("[]") + "." + split(valid)[2],
	} {
		bad[name] = []string{"Bearer " + token}
	}
	for _, header := range []string{
		"Digest username=a", "Negotiate YTpi", "AWS4-HMAC-SHA256 Credential=a", "DPoP " + valid, "Bearer:", "Bearer: " + valid,
		"Bearer a, Bearer b", "Bearer =", "Bearer ...", "Bearer ....", "Bearer -", "Bearer {}", "Bearer null", "Bearer true",
		"Bearer %00", "Bearer ' OR '1'='1", "Bearer *", "Bearer ../../x", "Bearer ${jndi:ldap://a}",
		"Basic " + base64.StdEncoding.EncodeToString([]byte("larder:"+good)),
	} {
		bad["the header "+header] = []string{header}
	}
	for _, token := range []string{
		strings.ToUpper(good), "larder_" + strings.ToUpper(good[7:]), good[7:], "pantry_" + good[7:], good + good, good + ".",
		good + "/", good + "%00", good + "=", "larder_" + strings.Repeat("0", len(good)-7), good[:20] + " " + good[20:],
		"larder_" + strings.Repeat("\u00e9", 49), base64.StdEncoding.EncodeToString([]byte(good)),
	} {
		bad["the token "+token] = []string{"Bearer " + token}
	}
	for _, header := range []string{
		`,"alg":"none"`, `,"alg":["RS256"]`, `,"kid":1`, `,"kid":"' OR 1=1--"`, `,"crit":["b64"],"b64":false`,
		`,"kid":"evil","jku":"` + people.URL + `/evil"`, `,"kid":"evil","x5u":"` + people.URL + `/evil"`,
	} {
		bad["the header with "+header] = []string{"Bearer " + headed(header)}
	}
	for _, algorithm := range []string{"", "NONE", "HS512", "RS384", "PS512", "RSA1_5", "dir", "rs256"} {
		header := `{"alg":"` + algorithm + `","kid":"rsa"}`
		bad["the algorithm "+algorithm] = []string{"Bearer " + forge(t, rsaKey, header, body)}
	}
	for name, values := range map[string][]any{
		"exp": {0, []int{1}, json.RawMessage("null")}, "nbf": {"x"},
		"aud": {[]string{"a", "b"}, []string{}, audience + " ", 1, map[string]string{"a": audience}},
		"iss": {"", 1, people.URL + "?a", strings.ToUpper(people.URL), strings.Replace(people.URL, "://", "://evil@", 1)},
	} {
		for _, value := range values {
			bad[fmt.Sprintf("%s is %#v", name, value)] = []string{"Bearer " + with(name, value)}
		}
	}
	for _, payload := range []string{
		strings.TrimSuffix(string(body), "}") + `,"iss":"https://evil.example"}`,
		strings.TrimSuffix(string(body), "}") + `,"aud":"other"}`, strings.TrimSuffix(string(body), "}") + `,"exp":1}`,
		"", "evil", `"evil"`, "null", "[" + string(body) + "]", string(body) + string(body), strings.Repeat(`{"a":`, 5000),
	} {
		bad[fmt.Sprintf("the payload %.300s", payload)] = []string{
			"Bearer " + forge(t, rsaKey, `{"alg":"RS256","kid":"rsa"}`, []byte(payload)),
		}
	}
	// Some releases of Go do not sign with such a key.
	if small := forge(t, smallKey, `{"alg":"RS256","kid":"small"}`, body); small != "" {
		bad["a small key"] = []string{"Bearer " + small}
	}
	if len(bad) < 140 {
		t.Errorf("%d credentials", len(bad))
	}
	for name, headers := range bad {
		w := p.get(t, path, headers...)
		if w.Code != 401 || !strings.HasPrefix(w.Header().Get("WWW-Authenticate"), "Bearer ") ||
			w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %v", name, w.Code, w.Header())
		}
	}
	if n := p.reached.Load(); n != 0 {
		t.Errorf("%d requests went through", n)
	}
	if n := people.fetches.Load() + ci.fetches.Load(); n > 4 {
		t.Errorf("%d fetches from two issuers", n)
	}
	if n := store.reads.Load(); n != 1 { // for the unknown token
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

// forge signs with a key that the library would reject. It returns an empty
// string if Go rejects it.
func forge(t *testing.T, key crypto.Signer, header string, body []byte) string {
	t.Helper()
	text := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString(body)
	digest := sha256.Sum256([]byte(text))
	signature, err := key.Sign(rand.Reader, digest[:], crypto.SHA256)
	if err != nil {
		t.Log("left out:", err)
		return ""
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// Invalid characters are rejected before anything else is checked.
func TestCharacters(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	control := access.New(access.Settings{}, &records{})
	for _, credential := range []string{
		"a b", "a\tb", "a\x00b", "a\x7fb", `"ab"`, "a,b", "a;b", "a:b", "a%b", "a!b", "a\u00e4b", "a\xffb", "larder_\nb",
		"a.b.c\n",
	} {
		p := protect(control)
		p.want(t, 401, path, "Bearer "+credential)
		texts.Text(t, fmt.Sprintf("%q: %s", credential, errorsOf(p.log.String())))
	}
	p := protect(control)
	const valid = "Az09-._~+/="
	p.want(t, 401, path, "Bearer "+valid)
	texts.Text(t, fmt.Sprintf("%q: %s", valid, errorsOf(p.log.String())))
}

// A key is used only for the algorithm of its type, whatever a header contains.
func TestFits(t *testing.T) {
	t.Parallel()
	rsaKey, _ := rsa.GenerateKey(rand.Reader, 2048)
	ecKey, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	p384, _ := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	edKey, edPrivate, _ := ed25519.GenerateKey(rand.Reader)
	small := &rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), 2046), E: 65537} // 2047 bits
	for name, test := range map[string]struct {
		key  jose.JSONWebKey
		id   string
		want string // the algorithms that the key fits
	}{
		"RSA":                 {public(&rsaKey.PublicKey, "a"), "a", "RS256"},
		"P-256":               {public(&ecKey.PublicKey, "a"), "a", "ES256"},
		"P-384":               {public(&p384.PublicKey, "a"), "a", ""},
		"Ed25519":             {public(edKey, "a"), "a", "EdDSA"},
		"small RSA":           {public(small, "a"), "a", ""},
		"a secret":            {public([]byte("0123456789abcdef0123456789abcdef"), "a"), "a", ""},
		"private":             {public(edPrivate, "a"), "a", ""},
		"no id in the header": {public(&ecKey.PublicKey, "a"), "", "ES256"},
		"another id":          {public(&ecKey.PublicKey, "a"), "b", ""},
		"no id of the key":    {public(&ecKey.PublicKey, ""), "b", ""},
		"its own algorithm":   {jose.JSONWebKey{Key: &rsaKey.PublicKey, Algorithm: "RS256"}, "", "RS256"},
		"another of its own":  {jose.JSONWebKey{Key: &rsaKey.PublicKey, Algorithm: "RS512"}, "", ""},
		"another kind's alg":  {jose.JSONWebKey{Key: &rsaKey.PublicKey, Algorithm: "ES256"}, "", ""},
		"alg none":            {jose.JSONWebKey{Key: &ecKey.PublicKey, Algorithm: "none"}, "", ""},
	} {
		var fit []string
		for _, algorithm := range []string{"RS256", "ES256", "EdDSA", "RS512", "PS256", "ES384", "HS256", "none", ""} {
			if access.Fits(test.key, jose.Header{KeyID: test.id, Algorithm: algorithm}) {
				fit = append(fit, algorithm)
			}
		}
		if got := strings.Join(fit, " "); got != test.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// embedded returns a token with its own key in the header, which must be
// ignored.
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

// A CI job may read with the right repository, and not with another.
func TestWorkloadIdentity(t *testing.T) {
	t.Parallel()
	key, _ := rsa.GenerateKey(rand.Reader, 2048)
	actions := newIssuer(t, public(&key.PublicKey, "a"))
	p := protect(access.New(parse(t, fmt.Sprintf(`{"issuers": [{"issuer": %q,
		"audiences": ["https://registry.example.com"], "rules": [
		{"claims": {"repository": "acme/infrastructure", "ref": "refs/heads/**"}, "scopes": ["read:modules/acme/*"]},
		{"claims": {"repository_owner_id": "123456", "environment": "production"}, "scopes": ["read:providers/**"]}
	]}]}`, actions.URL)), &records{}))
	job := func(change ...string) string {
		c := map[string]any{
			"iss": actions.URL, "aud": "https://registry.example.com", "sub": "repo:acme/infrastructure:ref:refs/heads/main",
			"jti": "1", "exp": time.Now().Add(5 * time.Minute).Unix(), "iat": time.Now().Unix(), "nbf": time.Now().Add(
				-5 * time.Minute,
			).Unix(),
			"repository": "acme/infrastructure", "repository_owner": "acme", "repository_owner_id": "123456",
			"ref": "refs/heads/main", "event_name": "push", "run_id": "7",
			"job_workflow_ref": "acme/infrastructure/.github/workflows/ci.yml@refs/heads/main",
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
		{`{"org": "1234567"}`, `{"org": 1234567}`, 200},
		{`{"org": "1.234567e+06"}`, `{"org": 1234567}`, 403},
		{`{"org": "9007199254740991"}`, `{"org": 9007199254740991}`, 200},
		{`{"org": "9007199254740992"}`, `{"org": 9007199254740993}`, 403}, // equal as JSON numbers
		{`{"org": "**"}`, `{"org": -9007199254740993}`, 403},
		{`{"score": "0.5"}`, `{"score": 0.5}`, 200},
		{`{"repository": "acme/*"}`, `{"repository": "acme/infra-a"}`, 200},
		{`{"repository": "acme/infra"}`, `{"repository": "acme/infra/evil"}`, 403},
		{`{"repository": "acme/infra"}`, `{"repository": "acme"}`, 403},
		{`{"repository": "acme/infra"}`, `{"repository": "ACME/INFRA"}`, 403},
		{`{"repository": "acme/infra"}`, `{"repository": "*/*"}`, 403},
		{`{"repository": "acme/infra"}`, `{"repository": "**"}`, 403},
		{`{"repository": "acme/infra"}`, `{"repository": {"a": "acme/infra"}}`, 403},
		{`{"repository": "acme/infra"}`, `{"repository": ""}`, 403},
		{`{"repository": "acme/infra"}`, `{"repository": "acme/infra\u0000"}`, 403},
		{`{"repository": "acme/infra"}`, `{"repository": "acme/infra/"}`, 403},
		{`{"repository": "acme/infra"}`, `{"repository": " acme/infra"}`, 403},
		{`{"https://example.com/role": "reader"}`, `{"https://example.com/role": "reader"}`, 200},
	} {
		p := protect(access.New(parse(t, fmt.Sprintf(
			`{"issuers": [{"issuer": %q, "audiences": ["a"], "rules": [{"claims": %s, "scopes": ["read:**"]}]}]}`,
			i.URL, test.rule)), &records{}))
		c := map[string]any{"iss": i.URL, "aud": "a", "sub": "x", "exp": time.Now().Add(time.Hour).Unix()}
		var more map[string]json.RawMessage // unchanged numbers
		if err := json.Unmarshal([]byte(test.claims), &more); err != nil {
			t.Fatal(err)
		}
		for name, value := range more {
			c[name] = value
		}
		p.want(t, test.status, path, "Bearer "+sign(t, jose.ES256, key, "a", c))
	}
}

func TestSettingsRefused(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	issuer := func(change string) string {
		return `{"issuers": [{"issuer": "https://a.example.com", "audiences": ["x"], "rules": [{"claims": {"sub": "a"}, ` +
			`"scopes": ["read:**"]}]` + change + `}]`
	}
	for _, text := range []string{
		`{`, `[]`, `{"publik": []}`, `{} {}`,
		`{"public": ["modules/ac*me"]}`,
		`{"public": ["module/acme"]}`,
		`{"public": ["mirror-module/example.com"]}`,
		`{"public": ["Mirror-Modules/example.com"]}`,
		`{"public": ["modules-of/example.com"]}`,
		`{"public": ["none/of/these"]}`,
		`{"public": ["modules/a/b/c/d"]}`,
		`{"public": ["mirror/example.com/acme/vpc/aws"]}`,
		`{"public": ["mirror-modules/example.com/acme/vpc/aws/1.0.0"]}`,
		`{"public": ["modules//a"]}`,
		`{"public": ["/modules"]}`,
		`{"public": ["**/a/**/b/**"]}`,
		`{"public": [""]}`,
		`{"public": ["` + strings.Repeat("a", 300) + `"]}`,
		`{"issuers": [{"issuer": "http://a.example.com", "audiences": ["x"]}]}`,
		`{"issuers": [{"issuer": "a", "audiences": ["x"]}]}`,
		`{"issuers": [{"issuer": "https://a.example.com?p=1", "audiences": ["x"]}]}`,
		`{"issuers": [{"issuer": "https://a.example.com?", "audiences": ["x"]}]}`,
		`{"issuers": [{"issuer": "https://a.example.com#a", "audiences": ["x"]}]}`,
		`{"issuers": [{"issuer": "https://u:p@a.example.com", "audiences": ["x"]}]}`,
		`{"issuers": [{"issuer": "https://:443", "audiences": ["x"]}]}`,
		`{"issuers": [{"issuer": "http://10.0.0.1", "audiences": ["x"]}]}`,
		strings.Replace(issuer("")+"}", `"sub": "a"`, `"email": "*@example.com"`, 1),
		strings.Replace(issuer("")+"}", `"sub": "a"`, `"repository": "acme/infra-*"`, 1),
		strings.Replace(issuer("")+"}", `"sub": "a"`, `"sub": "repo:acme/x:*"`, 1),
		strings.Replace(issuer("")+"}", `"sub": "a"`, `"sub": "acme/***"`, 1),
		`{"issuers": [{"issuer": "https://a.example.com"}]}`,
		`{"issuers": [{"issuer": "https://a.example.com", "audiences": [""]}]}`,
		`{"issuers": [{"issuer": "https://a.example.com", "audiences": ["x"]}]}`,
		strings.Replace(issuer("")+"}", `{"sub": "a"}`, `{}`, 1),
		strings.Replace(issuer("")+"}", `"read:**"`, `"write:**"`, 1),
		strings.Replace(issuer("")+"}", `["read:**"]`, `[]`, 1),
		strings.Replace(issuer("")+"}", `"sub": "a"`, `"sub": ""`, 1),
		strings.Replace(issuer("")+"}", `"sub": "a"`, `"sub": "**/a/**/b/**"`, 1),
		issuer("") + `, "login": {"issuer": "https://b.example.com", "client": "c"}}`,
		issuer("") + `, "login": {"issuer": "https://a.example.com"}}`,
		issuer("") + `, "login": {"issuer": "https://a.example.com", "client": "c", "ports": [10000, 10009]}}`,
		issuer("") + `, "login": {"issuer": "https://a.example.com", "client": "c", "ports": [80, 10009]}}`,
		issuer("") + `, "login": {"issuer": "https://a.example.com", "client": "c", "authorize": ` +
			`{"redirect_uri": "http://x"}}}`,
	} {
		_, err := access.ParseSettings([]byte(text))
		if !errors.Is(err, registry.ErrInvalid) {
			t.Errorf("%s: %v is not registry.ErrInvalid", text, err)
		}
		texts.Error(t, err)
	}
	twice := parse(t, issuer("")+"}").Issuers[0]
	both, _ := json.Marshal(access.Settings{Issuers: []access.Issuer{twice, twice}})
	if _, err := access.ParseSettings(both); err == nil {
		t.Error("an issuer twice is accepted")
	}
}

// An error has the position in the file, even if a value has the right type but
// is invalid.
func TestSettingsFile(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	const good = `{
  "public": ["modules/acme/*"],
  "issuers": [
    {
      "issuer": "https://a.example.com",
      "audiences": ["x"],
      "rules": [{"claims": {"group": "a"}, "scopes": ["read:**"]}]
    }
  ],
  "login": {"issuer": "https://a.example.com", "client": "c"}
}`
	if _, err := access.ParseSettingsFile("access.json", []byte(good)); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ old, new, place string }{
		"a field misspelt":    {`"issuers"`, `"isuers"`, "3:3:"},
		"a field in capitals": {`"audiences"`, `"Audiences"`, "6:7:"},
		"a field twice":       {`"audiences": ["x"]`, `"issuer": "x"`, "6:7:"},
		"no list":             {`["modules/acme/*"]`, `"modules"`, "2:13:"},
		"a number":            {`["x"]`, `[1]`, "6:21:"},
		"null":                {`["x"]`, `null`, "6:20:"},
		"a pattern":           {"modules/acme/*", "modules/ac*", "2:14:"},
		"a scope":             {"read:**", "write:**", "7:55:"},
		"no URL":              {`"https://a.example.com",`, `"a",`, "5:17:"},
		"no audience":         {`["x"]`, `[]`, "6:20:"},
		"no audiences":        {`"audiences": ["x"],`, ``, "4:5:"},
		"a claim":             {`"group": "a"`, `"group": "a*"`, "7:38:"},
		"another's login":     {`"login": {"issuer": "https://a`, `"login": {"issuer": "https://b`, "10:23:"},
		"half a file":         {`"login": {"issuer": "https://a.example.com", "client": "c"}` + "\n}", "", "10:3:"},
		"a comma too many":    {`"c"}`, `"c"},`, "11:1:"},
		"no web client":       {`"c"}`, `"c", "web": {"client": ""}}`, "10:81:"},
		"no field client":     {`"c"}`, `"c", "web": {"secretFile": "a"}}`, "10:70:"},
		"a relative name":     {`"c"}`, `"c", "web": {"client": "w", "secretParameter": "a"}}`, "10:105:"},
		"two secrets": {
			`"c"}`, `"c", "web": {"client": "w", "secretParameter": "/a", "secretFile": "b"}}`, "10:125:",
		},
		"a parameter":   {`"c"}`, `"c", "web": {"client": "w", "secretParameter": "/a"}}`, "10:105:"},
		"no file":       {`"c"}`, `"c", "web": {"client": "w", "secretFile": ""}}`, "10:100:"},
		"spaces":        {`"c"}`, `"c", "web": {"client": "w "}}`, "10:81:"},
		"another field": {`"c"}`, `"c", "web": {"client": "w", "secret": "a"}}`, "10:86:"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := access.ParseSettingsFile("access.json", []byte(strings.Replace(good, test.old, test.new, 1)))
			if !errors.Is(err, registry.ErrInvalid) {
				t.Fatalf("%v is not registry.ErrInvalid", err)
			}
			want := "cannot read the access settings: access.json:" + test.place
			if !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
			texts.Error(t, err)
		})
	}
	// Settings without a file have only the position.
	_, err := access.ParseSettings([]byte(`{"isuers": []}`))
	if err == nil {
		t.Fatal("an unknown field is accepted")
	}
	if !strings.Contains(err.Error(), "line 1, column 2") {
		t.Errorf("%v does not have the place", err)
	}
}

// Parsing and formatting settings does not change them.
func TestSettingsRoundTrip(t *testing.T) {
	t.Parallel()
	const text = `{"public":["modules/acme/*"],"issuers":[{"issuer":"https://a.example.com","audiences":["x"],` +
		`"name":"email","rules":[{"claims":{"groups":"a"},"scopes":["read:**"]}]}],` +
		`"login":{"issuer":"https://a.example.com","client":"c","scopes":["openid","groups"],"ports":[10000,10020],` +
		`"authorize":{"audience":"x"}}}`
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
		{"modules/**/versions", "/v1/modules/acme/vpc/aws/versions", false}, // a document is not a resource
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
		{"mirror/**", "/v1/providers-of/registry.opentofu.org/hashicorp/null/versions", true},
		{"mirror/**", "/v1/modules-of/registry.opentofu.org/acme/vpc/aws/versions", false},
		{"mirror/registry.opentofu.org", "/v1/modules-of/registry.opentofu.org/acme/vpc/aws/versions", false},
		{"modules/**", "/v1/modules-of/registry.opentofu.org/acme/vpc/aws/versions", false},
		{"mirror-modules/**", "/v1/modules-of/registry.opentofu.org/acme/vpc/aws/1.0.0/download", true},
		{"mirror-modules/**", "/v1/modules-of/registry.opentofu.org/.well-known/terraform.json", true},
		{"mirror-modules/**", "/v1/mirror/registry.opentofu.org/hashicorp/null/index.json", false},
		{"mirror-modules/**", "/v1/providers-of/registry.opentofu.org/hashicorp/null/versions", false},
		{"mirror-modules/**", "/v1/modules/acme/vpc/aws/versions", false},
		{"mirror-modules/example.com/acme/vpc/aws", "/v1/modules-of/example.com/acme/vpc/aws/versions", true},
		{"mirror-modules/example.com/Azure/*/*", "/v1/modules-of/example.com/azure/naming/azurerm/versions", true},
		{"mirror-modules/example.com/azure/*/*", "/v1/modules-of/example.com/AZURE/naming/azurerm/versions", true},
		{"modules/Azure/*/*", "/v1/modules/azure/naming/azurerm/versions", false},
		{"mirror-modules/*/acme/*/aws", "/v1/modules-of/registry.opentofu.org/acme/vpc/aws/versions", true},
		{"mirror-modules/**/aws", "/v1/modules-of/registry.opentofu.org/acme/vpc/aws/versions", true},
		{"mirror-modules/**/versions", "/v1/modules-of/registry.opentofu.org/acme/vpc/aws/versions", false},
		{"mirror-modules/registry.terraform.io", "/v1/modules-of/registry.opentofu.org/acme/vpc/aws/versions", false},
		{"**", "/v1/modules-of/registry.opentofu.org/acme/vpc/aws/versions", true},
		// The registry ignores the case.
		{"mirror-modules/registry.opentofu.org/acme", "/v1/modules-of/registry.opentofu.org/Acme/VPC/aws/versions", true},
		{"mirror-modules/registry.opentofu.org/Acme", "/v1/modules-of/registry.opentofu.org/acme/vpc/aws/versions", true},
		{"modules/acme/vpc/aws", "/v1/modules/acme/vpc", false},
		{"modules", "/v1/modules/", true},
		{"modules/*", "/v1/modules/", false}, // a * matches no empty segment
	} {
		p := protect(access.New(parse(t, `{"public": ["`+test.pattern+`"]}`), &records{}))
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

// Every request gets a response, and none without a credential gets through.
func FuzzCredential(f *testing.F) {
	for _, s := range []string{"", "Bearer", "Bearer x", "Bearer a.b.c", "bearer larder_", "Basic a"} {
		f.Add(s)
	}
	control := access.New(access.Settings{}, &records{})
	f.Fuzz(func(t *testing.T, header string) {
		p := protect(control)
		p.want(t, 401, path, header)
	})
}

// A cached credential needs no lookup, and any other exactly one.
func BenchmarkAccessControl(b *testing.B) {
	store := &records{}
	token := "Bearer " + store.add("ci", "read:modules/acme/*")
	key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	i := newIssuer(b, public(&key.PublicKey, "1"))
	s := parse(b, anySubject(i.URL))
	identity := "Bearer " + sign(
		b, jose.ES256, key, "1",
		map[string]any{"iss": i.URL, "aud": "a", "sub": "x", "exp": time.Now().Add(time.Hour).Unix()},
	)
	for name, bench := range map[string]struct {
		credential string
		cold       bool
		reads      float64
	}{
		"token/warm": {token, false, 0}, "token/cold": {token, true, 1}, "jwt/warm": {identity, false, 0},
		"jwt/cold": {identity, true, 0},
	} {
		b.Run(name, func(b *testing.B) {
			control := access.New(s, store)
			h := control.RequireRead(
				http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }),
			)
			r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, path, nil)
			r.Header.Set("Authorization", bench.credential)
			h.ServeHTTP(httptest.NewRecorder(), r)
			store.reads.Store(0)
			for b.Loop() {
				if bench.cold {
					access.Forget(control)
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
