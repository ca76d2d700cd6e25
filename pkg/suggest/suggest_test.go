package suggest_test

import (
	"testing"

	"github.com/larder-registry/larder/pkg/suggest"
)

// A mistyped word is near to the one that was meant, and other words are not.
func TestNearest(t *testing.T) {
	t.Parallel()
	words := []string{"list", "lint", "publish", "token", "a"}
	for word, want := range map[string]string{
		"lsit":    "list", // two letters that changed places
		"LIST":    "list",
		"lis":     "list",
		"lit":     "list", // as near as lint, and first
		"pubilsh": "publish",
		"tokens":  "token",
		"A":       "a",
		"b":       "", // no letter of it is left
		"x":       "",
		"serve":   "",
		"":        "",
	} {
		got, found := suggest.Nearest(word, words)
		if got != want || found != (want != "") {
			t.Errorf("%q: %q, %t; want %q", word, got, found, want)
		}
	}
	// Two letters that changed places are one mistake, and two other ones are two.
	if got, _ := suggest.Nearest("lsit", []string{"init", "list"}); got != "list" {
		t.Errorf("lsit: %q", got)
	}
	if got, found := suggest.Nearest("list", nil); found {
		t.Errorf("of no words: %q", got)
	}
}
