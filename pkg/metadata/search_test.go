package metadata_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/clock"
	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/tabletest"
	"github.com/larder-registry/larder/pkg/metadata"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

func list(ctx context.Context, h http.Handler) int {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/modules", nil))
	return w.Code
}

// Entries are cached for a minute. Then the table decides, even if it fails.
func TestCache(t *testing.T) {
	t.Parallel()
	s := sample(t)
	wall := clock.At(published)
	h := s.serveAt(wall)
	for _, step := range []struct {
		name   string
		after  time.Duration
		err    error
		status int
		calls  string
	}{
		{"first", 0, nil, 200, "Query Query Query"},
		{"again", 0, nil, 200, ""},
		{"the last moment", 59 * time.Second, registry.ErrUnavailable, 200, ""},
		{"stale, and the table fails", time.Second, registry.ErrUnavailable, 503, "Query"},
		{"the failure is not cached", 0, nil, 200, "Query Query Query"},
		{"the clock is set back", -time.Hour, nil, 200, "Query Query Query"},
	} {
		wall.Pass(step.after)
		s.table.Fail(step.err)
		s.table.Take()
		if got := list(t.Context(), h); got != step.status {
			t.Errorf("%s: status %d, want %d", step.name, got, step.status)
		}
		if got := s.table.Take(); got != step.calls {
			t.Errorf("%s: calls %q, want %q", step.name, got, step.calls)
		}
	}
}

// waiting is a table whose queries wait.
type waiting struct {
	*tabletest.Recorded
	begun, end chan struct{}
	once       sync.Once
}

func (w *waiting) Query(ctx context.Context, q catalog.Query) (catalog.Page, error) {
	w.once.Do(func() { close(w.begun) })
	<-w.end
	return w.Recorded.Query(ctx, q)
}

// Concurrent requests share one read of the table. It continues if the request
// that began it ends.
func TestConcurrentReads(t *testing.T) {
	t.Parallel()
	s := sample(t)
	table := &waiting{Recorded: s.table, begun: make(chan struct{}), end: make(chan struct{})}
	h := metadata.New(catalog.New(table), s.objects, nil, access.Everyone)
	first, cancel := context.WithCancel(t.Context())
	ended := make(chan int)
	go func() { ended <- list(first, h) }()
	<-table.begun
	cancel()
	if got := <-ended; got != 503 {
		t.Errorf("a request that ends early: status %d, want 503", got)
	}
	const requests = 20
	statuses := make(chan int)
	for range requests {
		go func() { statuses <- list(t.Context(), h) }()
	}
	close(table.end)
	for range requests {
		if got := <-statuses; got != 200 {
			t.Errorf("status %d, want 200", got)
		}
	}
	if diff := cmp.Diff("Query Query Query", s.table.Take()); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// A handler for one command answers a list with one page.
func TestOnce(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.put("namespaces", "acme", struct{}{})
	const count = 250
	for i := range count {
		address := fmt.Sprintf("acme/module-%03d/aws", i)
		s.put("catalog/acme", "modules/"+address, registry.Summary{Address: address, Latest: registry.Version{Major: 1}})
	}
	for name, test := range map[string]struct {
		h    http.Handler
		want int
	}{
		"one command": {metadata.NewOnce(catalog.New(s.table), s.objects, nil, time.Now), count},
		"all callers": {metadata.New(catalog.New(s.table), s.objects, nil, access.Everyone), 100},
	} {
		w := httptest.NewRecorder()
		test.h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/modules?limit=1000", nil))
		var list protocol.ModuleList
		if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || len(list.Modules) != test.want {
			t.Errorf("%s: %d modules, want %d, %v", name, len(list.Modules), test.want, err)
		}
	}
}
