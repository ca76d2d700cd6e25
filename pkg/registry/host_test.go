package registry_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/opentofu/svchost"

	"github.com/larder-registry/larder/pkg/registry"
)

// A host has one form for TLS and URLs, and one that clients accept, however
// people write it.
func TestParseHost(t *testing.T) {
	t.Parallel()
	const rejected = ""
	for _, test := range []struct{ in, want, display string }{
		{"registry.example.com", "registry.example.com", "registry.example.com"},
		{"Registry.Example.COM", "registry.example.com", "registry.example.com"},
		{"registry.example.com.", "registry.example.com", "registry.example.com"},
		{"registry.example.com:443", "registry.example.com", "registry.example.com"},
		{"registry.example.com.:443", "registry.example.com", "registry.example.com"},
		{"registry.example.com:8443", "registry.example.com:8443", "registry.example.com:8443"},
		{"registry.example.com.:08443", "registry.example.com:8443", "registry.example.com:8443"},
		{"127.0.0.1:8443", "127.0.0.1:8443", "127.0.0.1:8443"},
		{"localhost", "localhost", "localhost"},
		{"bücher.example", "xn--bcher-kva.example", "bücher.example"},
		{"BÜCHER.Example.:443", "xn--bcher-kva.example", "bücher.example"},
		{"xn--bcher-kva.example", "xn--bcher-kva.example", "bücher.example"},
		{"XN--BCHER-KVA.example.:8443", "xn--bcher-kva.example:8443", "bücher.example:8443"},
		{"bu\u0308cher.example", "xn--bcher-kva.example", "bücher.example"},
		{"bücher。example．", "xn--bcher-kva.example", "bücher.example"},
		// These letters are not the ones that older clients map them to.
		{"straße.example", "xn--strae-oqa.example", "straße.example"},
		{"straße.xn--bcher-kva.example", "xn--strae-oqa.xn--bcher-kva.example", "straße.bücher.example"},
		{"", rejected, ""}, {".", rejected, ""}, {":8443", rejected, ""}, {"*:8443", rejected, ""}, {"a..b", rejected, ""},
		{"example.com..", rejected, ""}, {".example.com", rejected, ""}, {"a_b.example", rejected, ""},
		{"example.com:", rejected, ""}, {"example.com:0", rejected, ""}, {"example.com:-1", rejected, ""},
		{"example.com:+1", rejected, ""}, {"example.com:65536", rejected, ""}, {"example.com:x", rejected, ""},
		{"[::1]:8443", rejected, ""}, {"::1", rejected, ""}, {"[::1]", rejected, ""},
		{"https://example.com", rejected, ""}, {"example.com/", rejected, ""}, {"example.com?x", rejected, ""},
		{"u@example.com", rejected, ""}, {"a b.example", rejected, ""}, {"xn--a.example", rejected, ""},
		{"xn--.example", rejected, ""}, {"exa\x00mple.com", rejected, ""}, {"\xff.example", rejected, ""},
	} {
		got, err := registry.ParseHost(test.in)
		if string(got) != test.want {
			t.Errorf("%q: %q, want %q", test.in, got, test.want)
		}
		if test.want == rejected {
			if !errors.Is(err, registry.ErrInvalid) || registry.Hint(err) == "" {
				t.Errorf("%q: %v is not ErrInvalid with a hint", test.in, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", test.in, err)
			continue
		}
		if got.Display() != test.display {
			t.Errorf("%q: Display is %q, want %q", test.in, got.Display(), test.display)
		}
		if name, _, _ := strings.Cut(test.want, ":"); got.Name() != name {
			t.Errorf("%q: Name is %q, want %q", test.in, got.Name(), name)
		}
	}
}

// Each host that is accepted is one for clients, and its forms are the same host.
func FuzzParseHost(f *testing.F) {
	for _, seed := range []string{"Registry.Example.com.:443", "bücher.example:8443", "xn--bcher-kva.example", "straße.de",
		"example.com。", "a.ß.xn--bcher-kva"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		h, err := registry.ParseHost(s)
		if err != nil {
			return
		}
		if again, err := svchost.ForComparison(h.Display()); err != nil || string(again) != string(h) {
			t.Errorf("%q: clients read %q as %q, want %q (%v)", s, h.Display(), again, h, err)
		}
		for _, form := range []string{string(h), h.Display(), h.Name() + strings.TrimPrefix(string(h), h.Name())} {
			if again, err := registry.ParseHost(form); err != nil || again != h {
				t.Errorf("%q: %q is %q, want %q (%v)", s, form, again, h, err)
			}
		}
	})
}

// The audience of a registry is the same however its host is written. Other
// audiences are compared as they are.
func TestAudience(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"https://registry.example.com":          "https://registry.example.com",
		"https://Registry.example.com.:443":     "https://registry.example.com",
		"https://bücher.example":                "https://xn--bcher-kva.example",
		"https://registry.example.com/":         "https://registry.example.com/",
		"https://Registry.example.com/path":     "https://Registry.example.com/path",
		"http://Registry.example.com":           "http://Registry.example.com",
		"Registry.example.com":                  "Registry.example.com",
		"api://Registry":                        "api://Registry",
		"https://registry.example.com@evil.com": "https://registry.example.com@evil.com",
		"":                                      "",
	} {
		if got := registry.Audience(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestCanonicalHost(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ in, host, name string }{
		{"Registry.Example.com.:443", "registry.example.com", "registry.example.com"},
		{"registry.example.com:8443", "registry.example.com:8443", "registry.example.com"},
		{"BÜCHER.example:8443", "xn--bcher-kva.example:8443", "xn--bcher-kva.example"},
		{"Some_Container.:9090", "some_container.:9090", "some_container"},
		{"[FE80::1]:443", "[fe80::1]:443", "fe80::1"},
		{"", "", ""},
	} {
		if got := registry.CanonicalHost(test.in); string(got) != test.host {
			t.Errorf("CanonicalHost(%q) = %q, want %q", test.in, got, test.host)
		}
		if got := registry.CanonicalName(test.in); string(got) != test.name {
			t.Errorf("CanonicalName(%q) = %q, want %q", test.in, got, test.name)
		}
	}
}
