package web_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// rowIDs matches what a page has of its inputs, in order: the IDs of rows, and the
// titles of groups.
var rowIDs = regexp.MustCompile(`<tr\srole="?row"? (?:class="group sub" )?id="?([^">]*)"?>|class="group"><th[^>]*>(\w+)`)

// outlineOf returns the inputs of a page, with the titles above them.
func outlineOf(page string) (outline []string) {
	_, page, _ = strings.Cut(page, `<section id="inputs"`)
	page, _, _ = strings.Cut(page, "</section>")
	for _, m := range rowIDs.FindAllStringSubmatch(page, -1) {
		outline = append(outline, m[1]+m[2])
	}
	return outline
}

// variables returns optional inputs with a prefix, the last one first.
func variables(prefix string, n int) string {
	text := ""
	for i := range n {
		text += fmt.Sprintf("variable \"%s_%02d\" {\n  default = 1\n}\n", prefix, n-1-i)
	}
	return text
}

// Optional inputs are in the groups and the order of their author, or from A to Z.
func TestInputGroups(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	network := "variable \"region\" {}\n### Network ###\n\n" + variables("n", 2) + "### <b> ###\n\n" + variables("b", 3)
	s.module("acme/one/aws", "1.0.0", map[string]string{"main.tf": network + "### Network ###\n\n" + variables("o", 16)})
	s.module("acme/files/aws", "1.0.0", map[string]string{"b.tf": network, "a.tf": variables("a", 16)})
	s.module("acme/few/aws", "1.0.0", map[string]string{"b.tf": network, "a.tf": variables("a", 14)})
	s.module("acme/same/aws", "1.0.0", map[string]string{"main.tf": "### Network ###\n\n" + variables("n", 30)})
	single := ""
	for i := range 30 {
		single += fmt.Sprintf("# Name %d\n\n%s", i, variables(fmt.Sprint("x", i), 1))
	}
	s.module("acme/many/aws", "1.0.0", map[string]string{"main.tf": single})
	pages := s.serve()
	numbered := func(prefix string, n int, up bool) (ids string) {
		for i := range n {
			if !up {
				i = n - 1 - i
			}
			ids += fmt.Sprintf(" input-%s_%02d", prefix, i)
		}
		return ids
	}
	const required = "Required input-region Optional"
	byAuthor := "In the author's groups."
	for path, test := range map[string]struct{ outline, view string }{
		"one/aws": {required + " inputs-network" + numbered("n", 2, false) + numbered("o", 16, false) +
			" inputs-b" + numbered("b", 3, false), byAuthor},
		"one/aws?inputs=a-z": {required + numbered("b", 3, true) + numbered("n", 2, true) + numbered("o", 16, true),
			"From A to Z."},
		"files/aws/1.0.0": {required + " inputs-a-tf" + numbered("a", 16, false) + " inputs-network" +
			numbered("n", 2, false) + " inputs-b" + numbered("b", 3, false), byAuthor},
		"few/aws":             {required + numbered("a", 14, true) + numbered("b", 3, true) + numbered("n", 2, true), ""},
		"same/aws?inputs=a-z": {"Optional" + numbered("n", 30, true), ""},
	} {
		page := pages.text(t, http.StatusOK, "/modules/acme/"+path)
		if diff := cmp.Diff(test.outline, strings.Join(outlineOf(page), " ")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
		for _, view := range []string{byAuthor, "From A to Z."} {
			if got := strings.Contains(page, view); got != (view == test.view) {
				t.Errorf("%s has the view %q: %t", path, view, got)
			}
		}
	}
	if page := pages.text(t, http.StatusOK, "/modules/acme/many/aws"); strings.Contains(page, "inputs=a-z") {
		t.Error("a page has as many groups as inputs")
	}
	one := pages.text(t, http.StatusOK, "/modules/acme/one/aws")
	for _, want := range []string{
		`href="/modules/acme/one/aws?inputs=a-z#inputs"`, `<a href="#inputs-b">&lt;b&gt;</a>`,
		`<input class="filter" type="search" placeholder="Filter inputs" aria-label="Filter inputs" autocomplete="off" hidden>`,
	} {
		if !strings.Contains(one, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if strings.Contains(pages.text(t, http.StatusOK, "/modules/acme/few/aws"), `class="filter"`) {
		t.Error("a page of few inputs has a filter")
	}
}
