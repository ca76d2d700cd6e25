package catalog_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

var inventory = registry.Provider{Namespace: "acme", Type: "inventory"}

func providerRecord(t testing.TB, version, key string) registry.ProviderVersion {
	t.Helper()
	v, err := registry.ParseTag(version)
	if err != nil {
		t.Fatal(err)
	}
	file := func(name string) registry.StoredFile {
		return registry.StoredFile{Object: inventory.FileKey(v, version, name), SHA256: version}
	}
	return registry.ProviderVersion{
		Version: v, Protocols: []string{"6.0"}, SigningKey: key, Sums: file("SHA256SUMS"), Signature: file("SHA256SUMS.sig"),
		Packages: []registry.ProviderPackage{
			{
				Platform: registry.Platform{OS: "linux", Arch: "amd64"}, StoredFile: file("inventory.zip"),
				Filename: "inventory.zip", H1: "h1:",
			},
		},
	}
}

func publishProvider(t testing.TB, c *catalog.Catalog, p registry.Provider, r registry.ProviderVersion) {
	t.Helper()
	files := []*registry.StoredFile{&r.Sums, &r.Signature}
	for i := range r.Packages {
		files = append(files, &r.Packages[i].StoredFile)
	}
	for _, f := range files {
		f.Object = strings.Replace(f.Object, inventory.Path(), p.Path(), 1)
	}
	if _, created, err := put(t.Context(), c.Providers, p, r); err != nil || !created {
		t.Fatalf("PublishProvider(%s %s): %v, %v", p, r.Version, created, err)
	}
}

// addKeys adds the keys that sign the records of the tests.
func addKeys(t testing.TB, c *catalog.Catalog) {
	t.Helper()
	for _, id := range []string{"A", "B"} {
		if _, err := c.AddSigningKey(t.Context(), inventory.Namespace, registry.SigningKey{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
}

// listedProvider returns a provider's listing as versions and warnings.
func listedProvider(t testing.TB, c *catalog.Catalog, p registry.Provider) string {
	t.Helper()
	data, err := c.Providers.Listing(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	l, err := protocol.Decode[protocol.ProviderListing](data)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, v := range l.Versions {
		got = append(got, v.Version.String())
	}
	return strings.Join(append(got, l.Warnings...), "; ")
}

func TestPublishProvider(t *testing.T) {
	t.Parallel()
	c := catalog.New(open(t))
	if _, _, err := put(
		t.Context(), c.Providers, inventory, providerRecord(t, "1.0.0", "A"),
	); !errors.Is(err, registry.ErrInvalid) {
		t.Errorf("a missing key: %v", err)
	}
	addKeys(t, c)
	for _, v := range []string{"1.0.0", "1.10.0", "1.9.0", "2.0.0-rc.1"} {
		publishProvider(t, c, inventory, providerRecord(t, v, "A"))
	}
	if got := listedProvider(t, c, inventory); got != "2.0.0-rc.1; 1.10.0; 1.9.0; 1.0.0" {
		t.Error(got)
	}
	stored, created, err := put(t.Context(), c.Providers, inventory, providerRecord(t, "1.9.0", "B"))
	if err != nil || created {
		t.Errorf("publishing 1.9.0 again: created is %t, %v", created, err)
	}
	if stored.SigningKey != "A" {
		t.Errorf("publishing 1.9.0 again returns key %s", stored.SigningKey)
	}
	if _, _, err := put(
		t.Context(), c.Providers, inventory, providerRecord(t, "1.9.0+build", "A"),
	); !errors.Is(err, registry.ErrExists) {
		t.Errorf("build metadata: %v", err)
	}
	// A module in the same namespace has its own listing.
	publish(t, c, module(t, "acme/vpc/aws"), record(t, "1.0.0", "x"))
	var summaries []string
	for s := range each(t, c.Providers.Summaries(t.Context(), "")) {
		summaries = append(summaries, s.Address+" "+s.Latest.String())
	}
	if fmt.Sprint(summaries) != "[acme/inventory 1.10.0]" {
		t.Error(summaries)
	}
	if _, err := c.Providers.All(t.Context(), registry.Provider{
		Namespace: "acme", Type: "inv",
	}); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("a prefix of another type: %v", err)
	}
}

// A version is not published if its signing key is removed between the last
// read and the write.
func TestKeyRemovedDuringPublish(t *testing.T) {
	t.Parallel()
	table := open(t)
	c := withKey(t, table)
	racing := catalog.New(&between{Table: table, do: func() {
		if err := c.RemoveSigningKey(t.Context(), "acme", "A", "rob"); err != nil {
			t.Error(err)
		}
	}})
	if _, _, err := put(
		t.Context(), racing.Providers, inventory, providerRecord(t, "1.0.0", "A"),
	); !errors.Is(err, registry.ErrInvalid) {
		t.Errorf("publishing: %v, want ErrInvalid", err)
	}
	kinds(t)[1].has(t, c, "nothing", "", "[]")
}

func TestDeprecateProvider(t *testing.T) {
	t.Parallel()
	c := catalog.New(open(t))
	first, second := providerRecord(t, "1.0.0", "A"), providerRecord(t, "1.1.0", "A")
	if _, err := c.Providers.Deprecate(
		t.Context(), inventory, nil, catalog.Deprecation{Message: "x", By: "ada"},
	); !errors.Is(err, registry.ErrNotFound) {
		t.Error(err)
	}
	addKeys(t, c)
	publishProvider(t, c, inventory, first)
	steps := []struct {
		version *registry.Version
		message string
		want    string
	}{
		{&first.Version, "one", "1.0.0; Provider acme/inventory 1.0.0 is deprecated: one"},
		{nil, "all", "1.0.0; Provider acme/inventory is deprecated: all; Provider acme/inventory 1.0.0 is deprecated: one"},
		{&first.Version, "", "1.0.0; Provider acme/inventory is deprecated: all"},
		{nil, "", "1.0.0"},
		{&first.Version, "again", "1.0.0; Provider acme/inventory 1.0.0 is deprecated: again"},
	}
	for _, s := range steps {
		if _, err := c.Providers.Deprecate(t.Context(), inventory, s.version, catalog.Deprecation{
			Message: s.message, By: "ada",
		}); err != nil || listedProvider(t, c, inventory) != s.want {
			t.Errorf("%q: %v, %s", s.message, err, listedProvider(t, c, inventory))
		}
	}
	publishProvider(t, c, inventory, second)
	if got := listedProvider(t, c, inventory); got != "1.1.0; 1.0.0; Provider acme/inventory 1.0.0 is deprecated: again" {
		t.Errorf("the next publish: %s", got)
	}
	none := providerRecord(t, "9.0.0", "A").Version
	if _, err := c.Providers.Deprecate(
		t.Context(), inventory, &none, catalog.Deprecation{Message: "x", By: "ada"},
	); !errors.Is(err, registry.ErrNotFound) {
		t.Error(err)
	}
}

func TestDeprecateModule(t *testing.T) {
	t.Parallel()
	c := catalog.New(open(t))
	m := module(t, "acme/vpc/aws")
	for _, v := range []string{"1.0.0", "1.1.0"} {
		publish(t, c, m, record(t, v, v))
	}
	listed := func() string {
		data, err := c.Modules.Listing(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		versions, err := protocol.Decode[protocol.ModuleListing](data)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(versions.All())
	}
	first, second := record(t, "1.0.0", "").Version, record(t, "1.1.0", "").Version
	latest, err := c.Modules.Deprecate(t.Context(), m, &second, catalog.Deprecation{Message: "bad", Hide: true, By: "ada"})
	if err != nil {
		t.Fatal(err)
	}
	check := func(step, want string) {
		t.Helper()
		if got := listed(); got != want {
			t.Errorf("%s: listed %s, want %s", step, got, want)
		}
	}
	if latest.Latest != first {
		t.Errorf("the latest version is %s, want %s", latest.Latest, first)
	}
	check("hiding", "[1.0.0]")
	if _, err := c.Modules.Deprecate(t.Context(), m, &first, catalog.Deprecation{
		Message: "bad too", Hide: true, By: "ada",
	}); !errors.Is(err, registry.ErrInvalid) {
		t.Errorf("hiding the last version: %v, want ErrInvalid", err)
	}
	check("hiding the last version", "[1.0.0]")
	// Changing the message of a hidden version does not list it again. A
	// version that differs from it in build metadata is rejected.
	if _, err := c.Modules.Deprecate(t.Context(), m, &second, catalog.Deprecation{
		Message: "worse", Hide: false, By: "ada",
	}); err != nil {
		t.Error(err)
	}
	check("another message", "[1.0.0]")
	if _, _, err := put(t.Context(), c.Modules, m, record(t, "1.1.0+b", "x")); !errors.Is(err, registry.ErrExists) {
		t.Errorf("build metadata of a hidden version: %v", err)
	}
	// Publishing the hidden version again neither replaces it nor lists it.
	if _, created, err := put(t.Context(), c.Modules, m, record(t, "1.1.0", "1.1.0")); err != nil || created {
		t.Errorf("publishing again: created is %t, %v", created, err)
	}
	check("publishing again", "[1.0.0]")
	publish(t, c, m, record(t, "1.2.0", "1.2.0"))
	check("publishing another version", "[1.2.0 1.0.0]")
	latest, err = c.Modules.Deprecate(t.Context(), m, &second, catalog.Deprecation{By: "ada"})
	if err != nil {
		t.Fatal(err)
	}
	want := catalog.Deprecated{Latest: record(t, "1.2.0", "").Version, Relisted: true}
	if diff := cmp.Diff(want, latest); diff != "" {
		t.Errorf("ending the deprecation (-want +got):\n%s", diff)
	}
	check("ending the deprecation", "[1.2.0 1.1.0 1.0.0]")
	stored, err := c.Modules.Get(t.Context(), m, second)
	if err != nil {
		t.Fatal(err)
	}
	if stored.Hidden || stored.Deprecated != "" {
		t.Errorf("the record is still deprecated: %+v", stored)
	}
	if stored.ContentSHA256 != "1.1.0" {
		t.Errorf("the content is %s", stored.ContentSHA256)
	}
}

func TestSigningKeys(t *testing.T) {
	t.Parallel()
	const armor = "-----BEGIN PGP PUBLIC KEY BLOCK-----"
	c := catalog.New(open(t))
	ctx := t.Context()
	for _, id := range []string{"BB", "AA"} {
		if added, err := c.AddSigningKey(ctx, "acme", registry.SigningKey{
			ID: id, Owner: "first", ASCIIArmor: armor,
		}); err != nil || !added {
			t.Errorf("%v, %v", added, err)
		}
	}
	if added, err := c.AddSigningKey(ctx, "acme", registry.SigningKey{
		ID: "AA", Owner: "extended", ASCIIArmor: armor,
	}); err != nil || added {
		t.Errorf("%v, %v", added, err)
	}
	keys, err := c.SigningKeys(ctx, "acme")
	if err != nil {
		t.Fatal(err)
	}
	wantKeys := []registry.SigningKey{
		{ID: "AA", Owner: "extended", ASCIIArmor: armor}, {ID: "BB", Owner: "first", ASCIIArmor: armor},
	}
	if diff := cmp.Diff(wantKeys, keys); diff != "" {
		t.Errorf("SigningKeys (-want +got):\n%s", diff)
	}
	if keys, err := c.SigningKeys(ctx, "acm"); err != nil || len(keys) != 0 {
		t.Errorf("another namespace: %+v, %v", keys, err)
	}
	publishProvider(t, c, inventory, providerRecord(t, "1.0.0", "AA"))
	publishProvider(t, c, inventory, providerRecord(t, "1.1.0", "BB"))
	signed, err := c.Signed(ctx, "acme")
	if err != nil || fmt.Sprint(signed) != "map[AA:[acme/inventory 1.0.0] BB:[acme/inventory 1.1.0]]" {
		t.Errorf("%v, %v", signed, err)
	}
	if err := c.RemoveSigningKey(ctx, "acme", "AA", "ada"); err != nil {
		t.Error(err)
	}
	if err := c.RemoveSigningKey(ctx, "acme", "AA", "ada"); !errors.Is(err, registry.ErrNotFound) {
		t.Error(err)
	}
}

func TestTokens(t *testing.T) {
	t.Parallel()
	table := open(t)
	c := catalog.New(table)
	ctx := t.Context()
	now := time.Now().UTC().Truncate(time.Second)
	for i, name := range []string{"ci", "ada", "id-of-ci"} {
		r := registry.Token{
			ID: fmt.Sprint("digest-", i), Name: name, Scopes: []string{"read:**"},
			CreatedAt: now.Add(time.Duration(i) * time.Second),
		}
		if name == "id-of-ci" {
			r.Name = "digest-0" // the ID of another token
		}
		if err := c.AddToken(ctx, fmt.Sprint("digest-", i), r); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.AddToken(ctx, "digest-0", registry.Token{}); !errors.Is(err, registry.ErrExists) {
		t.Errorf("a digest twice: %v", err)
	}
	if err := c.AddToken(ctx, "expired", registry.Token{Name: "expired", ExpiresAt: now.Add(-time.Second)}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Token(ctx, "expired"); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("expired: %v", err)
	}
	if found, err := c.Token(ctx, "digest-0"); err != nil || found.Name != "ci" {
		t.Errorf("%+v, %v", found, err)
	}
	names := func() string {
		all, unreadable, err := c.Tokens(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range unreadable {
			all = append(all, registry.Token{Name: "damaged " + u.Name})
		}
		var names []string
		for _, one := range all {
			names = append(names, one.Name)
		}
		return fmt.Sprint(names)
	}
	if names() != "[ci ada digest-0]" {
		t.Error(names())
	}
	for _, which := range []string{"digest-0", "ada"} {
		if _, err := c.RevokeToken(ctx, which, "ada"); err != nil {
			t.Errorf("%s: %v", which, err)
		}
	}
	if names() != "[digest-0]" {
		t.Error(names())
	}
	if _, err := c.RevokeToken(ctx, "nobody", "ada"); !errors.Is(err, registry.ErrNotFound) {
		t.Error(err)
	}

	// A damaged token does not prevent others from being revoked. It can be
	// revoked by its ID.
	err := table.Write(ctx,
		catalog.Change{Key: catalog.Key{Partition: "tokens", Sort: "0123456789abcdef"}, Data: []byte("?")},
		catalog.Change{Key: catalog.Key{Partition: "tokens", Sort: "fedcba9876543210"}, Data: []byte("{}")})
	if err != nil {
		t.Fatal(err)
	}
	if names() != "[digest-0 damaged 0123456789ab damaged fedcba987654]" {
		t.Error(names())
	}
	for _, which := range []string{"digest-0", "0123456789ab", "fedcba987654"} {
		if _, err := c.RevokeToken(ctx, which, "ada"); err != nil {
			t.Errorf("%s: %v", which, err)
		}
	}
	if names() != "[]" {
		t.Error(names())
	}
	if _, err := c.RevokeToken(ctx, "", "ada"); !errors.Is(err, registry.ErrNotFound) {
		t.Error(err)
	}
}

// The total size of the messages of deprecated versions is bounded, since the
// entry contains all of them.
func TestDeprecationsAreBounded(t *testing.T) {
	t.Parallel()
	c := withKey(t, open(t))
	message := strings.Repeat("x", 20<<10)
	for i, v := range []string{"1.0.0", "1.1.0", "1.2.0", "1.3.0"} {
		publishProvider(t, c, inventory, providerRecord(t, v, "A"))
		n := parseVersion(t, v)
		_, err := c.Providers.Deprecate(t.Context(), inventory, &n, catalog.Deprecation{Message: message, By: "ada"})
		if rejected := errors.Is(err, registry.ErrInvalid); rejected != (i == 3) {
			t.Errorf("%s: %v", v, err)
		}
	}
	first := parseVersion(t, "1.0.0")
	if _, err := c.Providers.Deprecate(t.Context(), inventory, &first, catalog.Deprecation{By: "ada"}); err != nil {
		t.Errorf("ending one: %v", err)
	}
}

// Deprecating twice with the same message changes nothing, and neither does
// ending a deprecation that does not exist. The audit trail has neither.
func TestDeprecateAgain(t *testing.T) {
	t.Parallel()
	c := catalog.New(open(t))
	m := registry.Module{Namespace: "acme", Name: "vpc", System: "aws"}
	publish(t, c, m, record(t, "1.0.0", "a"))
	publish(t, c, m, record(t, "1.1.0", "b"))
	if _, err := c.AddSigningKey(t.Context(), "acme", registry.SigningKey{ID: "A"}); err != nil {
		t.Fatal(err)
	}
	publishProvider(t, c, inventory, providerRecord(t, "1.0.0", "A"))
	first := record(t, "1.0.0", "").Version
	entries := func() (n int) {
		for range each(t, c.Audit(t.Context(), time.Time{})) {
			n++
		}
		return n
	}
	for _, step := range []struct {
		version *registry.Version
		change  catalog.Deprecation
		changes bool
	}{
		{&first, catalog.Deprecation{}, false},
		{nil, catalog.Deprecation{}, false},
		{&first, catalog.Deprecation{Message: "old"}, true},
		{&first, catalog.Deprecation{Message: "old"}, false},
		{&first, catalog.Deprecation{Message: "older"}, true},
		{&first, catalog.Deprecation{}, true},
		{nil, catalog.Deprecation{Message: "use another"}, true},
		{nil, catalog.Deprecation{Message: "use another"}, false},
		{nil, catalog.Deprecation{}, true},
	} {
		for kind, deprecate := range map[string]func() (catalog.Deprecated, error){
			"module": func() (catalog.Deprecated, error) {
				return c.Modules.Deprecate(t.Context(), m, step.version, step.change)
			},
			"provider": func() (catalog.Deprecated, error) {
				return c.Providers.Deprecate(t.Context(), inventory, step.version, step.change)
			},
		} {
			before := entries()
			result, err := deprecate()
			if err != nil {
				t.Fatal(err)
			}
			if result.Unchanged == step.changes || result.Latest == (registry.Version{}) {
				t.Errorf("%s %v, %+v: %+v", kind, step.version, step.change, result)
			}
			if added := entries() - before; added != 1 {
				t.Errorf("%s %v, %+v: %d entries were written", kind, step.version, step.change, added)
			}
		}
	}
	hide := catalog.Deprecation{Message: "bad", Hide: true}
	for i, unchanged := range []bool{false, true} {
		if result, err := c.Modules.Deprecate(t.Context(), m, &first, hide); err != nil || result.Unchanged != unchanged {
			t.Errorf("hidden, time %d: %+v, %v", i+1, result, err)
		}
	}
	if result, err := c.Modules.Deprecate(t.Context(), m, &first, catalog.Deprecation{}); err != nil || !result.Relisted {
		t.Errorf("listed again: %+v, %v", result, err)
	}
}
