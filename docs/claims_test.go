package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/registry"
)

var (
	ruleClaims = regexp.MustCompile(`"claims":\s*\{([^}]*)\}`)
	claimName  = regexp.MustCompile(`"([^"]+)":`)
	inCode     = regexp.MustCompile("`([^`]+)`")
)

// A refused caller sees the claims of all rules in the documentation and in the
// examples, and docs/publish-from-ci.md lists them.
func TestClaimsOfRules(t *testing.T) {
	t.Parallel()
	used := make(map[string]string)
	for _, path := range tracked(t, "*.md", "examples/*.yml") {
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		for _, rule := range ruleClaims.FindAllSubmatch(text, -1) {
			for _, name := range claimName.FindAllSubmatch(rule[1], -1) {
				used[string(name[1])] = path
			}
		}
	}
	for name, path := range used {
		if !slices.Contains(registry.RuleClaims, name) {
			t.Errorf("%s has a rule with the claim %s, which registry.RuleClaims lacks", path, name)
		}
	}
	if len(used) < 10 {
		t.Errorf("the documentation has only the claims %v", used)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs/publish-from-ci.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, safe, _ := strings.Cut(string(text), "| Claim | GitHub | GitLab |\n")
	safe, _, _ = strings.Cut(safe, "\n\n")
	for _, name := range inCode.FindAllStringSubmatch(safe, -1) {
		if !slices.Contains(registry.RuleClaims, name[1]) {
			t.Errorf("a safe rule has the claim %s, which registry.RuleClaims lacks", name[1])
		}
	}
	_, table, _ := strings.Cut(string(text), "| Tokens | Claims that the response shows |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	var listed []string
	for _, name := range inCode.FindAllStringSubmatch(table, -1) {
		listed = append(listed, name[1])
	}
	if diff := cmp.Diff(registry.RuleClaims, listed); diff != "" {
		t.Errorf("the claims that the page lists (-want +got):\n%s", diff)
	}
}
