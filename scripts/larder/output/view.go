// Package output prints the results of commands, as text for people, as JSON, and
// briefly for scripts. It also shows progress.
package output

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/text/terminal"
	"github.com/larder-registry/larder/scripts/larder/arguments"
)

// Partial returns v and err. It returns only err if v has no entries. n is
// the number of entries in v.
func Partial(v View, n int, err error) (View, error) {
	if n == 0 && err != nil {
		return nil, err
	}
	return v, err
}

// View is the result of a command. With --json the command prints its fields.
type View interface {
	// Text prints the result for people.
	Text(p Page)
}

// brief is a view that also prints something with --quiet, such as names for a
// script.
type brief interface {
	Quiet(p Page)
}

// As returns v as a view, or nil if there is an error.
func As[V View](v V, err error) (View, error) {
	if err != nil {
		return nil, err
	}
	return v, nil
}

// Page is the output of views.
type Page struct{ terminal.Output }

// Printf prints a text without wrapping it.
func (p Page) Printf(format string, args ...any) {
	_, _ = fmt.Fprintf(p, format, args...) // checkedWriter stores the error
}

// StateWidth is the width of states in [Page.Item], in columns.
const StateWidth = len("repaired")

// Item prints an entry of a list: its state, followed by a text.
func (p Page) Item(state, text string) {
	p.Printf("%s %s\n", p.Paint(fmt.Sprintf("%-*s", StateWidth, state), PaintState(state)), p.WrapAt(StateWidth+1, text))
}

// WrapAt wraps a text that begins at a column. On a terminal it shortens
// digests.
func (p Page) WrapAt(column int, text string) string {
	o := p.Output
	if o.Width > 0 {
		o.Width = max(o.Width-column, 20)
		text = digests.ReplaceAllString(text, "$1…")
	}
	lines := strings.Split(o.Wrap(text), "\n")
	for i := range lines[1:] {
		if lines[i+1] != "" {
			lines[i+1] = strings.Repeat(" ", column) + lines[i+1]
		}
	}
	return strings.Join(lines, "\n")
}

// digests matches SHA-256 sums in a text.
var digests = regexp.MustCompile(`\b([0-9a-f]{8})[0-9a-f]{56}\b`)

// expiresSoon is the time before expiry in which the state is "expires soon".
const expiresSoon = 14 * arguments.Day

// ExpiryState returns "valid", "expires soon" or "expired". A zero time never
// expires.
func ExpiryState(expires, now time.Time) string {
	switch {
	case expires.IsZero():
		return "valid"
	case !expires.After(now):
		return "expired"
	case expires.Sub(now) <= expiresSoon:
		return "expires soon"
	}
	return "valid"
}

// PaintState returns the color of a state.
func PaintState(state string) terminal.Color {
	switch state {
	case "ok", "current", "valid", "latest", "repaired", "added", "verified", "restored", "documented", "published":
		return terminal.Green
	case "deprecated", "hidden", "expires soon", "too new", "warning", "may change plans", "note", "unknown", "excluded":
		return terminal.Yellow
	case "withdrawn", "refused", "damaged", "missing", "expired", "revoked", "wrong", "fault", "failed", "breaking", "removed", "invalid":
		return terminal.Red
	case "skipped":
		return terminal.Faint
	}
	return terminal.Plain
}

// Println prints a text and a newline, wrapped to the terminal's width.
func (p Page) Println(format string, args ...any) {
	p.Printf("%s\n", p.Wrap(fmt.Sprintf(format, args...)))
}

// Digest returns a digest, shortened on a terminal.
func (p Page) Digest(sum string) string {
	if p.Width <= 0 {
		return sum
	}
	return terminal.CutEnd(sum, len("sha256:0123456789ab…"))
}

// Warnings prints a line for each warning.
func (p Page) Warnings(all []string) {
	for _, w := range all {
		p.Println("  %s: %s", p.Paint("warning", terminal.Yellow), w)
	}
}

// Notes prints a line for each note.
func (p Page) Notes(all []string) {
	for _, note := range all {
		p.Println("  %s: %s", p.Paint("note", terminal.Yellow), note)
	}
}
