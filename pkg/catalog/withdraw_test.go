package catalog_test

import (
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
	"github.com/larder-registry/larder/pkg/catalog/tabletest"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

func parseVersion(t testing.TB, s string) registry.Version {
	t.Helper()
	v, err := registry.ParseTag(s)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// leaked is the withdrawal of the tests.
func leaked() registry.Withdrawal {
	return registry.Withdrawal{At: time.Date(2026, 11, 21, 1, 2, 3, 0, time.UTC), By: "wim", Reason: "it has a key"}
}

func withdraw(t testing.TB, c *catalog.Catalog, a registry.Address, v string) {
	t.Helper()
	if _, changed, err := c.Of(a).Withdraw(t.Context(), parseVersion(t, v), leaked(), false); err != nil || !changed {
		t.Fatalf("Withdraw(%s %s): %v, %v", a, v, changed, err)
	}
}

// kind has the operations of the tests on one of the three kinds of addresses.
type kind struct {
	name    string
	address registry.Address
	catalog string // the partition of its entry
	publish func(ctx context.Context, c *catalog.Catalog, version string) error
	// read returns the error of reading a version as the protocol does.
	read func(ctx context.Context, c *catalog.Catalog, v registry.Version) error
	// records returns the error of reading all versions.
	records func(ctx context.Context, c *catalog.Catalog) error
	// listed returns the versions of the listing.
	listed func(ctx context.Context, c *catalog.Catalog) ([]registry.Version, error)
	// latest returns the latest version of the catalog's entry, or nothing.
	latest func(ctx context.Context, c *catalog.Catalog) (string, error)
	stored func(
		ctx context.Context, c *catalog.Catalog,
	) (mismatches []catalog.Mismatch, withdrawn []registry.Version, rebuildable bool, err error)
	// unreadable returns the names of the records that cannot be read.
	unreadable func(ctx context.Context, c *catalog.Catalog) ([]string, error)
	// rebuild repairs the derived items.
	rebuild func(ctx context.Context, c *catalog.Catalog) (bool, error)
}

// kindOf returns the kind of an address. of returns the versions of its kind,
// and listed those in a listing.
func kindOf[A registry.Address, R registry.Record, L any](
	name, partition string, a A, of func(*catalog.Catalog) catalog.Versions[A, R], listed func(L) []registry.Version,
	publish func(ctx context.Context, c *catalog.Catalog, version string) error,
) kind {
	return kind{
		name: name, catalog: partition, address: a, publish: publish,
		read: func(ctx context.Context, c *catalog.Catalog, v registry.Version) error {
			_, err := of(c).Get(ctx, a, v)
			return err
		},
		records: func(ctx context.Context, c *catalog.Catalog) error {
			_, err := of(c).All(ctx, a)
			return err
		},
		listed: func(ctx context.Context, c *catalog.Catalog) ([]registry.Version, error) {
			data, err := of(c).Listing(ctx, a)
			if err != nil {
				return nil, err
			}
			l, err := protocol.Decode[L](data)
			return listed(l), err
		},
		latest: func(ctx context.Context, c *catalog.Catalog) (latest string, err error) {
			for s, err := range of(c).Summaries(ctx, "") {
				if err != nil {
					return "", err
				}
				latest += s.Latest.String()
			}
			return latest, nil
		},
		stored: func(ctx context.Context, c *catalog.Catalog) ([]catalog.Mismatch, []registry.Version, bool, error) {
			s, err := of(c).Stored(ctx, a)
			return s.Mismatches, s.Withdrawn, s.Rebuildable, err
		},
		unreadable: func(ctx context.Context, c *catalog.Catalog) (names []string, err error) {
			s, err := of(c).Stored(ctx, a)
			for _, u := range s.Unreadable {
				names = append(names, u.Name)
			}
			return names, err
		},
		rebuild: func(ctx context.Context, c *catalog.Catalog) (bool, error) { return of(c).Rebuild(ctx, a) },
	}
}

func kinds(t testing.TB) []kind {
	t.Helper()
	vpc := module(t, "acme/vpc/aws")
	return []kind{
		kindOf("module", "catalog/acme", vpc,
			func(c *catalog.Catalog) catalog.Versions[registry.Module, registry.ModuleVersion] { return c.Modules },
			protocol.ModuleListing.All,
			func(ctx context.Context, c *catalog.Catalog, version string) error {
				_, _, err := put(ctx, c.Modules, vpc, record(t, version, "a"))
				return err
			}),
		kindOf("provider", "catalog/acme", inventory,
			func(c *catalog.Catalog) catalog.Versions[registry.Provider, registry.ProviderVersion] {
				return c.Providers
			},
			func(l protocol.ProviderListing) (all []registry.Version) {
				for _, v := range l.Versions {
					all = append(all, v.Version)
				}
				return all
			},
			func(ctx context.Context, c *catalog.Catalog, version string) error {
				_, _, err := put(ctx, c.Providers, inventory, providerRecord(t, version, "A"))
				return err
			}),
		kindOf("mirror", "catalog/mirror", random,
			func(c *catalog.Catalog) catalog.Versions[registry.MirrorAddress, registry.MirrorVersion] {
				return c.Mirror.Versions
			},
			func(l protocol.MirrorListing) []registry.Version {
				slices.SortFunc(l, func(a, b registry.Version) int { return registry.CompareVersions(b, a) })
				return l
			},
			func(ctx context.Context, c *catalog.Catalog, version string) error {
				_, _, err := c.Mirror.Add(ctx, random, mirrorRecord(t, version, "linux_amd64 l"), "mia")
				return err
			}),
	}
}

// eachKind runs a test for each kind, with an empty catalog that has a signing
// key.
func eachKind(t *testing.T, test func(t *testing.T, k kind, table catalog.Table, c *catalog.Catalog)) {
	t.Helper()
	for _, k := range kinds(t) {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			table := open(t)
			test(t, k, table, withKey(t, table))
		})
	}
}

// publishes publishes versions.
func (k kind) publishes(t testing.TB, c *catalog.Catalog, versions ...string) {
	t.Helper()
	for _, v := range versions {
		if err := k.publish(t.Context(), c, v); err != nil {
			t.Fatal(err)
		}
	}
}

func withKey(t testing.TB, table catalog.Table) *catalog.Catalog {
	t.Helper()
	c := catalog.New(table)
	if _, err := c.AddSigningKey(t.Context(), "acme", registry.SigningKey{ID: "A"}); err != nil {
		t.Fatal(err)
	}
	return c
}

// has checks the visible versions of an address, and that the derived items
// match its records.
func (k kind) has(t testing.TB, c *catalog.Catalog, listed, latest, withdrawn string) {
	t.Helper()
	versions, err := k.listed(t.Context(), c)
	absent := listed == "nothing" && errors.Is(err, registry.ErrNotFound)
	if got := fmt.Sprint(versions); err == nil && got != listed || err != nil && !absent {
		t.Errorf("%s: listed %s, %v; want %s", k.address, got, err, listed)
	}
	if got, err := k.latest(t.Context(), c); err != nil || got != latest {
		t.Errorf("%s: its latest is %q, %v; want %q", k.address, got, err, latest)
	}
	mismatches, gone, _, err := k.stored(t.Context(), c)
	if err != nil {
		t.Errorf("%s: %v", k.address, err)
	}
	if len(mismatches) > 0 {
		t.Errorf("%s: mismatches %v", k.address, mismatches)
	}
	if got := fmt.Sprint(gone); got != withdrawn {
		t.Errorf("%s: withdrawn %s, want %s", k.address, got, withdrawn)
	}
}

// A withdrawn version is not found by readers, and its number is taken for
// publishers.
func TestWithdraw(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, k kind, _ catalog.Table, c *catalog.Catalog) {
		ctx, began := t.Context(), time.Now()
		k.publishes(t, c, "1.0.0+a", "1.1.0")
		if w, err := c.Of(k.address).Withdrawal(ctx, parseVersion(t, "1.1.0")); w != nil || err != nil {
			t.Errorf("before: %v, %v", w, err)
		}
		if _, _, err := c.Of(k.address).Withdraw(
			ctx, parseVersion(t, "3.0.0"), leaked(), false,
		); !errors.Is(err, registry.ErrNotFound) {
			t.Errorf("a version that never existed: %v", err)
		}
		withdraw(t, c, k.address, "1.1.0")
		k.has(t, c, "[1.0.0+a]", "1.0.0+a", "[1.1.0]")
		err := k.read(ctx, c, parseVersion(t, "1.1.0"))
		if !errors.Is(err, registry.ErrNotFound) || !errors.Is(err, registry.ErrWithdrawn) {
			t.Errorf("read: %v", err)
		}
		withdraw(t, c, k.address, "1.0.0+a")
		k.has(t, c, "nothing", "", "[1.0.0+a 1.1.0]")

		for _, v := range []string{"1.1.0", "1.0.0+a", "1.0.0+b", "1.0.0"} {
			err := k.publish(ctx, c, v)
			for _, sentinel := range []error{registry.ErrExists, registry.ErrWithdrawn} {
				if !errors.Is(err, sentinel) {
					t.Errorf("publishing %s again: %v is not %v", v, err, sentinel)
				}
			}
			text := fmt.Sprint(err)
			if !strings.Contains(text, "2026-11-21 01:02 UTC") || !strings.Contains(text, "it has a key") {
				t.Errorf("publishing %s: %v", v, err)
			}
		}
		k.has(t, c, "nothing", "", "[1.0.0+a 1.1.0]")

		// A second withdrawal returns the first one.
		again := leaked()
		again.Reason = "another"
		recorded, changed, err := c.Of(k.address).Withdraw(ctx, parseVersion(t, "1.1.0"), again, false)
		if err != nil || changed {
			t.Errorf("withdrawing again: changed is %t, %v", changed, err)
		}
		if diff := cmp.Diff(leaked(), recorded); diff != "" {
			t.Errorf("withdrawing again returns (-want +got):\n%s", diff)
		}
		first := leaked()
		w, err := c.Of(k.address).Withdrawal(ctx, parseVersion(t, "1.1.0"))
		if err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(&first, w); diff != "" {
			t.Errorf("Withdrawal (-want +got):\n%s", diff)
		}
		k.publishes(t, c, "1.2.0")
		k.has(t, c, "[1.2.0]", "1.2.0", "[1.0.0+a 1.1.0]")

		count := 0
		for _, line := range trail(t, c, began) {
			if strings.HasPrefix(line, "wim: withdraw "+k.address.Path()+" 1.") && strings.HasSuffix(line, ": it has a key") {
				count++
			}
		}
		if count != 2 {
			t.Errorf("%d audit entries after two withdrawals", count)
		}
	})
}

// A listing and an entry that contradict the records are found and repaired,
// even if there is nothing to list.
func TestWithdrawnRebuild(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, k kind, table catalog.Table, c *catalog.Catalog) {
		k.publishes(t, c, "1.0.0")
		before, err := table.Get(t.Context(), catalog.Key{Partition: k.address.Path(), Sort: "listing"})
		if err != nil {
			t.Fatal(err)
		}
		withdraw(t, c, k.address, "1.0.0")
		replace(t, table, before.Partition, before.Sort, before.Data)
		mismatches, _, rebuildable, err := k.stored(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if len(mismatches) != 1 || mismatches[0].What != catalog.DerivedListing {
			t.Errorf("mismatches %v, want one of the listing", mismatches)
		}
		if !rebuildable {
			t.Error("the listing cannot be rebuilt")
		}
		if rebuilt, err := k.rebuild(t.Context(), c); err != nil || !rebuilt {
			t.Error(err)
		}
		k.has(t, c, "nothing", "", "[1.0.0]")
	})
}

// If any call fails, a version is withdrawn everywhere or nowhere. Withdrawing
// it again withdraws it.
func TestWithdrawFails(t *testing.T) {
	t.Parallel()
	for _, k := range kinds(t) {
		for _, done := range []bool{false, true} {
			for at := int64(1); ; at++ {
				table := open(t)
				good := withKey(t, table)
				k.publishes(t, good, "1.0.0", "1.1.0")
				_, _, err := catalog.New(&tabletest.Faulty{
					Table: table, FailAt: at, Done: done,
				}).Of(k.address).Withdraw(t.Context(), parseVersion(t, "1.1.0"), leaked(), false)
				if err == nil {
					if at < 3 {
						t.Errorf("%s: Withdraw makes %d calls", k.name, at-1)
					}
					break
				}
				if !errors.Is(err, tabletest.ErrFault) {
					t.Errorf("%s: call %d: %v", k.name, at, err)
				}
				if w, _ := good.Of(k.address).Withdrawal(t.Context(), parseVersion(t, "1.1.0")); w != nil {
					k.has(t, good, "[1.0.0]", "1.0.0", "[1.1.0]")
				} else if latest, err := k.latest(t.Context(), good); err != nil || latest != "1.1.0" {
					t.Errorf("%s: call %d: %s, %v", k.name, at, latest, err)
				}
				if _, _, err := good.Of(k.address).Withdraw(t.Context(), parseVersion(t, "1.1.0"), leaked(), false); err != nil {
					t.Errorf("%s: call %d failed, and then: %v", k.name, at, err)
				}
				k.has(t, good, "[1.0.0]", "1.0.0", "[1.1.0]")
			}
		}
	}
}

// If a version is withdrawn while others are published, it is withdrawn and the
// others are listed, whichever is faster.
func TestWithdrawWhilePublishing(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, k kind, _ catalog.Table, c *catalog.Catalog) {
		k.publishes(t, c, "1.0.0")
		var group sync.WaitGroup
		for i := range 6 {
			group.Go(func() {
				if err := k.publish(t.Context(), c, fmt.Sprintf("2.%d.0", i)); err != nil {
					t.Error(err)
				}
			})
			group.Go(func() {
				if err := k.publish(t.Context(), c, "1.0.0"); err != nil && !errors.Is(err, registry.ErrWithdrawn) {
					t.Error(err)
				}
			})
		}
		group.Go(func() {
			if _, _, err := c.Of(k.address).Withdraw(t.Context(), parseVersion(t, "1.0.0"), leaked(), false); err != nil {
				t.Error(err)
			}
		})
		group.Wait()
		versions, err := k.listed(t.Context(), c)
		if err != nil || len(versions) != 6 {
			t.Errorf("listed %v, %v", versions, err)
		}
		if latest, err := k.latest(t.Context(), c); err != nil || latest != "2.5.0" {
			t.Errorf("latest %s, %v", latest, err)
		}
		mismatches, gone, _, err := k.stored(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if len(mismatches) > 0 {
			t.Errorf("mismatches %v", mismatches)
		}
		if got := fmt.Sprint(gone); got != "[1.0.0]" {
			t.Errorf("withdrawn %s, want [1.0.0]", got)
		}
	})
}

// A withdrawn version cannot be deprecated. A hidden version can be listed
// again if no other version is left.
func TestDeprecateWithdrawn(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := withKey(t, open(t))
	vpc := module(t, "acme/vpc/aws")
	first, second := parseVersion(t, "1.0.0"), parseVersion(t, "1.1.0")
	publish(t, c, vpc, record(t, "1.0.0", "a"))
	publish(t, c, vpc, record(t, "1.1.0", "b"))
	publishProvider(t, c, inventory, providerRecord(t, "1.0.0", "A"))
	publishProvider(t, c, inventory, providerRecord(t, "1.1.0", "A"))
	deprecate(t, c.Modules, vpc, &first, catalog.Deprecation{Message: "old", Hide: true, By: "dee"})
	deprecate(t, c.Providers, inventory, &second, catalog.Deprecation{Message: "bad", By: "dee"})
	withdraw(t, c, vpc, "1.1.0")
	withdraw(t, c, inventory, "1.1.0")
	_, err := c.Modules.Deprecate(ctx, vpc, &second, catalog.Deprecation{Message: "x", Hide: false, By: "dee"})
	if _, err2 := c.Providers.Deprecate(
		ctx, inventory, &second, catalog.Deprecation{Message: "", By: "dee"},
	); !errors.Is(err, registry.ErrWithdrawn) || !errors.Is(err2, registry.ErrWithdrawn) {
		t.Errorf("%v, %v", err, err2)
	}
	if _, err := c.Modules.Deprecate(ctx, vpc, nil, catalog.Deprecation{
		Message: "x", Hide: false, By: "dee",
	}); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("all versions of a module without listed versions: %v", err)
	}
	data, err := c.Providers.Listing(ctx, inventory)
	if err != nil {
		t.Fatal(err)
	}
	if l, err := protocol.Decode[protocol.ProviderListing](data); err != nil || len(l.Warnings) > 0 {
		t.Errorf("clients show warnings for missing versions: %q, %v", l.Warnings, err)
	}
	kinds(t)[0].has(t, c, "nothing", "", "[1.1.0]")
	if latest, err := c.Modules.Deprecate(ctx, vpc, &first, catalog.Deprecation{
		Message: "", Hide: false, By: "dee",
	}); err != nil || latest.Latest != first {
		t.Errorf("listed again: %v, %v", latest, err)
	}
	kinds(t)[0].has(t, c, "[1.0.0]", "1.0.0", "[1.1.0]")

	// A key that has signed only withdrawn versions has signed no existing
	// version.
	withdraw(t, c, inventory, "1.0.0")
	if signed, err := c.Signed(ctx, "acme"); err != nil || len(signed) > 0 {
		t.Errorf("%v, %v", signed, err)
	}
}

// A version whose record is missing or cannot be read can be withdrawn, and so
// can all other versions of the address. Until then it stays in the listing.
func TestWithdrawDamaged(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, k kind, table catalog.Table, c *catalog.Catalog) {
		k.publishes(t, c, "1.0.0", "1.1.0", "1.2.0")
		remove(t, table, k.address.Path(), "version/1.0.0")
		replace(t, table, k.address.Path(), "version/1.1.0", []byte("?"))
		again := func(v string) error {
			w, err := c.Of(k.address).Withdrawal(t.Context(), parseVersion(t, v))
			if err == nil && w != nil {
				t.Error(v, "is withdrawn")
			}
			if err != nil {
				return err
			}
			_, _, err = c.Of(k.address).Withdraw(t.Context(), parseVersion(t, v), leaked(), false)
			return err
		}
		if err := again("9.0.0"); !errors.Is(err, registry.ErrNotFound) {
			t.Errorf("a version that never existed: %v", err)
		}
		for _, v := range []string{"1.0.0", "1.1.0"} {
			if err := k.publish(t.Context(), c, v); !errors.Is(err, registry.ErrCorrupt) {
				t.Errorf("publishing %s: %v", v, err)
			}
		}
		if err := again("1.2.0"); err != nil {
			t.Errorf("a version beside missing ones: %v", err)
		}
		versions, err := k.listed(t.Context(), c)
		slices.SortFunc(versions, registry.CompareVersions)
		if err != nil || fmt.Sprint(versions) != "[1.0.0 1.1.0]" {
			t.Errorf("listed %v, %v", versions, err)
		}
		for _, v := range []string{"1.0.0", "1.1.0"} {
			if err := again(v); err != nil {
				t.Error(err)
			}
		}
		k.has(t, c, "nothing", "", "[1.0.0 1.1.0 1.2.0]")
	})
}

// The objects of a version have its build metadata in their keys. A record that
// cannot be read does not contain it, but the listing does.
func TestWithdrawUnreadableMetadata(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, k kind, table catalog.Table, c *catalog.Catalog) {
		k.publishes(t, c, "1.0.0+b")
		replace(t, table, k.address.Path(), "version/1.0.0", []byte("?"))
		if names, err := k.unreadable(t.Context(), c); err != nil || fmt.Sprint(names) != "[1.0.0+b]" {
			t.Errorf("unreadable: %v, %v", names, err)
		}
		for _, v := range []string{"1.0.0", "1.0.0+c"} {
			if _, _, err := c.Of(k.address).Withdraw(
				t.Context(), parseVersion(t, v), leaked(), false,
			); !errors.Is(err, registry.ErrExists) {
				t.Errorf("withdrawing %s: %v", v, err)
			}
		}
		withdraw(t, c, k.address, "1.0.0+b")
		k.has(t, c, "nothing", "", "[1.0.0+b]")
	})
}

// A version whose record and listing are missing can still be withdrawn, if the
// caller confirms that it was published.
func TestWithdrawMissing(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, k kind, _ catalog.Table, c *catalog.Catalog) {
		for _, published := range []bool{false, true} {
			if published {
				k.publishes(t, c, "1.0.0")
			}
			v := fmt.Sprintf("9.0.%d", len(fmt.Sprint(published)))
			if _, _, err := c.Of(k.address).Withdraw(
				t.Context(), parseVersion(t, v), leaked(), false,
			); !errors.Is(err, registry.ErrNotFound) {
				t.Errorf("published %v: %v", published, err)
			}
			if _, changed, err := c.Of(k.address).Withdraw(
				t.Context(), parseVersion(t, v), leaked(), true,
			); err != nil || !changed {
				t.Errorf("published %v, missing: %v, %v", published, changed, err)
			}
			if err := k.publish(t.Context(), c, v); !errors.Is(err, registry.ErrWithdrawn) {
				t.Errorf("published %v, publishing it: %v", published, err)
			}
		}
		k.has(t, c, "[1.0.0]", "1.0.0", "[9.0.4 9.0.5]")
	})
}

// A rebuild that cannot repair anything returns false.
func TestRebuildNothing(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, k kind, table catalog.Table, c *catalog.Catalog) {
		k.publishes(t, c, "1.0.0")
		if rebuilt, err := k.rebuild(t.Context(), c); err != nil || rebuilt {
			t.Errorf("%v, %v", rebuilt, err)
		}
		path := k.address.Path()
		if err := table.Write(
			t.Context(),
			catalog.Change{Key: catalog.Key{Partition: path, Sort: "version/1.0.0"}, Revision: 1, Data: []byte("?")},
			catalog.Change{Key: catalog.Key{Partition: path, Sort: "listing"}, Revision: 1, Delete: true},
		); err != nil {
			t.Fatal(err)
		}
		if rebuilt, err := k.rebuild(t.Context(), c); err != nil || rebuilt {
			t.Errorf("without a record: %v, %v", rebuilt, err)
		}
	})
}
