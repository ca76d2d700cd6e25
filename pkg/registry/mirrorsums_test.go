package registry_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/registry"
)

// sumsOf describes which SHA256SUMS of a version list its packages.
func sumsOf(v registry.MirrorVersion) string {
	var all []string
	for _, p := range v.Packages {
		all = append(all, fmt.Sprintf("%s %d", p.Filename, p.Sums))
	}
	return strings.Join(all, ", ")
}

func TestAddSums(t *testing.T) {
	t.Parallel()
	file := func(sha256 string) registry.StoredFile { return registry.StoredFile{SHA256: sha256} }
	signed := func(sha256, signature string) registry.MirrorSums {
		return registry.MirrorSums{Sums: file(sha256), Signature: file(signature), SigningKey: "K"}
	}
	unsigned := func(sha256 string) registry.MirrorSums { return registry.MirrorSums{Sums: file(sha256)} }
	version := func(links [2]int, sums ...registry.MirrorSums) registry.MirrorVersion {
		v := registry.MirrorVersion{Sums: sums}
		for i, name := range []string{"a", "b"} {
			v.Packages = append(v.Packages, registry.MirrorPackage{Sums: links[i], ProviderPackage: registry.ProviderPackage{
				Filename: name, StoredFile: file(name),
			}})
		}
		return v
	}
	one, other := signed("1", "s1"), signed("2", "s2")
	for name, test := range map[string]struct {
		v      registry.MirrorVersion
		adds   registry.MirrorSums
		listed string
		want   string
		sums   []registry.MirrorSums
		added  bool
	}{
		"the first":                      {version([2]int{}), one, "ab", "a 1, b 1", []registry.MirrorSums{one}, true},
		"the first, one package":         {version([2]int{}), one, "b", "a 0, b 1", []registry.MirrorSums{one}, true},
		"none of the packages":           {version([2]int{}), one, "", "a 0, b 0", nil, false},
		"the same again":                 {version([2]int{1, 1}, one), one, "ab", "a 1, b 1", []registry.MirrorSums{one}, false},
		"another, nothing missing":       {version([2]int{1, 1}, one), other, "ab", "a 1, b 1", []registry.MirrorSums{one}, false},
		"another, one missing":           {version([2]int{1, 0}, one), other, "ab", "a 2, b 2", []registry.MirrorSums{one, other}, true},
		"another, only the missing":      {version([2]int{1, 0}, one), other, "b", "a 1, b 2", []registry.MirrorSums{one, other}, true},
		"the same signed anew":           {version([2]int{1, 0}, one), signed("1", "s9"), "ab", "a 1, b 1", []registry.MirrorSums{one}, true},
		"the same, signed now":           {version([2]int{1, 1}, unsigned("1")), one, "ab", "a 1, b 1", []registry.MirrorSums{one}, true},
		"another, signed now":            {version([2]int{1, 1}, unsigned("1")), other, "ab", "a 2, b 2", []registry.MirrorSums{unsigned("1"), other}, true},
		"unsigned beside signed":         {version([2]int{1, 1}, one), unsigned("2"), "ab", "a 1, b 1", []registry.MirrorSums{one}, false},
		"unsigned beside signed, needed": {version([2]int{1, 0}, one), unsigned("2"), "ab", "a 1, b 2", []registry.MirrorSums{one, unsigned("2")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := fmt.Sprint(test.v)
			got := test.v
			lists := func(filename, sha256 string) bool {
				return filename == sha256 && strings.Contains(test.listed, filename)
			}
			if added := got.AddSums(test.adds, lists); added != test.added {
				t.Errorf("added is %t, want %t", added, test.added)
			}
			if diff := cmp.Diff(test.want, sumsOf(got)); diff != "" {
				t.Errorf("packages (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.sums, got.Sums); diff != "" {
				t.Errorf("SHA256SUMS (-want +got):\n%s", diff)
			}
			if after := fmt.Sprint(test.v); after != before {
				t.Errorf("the original became %s", after)
			}
		})
	}
}

// The files of a mirrored version include its SHA256SUMS and their signatures, all
// below its path. A package refers to one of them.
func TestMirrorFiles(t *testing.T) {
	t.Parallel()
	p := registry.MirrorAddress{Hostname: "example.com", Namespace: "acme", Name: "dns"}
	n := registry.Version{Major: 1}
	file := func(sha256 string) registry.StoredFile {
		return registry.StoredFile{Object: p.FileKey(n, sha256, "f"), SHA256: sha256, Size: 1}
	}
	valid := registry.MirrorVersion{
		Version: n,
		Packages: []registry.MirrorPackage{{Sums: 1, ProviderPackage: registry.ProviderPackage{
			Platform: registry.Platform{OS: "linux", Arch: "amd64"}, Filename: "f", H1: "h1:x", StoredFile: file("a1"),
		}}},
		Sums: []registry.MirrorSums{{Sums: file("b2"), Signature: file("c3")}, {Sums: file("d4")}},
	}
	want := []registry.StoredFile{file("a1"), file("b2"), file("c3"), file("d4")}
	if diff := cmp.Diff(want, valid.Files()); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	for name, test := range map[string]struct {
		change func(*registry.MirrorVersion)
		valid  bool
	}{
		"valid":                       {func(*registry.MirrorVersion) {}, true},
		"without SHA256SUMS":          {func(v *registry.MirrorVersion) { v.Sums, v.Packages[0].Sums = nil, 0 }, true},
		"a reference to none":         {func(v *registry.MirrorVersion) { v.Packages[0].Sums = 3 }, false},
		"a negative reference":        {func(v *registry.MirrorVersion) { v.Packages[0].Sums = -1 }, false},
		"sums of another version":     {func(v *registry.MirrorVersion) { v.Sums[0].Sums.Object = p.Path() + "/2.0.0/b2/f" }, false},
		"signature without an object": {func(v *registry.MirrorVersion) { v.Sums[0].Signature.Object = "" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := valid
			v.Packages = append([]registry.MirrorPackage{}, valid.Packages...)
			v.Sums = append([]registry.MirrorSums{}, valid.Sums...)
			test.change(&v)
			if err := v.Validate(p.Path()); (err == nil) != test.valid {
				t.Errorf("valid is %t, want %t: %v", err == nil, test.valid, err)
			}
		})
	}
}
