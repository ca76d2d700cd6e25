package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
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

// page returns standard output as a page. With --wide its width is unlimited.
func (c *cli) page() page {
	o := terminal.New(c.stdout)
	if c.wide {
		o.Width = 0
	}
	return page{o}
}

// show prints a view. With --json it also prints the fields of an error. Either
// may be nil.
func (c *cli) show(v view, failed *failure) error {
	switch {
	case c.json:
		return c.showJSON(v, failed)
	case v == nil:
	case !c.quiet:
		v.text(c.page())
	default:
		if b, ok := v.(brief); ok {
			b.quiet(c.page())
		}
	}
	return nil
}

// showJSON prints one object: the registry, the fields of the view, and the
// fields of the error. It prints nothing if an object was already printed.
func (c *cli) showJSON(v view, failed *failure) error {
	var fields [][]byte
	add := func(part any) error {
		var b bytes.Buffer
		encoder := json.NewEncoder(&b)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(part); err != nil {
			return err
		}
		object := bytes.TrimSpace(b.Bytes())
		if inner := object[1 : len(object)-1]; len(inner) > 0 {
			fields = append(fields, inner)
		}
		return nil
	}
	if c.about.name != "" && (v != nil || failed != nil) {
		name := c.about.name
		if c.about.dir != "" {
			name = folder(absolute(c.about.dir)).name
		}
		if err := add(map[string]string{"registry": name}); err != nil {
			return err
		}
	}
	if v != nil {
		if err := add(v); err != nil {
			return err
		}
	}
	if failed != nil {
		if err := add(failed); err != nil {
			return err
		}
	}
	if v == nil && failed == nil || c.printed {
		return nil
	}
	c.printed = true
	var out bytes.Buffer
	object := slices.Concat([]byte{'{'}, bytes.Join(fields, []byte{','}), []byte{'}'})
	if err := json.Indent(&out, object, "", "  "); err != nil {
		return err
	}
	out.WriteByte('\n')
	_, err := c.stdout.Write(out.Bytes())
	return err
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
