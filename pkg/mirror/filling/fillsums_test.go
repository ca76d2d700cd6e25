package filling_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/providerfiles"
	"github.com/larder-registry/larder/pkg/mirror/filling"
	"github.com/larder-registry/larder/pkg/registry"
)

func (p *pulled) fillSums(t *testing.T) (filled int, err error) {
	t.Helper()
	return filled, p.run(t, nil, func(from filling.Pull) (err error) {
		filled, err = from.FillSums(t.Context(), p.policy, inventory)
		return err
	})
}

// split makes the origin sign each platform of version 1.0.0 on its own.
func (p *pulled) split(t *testing.T) {
	t.Helper()
	only := func(sums, platform string) string {
		return strings.Join(slices.DeleteFunc(strings.SplitAfter(sums, "\n"), func(line string) bool {
			return !strings.Contains(line, platform)
		}), "")
	}
	const first = "/darwin_SHA256SUMS"
	darwin := []byte(only(string(p.pages[sumsPage("1.0.0")].body), "darwin_arm64"))
	p.set(first, page{body: darwin})
	p.set(first+".sig", page{body: sign(t, ours, darwin)})
	p.edit("shasums_url", first, packagePage("1.0.0", "darwin_arm64"))
	p.edit("shasums_signature_url", first+".sig", packagePage("1.0.0", "darwin_arm64"))
	p.resum(t, func(sums string) string { return only(sums, "linux_amd64") })
}

// FillSums requests nothing but what verifies stored versions, of few at a time.
func TestFillSums(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change   func(*testing.T, *pulled)
		filled   int
		want     string
		kind     error
		requests int // if it is filled: a description, SHA256SUMS, its signature
	}{
		"stored without": {func(t *testing.T, p *pulled) { p.forgetSums(t) }, 1, "signed darwin_arm64 linux_amd64", nil, 3},
		"keys lost":      {func(t *testing.T, p *pulled) { p.forgetKeys(t) }, 1, "signed darwin_arm64 linux_amd64", nil, 3},
		"stored with it": {nil, 0, "signed darwin_arm64 linux_amd64", nil, 0},
		"the first platform is gone": {func(t *testing.T, p *pulled) {
			p.forgetSums(t)
			p.set(packagePage("1.0.0", "darwin_arm64"), page{status: 404})
		}, 1, "signed darwin_arm64 linux_amd64", nil, 4},
		"a SHA256SUMS for each platform": {func(t *testing.T, p *pulled) {
			p.forgetSums(t)
			p.split(t)
		}, 1, "signed darwin_arm64, signed linux_amd64", nil, 6},
		"a SHA256SUMS for each platform, one is not valid": {func(t *testing.T, p *pulled) {
			p.forgetSums(t)
			p.split(t)
			p.set(signaturePage("1.0.0"), page{body: []byte("x")})
		}, 1, "signed darwin_arm64", registry.ErrInvalid, 6},
		"other content": {func(t *testing.T, p *pulled) {
			p.forgetSums(t)
			p.set(packagePage("1.0.0", "darwin_arm64"), p.pages[packagePage("2.0.0", "darwin_arm64")])
		}, 0, "", registry.ErrExists, 0},
		"other content of another platform": {func(t *testing.T, p *pulled) {
			p.forgetSums(t)
			p.rezip(t, providerfiles.Zip(t, "terraform-provider-inventory", "another"))
		}, 0, "", registry.ErrExists, 0},
		"key that is not trusted": {func(t *testing.T, p *pulled) {
			p.forgetSums(t)
			p.releases[0].by = stranger
			p.heal(t)
		}, 0, "", nil, 0},
		"keys removed": {func(t *testing.T, p *pulled) {
			p.forgetSums(t)
			p.edit("signing_keys", nil, packagePage("1.0.0", "darwin_arm64"))
		}, 0, "", nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPulled(t)
			if _, err := p.look(t); err != nil {
				t.Fatal(err)
			}
			p.copied(t, "1.0.0")
			if test.change != nil {
				test.change(t, p)
			}
			before := p.times("")
			filled, err := p.fillSums(t)
			if test.kind != nil {
				failed(t, name, err, test.kind)
			} else if err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(fmt.Sprint(test.filled, " ", test.want), fmt.Sprint(filled, " ", p.sums(t))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got := p.times("") - before; filled > 0 && got != test.requests {
				t.Errorf("%d requests, want %d", got, test.requests)
			}
		})
	}
}

// The versions of a provider get their SHA256SUMS within some nights, also beside
// ones that fail.
func TestFillSumsOfMany(t *testing.T) {
	t.Parallel()
	p := newPulled(t)
	f := folder(t.TempDir())
	var releases []release
	var names []string
	for i := range 10 {
		r := build(fmt.Sprintf("1.%d.0", i), ours)
		releases, names = append(releases, r), append(names, r.version)
		f.add(t, r)
	}
	f.index(t, names...)
	if _, err := p.mirror(nil).Import(t.Context(), string(f)); err != nil {
		t.Fatal(err)
	}
	p.origin = newOrigin(t, releases...)
	for _, v := range []string{"1.9.0", "1.8.0", "1.7.0"} {
		p.set(sumsPage(v), page{status: 404})
	}
	var filled, most int
	for night := range 10 {
		p.on(start.AddDate(0, 0, night))
		before := p.times("SHA256SUMS")
		n, _ := p.fillSums(t)
		filled, most = filled+n, max(most, p.times("SHA256SUMS")-before)
	}
	if filled != 7 || most != 3 {
		t.Errorf("%d versions got it, want 7; %d were tried in one night, want 3", filled, most)
	}
}
