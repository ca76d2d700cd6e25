package openid

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"

	"github.com/larder-registry/larder/pkg/registry/core"
)

// Login is how people log in by an issuer: login.v1, as settings have it.
type Login struct {
	// Issuer is its identifier.
	Issuer string `json:"issuer"`
	// Client is the identifier of a public client there, with PKCE and without a secret.
	Client string `json:"client"`
	// Scopes to ask for; openid if there are none.
	Scopes []string `json:"scopes,omitempty"`
	// Ports are the first and the last of those on which the command line waits, for redirects to
	// http://localhost:PORT/login; 10000 to 10010 if it is empty.
	Ports []int `json:"ports,omitempty"`
	// Authorize are more parameters for the issuer's authorization endpoint, such as an audience.
	Authorize map[string]string `json:"authorize,omitempty"`
}

// ParseLogin reads a login from JSON, for who is told nothing else; nil where the text is empty, and people log in by no
// issuer. Errors are registry.ErrInvalid.
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

// Complete fills in what is left out, and says what is wrong.
func (l *Login) Complete() error {
	if err := CheckIssuer(l.Issuer); err != nil {
		return fmt.Errorf("issuer %q: %w", l.Issuer, err)
	}
	if l.Client == "" {
		return errors.New("client is missing: the id of a public client of the issuer")
	}
	if len(l.Ports) == 0 {
		l.Ports = []int{10000, 10010}
	}
	// Clients never use the last port, and try a few at random.
	if len(l.Ports) != 2 || l.Ports[0] < 1024 || l.Ports[1] > 65535 || l.Ports[1]-l.Ports[0] < 10 {
		return fmt.Errorf("ports %v: give the first and the last, from 1024 to 65535, with at least ten between them", l.Ports)
	}
	if len(l.Scopes) == 0 {
		l.Scopes = []string{"openid"}
	}
	for _, own := range []string{"client_id", "code_challenge", "code_challenge_method", "redirect_uri", "response_type", "scope", "state"} {
		if _, there := l.Authorize[own]; there {
			return fmt.Errorf("authorize: %s is the client's own parameter", own)
		}
	}
	return nil
}

// LoginDocument is login.v1 in discovery: how a client gets a token for a person, by
// OAuth's authorization code with PKCE.
//
// Source: the server-side login protocol, https://opentofu.org/docs/internals/login-protocol/.
type LoginDocument struct {
	Client     string   `json:"client"`
	GrantTypes []string `json:"grant_types"`
	// Authz and Token are absolute URLs.
	Authz string `json:"authz"`
	Token string `json:"token"`
	// Ports are the first, and the one behind the last, on which a client waits for
	// the code.
	Ports  []int    `json:"ports"`
	Scopes []string `json:"scopes"`
}

// LoginService returns the document as the issuer's endpoints are now.
type LoginService func(context.Context) (LoginDocument, error)

// Service returns what describes login.v1 in discovery, from the issuer's own endpoints; nil if l is.
func (l *Login) Service() LoginService {
	if l == nil {
		return nil
	}
	p := NewProvider(l.Issuer)
	return l.service(p, NewCached("configuration of issuer "+l.Issuer, p.Configuration))
}

func (l *Login) service(p *Provider, known *Cached[Configuration]) LoginService {
	return func(ctx context.Context) (LoginDocument, error) {
		var c Configuration
		if _, err := known.Use(ctx, func(k Configuration) bool { c = k; return true }); err != nil {
			return LoginDocument{}, err
		}
		if err := checkURL("token_endpoint", c.Token, p.local); err != nil {
			return LoginDocument{}, err
		}
		if err := checkURL("authorization_endpoint", c.Authorization, p.local); err != nil {
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
			Client: l.Client, GrantTypes: []string{"authz_code"}, Authz: authorize.String(), Token: c.Token, Ports: l.Ports, Scopes: l.Scopes,
		}, nil
	}
}
