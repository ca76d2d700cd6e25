package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/tabletest"
	"github.com/larder-registry/larder/pkg/registry"
)

// numbers parses versions.
func numbers(t testing.TB, versions ...string) (parsed []registry.Version) {
	t.Helper()
	for _, v := range versions {
		parsed = append(parsed, parseVersion(t, v))
	}
	return parsed
}

// numbersOf returns the versions of records, sorted.
func numbersOf[R registry.Record](t testing.TB, records map[registry.Version]R) (all []string) {
	t.Helper()
	for n, r := range records {
		if r.Number() != n {
			t.Errorf("the record of %s has version %s", n, r.Number())
		}
		all = append(all, n.String())
	}
	slices.Sort(all)
	return all
}

// publishStates publishes versions of the tests' module: some are listed, one is
// hidden, and two are withdrawn.
func publishStates(t testing.TB, c *catalog.Catalog) registry.Module {
	t.Helper()
	vpc := module(t, "acme/vpc/aws")
	for _, v := range []string{"1.0.0", "0.1.0", "1.1.0+build.7", "2.0.0-rc.1", "1.0.1"} {
		publish(t, c, vpc, documented(t, v))
	}
	hidden := parseVersion(t, "1.0.1")
	d := catalog.Deprecation{Message: "old", Hide: true, By: "ada"}
	deprecate(t, c.Modules, vpc, &hidden, d)
	withdraw(t, c, vpc, "0.1.0")
	withdraw(t, c, vpc, "2.0.0-rc.1")
	return vpc
}

// Contents returns the entry, the listing and the requested records. One request
// reads them. Records returns the same records with one request.
func TestContents(t *testing.T) {
	t.Parallel()
	// Two pairs have one key.
	asked := numbers(t, "1.0.0", "1.0.0", "1.0.1", "1.1.0", "1.1.0+build.7", "2.0.0-rc.1", "7.0.0")
	for name, open := range tables() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			table := &tabletest.Faulty{Table: open(t)}
			c := catalog.New(table)
			vpc := publishStates(t, c)
			before := table.Calls.Load()
			got, err := c.Modules.Contents(t.Context(), vpc, asked...)
			if err != nil {
				t.Fatal(err)
			}
			if calls := table.Calls.Load() - before; calls != 1 {
				t.Errorf("Contents makes %d requests, want 1", calls)
			}
			listed := numbers(t, "1.1.0+build.7", "1.0.0")
			entry := entryOf(t, vpc, "1.1.0+build.7")
			entry.Description, entry.Contents = "of 1.1.0+build.7", got.Entry.Contents
			entry.Withdrawn, entry.Hidden = numbers(t, "2.0.0-rc.1", "0.1.0"), numbers(t, "1.0.1")
			want := catalog.Contents[registry.ModuleVersion]{
				Entry: entry, Listed: listed, Records: got.Records,
				Published: map[registry.Version]time.Time{
					listed[0]: publishedAt(listed[0]), listed[1]: publishedAt(listed[1]),
				},
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			before = table.Calls.Load()
			records, err := c.Modules.Records(t.Context(), vpc, asked...)
			if err != nil {
				t.Fatal(err)
			}
			if calls := table.Calls.Load() - before; calls != 1 {
				t.Errorf("Records makes %d requests, want 1", calls)
			}
			if diff := cmp.Diff(got.Records, records); diff != "" {
				t.Errorf("Records (-Contents +Records):\n%s", diff)
			}
			if diff := cmp.Diff([]string{"1.0.0", "1.0.1", "1.1.0+build.7", "2.0.0-rc.1"}, numbersOf(t, records)); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
			if !records[asked[2]].Hidden {
				t.Error("the hidden version's record is not hidden")
			}
			if records[asked[5]].Withdrawn == nil {
				t.Error("the withdrawn version's record is not withdrawn")
			}
		})
	}
}

// Contents of an address without listed versions has its withdrawn versions.
// An address to which nothing was published is not found.
func TestContentsOfNothing(t *testing.T) {
	t.Parallel()
	table := &tabletest.Faulty{Table: open(t)}
	c := catalog.New(table)
	vpc := module(t, "acme/vpc/aws")
	for _, v := range []string{"1.0.0", "1.1.0"} {
		publish(t, c, vpc, record(t, v, ""))
		withdraw(t, c, vpc, v)
	}
	got, err := c.Modules.Contents(t.Context(), vpc)
	if err != nil {
		t.Fatal(err)
	}
	want := registry.Summary{Address: vpc.String(), Unlisted: true, Withdrawn: numbers(t, "1.1.0", "1.0.0")}
	if diff := cmp.Diff(want, got.Entry); diff != "" {
		t.Errorf("entry (-want +got):\n%s", diff)
	}
	if len(got.Listed) > 0 {
		t.Errorf("listed versions: %v", got.Listed)
	}
	if _, err := c.Mirror.Contents(t.Context(), random); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("a mirrored provider without versions: %v, want %v", err, registry.ErrNotFound)
	}
	before := table.Calls.Load()
	records, err := c.Modules.Records(t.Context(), vpc)
	if err != nil || len(records) > 0 {
		t.Errorf("no records: %v, %v", records, err)
	}
	if calls := table.Calls.Load() - before; calls != 0 {
		t.Errorf("reading no records makes %d requests", calls)
	}
}

// A record that cannot be read does not prevent reading the others. A damaged
// entry or listing does.
func TestContentsDamaged(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	const partition = "modules/acme/vpc/aws"
	two := numbers(t, "1.0.0", "1.1.0")
	for name, test := range map[string]struct {
		partition, sort, data string
		records               []string
	}{
		"a record":         {partition, "version/1.0.0", "{", []string{"1.1.0"}},
		"another's record": {partition, "version/1.0.0", `{"version":"1.1.0","withdrawn":{}}`, []string{"1.1.0"}},
		"the listing":      {partition, "listing", "x", nil},
		"no listing":       {partition, "listing", "", nil},
		"the entry":        {"catalog/acme", partition, "[]", nil},
		"another's entry":  {"catalog/acme", partition, `{"address":"acme/dns/aws","latest":"1.1.0"}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			table := open(t)
			c := catalog.New(table)
			vpc := module(t, "acme/vpc/aws")
			publish(t, c, vpc, record(t, "1.0.0", ""))
			publish(t, c, vpc, record(t, "1.1.0", ""))
			replace(t, table, test.partition, test.sort, []byte(test.data))
			got, err := c.Modules.Contents(t.Context(), vpc, two...)
			if !isCorrupt(err) {
				t.Fatalf("%v, want %v", err, registry.ErrCorrupt)
			}
			texts.Error(t, err)
			if diff := cmp.Diff(test.records, numbersOf(t, got.Records)); diff != "" {
				t.Errorf("records (-want +got):\n%s", diff)
			}
			if listed := len(got.Listed); (listed == 2) != (test.records != nil) {
				t.Errorf("it has %d listed versions", listed)
			}
			if test.records == nil {
				return
			}
			records, err := c.Modules.Records(t.Context(), vpc, two...)
			if !isCorrupt(err) {
				t.Errorf("Records: %v, want %v", err, registry.ErrCorrupt)
			}
			if diff := cmp.Diff(test.records, numbersOf(t, records)); diff != "" {
				t.Errorf("Records (-want +got):\n%s", diff)
			}
		})
	}
}

// SignedRecords reads the records and the key with one request. A key that is
// missing or damaged does not prevent reading the records.
func TestSignedRecords(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	sqlite := open(t)
	table := &tabletest.Faulty{Table: sqlite}
	c := catalog.New(table)
	key := registry.SigningKey{ID: "A", Owner: "Acme", ASCIIArmor: "-----BEGIN PGP PUBLIC KEY BLOCK-----"}
	for _, k := range []registry.SigningKey{key, {ID: "B"}, {ID: "D"}} {
		if _, err := c.AddSigningKey(t.Context(), "acme", k); err != nil {
			t.Fatal(err)
		}
	}
	publishProvider(t, c, inventory, providerRecord(t, "1.0.0", "A"))
	publishProvider(t, c, inventory, providerRecord(t, "1.1.0", "A"))
	replace(t, sqlite, inventory.Path(), "version/1.0.0", []byte("{"))
	replace(t, sqlite, "keys/acme", "B", []byte(`{"id":"A"}`))
	for _, test := range []struct {
		id   string
		ask  []string
		want []string
		key  *registry.SigningKey
		err  error
	}{
		{"A", []string{"1.1.0"}, []string{"1.1.0"}, &key, nil},
		{"A", nil, nil, &key, nil},
		{"", []string{"1.1.0", "1.2.0"}, []string{"1.1.0"}, nil, nil},
		{"C", []string{"1.1.0"}, []string{"1.1.0"}, nil, nil},
		{"A", []string{"1.0.0", "1.1.0"}, []string{"1.1.0"}, &key, registry.ErrCorrupt},
		{"B", []string{"1.1.0"}, []string{"1.1.0"}, nil, registry.ErrCorrupt},
		{"D", []string{"1.1.0"}, []string{"1.1.0"}, nil, registry.ErrCorrupt},
		{"B", []string{"1.0.0", "1.1.0"}, []string{"1.1.0"}, nil, registry.ErrCorrupt},
	} {
		name := fmt.Sprintf("key %q and %v", test.id, test.ask)
		before := table.Calls.Load()
		records, got, err := c.SignedRecords(t.Context(), inventory, test.id, numbers(t, test.ask...)...)
		if calls := table.Calls.Load() - before; calls != 1 {
			t.Errorf("%s: %d requests, want 1", name, calls)
		}
		if !errors.Is(err, test.err) {
			t.Errorf("%s: %v, want %v", name, err, test.err)
		}
		if err != nil {
			texts.Error(t, err)
		}
		if diff := cmp.Diff(test.want, numbersOf(t, records)); diff != "" {
			t.Errorf("%s: records (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(test.key, got); diff != "" {
			t.Errorf("%s: key (-want +got):\n%s", name, diff)
		}
	}
}

// If the table cannot be read, its error is returned, and nothing else.
func TestContentsFaults(t *testing.T) {
	t.Parallel()
	sqlite := open(t)
	vpc := publishStates(t, catalog.New(sqlite))
	one := parseVersion(t, "1.0.0")
	for name, read := range map[string]func(context.Context, *catalog.Catalog) (int, error){
		"contents": func(ctx context.Context, c *catalog.Catalog) (int, error) {
			got, err := c.Modules.Contents(ctx, vpc, one)
			return len(got.Listed) + len(got.Records), err
		},
		"records": func(ctx context.Context, c *catalog.Catalog) (int, error) {
			got, err := c.Modules.Records(ctx, vpc, one)
			return len(got), err
		},
		"listing": func(ctx context.Context, c *catalog.Catalog) (int, error) {
			got, err := c.Modules.Listing(ctx, vpc)
			return len(got), err
		},
		"record": func(ctx context.Context, c *catalog.Catalog) (int, error) {
			_, err := c.Modules.Get(ctx, vpc, one)
			return 0, err
		},
		"signed records": func(ctx context.Context, c *catalog.Catalog) (int, error) {
			got, _, err := c.SignedRecords(ctx, inventory, "A", one)
			return len(got), err
		},
	} {
		found, err := read(t.Context(), catalog.New(&tabletest.Faulty{Table: sqlite, FailAt: 1}))
		if !errors.Is(err, tabletest.ErrFault) {
			t.Errorf("%s: %v, want %v", name, err, tabletest.ErrFault)
		}
		if found > 0 {
			t.Errorf("%s: it returns %d versions with the error", name, found)
		}
	}
}

// The entry of a module has the numbers of the versions that are hidden, deprecated
// or withdrawn.
func TestStatesInEntry(t *testing.T) {
	t.Parallel()
	c := catalog.New(tables()["SQLite"](t))
	vpc := module(t, "acme/vpc/aws")
	for _, v := range []string{"1.0.0", "1.1.0", "2.0.0"} {
		publish(t, c, vpc, documented(t, v))
	}
	change := func(v, message string, hide bool) {
		n := parseVersion(t, v)
		deprecate(t, c.Modules, vpc, &n, catalog.Deprecation{Message: message, Hide: hide, By: "ada"})
	}
	for _, step := range []struct {
		name string
		do   func()
		want string
	}{
		{"deprecate", func() { change("1.1.0", "old", false) }, "deprecated [1.1.0], hidden [], withdrawn []"},
		{"hide one", func() { change("1.0.0", "bad", true) }, "deprecated [1.1.0], hidden [1.0.0], withdrawn []"},
		{"hide the other", func() { change("1.1.0", "bad", true) }, "deprecated [], hidden [1.1.0 1.0.0], withdrawn []"},
		{"list it again", func() { change("1.1.0", "", false) }, "deprecated [], hidden [1.0.0], withdrawn []"},
		{"withdraw a hidden one", func() { withdraw(t, c, vpc, "1.0.0") }, "deprecated [], hidden [], withdrawn [1.0.0]"},
	} {
		step.do()
		s, err := c.Modules.Summary(t.Context(), vpc)
		if err != nil {
			t.Fatal(err)
		}
		var deprecated []registry.Version
		for _, d := range s.DeprecatedVersions {
			deprecated = append(deprecated, d.Version)
			if d.Message != "" {
				t.Errorf("%s: the entry has the message %q", step.name, d.Message)
			}
		}
		if got := fmt.Sprintf("deprecated %v, hidden %v, withdrawn %v", deprecated, s.Hidden, s.Withdrawn); got != step.want {
			t.Errorf("%s: the entry has %s, want %s", step.name, got, step.want)
		}
	}
}

// An entry has at most 1,000 withdrawn versions: the highest ones.
func TestWithdrawnIsBounded(t *testing.T) {
	t.Parallel()
	table := open(t)
	c := catalog.New(table)
	vpc := module(t, "acme/vpc/aws")
	for _, v := range []string{"1.0.0", "2.0.0", "2.1000.0"} {
		publish(t, c, vpc, record(t, v, ""))
	}
	var all []string
	for minor := 999; minor >= 0; minor-- {
		all = append(all, fmt.Sprintf(`"2.%d.1"`, minor))
	}
	replace(t, table, "catalog/acme", vpc.Path(), []byte(
		`{"address":"acme/vpc/aws","latest":"2.1000.0","withdrawn":[`+strings.Join(all, ",")+`]}`))
	for _, step := range []struct{ withdraw, first, last string }{
		{"1.0.0", "2.999.1", "2.0.1"},
		{"2.1000.0", "2.1000.0", "2.1.1"},
	} {
		withdraw(t, c, vpc, step.withdraw)
		s, err := c.Modules.Summary(t.Context(), vpc)
		if err != nil {
			t.Fatal(err)
		}
		got := []any{len(s.Withdrawn), s.Withdrawn[0].String(), s.Withdrawn[len(s.Withdrawn)-1].String()}
		if diff := cmp.Diff([]any{1000, step.first, step.last}, got); diff != "" {
			t.Errorf("after withdrawing %s (-want +got):\n%s", step.withdraw, diff)
		}
	}
}
