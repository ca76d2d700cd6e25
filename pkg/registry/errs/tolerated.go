package errs

import (
	"strings"

	"github.com/larder-registry/larder/pkg/text/printable"
)

// Tolerated has the two readings of a release or a module. What no client can use is
// an error in both. What clients accept, but a new version must not have, is
// tolerated. It is an error in a new version, and a note in one that exists elsewhere.
type Tolerated struct {
	// Existing reports whether the version exists elsewhere, and is copied.
	Existing bool
	found    []error
}

// Add adds a reason that is [ErrInvalid], or each problem of a
// [*ProblemsError]. err may be nil.
func (t *Tolerated) Add(err error) {
	if several, ok := err.(*ProblemsError); ok { //nolint:errorlint // one that is wrapped has a text of its own
		t.found = append(t.found, several.Problems...)
	} else if err != nil {
		t.found = append(t.found, err)
	}
}

// Check returns what a new version must not have, as a [*ProblemsError]. It
// returns nil for a version that exists.
func (t *Tolerated) Check() error {
	if t.Existing || len(t.found) == 0 {
		return nil
	}
	return &ProblemsError{Problems: t.found}
}

// The limits of the notes about a version: the size of one in bytes, and their number
// in a record.
const (
	MaxNote  = 500
	MaxNotes = 20
)

// Notes returns what was found as notes, for the record of a version that exists.
func (t *Tolerated) Notes() (notes []string) {
	for _, err := range t.found[:min(len(t.found), MaxNotes)] {
		text := strings.TrimPrefix(err.Error(), ErrInvalid.Error()+" ")
		for _, kind := range []string{"release: ", "module: "} {
			text = strings.TrimPrefix(text, kind)
		}
		notes = append(notes, printable.Line(text, MaxNote))
	}
	return notes
}
