package registry

import (
	"fmt"
	"strings"
	"time"
)

// Withdrawal records when, by whom and why a version was withdrawn.
type Withdrawal struct {
	At     time.Time `json:"at"`
	By     string    `json:"by"`
	Reason string    `json:"reason"`
}

// Gone returns the error for reading a withdrawn version. It is [ErrNotFound],
// as for a version that never existed, and [ErrWithdrawn].
func (w Withdrawal) Gone(v Version) error { return &withdrawnError{w, v, ErrNotFound} }

// Taken returns the error for publishing a withdrawn version again, or one that
// differs from it only in build metadata. It is [ErrExists] and [ErrWithdrawn].
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
		text += "; nobody can publish it again"
	}
	return text
}

func (e *withdrawnError) Unwrap() []error { return []error{e.as, ErrWithdrawn} }

// Address is a [Module], a [Provider] or a [MirrorAddress].
type Address interface {
	// String returns the address as users write it.
	String() string
	// Path returns the address after its kind. It is the partition in the table
	// and the prefix of the objects.
	Path() string
}

// ParseAddress parses NAMESPACE/NAME/SYSTEM, NAMESPACE/TYPE or
// HOSTNAME/NAMESPACE/TYPE. If the first of three parts has a dot, it is a
// hostname, because namespaces have no dots. For a hostname without a dot, a
// mirrored provider is written with its path, mirror/HOSTNAME/NAMESPACE/TYPE.
// Errors are [ErrInvalid].
func ParseAddress(s string) (a Address, err error) {
	first, rest, _ := strings.Cut(s, "/")
	switch slashes := strings.Count(s, "/"); {
	case isPath(s):
		err = invalidAddress(s, anyForm)
	case slashes == 3 && first == "mirror":
		a, err = ParseMirrorProvider(rest)
	case slashes == 4 && first == "mirror-modules":
		a, err = ParseMirrorModule(rest)
	case slashes == 3 && strings.Contains(first, "."):
		a, err = ParseMirrorModule(s)
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

// ObjectsOf returns the prefix of the keys of all objects of a version.
func ObjectsOf(a Address, v Version) string { return a.Path() + "/" + v.String() + "/" }
