package catalog_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
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
		"with a part of the withdrawn versions": {
			`{"address":"acme/vpc/aws","latest":"1.1.0","description":"DESCRIPTION","withdrawn":["0.2.0"]}`,
			listingOf(t, "1.1.0", "1.0.0"), true,
		},
		"another withdrawn version": {
			`{"address":"acme/vpc/aws","latest":"1.1.0","description":"DESCRIPTION","withdrawn":["0.3.0","0.2.0"]}`,
			listingOf(t, "1.0.0", "1.1.0"), false,
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
			for _, v := range []string{"0.1.0", "0.2.0"} {
				publish(t, c, vpc, documented(t, v))
				withdraw(t, c, vpc, v)
			}
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

// An entry of an earlier release lacks the signing key of a provider, the time
// of a mirrored provider, and the withdrawn versions. A repair adds them.
func TestEntriesOfEarlierReleases(t *testing.T) {
	t.Parallel()
	table := open(t)
	c := withKey(t, table)
	publishProvider(t, c, inventory, providerRecord(t, "1.0.0", "A"))
	publishProvider(t, c, inventory, providerRecord(t, "1.1.0", "A"))
	withdraw(t, c, inventory, "1.1.0")
	if _, _, err := c.Mirror.Add(t.Context(), random, mirrorRecord(t, "3.6.0", "linux_amd64 l"), "mia"); err != nil {
		t.Fatal(err)
	}
	overwrite(t, table, catalog.Key{Partition: "catalog/acme", Sort: inventory.Path()},
		[]byte(`{"address":"acme/inventory","latest":"1.0.0"}`))
	overwrite(t, table, catalog.Key{Partition: "catalog/mirror", Sort: random.Path()},
		[]byte(`{"address":"registry.opentofu.org/hashicorp/random","latest":"3.6.0"}`))
	repairsEarlier(t, c.Providers, inventory)
	repairsEarlier(t, c.Mirror.Versions, random)
	for want, summary := range map[string]func() (registry.Summary, error){
		`{"address":"acme/inventory","latest":"1.0.0","signing_key":"A","withdrawn":["1.1.0"]}`: func() (registry.Summary, error) {
			return c.Providers.Summary(t.Context(), inventory)
		},
		`{"address":"registry.opentofu.org/hashicorp/random","latest":"3.6.0","published_at":"2026-11-21T01:02:03Z"}`: func() (
			registry.Summary, error,
		) {
			return c.Mirror.Summary(t.Context(), random)
		},
	} {
		s, err := summary()
		if err != nil {
			t.Fatal(err)
		}
		got, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// repairsEarlier checks that an address has an entry of an earlier release and
// no other mismatch, and rebuilds the entry.
func repairsEarlier[A registry.Address, R registry.Record](t *testing.T, v catalog.Versions[A, R], a A) {
	t.Helper()
	stored, err := v.Stored(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	var mismatches []string
	for _, m := range stored.Mismatches {
		mismatches = append(mismatches, fmt.Sprint(m.What, " ", m.Earlier))
	}
	if diff := cmp.Diff([]string{"catalog-entry true"}, mismatches); diff != "" {
		t.Errorf("%s: mismatches (-want +got):\n%s", a, diff)
	}
	if rebuilt, err := v.Rebuild(t.Context(), a); err != nil || !rebuilt {
		t.Errorf("%s: rebuilt: %t, %v", a, rebuilt, err)
	}
}
