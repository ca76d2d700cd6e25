package openid

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"

	"github.com/larder-registry/larder/pkg/registry/core"
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
}

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
		return nil, fmt.Errorf("%w login: %w", core.ErrInvalid, err)
	}
	return l, nil
}

// Complete sets the defaults, and returns an error if a field is invalid.
func (l *Login) Complete() error {
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
		var c Configuration
		if _, err := cached.Use(ctx, func(k Configuration) bool { c = k; return true }); err != nil {
			return LoginDocument{}, err
		}
		if err := checkNamedURL("token_endpoint", c.Token, p.local); err != nil {
			return LoginDocument{}, err
		}
		if err := checkNamedURL("authorization_endpoint", c.Authorization, p.local); err != nil {
			return LoginDocument{}, err
		}
		authorize, err := url.Parse(c.Authorization)
		if err != nil {
			return LoginDocument{}, err
		}
		query := authorize.Query()
		for name, value := range l.Authorize {
			query.Set(name, value)
		}
		authorize.RawQuery = query.Encode()
		return LoginDocument{
			Client: l.Client, GrantTypes: []string{"authz_code"}, Authz: authorize.String(), Token: c.Token,
			Ports: l.Ports, Scopes: l.Scopes,
		}, nil
	}
}
