package web

import (
	"html"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	highlight "github.com/larder-registry/larder/pkg/docs/highlight"
)

func TestSplitLines(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		code string
		want []string
	}{
		"empty":    {"", []string{""}},
		"one line": {`<span class=ty>string</span>`, []string{`<span class=ty>string</span>`}},
		"an element in each line": {
			"a <span class=ty>b</span>\nc &lt;", []string{`a <span class=ty>b</span>`, "c &lt;"},
		},
		"an element that crosses lines": {
			"<span class=comment>/* a\nb */</span>x",
			[]string{`<span class=comment>/* a</span>`, `<span class=comment>b */</span>x`},
		},
		"two elements that cross lines": {
			"<span class=str>a<span class=bidi>b\nc</span>d\n</span>e",
			[]string{
				`<span class=str>a<span class=bidi>b</span></span>`,
				`<span class=str><span class=bidi>c</span>d</span>`, `<span class=str></span>e`,
			},
		},
		"an end without a beginning": {"a</span>b", []string{"ab"}},
		"an element without an end":  {"<span class=str>a", []string{`<span class=str>a</span>`}},
		"an open tag":                {"a<span", []string{`a<span></span>`}},
	} {
		if diff := cmp.Diff(test.want, splitLines(test.code)); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", name, diff)
		}
	}
}

// Each line of highlighted code is complete, and the lines together have its
// text.
func FuzzSplitLines(f *testing.F) {
	f.Add("/* a\n b */ list(string) # x\n")
	f.Add("<<EOT\n${a}\n<b>\u202e\nEOT\n")
	f.Add("object({\n  a = optional(string, \"x\\ny\")\n})")
	f.Fuzz(func(t *testing.T, source string) {
		code := highlight.Code("hcl", source)
		lines := splitLines(code)
		var text []string
		for _, line := range lines {
			if strings.Count(line, "<span") != strings.Count(line, "</span>") {
				t.Errorf("a line is not complete: %q", line)
			}
			text = append(text, textOfHTML(line))
		}
		if diff := cmp.Diff(textOfHTML(code), strings.Join(text, "\n")); diff != "" {
			t.Errorf("the lines have another text (-want +got):\n%s", diff)
		}
	})
}

// diffOf returns the signs and the texts of compared lines.
func diffOf(before, after string) (lines []string) {
	for _, line := range compareLines(splitLines(before), splitLines(after)) {
		lines = append(lines, line.Sign+" "+line.Text)
	}
	return lines
}

func TestCompareLines(t *testing.T) {
	t.Parallel()
	ten := strings.Repeat("x\n", 10)
	for name, test := range map[string]struct {
		before, after string
		want          []string
	}{
		"a line":        {"string = 1", "string = 2", []string{"- string = 1", "+ string = 2"}},
		"an added line": {"a\nc", "a\nb\nc", []string{" a", "+ b", " c"}},
		"other space before an equal sign": {
			"a = 1\nb = 2", "a   = 1\nb   = 2\nlong = 3", []string{" a   = 1", " b   = 2", "+ long = 3"},
		},
		"only other space":  {`"a b"`, `"a  b"`, []string{`- "a b"`, `+ "a  b"`}},
		"far from a change": {ten + "a", ten + "b", []string{"… 7 lines without changes", " x", " x", " x", "- a", "+ b"}},
	} {
		got := diffOf(test.before, test.after)
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// The removed and the unchanged lines are the first text, and the added and the
// unchanged ones are the second.
func FuzzCompareLines(f *testing.F) {
	f.Add("a\nb\nc", "a\nc\nd")
	f.Add("a b", "a  b")
	f.Fuzz(func(t *testing.T, before, after string) {
		was, is := strings.Split(html.EscapeString(before), "\n"), strings.Split(html.EscapeString(after), "\n")
		if len(was) > 50 || len(is) > 50 {
			return
		}
		var old, current []string
		for _, line := range compareBy(was, is, textOfHTML) {
			if line.Sign != "+" {
				old = append(old, string(line.HTML))
			}
			if line.Sign != "-" {
				current = append(current, string(line.HTML))
			}
		}
		if diff := cmp.Diff(was, old); diff != "" {
			t.Errorf("the first text (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(is, current); diff != "" {
			t.Errorf("the second text (-want +got):\n%s", diff)
		}
	})
}

// Text in a block of Markdown cannot end it.
func TestDiffMarkdown(t *testing.T) {
	t.Parallel()
	got := diff([]codeLine{{Sign: "+", Text: "a ```` b"}, {Text: "c"}})
	if diff := cmp.Diff("  `````diff\n  + a ```` b\n    c\n  `````", got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
