package web_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// useOf returns the text of the section Use of a page, without the blocks, and their
// sources.
func useOf(page string) (text string, sources []string) {
	_, page, _ = strings.Cut(page, `<section id="use">`)
	page, _, _ = strings.Cut(page, "</section>")
	for block := range strings.SplitSeq(page, "<pre ") {
		code, after, isBlock := strings.Cut(block, "</pre>")
		if !isBlock {
			code, after = "", block
		}
		text += " " + withoutTags(after)
		if _, source, found := strings.Cut(withoutTags(code), `"registry.example.com/`); found {
			source, _, _ = strings.Cut(source, `"`)
			sources = append(sources, source)
		}
	}
	return strings.Join(strings.Fields(text), " "), sources
}

// The section Use suggests only what clients can use.
func TestUse(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.module("acme/vpc/aws", "0.3.1", network)
	s.module("acme/vpc/aws", "1.0.0", network)
	s.module("acme/vpc/aws", "1.1.0", network)
	s.module("acme/vpc/aws", "2.0.0-rc.1", map[string]string{"main.tf": "output \"a\" {}\n"})
	s.deprecate("acme/vpc/aws", "1.0.0", "It deletes routes.", true)
	s.module("acme/gone/aws", "1.0.0", network)
	s.module("acme/gone/aws", "1.1.0", network)
	s.deprecate("acme/gone/aws", "1.0.0", "Use `acme/vpc/aws`.", true)
	s.withdraw("acme/gone/aws", "1.1.0", "It has a key.")
	s.module("acme/old/aws", "1.0.0", network)
	s.module("acme/old/aws", "1.1.0", network)
	s.deprecate("acme/old/aws", "1.0.0", "It deletes routes.", true)
	s.deprecate("acme/old/aws", "", "Use acme/vpc/aws.", false)
	parts := map[string]string{"README.md": "Parts."}
	for i := range 7 {
		parts[fmt.Sprintf("modules/m%d/main.tf", i)] = "variable \"name\" {\n  type = string\n}\n"
	}
	s.module("acme/parts/aws", "1.0.0", parts)
	s.module("acme/shown/aws", "1.0.0", map[string]string{"examples/a/main.tf": "output \"a\" {}\n"})
	pages := s.serve()
	const fill = "Fill in the required inputs, then run tofu init or terraform init ."
	for path, test := range map[string]struct {
		text    string
		sources []string
	}{
		"vpc/aws":            {fill + " To accept later 1.x versions, write ~&gt; 1.1 .", []string{"acme/vpc/aws"}},
		"vpc/aws/0.3.1":      {fill + " To accept later 0.3.x versions, write ~&gt; 0.3.1 .", []string{"acme/vpc/aws"}},
		"vpc/aws/2.0.0-rc.1": {"Then run tofu init or terraform init .", []string{"acme/vpc/aws"}},
		"vpc/aws/1.0.0":      {"Clients cannot install 1.0.0. Use 1.1.0 , the latest version.", nil},
		"gone/aws/1.0.0":     {"Clients cannot install 1.0.0. Use acme/vpc/aws .", nil},
		"old/aws/1.0.0":      {"Clients cannot install 1.0.0. Use acme/vpc/aws.", nil},
		"parts/aws": {"Use one of the submodules. The root of this module has no configuration. And 2 more in Submodules . " + fill + " To accept later 1.x versions, write ~&gt; 1.0 .", []string{
			"acme/parts/aws//modules/m0", "acme/parts/aws//modules/m1", "acme/parts/aws//modules/m2",
			"acme/parts/aws//modules/m3", "acme/parts/aws//modules/m4",
		}},
		"shown/aws": {"The root of this module has no configuration to use.", nil},
	} {
		page := pages.text(t, http.StatusOK, "/modules/acme/"+path)
		text, sources := useOf(page)
		if diff := cmp.Diff(test.text, strings.TrimPrefix(text, "Use ")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
		if diff := cmp.Diff(test.sources, sources); diff != "" {
			t.Errorf("%s has other sources (-want +got):\n%s", path, diff)
		}
		path = strings.TrimSuffix(path, "/") + ".md"
		if md := pages.text(t, http.StatusOK, "/modules/acme/"+path); strings.Contains(md, "module \"") != (sources != nil) {
			t.Errorf("%s has a block: %t", path, sources == nil)
		}
	}
}

// A page warns if the README's examples use the module from elsewhere.
func TestElsewhere(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	for i, test := range []struct {
		source string
		want   bool
	}{
		{"registry.example.com/acme/vpc/aws", false},
		{"Registry.example.com/acme/vpc/aws//modules/a", false},
		{"acme/vpc/aws", true},
		{"terraform-aws-modules/vpc/aws//modules/a", true},
		{"registry.terraform.io/acme/vpc/aws", true},
		{"git::https://github.com/acme/terraform-aws-vpc.git?ref=v1", true},
		{"git@github.com:acme/terraform-aws-vpc", true},
		{"git::https://github.com/acme/terraform-aws-vpc-extra.git?ref=v1", false},
		{"git::https://github.com/acme/terraform-aws-vpc.git//modules/a", true},
		{"../..", false},
		{"terraform-aws-modules/eks/aws", false},
	} {
		files := map[string]string{
			"main.tf":   "output \"a\" {}\n",
			"README.md": "Text.\n\n```hcl\nmodule \"x\" {\n  source  = \"" + test.source + "\"\n}\n```\n",
		}
		version := fmt.Sprintf("1.%d.0", i)
		s.module("acme/vpc/aws", version, files)
		for _, form := range []string{"", ".md"} {
			page := s.serve().text(t, http.StatusOK, "/modules/acme/vpc/aws/"+version+form)
			if got := strings.Contains(page, "examples use another address"); got != test.want {
				t.Errorf("%s%s: %t, want %t", test.source, form, got, test.want)
			}
		}
	}
}
