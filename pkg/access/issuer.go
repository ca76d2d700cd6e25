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

	"github.com/larder-registry/larder/pkg/openid"
	"github.com/larder-registry/larder/pkg/registry"
)

// issuer is an issuer with the keys that it publishes.
type issuer struct {
	Issuer
	provider *openid.Provider
	keys     *openid.Cached[[]jose.JSONWebKey]
}

const (
	maxKeys  = 100
	keysHint = "Ask the issuer's operator for keys that sign by RS256 with at least 2048 bits, ES256 or EdDSA."
)

func newIssuer(settings Issuer) *issuer {
	i := &issuer{Issuer: settings, provider: openid.NewProvider(settings.Issuer)}
	i.keys = openid.NewCached("keys of issuer "+settings.Issuer, i.fetchKeys)
	return i
}

func (i *issuer) fetchKeys(ctx context.Context) ([]jose.JSONWebKey, error) {
	c, err := i.provider.Configuration(ctx) // anew too, since keys may move
	if err != nil {
		return nil, err
	}
	var set struct{ Keys []json.RawMessage }
	if err := i.provider.Get(ctx, "jwks_uri", c.Keys, &set); err != nil {
		return nil, err
	}
	if len(set.Keys) > maxKeys {
		return nil, registry.WithHint(fmt.Errorf("it has %d keys, more than %d", len(set.Keys), maxKeys), keysHint)
	}
	var keys []jose.JSONWebKey
	for _, raw := range set.Keys {
		// A key of a kind that is not known here is no reason to refuse the others.
		var key jose.JSONWebKey
		if key.UnmarshalJSON(raw) == nil && key.Valid() && key.IsPublic() && (key.Use == "" || key.Use == "sig") {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil, registry.WithHint(errors.New("it has no key that can be used"), keysHint)
	}
	return keys, nil
}

// IssuerProblem is why no token of an issuer can be verified at present.
type IssuerProblem struct {
	// Issuer is its identifier.
	Issuer string
	// Err has a hint. It is registry.ErrIssuer if trying again does not mend it.
	Err error
}

// CheckIssuers fetches the keys of all issuers, several at once, and returns the
// problems by the issuers' identifiers. It takes a few seconds if an issuer does not
// answer. The keys are cached as those that a token needs. If ctx ends, it returns
// nothing.
func (c *Control) CheckIssuers(ctx context.Context) []IssuerProblem {
	const parallel = 8
	issuers := slices.Sorted(maps.Keys(c.issuers))
	problems := make([]IssuerProblem, len(issuers))
	var checks errgroup.Group
	checks.SetLimit(parallel)
	for n, name := range issuers {
		checks.Go(func() error {
			_, err := c.issuers[name].keys.Use(ctx, func([]jose.JSONWebKey) bool { return true })
			if missing, ok := errors.AsType[*openid.MissingError](err); ok {
				err = missing.Err
			}
			problems[n] = IssuerProblem{name, err}
			return nil
		})
	}
	_ = checks.Wait()
	if ctx.Err() != nil {
		return nil // no issuer is at fault
	}
	return slices.DeleteFunc(problems, func(p IssuerProblem) bool { return p.Err == nil })
}
