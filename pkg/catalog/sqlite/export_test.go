package sqlite

import (
	"sync"
	"sync/atomic"
	"time"
)

// SetTime sets the clock of a table.
func SetTime(t *Table, now func() time.Time) { t.now = now }

// Cached returns the number of cached items.
func Cached(t *Table) int {
	t.cache.mu.Lock()
	defer t.cache.mu.Unlock()
	return len(t.cache.items)
}

// HoldHeader makes the next check of a table wait after it has read the header
// of the file. read is closed when it has, and resume lets it continue.
func HoldHeader(t *Table) (read <-chan struct{}, resume func()) {
	h := &heldHeader{openedFile: t.file.opened, read: make(chan struct{}), resumed: make(chan struct{})}
	t.file.opened = h
	return h.read, sync.OnceFunc(func() { close(h.resumed) })
}

type heldHeader struct {
	openedFile

	isHeld        atomic.Bool
	read, resumed chan struct{}
}

// ReadAt implements [openedFile].
func (h *heldHeader) ReadAt(p []byte, offset int64) (n int, err error) {
	n, err = h.openedFile.ReadAt(p, offset)
	if h.isHeld.CompareAndSwap(false, true) {
		close(h.read)
		<-h.resumed
	}
	return n, err
}
