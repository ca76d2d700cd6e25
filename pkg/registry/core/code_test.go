package core_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/larder-registry/larder/pkg/registry/core"
)

func TestCode(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"nothing":            {nil, ""},
		"another":            {errors.New("x"), ""},
		"wrapped":            {fmt.Errorf("cannot read x: %w", core.ErrNotFound), "not_found"},
		"withdrawn, read":    {fmt.Errorf("%w: %w", core.ErrNotFound, core.ErrWithdrawn), "withdrawn"},
		"withdrawn, publish": {fmt.Errorf("%w: %w", core.ErrExists, core.ErrWithdrawn), "withdrawn"},
		"an issuer":          {fmt.Errorf("%w: %w", core.ErrUnavailable, core.ErrIssuer), "issuer"},
		"joined":             {errors.Join(errors.New("x"), core.ErrInvalid), "invalid"},
	} {
		if got := core.Code(test.err); got != test.want {
			t.Errorf("%s: code %q, want %q", name, got, test.want)
		}
	}
}

func TestHint(t *testing.T) {
	t.Parallel()
	if core.WithHint(nil, "x") != nil {
		t.Error("a hint makes an error of nil")
	}
	inner := core.WithHint(core.ErrInvalid, "use %d", 1)
	wrapped := fmt.Errorf("cannot do it: %w", inner)
	for name, test := range map[string]struct {
		err  error
		text string
		hint string
	}{
		"none":      {core.ErrInvalid, "invalid", ""},
		"one":       {inner, "invalid", "use 1"},
		"wrapped":   {wrapped, "cannot do it: invalid", "use 1"},
		"outermost": {core.WithHint(wrapped, "use 2"), "cannot do it: invalid", "use 2"},
	} {
		if got := test.err.Error(); got != test.text {
			t.Errorf("%s: text %q, want %q", name, got, test.text)
		}
		if got := core.Hint(test.err); got != test.hint {
			t.Errorf("%s: hint %q, want %q", name, got, test.hint)
		}
		if !errors.Is(test.err, core.ErrInvalid) {
			t.Errorf("%s: it is not ErrInvalid", name)
		}
	}
}

func TestErrorf(t *testing.T) {
	t.Parallel()
	inner := errors.New("it does not exist")
	err := fmt.Errorf("cannot publish: %w", core.Errorf(core.ErrInvalid, "cannot read %s: %w", "x", inner))
	if got, want := err.Error(), "cannot publish: cannot read x: it does not exist"; got != want {
		t.Errorf("text %q, want %q", got, want)
	}
	for _, is := range []error{core.ErrInvalid, inner} {
		if !errors.Is(err, is) {
			t.Errorf("it is not %v", is)
		}
	}
	if errors.Is(err, core.ErrNotFound) {
		t.Error("it is ErrNotFound")
	}
	if got := core.Code(err); got != "invalid" {
		t.Errorf("code %q", got)
	}
}
