package catalog_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/tabletest"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// seeAt records that the origin of the tests' mirrored provider lists a version.
func seeAt(t testing.TB, c *catalog.Catalog, number string, at time.Time) registry.MirrorOrigin {
	t.Helper()
	o, err := c.Mirror.UpdateOrigin(t.Context(), random,
		func(o *registry.MirrorOrigin) (bool, *registry.AuditEntry, error) {
			return o.See(map[registry.Version]time.Time{parseVersion(t, number): {}}, at), nil, nil
		})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// One request reads all that the catalog has of a mirrored provider.
func TestContentsAndOrigin(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 22, 6, 0, 0, 0, time.UTC)
	entry := registry.Summary{
		Address: random.String(), Latest: parseVersion(t, "1.0.0"),
		PublishedAt: time.Date(2026, 11, 21, 1, 2, 3, 0, time.UTC),
	}
	for name, test := range map[string]struct {
		mirrored, seen, pulled bool
		entry                  registry.Summary
	}{
		"nothing":            {},
		"mirrored":           {mirrored: true, entry: entry},
		"seen":               {seen: true, entry: registry.Summary{Address: random.String(), Unlisted: true}},
		"mirrored, and seen": {mirrored: true, seen: true, entry: entry},
		"pulled":             {pulled: true, entry: registry.Summary{Address: random.String(), Unlisted: true}},
		"all":                {mirrored: true, seen: true, pulled: true, entry: entry},
	} {
		for kind, open := range tables() {
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				table := &tabletest.Faulty{Table: open(t)}
				c := catalog.New(table)
				want := catalog.MirrorContents{
					Origin: registry.MirrorOrigin{Address: random.String()}, Pulled: registry.PulledAddress{Address: random.String()},
				}
				want.Entry, want.Records = test.entry, map[registry.Version]registry.MirrorVersion{}
				if test.mirrored {
					r := mirrorRecord(t, "1.0.0", "linux_amd64 a")
					if _, _, err := c.Mirror.Add(t.Context(), random, r, "ada"); err != nil {
						t.Fatal(err)
					}
					want.Listed, want.Records[r.Version] = numbers(t, "1.0.0"), r
				}
				if test.seen {
					want.Origin = seeAt(t, c, "1.1.0", at)
				}
				if test.pulled {
					want.Pulled = registry.PulledAddress{
						Address: random.String(), RequestedAt: time.Now().UTC().Truncate(time.Second), Index: []byte("an index"),
					}
					putFound(t, c, want.Pulled)
				}
				before := table.Calls.Load()
				got, err := c.Mirror.ContentsAndOrigin(t.Context(), random, numbers(t, "1.0.0", "1.1.0")...)
				if calls := table.Calls.Load() - before; calls != 1 {
					t.Errorf("it makes %d requests, want 1", calls)
				}
				if !test.mirrored && !test.seen && !test.pulled {
					if !errors.Is(err, registry.ErrNotFound) {
						t.Errorf("%v, want %v", err, registry.ErrNotFound)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		}
	}
}

// putFound stores what the mirror found when it looked for a client.
func putFound(t testing.TB, c *catalog.Catalog, found registry.PulledAddress) {
	t.Helper()
	s, err := c.Mirror.State(t.Context(), random, random.Hostname, nil, time.Now())
	if err == nil {
		err = s.Update(t.Context(), func() error {
			s.Pulled = found
			return nil
		})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// One request reads the items of several versions that the mirror lacks.
func TestPulledVersionsAtOnce(t *testing.T) {
	t.Parallel()
	for kind, open := range tables() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			table := &tabletest.Faulty{Table: open(t)}
			c := catalog.New(table)
			until := time.Now().UTC().Truncate(time.Second).Add(time.Hour)
			put := func(v registry.PulledVersion) {
				s, err := c.Mirror.State(t.Context(), random, random.Hostname, &v.Version, time.Now())
				if err == nil {
					err = s.Update(t.Context(), func() error {
						s.Version = v
						return nil
					})
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			want := make(map[registry.Version]registry.PulledVersion)
			for _, v := range []registry.PulledVersion{
				{Version: parseVersion(t, "1.0.0"), Until: until, Problem: "it is down"},
				{Version: parseVersion(t, "1.1.0"), Until: until},
			} {
				want[v.Version] = v
				put(v)
			}
			put(registry.PulledVersion{Version: parseVersion(t, "1.2.0"), Until: until})
			waits := registry.PulledVersion{Version: parseVersion(t, "1.4.0"), Refused: registry.BackOff{Until: until}}
			want[waits.Version] = waits
			put(waits)
			replace(t, table, random.Path(), "pulled/1.2.0", []byte("x"))
			before := table.Calls.Load()
			got, err := c.Mirror.PulledVersions(t.Context(), random, numbers(t, "1.0.0", "1.1.0", "1.2.0", "1.3.0", "1.4.0")...)
			if err != nil {
				t.Fatal(err)
			}
			if calls := table.Calls.Load() - before; calls != 1 {
				t.Errorf("it makes %d requests, want 1", calls)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got, err := c.Mirror.PulledVersions(t.Context(), random); err != nil || len(got) > 0 {
				t.Errorf("without versions: %v, %v", got, err)
			}
		})
	}
}

// An origin that cannot be read does not prevent reading the versions. A damaged
// listing does.
func TestContentsAndOriginDamaged(t *testing.T) {
	t.Parallel()
	other, err := protocol.Compress(registry.MirrorOrigin{Address: "registry.opentofu.org/hashicorp/null"})
	if err != nil {
		t.Fatal(err)
	}
	ofOther, err := json.Marshal(map[string]any{"address": random.String(), "origin": []byte(other)})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		sort, data string // without a sort key, the item of the provider
		listed     int
	}{
		"no JSON":             {"", "x", 1},
		"the provider's item": {"", `{"address":"registry.opentofu.org/hashicorp/null"}`, 1},
		"the origin":          {"", `{"address":"` + random.String() + `","origin":"eA=="}`, 1},
		"another's origin":    {"", string(ofOther), 1},
		"a record":            {"version/1.0.0", "{", 1},
		"the listing":         {"listing", "x", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			table := open(t)
			c := catalog.New(table)
			if _, _, err := c.Mirror.Add(t.Context(), random, mirrorRecord(t, "1.0.0", "linux_amd64 a"), "ada"); err != nil {
				t.Fatal(err)
			}
			seeAt(t, c, "1.1.0", time.Unix(1_800_000_000, 0))
			partition, sort := random.Path(), test.sort
			if sort == "" {
				partition, sort = "mirror/providers", random.String()
			}
			replace(t, table, partition, sort, []byte(test.data))
			got, err := c.Mirror.ContentsAndOrigin(t.Context(), random, numbers(t, "1.0.0")...)
			if !isCorrupt(err) {
				t.Errorf("%v, want %v", err, registry.ErrCorrupt)
			}
			if len(got.Listed) != test.listed {
				t.Errorf("it has %d listed versions, want %d", len(got.Listed), test.listed)
			}
			if test.sort != "listing" && got.Origin.Address != random.String() {
				t.Errorf("the origin is that of %q", got.Origin.Address)
			}
		})
	}
}

// putRaw replaces the data of an item.
func putRaw(t testing.TB, table catalog.Table, k catalog.Key, data string) {
	t.Helper()
	item, err := table.Get(t.Context(), k)
	if err == nil || errors.Is(err, registry.ErrNotFound) {
		err = table.Write(t.Context(), catalog.Change{Key: k, Revision: item.Revision, Data: []byte(data)})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A request reads 20 addresses, or fewer if that fails. An item that cannot be read
// hides no other address.
func TestAllContents(t *testing.T) {
	t.Parallel()
	for kind, open := range tables() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			table := &tabletest.Faulty{Table: open(t)}
			c := catalog.New(table)
			want := make(map[registry.MirrorAddress]catalog.MirrorContents)
			addresses := []registry.MirrorAddress{{Hostname: random.Hostname, Namespace: "acme", Name: "absent"}}
			for i := range 40 {
				p := registry.MirrorAddress{Hostname: random.Hostname, Namespace: "acme", Name: fmt.Sprint("p", i)}
				if _, _, err := c.Mirror.Add(t.Context(), p, mirrorRecord(t, "1.0.0", "linux_amd64 a"), "ada"); err != nil {
					t.Fatal(err)
				}
				one, err := c.Mirror.ContentsAndOrigin(t.Context(), p)
				if err != nil {
					t.Fatal(err)
				}
				one.Records = nil
				addresses, want[p] = append(addresses, p), one
			}
			read := func(name string, requests int64) error {
				t.Helper()
				before := table.Calls.Load()
				got, err := c.Mirror.AllContents(t.Context(), addresses...)
				if calls := table.Calls.Load() - before; calls != requests {
					t.Errorf("%s: it makes %d requests, want %d", name, calls, requests)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", name, diff)
				}
				return err
			}
			if err := read("all", 3); err != nil {
				t.Error(err)
			}
			table.FailAt = table.Calls.Load() + 1
			if err := read("too much at once", 5); err != nil {
				t.Error(err)
			}
			bad := addresses[7]
			putRaw(t, table, catalog.Key{Partition: "mirror/providers", Sort: bad.String()}, "{")
			delete(want, bad)
			if err := read("damaged", 3); !errors.Is(err, registry.ErrCorrupt) {
				t.Errorf("%v, want %v", err, registry.ErrCorrupt)
			}
			want = nil
			table.Down.Store(true)
			if err := read("down", 1); !errors.Is(err, registry.ErrUnavailable) {
				t.Errorf("%v, want %v", err, registry.ErrUnavailable)
			}
		})
	}
}

// All origins are read by partition. One that cannot be read hides no other.
func TestAllOrigins(t *testing.T) {
	t.Parallel()
	for kind, open := range tables() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			table := open(t)
			c := catalog.New(table)
			origin := seeAt(t, c, "1.1.0", time.Date(2026, 11, 22, 6, 0, 0, 0, time.UTC))
			putRaw(t, table, catalog.Key{Partition: "mirror/providers", Sort: "a.example.com/acme/bad"}, "{")
			var got []registry.MirrorOrigin
			damaged := 0
			for one, err := range c.Mirror.AllOrigins(t.Context()) {
				if errors.Is(err, registry.ErrCorrupt) {
					damaged++
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, one.Origin)
			}
			if damaged != 1 {
				t.Errorf("%d are damaged, want 1", damaged)
			}
			if diff := cmp.Diff([]registry.MirrorOrigin{origin}, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
