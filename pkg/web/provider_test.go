package web_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/registry"
)

const (
	inventory = "/providers/acme/inventory"
	random    = "/mirror/registry.opentofu.org/hashicorp/random"
)

// withProviders returns a store with a provider, of which a version is
// withdrawn, and a mirrored provider.
func withProviders(t testing.TB) *store {
	t.Helper()
	s := newStore(t)
	key := registry.SigningKey{
		ID: "51852D87348FFC4C", Owner: "Acme <b>Platform</b>", Algorithm: "Ed25519", CreatedAt: published, AddedAt: published,
		ASCIIArmor: "-----BEGIN PGP PUBLIC KEY BLOCK-----",
	}
	if _, err := s.catalog.AddSigningKey(t.Context(), "acme", key); err != nil {
		t.Fatal(err)
	}
	for _, v := range []string{"1.0.0", "1.1.0", "1.2.0"} {
		s.provider("acme/inventory", v)
		s.mirrored("registry.opentofu.org/hashicorp/random", v)
	}
	p := registry.Provider{Namespace: "acme", Type: "inventory"}
	w := registry.Withdrawal{At: published, By: "tests", Reason: "it has a key"}
	if _, _, err := s.catalog.Providers.Withdraw(t.Context(), p, number(t, "1.1.0"), w, false); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestProviderPages(t *testing.T) {
	t.Parallel()
	web := withProviders(t).serve()
	for file, path := range map[string]string{
		"provider": inventory, "mirrored": random, "provider-versions": inventory + "/versions",
	} {
		golden.Equal(t, "testdata/"+file+".html", []byte(mainOf(web.text(t, http.StatusOK, path))))
		golden.Equal(t, "testdata/"+file+".md", []byte(web.text(t, http.StatusOK, path+".md")))
	}
}

func TestProviderStates(t *testing.T) {
	t.Parallel()
	s := withProviders(t)
	web := s.serve()
	for name, test := range map[string]struct {
		path   string
		status int
		parts  []string
	}{
		"an old version":              {inventory + "/1.0.0", 200, []string{"1.0.0 is not the latest version.", "Owner"}},
		"a withdrawn version":         {inventory + "/1.1.0", 404, []string{"1.1.0 was withdrawn on", "It has a key.", "!Platforms", "!menu picker", "> 1.1.0</span>"}},
		"an unknown version":          {inventory + "/9.9.9", 404, []string{"Not found", `value="inventory"`}},
		"no version":                  {inventory + "/versionless", 404, []string{"Not found"}},
		"an unknown provider":         {"/providers/acme/none", 404, []string{"Not found"}},
		"an unknown mirrored version": {random + "/9.9.9", 404, []string{"Not found", `value="random"`}},
		"another origin":              {"/mirror/registry.terraform.io/hashicorp/random", 404, []string{"Not found"}},
		"an old mirrored version":     {random + "/1.0.0", 200, []string{"1.0.0 is not the latest version."}},
		"a bad page":                  {inventory + "/versions?after=x", 404, []string{"Not found"}},
		"a page after the last":       {inventory + "/versions?after=99999", 200, []string{"1.0.0"}},
	} {
		t.Run(name, func(t *testing.T) { contains(t, web.text(t, test.status, test.path), test.parts...) })
	}
	if err := s.catalog.RemoveSigningKey(t.Context(), "acme", "51852D87348FFC4C", "tests"); err != nil {
		t.Fatal(err)
	}
	contains(t, web.text(t, http.StatusOK, inventory), "does not have this key any more")
}

// Each page of a provider makes at most two requests to the table.
func TestProviderReads(t *testing.T) {
	t.Parallel()
	s := withProviders(t)
	web := s.serve()
	web.text(t, http.StatusOK, random) // reads the policy, which is then cached
	for _, path := range []string{
		inventory, inventory + "/1.0.0", inventory + "/versions", random, random + "/1.0.0", random + "/versions",
	} {
		s.table.Take()
		web.text(t, http.StatusOK, path)
		if diff := gocmp.Diff("Snapshot Snapshot", s.table.Take()); diff != "" {
			t.Errorf("%s: requests (-want +got):\n%s", path, diff)
		}
	}
	if reads := s.objects.reads.Load(); reads != 0 {
		t.Errorf("%d objects were read", reads)
	}
}

// The list of versions has 100 on a page. Withdrawn ones have no link.
func TestVersions(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	for i := range 103 {
		s.module("acme/vpc/aws", fmt.Sprintf("1.%d.0", i), nil)
	}
	s.deprecate("acme/vpc/aws", "1.102.0", "hidden reason", true)
	s.deprecate("acme/vpc/aws", "1.101.0", "use 1.100.0", false)
	s.withdraw("acme/vpc/aws", "1.50.0", "it has a key")
	web := s.serve()
	const path = "/modules/acme/vpc/aws/versions"
	first := web.text(t, http.StatusOK, path)
	contains(t, first, "1–100 of 103", path+"?after=100", "Next 3 versions", "use 1.100.0", "<del>1.50.0</del>", "it has a key",
		`href="/modules/acme/vpc/aws/1.102.0"`, "hidden reason", `!href="/modules/acme/vpc/aws/1.50.0"`)
	if n := strings.Count(first, "<th role=\"rowheader\""); n != 100 {
		t.Errorf("%d versions, want 100", n)
	}
	contains(t, web.text(t, http.StatusOK, path+"?after=100"), "101–103 of 103", ">1.0.0</a>", "!1.3.0", "!Next")
}
