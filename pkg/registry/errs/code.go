package errs

import (
	"errors"
	"io/fs"
)

// codes are the stable names of the errors, for programs. An error that wraps
// two of them has the first name in this list.
var codes = []struct {
	err  error
	code string
}{
	{ErrDiskFull, "disk_full"},
	{fs.ErrPermission, CodePermission},
	{ErrCorrupt, CodeCorrupt},
	{ErrSchema, "incompatible_release"},
	{ErrWithdrawn, "withdrawn"},
	{ErrInvalid, "invalid"},
	{ErrUnauthenticated, "unauthenticated"},
	{ErrBadCredential, "bad_credential"},
	{ErrForbidden, "forbidden"},
	{ErrNotAdmitted, "not_admitted"},
	{ErrNotFound, "not_found"},
	{ErrExists, "exists"},
	{ErrConflict, "conflict"},
	{ErrIssuer, CodeIssuer},
	{ErrUnavailable, "unavailable"},
}

// CodeCorrupt is the code of [ErrCorrupt].
const CodeCorrupt = "corrupt"

// CodePermission is the code of [fs.ErrPermission]: the process may not read or
// write a file. HTTP 500.
const CodePermission = "permission_denied"

// CodeIssuer is the code of [ErrIssuer].
const CodeIssuer = "issuer"

// Codes returns the errors that have a code, by their codes.
func Codes() map[string]error {
	all := make(map[string]error, len(codes))
	for _, c := range codes {
		all[c.code] = c.err
	}
	return all
}

// Code returns the stable name of the error of this package that err wraps, such
// as "not_found". It is empty if err wraps none.
func Code(err error) string {
	for _, c := range codes {
		if errors.Is(err, c.err) {
			return c.code
		}
	}
	return ""
}
