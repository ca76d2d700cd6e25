// Package registry defines addresses, versions, records, object keys, and the
// errors of all other packages. It does no I/O.
//
// It parses addresses and versions with the clients' own parsers, so that it
// accepts the same ones as their command lines.
package registry

import "github.com/larder-registry/larder/pkg/registry/errs"

// The errors that packages wrap and pkg/httpapi turns into statuses. See
// package errs.
var (
	ErrInvalid         = errs.ErrInvalid
	ErrUnauthenticated = errs.ErrUnauthenticated
	ErrBadCredential   = errs.ErrBadCredential
	ErrForbidden       = errs.ErrForbidden
	ErrNotAdmitted     = errs.ErrNotAdmitted
	ErrNotFound        = errs.ErrNotFound
	ErrExists          = errs.ErrExists
	ErrWithdrawn       = errs.ErrWithdrawn
	ErrConflict        = errs.ErrConflict
	ErrCorrupt         = errs.ErrCorrupt
	ErrSchema          = errs.ErrSchema
	ErrUnavailable     = errs.ErrUnavailable
	ErrIssuer          = errs.ErrIssuer
	ErrDiskFull        = errs.ErrDiskFull
)

// Errorf is [errs.Errorf].
func Errorf(kind error, format string, args ...any) error {
	return errs.Errorf(kind, format, args...)
}

// WithHint is [errs.WithHint].
func WithHint(err error, format string, args ...any) error {
	return errs.WithHint(err, format, args...)
}

// Hint is [errs.Hint].
func Hint(err error) string { return errs.Hint(err) }
