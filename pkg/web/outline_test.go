package web_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// No heading of a page skips a level, however a README has them.
func TestHeadings(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.module("acme/vpc/aws", "1.0.0", map[string]string{
		"README.md": "# acme/vpc/aws\n\n### Deep\n\na\n\n###### Deeper\n\nb\n\n## Limits\n\nc\n\n#### More\n\nd\n",
		"main.tf":   `variable "a" {}`,
	})
	page := s.serve().text(t, http.StatusOK, "/modules/acme/vpc/aws")
	_, page, _ = strings.Cut(page, `id="readme"`)
	var got []string
	for _, m := range regexp.MustCompile(`<h(\d)[^>]*>([^<]*)[^/]*</h(\d)>`).FindAllStringSubmatch(page, 5) {
		got = append(got, m[1]+m[3]+" "+strings.TrimSpace(m[2]))
	}
	want := []string{"22 README", "33 Deep", "44 Deeper", "33 Limits", "44 More"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
