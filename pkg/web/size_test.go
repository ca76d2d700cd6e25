package web_test

import (
	"bytes"
	"compress/gzip"
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

// A page of 300 inputs stays small.
func TestSizeOfLargePage(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.module("acme/large/aws", "1.0.0", large(300))
	w := s.serve().get(t, "/modules/acme/large/aws", "Accept-Encoding", "gzip")
	if w.Code != http.StatusOK {
		t.Fatalf("status %d", w.Code)
	}
	compressed := w.Body.Len()
	r, err := gzip.NewReader(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	var page bytes.Buffer
	if _, err := page.ReadFrom(r); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes, %d compressed", page.Len(), compressed)
	if page.Len() > 150<<10 {
		t.Errorf("the page has %d bytes, more than 150 KiB", page.Len())
	}
	if compressed > 25<<10 {
		t.Errorf("the compressed page has %d bytes, more than 25 KiB", compressed)
	}
}

// withPages returns pages of each kind, by what they show.
func withPages(t testing.TB) (pages server, paths map[string]string) {
	t.Helper()
	s := withProviders(t)
	s.module("acme/large/aws", "1.0.0", large(300))
	for i := range 200 {
		s.module(fmt.Sprintf("acme/network-%d/aws", i), "1.0.0", large(1))
	}
	s.module("acme/vpc/aws", "1.0.0", large(25))
	s.module("acme/vpc/aws", "1.1.0", large(26))
	return s.serve(), map[string]string{
		"home": "/", "search": "/search?q=network", "module": "/modules/acme/vpc/aws", "large": "/modules/acme/large/aws",
		"Markdown": "/modules/acme/large/aws.md", "versions": "/modules/acme/vpc/aws/versions",
		"compare": comparePath + "?from=1.0.0&to=1.1.0", "provider": inventory, "mirrored": random,
	}
}

// No page has more than 30 KiB when it is compressed.
func TestPagesAreSmall(t *testing.T) {
	t.Parallel()
	pages, paths := withPages(t)
	for name, path := range paths {
		w := pages.get(t, path, "Accept-Encoding", "gzip")
		if w.Code != http.StatusOK || w.Body.Len() > 30<<10 {
			t.Errorf("%s: status %d, %d bytes", name, w.Code, w.Body.Len())
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
