package daily

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/usage"
)

const (
	// interval is the time between writes.
	interval = 10 * time.Second
	// maxPending is the maximum number of rows in memory.
	maxPending = 10_000
	// maxCaller is the maximum length of a stored name, in bytes.
	maxCaller = 256
	// lastWrite bounds the write at the end of a server.
	lastWrite = 5 * time.Second
)

// row identifies a count.
type row struct {
	day                            int64 // since 1970, in UTC
	kind, address, version, caller string
}

// total is the value of a count.
type total struct {
	count int64
	last  time.Time
}

// Counter counts the downloads of a server. It never fails a request: what it
// cannot write is logged and written later, or dropped if there is too much of
// it.
type Counter struct {
	file *File
	log  *slog.Logger
	now  func() time.Time
	most int

	mu      sync.Mutex
	pending map[row]total
	dropped int64

	// write is locked during a write.
	write    sync.Mutex
	failed   bool // the last write failed, and this was logged
	overflow bool // the last write had dropped downloads, and this was logged
}

// NewCounter returns a counter for the registry in a folder.
func NewCounter(dir string, log *slog.Logger) *Counter {
	return &Counter{
		file: Open(dir), log: log, now: time.Now, most: maxPending, pending: make(map[row]total),
	}
}

// Observe counts the request if it is a download. It does not read or write
// files.
func (c *Counter) Observe(e *requestlog.Entry) {
	if e.Download == "" {
		return
	}
	address, err := usage.ParseAddress(string(e.Download), e.Address)
	if err != nil {
		return // no registry has it
	}
	version, err := registry.ParseVersion(e.Version)
	if err != nil {
		return
	}
	now := c.now()
	caller := e.LoggedCaller()
	key := row{
		now.Unix() / secondsPerDay, string(e.Download), address.String(), version.String(),
		strings.ToValidUTF8(caller[:min(len(caller), maxCaller)], ""),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add(key, total{1, now})
}

// add adds to a row in memory. The caller has locked c.mu.
func (c *Counter) add(key row, more total) {
	sum, found := c.pending[key]
	if !found && len(c.pending) >= c.most {
		c.dropped += more.count
		return
	}
	sum.count += more.count
	if more.last.After(sum.last) {
		sum.last = more.last
	}
	c.pending[key] = sum
}

// Run creates the file, and then writes the counts every 10 seconds until ctx
// ends.
func (c *Counter) Run(ctx context.Context) { c.run(ctx, time.Tick(interval)) }

func (c *Counter) run(ctx context.Context, ticks <-chan time.Time) {
	for {
		c.flush(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticks:
		}
	}
}

// Close writes the counts that are still in memory. Call it when the server
// handles no more requests.
func (c *Counter) Close() {
	c.mu.Lock()
	none := len(c.pending) == 0
	c.mu.Unlock()
	if none {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastWrite)
	defer cancel()
	c.flush(ctx)
}

// flush writes the counts in memory in one transaction. If that fails, they
// stay in memory.
func (c *Counter) flush(ctx context.Context) {
	c.write.Lock()
	defer c.write.Unlock()
	c.mu.Lock()
	counts, dropped := c.pending, c.dropped
	c.pending, c.dropped = make(map[row]total), 0
	c.mu.Unlock()

	err := c.file.add(ctx, counts, c.now())
	if err != nil {
		c.mu.Lock()
		for key, sum := range counts {
			c.add(key, sum)
		}
		c.mu.Unlock()
	}
	if interrupted := err != nil && ctx.Err() != nil; interrupted {
		return // Close writes them
	}
	if err != nil && !c.failed {
		c.log.LogAttrs(ctx, slog.LevelError, "cannot store the counts of downloads, and will try again every 10 seconds",
			slog.Any("error", err), slog.String("hint", registry.Hint(err)))
	}
	if err == nil && c.failed {
		c.log.LogAttrs(ctx, slog.LevelInfo, "the counts of downloads are stored again")
	}
	c.failed = err != nil
	if dropped > 0 && !c.overflow {
		c.log.LogAttrs(ctx, slog.LevelWarn, "some downloads are not counted, because there are too many different ones",
			slog.Int64("dropped", dropped), slog.Int("rows", c.most))
	}
	c.overflow = dropped > 0
}
