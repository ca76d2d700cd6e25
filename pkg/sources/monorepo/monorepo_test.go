package monorepo_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/sources/monorepo"
)

// parse parses a file that must be valid.
func parse(t *testing.T, text string) []monorepo.Module {
	t.Helper()
	modules, err := monorepo.Parse(t.Context(), monorepo.FileName, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return modules
}

func address(name string) registry.Module {
	return registry.Module{Namespace: "acme", Name: name, System: "aws"}
}

func TestParse(t *testing.T) {
	t.Parallel()
	got := parse(t, `# The modules of this repository.
module "acme/root/aws" {
  path = "."
}
module "acme/vpc/aws" {
  path        = "./modules/vpc/"
  description = "A VPC"
}
module "acme/subnet/aws" {
  path = "modules/vpc"
  tag  = "subnet-*-final"
  allow_secrets = ["examples/key.pem", "tests"]
}
`)
	want := []monorepo.Module{
		{Address: address("root"), Path: ".", Tag: "v*"},
		{Address: address("vpc"), Path: "modules/vpc", Tag: "modules/vpc/v*", Description: "A VPC"},
		{Address: address("subnet"), Path: "modules/vpc", Tag: "subnet-*-final",
			AllowSecrets: []string{"examples/key.pem", "tests"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestParseInvalid(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	module := func(address, attributes string) string {
		return fmt.Sprintf("module %q {\n%s\n}\n", address, attributes)
	}
	vpc := func(attributes string) string { return module("acme/vpc/aws", attributes) }
	for name, text := range map[string]string{
		"empty":                      "",
		"syntax":                     "module {",
		"function":                   vpc(`path = file("x")`),
		"unknown block":              "modul \"acme/vpc/aws\" {\n  path = \".\"\n}\n",
		"attribute outside a module": "path = \".\"\n",
		"unknown attribute":          vpc(`pth = "."`),
		"block in a module":          vpc("path = \".\"\ntags {}"),
		"no address":                 "module {\n  path = \".\"\n}\n",
		"two labels":                 "module \"acme\" \"vpc\" {\n  path = \".\"\n}\n",
		"number for a path":          vpc("path = []"),
		"null for a path":            vpc("path = null"),
		"address":                    module("acme/vpc", `path = "."`),
		"reserved namespace":         module("search/vpc/aws", `path = "."`),
		"no path":                    vpc(`tag = "v*"`),
		"empty path":                 vpc(`path = ""`),
		"path to the outside":        vpc(`path = "../vpc"`),
		"path from the outside":      vpc(`path = "modules/../../vpc"`),
		"absolute path":              vpc(`path = "/vpc"`),
		"path of Windows":            vpc(`path = "modules\\vpc"`),
		"path with a line break":     vpc(`path = "a\nb"`),
		"path that no tag can name":  vpc(`path = "my modules"`),
		"tag without a version":      vpc("path = \".\"\ntag = \"vpc\""),
		"tag with two versions":      vpc("path = \".\"\ntag = \"*/v*\""),
		"tag that Git does not have": vpc("path = \".\"\ntag = \"a b*\""),
		"full name of a tag":         vpc("path = \".\"\ntag = \"refs/tags/v*\""),
		"long description":           vpc("path = \".\"\ndescription = \"" + strings.Repeat("x", 1001) + "\""),
		"secrets outside":            vpc("path = \".\"\nallow_secrets = [\"../key.pem\"]"),
		"one path of secrets":        vpc("path = \".\"\nallow_secrets = \"key.pem\""),
		"several mistakes":           vpc("path = \"..\"\ndescription = \"\\n\"") + module("acme", `path = "x"`),
		"the same module twice":      vpc(`path = "a"`) + vpc(`path = "b"`),
		"the same tag twice":         vpc("path = \"a\"\ntag = \"v*\"") + module("acme/b/aws", `path = "."`),
		"a tag within another":       vpc("path = \"a\"\ntag = \"v1*\"") + module("acme/b/aws", `path = "."`),
		"another encoding":           "# caf\xe9\n" + vpc(`path = "."`),
		"too large":                  strings.Repeat("#", monorepo.MaxText+1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := monorepo.Parse(t.Context(), monorepo.FileName, []byte(text))
			if !errors.Is(err, registry.ErrInvalid) {
				t.Errorf("got error %v, want ErrInvalid", err)
			}
			texts.Error(t, err)
		})
	}
}

func TestParseCanceled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := monorepo.Parse(ctx, monorepo.FileName, []byte("a = 1\n")); !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v, want context.Canceled", err)
	}
}

// A file with two patterns is valid if no tag can match both of them.
func TestPatterns(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		a, b  string
		valid bool
	}{
		{"v*", "vpc/v*", true},
		{"v*", "v*/vpc", true},
		{"vpc/*", "vpc/v*", true},
		{"a/v*", "b/v*", true},
		{"*-a", "*-b", true},
		{"v*", "v*", false},
		{"v*", "v*-vpc", false},
		{"v*", "v1.*", false},
		{"*a", "1*a", false},
	} {
		for _, pair := range [][2]string{{test.a, test.b}, {test.b, test.a}} {
			text := fmt.Sprintf("module \"acme/a/aws\" {\n  path = \"a\"\n  tag = %q\n}\nmodule \"acme/b/aws\" {\n  path = \"b\"\n  tag = %q\n}\n",
				pair[0], pair[1])
			_, err := monorepo.Parse(t.Context(), monorepo.FileName, []byte(text))
			if (err == nil) != test.valid {
				t.Errorf("%q: got error %v, want one: %t", pair, err, !test.valid)
			}
		}
	}
}

func TestMatch(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	modules := []monorepo.Module{
		{Address: address("root"), Path: ".", Tag: "v*"},
		{Address: address("vpc"), Path: "vpc", Tag: "vpc/v*"},
		{Address: address("bare"), Path: "bare", Tag: "vpc/*"},
		{Address: address("end"), Path: "end", Tag: "*/end"},
	}
	for tag, want := range map[string]string{
		"v1.2.3":                "acme/root/aws 1.2.3",
		"v1.2.3-rc.1+build":     "acme/root/aws 1.2.3-rc.1+build",
		"vpc/v1.2.3":            "acme/vpc/aws 1.2.3",
		"vpc/1.2.3":             "acme/bare/aws 1.2.3",
		"1.2.3/end":             "acme/end/aws 1.2.3",
		"v":                     "",
		"v1.2":                  "",
		"vpc/v01.2.3":           "",
		"vv1.2.3":               "",
		"v99999999999999999999": "",
		"1.2.3":                 "",
		"nightly":               "",
		"version":               "",
		"vpc/v1.2.3/end":        "",
	} {
		t.Run(tag, func(t *testing.T) {
			t.Parallel()
			release, err := monorepo.Match(modules, tag)
			if want == "" {
				texts.Error(t, err)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := release.String(); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}
