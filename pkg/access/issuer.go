package access

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/go-jose/go-jose/v4"

	"github.com/larder-registry/larder/pkg/openid"
)

// issuer is an issuer with the keys that it publishes.
type issuer struct {
	Issuer
	provider *openid.Provider
	keys     *openid.Kept[[]jose.JSONWebKey]
}

const maxKeys = 100

func newIssuer(settings Issuer) *issuer {
	i := &issuer{Issuer: settings, provider: openid.NewProvider(settings.Issuer)}
	i.keys = openid.NewKept("keys of issuer "+settings.Issuer, i.fetchKeys)
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
		return nil, fmt.Errorf("there are %d keys, more than %d", len(set.Keys), maxKeys)
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
		return nil, errors.New("there is no key that can be used")
	}
	return keys, nil
}
