package main

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/larder-registry/larder/internal/testkit/issuers"
	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/modules"
)

// credential is the value of an Authorization header.
type credential struct{ name, header string }

// goodClaims returns the claims of a token that the registry accepts.
func goodClaims(issuer string) map[string]any {
	now := time.Now()
	return map[string]any{
		"iss": issuer, "aud": hostileAudience, "sub": "repo:acme/infra", "repository": "acme/infra",
		"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(5 * time.Minute).Unix(),
	}
}

// goodHeader is the header of a token that the registry accepts.
const goodHeader = `{"alg":"RS256","kid":"jobs","typ":"JWT"}`

// asText returns claims as JSON.
func asText(claims map[string]any) string {
	text, err := json.Marshal(claims)
	if err != nil {
		panic(err) // strings and numbers always encode
	}
	return string(text)
}

// badCredentials returns credentials that every registry must reject.
func badCredentials(issuer *issuers.CI) ([]credential, error) {
	var all []credential
	add := func(name, header string) { all = append(all, credential{name, header}) }
	good, _ := access.NewToken() // it is unknown
	add("no credential", "")
	for _, scheme := range []string{
		"", "Bearer", "Bearer ", "bearer", "Basic", "Basic ", "Digest username=a", "Negotiate YTpi", "NTLM YTpi",
		"AWS4-HMAC-SHA256 Credential=a", "Bearer:", "Token a", "ApiKey a", "Mutual a", "HOBA a", "OAuth a", "GNAP a",
		"DPoP a", "PrivateToken token=a", "vapid t=a", "SCRAM-SHA-256 a", "Bearer a b", "Bearer a,b", "Bearer a, Bearer b",
		"Bearer =", "Bearer ====", "Bearer .", "Bearer ..", "Bearer ...", "Bearer ....", "Bearer -", "Bearer ~", "Bearer é",
		"Bearer \xff", "Bearer \"a\"", "Bearer {}", "Bearer null", "Bearer undefined", "Bearer true", "Bearer 0",
		"Bearer %00",
		"Bearer ' OR '1'='1", "Bearer *", "Bearer ../../x", "Bearer larder", "Bearer larder_", "Bearer ${jndi:ldap://a}",
	} {
		add(fmt.Sprintf("the header %q", scheme), scheme)
	}
	for name, token := range map[string]string{
		"an unknown token":      good,
		"a token that is cut":   good[:len(good)-1],
		"a token with more":     good + "0",
		"a token in upper case": strings.ToUpper(good), "a token in lower case": strings.ToLower(good),
		"a token with another prefix": "pantry_" + strings.TrimPrefix(good, "larder_"),
		"a token without a prefix":    strings.TrimPrefix(good, "larder_"),
		"a token of zeros":            "larder_" + strings.Repeat("0", 49),
		"a token twice":               good + good,
		"a token with a space":        good[:20] + " " + good[20:],
		"a token with a dot":          good + ".",
		"a long token":                good + strings.Repeat("a", 9000),
		"a token with a slash":        good + "/",
		"a token with NUL":            good + "%00",
		"a token in base64":           base64.StdEncoding.EncodeToString([]byte(good)),
		"the digest of a token":       sha256Hex([]byte(good)),
		"a token of other letters":    "larder_" + strings.Repeat("é", 49), "a token with =": good + "=",
	} {
		add(name, "Bearer "+token)
		add(name+", as a password", "Basic "+base64.StdEncoding.EncodeToString([]byte("larder:"+token)))
	}
	for i := range 10 {
		// One changed letter makes the token's checksum wrong.
		at := 8 + i*4
		changed := []byte(good)
		changed[at] = map[bool]byte{true: 'A', false: 'B'}[changed[at] == 'B']
		add(fmt.Sprintf("a token with another letter %d", at), "Bearer "+string(changed))
		unknown, _ := access.NewToken()
		add(fmt.Sprintf("unknown token %d", i), "Bearer "+unknown)
	}
	jwts, err := badJWTs(issuer)
	return append(all, jwts...), err
}

// badJWTs returns JWTs with one fault each, of a trusted issuer and of others.
func badJWTs(issuer *issuers.CI) ([]credential, error) {
	var all []credential
	var failed error
	signed := func(name, header, payload string) {
		token, err := issuer.Sign(header, payload)
		failed = errors.Join(failed, err)
		all = append(all, credential{name, "Bearer " + token})
	}
	claims := goodClaims(issuer.URL)
	good := asText(claims)
	for name, header := range jwtHeaders(issuer.URL) {
		signed("a JWT with "+name, header, good)
	}
	for name, change := range jwtClaims(issuer.URL) {
		changed := maps.Clone(claims)
		maps.Copy(changed, change)
		signed("a JWT with "+name, goodHeader, asText(changed))
	}
	for _, missing := range []string{"iss", "aud", "exp", "repository"} {
		changed := maps.Clone(claims)
		delete(changed, missing)
		signed("a JWT without "+missing, goodHeader, asText(changed))
	}
	for name, payload := range map[string]string{
		"an issuer twice":     strings.TrimSuffix(good, "}") + `,"iss":"https://evil.example"}`,
		"an audience twice":   strings.TrimSuffix(good, "}") + `,"aud":"other"}`,
		"an end twice":        strings.TrimSuffix(good, "}") + `,"exp":1}`,
		"no JSON":             "evil",
		"a list":              "[" + good + "]",
		"null":                "null",
		"a text":              `"evil"`,
		"nothing":             "",
		"something behind it": good + good, "deep claims": strings.Repeat(`{"a":`, 5000),
		"JSON that breaks off": good[:len(good)-1],
	} {
		signed("a JWT whose payload is or has "+name, goodHeader, payload)
	}
	unsigned, err := unsignedJWTs(issuer, good)
	return append(all, unsigned...), errors.Join(failed, err)
}

// jwtHeaders returns headers by their fault.
func jwtHeaders(issuer string) map[string]string {
	all := map[string]string{
		"no algorithm":                `{"kid":"jobs"}`,
		"a header that is none":       "evil",
		"an empty header":             "",
		"a header that is a list":     "[]",
		"crit":                        `{"alg":"RS256","kid":"jobs","crit":["evil"],"evil":1}`,
		"an empty crit":               `{"alg":"RS256","kid":"jobs","crit":[]}`,
		"b64 false":                   `{"alg":"RS256","kid":"jobs","crit":["b64"],"b64":false}`,
		"an algorithm twice":          `{"alg":"RS256","alg":"none","kid":"jobs"}`,
		"an algorithm that is a list": `{"alg":["RS256"],"kid":"jobs"}`,
		"a key id of a path":          `{"alg":"RS256","kid":"../../dev/null"}`,
		"a key id of SQL":             `{"alg":"RS256","kid":"' OR 1=1--"}`,
		"a wrong key id":              `{"alg":"RS256","kid":"other"}`,
		"a key id that is a number":   `{"alg":"RS256","kid":1}`,
	}
	for _, algorithm := range []string{
		"none", "None", "NONE", "", "HS256", "HS512", "RS384", "RS512", "PS256", "PS512", "ES256", "ES384", "EdDSA",
		"RSA1_5",
		"dir", "rs256",
	} {
		all["the algorithm "+algorithm] = `{"alg":"` + algorithm + `","kid":"jobs"}`
	}
	for _, kind := range []string{"logout+jwt", "dpop+jwt", "secevent+jwt"} {
		all["the type "+kind] = `{"alg":"RS256","kid":"jobs","typ":"` + kind + `"}`
	}
	// A reference to a key must be ignored if the issuer does not have that
	// key.
	for _, name := range []string{"jku", "x5u"} {
		all[name] = `{"alg":"RS256","kid":"evil","` + name + `":"` + issuer + `/evil"}`
	}
	return all
}

// jwtClaims returns claims by their fault.
func jwtClaims(issuer string) map[string]map[string]any {
	now := time.Now().Unix()
	return map[string]map[string]any{
		"an end that is over":        {"exp": now - 3600},
		"an end of 0":                {"exp": 0},
		"an end below 0":             {"exp": -1},
		"an end that is a text":      {"exp": "tomorrow"},
		"an end that is a list":      {"exp": []int{1}},
		"an end of null":             {"exp": nil},
		"a beginning to come":        {"nbf": now + 3600},
		"an issue to come":           {"iat": now + 3600},
		"a beginning that is a text": {"nbf": "x"},
		"another audience":           {"aud": "other"},
		"audiences that are others":  {"aud": []string{"a", "b"}},
		"no audiences":               {"aud": []string{}},
		"an empty audience":          {"aud": ""},
		"an audience with a space":   {"aud": hostileAudience + " "},
		"an audience of a number":    {"aud": 1},
		"an audience in an object":   {"aud": map[string]string{"a": hostileAudience}},
		"another issuer":             {"iss": "https://evil.example"},
		"an issuer with a slash":     {"iss": issuer + "/"},
		"an issuer with a query":     {"iss": issuer + "?a"},
		"an issuer of a number":      {"iss": 1},
		"an issuer with a user":      {"iss": strings.Replace(issuer, "://", "://evil@", 1)},
		"an issuer in a list":        {"iss": []string{issuer}},
		"an issuer in upper case":    {"iss": strings.ToUpper(issuer)}, "an empty issuer": {"iss": ""},
		"another repository":         {"repository": "evil/infra"},
		"a repository below it":      {"repository": "acme/infra/evil"},
		"a repository above it":      {"repository": "acme"},
		"a repository in capitals":   {"repository": "ACME/INFRA"},
		"a repository of a wildcard": {"repository": "*/*"},
		"a repository of wildcards":  {"repository": "**"},
		"a repository in an object":  {"repository": map[string]string{"a": "acme/infra"}},
		"an empty repository":        {"repository": ""},
		"a repository with NUL":      {"repository": "acme/infra\x00"},
		"a repository with a slash":  {"repository": "acme/infra/"},
		"a repository with a space":  {"repository": " acme/infra"},
		"a repository of 10 KB":      {"repository": strings.Repeat("a", 10_000)},
	}
}

// unsignedJWTs returns JWTs with an invalid signature.
func unsignedJWTs(issuer *issuers.CI, payload string) ([]credential, error) {
	encode := base64.RawURLEncoding.EncodeToString
	token, err := issuer.Sign(goodHeader, payload)
	if err != nil {
		return nil, err
	}
	parts := strings.Split(token, ".")
	public, err := x509.MarshalPKIXPublicKey(issuer.PublicKey())
	if err != nil {
		return nil, err
	}
	asPEM := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})
	own, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	key := fmt.Sprintf(`{"kty":"RSA","n":"%s","e":"AQAB"}`, encode(own.N.Bytes()))
	embedded := `{"alg":"RS256","jwk":` + key + `}`
	by := func(secret []byte) string {
		text := encode([]byte(`{"alg":"HS256","kid":"jobs"}`)) + "." + parts[1]
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(text))
		return text + "." + encode(mac.Sum(nil))
	}
	var all []credential
	for name, text := range map[string]string{
		"no signature":                       parts[0] + "." + parts[1] + ".",
		"two parts":                          parts[0] + "." + parts[1],
		"four parts":                         token + ".a",
		"five parts":                         token + ".a.b",
		"another signature":                  parts[0] + "." + parts[1] + "." + encode(make([]byte, 256)),
		"a cut signature":                    token[:len(token)-20],
		"another payload":                    parts[0] + "." + encode([]byte(`{"iss":"a"}`)) + "." + parts[2],
		"padding":                            parts[0] + "==." + parts[1] + "." + parts[2],
		"standard base64":                    parts[0] + "." + parts[1] + ".+/+/",
		"parts in another order":             parts[1] + "." + parts[0] + "." + parts[2],
		"no header":                          "." + parts[1] + "." + parts[2],
		"none as algorithm and no signature": encode([]byte(`{"alg":"none"}`)) + "." + parts[1] + ".",
		"HS256 by the public key":            by(asPEM),
		"HS256 by the public key in DER":     by(public),
		"HS256 by nothing":                   by(nil),
		"HS256 by the modulus":               by(issuer.PublicKey().N.Bytes()),
		"a JSON form":                        `{"payload":"` + parts[1] + `"}`,
		"an embedded key":                    encode([]byte(embedded)) + "." + parts[1] + "." + parts[2],
		"500 KB": parts[0] + "." + parts[1] + strings.Repeat("A", 40_000) + "." +
			parts[2],
	} {
		all = append(all, credential{"a JWT with " + name, "Bearer " + text})
	}
	stranger, err := issuers.StartCI()
	if err != nil {
		return nil, err
	}
	defer stranger.Close()
	for name, claims := range map[string]map[string]any{
		"by a stranger's key":                         goodClaims(issuer.URL),
		"of an issuer that is not the registry's own": goodClaims(stranger.URL),
	} {
		text, err := stranger.Sign(goodHeader, asText(claims))
		if err != nil {
			return nil, err
		}
		all = append(all, credential{"a JWT " + name, "Bearer " + text})
	}
	return all, nil
}

// credentials sends bad credentials to the server and to a function.
func (a *attacked) credentials(ctx context.Context) error {
	bad, err := badCredentials(a.issuer)
	if err != nil {
		return err
	}
	bad = spread(bad, a.n.attacks*2)
	token, err := a.issuer.Token(goodClaims(a.issuer.URL))
	if err != nil {
		return err
	}
	function, err := a.stack.function(ctx, "modules")
	if err != nil {
		return err
	}
	defer func() { a.retire(function) }()
	path := "/v1/modules/" + goodModule.String() + "/versions"
	client := a.server.client()
	defer client.CloseIdleConnections()
	targets := []struct {
		name string
		good int
		send func(header string) (int, error)
	}{
		{"larder serve", http.StatusOK, func(header string) (int, error) {
			return authorized(ctx, client, a.server.url()+path, header)
		}},
		{"the function of modules", http.StatusNotFound, func(header string) (int, error) {
			e := event(modules.Routes()[0], path, "")
			e.Headers["authorization"] = header
			return status(ctx, function, e)
		}},
	}
	t := table{title: "bad credentials", columns: []column{
		{"distinct", ""}, {"401", ""}, {"403", ""}, {"let in", ""}, {"other answers", ""}, {"good one refused", ""},
	}}
	for _, to := range targets {
		counts := make(map[int]int)
		other := 0
		for _, c := range bad {
			status, err := to.send(c.header)
			switch {
			case err == nil && (status == http.StatusUnauthorized || status == http.StatusForbidden):
				counts[status]++
				continue
			case err == nil && status == to.good:
				counts[0]++
			default:
				other++
			}
			a.note(fmt.Sprintf("credential: %s: %s: %d, %.200v", to.name, c.name, status, err))
		}
		refused := 0
		if status, err := to.send("Bearer " + token); err != nil || status != to.good {
			refused++
		}
		t.rows = append(t.rows, row{to.name, []*figure{
			is(float64(len(bad))), is(float64(counts[401])), is(float64(counts[403])), atMost(float64(counts[0]), 0),
			atMost(float64(other), 0), atMost(float64(refused), 0),
		}})
	}
	for _, c := range bad {
		if _, secret, found := strings.Cut(c.header, " "); found && !strings.Contains(secret, " ") {
			a.secret(secret)
		}
	}
	a.secret(token)
	a.found.tables = append(a.found.tables, t)
	return nil
}

// authorized sends a request with an Authorization header, and returns the
// status of the response.
func authorized(ctx context.Context, client *http.Client, url, header string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	if header != "" {
		request.Header.Set("Authorization", header)
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	return response.StatusCode, nil
}
