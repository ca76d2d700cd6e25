package terminal_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/larder-registry/larder/pkg/terminal"
)

// What strangers wrote cannot act on the terminal, and keeps to its cell.
func TestHostileText(t *testing.T) {
	t.Parallel()
	const hostile = "a\x1b[2Jb\x07c\nd\u202ee\x9bf\x1b]0;x"
	var printed bytes.Buffer
	o := terminal.New(&printed)
	o.Color = true
	for name, write := range map[string]func(){
		"text":  func() { _, _ = o.Write([]byte(hostile + o.Paint("red", terminal.Red))) },
		"table": func() { o.Table([]terminal.Column{{Title: "A"}, {Title: "B"}}, [][]string{{hostile, "end"}}) },
	} {
		printed.Reset()
		write()
		got := printed.String()
		if rest := strings.NewReplacer("\x1b[31m", "", "\x1b[0m", "").Replace(got); strings.ContainsAny(rest, "\x1b\x07\u202e") {
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

// The work of fitting a table does not grow with what it takes away.
func TestShortenOnce(t *testing.T) {
	t.Parallel()
	const rows = 100
	asked := 0
	columns := []terminal.Column{{Title: "A"}, {Title: "B", Min: 5, Shorten: func(cell string, width int) string {
		asked++
		return terminal.CutEnd(cell, width)
	}}}
	var all [][]string
	for range rows {
		all = append(all, []string{"x", strings.Repeat("y", 1000)})
	}
	terminal.Output{Writer: new(bytes.Buffer), Width: 40}.Table(columns, all)
	if asked > 2*rows {
		t.Errorf("%d cells were shortened %d times", rows, asked)
	}
}
