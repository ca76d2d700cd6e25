package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
)

// Opener is what a ReaderAt needs of a Store.
type Opener interface {
	Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error)
}

const (
	// windowSize is how much is kept of what was read last, and of the object's end, in bytes. A zip's directory and end
	// record, which are read again and again, fit into it.
	windowSize = 256 << 10
	// maxSkip is how far it is faster to read on than to ask again, in bytes.
	maxSkip = 4 << 20
)

// ReaderAt reads a stored object as an io.ReaderAt, for formats with a directory at the end whose members are read one
// after the other. It takes half a megabyte, whatever the object's size, and reads on where it is for as long as reads go
// forward; it asks the store again for one that goes back, or far ahead, unless that is near the end.
//
// Several goroutines may use it; they wait for one another, and make it jump.
type ReaderAt struct {
	ctx   context.Context //nolint:containedctx // io.ReaderAt has none, and it is that of the one who inspects
	store Opener
	key   string
	size  int64

	mu sync.Mutex
	// end begins at endAt, and is nil until something near the end is read.
	end   []byte
	endAt int64
	// window is what was last read of the stream, which stands at its end.
	window   []byte
	windowAt int64
	stream   io.ReadCloser
	fresh    bool // nothing has come of the stream yet
	closed   bool
}

// NewReaderAt returns a reader of an object that has the size. It opens nothing yet, and must be closed. Errors of reading
// are those of the store's Open, and io.ErrUnexpectedEOF where the object is shorter.
func NewReaderAt(ctx context.Context, store Opener, key string, size int64) *ReaderAt {
	return &ReaderAt{ctx: ctx, store: store, key: key, size: size, endAt: max(0, size-windowSize)}
}

// Close ends the stream that is open.
func (r *ReaderAt) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.drop()
	return nil
}

// ReadAt implements io.ReaderAt.
func (r *ReaderAt) ReadAt(p []byte, offset int64) (n int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if offset < 0 {
		return 0, fmt.Errorf("reading object %s: a negative offset", r.key)
	}
	for n < len(p) {
		at := offset + int64(n)
		if at >= r.size {
			return n, io.EOF
		}
		from, err := r.bytesAt(at, len(p)-n)
		if err != nil {
			return n, fmt.Errorf("reading object %s: %w", r.key, err)
		}
		n += copy(p[n:], from)
	}
	return n, nil
}

// bytesAt returns some of the bytes at an offset within the object, of which so many are wanted.
func (r *ReaderAt) bytesAt(at int64, want int) ([]byte, error) {
	if r.closed {
		return nil, fs.ErrClosed
	}
	if at >= r.endAt {
		if r.end == nil {
			if err := r.readEnd(); err != nil {
				return nil, err
			}
		}
		return r.end[at-r.endAt:], nil
	}
	for {
		if err := r.ctx.Err(); err != nil {
			return nil, err
		}
		if skip := at - r.windowAt; skip >= 0 && skip < int64(len(r.window)) {
			return r.window[skip:], nil
		}
		position := r.windowAt + int64(len(r.window))
		if skip := at - position; r.stream == nil || skip < 0 || skip > maxSkip {
			if err := r.open(at); err != nil {
				return nil, err
			}
			position = at
		}
		if err := r.readOn(position, int(min(at-position+int64(want), windowSize))); err != nil {
			return nil, err
		}
	}
}

// readEnd reads the end of the object, from the stream if that is there, or by a request of its own.
func (r *ReaderAt) readEnd() error {
	position := r.windowAt + int64(len(r.window))
	if r.stream == nil || position != r.endAt {
		stream, err := r.store.Open(r.ctx, r.key, r.endAt, r.size-r.endAt)
		if err != nil {
			return err
		}
		defer stream.Close()
		return r.readEndOf(stream)
	}
	defer r.drop()
	return r.readEndOf(r.stream)
}

func (r *ReaderAt) readEndOf(stream io.Reader) error {
	end := make([]byte, r.size-r.endAt)
	if _, err := io.ReadFull(stream, end); err != nil {
		return shorter(err)
	}
	r.end = end
	return nil
}

// readOn has the window be what comes next of the stream, up to want bytes or more.
func (r *ReaderAt) readOn(position int64, want int) error {
	if r.window == nil {
		r.window = make([]byte, 0, windowSize)
	}
	// The end is not read into the window, so that the stream stands where the end begins.
	limit := min(windowSize, r.endAt-position)
	n, err := io.ReadAtLeast(r.stream, r.window[:limit], min(want, int(limit)))
	r.window, r.windowAt = r.window[:n], position
	if err != nil {
		// Streams of gigabytes break off. One that gave something is worth another.
		r.drop()
		if again := n > 0 || !r.fresh; again {
			return nil
		}
		return shorter(err)
	}
	r.fresh = false
	return nil
}

func (r *ReaderAt) open(at int64) error {
	r.drop()
	// A stream that is read to its end leaves a connection for the next.
	until := r.size
	if r.end != nil {
		until = r.endAt
	}
	stream, err := r.store.Open(r.ctx, r.key, at, until-at)
	if err != nil {
		return err
	}
	r.stream, r.fresh = stream, true
	return nil
}

func (r *ReaderAt) drop() {
	if r.stream != nil {
		_ = r.stream.Close() // it was only read
		r.stream = nil
	}
}

// shorter says that an end came too early, which is none to a reader that knows the size.
func shorter(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
