package access

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/access/openid"
	"github.com/larder-registry/larder/pkg/files/jsonfile"
)

// Settings define who may read and publish, apart from the holders of the
// registry's own tokens. As JSON they are the stack's setting "access", and a
// file for the local registry.
type Settings struct {
	// Public lists what anyone may read without a credential.
	Public []Pattern `json:"public,omitempty"`
	// Issuers lists the issuers whose JWTs are credentials.
	Issuers []Issuer `json:"issuers,omitempty"`
	// Login configures how people get a JWT with `tofu login` and `terraform
	// login`.
	Login *openid.Login `json:"login,omitempty"`
}

// Issuer is an OpenID Connect issuer, for example an organization's identity
// provider, or a CI service.
type Issuer struct {
	// Issuer is the issuer's identifier: a URL, exactly like in its tokens.
	Issuer string `json:"issuer"`
	// Audiences lists the accepted audiences. A token must have one of them. The
	// host in https://HOST is the same in Unicode and in Punycode.
	Audiences []string `json:"audiences,omitempty"`
	// ClientIDs are accepted instead of an audience in access tokens without
	// one, such as those of Amazon Cognito.
	ClientIDs []string `json:"clientIds,omitempty"`
	// Name is the claim that names a caller in the log and in published
	// records. If empty, sub is used.
	Name string `json:"name,omitempty"`
	// Rules map claims to scopes. A token has the scopes of all rules that it
	// matches.
	Rules []Rule `json:"rules"`
}

// Rule gives scopes to tokens whose claims all match. A rule that lets CI jobs
// publish should name more than their repository, such as a ref or an
// environment. Jobs for pull requests have the same repository.
type Rule struct {
	// Claims maps the names of claims to patterns of their values. A pattern
	// consists of segments between slashes, of which * matches any one and **
	// matches any number. A name that begins with a slash is a path into
	// objects, such as /realm_access/roles. If the claim is a list, one of its
	// values must match.
	Claims map[string]string `json:"claims"`
	Scopes []Scope           `json:"scopes"`
}

// maxSettings bounds settings as text, in bytes.
const maxSettings = 64 << 10

// FieldError is an error in one field of settings.
type FieldError struct {
	// Path is the path of the field: names of fields, and indexes of lists.
	Path []any
	Err  error
}

func (e *FieldError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *FieldError) Unwrap() error { return e.Err }

// ParseSettings parses settings from JSON, and rejects unknown fields. Errors
// are registry.ErrInvalid and have the line and the column.
func ParseSettings(text []byte) (Settings, error) {
	return explained(parseSettings("", text, (*Settings).Complete))
}

// ParseSettingsFile is like [ParseSettings] for the file of a registry on one
// machine. Its errors also have the name of the file. It rejects what only a
// deployed registry can use.
func ParseSettingsFile(name string, text []byte) (Settings, error) {
	return explained(parseSettings(name, text, func(s *Settings) error {
		if err := s.Complete(); err != nil {
			return err
		}
		if l := s.Login; l != nil && l.Web != nil && l.Web.SecretParameter != "" {
			return &FieldError{[]any{"login", "web", "secretParameter"}, errors.New(
				"login: web: only a registry on AWS can read an SSM parameter: put the secret into a file, " +
					"and its path into secretFile")}
		}
		return nil
	}))
}

func explained(s Settings, err error) (Settings, error) {
	if err != nil {
		return Settings{}, fmt.Errorf("cannot read the access settings: %w", err)
	}
	return s, nil
}

func parseSettings(name string, text []byte, complete func(*Settings) error) (Settings, error) {
	var s Settings
	if len(text) > maxSettings {
		return s, &jsonfile.Error{
			Name: name, Line: 1, Column: 1, Text: fmt.Sprintf("the settings have more than %d bytes", maxSettings),
		}
	}
	file, err := jsonfile.Parse(name, text)
	if err != nil {
		return s, err
	}
	if wrong := file.Object.Fill("", &s); wrong != nil {
		return s, file.Error(*wrong)
	}
	err = complete(&s)
	if field, ok := errors.AsType[*FieldError](err); ok {
		return s, file.Error(jsonfile.Fault{Offset: file.Object.Find(field.Path...).Offset, Text: field.Error()})
	}
	return s, err
}

// Complete sets the defaults. It returns a [FieldError] for the first invalid
// field.
func (s *Settings) Complete() error {
	seen := make(map[string]bool)
	for n, i := range s.Issuers {
		if seen[i.Issuer] {
			return &FieldError{[]any{"issuers", n, "issuer"}, fmt.Errorf("issuer %s is listed twice", i.Issuer)}
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
		return &FieldError{[]any{"login", "issuer"}, fmt.Errorf("login: issuer %q is not among the issuers, "+
			"so the registry would reject its tokens", s.Login.Issuer)}
	}
	if err := s.Login.Complete(); err != nil {
		path := []any{"login"}
		if web, ok := errors.AsType[*openid.WebError](err); ok {
			path = append(path, "web", web.Field)
		}
		return &FieldError{path, fmt.Errorf("login: %w", err)}
	}
	return nil
}

// check returns an error if an issuer is invalid, and the path of the invalid
// field.
func (i Issuer) check() (path []any, err error) {
	if err := openid.CheckIssuer(i.Issuer); err != nil {
		return []any{"issuer"}, err
	}
	if len(i.Audiences)+len(i.ClientIDs) == 0 || slices.Contains(append(i.Audiences, i.ClientIDs...), "") {
		return []any{"audiences"}, errors.New("audiences are missing: " +
			"without them, the registry would accept tokens for other services")
	}
	if len(i.Rules) == 0 {
		return []any{"rules"}, errors.New("rules are missing: without them, the issuer's tokens have no scope")
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
		return []any{"claims"}, errors.New("claims are missing: the rule would match every token of the issuer; " +
			`if this is intended, set them to {"sub": "**"}`)
	}
	if len(r.Scopes) == 0 || len(r.Scopes) > maxScopes {
		return []any{"scopes"}, fmt.Errorf("the rule has %d scopes, not 1 to %d", len(r.Scopes), maxScopes)
	}
	for _, claim := range slices.Sorted(maps.Keys(r.Claims)) {
		if err := checkClaim(claim, r.Claims[claim]); err != nil {
			return []any{"claims", claim}, err
		}
	}
	return nil, nil
}

func checkClaim(claim, want string) error {
	if claim == "" || want == "" {
		return errors.New("a claim or its value is empty")
	}
	pattern := strings.Split(want, "/")
	if tooWild(pattern) {
		return fmt.Errorf("claim %s: the value has more than two **", claim)
	}
	if slices.ContainsFunc(pattern, partlyWild) {
		return fmt.Errorf("claim %s: %.100q: a * must be a complete segment between slashes: "+
			"write the complete value, or use a claim with only that part, such as repository_owner", claim, want)
	}
	return nil
}
