package issuers

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
)

// CI is the issuer of a CI service, which signs the claims of its jobs. It has
// the URL layout of a GitHub Enterprise Server, on loopback, without TLS.
type CI struct {
	URL string
	// Web is the URL of the repositories.
	Web string

	server *httptest.Server
	signer jose.Signer
}

// StartCI starts an issuer. The caller closes it.
func StartCI() (*CI, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	private := jose.JSONWebKey{Key: key, KeyID: "jobs", Algorithm: string(jose.RS256), Use: "sig"}
	const path = "/_services/token"
	c := &CI{}
	if c.signer, err = jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: private}, nil); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	answer := func(at string, document func() any) {
		mux.HandleFunc("GET "+at, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(document())
		})
	}
	answer(path+"/.well-known/openid-configuration",
		func() any { return map[string]string{"issuer": c.URL, "jwks_uri": c.URL + "/jwks"} })
	answer(path+"/jwks", func() any { return jose.JSONWebKeySet{Keys: []jose.JSONWebKey{private.Public()}} })
	c.server = httptest.NewServer(mux)
	c.Web, c.URL = c.server.URL, c.server.URL+path
	return c, nil
}

// Close stops the issuer.
func (c *CI) Close() { c.server.Close() }

// Token returns a signed token with claims. It is valid for five minutes,
// unless the claims set other times.
func (c *CI) Token(claims map[string]any) (string, error) {
	now := time.Now()
	all := map[string]any{"iss": c.URL, "iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(5 * time.Minute).Unix()}
	maps.Copy(all, claims)
	return jwt.Signed(c.signer).Claims(all).Serialize()
}
