package rules

import (
	"strings"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
	"github.com/larder-registry/larder/pkg/text/printable"
)

// This file has the two readings of a release or a module. What no client can use is a
// problem in both. What clients accept, but a new version must not have, is odd. It is
// an error in a new version, and a note in a version that exists elsewhere.

// CheckOdd returns what is odd about a new version as a [*errs.ProblemsError], or nil.
func CheckOdd(odd []error) error {
	if len(odd) == 0 {
		return nil
	}
	return &errs.ProblemsError{Problems: odd}
}

// The limits of the notes about a version: the size of one in bytes, and their number
// in a record.
const (
	maxNote  = 500
	maxNotes = 20
)

// NotesOf returns what is odd about a version that is moved, for its record.
func NotesOf(odd []error) (notes []string) {
	for _, err := range odd[:min(len(odd), maxNotes)] {
		text := err.Error()
		for _, prefix := range []string{registry.ErrInvalid.Error() + " release: ", registry.ErrInvalid.Error() + " "} {
			text = strings.TrimPrefix(text, prefix)
		}
		notes = append(notes, printable.Line(text, maxNote))
	}
	return notes
}
