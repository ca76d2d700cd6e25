package access

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// provider is what an issuer publishes of itself: where its endpoints are, and its keys. They are kept apart, since who
// logs in needs no keys.
//
// Source: OpenID Connect Discovery 1.0, sections 3 and 4.
type provider struct {
	issuer        string
	local         bool // it is on this machine, without TLS
	client        *http.Client
	configuration *kept[configuration]
	keys          *kept[[]jose.JSONWebKey]
}

type configuration struct {
	Issuer        string `json:"issuer"`
	Authorization string `json:"authorization_endpoint"`
	Token         string `json:"token_endpoint"`
	Keys          string `json:"jwks_uri"`
}

const (
	fetchTimeout = 2 * time.Second // keys take two fetches, and clients wait for ten in all
	maxDocument  = 1 << 20
	maxKeys      = 100
)

func newProvider(issuer string) *provider {
	p := &provider{issuer: issuer}
	if u, err := url.Parse(issuer); err == nil {
		p.local = isLocal(u)
	}
	p.client = &http.Client{
		Timeout: fetchTimeout,
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) > 3 {
				return errors.New("too many redirects")
			}
			return checkURL("redirect", r.URL.Scheme+"://"+r.URL.Host, p.local)
		},
	}
	p.configuration = newKept("configuration of issuer "+issuer, p.fetchConfiguration)
	p.keys = newKept("keys of issuer "+issuer, p.fetchKeys)
	return p
}

func (p *provider) fetchConfiguration(ctx context.Context) (configuration, error) {
	var c configuration
	if err := p.get(ctx, "issuer", strings.TrimSuffix(p.issuer, "/")+"/.well-known/openid-configuration", &c); err != nil {
		return c, err
	}
	if c.Issuer != p.issuer {
		return c, fmt.Errorf("its configuration is of the issuer %.200q", c.Issuer)
	}
	return c, nil
}

func (p *provider) fetchKeys(ctx context.Context) ([]jose.JSONWebKey, error) {
	c, err := p.fetchConfiguration(ctx) // anew too, since keys may move
	if err != nil {
		return nil, err
	}
	var set struct{ Keys []json.RawMessage }
	if err := p.get(ctx, "jwks_uri", c.Keys, &set); err != nil {
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

// get reads a document. what says which, for errors.
func (p *provider) get(ctx context.Context, what, url string, v any) error {
	if err := checkURL(what, url, p.local); err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", "application/json")
	response, err := p.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", url, response.Status)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxDocument+1))
	if err != nil {
		return fmt.Errorf("GET %s: %w", url, err)
	}
	if len(body) > maxDocument {
		return fmt.Errorf("GET %s: more than %d bytes", url, maxDocument)
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("GET %s: %w", url, err)
	}
	return nil
}
