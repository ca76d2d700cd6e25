package changelog_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/docs/changelog"
	"github.com/larder-registry/larder/pkg/registry"
)

func version(t testing.TB, text string) registry.Version {
	t.Helper()
	v, err := registry.ParseVersion(text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Each changelog has the versions 1.1.0 to 2.0.0, and the part from 1.1.0 to
// 2.0.0 is expected.
func TestBetween(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		text string
		line int
		want string
	}{
		"release-please": {
			"# Changelog\n\n" +
				"## [2.1.0](https://example.com/compare/v2.0.0...v2.1.0) (2026-01-03)\n\n### Features\n\n* c\n\n" +
				"## [2.0.0](https://example.com/compare/v1.2.0...v2.0.0) (2026-01-02)\n\n### ⚠ BREAKING CHANGES\n\n* b\n\n" +
				"### [1.2.0](https://example.com/compare/v1.1.0...v1.2.0) (2026-01-02)\n\n### Bug Fixes\n\n* a\n\n" +
				"### [1.1.0](https://example.com/compare/v1.0.0...v1.1.0) (2026-01-01)\n\n* old\n",
			9,
			"## [2.0.0](https://example.com/compare/v1.2.0...v2.0.0) (2026-01-02)\n\n### ⚠ BREAKING CHANGES\n\n* b\n\n" +
				"### [1.2.0](https://example.com/compare/v1.1.0...v1.2.0) (2026-01-02)\n\n### Bug Fixes\n\n* a",
		},
		"keep a changelog": {
			"# Changelog\n## [Unreleased]\n- next\n## [2.0.0] - 2026-01-02\n### Added\n- b\n## [1.1.0] - 2026-01-01\n- old\n\n" +
				"[Unreleased]: https://example.com\n[2.0.0]: https://example.com\n",
			4, "## [2.0.0] - 2026-01-02\n### Added\n- b",
		},
		"plain":        {"## 2.0.0\nb\n## 1.2\na\n## 1.1.0\nold\n", 1, "## 2.0.0\nb\n## 1.2\na"},
		"with a v":     {"# v2.0.0\nb\n# v1.1.0\nold\n", 1, "# v2.0.0\nb"},
		"with a date":  {"### 2.0.0 / 2020\nb\n### 1.1.0 / 2019-01-01\nold\n", 1, "### 2.0.0 / 2020\nb"},
		"with a word":  {"## Version 2.0.0\nb\n## Release v1.1.0\nold\n", 1, "## Version 2.0.0\nb"},
		"bold":         {"## **2.0.0** (now)\nb\n## `1.1.0`\nold\n", 1, "## **2.0.0** (now)\nb"},
		"underlined":   {"2.0.0 / 2020-01-02\n==================\nb\n\n1.1.0\n-----\nold\n", 1, "2.0.0 / 2020-01-02\n==================\nb"},
		"pre-releases": {"## 2.0.0\nb\n## 2.0.0-rc.1\nc\n## 1.1.0\n", 1, "## 2.0.0\nb\n## 2.0.0-rc.1\nc"},
		"oldest first": {"## 1.1.0\nold\n## 1.2.0\na\n## 2.0.0\nb\n## 2.1.0\nc\n", 3, "## 1.2.0\na\n## 2.0.0\nb"},
		"any order":    {"## 2.0.0\nb\n## 2.1.0\nc\n## 1.2.0\na\n", 1, "## 2.0.0\nb\n## 1.2.0\na"},
		"links at the end": {
			"## 2.0.0\nb [1]\n\n[1]: https://example.com/1\n\n[2]: https://example.com/2\n", 1, "## 2.0.0\nb [1]",
		},
		"an end with a higher heading": {"## 2.0.0\nb\n# Older\nold\n", 1, "## 2.0.0\nb"},
		"code":                         {"## 2.0.0\n```sh\n# 1.1.0\n```\nb\n## 1.1.0\nold\n", 1, "## 2.0.0\n```sh\n# 1.1.0\n```\nb"},
		"other numbers":                {"## 2.0.0\n### 5.0 and later of aws\nb\n### See 1.1.0\n", 1, "## 2.0.0\n### 5.0 and later of aws\nb\n### See 1.1.0"},
		"a deep version":               {"## 2.0.0\n#### 6.0 migration\nb\n#### 6.1\nc\n## 1.1.0\nold\n", 1, "## 2.0.0\n#### 6.0 migration\nb\n#### 6.1\nc"},
		"a deep version before":        {"## 3.0.0\n### 1.2.0 migration\nc\n## 2.0.0\nb\n", 4, "## 2.0.0\nb"},
		"patches": {
			"## 2.0.0\nb\n### [1.1.0](https://example.com/a...b) (2026-01-01)\nold\n### 1.2.0 / 2 Jan 2026\na\n#### v1.0.0\n", 1,
			"## 2.0.0\nb\n### 1.2.0 / 2 Jan 2026\na",
		},
		"deeper after a higher heading": {"## 2.0.0\nb\n# Older\nold\n#### 1.2.0 (beta)\na\n", 1, "## 2.0.0\nb\n#### 1.2.0 (beta)\na"},
		"Windows":                       {"## 2.0.0\r\nb\r\n## 1.1.0\r\nold\r\n", 1, "## 2.0.0\nb"},
		"controls":                      {"## 2.0.0\nb\u202e\x1b[31m\x00c\n", 1, "## 2.0.0\nb[31mc"},
		"only others":                   {"## 3.0.0\nc\n## 1.1.0\nold\n", 0, ""},
		"no versions":                   {"# Changelog\n\nSee the releases.\n", 0, ""},
		"empty":                         {"", 0, ""},
		"a date":                        {"## 2020-01-02\nb\n## 2020.01.02\nc\n", 0, ""},
		"too large a number":            {"## 99999999999999999999.0.0\nb\n", 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, found := changelog.Between(test.text, version(t, "1.1.0"), version(t, "2.0.0"))
			if diff := cmp.Diff(test.want, p.Text); diff != "" {
				t.Errorf("the text (-want +got):\n%s", diff)
			}
			if p.Line != test.line {
				t.Errorf("it begins in line %d, want %d", p.Line, test.line)
			}
			if found != (test.want != "") {
				t.Errorf("it is found: %t", found)
			}
		})
	}
}

// A part ends with a complete line, unless its first line is too long.
func TestCut(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"lines": "## 2.0.0\n" + strings.Repeat("é\n", changelog.MaxSize), "line": "## 2.0.0 " + strings.Repeat("é", changelog.MaxSize),
	} {
		p, _ := changelog.Between(text, version(t, "1.0.0"), version(t, "2.0.0"))
		if !p.Cut {
			t.Errorf("%s: the text is not cut", name)
		}
		if len(p.Text) > changelog.MaxSize || len(p.Text) < changelog.MaxSize-10 {
			t.Errorf("%s: the text has %d bytes", name, len(p.Text))
		}
		if !utf8.ValidString(p.Text) {
			t.Errorf("%s: the text is cut in a character", name)
		}
	}
}

func TestPlain(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"## [2.0.0](https://example.com/a...b) (2026-01-02)":               "## 2.0.0 (2026-01-02)",
		"* a ([#1](https://example.com/1)) ([2f](http://example.com/2))":   "* a (#1) (2f)",
		"* [a](docs/a.md), [b] (https://example.com), [c](javascript:d())": "* [a](docs/a.md), [b] (https://example.com), [c](javascript:d())",
		"a\n\nb\n\n\t\n\nc": "a\n\nb\n\nc",
		"[[a]](https://example.com) [b\nc](https://example.com)": "[[a]](https://example.com) [b\nc](https://example.com)",
	} {
		if diff := cmp.Diff(want, changelog.Part{Text: text}.Plain()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	file := func(path string) docs.SourceFile { return docs.SourceFile{Path: path, Kind: docs.FileText} }
	for name, test := range map[string]struct {
		files []docs.SourceFile
		want  string
	}{
		"none":        {[]docs.SourceFile{file("README.md"), file("modules/a/CHANGELOG.md")}, ""},
		"upper case":  {[]docs.SourceFile{file("CHANGELOG.md"), file("HISTORY.md")}, "CHANGELOG.md"},
		"lower case":  {[]docs.SourceFile{file("History.md"), file("changelog.md")}, "changelog.md"},
		"history":     {[]docs.SourceFile{file("HISTORY.md")}, "HISTORY.md"},
		"only listed": {[]docs.SourceFile{{Path: "CHANGELOG.md", Kind: docs.FileOther}}, ""},
	} {
		if got := changelog.Find(test.files); got != test.want {
			t.Errorf("%s: it is %q, want %q", name, got, test.want)
		}
	}
}

// A part is small, has no control characters, and begins in a line of the text.
func FuzzBetween(f *testing.F) {
	f.Add("# Changelog\n\n## [2.0.0](x) (2026-01-02)\n* a\n\n## 1.1.0\n", "1.0.0", "2.0.0")
	f.Add("2.0.0\n=====\n~~~\n## 1.0.0\n~~~~\n[a]: b\n", "0.1.0-rc.1", "2.0.0+1")
	f.Add("```\n## 1.0.0\n", "0.0.0", "1.0.0")
	f.Fuzz(func(t *testing.T, text, from, to string) {
		earlier, err := registry.ParseVersion(from)
		later, failed := registry.ParseVersion(to)
		if err != nil || failed != nil {
			return
		}
		p, found := changelog.Between(text, earlier, later)
		if len(p.Text) > changelog.MaxSize {
			t.Errorf("the text has %d bytes", len(p.Text))
		}
		if strings.ContainsAny(p.Text, "\x00\r\x1b\u202e") || !utf8.ValidString(p.Text) {
			t.Errorf("the text has control characters: %q", p.Text)
		}
		if found && (p.Line < 1 || p.Line > strings.Count(text, "\n")+1) {
			t.Errorf("it begins in line %d", p.Line)
		}
	})
}
