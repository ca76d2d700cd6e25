package terminal_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/larder-registry/larder/pkg/text/terminal"
)

func TestConfirm(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]bool{
		"y\n": true, "Y\n": true, " yes \n": true, "YES\r\n": true, "y": true,
		"\n": false, "": false, "n\n": false, "no\n": false, "yesterday\n": false, "n\ny\n": false,
	} {
		var out strings.Builder
		got, err := terminal.Confirm(t.Context(), strings.NewReader(in), &out, "Continue?")
		if got != want || err != nil {
			t.Errorf("%q: %t, %v", in, got, err)
		}
		text := "Continue? [y/N] "
		if !strings.Contains(in, "\n") {
			text += "\n"
		}
		if out.String() != text {
			t.Errorf("%q: it writes %q, want %q", in, out.String(), text)
		}
	}
}

func TestConfirmCanceled(t *testing.T) {
	t.Parallel()
	in, typing := io.Pipe()
	defer typing.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := terminal.Confirm(ctx, in, io.Discard, "Continue?"); got || !errors.Is(err, context.Canceled) {
		t.Errorf("%t, %v", got, err)
	}
}
