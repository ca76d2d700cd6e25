package catalog_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/internal/testkit/stock"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/tabletest"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// trail returns the audit entries since a time, the newest first.
func trail(t testing.TB, c *catalog.Catalog, since time.Time) []string {
	t.Helper()
	var all []string
	for e := range each(t, c.Audit(t.Context(), since)) {
		version := ""
		if e.Version != nil {
			version = " " + e.Version.String()
		}
		all = append(all, strings.TrimSpace(fmt.Sprintf("%s: %s %s%s: %s", e.By, e.Action, e.Subject, version, e.Detail)))
	}
	return all
}

// The trail records each change with its author, its action and its time. It
// records nothing for changes that fail or have no effect.
func TestAudit(t *testing.T) {
	t.Parallel()
	ctx, began := t.Context(), time.Now()
	c := catalog.New(open(t))
	vpc, first := module(t, "acme/vpc/aws"), record(t, "1.0.0", "a").Version

	publish(t, c, vpc, record(t, "1.0.0", "a"))
	publish(t, c, vpc, record(t, "0.0.0", "b"))
	for range 2 {
		if _, err := c.AddSigningKey(ctx, "acme", registry.SigningKey{
			ID: "A", Owner: "Releases", AddedBy: "kay",
		}); err != nil {
			t.Fatal(err)
		}
	}
	released := providerRecord(t, "1.0.0", "A")
	released.PublishedBy = registry.Publisher{Kind: registry.PublisherToken, Name: "ci"}
	by := released.PublishedBy.String()
	if _, _, err := c.Providers.Publish(ctx, inventory, released.Version, by, func(
		context.Context, protocol.Document,
	) (registry.ProviderVersion, error) {
		return released, nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, add := range [][]string{{"linux_amd64 l"}, {"linux_amd64 l"}, {"linux_amd64 l", "linux_386 3"}} {
		if _, _, err := c.Mirror.Add(ctx, random, mirrorRecord(t, "3.0.0", add...), "mia"); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		docs := registry.StoredFile{Object: vpc.DocumentKey(first, "d0c", registry.DocsName), SHA256: "d0c"}
		made := registry.Documents{Docs: &docs}
		if _, err := c.SetDocs(ctx, vpc, first, made, stock.Contents("words"), "eve"); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []struct {
		message string
		hide    bool
	}{{"use 2.0.0", false}, {"leaks", true}, {"", false}} {
		deprecate(t, c.Modules, vpc, &first, catalog.Deprecation{Message: d.message, Hide: d.hide, By: "dee"})
	}
	deprecate(t, c.Providers, inventory, nil, catalog.Deprecation{Message: "use acme/stock", By: "dee"})
	if err := c.AddToken(ctx, "dig", registry.Token{
		ID: "dig", Name: "ci", Scopes: []string{"read:**", "publish:modules/acme"}, CreatedBy: "tom",
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.RevokeToken(ctx, "ci", "rob"); err != nil {
		t.Fatal(err)
	}
	if err := c.RemoveSigningKey(ctx, "acme", "A", "rob"); err != nil {
		t.Fatal(err)
	}

	if _, created, err := put(ctx, c.Modules, vpc, record(t, "1.0.0", "a")); err != nil || created {
		t.Fatal(created, err)
	}
	if _, err := c.RevokeToken(ctx, "ci", "rob"); err == nil {
		t.Error("a token was revoked twice")
	}

	want := []string{
		"rob: remove-key keys/acme/A: Releases", "rob: revoke-token tokens/dig: ci: read:** publish:modules/acme",
		"tom: create-token tokens/dig: ci: read:** publish:modules/acme",
		"dee: deprecate providers/acme/inventory: use acme/stock", "dee: undeprecate modules/acme/vpc/aws 1.0.0:",
		"dee: hide modules/acme/vpc/aws 1.0.0: leaks", "dee: deprecate modules/acme/vpc/aws 1.0.0: use 2.0.0",
		"eve: document modules/acme/vpc/aws 1.0.0: sha256:d0c", "mia: mirror " + random.Path() + " 3.0.0: linux_386",
		"mia: mirror " + random.Path() + " 3.0.0: linux_amd64", "token ci: publish providers/acme/inventory 1.0.0:",
		"kay: replace-key keys/acme/A: Releases", "kay: add-key keys/acme/A: Releases",
		"somebody: publish modules/acme/vpc/aws 0.0.0:", "somebody: publish modules/acme/vpc/aws 1.0.0:",
	}
	if diff := cmp.Diff(want, trail(t, c, began)); diff != "" {
		t.Error(diff)
	}
	for e := range each(t, c.Audit(ctx, time.Time{}.AddDate(2000, 0, 0))) {
		if e.At.Before(began) || e.At.After(time.Now()) {
			t.Errorf("an entry has the time %v", e.At)
		}
	}
	if got := trail(t, c, time.Now()); got != nil {
		t.Errorf("since now: %q", got)
	}
}

// Audit reads several months, and several pages of a month, as far as
// requested.
func TestAuditOfMonths(t *testing.T) {
	t.Parallel()
	const many = 150
	table := open(t)
	now := time.Now().UTC()
	var want []string
	seed := func(at time.Time, by string) {
		data, err := json.Marshal(registry.AuditEntry{At: at, By: by, Action: registry.AuditPublish, Subject: "x"})
		if err != nil {
			t.Fatal(err)
		}
		key := catalog.Key{
			Partition: "audit/" + at.Format("2006-01"), Sort: at.Format("2006-01-02T15:04:05.000000000Z") + "#" + by,
		}
		if err := table.Write(t.Context(), catalog.Change{Key: key, Data: data}); err != nil {
			t.Fatal(err)
		}
		want = append(want, by+": publish x:")
	}
	month := time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
	lastOfBefore := month.Add(-time.Nanosecond)
	seed(month, "first of a month")
	seed(lastOfBefore, "last of a month")
	long := month.AddDate(0, -7, 9)
	for i := range many {
		seed(long.Add(-time.Duration(i)*time.Millisecond), fmt.Sprint("one of many ", i))
	}
	c := catalog.New(table)
	for _, test := range []struct {
		since time.Time
		want  int
	}{
		{now.AddDate(-5, 0, 0), many + 2},
		{long.Add(-(many - 1) * time.Millisecond), many + 2},
		{long, 3},
		{lastOfBefore, 2},
		{lastOfBefore.In(time.FixedZone("", 14*60*60)), 2},
		{month, 1},
		{now.Add(time.Hour), 0},
	} {
		if diff := cmp.Diff(append([]string(nil), want[:test.want]...), trail(t, c, test.since)); diff != "" {
			t.Errorf("since %s: %s", test.since, diff)
		}
	}
	for range c.Audit(t.Context(), time.Time{}) {
		break // a caller can stop early
	}
}

// An entry that someone adds to the trail, or overwrites, hides no other entry
// and is reported as a problem.
func TestAuditForged(t *testing.T) {
	t.Parallel()
	table := open(t)
	c := catalog.New(table)
	began := time.Now()
	publish(t, c, module(t, "acme/vpc/aws"), record(t, "1.0.0", "a"))
	month := time.Now().UTC().Format("2006-01")
	next := time.Now().UTC().AddDate(0, 0, 1-time.Now().UTC().Day()).AddDate(0, 1, 0).Format("2006-01")
	for sort, data := range map[string]string{
		month + "-99": `{}`,
		"zz":          `{"at":"1970-01-01T00:00:00Z"}`,
		"zzz":         `no JSON`,
		// An entry of the next month in the partition of this month.
		next + "-01T00:00:00.000000000Z#a": `{"at":"` + next + `-01T00:00:00Z","problem":""}`,
	} {
		if err := table.Write(t.Context(), catalog.Change{
			Key: catalog.Key{Partition: "audit/" + month, Sort: sort}, Data: []byte(data),
		}); err != nil {
			t.Fatal(err)
		}
	}
	// Entries as a writer whose clock is ahead would write them. The time of
	// the second was overwritten.
	for sort, data := range map[string]string{
		next + "-01T00:00:00.000000000Z#b": `{"at":"` + next + `-01T00:00:00Z","problem":"made up","by":"early"}`,
		next + "-01T00:00:00.000000000Z#c": `{"at":"1970-01-01T00:00:00Z"}`,
	} {
		if err := table.Write(t.Context(), catalog.Change{
			Key: catalog.Key{Partition: "audit/" + next, Sort: sort}, Data: []byte(data),
		}); err != nil {
			t.Fatal(err)
		}
	}
	var got, problems []string
	for e := range each(t, c.Audit(t.Context(), began)) {
		got = append(got, fmt.Sprintf("zero time: %t, by: %q, problem: %t", e.At.IsZero(), e.By, e.Problem != ""))
		if e.Problem != "" {
			_, reason, _ := strings.Cut(e.Problem, ": ") // without the name of the item
			problems = append(problems, reason+"\n")
		}
		ok := e.Problem == "" && e.Action == registry.AuditPublish
		if ok != (e.By == "somebody") {
			t.Errorf("%+v is a publish: %t", e, ok)
		}
		if ok && (e.Subject != "modules/acme/vpc/aws" || e.Version.String() != "1.0.0") {
			t.Errorf("%+v is a publish of %s %s", e, e.Subject, e.Version)
		}
	}
	want := []string{
		`zero time: false, by: "", problem: true`, `zero time: false, by: "", problem: true`,
		`zero time: false, by: "early", problem: false`, `zero time: false, by: "somebody", problem: false`,
		`zero time: true, by: "", problem: true`, `zero time: true, by: "", problem: true`,
		`zero time: true, by: "", problem: true`,
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	slices.Sort(problems)
	golden.New(t).Text(t, strings.Join(problems, ""))
}

// A change and its audit entry are both stored or neither, whichever call of
// the table fails. That includes a write whose response is lost.
func TestAuditFailsAtEachCall(t *testing.T) {
	t.Parallel()
	for _, done := range []bool{false, true} {
		for call := int64(1); ; call++ {
			table := open(t)
			good := catalog.New(table)
			m, v := module(t, "acme/vpc/aws"), record(t, "1.0.0", "a").Version
			publish(t, good, m, record(t, "1.0.0", "a"))
			_, err := catalog.New(&tabletest.Faulty{Table: table, FailAt: call, Done: done}).Modules.Deprecate(
				t.Context(), m, &v, catalog.Deprecation{Message: "old", Hide: false, By: "ada"},
			)
			stored, getErr := good.Modules.Get(t.Context(), m, v)
			if getErr != nil {
				t.Fatal(getErr)
			}
			got := trail(t, good, time.Now().Add(-time.Hour))
			if recorded := len(got) == 2; recorded != (stored.Deprecated == "old") {
				t.Errorf("call %d fails: %q, %q", call, got, stored.Deprecated)
			}
			if err == nil {
				if call < 3 {
					t.Errorf("%d calls", call-1)
				}
				break
			}
		}
	}
	// An entry that cannot be read is an error and does not end the trail.
	table := open(t)
	publish(t, catalog.New(table), module(t, "acme/vpc/aws"), record(t, "1.0.0", "a"))
	for call := int64(1); call <= 2; call++ {
		entries := 0
		var err error
		for _, err = range catalog.New(&tabletest.Faulty{
			Table: table, FailAt: call,
		}).Audit(t.Context(), time.Now().AddDate(0, -1, 0)) {
			entries++
		}
		if err == nil {
			t.Errorf("call %d fails: %d entries, and no error", call, entries)
		}
	}
}

// AuditTrail returns the same entries as Audit in the opposite order, over
// several months and pages.
func TestAuditTrail(t *testing.T) {
	t.Parallel()
	table := open(t)
	c := catalog.New(pagesOfTwo{table})
	for i, month := range []string{"2020-01", "2026-01", "2026-01", "2026-01", "2026-03"} {
		at := fmt.Sprintf("%s-02T00:00:0%d.000000000Z", month, i)
		key := catalog.Key{Partition: "audit/" + month, Sort: at + "#x"}
		if err := table.Write(t.Context(), catalog.Change{Key: key, Data: []byte(`{"at":"` + at + `"}`)}); err != nil {
			t.Fatal(err)
		}
	}
	publish(t, c, module(t, "acme/vpc/aws"), record(t, "1.0.0", "a"))
	var newest, oldest []registry.AuditEntry
	for e := range each(t, c.Audit(t.Context(), time.Time{})) {
		newest = append(newest, e)
	}
	for e := range each(t, c.AuditTrail(t.Context())) {
		oldest = append(oldest, e)
	}
	slices.Reverse(newest)
	if diff := cmp.Diff(newest, oldest); diff != "" || len(oldest) != 6 {
		t.Errorf("%d entries: %s", len(oldest), diff)
	}
}

// pagesOfTwo is a table whose pages have two items.
type pagesOfTwo struct{ catalog.Table }

func (p pagesOfTwo) Query(ctx context.Context, q catalog.Query) (catalog.Page, error) {
	q.Limit = 2
	return p.Table.Query(ctx, q)
}
