package access

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/larder-registry/larder/pkg/registry"
)

// algorithms are the only ones with which a credential may be signed.
var algorithms = []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.EdDSA}

// leeway is how far clocks may be apart.
const leeway = 30 * time.Second

// minRSA is the least size of a key, in bits.
const minRSA = 2048

// fits says whether a key is of an algorithm's kind, whatever a token's header says.
func fits(key any, algorithm jose.SignatureAlgorithm) bool {
	switch k := key.(type) {
	case *rsa.PublicKey:
		return algorithm == jose.RS256 && k.N.BitLen() >= minRSA
	case *ecdsa.PublicKey:
		return algorithm == jose.ES256 && k.Curve == elliptic.P256()
	case ed25519.PublicKey:
		return algorithm == jose.EdDSA
	}
	return false
}

// issuer is an issuer with what it publishes.
type issuer struct {
	Issuer
	provider *provider
}

// claims are those that decide whether a token holds.
type claims struct {
	jwt.Claims
	ClientID string `json:"client_id"`
	TokenUse string `json:"token_use"`
}

// jwt verifies a JWT and turns its claims into scopes.
//
// Sources: RFC 7519; RFC 8725, the best current practices.
func (g *Gate) jwt(ctx context.Context, credential string) (caller, time.Time, error) {
	bad := func(format string, args ...any) (caller, time.Time, error) {
		return caller{}, time.Time{}, fmt.Errorf("%w: %w", registry.ErrBadCredential, fmt.Errorf(format, args...))
	}
	token, err := jwt.ParseSigned(credential, algorithms)
	if err != nil {
		return bad("it is no JWT that is signed by RS256, ES256 or EdDSA")
	}
	var unverified struct {
		Issuer string `json:"iss"`
	}
	if err := token.UnsafeClaimsWithoutVerification(&unverified); err != nil {
		return bad("its claims cannot be read")
	}
	i := g.issuers[unverified.Issuer]
	if i == nil {
		return bad("its issuer %.100q is not among the registry's", unverified.Issuer)
	}
	header := token.Headers[0]
	keys, err := i.provider.candidates(ctx, header.KeyID, jose.SignatureAlgorithm(header.Algorithm))
	if errors.Is(err, errUnknownKey) {
		return bad("%w %.100q", err, header.KeyID)
	}
	if err != nil {
		return caller{}, time.Time{}, err
	}
	var c claims
	var all map[string]any
	verified := slices.ContainsFunc(keys, func(key jose.JSONWebKey) bool {
		return token.Claims(key.Key, &c, &all) == nil
	})
	if !verified {
		return bad("no key of issuer %s has signed it, or its claims cannot be read", i.Issuer.Issuer)
	}
	if err := i.accepts(c, g.now()); err != nil {
		return bad("of issuer %s, subject %.100q: %w", i.Issuer.Issuer, c.Subject, err)
	}
	return caller{i.name(c, all), i.scopes(all)}, c.Expiry.Time().Add(leeway), nil
}

// accepts says whether verified claims are of a token that is for this registry, now.
func (i *issuer) accepts(c claims, now time.Time) error {
	if c.Expiry == nil {
		return errors.New("it never expires")
	}
	err := c.ValidateWithLeeway(jwt.Expected{Issuer: i.Issuer.Issuer, Time: now}, leeway)
	switch {
	case errors.Is(err, jwt.ErrExpired):
		return fmt.Errorf("it expired at %s; log in again", c.Expiry.Time().UTC().Format(time.RFC3339))
	case errors.Is(err, jwt.ErrNotValidYet), errors.Is(err, jwt.ErrIssuedInTheFuture):
		return errors.New("it does not hold yet: is a clock wrong?")
	case err != nil:
		return err
	}
	for _, audience := range c.Audience {
		if slices.Contains(i.Audiences, audience) {
			return nil
		}
	}
	// Amazon Cognito's access tokens have no audience.
	if len(c.Audience) == 0 && c.TokenUse == "access" && slices.Contains(i.ClientIDs, c.ClientID) {
		return nil
	}
	return fmt.Errorf("it is for %.200q, client %.100q, and not for this registry", c.Audience, c.ClientID)
}

// name returns what the log calls a caller.
func (i *issuer) name(c claims, all map[string]any) string {
	name, _ := all[i.Name].(string)
	if name == "" {
		name = c.Subject
	}
	return fmt.Sprintf("%.200s of %s", name, i.Issuer.Issuer)
}

// scopes returns those of all rules that match.
func (i *issuer) scopes(all map[string]any) []Scope {
	var scopes []Scope
	for _, r := range i.Rules {
		if r.holds(all) {
			scopes = append(scopes, r.Scopes...)
		}
	}
	return scopes
}

func (r Rule) holds(all map[string]any) bool {
	for name, want := range r.Claims {
		pattern := strings.Split(want, "/")
		if !slices.ContainsFunc(values(all, name), func(value string) bool {
			return matches(pattern, strings.Split(value, "/"), false)
		}) {
			return false
		}
	}
	return true
}

// values returns the values of a claim as text: none, one, or those of a list.
func values(all map[string]any, name string) []string {
	var value any = all
	if path, nested := strings.CutPrefix(name, "/"); nested {
		for _, part := range strings.Split(path, "/") {
			object, _ := value.(map[string]any)
			value = object[part]
		}
	} else {
		value = all[name]
	}
	list, ok := value.([]any)
	if !ok {
		list = []any{value}
	}
	var out []string
	for _, v := range list {
		switch v := v.(type) {
		case string:
			out = append(out, v)
		case bool, float64, json.Number:
			out = append(out, fmt.Sprint(v))
		}
	}
	return out
}
