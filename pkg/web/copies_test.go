package web_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/larder-registry/larder/pkg/registry"
)

// The page of a copy names the original, as text that the publisher stated.
func TestCopyPage(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.module("acme/vpc/aws", "1.0.0", nil, func(r *registry.ModuleVersion) {
		r.CopiedFrom = &registry.CopiedFrom{
			Source: "dev.example.com/acme/vpc/aws", PublishedAt: time.Date(2026, 11, 20, 1, 2, 3, 0, time.UTC),
			PublishedBy: registry.Publisher{Kind: registry.PublisherToken, Name: "<b>ci</b>"},
		}
		r.CopiedTo = []string{"prod.example.com/acme/vpc/aws"}
	})
	pages := s.serve()
	for path, wants := range map[string][]string{
		"/modules/acme/vpc/aws": {
			"dev.example.com/acme/vpc/aws", "token &lt;b&gt;ci&lt;/b&gt;", "2026-11-20", "prod.example.com/acme/vpc/aws",
		},
		"/modules/acme/vpc/aws.md": {"Copied from", "dev.example.com/acme/vpc/aws", `\<b>ci`},
	} {
		page := pages.text(t, http.StatusOK, path)
		for _, want := range wants {
			if !strings.Contains(page, want) {
				t.Errorf("%s lacks %q", path, want)
			}
		}
	}
}
