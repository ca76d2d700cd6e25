package archive_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/content/archive"
)

// sources returns the paths of the sources of an archive, with those that
// exceed a limit in brackets.
func sources(t *testing.T, entries ...entry) []string {
	t.Helper()
	m, err := archive.ReadModule(t.Context(), bytes.NewReader(archiveOf(t, entries...)))
	if err != nil {
		t.Fatal(err)
	}
	bodies := make(map[string]string)
	for _, e := range entries {
		bodies[e.Name] = e.body
	}
	var paths []string
	for _, path := range slices.Sorted(maps.Keys(m.Sources)) {
		content := m.Sources[path]
		if content == nil {
			path = "(" + path + ")"
		} else if string(content) != bodies[path] {
			t.Errorf("%s has other content", path)
		}
		paths = append(paths, path)
	}
	slices.Sort(paths)
	return paths
}

func TestSources(t *testing.T) {
	t.Parallel()
	comment := func(bytes int) string { return "#" + strings.Repeat("x", bytes-2) + "\n" }
	for _, test := range []struct {
		name  string
		files []string // in addition to main.tf
		want  []string
	}{
		{"configuration",
			[]string{"a.tf.json", "b.tofu", "c.tofu.json", "x.tfvars", "modules/a/main.tf", "examples/a/main.tf", "x/main.tf"},
			[]string{"a.tf.json", "b.tofu", "c.tofu.json", "examples/a/main.tf", "main.tf", "modules/a/main.tf"}},
		{"depth",
			[]string{"modules/main.tf", "modules/a/b/main.tf", "examples/main.tf", "examples/a/b/main.tf", "x/modules/a/a.tf"},
			[]string{"main.tf"}},
		{"leftovers of editors",
			[]string{".a.tf", "b.tf~", "#c.tf#", "examples/a/.b.tf", "examples/a/c.tf~"}, []string{"main.tf"}},
		{
			"READMEs", []string{"README.md", "modules/README.md", "modules/a/README", "examples/a/readme.txt", "docs/README.md"},
			[]string{"README.md", "examples/a/readme.txt", "main.tf", "modules/a/README"},
		},
		{"the best README",
			[]string{"README", "README.txt", "Readme.markdown", "readme.MD"}, []string{"main.tf", "readme.MD"}},
		{"the best README comes first", []string{"README.md", "README.txt"}, []string{"README.md", "main.tf"}},
		{"no READMEs", []string{"README.rst", "README.md.bak", "MYREADME.md", "readme2.md"}, []string{"main.tf"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			entries := []entry{file("main.tf", config)}
			for _, name := range test.files {
				body := config
				if strings.HasSuffix(name, ".json") {
					body = "{}"
				}
				entries = append(entries, file(name, body))
			}
			if diff := cmp.Diff(test.want, sources(t, entries...)); diff != "" {
				t.Errorf("sources (-want +got):\n%s", diff)
			}
		})
	}

	t.Run("an invalid example", func(t *testing.T) {
		t.Parallel()
		got := sources(t, file("main.tf", config), file("examples/a/main.tf", "}"), file("examples/a/b.tf", ""))
		if diff := cmp.Diff([]string{"examples/a/b.tf", "examples/a/main.tf", "main.tf"}, got); diff != "" {
			t.Errorf("sources (-want +got):\n%s", diff)
		}
	})
	t.Run("large files", func(t *testing.T) {
		t.Parallel()
		got := sources(t, file("main.tf", comment(1<<20)), file("README.md", comment(256<<10)),
			file("examples/a/main.tf", comment(1<<20+1)), file("examples/a/README.md", comment(256<<10+1)),
			file("examples/a/README.txt", "x"), file("examples/b/main.tf", comment(1<<20)))
		want := []string{"(examples/a/README.md)", "(examples/a/main.tf)", "README.md", "examples/b/main.tf", "main.tf"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("sources (-want +got):\n%s", diff)
		}
	})
	// Examples come before modules in the tar, but modules use the limit first.
	t.Run("configuration of examples", func(t *testing.T) {
		t.Parallel()
		var entries []entry
		var want []string
		for i := range 12 {
			name := fmt.Sprintf("examples/%02d/main.tf", i)
			entries = append(entries, file(name, comment(1<<20)))
			if i >= 8 {
				name = "(" + name + ")"
			}
			want = append(want, name)
		}
		for i := range 8 {
			name := fmt.Sprintf("modules/%02d/main.tf", i)
			entries = append(entries, file(name, comment(1<<20)))
			want = append(want, name)
		}
		entries = append(entries, file("examples/99/main.tf", comment(10)))
		want = append(want, "(examples/99/main.tf)")
		slices.Sort(want)
		if diff := cmp.Diff(want, sources(t, entries...)); diff != "" {
			t.Errorf("sources (-want +got):\n%s", diff)
		}
	})
	t.Run("all READMEs", func(t *testing.T) {
		t.Parallel()
		entries := []entry{file("main.tf", config)}
		want := []string{"main.tf"}
		for i := range 17 {
			name := fmt.Sprintf("examples/%02d/README.md", i)
			entries = append(entries, file(name, comment(256<<10)))
			if i >= 16 {
				name = "(" + name + ")"
			}
			want = append(want, name)
		}
		slices.Sort(want)
		if diff := cmp.Diff(want, sources(t, entries...)); diff != "" {
			t.Errorf("sources (-want +got):\n%s", diff)
		}
	})
}
