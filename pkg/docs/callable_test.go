package docs_test

import (
	"slices"
	"testing"

	"github.com/larder-registry/larder/pkg/docs"
)

// Module blocks are for the root, or for submodules if the root has no content.
func TestCallable(t *testing.T) {
	t.Parallel()
	var hollow, empty docs.Folder
	empty.Empty = true
	full := docs.Folder{Path: "modules/a", Outputs: []docs.Output{{Name: "id"}}}
	root := docs.Folder{Outputs: full.Outputs}
	for name, test := range map[string]struct {
		d    docs.Documentation
		want []string
	}{
		"a root":                    {docs.Documentation{Root: root, Submodules: []docs.Folder{full}}, []string{""}},
		"no files in the root":      {docs.Documentation{Root: empty, Submodules: []docs.Folder{full}}, []string{"modules/a"}},
		"nothing in the root":       {docs.Documentation{Root: hollow, Submodules: []docs.Folder{full}}, []string{"modules/a"}},
		"an unreadable root":        {docs.Documentation{Submodules: []docs.Folder{full}, Notes: []string{"Only the README of the root is documented."}}, []string{""}},
		"another unreadable folder": {docs.Documentation{Submodules: []docs.Folder{full}, Notes: []string{"Only the README of b."}}, []string{"modules/a"}},
		"only versions in the root": {docs.Documentation{
			Root: docs.Folder{ProviderDependencies: []docs.ProviderDependency{{Name: "aws"}}}, Submodules: []docs.Folder{full},
		}, []string{"modules/a"}},
		"an empty submodule":     {docs.Documentation{Root: empty, Submodules: []docs.Folder{full, hollow}}, []string{"modules/a"}},
		"only examples":          {docs.Documentation{Root: empty, Examples: []docs.Folder{full}}, nil},
		"nothing in any of them": {docs.Documentation{}, []string{""}},
	} {
		var got []string
		for _, f := range test.d.Callable() {
			got = append(got, f.Path)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
