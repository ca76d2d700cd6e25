// Package terminal prints text and tables so that they fit a terminal, and reads
// answers from the person there. Other outputs, such as a pipe or a file, receive
// everything in full and without colors.
//
// Text can be untrusted, such as a reason or a file name. Control characters
// are escaped, so that it cannot control the terminal.
package terminal

import (
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"

	"github.com/larder-registry/larder/pkg/text/printable"
)

// Output is the output of a command. If its width is zero, it is not a
// terminal.
type Output struct {
	// Writer receives the output after control characters were escaped.
	io.Writer
	// Width is the number of columns of the terminal. If 0, nothing is
	// shortened or wrapped.
	Width int
	// Color allows colors.
	Color bool
	// Cursor allows moving the cursor, as progress bars do.
	Cursor bool
}

// New returns the output for a stream. If the stream is a terminal, the output
// has its width. It has colors unless NO_COLOR is set (https://no-color.org) or
// the terminal is dumb.
func New(stream io.Writer) Output {
	colors := new(bool)
	o := Output{Writer: escaper{stream, colors}}
	f, ok := stream.(interface{ Fd() uintptr })
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return o
	}
	o.Cursor = os.Getenv("TERM") != "dumb"
	o.Color = o.Cursor && os.Getenv("NO_COLOR") == ""
	*colors = o.Color
	o.Width = 80 // used if the terminal does not report its width
	if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
		o.Width = width
	}
	return o
}

// escaper escapes control characters, except line breaks and, if the output has
// colors, the sequences of [Output.Paint].
type escaper struct {
	io.Writer
	colors *bool
}

func (e escaper) Write(p []byte) (int, error) {
	text := escape(strings.ToValidUTF8(string(p), "\uFFFD"), *e.colors)
	if _, err := io.WriteString(e.Writer, text); err != nil {
		return 0, err
	}
	return len(p), nil
}

func escape(s string, colors bool) string {
	var b strings.Builder
	for s != "" {
		n := strings.IndexFunc(s, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) })
		if n < 0 {
			n = len(s)
		}
		b.WriteString(s[:n])
		s = s[n:]
		painted := ""
		for _, c := range painters {
			if colors && strings.HasPrefix(s, c) {
				painted = c
			}
		}
		if painted == "" && s != "" {
			_, size := utf8.DecodeRuneInString(s)
			b.WriteString(printable.Escape(s[:size]))
			s = s[size:]
			continue
		}
		b.WriteString(painted)
		s = s[len(painted):]
	}
	return b.String()
}

// Color is a color for [Output.Paint].
type Color = text.Color

// The colors of states.
const (
	Plain  Color = text.Reset
	Red    Color = text.FgRed
	Green  Color = text.FgGreen
	Yellow Color = text.FgYellow
	Faint  Color = text.Faint
)

// painters are the sequences that Paint writes.
var painters = []string{
	text.Reset.EscapeSeq(), Red.EscapeSeq(), Green.EscapeSeq(), Yellow.EscapeSeq(), Faint.EscapeSeq(),
}

// Paint returns s in a color, or unchanged if the output has no colors.
func (o Output) Paint(s string, c Color) string {
	if !o.Color || c == Plain || s == "" {
		return s
	}
	return c.EscapeSeq() + s + text.Reset.EscapeSeq()
}

// Wrap breaks the lines of s between words, so that they fit the terminal. It
// never breaks a command in `backquotes`, so that it can be copied.
func (o Output) Wrap(s string) string {
	if o.Width <= 0 {
		return s
	}
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		lines[i] = wrapLine(line, o.Width)
	}
	return strings.Join(lines, "\n")
}

func wrapLine(line string, width int) string {
	body := strings.TrimLeft(line, " ")
	indent := line[:len(line)-len(body)]
	var b strings.Builder
	at, first := 0, true
	for _, word := range words(body) {
		long := text.StringWidthWithoutEscSequences(word)
		switch {
		case first:
			b.WriteString(indent)
			at, first = len(indent), false
		case at+1+long > width:
			b.WriteString("\n" + indent)
			at = len(indent)
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += long
	}
	return b.String()
}

// words splits a line at spaces outside pairs of backquotes.
func words(line string) []string {
	left := strings.Count(line, "`")
	quoted := false
	return strings.FieldsFunc(line, func(r rune) bool {
		if r == '`' {
			left--
			quoted = !quoted && left > 0
		}
		return r == ' ' && !quoted
	})
}
