package registry

import "time"

// Identity is a verified credential, without the credential itself. It is
// either the claims of an issuer or the digest of a registry token.
type Identity struct {
	// Issuer and Claims are those of a JWT, as verified.
	Issuer string         `json:"issuer,omitempty"`
	Claims map[string]any `json:"claims,omitempty"`
	// Token is the digest of a registry token, in hexadecimal.
	Token string `json:"token,omitempty"`
	// Name names the holder for people. Never base a decision on it.
	Name string `json:"name"`
	// ExpiresAt is when the credential expires. It is the zero time if it never
	// does.
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

// IsExpired reports whether the credential has expired at a time.
func (i Identity) IsExpired(now time.Time) bool {
	return !i.ExpiresAt.IsZero() && !now.Before(i.ExpiresAt)
}

// Session is the login of a person in a browser.
type Session struct {
	Identity  Identity  `json:"identity"`
	CreatedAt time.Time `json:"created_at"`
	// ExpiresAt is never later than the expiry of the credential.
	ExpiresAt time.Time `json:"expires_at"`
}
