package access

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/openid"
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
	Login *openid.Login `json:"login,omitempty"`
}

// Issuer is an OpenID Connect issuer, such as the organisation's identity provider, or a CI service's for its jobs.
type Issuer struct {
	// Issuer is its identifier: a URL, exactly as it is in its tokens.
	Issuer string `json:"issuer"`
	// Audiences are those of which a token must have one.
	Audiences []string `json:"audiences,omitempty"`
	// ClientIDs are accepted in place of an audience in access tokens that have none, which are those of Amazon Cognito.
	ClientIDs []string `json:"clientIds,omitempty"`
	// Name is the claim that names a caller in the log and in what he publishes; sub if
	// it is empty.
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
	if !seen[s.Login.Issuer] {
		return fmt.Errorf("login: issuer %q is none of the issuers, so that its tokens would be refused", s.Login.Issuer)
	}
	if err := s.Login.Complete(); err != nil {
		return fmt.Errorf("login: %w", err)
	}
	return nil
}

func (i Issuer) check() error {
	if err := openid.CheckIssuer(i.Issuer); err != nil {
		return err
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
