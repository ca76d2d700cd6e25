package errs

import (
	"errors"
	"fmt"
	"strings"

	"github.com/larder-registry/larder/pkg/text/printable"
)

// Tolerated has what a new version must not have, but one that exists elsewhere may. For
// example, clients accept it, or it is only in a folder that nobody calls. It is an error
// in a new version, and a note in a copy. What would harm others is an error in both.
type Tolerated struct {
	// Existing reports whether the version exists elsewhere, and is copied.
	Existing bool
	found    []error
}

// Add adds reasons, or each problem of a [*ProblemsError]. A reason may be nil.
func (t *Tolerated) Add(reasons ...error) {
	for _, err := range reasons {
		if several, ok := err.(*ProblemsError); ok { //nolint:errorlint // one that is wrapped has a text of its own
			t.found = append(t.found, several.Problems...)
		} else if err != nil {
			t.found = append(t.found, err)
		}
	}
}

// AddFirst is like Add for a reason that must be among the notes.
func (t *Tolerated) AddFirst(err error) { t.found = append([]error{err}, t.found...) }

// Check returns what a new version must not have, as a [*ProblemsError] with a What. It
// returns nil for a version that exists.
func (t *Tolerated) Check(what string) error {
	if t.Existing || len(t.found) == 0 {
		return nil
	}
	return &ProblemsError{What: what, Problems: t.found}
}

// The limits of the notes about a version: the size of one in bytes, and their number
// in a record.
const (
	MaxNote  = 500
	MaxNotes = 20
)

// accepted removes that something is invalid, because clients accept it.
var accepted = strings.NewReplacer("invalid release: ", "", "invalid module: ", "", "invalid provider zip: ", "",
	"invalid signature", "signature", "invalid SHA256SUMS", "SHA256SUMS")

// Notes returns what was found as notes, for the record of a version that exists. The
// last one has the number of those that have no room.
func (t *Tolerated) Notes() (notes []string) {
	for i, err := range t.found {
		if left := len(t.found) - i; i == MaxNotes-1 && left > 1 {
			return append(notes, fmt.Sprintf("and %d more", left))
		}
		text := err.Error()
		if errors.Is(err, ErrInvalid) {
			text = accepted.Replace(text)
		}
		notes = append(notes, printable.Line(text, MaxNote))
	}
	return notes
}
