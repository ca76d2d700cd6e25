// Package progress reports the progress of long work. Publishing, mirroring and
// verifying use it, so that one display can show them all.
package progress

import (
	"context"
	"io"
)

// Reporter shows progress. Its methods, and the functions that Transfer
// returns, are called concurrently.
type Reporter interface {
	// Step is called when a short step begins, with its description, such as
	// "reading ./dist".
	Step(what string)
	// Transfer is called when work begins that can take more than a second. It
	// receives a description, such as "packing ./vpc", and the size in bytes,
	// or 0 if unknown.
	//
	// moved is called with the number of bytes that were processed since the
	// last call. The number is negative if bytes will be processed again. end
	// is called once when the work ends, even if it has failed.
	Transfer(what string, size int64) (moved func(n int64), end func())
}

// Or returns r, or a [Reporter] that shows nothing if r is nil.
func Or(r Reporter) Reporter {
	if r == nil {
		return silent{}
	}
	return r
}

type silent struct{}

func (silent) Step(string) {}

func (silent) Transfer(string, int64) (moved func(int64), end func()) {
	return func(int64) {}, func() {}
}

// Reader returns a reader of in that calls moved with the length of each read.
func Reader(in io.Reader, moved func(int64)) io.Reader { return &reader{in, moved} }

type reader struct {
	io.Reader
	moved func(int64)
}

func (r *reader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.moved(int64(n))
	return n, err
}

// ReadSeeker is like [Reader]. Seeking back subtracts the bytes that will be
// read again.
func ReadSeeker(in io.ReadSeeker, moved func(int64)) io.ReadSeeker {
	return &readSeeker{in: in, moved: moved}
}

type readSeeker struct {
	in    io.ReadSeeker
	moved func(int64)
	at    int64
}

func (r *readSeeker) Seek(offset int64, whence int) (int64, error) {
	at, err := r.in.Seek(offset, whence)
	if err == nil && at < r.at {
		r.moved(at - r.at)
		r.at = at
	}
	return at, err
}

func (r *readSeeker) Read(b []byte) (int, error) {
	n, err := r.in.Read(b)
	r.at += int64(n)
	r.moved(int64(n))
	return n, err
}

// ReaderAt returns a reader of in that reports progress from the beginning of
// in without gaps. It calls moved with the number of additional bytes that were
// read. Bytes that are read twice count once. It is not safe for concurrent
// use.
func ReaderAt(in io.ReaderAt, moved func(int64)) io.ReaderAt { return &readerAt{in: in, moved: moved} }

type readerAt struct {
	in    io.ReaderAt
	moved func(int64)
	done  int64
}

func (r *readerAt) ReadAt(b []byte, offset int64) (int, error) {
	n, err := r.in.ReadAt(b, offset)
	if end := offset + int64(n); offset <= r.done && end > r.done {
		r.moved(end - r.done)
		r.done = end
	}
	return n, err
}

// Writer is a function that is called with the length of each write.
type Writer func(n int64)

// Write implements [io.Writer].
func (w Writer) Write(b []byte) (int, error) {
	w(int64(len(b)))
	return len(b), nil
}

// WithContext returns a reader of r that fails with the error of ctx once ctx
// has ended.
func WithContext(ctx context.Context, r io.Reader) io.Reader { return &contextReader{ctx, r} }

type contextReader struct {
	ctx context.Context //nolint:containedctx // io.Reader has no parameter for it; it is the caller's
	r   io.Reader
}

func (c *contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
