// Package suggest finds the word that is nearest to a mistyped one.
package suggest

import (
	"strings"
	"unicode/utf8"
)

// Nearest returns the first of the words that are nearest to a word, or false
// if none is near. The distance is the number of characters to add, remove,
// replace, or swap with the next one, ignoring case. Words are near up to a
// distance of one, plus one for every four characters after the first.
func Nearest(word string, words []string) (string, bool) {
	typed := []rune(strings.ToLower(word))
	length := len(typed)
	// A word of which no character is left is a different word.
	most := min(1+(length-1)/4, length-1)
	nearest, found := "", false
	for _, candidate := range words {
		other := strings.ToLower(candidate)
		if isFar(typed, other, most) {
			continue
		}
		if d := distance(typed, []rune(other)); d <= most {
			nearest, found, most = candidate, true, d-1
		}
	}
	return nearest, found
}

// Similar returns the first of the words that differs from a word only in case. If
// there is none, it returns the first that differs by one character, which is
// added, removed, replaced, or swapped with the next one.
func Similar(word string, words []string) (string, bool) {
	for _, candidate := range words {
		if candidate != word && strings.EqualFold(candidate, word) {
			return candidate, true
		}
	}
	typed := []rune(word)
	for _, candidate := range words {
		other := []rune(candidate)
		if added := len(other) - len(typed); -1 <= added && added <= 1 && distance(typed, other) == 1 {
			return candidate, true
		}
	}
	return "", false
}

// isFar reports whether the characters of two words differ so much, in any
// order, that the distance exceeds most. Among many words, that saves most of
// the time.
func isFar(a []rune, b string, most int) bool {
	if len(b) > utf8.UTFMax*(len(a)+most) || len(b)+most < len(a) {
		return true
	}
	var counts [64]int
	for _, r := range a {
		counts[r%64]++
	}
	for _, r := range b {
		counts[r%64]--
	}
	onlyA, onlyB := 0, 0
	for _, n := range counts {
		onlyA, onlyB = onlyA+max(n, 0), onlyB-min(n, 0)
	}
	return max(onlyA, onlyB) > most
}

// distance returns the number of characters to add, remove, replace, or swap
// with the next one, to turn a into b.
func distance(a, b []rune) int {
	// d[i][j] is the distance between the first i characters of a and j of b.
	d := make([][]int, len(a)+1)
	for i := range d {
		d[i] = make([]int, len(b)+1)
		d[i][0] = i
	}
	for j := range d[0] {
		d[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			replaced := d[i-1][j-1]
			if a[i-1] != b[j-1] {
				replaced++
			}
			d[i][j] = min(d[i-1][j]+1, d[i][j-1]+1, replaced)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d[i][j] = min(d[i][j], d[i-2][j-2]+1)
			}
		}
	}
	return d[len(a)][len(b)]
}
