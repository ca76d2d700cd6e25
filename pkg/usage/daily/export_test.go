package daily

import (
	"context"
	"log/slog"
	"time"
)

type noTokens struct{}

func (noTokens) UseToken(context.Context, string, time.Time) error { return nil }

// NewTestCounter returns a counter with its own clock, which has at most a
// number of rows in memory.
func NewTestCounter(dir string, log *slog.Logger, most int, now func() time.Time) *Counter {
	c := NewCounter(dir, noTokens{}, log)
	c.most, c.Now = most, now
	return c
}

// Flush writes the counts in memory.
func (c *Counter) Flush(ctx context.Context) { c.flush(ctx) }
