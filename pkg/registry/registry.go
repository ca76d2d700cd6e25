// Package registry defines addresses, versions, records, object keys, and the
// errors of all other packages. It does no I/O.
//
// It parses addresses and versions with the clients' own parsers, so that it
// accepts the same ones as their command lines.
package registry

import "github.com/larder-registry/larder/pkg/registry/core"

// The errors that packages wrap and pkg/httpapi turns into statuses. See
// package core.
var (
	ErrInvalid         = core.ErrInvalid
	ErrUnauthenticated = core.ErrUnauthenticated
	ErrBadCredential   = core.ErrBadCredential
	ErrForbidden       = core.ErrForbidden
	ErrNotAdmitted     = core.ErrNotAdmitted
	ErrNotFound        = core.ErrNotFound
	ErrExists          = core.ErrExists
	ErrWithdrawn       = core.ErrWithdrawn
	ErrConflict        = core.ErrConflict
	ErrCorrupt         = core.ErrCorrupt
	ErrSchema          = core.ErrSchema
	ErrUnavailable     = core.ErrUnavailable
	ErrIssuer          = core.ErrIssuer
	ErrDiskFull        = core.ErrDiskFull
)

// Errorf is [core.Errorf].
func Errorf(kind error, format string, args ...any) error {
	return core.Errorf(kind, format, args...)
}

// WithHint is [core.WithHint].
func WithHint(err error, format string, args ...any) error {
	return core.WithHint(err, format, args...)
}

// Hint is [core.Hint].
func Hint(err error) string { return core.Hint(err) }
