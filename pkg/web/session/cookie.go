package session

import (
	"net/http"
	"time"
)

// Browsers accept a cookie whose name begins with __Host- only from this host
// itself, with TLS, and for all paths. So no sibling host can set one.
//
// Source: RFC 6265bis, section 4.1.3.2.
const (
	sessionCookie = "__Host-larder-session"
	loginCookie   = "__Host-larder-login"
)

// cookie returns the value of a cookie. If a request has several cookies of the
// name, someone else may have set one of them, so none of them counts.
func cookie(r *http.Request, name string) string {
	found := r.CookiesNamed(name)
	if len(found) != 1 {
		return ""
	}
	return found[0].Value
}

// setCookie sets a cookie that scripts cannot read. Links from other sites send
// it, and forms of other sites do not. An age of less than a second deletes it.
func setCookie(w http.ResponseWriter, name, value string, age time.Duration) {
	c := &http.Cookie{
		Name: name, Value: value, Path: "/", HttpOnly: true, Secure: true, SameSite: http.SameSiteLaxMode,
		MaxAge: int(age / time.Second),
	}
	if c.MaxAge <= 0 {
		c.MaxAge = -1 // which is sent as 0
	}
	http.SetCookie(w, c)
}

// Forget deletes the session's cookie in the browser. It does not end the
// session.
func Forget(w http.ResponseWriter) { setCookie(w, sessionCookie, "", 0) }
