package access

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	josejson "github.com/go-jose/go-jose/v4/json"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/larder-registry/larder/pkg/registry"
)

// algorithms lists the accepted signature algorithms.
var algorithms = []jose.SignatureAlgorithm{jose.RS256, jose.ES256, jose.EdDSA}

// leeway is the accepted difference between clocks.
const leeway = 30 * time.Second

// minRSA is the minimum size of an RSA key, in bits.
const minRSA = 2048

// fits reports whether a key may verify a token with a header. The key must
// have the header's key id, if there is one, and the type of the algorithm.
func fits(key jose.JSONWebKey, header jose.Header) bool {
	if header.KeyID != "" && header.KeyID != key.KeyID || key.Algorithm != "" && key.Algorithm != header.Algorithm {
		return false
	}
	algorithm := jose.SignatureAlgorithm(header.Algorithm)
	switch k := key.Key.(type) {
	case *rsa.PublicKey:
		return algorithm == jose.RS256 && k.N.BitLen() >= minRSA
	case *ecdsa.PublicKey:
		return algorithm == jose.ES256 && k.Curve == elliptic.P256()
	case ed25519.PublicKey:
		return algorithm == jose.EdDSA
	}
	return false
}

// errUnknownKey means that none of the issuer's published keys has signed a
// token. The issuer may publish the key later.
var errUnknownKey = errors.New("not signed with a published key of the issuer")

// claims are the claims that decide whether a token is valid.
type claims struct {
	jwt.Claims
	ClientID string `json:"client_id"`
	TokenUse string `json:"token_use"`
}

// parseClaims returns the claims that decide whether a token is valid. Names of
// claims are case-sensitive, unlike in encoding/json.
func parseClaims(all map[string]any) (claims, error) {
	var c claims
	text, err := json.Marshal(all)
	if err == nil {
		err = josejson.Unmarshal(text, &c)
	}
	return c, err
}

// signed returns the issuer and the claims of a JWT that one of the issuers of
// the settings has signed. It does not check the claims.
//
// Sources: RFC 7519; RFC 8725, the best current practices.
func (c *Control) signed(ctx context.Context, credential string) (issuer string, all map[string]any, _ error) {
	bad := func(format string, args ...any) (string, map[string]any, error) {
		return "", nil, badCredential(format, args...)
	}
	token, err := jwt.ParseSigned(credential, algorithms)
	if err != nil {
		return bad("not a JWT with an RS256, ES256 or EdDSA signature")
	}
	if err := checkHeader(credential); err != nil {
		return bad("%w", err)
	}
	var unverified struct {
		Issuer string `json:"iss"`
	}
	if err := token.UnsafeClaimsWithoutVerification(&unverified); err != nil {
		return bad("unreadable claims")
	}
	i, err := c.issuer(unverified.Issuer)
	if err != nil {
		return "", nil, err
	}
	var claimed claims
	verified, err := i.keys.Use(ctx, func(keys []jose.JSONWebKey) bool {
		return slices.ContainsFunc(keys, func(key jose.JSONWebKey) bool {
			return fits(key, token.Headers[0]) && token.Claims(key.Key, &claimed, &all) == nil
		})
	})
	if err != nil {
		return "", nil, err
	}
	if !verified {
		return bad("issuer %s, key %.100q: %w, or the claims are unreadable",
			i.Issuer.Issuer, token.Headers[0].KeyID, errUnknownKey)
	}
	return i.Issuer.Issuer, all, nil
}

// claimant returns the caller with verified claims of an issuer. changes is the
// time at which the result may change.
func (c *Control) claimant(issuer string, all map[string]any) (_ caller, changes time.Time, _ error) {
	i, err := c.issuer(issuer)
	if err != nil {
		return caller{}, time.Time{}, err
	}
	claimed, err := parseClaims(all)
	if err != nil {
		return caller{}, time.Time{}, badCredential("issuer %s: the claims are unreadable", issuer)
	}
	now := c.now()
	if err := i.accepts(claimed, now); err != nil {
		err = badCredential("issuer %s, subject %.100q: %w", issuer, claimed.Subject, err)
		return caller{}, claimed.begins(now), err
	}
	label := i.label(claimed, all)
	who := caller{
		name: label + " of " + issuer, label: label, scopes: i.scopes(all), expires: claimed.Expiry.Time(),
	}
	if who.publishes() {
		who.as = i.caller(claimed, all, who.scopes)
	}
	return who, who.expires.Add(leeway), nil
}

func (c *Control) issuer(name string) (*issuer, error) {
	i := c.rules.Load().issuers[name]
	if i == nil {
		return nil, badCredential("issuer %.100q is not in the access settings", name)
	}
	return i, nil
}

func badCredential(format string, args ...any) error {
	return fmt.Errorf("%w: %w", registry.ErrBadCredential, fmt.Errorf(format, args...))
}

// checkHeader rejects a JWT that is neither an access token nor an ID token, or
// that needs an extension, according to its header.
//
// Sources: RFC 7515, sections 4.1.9 and 4.1.11; RFC 8725, section 3.11; RFC
// 9068, section 2.1.
func checkHeader(credential string) error {
	encoded, _, _ := strings.Cut(credential, ".")
	text, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return errors.New("the header is not base64url")
	}
	var header map[string]any
	if err := json.Unmarshal(text, &header); err != nil {
		return errors.New("the header is not a JSON object")
	}
	if _, found := header["crit"]; found {
		return errors.New("the header has unsupported critical extensions")
	}
	kind, found := header["typ"]
	if !found {
		return nil
	}
	name, _ := kind.(string)
	switch strings.TrimPrefix(strings.ToLower(name), "application/") {
	case "jwt", "at+jwt":
		return nil
	}
	return fmt.Errorf("type %.100q: only JWT and at+jwt are accepted", fmt.Sprint(kind))
}

// begins returns the time at which a token becomes valid. It is the zero time
// if that is not in the future.
func (c claims) begins(now time.Time) time.Time {
	begin := c.NotBefore.Time()
	if issued := c.IssuedAt.Time(); issued.After(begin) {
		begin = issued
	}
	if begin = begin.Add(-leeway); begin.After(now) {
		return begin
	}
	return time.Time{}
}

// validate returns an error unless verified claims are of an issuer, and valid
// now.
func (c claims) validate(issuer string, now time.Time) error {
	if c.Expiry == nil {
		return errors.New("the token has no expiry")
	}
	err := c.ValidateWithLeeway(jwt.Expected{Issuer: issuer, Time: now}, leeway)
	switch {
	case errors.Is(err, jwt.ErrExpired):
		return fmt.Errorf("the token expired at %s; log in again", c.Expiry.Time().UTC().Format(time.RFC3339))
	case errors.Is(err, jwt.ErrNotValidYet), errors.Is(err, jwt.ErrIssuedInTheFuture):
		return errors.New("the token is not valid yet; check the clocks")
	}
	return err
}

// accepts returns an error unless verified claims are valid now, and for this
// registry.
func (i *issuer) accepts(c claims, now time.Time) error {
	if err := c.validate(i.Issuer.Issuer, now); err != nil {
		return err
	}
	for _, audience := range c.Audience {
		if slices.ContainsFunc(i.Audiences, func(a string) bool { return registry.Audience(a) == registry.Audience(audience) }) {
			return nil
		}
	}
	// Access tokens of Amazon Cognito have no audience.
	if len(c.Audience) == 0 && c.TokenUse == "access" && slices.Contains(i.ClientIDs, c.ClientID) {
		return nil
	}
	return fmt.Errorf("the token is for audience %.200q, client %.100q, not for this registry",
		strings.Join(c.Audience, " "), c.ClientID)
}

func (i *issuer) label(c claims, all map[string]any) string {
	name, _ := all[i.Name].(string)
	if name == "" {
		name = c.Subject
	}
	return fmt.Sprintf("%.200s", name)
}

func (i *issuer) scopes(all map[string]any) [][]Scope {
	var scopes [][]Scope
	for _, r := range i.Rules {
		if r.holds(all) {
			scopes = append(scopes, r.Scopes)
		}
	}
	return scopes
}

func (r Rule) holds(all map[string]any) bool {
	for name, want := range r.Claims {
		if !isMatch(all, name, want) {
			return false
		}
	}
	return true
}

// isMatch reports whether a value of a claim matches a pattern.
func isMatch(all map[string]any, name, want string) bool {
	pattern := strings.Split(want, "/")
	return slices.ContainsFunc(values(all, name), func(value string) bool {
		return matches(pattern, strings.Split(value, "/"), false)
	})
}

// AcceptsAll reports whether a rule matches all tokens that another one
// matches. It compares the segments of their patterns one by one.
func (r Rule) AcceptsAll(other Rule) bool {
	for name, pattern := range r.Claims {
		want, ok := other.Claims[name]
		if !ok || !matchesAll(strings.Split(pattern, "/"), strings.Split(want, "/"), false) {
			return false
		}
	}
	return true
}

// exact is the first number that JSON may round to a neighbor. Different ids
// from there on could become equal.
const exact = 1 << 53

// values returns the values of a claim as texts: none, one, or those of a list.
func values(all map[string]any, name string) []string {
	value := registry.Claim(all, name)
	list, ok := value.([]any)
	if !ok {
		list = []any{value}
	}
	var out []string
	for _, v := range list {
		switch v := v.(type) {
		case string:
			out = append(out, v)
		case bool:
			out = append(out, strconv.FormatBool(v))
		case float64:
			if math.Abs(v) < exact {
				out = append(out, strconv.FormatFloat(v, 'f', -1, 64))
			}
		}
	}
	return out
}
