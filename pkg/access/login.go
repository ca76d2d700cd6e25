package access

import (
	"context"
	"net/url"

	"github.com/larder-registry/larder/pkg/discovery"
)

// LoginService returns what describes login.v1 in discovery, from the issuer's own endpoints; nil if people log in by no
// issuer.
func (s Settings) LoginService() discovery.LoginService {
	if s.Login == nil {
		return nil
	}
	return s.Login.service(newProvider(s.Login.Issuer))
}

func (l Login) service(p *provider) discovery.LoginService {
	return func(ctx context.Context) (discovery.Login, error) {
		var c configuration
		if _, err := p.configuration.use(ctx, func(known configuration) bool { c = known; return true }); err != nil {
			return discovery.Login{}, err
		}
		if err := checkURL("token_endpoint", c.Token, p.local); err != nil {
			return discovery.Login{}, err
		}
		if err := checkURL("authorization_endpoint", c.Authorization, p.local); err != nil {
			return discovery.Login{}, err
		}
		authorize, err := url.Parse(c.Authorization)
		if err != nil {
			return discovery.Login{}, err
		}
		query := authorize.Query()
		for name, value := range l.Authorize {
			query.Set(name, value)
		}
		authorize.RawQuery = query.Encode()
		return discovery.Login{
			Client: l.Client, GrantTypes: []string{"authz_code"}, Authz: authorize.String(), Token: c.Token, Ports: l.Ports, Scopes: l.Scopes,
		}, nil
	}
}
