package web_test

import (
	"cmp"
	"net/http"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/registry"
)

const comparePath = "/modules/acme/vpc/aws/compare"

// before and after are two versions of a module that differ in everything that
// a comparison shows.
var before = map[string]string{
	"main.tf": `
terraform {
  required_version = ">= 1.5"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.0, < 7.0"
    }
  }
}
variable "cidr_block" {
  type    = string
  default = "10.0.0.0/16"
}
variable "endpoints" {
  type = map(object({
    service    = string
    subnet_ids = list(string)
  }))
  default = {}
}
variable "nat" {
  type        = string
  default     = "one_per_zone"
  description = "How many gateways."
}
variable "dns" {
  type    = bool
  default = true
}
variable "old" { default = [] }
variable "same" {}
output "id" { value = "1" }
output "token" { value = "1" }
output "gone" { value = "1" }
resource "aws_vpc" "this" {}
module "a" {
  source  = "acme/a/aws"
  version = "1.0.0"
}
`,
	"modules/endpoints/main.tf": `variable "x" { default = 1 }`,
	"modules/gone/main.tf":      `variable "x" { default = 1 }`,
}

var after = map[string]string{
	"main.tf": `
terraform {
  required_version = ">= 1.9"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 6.0, < 7.0"
    }
  }
}
variable "cidr_block" { type = string }
variable "endpoints" {
  type = map(object({
    service      = string
    subnet_group = string
    policy       = optional(string)
  }))
  default = {}
}
variable "nat" {
  type        = string
  default     = "one_per_vpc"
  description = "How many NAT gateways."
}
variable "dns" {
  type       = bool
  default    = true
  deprecated = "DNS is always on since 2.0.0"
}
variable "subnets" {
  type = map(object({
    type    = string
    newbits = optional(number, 4)
  }))
  description = "The ` + "`subnets`" + ` by name."
}
variable "same" {}
output "id" { value = "1" }
output "token" {
  value     = "1"
  sensitive = true
}
output "ips" {
  value       = "1"
  description = "The addresses of the ` + "`nat`" + ` gateways."
}
resource "aws_vpc" "this" {}
resource "aws_subnet" "this" {}
module "a" {
  source  = "acme/a/aws"
  version = "2.0.0"
}
module "b" { source = "./b" }
`,
	"modules/endpoints/main.tf": `variable "x" {}`,
	"modules/new/main.tf":       `variable "x" { default = 1 }`,
}

// vpc returns a store with two versions of a module that differ.
func vpc(t testing.TB) *store {
	t.Helper()
	s := newStore(t)
	s.module("acme/vpc/aws", "1.0.0", before)
	s.module("acme/vpc/aws", "2.0.0", after)
	return s
}

// mainOf returns a page without the top bar and the footer.
func mainOf(page string) string {
	_, page, _ = strings.Cut(page, "<main")
	page, _, _ = strings.Cut(page, "</main>")
	return "<main" + page + "</main>\n"
}

func TestCompare(t *testing.T) {
	t.Parallel()
	web := vpc(t).serve()
	golden.Equal(t, "testdata/compare.html", []byte(mainOf(web.text(t, http.StatusOK, comparePath+"?from=1.0.0&to=2.0.0"))))
	golden.Equal(t, "testdata/compare.md", []byte(web.text(t, http.StatusOK, comparePath+".md?from=1.0.0&to=2.0.0")))
}

// title returns the main heading of a page as text.
func title(t testing.TB, page string) string {
	t.Helper()
	_, rest, found := strings.Cut(page, "<h1")
	text, _, closed := strings.Cut(rest, "</h1>")
	if !found || !closed {
		t.Fatalf("the page has no heading: %s", page)
	}
	var out strings.Builder
	for part := range strings.SplitSeq(text, "<") {
		_, part, _ = strings.Cut("<"+part, ">")
		out.WriteString(part)
	}
	return out.String()
}

// Without versions in the query, the latest one and the one before are
// compared. Pre-releases do not count, unless the query names one.
func TestCompareDefaults(t *testing.T) {
	t.Parallel()
	s := vpc(t)
	s.module("acme/vpc/aws", "2.1.0-rc.1", after)
	s.module("acme/vpc/aws", "2.1.0", after)
	s.module("acme/vpc/aws", "3.0.0-rc.1", after)
	s.module("acme/one/aws", "1.0.0", after)
	web := s.serve()
	for path, want := range map[string]string{
		comparePath:                                   "acme/vpc/aws 2.0.0 → 2.1.0",
		comparePath + "?to=2.0.0":                     "acme/vpc/aws 1.0.0 → 2.0.0",
		comparePath + "?to=3.0.0-rc.1":                "acme/vpc/aws 2.1.0 → 3.0.0-rc.1",
		comparePath + "?from=1.0.0":                   "acme/vpc/aws 1.0.0 → 2.1.0",
		comparePath + "?from=2.1.0&to=1.0.0":          "acme/vpc/aws 2.1.0 → 1.0.0",
		comparePath + "?to=1.0.0":                     "acme/vpc/aws 1.0.0 → 1.0.0",
		"/modules/acme/one/aws/compare":               "acme/one/aws 1.0.0",
		"/modules/acme/one/aws/compare?from=&to=":     "acme/one/aws 1.0.0",
		"/modules/acme/one/aws/compare.md?from=1.0.0": "",
	} {
		page := web.text(t, http.StatusOK, path)
		if want == "" {
			continue
		}
		if diff := gocmp.Diff(want, title(t, page)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
}

// A page without a comparison has the reason: there is only one version, or one
// of the two does not exist. A caller who may read neither gets the same text
// as for an unknown module.
func TestCompareNothing(t *testing.T) {
	t.Parallel()
	s := vpc(t)
	s.module("acme/one/aws", "1.0.0", after)
	s.module("other/vpc/aws", "1.0.0", after)
	pages, token := s.protect("{}"), s.token("read:modules/acme/*")
	const only = "There is no other version to compare 1.0.0 with."
	for _, form := range []string{"", ".md"} {
		page := pages.text(t, http.StatusOK, "/modules/acme/one/aws/compare"+form, bearer(token)...)
		contains(t, page, only, "!→", "!No differences", "!choose")
		page = pages.text(t, http.StatusOK, comparePath+form+"?from=1.0.0&to=1.0.0", bearer(token)...)
		contains(t, page, "No differences", "!"+only)
		for _, query := range []string{"?from=1.0.0&to=9.9.9", "?from=9.9.9&to=1.0.0", "?from=9.9.9"} {
			page := pages.text(t, http.StatusNotFound, comparePath+form+query, bearer(token)...)
			contains(t, page, "has no version", "9.9.9", "/modules/acme/vpc/aws/versions"+form, "!does not exist")
		}
		for path, want := range map[string]string{
			comparePath + form + "?from=1.0.0&to=x":                  "acme/vpc/aws x",
			"/modules/acme/none/aws/compare" + form:                  "acme/none/aws",
			"/modules/other/vpc/aws/compare" + form + "?to=1.0.0":    "other/vpc/aws 1.0.0",
			"/modules/other/vpc/aws/compare" + form + "?to=9.9.9":    "other/vpc/aws 9.9.9",
			"/modules/other/vpc/aws/compare" + form + "?from=x&to=y": "other/vpc/aws x",
		} {
			page := pages.text(t, http.StatusNotFound, path, bearer(token)...)
			contains(t, unescaped(page), want+" does not exist, or your account cannot read it.")
		}
	}
}

// contains checks the parts of a page. A part that begins with ! must be
// missing.
func contains(t *testing.T, page string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		part, absent := strings.CutPrefix(part, "!")
		if strings.Contains(page, part) == absent {
			_, main, _ := strings.Cut(page, "<main")
			t.Errorf("contains %q is %t: %s", part, absent, cmp.Or(main, page))
		}
	}
}

func TestCompareStates(t *testing.T) {
	t.Parallel()
	s := vpc(t)
	s.module("acme/vpc/aws", "3.0.0", nil)
	s.module("acme/vpc/aws", "4.0.0", after)
	s.module("acme/vpc/aws", "5.0.0", after)
	s.module("acme/vpc/aws", "6.0.0", after, func(r *registry.ModuleVersion) { r.PublishedBy.RunURL = "" })
	s.module("acme/vpc/aws", "7.0.0", after)
	s.module("acme/vpc/aws", "8.0.0", map[string]string{"main.tf": `variable "a" { default = 1 }`})
	s.module("acme/vpc/aws", "8.1.0", map[string]string{"main.tf": `variable "a" { default = 2 }`})
	s.deprecate("acme/vpc/aws", "4.0.0", "use 5.0.0", true)
	s.deprecate("acme/vpc/aws", "5.0.0", "use 6.0.0", false)
	s.withdraw("acme/vpc/aws", "7.0.0", "it has a key")
	web := s.serve()
	for name, test := range map[string]struct {
		query  string
		status int
		parts  []string
	}{
		"one version": {"from=2.0.0&to=2.0.0", 200, []string{"No differences.", "!Swap", "!banner"}},
		"a hidden version": {
			"from=4.0.0&to=5.0.0", 200,
			[]string{"No breaking changes found.", `<option value="4.0.0" selected>4.0.0 (hidden)</option>`, "/compare/", "Swap"},
		},
		"versions with a state": {
			"from=1.0.0&to=2.0.0", 200,
			[]string{`<option value="4.0.0">4.0.0 (hidden)</option>`, ">5.0.0 (deprecated)<", "<option>6.0.0</option>", "!7.0.0"},
		},
		"only plans may change": {"from=8.0.0&to=8.1.0", 200, []string{"banner note", ">No breaking changes found.<", "> 1 may change plans."}},
		"no documentation": {
			"from=2.0.0&to=3.0.0", 200, []string{"No documentation was extracted for 3.0.0.", "!found", "!breaking"},
		},
		"the commits are of no known host": {"from=5.0.0&to=6.0.0", 200, []string{"!Compare the commits"}},
		"a withdrawn version": {"from=2.0.0&to=7.0.0", 404, []string{
			"7.0.0 was withdrawn on 7 Nov 2026.", "It has a key.", `<a href="/modules/acme/vpc/aws/versions">All 9 versions</a>`,
			`<a href="/modules/acme/vpc/aws/used-by">`, "!does not exist",
		}},
		"an unknown version":             {"from=2.0.0&to=9.0.0", 404, []string{"Not found"}},
		"no version":                     {"from=x&to=2.0.0", 404, []string{"Not found"}},
		"a withdrawn version by default": {"from=7.0.0", 404, []string{"7.0.0 was withdrawn on"}},
		"a version with markup":          {"from=%3Cb%3E&to=2.0.0", 404, []string{"!<b>"}},
	} {
		t.Run(name, func(t *testing.T) { contains(t, web.text(t, test.status, comparePath+"?"+test.query), test.parts...) })
	}
}

// A comparison makes at most two requests to the table, and reads two objects. It
// reads the stored files of the later version for the changelog.
func TestCompareReads(t *testing.T) {
	t.Parallel()
	s := vpc(t)
	s.module("acme/vpc/aws", "1.1.0", before, func(r *registry.ModuleVersion) { r.FilesZip = nil })
	web := s.serve()
	for query, want := range map[string]string{
		"":                     "Snapshot Snapshot",
		"?to=2.0.0":            "Snapshot Snapshot",
		"?from=1.0.0&to=2.0.0": "Snapshot",
		"?from=1.0.0&to=1.0.0": "Snapshot",
		"?from=2.0.0&to=1.0.0": "Snapshot",
		"?from=1.0.0&to=1.1.0": "Snapshot",
	} {
		s.table.Take()
		s.objects.reads.Store(0)
		web.text(t, http.StatusOK, comparePath+query)
		if diff := gocmp.Diff(want, s.table.Take()); diff != "" {
			t.Errorf("%q: requests (-want +got):\n%s", query, diff)
		}
		most := 2
		if strings.Contains(query, "to=2.0.0") || query == "" {
			most = 3
		}
		if reads := s.objects.reads.Load(); reads > int64(most) {
			t.Errorf("%q: %d objects, want at most %d", query, reads, most)
		}
	}
}

// Damaged documentation is treated as missing, and the log has the reason. If
// objects cannot be read at present, the page is a 503 without data.
func TestCompareFaults(t *testing.T) {
	t.Parallel()
	s := vpc(t)
	web := s.serve()
	s.objects.err = registry.ErrUnavailable
	contains(t, web.text(t, http.StatusServiceUnavailable, comparePath), "The registry cannot answer right now.", "!cidr_block")
	s.objects.err = nil
	for key := range s.objects.content {
		s.objects.content[key] = []byte("damaged")
	}
	contains(t, web.text(t, http.StatusOK, comparePath),
		"No documentation was extracted for 1.0.0.", "No documentation was extracted for 2.0.0.")
	contains(t, web.log.String(), "missing or damaged documentation")
}

// Nothing that a publisher wrote becomes markup or changes the direction of the
// page, in both forms.
func TestCompareHostile(t *testing.T) {
	t.Parallel()
	const markup = `<script>alert(1)</script><img src=x onerror=alert(2)>`
	s := newStore(t)
	s.module("acme/vpc/aws", "1.0.0", map[string]string{"main.tf": `variable "a" { default = 1 }`})
	s.module("acme/vpc/aws", "2.0.0", map[string]string{
		"main.tf": `
variable "a" {
  default     = "` + markup + "\u202e" + `"
  description = "` + markup + "\u202e```" + `"
  deprecated  = "` + markup + `"
}
output "b" {
  value       = 1
  description = "` + markup + "\u2066" + `"
}
module "c" { source = "` + markup + `" }`,
		"CHANGELOG.md": "## 2.0.0\n" + markup + "\u202e</pre></details>\n````\n<b>\n````\n",
	})
	page := s.serve().text(t, http.StatusOK, comparePath)
	contains(t, page, "!<script>alert", "!<img", "!\u202e", "!\u2066", "!<b>", "&lt;/pre&gt;",
		"&lt;script&gt;alert(1)", `<span class=bidi>\u202e</span>`)
	markdown := s.serve().text(t, http.StatusOK, comparePath+".md")
	markdown, fenced, _ := strings.Cut(markdown, "\n`````md\n")
	fenced, rest, closed := strings.Cut(fenced, "\n`````\n")
	if !closed || !strings.Contains(fenced, markup) {
		t.Fatalf("the changelog is not in a fence: %s", fenced)
	}
	for line := range strings.Lines(markdown + rest) {
		if strings.HasPrefix(line, "<") {
			t.Errorf("a line of the Markdown form: %s", line)
		}
	}
}

// Changes that are too large are cut, and many lines are folded.
func TestCompareLarge(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	long := func(n int, line string) string {
		return "variable \"a\" {\n  default = [\n" + strings.Repeat(line, n) + "  ]\n}\n"
	}
	s.module("acme/vpc/aws", "1.0.0", map[string]string{"main.tf": ""})
	s.module("acme/vpc/aws", "1.1.0", map[string]string{"main.tf": long(40, "    1,\n")})
	s.module("acme/vpc/aws", "1.2.0", map[string]string{"main.tf": long(40, `    "`+strings.Repeat("x", 500)+"\",\n")})
	web := s.serve()
	contains(t, web.text(t, http.StatusOK, comparePath+"?from=1.0.0&to=1.1.0"), "Show 42 lines", "!Cut at")
	contains(t, web.text(t, http.StatusOK, comparePath+"?from=1.0.0&to=1.2.0"), "Cut at 16 KiB.")
}

// An input or an output with a new name is one change, with links to both. The
// requirements of a submodule that changed like those of the root are not repeated.
func TestCompareRenamed(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.module("acme/vpc/aws", "1.0.0", map[string]string{
		"main.tf": `
terraform {
  required_version = ">= 1.5"
  required_providers {
    aws = {
      source                = "hashicorp/aws"
      version               = ">= 5.0"
      configuration_aliases = [aws.east]
    }
  }
}
variable "cluster_name" { default = "" }
output "vpc_arn" { value = 1 }
resource "aws_vpc" "main_vpc" {}`,
		"modules/a/main.tf": "terraform {\n  required_version = \">= 1.5\"\n}\nvariable \"a_name\" {}",
		"modules/b/main.tf": "terraform {\n  required_version = \">= 1.5\"\n}\n",
		"modules/c/main.tf": "variable \"a_name\" {}",
	})
	s.module("acme/vpc/aws", "2.0.0", map[string]string{
		"main.tf": `
terraform {
  required_version = ">= 1.9"
  required_providers {
    aws    = { source = "hashicorp/aws", version = ">= 6.0.0-beta1" }
    random = { source = "hashicorp/random", version = "~> 3.5", configuration_aliases = [random.a] }
    null   = { source = "hashicorp/null" }
  }
}
variable "name" { default = "" }
output "arn" { value = 1 }
resource "aws_vpc" "vpc" {}`,
		"modules/a/main.tf": "terraform {\n  required_version = \">= 1.9\"\n}\nvariable \"name\" {}",
		"modules/b/main.tf": "terraform {\n  required_version = \">= 1.9\"\n}\n",
		"modules/c/main.tf": "variable \"name\" {}",
		"CHANGELOG.md":      "# Changelog\n\n## [2.0.0] - 2026-01-02\n\n- **Breaking:** `cluster_name` is `name`.\n\n## [1.0.0]\n\n- First.\n",
	})
	web := s.serve()
	golden.Equal(t, "testdata/compare-renamed.html", []byte(mainOf(web.text(t, http.StatusOK, comparePath))))
	golden.Equal(t, "testdata/compare-renamed.md", []byte(web.text(t, http.StatusOK, comparePath+".md")))
	contains(t, web.text(t, http.StatusOK, "/modules/acme/vpc/aws/1.0.0"), "id=input-cluster_name", `id="output-vpc_arn"`)
	contains(t, web.text(t, http.StatusOK, "/modules/acme/vpc/aws/2.0.0/modules/a"), "id=input-name")
	contains(t, web.text(t, http.StatusOK, "/modules/acme/vpc/aws/2.0.0/files/CHANGELOG.md"), "<span id=L3>")
	contains(t, web.text(t, http.StatusOK, comparePath+"?from=2.0.0&to=1.0.0"), "!Changelog")
}

// A submodule with the same changes as another one only names it. The entries that
// did not change do not matter.
func TestCompareSubmodules(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	for version, text := range map[string]string{"1.0.0": "", "2.0.0": "variable \"a\" {}\n"} {
		s.module("acme/vpc/aws", version, map[string]string{
			"main.tf": "", "modules/a/main.tf": text, "modules/b/main.tf": text + `variable "b" {}`,
			"modules/c/main.tf": strings.ReplaceAll(text, "{}", "{ type = string }"),
			"modules/d/main.tf": text + `output "a" { value = 1 }`,
		})
	}
	page := s.serve().text(t, http.StatusOK, comparePath)
	contains(t, page, `<h2>Submodule <code>modules/a<`, "!<h2>Submodule <code>modules/b<", "<h2>Submodule <code>modules/c<")
	if got := strings.Count(page, "The changes are the same as in modules/a."); got != 2 {
		t.Errorf("%d submodules name modules/a, want 2", got)
	}
}

// A long changelog is closed.
func TestCompareLongChangelog(t *testing.T) {
	t.Parallel()
	for lines, want := range map[int]string{14: `<details class="more" open><summary>Changelog`, 15: `<details class="more"><summary>Changelog`} {
		s := newStore(t)
		s.module("acme/vpc/aws", "1.0.0", nil)
		s.module("acme/vpc/aws", "2.0.0", map[string]string{"main.tf": "", "CHANGELOG.md": "## 2.0.0\n" + strings.Repeat("- a\n", lines)})
		contains(t, s.serve().text(t, http.StatusOK, comparePath), want)
	}
}

// A damaged changelog is left out, and the log has the reason.
func TestCompareWithoutChangelog(t *testing.T) {
	t.Parallel()
	s := vpc(t)
	web := s.serve()
	for key := range s.objects.content {
		if strings.HasSuffix(key, "/"+registry.FilesName) {
			s.objects.content[key] = []byte("damaged")
		}
	}
	contains(t, web.text(t, http.StatusOK, comparePath), "cidr_block", "!Changelog")
	contains(t, web.log.String(), "changelog of module acme/vpc/aws 2.0.0: missing or damaged documentation")
}
