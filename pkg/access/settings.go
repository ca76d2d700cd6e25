package access

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/registry"
)

// Settings say who may read and publish besides the holders of the registry's own tokens. As JSON they are the setting
// "access" of the stack, and a file for the local registry.
type Settings struct {
	// Public covers what anyone may read, without a credential.
	Public []Pattern `json:"public,omitempty"`
	// Issuers are whose JWTs are credentials.
	Issuers []Issuer `json:"issuers,omitempty"`
	// Login is how people get one, by `tofu login` and `terraform login`.
	Login *Login `json:"login,omitempty"`
}

// Issuer is an OpenID Connect issuer, such as the organisation's identity provider, or a CI service's for its jobs.
type Issuer struct {
	// Issuer is its identifier: a URL, exactly as it is in its tokens.
	Issuer string `json:"issuer"`
	// Audiences are those of which a token must have one.
	Audiences []string `json:"audiences,omitempty"`
	// ClientIDs are accepted in place of an audience in access tokens that have none, which are those of Amazon Cognito.
	ClientIDs []string `json:"clientIds,omitempty"`
	// Name is the claim that names a caller in the log; sub if it is empty.
	Name string `json:"name,omitempty"`
	// Rules turn claims into scopes. A token has the scopes of all rules that it matches.
	Rules []Rule `json:"rules"`
}

// Rule gives scopes to tokens whose claims all match. One by which CI jobs publish names more than their repository, such
// as a ref or an environment: jobs for pull requests are the repository's too.
type Rule struct {
	// Claims maps the names of claims to patterns of their values: segments with slashes between them, of which * is any
	// one and ** any number. A name that begins with a slash leads into objects: /realm_access/roles. Of a list, one value
	// must match.
	Claims map[string]string `json:"claims"`
	Scopes []Scope           `json:"scopes"`
}

// Login describes login.v1.
type Login struct {
	// Issuer is one of the issuers.
	Issuer string `json:"issuer"`
	// Client is the identifier of a public client there, with PKCE and without a secret.
	Client string `json:"client"`
	// Scopes to ask for; openid if there are none.
	Scopes []string `json:"scopes,omitempty"`
	// Ports are the first and the last of those on which the command line waits, for redirects to
	// http://localhost:PORT/login; 10000 to 10010 if it is empty.
	Ports []int `json:"ports,omitempty"`
	// Authorize are more parameters for the issuer's authorization endpoint, such as an audience.
	Authorize map[string]string `json:"authorize,omitempty"`
}

// maxSettings bounds settings as text, in bytes.
const maxSettings = 64 << 10

// ParseSettings reads settings from JSON, strictly. Errors are registry.ErrInvalid and say what to do.
func ParseSettings(text []byte) (Settings, error) {
	var s Settings
	if len(text) > maxSettings {
		return s, fmt.Errorf("%w access settings: they have more than %d bytes", registry.ErrInvalid, maxSettings)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&s); err != nil {
		return Settings{}, fmt.Errorf("%w access settings: %w", registry.ErrInvalid, err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return Settings{}, fmt.Errorf("%w access settings: there is something behind them", registry.ErrInvalid)
	}
	if err := s.check(); err != nil {
		return Settings{}, fmt.Errorf("%w access settings: %w", registry.ErrInvalid, err)
	}
	return s, nil
}

func (s *Settings) check() error {
	seen := make(map[string]bool)
	for _, i := range s.Issuers {
		if seen[i.Issuer] {
			return fmt.Errorf("issuer %s is there twice", i.Issuer)
		}
		seen[i.Issuer] = true
		if err := i.check(); err != nil {
			return fmt.Errorf("issuer %q: %w", i.Issuer, err)
		}
	}
	if s.Login == nil {
		return nil
	}
	l := s.Login
	switch {
	case !seen[l.Issuer]:
		return fmt.Errorf("login: issuer %q is none of the issuers, so that its tokens would be refused", l.Issuer)
	case l.Client == "":
		return errors.New("login: client is missing: the id of a public client of the issuer")
	}
	if len(l.Ports) == 0 {
		l.Ports = []int{10000, 10010}
	}
	// Clients never use the last port, and try a few at random.
	if len(l.Ports) != 2 || l.Ports[0] < 1024 || l.Ports[1] > 65535 || l.Ports[1]-l.Ports[0] < 10 {
		return fmt.Errorf("login: ports %v: give the first and the last, from 1024 to 65535, with at least ten between them", l.Ports)
	}
	if len(l.Scopes) == 0 {
		l.Scopes = []string{"openid"}
	}
	for _, own := range []string{"client_id", "code_challenge", "code_challenge_method", "redirect_uri", "response_type", "scope", "state"} {
		if _, there := l.Authorize[own]; there {
			return fmt.Errorf("login: authorize: %s is the client's own parameter", own)
		}
	}
	return nil
}

func (i Issuer) check() error {
	if err := checkURL("issuer", i.Issuer, true); err != nil {
		return err
	}
	if strings.Contains(i.Issuer, "?") {
		return errors.New("it has a query, and an issuer has none")
	}
	if len(i.Audiences)+len(i.ClientIDs) == 0 || slices.Contains(append(i.Audiences, i.ClientIDs...), "") {
		return errors.New("audiences is missing: without one, a token that was made for somebody else would be accepted")
	}
	if len(i.Rules) == 0 {
		return errors.New("rules are missing: without one, its tokens have no scope")
	}
	for n, r := range i.Rules {
		if len(r.Claims) == 0 {
			return fmt.Errorf(`rule %d: claims are missing: it would hold for everyone the issuer knows; if that is meant, say {"sub": "**"}`, n+1)
		}
		if len(r.Scopes) == 0 || len(r.Scopes) > maxScopes {
			return fmt.Errorf("rule %d: it has %d scopes, not 1 to %d", n+1, len(r.Scopes), maxScopes)
		}
		for claim, want := range r.Claims {
			if claim == "" || want == "" {
				return fmt.Errorf("rule %d: a claim or its value is empty", n+1)
			}
			pattern := strings.Split(want, "/")
			if tooWild(pattern) {
				return fmt.Errorf("rule %d: claim %s: the value has more than two **", n+1, claim)
			}
			if slices.ContainsFunc(pattern, partlyWild) {
				return fmt.Errorf("rule %d: claim %s: %.100q: a * is a whole segment between slashes, and no part of one: write the value out, or use a claim whose whole value says it, such as repository_owner", n+1, claim, want)
			}
		}
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
