package access

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/jsonfile"
	"github.com/larder-registry/larder/pkg/openid"
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

// FieldError is what is wrong with one field of settings.
type FieldError struct {
	// Path leads to the field: names of fields, and indexes of lists.
	Path []any
	Err  error
}

func (e *FieldError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *FieldError) Unwrap() error { return e.Err }

// ParseSettings reads settings from JSON, strictly. Errors are registry.ErrInvalid
// and have the line and the column.
func ParseSettings(text []byte) (Settings, error) { return ParseSettingsFile("", text) }

// ParseSettingsFile is like [ParseSettings], and its errors have the name of the
// file too.
func ParseSettingsFile(name string, text []byte) (Settings, error) {
	s, err := parseSettings(name, text)
	if err != nil {
		return Settings{}, fmt.Errorf("cannot read the access settings: %w", err)
	}
	return s, nil
}

func parseSettings(name string, text []byte) (Settings, error) {
	var s Settings
	if len(text) > maxSettings {
		return s, &jsonfile.Error{Name: name, Line: 1, Column: 1, Text: fmt.Sprintf("they have more than %d bytes", maxSettings)}
	}
	file, err := jsonfile.Parse(name, text)
	if err != nil {
		return s, err
	}
	if wrong := file.Object.Fill("", &s); wrong != nil {
		return s, file.Error(*wrong)
	}
	err = s.Complete()
	if field, ok := errors.AsType[*FieldError](err); ok {
		return s, file.Error(jsonfile.Fault{Offset: file.Object.Find(field.Path...).Offset, Text: field.Error()})
	}
	return s, err
}

// Complete fills in what is left out. It returns a [FieldError] for the first
// field that is wrong.
func (s *Settings) Complete() error {
	seen := make(map[string]bool)
	for n, i := range s.Issuers {
		if seen[i.Issuer] {
			return &FieldError{[]any{"issuers", n, "issuer"}, fmt.Errorf("issuer %s is there twice", i.Issuer)}
		}
		seen[i.Issuer] = true
		if path, err := i.check(); err != nil {
			return &FieldError{append([]any{"issuers", n}, path...), fmt.Errorf("issuer %q: %w", i.Issuer, err)}
		}
	}
	if s.Login == nil {
		return nil
	}
	if !seen[s.Login.Issuer] {
		return &FieldError{[]any{"login", "issuer"}, fmt.Errorf("login: issuer %q is none of the issuers, "+
			"so that its tokens would be refused", s.Login.Issuer)}
	}
	if err := s.Login.Complete(); err != nil {
		return &FieldError{[]any{"login"}, fmt.Errorf("login: %w", err)}
	}
	return nil
}

// check returns what is wrong with an issuer, and the path that leads there.
func (i Issuer) check() (path []any, err error) {
	if err := openid.CheckIssuer(i.Issuer); err != nil {
		return []any{"issuer"}, err
	}
	if len(i.Audiences)+len(i.ClientIDs) == 0 || slices.Contains(append(i.Audiences, i.ClientIDs...), "") {
		return []any{"audiences"}, errors.New("audiences is missing: " +
			"without one, a token that was made for somebody else would be accepted")
	}
	if len(i.Rules) == 0 {
		return []any{"rules"}, errors.New("rules are missing: without one, its tokens have no scope")
	}
	for n, r := range i.Rules {
		if path, err := r.check(); err != nil {
			return append([]any{"rules", n}, path...), fmt.Errorf("rule %d: %w", n+1, err)
		}
	}
	return nil, nil
}

func (r Rule) check() (path []any, err error) {
	if len(r.Claims) == 0 {
		return []any{"claims"}, errors.New("claims are missing: it would hold for everyone the issuer knows; " +
			`if that is meant, say {"sub": "**"}`)
	}
	if len(r.Scopes) == 0 || len(r.Scopes) > maxScopes {
		return []any{"scopes"}, fmt.Errorf("it has %d scopes, not 1 to %d", len(r.Scopes), maxScopes)
	}
	for _, claim := range slices.Sorted(maps.Keys(r.Claims)) {
		if err := checkClaim(claim, r.Claims[claim]); err != nil {
			return []any{"claims", claim}, err
		}
	}
	return nil, nil
}

// checkClaim checks the pattern of a claim's value.
func checkClaim(claim, want string) error {
	if claim == "" || want == "" {
		return errors.New("a claim or its value is empty")
	}
	pattern := strings.Split(want, "/")
	if tooWild(pattern) {
		return fmt.Errorf("claim %s: the value has more than two **", claim)
	}
	if slices.ContainsFunc(pattern, partlyWild) {
		return fmt.Errorf("claim %s: %.100q: a * is a whole segment between slashes, and no part of one: "+
			"write the value out, or use a claim whose whole value says it, such as repository_owner", claim, want)
	}
	return nil
}
