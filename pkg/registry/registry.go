// Package registry holds the words of the field: addresses, versions, records, the layout of keys, and the errors that
// every other package speaks in. It does no I/O.
//
// Addresses and versions are read by the clients' own parsers, so that what a command line accepts is accepted here and
// nothing else is.
package registry

import "errors"

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
	// ErrConflict says that another writer was faster; reading again and retrying is right. HTTP 409.
	ErrConflict = errors.New("conflicting write")
	// ErrUnavailable says that a store cannot answer at present; trying again later is right. HTTP 503.
	ErrUnavailable = errors.New("unavailable")
)
