package providers_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/providers"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/requestlog"
)

// Keys are read once a minute, unless the signer's is not among them or they cannot be read.
func TestKeptKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		h := providers.NewKeeping(f, f)
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

// What is counted of keys that are read is when the last of them ends, as far as that is anybody's concern.
func TestKeysEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const day, never = 24 * time.Hour, 365 * 24 * time.Hour
		begin := time.Now()
		for _, test := range []struct {
			ends []time.Duration // none: never
			want time.Duration   // none: nothing is counted
		}{
			{nil, 0},
			{[]time.Duration{20 * day}, 20 * day},
			{[]time.Duration{0}, never},
			// It has a successor.
			{[]time.Duration{20 * day, 730 * day}, 730 * day},
			{[]time.Duration{40 * day, 20 * day, 30 * day}, 40 * day},
			{[]time.Duration{20 * day, 0}, never},
			{[]time.Duration{-day, 40 * day}, 40 * day},
			{[]time.Duration{-day, 0}, never},
			// Nobody can publish, and somebody may want to.
			{[]time.Duration{-2 * day, -day, -300 * day}, -day},
			{[]time.Duration{-30*day + time.Second}, -30*day + time.Second},
			// Nobody seems to.
			{[]time.Duration{-30 * day}, never},
			{[]time.Duration{-300 * day, -200 * day}, never},
		} {
			f := newFake(t)
			f.keys = nil
			for _, end := range test.ends {
				key := registry.SigningKey{ID: f.record.SigningKey}
				if end != 0 {
					key.ExpiresAt = begin.Add(end)
				}
				f.keys = append(f.keys, key)
			}
			var served []*requestlog.Entry
			h := httpapi.Wrap(slog.New(slog.DiscardHandler), providers.NewKeeping(f, f), func(s *requestlog.Entry) { served = append(served, s) })
			for range 2 {
				h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, downloadPath, nil))
			}
			want := time.Time{}
			if test.want != 0 {
				want = begin.Add(test.want)
			}
			if len(served) != 2 || !served[0].KeysEnd.Equal(want) || !served[1].KeysEnd.IsZero() && len(test.ends) > 0 || served[1].Download != requestlog.ProviderDownload {
				t.Errorf("%v: %+v", test.ends, served)
			}
		}
	})
}
