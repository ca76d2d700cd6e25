package catalog_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/tabletest"
	"github.com/larder-registry/larder/pkg/mirror"
	"github.com/larder-registry/larder/pkg/modules"
	"github.com/larder-registry/larder/pkg/objects/disk"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/providers"
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

// leaked is why versions are withdrawn here.
func leaked() registry.Withdrawal {
	return registry.Withdrawal{At: time.Date(2026, 11, 21, 1, 2, 3, 0, time.UTC), By: "wim", Reason: "it has a key"}
}

func withdraw(t testing.TB, c *catalog.Catalog, a registry.Address, v string) {
	t.Helper()
	if _, changed, err := c.Withdraw(t.Context(), a, parseVersion(t, v), leaked()); err != nil || !changed {
		t.Fatalf("Withdraw(%s %s): %v, %v", a, v, changed, err)
	}
}

// kind is what the three kinds of addresses have in common here.
type kind struct {
	address registry.Address
	publish func(ctx context.Context, c *catalog.Catalog, version string) error
	// read returns the error of reading a version as the protocol does.
	read func(ctx context.Context, c *catalog.Catalog, v registry.Version) error
	// records returns the error of reading all versions.
	records func(ctx context.Context, c *catalog.Catalog) error
	// listed returns the versions of the listing.
	listed func(ctx context.Context, c *catalog.Catalog) ([]registry.Version, error)
	// latest returns the version that the catalogue's entry names, or nothing.
	latest func(ctx context.Context, c *catalog.Catalog) (string, error)
	stored func(ctx context.Context, c *catalog.Catalog) (mismatches []catalog.Mismatch, withdrawn []registry.Version, rebuildable bool, err error)
	// rebuild mends what is derived.
	rebuild func(ctx context.Context, c *catalog.Catalog) (bool, error)
}

func kinds(t testing.TB) map[string]kind {
	t.Helper()
	vpc := module(t, "acme/vpc/aws")
	return map[string]kind{
		"module": {
			address: vpc,
			publish: func(ctx context.Context, c *catalog.Catalog, version string) error {
				_, _, err := c.PublishModule(ctx, vpc, record(t, version, "a"))
				return err
			},
			read: func(ctx context.Context, c *catalog.Catalog, v registry.Version) error {
				_, err := c.ModuleVersion(ctx, vpc, v)
				return err
			},
			records: func(ctx context.Context, c *catalog.Catalog) error {
				_, err := c.ModuleVersions(ctx, vpc)
				return err
			},
			listed: func(ctx context.Context, c *catalog.Catalog) ([]registry.Version, error) {
				data, err := c.ModuleListing(ctx, vpc)
				if err != nil {
					return nil, err
				}
				return protocol.Decode[protocol.ModuleListing](data)
			},
			latest: func(ctx context.Context, c *catalog.Catalog) (latest string, err error) {
				for s, err := range c.Modules(ctx, "") {
					if err != nil {
						return "", err
					}
					latest += s.Latest.String()
				}
				return latest, nil
			},
			stored: func(ctx context.Context, c *catalog.Catalog) ([]catalog.Mismatch, []registry.Version, bool, error) {
				s, err := c.StoredModule(ctx, vpc)
				return s.Mismatches, s.Withdrawn, s.Rebuildable, err
			},
			rebuild: func(ctx context.Context, c *catalog.Catalog) (bool, error) { return c.RebuildModule(ctx, vpc) },
		},
		"provider": {
			address: inventory,
			publish: func(ctx context.Context, c *catalog.Catalog, version string) error {
				r := providerRecord(t, version, "A")
				_, _, err := c.PublishProvider(ctx, inventory, r)
				return err
			},
			read: func(ctx context.Context, c *catalog.Catalog, v registry.Version) error {
				_, err := c.ProviderVersion(ctx, inventory, v)
				return err
			},
			records: func(ctx context.Context, c *catalog.Catalog) error {
				_, err := c.ProviderVersions(ctx, inventory)
				return err
			},
			listed: func(ctx context.Context, c *catalog.Catalog) (versions []registry.Version, err error) {
				data, err := c.ProviderListing(ctx, inventory)
				if err != nil {
					return nil, err
				}
				l, err := protocol.Decode[protocol.ProviderListing](data)
				for _, v := range l.Versions {
					versions = append(versions, v.Version)
				}
				return versions, err
			},
			latest: func(ctx context.Context, c *catalog.Catalog) (latest string, err error) {
				for s, err := range c.Providers(ctx, "") {
					if err != nil {
						return "", err
					}
					latest += s.Latest.String()
				}
				return latest, nil
			},
			stored: func(ctx context.Context, c *catalog.Catalog) ([]catalog.Mismatch, []registry.Version, bool, error) {
				s, err := c.StoredProvider(ctx, inventory)
				return s.Mismatches, s.Withdrawn, s.Rebuildable, err
			},
			rebuild: func(ctx context.Context, c *catalog.Catalog) (bool, error) { return c.RebuildProvider(ctx, inventory) },
		},
		"mirror": {
			address: random,
			publish: func(ctx context.Context, c *catalog.Catalog, version string) error {
				_, _, err := c.Mirror(ctx, random, mirrorRecord(t, version, "linux_amd64 l"), "mia")
				return err
			},
			read: func(ctx context.Context, c *catalog.Catalog, v registry.Version) error {
				_, err := c.MirrorVersion(ctx, random, v)
				return err
			},
			records: func(ctx context.Context, c *catalog.Catalog) error {
				_, err := c.MirrorVersions(ctx, random)
				return err
			},
			listed: func(ctx context.Context, c *catalog.Catalog) ([]registry.Version, error) {
				data, err := c.MirrorListing(ctx, random)
				if err != nil {
					return nil, err
				}
				return protocol.Decode[protocol.MirrorListing](data)
			},
			latest: func(ctx context.Context, c *catalog.Catalog) (latest string, err error) {
				for s, err := range c.Mirrored(ctx) {
					if err != nil {
						return "", err
					}
					latest += s.Latest.String()
				}
				return latest, nil
			},
			stored: func(ctx context.Context, c *catalog.Catalog) ([]catalog.Mismatch, []registry.Version, bool, error) {
				s, err := c.StoredMirror(ctx, random)
				return s.Mismatches, s.Withdrawn, s.Rebuildable, err
			},
			rebuild: func(ctx context.Context, c *catalog.Catalog) (bool, error) { return c.RebuildMirror(ctx, random) },
		},
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

// has says what clients and people see of an address, and that what is derived is as it must be.
func (k kind) has(t testing.TB, c *catalog.Catalog, listed, latest, withdrawn string) {
	t.Helper()
	versions, err := k.listed(t.Context(), c)
	if got := fmt.Sprint(versions); err == nil && got != listed || err != nil && (listed != "nothing" || !errors.Is(err, registry.ErrNotFound)) {
		t.Errorf("%s: listed %s, %v; want %s", k.address, got, err, listed)
	}
	if got, err := k.latest(t.Context(), c); err != nil || got != latest {
		t.Errorf("%s: its latest is %q, %v; want %q", k.address, got, err, latest)
	}
	mismatches, gone, _, err := k.stored(t.Context(), c)
	if err != nil || len(mismatches) > 0 || fmt.Sprint(gone) != withdrawn {
		t.Errorf("%s: stored %v, withdrawn %v, %v; want %s", k.address, mismatches, gone, err, withdrawn)
	}
}

// A withdrawn version is as one that never was to who reads, and one whose number is taken to who publishes.
func TestWithdraw(t *testing.T) {
	t.Parallel()
	for name, k := range kinds(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, began := t.Context(), time.Now()
			c := withKey(t, open(t))
			for _, v := range []string{"1.0.0+a", "1.1.0"} {
				if err := k.publish(ctx, c, v); err != nil {
					t.Fatal(err)
				}
			}
			if _, withdrawn, err := c.Withdrawal(ctx, k.address, parseVersion(t, "1.1.0")); withdrawn || err != nil {
				t.Errorf("before: %v, %v", withdrawn, err)
			}
			if _, _, err := c.Withdraw(ctx, k.address, parseVersion(t, "3.0.0"), leaked()); !errors.Is(err, registry.ErrNotFound) {
				t.Errorf("what never was: %v", err)
			}
			withdraw(t, c, k.address, "1.1.0")
			k.has(t, c, "[1.0.0+a]", "1.0.0+a", "[1.1.0]")
			if err := k.read(ctx, c, parseVersion(t, "1.1.0")); !errors.Is(err, registry.ErrNotFound) || !errors.Is(err, registry.ErrWithdrawn) {
				t.Errorf("read: %v", err)
			}
			withdraw(t, c, k.address, "1.0.0+a")
			k.has(t, c, "nothing", "", "[1.0.0+a 1.1.0]")

			for _, v := range []string{"1.1.0", "1.0.0+a", "1.0.0+b", "1.0.0"} {
				err := k.publish(ctx, c, v)
				if !errors.Is(err, registry.ErrExists) || !errors.Is(err, registry.ErrWithdrawn) || !strings.Contains(fmt.Sprint(err), "withdrawn on 2026-11-21 01:02 UTC: it has a key") {
					t.Errorf("publishing %s: %v", v, err)
				}
			}
			k.has(t, c, "nothing", "", "[1.0.0+a 1.1.0]")

			// Another withdrawal is the first one still.
			again := leaked()
			again.Reason = "another"
			if recorded, changed, err := c.Withdraw(ctx, k.address, parseVersion(t, "1.1.0"), again); err != nil || changed || recorded != leaked() {
				t.Errorf("again: %v, %v, %v", recorded, changed, err)
			}
			if recorded, withdrawn, err := c.Withdrawal(ctx, k.address, parseVersion(t, "1.1.0")); err != nil || !withdrawn || recorded != leaked() {
				t.Errorf("after: %v, %v, %v", recorded, withdrawn, err)
			}
			if err := k.publish(ctx, c, "1.2.0"); err != nil {
				t.Fatal(err)
			}
			k.has(t, c, "[1.2.0]", "1.2.0", "[1.0.0+a 1.1.0]")

			count := 0
			for _, line := range trail(t, c, began) {
				if strings.HasPrefix(line, "wim: withdraw "+k.address.Path()+" 1.") && strings.HasSuffix(line, ": it has a key") {
					count++
				}
			}
			if count != 2 {
				t.Errorf("%d entries of two withdrawals", count)
			}
		})
	}
}

// What a listing and an entry say against the records is found and mended, where nothing is to be listed too.
func TestWithdrawnRebuild(t *testing.T) {
	t.Parallel()
	for name, k := range kinds(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			table := open(t)
			c := withKey(t, table)
			if err := k.publish(t.Context(), c, "1.0.0"); err != nil {
				t.Fatal(err)
			}
			before, err := table.Get(t.Context(), catalog.Key{Partition: k.address.Path(), Sort: "listing"})
			if err != nil {
				t.Fatal(err)
			}
			withdraw(t, c, k.address, "1.0.0")
			if err := table.Write(t.Context(), catalog.Change{Key: before.Key, Data: before.Data}); err != nil {
				t.Fatal(err)
			}
			if mismatches, _, rebuildable, err := k.stored(t.Context(), c); err != nil || len(mismatches) != 1 || mismatches[0].What != catalog.DerivedListing || !rebuildable {
				t.Errorf("%v, %v, %v", mismatches, rebuildable, err)
			}
			if rebuilt, err := k.rebuild(t.Context(), c); err != nil || !rebuilt {
				t.Error(err)
			}
			k.has(t, c, "nothing", "", "[1.0.0]")
		})
	}
}

// Whichever call fails, a version is withdrawn everywhere or nowhere, and withdrawing it again withdraws it.
func TestWithdrawFails(t *testing.T) {
	t.Parallel()
	for name, k := range kinds(t) {
		for _, done := range []bool{false, true} {
			for at := int64(1); ; at++ {
				table := open(t)
				good := withKey(t, table)
				for _, v := range []string{"1.0.0", "1.1.0"} {
					if err := k.publish(t.Context(), good, v); err != nil {
						t.Fatal(err)
					}
				}
				_, _, err := catalog.New(&tabletest.Faulty{Table: table, FailAt: at, Done: done}).Withdraw(t.Context(), k.address, parseVersion(t, "1.1.0"), leaked())
				if err == nil {
					if at < 4 {
						t.Errorf("%s: there are %d calls", name, at-1)
					}
					break
				}
				if !errors.Is(err, tabletest.ErrFault) {
					t.Errorf("%s: call %d: %v", name, at, err)
				}
				if _, gone, _ := good.Withdrawal(t.Context(), k.address, parseVersion(t, "1.1.0")); gone {
					k.has(t, good, "[1.0.0]", "1.0.0", "[1.1.0]")
				} else if latest, err := k.latest(t.Context(), good); err != nil || latest != "1.1.0" {
					t.Errorf("%s: call %d: %s, %v", name, at, latest, err)
				}
				if _, _, err := good.Withdraw(t.Context(), k.address, parseVersion(t, "1.1.0"), leaked()); err != nil {
					t.Errorf("%s: call %d, and again: %v", name, at, err)
				}
				k.has(t, good, "[1.0.0]", "1.0.0", "[1.1.0]")
			}
		}
	}
}

// Whoever is faster: a version that is withdrawn while others are published is withdrawn, and these are listed.
func TestWithdrawWhilePublishing(t *testing.T) {
	t.Parallel()
	for name, k := range kinds(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := withKey(t, open(t))
			if err := k.publish(t.Context(), c, "1.0.0"); err != nil {
				t.Fatal(err)
			}
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
				if _, _, err := c.Withdraw(t.Context(), k.address, parseVersion(t, "1.0.0"), leaked()); err != nil {
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
			if mismatches, gone, _, err := k.stored(t.Context(), c); err != nil || len(mismatches) > 0 || fmt.Sprint(gone) != "[1.0.0]" {
				t.Errorf("%v, %v, %v", mismatches, gone, err)
			}
		})
	}
}

// What is withdrawn cannot be deprecated, and what is hidden can be shown again where nothing else is left.
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
	if _, err := c.DeprecateModule(ctx, vpc, &first, "old", true, "dee"); err != nil {
		t.Fatal(err)
	}
	if err := c.DeprecateProvider(ctx, inventory, &second, "bad", "dee"); err != nil {
		t.Fatal(err)
	}
	withdraw(t, c, vpc, "1.1.0")
	withdraw(t, c, inventory, "1.1.0")
	_, err := c.DeprecateModule(ctx, vpc, &second, "x", false, "dee")
	if err2 := c.DeprecateProvider(ctx, inventory, &second, "", "dee"); !errors.Is(err, registry.ErrWithdrawn) || !errors.Is(err2, registry.ErrWithdrawn) {
		t.Errorf("%v, %v", err, err2)
	}
	if _, err := c.DeprecateModule(ctx, vpc, nil, "x", false, "dee"); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("the whole of a module of which nothing is listed: %v", err)
	}
	data, err := c.ProviderListing(ctx, inventory)
	if err != nil {
		t.Fatal(err)
	}
	if l, err := protocol.Decode[protocol.ProviderListing](data); err != nil || len(l.Warnings) > 0 {
		t.Errorf("clients are warned of what is not there: %q, %v", l.Warnings, err)
	}
	kinds(t)["module"].has(t, c, "nothing", "", "[1.1.0]")
	if latest, err := c.DeprecateModule(ctx, vpc, &first, "", false, "dee"); err != nil || latest != first {
		t.Errorf("shown again: %s, %v", latest, err)
	}
	kinds(t)["module"].has(t, c, "[1.0.0]", "1.0.0", "[1.1.0]")

	// A key that has signed withdrawn versions alone has signed nothing that is there.
	withdraw(t, c, inventory, "1.0.0")
	if signed, err := c.Signed(ctx, "acme"); err != nil || len(signed) > 0 {
		t.Errorf("%v, %v", signed, err)
	}
}

// older reads records as releases do that know of no withdrawal.
type older struct{ table catalog.Table }

func (o older) read(ctx context.Context, a registry.Address, v registry.Version, record any) error {
	item, err := o.table.Get(ctx, catalog.Key{Partition: a.Path(), Sort: "version/" + v.String()})
	if err != nil {
		return err
	}
	return json.Unmarshal(item.Data, record)
}

func (o older) ModuleListing(context.Context, registry.Module) (protocol.Document, error) {
	return nil, registry.ErrNotFound
}

func (o older) ModuleVersion(ctx context.Context, m registry.Module, v registry.Version) (r registry.ModuleVersion, err error) {
	err = o.read(ctx, m, v, &r)
	return r, err
}

func (o older) ProviderListing(context.Context, registry.Provider) (protocol.Document, error) {
	return nil, registry.ErrNotFound
}

func (o older) ProviderVersion(ctx context.Context, p registry.Provider, v registry.Version) (r registry.ProviderVersion, err error) {
	err = o.read(ctx, p, v, &r)
	return r, err
}

func (o older) SigningKeys(context.Context, string) ([]registry.SigningKey, error) { return nil, nil }

func (o older) MirrorListing(context.Context, registry.MirrorProvider) (protocol.Document, error) {
	return nil, registry.ErrNotFound
}

func (o older) MirrorVersion(ctx context.Context, p registry.MirrorProvider, v registry.Version) (r registry.MirrorVersion, err error) {
	err = o.read(ctx, p, v, &r)
	return r, err
}

// A function of an older release, which takes a tombstone for a record, finds nothing in it to serve.
func TestOlderReaders(t *testing.T) {
	t.Parallel()
	table := open(t)
	c := withKey(t, table)
	store, err := disk.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	const objects = "https://objects.example.com"
	store.BaseURL = objects
	for name, test := range map[string]struct {
		handler http.Handler
		path    string
		status  int
	}{
		"module":   {modules.New(older{table}, store), modules.Path + "acme/vpc/aws/1.0.0/download", http.StatusBadRequest},
		"provider": {providers.New(older{table}, store), providers.Path + inventory.String() + "/1.0.0/download/linux/amd64", http.StatusNotFound},
		"mirror":   {mirror.New(older{table}, store), mirror.Path + random.String() + "/1.0.0.json", http.StatusOK},
	} {
		k := kinds(t)[name]
		if err := k.publish(t.Context(), c, "1.0.0"); err != nil {
			t.Fatal(err)
		}
		for _, withdrawn := range []bool{false, true} {
			if withdrawn {
				withdraw(t, c, k.address, "1.0.0")
			}
			w := httptest.NewRecorder()
			test.handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, test.path, nil))
			serves := strings.Contains(w.Body.String()+w.Header().Get("X-Terraform-Get"), objects)
			if serves == withdrawn || withdrawn && w.Code != test.status {
				t.Errorf("%s, withdrawn %v: %d %s", name, withdrawn, w.Code, w.Body)
			}
		}
	}
}

// A version of which the record is lost or cannot be read is withdrawn all the same, without what else is damaged losing its place in
// the listing; until it is, nothing that makes the listing anew of the records goes on.
func TestWithdrawDamaged(t *testing.T) {
	t.Parallel()
	for name, k := range kinds(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			table := open(t)
			c := withKey(t, table)
			for _, v := range []string{"1.0.0", "1.1.0", "1.2.0"} {
				if err := k.publish(t.Context(), c, v); err != nil {
					t.Fatal(err)
				}
			}
			item := func(v string) catalog.Key { return catalog.Key{Partition: k.address.Path(), Sort: "version/" + v} }
			if err := table.Write(t.Context(), catalog.Change{Key: item("1.0.0"), Revision: 1, Delete: true}); err != nil {
				t.Fatal(err)
			}
			if m, ok := k.address.(registry.Module); ok {
				hidden := parseVersion(t, "1.2.0")
				if _, err := c.DeprecateModule(t.Context(), m, &hidden, "old", false, "ada"); !errors.Is(err, catalog.ErrDamaged) {
					t.Errorf("deprecating: %v", err)
				}
			}
			if err := table.Write(t.Context(), catalog.Change{Key: item("1.1.0"), Revision: 1, Data: []byte("?")}); err != nil {
				t.Fatal(err)
			}
			again := func(v string) error {
				_, withdrawn, err := c.Withdrawal(t.Context(), k.address, parseVersion(t, v))
				if err == nil && withdrawn {
					t.Error(v, "is withdrawn")
				}
				if err != nil {
					return err
				}
				_, _, err = c.Withdraw(t.Context(), k.address, parseVersion(t, v), leaked())
				return err
			}
			if err := again("1.2.0"); !errors.Is(err, catalog.ErrDamaged) {
				t.Errorf("a version beside others that are lost: %v", err)
			}
			if err := again("9.0.0"); !errors.Is(err, registry.ErrNotFound) {
				t.Errorf("a version that never was: %v", err)
			}
			if err := k.publish(t.Context(), c, "1.0.0"); !errors.Is(err, catalog.ErrDamaged) {
				t.Errorf("publishing what is lost: %v", err)
			}
			if err := again("1.0.0"); err != nil {
				t.Error(err)
			}
			if versions, err := k.listed(t.Context(), c); err != nil || len(versions) != 3 {
				t.Errorf("listed %v, %v", versions, err)
			}
			for _, v := range []string{"1.1.0", "1.2.0"} {
				if err := again(v); err != nil {
					t.Error(err)
				}
			}
			k.has(t, c, "nothing", "", "[1.0.0 1.1.0 1.2.0]")
		})
	}
}

// A rebuild that finds nothing it could mend says so.
func TestRebuildNothing(t *testing.T) {
	t.Parallel()
	for name, k := range kinds(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			table := open(t)
			c := withKey(t, table)
			if err := k.publish(t.Context(), c, "1.0.0"); err != nil {
				t.Fatal(err)
			}
			if rebuilt, err := k.rebuild(t.Context(), c); err != nil || rebuilt {
				t.Errorf("%v, %v", rebuilt, err)
			}
			path := k.address.Path()
			if err := table.Write(t.Context(), catalog.Change{Key: catalog.Key{Partition: path, Sort: "version/1.0.0"}, Revision: 1, Data: []byte("?")}, catalog.Change{Key: catalog.Key{Partition: path, Sort: "listing"}, Revision: 1, Delete: true}); err != nil {
				t.Fatal(err)
			}
			if rebuilt, err := k.rebuild(t.Context(), c); err != nil || rebuilt {
				t.Errorf("without a record: %v, %v", rebuilt, err)
			}
		})
	}
}
