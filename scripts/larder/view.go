package main

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/text/terminal"
)

// view is the result of a command. With --json the command prints its fields.
type view interface {
	// text prints the result for people.
	text(p page)
}

// brief is a view that also prints something with --quiet, such as names for a
// script.
type brief interface {
	quiet(p page)
}

// asView returns v as a view, or nil if there is an error.
func asView[V view](v V, err error) (view, error) {
	if err != nil {
		return nil, err
	}
	return v, nil
}

// page is the output of views.
type page struct{ terminal.Output }

func (p page) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(p, format, args...) // checkedWriter stores the error
}

// stateWidth is the width of states in [page.item], in columns.
const stateWidth = len("repaired")

// item prints an entry of a list: its state, followed by a text.
func (p page) item(state, text string) {
	p.printf("%s %s\n", p.Paint(fmt.Sprintf("%-*s", stateWidth, state), paintState(state)), p.wrapAt(stateWidth+1, text))
}

// wrapAt wraps a text that begins at a column. On a terminal it shortens
// digests.
func (p page) wrapAt(column int, text string) string {
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
const expiresSoon = 14 * day

// expiryState returns "valid", "expires soon" or "expired". A zero time never
// expires.
func expiryState(expires, now time.Time) string {
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

func paintState(state string) terminal.Color {
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

// println prints a text and a newline, wrapped to the terminal's width.
func (p page) println(format string, args ...any) {
	p.printf("%s\n", p.Wrap(fmt.Sprintf(format, args...)))
}

func (p page) digest(sum string) string {
	if p.Width <= 0 {
		return sum
	}
	return terminal.CutEnd(sum, len("sha256:0123456789ab…"))
}

func (p page) warnings(all []string) {
	for _, w := range all {
		p.println("  %s: %s", p.Paint("warning", terminal.Yellow), w)
	}
}

func (p page) notes(all []string) {
	for _, note := range all {
		p.println("  %s: %s", p.Paint("note", terminal.Yellow), note)
	}
}
