package catalog_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/registry"
)

// originSums returns a signed SHA256SUMS that lists all packages.
func originSums(v registry.Version, sha256 string, keys ...string) *catalog.OriginSums {
	file := func(sha256 string) registry.StoredFile {
		return registry.StoredFile{Object: random.FileKey(v, sha256, "f"), SHA256: sha256, Size: 1}
	}
	sums := registry.MirrorSums{Sums: file(sha256), Signature: file(sha256 + "5"), SigningKey: "K"}
	for _, key := range keys {
		sums.Keys = append(sums.Keys, registry.PublicKey{ASCIIArmor: key})
	}
	return &catalog.OriginSums{MirrorSums: sums, Lists: func(string, string) bool { return true }}
}

// The keys of an origin are stored with the SHA256SUMS that they signed, in the
// same write, and withdrawn with the version.
func TestAddSigned(t *testing.T) {
	t.Parallel()
	linux := mirrorRecord(t, "1.0.0", "linux_amd64 l")
	nothing := registry.MirrorVersion{Version: linux.Version}
	huge := strings.Repeat("k", 200<<10)
	steps := []struct {
		name    string
		record  registry.MirrorVersion
		sums    *catalog.OriginSums
		want    string // SHA256SUMS of the packages, and the keys
		changed bool
	}{
		{"a version", linux, originSums(linux.Version, "a1", "one", "two"), "[1] map[a1:[one two]]", true},
		{"it again", linux, originSums(linux.Version, "a1", "one", "two"), "[1] map[a1:[one two]]", false},
		{"it again with other keys", linux, originSums(linux.Version, "a1", "three"), "[1] map[a1:[one two]]", false},
		{"another one", nothing, originSums(linux.Version, "b2", "three"), "[1] map[a1:[one two]]", false},
		{"a platform without", mirrorRecord(t, "1.0.0", "linux_386 3"), nil, "[0 1] map[a1:[one two]]", true},
		{"keys that are too large", nothing, originSums(linux.Version, "b2", huge, huge), "[0 1] map[a1:[one two]]", false},
		{"one for it", nothing, originSums(linux.Version, "b2", "three"), "[2 2] map[a1:[one two] b2:[three]]", true},
	}
	table := &writes{Table: open(t)}
	c := catalog.New(table)
	for _, s := range steps {
		before := table.count.Load()
		stored, changed, err := c.Mirror.AddSigned(t.Context(), random, s.record, s.sums, "ada")
		if err != nil || changed != s.changed {
			t.Errorf("%s: changed is %t, want %t: %v", s.name, changed, s.changed, err)
		}
		if got := table.count.Load() - before; got == 1 != s.changed {
			t.Errorf("%s: %d writes", s.name, got)
		}
		keys := make(map[string][]string)
		for _, of := range stored.Sums {
			keys[of.Sums.SHA256] = registry.Armored(of.Keys)
		}
		var of []int
		for _, p := range stored.Packages {
			of = append(of, p.Sums)
		}
		if diff := cmp.Diff(s.want, fmt.Sprint(of, " ", keys)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", s.name, diff)
		}
	}
	if _, _, err := c.Mirror.AddSigned(t.Context(), random, registry.MirrorVersion{Version: registry.Version{Major: 9}},
		originSums(registry.Version{Major: 9}, "c3", "one"), "ada"); err == nil {
		t.Error("a version without packages is stored")
	}
}
