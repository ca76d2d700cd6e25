package lambda

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// The gateway waits for 30 seconds. A function with a longer timeout continues,
// and receives its own deadline.
func TestTimeouts(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ timeout, wait time.Duration }{{FunctionTimeout, FunctionTimeout},
		{15 * time.Minute, gatewayTimeout}} {
		synctest.Test(t, func(t *testing.T) {
			f := &Function{name: "slow", timeout: test.timeout, events: make(chan invocation),
				ended: make(chan struct{}), waiting: make(map[string]chan result)}
			begun := time.Now()
			told := make(chan time.Duration, 1)
			go func() {
				w := httptest.NewRecorder()
				f.serveNext(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
				until, _ := strconv.ParseInt(w.Header().Get("Lambda-Runtime-Deadline-Ms"), 10, 64)
				told <- time.UnixMilli(until).Sub(begun)
			}()
			_, err := f.Invoke(t.Context(), struct{}{})
			goesOn := test.timeout > test.wait
			if waited := time.Since(begun); waited != test.wait || errors.Is(err, errGoesOn) != goesOn ||
				errors.Is(err, context.DeadlineExceeded) == goesOn {
				t.Errorf("after %s: %v", waited, err)
			}
			if until := <-told; until != test.timeout {
				t.Errorf("its deadline is in %s, want %s", until, test.timeout)
			}
		})
	}
}
