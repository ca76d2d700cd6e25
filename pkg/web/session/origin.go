package session

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/larder-registry/larder/pkg/registry"
)

// CheckPost returns registry.ErrForbidden unless a request is a POST that a page
// of this host has sent.
//
// Browsers report where a request comes from in Sec-Fetch-Site or in Origin.
// Because of the pages' referrer policy, Origin is null in their own forms, so
// Sec-Fetch-Site comes first. A request with neither header comes from an old
// browser, which could be misused, or from no browser, which has no use for a
// session. So it is rejected too.
func CheckPost(r *http.Request) error {
	if r.Method != http.MethodPost {
		return fmt.Errorf("%w: a session begins and ends with a POST only", registry.ErrForbidden)
	}
	if r.Header.Get("Sec-Fetch-Site") == "" && r.Header.Get("Origin") == "" {
		return fmt.Errorf("%w: the request has neither Sec-Fetch-Site nor Origin", registry.ErrForbidden)
	}
	// The error of the package quotes no header.
	if err := new(http.CrossOriginProtection).Check(r); err != nil {
		return fmt.Errorf("%w: %w", registry.ErrForbidden, err)
	}
	return nil
}

// maxNext bounds where a login leads, in bytes.
const maxNext = 1024

// SafeNext returns a text if it is a path of this host, with an optional query.
// It returns / for any other text, such as a URL of another host, and for the
// pages that begin or end a session.
func SafeNext(text string) string {
	const home = "/"
	if len(text) > maxNext || !strings.HasPrefix(text, "/") || strings.ContainsFunc(text, misleads) {
		return home
	}
	u, err := url.Parse(text)
	if err != nil || u.IsAbs() || u.Host != "" || u.User != nil || u.Fragment != "" || u.Opaque != "" {
		return home
	}
	// Proxies may decode a path before they pass it on.
	if strings.HasPrefix(u.Path, "//") || strings.ContainsFunc(u.Path, misleads) {
		return home
	}
	for segment := range strings.SplitSeq(u.Path, "/") {
		if segment == ".." || segment == "." {
			return home
		}
	}
	if u.Path == "/login" || strings.HasPrefix(u.Path, "/login/") || u.Path == "/logout" {
		return home
	}
	return text
}

// misleads reports whether a browser may read a character of a URL in another
// way than this package. Browsers treat a backslash like a slash, and drop
// control characters.
func misleads(r rune) bool { return r <= ' ' || r >= 0x7f || r == '\\' }
