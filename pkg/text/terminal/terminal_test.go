package terminal_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/creack/pty"
	"github.com/google/go-cmp/cmp"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/larder-registry/larder/pkg/text/terminal"
)

func paint(cell string) terminal.Color {
	if cell == "hidden" {
		return terminal.Yellow
	}
	return terminal.Plain
}

var (
	columns = []terminal.Column{
		{Title: "ADDRESS", Min: 10},
		{Title: "STATE", Paint: paint},
		{Title: "SIZE", Right: true},
		{Title: "NONE"},
		{Title: "ARCHIVE", Min: 9, Optional: true},
		{Title: "BY", Min: 8, Shorten: terminal.CutStart},
	}
	rows = [][]string{
		{
			"acme/vpc/aws", "hidden", "7 B", "", "sha256:0123456789abcdef",
			"arn:aws:sts::123456789012:assumed-role/release/ada",
		},
		{"acme/a-rather-long-name/aws", "", "120 MiB", "", "sha256:fedcba9876543210", "grace"},
	}
)

func table(width int, color bool) string {
	var out bytes.Buffer
	terminal.Output{Writer: &out, Width: width, Color: color}.Table(columns, rows)
	return out.String()
}

// Reasons are below their rows if the table does not fit with them. Columns without a
// minimum are never shortened.
func TestBelow(t *testing.T) {
	t.Parallel()
	columns := []terminal.Column{
		{Title: "ADDRESS"}, {Title: "LATEST"}, {Title: "ABOUT", Min: 7}, {Title: "REASON", Below: true},
	}
	rows := [][]string{
		{"acme/a-rather-long-name/aws", "1.0.0", "Networks of a region", ""},
		{"acme/vpc/aws", "2.10.0", "", "use acme/a-rather-long-name/aws: it has flow logs"},
	}
	for width, want := range map[int]string{
		120: `
ADDRESS                      LATEST  ABOUT                 REASON
acme/a-rather-long-name/aws  1.0.0   Networks of a region
acme/vpc/aws                 2.10.0                        use acme/a-rather-long-name/aws: it has flow logs
`,
		50: `
ADDRESS                      LATEST  ABOUT
acme/a-rather-long-name/aws  1.0.0   Networks of …
acme/vpc/aws                 2.10.0
  use acme/a-rather-long-name/aws: it has flow
  logs
`,
		30: `
ADDRESS
acme/a-rather-long-name/aws
  latest 1.0.0, about Networks
  of a region
acme/vpc/aws
  latest 2.10.0
  use
  acme/a-rather-long-name/aws:
  it has flow logs
`,
	} {
		var out bytes.Buffer
		terminal.Output{Writer: &out, Width: width}.Table(columns, rows)
		if diff := cmp.Diff(want, "\n"+out.String()); diff != "" {
			t.Errorf("%d columns (-want +got):\n%s", width, diff)
		}
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		width int
		want  string
	}{
		{"no terminal", 0, `
ADDRESS                      STATE      SIZE  ARCHIVE                  BY
acme/vpc/aws                 hidden      7 B  sha256:0123456789abcdef  arn:aws:sts::123456789012:assumed-role/release/ada
acme/a-rather-long-name/aws          120 MiB  sha256:fedcba9876543210  grace
`},
		{"wide", 160, `
ADDRESS                      STATE      SIZE  ARCHIVE                  BY
acme/vpc/aws                 hidden      7 B  sha256:0123456789abcdef  arn:aws:sts::123456789012:assumed-role/release/ada
acme/a-rather-long-name/aws          120 MiB  sha256:fedcba9876543210  grace
`},
		{"the widest column is shortened first", 100, `
ADDRESS                      STATE      SIZE  ARCHIVE                  BY
acme/vpc/aws                 hidden      7 B  sha256:0123456789abcdef  …012:assumed-role/release/ada
acme/a-rather-long-name/aws          120 MiB  sha256:fedcba9876543210  grace
`},
		{"80 columns", 80, `
ADDRESS              STATE      SIZE  ARCHIVE               BY
acme/vpc/aws         hidden      7 B  sha256:0123456789ab…  …ed-role/release/ada
acme/a-rather-long…          120 MiB  sha256:fedcba987654…  grace
`},
		{"without optional columns", 45, `
ADDRESS        STATE      SIZE  BY
acme/vpc/aws   hidden      7 B  …/release/ada
acme/a-rathe…          120 MiB  grace
`},
		{"too narrow for the minimum widths", 20, `
ADDRESS
acme/vpc/aws
  state hidden, size 7
  B, by
  arn:aws:sts::123456789012:assumed-role/release/ada
acme/a-rather-long-…
  size 120 MiB, by
  grace
`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := table(test.width, false)
			if diff := cmp.Diff(strings.TrimPrefix(test.want, "\n"), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// No line is longer than the terminal, if the terminal has room for the minimum
// widths.
func TestTableFits(t *testing.T) {
	t.Parallel()
	for width := 37; width <= 140; width++ {
		for line := range strings.Lines(table(width, false)) {
			if n := text.StringWidth(strings.TrimSuffix(line, "\n")); n > width {
				t.Errorf("in %d columns there is a line of %d: %s", width, n, line)
			}
		}
	}
}

// Colors change no widths. Without colors, the output has no escape sequences.
func TestTableColor(t *testing.T) {
	t.Parallel()
	for _, width := range []int{0, 45, 80, 160} {
		painted := table(width, true)
		if !strings.Contains(painted, "\x1b[33mhidden\x1b[0m") {
			t.Errorf("in %d columns the state is plain:\n%q", width, painted)
		}
		plain := strings.NewReplacer("\x1b[33m", "", "\x1b[0m", "").Replace(painted)
		if diff := cmp.Diff(table(width, false), plain); diff != "" {
			t.Errorf("in %d columns: %s", width, diff)
		}
	}
}

func TestWideRunes(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	o := terminal.Output{Writer: &out, Width: 20}
	o.Table([]terminal.Column{{Title: "NAME", Min: 6}, {Title: "STATE"}},
		[][]string{{"日本語のモジュールです", "ok"}, {"e\u0301te\u0301", "ok"}})
	want := "NAME           STATE\n日本語のモジ…  ok\ne\u0301te\u0301            ok\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
	for width, want := range map[int]string{11: "日本語", 6: "日本語", 5: "日本…", 4: "日…", 3: "日…", 2: "…"} {
		if got := terminal.CutEnd("日本語", width); got != want {
			t.Errorf("%d columns from the beginning: %s, want %s", width, got, want)
		}
	}
	for width, want := range map[int]string{6: "日本語", 5: "…本語", 4: "…語", 3: "…語", 2: "…"} {
		if got := terminal.CutStart("日本語", width); got != want {
			t.Errorf("%d columns from the end: %s, want %s", width, got, want)
		}
	}
}

func TestWrap(t *testing.T) {
	t.Parallel()
	const text = "Make one with `larder init --store ./data`, or name yours.\n\n  note: an indented line that is too long"
	for width, want := range map[int]string{
		0:   text,
		100: text,
		30: "Make one with\n`larder init --store ./data`,\nor name yours.\n\n" +
			"  note: an indented line that\n  is too long",
		// A command is never broken.
		12: "Make one\nwith\n`larder init --store ./data`,\nor name\nyours.\n\n" +
			"  note: an\n  indented\n  line that\n  is too\n  long",
	} {
		if diff := cmp.Diff(want, terminal.Output{Width: width}.Wrap(text)); diff != "" {
			t.Errorf("in %d columns: %s", width, diff)
		}
	}
	// A single backquote does not begin a command, and colors have no width.
	o := terminal.Output{Width: 12, Color: true}
	if got := o.Wrap("a ` by it is fine here"); got != "a ` by it is\nfine here" {
		t.Errorf("%q", got)
	}
	got := o.Wrap("it is " + o.Paint("hidden", terminal.Yellow) + " now")
	if want := "it is \x1b[33mhidden\x1b[0m\nnow"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// Outputs other than terminals have no width and no colors. A terminal has
// both, but no colors with NO_COLOR or if it is dumb.
func TestNew(t *testing.T) {
	file, err := os.Create(t.TempDir() + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "xterm")
	for name, o := range map[string]terminal.Output{
		"a buffer": terminal.New(new(bytes.Buffer)),
		"a file":   terminal.New(file),
	} {
		if o.Width != 0 || o.Color {
			t.Errorf("%s: %+v", name, o)
		}
	}
	main, other, err := pty.Open()
	if err != nil {
		t.Skip("LEFT OUT: no pseudo-terminal:", err)
	}
	defer main.Close()
	defer other.Close()
	if err := pty.Setsize(other, &pty.Winsize{Rows: 25, Cols: 93}); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		noColor, term string
		color         bool
	}{{"", "xterm", true}, {"1", "xterm", false}, {"", "dumb", false}} {
		t.Setenv("NO_COLOR", test.noColor)
		t.Setenv("TERM", test.term)
		if o := terminal.New(other); o.Width != 93 || o.Color != test.color {
			t.Errorf("NO_COLOR=%s TERM=%s: width %d, color %t", test.noColor, test.term, o.Width, o.Color)
		}
	}
}
