package access

import (
	"context"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/larder-registry/larder/pkg/printable"
	"github.com/larder-registry/larder/pkg/registry"
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
	return c.with(ctx, who), nil
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

// VerifyIDToken returns an error unless a token is a valid ID token of an issuer
// for a client, with the nonce of its login. Errors are those of [Control.Verify].
//
// Source: OpenID Connect Core 1.0, section 3.1.3.7.
func (c *Control) VerifyIDToken(ctx context.Context, issuer, client, nonce, token string) error {
	if err := checkCredential(token); err != nil {
		return fmt.Errorf("ID token: %w", err)
	}
	signedBy, all, err := c.signed(ctx, token)
	if err != nil {
		return fmt.Errorf("ID token: %w", err)
	}
	if err := checkIDToken(signedBy, all, issuer, client, nonce, c.now()); err != nil {
		return badCredential("ID token of issuer %s: %w", signedBy, err)
	}
	return nil
}

func checkIDToken(signedBy string, all map[string]any, issuer, client, nonce string, now time.Time) error {
	claimed, err := parseClaims(all)
	if err != nil {
		return errors.New("the claims are unreadable")
	}
	if signedBy != issuer {
		return fmt.Errorf("the login is with issuer %s", issuer)
	}
	if err := claimed.validate(issuer, now); err != nil {
		return err
	}
	authorized, found := all["azp"]
	got, _ := all["nonce"].(string)
	switch {
	case !slices.Contains(claimed.Audience, client), found && authorized != client:
		return errors.New("the token is for another client")
	case nonce == "" || subtle.ConstantTimeCompare([]byte(got), []byte(nonce)) != 1:
		return errors.New("the token belongs to another login")
	}
	return nil
}
