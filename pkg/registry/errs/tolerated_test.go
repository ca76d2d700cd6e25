package errs_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/registry/errs"
)

func TestTolerated(t *testing.T) {
	t.Parallel()
	var found errs.Tolerated
	if err := found.Check(""); err != nil || found.Notes() != nil {
		t.Errorf("nothing: %v, %q", err, found.Notes())
	}
	found.Add(nil)
	found.Add(fmt.Errorf("%w module: a.tf is odd", errs.ErrInvalid))
	found.Add(&errs.ProblemsError{Problems: []error{fmt.Errorf("x.zip: %w provider zip: invalid y", errs.ErrInvalid), errors.New("invalid z")}})
	found.AddFirst(fmt.Errorf("x.sig: %w signature: it is old", errs.ErrInvalid))
	want := []string{"x.sig: signature: it is old", "a.tf is odd", "x.zip: invalid y", "invalid z"}
	if diff := cmp.Diff(want, found.Notes()); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
	if several, ok := errors.AsType[*errs.ProblemsError](found.Check("")); !ok || len(several.Problems) != len(want) {
		t.Errorf("new: got error %v, want %d problems", found.Check(""), len(want))
	}
	found.Existing = true
	if err := found.Check(""); err != nil {
		t.Errorf("existing: %v", err)
	}
	for range errs.MaxNotes {
		found.Add(errors.New("more"))
	}
	notes := found.Notes()
	if len(notes) != errs.MaxNotes || notes[0] != want[0] || !slices.Contains(notes, "and 5 more") {
		t.Errorf("many: %q", notes)
	}
}
