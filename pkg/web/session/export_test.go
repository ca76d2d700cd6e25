package session

import "time"

// SetClock sets the clock of sessions.
func SetClock(s *Sessions, now func() time.Time) { s.now = now }

// The names of the cookies, and the limits that tests reach.
const (
	SessionCookie = sessionCookie
	LoginCookie   = loginCookie
	MaxAge        = maxAge
	LoginAge      = loginAge
	MaxNext       = maxNext
)

// Digest is digest.
var Digest = digest
