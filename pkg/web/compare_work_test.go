package web_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/registry"
)

// A comparison of many long texts of short lines ends soon, and is small enough
// for a page. Without a limit it took seconds.
func TestCompareManyLines(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	lines := strings.Repeat("a\n", 980)
	for _, version := range []string{"1.0.0", "1.1.0"} {
		d := docs.Documentation{Schema: docs.Schema}
		for i := range 450 {
			d.Root.Inputs = append(d.Root.Inputs, docs.Input{
				Name: fmt.Sprintf("v%03d", i), Type: "string", Required: true, Description: lines + version,
			})
		}
		s.module("acme/vpc/aws", version, nil, func(r *registry.ModuleVersion) {
			s.document(address(t, "acme/vpc/aws"), r, d)
		})
	}
	text := s.serve().text(t, http.StatusOK, "/modules/acme/vpc/aws/compare?from=1.0.0&to=1.1.0")
	for _, want := range []string{"v000", "v449", "lines without changes"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page of %d bytes lacks %q", len(text), want)
		}
	}
}
