package web_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/registry"
)

// The list of versions is a history: states with reasons, who published what from
// which commit, and what changed since the version before.
func TestHistory(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	counts := func(since string, c registry.Changes) func(*registry.ModuleVersion) {
		return func(r *registry.ModuleVersion) {
			c.Since = number(t, since)
			r.Changes = &c
		}
	}
	claims := func(r *registry.ModuleVersion) {
		r.PublishedBy = registry.Publisher{Kind: registry.PublisherToken, Name: "build-server"}
		r.Claimed = &registry.ClaimedSource{
			Remote: "https://github.com/acme/vpc.git", Commit: "0123456789abcdef0123456789abcdef01234567", Tag: "v1.1.0",
		}
	}
	const vpc = "acme/vpc/aws"
	s.module(vpc, "1.0.0", nil)
	s.module(vpc, "1.1.0", nil, claims, counts("1.0.0", registry.Changes{}))
	s.module(vpc, "1.2.0", nil) // by a release that did not count
	s.module(vpc, "2.0.0", nil, counts("1.2.0", registry.Changes{Breaking: 1004, Added: 3}))
	s.module(vpc, "2.0.1", nil, counts("2.0.0", registry.Changes{Breaking: 1}))
	s.module(vpc, "2.1.0", nil, counts("2.0.1", registry.Changes{Added: 2, Removed: 1, Changed: 4}))
	s.module(vpc, "2.2.0", nil, counts("2.1.0", registry.Changes{Breaking: 2, Added: 3}))
	s.module(vpc, "3.0.0-rc.1", nil)
	s.deprecate(vpc, "2.0.1", "<script>It deletes the gateway.", true)
	s.deprecate(vpc, "1.0.0", "Use 2.1.0.", false)
	s.withdraw(vpc, "1.2.0", "It has a key.")
	s.table.Take()
	web := s.serve()
	golden.Equal(t, "testdata/history.html", []byte(mainOf(web.text(t, http.StatusOK, "/modules/acme/vpc/aws/versions"))))
	if got := s.table.Take(); got != "Snapshot Snapshot" {
		t.Errorf("the requests are %s, want two snapshots", got)
	}
	golden.Equal(t, "testdata/history.md", []byte(web.text(t, http.StatusOK, "/modules/acme/vpc/aws/versions.md")))
}

// A module of which all listed versions are withdrawn leads to a hidden one.
func TestHistoryOfHiddenVersions(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	for i := range 2 {
		s.module("acme/vpc/aws", fmt.Sprintf("1.%d.0", i), nil)
	}
	s.deprecate("acme/vpc/aws", "1.0.0", "Old.", true)
	s.withdraw("acme/vpc/aws", "1.1.0", "It has a key.")
	contains(t, s.serve().text(t, http.StatusOK, "/modules/acme/vpc/aws/versions"), ">1.0.0</a>", "hidden", "<del>1.1.0</del>")
}
