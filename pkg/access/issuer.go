package access

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/go-jose/go-jose/v4"
	"golang.org/x/sync/errgroup"

	"github.com/larder-registry/larder/pkg/access/openid"
	"github.com/larder-registry/larder/pkg/registry"
)

// issuer is an issuer of the settings with its published keys.
type issuer struct {
	Issuer
	provider *openid.Provider
	keys     *openid.Cached[[]jose.JSONWebKey]
}

const (
	maxKeys  = 100
	keysHint = "The issuer must publish keys for RS256 with at least 2048 bits, ES256 or EdDSA. Contact its operator."
)

func newIssuer(settings Issuer) *issuer {
	i := &issuer{Issuer: settings, provider: openid.NewProvider(settings.Issuer)}
	i.keys = openid.NewCached("keys of issuer "+settings.Issuer, i.fetchKeys)
	return i
}

func (i *issuer) fetchKeys(ctx context.Context) ([]jose.JSONWebKey, error) {
	c, err := i.provider.Configuration(ctx) // again, since the keys may have moved
	if err != nil {
		return nil, err
	}
	var set struct{ Keys []json.RawMessage }
	if err := i.provider.Get(ctx, "jwks_uri", c.Keys, &set); err != nil {
		return nil, err
	}
	if len(set.Keys) > maxKeys {
		return nil, registry.WithHint(fmt.Errorf("the issuer has %d keys, more than %d", len(set.Keys), maxKeys), keysHint)
	}
	var keys []jose.JSONWebKey
	for _, raw := range set.Keys {
		// A key of an unknown type does not make the others invalid.
		var key jose.JSONWebKey
		if key.UnmarshalJSON(raw) == nil && key.Valid() && key.IsPublic() && (key.Use == "" || key.Use == "sig") {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil, registry.WithHint(errors.New("the issuer has no usable key"), keysHint)
	}
	return keys, nil
}

// IssuerProblem describes an issuer whose tokens cannot be verified at present.
type IssuerProblem struct {
	// Issuer is the issuer's identifier.
	Issuer string
	// Err has a hint. It is registry.ErrIssuer if another attempt cannot
	// succeed.
	Err error
}

// CheckIssuers fetches the keys of all issuers, several at once, and returns
// the problems in the order of the issuers' identifiers. It takes a few seconds
// if an issuer does not respond. It caches the keys for later requests. If ctx
// ends, it returns nil.
func (c *Control) CheckIssuers(ctx context.Context) []IssuerProblem {
	const parallel = 8
	issuers := c.rules.Load().issuers
	problems := make([]IssuerProblem, len(issuers))
	var checks errgroup.Group
	checks.SetLimit(parallel)
	for n, name := range slices.Sorted(maps.Keys(issuers)) {
		checks.Go(func() error {
			_, err := issuers[name].keys.Use(ctx, func([]jose.JSONWebKey) bool { return true })
			if missing, ok := errors.AsType[*openid.MissingError](err); ok {
				err = missing.Err
			}
			problems[n] = IssuerProblem{name, err}
			return nil
		})
	}
	_ = checks.Wait()
	if ctx.Err() != nil {
		return nil // not a problem of the issuers
	}
	return slices.DeleteFunc(problems, func(p IssuerProblem) bool { return p.Err == nil })
}
