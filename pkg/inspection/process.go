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

	"github.com/larder-registry/larder/pkg/registry"
)

// Process inspects each archive in a child of its own, which is the same
// program once more: its main calls [RunIfChild]. The child has no environment,
// and nothing to read from but what the parent sends. The zero value is ready
// for use, by several goroutines.
type Process struct {
	// MaxMemory bounds the memory of a child, in bytes. If zero, it is
	// DefaultMaxMemory.
	MaxMemory int64
	// Timeout bounds the time of an inspection without that of reading the
	// archive. If zero, it is half a minute, and a second more for each 2 MiB.
	Timeout time.Duration
	// Log receives what a crashed child wrote to its standard error. If nil, that
	// is discarded.
	Log *slog.Logger
}

// DefaultMaxMemory bounds the memory of a child where nothing else is set, in bytes.
const DefaultMaxMemory = 192 << 20

const (
	baseTimeout    = 30 * time.Second
	bytesPerSecond = 2 << 20
	// maxLine bounds what a child sends at once, in bytes.
	maxLine = 64 << 10
	// maxTrace bounds what is kept of a child's last words, in bytes.
	maxTrace = 300
)

// ErrDied is an inspection that ended without a result, through no fault of the
// archive's that is known: something else may have ended the child.
var ErrDied = fmt.Errorf("%w: the inspection ended without a result", registry.ErrUnavailable)

var (
	errTime   = errors.New("it took too long")
	errMemory = errors.New("it took too much memory")
)

// Inspect is like [InThisProcess.Inspect]. An archive whose inspection ends the
// child, or runs over its time or memory, is registry.ErrInvalid too. It returns
// [ErrDied] if something else ended the child, and registry.ErrUnavailable if
// none can be started.
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
	if !errors.Is(err, io.EOF) { // with which a child ends that dies
		end(nil)
	}
	_ = c.in.Close()
	died := c.cmd.Wait()
	switch {
	case in.failed != nil:
		return Found{}, in.failed
	case err == nil && result.Problem != "":
		return Found{}, problem(result.Problem)
	case err == nil:
		return result.Found, nil
	case ctx.Err() != nil:
		return Found{}, ctx.Err()
	}
	return Found{}, p.reason(context.Cause(limited), died, a, c.trace.String())
}

// problem is what a child says is wrong with an archive.
type problem string

func (p problem) Error() string { return string(p) }
func (problem) Unwrap() error   { return registry.ErrInvalid }

// running is a child.
type running struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   io.ReadCloser
	trace lastWords
}

func start(ctx context.Context) (*running, error) {
	self, err := program()
	if err != nil {
		return nil, err
	}
	c := &running{cmd: exec.CommandContext(ctx, self)} //nolint:gosec // it is this program
	c.cmd.Args = []string{"larder-inspection"}         // for those who list processes
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

// converse sends the assignment, and then what the child asks for, until the
// child says what it has found.
func (c *running) converse(a assignment, source io.ReaderAt, working *stopwatch) (*ended, error) {
	if err := json.NewEncoder(c.in).Encode(a); err != nil {
		return nil, err
	}
	lines := bufio.NewReaderSize(c.out, maxLine)
	buffer := make([]byte, 4+maxRead)
	for {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			return nil, err
		}
		var m message
		if err := json.Unmarshal(line, &m); err != nil {
			return nil, err
		}
		if m.Result != nil {
			return m.Result, nil
		}
		if m.Read == nil || m.Read.Length < 0 || m.Read.Length > maxRead || m.Read.Offset < 0 {
			return nil, errors.New("the child asks for something else than bytes")
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
		p.Log.Error("an inspection has crashed", slog.Any("error", died), slog.String("output", trace))
	}
	return fmt.Errorf("%w archive: its inspection crashed", registry.ErrInvalid)
}

// watchMemory calls end when a child has more memory than it may, as far as the
// system tells. The child watches itself too.
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

// lastWords keeps the first bytes that a child writes to its standard error.
type lastWords struct{ bytes.Buffer }

func (w *lastWords) Write(p []byte) (int, error) {
	w.Buffer.Write(p[:min(len(p), maxTrace-min(w.Len(), maxTrace))])
	return len(p), nil
}
