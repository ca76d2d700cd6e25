package pull_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// stripSums removes the SHA256SUMS of the mirrored version 1.0.0 of a provider, as if
// it had none. It returns the record before.
func (s setup) stripSums(t *testing.T, p registry.MirrorAddress, edit func(*registry.MirrorPackage),
) registry.MirrorVersion {
	t.Helper()
	before, err := s.catalog.Mirror.Get(t.Context(), p, number(t, "1.0.0"))
	if err != nil {
		t.Fatal(err)
	}
	without := before
	without.Packages, without.Sums = slices.Clone(before.Packages), nil
	for i := range without.Packages {
		without.Packages[i].Sums = 0
		edit(&without.Packages[i])
	}
	k := catalog.Key{Partition: p.Path(), Sort: "version/1.0.0"}
	item, err := s.table.Get(t.Context(), k)
	if err == nil {
		item.Data, err = json.Marshal(without)
	}
	if err == nil {
		err = s.table.Write(t.Context(), catalog.Change{Key: k, Revision: item.Revision, Data: item.Data})
	}
	if err != nil {
		t.Fatal(err)
	}
	return before
}

// A version that was mirrored without the SHA256SUMS of its origin gets it in a
// night, and no package is downloaded again.
func TestNightlyFillsSums(t *testing.T) {
	t.Parallel()
	for name, night := range map[string]func(setup, *testing.T){
		"function": func(s setup, t *testing.T) { t.Helper(); s.runNightly(t) },
		"server": func(s setup, t *testing.T) {
			t.Helper()
			_, stop := s.serve(t)
			time.Sleep(day)
			stop()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testNightlyFillsSums(t, night)
		})
	}
}

func testNightlyFillsSums(t *testing.T, night func(setup, *testing.T)) {
	t.Helper()
	v := fakeVersion{inventory, "1.0.0", both}
	origin := newMemoryOrigin(t, v)
	bubble(t, origin, allow(registry.PullOpen), func(t *testing.T, s setup) {
		s.requestIndex(t, inventory)
		if err := run(t.Context(), s.worker(), inventory, "1.0.0"); err != nil {
			t.Fatal(err)
		}
		before := s.stripSums(t, inventory, func(*registry.MirrorPackage) {})
		night(s, t)
		after, err := s.catalog.Mirror.Get(t.Context(), inventory, number(t, "1.0.0"))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("the record (-before +after):\n%s", diff)
		}
		requests := origin.times("")
		night(s, t)
		if got := origin.times("") - requests; got > 2 {
			t.Errorf("%d requests in the next night, want those of discovery and the check", got)
		}
		if got := origin.times(".zip"); got != len(both) {
			t.Errorf("%d packages were downloaded, want %d", got, len(both))
		}
	})
}

// A provider gets its SHA256SUMS in a night with a copy that takes all the time, and
// beside an origin that does not send any. The copy begins soon.
func TestNightlyFillsSumsInTime(t *testing.T) {
	t.Parallel()
	for mode, night := range map[string]func(*testing.T, setup, func()) time.Time{
		"function": func(t *testing.T, s setup, prepare func()) (begin time.Time) {
			t.Helper()
			prepare()
			begin = time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
			defer cancel()
			if _, err := s.worker().Do(ctx, protocol.PullRequest{Action: protocol.PullNightly}); err != nil {
				t.Error(err)
			}
			return begin
		},
		"server": func(t *testing.T, s setup, prepare func()) (begin time.Time) {
			t.Helper()
			_, stop := s.serve(t)
			defer stop()
			time.Sleep(time.Minute)
			prepare()
			now := time.Now()
			begin = time.Date(now.Year(), now.Month(), now.Day()+1, 3, 0, 0, 0, now.Location())
			time.Sleep(time.Until(begin) + 5*time.Minute)
			return begin
		},
	} {
		for name, silent := range map[string]int{"slow copy": 0, "slow copy and silent origin": 120} {
			t.Run(mode+", "+name, func(t *testing.T) {
				t.Parallel()
				testNightlyFillsSumsInTime(t, silent, night)
			})
		}
	}
}

func testNightlyFillsSumsInTime(t *testing.T, silent int, night func(*testing.T, setup, func()) time.Time) {
	t.Helper()
	const silentHost = "b.example.com"
	origin := newMemoryOrigin(t)
	origin.padding = padding(990 << 10)
	slow := fakeVersion{other, "1.0.0", []string{linux}}
	origin.add(t, slow)
	origin.padding = ""
	stored := []registry.MirrorAddress{inventory}
	for i := range silent {
		stored = append(stored, at(silentHost, fmt.Sprint("p", i)))
	}
	for _, p := range stored {
		origin.add(t, fakeVersion{p, "1.0.0", []string{linux}})
	}
	origin.drips = map[string]drip{other.Hostname: {50 * time.Second, 56 << 10}} // 15 minutes
	bubble(t, origin, allow(registry.PullClosed), func(t *testing.T, s setup) {
		var copied time.Time
		begin := night(t, s, func() {
			for _, p := range stored {
				if err := run(t.Context(), s.worker(), p, "1.0.0"); err != nil {
					t.Fatal(err)
				}
				s.stripSums(t, p, func(*registry.MirrorPackage) {})
			}
			s.requestIndex(t, other)
			s.addPending(t, slow)
			time.Sleep(time.Hour)
			origin.set(func() {
				origin.before = func(page string) {
					switch {
					case page == slow.zip(linux):
						origin.set(func() { copied = time.Now() })
					case strings.HasPrefix(page, silentHost) && strings.HasSuffix(page, "SHA256SUMS"):
						time.Sleep(10 * time.Second)
					}
				}
			})
		})
		record, err := s.catalog.Mirror.Get(t.Context(), inventory, number(t, "1.0.0"))
		if err != nil {
			t.Fatal(err)
		}
		if len(record.Sums) == 0 {
			t.Error("a version got no SHA256SUMS")
		}
		origin.set(func() {
			if copied.IsZero() || copied.Sub(begin) > 3*time.Minute {
				t.Errorf("the slow copy began at %s, and the night at %s", copied, begin)
			}
		})
	})
}
