// Package tabletest is the conformance suite of [catalog.Table]. Every backend
// runs it.
package tabletest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/registry"
)

// Backend provides the tables of one backend.
type Backend struct {
	// Open returns an empty table.
	Open func(*testing.T) catalog.Table
	// Put stores an item with a schema version, as another release would. 0
	// stores no version.
	Put func(t *testing.T, table catalog.Table, k catalog.Key, schema int64)
}

// Run tests the whole contract of [catalog.Table].
func Run(t *testing.T, b Backend) {
	t.Helper()
	for _, test := range []struct {
		name string
		run  func(*testing.T, catalog.Table)
	}{
		{"GetWhatWasPut", getWhatWasPut},
		{"GetUnknown", getUnknown},
		{"TokensAreNotShown", tokensAreNotShown},
		{"KeysAreExact", keysAreExact},
		{"Conditions", conditions},
		{"AllOrNone", allOrNone},
		{"BadWrites", badWrites},
		{"Limits", limits},
		{"Expiry", expiry},
		{"Snapshot", snapshot},
		{"SnapshotLimits", snapshotLimits},
		{"SnapshotIsConsistent", snapshotIsConsistent},
		{"QueryPrefix", queryPrefix},
		{"QueryOrder", queryOrder},
		{"QueryPages", queryPages},
		{"QueryLargePages", queryLargePages},
		{"OneOfManyWriters", oneOfManyWriters},
		{"NoLostUpdates", noLostUpdates},
		{"Cancelled", cancelled},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, b.Open(t)) })
	}
	t.Run("Schema", func(t *testing.T) { schema(t, b) })
}

func key(partition, sort string) catalog.Key { return catalog.Key{Partition: partition, Sort: sort} }

func newItem(partition, sort, data string) catalog.Change {
	return catalog.Change{Key: key(partition, sort), Data: []byte(data)}
}

func write(t *testing.T, table catalog.Table, changes ...catalog.Change) {
	t.Helper()
	if err := table.Write(t.Context(), changes...); err != nil {
		t.Fatalf("Write: %v", err)
	}
}

func get(t *testing.T, table catalog.Table, partition, sort string) catalog.Item {
	t.Helper()
	item, err := table.Get(t.Context(), key(partition, sort))
	if err != nil {
		t.Fatalf("Get(%s %s): %v", partition, sort, err)
	}
	return item
}

func absent(t *testing.T, table catalog.Table, partition, sort string) {
	t.Helper()
	if item, err := table.Get(t.Context(), key(partition, sort)); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("Get(%s %s) = %+v, %v; want ErrNotFound", partition, sort, item, err)
	}
}

// sorts runs a query to its last page and returns the sort keys.
func sorts(t *testing.T, table catalog.Table, q catalog.Query) []string {
	t.Helper()
	var got []string
	for {
		page, err := table.Query(t.Context(), q)
		if err != nil {
			t.Fatalf("Query(%+v): %v", q, err)
		}
		if q.Limit > 0 && len(page.Items) > q.Limit {
			t.Errorf("Query(%+v) returned %d items", q, len(page.Items))
		}
		for _, item := range page.Items {
			got = append(got, item.Sort)
		}
		if page.Next == "" {
			return got
		}
		q.After = page.Next
	}
}

func getWhatWasPut(t *testing.T, table catalog.Table) {
	data := []byte{0, 1, 0xff, 0xfe, '\n', 0x80}
	write(t, table, catalog.Change{Key: key("p", "s"), Data: data})
	want := catalog.Item{Key: key("p", "s"), Revision: 1, Data: data}
	if diff := cmp.Diff(want, get(t, table, "p", "s")); diff != "" {
		t.Error(diff)
	}
	write(t, table, newItem("p", "text", `{"a":"ä"}`), newItem("p", "empty", ""))
	if got := get(t, table, "p", "text"); string(got.Data) != `{"a":"ä"}` {
		t.Errorf("text came back as %q", got.Data)
	}
	if got := get(t, table, "p", "empty"); len(got.Data) != 0 {
		t.Errorf("an empty item came back as %q", got.Data)
	}
}

func getUnknown(t *testing.T, table catalog.Table) {
	absent(t, table, "p", "s")
	write(t, table, newItem("p", "s", "x"))
	absent(t, table, "p", "t")
	absent(t, table, "q", "s")
}

// Errors appear in logs. They must name a token by its ID and not by its whole
// digest.
func tokensAreNotShown(t *testing.T, table catalog.Table) {
	k := key("tokens", strings.Repeat("0123456789abcdef", 4))
	_, unknown := table.Get(t.Context(), k)
	write(t, table, newItem(k.Partition, k.Sort, "x"))
	for _, err := range []error{
		unknown,
		table.Write(t.Context(), catalog.Change{Key: k, Revision: 2, Data: []byte("y")}),
		table.Write(t.Context(), catalog.Change{Key: k, Revision: -1}),
	} {
		if err == nil || strings.Contains(err.Error(), k.Sort[:13]) {
			t.Errorf("%v", err)
		}
	}
	if !strings.HasSuffix(k.Shown(), " "+k.Sort[:12]) {
		t.Error(k.Shown())
	}
}

// Keys that differ in case, or of which one begins with the other, are
// different.
func keysAreExact(t *testing.T, table catalog.Table) {
	write(t, table,
		newItem("modules/acme/vpc/aws", "listing", "1"),
		newItem("modules/Acme/vpc/aws", "listing", "2"),
		newItem("modules/acme/vpc/aws2", "listing", "3"))
	for partition, want := range map[string]string{
		"modules/acme/vpc/aws":  "1",
		"modules/Acme/vpc/aws":  "2",
		"modules/acme/vpc/aws2": "3",
	} {
		if got := string(get(t, table, partition, "listing").Data); got != want {
			t.Errorf("%s has %s, want %s", partition, got, want)
		}
	}
	absent(t, table, "MODULES/acme/vpc/aws", "listing")
	absent(t, table, "modules/acme/vpc/aws", "Listing")
}

func conditions(t *testing.T, table catalog.Table) {
	k := key("p", "s")
	steps := []struct {
		name   string
		change catalog.Change
		ok     bool
		data   string // afterwards
		rev    int64
	}{
		{"replacing what is not there", catalog.Change{Key: k, Revision: 1, Data: []byte("a")}, false, "", 0},
		{"deleting what is not there", catalog.Change{Key: k, Revision: 1, Delete: true}, false, "", 0},
		{"checking what is not there", catalog.Change{Key: k, Revision: 1, Check: true}, false, "", 0},
		{"new", catalog.Change{Key: k, Data: []byte("a")}, true, "a", 1},
		{"checking", catalog.Change{Key: k, Revision: 1, Check: true}, true, "a", 1},
		{"checking a future revision", catalog.Change{Key: k, Revision: 2, Check: true}, false, "a", 1},
		{"new again", catalog.Change{Key: k, Data: []byte("b")}, false, "a", 1},
		{"a future revision", catalog.Change{Key: k, Revision: 2, Data: []byte("b")}, false, "a", 1},
		{"the revision", catalog.Change{Key: k, Revision: 1, Data: []byte("b")}, true, "b", 2},
		{"the revision before", catalog.Change{Key: k, Revision: 1, Data: []byte("c")}, false, "b", 2},
		{"deleting the revision before", catalog.Change{Key: k, Revision: 1, Delete: true}, false, "b", 2},
		{"deleting", catalog.Change{Key: k, Revision: 2, Delete: true}, true, "", 0},
		{"new after deleting", catalog.Change{Key: k, Data: []byte("d")}, true, "d", 1},
	}
	for _, s := range steps {
		err := table.Write(t.Context(), s.change)
		if s.ok != (err == nil) || !s.ok && !errors.Is(err, registry.ErrConflict) {
			t.Fatalf("%s: %v", s.name, err)
		}
		if s.rev == 0 {
			absent(t, table, "p", "s")
		} else if got := get(t, table, "p", "s"); string(got.Data) != s.data || got.Revision != s.rev {
			t.Fatalf("after %s: %q at revision %d, want %q at %d", s.name, got.Data, got.Revision, s.data, s.rev)
		}
	}
}

// One failing condition undoes the whole write, at any position in it.
func allOrNone(t *testing.T, table catalog.Table) {
	write(t, table, newItem("p", "taken", "old"), newItem("p", "doomed", "old"))
	others := []catalog.Change{
		newItem("p", "a", "new"), newItem("q", "b", "new"), {Key: key("p", "doomed"), Revision: 1, Delete: true},
	}
	for at := range len(others) + 1 {
		changes := slices.Insert(slices.Clone(others), at, newItem("p", "taken", "new"))
		if err := table.Write(t.Context(), changes...); !errors.Is(err, registry.ErrConflict) {
			t.Fatalf("conflict at %d: %v", at, err)
		}
		absent(t, table, "p", "a")
		absent(t, table, "q", "b")
		if string(get(t, table, "p", "taken").Data)+string(get(t, table, "p", "doomed").Data) != "oldold" {
			t.Fatalf("conflict at %d changed an item", at)
		}
	}
	// A failing check does the same.
	for _, wrong := range []catalog.Change{
		{Key: key("p", "taken"), Revision: 2, Check: true},
		{Key: key("p", "absent"), Revision: 1, Check: true},
	} {
		if err := table.Write(t.Context(), append(slices.Clone(others), wrong)...); !errors.Is(err, registry.ErrConflict) {
			t.Fatalf("checking %v: %v", wrong, err)
		}
		absent(t, table, "p", "a")
	}
	write(t, table, append(slices.Clone(others), catalog.Change{Key: key("p", "taken"), Revision: 1, Check: true})...)
	absent(t, table, "p", "doomed")
	get(t, table, "q", "b")
}

func badWrites(t *testing.T, table catalog.Table) {
	var many []catalog.Change
	for i := range 101 {
		many = append(many, newItem("p", fmt.Sprint(i), "x"))
	}
	var heavy []catalog.Change
	for i := range 12 {
		heavy = append(heavy, newItem("p", fmt.Sprint(i), strings.Repeat("x", 380<<10)))
	}
	for name, changes := range map[string][]catalog.Change{
		"nothing":              {},
		"too many":             many,
		"too much":             heavy,
		"no partition":         {newItem("", "s", "x")},
		"no sort key":          {newItem("p", "", "x")},
		"a long partition":     {newItem(strings.Repeat("p", 2049), "s", "x")},
		"a long sort key":      {newItem("p", strings.Repeat("s", 1025), "x")},
		"one key twice":        {newItem("p", "s", "x"), newItem("p", "s", "y")},
		"an item too large":    {newItem("p", "s", strings.Repeat("x", 400<<10))},
		"a negative revision":  {{Key: key("p", "s"), Revision: -1}},
		"deleting revision 0":  {{Key: key("p", "s"), Delete: true}},
		"checking revision 0":  {{Key: key("p", "s"), Check: true}},
		"a check that deletes": {{Key: key("p", "s"), Revision: 1, Check: true, Delete: true}},
		"one bad among others": {newItem("p", "good", "x"), newItem("p", "", "x")},
	} {
		if err := table.Write(t.Context(), changes...); !errors.Is(err, catalog.ErrBadWrite) {
			t.Errorf("%s: %v, want ErrBadWrite", name, err)
		}
	}
	if got := sorts(t, table, catalog.Query{Partition: "p"}); len(got) != 0 {
		t.Errorf("the table has %q", got)
	}
}

func limits(t *testing.T, table catalog.Table) {
	var many []catalog.Change
	for i := range 100 {
		many = append(many, newItem("many", fmt.Sprintf("%03d", i), "x"))
	}
	write(t, table, many...)
	large := bytes.Repeat([]byte{0xa5}, 390<<10)
	write(t, table, catalog.Change{Key: key("large", "s"), Data: large})
	if got := get(t, table, "large", "s"); !bytes.Equal(got.Data, large) {
		t.Error("a large item came back changed")
	}
	long := key(strings.Repeat("p", 2048), strings.Repeat("s", 1024))
	write(t, table, catalog.Change{Key: long, Data: []byte("x")})
	get(t, table, long.Partition, long.Sort)
}

func expiry(t *testing.T, table catalog.Table) {
	past, future := time.Now().Add(-2*time.Second), time.Now().Add(time.Hour).Truncate(time.Second)
	// An item expires at the beginning of the second of its expiry.
	write(t, table, catalog.Change{Key: key("p", "now"), Data: []byte("x"), Expires: time.Now()})
	absent(t, table, "p", "now")
	write(t, table,
		catalog.Change{Key: key("p", "gone"), Data: []byte("x"), Expires: past},
		catalog.Change{Key: key("p", "here"), Data: []byte("x"), Expires: future})
	absent(t, table, "p", "gone")
	if got := get(t, table, "p", "here"); !got.Expires.Equal(future) {
		t.Errorf("expires %v, want %v", got.Expires, future)
	}
	if got := sorts(t, table, catalog.Query{Partition: "p"}); !slices.Equal(got, []string{"here"}) {
		t.Errorf("Query returned %q", got)
	}
	err := table.Write(t.Context(), catalog.Change{Key: key("p", "gone"), Revision: 1, Data: []byte("y")})
	if !errors.Is(err, registry.ErrConflict) {
		t.Errorf("replacing an expired item: %v, want ErrConflict", err)
	}
	write(t, table, newItem("p", "gone", "new"))
	want := catalog.Item{Key: key("p", "gone"), Revision: 1, Data: []byte("new")}
	if diff := cmp.Diff(want, get(t, table, "p", "gone")); diff != "" {
		t.Errorf("an expired item was replaced by (-want +got):\n%s", diff)
	}
}

// A prefix selects no items of other partitions, and no sort keys that only
// resemble it.
func queryPrefix(t *testing.T, table catalog.Table) {
	for _, s := range []string{
		"version/1.0.0", "version/1.0.1", "version/10.0.0", "versions", "version", "Version/1.0.0", "listing",
		"version0", "version.", "version/\u00e4", "%", "_", "a%b",
	} {
		write(t, table, newItem("modules/acme/two/aws", s, "x"))
	}
	write(t, table,
		newItem("modules/acme/two/aws2", "version/2.0.0", "x"), newItem("modules/acme/two", "version/3.0.0", "x"))
	for prefix, want := range map[string][]string{
		"version/":       {"version/1.0.0", "version/1.0.1", "version/10.0.0", "version/\u00e4"},
		"version/1.0":    {"version/1.0.0", "version/1.0.1"},
		"version/1.0.0":  {"version/1.0.0"},
		"version/\u00e4": {"version/\u00e4"},
		"%":              {"%"},
		"_":              {"_"},
		"nothing":        nil,
	} {
		got := sorts(t, table, catalog.Query{Partition: "modules/acme/two/aws", Prefix: prefix})
		if !slices.Equal(got, want) {
			t.Errorf("prefix %q: %q, want %q", prefix, got, want)
		}
	}
	if got := sorts(t, table, catalog.Query{Partition: "modules/acme/tw"}); len(got) != 0 {
		t.Errorf("a prefix of a partition returned %q", got)
	}
}

func queryOrder(t *testing.T, table catalog.Table) {
	want := []string{"!", "-", "A", "Z", "_", "a", "aa", "b", "z", "~", "\u00e9", "\U0001f600"}
	for _, s := range slices.Backward(want) {
		write(t, table, newItem("p", s, "x"))
	}
	if got := sorts(t, table, catalog.Query{Partition: "p"}); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func queryPages(t *testing.T, table catalog.Table) {
	var want []string
	for i := range 25 {
		s := fmt.Sprintf("version/%02d", i)
		want = append(want, s)
		write(t, table, newItem("p", s, "x"))
	}
	write(t, table, newItem("p", "versionz", "x"), newItem("p", "a", "x"), newItem("p", "version", "x"))
	for _, limit := range []int{0, 1, 2, 24, 25, 26, 1000} {
		if got := sorts(t, table, catalog.Query{Partition: "p", Prefix: "version/", Limit: limit}); !slices.Equal(got, want) {
			t.Errorf("pages of %d: %q", limit, got)
		}
	}
	// A page can begin after a key that does not exist.
	for _, limit := range []int{0, 1} {
		q := catalog.Query{Partition: "p", After: "version/", Limit: limit}
		if got := sorts(t, table, q); !slices.Equal(got, append(slices.Clone(want), "versionz")) {
			t.Errorf("after %q: %q", q.After, got)
		}
	}
}

// DynamoDB ends a page after 1 MiB. A query returns all items nevertheless.
func queryLargePages(t *testing.T, table catalog.Table) {
	const items = 12
	for i := range items {
		write(t, table, newItem("p", fmt.Sprintf("%02d", i), strings.Repeat("x", 200<<10)))
	}
	if got := sorts(t, table, catalog.Query{Partition: "p"}); len(got) != items {
		t.Errorf("%d items, want %d", len(got), items)
	}
}

func oneOfManyWriters(t *testing.T, table catalog.Table) {
	const writers = 20
	var (
		wait sync.WaitGroup
		errs = make([]error, writers)
	)
	for i := range writers {
		wait.Go(func() {
			errs[i] = table.Write(t.Context(), newItem("p", "s", fmt.Sprint(i)), newItem("p", fmt.Sprint("own", i), "x"))
		})
	}
	wait.Wait()
	won := -1
	for i, err := range errs {
		switch {
		case err == nil && won >= 0:
			t.Errorf("writers %d and %d both won", won, i)
		case err == nil:
			won = i
		case !errors.Is(err, registry.ErrConflict):
			t.Errorf("writer %d: %v", i, err)
		}
	}
	if got := string(get(t, table, "p", "s").Data); got != fmt.Sprint(won) {
		t.Errorf("writer %s is stored, %d won", got, won)
	}
	if got := sorts(t, table, catalog.Query{Partition: "p", Prefix: "own"}); len(got) != 1 {
		t.Errorf("failed writers stored %q", got)
	}
}

func noLostUpdates(t *testing.T, table catalog.Table) {
	const writers, each = 8, 5
	write(t, table, newItem("p", "count", ""))
	var wait sync.WaitGroup
	for range writers {
		wait.Go(func() {
			for range each {
				for {
					item, err := table.Get(t.Context(), key("p", "count"))
					if err != nil {
						t.Error(err)
						return
					}
					change := catalog.Change{Key: item.Key, Revision: item.Revision, Data: append(item.Data, 'x')}
					err = table.Write(t.Context(), change)
					if err == nil {
						break
					}
					if !errors.Is(err, registry.ErrConflict) {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	wait.Wait()
	if got := get(t, table, "p", "count"); len(got.Data) != writers*each || got.Revision != writers*each+1 {
		t.Errorf("%d updates at revision %d, want %d", len(got.Data), got.Revision, writers*each)
	}
}

func cancelled(t *testing.T, table catalog.Table) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := table.Write(ctx, newItem("p", "s", "x")); err == nil {
		t.Error("Write with a cancelled context succeeds")
	}
	if _, err := table.Get(ctx, key("p", "s")); err == nil || errors.Is(err, registry.ErrNotFound) {
		t.Errorf("Get with a cancelled context: %v", err)
	}
	absent(t, table, "p", "s")
}

func snapshot(t *testing.T, table catalog.Table) {
	past := time.Now().Add(-2 * time.Second)
	write(t, table, newItem("p", "a", "1"), newItem("q", "a", "2"), newItem("p", "empty", ""),
		catalog.Change{Key: key("p", "binary"), Data: []byte{0x1f, 0x8b, 0}},
		catalog.Change{Key: key("p", "expired"), Data: []byte("x"), Expires: past})
	write(t, table, catalog.Change{Key: key("q", "a"), Revision: 1, Data: []byte("3")})
	got, err := table.Snapshot(t.Context(), key("q", "a"), key("p", "missing"), key("p", "binary"),
		key("p", "expired"), key("p", "a"), key("p", "empty"))
	if err != nil {
		t.Fatal(err)
	}
	if len(got) == 6 && len(got[5].Data) == 0 {
		got[5].Data = nil // backends need not distinguish nil and empty
	}
	want := []catalog.Item{
		{Key: key("q", "a"), Revision: 2, Data: []byte("3")},
		{Key: key("p", "missing")},
		{Key: key("p", "binary"), Revision: 1, Data: []byte{0x1f, 0x8b, 0}},
		{Key: key("p", "expired")},
		{Key: key("p", "a"), Revision: 1, Data: []byte("1")},
		{Key: key("p", "empty"), Revision: 1},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func snapshotLimits(t *testing.T, table catalog.Table) {
	var keys []catalog.Key
	for i := range 101 {
		keys = append(keys, key("p", fmt.Sprint(i)))
	}
	write(t, table, newItem("p", "99", "x"))
	for name, keys := range map[string][]catalog.Key{
		"no key":           nil,
		"101 keys":         keys,
		"one key twice":    {keys[0], keys[1], keys[0]},
		"no partition":     {keys[0], key("", "s")},
		"no sort key":      {key("p", "")},
		"a long partition": {key(strings.Repeat("p", 2049), "s")},
		"a long sort key":  {key("p", strings.Repeat("s", 1025))},
	} {
		if _, err := table.Snapshot(t.Context(), keys...); !errors.Is(err, catalog.ErrBadRead) {
			t.Errorf("%s: %v, want ErrBadRead", name, err)
		}
	}
	got, err := table.Snapshot(t.Context(), keys[:100]...)
	if err != nil {
		t.Fatalf("100 keys: %v", err)
	}
	if len(got) != 100 || got[99].Revision != 1 {
		t.Errorf("100 keys: %d items, the last one is %+v", len(got), got[len(got)-1])
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := table.Snapshot(ctx, keys[:2]...); err == nil {
		t.Error("Snapshot with a cancelled context succeeds")
	}
	token := key("tokens", strings.Repeat("0123456789abcdef", 4))
	if _, err := table.Snapshot(t.Context(), token, token); err == nil || strings.Contains(err.Error(), token.Sort[:13]) {
		t.Errorf("%v", err)
	}
}

// A snapshot never separates two items that are always written together.
func snapshotIsConsistent(t *testing.T, table catalog.Table) {
	write(t, table, newItem("p", "a", "0"), newItem("q", "b", "0"))
	written := make(chan error, 1)
	go func() {
		for i := range int64(50) {
			data := []byte(fmt.Sprint(i + 1))
			err := table.Write(t.Context(),
				catalog.Change{Key: key("p", "a"), Revision: i + 1, Data: data},
				catalog.Change{Key: key("q", "b"), Revision: i + 1, Data: data})
			if err != nil {
				written <- err
				return
			}
		}
		written <- nil
	}()
	for {
		got, err := table.Snapshot(t.Context(), key("p", "a"), key("q", "b"))
		switch {
		case errors.Is(err, registry.ErrConflict):
		case err != nil:
			t.Fatal(err)
		case !bytes.Equal(got[0].Data, got[1].Data):
			t.Fatalf("the items are %s and %s", got[0].Data, got[1].Data)
		}
		select {
		case err := <-written:
			if err != nil {
				t.Error(err)
			}
			return
		default:
		}
	}
}

// Items of another release are neither returned nor overwritten.
func schema(t *testing.T, b Backend) {
	for name, version := range map[string]int64{"a newer version": catalog.SchemaVersion + 1, "no version": 0} {
		t.Run(name, func(t *testing.T) {
			table := b.Open(t)
			foreign := key("p", "foreign")
			write(t, table, newItem("p", "own", "x"))
			b.Put(t, table, foreign, version)
			_, gotten := table.Get(t.Context(), foreign)
			_, queried := table.Query(t.Context(), catalog.Query{Partition: "p"})
			_, snapped := table.Snapshot(t.Context(), key("p", "own"), foreign)
			for call, err := range map[string]error{"Get": gotten, "Query": queried, "Snapshot": snapped} {
				if !errors.Is(err, registry.ErrSchema) || !strings.Contains(err.Error(), "item p foreign") {
					t.Errorf("%s: %v, want ErrSchema", call, err)
				}
			}
			err := table.Write(t.Context(), catalog.Change{Key: foreign, Data: []byte("y")})
			if !errors.Is(err, registry.ErrConflict) {
				t.Errorf("Write: %v, want ErrConflict", err)
			}
			if got := string(get(t, table, "p", "own").Data); got != "x" {
				t.Errorf("the other item is %q", got)
			}
		})
	}
}
