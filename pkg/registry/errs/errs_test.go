package errs_test

import (
	"testing"

	"github.com/larder-registry/larder/pkg/registry/errs"
)

func TestIsPlain(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]bool{
		"": true, "/v1/a_b-c~d/1.0.0+e": true, "Az09": true,
		"a b": false, "a%2Fb": false, "\u00e4": false, "a\x00": false,
		"a:b": false, "a@b": false, "[": false, "`": false, "{": false,
	} {
		if got := errs.IsPlain(path); got != want {
			t.Errorf("IsPlain(%q) = %t, want %t", path, got, want)
		}
	}
}
