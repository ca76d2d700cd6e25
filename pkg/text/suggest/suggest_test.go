package suggest_test

import (
	"testing"

	"github.com/larder-registry/larder/pkg/text/suggest"
)

// Nearest finds the intended word for a mistyped one, and nothing for other
// words.
func TestNearest(t *testing.T) {
	t.Parallel()
	words := []string{"list", "lint", "publish", "token", "a", "store"}
	for word, want := range map[string]string{
		"lsit":    "list", // two swapped letters
		"LIST":    "list",
		"lis":     "list",
		"lit":     "list", // as near as lint, but first
		"pubilsh": "publish",
		"tokens":  "token",
		"A":       "a",
		"b":       "", // none of its letters is left
		"x":       "",
		"stoer":   "store",
		"sort":    "", // two of four letters
		"serve":   "",
		"":        "",
	} {
		got, found := suggest.Nearest(word, words)
		if got != want || found != (want != "") {
			t.Errorf("%q: %q, %t; want %q", word, got, found, want)
		}
	}
	// Two swapped letters are one mistake. Two wrong letters are two mistakes.
	if got, _ := suggest.Nearest("lsit", []string{"init", "list"}); got != "list" {
		t.Errorf("lsit: %q", got)
	}
	if got, found := suggest.Nearest("list", nil); found {
		t.Errorf("without words: %q", got)
	}
}

// Similar finds words that differ only in case, or by one character.
func TestSimilar(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		word  string
		words []string
		want  string
	}{
		{"acme", nil, ""},
		{"acme", []string{"acme"}, ""}, // the same word
		{"acme", []string{"acme", "ACME"}, "ACME"},
		{"acme", []string{"acm", "acmE"}, "acmE"},
		{"acme", []string{"other", "acm", "cme"}, "acm"},
		{"acme", []string{"acmes"}, "acmes"},
		{"acme", []string{"acmé"}, "acmé"}, // two bytes
		{"acme", []string{"amce"}, "amce"},
		{"acme", []string{"xcme"}, "xcme"},
		{"acme", []string{"xacm", "amec", "acmess", "ac", ""}, ""},
		{"acme", []string{"ACMES"}, ""}, // both
		{"a", []string{"b", ""}, "b"},
	} {
		got, found := suggest.Similar(test.word, test.words)
		if got != test.want || found != (test.want != "") {
			t.Errorf("%q of %q: %q, %t; want %q", test.word, test.words, got, found, test.want)
		}
	}
}
