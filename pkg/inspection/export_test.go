package inspection

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"github.com/larder-registry/larder/pkg/docs/extract"
)

// MaxPart is the largest number of bytes of documentation in a message.
const MaxPart = maxPart

// SetDocument replaces the extraction of documentation.
func SetDocument(f func(context.Context, string, map[string][]byte) (extract.Document, error)) {
	document = f
}

// ReceiveDocument reads the documentation that a child sends.
func ReceiveDocument(sent io.Reader) extract.Document {
	return receiveDocument(bufio.NewReaderSize(sent, maxLine))
}

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
