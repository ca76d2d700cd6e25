package providers_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/larder-registry/larder/pkg/providers"
	"github.com/larder-registry/larder/pkg/registry"
)

// Keys are read once a minute, or again if the signer's key is not cached.
// Errors are not cached.
func TestKeyCache(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		h := providers.NewCaching(f, f, f)
		get := func(what string, status, reads int, signer string) {
			t.Helper()
			f.reads = 0
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, downloadPath, nil))
			if w.Code != status || f.reads != reads {
				t.Errorf("%s: %d after %d reads, want %d after %d", what, w.Code, f.reads, status, reads)
			}
			if has := strings.Contains(w.Body.String(), `"key_id":"`+signer); status == 200 && !has {
				t.Errorf("%s: %s", what, w.Body)
			}
		}
		f.keysErr = registry.ErrUnavailable
		get("no answer", 503, 2, "")
		f.keysErr = nil
		get("the first", 200, 2, "BBBB")
		get("the second", 200, 1, "BBBB")
		f.keysErr = registry.ErrUnavailable
		time.Sleep(59 * time.Second)
		get("within the minute", 200, 1, "BBBB")
		time.Sleep(time.Second)
		get("after a minute", 503, 2, "")
		f.keysErr = nil
		get("again", 200, 2, "BBBB")

		f.record.SigningKey = "DDDDDDDDDDDDDDDD"
		f.keys = append(f.keys, registry.SigningKey{ID: f.record.SigningKey})
		get("a key that was added", 200, 2, "DDDD")
		get("and again", 200, 1, "DDDD")
		f.keys = slices.Delete(f.keys, 3, 4)
		time.Sleep(time.Minute)
		get("one that was removed", 200, 2, "AAAA")
		get("which is asked for", 200, 2, "AAAA")
	})
}
