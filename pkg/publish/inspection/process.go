package inspection

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"time"

	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/docs/extract"
	"github.com/larder-registry/larder/pkg/registry"
)

// Process inspects each archive in a child process. The child is the same
// program, whose main calls [RunIfChild]. It has no environment and only reads
// what the parent sends. The zero value is ready for use by several goroutines.
type Process struct {
	// MaxMemory is the largest memory of a child, in bytes. If zero,
	// DefaultMaxMemory is used.
	MaxMemory int64
	// Timeout is the largest duration of an inspection, without the time to read
	// the source. If zero, it is 30 seconds, plus a second for each 2 MiB.
	Timeout time.Duration
	// Log receives the standard error of a crashed child. If nil, it is
	// discarded.
	Log *slog.Logger
}

// DefaultMaxMemory is the default of Process.MaxMemory, in bytes.
const DefaultMaxMemory = 192 << 20

const (
	baseTimeout    = 30 * time.Second
	bytesPerSecond = 2 << 20
	// maxLine is the largest size of a message from a child, in bytes.
	maxLine = 64 << 10
	// maxTrace is how much of a child's standard error is stored, in bytes.
	maxTrace = 300
)

// ErrDied means that an inspection ended without a result for an unknown
// reason. For example, another process may have ended the child.
var ErrDied = fmt.Errorf("%w: the inspection ended without a result", registry.ErrUnavailable)

var (
	errTime   = errors.New("it took too long")
	errMemory = errors.New("it took too much memory")
)

// Inspect is like [InThisProcess.Inspect]. If an inspection crashes or exceeds
// its time or memory, the error is registry.ErrInvalid too. If something else
// ends the child, the error is [ErrDied]. If no child can be started, the error
// is registry.ErrUnavailable.
func (p Process) Inspect(ctx context.Context, request Request, source io.ReaderAt) (Found, error) {
	a := assignment{Protocol: protocol, Request: request, MaxMemory: p.MaxMemory, Timeout: p.Timeout}
	if a.MaxMemory == 0 {
		a.MaxMemory = DefaultMaxMemory
	}
	if a.Timeout == 0 {
		a.Timeout = baseTimeout + time.Duration(request.Size/bytesPerSecond)*time.Second
	}
	limited, end := context.WithCancelCause(ctx)
	defer end(nil)
	working := newStopwatch(a.Timeout, func() { end(errTime) })
	defer working.pause()

	c, err := start(limited)
	if err != nil {
		return Found{}, fmt.Errorf("%w: cannot start an inspection: %w", registry.ErrUnavailable, err)
	}
	go c.watchMemory(limited, a.MaxMemory, func() { end(errMemory) })
	in := &tracked{ReaderAt: source}
	result, err := c.converse(a, in, working)
	if !errors.Is(err, io.EOF) { // a child that dies causes io.EOF
		end(nil)
	}
	_ = c.in.Close()
	died := c.cmd.Wait()
	switch {
	case in.failed != nil:
		return Found{}, in.failed
	case err == nil && result.Problem != "":
		return Found{}, result.err()
	case err == nil && !result.undocumented():
		return result.Found, nil
	case ctx.Err() != nil:
		return Found{}, ctx.Err()
	case err == nil:
		if p.Log != nil {
			p.Log.Warn("extracting the documentation of a module failed", slog.String("output", c.trace.String()))
		}
		return result.Found, nil
	}
	return Found{}, p.reason(context.Cause(limited), died, a, c.trace.String())
}

// problem is the error text that a child returns for an invalid archive.
type problem string

func (p problem) Error() string { return string(p) }
func (problem) Unwrap() error   { return registry.ErrInvalid }

func (r *result) err() error {
	if r.Hint == "" {
		return problem(r.Problem)
	}
	return registry.WithHint(problem(r.Problem), "%s", r.Hint)
}

// running is a child process.
type running struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   io.ReadCloser
	trace traceBuffer
}

func start(ctx context.Context) (*running, error) {
	self, err := program()
	if err != nil {
		return nil, err
	}
	c := &running{cmd: exec.CommandContext(ctx, self)} //nolint:gosec // it is this program
	c.cmd.Args = []string{"larder-inspection"}         // shown in process lists
	c.cmd.Env = []string{childVariable + "=1", "GOTRACEBACK=none"}
	c.cmd.Stderr = &c.trace
	c.cmd.WaitDelay = time.Second
	detach(c.cmd)
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if c.out, err = c.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	return c, c.cmd.Start()
}

// converse sends the assignment, and then the bytes that the child requests,
// until the child sends its result.
func (c *running) converse(a assignment, source io.ReaderAt, working *stopwatch) (*result, error) {
	if err := json.NewEncoder(c.in).Encode(a); err != nil {
		return nil, err
	}
	lines := bufio.NewReaderSize(c.out, maxLine)
	buffer := make([]byte, 4+maxRead)
	for {
		m, err := receive(lines)
		if err != nil {
			return nil, err
		}
		if m.Result != nil {
			if m.Result.Documents {
				m.Result.Found.Document = receiveDocument(lines)
			}
			return m.Result, nil
		}
		if m.Read == nil || m.Read.Length < 0 || m.Read.Length > maxRead || m.Read.Offset < 0 {
			return nil, errors.New("the child sent an invalid request")
		}
		working.pause()
		n, err := source.ReadAt(buffer[4:4+m.Read.Length], m.Read.Offset)
		working.resume()
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		binary.BigEndian.PutUint32(buffer, uint32(n))
		if _, err := c.in.Write(buffer[:4+n]); err != nil {
			return nil, err
		}
	}
}

// receive reads a message. A line of more than maxLine bytes is an error.
func receive(lines *bufio.Reader) (m message, err error) {
	line, err := lines.ReadSlice('\n')
	if err == nil {
		err = json.Unmarshal(line, &m)
	}
	return m, err
}

// receiveDocument reads the parts of the documentation. If the child ends before
// the last part, for example because of its limits, the result has only a note.
func receiveDocument(lines *bufio.Reader) (d extract.Document) {
	for {
		m, err := receive(lines)
		if err != nil || m.Document == nil || max(len(d.Data), len(d.Contents)) > docs.MaxSize ||
			len(d.Files) > docs.MaxFiles {
			return extract.Document{Notes: []string{extract.Failed}}
		}
		if len(m.Document.Data)+len(m.Document.Contents)+len(m.Document.Files) == 0 {
			d.Notes = m.Document.Notes
			return d
		}
		d.Data, d.Contents = append(d.Data, m.Document.Data...), append(d.Contents, m.Document.Contents...)
		d.Files = append(d.Files, m.Document.Files...)
	}
}

// undocumented reports whether a module has no documentation, which the child
// should have sent.
func (r *result) undocumented() bool { return r.Documents && len(r.Found.Document.Data) == 0 }

// reason returns the error for an inspection that ended without a result.
func (p Process) reason(cause, died error, a assignment, trace string) error {
	code := -1
	if exit, ok := errors.AsType[*exec.ExitError](died); ok {
		code = exit.ExitCode()
	}
	const stopped = "%w archive: its inspection was stopped: "
	switch {
	case errors.Is(cause, errTime), code == exitTime:
		return fmt.Errorf(stopped+"it took more than %s", registry.ErrInvalid, a.Timeout)
	case errors.Is(cause, errMemory), code == exitMemory:
		return fmt.Errorf(stopped+"it took more than %d MiB of memory", registry.ErrInvalid, a.MaxMemory>>20)
	case code != exitCrashed:
		return fmt.Errorf("%w: %w: %s", ErrDied, died, trace)
	}
	if p.Log != nil {
		p.Log.Error("inspection crashed", slog.Any("error", died), slog.String("output", trace))
	}
	return fmt.Errorf("%w archive: its inspection crashed", registry.ErrInvalid)
}

// watchMemory calls end if a child exceeds its memory by a quarter, if the
// system reports the memory. The child also checks its own memory.
func (c *running) watchMemory(ctx context.Context, most int64, end func()) {
	tick := time.NewTicker(10 * watchInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if residentMemory(c.cmd.Process.Pid) > most+most/4 {
				end()
				return
			}
		}
	}
}

// traceBuffer stores the first bytes of a child's standard error.
type traceBuffer struct{ bytes.Buffer }

func (w *traceBuffer) Write(p []byte) (int, error) {
	w.Buffer.Write(p[:min(len(p), maxTrace-min(w.Len(), maxTrace))])
	return len(p), nil
}
