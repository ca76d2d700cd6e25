package web_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/usage"
	"github.com/larder-registry/larder/pkg/usage/logged"
)

// callsVPC makes a version of a module call acme/vpc/aws with some constraints.
func callsVPC(constraints ...string) func(*registry.ModuleVersion) {
	return func(r *registry.ModuleVersion) {
		c := registry.DecodeContents(r.Contents)
		for _, constraint := range constraints {
			c.Calls = append(c.Calls, registry.Use{Source: host + "/acme/vpc/aws", Constraint: constraint})
		}
		r.Contents = c.Encode()
	}
}

// requires makes a version of a module require a provider.
func requires(source, constraint string) func(*registry.ModuleVersion) {
	return func(r *registry.ModuleVersion) {
		c := registry.DecodeContents(r.Contents)
		c.Requires = append(c.Requires, registry.Use{Source: source, Constraint: constraint})
		r.Contents = c.Encode()
	}
}

// counted has the same downloads for each address.
type counted struct {
	report usage.Report
	err    error
}

func (c counted) Count(_ context.Context, q usage.Query) (usage.Report, error) {
	if c.report.From.IsZero() {
		c.report.From = q.From.Truncate(24 * time.Hour)
	}
	return c.report, c.err
}

func (counted) AllTotals(context.Context, string) (map[string]registry.Downloads, error) {
	return map[string]registry.Downloads{}, nil
}

// withUses returns a store with something of each kind that modules use.
func withUses(t *testing.T) *store {
	t.Helper()
	s := withProviders(t)
	s.now = func() time.Time { return published.AddDate(0, 0, 18) }
	s.module("acme/vpc/aws", "1.0.0", network)
	s.module("acme/app/aws", "1.0.0", nil, callsVPC("~> 0.9"))
	s.module("acme/app/aws", "2.0.0", nil, callsVPC(">= 1.0, < 2", "", "1.0.0"), requires("hashicorp/random", "~> 3.0"))
	s.module("acme/old/aws", "1.0.0", nil, callsVPC("1.0.0"), requires(host+"/acme/inventory", ""))
	s.module("acme/old/aws", "2.0.0", nil)
	s.module("secret/app/aws", "7.7.7", nil, callsVPC("= 0.0.7"))
	return s
}

const usedByVPC = "/modules/acme/vpc/aws/used-by"

func TestUsedBy(t *testing.T) {
	t.Parallel()
	pages := withUses(t).serve()
	for path, want := range map[string][]string{
		usedByVPC: {
			"- [acme/app/aws](/modules/acme/app/aws.md) 2.0.0: any version, `1.0.0`, `>= 1.0, < 2`",
			"- [acme/old/aws](/modules/acme/old/aws.md) 1.0.0, not the latest: `1.0.0`",
			"- [secret/app/aws](/modules/secret/app/aws.md) 7.7.7: `= 0.0.7`", "1–3 of 3",
		},
		"/providers/acme/inventory/used-by": {"- [acme/old/aws](/modules/acme/old/aws.md) 1.0.0, not the latest: any version"},
		"/mirror/registry.opentofu.org/hashicorp/random/used-by": { // the clients' default host needs no host in a source
			"- [acme/app/aws](/modules/acme/app/aws.md) 2.0.0: `~> 3.0`",
		},
		"/modules/acme/app/aws/used-by": {"No module that you can read uses it."},
	} {
		contains(t, pages.text(t, http.StatusOK, path+".md"), append(want, "!## Downloads")...)
		if problems := check(pages.text(t, http.StatusOK, path)); len(problems) > 0 {
			t.Errorf("%s has %s", path, problems)
		}
	}
	for _, path := range []string{
		"/modules/acme/none/aws/used-by", "/providers/acme/none/used-by", "/mirror/registry.opentofu.org/hashicorp/none/used-by",
		"/mirror-modules/registry.opentofu.org/acme/none/aws/used-by", usedByVPC + "?after=x",
	} {
		pages.text(t, http.StatusNotFound, path)
	}
}

// A caller who may not read a dependent sees no trace of it, and one who may not
// read the module sees that nothing exists.
func TestUsedByScopes(t *testing.T) {
	t.Parallel()
	s := withUses(t)
	some, other := bearer(s.token("read:modules/acme/**")), bearer(s.token("read:modules/secret/**"))
	pages := s.protect(`{}`)
	for form, count := range map[string]string{"": `<span class="count">2</span>`, ".md": "1–2 of 2"} {
		contains(t, pages.text(t, http.StatusOK, usedByVPC+form, some...), "acme/old/aws", count, "!secret", "!0.0.7")
		pages.text(t, http.StatusNotFound, usedByVPC+form, other...)
	}
	page := pages.text(t, http.StatusOK, "/modules/secret/app/aws/used-by", other...)
	contains(t, page, "No module that you can read uses it.")
}

func TestDownloads(t *testing.T) {
	t.Parallel()
	now := published.AddDate(0, 0, 18)
	row := func(version, caller string, count int64, last time.Time) usage.Download {
		return usage.Download{Version: number(t, version), Caller: caller, Count: count, Last: last}
	}
	rows := []usage.Download{
		row("1.0.0", "ci", 1200, published), row("1.1.0", "", 2000, published), row("1.0.0", "ada", 900, now),
	}
	var many []usage.Download
	for i := range 23 {
		many = append(many, row(fmt.Sprintf("1.%d.0", i), "", 1, now))
	}
	for name, test := range map[string]struct {
		counted    counted
		head       string // of vpc 1.0.0
		others     string // of versions that nobody downloads
		page       []string
		wantLogged bool
	}{
		"some": {counted{report: usage.Report{Downloads: rows}}, "2,100 downloads in 30 days, 4,100 of all versions", "0 downloads in 30 days, 4,100 of all versions", []string{
			"4,100 downloads in 30 days\n", "| 1.0.0 | 2,100 | 20 Nov 2026 |\n| 1.1.0 | 2,000 | 2 Nov 2026 |", "!ada",
		}, false},
		"a short time": {counted{report: usage.Report{From: published, Downloads: rows[:1]}}, "1,200 downloads since 2 Nov<",
			"0 downloads since 2 Nov, 1,200 of all versions", []string{"1,200 downloads since 2 Nov\n"}, false},
		"one":        {counted{report: usage.Report{Downloads: many[:1]}}, "1 download in 30 days<", "0 downloads in 30 days, 1 of all versions", nil, false},
		"none":       {counted{}, "0 downloads in 30 days<", "0 downloads in 30 days<", []string{"0 downloads in 30 days", "!| Version |"}, false},
		"no counts":  {counted{err: registry.ErrNotFound}, "0 downloads yet<", "0 downloads yet<", []string{"0 downloads yet"}, false},
		"many":       {counted{report: usage.Report{Downloads: many}}, "1 download in 30 days, 23 of all", "1 download in 30 days, 23 of all", []string{"| 1.3.0 |", "!| 1.2.0 |", "And 3 more versions."}, false},
		"too many":   {counted{report: usage.Report{Downloads: rows, Cut: true}}, ", more than 4,100 of all versions", ", more than 4,100 of all", nil, false},
		"unreadable": {counted{err: errors.New("no counts today")}, "!download", "!download", []string{"acme/old/aws", "!ownload"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := withUses(t)
			s.downloads = test.counted
			pages := s.serve()
			for _, path := range []string{"/modules/acme/vpc/aws", inventory, random} {
				head, _, _ := strings.Cut(pages.text(t, http.StatusOK, path), `<nav class="sections"`)
				_, head, _ = strings.Cut(head, "<main")
				want := test.others
				if path == "/modules/acme/vpc/aws" {
					want = test.head
				}
				contains(t, head, want, `href="`+path+`/used-by"`)
				contains(t, pages.text(t, http.StatusOK, path+".md"), strings.TrimSuffix(want, "<"), "[Who uses it]("+path+"/used-by.md)")
			}
			contains(t, pages.text(t, http.StatusOK, usedByVPC+".md"), test.page...)
			if logged := strings.Contains(pages.log.String(), "no counts today"); logged != test.wantLogged {
				t.Errorf("the error is logged: %t, want %t", logged, test.wantLogged)
			}
			if name == "some" {
				golden.Equal(t, "testdata/usedby.html", []byte(pages.text(t, http.StatusOK, usedByVPC)))
			}
		})
	}
	// Only the page of a version has them.
	s := withUses(t)
	s.downloads = counted{}
	contains(t, s.serve().text(t, http.StatusOK, "/modules/acme/vpc/aws/1.0.0/modules/endpoints"), "!0 downloads", "!used-by")
}

// The page reads the address, and the catalog and the contents of modules once a
// minute.
func TestUsedByReads(t *testing.T) {
	t.Parallel()
	s := withUses(t)
	pages := s.serve()
	pages.text(t, http.StatusOK, usedByVPC)
	for path, want := range map[string]string{
		usedByVPC: "Snapshot", inventory + "/used-by": "Snapshot", random + "/used-by": "Snapshot",
	} {
		s.table.Take()
		pages.text(t, http.StatusOK, path)
		if diff := cmp.Diff(want, s.table.Take()); diff != "" {
			t.Errorf("%s: requests (-want +got):\n%s", path, diff)
		}
	}
}

// Pages read the downloads of an address with one query, and then share them.
// The time since when they are counted never changes, so it is read once.
func TestDownloadReads(t *testing.T) {
	t.Parallel()
	s := withUses(t)
	since := registry.Downloads{Count: 1, Last: time.Now()}
	if err := s.catalog.AddTotal(t.Context(), "1", address(t, "acme/vpc/aws"), since); err != nil {
		t.Fatal(err)
	}
	s.now, s.downloads = nil, logged.NewReader(catalog.New(s.table))
	pages := s.serve()
	for _, path := range []string{inventory + "/used-by", random} { // the policy and the catalog are then cached
		pages.text(t, http.StatusOK, path)
	}
	for _, test := range []struct{ path, want string }{
		{"/modules/acme/vpc/aws", "Query Snapshot Snapshot"}, {"/modules/acme/vpc/aws", "Snapshot Snapshot"},
		{usedByVPC, "Snapshot"}, {"/modules/acme/vpc/aws/versions", "Snapshot Snapshot"},
		{"/modules/acme/app/aws/1.0.0", "Query Snapshot Snapshot"}, {inventory, "Snapshot Snapshot"},
		{"/modules/acme/old/aws/versions", "Query Snapshot Snapshot"}, {random + "/versions", "Snapshot Snapshot"},
		{"/modules/acme/vpc/aws/1.0.0/modules/endpoints", "Snapshot"},
	} {
		s.table.Take()
		pages.text(t, http.StatusOK, test.path)
		got := strings.Fields(s.table.Take()) // some are at the same time
		slices.Sort(got)
		if diff := cmp.Diff(test.want, strings.Join(got, " ")); diff != "" {
			t.Errorf("%s: requests (-want +got):\n%s", test.path, diff)
		}
	}
}

// A long list has pages, which are small.
func TestManyUses(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.module("acme/vpc/aws", "1.0.0", nil)
	for i := range 999 {
		constraints := []string{"~> 1.0", "1.0.0", ">= 0.5, < 2.0"}
		s.module(fmt.Sprintf("acme/a-module-that-calls-another-%03d/aws", i), "1.0.0", nil, callsVPC(constraints...))
	}
	s.module("acme/zoo/aws", "1.0.0", nil, callsVPC(strings.Fields("1 2 3 4 5 6 7 8 9 10 11 12")...))
	pages := s.serve()
	first := pages.text(t, http.StatusOK, usedByVPC)
	contains(t, first, "1–100 of 1,000", usedByVPC+"?after=100", "Next 100 modules", "another-099", "!another-100")
	if compressed := pages.get(t, usedByVPC, "Accept-Encoding", "gzip").Body.Len(); len(first) > 150<<10 || compressed > 25<<10 {
		t.Errorf("the page has %d bytes, %d compressed", len(first), compressed)
	}
	contains(t, pages.text(t, http.StatusOK, usedByVPC+"?after=900"), "901–1,000 of 1,000", "another-900", " and 2 more", "!another-899")
}
