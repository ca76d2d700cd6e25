package arguments

import (
	"fmt"
	"strings"
	"unicode"
)

// InError quotes a word for an error text, with a space before it. It returns
// an empty string if the word may contain a password.
func InError(word string) string {
	if strings.ContainsAny(word, "@?#") {
		return ""
	}
	return fmt.Sprintf(" %.200q", word)
}

// UsageError is an error in the command line. The exit code is 2.
type UsageError struct{ error }

func (e UsageError) Unwrap() error { return e.error }

// Wrong returns an error as an error in the command line.
func Wrong(err error) error { return UsageError{err} }

// Errorf returns an error in the command line.
func Errorf(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// Quoted returns a word, in quotes if a shell needs them.
func Quoted(s string) string {
	if s == "" || strings.ContainsFunc(s, func(r rune) bool {
		return !strings.ContainsRune("/._-:", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}) {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	return s
}
