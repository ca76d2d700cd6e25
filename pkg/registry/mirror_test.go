package registry_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	regaddr "github.com/opentofu/registry-address/v2"

	"github.com/larder-registry/larder/pkg/registry"
)

func TestParseMirrorProvider(t *testing.T) {
	t.Parallel()
	label := strings.Repeat("a", 63)
	const refused = ""
	tests := []struct{ in, want string }{
		{"registry.opentofu.org/hashicorp/random", "registry.opentofu.org/hashicorp/random"},
		{"registry.terraform.io/hashicorp/random", "registry.terraform.io/hashicorp/random"},
		{"localhost/a/b", "localhost/a/b"},
		{"127.0.0.1/0/1-2", "127.0.0.1/0/1-2"},
		{"xn.example.com/a/b", "xn.example.com/a/b"},
		{label + ".example.com/" + label + "/" + label, label + ".example.com/" + label + "/" + label},
		// Capitals are made small, in each part and in each alphabet.
		{"Registry.OpenTofu.ORG/HashiCorp/Random", "registry.opentofu.org/hashicorp/random"},
		{"B\u00dcCHER.example/A/B", "xn--bcher-kva.example/a/b"},
		{"XN--BCHER-KVA.example/a/b", "xn--bcher-kva.example/a/b"},
		{"\uff45\uff58\uff41\uff4d\uff50\uff4c\uff45.com/a/b", "example.com/a/b"},
		// A host in Unicode is the one in punycode.
		{"b\u00fccher.example/a/b", "xn--bcher-kva.example/a/b"},
		{"xn--bcher-kva.example/a/b", "xn--bcher-kva.example/a/b"},
		{"\u03b5\u03c7.example/a/b", "xn--qxa0b.example/a/b"},
		{"xn--qxa0b.example/a/b", "xn--qxa0b.example/a/b"},
		// Clients do not write these letters as others: that would be the name of another host, and of another's.
		{"stra\u00dfe.example/a/b", "xn--strae-oqa.example/a/b"},
		{"xn--strae-oqa.example/a/b", "xn--strae-oqa.example/a/b"},
		{"strasse.example/a/b", "strasse.example/a/b"},
		{"\u03b2\u03cc\u03bb\u03bf\u03c2.example/a/b", "xn--nxasmm1c.example/a/b"},
		{"xn--nxasmm1c.example/a/b", "xn--nxasmm1c.example/a/b"},
		{"a\u200db.example/a/b", refused},

		{"", refused}, {"random", refused}, {"hashicorp/random", refused}, {"example.com/a/b/c", refused}, {"https://example.com/a/b", refused},
		{"/a/b", refused}, {"example.com//b", refused}, {"example.com/a/", refused}, {"//", refused}, {"///", refused}, {"/", refused},
		{"example.com:8443/a/b", refused}, {"example.com:443/a/b", refused}, {"example.com:/a/b", refused}, {":8443/a/b", refused}, {"[::1]/a/b", refused},
		{"example.com/a:1/b", refused}, {"example.com/a/b:1", refused},
		// What is part of a client, or from before there were namespaces, comes from no registry.
		{"terraform.io/builtin/terraform", refused}, {"opentofu.org/builtin/terraform", refused}, {"Terraform.IO/BuiltIn/terraform", refused},
		{"terraform.io/acme/terraform", "terraform.io/acme/terraform"}, {"example.com/builtin/terraform", "example.com/builtin/terraform"},
		{"registry.opentofu.org/-/aws", refused}, {"registry.terraform.io/-/aws", refused}, {"example.com/-/aws", refused}, {"example.com/?/aws", refused},
		{"example.com/acme/terraform-random", refused}, {"example.com/acme/terraform-provider-random", refused}, {"example.com/acme/opentofu-random", refused},
		{"example.com/acme/terraform-", refused}, {"example.com/acme/Terraform-random", refused}, {"example.com/terraform-acme/random", "example.com/terraform-acme/random"},
		{"xn--.example/a/b", refused}, {"xn--a.example/a/b", refused}, {"xn--zzzz.example/a/b", refused}, {"ab--c.example/a/b", refused},
		{".example.com/a/b", refused}, {"example..com/a/b", refused}, {"../a/b", refused}, {"./a/b", refused}, {"example.com/../b", refused}, {"example.com/a/..", refused},
		{"-a.example/a/b", refused}, {"a-.example/a/b", refused}, {"a_b.example/a/b", refused}, {"example.com/-a/b", refused}, {"example.com/a/b-", refused},
		{"example.com/a--b/c", refused}, {"example.com/a_b/c", refused}, {"example.com/a.b/c", refused}, {"example.com/a/b.json", refused},
		{"example.com/b\u00fccher/c", refused}, {"example.com/a/b\u00fccher", refused},
		{" example.com/a/b", refused}, {"example.com /a/b", refused}, {"example.com/a b/c", refused}, {"example.com/a/b ", refused}, {"example.com/a/b\n", refused},
		{"example.com\x00/a/b", refused}, {"example.com/a\x00/b", refused}, {"example.com/a/b\x7f", refused}, {"exa\tmple.com/a/b", refused}, {"example.com/a/\xff", refused}, {"\xff/a/b", refused},
		{"\u00ad/a/b", refused}, {"\u00ad.example/a/b", refused}, {"example.com/\u00ad/b", refused}, {"example.com/a/\u00ad", refused}, // of which nothing is left
		{"\u00ad/\u00ad/\u00ad", refused}, {"example.com/\u00ad/\u00ad", refused},
		// What the clients' parser makes dots and hyphens of after it has looked for them.
		{"example.com/\uff0e\uff0e/b", refused}, {"example.com/a/\uff0e\uff0e", refused}, {"example.com/a/\uff0e", refused}, {"example.com/a\u3002b/c", refused},
		{"\uff0e\uff0e/a/b", refused}, {"example.com/a-\u00ad-b/c", refused}, {"terra\u00adform.io/builtin/terraform", refused},
		{"ex%61mple.com/a/b", refused}, {"example.com/%61/b", refused}, {"example.com/a%2Fb/c", refused}, {"example.com%2F/a/b", refused}, {"example.com/a\\b/c", refused},
		{"example.com?x/a/b", refused}, {"example.com/a/b?x", refused}, {"user@example.com/a/b", refused}, {"example.com/a/b#x", refused}, {"exa+mple.com/a/b", refused},
		{strings.Repeat("a/", 5000), refused}, {strings.Repeat("!", 5000) + "/a/b", refused}, {"example.com/a/" + strings.Repeat("_", 5000), refused},
	}
	for _, test := range tests {
		got, err := registry.ParseMirrorProvider(test.in)
		if test.want == refused {
			if got != (registry.MirrorProvider{}) || !errors.Is(err, registry.ErrInvalid) {
				t.Errorf("ParseMirrorProvider(%.80q) = %s, %v; want ErrInvalid", test.in, got, err)
			}
			continue
		}
		if err != nil || got.String() != test.want {
			t.Errorf("ParseMirrorProvider(%.80q) = %s, %v; want %s", test.in, got, err, test.want)
		}
	}
}

func TestMirrorKeys(t *testing.T) {
	t.Parallel()
	p, err := registry.ParseMirrorProvider("B\u00fccher.example/Acme/random")
	if err != nil {
		t.Fatal(err)
	}
	if want := (registry.MirrorProvider{Hostname: "xn--bcher-kva.example", Provider: registry.Provider{Namespace: "acme", Type: "random"}}); p != want {
		t.Errorf("%+v, want %+v", p, want)
	}
	v, err := registry.ParseVersion("1.0.0-rc.1+b")
	if err != nil {
		t.Fatal(err)
	}
	filename := p.Filename(v, registry.Platform{OS: "linux", Arch: "amd64"})
	for _, test := range []struct{ name, got, want string }{
		// Not those of the provider that it has within: a namespace of this registry's is another one.
		{"String", p.String(), "xn--bcher-kva.example/acme/random"},
		{"Path", p.Path(), "mirror/xn--bcher-kva.example/acme/random"},
		{"Filename", filename, "terraform-provider-random_1.0.0-rc.1+b_linux_amd64.zip"},
		{"FileKey", p.FileKey(v, "00ff", filename), "mirror/xn--bcher-kva.example/acme/random/1.0.0-rc.1+b/00ff/terraform-provider-random_1.0.0-rc.1+b_linux_amd64.zip"},
	} {
		if test.got != test.want {
			t.Errorf("%s is %s, want %s", test.name, test.got, test.want)
		}
	}
}

// What is accepted is what clients make of it, stays itself when a client sends it back, and cannot leave its place in a key.
func FuzzParseMirrorProvider(f *testing.F) {
	for _, s := range []string{
		"registry.opentofu.org/hashicorp/random", "B\u00fccher.example/A/b", "xn--bcher-kva.example/a/b", "XN--a.b/c/d", "h:8443/a/b",
		"../a/b", "a/../b", "terraform.io/builtin/terraform", "registry.opentofu.org/-/aws", "a./b/c", "\u212a.a/\u017f/b", "\xff/a/b", "\u00ad/a/b", "a/\u00ad/b", "\u00ad/\u00ad/\u00ad",
		"a/\uff0e\uff0e/b", "a/b-\u00ad-c/d",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := registry.ParseMirrorProvider(s)
		if err != nil {
			if !errors.Is(err, registry.ErrInvalid) {
				t.Errorf("ParseMirrorProvider(%q): %v", s, err)
			}
			return
		}
		if again, err := registry.ParseMirrorProvider(p.String()); err != nil || again != p {
			t.Errorf("ParseMirrorProvider(%q) is %s, which reads as %s, %v", s, p, again, err)
		}
		if !fs.ValidPath(p.Path()) || !registry.IsPlain(p.Path()) || strings.Count(p.Path(), "/") != 3 || p.String() != strings.ToLower(p.String()) {
			t.Errorf("ParseMirrorProvider(%q) has the path %q", s, p.Path())
		}
		source, err := regaddr.ParseProviderSource(s)
		switch {
		case err == nil && (string(source.Hostname) != p.Hostname || source.Namespace != p.Namespace || source.Type != p.Type):
			t.Errorf("ParseMirrorProvider(%q) is %s; to clients it is %s/%s/%s", s, p, source.Hostname, source.Namespace, source.Type)
		case err != nil && !strings.Contains(strings.ToLower(s), "xn--"): // which clients take from nobody, and write themselves
			t.Errorf("ParseMirrorProvider accepts %q, and clients do not: %v", s, err)
		}
	})
}
