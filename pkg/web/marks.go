package web

import (
	"html"
	"html/template"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/docs/highlight"
)

// marked is like textOf, with marks around the words of a search. The words are
// in lower case. It marks words with one separator between them as one.
func marked(text string, words []string) template.HTML {
	text = highlight.Visible(text)
	var out strings.Builder
	at := 0
	for _, r := range ranges(text, words) {
		out.WriteString(html.EscapeString(text[at:r.start]))
		out.WriteString("<mark>" + html.EscapeString(text[r.start:r.end]) + "</mark>")
		at = r.end
	}
	out.WriteString(html.EscapeString(text[at:]))
	return isolated(out.String())
}

// span is a part of a text.
type span struct{ start, end int }

// ranges returns the parts of a text that are one of the words, in order and
// without overlap.
func ranges(text string, words []string) []span {
	lower := strings.ToLower(text)
	if len(lower) != len(text) {
		return nil // the positions differ
	}
	var found []span
	for _, word := range words {
		for at := 0; word != ""; {
			i := strings.Index(lower[at:], word)
			if i < 0 {
				break
			}
			found = append(found, span{at + i, at + i + len(word)})
			at += i + len(word)
		}
	}
	slices.SortFunc(found, func(a, b span) int { return a.start - b.start })
	var joined []span
	for _, r := range found {
		last := len(joined) - 1
		if last >= 0 && (r.start <= joined[last].end || strings.Trim(text[joined[last].end:r.start], " -_./") == "" &&
			r.start-joined[last].end == 1) {
			joined[last].end = max(joined[last].end, r.end)
			continue
		}
		joined = append(joined, r)
	}
	return joined
}
