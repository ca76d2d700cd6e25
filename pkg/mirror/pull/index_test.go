package pull_test

import (
	"fmt"
	"testing"

	"github.com/apparentlymart/go-versions/versions"

	"github.com/larder-registry/larder/internal/testkit/providerfiles"
	"github.com/larder-registry/larder/pkg/mirror/pull"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// An origin can list more versions than an item of the table can have. Then the
// list has the newest ones.
func TestIndexOfManyVersions(t *testing.T) {
	t.Parallel()
	const n = 12_000
	all := make([]registry.Version, n)
	for i := range all {
		long := versions.VersionExtra("x" + providerfiles.Sum(fmt.Append(nil, i)))
		all[i] = registry.Version{Major: n - uint64(i), Prerelease: long}
	}
	index, err := pull.IndexOf(all)
	if err != nil {
		t.Fatal(err)
	}
	if len(index) > pull.MaxIndex {
		t.Errorf("the index has %d bytes, more than %d", len(index), pull.MaxIndex)
	}
	listed, err := protocol.Decode[protocol.MirrorListing](index)
	if err != nil {
		t.Fatal(err)
	}
	if len(listed) >= n || len(listed) < n/8 {
		t.Errorf("it has %d of %d versions", len(listed), n)
	}
	if len(listed) > 0 && listed[0] != all[0] {
		t.Errorf("its first version is %s, want %s", listed[0], all[0])
	}
}
