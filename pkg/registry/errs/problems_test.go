package errs_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/larder-registry/larder/pkg/registry/errs"
)

func TestProblems(t *testing.T) {
	t.Parallel()
	bad := func(name string) error { return fmt.Errorf("%w file %s", errs.ErrInvalid, name) }
	errBroken := errors.New("the disk is broken")
	var all errs.Problems
	if err := all.Err("publish acme/note"); err != nil || all.Any() {
		t.Errorf("without a problem: %v", err)
	}
	for _, err := range []error{nil, errBroken} {
		if got := all.Add(err); !errors.Is(got, err) || all.Any() {
			t.Errorf("Add(%v) = %v", err, got)
		}
	}
	check := func(want string) {
		t.Helper()
		if got := all.Err("publish acme/note").Error(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	add := func(err error) {
		t.Helper()
		if err := all.Add(err); err != nil {
			t.Fatal(err)
		}
	}
	add(errs.WithHint(bad("a"), "Replace %s.", "a"))
	check("cannot publish acme/note: invalid file a")
	one := &errs.ProblemsError{What: "publish acme/note", Problems: []error{bad("a")}}
	if got, want := one.Summary(), "cannot publish acme/note: 1 problem"; got != want {
		t.Errorf("summary %q, want %q", got, want)
	}
	add(&errs.ProblemsError{Problems: []error{bad("b"), bad("c")}})
	check("cannot publish acme/note: 3 problems: invalid file a; invalid file b; invalid file c")
	err := all.Err("publish acme/note")
	if !errors.Is(err, errs.ErrInvalid) {
		t.Errorf("%v is not ErrInvalid", err)
	}
	if code := errs.Code(err); code != "invalid" {
		t.Errorf("code %q, want invalid", code)
	}
	if hint := errs.Hint(err); hint != "Replace a." {
		t.Errorf("hint %q, want %q", hint, "Replace a.")
	}
	for _, hint := range []string{"Sign it.", "Sign it.", "Replace a."} {
		add(errs.WithHint(bad("d"), "%s", hint))
	}
	if got := errs.Hint(fmt.Errorf("here: %w", all.Err(""))); got != "Replace a. Sign it." {
		t.Errorf("hints: %q", got)
	}
	if got := errs.Hint(errs.WithHint(all.Err(""), "Start again.")); got != "Start again." {
		t.Errorf("the outermost hint: %q", got)
	}
	for i := range 6 {
		add(bad(fmt.Sprint(i)))
	}
	check("cannot publish acme/note: 12 problems: invalid file a; invalid file b; invalid file c; invalid file d; " +
		"invalid file d; invalid file d; invalid file 0; invalid file 1; invalid file 2; invalid file 3; and 2 more")
	if got := all.Err("").Error()[:24]; got != "12 problems: invalid fil" {
		t.Errorf("without a name: %q", got)
	}
}
