package web_test

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/registry"
)

// network are the files of a small module that has everything.
var network = map[string]string{
	"README.md": "# acme/vpc/aws\n\nA network. See [endpoints](modules/endpoints) and [more](modules/missing).\n\n" +
		"## Limits\n\n| a | b |\n| - | - |\n| 1 | 2 |\n",
	"main.tf": `
terraform {
  required_version = ">= 1.9"
  required_providers {
    aws       = { source = "hashicorp/aws", version = ">= 6.0" }
    inventory = { source = "registry.example.com/acme/inventory", version = "~> 1.4" }
  }
}
variable "cidr_block" {
  type        = string
  description = "IPv4 range, such as ` + "`10.20.0.0/16`" + `."
  validation {
    condition     = true
    error_message = "Must be a private range."
  }
}
variable "subnets" {
  type = map(object({
    type  = string
    zones = optional(list(string), [])
  }))
  description = "Groups of subnets."
}
variable "flow_logs" {
  type       = bool
  default    = true
  nullable   = false
  deprecated = "They are always on."
}
variable "secret" {
  type      = string
  default   = "hidden"
  sensitive = true
}
resource "aws_vpc" "this" {}
data "aws_region" "current" {}
module "endpoints" { source = "./modules/endpoints" }
module "labels" {
  source  = "registry.example.com/platform/labels/null"
  version = "~> 2.1"
}
module "null" { source = "hashicorp/null/aws" }
output "vpc_id" {
  value       = 1
  description = "ID of the VPC."
}
output "token" {
  value     = 1
  sensitive = true
}
`,
	"modules/endpoints/main.tf": "variable \"vpc_id\" {\n  type = string\n}\n",
	"examples/simple/main.tf":   "module \"vpc\" {\n  source = \"../..\"\n}\n",
}

// hashes are those in the paths of assets.
var hashes = regexp.MustCompile(`\.[0-9a-f]{16}\.`)

// A module, its submodule and its example, in both forms.
func TestModulePage(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.module("acme/vpc/aws", "4.1.0", nil)
	s.module("acme/vpc/aws", "4.2.0", network)
	pages := s.serve()
	for path, file := range map[string]string{
		"/modules/acme/vpc/aws":                          "module.html",
		"/modules/acme/vpc/aws/4.2.0.md":                 "module.md",
		"/modules/acme/vpc/aws/4.2.0/modules/endpoints":  "submodule.html",
		"/modules/acme/vpc/aws/4.2.0/examples/simple.md": "example.md",
		"/modules/acme/vpc/aws/4.1.0":                    "undocumented.html",
		"/modules/acme/vpc/aws/4.1.0.md":                 "undocumented.md",
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			page := hashes.ReplaceAllString(pages.text(t, http.StatusOK, path), ".HASH.")
			golden.Equal(t, filepath.Join("testdata", file), []byte(page))
		})
	}
}

// The newest version is served in place. Its page names the URL of the version.
func TestCanonical(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.module("acme/vpc/aws", "1.0.0", nil)
	s.module("acme/vpc/aws", "2.0.0-rc.1", nil)
	pages := s.serve()
	for _, path := range []string{"/modules/acme/vpc/aws", "/modules/acme/vpc/aws/1.0.0", "/modules/acme/vpc/aws/v1.0.0"} {
		want := `<link rel="canonical" href="https://` + host + `/modules/acme/vpc/aws/1.0.0">`
		if page := pages.text(t, http.StatusOK, path); !strings.Contains(page, want) {
			t.Errorf("%s lacks %s", path, want)
		}
	}
}

// bannerOf returns the text of the only banner of a page, or an empty string.
func bannerOf(t *testing.T, page string) string {
	t.Helper()
	_, rest, found := strings.Cut(page, `<div class="banner `)
	if !found {
		return ""
	}
	if strings.Contains(rest, `<div class="banner`) {
		t.Error("the page has two banners")
	}
	tone, rest, _ := strings.Cut(rest, `"`)
	rest, _, _ = strings.Cut(rest, "</div></div>")
	_, rest, _ = strings.Cut(rest, "<p>")
	return tone + ": " + strings.Join(strings.Fields(withoutTags(rest)), " ")
}

func withoutTags(text string) string {
	var out strings.Builder
	for text != "" {
		before, rest, _ := strings.Cut(text, "<")
		out.WriteString(before + " ")
		_, text, _ = strings.Cut(rest, ">")
	}
	return out.String()
}

// Each state has its notice and its badge, and only one notice.
func TestStates(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	for _, v := range []string{"1.0.0", "2.0.0", "2.1.0", "2.2.0", "3.0.0", "4.0.0-rc.1"} {
		s.module("acme/vpc/aws", v, nil)
	}
	s.deprecate("acme/vpc/aws", "2.0.0", "It leaks logs.", false)
	s.deprecate("acme/vpc/aws", "2.1.0", "It deletes routes.", true)
	s.withdraw("acme/vpc/aws", "2.2.0", "It has a key")
	s.module("acme/old/aws", "1.0.0", nil)
	s.module("acme/old/aws", "1.1.0", nil)
	s.deprecate("acme/old/aws", "", "Use acme/vpc/aws.", false)
	s.module("acme/next/aws", "1.0.0-beta", nil)
	s.module("acme/gone/aws", "1.0.0", nil)
	s.withdraw("acme/gone/aws", "1.0.0", "It has a key.")
	const ways = "Go to 3.0.0, the latest version See what changes from "
	pages := s.serve()
	for _, test := range []struct {
		path, banner, badge string
		status              int
	}{
		{"vpc/aws", "", "latest", 200},
		{"vpc/aws/3.0.0", "", "latest", 200},
		{"vpc/aws/1.0.0", "note: 1.0.0 is not the latest version. " + ways + "1.0.0 to 3.0.0", "", 200},
		{"vpc/aws/2.0.0", "warn: 2.0.0 is deprecated. It leaks logs. " + ways + "2.0.0 to 3.0.0", "", 200},
		{"vpc/aws/2.1.0", "warn: 2.1.0 is hidden. Clients can no longer install it. It deletes routes. " + ways +
			"2.1.0 to 3.0.0", "", 200},
		{"vpc/aws/2.2.0", "bad: 2.2.0 was withdrawn on 7 Nov 2026. It has a key. Its number will not be used again. " +
			"Go to 3.0.0, the latest version All 6 versions Who uses it", "", 404},
		{"vpc/aws/4.0.0-rc.1", "note: 4.0.0-rc.1 is a pre-release. " +
			"Clients install it only when a configuration names it exactly. " + ways + "4.0.0-rc.1 to 3.0.0", "", 200},
		{"old/aws", "warn: acme/old/aws is deprecated. Use acme/vpc/aws.", "latest", 200},
		{"old/aws/1.0.0", "warn: acme/old/aws is deprecated. Use acme/vpc/aws. Go to 1.1.0, the latest version " +
			"See what changes from 1.0.0 to 1.1.0", "", 200},
		{"next/aws", "note: 1.0.0-beta is a pre-release. Clients install it only when a configuration names it exactly.",
			"", 200},
		{"gone/aws", "bad: 1.0.0 was withdrawn on 7 Nov 2026. It has a key. Its number will not be used again. " +
			"List of versions Who uses it", "", 404},
	} {
		t.Run(test.path, func(t *testing.T) {
			t.Parallel()
			page := pages.text(t, test.status, "/modules/acme/"+test.path)
			if diff := cmp.Diff(test.banner, bannerOf(t, page)); diff != "" {
				t.Errorf("banner (-want +got):\n%s", diff)
			}
			_, beside, _ := strings.Cut(page, "</div></details>")
			beside, _, _ = strings.Cut(beside, "</div>")
			if test.status == http.StatusOK {
				if diff := cmp.Diff(test.badge, strings.TrimSpace(withoutTags(beside))); diff != "" {
					t.Errorf("badge (-want +got):\n%s", diff)
				}
			} else if strings.Contains(page, "Published") || strings.Contains(page, "module &#34;") {
				t.Errorf("the page of a withdrawn version says more than that: %s", page)
			}
		})
	}
}

// The menu has the newest versions, the withdrawn ones among them without a
// link, and the shown one.
func TestPicker(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	for minor := range 10 {
		s.module("acme/vpc/aws", fmt.Sprintf("1.%d.0", minor), nil)
	}
	for _, v := range []string{"2.0.0", "2.1.0", "3.0.0"} {
		s.module("acme/vpc/aws", v, nil)
	}
	s.withdraw("acme/vpc/aws", "2.1.0", "It has a key.")
	s.deprecate("acme/vpc/aws", "2.0.0", "Old.", true)
	menu := func(path string) (versions []string) {
		page := s.serve().text(t, http.StatusOK, path)
		_, page, _ = strings.Cut(page, `<div class="panel"><ul>`)
		page, _, _ = strings.Cut(page, "</ul>")
		for item := range strings.SplitSeq(strings.TrimSpace(page), "</li>") {
			if item = strings.Join(strings.Fields(withoutTags(item)), " "); item != "" {
				versions = append(versions, item)
			}
		}
		return versions
	}
	newest := []string{"3.0.0 latest 2 Nov 2026", "2.1.0 withdrawn 7 Nov 2026", "2.0.0 hidden 2 Nov 2026"}
	for _, minor := range "9876543" {
		newest = append(newest, "1."+string(minor)+".0 2 Nov 2026")
	}
	if diff := cmp.Diff(newest, menu("/modules/acme/vpc/aws")); diff != "" {
		t.Errorf("newest (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(append(newest, "1.0.0 2 Nov 2026"), menu("/modules/acme/vpc/aws/1.0.0")); diff != "" {
		t.Errorf("an old one (-want +got):\n%s", diff)
	}
}

// The page for what does not exist links to the nearest page that the caller
// may read.
func TestNear(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.module("acme/vpc/aws", "1.0.0", nil)
	s.module("other/vpc/azure", "1.0.0", nil)
	s.provider("acme/inventory", "1.0.0")
	s.mirrored("registry.opentofu.org/hashicorp/random", "3.6.0")
	for _, test := range []struct{ scope, path, want string }{
		{"read:**", "/modules/acme/vcp/aws", "/modules/acme/vpc/aws"},
		{"read:**", "/modules/acme/vpc/aws/1.0.0/modules/none", "/modules/acme/vpc/aws"},
		{"read:**", "/modules/acm", "/modules/acme"},
		{"read:**", "/modules/nobody/vpc/azure/versions", "/modules/other/vpc/azure"},
		{"read:modules/acme/*", "/modules/other/vpc/azure", "/modules/acme/vpc/aws"},
		{"read:providers/**", "/modules/acme/vcp/aws", ""},
		{"read:**", "/providers/acme/inventroy", "/providers/acme/inventory"},
		{"read:**", "/mirror/registry.terraform.io/hashicorp/random", "/mirror/registry.opentofu.org/hashicorp/random"},
		{"read:**", "/mirror/registry.opentofu.or", ""}, // a hostname has no page
		{"read:**", "/mirror-modules/registry.opentofu.org/hashicorp/random/aws", ""},
		{"read:**", "/nothing", ""},
	} {
		pages, token := s.protect("{}"), s.token(test.scope)
		html, md := pages.probe(t, test.path, token), pages.probe(t, test.path+".md", token)
		if html.Status != http.StatusNotFound {
			t.Errorf("%s: status %d, want 404", test.path, html.Status)
		}
		link, text := "Did you mean", "Did you mean"
		if test.want != "" {
			link, text = `Did you mean <a href="`+test.want+`">`, "]("+test.want+".md)?"
		}
		if got := strings.Contains(html.Body, link); got != (test.want != "") {
			t.Errorf("%s with %s: suggests %t, want %q", test.path, test.scope, got, test.want)
		}
		if got := strings.Contains(md.Body, text); got != (test.want != "") {
			t.Errorf("%s.md with %s: suggests %t, want %q", test.path, test.scope, got, test.want)
		}
	}
}

// A page of a module makes two requests to the table and reads one object.
func TestModuleReads(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.module("acme/vpc/aws", "1.0.0", network)
	s.module("acme/vpc/aws", "2.0.0", network)
	s.module("acme/vpc/aws", "3.0.0", nil)
	s.withdraw("acme/vpc/aws", "1.0.0", "It has a key.")
	pages := s.serve()
	for _, test := range []struct {
		path, calls string
		objects     int64
	}{
		{"/modules/acme/vpc/aws", "Snapshot Snapshot", 0},
		{"/modules/acme/vpc/aws/2.0.0", "Snapshot Snapshot", 1},
		{"/modules/acme/vpc/aws/2.0.0.md", "Snapshot Snapshot", 1},
		{"/modules/acme/vpc/aws/2.0.0/modules/endpoints", "Snapshot Snapshot", 1},
		{"/modules/acme/vpc/aws/1.0.0", "Snapshot Snapshot", 0},
		{"/modules/acme/vpc/aws/9.0.0", "Snapshot Query Query", 0}, // the entries, for a suggestion
		{"/modules/acme/none/aws", "Snapshot", 0},
		{"/modules/acme/vpc/aws/x", "", 0},
	} {
		s.table.Take()
		before := s.objects.reads.Load()
		pages.get(t, test.path)
		if diff := cmp.Diff(test.calls, s.table.Take()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.path, diff)
		}
		if got := s.objects.reads.Load() - before; got != test.objects {
			t.Errorf("%s reads %d objects, want %d", test.path, got, test.objects)
		}
	}
}

// A failure of the table or the objects is a page without data. Documentation
// that is damaged is missing.
func TestModuleFails(t *testing.T) {
	t.Parallel()
	const (
		unavailable  = "The registry cannot answer right now."
		undocumented = "No documentation was extracted for this version."
	)
	for name, test := range map[string]struct {
		fail   func(*store)
		status int
		want   string
	}{
		"the table":      {func(s *store) { s.table.Fail(registry.ErrUnavailable) }, 503, unavailable},
		"the objects":    {func(s *store) { s.objects.err = errors.New("timeout") }, 503, unavailable},
		"lost documents": {func(s *store) { clear(s.objects.content) }, 200, undocumented},
		"damaged documents": {func(s *store) {
			for key := range s.objects.content {
				s.objects.content[key] = []byte("x")
			}
		}, 200, undocumented},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t)
			s.module("acme/vpc/aws", "1.0.0", network)
			test.fail(s)
			if page := s.serve().text(t, test.status, "/modules/acme/vpc/aws"); !strings.Contains(page, test.want) {
				t.Errorf("the page lacks %q: %s", test.want, page)
			}
		})
	}
}

// A damaged record of another version does not break the page.
func TestDamagedOtherVersion(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.module("acme/vpc/aws", "1.0.0", nil)
	s.module("acme/vpc/aws", "2.0.0", nil)
	key := catalog.Key{Partition: "modules/acme/vpc/aws", Sort: "version/1.0.0"}
	item, err := s.table.Table.Get(t.Context(), key)
	if err == nil {
		err = s.table.Write(t.Context(), catalog.Change{Key: key, Data: []byte("{"), Revision: item.Revision})
	}
	if err != nil {
		t.Fatal(err)
	}
	pages := s.serve()
	pages.text(t, http.StatusOK, "/modules/acme/vpc/aws")
	if !strings.Contains(pages.log.String(), "damaged") {
		t.Errorf("the log lacks the damage: %s", pages.log)
	}
	pages.text(t, http.StatusInternalServerError, "/modules/acme/vpc/aws/1.0.0")
}

// A type or a default of any size has its place, and the page stays bounded.
func TestLargeInputs(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	m := address(t, "acme/large/aws")
	long := strings.Repeat("x", 40<<10)
	d := docs.Documentation{Root: docs.Folder{Inputs: []docs.Input{
		{
			Name: "long", Type: "string", TypeHTML: "string", Default: `"x"`,
			DefaultHTML: `<span class=str>&lt;b2&gt;` + long + "</span>",
		},
		{Name: "lines", Type: "any", TypeHTML: "any", Default: "[]", DefaultHTML: strings.Repeat("x\n", 12) + "x"},
		{Name: "few", Type: "any", TypeHTML: "any", Default: "[]", DefaultHTML: strings.Repeat("y\n", 11) + "y"},
		{Name: "wide", Type: strings.Repeat("x", 61), TypeHTML: strings.Repeat("x", 61), Required: true},
		{Name: "narrow", Type: strings.Repeat("z", 60), TypeHTML: strings.Repeat("z", 60), Required: true},
	}}}
	s.module("acme/large/aws", "1.0.0", map[string]string{}, func(r *registry.ModuleVersion) { s.document(m, r, d) })
	page := s.serve().text(t, http.StatusOK, "/modules/acme/large/aws")
	for _, want := range []string{
		"Show default · 40,964 characters", "&lt;b2&gt;x", "Cut at 16 KiB. The rest is in the Markdown and API.",
		"Show default · 13 lines",
		`<p class="note">Default</p><code class="block">` + strings.Repeat("y\n", 11) + "y</code>", `<code>…</code>`,
		`<code class="block">` + strings.Repeat("x", 61) + "</code>", "<code>" + strings.Repeat("z", 60) + "</code>",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %.100q", want)
		}
	}
	if len(page) > 40<<10 {
		t.Errorf("the page has %d bytes", len(page))
	}
	for range 17 {
		d.Root.Inputs = append(d.Root.Inputs, d.Root.Inputs...)
	}
	d.Root.Inputs = d.Root.Inputs[:20_000]
	for i := range d.Root.Inputs {
		d.Root.Inputs[i] = docs.Input{Name: "a", Type: "any", Required: true}
	}
	s.module("acme/large/aws", "2.0.0", map[string]string{}, func(r *registry.ModuleVersion) { s.document(m, r, d) })
	page = s.serve().text(t, http.StatusOK, "/modules/acme/large/aws")
	if !strings.Contains(page, "more inputs are in the Markdown and API.") {
		t.Error("the page does not say that inputs are missing")
	}
	if len(page) > 4<<20 {
		t.Errorf("the page of many inputs has %d bytes", len(page))
	}
}

// Links lead only to what the caller may read.
func TestLinksToModules(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.module("acme/vpc/aws", "1.0.0", network)
	acme := s.token("read:modules/acme/*")
	for name, test := range map[string]struct {
		page string
		want bool
	}{
		"everyone": {s.serve().text(t, http.StatusOK, "/modules/acme/vpc/aws"), true},
		"acme":     {s.protect("{}").text(t, http.StatusOK, "/modules/acme/vpc/aws", bearer(acme)...), false},
	} {
		for _, link := range []string{`href="/modules/platform/labels/null"`, `href="/providers/acme/inventory"`} {
			if got := strings.Contains(test.page, link); got != test.want {
				t.Errorf("%s: the page has %s: %t, want %t", name, link, got, test.want)
			}
		}
		if !strings.Contains(test.page, `href="/modules/acme/vpc/aws/1.0.0/modules/endpoints"`) {
			t.Errorf("%s: the page lacks the link to its submodule", name)
		}
	}
}
