package copying_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/builds"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/sqlite"
	"github.com/larder-registry/larder/pkg/content/signing"
	"github.com/larder-registry/larder/pkg/objects/disk"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/sources/copying"
)

// newStore returns an empty registry.
func newStore(t *testing.T, host string) copying.Store {
	t.Helper()
	s, _ := newStoreWithTable(t, host)
	return s
}

// newStoreWithTable is newStore, and also returns the table.
func newStoreWithTable(t *testing.T, host string) (copying.Store, catalog.Table) {
	t.Helper()
	dir := t.TempDir()
	stored, err := disk.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	table, err := sqlite.Create(t.Context(), filepath.Join(dir, "larder.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(table.Close(), stored.Close()) })
	by := registry.Publisher{Kind: registry.PublisherUser, Name: "operator of " + host}
	publisher := &publish.Publisher{Catalog: catalog.New(table), Objects: stored, By: by}
	return copying.Store{Host: host, Publisher: publisher}, table
}

func module(t *testing.T, text string) registry.Module {
	t.Helper()
	m, err := registry.ParseModule(text)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func number(t *testing.T, text string) registry.Version {
	t.Helper()
	v, err := registry.ParseTag(text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// publishModule publishes a version of acme/vpc/aws with a content of its own.
func publishModule(t *testing.T, s copying.Store, version, content string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte("# "+content+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := s.Publisher.Module(t.Context(), rules.Module{
		Dir: dir, Address: module(t, "acme/vpc/aws"), Version: number(t, version), Description: "The " + version,
	})
	if err != nil {
		t.Fatal(err)
	}
}

// signer returns the key of releases of package builds.
func signer(t *testing.T) registry.SigningKey {
	t.Helper()
	pair, err := builds.Signer()
	if err != nil {
		t.Fatal(err)
	}
	key, err := signing.ParseKey(pair.Public, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return key
}

var inventory = registry.Provider{Namespace: "acme", Type: "inventory"}

// publishProvider publishes a version of acme/inventory for two platforms. Its
// SHA256SUMS lists a manifest.
func publishProvider(t *testing.T, s copying.Store, version string) {
	t.Helper()
	if _, err := s.Catalog.AddSigningKey(t.Context(), "acme", signer(t)); err != nil {
		t.Fatal(err)
	}
	release := builds.NewRelease(t, version, "linux_amd64", "darwin_arm64")
	if _, err := s.Publisher.Provider(t.Context(), rules.Provider{Dir: release.Dir, Address: inventory}); err != nil {
		t.Fatal(err)
	}
}

// deprecate deprecates a version, or all if version is empty.
func deprecate[A registry.Address, R registry.Record](
	t *testing.T, versions catalog.Versions[A, R], a A, version, message string, hide bool,
) {
	t.Helper()
	var v *registry.Version
	if version != "" {
		n := number(t, version)
		v = &n
	}
	if _, err := versions.Deprecate(t.Context(), a, v, catalog.Deprecation{Message: message, Hide: hide}); err != nil {
		t.Fatal(err)
	}
}

func withdraw(t *testing.T, s copying.Store, m registry.Module, version string) {
	t.Helper()
	w := registry.Withdrawal{At: time.Now(), By: "x", Reason: "leaked"}
	if _, _, err := s.Catalog.Modules.Withdraw(t.Context(), m, number(t, version), w, false); err != nil {
		t.Fatal(err)
	}
}

// shown returns results as ADDRESS VERSION STATUS: REASON.
func shown(r copying.Report) (all []string) {
	for _, one := range r.Results {
		text := fmt.Sprintf("%s %s %s", one.As, one.Version, one.Status)
		if one.Reason != "" {
			text += ": " + one.Reason
		}
		if one.Deprecated != "" {
			text += ", deprecated: " + one.Deprecated
		}
		all = append(all, text)
	}
	return all
}

// whole returns what copies all versions of addresses.
func whole(addresses ...registry.Address) (all []copying.Wanted) {
	for _, a := range addresses {
		all = append(all, copying.Wanted{Address: a, As: a})
	}
	return all
}

// Everything of a Larder is copied once: bytes, descriptions and deprecations.
func TestCopyOnce(t *testing.T) {
	t.Parallel()
	ctx, vpc := t.Context(), module(t, "acme/vpc/aws")
	from, to := newStore(t, "dev.example.com"), newStore(t, "prod.example.com")
	for _, v := range []string{"1.0.0", "1.1.0", "1.2.0", "1.3.0", "2.0.0-rc.1"} {
		publishModule(t, from, v, v)
	}
	publishProvider(t, from, "1.0.0")
	publishProvider(t, from, "1.1.0")
	deprecate(t, from.Catalog.Modules, vpc, "1.0.0", "use 1.3.0", false)
	deprecate(t, from.Catalog.Modules, vpc, "1.1.0", "it is broken", true)
	deprecate(t, from.Catalog.Providers, inventory, "", "use acme/stock", false)
	deprecate(t, from.Catalog.Providers, inventory, "1.0.0", "use 1.1.0", false)
	withdraw(t, from, vpc, "1.2.0")
	c := copying.Copier{Origin: from, Target: copying.StoreTarget{Store: to}, AddKeys: true}
	report, err := c.Copy(ctx, whole(vpc, inventory))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{
		"acme/vpc/aws 2.0.0-rc.1 copied", "acme/vpc/aws 1.3.0 copied",
		"acme/vpc/aws 1.2.0 skipped: withdrawn in dev.example.com", "acme/vpc/aws 1.1.0 copied, deprecated: it is broken",
		"acme/vpc/aws 1.0.0 copied, deprecated: use 1.3.0", "acme/inventory 1.1.0 copied",
		"acme/inventory 1.0.0 copied, deprecated: use 1.1.0",
	}, shown(report)); diff != "" {
		t.Errorf("the report (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"acme/inventory is deprecated now: use acme/stock"}, report.Notes); diff != "" {
		t.Errorf("the notes (-want +got):\n%s", diff)
	}
	compareModules(t, from, to, vpc)
	compareProviders(t, from, to)
	summary, err := to.Catalog.Providers.Summary(ctx, inventory)
	if err != nil {
		t.Fatal(err)
	}
	if summary.Deprecated != "use acme/stock" {
		t.Errorf("the provider has the deprecation %q", summary.Deprecated)
	}
	// The deprecations of the target's operator stay.
	deprecate(t, to.Catalog.Modules, vpc, "1.0.0", "use acme/net/aws", false)
	deprecate(t, to.Catalog.Providers, inventory, "", "use acme/store", false)
	before := trail(t, to) + trail(t, from)
	report, err = c.Copy(ctx, whole(vpc, inventory))
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range report.Results {
		if one.Status != copying.Unchanged && one.Status != copying.Skipped {
			t.Errorf("the second copy of %s %s: %s", one.Address, one.Version, one.Status)
		}
	}
	if diff := cmp.Diff(before, trail(t, to)+trail(t, from)); diff != "" {
		t.Errorf("the second copy changes the trails:\n%s", diff)
	}
}

// compareModules compares the records of a module and of its copy.
func compareModules(t *testing.T, from, to copying.Store, m registry.Module) {
	t.Helper()
	want, err := from.Catalog.Modules.All(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	for _, original := range want {
		if original.Withdrawn != nil {
			continue
		}
		got, err := to.Catalog.Modules.Get(t.Context(), m, original.Version)
		if err != nil {
			t.Error(err)
			continue
		}
		copied := original
		copied.CopiedTo, copied.PublishedAt, copied.PublishedBy = nil, got.PublishedAt, to.By
		copied.Changes = got.Changes // since the versions that were copied before
		copied.CopiedFrom = &registry.CopiedFrom{
			Source: from.Host + "/" + m.String(), PublishedAt: original.PublishedAt, PublishedBy: original.PublishedBy,
		}
		if diff := cmp.Diff(copied, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", original.Version, diff)
		}
		if diff := cmp.Diff([]string{to.Host + "/" + m.String()}, original.CopiedTo); diff != "" {
			t.Errorf("the copies of %s (-want +got):\n%s", original.Version, diff)
		}
	}
}

// compareProviders compares the files of acme/inventory and of its copy.
func compareProviders(t *testing.T, from, to copying.Store) {
	t.Helper()
	want, err := from.Catalog.Providers.All(t.Context(), inventory)
	if err != nil {
		t.Fatal(err)
	}
	got, err := to.Catalog.Providers.All(t.Context(), inventory)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want) {
		t.Fatalf("there are %d versions, want %d", len(got), len(want))
	}
	for i := range want {
		if diff := cmp.Diff(want[i].Files(), got[i].Files()); diff != "" {
			t.Errorf("the files of %s (-want +got):\n%s", want[i].Version, diff)
		}
		if diff := cmp.Diff(want[i].Packages, got[i].Packages); diff != "" {
			t.Errorf("the packages of %s (-want +got):\n%s", want[i].Version, diff)
		}
		if got[i].SigningKey != want[i].SigningKey {
			t.Errorf("%s has the key %s", want[i].Version, got[i].SigningKey)
		}
	}
}

// trail returns an audit trail in one text.
func trail(t *testing.T, s copying.Store) string {
	t.Helper()
	var all strings.Builder
	for e, err := range s.Catalog.AuditTrail(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&all, "%s %s %s %v %s\n", e.By, e.Action, e.Subject, e.Version, e.Detail)
	}
	return all.String()
}

func TestSelection(t *testing.T) {
	t.Parallel()
	from := newStore(t, "dev.example.com")
	vpc, net := module(t, "acme/vpc/aws"), module(t, "platform/net/aws")
	for _, v := range []string{"1.0.0", "1.1.0", "2.0.0", "3.0.0-rc.1"} {
		publishModule(t, from, v, v)
	}
	withdraw(t, from, vpc, "1.1.0")
	exact := func(text string) *registry.Version { v := number(t, text); return &v }
	for name, c := range map[string]struct {
		wanted copying.Wanted
		want   []string
		err    error
	}{
		"constraint": {copying.Wanted{Address: vpc, As: vpc, Constraint: "~> 1.0"},
			[]string{"acme/vpc/aws 1.1.0 skipped: withdrawn in dev.example.com", "acme/vpc/aws 1.0.0 copied"}, nil},
		"version": {copying.Wanted{Address: vpc, As: vpc, Exact: exact("2.0.0")}, []string{"acme/vpc/aws 2.0.0 copied"}, nil},
		"pre-release": {copying.Wanted{Address: vpc, As: vpc, Exact: exact("3.0.0-rc.1")},
			[]string{"acme/vpc/aws 3.0.0-rc.1 copied"}, nil},
		"another name": {copying.Wanted{Address: vpc, As: net, Exact: exact("2.0.0")},
			[]string{"platform/net/aws 2.0.0 copied"}, nil},
		"withdrawn version": {copying.Wanted{Address: vpc, As: vpc, Exact: exact("1.1.0")},
			[]string{"acme/vpc/aws  failed: cannot copy acme/vpc/aws 1.1.0: it is withdrawn in dev.example.com"},
			registry.ErrWithdrawn},
		"unknown version": {copying.Wanted{Address: vpc, As: vpc, Exact: exact("9.0.0")},
			[]string{"acme/vpc/aws  failed: cannot copy acme/vpc/aws: dev.example.com has no version 9.0.0: not found. " +
				"Its newest version is 3.0.0-rc.1."}, registry.ErrNotFound},
		"unknown module": {copying.Wanted{Address: net, As: net},
			[]string{"platform/net/aws  failed: cannot copy platform/net/aws: platform/net/aws: not found"},
			registry.ErrNotFound},
		"invalid constraint": {copying.Wanted{Address: vpc, As: vpc, Constraint: "about 1"}, nil, registry.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to := newStore(t, "prod.example.com")
			copier := copying.Copier{Origin: from, Target: copying.StoreTarget{Store: to}}
			report, err := copier.Copy(t.Context(), []copying.Wanted{c.wanted})
			if !errors.Is(err, c.err) {
				t.Errorf("the error is %v, want %v", err, c.err)
			}
			if diff := cmp.Diff(c.want, shown(report)); c.want != nil && diff != "" {
				t.Errorf("the report (-want +got):\n%s", diff)
			}
		})
	}
}

// A version that the target has already is unchanged, an error or skipped.
func TestTargets(t *testing.T) {
	t.Parallel()
	vpc := module(t, "acme/vpc/aws")
	from := newStore(t, "dev.example.com")
	publishModule(t, from, "1.0.0", "one")
	publishProvider(t, from, "1.0.0")
	for name, c := range map[string]struct {
		prepare func(t *testing.T, to copying.Store)
		address registry.Address
		want    string
		err     error
	}{
		"same content": {func(t *testing.T, to copying.Store) {
			t.Helper()
			publishModule(t, to, "1.0.0", "one")
		}, vpc, "unchanged", nil},
		"other content": {func(t *testing.T, to copying.Store) {
			t.Helper()
			publishModule(t, to, "1.0.0", "other")
		}, vpc, "failed: already exists in prod.example.com with other content. A published version cannot change. " +
			"Find out which of the two registries has the right one.", registry.ErrExists},
		"withdrawn": {func(t *testing.T, to copying.Store) {
			t.Helper()
			publishModule(t, to, "1.0.0", "one")
			withdraw(t, to, vpc, "1.0.0")
		}, vpc, "skipped: withdrawn in prod.example.com", nil},
		"no key": {func(*testing.T, copying.Store) {}, inventory, "failed: invalid signature: key " + signer(t).ID +
			" (" + signer(t).Owner + "), which signed it, is not a key of namespace acme. " +
			"If you trust this key, add it with `--add-keys`.", registry.ErrInvalid},
		"its key": {func(t *testing.T, to copying.Store) {
			t.Helper()
			if _, err := to.Catalog.AddSigningKey(t.Context(), "acme", signer(t)); err != nil {
				t.Fatal(err)
			}
		}, inventory, "copied", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to := newStore(t, "prod.example.com")
			c.prepare(t, to)
			copier := copying.Copier{Origin: from, Target: copying.StoreTarget{Store: to}}
			report, err := copier.Copy(t.Context(), whole(c.address))
			if !errors.Is(err, c.err) {
				t.Errorf("the error is %v, want %v", err, c.err)
			}
			if diff := cmp.Diff([]string{c.address.String() + " 1.0.0 " + c.want}, shown(report)); diff != "" {
				t.Errorf("the report (-want +got):\n%s", diff)
			}
		})
	}
}

// A version that is withdrawn in one of the registries is skipped. It is an error
// if it is wanted by its number.
func TestWithdrawn(t *testing.T) {
	t.Parallel()
	vpc, from, to := module(t, "acme/vpc/aws"), newStore(t, "dev.example.com"), newStore(t, "prod.example.com")
	for _, v := range []string{"1.0.0", "1.1.0", "1.2.0"} {
		publishModule(t, from, v, v)
	}
	c := copying.Copier{Origin: from, Target: copying.StoreTarget{Store: to}}
	if _, err := c.Copy(t.Context(), whole(vpc)); err != nil {
		t.Fatal(err)
	}
	withdraw(t, from, vpc, "1.0.0")
	withdraw(t, to, vpc, "1.1.0")
	want := map[string]string{
		"":      "",
		"1.0.0": "cannot copy acme/vpc/aws 1.0.0: it is withdrawn in dev.example.com, but not in prod.example.com",
		"1.1.0": "acme/vpc/aws 1.1.0: withdrawn in prod.example.com",
	}
	for _, dry := range []bool{false, true} {
		c.DryRun = dry
		for version, text := range want {
			wanted := copying.Wanted{Address: vpc, As: vpc}
			if version != "" {
				v := number(t, version)
				wanted.Exact = &v
			}
			report, err := c.Copy(t.Context(), []copying.Wanted{wanted})
			if version != "" {
				if !errors.Is(err, registry.ErrWithdrawn) || err.Error() != text {
					t.Errorf("the error for %s is %v, want %s", version, err, text)
				}
				continue
			}
			if diff := cmp.Diff([]string{
				"acme/vpc/aws 1.2.0 unchanged", "acme/vpc/aws 1.1.0 skipped: withdrawn in prod.example.com",
				"acme/vpc/aws 1.0.0 skipped: withdrawn in dev.example.com, but not in prod.example.com",
			}, shown(report)); diff != "" || err != nil {
				t.Errorf("the report with the error %v (-want +got):\n%s", err, diff)
			}
		}
	}
}

// A copy that uses modules and providers of the origin has a note.
func TestUsesOfOrigin(t *testing.T) {
	t.Parallel()
	from, to, dir := newStore(t, "dev.example.com"), newStore(t, "prod.example.com"), t.TempDir()
	content := []byte("terraform {\n  required_providers {\n    inventory = { source = \"DEV.example.com/acme/inventory\" }\n" +
		"    random = { source = \"hashicorp/random\" }\n  }\n}\n" +
		"module \"subnet\" {\n  source = \"dev.example.com/acme/subnet/aws\"\n}\n")
	if err := os.WriteFile(filepath.Join(dir, "main.tf"), content, 0o600); err != nil {
		t.Fatal(err)
	}
	vpc := module(t, "acme/vpc/aws")
	m := rules.Module{Dir: dir, Address: vpc, Version: number(t, "1.0.0")}
	if _, err := from.Publisher.Module(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	c := copying.Copier{Origin: from, Target: copying.StoreTarget{Store: to}}
	report, err := c.Copy(t.Context(), whole(vpc))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{
		"it uses DEV.example.com/acme/inventory, which clients still install from there",
		"it uses dev.example.com/acme/subnet/aws, which clients still install from there",
	}, report.Results[0].Notes); diff != "" {
		t.Errorf("the notes (-want +got):\n%s", diff)
	}
}

// A dry run changes neither registry.
func TestDryRun(t *testing.T) {
	t.Parallel()
	vpc, from, to := module(t, "acme/vpc/aws"), newStore(t, "dev.example.com"), newStore(t, "prod.example.com")
	publishModule(t, from, "1.0.0", "one")
	publishModule(t, from, "1.1.0", "two")
	publishModule(t, to, "1.0.0", "one")
	publishProvider(t, from, "1.0.0")
	deprecate(t, from.Catalog.Modules, vpc, "1.0.0", "use 1.1.0", true)
	before := trail(t, from) + trail(t, to)
	for addKeys, provider := range map[bool]string{
		true: "copied", false: "failed: invalid signature: key " + signer(t).ID + " (" + signer(t).Owner +
			"), which signed it, is not a key of namespace acme. If you trust this key, add it with `--add-keys`.",
	} {
		c := copying.Copier{Origin: from, Target: copying.StoreTarget{Store: to}, DryRun: true, AddKeys: addKeys}
		report, err := c.Copy(t.Context(), whole(vpc, inventory))
		if (err == nil) != addKeys {
			t.Errorf("with AddKeys %v the error is %v", addKeys, err)
		}
		want := []string{
			"acme/vpc/aws 1.1.0 copied", "acme/vpc/aws 1.0.0 unchanged, deprecated: use 1.1.0",
			"acme/inventory 1.0.0 " + provider,
		}
		if diff := cmp.Diff(want, shown(report)); diff != "" {
			t.Errorf("the report with AddKeys %v (-want +got):\n%s", addKeys, diff)
		}
	}
	if diff := cmp.Diff(before, trail(t, from)+trail(t, to)); diff != "" {
		t.Errorf("the trails change:\n%s", diff)
	}
}
