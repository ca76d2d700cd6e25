// Package client requests discovery documents, modules, providers and files
// from registries.
//
// It reads hosts and credentials with the libraries that OpenTofu and Terraform
// use, and from the same places. Anyone who can run `tofu init` against a
// registry needs no further configuration.
//
// The package sends a credential only to its own host and to the URLs in that
// host's discovery document. It never sends one over plain HTTP to another
// machine. Errors never contain a credential, a URL's query, or text from a
// foreign host.
package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/opentofu/svchost"
	"github.com/opentofu/svchost/disco"
	"github.com/opentofu/svchost/svcauth"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
	"github.com/larder-registry/larder/pkg/text/printable"
)

const (
	// attemptTimeout bounds one attempt at a request, including reading the
	// response.
	attemptTimeout = 30 * time.Second
	// idleTimeout is how long a download or an upload may transfer no bytes.
	idleTimeout = 60 * time.Second
	// maxURL bounds a URL in a response, in bytes. Presigned URLs with a session
	// token have about 2 KiB.
	maxURL = 8 << 10
	// maxKeys bounds the signing keys of a package together, in bytes.
	maxKeys = 256 << 10
	// maxAnswer bounds a response of JSON, in bytes. The longest public lists
	// of versions have about 1 MiB.
	maxAnswer = 8 << 20
	// maxDescription bounds a response about a single version, in bytes. It has
	// room for maxKeys.
	maxDescription = 1 << 20
)

// Client sends requests to registries. Create one with [New].
type Client struct {
	// Wait is the time before the second attempt. It doubles for each further
	// attempt. If zero, half a second is used.
	Wait time.Duration
	// MinRate is the rate below which a download ends with [ErrSlow]. If zero, a
	// download may take any time.
	MinRate Rate

	config    *Config
	agent     string
	metadata  *http.Client
	downloads *http.Client
	uploads   *http.Client
	discovery *disco.Disco

	transport http.RoundTripper
	dials     bool          // whether transport was created by this package
	resolver  *net.Resolver // of confined clients; nil: net.DefaultResolver
	confining sync.Mutex
	confined  map[confinement]*Client
	to        *confinement // of a confined client
}

// New returns a client with the credentials and services of config. If config
// is nil, the client has none. userAgent is the User-Agent header, for example
// larder/1.0.0. If transport is nil, a clone of http.DefaultTransport is used,
// which takes proxies from the environment.
func New(config *Config, userAgent string, transport http.RoundTripper) *Client {
	if config == nil {
		config = &Config{}
	}
	dials := transport == nil
	if dials {
		transport = http.DefaultTransport
		if t, ok := transport.(*http.Transport); ok {
			transport = t.Clone()
		}
	}
	c := &Client{
		config:    config,
		agent:     userAgent,
		metadata:  &http.Client{Transport: transport, CheckRedirect: redirect, Timeout: attemptTimeout},
		downloads: &http.Client{Transport: transport, CheckRedirect: redirect},
		uploads:   &http.Client{Transport: expecting(transport), CheckRedirect: stay},
		transport: transport,
		dials:     dials,
	}
	c.discovery = disco.New(
		disco.WithCredentials(config), disco.WithHTTPClient(&http.Client{Transport: discoveryTransport{c}}),
	)
	for host, services := range config.services {
		c.discovery.ForceHostServices(host, services)
	}
	return c
}

// Service is one service of a registry, for example its provider registry
// protocol. Get one with [Client.Service] or [Client.ServiceAt].
type Service struct {
	// URL is the base URL. It ends in a slash.
	URL    *url.URL
	client *Client
	host   svchost.Hostname // whose credential is sent; empty if no credential can be configured
	// noLogin reports that the host's discovery document has no login service.
	noLogin bool
}

// Service finds a service of a host, for example providers.v1. The host may
// have a port. A host block of the configuration takes precedence over
// discovery. The client requests each host's discovery document once.
//
// It returns registry.ErrNotFound if the host does not offer the service. It
// returns registry.ErrInvalid if the host name, the discovery document or the
// service's URL is invalid.
func (c *Client) Service(ctx context.Context, host, id string) (*Service, error) {
	name, err := parseHost(host)
	if err != nil {
		return nil, err
	}
	// Discovery continues without a credential if reading the credential fails.
	if _, err := c.config.ForHost(ctx, name); err != nil {
		return nil, err
	}
	found, err := c.discovery.Discover(ctx, name)
	if err != nil {
		if own, ok := errors.AsType[failed](err); ok {
			return nil, own
		}
		return nil, registry.Errorf(registry.ErrInvalid, "cannot read the discovery document of %s: %s",
			display(name), printable.Mark(err.Error(), 200))
	}
	base, err := found.ServiceURL(id)
	if err != nil {
		_, absent := errors.AsType[*disco.ErrServiceNotProvided](err)
		_, other := errors.AsType[*disco.ErrVersionNotSupported](err)
		_, forced := c.config.services[name]
		switch {
		case (absent || other) && forced:
			return nil, registry.Errorf(registry.ErrNotFound,
				"cannot use %s of %s: the host block in the CLI configuration lacks it", id, display(name))
		case absent:
			return nil, registry.WithHint(registry.Errorf(registry.ErrNotFound,
				"cannot use %s of %s: the host does not offer it", id, display(name)), "Check the host name.")
		case other:
			return nil, registry.Errorf(registry.ErrNotFound,
				"cannot use %s of %s: the host offers only another version of it", id, display(name))
		}
		return nil, registry.Errorf(registry.ErrInvalid,
			"cannot use %s of %s: its URL must use https and have no user", id, display(name))
	}
	s := c.at(base, name)
	if len(s.URL.String()) > maxURL { // the mirror stores it
		return nil, registry.Errorf(registry.ErrInvalid,
			"cannot use %s of %s: its URL has more than %d bytes", id, display(name), maxURL)
	}
	// The login service is an object and not a URL, so ServiceURL returns an
	// error in any case.
	_, err = found.ServiceURL("login.v1")
	_, s.noLogin = errors.AsType[*disco.ErrServiceNotProvided](err)
	return s, nil
}

// Forget makes the next [Client.Service] request the discovery document of a host
// again.
func (c *Client) Forget(host string) {
	if name, err := parseHost(host); err == nil {
		c.discovery.Forget(name)
	}
}

// Configured returns the URL of a service in the host block of the
// configuration. It is empty if there is no host block or the block lacks the
// service.
func (c *Client) Configured(host, id string) string {
	name, err := parseHost(host)
	if err != nil {
		return ""
	}
	text, _ := c.config.services[name][id].(string)
	reference, err := url.Parse(text)
	if err != nil || text == "" {
		return ""
	}
	return (&url.URL{Scheme: "https", Host: string(name)}).ResolveReference(reference).String()
}

// ServiceAt returns a service by its base URL, which must be https, or http on
// a loopback address. Requests carry the credential of the URL's host. It
// returns registry.ErrInvalid for any other URL.
func (c *Client) ServiceAt(base string) (*Service, error) {
	// The error would quote the URL, which may contain a password.
	u, err := url.Parse(base)
	if err != nil || len(base) > maxURL || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || !isPrivate(u) {
		return nil, registry.Errorf(registry.ErrInvalid,
			"the URL of a registry must be https://HOST/PATH, without a user or a query")
	}
	// An address such as an IPv6 address is not a host name for the CLIs, and
	// has no credential.
	host, _ := parseHost(u.Host)
	return c.at(u, host), nil
}

func (c *Client) at(base *url.URL, host svchost.Hostname) *Service {
	u := *base
	u.RawQuery, u.ForceQuery, u.Fragment, u.RawFragment = "", false, "", ""
	if !strings.HasSuffix(u.Path, "/") {
		u.Path += "/"
		if u.RawPath != "" {
			u.RawPath += "/"
		}
	}
	return &Service{URL: &u, client: c, host: host}
}

// Parent returns the service one level above s, for services that share a base
// URL. It returns false unless the last element of the URL's path is name.
func (s *Service) Parent(name string) (*Service, bool) {
	path, found := strings.CutSuffix(s.URL.Path, "/"+name+"/")
	if !found || s.URL.RawPath != "" {
		return nil, false
	}
	parent, above := *s, *s.URL
	above.Path = path + "/"
	parent.URL = &above
	return &parent, true
}

// GetJSON requests a path below the service's URL and decodes the response into
// `into`. Any status but 200 is an error. It returns the URL of the response
// after redirects, because clients resolve relative URLs in the response
// against it.
func (s *Service) GetJSON(ctx context.Context, path string, into any) (*url.URL, error) {
	a, err := s.getJSON(ctx, path, maxAnswer, into)
	if err != nil {
		return nil, err
	}
	return a.url, nil
}

// getJSON is like [Service.GetJSON] but returns the whole response, which has at
// most limit bytes.
func (s *Service) getJSON(ctx context.Context, path string, limit int, into any) (*answer, error) {
	a, err := s.ask(ctx, http.MethodGet, path, nil, true, limit)
	if err != nil {
		return nil, err
	}
	if a.status != http.StatusOK {
		return nil, a.info.statusError(a.status, complaint{})
	}
	if err := a.decode(into); err != nil {
		return nil, err
	}
	return a, nil
}

// Do sends a request to one of Larder's own endpoints. It sends body as JSON
// unless body is nil, and decodes a successful response into `into` unless that
// is nil. A *[]byte gets the response as it is. Do returns the status of the
// response, also with an error.
//
// The error contains the registry's own text and hint. Do repeats the request
// after a failure if the method is GET, HEAD, PUT or DELETE. It repeats any
// other request only if it cannot have arrived.
//
// A 409 is registry.ErrExists, or registry.ErrConflict if the same request may
// succeed later. A response with the code of registry.ErrCorrupt or
// registry.ErrWithdrawn is that error too.
func (s *Service) Do(ctx context.Context, method, path string, body, into any) (status int, err error) {
	repeatable := []string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete}
	return s.do(ctx, method, path, body, into, slices.Contains(repeatable, method))
}

// Repeat is like [Service.Do], but repeats the request whatever its method. Use
// it for requests that have the same effect when they arrive twice, such as a
// commit.
func (s *Service) Repeat(ctx context.Context, method, path string, body, into any) (status int, err error) {
	return s.do(ctx, method, path, body, into, true)
}

func (s *Service) do(ctx context.Context, method, path string, body, into any, again bool) (int, error) {
	a, err := s.ask(ctx, method, path, body, again, maxAnswer)
	if err != nil {
		return 0, err
	}
	if a.status < 200 || a.status > 299 {
		c := a.complaint()
		if a.status == http.StatusConflict && a.header.Get("Retry-After") != "" {
			c.code = errs.Code(registry.ErrConflict) // proxies leave this header unchanged
			c.text = cmp.Or(c.text, "another request was faster")
		}
		return a.status, a.info.statusError(a.status, c)
	}
	if into == nil || a.status == http.StatusNoContent {
		return a.status, nil
	}
	if body, isRaw := into.(*[]byte); isRaw {
		*body = a.body
		return a.status, nil
	}
	return a.status, a.decode(into)
}

// answer is a complete response.
type answer struct {
	info   requestInfo
	token  string // the token that was sent
	status int
	header http.Header
	url    *url.URL
	body   []byte
}

func (s *Service) ask(ctx context.Context, method, path string, body any, again bool, limit int) (*answer, error) {
	target, err := s.under(path)
	if err != nil {
		return nil, err
	}
	token, from, err := s.credential(ctx, target)
	if err != nil {
		return nil, err
	}
	config := s.client.config
	a := &answer{info: requestInfo{
		method: method, url: target, host: s.host, from: from, own: config.ownVariable(s.host),
		missing: config.missing, config: config.named, noLogin: s.noLogin,
	}, token: token}
	if token != "" && !isPrivate(target) {
		return nil, registry.WithHint(registry.Errorf(registry.ErrInvalid,
			"cannot %s: the token for %s must not be sent over http", a.info, display(s.host)),
			"Give the service an https URL.")
	}
	var payload []byte
	if body != nil {
		if payload, err = json.Marshal(body); err != nil {
			return nil, fmt.Errorf("cannot %s: encoding %T: %w", a.info, body, err)
		}
	}
	request, err := newRequest(ctx, a.info, payload)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	if payload != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		svcauth.HostCredentialsToken(token).PrepareRequest(request.Request)
	}
	response, read, err := s.client.exchange(request, again, limit)
	if err != nil {
		return nil, a.info.connectionError(ctx, err)
	}
	a.status, a.header, a.url, a.body = response.StatusCode, response.Header, response.Request.URL, read
	return a, nil
}

// credential returns the token to send with a request to a URL of the service. It is
// empty if there is none. A token that is only for its own host is an error for
// another one.
func (s *Service) credential(ctx context.Context, target *url.URL) (string, source, error) {
	token, from, err := s.client.config.token(ctx, s.host)
	if from.bound && (target.Scheme != "https" || origin(target) != origin(&url.URL{Scheme: "https", Host: string(s.host)})) {
		return "", source{}, registry.WithHint(registry.Errorf(registry.ErrInvalid,
			"the token %s is only for %s, and must not be sent to %s", from.place, display(s.host),
			printable.Mark(target.Scheme+"://"+target.Host, 300)),
			"Configure the token for OpenTofu or Terraform, which send it to all services of a host.")
	}
	return token, from, err
}

// under returns the URL of a path below the service's own. The path may have a
// query.
func (s *Service) under(path string) (*url.URL, error) {
	reference, err := url.Parse(path)
	if err == nil && !reference.IsAbs() && reference.Host == "" && !strings.HasPrefix(path, "/") {
		if u := s.URL.ResolveReference(reference); strings.HasPrefix(u.EscapedPath(), s.URL.EscapedPath()) {
			return u, nil
		}
	}
	return nil, fmt.Errorf("%w path of a request to %s: it must be below the service's URL",
		registry.ErrInvalid, printable.Mark(s.URL.Host, 100))
}

// parseHost is [registry.ParseHost] for the CLIs' packages.
func parseHost(host string) (svchost.Hostname, error) {
	name, err := registry.ParseHost(host)
	return svchost.Hostname(name), err
}

func display(host svchost.Hostname) string { return printable.Mark(registry.Host(host).Display(), 300) }

// isPrivate reports whether nobody can intercept requests to a URL.
func isPrivate(u *url.URL) bool { return u.Scheme == "https" || u.Scheme == "http" && isLoopback(u) }

func isLoopback(u *url.URL) bool {
	return strings.EqualFold(u.Hostname(), "localhost") || net.ParseIP(u.Hostname()).IsLoopback()
}
