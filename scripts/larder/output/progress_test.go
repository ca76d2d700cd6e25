package output

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Waiting prints one line after a while if there is no terminal.
func TestWaiting(t *testing.T) {
	t.Parallel()
	if Silence != time.Second {
		t.Errorf("a command shows what it waits for after %s", Silence)
	}
	for name, test := range map[string]struct {
		c     Printer
		takes time.Duration
		want  string
	}{
		"short":        {Printer{}, Silence - time.Millisecond, ""},
		"long":         {Printer{}, Silence + time.Millisecond, "counting\n"},
		"longer":       {Printer{}, 5 * Silence, "counting\n"},
		"with --quiet": {Printer{Quiet: true}, 5 * Silence, ""},
		"with --json":  {Printer{JSON: true}, 5 * Silence, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				test.c.Stderr = &out
				end := test.c.Waiting("counting")
				time.Sleep(test.takes)
				end()
				if diff := cmp.Diff(test.want, out.String()); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// On a terminal, waiting shows the seconds in one line, and removes it at the
// end.
func TestWaitingOnTerminal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		end := showWaiting(&out, 20, "counting downloads in CloudWatch Logs")
		time.Sleep(Silence + 1500*time.Millisecond)
		end()
		const clear = "\r\x1b[K"
		want := clear + "counting downloads…" + clear + "counting downloads…" + clear
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Error(diff)
		}
		out.Reset()
		end = showWaiting(&out, 80, "counting")
		time.Sleep(Silence + 1500*time.Millisecond)
		end()
		want = clear + "counting… 1 s" + clear + "counting… 2 s" + clear
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Error(diff)
		}
	})
}

// With --quiet and --json no progress is printed.
func TestNoProgress(t *testing.T) {
	t.Parallel()
	for _, c := range []Printer{{Quiet: true}, {JSON: true}} {
		var out bytes.Buffer
		c.Stderr = &out
		s := c.NewProgress()
		s.Step("packing")
		moved, end := s.Transfer("uploading", 7)
		moved(7)
		end()
		s.Stop()
		if out.Len() > 0 {
			t.Errorf("quiet %t, json %t: %s", c.Quiet, c.JSON, &out)
		}
	}
	var out bytes.Buffer
	s := (&Printer{Stderr: &out}).NewProgress()
	s.Step("packing")
	s.Transfer("uploading", 2048)
	s.Stop()
	if got := out.String(); !strings.HasPrefix(got, "packing\nuploading, 2.0 KiB") {
		t.Errorf("printed %q", got)
	}
}

// On a terminal, steps are shown in one line, which is removed at the end.
func TestStepsOnTerminal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		s := startSteps(&out, 40)
		shown := func() string {
			s.mu.Lock()
			defer s.mu.Unlock()
			line := out.String()
			out.Reset()
			return line[strings.LastIndex(line, clearLine)+len(clearLine):]
		}
		check := func(want string) {
			t.Helper()
			if got := shown(); got != want {
				t.Errorf("the line is %q, want %q", got, want)
			}
		}
		s.Step("reading \x1b[2Jvpc")
		check(`reading \x1b[2Jvpc`)
		time.Sleep(2500 * time.Millisecond)
		check(`reading \x1b[2Jvpc… 2 s`)
		moved, end := s.Transfer("packing vpc", 4<<20)
		check("packing vpc: 0 % of 4.0 MiB")
		moved(1 << 20)
		time.Sleep(3 * redraw / 2)
		check("packing vpc: 25 % of 4.0 MiB")
		_, endOther := s.Transfer("uploading acme/vpc/aws 1.0.0", 4<<20)
		check("packing vpc and 1 more: 12 % of 8.0 MiB")
		end()
		check("uploading acme/vpc/aws 1.0.0: 0 % of 4…")
		endOther()
		moved, end = s.Transfer("storing", 0)
		moved(2048)
		time.Sleep(3 * redraw / 2)
		check("storing: 2.0 KiB")
		end()
		s.Stop()
		if got := out.String(); !strings.HasSuffix(got, clearLine) {
			t.Errorf("the output ends in %q", got)
		}
	})
}
