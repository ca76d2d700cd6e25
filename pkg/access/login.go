package access

import (
	"context"
	"fmt"
	"net/url"

	"github.com/larder-registry/larder/pkg/discovery"
)

// LoginService returns what describes login.v1 in discovery, from the issuer's own endpoints; nil if people log in by no
// issuer.
func (s Settings) LoginService() discovery.LoginService {
	if s.Login == nil {
		return nil
	}
	l, p := *s.Login, newProvider(s.Login.Issuer)
	return func(ctx context.Context) (discovery.Login, error) {
		e, err := p.current(ctx)
		if err != nil {
			return discovery.Login{}, err
		}
		authorize, err := url.Parse(e.Authorization)
		if err == nil {
			err = checkURL(authorize.Scheme + "://" + authorize.Host)
		}
		if err == nil {
			err = checkURL(e.Token)
		}
		if err != nil {
			return discovery.Login{}, fmt.Errorf("endpoints of issuer %s: %w", l.Issuer, err)
		}
		query := authorize.Query()
		for name, value := range l.Authorize {
			query.Set(name, value)
		}
		authorize.RawQuery = query.Encode()
		return discovery.Login{
			Client: l.Client, GrantTypes: []string{"authz_code"}, Authz: authorize.String(), Token: e.Token, Ports: l.Ports, Scopes: l.Scopes,
		}, nil
	}
}
