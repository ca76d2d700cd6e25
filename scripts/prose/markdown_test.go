package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Each line of prose is on the line that it has in the file.
func TestMarkdown(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, file, source, want string }{
		{"comments", "a.go", "// Package a is one.\n// It goes on.\npackage a\n", "Package a is one.\nIt goes on.\n\n"},
		{"behind code", "a.go", "package a\n\nvar x = 1 // it is one\n", "\n\n- it is one\n"},
		{"block", "a.go", "/* One\ntwo. */\npackage a\n", "One\ntwo. \n\n"},
		{"code in a comment", "a.go", "// A:\n//\n//\tx y\npackage a\n", "A:\n\n\tx y\n\n"},
		{"directive", "a.go", "//go:build unix\n\npackage a\n", "\n\n\n"},
		{"reason of nolint", "a.go", "package a\n\nvar x = 1 //nolint:gosec,wrapcheck // it is one\n", "\n\n- it is one\n"},
		{"message", "a.go", "package a\n\nvar x = \"it is not one\"\n", "\n\n- it is not one.\n"},
		{"message and comment", "a.go", "package a\n\nvar x = \"it is not one\" // or two\n", "\n\n- it is not one. or two\n"},
		{"no prose", "a.go", "package a\n\nvar x = \"SELECT * FROM t WHERE a = 1 AND (b < 2)\"\n", "\n\n\n"},
		{"short", "a.go", "package a\n\nvar x = \"one two three\"\n", "\n\n\n"},
		{"message of a test", "a_test.go", "package a\n\nvar x = \"it is not one\"\n", "\n\n\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := markdown(test.file, []byte(test.source))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, string(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
