package registry

import "time"

// TokenID returns what the token of a digest is called, in lists and wherever somebody is to be told of one.
func TokenID(digest string) string { return digest[:min(len(digest), 12)] }

// Token is the record of a token: all that is known of it but the token itself.
type Token struct {
	// ID is how the token is called where its name is not enough, as TokenID has it.
	ID string `json:"id"`
	// Name says whose it is, or what for.
	Name string `json:"name"`
	// Scopes are what it allows, such as read:modules/acme/*.
	Scopes    []string  `json:"scopes"`
	CreatedAt time.Time `json:"created_at"`
	CreatedBy string    `json:"created_by"`
	// ExpiresAt is the zero time if it never expires.
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

// IsExpired reports whether the token is no longer valid at a time.
func (t Token) IsExpired(now time.Time) bool {
	return !t.ExpiresAt.IsZero() && !now.Before(t.ExpiresAt)
}
