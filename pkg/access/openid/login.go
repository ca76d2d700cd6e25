package openid

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/larder-registry/larder/pkg/registry/errs"
)

// Login configures how people log in with an issuer. It is the source of the
// login.v1 service.
type Login struct {
	// Issuer is the issuer's identifier.
	Issuer string `json:"issuer"`
	// Client is the identifier of a public client of the issuer, with PKCE and
	// without a secret.
	Client string `json:"client"`
	// Scopes lists the scopes to request. If empty, openid is used.
	Scopes []string `json:"scopes,omitempty"`
	// Ports are the first and the last port on which the command line listens
	// for redirects to http://localhost:PORT/login. If empty, 10000 to 10010
	// are used.
	Ports []int `json:"ports,omitempty"`
	// Authorize has further parameters for the issuer's authorization endpoint,
	// for example an audience.
	Authorize map[string]string `json:"authorize,omitempty"`
	// Web is the client with which people log in to the web pages. If nil, they
	// log in there with a token of the registry only.
	Web *WebClient `json:"web,omitempty"`
}

// CallbackPath is the path of the redirect of a [WebClient].
const CallbackPath = "/login/callback"

// WebClient is a client of the issuer whose redirect is [CallbackPath] of the
// registry. At most one of its two secrets is set.
type WebClient struct {
	// Client is the client's identifier.
	Client string `json:"client"`
	// SecretParameter is the name of the SSM parameter that has the client's
	// secret. It begins with a slash.
	SecretParameter Place `json:"secretParameter,omitempty"`
	// SecretFile is the file that has the client's secret.
	SecretFile Place `json:"secretFile,omitempty"`
}

// Place is the name of a parameter or a file that has a secret. In JSON, it
// cannot be an empty text, which would look like a secret and be none.
type Place string

// UnmarshalText implements [encoding.TextUnmarshaler].
func (p *Place) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		return errors.New("the name is empty: remove the field if the client has no secret")
	}
	*p = Place(text)
	return nil
}

// WebError is an error in one field of [Login.Web].
type WebError struct {
	// Field is the name of the field.
	Field string
	Err   error
}

func (e *WebError) Error() string { return "web: " + e.Err.Error() }

// Unwrap returns the reason.
func (e *WebError) Unwrap() error { return e.Err }

// ParseLogin parses a login from JSON. It returns nil if the text is empty and
// people cannot log in. Errors are registry.ErrInvalid. It is for programs that
// do not parse the complete access settings.
func ParseLogin(text string) (*Login, error) {
	if text == "" {
		return nil, nil
	}
	l := &Login{}
	err := json.Unmarshal([]byte(text), l)
	if err == nil {
		err = l.Complete()
	}
	if err != nil {
		return nil, fmt.Errorf("%w login: %w", errs.ErrInvalid, err)
	}
	return l, nil
}

// Complete sets the defaults. If a field is invalid, it returns an error, which
// is a [WebError] if the field is one of Web.
func (l *Login) Complete() error {
	if field, err := l.Web.check(); err != nil {
		return &WebError{field, err}
	}
	if err := CheckIssuer(l.Issuer); err != nil {
		return fmt.Errorf("issuer %q: %w", l.Issuer, err)
	}
	if l.Client == "" {
		return errors.New("client is missing: set it to the id of a public client of the issuer")
	}
	if len(l.Ports) == 0 {
		l.Ports = []int{10000, 10010}
	}
	// Clients never use the last port, and try several at random.
	if len(l.Ports) != 2 || l.Ports[0] < 1024 || l.Ports[1] > 65535 || l.Ports[1]-l.Ports[0] < 10 {
		return fmt.Errorf("ports %v: set the first and the last port, from 1024 to 65535 and at least ten apart", l.Ports)
	}
	if len(l.Scopes) == 0 {
		l.Scopes = []string{"openid"}
	}
	for _, own := range []string{
		"client_id", "code_challenge", "code_challenge_method", "redirect_uri", "response_type", "scope", "state",
	} {
		if _, found := l.Authorize[own]; found {
			return fmt.Errorf("authorize: the client itself sets %s", own)
		}
	}
	return nil
}

// check returns an error if a client is invalid, and the name of the invalid
// field. A client that is nil is valid.
func (w *WebClient) check() (field string, err error) {
	switch {
	case w == nil:
		return "", nil
	case w.Client == "":
		return "client", errors.New("client is missing: set it to the id of a client of the issuer, " +
			"whose redirect is https://HOST" + CallbackPath)
	case strings.TrimSpace(w.Client) != w.Client:
		return "client", fmt.Errorf("client %.100q has white space around it", w.Client)
	case w.SecretParameter != "" && w.SecretFile != "":
		return "secretFile", errors.New("the secret is in secretParameter and in secretFile: remove one of them")
	case w.SecretParameter != "" && !isParameter(string(w.SecretParameter)):
		return "secretParameter", errors.New(
			"secretParameter must be the name of an SSM parameter, with a slash at its beginning, such as /larder/web")
	}
	return "", nil
}

// isParameter reports whether a text is the name of a parameter in a hierarchy.
// IAM policies need the same form. The limit is that of its ARN.
//
// Source: https://docs.aws.amazon.com/systems-manager/latest/userguide/sysman-parameter-name-constraints.html.
func isParameter(name string) bool {
	return len(name) > 1 && len(name) <= 900 && name[0] == '/' && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && !strings.ContainsRune("/._-", r)
	})
}

// LoginDocument is the login.v1 service in the discovery document. With it, a
// client gets a token for a person by OAuth's authorization code with PKCE.
//
// Source: the server-side login protocol,
// https://opentofu.org/docs/internals/login-protocol/.
type LoginDocument struct {
	Client     string   `json:"client"`
	GrantTypes []string `json:"grant_types"`
	// Authz and Token are absolute URLs.
	Authz string `json:"authz"`
	Token string `json:"token"`
	// Ports are the first port on which a client listens for the code, and the
	// end of the range, which is not used.
	Ports  []int    `json:"ports"`
	Scopes []string `json:"scopes"`
}

// LoginService returns the document with the issuer's current endpoints.
type LoginService func(context.Context) (LoginDocument, error)

// Service returns the LoginService with the issuer's own endpoints. It returns
// nil if l is nil.
func (l *Login) Service() LoginService {
	if l == nil {
		return nil
	}
	p := NewProvider(l.Issuer)
	return l.service(p, NewCached("configuration of issuer "+l.Issuer, p.Configuration))
}

func (l *Login) service(p *Provider, cached *Cached[Configuration]) LoginService {
	return func(ctx context.Context) (LoginDocument, error) {
		authorize, token, err := l.endpoints(ctx, p, cached)
		if err != nil {
			return LoginDocument{}, err
		}
		return LoginDocument{
			Client: l.Client, GrantTypes: []string{"authz_code"}, Authz: authorize.String(), Token: token,
			Ports: l.Ports, Scopes: l.Scopes,
		}, nil
	}
}

// endpoints returns the issuer's current endpoints: where people sign in, with
// the parameters of Authorize, and where a code is exchanged for tokens.
func (l *Login) endpoints(ctx context.Context, p *Provider, cached *Cached[Configuration]) (
	authorize *url.URL, token string, err error,
) {
	var c Configuration
	if _, err := cached.Use(ctx, func(k Configuration) bool { c = k; return true }); err != nil {
		return nil, "", err
	}
	if err := checkNamedURL("token_endpoint", c.Token, p.local); err != nil {
		return nil, "", err
	}
	if err := checkNamedURL("authorization_endpoint", c.Authorization, p.local); err != nil {
		return nil, "", err
	}
	if authorize, err = url.Parse(c.Authorization); err != nil {
		return nil, "", err
	}
	query := authorize.Query()
	for name, value := range l.Authorize {
		query.Set(name, value)
	}
	authorize.RawQuery = query.Encode()
	return authorize, c.Token, nil
}
