package registry

import (
	"fmt"
	"strings"
	"time"
)

// Withdrawal is when a version was taken out of the registry for good, by whom, and why.
type Withdrawal struct {
	At     time.Time `json:"at"`
	By     string    `json:"by"`
	Reason string    `json:"reason"`
}

// Gone is what who reads a withdrawn version is told: ErrNotFound, as of one that never was, and ErrWithdrawn.
func (w Withdrawal) Gone(v Version) error { return &withdrawnError{w, v, ErrNotFound} }

// Taken is what who publishes a withdrawn version again is told, or one that differs from it in build metadata alone: ErrExists
// and ErrWithdrawn.
func (w Withdrawal) Taken(v Version) error {
	return WithHint(&withdrawnError{w, v, ErrExists}, "Choose another version.")
}

type withdrawnError struct {
	Withdrawal
	version Version
	as      error
}

func (e *withdrawnError) Error() string {
	text := fmt.Sprintf("version %s was withdrawn on %s: %s", e.version, e.At.Format("2006-01-02 15:04 MST"), e.Reason)
	if e.as == ErrExists { //nolint:errorlint // it is one of two
		text += "; its number is not used again"
	}
	return text
}

func (e *withdrawnError) Unwrap() []error { return []error{e.as, ErrWithdrawn} }

// Address is a Module, a Provider or a MirrorProvider.
type Address interface {
	// String is the address as people write it.
	String() string
	// Path is the address with its kind before it: its partition in the table, and the prefix of its objects.
	Path() string
}

// ParseAddress reads NAMESPACE/NAME/SYSTEM, NAMESPACE/TYPE or
// HOSTNAME/NAMESPACE/TYPE. If the first of three parts has a dot, which no
// namespace has, it is a hostname. A mirrored provider of another hostname is
// written with its path, mirror/HOSTNAME/NAMESPACE/TYPE. Errors are ErrInvalid.
func ParseAddress(s string) (a Address, err error) {
	first, rest, _ := strings.Cut(s, "/")
	switch slashes := strings.Count(s, "/"); {
	case isPath(s):
		err = invalidAddress(s, anyForm)
	case slashes == 3 && first == "mirror":
		a, err = ParseMirrorProvider(rest)
	case slashes == 2 && strings.Contains(first, "."):
		a, err = ParseMirrorProvider(s)
	case slashes == 2:
		a, err = ParseModule(s)
	case slashes == 1:
		a, err = ParseProvider(s)
	default:
		err = invalidAddress(s, anyForm)
	}
	if err != nil {
		return nil, err
	}
	return a, nil
}

// ObjectsOf returns what the keys of all objects of a version begin with, whether
// an operator or the publish API put them.
func ObjectsOf(a Address, v Version) string { return a.Path() + "/" + v.String() + "/" }
