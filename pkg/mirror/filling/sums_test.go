package filling_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/content/signing"
	"github.com/larder-registry/larder/pkg/registry"
)

// sums describes which SHA256SUMS list the packages of version 1.0.0. It checks
// that each can be verified with the keys in the catalog.
func (s *store) sums(t testing.TB) string {
	t.Helper()
	v, err := catalog.New(s.table).Mirror.Get(t.Context(), inventory, parseVersion(t, "1.0.0"))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for i, of := range v.Sums {
		text, parts := s.read(t, of.Sums), []string{"unsigned"}
		if of.Signed() {
			signer, err := signing.VerifyOrigin(registry.Armored(of.Keys), text, s.read(t, of.Signature), time.Now())
			if err != nil || signer.ID != of.SigningKey {
				t.Errorf("SHA256SUMS %d is signed by %q, want %q: %v", i+1, signer.ID, of.SigningKey, err)
			}
			parts[0] = "signed"
		}
		for _, p := range v.Packages {
			if p.Sums != i+1 {
				continue
			}
			parts = append(parts, p.String())
			if !signing.Lists(text, p.Filename, p.SHA256) {
				t.Errorf("SHA256SUMS %d does not list %s", i+1, p.Platform)
			}
		}
		all = append(all, strings.Join(parts, " "))
	}
	return strings.Join(all, ", ")
}

func (s *store) read(t testing.TB, f registry.StoredFile) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, "objects", filepath.FromSlash(f.Object)))
	if err != nil {
		t.Error(err)
	}
	return text
}

// forgetSums makes version 1.0.0 one that was mirrored without a SHA256SUMS.
func (s *store) forgetSums(t testing.TB) {
	t.Helper()
	s.editRecord(t, func(v *registry.MirrorVersion) {
		v.Sums = nil
		for i := range v.Packages {
			v.Packages[i].Sums = 0
		}
	})
}

// forgetKeys removes the signing keys of version 1.0.0.
func (s *store) forgetKeys(t testing.TB) {
	t.Helper()
	s.editRecord(t, func(v *registry.MirrorVersion) {
		for i := range v.Sums {
			v.Sums[i].Keys = nil
		}
	})
}

// editRecord changes the record of version 1.0.0.
func (s *store) editRecord(t testing.TB, change func(*registry.MirrorVersion)) {
	t.Helper()
	k := catalog.Key{Partition: inventory.Path(), Sort: "version/1.0.0"}
	item, err := s.table.Get(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	var v registry.MirrorVersion
	if err := json.Unmarshal(item.Data, &v); err != nil {
		t.Fatal(err)
	}
	change(&v)
	data, err := json.Marshal(v)
	if err == nil {
		err = s.table.Write(t.Context(), catalog.Change{Key: k, Revision: item.Revision, Data: data})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A package has the newest SHA256SUMS that the mirror needed to verify one of the
// version, and never loses a signature.
func TestSums(t *testing.T) {
	t.Parallel()
	add := func(unsigned bool, names ...string) func(*testing.T, *store, *origin) {
		return func(t *testing.T, s *store, o *origin) {
			t.Helper()
			w := wanted(t, names...)
			w.AllowUnsigned = unsigned
			if _, err := s.mirror(o).Add(t.Context(), w); err != nil {
				t.Fatal(err)
			}
		}
	}
	linux, both := add(false, "linux_amd64"), add(false, "linux_amd64", "darwin_arm64")
	later := func(t *testing.T, _ *store, o *origin) {
		t.Helper()
		o.resum(t, func(sums string) string { return sums + strings.Repeat("0", 64) + "  later.zip\n" })
	}
	keyless := func(_ *testing.T, _ *store, o *origin) {
		o.edit("signing_keys", nil, packagePage("1.0.0", "linux_amd64"))
	}
	heal := func(t *testing.T, _ *store, o *origin) { t.Helper(); o.heal(t) }
	forget := func(t *testing.T, s *store, _ *origin) { t.Helper(); s.forgetSums(t) }
	for name, test := range map[string]struct {
		steps []func(*testing.T, *store, *origin)
		want  string
		files int
	}{
		"one platform":  {[]func(*testing.T, *store, *origin){linux}, "signed linux_amd64", 2},
		"two platforms": {[]func(*testing.T, *store, *origin){linux, both}, "signed darwin_arm64 linux_amd64", 2},
		"other SHA256SUMS, nothing new": {
			[]func(*testing.T, *store, *origin){linux, later, linux}, "signed linux_amd64", 2,
		},
		"other SHA256SUMS, new platform": {
			[]func(*testing.T, *store, *origin){linux, later, both}, "signed, signed darwin_arm64 linux_amd64", 4,
		},
		"other signature, new platform": {
			[]func(*testing.T, *store, *origin){linux, heal, both}, "signed darwin_arm64 linux_amd64", 2,
		},
		"stored without": {[]func(*testing.T, *store, *origin){both, forget, linux}, "signed darwin_arm64 linux_amd64", 2},
		"unsigned":       {[]func(*testing.T, *store, *origin){keyless, add(true, "linux_amd64")}, "unsigned linux_amd64", 1},
		"signed later": {
			[]func(*testing.T, *store, *origin){keyless, add(true, "linux_amd64"), heal, linux}, "signed linux_amd64", 2,
		},
		"other SHA256SUMS, signed later": {
			[]func(*testing.T, *store, *origin){keyless, add(true, "linux_amd64"), heal, later, linux},
			"unsigned, signed linux_amd64", 3,
		},
		"lost objects": {[]func(*testing.T, *store, *origin){linux, func(t *testing.T, s *store, _ *origin) {
			for _, f := range s.records(t)[inventory][0].Files()[1:] {
				if err := os.Remove(filepath.Join(s.dir, "objects", filepath.FromSlash(f.Object))); err != nil {
					t.Fatal(err)
				}
			}
		}, linux}, "signed linux_amd64", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, o := newStore(t), simple(t)
			for _, step := range test.steps {
				step(t, s, o)
			}
			if diff := cmp.Diff(test.want, s.sums(t)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got := s.countFiles(t, "_SHA256SUMS") + s.countFiles(t, ".sig"); got != test.files {
				t.Errorf("%d files are stored, want %d", got, test.files)
			}
		})
	}
}
