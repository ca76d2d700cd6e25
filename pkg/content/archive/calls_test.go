package archive_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/content/archive"
	"github.com/larder-registry/larder/pkg/registry"
)

// called returns configuration with a call of a source.
func called(source string) string { return "module \"x\" {\n  source = \"" + source + "\"\n}\n" }

func TestCalls(t *testing.T) {
	t.Parallel()
	const outside, missing = "which is outside of the published folder", "which has no files"
	for name, c := range map[string]struct {
		files tree
		want  string // "" if clients can install it
	}{
		"folder of the module":         {tree{"main.tf": called("./modules/a"), "modules/a/main.tf": ""}, ""},
		"folder outside of modules/":   {tree{"main.tf": called("./a/../b/"), "b/main.tf": ""}, ""},
		"sibling":                      {tree{"modules/a/main.tf": called("../b"), "modules/b/main.tf": ""}, ""},
		"root":                         {tree{"main.tf": "", "modules/a/main.tf": called("../../")}, ""},
		"other sources":                {tree{"main.tf": called("acme/vpc/aws") + strings.Replace(called("git::https://h/r.git//../x"), `"x"`, `"y"`, 1)}, ""},
		"variable":                     {tree{"main.tf": called("../${var.x}")}, ""},
		"example":                      {tree{"main.tf": "", "examples/a/main.tf": called("../../..")}, ""},
		"example of a nested module":   {tree{"main.tf": "", "modules/a/examples/b/main.tf": called("../../../../..")}, ""},
		"outside":                      {tree{"main.tf": "\n" + called("../network")}, "main.tf:3 calls ../network, " + outside},
		"outside, from a folder":       {tree{"modules/a/main.tf": called("../../..")}, "modules/a/main.tf:2 calls ../../.., " + outside},
		"outside and back":             {tree{"main.tf": called("../me/a"), "a/main.tf": ""}, "main.tf:2 calls ../me/a, " + outside},
		"outside, in JSON":             {tree{"x.tf.json": `{"module":{"x":{"source":"../network"}}}`}, "x.tf.json:1 calls ../network, " + outside},
		"outside, for OpenTofu":        {tree{"x.tf": "", "x.tofu": called("../network")}, "x.tofu:2 calls ../network, " + outside},
		"hidden by a file for it":      {tree{"x.tf": called("../network"), "x.tofu": ""}, ""},
		"outside, from a called one":   {tree{"main.tf": called("./modules/a/b"), "modules/a/b/main.tf": called("../../../../x")}, "modules/a/b/main.tf:2 calls ../../../../x, " + outside},
		"missing":                      {tree{"main.tf": called("./modules/a")}, "main.tf:2 calls ./modules/a, " + missing},
		"excluded":                     {tree{"main.tf": called("./a"), "a/x.tf": "", ".terraformignore": "a/"}, "main.tf:2 calls ./a, " + missing},
		"a file":                       {tree{"main.tf": called("./main.tf")}, "main.tf:2 calls ./main.tf, " + missing},
		"folders that call each other": {tree{"main.tf": called("./modules/a"), "modules/a/main.tf": called("../..")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			packed, _, err := pack(t, c.files.write(t), archive.Options{})
			if err != nil {
				t.Fatal(err)
			}
			m, err := archive.ReadModule(t.Context(), bytes.NewReader(packed))
			if err != nil {
				t.Fatal(err)
			}
			err = errors.Join(m.Problems...)
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, registry.ErrInvalid) {
				t.Fatalf("the error is %v, want ErrInvalid", err)
			}
			if diff := cmp.Diff("invalid module: "+c.want, err.Error()); diff != "" {
				t.Errorf("the error (-want +got):\n%s", diff)
			}
		})
	}
}
