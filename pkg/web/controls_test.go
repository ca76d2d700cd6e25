package web_test

import (
	"net/http"
	"strings"
	"testing"
	"unicode"
)

// Markdown is often shown in a terminal, which a control character can steer.
func TestMarkdownHasNoControlCharacters(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	const hostile = "\x1b]0;title\a\u009b31m\u202e"
	for _, version := range []string{"1.0.0", "1.1.0"} {
		s.module("acme/vpc/aws", version, map[string]string{
			"README.md": "# vpc\n\nText " + hostile + " after " + version,
			"main.tf": "variable \"name\" {\n  default = \"\u009b31m" + version + "\"\n  type = string # " + hostile + "\n}\n" +
				"variable \"other\" {\n  type = list(string # " + hostile + version + "\n  )\n" +
				"  description = \"\\u001b[31m\"\n}\n",
		})
	}
	for _, path := range []string{"/modules/acme/vpc/aws.md", "/modules/acme/vpc/aws/compare.md?from=1.0.0&to=1.1.0"} {
		text := s.serve().text(t, http.StatusOK, path)
		if !strings.Contains(text, "1.1.0") {
			t.Errorf("%s: the page lacks the version:\n%s", path, text)
		}
		for i, r := range text {
			if unicode.IsControl(r) && r != '\n' && r != '\t' || r == '\u202e' {
				t.Errorf("%s: character %U in %q", path, r, text[max(0, i-20):min(len(text), i+20)])
			}
		}
	}
}
