package terminal_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/larder-registry/larder/pkg/text/terminal"
)

// Untrusted text cannot control the terminal, and stays in its cell.
func TestHostileText(t *testing.T) {
	t.Parallel()
	const hostile = "a\x1b[2Jb\x07c\nd\u202ee\x9bf\x1b]0;x"
	var printed bytes.Buffer
	o := terminal.New(&printed)
	terminal.AllowColors(&o)
	for name, write := range map[string]func(){
		"text":  func() { _, _ = o.Write([]byte(hostile + o.Paint("red", terminal.Red))) },
		"table": func() { o.Table([]terminal.Column{{Title: "A"}, {Title: "B"}}, [][]string{{hostile, "end"}}) },
	} {
		printed.Reset()
		write()
		got := printed.String()
		rest := strings.NewReplacer("\x1b[31m", "", "\x1b[0m", "").Replace(got)
		if strings.ContainsAny(rest, "\x1b\x07\u202e") {
			t.Errorf("%s: a control character is printed: %q", name, got)
		}
		if !strings.Contains(got, `a\x1b[2Jb\ac`) {
			t.Errorf("%s: control characters are not shown: %q", name, got)
		}
		if name == "text" && !strings.Contains(got, "\x1b[31mred\x1b[0m") {
			t.Errorf("%s: the color is lost: %q", name, got)
		}
		if name == "table" && strings.Count(got, "\n") != 2 {
			t.Errorf("%s: a cell has several lines: %q", name, got)
		}
	}
}

// Without colors, untrusted text cannot have any either.
func TestHostileColors(t *testing.T) {
	t.Parallel()
	var printed bytes.Buffer
	if _, err := terminal.New(&printed).Write([]byte("\x1b[31mred\x1b[0m")); err != nil {
		t.Fatal(err)
	}
	if got := printed.String(); got != `\x1b[31mred\x1b[0m` {
		t.Errorf("printed %q", got)
	}
}

// The number of calls of Shorten does not depend on how much a table must
// shrink.
func TestShortenOnce(t *testing.T) {
	t.Parallel()
	const rows = 100
	calls := 0
	columns := []terminal.Column{{Title: "A"}, {Title: "B", Min: 5, Shorten: func(cell string, width int) string {
		calls++
		return terminal.CutEnd(cell, width)
	}}}
	var all [][]string
	for range rows {
		all = append(all, []string{"x", strings.Repeat("y", 1000)})
	}
	terminal.Output{Writer: new(bytes.Buffer), Width: 40}.Table(columns, all)
	if calls > 2*rows {
		t.Errorf("%d cells were shortened %d times", rows, calls)
	}
}
