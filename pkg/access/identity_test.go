package access_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/clock"
	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
	"github.com/larder-registry/larder/pkg/registry"
)

// people is an issuer with a key of its own.
type people struct {
	*testIssuer
	key *ecdsa.PrivateKey
}

func newPeople(t testing.TB) people {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return people{newIssuer(t, public(&key.PublicKey, "1")), key}
}

// token returns a token that is valid for an hour, unless the claims set
// something else.
func (p people) token(t testing.TB, claims map[string]any) string {
	t.Helper()
	all := map[string]any{
		"iss": p.URL, "aud": "a", "sub": "ada", "email": "ada@example.com", "exp": time.Now().Add(time.Hour).Unix(),
	}
	maps.Copy(all, claims)
	return sign(t, jose.ES256, p.key, "1", all)
}

// settings are those in which a claim gives a scope.
func (p people) settings(claim, value, scope string) string {
	return fmt.Sprintf(`{"issuers": [{"issuer": %q, "audiences": ["a"], "name": "email",
		"rules": [{"claims": {%q: %q}, "scopes": [%q]}]}]}`, p.URL, claim, value, scope)
}

// stored returns an identity as it is after it was stored.
func stored(t testing.TB, id access.Identity) access.Identity {
	t.Helper()
	text, err := json.Marshal(id)
	if err != nil {
		t.Fatal(err)
	}
	var read access.Identity
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	return read
}

const network = "modules/acme/vpc/aws"

// canRead reports whether an identity may read a module. It returns the error
// of WithIdentity.
func canRead(t testing.TB, c *access.Control, id access.Identity) (bool, error) {
	t.Helper()
	ctx, err := c.WithIdentity(t.Context(), id)
	if err != nil {
		return false, err
	}
	return access.CanRead(ctx, network), nil
}

// An identity of a JWT has its claims and its expiry, and not the JWT. The
// rules of today apply to it.
func TestIdentityOfClaims(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	control := access.New(parse(t, p.settings("team", "7", "read:modules/acme")), &records{})
	until := time.Now().Add(time.Hour).Truncate(time.Second)
	token := p.token(t, map[string]any{"team": 7, "big": 1 << 60, "exp": until.Unix()})
	id, err := control.Verify(t.Context(), token)
	if err != nil {
		t.Fatal(err)
	}
	if id.Name != "ada@example.com" {
		t.Errorf("name %q", id.Name)
	}
	if !id.ExpiresAt.Equal(until) {
		t.Errorf("it expires at %v, not %v", id.ExpiresAt, until)
	}
	if strings.Contains(fmt.Sprint(id), token[strings.LastIndexByte(token, '.')+1:]) {
		t.Error("it has the signature")
	}
	read := stored(t, id)
	if diff := cmp.Diff(id.Claims, read.Claims); diff != "" {
		t.Errorf("claims after storing: %s", diff)
	}
	f := p.fetches.Load()
	for name, test := range map[string]struct {
		settings string
		want     bool
		err      error
	}{
		"the same rules": {p.settings("team", "7", "read:modules/acme"), true, nil},
		"other claims":   {p.settings("team", "8", "read:modules/acme"), false, nil},
		"other scopes":   {p.settings("team", "7", "read:modules/other"), false, nil},
		"inexact number": {p.settings("big", fmt.Sprint(1<<60), "read:**"), false, nil},
		"other audiences": {
			strings.ReplaceAll(p.settings("team", "7", "read:**"), `["a"]`, `["b"]`), false, registry.ErrBadCredential,
		},
		"no issuer": {`{"public": ["modules/**"]}`, false, registry.ErrBadCredential},
	} {
		got, err := canRead(t, access.New(parse(t, test.settings), &records{}), read)
		if got != test.want {
			t.Errorf("%s: can read: %v", name, got)
		}
		if !errors.Is(err, test.err) {
			t.Errorf("%s: %v, want %v", name, err, test.err)
		}
	}
	if got := p.fetches.Load(); got != f {
		t.Errorf("%d requests to the issuer for stored identities", got-f)
	}
}

// An identity ends with its credential.
func TestIdentityExpires(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	control := access.New(parse(t, p.settings("sub", "ada", "read:**")), &records{})
	wall := clock.At(time.Now())
	access.SetClock(control, wall)
	id, err := control.Verify(t.Context(), p.token(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	wall.Set(id.ExpiresAt.Add(-time.Second))
	if ok, err := canRead(t, control, id); !ok {
		t.Errorf("a second before: %v", err)
	}
	wall.Set(id.ExpiresAt)
	if _, err := canRead(t, control, id); !errors.Is(err, registry.ErrBadCredential) {
		t.Errorf("at its expiry: %v, want ErrBadCredential", err)
	}
	// Stored claims count even if the expiry beside them is wrong.
	wall.Pass(time.Hour)
	id.ExpiresAt = time.Time{}
	if _, err := canRead(t, control, id); !errors.Is(err, registry.ErrBadCredential) {
		t.Errorf("an hour later: %v, want ErrBadCredential", err)
	}
}

// An identity of a registry token is valid while the token is. The token is
// looked up once a minute, together with bearers of it.
func TestIdentityOfToken(t *testing.T) {
	t.Parallel()
	r := &records{}
	token := r.add("ci", "read:modules/acme")
	control := access.New(access.Settings{}, r)
	wall := clock.At(time.Now())
	access.SetClock(control, wall)
	id, err := control.Verify(t.Context(), token)
	if err != nil {
		t.Fatal(err)
	}
	if id.Name != "ci" || !id.ExpiresAt.IsZero() {
		t.Errorf("name %q, expiry %v", id.Name, id.ExpiresAt)
	}
	if strings.Contains(fmt.Sprint(id), token) {
		t.Error("it has the token")
	}
	r.reads.Store(0)
	id = stored(t, id)
	for range 3 {
		if ok, err := canRead(t, control, id); !ok {
			t.Errorf("a valid token: %v", err)
		}
	}
	protect(control).want(t, 200, path, "Bearer "+token)
	if n := r.reads.Load(); n != 1 {
		t.Errorf("%d lookups in a minute", n)
	}
	clear(r.tokens)
	wall.Pass(time.Minute)
	if _, err := canRead(t, control, id); !errors.Is(err, registry.ErrBadCredential) {
		t.Errorf("a minute after it was revoked: %v, want ErrBadCredential", err)
	}
}

// The log names the caller of a request with an identity like that of a bearer.
func TestIdentityInLog(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	r := &records{}
	control := access.New(parse(t, p.settings("sub", "ada", "read:**")), r)
	for _, credential := range []string{p.token(t, nil), r.add("ci", "read:**")} {
		var entries [2]requestlog.Entry
		request, err := http.NewRequestWithContext(requestlog.NewContext(t.Context(), &entries[0]), http.MethodGet, path, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+credential)
		_, name, err := control.WithBearer(request)
		if err != nil {
			t.Fatal(err)
		}
		id, err := control.Verify(t.Context(), credential)
		if err != nil {
			t.Fatal(err)
		}
		if name != id.Name {
			t.Errorf("names %q and %q", name, id.Name)
		}
		if _, err := control.WithIdentity(requestlog.NewContext(t.Context(), &entries[1]), id); err != nil {
			t.Fatal(err)
		}
		if entries[0].Caller == "" || entries[0].Caller != entries[1].Caller {
			t.Errorf("callers %q and %q", entries[0].Caller, entries[1].Caller)
		}
	}
}

// A caller without an identity reads what is public.
func TestWithoutIdentity(t *testing.T) {
	t.Parallel()
	ctx, err := access.New(parse(t, `{"public": ["modules/acme"]}`), &records{}).WithoutIdentity(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !access.CanRead(ctx, network) || access.CanRead(ctx, "modules/other/vpc/aws") {
		t.Error("it reads other things than what is public")
	}
	if _, err := access.New(access.Settings{}, &records{}).WithoutIdentity(t.Context()); !errors.Is(
		err, registry.ErrUnauthenticated,
	) {
		t.Errorf("nothing is public: %v, want ErrUnauthenticated", err)
	}
}

// An ID token counts for one login of one client only.
func TestVerifyLogin(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	p, other := newPeople(t), newPeople(t)
	both := strings.TrimSuffix(p.settings("sub", "**", "read:**"), "]}") + "," +
		strings.TrimPrefix(other.settings("sub", "**", "read:**"), `{"issuers": [`)
	control := access.New(parse(t, both), &records{})
	forged := p
	forged.key = other.key
	for name, test := range map[string]struct {
		by     people
		claims map[string]any
		nonce  string
		ok     bool
	}{
		"valid":              {p, nil, "n", true},
		"for several":        {p, map[string]any{"aud": []string{"x", "web"}, "azp": "web"}, "n", true},
		"another client":     {p, map[string]any{"aud": "cli"}, "n", false},
		"for the registry":   {p, map[string]any{"aud": "a"}, "n", false},
		"several, no azp":    {p, map[string]any{"aud": []string{"x", "web"}}, "n", false},
		"another subject":    {p, map[string]any{"sub": "eve"}, "n", false},
		"no subject":         {p, map[string]any{"sub": nil}, "n", false},
		"number as subject":  {p, map[string]any{"sub": 1}, "n", false},
		"given to another":   {p, map[string]any{"aud": []string{"x", "web"}, "azp": "x"}, "n", false},
		"another nonce":      {p, map[string]any{"nonce": "m"}, "n", false},
		"no nonce":           {p, map[string]any{"nonce": nil}, "n", false},
		"number as nonce":    {p, map[string]any{"nonce": 1}, "1", false},
		"no nonce expected":  {p, map[string]any{"nonce": ""}, "", false},
		"expired":            {p, map[string]any{"exp": time.Now().Add(-time.Hour).Unix()}, "n", false},
		"without an expiry":  {p, map[string]any{"exp": nil}, "n", false},
		"of another issuer":  {other, nil, "n", false},
		"names other issuer": {p, map[string]any{"iss": other.URL}, "n", false},
		"other key":          {forged, nil, "n", false},
	} {
		t.Run(name, func(t *testing.T) {
			claims := map[string]any{"aud": "web", "nonce": "n"}
			maps.Copy(claims, test.claims)
			for claim, value := range claims {
				if value == nil {
					claims[claim] = ""
				}
			}
			if value, found := test.claims["exp"]; found && value == nil {
				claims["exp"] = json.RawMessage("null")
			}
			login := access.Login{Issuer: p.URL, Client: "web", Nonce: test.nonce}
			id, err := control.VerifyLogin(t.Context(), login, test.by.token(t, claims), p.token(t, nil))
			if (id.Issuer == p.URL) != test.ok {
				t.Errorf("the identity is of issuer %q", id.Issuer)
			}
			if test.ok {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, registry.ErrBadCredential) {
				t.Errorf("%v, want ErrBadCredential", err)
			}
			if err != nil && !strings.Contains(err.Error(), "expired at") {
				texts.Error(t, err, p.URL, "ISSUER", other.URL, "OTHER")
			}
		})
	}
	login := access.Login{Issuer: p.URL, Client: "web", Nonce: "n"}
	_, err := control.VerifyLogin(t.Context(), login, "larder_"+strings.Repeat("0", 49), p.token(t, nil))
	if !errors.Is(err, registry.ErrBadCredential) {
		t.Errorf("no JWT: %v, want ErrBadCredential", err)
	}
}

// The subjects of Entra differ between applications, so its object ids count.
func TestSamePerson(t *testing.T) {
	t.Parallel()
	const entra = "https://login.microsoftonline.com/01234567-89ab-cdef-0123-456789abcdef/v2.0"
	for name, test := range map[string]struct {
		issuer  string
		id, own map[string]any
		want    bool
	}{
		"same subject":    {"https://a.example", map[string]any{"sub": "ada"}, map[string]any{"sub": "ada"}, true},
		"other subject":   {"https://a.example", map[string]any{"sub": "ada"}, map[string]any{"sub": "eve"}, false},
		"no subject":      {"https://a.example", map[string]any{}, map[string]any{}, false},
		"same object":     {entra, map[string]any{"sub": "1", "oid": "ada"}, map[string]any{"sub": "2", "oid": "ada"}, true},
		"other object":    {entra, map[string]any{"sub": "1", "oid": "ada"}, map[string]any{"sub": "1", "oid": "eve"}, false},
		"no object":       {entra, map[string]any{"sub": "1"}, map[string]any{"sub": "2", "oid": "ada"}, false},
		"another cloud":   {"https://acme.ciamlogin.com/x/v2.0", map[string]any{"sub": "1", "oid": "ada"}, map[string]any{"sub": "2", "oid": "ada"}, true},
		"Okta":            {"https://acme.okta.com", map[string]any{"sub": "00u1"}, map[string]any{"sub": "ada@example.com", "uid": "00u1"}, true},
		"other of Okta":   {"https://acme.okta.com", map[string]any{"sub": "00u1"}, map[string]any{"sub": "eve@example.com", "uid": "00u2"}, false},
		"not from Entra":  {"https://a.example", map[string]any{"oid": "ada"}, map[string]any{"oid": "ada"}, false},
		"looks like text": {"https://a.example", map[string]any{"sub": 1.0}, map[string]any{"sub": 1.0}, false},
	} {
		if got := access.SamePerson(test.issuer, test.id, test.own); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// A credential that is not valid has no identity.
func TestVerifyRefused(t *testing.T) {
	t.Parallel()
	p := newPeople(t)
	r := &records{tokens: make(map[string]registry.Token)}
	control := access.New(parse(t, p.settings("sub", "ada", "read:**")), r)
	unknown, _ := access.NewToken()
	capitals := sign(t, jose.ES256, p.key, "1", map[string]any{
		"iss": p.URL, "aud": "a", "sub": "ada", "EXP": time.Now().Add(time.Hour).Unix(),
	})
	for name, credential := range map[string]string{
		"empty": "", "text": "secret", "spaces": "a b", "long": strings.Repeat("a", access.MaxCredential+1),
		"unknown token": unknown, "typo": unknown[:len(unknown)-1] + "!",
		"claim in capitals": capitals,
		"other audience":    p.token(t, map[string]any{"aud": "b"}), "expired": p.token(t, map[string]any{"exp": 1}),
	} {
		id, err := control.Verify(t.Context(), credential)
		if !errors.Is(err, registry.ErrBadCredential) {
			t.Errorf("%s: %v, want ErrBadCredential", name, err)
		}
		if diff := cmp.Diff(access.Identity{}, id); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
