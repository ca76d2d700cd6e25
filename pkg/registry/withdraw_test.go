package registry_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/larder-registry/larder/pkg/registry"
)

func TestParseAddress(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"acme/vpc/aws": "modules/acme/vpc/aws", "Acme/VPC/aws": "modules/Acme/VPC/aws", "acme/inventory": "providers/acme/inventory",
		"registry.example.com/acme/inventory": "mirror/registry.example.com/acme/inventory", "Registry.Example.com/Acme/inventory": "mirror/registry.example.com/acme/inventory",
		"localhost/acme/inventory": "modules/localhost/acme/inventory",
		"":                         "", "acme": "", "acme/": "", "/": "", "//": "", "a/b/c/d": "", "registry.example.com/acme": "", "registry.example.com:8443/a/b": "", "acme/Inventory": "",
		"acme/vpc/aws\" | limit 1": "", "acme/vpc/a\nb": "", "../x/y": "",
	} {
		a, err := registry.ParseAddress(in)
		switch {
		case want == "" && (!errors.Is(err, registry.ErrInvalid) || a != nil):
			t.Errorf("ParseAddress(%q) = %v, %v; want ErrInvalid", in, a, err)
		case want != "" && (err != nil || a.Path() != want):
			t.Errorf("ParseAddress(%q) = %v, %v; want %s", in, a, err, want)
		}
	}
}

// A withdrawn version is absent to who reads it, and taken to who publishes it. Who withdrew it is no business of either.
func TestWithdrawal(t *testing.T) {
	t.Parallel()
	w := registry.Withdrawal{At: time.Date(2026, 11, 21, 1, 2, 3, 0, time.UTC), By: "wim", Reason: "it has a key"}
	v := registry.Version{Major: 1}
	gone := w.Gone(v)
	for _, test := range []struct {
		err     error
		is, not error
		words   string
	}{
		{gone, registry.ErrNotFound, registry.ErrExists, "version 1.0.0 was withdrawn on 2026-11-21 01:02 UTC: it has a key"},
		{w.Taken(v), registry.ErrExists, registry.ErrNotFound, "it has a key; its number is not used again"},
	} {
		if !errors.Is(test.err, test.is) || errors.Is(test.err, test.not) || !errors.Is(test.err, registry.ErrWithdrawn) || !strings.Contains(test.err.Error(), test.words) || strings.Contains(test.err.Error(), "wim") {
			t.Errorf("%v", test.err)
		}
	}
	p := registry.MirrorProvider{Hostname: "registry.example.com", Provider: registry.Provider{Namespace: "acme", Type: "inventory"}}
	if got := registry.ObjectsOf(p, v); got != "mirror/registry.example.com/acme/inventory/1.0.0/" {
		t.Error(got)
	}
}
