package rules_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
)

// TestTexts checks that texts about a version must be one line.
func TestTexts(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		check func(string) error
		limit int
		empty bool
	}{
		"CheckDescription": {rules.CheckDescription, 1000, true},
		"CheckDeprecation": {rules.CheckDeprecation, 500, true},
		"CheckReason":      {rules.CheckReason, 500, false},
	} {
		for text, valid := range map[string]bool{
			"use 2.0.0": true, "Zoë’s 漢字": true, strings.Repeat("x", test.limit): true, "": test.empty, " ": test.empty,
			strings.Repeat("x", test.limit+1): false, "two\nlines": false, "a\ttab": false, "a\x1b[31m": false,
			"a\u009b": false, "a\u202e": false, "\xff": false,
		} {
			err := test.check(text)
			if valid != (err == nil) || err != nil && !errors.Is(err, registry.ErrInvalid) {
				t.Errorf("%s(%.20q): %v", name, text, err)
			}
		}
	}
}
