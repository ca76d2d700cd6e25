package errs_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/larder-registry/larder/pkg/registry/errs"
)

func TestCode(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"nothing":            {nil, ""},
		"another":            {errors.New("x"), ""},
		"wrapped":            {fmt.Errorf("cannot read x: %w", errs.ErrNotFound), "not_found"},
		"withdrawn, read":    {fmt.Errorf("%w: %w", errs.ErrNotFound, errs.ErrWithdrawn), "withdrawn"},
		"withdrawn, publish": {fmt.Errorf("%w: %w", errs.ErrExists, errs.ErrWithdrawn), "withdrawn"},
		"an issuer":          {fmt.Errorf("%w: %w", errs.ErrUnavailable, errs.ErrIssuer), "issuer"},
		"joined":             {errors.Join(errors.New("x"), errs.ErrInvalid), "invalid"},
	} {
		if got := errs.Code(test.err); got != test.want {
			t.Errorf("%s: code %q, want %q", name, got, test.want)
		}
	}
}

func TestHint(t *testing.T) {
	t.Parallel()
	if errs.WithHint(nil, "x") != nil {
		t.Error("a hint makes an error of nil")
	}
	inner := errs.WithHint(errs.ErrInvalid, "use %d", 1)
	wrapped := fmt.Errorf("cannot do it: %w", inner)
	for name, test := range map[string]struct {
		err  error
		text string
		hint string
	}{
		"none":      {errs.ErrInvalid, "invalid", ""},
		"one":       {inner, "invalid", "use 1"},
		"wrapped":   {wrapped, "cannot do it: invalid", "use 1"},
		"outermost": {errs.WithHint(wrapped, "use 2"), "cannot do it: invalid", "use 2"},
	} {
		if got := test.err.Error(); got != test.text {
			t.Errorf("%s: text %q, want %q", name, got, test.text)
		}
		if got := errs.Hint(test.err); got != test.hint {
			t.Errorf("%s: hint %q, want %q", name, got, test.hint)
		}
		if !errors.Is(test.err, errs.ErrInvalid) {
			t.Errorf("%s: it is not ErrInvalid", name)
		}
	}
}

func TestErrorf(t *testing.T) {
	t.Parallel()
	inner := errors.New("it does not exist")
	err := fmt.Errorf("cannot publish: %w", errs.Errorf(errs.ErrInvalid, "cannot read %s: %w", "x", inner))
	if got, want := err.Error(), "cannot publish: cannot read x: it does not exist"; got != want {
		t.Errorf("text %q, want %q", got, want)
	}
	for _, is := range []error{errs.ErrInvalid, inner} {
		if !errors.Is(err, is) {
			t.Errorf("it is not %v", is)
		}
	}
	if errors.Is(err, errs.ErrNotFound) {
		t.Error("it is ErrNotFound")
	}
	if got := errs.Code(err); got != "invalid" {
		t.Errorf("code %q", got)
	}
}
