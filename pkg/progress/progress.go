// Package progress reports what long work is doing. Publishing, mirroring and
// verifying share it, so that one display shows them all.
package progress

import "io"

// Reporter shows what goes on. Its methods, and the functions that Transfer
// returns, are called concurrently.
type Reporter interface {
	// Step is called as a short step begins, with what it does, such as
	// "reading ./dist".
	Step(what string)
	// Transfer is called as work begins that can take more than a second, with
	// what it does, such as "packing ./vpc", and with its size in bytes, or with
	// 0 if that is unknown. moved is called with the number of bytes that were
	// done since the last call. It is negative if some are done again. end is
	// called once no more will be done, also if the work has failed.
	Transfer(what string, size int64) (moved func(n int64), end func())
}

// Or returns r, or a Reporter that shows nothing if r is nil.
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

// Reader returns a reader of in that calls moved with each number of bytes that
// it has read.
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

// ReadSeeker is like [Reader]. Seeking back takes off what is read again.
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

// ReaderAt returns a reader of in that calls moved as the part grows that was
// read from the beginning on, without a gap. What is read twice counts once. It is
// for one goroutine.
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

// Writer calls itself with the length of all that is written to it.
type Writer func(n int64)

// Write implements [io.Writer].
func (w Writer) Write(b []byte) (int, error) {
	w(int64(len(b)))
	return len(b), nil
}
