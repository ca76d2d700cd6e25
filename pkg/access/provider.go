package access

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/larder-registry/larder/pkg/registry"
)

// provider is what an issuer publishes of itself: where its endpoints are, and its keys. It is fetched when it is needed
// and kept, and asked again seldom, whatever callers send.
//
// Source: OpenID Connect Discovery 1.0, sections 3 and 4.
type provider struct {
	issuer string
	client *http.Client
	now    func() time.Time

	mu        sync.Mutex
	endpoints endpoints
	keys      []jose.JSONWebKey
	fetched   time.Time // with success
	tried     time.Time
}

type endpoints struct {
	Issuer        string `json:"issuer"`
	Authorization string `json:"authorization_endpoint"`
	Token         string `json:"token_endpoint"`
	Keys          string `json:"jwks_uri"`
}

const (
	// fresh is how long what was fetched is used without asking again, and stale how long where asking fails.
	fresh = time.Hour
	stale = 24 * time.Hour
	// again is the least time between two fetches, for the sake of a key that is not known, and retry where the last failed.
	again = time.Minute
	retry = 10 * time.Second

	fetchTimeout = 2 * time.Second // there are two, and clients wait for ten in all
	maxDocument  = 1 << 20
	maxKeys      = 100
)

func newProvider(issuer string) *provider {
	return &provider{issuer: issuer, now: time.Now, client: &http.Client{
		Timeout: fetchTimeout,
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) > 3 {
				return errors.New("too many redirects")
			}
			return checkURL(r.URL.Scheme + "://" + r.URL.Host)
		},
	}}
}

// errUnknownKey is a key that the issuer has not published, which it may yet.
var errUnknownKey = errors.New("the issuer has no such key")

// candidates returns the keys that may have signed. Errors are errUnknownKey and registry.ErrUnavailable.
func (p *provider) candidates(ctx context.Context, id string, algorithm jose.SignatureAlgorithm) ([]jose.JSONWebKey, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now().Sub(p.fetched) < fresh {
		if found := p.matching(id, algorithm); len(found) > 0 {
			return found, nil
		}
	}
	if err := p.refresh(ctx); err != nil {
		return nil, err
	}
	if found := p.matching(id, algorithm); len(found) > 0 {
		return found, nil
	}
	return nil, errUnknownKey
}

// current returns the endpoints. Errors are registry.ErrUnavailable.
func (p *provider) current(ctx context.Context) (endpoints, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now().Sub(p.fetched) < fresh {
		return p.endpoints, nil
	}
	err := p.refresh(ctx)
	return p.endpoints, err
}

// refresh fetches anew, unless that was done just now. It fails where there is nothing that can still be used.
func (p *provider) refresh(ctx context.Context) error {
	pause := again
	if p.fetched != p.tried {
		pause = retry
	}
	now := p.now()
	var err error
	if p.tried.IsZero() || now.Sub(p.tried) >= pause {
		p.tried = now
		// Others wait for it too, and a caller who goes away must not be a way to have it fetched again and again.
		if err = p.fetch(context.WithoutCancel(ctx)); err == nil {
			p.fetched = now
			return nil
		}
	}
	if now.Sub(p.fetched) < stale {
		return nil
	}
	if err == nil {
		err = errors.New("it failed a moment ago")
	}
	return fmt.Errorf("%w: issuer %s does not tell its configuration and keys: %w", registry.ErrUnavailable, p.issuer, err)
}

func (p *provider) fetch(ctx context.Context) error {
	var e endpoints
	if err := p.get(ctx, strings.TrimSuffix(p.issuer, "/")+"/.well-known/openid-configuration", &e); err != nil {
		return err
	}
	if e.Issuer != p.issuer {
		return fmt.Errorf("its configuration is of the issuer %.200q", e.Issuer)
	}
	if err := checkURL(e.Keys); err != nil {
		return fmt.Errorf("jwks_uri: %w", err)
	}
	var set struct{ Keys []json.RawMessage }
	if err := p.get(ctx, e.Keys, &set); err != nil {
		return err
	}
	if len(set.Keys) > maxKeys {
		return fmt.Errorf("it has %d keys, more than %d", len(set.Keys), maxKeys)
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
		return errors.New("it has no key that can be used")
	}
	p.endpoints, p.keys = e, keys
	return nil
}

func (p *provider) get(ctx context.Context, url string, v any) error {
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

// matching returns the keys that an algorithm can use: the one of an id, or all if the token names none.
func (p *provider) matching(id string, algorithm jose.SignatureAlgorithm) []jose.JSONWebKey {
	var found []jose.JSONWebKey
	for _, key := range p.keys {
		if (id == "" || key.KeyID == id) && (key.Algorithm == "" || key.Algorithm == string(algorithm)) && fits(key.Key, algorithm) {
			found = append(found, key)
		}
	}
	return found
}
