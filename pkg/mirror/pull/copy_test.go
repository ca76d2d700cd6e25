package pull_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/registry"
)

// A version whose origin is too slow for the waiting client is copied behind.
func TestLate(t *testing.T) {
	t.Parallel()
	inBubble(t, late)
}

func late(t *testing.T) {
	r := newTestRegistry(t, registry.PullOpen, true)
	if _, err := r.catalog.SetMirrorPolicy(t.Context(), r.policy, ""); err != nil {
		t.Fatal(err)
	}
	if got, want := r.index(t), "200: 1.0.0, 1.1.0"; got != want {
		t.Fatalf("index.json: %s, want %s", got, want)
	}
	answered := make(chan struct{})
	r.each(func(page http.HandlerFunc) http.HandlerFunc {
		return func(out http.ResponseWriter, r *http.Request) {
			select {
			case <-r.Context().Done():
				panic(http.ErrAbortHandler) // a response could still arrive
			case <-answered:
				page(out, r)
			}
		}
	}, sumsPath)
	if got, want := r.version(t, "1.1.0"), "200: none"; got != want {
		t.Errorf("while the origin is slow: %s, want %s", got, want)
	}
	close(answered)
	r.local.Wait()
	if got, want := r.version(t, "1.1.0"), "200: both from the mirror (h1, zh)"; got != want {
		t.Errorf("after the copy: %s, want %s", got, want)
	}
}

// The platforms of a version that was offered are known, so that a copy does not
// request the versions again.
func TestListedTwice(t *testing.T) {
	t.Parallel()
	inBubble(t, listedTwice)
}

func listedTwice(t *testing.T) {
	r := newTestRegistry(t, registry.PullOpen, true)
	r.rule().Platforms = nil
	if _, err := r.catalog.SetMirrorPolicy(t.Context(), r.policy, ""); err != nil {
		t.Fatal(err)
	}
	var listings atomic.Int64
	r.each(func(page http.HandlerFunc) http.HandlerFunc {
		return func(out http.ResponseWriter, r *http.Request) {
			listings.Add(1)
			page(out, r)
		}
	}, versionsPath)
	r.index(t)
	if got, want := r.version(t, "1.1.0"), "200: both from the origin (zh)"; got != want {
		t.Errorf("before the copy: %s, want %s", got, want)
	}
	r.local.Wait()
	if got, want := r.version(t, "1.1.0"), "200: both from the mirror (h1, zh)"; got != want {
		t.Errorf("after the copy: %s, want %s", got, want)
	}
	if got := listings.Load(); got > 2 {
		t.Errorf("the origin got %d requests for its versions, want at most 2", got)
	}
}

// Clients do not wait for platforms that an origin lacks.
func TestLackingPlatforms(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ wanted, want, problem string }{
		"one":  {"windows_amd64", "linux_amd64", "the origin has no package for windows_amd64"},
		"none": {"linux_amd64", "linux_amd64", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			policy := allow(registry.PullClosed)
			for _, p := range []string{"linux_amd64", test.wanted} {
				platform, err := registry.ParsePlatform(p)
				if err != nil {
					t.Fatal(err)
				}
				policy.Rules[0].Platforms = append(policy.Rules[0].Platforms, platform)
			}
			bubble(t, newMemoryOrigin(t, fakeVersion{inventory, "1.0.0", both}), policy, func(t *testing.T, s setup) {
				if err := run(t.Context(), s.worker(), inventory, "1.0.0"); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(test.want, s.mirrored(t, inventory, "1.0.0")); diff != "" {
					t.Errorf("the mirrored platforms (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(test.problem, s.problem(t, inventory, "1.0.0")); diff != "" {
					t.Errorf("the problem (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// An origin can list a platform of which it has no package. Without platforms in the
// policy, clients do not wait for that either, and no copy is repeated.
func TestListedPlatformWithoutPackage(t *testing.T) {
	t.Parallel()
	o := newMemoryOrigin(t, fakeVersion{inventory, "1.0.0", both})
	o.set(func() {
		delete(o.pages, inventory.Hostname+"/v1/"+inventory.Provider().String()+"/1.0.0/download/"+
			strings.ReplaceAll(darwin, "_", "/"))
	})
	bubble(t, o, allow(registry.PullClosed), func(t *testing.T, s setup) {
		if err := run(t.Context(), s.worker(), inventory, "1.0.0"); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(linux, s.mirrored(t, inventory, "1.0.0")); diff != "" {
			t.Errorf("the mirrored platforms (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff("the origin has no package for "+darwin, s.problem(t, inventory, "1.0.0")); diff != "" {
			t.Errorf("the problem (-want +got):\n%s", diff)
		}
	})
}

// The log has the notes about a copy, since no operator sees its result.
func TestCopyLogsNotes(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		r := newTestRegistry(t, registry.PullClosed, true)
		r.rule().Platforms = []registry.Platform{{OS: "windows", Arch: "amd64"}}
		r.offer(t, release{platforms: []string{"windows_amd64"}}, "1.1.0")
		if _, err := r.catalog.SetMirrorPolicy(t.Context(), r.policy, ""); err != nil {
			t.Fatal(err)
		}
		r.index(t)
		r.version(t, "1.1.0")
		r.local.Wait()
		const want = `"notes":["terraform-provider-inventory_1.1.0_windows_amd64.zip: the name of its program, `
		if !strings.Contains(r.log.String(), want) {
			t.Errorf("the log lacks %s: %s", want, r.log.String())
		}
	})
}
