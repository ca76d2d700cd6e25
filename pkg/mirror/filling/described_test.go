package filling_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/providerfiles"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/registry"
)

// packagesOf is the field packages of an origin for platforms of version 1.0.0.
func (o *origin) packagesOf(names ...string) map[string]any {
	all := make(map[string]any)
	for _, name := range names {
		zip := "zh:" + providerfiles.Sum(o.pages[zipPage("1.0.0", name)].body)
		all[name] = map[string]any{
			"hashes": []string{"h1:" + strings.Repeat("A", 43) + "=", zip}, "package_size": 100,
		}
	}
	return all
}

// A version has the protocols that its origin claims. It has the packages for other
// platforms as its SHA256SUMS lists them.
func TestDescribed(t *testing.T) {
	t.Parallel()
	const linux, darwin, windows = "linux_amd64", "darwin_arm64", "windows_amd64"
	many := make(map[string]any)
	for name, test := range map[string]struct {
		edit func(*origin)
		want string // after linux, and after darwin
	}{
		"nothing": {func(*origin) {}, "[5.0] [], then [5.0] []"},
		"all":     {func(*origin) {}, "[5.0] [darwin_arm64 windows_amd64], then [5.0] [windows_amd64]"},
		"of another SHA256SUMS": {func(o *origin) {
			for _, p := range many {
				p.(map[string]any)["hashes"].([]string)[1] = "zh:" + strings.Repeat("0", 64)
			}
		}, "[5.0] [], then [5.0] []"},
		"many protocols": {func(o *origin) {
			o.edit("protocols", strings.Split(strings.Repeat("5.0 ", 11)+"5.1", " "), packagePage("1.0.0", linux))
		}, "[] [darwin_arm64 windows_amd64], then [5.0] [windows_amd64]"},
		"a long protocol": {func(o *origin) {
			o.edit("protocols", []string{"5.0", "6.0-" + strings.Repeat("x", 20)}, packagePage("1.0.0", linux))
		}, "[] [darwin_arm64 windows_amd64], then [5.0] [windows_amd64]"},
	} {
		t.Run(name, func(t *testing.T) {
			s, o := newStore(t), simple(t)
			many = o.packagesOf(linux, darwin, windows)
			o.edit("protocols", []string{"5.0"}, packagePage("1.0.0", linux), packagePage("1.0.0", darwin))
			test.edit(o)
			if name != "nothing" {
				o.edit("packages", many, packagePage("1.0.0", linux), packagePage("1.0.0", darwin))
			}
			var got []string
			for _, platform := range []string{linux, darwin} {
				if _, err := s.mirror(o).Add(t.Context(), wanted(t, platform)); err != nil {
					t.Fatal(err)
				}
				v, err := catalog.New(s.table).Mirror.Get(t.Context(), inventory, parseVersion(t, "1.0.0"))
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, fmt.Sprint(v.Protocols, " ", offered(v.Offered)))
			}
			if diff := cmp.Diff(test.want, strings.Join(got, ", then ")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func offered(packages []registry.OfferedPackage) (names []string) {
	for _, p := range packages {
		names = append(names, p.String())
	}
	return names
}
