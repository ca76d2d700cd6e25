package compare

import (
	"encoding/json"
	"testing"

	"github.com/larder-registry/larder/pkg/docs"
)

func TestCovers(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		wide, narrow string
		want         bool
	}{
		{"", "", true},
		{"", "1.2.3", true},
		{"1.2.3", "", false},
		{">= 1.0", ">= 1.1", true},
		{">= 1.1", ">= 1.0", false},
		{"> 1.0.0", ">= 1.0.1", true},
		{">= 1.0.1", "> 1.0.0", true},
		{"~> 1.2", "~> 1.2.3", true},
		{"~> 1.2.3", "~> 1.2", false},
		{"~> 1", "~> 1.2", true},
		{"~> 1.2", "~> 1", false},
		{">= 1.0, < 3.0", ">= 1.0, < 2.0", true},
		{">= 1.0, < 2.0", ">= 1.0, < 3.0", false},
		{"<= 2.0", "< 2.0", true},
		{"< 2.0", "<= 2.0", false},
		{"!= 1.5.0", ">= 1.0, < 1.5", true},
		{"!= 1.5.0", ">= 1.0", false},
		{">= 1.0", "!= 1.5.0", false},
		{"= 1.2.3", "v1.2.3", true},
		{"<= 1.2.3", "< 1.2.4", true},
		{"> 1.0", "> 2.0, < 1.0", true}, // nothing is accepted
		{">= 1.0.0-rc1", ">= 1.0.0", false},
		{"", ">= 1.0.0-rc1", false},
		{"about 1", "1.0.0", false},
	} {
		t.Run(test.wide+" covers "+test.narrow, func(t *testing.T) {
			if got := covers(test.wide, test.narrow); got != test.want {
				t.Errorf("it is %t", got)
			}
		})
	}
}

// A comparison of anything with itself finds no change, and nothing panics.
func FuzzCompare(f *testing.F) {
	f.Add(`object({ a = optional(string, "x") })`, `["object",{"a":"string"},["a"]]`, ">= 1.0, != 1.2")
	f.Add(`list(map(tuple([string, number])))`, `["list",["map",["tuple",["string","number"]]]]`, "~> 1.2")
	f.Add(`"\`, `["object",{}]`, "1")
	f.Add(`/*`, `["list"]`, ",")
	f.Add(`optional(((`, `[[]]`, "~>")
	f.Fuzz(func(t *testing.T, text, constraint, version string) {
		folder := docs.Folder{
			Inputs: []docs.Input{
				{Name: "x", Type: text, TypeConstraint: json.RawMessage(constraint), Default: constraint},
			},
			RequiredVersion: version,
		}
		if d := Folders(folder, folder); d.IsChanged() {
			t.Errorf("a folder differs from itself: %+v", d)
		}
		other := docs.Folder{
			Inputs:          []docs.Input{{Name: "x", Type: constraint, TypeConstraint: json.RawMessage(`"dynamic"`)}},
			RequiredVersion: text,
		}
		Folders(folder, other)
		Folders(other, folder)
		if all, ok := parseConstraints(version); ok && len(all) > 0 && !covers("", version) {
			t.Errorf("%q accepts a release that no constraint accepts", version)
		}
	})
}
