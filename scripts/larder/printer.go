package main

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"

	"github.com/larder-registry/larder/pkg/text/terminal"
)

// printer prints what a command has to show: its result on standard output, and
// progress and warnings on standard error.
type printer struct {
	stdout io.Writer
	stderr io.Writer

	json  bool
	quiet bool
	wide  bool
	// printed reports whether the JSON object was printed. A command prints
	// one.
	printed bool
}

// page returns standard output as a page. With --wide its width is unlimited.
func (p *printer) page() page {
	o := terminal.New(p.stdout)
	if p.wide {
		o.Width = 0
	}
	return page{o}
}

// print prints a view for people. With --quiet it prints only what a script needs.
func (p *printer) print(v view) {
	if !p.quiet {
		v.text(p.page())
	} else if b, ok := v.(brief); ok {
		b.quiet(p.page())
	}
}

// printJSON prints one object with the fields of all parts. Each is a struct, a map
// or nil. It prints nothing if an object was already printed.
func (p *printer) printJSON(parts ...any) error {
	if p.printed {
		return nil
	}
	p.printed = true
	var fields [][]byte
	for _, part := range parts {
		if part == nil {
			continue
		}
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
	}
	var out bytes.Buffer
	object := slices.Concat([]byte{'{'}, bytes.Join(fields, []byte{','}), []byte{'}'})
	if err := json.Indent(&out, object, "", "  "); err != nil {
		return err
	}
	out.WriteByte('\n')
	_, err := p.stdout.Write(out.Bytes())
	return err
}

// progress returns the output for progress. Its width is 0 unless it is a
// terminal with a movable cursor.
func (p *printer) progress() terminal.Output {
	if p.quiet || p.json {
		return terminal.Output{Writer: io.Discard}
	}
	out := terminal.New(p.stderr)
	out.Writer = p.stderr // terminal.Output would escape the codes that move the cursor
	if !out.Cursor {
		out.Width = 0
	}
	return out
}

// newProgress starts showing steps.
func (p *printer) newProgress() *steps {
	out := p.progress()
	return startSteps(out.Writer, out.Width)
}

// waiting shows what the command waits for if that takes longer than silence.
// The caller calls end when the work is done. It is for work that reports no
// progress. A terminal gets a line with the seconds, which end removes. Other
// outputs get one plain line.
func (p *printer) waiting(what string) (end func()) {
	out := p.progress()
	return showWaiting(out, out.Width, what)
}

// warnQuietly prints warnings on standard error if --quiet suppresses the view
// that contains them.
func (p *printer) warnQuietly(all []string) {
	if p.quiet && !p.json {
		page{terminal.New(p.stderr)}.warnings(all)
	}
}
