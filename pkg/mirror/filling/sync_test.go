package filling_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/larder-registry/larder/pkg/mirror/filling"
	"github.com/larder-registry/larder/pkg/registry"
)

const list = `
# What this site uses.
platforms = ["linux_amd64", "darwin_arm64"]

provider "registry.example.com/acme/inventory" {
  versions = ["~> 1.0", "0.9.0"] # of each the newest
}

provider "Registry.OpenTofu.org/hashicorp/random" {
  versions       = [">= 3.0.0"]
  all            = true
  platforms      = ["all"]
  upstream       = "https://registry.internal.example.com"
  allow_unsigned = true
}

provider "registry.example.com/acme/inventory" {
  versions  = [""]
  platforms = ["windows_amd64"]
}
`

func TestParseList(t *testing.T) {
	t.Parallel()
	record(t)
	describe := func(w filling.Wanted) string {
		return fmt.Sprintf("%s %q %v %v %q %v", w.Address, w.Constraint, w.All, w.Platforms, w.Upstream, w.AllowUnsigned)
	}
	wanted, err := filling.ParseList(t.Context(), "test.hcl", []byte(list))
	var got []string
	for _, w := range wanted {
		got = append(got, describe(w))
	}
	want := []string{
		`registry.example.com/acme/inventory "~> 1.0" false [linux_amd64 darwin_arm64] "" false`,
		`registry.example.com/acme/inventory "0.9.0" false [linux_amd64 darwin_arm64] "" false`,
		`registry.opentofu.org/hashicorp/random ">= 3.0.0" true [] "https://registry.internal.example.com" true`,
		`registry.example.com/acme/inventory "" false [windows_amd64] "" false`,
	}
	if err != nil || strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%v\n%s", err, strings.Join(got, "\n"))
	}
	if wanted, err := filling.ParseList(t.Context(), "test.hcl", nil); err != nil || len(wanted) != 0 {
		t.Errorf("nothing: %v, %v", wanted, err)
	}
	const begin = "platforms = [\"linux_amd64\"]\nprovider \"registry.example.com/acme/inventory\" {\n  "
	for _, test := range []struct {
		what, text string
		words      []string
	}{
		{"no HCL", "providers:\n  - a\n", []string{"test.hcl:1"}},
		{"no versions", begin + "}\n", []string{"versions"}},
		{"versions that are empty", begin + "versions = []\n}\n", []string{inventory.String(), "has no versions"}},
		{"versions that are null", begin + "versions = null\n}\n", []string{"versions"}},
		{"a version that is null", begin + "versions = [null]\n}\n", nil},
		{"versions that are not a list", begin + "versions = \"1.0.0\"\n}\n", []string{`versions = ["~> 1.0"]`}},
		{"a version without quotes", begin + "versions = [1.10]\n}\n", []string{"each in quotes"}},
		{"an invalid constraint", begin + "versions = [\"newest\"]\n}\n", []string{inventory.String(), "newest"}},
		{"a constraint that is too long", begin + "versions = [\"> 99999999999999999999999\"]\n}\n", nil},
		{"a misspelt attribute", begin + "versions = [\"1.0.0\"]\n  platform = " +
			"[\"linux_amd64\"]\n}\n", []string{"platform"}},
		{"a misspelt block", begin + "versions = [\"1.0.0\"]\n}\nproviders \"x\" {\n}\n", []string{"providers"}},
		{"an invalid platform", begin + "versions = [\"1.0.0\"]\n  platforms = " +
			"[\"linux\"]\n}\n", []string{inventory.String(), "linux"}},
		{"no platform of its own", begin + "versions = [\"1.0.0\"]\n  platforms = " +
			"[]\n}\n", []string{inventory.String(), "all"}},
		{"all and another platform", begin + "versions = [\"1.0.0\"]\n  platforms = [\"all\", " +
			"\"linux_amd64\"]\n}\n", []string{"all"}},
		{
			"no platform at all", strings.TrimPrefix(begin, "platforms = [\"linux_amd64\"]\n") + "versions = [\"1.0.0\"]\n}\n",
			nil,
		},
		{"a host with a port", "provider \"registry.example.com:8443/acme/inventory\" {\n  versions = " +
			"[\"1.0.0\"]\n}\n", []string{"port"}},
		{"an address without a host", "provider \"acme/inventory\" {\n  versions = " +
			"[\"1.0.0\"]\n}\n", []string{"HOSTNAME/NAMESPACE/TYPE"}},
		{"a variable", begin + "versions = var.versions\n}\n", nil},
		{"deeply nested", "x = " + strings.Repeat("[", 100_000), nil},
		{"too much", strings.Repeat("#\n", filling.MaxText/2+1), nil},
	} {
		wanted, err := filling.ParseList(t.Context(), "test.hcl", []byte(test.text))
		failed(t, test.what, err, registry.ErrInvalid, test.words...)
		if wanted != nil {
			t.Errorf("%s: %+v", test.what, wanted)
		}
	}
}

func TestParsePlatforms(t *testing.T) {
	t.Parallel()
	record(t)
	for _, test := range []struct {
		names []string
		want  string // empty if it is rejected
	}{
		{[]string{"linux_amd64"}, "[linux_amd64]"},
		{[]string{"linux_amd64", "darwin_arm64"}, "[linux_amd64 darwin_arm64]"},
		{[]string{"all"}, "[]"},
		{nil, ""},
		{[]string{""}, ""},
		{[]string{"all", "all"}, ""},
		{[]string{"linux_amd64", "all"}, ""},
		{[]string{"linux"}, ""},
		{[]string{"Linux_amd64"}, ""},
		{[]string{"linux_amd64,darwin_arm64"}, ""},
		{[]string{"../x_y"}, ""},
	} {
		got, err := filling.ParsePlatforms(test.names)
		if test.want == "" {
			failed(t, fmt.Sprint(test.names), err, registry.ErrInvalid)
		} else if err != nil || fmt.Sprint(got) != test.want {
			t.Errorf("%v: %v, %v", test.names, got, err)
		}
	}
}

// The parser never panics, and accepts only entries that can be requested.
func FuzzParseList(f *testing.F) {
	f.Add([]byte(list))
	f.Add([]byte(
		"provider \"a.b/c/d\" {\n  versions = [\"!= 1.0, > 0.0.1-a+b, <= 18446744073709551616\"]\n  platforms = " +
			"[\"all\"]\n}\n"))
	f.Add([]byte(
		"provider \"a.b/c/d\" {\n  versions = [\">= v1.x\", \"~> *\", \"^1\", \"1 - 2\"]\n  platforms = [\"a_b\"]\n}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		wanted, err := filling.ParseList(t.Context(), "fuzz", text)
		if err != nil && (!errors.Is(err, registry.ErrInvalid) || wanted != nil) {
			t.Errorf("%+v, %v", wanted, err)
		}
		for _, w := range wanted {
			if again, err := registry.ParseMirrorProvider(w.Address.String()); err != nil || again != w.Address {
				t.Errorf("%v is no address: %v", w.Address, err)
			}
		}
	})
}

// FuzzConstraint is for the library, which panics on what its grammar takes and its numbers do not.
func FuzzConstraint(f *testing.F) {
	for _, s := range []string{
		"~> 1.0", ">= 1.0.0, < 2", "!= 1.0.0-rc.1+b", "= 18446744073709551615.0.0", "> 999999999999999999", "1.0.*", "v1.0.0",
		"~> 1.0,", "", "~>0.0.0-0", "=>1",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, constraint string) {
		text := fmt.Sprintf("provider \"a.b/c/d\" {\n  platforms = [\"all\"]\n  versions = [%q]\n}\n",
			strings.NewReplacer("${", "", "%{", "").Replace(constraint))
		if _, err := filling.ParseList(t.Context(), "fuzz", []byte(text)); err != nil &&
			!errors.Is(err, registry.ErrInvalid) {
			t.Error(err)
		}
	})
}

func TestSync(t *testing.T) {
	t.Parallel()
	both := []string{"linux_amd64", "darwin_arm64"}
	o := newOrigin(t, release{"0.9.0", both, ours, ""}, release{"1.0.0", both, ours, ""},
		release{"1.1.0", both, ours, ""}, release{"2.0.0", []string{"windows_amd64"}, ours, ""})
	s := newStore(t)
	text := strings.ReplaceAll(list, `provider "Registry.OpenTofu.org/hashicorp/random"`,
		`provider "registry.example.com/acme/inventory"`)
	text = strings.ReplaceAll(text, ">= 3.0.0", "< 1.0.0")
	wanted, err := filling.ParseList(t.Context(), "test.hcl", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	const packages = "1.1.0 [darwin_arm64 %[1]s, linux_amd64 %[1]s], 0.9.0 [darwin_arm64 %[1]s, linux_amd64 %[1]s], " +
		"2.0.0 [windows_amd64 %[1]s]"

	m := s.mirror(o)
	m.DryRun = true
	if results, err := m.Sync(t.Context(), wanted); err != nil || describe(results) != fmt.Sprintf(packages, "added") ||
		o.times(".zip") != 0 {
		t.Errorf("a dry run: %s, %v", describe(results), err)
	}
	s.empty(t, "a dry run")

	// A failed entry is reported, and those before and after it are mirrored.
	o.set(signaturePage("0.9.0"), page{status: http.StatusNotFound})
	results, err := s.mirror(o).Sync(t.Context(), wanted)
	if !errors.Is(err, registry.ErrNotFound) || !strings.Contains(err.Error(), "0.9.0") {
		t.Errorf("a version without a signature: %v", err)
	}
	if describe(results) != "1.1.0 [darwin_arm64 added, linux_amd64 added], 2.0.0 [windows_amd64 added]" ||
		s.has(t) != "2.0.0 [windows_amd64], 1.1.0 [darwin_arm64 linux_amd64]" {
		t.Errorf("%s, %s", describe(results), s.has(t))
	}

	o.heal(t)
	const has = "2.0.0 [windows_amd64], 1.1.0 [darwin_arm64 linux_amd64], 0.9.0 [darwin_arm64 linux_amd64]"
	if results, err = s.mirror(o).Sync(t.Context(), wanted); err != nil || s.has(t) != has || o.times(".zip") != 2 {
		t.Errorf("%s, %v, %s, %d downloads", describe(results), err, s.has(t), o.times(".zip"))
	}
	before := fmt.Sprint(s.records(t))
	o.heal(t)
	results, err = s.mirror(o).Sync(t.Context(), wanted)
	if err != nil || describe(results) != fmt.Sprintf(packages, "unchanged") || o.times(".zip") != 0 ||
		fmt.Sprint(s.records(t)) != before {
		t.Errorf("again: %s, %v, %d downloads", describe(results), err, o.times(".zip"))
	}
	// Nothing is taken away by a list that names less.
	if results, err := s.mirror(o).Sync(t.Context(), nil); err != nil || len(results) != 0 || s.has(t) != has {
		t.Errorf("an empty list: %v, %v, %s", results, err, s.has(t))
	}
}

// A dry run reports the same results as a real one, even if two entries select
// the same version.
func TestSyncDryRun(t *testing.T) {
	t.Parallel()
	o, s := simple(t), newStore(t)
	wanted := []filling.Wanted{
		{Address: inventory, Constraint: "~> 1.0", Platforms: platforms(t, "linux_amd64")},
		{Address: inventory, Platforms: platforms(t, "linux_amd64", "windows_amd64")},
	}
	added := func(m *filling.Mirror) string {
		t.Helper()
		results, err := m.Sync(t.Context(), wanted)
		if err != nil {
			t.Fatal(err)
		}
		names := make(map[string]bool)
		for _, r := range results {
			for _, p := range r.Packages {
				if p.Status == filling.Added {
					names[p.Platform.String()] = true
				}
			}
		}
		return fmt.Sprint(slices.Sorted(maps.Keys(names)))
	}
	m := s.mirror(o)
	m.DryRun = true
	if dry, real := added(m), added(s.mirror(o)); dry != real || real != "[linux_amd64 windows_amd64]" {
		t.Errorf("a dry run adds %s, and then %s are added", dry, real)
	}
}

// If two entries select the same version, there is one result for both.
func TestSyncMerges(t *testing.T) {
	t.Parallel()
	record(t)
	o, s := simple(t), newStore(t)
	o.edit("signing_keys", nil, packagePage("1.0.0", "linux_amd64"))
	unsigned := filling.Wanted{Address: inventory, Platforms: platforms(t, "linux_amd64"), AllowUnsigned: true}
	if _, err := s.mirror(o).Add(t.Context(), unsigned); err != nil {
		t.Fatal(err)
	}
	signed := wanted(t, "darwin_arm64", "linux_amd64")
	for _, dry := range []bool{true, false} {
		m := s.mirror(o)
		m.DryRun = dry
		results, err := m.Sync(t.Context(), []filling.Wanted{unsigned, signed})
		if err != nil || describe(results) != "1.0.0 [darwin_arm64 added, linux_amd64 verified]" {
			t.Fatalf("dry run %v: %s, %v", dry, describe(results), err)
		}
		if got, want := results[0].Signer, keyID(t, ours); got != want {
			t.Errorf("dry run %v: signed by %q, want %q", dry, got, want)
		}
		if results[0].Owner == "" {
			t.Errorf("dry run %v: the key has no owner", dry)
		}
		noted(t, fmt.Sprintf("dry run %v", dry), results, "SHA256SUMS")
	}
}
