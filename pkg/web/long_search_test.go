package web_test

import (
	"net/http"
	"strings"
	"testing"
)

// Each choice of a page has a copy of the query, so a long one would take long.
func TestLongSearchURL(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.module("acme/vpc/aws", "1.0.0", nil)
	s.module("other/vpc/aws", "1.0.0", nil)
	const refusal = "The search is too long."
	if text := s.serve().text(t, http.StatusOK, "/search?q=vpc"); strings.Contains(text, refusal) {
		t.Errorf("a short search is refused:\n%s", text)
	}
	long := "/search?q=vpc&x=" + strings.Repeat("x", 60_000)
	text := s.serve().text(t, http.StatusOK, long)
	if !strings.Contains(text, refusal) {
		t.Errorf("a long search is not refused: %d bytes", len(text))
	}
}
