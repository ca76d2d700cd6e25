// Package client is a registry seen from outside: how it is found, with which credential it is asked, when it is asked
// again, and what it means when it refuses.
//
// Hosts, discovery and credentials are read by the clients' own libraries, from where OpenTofu and Terraform keep them,
// so that whoever can run `tofu init` against a registry needs to configure nothing here.
//
// It promises that a credential leaves only for the host that it is for and where that host's discovery points, never
// over plain HTTP to another machine, and that no error holds a credential, a URL's query, or what a foreign host wrote.
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

	"github.com/larder-registry/larder/pkg/printable"
	"github.com/larder-registry/larder/pkg/registry"
)

const (
	// attemptTimeout is for one attempt at a question, its answer read.
	attemptTimeout = 30 * time.Second
	// idleTimeout is how long a download or an upload may go without a byte.
	idleTimeout = 60 * time.Second
	// maxAnswer bounds an answer, in bytes of JSON. The longest known lists of versions have about one MiB.
	maxAnswer = 8 << 20
)

// Client asks registries.
type Client struct {
	// Wait is before the second attempt; it doubles from there. It is half a second where it is zero.
	Wait time.Duration

	config    *Config
	agent     string
	metadata  *http.Client
	downloads *http.Client
	uploads   *http.Client
	discovery *disco.Disco
	idle      time.Duration

	transport http.RoundTripper
	dials     bool // the transport is this package's own
	confining sync.Mutex
	confined  map[confinement]*Client
}

// New returns a client with the credentials and services of config, which may be nil for none. userAgent is such as
// larder/1.0.0. transport may be nil for one like http.DefaultTransport, which takes proxies from the environment.
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
		idle:      idleTimeout,
		transport: transport,
		dials:     dials,
	}
	c.discovery = disco.New(disco.WithCredentials(config), disco.WithHTTPClient(&http.Client{Transport: discovering{c}}))
	for host, services := range config.services {
		c.discovery.ForceHostServices(host, services)
	}
	return c
}

// Service is one service of a registry, such as its provider registry protocol.
type Service struct {
	// URL is its base, which ends in a slash.
	URL    *url.URL
	client *Client
	host   svchost.Hostname // whose credential it is asked with; empty: none can be configured for it
	// noLogin says that the host is known to have nothing to log in by.
	noLogin bool
}

// Service finds a service, such as providers.v1, of a host, which may have a port: by a host block of the configuration
// if there is one, else by discovery. A host is asked once.
func (c *Client) Service(ctx context.Context, host, id string) (*Service, error) {
	name, err := parseHost(host)
	if err != nil {
		return nil, err
	}
	// Discovery goes on without a credential where the look-up fails.
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
				"cannot use %s of %s: the host block for it in the CLIs' configuration has none", id, display(name))
		case absent:
			return nil, registry.WithHint(registry.Errorf(registry.ErrNotFound,
				"cannot use %s of %s: the host does not offer it", id, display(name)), "Check the host name.")
		case other:
			return nil, registry.Errorf(registry.ErrNotFound,
				"cannot use %s of %s: the host offers only another version of it", id, display(name))
		}
		return nil, registry.Errorf(registry.ErrInvalid,
			"cannot use %s of %s: its URL must be one with https, without a user", id, display(name))
	}
	s := c.at(base, name)
	// What describes logging in is no URL, and so an error either way.
	_, err = found.ServiceURL("login.v1")
	_, s.noLogin = errors.AsType[*disco.ErrServiceNotProvided](err)
	return s, nil
}

// Configured returns the URL of a service of a host as a host block of the
// configuration has it; empty: there is no such block, or it lacks the service.
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

// ServiceAt is a service whose base is known: a URL with https, or with http on a loopback address. It is asked with the
// credential of the URL's own host.
func (c *Client) ServiceAt(base string) (*Service, error) {
	// An error would quote the URL, in which there may be a password.
	u, err := url.Parse(base)
	if err != nil || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || !isPrivate(u) {
		return nil, registry.Errorf(registry.ErrInvalid, "the URL of a registry is https://HOST/PATH, without a user or a query")
	}
	// What is no host for the clients, such as an IPv6 address, has no credential.
	host, _ := parseHost(svchost.ForDisplay(u.Host))
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

// GetJSON asks for a path under the service's URL and decodes the answer, which must come with 200. It returns the URL
// that answered, after redirects, against which clients resolve the URLs in the answer.
func (s *Service) GetJSON(ctx context.Context, path string, into any) (*url.URL, error) {
	a, err := s.ask(ctx, http.MethodGet, path, nil, true)
	if err != nil {
		return nil, err
	}
	if a.status != http.StatusOK {
		return nil, a.asked.refused(a.status, complaint{})
	}
	if err := a.decode(into); err != nil {
		return nil, err
	}
	return a.url, nil
}

// Do sends a request with body as JSON, unless it is nil, and decodes the answer into `into`, unless that is nil, where
// the status is one of success. It returns the status that an answer had, also with an error.
//
// It is for Larder's own endpoints: what they say went wrong becomes a part of the
// error, with its hint. It is sent again after a failure if the method is one that
// may be repeated (GET, HEAD, PUT, DELETE); any other only where it has not
// arrived. A 409 is registry.ErrExists, or registry.ErrConflict where the same
// request may succeed later. An answer with the code of registry.ErrCorrupt or
// registry.ErrWithdrawn is that error too.
func (s *Service) Do(ctx context.Context, method, path string, body, into any) (status int, err error) {
	repeatable := []string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete}
	return s.do(ctx, method, path, body, into, slices.Contains(repeatable, method))
}

// Repeat is Do for a request that does the same when it arrives twice, whatever its method, such as a commit.
func (s *Service) Repeat(ctx context.Context, method, path string, body, into any) (status int, err error) {
	return s.do(ctx, method, path, body, into, true)
}

func (s *Service) do(ctx context.Context, method, path string, body, into any, again bool) (int, error) {
	a, err := s.ask(ctx, method, path, body, again)
	if err != nil {
		return 0, err
	}
	if a.status < 200 || a.status > 299 {
		c := a.complaint()
		if a.status == http.StatusConflict && a.header.Get("Retry-After") != "" {
			c.code = registry.Code(registry.ErrConflict) // no proxy changes that
			c.text = cmp.Or(c.text, "another request was faster")
		}
		return a.status, a.asked.refused(a.status, c)
	}
	if into == nil || a.status == http.StatusNoContent {
		return a.status, nil
	}
	return a.status, a.decode(into)
}

// answer is what came back, read to its end.
type answer struct {
	asked  asked
	token  string // that was sent
	status int
	header http.Header
	url    *url.URL
	body   []byte
}

func (s *Service) ask(ctx context.Context, method, path string, body any, again bool) (*answer, error) {
	target, err := s.under(path)
	if err != nil {
		return nil, err
	}
	token, from, err := s.client.config.token(ctx, s.host)
	if err != nil {
		return nil, err
	}
	config := s.client.config
	a := &answer{asked: asked{
		method: method, url: target, host: s.host, from: from,
		missing: config.missing, config: config.named, noLogin: s.noLogin,
	}, token: token}
	if token != "" && !isPrivate(target) {
		return nil, registry.WithHint(registry.Errorf(registry.ErrInvalid,
			"cannot %s: the token for %s is not sent over http", a.asked, display(s.host)), "Give the service an https URL.")
	}
	var payload []byte
	if body != nil {
		if payload, err = json.Marshal(body); err != nil {
			return nil, fmt.Errorf("cannot %s: encoding %T: %w", a.asked, body, err)
		}
	}
	request, err := newRequest(ctx, a.asked, payload)
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
	response, read, err := s.client.exchange(request, again)
	if err != nil {
		return nil, a.asked.broken(ctx, err)
	}
	a.status, a.header, a.url, a.body = response.StatusCode, response.Header, response.Request.URL, read
	return a, nil
}

// under returns the URL of a path, which may have a query, below the service's own.
func (s *Service) under(path string) (*url.URL, error) {
	reference, err := url.Parse(path)
	if err == nil && !reference.IsAbs() && reference.Host == "" && !strings.HasPrefix(path, "/") {
		if u := s.URL.ResolveReference(reference); strings.HasPrefix(u.EscapedPath(), s.URL.EscapedPath()) {
			return u, nil
		}
	}
	return nil, fmt.Errorf("%w path of a request to %s: it must lead below the service's URL",
		registry.ErrInvalid, printable.Mark(s.URL.Host, 100))
}

// parseHost reads a host as a person writes it, perhaps with a port, as the clients do.
func parseHost(host string) (svchost.Hostname, error) {
	name, err := svchost.ForComparison(host)
	if _, port, found := strings.Cut(string(name), ":"); found && (port == "0" || strings.HasPrefix(port, "-")) {
		err = errors.New("there is no such port")
	}
	if err != nil {
		return "", fmt.Errorf("%w host %.100q: %s: it is such as registry.example.com or registry.example.com:8443",
			registry.ErrInvalid, host, printable.Mark(err.Error(), 200))
	}
	return name, nil
}

// display returns a host as a person writes it.
func display(host svchost.Hostname) string {
	return printable.Mark(svchost.ForDisplay(string(host)), 300)
}

// isPrivate says whether nobody on the way can read what is sent to a URL.
func isPrivate(u *url.URL) bool { return u.Scheme == "https" || u.Scheme == "http" && isLoopback(u) }

func isLoopback(u *url.URL) bool {
	return strings.EqualFold(u.Hostname(), "localhost") || net.ParseIP(u.Hostname()).IsLoopback()
}
