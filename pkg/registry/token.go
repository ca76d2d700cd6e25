package registry

import "time"

// Token is the record of a token: all that is known of it but the token itself.
type Token struct {
	// ID is how the token is called where its name is not enough: the beginning of its digest.
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
