package web_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
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

func BenchmarkLargePage(b *testing.B) {
	s := newStore(b)
	s.module("acme/large/aws", "1.0.0", large(300))
	pages := s.serve()
	for b.Loop() {
		if w := pages.get(b, "/modules/acme/large/aws", "Accept-Encoding", "gzip"); w.Code != http.StatusOK {
			b.Fatalf("status %d", w.Code)
		}
	}
}
