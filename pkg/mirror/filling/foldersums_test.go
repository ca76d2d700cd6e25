package filling_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/providerfiles"
	"github.com/larder-registry/larder/pkg/mirror/filling"
	"github.com/larder-registry/larder/pkg/registry"
)

// An import verifies the signature in a folder, and decides about its key as Add
// does.
func TestImportSigned(t *testing.T) {
	t.Parallel()
	record(t)
	const sumsFile = "terraform-provider-inventory_1.0.0_SHA256SUMS"
	strange := func(t *testing.T, f folder) {
		t.Helper()
		_, key := entity(t, stranger)
		text, err := os.ReadFile(f.at(sumsFile))
		if err != nil {
			t.Fatal(err)
		}
		write(t, f.at(sumsFile+".sig"), sign(t, stranger, text))
		write(t, f.at(sumsFile+".keys.asc"), key.Public)
	}
	resum := func(text string) func(*testing.T, folder) {
		return func(t *testing.T, f folder) {
			t.Helper()
			write(t, f.at(sumsFile), []byte(text))
			write(t, f.at(sumsFile+".sig"), sign(t, ours, []byte(text)))
		}
	}
	remove := func(names ...string) func(*testing.T, folder) {
		return func(t *testing.T, f folder) {
			t.Helper()
			for _, name := range names {
				if err := os.Remove(f.at(name)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	name := zipName("1.0.0", "linux_amd64")
	// replace replaces the zip, and lists the other one in a second SHA256SUMS.
	replace := func(t *testing.T, f folder) {
		t.Helper()
		old, packed := providerfiles.Sum(one.zip(t, "linux_amd64")), providerfiles.Zip(t, "terraform-provider-inventory", "evil")
		write(t, f.at(name), packed)
		text, err := os.ReadFile(f.at("1.0.0.json"))
		if err != nil {
			t.Fatal(err)
		}
		_, h1, _ := strings.Cut(string(text), `"h1:`)
		h1, _, _ = strings.Cut(h1, `"`)
		write(t, f.at("1.0.0.json"), []byte(strings.NewReplacer("h1:"+h1, "zh:"+providerfiles.Sum(packed),
			"zh:"+old, "zh:"+providerfiles.Sum(packed)).Replace(string(text))))
		write(t, f.at(sumsFile+".2"), []byte(providerfiles.Sum(packed)+"  "+name+"\n"))
	}
	trusting := func(t *testing.T, s *store) {
		t.Helper()
		s.adds(t, newOrigin(t, build("0.9.0", ours)), "0.9.0")
	}
	imported := func(t *testing.T, s *store) {
		t.Helper()
		if _, err := s.mirror(nil).Import(t.Context(), string(newFolder(t, one))); err != nil {
			t.Fatal(err)
		}
	}
	naming := func(t *testing.T, s *store) {
		t.Helper()
		s.setPolicy(t, registry.MirrorRule{SigningKeys: []string{keyID(t, ours)}})
	}
	for what, test := range map[string]struct {
		before func(*testing.T, *store)
		change func(*testing.T, folder)
		want   string // the result and the SHA256SUMS
		kind   error  // of the failure
	}{
		"signed":                       {nil, nil, "1.0.0 [linux_amd64 added] signed linux_amd64", nil},
		"by the trusted key":           {trusting, nil, "1.0.0 [linux_amd64 added] signed linux_amd64", nil},
		"by a key that the rule names": {naming, nil, "1.0.0 [linux_amd64 added] signed linux_amd64", nil},
		"imported before without":      {imported, nil, "1.0.0 [linux_amd64 verified] signed linux_amd64", nil},
		"first key of a stranger":      {nil, strange, "1.0.0 [linux_amd64 added] signed linux_amd64", nil},
		"key that is not trusted":      {trusting, strange, "", registry.ErrNotAdmitted},
		"key that the rule lacks":      {naming, strange, "", registry.ErrNotAdmitted},
		"no keys":                      {nil, remove(sumsFile + ".keys.asc"), "", registry.ErrInvalid},
		"no signature":                 {nil, remove(sumsFile + ".sig"), "", registry.ErrInvalid},
		"no SHA256SUMS":                {nil, remove(sumsFile), "", registry.ErrInvalid},
		"only SHA256SUMS": {nil, remove(sumsFile+".sig", sumsFile+".keys.asc"),
			"1.0.0 [linux_amd64 added] unsigned linux_amd64", nil},
		"only SHA256SUMS, beside a key": {trusting, remove(sumsFile+".sig", sumsFile+".keys.asc"),
			"1.0.0 [linux_amd64 added] ", nil},
		"only SHA256SUMS, rule": {naming, remove(sumsFile+".sig", sumsFile+".keys.asc"), "", registry.ErrNotAdmitted},
		"none of the three": {nil, remove(sumsFile, sumsFile+".sig", sumsFile+".keys.asc"),
			"1.0.0 [linux_amd64 added] ", nil},
		"not listed":       {nil, resum(strings.Repeat("0", 64) + "  other.zip\n"), "1.0.0 [linux_amd64 added] ", nil},
		"not listed, rule": {naming, resum(strings.Repeat("0", 64) + "  other.zip\n"), "", registry.ErrNotAdmitted},
		"listed otherwise": {nil, resum(strings.Repeat("0", 64) + "  " + name + "\n"), "", registry.ErrInvalid},
		"listed otherwise, and in an unsigned one":           {nil, replace, "", registry.ErrInvalid},
		"listed otherwise, and in an unsigned one, trusting": {trusting, replace, "", registry.ErrInvalid},
		"changed SHA256SUMS": {nil, func(t *testing.T, f folder) {
			write(t, f.at(sumsFile), []byte(providerfiles.Sum(one.zip(t, "linux_amd64"))+"  "+name+"\n# more\n"))
		}, "", registry.ErrInvalid},
		"keys that cannot be read": {nil, func(t *testing.T, f folder) {
			write(t, f.at(sumsFile+".keys.asc"), []byte("-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nx\n"))
		}, "", registry.ErrInvalid},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			from, s, f := newStore(t), newStore(t), folder(t.TempDir())
			from.adds(t, newOrigin(t, one), "1.0.0")
			if _, err := from.mirror(nil).Export(t.Context(), string(f), nil); err != nil {
				t.Fatal(err)
			}
			if test.before != nil {
				test.before(t, s)
			}
			if test.change != nil {
				test.change(t, f)
			}
			m := s.mirror(nil)
			m.DryRun = true
			planned, _ := m.Import(t.Context(), string(f))
			results, err := s.mirror(nil).Import(t.Context(), string(f))
			if test.kind != nil {
				failed(t, what, err, test.kind)
				if strings.Contains(s.has(t), "1.0.0") {
					t.Error("it is stored")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, describe(results)+" "+s.sums(t)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(describe(planned), describe(results)); diff != "" {
				t.Errorf("the dry run differs (-want +got):\n%s", diff)
			}
			s.gives(t, "again", strings.NewReplacer("added", "unchanged", "verified", "unchanged").Replace(describe(results)))(
				s.mirror(nil).Import(t.Context(), string(f)))
			if keys := s.originItem(t).Keys; results[0].Signer != "" && len(keys) != 1 {
				t.Errorf("%d keys are trusted", len(keys))
			}
		})
	}
}

// export exports everything, and imports it into another registry.
func (s *store) export(t *testing.T, into *store) (folder, error) {
	t.Helper()
	f := folder(t.TempDir())
	if _, err := s.mirror(nil).Export(t.Context(), string(f), nil); err != nil {
		t.Fatal(err)
	}
	_, err := into.mirror(nil).Import(t.Context(), string(f))
	return f, err
}

// A folder has every SHA256SUMS that a package of a version needs. An import verifies
// each package with its own.
func TestExportSums(t *testing.T) {
	t.Parallel()
	type step = func(*testing.T, *store, *origin)
	add := func(name string) step {
		return func(t *testing.T, s *store, o *origin) {
			t.Helper()
			w := wanted(t, name)
			w.AllowUnsigned = true
			if _, err := s.mirror(o).Add(t.Context(), w); err != nil {
				t.Fatal(err)
			}
		}
	}
	// move is add in another registry, from which s imports it.
	move := func(name string) step {
		return func(t *testing.T, s *store, o *origin) {
			t.Helper()
			from := newStore(t)
			add(name)(t, from, o)
			if _, err := from.export(t, s); err != nil {
				t.Fatal(err)
			}
		}
	}
	only := func(name string) step {
		return func(t *testing.T, _ *store, o *origin) {
			t.Helper()
			o.heal(t)
			o.resum(t, func(sums string) string {
				at := strings.Index(sums, zipName("1.0.0", name)) - 66
				return sums[at : at+strings.Index(sums[at:], "\n")+1]
			})
		}
	}
	trustUnsigned := func(t *testing.T, s *store) {
		t.Helper()
		if _, _, err := s.mirror(nil).Trust(t.Context(), inventory, "unsigned", ""); err != nil {
			t.Fatal(err)
		}
	}
	unsign := func(t *testing.T, s *store, o *origin) {
		t.Helper()
		o.edit("signing_keys", nil, packagePage("1.0.0", "darwin_arm64"))
		trustUnsigned(t, s)
	}
	rebuild := func(t *testing.T, _ *store, o *origin) {
		t.Helper()
		o.rezip(t, providerfiles.Zip(t, "terraform-provider-inventory", "another"))
	}
	release := func(t *testing.T, _ *store, o *origin) {
		t.Helper()
		o.releases[0].content = "another"
		o.heal(t)
	}
	forget := func(t *testing.T, s *store, _ *origin) { t.Helper(); s.forgetSums(t) }
	heal := func(t *testing.T, _ *store, o *origin) { t.Helper(); o.heal(t) }
	const linux, darwin = "linux_amd64", "darwin_arm64"
	for name, test := range map[string]struct {
		steps []step
		want  string
		files int // SHA256SUMS, signatures and keys
	}{
		"none":                 {[]step{add(linux), forget}, "", 0},
		"one of two platforms": {[]step{add(linux), add(darwin)}, "signed darwin_arm64 linux_amd64", 3},
		"one of each platform": {[]step{only(linux), add(linux), only(darwin), add(darwin)},
			"signed linux_amd64, signed darwin_arm64", 6},
		"one without a signature": {[]step{only(linux), add(linux), heal, unsign, add(darwin)},
			"signed linux_amd64, unsigned darwin_arm64", 4},
		"one of a changed package":          {[]step{add(linux), rebuild, move(darwin)}, "signed darwin_arm64 linux_amd64", 6},
		"one of a changed release":          {[]step{add(linux), release, move(darwin)}, "signed linux_amd64, signed darwin_arm64", 6},
		"one of a package that had changed": {[]step{rebuild, add(darwin), heal, move(linux)}, "signed darwin_arm64 linux_amd64", 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, o, into := newStore(t), simple(t), newStore(t)
			trustUnsigned(t, into)
			for _, step := range test.steps {
				step(t, s, o)
			}
			f, err := s.export(t, into)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, into.sums(t)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			const pattern = "*_SHA256SUMS*"
			before := f.named(t, pattern)
			if len(before) != test.files {
				t.Errorf("the folder has %q, want %d files", before, test.files)
			}
			// No file of an earlier export stays.
			for _, number := range []string{"", ".2", ".3"} {
				for _, end := range []string{"", ".sig", ".keys.asc"} {
					write(t, f.at("terraform-provider-inventory_1.0.0_SHA256SUMS"+number+end), []byte("old"))
				}
			}
			if _, err := s.mirror(nil).Export(t.Context(), string(f), nil); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, f.named(t, pattern)); diff != "" {
				t.Errorf("exported again (-before +after):\n%s", diff)
			}
			if _, err := newStore(t).mirror(nil).Import(t.Context(), string(f)); err != nil {
				t.Errorf("exported again: %v", err)
			}
		})
	}
}

// Nothing is stored that nobody could verify in an exported folder. A SHA256SUMS for a
// new platform must not contradict a stored package that no signed one lists. Nor may
// a stored, signed one contradict a new package without a signature.
func TestImportChanged(t *testing.T) {
	t.Parallel()
	unsigned := func(t *testing.T, s *store, o *origin, name string) error {
		t.Helper()
		o.edit("signing_keys", nil, packagePage("1.0.0", name))
		if _, _, err := s.mirror(nil).Trust(t.Context(), inventory, "unsigned", ""); err != nil {
			t.Fatal(err)
		}
		w := wanted(t, name)
		w.AllowUnsigned = true
		_, err := s.mirror(o).Add(t.Context(), w)
		return err
	}
	rebuild := func(t *testing.T, o *origin) {
		t.Helper()
		o.rezip(t, providerfiles.Zip(t, "terraform-provider-inventory", "another"))
	}
	signed := func(t *testing.T, s *store, o *origin) error {
		t.Helper()
		from := newStore(t)
		rebuild(t, o)
		from.mirrors(t, o, wanted(t, "darwin_arm64"))
		_, err := from.export(t, s)
		return err
	}
	for name, test := range map[string]struct {
		before func(*testing.T, *store, *origin) error
		change func(*testing.T, *store, *origin) error
		kind   error
		want   string
	}{
		"stored without": {func(t *testing.T, s *store, _ *origin) error {
			return second(s.mirror(nil).Import(t.Context(), string(newFolder(t, one))))
		}, signed, registry.ErrExists, "1.0.0 [linux_amd64]"},
		"stored with an unsigned one": {func(t *testing.T, s *store, o *origin) error {
			return unsigned(t, s, o, "linux_amd64")
		}, signed, registry.ErrExists, "1.0.0 [linux_amd64]"},
		"new in an unsigned one": {func(t *testing.T, s *store, o *origin) error {
			return second(s.mirror(o).Add(t.Context(), wanted(t, "darwin_arm64")))
		}, func(t *testing.T, s *store, o *origin) error {
			rebuild(t, o)
			return unsigned(t, s, o, "linux_amd64")
		}, registry.ErrInvalid, "1.0.0 [darwin_arm64]"},
		"new in a folder without one": {func(t *testing.T, s *store, o *origin) error {
			return second(s.mirror(o).Add(t.Context(), wanted(t, "darwin_arm64")))
		}, func(t *testing.T, s *store, _ *origin) error {
			return second(s.mirror(nil).Import(t.Context(),
				string(newFolder(t, release{"1.0.0", []string{"linux_amd64"}, ours, "another"}))))
		}, registry.ErrInvalid, "1.0.0 [darwin_arm64]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, o := newStore(t), simple(t)
			if err := test.before(t, s, o); err != nil {
				t.Fatal(err)
			}
			failed(t, name, test.change(t, s, o), test.kind, "linux_amd64")
			if diff := cmp.Diff(test.want, s.has(t)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A version that lost a part of a SHA256SUMS stops no export of another one. The command
// in the hint of the error restores it.
func TestExportLost(t *testing.T) {
	t.Parallel()
	record(t)
	lose := func(name string) func(*testing.T, *store, *origin) {
		return func(t *testing.T, s *store, _ *origin) {
			t.Helper()
			found, err := filepath.Glob(filepath.Join(s.dir, "objects", inventory.Path(), "1.0.0", "*", name))
			if err != nil || len(found) != 1 || os.Remove(found[0]) != nil {
				t.Fatalf("%s: %v, %v", name, found, err)
			}
		}
	}
	loseKeys := func(t *testing.T, s *store, _ *origin) { t.Helper(); s.forgetKeys(t) }
	then := func(steps ...func(*testing.T, *store, *origin)) func(*testing.T, *store, *origin) {
		return func(t *testing.T, s *store, o *origin) {
			t.Helper()
			for _, step := range steps {
				step(t, s, o)
			}
		}
	}
	const sums = "terraform-provider-inventory_1.0.0_SHA256SUMS"
	resign := func(t *testing.T, _ *store, o *origin) { t.Helper(); o.heal(t) }
	for name, test := range map[string]struct {
		lose func(*testing.T, *store, *origin)
		word string
	}{
		"SHA256SUMS":              {lose(sums), sums},
		"SHA256SUMS, signed anew": {then(lose(sums), resign), sums},
		"signature":               {lose(sums + ".sig"), sums + ".sig"},
		"package":                 {lose("*linux_amd64.zip"), zipName("1.0.0", "linux_amd64")},
		"keys":                    {loseKeys, "keys"},
		"keys, SHA256SUMS":        {then(lose(sums), loseKeys), sums},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, f := newStore(t), folder(t.TempDir())
			o := newOrigin(t, build("1.0.0", ours), build("1.1.0", ours), build("1.2.0", ours))
			s.mirrors(t, o, filling.Wanted{Address: inventory, All: true})
			before := s.sums(t)
			test.lose(t, s, o)
			results, err := s.mirror(nil).Export(t.Context(), string(f), nil)
			failed(t, name, err, registry.ErrCorrupt, inventory.String()+": 1.0.0: ", test.word)
			if diff := cmp.Diff("1.2.0 [linux_amd64 added], 1.1.0 [linux_amd64 added]", describe(results)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if err := second(newStore(t).mirror(nil).Import(t.Context(), string(f))); err != nil {
				t.Errorf("the folder: %v", err)
			}
			const hint = "`larder mirror add registry.example.com/acme/inventory --version 1.0.0 --platform linux_amd64`"
			if !strings.Contains(registry.Hint(err), hint) {
				t.Errorf("the hint is %q", registry.Hint(err))
			}
			s.mirrors(t, o, filling.Wanted{Address: inventory, Constraint: "1.0.0", Platforms: platforms(t, "linux_amd64")})
			if diff := cmp.Diff(before, s.sums(t)); diff != "" {
				t.Errorf("after the hint (-want +got):\n%s", diff)
			}
			if _, err := s.mirror(nil).Export(t.Context(), string(f), nil); err != nil {
				t.Errorf("after the hint: %v", err)
			}
		})
	}
}
