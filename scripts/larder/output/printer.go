package output

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/larder-registry/larder/pkg/text/terminal"
)

// EndLine ends the line of a terminal on which Ctrl-C was pressed.
func EndLine(out terminal.Output) {
	if out.Width > 0 {
		fmt.Fprintln(out)
	}
}

// Printer prints what a command has to show: its result on standard output, and
// progress and warnings on standard error.
type Printer struct {
	Stdout io.Writer
	Stderr io.Writer

	JSON  bool
	Quiet bool
	Wide  bool
	// Printed reports whether the JSON object was printed. A command prints
	// one.
	Printed bool
}

// Page returns standard output as a page. With --wide its width is unlimited.
func (p *Printer) Page() Page {
	o := terminal.New(p.Stdout)
	if p.Wide {
		o.Width = 0
	}
	return Page{o}
}

// Print prints a view for people. With --quiet it prints only what a script needs.
func (p *Printer) Print(v View) {
	if !p.Quiet {
		v.Text(p.Page())
	} else if b, ok := v.(brief); ok {
		b.Quiet(p.Page())
	}
}

// PrintJSON prints one object with the fields of all parts. Each is a struct, a map
// or nil. It prints nothing if an object was already printed.
func (p *Printer) PrintJSON(parts ...any) error {
	if p.Printed {
		return nil
	}
	p.Printed = true
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
	_, err := p.Stdout.Write(out.Bytes())
	return err
}

// progress returns the output for progress. Its width is 0 unless it is a
// terminal with a movable cursor.
func (p *Printer) progress() terminal.Output {
	if p.Quiet || p.JSON {
		return terminal.Output{Writer: io.Discard}
	}
	out := terminal.New(p.Stderr)
	out.Writer = p.Stderr // terminal.Output would escape the codes that move the cursor
	if !out.Cursor {
		out.Width = 0
	}
	return out
}

// NewProgress starts showing steps.
func (p *Printer) NewProgress() *Steps {
	out := p.progress()
	return startSteps(out.Writer, out.Width)
}

// Waiting shows what the command waits for if that takes longer than [Silence].
// The caller calls end when the work is done. It is for work that reports no
// progress. A terminal gets a line with the seconds, which end removes. Other
// outputs get one plain line.
func (p *Printer) Waiting(what string) (end func()) {
	out := p.progress()
	return showWaiting(out, out.Width, what)
}

// WarnQuietly prints warnings on standard error if --quiet suppresses the view
// that contains them.
func (p *Printer) WarnQuietly(all []string) {
	if p.Quiet && !p.JSON {
		Page{terminal.New(p.Stderr)}.Warnings(all)
	}
}

// ErrNotConfirmed is the error of [Printer.Confirm] if the user does not confirm.
var ErrNotConfirmed = errors.New("not confirmed: nothing was changed")

// Confirm writes a question to standard error. It returns [ErrNotConfirmed] unless the
// user confirms.
func (p *Printer) Confirm(ctx context.Context, question string) error {
	out := terminal.New(p.Stderr)
	if out.Width > 0 {
		out.Width = max(out.Width-len(" [y/N] "), 20)
	}
	confirmed, err := terminal.Confirm(ctx, os.Stdin, p.Stderr, out.Wrap(question))
	if err == nil && !confirmed {
		err = ErrNotConfirmed
	}
	return err
}
