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
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/larder-registry/larder/pkg/registry"
)

// childVariable marks a process as a child.
const childVariable = "LARDER_INSPECTION_CHILD"

// Exit codes of a child that has crashed, as Go's runtime has it, or that has run
// over a limit.
const (
	exitCrashed = 2
	exitMemory  = 3
	exitTime    = 4
)

const (
	// maxRead bounds how much a child asks for at once, in bytes.
	maxRead = 1 << 20
	// maxStack bounds the stack of the child. Nesting within the bounds of
	// archives and configuration takes less than a tenth of it.
	maxStack = 64 << 20
	// maxProblem bounds what is said of an archive, in bytes. It may quote any
	// part of the archive.
	maxProblem = 4 << 10
	// watchInterval is how often memory is looked at.
	watchInterval = 5 * time.Millisecond
)

// The protocol between the two: the parent sends an assignment as a line of
// JSON. The child then sends lines of JSON, each of which asks for bytes or
// ends the inspection. The parent answers a read with the number of bytes in
// four bytes, big-endian, and the bytes.

// protocol is the version of the messages. A child of another program does not
// know it.
const protocol = 1

// assignment is what a child has to do, and within which limits.
type assignment struct {
	Protocol int     `json:"protocol"`
	Request  Request `json:"request"`
	// MaxMemory is in bytes.
	MaxMemory int64         `json:"max_memory"`
	Timeout   time.Duration `json:"timeout"`
}

// message is what a child sends.
type message struct {
	Read   *read  `json:"read,omitempty"`
	Result *ended `json:"result,omitempty"`
}

type read struct {
	Offset int64 `json:"offset"`
	Length int   `json:"length"`
}

type ended struct {
	Found Found `json:"found"`
	// Problem is why the archive is not valid.
	Problem string `json:"problem,omitempty"`
}

// RunIfChild inspects an archive and ends the process, if this process was
// started for that by a [Process], and returns otherwise. Each program that
// uses a Process calls it first in main.
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
	found, err := inspect(context.Background(), a.Request, source)
	result := &ended{Found: found}
	if err != nil {
		if !errors.Is(err, registry.ErrInvalid) {
			fmt.Fprintln(os.Stderr, "cannot inspect:", err)
			return 1
		}
		text := err.Error()
		result = &ended{Problem: strings.ToValidUTF8(text[:min(len(text), maxProblem)], "")}
	}
	if err := source.out.Encode(message{Result: result}); err != nil {
		return 1
	}
	return 0
}

// limit ends this process when it runs over its memory. The system's own limits
// come on top, where there are some. The parent ends a child when a terminal or
// a service manager ends the parent, so that the child ignores their signals.
func limit(a assignment) {
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	debug.SetMaxStack(maxStack)
	debug.SetMemoryLimit(a.MaxMemory * 3 / 4) // the garbage collector works harder from there on
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

// inUse returns the memory that Go's runtime has from the system, in bytes.
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
	// working stands still while the child waits for bytes.
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
			return total, fmt.Errorf("the parent sends %d bytes for %d", n, len(part))
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
