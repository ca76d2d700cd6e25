package access

import (
	"context"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/printable"
)

// Identity is a verified credential, without the credential itself. It can be
// stored. The current rules apply to it, for each request again.
type Identity = registry.Identity

// Verify returns the identity that a credential proves: a registry token, or a
// JWT of an issuer. Errors are registry.ErrBadCredential, or
// registry.ErrUnavailable if the credential cannot be verified at present. It
// caches nothing.
func (c *Control) Verify(ctx context.Context, credential string) (Identity, error) {
	if err := checkCredential(credential); err != nil {
		return Identity{}, err
	}
	id, err := c.verify(ctx, credential)
	if err != nil {
		return Identity{}, err
	}
	who, _, err := c.holder(ctx, id)
	if err != nil {
		return Identity{}, err
	}
	id.Name, id.ExpiresAt = printable.Line(who.label, maxPart), who.expires
	return id, nil
}

// WithIdentity returns the context of the caller with an identity. It applies
// the rules of the current settings to its claims. It looks up the record of a
// registry token like that of a bearer, so a revoked token is rejected within a
// minute. The error is registry.ErrBadCredential if the identity has expired or
// is not accepted any more, for example without its issuer in the settings.
func (c *Control) WithIdentity(ctx context.Context, id Identity) (context.Context, error) {
	if id.IsExpired(c.now()) {
		return nil, badCredential("the login of %.100q has expired", id.Name)
	}
	who, err := c.current(ctx, id)
	if err != nil {
		return nil, err
	}
	return c.with(ctx, who, func(what []string) error { return c.refuseIdentity(id, Read, what) }), nil
}

// current returns the holder of an identity. The decision about a token is
// cached together with that about a bearer of the token.
func (c *Control) current(ctx context.Context, id Identity) (caller, error) {
	if id.Token == "" {
		who, _, err := c.holder(ctx, id)
		return who, err
	}
	sum, err := hex.DecodeString(id.Token)
	if err != nil || len(sum) != len(digest{}) {
		return caller{}, badCredential("invalid digest of a token")
	}
	return c.cached(digest(sum), func() (caller, time.Time, error) { return c.holder(ctx, id) })
}

// Login is what the tokens of a login must match.
type Login struct {
	Issuer, Client, Nonce string
}

// VerifyLogin returns the identity of an access token, as [Control.Verify] does.
// It returns an error unless the ID token is a valid one of the login, and both
// are of the same person.
//
// Source: OpenID Connect Core 1.0, section 3.1.3.7.
func (c *Control) VerifyLogin(ctx context.Context, l Login, idToken, accessToken string) (Identity, error) {
	if err := checkCredential(idToken); err != nil {
		return Identity{}, fmt.Errorf("ID token: %w", err)
	}
	signedBy, all, err := c.signed(ctx, idToken)
	if err != nil {
		return Identity{}, fmt.Errorf("ID token: %w", err)
	}
	if err := checkIDToken(signedBy, all, l, c.now()); err != nil {
		return Identity{}, badCredential("ID token of issuer %s: %w", signedBy, err)
	}
	id, err := c.Verify(ctx, accessToken)
	switch {
	case err != nil:
		return Identity{}, err
	case id.Issuer != l.Issuer:
		return Identity{}, badCredential("the access token is not of issuer %s", l.Issuer)
	case !samePerson(l.Issuer, all, id.Claims):
		return Identity{}, badCredential("the access token and the ID token of issuer %s are not of the same person "+
			"(with Entra ID, the login needs the scope profile)", l.Issuer)
	}
	return id, nil
}

// samePerson reports whether an ID token and an access token of an issuer are of
// the same person. The subjects of Microsoft Entra ID differ between applications,
// but not the object ids. Okta's access tokens have the ID token's subject as uid.
//
// Source: https://learn.microsoft.com/en-us/entra/identity-platform/id-token-claims-reference.
func samePerson(issuer string, idToken, accessToken map[string]any) bool {
	same := func(claim, as string) bool {
		value, _ := idToken[claim].(string)
		return value != "" && accessToken[as] == value
	}
	if isMicrosoft(issuer) && idToken["oid"] != nil && accessToken["oid"] != nil {
		return same("oid", "oid")
	}
	return same("sub", "sub") || same("sub", "uid")
}

func isMicrosoft(issuer string) bool {
	u, err := url.Parse(issuer)
	return err == nil && (u.Host == "sts.windows.net" || slices.ContainsFunc(
		[]string{".microsoftonline.com", ".microsoftonline.us", ".microsoftonline.cn", ".ciamlogin.com"},
		func(domain string) bool { return strings.HasSuffix(u.Host, domain) }))
}

func checkIDToken(signedBy string, all map[string]any, l Login, now time.Time) error {
	claimed, err := parseClaims(all)
	if err != nil {
		return errors.New("the claims are unreadable")
	}
	if signedBy != l.Issuer {
		return fmt.Errorf("the login is with issuer %s", l.Issuer)
	}
	if err := claimed.validate(l.Issuer, now); err != nil {
		return err
	}
	authorized, found := all["azp"]
	got, _ := all["nonce"].(string)
	switch {
	case !slices.Contains(claimed.Audience, l.Client), found && authorized != l.Client:
		return errors.New("the token is for another client")
	case len(claimed.Audience) > 1 && !found:
		return errors.New("the token has several audiences and does not name its client in azp")
	case l.Nonce == "" || subtle.ConstantTimeCompare([]byte(got), []byte(l.Nonce)) != 1:
		return errors.New("the token belongs to another login")
	}
	return nil
}
