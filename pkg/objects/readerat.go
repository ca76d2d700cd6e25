package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
)

// Opener is the part of a [Store] that a [ReaderAt] needs.
type Opener interface {
	Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error)
}

const (
	// windowSize is how many bytes are cached of the latest read, and of the
	// object's end. A zip's directory and end record are read repeatedly, and fit
	// into it.
	windowSize = 256 << 10
	// maxSkip is the largest gap, in bytes, over which reading on is faster than
	// another request.
	maxSkip = 4 << 20
)

// ReaderAt implements io.ReaderAt for a stored object. It is for formats with a
// directory at the end, whose members are read in order.
//
// It uses half a megabyte of memory for objects of any size. While reads go
// forward, it continues its current request. It makes another request for reads
// that go back or far ahead, unless they are near the end.
//
// Several goroutines may use it. They wait for one another, and cause more
// requests.
type ReaderAt struct {
	ctx   context.Context //nolint:containedctx // io.ReaderAt has no parameter for it; it is the caller's
	store Opener
	key   string
	size  int64

	mu sync.Mutex
	// end begins at endAt. It is nil until something near the end is read.
	end   []byte
	endAt int64
	// window has the bytes before the current position of stream.
	window   []byte
	windowAt int64
	stream   io.ReadCloser
	fresh    bool // nothing was read from stream yet
	closed   bool
}

// NewReaderAt returns a reader of an object with the given size. It makes no
// request. The caller must close the reader. Errors of reading are those of the
// store's Open, and io.ErrUnexpectedEOF if the object is shorter.
func NewReaderAt(ctx context.Context, store Opener, key string, size int64) *ReaderAt {
	return &ReaderAt{ctx: ctx, store: store, key: key, size: size, endAt: max(0, size-windowSize)}
}

// Close closes the current stream.
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
		return 0, fmt.Errorf("cannot read object %s: the offset is negative", r.key)
	}
	for n < len(p) {
		at := offset + int64(n)
		if at >= r.size {
			return n, io.EOF
		}
		from, err := r.bytesAt(at, len(p)-n)
		if err != nil {
			return n, fmt.Errorf("cannot read object %s: %w", r.key, err)
		}
		n += copy(p[n:], from)
	}
	return n, nil
}

// bytesAt returns at least one byte at an offset within the object, if possible
// want bytes.
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

// readEnd reads the end of the object, from the stream if it is at the end, or
// with another request.
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

// readOn replaces the window with the next bytes of the stream, if possible
// want bytes.
func (r *ReaderAt) readOn(position int64, want int) error {
	if r.window == nil {
		r.window = make([]byte, 0, windowSize)
	}
	// The window does not include the end, so that the stream is positioned where
	// the end begins.
	limit := min(windowSize, r.endAt-position)
	n, err := io.ReadAtLeast(r.stream, r.window[:limit], min(want, int(limit)))
	r.window, r.windowAt = r.window[:n], position
	if err != nil {
		// Streams of gigabytes can break off. Retry if the stream returned anything.
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
	// A connection can be reused after its stream is read to the end.
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

// shorter returns io.ErrUnexpectedEOF instead of io.EOF, because the size is
// known.
func shorter(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
