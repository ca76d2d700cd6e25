package providers_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/providers"
	"github.com/larder-registry/larder/pkg/registry"
)

const day = 24 * time.Hour

// The last expiry of a namespace's keys is reported, unless the keys need no
// attention.
func TestReportExpiry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const never = 365 * day
		begin := time.Now()
		for _, test := range []struct {
			expiries []time.Duration // 0: never
			want     time.Duration   // 0: no report
		}{
			{nil, 0},
			{[]time.Duration{20 * day}, 20 * day},
			{[]time.Duration{0}, never},
			// The key has a successor.
			{[]time.Duration{20 * day, 730 * day}, 730 * day},
			{[]time.Duration{40 * day, 20 * day, 30 * day}, 40 * day},
			{[]time.Duration{20 * day, 0}, never},
			{[]time.Duration{-day, 40 * day}, 40 * day},
			{[]time.Duration{-day, 0}, never},
			// Nobody can publish, but someone may need to.
			{[]time.Duration{-2 * day, -day, -300 * day}, -day},
			{[]time.Duration{-30*day + time.Second}, -30*day + time.Second},
			// The namespace is abandoned.
			{[]time.Duration{-30 * day}, never},
			{[]time.Duration{-300 * day, -200 * day}, never},
		} {
			f := newFake(t)
			f.keys = nil
			for _, expiry := range test.expiries {
				key := registry.SigningKey{ID: f.record.SigningKey}
				if expiry != 0 {
					key.ExpiresAt = begin.Add(expiry)
				}
				f.keys = append(f.keys, key)
			}
			var want, got []string
			if test.want != 0 {
				want = append(want, fmt.Sprint("acme in ", test.want))
			}
			catalog := providers.ReportExpiry(f, func(namespace string, expires time.Time) {
				got = append(got, fmt.Sprint(namespace, " in ", expires.Sub(begin)))
			})
			keys, err := catalog.SigningKeys(t.Context(), "acme")
			if err != nil {
				t.Errorf("%v: %v", test.expiries, err)
			}
			if diff := cmp.Diff(f.keys, keys); diff != "" {
				t.Errorf("%v: keys, - want, + got:\n%s", test.expiries, diff)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%v: reported, - want, + got:\n%s", test.expiries, diff)
			}
		}
	})
}

// A namespace is reported once an hour, regardless of downloads, and not if its
// keys cannot be read.
func TestReportsAreRare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t)
		reports := 0
		h := providers.NewCaching(f, providers.ReportExpiry(f, func(string, time.Time) { reports++ }), f)
		download := func(what string, status, want int) {
			t.Helper()
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, downloadPath, nil))
			if w.Code != status {
				t.Errorf("%s: %d, want %d", what, w.Code, status)
			}
			if reports != want {
				t.Errorf("%s: reported %d times, want %d", what, reports, want)
			}
		}
		f.keysErr = registry.ErrUnavailable
		download("no keys", http.StatusServiceUnavailable, 0)
		f.keysErr = nil
		download("the first", http.StatusOK, 1)
		download("the second", http.StatusOK, 1)
		time.Sleep(2 * time.Minute)
		download("when the keys are read again", http.StatusOK, 1)
		time.Sleep(time.Hour - 2*time.Minute - time.Second)
		download("within the hour", http.StatusOK, 1)
		time.Sleep(time.Minute)
		download("after an hour", http.StatusOK, 2)
	})
}

// everyNamespace has the same keys in each namespace.
type everyNamespace struct{ *fake }

func (e everyNamespace) SigningKeys(context.Context, string) ([]registry.SigningKey, error) {
	return e.keys, nil
}

// Each namespace is reported separately.
func TestReportsOfNamespaces(t *testing.T) {
	t.Parallel()
	var got []string
	catalog := providers.ReportExpiry(everyNamespace{newFake(t)}, func(namespace string, _ time.Time) {
		got = append(got, namespace)
	})
	for _, namespace := range []string{"acme", "other", "acme"} {
		if _, err := catalog.SigningKeys(t.Context(), namespace); err != nil {
			t.Error(err)
		}
	}
	if diff := cmp.Diff([]string{"acme", "other"}, got); diff != "" {
		t.Errorf("reported, - want, + got:\n%s", diff)
	}
}
