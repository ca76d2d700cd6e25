// Package openid reads the documents that an OpenID Connect issuer publishes,
// and configures how people log in with it.
//
// It sends few requests to an issuer, whatever callers send, and bounds the
// size of responses. It never follows an issuer to a URL where secrets would
// not be safe. Keys and tokens belong to package access, so programs that only
// publish the login service link no cryptography for them.
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

	"github.com/larder-registry/larder/pkg/registry/errs"
)

// Provider reads the documents of an issuer. Create one with [NewProvider].
type Provider struct {
	// Client sends the requests, with a short timeout.
	Client *http.Client

	issuer string
	local  bool // the issuer is on this machine, without TLS
}

// Configuration is the configuration that an issuer publishes. Its URLs are not
// validated yet.
type Configuration struct {
	Issuer        string `json:"issuer"`
	Authorization string `json:"authorization_endpoint"`
	Token         string `json:"token_endpoint"`
	Keys          string `json:"jwks_uri"`
}

// MaxDocument bounds the size of a document, in bytes.
const MaxDocument = 1 << 20

const fetchTimeout = 2 * time.Second // keys take two fetches, and clients wait for ten seconds in total

// NewProvider returns a Provider for the issuer with an identifier.
func NewProvider(issuer string) *Provider {
	p := &Provider{issuer: issuer}
	if u, err := url.Parse(issuer); err == nil {
		p.local = isLocal(u)
	}
	p.Client = &http.Client{
		Timeout: fetchTimeout,
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			err := checkNamedURL("redirect", r.URL.Scheme+"://"+r.URL.Host, p.local)
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

// Configuration fetches the issuer's configuration. Errors are those of
// [Provider.Get]. A configuration of another issuer is registry.ErrIssuer.
func (p *Provider) Configuration(ctx context.Context) (Configuration, error) {
	var c Configuration
	if err := p.Get(ctx, "issuer", strings.TrimSuffix(p.issuer, "/")+"/.well-known/openid-configuration", &c); err != nil {
		return c, err
	}
	if c.Issuer != p.issuer {
		return c, permanent(fmt.Errorf("the configuration belongs to the issuer %.200q", c.Issuer),
			"The issuer in the access settings must equal the issuer in its configuration and its tokens exactly, "+
				"with or without a slash at the end.")
	}
	return c, nil
}

// Get fetches a JSON document to which the issuer's configuration points. what
// names the document in errors. Errors have a hint. They are registry.ErrIssuer
// if another attempt cannot succeed.
func (p *Provider) Get(ctx context.Context, what, url string, v any) error {
	if err := checkNamedURL(what, url, p.local); err != nil {
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
		return statusError(response)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, MaxDocument+1))
	if err != nil {
		return failure(err)
	}
	if len(body) > MaxDocument {
		return errs.WithHint(fmt.Errorf("the response has more than %d bytes", MaxDocument), operator)
	}
	if err := json.Unmarshal(body, v); err != nil {
		return errs.WithHint(fmt.Errorf("the response is not the JSON document of an issuer: %w", err), operator)
	}
	return nil
}

// CheckIssuer returns an error if a text cannot be an issuer's identifier. The
// error does not contain the text.
func CheckIssuer(issuer string) error {
	if err := checkURL(issuer, true); err != nil {
		return err
	}
	if strings.Contains(issuer, "?") {
		return errors.New("it must not have a query")
	}
	return nil
}

// checkURL returns an error if secrets would not be safe at a URL. The URL must
// use https. If the issuer itself is on this machine, plain HTTP to this
// machine is accepted too. Any other issuer must not lead to services of this
// machine, such as the AWS Lambda runtime API. Endpoints may have a query (RFC
// 6749, section 3).
func checkURL(text string, local bool) error {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.User != nil || u.Fragment != "" {
		return errors.New("it must be a URL such as https://login.example.com")
	}
	if u.Scheme == "https" || local && isLocal(u) {
		return nil
	}
	return errors.New("it must be an https URL")
}

func checkNamedURL(name, text string, local bool) error {
	if err := checkURL(text, local); err != nil {
		return fmt.Errorf("%s %.200q: %w", name, text, err)
	}
	return nil
}

// isLocal reports whether a URL is an http URL of this machine.
func isLocal(u *url.URL) bool {
	return u.Scheme == "http" && (strings.EqualFold(u.Hostname(), "localhost") || net.ParseIP(u.Hostname()).IsLoopback())
}
