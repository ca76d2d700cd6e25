package registry_test

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
	regaddr "github.com/opentofu/registry-address/v2"
)

func TestParseMirrorProvider(t *testing.T) {
	t.Parallel()
	label := strings.Repeat("a", 63)
	const rejected = ""
	tests := []struct{ in, want string }{
		{"registry.opentofu.org/hashicorp/random", "registry.opentofu.org/hashicorp/random"},
		{"registry.terraform.io/hashicorp/random", "registry.terraform.io/hashicorp/random"},
		{"localhost/a/b", "localhost/a/b"},
		{"127.0.0.1/0/1-2", "127.0.0.1/0/1-2"},
		{"xn.example.com/a/b", "xn.example.com/a/b"},
		{label + ".example.com/" + label + "/" + label, label + ".example.com/" + label + "/" + label},
		// Capital letters become lower-case letters, in every part and alphabet.
		{"Registry.OpenTofu.ORG/HashiCorp/Random", "registry.opentofu.org/hashicorp/random"},
		{"B\u00dcCHER.example/A/B", "xn--bcher-kva.example/a/b"},
		{"XN--BCHER-KVA.example/a/b", "xn--bcher-kva.example/a/b"},
		{"\uff45\uff58\uff41\uff4d\uff50\uff4c\uff45.com/a/b", "example.com/a/b"},
		// A hostname in Unicode is the same as its punycode.
		{"b\u00fccher.example/a/b", "xn--bcher-kva.example/a/b"},
		{"xn--bcher-kva.example/a/b", "xn--bcher-kva.example/a/b"},
		{"\u03b5\u03c7.example/a/b", "xn--qxa0b.example/a/b"},
		{"xn--qxa0b.example/a/b", "xn--qxa0b.example/a/b"},
		// Clients do not map these letters to others. That would be the name of a
		// different host.
		{"stra\u00dfe.example/a/b", "xn--strae-oqa.example/a/b"},
		{"xn--strae-oqa.example/a/b", "xn--strae-oqa.example/a/b"},
		{"strasse.example/a/b", "strasse.example/a/b"},
		{"\u03b2\u03cc\u03bb\u03bf\u03c2.example/a/b", "xn--nxasmm1c.example/a/b"},
		{"xn--nxasmm1c.example/a/b", "xn--nxasmm1c.example/a/b"},
		{"a\u200db.example/a/b", rejected},

		{"", rejected}, {"random", rejected}, {"hashicorp/random", rejected}, {"example.com/a/b/c", rejected},
		{"https://example.com/a/b", rejected},
		{"/a/b", rejected}, {"example.com//b", rejected}, {"example.com/a/", rejected}, {"//", rejected},
		{"///", rejected}, {"/", rejected},
		{"example.com:8443/a/b", rejected}, {"example.com:443/a/b", rejected}, {"example.com:/a/b", rejected},
		{":8443/a/b", rejected}, {"[::1]/a/b", rejected},
		{"example.com/a:1/b", rejected}, {"example.com/a/b:1", rejected},
		// Providers that are part of a client, or from before namespaces existed,
		// do not come from a registry.
		{"terraform.io/builtin/terraform", rejected}, {"opentofu.org/builtin/terraform", rejected},
		{"Terraform.IO/BuiltIn/terraform", rejected},
		{"terraform.io/acme/terraform", "terraform.io/acme/terraform"},
		{"example.com/builtin/terraform", "example.com/builtin/terraform"},
		{"registry.opentofu.org/-/aws", rejected}, {"registry.terraform.io/-/aws", rejected},
		{"example.com/-/aws", rejected}, {"example.com/?/aws", rejected},
		{"example.com/acme/terraform-random", rejected}, {"example.com/acme/terraform-provider-random", rejected},
		{"example.com/acme/opentofu-random", rejected},
		{"example.com/acme/terraform-", rejected}, {"example.com/acme/Terraform-random", rejected},
		{"example.com/terraform-acme/random", "example.com/terraform-acme/random"},
		{"xn--.example/a/b", rejected}, {"xn--a.example/a/b", rejected}, {"xn--zzzz.example/a/b", rejected},
		{"ab--c.example/a/b", rejected},
		{".example.com/a/b", rejected}, {"example..com/a/b", rejected}, {"../a/b", rejected}, {"./a/b", rejected},
		{"example.com/../b", rejected}, {"example.com/a/..", rejected},
		// Clients accept these, but they are second addresses of a host.
		{"example.com./a/b", rejected}, {"example.com../a/b", rejected}, {"localhost./a/b", rejected},
		{"example.com\u3002/a/b", rejected}, {"example.com\uff0e/a/b", rejected}, {"xn--bcher-kva.example./a/b", rejected},
		{"-a.example/a/b", rejected}, {"a-.example/a/b", rejected}, {"a_b.example/a/b", rejected},
		{"example.com/-a/b", rejected}, {"example.com/a/b-", rejected},
		{"example.com/a--b/c", rejected}, {"example.com/a_b/c", rejected}, {"example.com/a.b/c", rejected},
		{"example.com/a/b.json", rejected},
		{"example.com/b\u00fccher/c", rejected}, {"example.com/a/b\u00fccher", rejected},
		{" example.com/a/b", rejected}, {"example.com /a/b", rejected}, {"example.com/a b/c", rejected},
		{"example.com/a/b ", rejected}, {"example.com/a/b\n", rejected},
		{"example.com\x00/a/b", rejected}, {"example.com/a\x00/b", rejected}, {"example.com/a/b\x7f", rejected},
		{"exa\tmple.com/a/b", rejected}, {"example.com/a/\xff", rejected}, {"\xff/a/b", rejected},
		{"\u00ad/a/b", rejected}, {"\u00ad.example/a/b", rejected}, {"example.com/\u00ad/b", rejected},
		{"example.com/a/\u00ad", rejected}, // the mapping leaves nothing
		{"\u00ad/\u00ad/\u00ad", rejected}, {"example.com/\u00ad/\u00ad", rejected},
		// The clients' parser maps these to dots and hyphens after checking for
		// dots and hyphens.
		{"example.com/\uff0e\uff0e/b", rejected}, {"example.com/a/\uff0e\uff0e", rejected},
		{"example.com/a/\uff0e", rejected}, {"example.com/a\u3002b/c", rejected},
		{"\uff0e\uff0e/a/b", rejected}, {"example.com/a-\u00ad-b/c", rejected},
		{"terra\u00adform.io/builtin/terraform", rejected},
		{"ex%61mple.com/a/b", rejected}, {"example.com/%61/b", rejected}, {"example.com/a%2Fb/c", rejected},
		{"example.com%2F/a/b", rejected}, {"example.com/a\\b/c", rejected},
		{"example.com?x/a/b", rejected}, {"example.com/a/b?x", rejected}, {"user@example.com/a/b", rejected},
		{"example.com/a/b#x", rejected}, {"exa+mple.com/a/b", rejected},
		{strings.Repeat("a/", 5000), rejected}, {strings.Repeat("!", 5000) + "/a/b", rejected},
		{"example.com/a/" + strings.Repeat("_", 5000), rejected},
	}
	for _, test := range tests {
		got, err := registry.ParseMirrorProvider(test.in)
		if test.want == rejected {
			if got != (registry.MirrorAddress{}) || !errors.Is(err, registry.ErrInvalid) {
				t.Errorf("ParseMirrorProvider(%.80q) = %s, %v; want ErrInvalid", test.in, got, err)
			}
			continue
		}
		if err != nil || got.String() != test.want {
			t.Errorf("ParseMirrorProvider(%.80q) = %s, %v; want %s", test.in, got, err, test.want)
		}
	}
}

// Public registries ignore the case, so each module has one address.
func TestParseMirrorModule(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"registry.opentofu.org/Azure/naming/azurerm":      "registry.opentofu.org/azure/naming/azurerm",
		"Registry.Terraform.io/CloudPosse/Label/null":     "registry.terraform.io/cloudposse/label/null",
		"registry.example.com/Azure/Naming/azurerm":       "registry.example.com/azure/naming/azurerm",
		"registry.opentofu.org/azure/naming/azurerm//x":   "",
		"registry.opentofu.org/az\u212are/naming/azurerm": "", // a Kelvin sign, whose lower case is a k
	} {
		got, err := registry.ParseMirrorModule(in)
		if (err == nil) != (want != "") || err == nil && got.String() != want {
			t.Errorf("ParseMirrorModule(%q) = %s, %v; want %q", in, got, err, want)
		}
	}
	azure, err := registry.ParseMirrorModule("registry.opentofu.org/azure/naming/azurerm")
	if err != nil || !azure.IsWithin("registry.opentofu.org/Azure") {
		t.Errorf("%s is not within registry.opentofu.org/Azure: %v", azure, err)
	}
}

// The clients' parser treats a hostname that ends with a dot as another one. So
// it would not be enough to remove the dot.
func TestHostnameWithDot(t *testing.T) {
	t.Parallel()
	source, err := regaddr.ParseProviderSource("registry.opentofu.org./hashicorp/consul")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("registry.opentofu.org.", string(source.Hostname)); diff != "" {
		t.Errorf("for clients (-want +got):\n%s", diff)
	}
	_, err = registry.ParseMirrorProvider("registry.opentofu.org./hashicorp/consul")
	const want = `invalid address "registry.opentofu.org./hashicorp/consul": its hostname ends with a dot`
	if diff := cmp.Diff(want, fmt.Sprint(err)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff("Write the hostname without the dot at its end.", registry.Hint(err)); diff != "" {
		t.Errorf("hint (-want +got):\n%s", diff)
	}
}

func TestMirrorKeys(t *testing.T) {
	t.Parallel()
	p, err := registry.ParseMirrorProvider("B\u00fccher.example/Acme/random")
	if err != nil {
		t.Fatal(err)
	}
	want := registry.MirrorAddress{
		Hostname:  "xn--bcher-kva.example",
		Namespace: "acme", Name: "random",
	}
	if p != want {
		t.Errorf("%+v, want %+v", p, want)
	}
	v, err := registry.ParseVersion("1.0.0-rc.1+b")
	if err != nil {
		t.Fatal(err)
	}
	filename := p.Filename(v, registry.Platform{OS: "linux", Arch: "amd64"})
	for _, test := range []struct{ name, got, want string }{
		// These must not be the methods of the embedded Provider, which is in a
		// namespace of this registry.
		{"String", p.String(), "xn--bcher-kva.example/acme/random"},
		{"Path", p.Path(), "mirror/xn--bcher-kva.example/acme/random"},
		{"Filename", filename, "terraform-provider-random_1.0.0-rc.1+b_linux_amd64.zip"},
		{
			"FileKey", p.FileKey(v, "00ff", filename), "mirror/xn--bcher-kva.example/acme/random/1.0.0-rc.1+b/00ff/" +
				"terraform-provider-random_1.0.0-rc.1+b_linux_amd64.zip",
		},
	} {
		if test.got != test.want {
			t.Errorf("%s is %s, want %s", test.name, test.got, test.want)
		}
	}
}

// An accepted address is the same as for clients. It does not change when a
// client sends it back, and cannot escape from its place in a key.
func FuzzParseMirrorProvider(f *testing.F) {
	for _, s := range []string{
		"registry.opentofu.org/hashicorp/random", "B\u00fccher.example/A/b", "xn--bcher-kva.example/a/b", "XN--a.b/c/d",
		"h:8443/a/b", "../a/b", "a/../b", "terraform.io/builtin/terraform", "registry.opentofu.org/-/aws", "a./b/c",
		"\u212a.a/\u017f/b", "\xff/a/b", "\u00ad/a/b", "a/\u00ad/b", "\u00ad/\u00ad/\u00ad", "a/\uff0e\uff0e/b",
		"a/b-\u00ad-c/d",
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
		for property, ok := range map[string]bool{
			"valid":           fs.ValidPath(p.Path()),
			"plain":           errs.IsPlain(p.Path()),
			"of four parts":   strings.Count(p.Path(), "/") == 3,
			"lower-case only": p.String() == strings.ToLower(p.String()),
		} {
			if !ok {
				t.Errorf("ParseMirrorProvider(%q) has the path %q, which is not %s", s, p.Path(), property)
			}
		}
		source, err := regaddr.ParseProviderSource(s)
		switch {
		case err == nil:
			got := []string{p.Hostname, p.Namespace, p.Name}
			if diff := cmp.Diff([]string{string(source.Hostname), source.Namespace, source.Type}, got); diff != "" {
				t.Errorf("ParseMirrorProvider(%q) differs from the clients' parser (-want +got):\n%s", s, diff)
			}
		case !strings.Contains(strings.ToLower(s), "xn--"): // clients write punycode but do not read it
			t.Errorf("ParseMirrorProvider accepts %q, but clients do not: %v", s, err)
		}
	})
}
