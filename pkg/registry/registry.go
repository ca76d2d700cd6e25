// Package registry holds the words of the field: addresses, versions, records, the layout of keys, and the errors that
// every other package speaks in. It does no I/O.
//
// Addresses and versions are read by the clients' own parsers, so that what a command line accepts is accepted here and
// nothing else is.
package registry

import "github.com/larder-registry/larder/pkg/registry/core"

// The errors that packages wrap and pkg/httpapi turns into statuses: package core's own, which says what they are.
var (
	ErrInvalid         = core.ErrInvalid
	ErrUnauthenticated = core.ErrUnauthenticated
	ErrBadCredential   = core.ErrBadCredential
	ErrForbidden       = core.ErrForbidden
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

// CodeCorrupt is package core's.
const CodeCorrupt = core.CodeCorrupt

// CodeIssuer is package core's.
const CodeIssuer = core.CodeIssuer

// Code is [core.Code].
func Code(err error) string { return core.Code(err) }

// ProblemsError is [core.ProblemsError].
type ProblemsError = core.ProblemsError

// ShownProblems is [core.ShownProblems].
const ShownProblems = core.ShownProblems

// Problems is [core.Problems].
type Problems = core.Problems

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

// DiskFull is [core.DiskFull].
func DiskFull(err error) error { return core.DiskFull(err) }

// IsPlain is core.IsPlain: it says whether a path has only characters that mean themselves in a URL.
func IsPlain(path string) bool { return core.IsPlain(path) }
