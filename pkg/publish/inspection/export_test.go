package inspection

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/larder-registry/larder/pkg/content/archive"
	"github.com/larder-registry/larder/pkg/docs/extract"
)

const (
	// MaxPart is the largest number of bytes of documentation in a message.
	MaxPart = maxPart
	// MaxRead is the largest number of bytes that a child requests.
	MaxRead = maxRead
)

// SetDocument replaces the extraction of documentation.
func SetDocument(f func(context.Context, string, archive.Module) (extract.Document, error)) {
	document = f
}

// ReceiveDocument reads the documentation that a child sends.
func ReceiveDocument(sent io.Reader) extract.Document {
	return receiveDocument(bufio.NewReaderSize(sent, maxLine))
}

// Answer answers the lines that a child sends, until the first error.
func Answer(lines string) error {
	c := &running{in: discard{io.Discard}, out: io.NopCloser(strings.NewReader(lines))}
	_, err := c.converse(assignment{}, strings.NewReader("source"), newStopwatch(time.Minute, func() {}))
	return err
}

type discard struct{ io.Writer }

func (discard) Close() error { return nil }

// Converse runs both ends of a conversation in this process, with read as the
// work of the child. It reports which of them has taken longer than a timeout.
func Converse(source io.ReaderAt, timeout time.Duration, read func(io.ReaderAt)) (parent, child bool, err error) {
	var parentOver, childOver atomic.Bool
	requests, toParent := io.Pipe()
	responses, toChild := io.Pipe()
	go func() {
		in := bufio.NewReader(responses)
		_, _ = in.ReadSlice('\n') // the assignment
		r := &remote{in: in, out: json.NewEncoder(toParent), working: newStopwatch(timeout, func() { childOver.Store(true) })}
		read(r)
		r.working.pause()
		_ = r.out.Encode(message{Result: &result{}})
	}()
	working := newStopwatch(timeout, func() { parentOver.Store(true) })
	c := &running{in: toChild, out: requests}
	_, err = c.converse(assignment{}, source, working)
	working.pause()
	return parentOver.Load(), childOver.Load(), errors.Join(err, toChild.Close(), requests.Close())
}
