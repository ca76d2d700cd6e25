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

// Tokens stores the last uses of tokens.
type Tokens interface {
	UseToken(ctx context.Context, id string, at time.Time) error
}

// Counter counts the downloads of a server, and stores the uses of tokens. It
// never fails a request: what it cannot write is logged and written later, or
// dropped if there is too much of it.
type Counter struct {
	// Now is the clock.
	Now func() time.Time

	file   *File
	tokens Tokens
	log    *slog.Logger
	most   int

	mu      sync.Mutex
	pending map[row]total
	dropped int64
	used    map[string]time.Time // by the ID of a token

	// write is locked during a write.
	write    sync.Mutex
	failed   bool // the last write failed, and this was logged
	overflow bool // the last write had dropped downloads, and this was logged
}

// NewCounter returns a counter for the registry in a folder.
func NewCounter(dir string, tokens Tokens, log *slog.Logger) *Counter {
	return &Counter{
		file: Open(dir), tokens: tokens, log: log, Now: time.Now, most: maxPending,
		pending: make(map[row]total), used: make(map[string]time.Time),
	}
}

// Observe counts the request if it is a download, or the first use of a token
// in an hour. It does not read or write files.
func (c *Counter) Observe(e *requestlog.Entry) {
	if e.Token != "" {
		c.use(e.Token, c.Now())
	}
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
	now := c.Now()
	caller := e.LoggedCaller()
	key := row{
		now.Unix() / secondsPerDay, string(e.Download), address.String(), version.String(),
		strings.ToValidUTF8(caller[:min(len(caller), maxCaller)], ""),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add(key, total{1, now})
}

// use adds the use of a token in memory. Without room for it, the next hour has
// another.
func (c *Counter) use(id string, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.used) < c.most {
		c.used[id] = at
	}
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
	none := len(c.pending) == 0 && len(c.used) == 0
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
	counts, dropped, used := c.pending, c.dropped, c.used
	c.pending, c.dropped, c.used = make(map[row]total), 0, make(map[string]time.Time)
	c.mu.Unlock()
	c.store(ctx, used)

	err := c.file.add(ctx, counts, c.Now())
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

// store stores the uses of tokens. A use that cannot be stored is logged and
// lost, since the next hour has another. Close stores those that the end of ctx
// interrupts.
func (c *Counter) store(ctx context.Context, used map[string]time.Time) {
	for id, at := range used {
		err := c.tokens.UseToken(ctx, id, at)
		switch {
		case err != nil && ctx.Err() != nil:
			c.use(id, at)
		case err != nil:
			c.log.LogAttrs(ctx, slog.LevelWarn, "cannot store when a token was used", slog.Any("error", err))
		}
	}
}
