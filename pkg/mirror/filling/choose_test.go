package filling_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/mirror/filling"
	"github.com/larder-registry/larder/pkg/registry"
)

// offers returns versions as an origin offers them.
func offers(t testing.TB, all ...string) []client.OfferedVersion {
	t.Helper()
	var offered []client.OfferedVersion
	for _, v := range all {
		offered = append(offered, client.OfferedVersion{Version: parseVersion(t, v)})
	}
	return offered
}

// recorded returns the records of versions that are mirrored. A version after
// an exclamation mark is withdrawn.
func recorded(t testing.TB, all ...string) []registry.MirrorVersion {
	t.Helper()
	var records []registry.MirrorVersion
	for _, v := range all {
		record := registry.MirrorVersion{}
		if v[0] == '!' {
			record.Withdrawn, v = &registry.Withdrawal{}, v[1:]
		}
		record.Version = parseVersion(t, v)
		records = append(records, record)
	}
	return records
}

func TestChoose(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name       string
		offered    []string
		mirrored   []string
		constraint string
		all        bool
		want       []string
	}{
		{"the newest release", []string{"1.0.0", "2.0.0", "1.5.0", "3.0.0-rc.1"}, nil, "", false, []string{"2.0.0"}},
		{"all of them", []string{"1.0.0", "2.0.0", "1.5.0"}, nil, "", true, []string{"2.0.0", "1.5.0", "1.0.0"}},
		{"the higher build of two", []string{"1.0.0+a", "1.0.0+b"}, nil, "", false, []string{"1.0.0+b"}},
		{"one build of each", []string{"1.0.0+a", "2.0.0+a", "1.0.0", "2.0.0+b"}, nil, "", true,
			[]string{"2.0.0+b", "1.0.0+a"}},
		{"the build that is mirrored", []string{"1.0.0+a", "1.0.0+b", "1.0.0+c"}, []string{"1.0.0+b"}, "", false,
			[]string{"1.0.0+b"}},
		{"the one without a build that is mirrored", []string{"1.0.0", "1.0.0+a"}, []string{"1.0.0"}, "", true,
			[]string{"1.0.0"}},
		{"the mirrored builds among all", []string{"1.0.0+a", "1.0.0+b", "2.0.0+a", "2.0.0+b"},
			[]string{"2.0.0+a", "1.0.0+a"}, "", true, []string{"2.0.0+a", "1.0.0+a"}},
		{"a mirrored build that is not offered", []string{"1.0.0+a", "1.0.0+b"}, []string{"1.0.0+z"}, "", false,
			[]string{"1.0.0+b"}},
		{"not what the constraint excludes", []string{"1.0.0+a", "0.9.0"}, []string{"0.9.0"}, ">= 0.9.5", false,
			[]string{"1.0.0+a"}},
		{"down to one that is not withdrawn", []string{"3.0.0", "2.0.0", "1.0.0"}, []string{"!3.0.0", "1.0.0"}, "", false,
			[]string{"3.0.0", "2.0.0"}},
		{"down past a withdrawn build", []string{"2.0.0+a", "1.0.0"}, []string{"!2.0.0+b"}, "", false,
			[]string{"2.0.0+a", "1.0.0"}},
		{"a withdrawn build that is offered", []string{"2.0.0+a", "2.0.0+b", "1.0.0"}, []string{"!2.0.0+a"}, "", false,
			[]string{"2.0.0+a", "1.0.0"}},
		{"the first where all are withdrawn", []string{"2.0.0", "1.0.0"}, []string{"!2.0.0", "!1.0.0"}, "", false,
			[]string{"2.0.0"}},
		{"all, withdrawn ones among them", []string{"2.0.0", "1.0.0"}, []string{"!2.0.0"}, "", true,
			[]string{"2.0.0", "1.0.0"}},
		{"a pre-release by its number", []string{"1.0.0", "2.0.0-rc.1"}, nil, "2.0.0-rc.1", false, []string{"2.0.0-rc.1"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := filling.Wanted{Constraint: test.constraint, All: test.all}
			chosen, err := filling.Choose(w, offers(t, test.offered...), recorded(t, test.mirrored...))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, v := range chosen {
				got = append(got, v.Version.String())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	_, err := filling.Choose(filling.Wanted{}, offers(t, "1.0.0-rc.1"), nil)
	if !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("no release: %v, want ErrNotFound", err)
	}
}

// manyVersions is more than any provider has. An origin may offer as many.
const manyVersions = 60_000

func BenchmarkChoose(b *testing.B) {
	names := make([]string, manyVersions)
	withdrawn := make([]string, manyVersions)
	for i := range names {
		names[i] = fmt.Sprintf("1.%d.0", i)
		withdrawn[i] = "!" + names[i]
	}
	offered := offers(b, names...)
	for name, records := range map[string][]registry.MirrorVersion{
		"nothing mirrored": nil,
		"all mirrored":     recorded(b, names...),
		"all withdrawn":    recorded(b, withdrawn...),
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := filling.Choose(filling.Wanted{}, offered, records); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// An origin may list any number of platforms for a version.
func BenchmarkPlatforms(b *testing.B) {
	var offered client.OfferedVersion
	for i := range manyVersions {
		offered.Platforms = append(offered.Platforms, registry.Platform{OS: "linux", Arch: fmt.Sprintf("a%d", i)})
	}
	for b.Loop() {
		chosen, _, err := filling.Platforms(filling.Wanted{}, offered)
		if err != nil || len(chosen) != manyVersions {
			b.Fatal(len(chosen), err)
		}
	}
}

func TestPlatforms(t *testing.T) {
	t.Parallel()
	offered := client.OfferedVersion{Platforms: platforms(t, "linux_amd64", "darwin_arm64", "linux_amd64")}
	for _, test := range []struct {
		name          string
		wanted        []string
		all           bool
		want, lacking []string
	}{
		{"what there is", nil, false, []string{"darwin_arm64", "linux_amd64"}, nil},
		{"one of them twice", []string{"linux_amd64", "linux_amd64"}, false, []string{"linux_amd64"}, nil},
		{"one that is lacking", []string{"linux_amd64", "plan9_386"}, true, []string{"linux_amd64"}, []string{"plan9_386"}},
		{"none that there is", []string{"plan9_386"}, true, nil, []string{"plan9_386"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			w := filling.Wanted{All: test.all, Platforms: platforms(t, test.wanted...)}
			chosen, lacking, err := filling.Platforms(w, offered)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(chosen, platforms(t, test.want...)) {
				t.Errorf("chosen %v, want %v", chosen, test.want)
			}
			if !slices.Equal(lacking, platforms(t, test.lacking...)) {
				t.Errorf("lacking %v, want %v", lacking, test.lacking)
			}
		})
	}
}
