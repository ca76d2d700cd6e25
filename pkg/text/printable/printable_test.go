package printable_test

import (
	"strings"
	"testing"

	"github.com/larder-registry/larder/pkg/text/printable"
)

func TestReplacing(t *testing.T) {
	t.Parallel()
	const enough = 1000
	for _, test := range []struct{ text, mark, line, remove, escape string }{
		{"", "", "", "", ""},
		{"Zoë’s, 漢字 +1 €", "Zoë’s, 漢字 +1 €", "Zoë’s, 漢字 +1 €", "Zoë’s, 漢字 +1 €", "Zoë’s, 漢字 +1 €"},
		{"a\r\n\tb", "a\ufffd\ufffd\ufffdb", "a   b", "ab", `a\r\n\tb`},
		{"a\u00a0b", "a\ufffdb", "a b", "ab", `a\u00a0b`},
		{" \n a ", " \ufffd a ", "   a ", "a", ` \n a `},
		{"\x1b[31m", "\ufffd[31m", "\ufffd[31m", "[31m", `\x1b[31m`},
		{"\x00\x7f\u009b", "\ufffd\ufffd\ufffd", "\ufffd\ufffd\ufffd", "", `\x00\x7f\u009b`},
		{"\u200b\u202e\U0010ffff", "\ufffd\ufffd\ufffd", "\ufffd\ufffd\ufffd", "", `\u200b\u202e\U0010ffff`},
		{"a\xffb", "a\ufffdb", "a\ufffdb", "a\ufffdb", "a\ufffdb"},
		{`"'\`, `"'\`, `"'\`, `"'\`, `"'\`},
	} {
		if got := printable.Mark(test.text, enough); got != test.mark {
			t.Errorf("Mark(%q) = %q, want %q", test.text, got, test.mark)
		}
		if got := printable.Line(test.text, enough); got != test.line {
			t.Errorf("Line(%q) = %q, want %q", test.text, got, test.line)
		}
		if got := printable.Remove(test.text, enough); got != test.remove {
			t.Errorf("Remove(%q) = %q, want %q", test.text, got, test.remove)
		}
		if got := printable.Escape(test.text); got != test.escape {
			t.Errorf("Escape(%q) = %q, want %q", test.text, got, test.escape)
		}
	}
}

func TestCutting(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		cut  func(string, int) string
		text string
		max  int
		want string
	}{
		"Mark, nothing":        {printable.Mark, "", 0, ""},
		"Mark, all":            {printable.Mark, "äöü", 3, "äöü"},
		"Mark, one more":       {printable.Mark, "äöüß", 3, "äöü…"},
		"Mark, marks":          {printable.Mark, "\x00\x00", 1, "\ufffd…"},
		"Mark, none":           {printable.Mark, "a", 0, "…"},
		"Line, nothing":        {printable.Line, "", 0, ""},
		"Line, all":            {printable.Line, "abc", 3, "abc"},
		"Line, one more":       {printable.Line, "abcd", 3, "abc…"},
		"Line, within a rune":  {printable.Line, "äö", 3, "ä…"},
		"Line, all runes":      {printable.Line, "äö", 4, "äö"},
		"Line, a mark":         {printable.Line, "\xff", 3, "\ufffd"},
		"Line, half a mark":    {printable.Line, "\xff", 2, "…"},
		"Line, spaces":         {printable.Line, "a\r\n\tb\u00a0c", 9, "a   b c"},
		"Line, marks":          {printable.Line, "a\x00b\x7f", 9, "a\ufffdb\ufffd"},
		"Line, long marks":     {printable.Line, "\u200b\U0010ffff", 9, "\ufffd\ufffd"},
		"Remove, all":          {printable.Remove, "abcd", 4, "abcd"},
		"Remove, one more":     {printable.Remove, "abcde", 4, "a…"},
		"Remove, within runes": {printable.Remove, "aäöü", 6, "aä…"},
		"Remove, unprintable":  {printable.Remove, " a\x00bcd\n", 4, "abcd"},
	} {
		if got := test.cut(test.text, test.max); got != test.want {
			t.Errorf("%s: %q to %d: %q, want %q", name, test.text, test.max, got, test.want)
		}
	}
	if got := printable.Remove(strings.Repeat("é", 200), 256); len(got) > 256 {
		t.Errorf("%d bytes remain of at most 256", len(got))
	}
}

func TestIs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"": true, "use 2.0.0": true, "Zoë’s 漢字": true, "\ufffd": true,
		"a\nb": false, "a\tb": false, "a\u00a0b": false, "\x1b[31m": false, "\u202e": false, "a\xff": false,
	} {
		if got := printable.Is(text); got != want {
			t.Errorf("Is(%q) = %t", text, got)
		}
	}
}
