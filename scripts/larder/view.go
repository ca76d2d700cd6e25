package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/terminal"
)

// view is the result of a command. With --json its fields are printed.
type view interface {
	// text prints it for people.
	text(p page)
}

// brief is a view that prints something with --quiet too, such as the names with
// which a script goes on.
type brief interface {
	quiet(p page)
}

// shown returns a view, or none beside an error.
func shown[V view](v V, err error) (view, error) {
	if err != nil {
		return nil, err
	}
	return v, nil
}

// page is what views print on.
type page struct{ terminal.Output }

func (p page) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(p, format, args...) // checkedWriter keeps the error
}

// stateWidth is that of the states of [page.item].
const stateWidth = len("repaired")

// item prints one of a list: its state, and beside it what there is to say.
func (p page) item(state, text string) {
	p.printf("%s %s\n", p.Paint(fmt.Sprintf("%-*s", stateWidth, state), paintState(state)), p.beside(stateWidth+1, text))
}

// beside wraps text that stands at a column. On a terminal digests are shortened.
func (p page) beside(column int, text string) string {
	o := p.Output
	if o.Width > 0 {
		o.Width = max(o.Width-column, 20)
		text = digests.ReplaceAllString(text, "$1…")
	}
	return strings.ReplaceAll(o.Wrap(text), "\n", "\n"+strings.Repeat(" ", column))
}

// digests are SHA-256 sums in a text.
var digests = regexp.MustCompile(`\b([0-9a-f]{8})[0-9a-f]{56}\b`)

// expiresSoon is how long before its end something is said to expire soon.
const expiresSoon = 14 * day

// expiryState returns the state of something that expires, or never does if the
// time is zero.
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

// paintState returns the color of a state.
func paintState(state string) terminal.Color {
	switch state {
	case "ok", "current", "valid", "latest", "repaired", "added", "verified", "restored":
		return terminal.Green
	case "deprecated", "hidden", "expires soon", "warning", "note", "unknown", "left out":
		return terminal.Yellow
	case "withdrawn", "damaged", "lost", "expired", "revoked", "wrong", "fault":
		return terminal.Red
	case "skipped":
		return terminal.Faint
	}
	return terminal.Plain
}

// page returns the standard output. With --wide nothing is shortened.
func (c *cli) page() page {
	o := terminal.New(c.stdout)
	if c.wide {
		o.Width = 0
	}
	return page{o}
}

// show prints a view, and with --json the error beside it. Either may be missing.
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

// showJSON prints one object: the registry that the command was about, the fields
// of the view, and those of the error.
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
