package web_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/larder-registry/larder/pkg/registry"
)

// The page of a version has what its publisher claims, apart from what an
// identity proves. Only a plain host has a link.
func TestClaimedPage(t *testing.T) {
	t.Parallel()
	const commit = "0123456789abcdef0123456789abcdef01234567"
	for name, test := range map[string]struct {
		claimed registry.ClaimedSource
		want    string
	}{
		"everything": {
			registry.ClaimedSource{Remote: "https://github.com/acme/vpc.git", Commit: commit, Tag: "v1.1.0", Dirty: true},
			`<a href="https://github.com/acme/vpc">commit 0123456 of github.com/acme/vpc, tag v1.1.0, with uncommitted changes</a>`,
		},
		"no remote":       {registry.ClaimedSource{Commit: commit}, `<dd>commit 0123456</dd>`},
		"SSH":             {registry.ClaimedSource{Remote: "ssh://git@github.com/acme/vpc.git", Commit: commit}, `<dd>commit 0123456 of github.com/acme/vpc</dd>`},
		"no TLS":          {registry.ClaimedSource{Remote: "http://github.com/acme/vpc", Commit: commit}, `<dd>commit 0123456 of github.com/acme/vpc</dd>`},
		"a port":          {registry.ClaimedSource{Remote: "https://git.example.com:8443/acme/vpc", Commit: commit}, `<dd>commit 0123456 of git.example.com:8443/acme/vpc</dd>`},
		"an address":      {registry.ClaimedSource{Remote: "https://127.0.0.1/acme/vpc", Commit: commit}, `<dd>commit 0123456 of 127.0.0.1/acme/vpc</dd>`},
		"a local name":    {registry.ClaimedSource{Remote: "https://localhost/acme/vpc", Commit: commit}, `<dd>commit 0123456 of localhost/acme/vpc</dd>`},
		"a stored user":   {registry.ClaimedSource{Remote: "https://github.com@evil.example/", Commit: commit}, `<dd>commit 0123456 of github.com@evil.example/</dd>`},
		"a stored script": {registry.ClaimedSource{Remote: "javascript://a/", Commit: commit}, `<dd>commit 0123456 of a/</dd>`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t)
			s.module("acme/vpc/aws", "1.0.0", nil, func(r *registry.ModuleVersion) { r.Claimed = &test.claimed })
			pages := s.serve()
			page := pages.text(t, http.StatusOK, "/modules/acme/vpc/aws")
			_, got, _ := strings.Cut(page, "<dt>Publisher claims</dt>")
			if !strings.Contains(strings.Split(got, "\n")[0], test.want) {
				t.Errorf("%q, want %s", strings.Split(got, "\n")[0], test.want)
			}
			markdown := pages.text(t, http.StatusOK, "/modules/acme/vpc/aws.md")
			if !strings.Contains(markdown, "- Publisher claims: commit 0123456") {
				t.Errorf("the Markdown lacks it:\n%s", markdown)
			}
		})
	}
}
