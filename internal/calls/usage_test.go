package calls_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/larder-registry/larder/internal/testkit/cloudwatch"
	"github.com/larder-registry/larder/pkg/usage"
	"github.com/larder-registry/larder/pkg/usage/logged"
)

// counting returns the operations of functions/usage, and what reads the
// counts.
func (r *countedRegistry) counting() []operation {
	now := time.Now()
	counter := logged.NewCounter(r.catalog, slog.New(slog.DiscardHandler), time.Now)
	batch := func(lines ...string) func(*testing.T) error {
		return func(t *testing.T) error {
			var event logged.Event
			sent, err := cloudwatch.Subscribed(logged.Pattern(), "larder-modules", now, lines)
			if err = errors.Join(err, json.Unmarshal(sent, &event)); err != nil {
				return err
			}
			_, err = counter.Do(t.Context(), event)
			return err
		}
	}
	download := func(version, caller string) string {
		return fmt.Sprintf(`{"message":"request","download":"module","address":%q,"version":%q,"caller":%q}`, module, version, caller)
	}
	count := func(q usage.Query) func(*testing.T) error {
		return func(t *testing.T) error {
			q.From, q.To = now.Add(-time.Hour), now
			report, err := logged.NewReader(r.catalog).Count(t.Context(), q)
			if err == nil && len(report.Downloads) == 0 {
				err = errors.New("no downloads are counted")
			}
			return err
		}
	}
	const used = `{"message":"request","token_id":"0123456789ab"}`
	ten := strings.Split(strings.Repeat(download("1.0.0", "token c")+"\n", 10), "\n")
	return []operation{
		{"count a download, first of all", batch(download("1.0.0", "token a"))},
		{"count a download", batch(download("1.0.0", "token b"))},
		{"count the same download again", batch(download("1.0.0", "token b"))},
		{"count ten downloads of a version", batch(ten...)},
		{"count downloads of two versions", batch(download("1.0.0", "token d"), download("1.1.0", "token d"))},
		{"first use of a token in an hour", batch(used)},
		{"use of a token in another process", batch(used)},
		{"usage of a module", count(usage.Query{Address: module})},
		{"usage", count(usage.Query{})},
	}
}
