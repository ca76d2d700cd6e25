package catalog_test

import (
	"strings"
	"testing"

	"github.com/larder-registry/larder/pkg/catalog"
)

// work returns the holders of some work: "a/x b/y" is the work of a with x, and of b
// with y.
func work(s string) (all []catalog.Holders) {
	for _, holders := range strings.Fields(s) {
		all = append(all, strings.Split(holders, "/"))
	}
	return all
}

func TestShares(t *testing.T) {
	t.Parallel()
	each := func(count int, each ...int) catalog.Shares { return catalog.Shares{Count: count, Each: each} }
	for name, test := range map[string]struct {
		shares           catalog.Shares
		running, waiting string
		want             int
	}{
		"nothing waits":                          {each(3), "a", "", -1},
		"the first one, if all have as little":   {each(3), "", "a a b", 0},
		"no room for more":                       {each(2), "a b", "c", -1},
		"a holder can have all":                  {each(3), "a a", "a", 0},
		"a holder with its share":                {each(3, 2), "a a", "a", -1},
		"another holder beside it":               {each(3, 2), "a a", "a a b", 2},
		"the holder with the least":              {each(9, 8), "a a b", "a b c", 2},
		"a second holder has another share":      {each(4, 1, 2), "a/x b/x", "c/x", -1},
		"a second holder with room":              {each(4, 1, 3), "a/x b/x", "a/x c/x", 1},
		"the same name as first and second":      {each(4, 1, 1), "a/x", "x/a", 0},
		"another caller at the same origin":      {each(9, 8, 8), "a/x a/x", "a/x a/x a/y", 2},
		"an origin of its own before the caller": {each(9, 8, 8), "a/x a/x b/y", "a/z c/y", 1},
		"work without a second holder":           {each(2, 1, 1), "a/x", "b", 0},
	} {
		if got := test.shares.Next(work(test.running), work(test.waiting)); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

func TestSurplus(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		work string
		want int
	}{
		"no work":                                                 {"", -1},
		"all have as much":                                        {"a b c", 2},
		"the last of the largest":                                 {"a b a c", 2},
		"a caller with many origins":                              {"a/x b/y c/x", 2},
		"an origin with many callers":                             {"a/x b/y a/z", 2},
		"a caller with much of an origin that others use":         {"a/x a/x a/y", 1},
		"a caller of one origin before an origin of many callers": {"b/x b/x b/x a/u a/v a/w a/z", 2},
		"a caller of many origins before a caller of one":         {"a/x a/x b/y c/y d/y e/y", 5},
	} {
		if got := catalog.Surplus(work(test.work)); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}
