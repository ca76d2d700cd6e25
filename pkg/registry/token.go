package registry

import "time"

// TokenID returns the ID of the token with a digest, which lists and logs show.
func TokenID(digest string) string { return digest[:min(len(digest), 12)] }

// Token is the record of a token. It does not contain the token itself.
type Token struct {
	// ID identifies the token if its name is ambiguous. See [TokenID].
	ID string `json:"id"`
	// Name names the holder or the purpose of the token.
	Name string `json:"name"`
	// Scopes are the permissions of the token, such as read:modules/acme/*.
	Scopes    []string  `json:"scopes"`
	CreatedAt time.Time `json:"created_at"`
	CreatedBy string    `json:"created_by"`
	// ExpiresAt is the zero time if the token never expires.
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

// IsExpired reports whether the token has expired at a time.
func (t Token) IsExpired(now time.Time) bool {
	return !t.ExpiresAt.IsZero() && !now.Before(t.ExpiresAt)
}
