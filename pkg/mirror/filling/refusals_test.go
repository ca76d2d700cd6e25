package filling_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/mirror/filling"
	"github.com/larder-registry/larder/pkg/registry"
)

// An origin has signed more versions with a new key than its record has room
// for. A nightly run audits them once, and not again every night.
func TestManyRefusals(t *testing.T) {
	t.Parallel()
	linux := []string{"linux_amd64"}
	releases := []release{{"1.0.0", linux, ours, ""}}
	for i := range 25 {
		releases = append(releases, release{fmt.Sprintf("2.%d.0", i), linux, stranger, ""})
	}
	o, s := newOrigin(t, releases...), newStore(t)
	s.adds(t, o, "1.0.0")
	var audited []int
	for range 3 {
		_, err := s.mirror(o).Sync(t.Context(), []filling.Wanted{{Address: inventory, All: true}})
		if !errors.Is(err, registry.ErrNotAdmitted) {
			t.Errorf("%v, want ErrNotAdmitted", err)
		}
		audited = append(audited, len(s.audited(t, registry.AuditRefuseKey)))
	}
	for i, n := range audited {
		if diff := cmp.Diff(audited[0], n); diff != "" {
			t.Errorf("audit entries after run %d (-want +got):\n%s", i+1, diff)
		}
	}
	if audited[0] == 0 {
		t.Error("no refusal is audited")
	}
}
