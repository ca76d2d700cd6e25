package extract_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/docs"
)

// Blocks have the file and the line in which they begin, also in JSON and if
// other files override them.
func TestPlaces(t *testing.T) {
	t.Parallel()
	d := extracted(t, map[string]string{
		"main.tf":                 "# a module\n\nresource \"aws_vpc\" \"this\" {}\nmodule \"a\" {\n  source = \"./modules/a\"\n}\n",
		"variables.tf":            "variable \"b\" {}\n\n  variable \"a\" {\n  type = string\n}\n",
		"variables_override.tf":   "\n\n\n\nvariable \"a\" {\n  type = number\n}\n",
		"outputs.tf.json":         "{\n  \"output\": {\n    \"o\": {\"value\": 1}\n  }\n}\n",
		"modules/a/main.tofu":     "/*\n*/ variable \"x\" {}\r\ncheck \"c\" {\r\n  data \"http\" \"d\" {}\r\n}\r\n",
		"examples/b/variables.tf": "variable \"y\" {}\n",
	})
	var got []docs.Place
	for _, f := range append([]docs.Folder{d.Root}, append(d.Submodules, d.Examples...)...) {
		for _, in := range f.Inputs {
			got = append(got, in.Place)
		}
		for _, out := range f.Outputs {
			got = append(got, out.Place)
		}
		for _, call := range f.Dependencies {
			got = append(got, call.Place)
		}
		for _, r := range append(f.Resources, f.DataResources...) {
			got = append(got, r.Place)
		}
	}
	want := []docs.Place{
		{File: "variables.tf", Line: 3}, {File: "variables.tf", Line: 1}, {File: "outputs.tf.json", Line: 3},
		{File: "main.tf", Line: 4}, {File: "main.tf", Line: 3},
		{File: "modules/a/main.tofu", Line: 2}, {File: "modules/a/main.tofu", Line: 4},
		{File: "examples/b/variables.tf", Line: 1},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
