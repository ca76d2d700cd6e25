// Package terms splits text into words, as searches compare them.
package terms

import (
	"iter"
	"strings"
	"unicode"
)

// Of returns the words of a text in lower case. Everything but letters and
// digits separates them.
func Of(text string) iter.Seq[string] {
	return strings.FieldsFuncSeq(strings.ToLower(text), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
}

// IsCommon reports whether a word is so common that it finds nothing.
func IsCommon(word string) bool { return common[word] }

var common = func() map[string]bool {
	all := make(map[string]bool)
	for word := range strings.FieldsSeq("a all an and are as at be by can for from how i if in is it its of on or " +
		"our set that the this to use used using we when which will with you your") {
		all[word] = true
	}
	return all
}()
