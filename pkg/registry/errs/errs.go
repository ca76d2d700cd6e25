// Package errs has the errors of all packages, and the characters of paths.
// These are the parts of package registry that need no parser of addresses and
// versions.
//
// Most packages use the errors, [Errorf], [WithHint] and [Hint] through package
// registry. Programs that must be small and start fast use only this package.
// They do without the clients' parsers and their Unicode tables.
package errs

import (
	"errors"
	"strings"
)

// The errors that packages wrap and pkg/httpapi turns into statuses.
var (
	// ErrInvalid means that the input is malformed. HTTP 400.
	ErrInvalid = errors.New("invalid")
	// ErrUnauthenticated means that a required credential is missing. HTTP 401.
	ErrUnauthenticated = errors.New("not authenticated")
	// ErrBadCredential means that a credential is not valid. HTTP 401.
	ErrBadCredential = errors.New("bad credential")
	// ErrForbidden means that the caller lacks the permission. It is also the
	// error for a signed URL that was altered, has expired, or is for another
	// object. HTTP 403.
	ErrForbidden = errors.New("forbidden")
	// ErrNotAdmitted means that a version must not be mirrored. The policy does
	// not allow it, it is too new, or its signing key is not trusted. HTTP 403.
	ErrNotAdmitted = errors.New("not admitted")
	// ErrNotFound means that the requested thing does not exist. HTTP 404.
	ErrNotFound = errors.New("not found")
	// ErrExists means that other content is stored under the name and is not
	// replaced. HTTP 409.
	ErrExists = errors.New("already exists")
	// ErrWithdrawn means that a version was permanently removed from the
	// registry. It comes with [ErrNotFound] when reading and with [ErrExists]
	// when publishing.
	ErrWithdrawn = errors.New("withdrawn")
	// ErrConflict means that another writer was faster. Read again and retry.
	// HTTP 409.
	ErrConflict = errors.New("conflicting write")
	// ErrCorrupt means that stored data of the registry is damaged. It is
	// neither returned nor overwritten. HTTP 500.
	ErrCorrupt = errors.New("damaged")
	// ErrSchema means that another release wrote data that this one does not
	// read. HTTP 500.
	ErrSchema = errors.New("incompatible release")
	// ErrUnavailable means that a store cannot answer now. Retry later. HTTP
	// 503.
	ErrUnavailable = errors.New("unavailable")
	// ErrIssuer means that an issuer of identities is misconfigured, for
	// example with an untrusted certificate. Retrying does not help. It comes
	// with [ErrUnavailable]. HTTP 503.
	ErrIssuer = errors.New("unusable issuer")
	// ErrDiskFull means that the registry's disk or its quota is full. HTTP
	// 507.
	ErrDiskFull = errors.New("the disk is full")
)

// IsPlain reports whether a path needs no escaping in a URL on any server. Its
// characters must be those that RFC 3986 calls unreserved, the slash, and the
// plus of build metadata.
func IsPlain(path string) bool {
	for _, c := range []byte(path) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && strings.IndexByte("/._~+-", c) < 0 {
			return false
		}
	}
	return true
}
