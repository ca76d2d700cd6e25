// Package core is the part of package registry that reads no address and no version: the errors that every other package
// speaks in, and the characters that paths are made of. Package registry has both under its own name, and who links it
// anyhow takes them there. What must be small and start fast takes them here, without the clients' parsers and their
// tables of Unicode.
package core

import (
	"errors"
	"strings"
)

// The errors that packages wrap and pkg/httpapi turns into statuses.
var (
	// ErrInvalid says that what was asked for or handed in is malformed. HTTP 400.
	ErrInvalid = errors.New("invalid")
	// ErrUnauthenticated says that there is no credential, where one is needed. HTTP 401.
	ErrUnauthenticated = errors.New("not authenticated")
	// ErrBadCredential says that a credential does not hold. HTTP 401.
	ErrBadCredential = errors.New("bad credential")
	// ErrForbidden says that the caller's scopes do not reach, or that a signed URL is altered, expired or for something
	// else. HTTP 403.
	ErrForbidden = errors.New("forbidden")
	// ErrNotFound says that there is no such thing. HTTP 404.
	ErrNotFound = errors.New("not found")
	// ErrExists says that something else is stored under this name and that it is not replaced. HTTP 409.
	ErrExists = errors.New("already exists")
	// ErrWithdrawn says that a version was taken out of the registry for good. It comes with ErrNotFound for who reads it, and
	// with ErrExists for who publishes it.
	ErrWithdrawn = errors.New("withdrawn")
	// ErrConflict says that another writer was faster; reading again and retrying is right. HTTP 409.
	ErrConflict = errors.New("conflicting write")
	// ErrCorrupt means that the registry's own data is not as it was written, so
	// that it is neither returned nor overwritten. HTTP 500.
	ErrCorrupt = errors.New("damaged")
	// ErrSchema means that another release has written what this one does not
	// read. HTTP 500.
	ErrSchema = errors.New("incompatible release")
	// ErrUnavailable says that a store cannot answer at present; trying again later is right. HTTP 503.
	ErrUnavailable = errors.New("unavailable")
	// ErrIssuer means that an issuer of identities answers in a way that trying again
	// does not mend, such as with a certificate that is not trusted. It comes with
	// ErrUnavailable. HTTP 503.
	ErrIssuer = errors.New("unusable issuer")
	// ErrDiskFull means that the registry's disk, or the quota on it, has no room.
	// HTTP 507.
	ErrDiskFull = errors.New("the disk is full")
)

// IsPlain says whether a path has only characters that mean themselves in a URL, on every server on the way: those that
// RFC 3986 calls unreserved, the slash, and the plus of build metadata.
func IsPlain(path string) bool {
	for _, c := range []byte(path) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && strings.IndexByte("/._~+-", c) < 0 {
			return false
		}
	}
	return true
}
