package catalog_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/registry"
)

var (
	usedModule = registry.Module{Namespace: "acme", Name: "vpc", System: "aws"}
	countDay   = time.Now().UTC().Truncate(24 * time.Hour)
)

func downloads(count int64, last time.Duration) registry.Downloads {
	return registry.Downloads{Count: count, Last: countDay.Add(last)}
}

func daily(version uint64, callers map[string]registry.Downloads) registry.DailyDownloads {
	return registry.DailyDownloads{Day: countDay, Version: registry.Version{Major: version}, Callers: callers}
}

// storedDownloads returns the downloads of an address since a day.
func storedDownloads(t *testing.T, c *catalog.Catalog, a registry.Address, since time.Time) []registry.DailyDownloads {
	t.Helper()
	var all []registry.DailyDownloads
	for d, err := range c.Downloads(t.Context(), a, since) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, d)
	}
	return all
}

// Batches add up, and the same one again changes nothing.
func TestDownloads(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := catalog.New(open(t))
	for _, batch := range []string{"1", "2", "1", "2"} {
		d := daily(1, map[string]registry.Downloads{"token ci": downloads(2, time.Hour), "": downloads(1, time.Minute)})
		if err := c.AddDownloads(ctx, batch, usedModule, d); err != nil {
			t.Fatal(err)
		}
		if err := c.AddTotal(ctx, batch, usedModule, downloads(3, time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	later := daily(2, map[string]registry.Downloads{"token ci": downloads(1, 30*time.Hour)})
	later.Day = countDay.Add(24 * time.Hour)
	if err := c.AddDownloads(ctx, "3", usedModule, later); err != nil {
		t.Fatal(err)
	}
	first := daily(1, map[string]registry.Downloads{"token ci": downloads(4, time.Hour), "": downloads(2, time.Minute)})
	if diff := cmp.Diff([]registry.DailyDownloads{first, later}, storedDownloads(t, c, usedModule, countDay)); diff != "" {
		t.Errorf("all days (-want +got):\n%s", diff)
	}
	since := countDay.Add(25 * time.Hour)
	if diff := cmp.Diff([]registry.DailyDownloads{later}, storedDownloads(t, c, usedModule, since)); diff != "" {
		t.Errorf("since a day (-want +got):\n%s", diff)
	}
	total, err := c.TotalDownloads(ctx, usedModule)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(downloads(6, time.Hour), total); diff != "" {
		t.Errorf("total (-want +got):\n%s", diff)
	}
	all, err := c.AllTotals(ctx, "modules/")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]registry.Downloads{usedModule.Path(): total}, all); diff != "" {
		t.Errorf("all totals (-want +got):\n%s", diff)
	}
	begun, err := c.CountingSince(ctx)
	if err != nil || !begun.Equal(countDay.Add(time.Hour)) {
		t.Errorf("counting since %v, %v", begun, err)
	}
}

// Several functions can count the same version at the same time.
func TestConcurrentDownloads(t *testing.T) {
	t.Parallel()
	c := catalog.New(open(t))
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			d := daily(1, map[string]registry.Downloads{"": downloads(1, time.Hour)})
			if err := c.AddDownloads(t.Context(), fmt.Sprint(i), usedModule, d); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	want := []registry.DailyDownloads{daily(1, map[string]registry.Downloads{"": downloads(8, time.Hour)})}
	if diff := cmp.Diff(want, storedDownloads(t, c, usedModule, countDay)); diff != "" {
		t.Error(diff)
	}
}

// An item has a bounded size, however many callers download.
func TestCallersAreBounded(t *testing.T) {
	t.Parallel()
	table := open(t)
	c := catalog.New(table)
	for i := range 100 {
		d := daily(1, map[string]registry.Downloads{fmt.Sprint(i, strings.Repeat("x", 250)): downloads(1, time.Hour)})
		if err := c.AddDownloads(t.Context(), fmt.Sprint(i), usedModule, d); err != nil {
			t.Fatal(err)
		}
	}
	stored := storedDownloads(t, c, usedModule, countDay)
	if got := len(stored[0].Callers); got != 33 {
		t.Errorf("%d callers, want 32 and one for the others", got)
	}
	if got := stored[0].Callers[registry.OtherCallers].Count; got != 68 {
		t.Errorf("%d downloads of other callers, want 68", got)
	}
	page, err := table.Query(t.Context(), catalog.Query{Partition: "usage/" + usedModule.Path()})
	if err != nil {
		t.Fatal(err)
	}
	if size := len(page.Items[0].Data); size > 12<<10 {
		t.Errorf("the item has %d bytes", size)
	}
}

// The last use of a token is written once an hour, and everything that is
// counted expires. Nothing but partitions of usage is written.
func TestTokenUses(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	table := &recordingTable{Table: open(t)}
	c := catalog.New(table)
	for _, minute := range []time.Duration{5, 59, 0, 61, 30} {
		if err := c.UseToken(ctx, "0123456789ab", countDay.Add(minute*time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	got, err := c.TokenUses(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]time.Time{"0123456789ab": countDay.Add(61 * time.Minute)}, got); diff != "" {
		t.Error(diff)
	}
	if len(table.written) != 2 {
		t.Errorf("%d writes, want 2", len(table.written))
	}
	if err := c.AddDownloads(ctx, "1", usedModule, daily(1, nil)); err != nil {
		t.Fatal(err)
	}
	if err := c.AddTotal(ctx, "1", usedModule, downloads(1, time.Hour)); err != nil {
		t.Fatal(err)
	}
	for _, change := range table.written {
		if !strings.HasPrefix(change.Partition, "usage/") {
			t.Errorf("the partition %s is written", change.Partition)
		}
		expires := change.Expires.Sub(countDay) >= 400*24*time.Hour && change.Expires.Sub(countDay) < 402*24*time.Hour
		if expires != (change.Sort != "since") {
			t.Errorf("%s expires at %v", change.Shown(), change.Expires)
		}
	}
}

// recordingTable records the changes of writes.
type recordingTable struct {
	catalog.Table
	written []catalog.Change
}

func (t *recordingTable) Write(ctx context.Context, changes ...catalog.Change) error {
	t.written = append(t.written, changes...)
	return t.Table.Write(ctx, changes...)
}
