package catalog_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/protocol"
)

// The first release wrote listings and entries without some fields. They differ
// from the records, but are not damaged, and can be rebuilt.
func TestItemsOfEarlierReleases(t *testing.T) {
	t.Parallel()
	vpc := module(t, "acme/vpc/aws")
	for name, test := range map[string]struct {
		entry   string
		listing protocol.ModuleListing
		earlier bool
	}{
		"without fields": {
			`{"address":"acme/vpc/aws","latest":"1.1.0","description":"DESCRIPTION"}`,
			listingOf(t, "1.1.0", "1.0.0"), true,
		},
		"another version": {
			`{"address":"acme/vpc/aws","latest":"1.0.0","description":"DESCRIPTION"}`,
			listingOf(t, "1.0.0"), false,
		},
		"another field": {
			`{"address":"acme/vpc/aws","latest":"1.1.0","description":"other"}`,
			listingOf(t, "1.0.0", "1.1.0"), false,
		},
		"other words": {
			`{"address":"acme/vpc/aws","latest":"1.1.0","description":"DESCRIPTION","words":"other"}`,
			listingOf(t, "1.0.0", "1.1.0"), false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			table := open(t)
			c := catalog.New(table)
			publish(t, c, vpc, documented(t, "1.0.0"))
			newest := documented(t, "1.1.0")
			publish(t, c, vpc, newest)
			var entry map[string]any
			if err := json.Unmarshal([]byte(test.entry), &entry); err != nil {
				t.Fatal(err)
			}
			if entry["description"] == "DESCRIPTION" {
				entry["description"] = newest.Description
			}
			written, err := json.Marshal(entry)
			if err != nil {
				t.Fatal(err)
			}
			listing, err := protocol.Compress(test.listing)
			if err != nil {
				t.Fatal(err)
			}
			overwrite(t, table, catalog.Key{Partition: "catalog/acme", Sort: "modules/acme/vpc/aws"}, written)
			overwrite(t, table, catalog.Key{Partition: "modules/acme/vpc/aws", Sort: "listing"}, listing)
			stored, err := c.Modules.Stored(t.Context(), vpc)
			if err != nil {
				t.Fatal(err)
			}
			var earlier []bool
			for _, m := range stored.Mismatches {
				earlier = append(earlier, m.Earlier)
			}
			if diff := cmp.Diff([]bool{test.earlier, test.earlier}, earlier); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// listingOf returns a listing of versions without their times.
func listingOf(t *testing.T, versions ...string) (l protocol.ModuleListing) {
	t.Helper()
	for _, v := range versions {
		l.Versions = append(l.Versions, protocol.ListedModule{Version: parseVersion(t, v)})
	}
	return l
}

// overwrite replaces the data of an item.
func overwrite(t *testing.T, table catalog.Table, k catalog.Key, data []byte) {
	t.Helper()
	item, err := table.Get(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	if err := table.Write(t.Context(), catalog.Change{Key: k, Revision: item.Revision, Data: data}); err != nil {
		t.Fatal(err)
	}
}
