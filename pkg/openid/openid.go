// Package openid is what an OpenID Connect issuer publishes of itself, and how people log in by it.
//
// It promises that an issuer is asked seldom, whatever callers send, that what it answers is bounded, and that it leads
// nobody to where secrets would not be safe. Keys and tokens are package access's: who only says where people log in links
// no cryptography for them.
//
// Source: OpenID Connect Discovery 1.0, sections 3 and 4.
package openid

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/registry/core"
)

// Provider asks an issuer for what it publishes.
type Provider struct {
	// Client is who goes there, and gives up soon.
	Client *http.Client

	issuer string
	local  bool // it is on this machine, without TLS
}

// Configuration is what an issuer says of itself. Its URLs are not checked yet.
type Configuration struct {
	Issuer        string `json:"issuer"`
	Authorization string `json:"authorization_endpoint"`
	Token         string `json:"token_endpoint"`
	Keys          string `json:"jwks_uri"`
}

// MaxDocument bounds what is read of one document, in bytes.
const MaxDocument = 1 << 20

const fetchTimeout = 2 * time.Second // keys take two fetches, and clients wait for ten in all

// NewProvider returns who asks an issuer, by its identifier.
func NewProvider(issuer string) *Provider {
	p := &Provider{issuer: issuer}
	if u, err := url.Parse(issuer); err == nil {
		p.local = isLocal(u)
	}
	p.Client = &http.Client{
		Timeout: fetchTimeout,
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			err := checkURL("redirect", r.URL.Scheme+"://"+r.URL.Host, p.local)
			if len(via) > 3 {
				err = errors.New("too many redirects")
			}
			if err != nil {
				return unusable{err}
			}
			return nil
		},
	}
	return p
}

// Configuration fetches what the issuer says of itself. Errors are those of [Provider.Get].
func (p *Provider) Configuration(ctx context.Context) (Configuration, error) {
	var c Configuration
	if err := p.Get(ctx, "issuer", strings.TrimSuffix(p.issuer, "/")+"/.well-known/openid-configuration", &c); err != nil {
		return c, err
	}
	if c.Issuer != p.issuer {
		return c, permanent(fmt.Errorf("its configuration is of the issuer %.200q", c.Issuer),
			"The access settings must have the issuer exactly as its configuration and its tokens have it, "+
				"with or without a slash at the end.")
	}
	return c, nil
}

// Get reads a JSON document to which the issuer leads. what says which, for errors.
// An error has a hint, and is core.ErrIssuer if trying again does not mend it.
func (p *Provider) Get(ctx context.Context, what, url string, v any) error {
	if err := checkURL(what, url, p.local); err != nil {
		return permanent(err, operator)
	}
	if err := p.get(ctx, url, v); err != nil {
		return fmt.Errorf("GET %s: %w", url, err)
	}
	return nil
}

func (p *Provider) get(ctx context.Context, url string, v any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", "application/json")
	response, err := p.Client.Do(request)
	if err != nil {
		return failure(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return refused(response)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, MaxDocument+1))
	if err != nil {
		return failure(err)
	}
	if len(body) > MaxDocument {
		return core.WithHint(fmt.Errorf("it has more than %d bytes", MaxDocument), operator)
	}
	if err := json.Unmarshal(body, v); err != nil {
		return core.WithHint(fmt.Errorf("it is not the JSON document of an issuer: %w", err), operator)
	}
	return nil
}

// CheckIssuer says whether a text can be an issuer's identifier.
func CheckIssuer(issuer string) error {
	if err := checkURL("issuer", issuer, true); err != nil {
		return err
	}
	if strings.Contains(issuer, "?") {
		return errors.New("it has a query, and an issuer has none")
	}
	return nil
}

// checkURL says whether secrets may rest on what a URL answers: it has TLS, or, where local says that the issuer does too,
// stays on this machine. An issuer elsewhere must not reach what is here, such as what AWS Lambda tells its functions.
// Endpoints may have a query (RFC 6749, section 3).
func checkURL(what, text string, local bool) error {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.User != nil || u.Fragment != "" {
		return fmt.Errorf("%s %.200q is no URL such as https://login.example.com", what, text)
	}
	if u.Scheme == "https" || local && isLocal(u) {
		return nil
	}
	return fmt.Errorf("%s %.200q must be an https URL", what, text)
}

// isLocal says whether a URL is one of this machine, without TLS.
func isLocal(u *url.URL) bool {
	return u.Scheme == "http" && (strings.EqualFold(u.Hostname(), "localhost") || net.ParseIP(u.Hostname()).IsLoopback())
}
