package inspection

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/larder-registry/larder/pkg/content/archive"
	"github.com/larder-registry/larder/pkg/registry"
)

// childVariable is the environment variable that marks a child process.
const childVariable = "LARDER_INSPECTION_CHILD"

// Exit codes of a child. exitCrashed is the one of Go's runtime.
const (
	exitCrashed = 2
	exitMemory  = 3
	exitTime    = 4
)

const (
	// maxRead is the largest read that a child requests, in bytes.
	maxRead = 1 << 20
	// maxStack is the largest stack of the child, in bytes. Nesting within the
	// limits of archives and configuration takes less than a tenth of it.
	maxStack = 64 << 20
	// maxProblem is the largest size of an error text and of a hint, in bytes.
	// They may quote any part of the archive.
	maxProblem = 4 << 10
	// maxPart is the largest number of bytes of documentation or files in a
	// message. A message has them in base64.
	maxPart = 32 << 10
	// watchInterval is the time between two checks of the memory.
	watchInterval = 5 * time.Millisecond
)

// In the protocol between the two processes, the parent sends an assignment as
// a line of JSON. The child then sends lines of JSON. Each of them requests
// bytes, has the result, or has a part of the documentation. The parent answers
// a read with the number of bytes in four bytes, big-endian, and the bytes.
//
// The documentation follows the result of a valid module. If the child ends
// before its last part, the module is valid and has no documentation.

// protocol is the version of the messages. After an upgrade, the child may be
// another version of the program, which does not support it.
const protocol = 6

// assignment is the work of a child, with its limits.
type assignment struct {
	Protocol int     `json:"protocol"`
	Request  Request `json:"request"`
	// MaxMemory is in bytes.
	MaxMemory int64         `json:"max_memory"`
	Timeout   time.Duration `json:"timeout"`
}

// message is a message from a child.
type message struct {
	Read     *read   `json:"read,omitempty"`
	Result   *result `json:"result,omitempty"`
	Document *part   `json:"document,omitempty"`
}

type read struct {
	Offset int64 `json:"offset"`
	Length int   `json:"length"`
}

type result struct {
	Found Found `json:"found"`
	// Problem is the error text for an invalid archive. Hint is its hint, if any.
	Problem string `json:"problem,omitempty"`
	Hint    string `json:"hint,omitempty"`
	// Documents reports whether the documentation follows.
	Documents bool `json:"documents,omitempty"`
}

// part is a part of a module's documentation. Each has some of its data or of
// its files. The last one has neither, but all other fields.
type part struct {
	Data     []byte   `json:"data,omitempty"`
	Files    []byte   `json:"files,omitempty"`
	Contents []byte   `json:"contents,omitempty"`
	Notes    []string `json:"notes,omitempty"`
}

// RunIfChild inspects an archive and ends the process if a [Process] started it
// for that purpose. Otherwise it returns. Each program that uses a Process
// calls it first in main.
func RunIfChild() {
	if os.Getenv(childVariable) != "" {
		os.Exit(child(os.Stdin, os.Stdout))
	}
}

func child(in io.Reader, out io.Writer) (code int) {
	source := &remote{in: bufio.NewReaderSize(in, 64<<10), out: json.NewEncoder(out)}
	line, err := source.in.ReadSlice('\n')
	var a assignment
	if err == nil {
		err = json.Unmarshal(line, &a)
	}
	if err == nil && a.Protocol != protocol {
		err = fmt.Errorf("its protocol is %d, not %d", a.Protocol, protocol)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cannot read the assignment:", err)
		return 1
	}
	source.working = newStopwatch(a.Timeout, func() { os.Exit(exitTime) })
	limit(a)
	found, m, err := inspect(context.Background(), a.Request, source)
	answer := &result{Found: found, Documents: a.Request.Kind == Module}
	if err != nil {
		if !errors.Is(err, registry.ErrInvalid) {
			fmt.Fprintln(os.Stderr, "cannot inspect:", err)
			return 1
		}
		answer = &result{Problem: shorten(err.Error()), Hint: shorten(registry.Hint(err))}
	}
	if err := source.out.Encode(message{Result: answer}); err != nil {
		return 1
	}
	if answer.Documents {
		if err := sendDocument(source.out, a.Request.Name, m); err != nil {
			return 1
		}
	}
	return 0
}

// sendDocument extracts the documentation of a module and sends it in parts.
func sendDocument(out *json.Encoder, name string, m archive.Module) error {
	d, err := document(context.Background(), name, m)
	if err != nil {
		return err
	}
	for data := range slices.Chunk(d.Data, maxPart) {
		if err := out.Encode(message{Document: &part{Data: data}}); err != nil {
			return err
		}
	}
	for contents := range slices.Chunk(d.Contents, maxPart) {
		if err := out.Encode(message{Document: &part{Contents: contents}}); err != nil {
			return err
		}
	}
	for files := range slices.Chunk(d.Files, maxPart) {
		if err := out.Encode(message{Document: &part{Files: files}}); err != nil {
			return err
		}
	}
	return out.Encode(message{Document: &part{Notes: d.Notes}})
}

// shorten returns the first maxProblem bytes of a text as valid UTF-8.
func shorten(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxProblem)], "")
}

// limit ends this process if it exceeds its memory, and sets the system's own
// limits where they exist. The child ignores the signals of terminals and service
// managers, because these also end the parent, which then ends the child.
func limit(a assignment) {
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	debug.SetMaxStack(maxStack)
	debug.SetMemoryLimit(a.MaxMemory * 3 / 4) // the garbage collector runs more often above it
	go func() {
		for {
			if inUse() > a.MaxMemory {
				os.Exit(exitMemory)
			}
			time.Sleep(watchInterval)
		}
	}()
	limitBySystem(a)
}

// inUse returns the memory that Go's runtime has obtained from the system, in
// bytes.
func inUse() int64 {
	sample := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64() - sample[1].Value.Uint64())
}

// remote is an archive that the parent reads.
type remote struct {
	mu  sync.Mutex
	in  *bufio.Reader
	out *json.Encoder
	// working is paused while the child waits for bytes.
	working *stopwatch
}

func (r *remote) ReadAt(p []byte, offset int64) (total int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.working.pause()
	defer r.working.resume()
	for total < len(p) {
		part := p[total:min(len(p), total+maxRead)]
		if err := r.out.Encode(message{Read: &read{offset + int64(total), len(part)}}); err != nil {
			return total, err
		}
		var size [4]byte
		if _, err := io.ReadFull(r.in, size[:]); err != nil {
			return total, err
		}
		n := int(binary.BigEndian.Uint32(size[:]))
		if n > len(part) {
			return total, fmt.Errorf("the parent sent %d bytes instead of %d", n, len(part))
		}
		if _, err := io.ReadFull(r.in, part[:n]); err != nil {
			return total, err
		}
		if total += n; n < len(part) {
			return total, io.EOF
		}
	}
	return total, nil
}
