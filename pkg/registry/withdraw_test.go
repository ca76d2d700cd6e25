package registry_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/registry"
)

func TestParseAddress(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"acme/vpc/aws":                        "modules/acme/vpc/aws",
		"Acme/VPC/aws":                        "modules/Acme/VPC/aws",
		"acme/inventory":                      "providers/acme/inventory",
		"registry.example.com/acme/inventory": "mirror/registry.example.com/acme/inventory",
		"Registry.Example.com/Acme/inventory": "mirror/registry.example.com/acme/inventory",
		"localhost/acme/inventory":            "modules/localhost/acme/inventory",

		"":                              "",
		"acme":                          "",
		"acme/":                         "",
		"/":                             "",
		"//":                            "",
		"a/b/c/d":                       "",
		"registry.example.com/acme":     "",
		"registry.example.com:8443/a/b": "",
		"acme/Inventory":                "",
		"acme/vpc/aws\" | limit 1":      "",
		"acme/vpc/a\nb":                 "",
		"../x/y":                        "",
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

// A withdrawn version is not found by readers and exists for publishers.
// Neither error has the name of the person who withdrew it.
func TestWithdrawal(t *testing.T) {
	t.Parallel()
	w := registry.Withdrawal{At: time.Date(2026, 11, 21, 1, 2, 3, 0, time.UTC), By: "wim", Reason: "it has a key"}
	v := registry.Version{Major: 1}
	texts := golden.New(t)
	for name, test := range map[string]struct {
		err     error
		is, not error
	}{
		"read":    {w.Gone(v), registry.ErrNotFound, registry.ErrExists},
		"publish": {w.Taken(v), registry.ErrExists, registry.ErrNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			for _, sentinel := range []error{test.is, registry.ErrWithdrawn} {
				if !errors.Is(test.err, sentinel) {
					t.Errorf("%v is not %v", test.err, sentinel)
				}
			}
			if errors.Is(test.err, test.not) {
				t.Errorf("%v is %v", test.err, test.not)
			}
			for _, part := range []string{v.String(), "2026-11-21 01:02 UTC", w.Reason} {
				if !strings.Contains(test.err.Error(), part) {
					t.Errorf("%v does not have %s", test.err, part)
				}
			}
			if strings.Contains(test.err.Error(), w.By) {
				t.Errorf("%v has the name %s", test.err, w.By)
			}
			texts.Error(t, test.err)
		})
	}
	p := registry.MirrorAddress{
		Hostname:  "registry.example.com",
		Namespace: "acme", Name: "inventory",
	}
	if got := registry.ObjectsOf(p, v); got != "mirror/registry.example.com/acme/inventory/1.0.0/" {
		t.Error(got)
	}
}
