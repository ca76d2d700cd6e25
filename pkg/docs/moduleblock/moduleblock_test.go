package moduleblock_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/docs/moduleblock"
)

// A long type has its outermost brackets.
func TestShortType(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 60)
	for written, want := range map[string]string{
		"string":                                   "string",
		"object({\n  a = string\n})":               "object({ … })",
		"map(object({ " + long + " }))":            "map(object({ … }))",
		"tuple([" + long + "])":                    "tuple([ … ])",
		"list(list(list(set(map(" + long + ")))))": "list(list(list( … )))",
		"{ " + long + " }":                         "…",
		"# note\nmap(object({ a = b }))":           "…",
		" any ":                                    "any",
	} {
		if diff := cmp.Diff(want, moduleblock.ShortType(written)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", written, diff)
		}
	}
}

// A block has a line for each required input. Many folders have five blocks.
func TestOf(t *testing.T) {
	t.Parallel()
	inputs := []docs.Input{
		{Name: "id", Type: "string", Required: true}, {Name: "zones", Type: "any"},
		{Name: "subnets", Type: "map(object({\n  a = string\n}))", Required: true},
	}
	many := make([]docs.Folder, 7)
	for i := range many {
		many[i] = docs.Folder{Path: fmt.Sprint("modules/m", i)}
	}
	large := docs.Folder{Inputs: make([]docs.Input, 1_500)}
	for i := range large.Inputs {
		large.Inputs[i] = docs.Input{Name: "a", Type: "any", Required: true}
	}
	const head = "module \"vpc\" {\n  source  = \"example.com/acme/vpc/aws\"\n  version = \"1.0.0\"\n"
	for name, test := range map[string]struct {
		folders []docs.Folder
		first   string
		blocks  int
		more    int
	}{
		"the root":  {[]docs.Folder{{Inputs: inputs}}, head + "\n  id      = # string\n  subnets = # map(object)\n}\n", 1, 0},
		"no inputs": {[]docs.Folder{{}}, head + "}\n", 1, 0},
		"six":       {many[:6], strings.ReplaceAll(strings.Replace(head, "vpc", "m0", 1), "/aws", "/aws//modules/m0") + "}\n", 6, 0},
		"seven":     {many, strings.ReplaceAll(strings.Replace(head, "vpc", "m0", 1), "/aws", "/aws//modules/m0") + "}\n", 5, 2},
		"large":     {[]docs.Folder{large}, head + "\n" + strings.Repeat("  a = # any\n", 500) + "  # and 1,000 more required inputs\n}\n", 1, 0},
	} {
		blocks, more := moduleblock.Of("vpc", "example.com/acme/vpc/aws", "1.0.0", test.folders)
		if diff := cmp.Diff(test.first, blocks[0].Text); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if len(blocks) != test.blocks || more != test.more {
			t.Errorf("%s: %d blocks and %d more, want %d and %d", name, len(blocks), more, test.blocks, test.more)
		}
	}
	if got := moduleblock.New("3scale", "s", "1.0.0"); !strings.HasPrefix(got, "module \"x3scale\" {") {
		t.Errorf("a name that begins with a digit: %s", got)
	}
}
