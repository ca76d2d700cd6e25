package registry_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	regaddr "github.com/opentofu/registry-address/v2"

	"github.com/larder-registry/larder/pkg/registry"
)

func TestParseModule(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 64)
	tests := []struct {
		in   string
		want registry.Module // zero: rejected
	}{
		{"acme/vpc/aws", registry.Module{Namespace: "acme", Name: "vpc", System: "aws"}},
		{"Acme/VPC_main/aws", registry.Module{Namespace: "Acme", Name: "VPC_main", System: "aws"}},
		{"a/b/c", registry.Module{Namespace: "a", Name: "b", System: "c"}},
		{"0/1-2/3", registry.Module{Namespace: "0", Name: "1-2", System: "3"}},
		{long + "/" + long + "/" + long, registry.Module{Namespace: long, Name: long, System: long}},
		{in: ""}, {in: "acme"}, {in: "acme/vpc"}, {in: "acme/vpc/"}, {in: "/vpc/aws"}, {in: "acme//aws"}, {in: "//"},
		{in: "acme/vpc/aws/extra"}, {in: "registry.example.com/acme/vpc/aws"}, {in: "acme/vpc/aws//modules/x"},
		{in: "acme/vpc/AWS"}, {in: "acme/vpc/a-b"}, {in: "-acme/vpc/aws"}, {in: "acme-/vpc/aws"}, {in: "ac.me/vpc/aws"},
		{in: "../vpc/aws"}, {in: "acme/../aws"}, {in: "acme/vpc/aws?x"}, {in: "acme/vpc/aws\n"}, {in: "ac\x00me/vpc/aws"},
		{in: long + "a/vpc/aws"}, {in: "acme/vpc/" + long + "a"}, {in: "\u00e4cme/vpc/aws"}, {in: "acme/vpc/aws "},
	}
	for _, test := range tests {
		got, err := registry.ParseModule(test.in)
		if got != test.want {
			t.Errorf("ParseModule(%q) = %+v, %v; want %+v", test.in, got, err, test.want)
		}
		if rejected := test.want == (registry.Module{}); rejected != errors.Is(err, registry.ErrInvalid) {
			t.Errorf("ParseModule(%q): error is %v", test.in, err)
		}
	}
}

func TestModuleKeys(t *testing.T) {
	t.Parallel()
	m := registry.Module{Namespace: "Acme", Name: "vpc", System: "aws"}
	v, err := registry.ParseVersion("1.0.0-rc.1+b")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := m.ArchiveKey(v, "00ff"), "modules/Acme/vpc/aws/1.0.0-rc.1+b/00ff.tar.gz"; got != want {
		t.Errorf("ArchiveKey = %q, want %q", got, want)
	}
}

func TestVersions(t *testing.T) {
	t.Parallel()
	const rejected = ""
	tests := []struct{ in, requested, published string }{
		{"1.2.3", "1.2.3", "1.2.3"},
		{"v1.2.3", rejected, "1.2.3"}, // clients never send a v; git tags have one
		{"1.0", "1.0.0", rejected},
		{"1", "1.0.0", rejected},
		{"v1.0", rejected, rejected},
		{"1.0.0-rc.1", "1.0.0-rc.1", "1.0.0-rc.1"},
		{"1.0.0-RC1", "1.0.0-RC1", "1.0.0-RC1"},
		{"1.0.0+build.5", "1.0.0+build.5", "1.0.0+build.5"},
		{"1.0.0-a+b", "1.0.0-a+b", "1.0.0-a+b"},
		{"0.0.0", "0.0.0", "0.0.0"},
		{"1.0.0-01", rejected, rejected},
		{"1.2.3.4", rejected, rejected},
		{"vv1.2.3", rejected, rejected},
		{"V1.2.3", rejected, rejected},
		{"1.2.x", rejected, rejected},
		{"~> 1.0", rejected, rejected},
		{">=1.0.0", rejected, rejected},
		{" 1.0.0", rejected, rejected},
		{"1.0.0 ", rejected, rejected},
		{"1.0.0\n", rejected, rejected},
		{"", rejected, rejected},
		{"v", rejected, rejected},
		{"latest", rejected, rejected},
		{"..", rejected, rejected},
		{"1.0.0/../..", rejected, rejected},
		{"1.0.0-", "1.0.0", rejected},
		{"1.0.0+", "1.0.0", rejected},
		{"9223372036854775807.0.0", "9223372036854775807.0.0", "9223372036854775807.0.0"},
		{"9223372036854775808.0.0", rejected, rejected},
		{"99999999999999999999999.0.0", rejected, rejected},
		{"1.0.0-9.99999999999999999999", "1.0.0-9.99999999999999999999", "1.0.0-9.99999999999999999999"},
		{"1.0.0-" + strings.Repeat("a", 122), "1.0.0-" + strings.Repeat("a", 122), "1.0.0-" + strings.Repeat("a", 122)},
		{"1.0.0-" + strings.Repeat("a", 123), rejected, rejected},
	}
	for _, test := range tests {
		for name, parse := range map[string]func(string) (registry.Version, error){
			"ParseVersion": registry.ParseVersion, "ParseTag": registry.ParseTag,
		} {
			want := test.requested
			if name == "ParseTag" {
				want = test.published
			}
			v, err := parse(test.in)
			switch {
			case want == rejected && !errors.Is(err, registry.ErrInvalid):
				t.Errorf("%s(%q) = %v, %v; want ErrInvalid", name, test.in, v, err)
			case want != rejected && (err != nil || v.String() != want):
				t.Errorf("%s(%q) = %v, %v; want %s", name, test.in, v, err, want)
			}
		}
	}
}

func TestCompareVersions(t *testing.T) {
	t.Parallel()
	sorted := []string{
		"0.0.1", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-rc.1", "1.0.0-rc.99999999999999999999",
		"1.0.0", "1.0.0+a", "1.0.0+b", "1.9.0", "1.10.0", "2.0.0",
	}
	var vs []registry.Version
	for _, s := range sorted {
		v, err := registry.ParseVersion(s)
		if err != nil {
			t.Fatal(err)
		}
		vs = append(vs, v)
	}
	slices.Reverse(vs)
	slices.SortFunc(vs, registry.CompareVersions)
	for i, v := range vs {
		if v.String() != sorted[i] {
			t.Errorf("position %d has %s, want %s", i, v, sorted[i])
		}
	}
}

// ParseModule accepts the same addresses as OpenTofu's parser. No part of an
// accepted address can escape from its place in a key.
func FuzzParseModule(f *testing.F) {
	f.Add("acme/vpc/aws")
	f.Add("a/../c")
	f.Add("example.com/a/b/c")
	f.Fuzz(func(t *testing.T, s string) {
		m, err := registry.ParseModule(s)
		if err != nil {
			return
		}
		if m.String() != s {
			t.Errorf("ParseModule(%q) is %q", s, m)
		}
		if _, err := regaddr.ParseModuleSource("registry.example.com/" + s); err != nil {
			t.Errorf("ParseModule accepts %q and OpenTofu does not: %v", s, err)
		}
		if strings.ContainsAny(s, "\\.%\x00 ") {
			t.Errorf("ParseModule accepts %q", s)
		}
	})
}

// An accepted version does not change when a client sends it back. It is safe
// as a part of a key.
func FuzzParseVersion(f *testing.F) {
	f.Add("1.2.3")
	f.Add("v1.0.0-rc.1+build")
	f.Add("1.0")
	f.Fuzz(func(t *testing.T, s string) {
		v, err := registry.ParseVersion(s)
		if err != nil {
			return
		}
		again, err := registry.ParseVersion(v.String())
		if err != nil || again.String() != v.String() {
			t.Errorf("ParseVersion(%q) is %q, which reads as %q, %v", s, v, again, err)
		}
		if text := v.String(); strings.ContainsAny(text, "/\\%\x00 ") || len(text) > 128 {
			t.Errorf("ParseVersion(%q) is %q", s, text)
		}
		registry.CompareVersions(v, v)
		if tag, err := registry.ParseTag("v" + v.String()); err != nil || tag.String() != v.String() {
			t.Errorf("ParseTag(v%s) = %v, %v", v, tag, err)
		}
	})
}

// An address fits into a key of every table and store.
func TestLongAddresses(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 3000)
	for _, address := range []string{long + "/inventory", "acme/" + long} {
		_, err := registry.ParseProvider(address)
		if !errors.Is(err, registry.ErrInvalid) {
			t.Fatalf("provider %.20s…: %v, want ErrInvalid", address, err)
		}
		if len(err.Error()) > 200 {
			t.Errorf("provider %.20s…: the error has %d bytes", address, len(err.Error()))
		}
	}
	for _, address := range []string{long + "/vpc/aws", "acme/" + long + "/aws", "acme/vpc/" + long} {
		if _, err := registry.ParseModule(address); !errors.Is(err, registry.ErrInvalid) {
			t.Errorf("module %.20s…: %v", address, err)
		}
	}
}

func TestChangesInWords(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]registry.Changes{
		"no changes found": {},
		"3 added":          {Added: 3},
		"1 breaking, 2 added, 3 removed, 4 changed": {Breaking: 1, Added: 2, Removed: 3, Changed: 4},
	} {
		if got := c.String(); got != want {
			t.Errorf("%+v is %q, want %q", c, got, want)
		}
	}
}
