package pull_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/mirror/pull"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// Readers cannot make the mirror store more than the budget of a day. A version
// that does not fit is not downloaded again within the hour.
func TestBudget(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		mode   registry.PullMode
		budget registry.PullBudget
		want   []string // the mirrored ones
	}{
		"open, by packages":   {registry.PullOpen, registry.PullBudget{Packages: 5}, []string{"1.0.0", "2.0.0"}},
		"closed, by packages": {registry.PullClosed, registry.PullBudget{Packages: 5}, []string{"1.0.0", "2.0.0"}},
		"open, by bytes":      {registry.PullOpen, registry.PullBudget{Bytes: 500}, []string{"1.0.0"}},
		"closed, by bytes":    {registry.PullClosed, registry.PullBudget{Bytes: 500}, []string{"1.0.0"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var wanted []fakeVersion
			for i := range 4 {
				wanted = append(wanted, fakeVersion{inventory, fmt.Sprintf("%d.0.0", i+1), both})
			}
			policy := allow(test.mode)
			policy.Budget = test.budget
			bubble(t, newMemoryOrigin(t, wanted...), policy, func(t *testing.T, s setup) {
				s.requestAll(t, wanted)
				if diff := cmp.Diff(test.want, s.versions(t, wanted)); diff != "" {
					t.Fatalf("the mirrored versions (-want +got):\n%s", diff)
				}
				for _, v := range wanted[len(test.want):] {
					s.checkRefused(t, v, test.mode)
				}
				downloads := s.origin.times(".zip")
				s.requestAll(t, wanted)
				time.Sleep(pull.BudgetTime - 5*time.Minute)
				s.requestAll(t, wanted)
				if again := s.origin.times(".zip") - downloads; again > 0 {
					t.Errorf("%d packages were downloaded again within the hour", again)
				}
				time.Sleep(24 * time.Hour)
				s.requestAll(t, wanted)
				if got := s.versions(t, wanted); len(got) <= len(test.want) {
					t.Errorf("on the next day, %q are mirrored", got)
				}
			})
		})
	}
}

// requestAll requests the versions that the mirror lacks.
func (s setup) requestAll(t *testing.T, wanted []fakeVersion) {
	t.Helper()
	w := s.worker()
	for _, v := range wanted {
		if s.mirrored(t, v.provider, v.version) != "" {
			continue
		}
		if err := run(t.Context(), w, v.provider, v.version); err != nil {
			t.Errorf("%s: %v", v.version, err)
		}
	}
}

// versions returns the mirrored ones of some versions.
func (s setup) versions(t *testing.T, wanted []fakeVersion) (mirrored []string) {
	t.Helper()
	for _, v := range wanted {
		if s.mirrored(t, v.provider, v.version) != "" {
			mirrored = append(mirrored, v.version)
		}
	}
	return mirrored
}

// checkRefused checks what clients get of a version that does not fit into the
// budget.
func (s setup) checkRefused(t *testing.T, v fakeVersion, mode registry.PullMode) {
	t.Helper()
	found, err := s.catalog.Mirror.PulledVersion(t.Context(), v.provider, number(t, v.version))
	if err != nil {
		t.Fatal(err)
	}
	var offered []string
	for _, a := range found.Archives {
		offered = append(offered, a.URL)
	}
	var want []string
	if mode == registry.PullOpen {
		for _, p := range v.platforms {
			want = append(want, "https://"+v.zip(p))
		}
	}
	if diff := cmp.Diff(want, offered); diff != "" {
		t.Errorf("%s: the offered URLs (-want +got):\n%s", v.version, diff)
	}
	if found.Problem == "" {
		t.Errorf("%s: there is no problem", v.version)
	}
}

// A worker that was killed after it had counted packages counts them again. So
// the mirror can store less than the budget, and never more.
func TestBudgetAfterKill(t *testing.T) {
	t.Parallel()
	policy := allow(registry.PullOpen)
	policy.Budget.Packages = len(both)
	wanted := fakeVersion{inventory, "1.0.0", both}
	bubble(t, newMemoryOrigin(t, wanted), policy, func(t *testing.T, s setup) {
		n := number(t, "1.0.0")
		state, err := s.catalog.Mirror.CopyState(t.Context(), inventory, inventory.Hostname, n, time.Now())
		if err == nil {
			err = state.Spend(t.Context(), policy.Budget.OrDefault(), len(both), 1)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := run(t.Context(), s.worker(), inventory, "1.0.0"); err != nil {
			t.Fatal(err)
		}
		if got := s.mirrored(t, inventory, "1.0.0"); got != "" {
			t.Errorf("it is mirrored for %s", got)
		}
		time.Sleep(24*time.Hour + time.Minute)
		request := protocol.PullRequest{Action: protocol.PullNightly}
		if _, err := s.worker().Do(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		if got := s.mirrored(t, inventory, "1.0.0"); got == "" {
			t.Error("it is not mirrored in the next night")
		}
	})
}

// The packages of a version together cannot be larger than the temporary folder.
func TestMaxBytes(t *testing.T) {
	t.Parallel()
	wanted := fakeVersion{inventory, "1.0.0", both}
	bubble(t, newMemoryOrigin(t, wanted), allow(registry.PullClosed), func(t *testing.T, s setup) {
		content := 0
		for _, p := range both {
			content += len(wanted.content(t, p))
		}
		w := s.workerFor(int64(content) - 1)
		if err := run(t.Context(), w, inventory, "1.0.0"); err != nil {
			t.Errorf("one byte too many: %v", err)
		}
		if got := s.problem(t, inventory, "1.0.0"); !strings.HasSuffix(got, "its packages together are too large to fetch them for clients") {
			t.Errorf("one byte too many: %q", got)
		}
		time.Sleep(2 * time.Hour)
		if err := run(t.Context(), s.workerFor(int64(content)), inventory, "1.0.0"); err != nil {
			t.Fatal(err)
		}
		if got := s.mirrored(t, inventory, "1.0.0"); got == "" {
			t.Error("at the limit, it is not mirrored")
		}
	})
}
