package catalog_test

import (
	"bytes"
	"compress/gzip"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/larder-registry/larder/internal/testkit/awstest"
	"github.com/larder-registry/larder/internal/testkit/dynamodbtest"
	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/internal/testkit/stock"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/dynamodb"
	"github.com/larder-registry/larder/pkg/catalog/sqlite"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// tables returns functions that open an empty table, by the backend's name.
func tables() map[string]func(testing.TB) catalog.Table {
	return map[string]func(testing.TB) catalog.Table{
		"SQLite": func(t testing.TB) catalog.Table { t.Helper(); return open(t) },
		"DynamoDB": func(t testing.TB) catalog.Table {
			t.Helper()
			emulator, err := dynamodbtest.Start(t.Context(), "larder")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(emulator.Close)
			return dynamodb.New(awstest.Config(emulator.URL), "larder")
		},
	}
}

// publishedAt returns the time at which the tests publish a version.
func publishedAt(v registry.Version) time.Time {
	return time.Date(2026, 1, int(v.Major), int(v.Minor), 3, 4, 0, time.UTC)
}

// job is the CI job that publishes a version. Each is of another repository.
func job(v registry.Version) registry.Publisher {
	repository := fmt.Sprint("acme/repository-of-", v)
	return registry.Publisher{
		Kind: registry.PublisherOIDC, Repository: repository, RunURL: "https://git.example.com/" + repository + "/runs/7",
	}
}

func sourceOf(v registry.Version) string {
	return fmt.Sprint("https://git.example.com/acme/repository-of-", v)
}

// documented is the record of a version with documentation.
func documented(t testing.TB, version string) registry.ModuleVersion {
	t.Helper()
	r := record(t, version, version)
	key := module(t, "acme/vpc/aws").DocumentKey(r.Version, "d0c", registry.DocsName)
	r.Docs = &registry.StoredFile{Object: key, SHA256: "d0c", Size: 3}
	r.PublishedAt, r.PublishedBy, r.Contents = publishedAt(r.Version), job(r.Version), stock.Contents("input-of-"+version)
	return r
}

// exceptStates ignores the states of other versions than the latest, which
// TestStatesInEntry covers.
var exceptStates = cmpopts.IgnoreFields(registry.Summary{}, "Withdrawn", "Hidden", "DeprecatedVersions")

// entryOf returns the entry that an address has while a version is its latest.
// An empty version means that none is listed.
func entryOf(t testing.TB, a registry.Address, version string) registry.Summary {
	t.Helper()
	if version == "" {
		return registry.Summary{}
	}
	v := parseVersion(t, version)
	return registry.Summary{Address: a.String(), Latest: v, PublishedAt: publishedAt(v), Source: sourceOf(v)}
}

// latestIs checks the entry and the listing of the tests' module.
func latestIs(t testing.TB, c *catalog.Catalog, latest string, versions ...string) {
	t.Helper()
	var got registry.Summary
	for s := range each(t, c.Modules.Summaries(t.Context(), "acme")) {
		got = s
	}
	vpc := module(t, "acme/vpc/aws")
	want, inputs := entryOf(t, vpc, latest), ""
	if latest != "" {
		want.Description = "of " + latest
		inputs = "input-of-" + latest
	}
	want.Contents = got.Contents // compared below
	if diff := cmp.Diff(want, got, exceptStates); diff != "" {
		t.Errorf("entry (-want +got):\n%s", diff)
	}
	for found := range each(t, c.Contents(t.Context(), "acme")) {
		if got := registry.DecodeContents(found.Data).Inputs; got != inputs {
			t.Errorf("the contents have the inputs %q, want %q", got, inputs)
		}
	}
	var listing protocol.ModuleListing
	data, err := c.Modules.Listing(t.Context(), vpc)
	if err == nil {
		listing, err = protocol.Decode[protocol.ModuleListing](data)
	}
	if err != nil && (latest != "" || !errors.Is(err, registry.ErrNotFound)) {
		t.Fatal(err)
	}
	wantListing := protocol.ModuleListing{Source: want.Source}
	for _, v := range versions {
		n := parseVersion(t, v)
		wantListing.Versions = append(wantListing.Versions, protocol.ListedModule{Version: n, PublishedAt: publishedAt(n)})
	}
	if diff := cmp.Diff(wantListing, listing); diff != "" {
		t.Errorf("listing (-want +got):\n%s", diff)
	}
	stored, err := c.Modules.Stored(t.Context(), vpc)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]catalog.Mismatch(nil), stored.Mismatches); diff != "" {
		t.Errorf("mismatches (-want +got):\n%s", diff)
	}
}

// The entry and the listing always have the fields of the latest version.
func TestLatestModule(t *testing.T) {
	t.Parallel()
	vpc := module(t, "acme/vpc/aws")
	for name, open := range tables() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := catalog.New(open(t))
			publishes := func(v string) func() { return func() { publish(t, c, vpc, documented(t, v)) } }
			withdraws := func(v string) func() { return func() { withdraw(t, c, vpc, v) } }
			deprecates := func(v, message string, hide bool) func() {
				return func() {
					n, d := parseVersion(t, v), catalog.Deprecation{Message: message, Hide: hide, By: "ada"}
					deprecate(t, c.Modules, vpc, &n, d)
				}
			}
			for _, step := range []struct {
				name     string
				do       func()
				latest   string
				versions []string
			}{
				{"publish a pre-release", publishes("3.0.0-rc.1"), "3.0.0-rc.1", []string{"3.0.0-rc.1"}},
				{"publish a release", publishes("1.0.0"), "1.0.0", []string{"3.0.0-rc.1", "1.0.0"}},
				{"publish the next", publishes("2.0.0"), "2.0.0", []string{"3.0.0-rc.1", "2.0.0", "1.0.0"}},
				{"publish a patch of the last", publishes("1.1.0"), "2.0.0", []string{"3.0.0-rc.1", "2.0.0", "1.1.0", "1.0.0"}},
				{"hide the latest", deprecates("2.0.0", "bad", true), "1.1.0", []string{"3.0.0-rc.1", "1.1.0", "1.0.0"}},
				{"list it again", deprecates("2.0.0", "", false), "2.0.0", []string{"3.0.0-rc.1", "2.0.0", "1.1.0", "1.0.0"}},
				{"deprecate another", deprecates("1.0.0", "old", false), "2.0.0",
					[]string{"3.0.0-rc.1", "2.0.0", "1.1.0", "1.0.0"}},
				{"end that deprecation", deprecates("1.0.0", "", false), "2.0.0",
					[]string{"3.0.0-rc.1", "2.0.0", "1.1.0", "1.0.0"}},
				{"withdraw another", withdraws("1.1.0"), "2.0.0", []string{"3.0.0-rc.1", "2.0.0", "1.0.0"}},
				{"withdraw the latest", withdraws("2.0.0"), "1.0.0", []string{"3.0.0-rc.1", "1.0.0"}},
				{"withdraw the last release", withdraws("1.0.0"), "3.0.0-rc.1", []string{"3.0.0-rc.1"}},
				{"withdraw all", withdraws("3.0.0-rc.1"), "", nil},
				{"publish again", publishes("4.0.0"), "4.0.0", []string{"4.0.0"}},
			} {
				step.do()
				if latestIs(t, c, step.latest, step.versions...); t.Failed() {
					t.Fatal("after the step: " + step.name)
				}
			}
		})
	}
}

// The entry has the deprecation of the latest version, and no other.
func TestLatestDeprecated(t *testing.T) {
	t.Parallel()
	vpc := module(t, "acme/vpc/aws")
	table := open(t)
	c := catalog.New(table)
	publishes := func(v string) func() { return func() { publish(t, c, vpc, documented(t, v)) } }
	deprecates := func(v *registry.Version, message string, hide bool) func() {
		return func() {
			d := catalog.Deprecation{Message: message, Hide: hide, By: "ada"}
			deprecate(t, c.Modules, vpc, v, d)
		}
	}
	one, two := parseVersion(t, "1.0.0"), parseVersion(t, "2.0.0")
	for _, step := range []struct {
		name         string
		do           func()
		latest, want string
	}{
		{"publish", publishes("1.0.0"), "1.0.0", ""},
		{"deprecate", deprecates(&one, "old", false), "1.0.0", "old"},
		{"deprecate all", deprecates(nil, "all", false), "1.0.0", "old"},
		{"deprecate all no more", deprecates(nil, "", false), "1.0.0", "old"},
		{"publish the next", publishes("2.0.0"), "2.0.0", ""},
		{"deprecate the next", deprecates(&two, "bad", false), "2.0.0", "bad"},
		{"another reason", deprecates(&two, "worse", false), "2.0.0", "worse"},
		{"hide the next", deprecates(&two, "leaks", true), "1.0.0", "old"},
		{"list it again", deprecates(&two, "", false), "2.0.0", ""},
		{"deprecate it again", deprecates(&two, "bad", false), "2.0.0", "bad"},
		{"lose the entry", func() {
			replace(t, table, "catalog/acme", vpc.Path(), []byte(`{"address":"acme/vpc/aws","latest":"2.0.0"}`))
			if _, err := c.Modules.Rebuild(t.Context(), vpc); err != nil {
				t.Fatal(err)
			}
		}, "2.0.0", "bad"},
		{"withdraw the next", func() { withdraw(t, c, vpc, "2.0.0") }, "1.0.0", "old"},
		{"undeprecate", deprecates(&one, "", false), "1.0.0", ""},
	} {
		step.do()
		entry, err := c.Modules.Summary(t.Context(), vpc)
		if err != nil {
			t.Fatal(err)
		}
		if entry.Latest != parseVersion(t, step.latest) {
			t.Fatalf("%s: the latest version is %s, want %s", step.name, entry.Latest, step.latest)
		}
		if entry.LatestDeprecated != step.want {
			t.Fatalf("%s: the latest version is deprecated with %q, want %q", step.name, entry.LatestDeprecated, step.want)
		}
	}
}

// A provider's entry has the time, the source and the signing key of the latest
// version, and its listing has the times of all versions. A mirrored provider's
// entry has the newest time of a package, and its listing has no times.
func TestLatestProvider(t *testing.T) {
	t.Parallel()
	c := catalog.New(open(t))
	addKeys(t, c)
	mirrors := mirrorRecord(t, "1.0.0", "darwin_arm64 d", "linux_amd64 l", "windows_amd64 w")
	newest := mirrors.Packages[1].MirroredAt.Add(time.Hour)
	mirrors.Packages[1].MirroredAt = newest
	if _, _, err := c.Mirror.Add(t.Context(), random, mirrors, "mia"); err != nil {
		t.Fatal(err)
	}
	keys := map[string]string{"1.0.0": "A", "2.0.0": "A", "1.1.0": "B"}
	latestIs := func(latest string, versions ...string) {
		t.Helper()
		var got registry.Summary
		for s := range each(t, c.Providers.Summaries(t.Context(), "")) {
			got = s
		}
		entry := entryOf(t, inventory, latest)
		entry.SigningKey = keys[latest]
		if diff := cmp.Diff(entry, got, exceptStates); diff != "" {
			t.Errorf("entry (-want +got):\n%s", diff)
		}
		want, listed := make(map[string]time.Time), make(map[string]time.Time)
		for _, v := range versions {
			want[v] = publishedAt(parseVersion(t, v))
		}
		data, err := c.Providers.Listing(t.Context(), inventory)
		if err != nil && (latest != "" || !errors.Is(err, registry.ErrNotFound)) {
			t.Fatal(err)
		}
		if err == nil {
			l, err := protocol.Decode[protocol.ProviderListing](data)
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range l.Versions {
				listed[v.Version.String()] = v.PublishedAt
			}
		}
		if diff := cmp.Diff(want, listed); diff != "" {
			t.Errorf("times (-want +got):\n%s", diff)
		}
	}
	for _, v := range []string{"1.0.0", "2.0.0", "1.1.0"} {
		r := providerRecord(t, v, keys[v])
		r.PublishedAt, r.PublishedBy = publishedAt(r.Version), job(r.Version)
		publishProvider(t, c, inventory, r)
	}
	latestIs("2.0.0", "2.0.0", "1.1.0", "1.0.0")
	withdraw(t, c, inventory, "2.0.0")
	latestIs("1.1.0", "1.1.0", "1.0.0")
	withdraw(t, c, inventory, "1.0.0")
	withdraw(t, c, inventory, "1.1.0")
	latestIs("")

	for s := range each(t, c.Mirror.Summaries(t.Context(), "")) {
		want := registry.Summary{Address: random.String(), Latest: parseVersion(t, "1.0.0"), PublishedAt: newest}
		if diff := cmp.Diff(want, s); diff != "" {
			t.Errorf("mirrored provider's entry (-want +got):\n%s", diff)
		}
	}
	data, err := c.Mirror.Listing(t.Context(), random)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := data.JSON(); err != nil || strings.TrimSpace(string(text)) != `{"versions":{"1.0.0":{}}}` {
		t.Errorf("mirrored provider's listing: %s, %v", text, err)
	}
}

// Listings and entries that differ from the records are rebuilt.
func TestLatestRebuilt(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	vpc := module(t, "acme/vpc/aws")
	compressed := func(t *testing.T, text string) []byte {
		t.Helper()
		data, err := protocol.Compress(json.RawMessage(text))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	for name, test := range map[string]struct{ listing, entry string }{
		"without fields": {
			`{"modules":[{"versions":[{"version":"1.1.0"},{"version":"1.0.0"}]}]}`,
			`{"address":"acme/vpc/aws","latest":"1.1.0","description":"of 1.1.0"}`,
		},
		"of another source": {
			`{"modules":[{"source":"https://example.com","versions":[{"version":"1.1.0",` +
				`"published_at":"2026-01-01T01:03:04Z"},{"version":"1.0.0","published_at":"2026-01-01T00:03:04Z"}]}]}`,
			`{"address":"acme/vpc/aws","latest":"1.1.0","description":"of 1.1.0","published_at":"2026-01-01T01:03:04Z",` +
				`"source":"https://example.com","contents":"0123456789ab"}`,
		},
		"of the version before": {
			`{"modules":[{"versions":[{"version":"1.0.0","published_at":"2026-01-01T00:03:04Z"}]}]}`,
			`{"address":"acme/vpc/aws","latest":"1.0.0","description":"of 1.0.0","contents":"` +
				strings.Repeat("0", 12) + `"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			table := open(t)
			c := catalog.New(table)
			publish(t, c, vpc, documented(t, "1.0.0"))
			publish(t, c, vpc, documented(t, "1.1.0"))
			replace(t, table, vpc.Path(), "listing", compressed(t, test.listing))
			replace(t, table, "catalog/acme", vpc.Path(), []byte(test.entry))
			if _, err := c.Modules.Listing(t.Context(), vpc); err != nil {
				t.Fatal(err)
			}
			stored, err := c.Modules.Stored(t.Context(), vpc)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range stored.Mismatches {
				texts.Text(t, fmt.Sprintf("%s: %s\n", m.What, m.Detail))
			}
			if rebuilt, err := c.Modules.Rebuild(t.Context(), vpc); err != nil || !rebuilt {
				t.Fatalf("rebuilt: %t, %v", rebuilt, err)
			}
			latestIs(t, c, "1.1.0", "1.1.0", "1.0.0")
		})
	}
}

// A rebuilt entry has the signing key of a provider, the time of a mirrored
// provider, and the withdrawn versions.
func TestEntriesRebuilt(t *testing.T) {
	t.Parallel()
	table := open(t)
	c := withKey(t, table)
	publishProvider(t, c, inventory, providerRecord(t, "1.0.0", "A"))
	publishProvider(t, c, inventory, providerRecord(t, "1.1.0", "A"))
	withdraw(t, c, inventory, "1.1.0")
	if _, _, err := c.Mirror.Add(t.Context(), random, mirrorRecord(t, "3.6.0", "linux_amd64 l"), "mia"); err != nil {
		t.Fatal(err)
	}
	replace(t, table, "catalog/acme", inventory.Path(), []byte(`{"address":"acme/inventory","latest":"1.0.0"}`))
	replace(t, table, "catalog/mirror", random.Path(),
		[]byte(`{"address":"registry.opentofu.org/hashicorp/random","latest":"3.6.0"}`))
	for want, got := range map[string]string{
		`{"address":"acme/inventory","latest":"1.0.0","signing_key":"A","withdrawn":["1.1.0"]}`: rebuiltEntry(t,
			c.Providers, inventory),
		`{"address":"registry.opentofu.org/hashicorp/random","latest":"3.6.0",` +
			`"published_at":"2026-11-21T01:02:03Z"}`: rebuiltEntry(t, c.Mirror.Versions, random),
	} {
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// rebuiltEntry rebuilds the entry of an address, which is its only mismatch, and
// returns it as JSON.
func rebuiltEntry[A registry.Address, R registry.Record](t *testing.T, v catalog.Versions[A, R], a A) string {
	t.Helper()
	stored, err := v.Stored(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	if len(stored.Mismatches) != 1 || stored.Mismatches[0].What != catalog.DerivedEntry {
		t.Errorf("%s: mismatches %v, want one of the entry", a, stored.Mismatches)
	}
	if rebuilt, err := v.Rebuild(t.Context(), a); err != nil || !rebuilt {
		t.Errorf("%s: rebuilt: %t, %v", a, rebuilt, err)
	}
	s, err := v.Summary(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// After a withdrawal, no item has anything of the version but its number.
func TestWithdrawnLeavesNothing(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t"
	vpc := module(t, "acme/vpc/aws")
	leaks := func(t *testing.T, version string) registry.ModuleVersion {
		t.Helper()
		r := documented(t, version)
		r.Description = "of " + secret
		r.Contents = registry.Contents{
			Names:    registry.Names{Inputs: "a " + secret + " b", Readme: secret},
			Calls:    []registry.Use{{Source: "acme/" + secret + "/aws"}},
			Requires: []registry.Use{{Source: "hashicorp/aws", Constraint: secret}},
		}.Encode()
		r.PublishedBy.Repository, r.PublishedBy.RunURL = secret, "https://git.example.com/"+secret+"/runs/7"
		return r
	}
	for name, others := range map[string][]string{
		"the only version":    nil,
		"the latest version":  {"1.0.0"},
		"an old version":      {"1.0.0", "3.0.0"},
		"beside pre-releases": {"3.0.0-rc.1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "larder.db")
			table, err := sqlite.Create(t.Context(), path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = table.Close() })
			c := catalog.New(table)
			publish(t, c, vpc, leaks(t, "2.0.0"))
			for _, v := range others {
				publish(t, c, vpc, documented(t, v))
			}
			if before := items(t, path); !strings.Contains(before, secret) {
				t.Fatalf("no item has the secret before the withdrawal:\n%s", before)
			}
			withdraw(t, c, vpc, "2.0.0")
			if after := items(t, path); strings.Contains(after, secret) {
				t.Errorf("an item has the secret after the withdrawal:\n%s", after)
			}
		})
	}
}

// items returns all items of a database as text, with listings decompressed.
func items(t testing.TB, path string) string {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	found, err := db.QueryContext(t.Context(), "SELECT pk, sk, data FROM items ORDER BY pk, sk")
	if err != nil {
		t.Fatal(err)
	}
	defer found.Close()
	var all strings.Builder
	for found.Next() {
		var partition, sort string
		var data []byte
		if err := found.Scan(&partition, &sort, &data); err != nil {
			t.Fatal(err)
		}
		if unpacked, err := gzip.NewReader(bytes.NewReader(data)); err == nil {
			if data, err = io.ReadAll(unpacked); err != nil {
				t.Fatal(err)
			}
		}
		fmt.Fprintf(&all, "%s %s: %s\n", partition, sort, data)
	}
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// SetDocs changes nothing of a record but the documentation and the contents.
// The module has the names if the version is the latest.
func TestSetDocs(t *testing.T) {
	t.Parallel()
	vpc := module(t, "acme/vpc/aws")
	for name, open := range tables() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := catalog.New(open(t))
			want := make(map[string]registry.ModuleVersion)
			for _, v := range []string{"1.0.0", "2.0.0"} {
				want[v] = documented(t, v)
				undocumented := want[v]
				undocumented.Docs, undocumented.Contents = nil, nil
				publish(t, c, vpc, undocumented)
			}
			for _, step := range []struct {
				version, inputs string
				changed         bool
			}{
				{"1.0.0", "input-of-1.0.0", true},
				{"2.0.0", "inputs of another release", true},
				{"2.0.0", "input-of-2.0.0", true},
				{"2.0.0", "input-of-2.0.0", false},
			} {
				made, contents := registry.Documents{Docs: want[step.version].Docs}, stock.Contents(step.inputs)
				changed, err := c.SetDocs(t.Context(), vpc, parseVersion(t, step.version), made, contents, "ada")
				if err != nil {
					t.Fatal(err)
				}
				if changed != step.changed {
					t.Errorf("%s with %q: changed is %t, want %t", step.version, step.inputs, changed, step.changed)
				}
			}
			latestIs(t, c, "2.0.0", "2.0.0", "1.0.0")
			for v, r := range want {
				got, err := c.Modules.Get(t.Context(), vpc, r.Version)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(r, got); diff != "" {
					t.Errorf("record of %s (-want +got):\n%s", v, diff)
				}
			}
		})
	}
}

func TestSetDocsFails(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	vpc := module(t, "acme/vpc/aws")
	for name, test := range map[string]struct {
		change  func(*testing.T, catalog.Table, *catalog.Catalog)
		version string
		object  string
		want    error
	}{
		"another version":  {nil, "1.2.0", "modules/acme/vpc/aws/1.2.0/d0c/docs.json.gz", registry.ErrNotFound},
		"another metadata": {nil, "1.0.0+b", "modules/acme/vpc/aws/1.0.0+b/d0c/docs.json.gz", registry.ErrNotFound},
		"withdrawn": {func(t *testing.T, _ catalog.Table, c *catalog.Catalog) {
			withdraw(t, c, vpc, "1.0.0")
		}, "1.0.0", "modules/acme/vpc/aws/1.0.0/d0c/docs.json.gz", registry.ErrWithdrawn},
		"damaged record": {func(t *testing.T, table catalog.Table, _ *catalog.Catalog) {
			replace(t, table, vpc.Path(), "version/1.0.0", []byte("{"))
		}, "1.0.0", "modules/acme/vpc/aws/1.0.0/d0c/docs.json.gz", registry.ErrCorrupt},
		"damaged listing": {func(t *testing.T, table catalog.Table, _ *catalog.Catalog) {
			replace(t, table, vpc.Path(), "listing", []byte("{"))
		}, "1.0.0", "modules/acme/vpc/aws/1.0.0/d0c/docs.json.gz", registry.ErrCorrupt},
		"an object of another version": {nil, "1.0.0", "modules/acme/vpc/aws/1.1.0/d0c/docs.json.gz", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			table := open(t)
			c := catalog.New(table)
			publish(t, c, vpc, documented(t, "1.0.0"))
			publish(t, c, vpc, documented(t, "1.1.0"))
			if test.change != nil {
				test.change(t, table, c)
			}
			began := time.Now()
			docs := registry.StoredFile{Object: test.object, SHA256: "d0c", Size: 3}
			made := registry.Documents{Docs: &docs}
			changed, err := c.SetDocs(t.Context(), vpc, parseVersion(t, test.version), made, nil, "ada")
			if changed {
				t.Error("it reports a change")
			}
			if test.want != nil && !errors.Is(err, test.want) {
				t.Errorf("got error %v, want %v", err, test.want)
			}
			texts.Error(t, err)
			if diff := cmp.Diff([]string(nil), trail(t, c, began)); diff != "" {
				t.Errorf("the trail changes:\n%s", diff)
			}
		})
	}
}
