package web_test

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// large are the files of a module with many inputs.
func large(inputs int) map[string]string {
	var b strings.Builder
	for i := range inputs {
		fmt.Fprintf(&b, "variable \"enable_feature_%03d\" {\n", i)
		switch i % 10 {
		case 0:
			b.WriteString("  type = map(object({\n    name  = string\n    zones = optional(list(string), [\"a\", \"b\"])\n" +
				"    days  = optional(number, 30) # of retention\n  }))\n  default = {}\n")
		case 1:
			b.WriteString("  type    = list(string)\n  default = [\"eu-west-1a\", \"eu-west-1b\"]\n")
		case 2:
			b.WriteString("  type = string\n  validation {\n    condition     = var.x != \"\"\n" +
				"    error_message = \"Must be one of a, b and c.\"\n  }\n")
		default:
			b.WriteString("  type    = bool\n  default = true\n")
		}
		b.WriteString("  description = \"What this input is for, in one sentence with `code` in it.\"\n}\n")
	}
	b.WriteString("output \"id\" {\n  value       = 1\n  description = \"The ID.\"\n}\n")
	return map[string]string{"main.tf": b.String(), "README.md": strings.Repeat("A sentence of the README. ", 100)}
}

// grouped are the files of a module with 236 inputs in 14 groups.
func grouped() map[string]string {
	files := map[string]string{}
	for i := range 236 {
		name := fmt.Sprintf("variables-%d.tf", i%2)
		if i%17 < 2 {
			files[name] += fmt.Sprintf("%s\n# Group %d\n%[1]s\n\n", strings.Repeat("#", 80), i/17)
		}
		files[name] += fmt.Sprintf("variable \"feature_%03d_name\" {\n  type = object({ name = string, id = optional(string, \"x%d\") })\n"+
			"  default = null\n  description = \"What input %d is for. See https://example.com/docs/%[1]d.\"\n}\n", i, i*7919, i*i)
	}
	files["variables-0.tf"] += "variable \"region\" {\n  type = string\n}\n"
	files["README.md"] = strings.Repeat("A sentence of the README. ", 100)
	return files
}

// withPages returns pages of each kind, by what they show.
func withPages(t testing.TB) (pages server, paths map[string]string) {
	t.Helper()
	s := withProviders(t)
	s.module("acme/large/aws", "1.0.0", large(300))
	s.module("acme/groups/aws", "1.0.0", grouped())
	for i := range 200 {
		s.module(fmt.Sprintf("acme/network-%d/aws", i), "1.0.0", large(1))
	}
	withExample := large(25)
	withExample["examples/all/main.tf"] = withExample["main.tf"]
	s.module("acme/vpc/aws", "1.0.0", withExample)
	s.module("acme/vpc/aws", "1.1.0", large(26))
	return s.serve(), map[string]string{
		"home": "/", "search": "/search?q=network", "module": "/modules/acme/vpc/aws", "large": "/modules/acme/large/aws",
		"files": "/modules/acme/vpc/aws/1.0.0/files",
		"file":  "/modules/acme/vpc/aws/1.0.0/files/main.tf", "example": "/modules/acme/vpc/aws/1.0.0/examples/all",
		"groups": "/modules/acme/groups/aws", "by name": "/modules/acme/groups/aws?inputs=a-z",
		"Markdown": "/modules/acme/large/aws.md", "versions": "/modules/acme/vpc/aws/versions",
		"compare": comparePath + "?from=1.0.0&to=1.1.0", "provider": inventory, "mirrored": random,
	}
}

// No page has more than 150 KiB, or 25 KiB when it is compressed.
func TestPagesAreSmall(t *testing.T) {
	t.Parallel()
	pages, paths := withPages(t)
	for name, path := range paths {
		size := len(pages.text(t, http.StatusOK, path))
		compressed := pages.get(t, path, "Accept-Encoding", "gzip").Body.Len()
		if size > 150<<10 || compressed > 25<<10 {
			t.Errorf("%s has %d bytes, %d compressed", name, size, compressed)
		}
	}
}

func BenchmarkPage(b *testing.B) {
	pages, paths := withPages(b)
	for _, name := range slices.Sorted(maps.Keys(paths)) {
		path := paths[name]
		b.Run(name, func(b *testing.B) {
			size := len(pages.text(b, http.StatusOK, path))
			compressed := 0
			for b.Loop() {
				compressed = pages.get(b, path, "Accept-Encoding", "gzip").Body.Len()
			}
			b.ReportMetric(float64(size), "B")
			b.ReportMetric(float64(compressed), "B/gzip")
		})
	}
}
