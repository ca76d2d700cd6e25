package catalog_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/tabletest"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// isCorrupt reports whether an error is registry.ErrCorrupt and wraps no other
// sentinel on which a client could act.
func isCorrupt(err error) bool {
	for _, sentinel := range []error{
		registry.ErrNotFound, registry.ErrConflict, registry.ErrUnavailable, registry.ErrInvalid, registry.ErrExists,
	} {
		if errors.Is(err, sentinel) {
			return false
		}
	}
	return errors.Is(err, registry.ErrCorrupt)
}

// do performs a call, written as its name and a version.
func (k kind) do(t testing.TB, c *catalog.Catalog, call string) error {
	t.Helper()
	what, version, _ := strings.Cut(call, " ")
	switch what {
	case "read":
		return k.read(t.Context(), c, parseVersion(t, version))
	case "publish":
		return k.publish(t.Context(), c, version)
	case "withdraw":
		version, missing := strings.CutSuffix(version, " missing")
		_, _, err := c.Of(k.address).Withdraw(t.Context(), parseVersion(t, version), leaked(), missing)
		return err
	case "repair":
		_, err := k.rebuild(t.Context(), c)
		return err
	case "records":
		return k.records(t.Context(), c)
	}
	var v *registry.Version
	if version != "" {
		parsed := parseVersion(t, version)
		v = &parsed
	}
	switch a := k.address.(type) {
	case registry.Module:
		_, err := c.Modules.Deprecate(t.Context(), a, v, catalog.Deprecation{Message: "old", Hide: false, By: "dora"})
		return err
	case registry.Provider:
		_, err := c.Providers.Deprecate(t.Context(), a, v, catalog.Deprecation{Message: "old", By: "dora"})
		return err
	}
	t.Fatalf("unknown call %q in %s", call, k.address)
	return nil
}

// A version whose items are missing is not published again or replaced until it
// is repaired or withdrawn. Versions with a record can still be read.
func TestMissingItems(t *testing.T) {
	t.Parallel()
	const (
		listing, first, second = "listing", "version/1.0.0", "version/1.1.0"
		older                  = "listing without 1.1.0"
		bad                    = "listing with a bad version"
		entry                  = "entry in the catalogue"
	)
	badListings := map[string]any{
		"module":   map[string]any{"modules": []any{map[string]any{"versions": []any{map[string]any{"version": "x.y"}}}}},
		"provider": map[string]any{"versions": []any{map[string]any{"version": "x.y"}}},
		"mirror":   map[string]any{"versions": map[string]any{"x.y": map[string]any{}}},
	}
	tests := []struct {
		// damaged are the items that are removed or replaced.
		damaged []string
		// corrupt, missing, taken and fine are calls, in this order. The first
		// three fail with registry.ErrCorrupt, ErrNotFound or ErrExists. The
		// last ones succeed. "repair" repairs the derived items.
		corrupt, missing, taken, fine []string
	}{
		{
			[]string{first}, []string{"records", "publish 1.0.0", "deprecate 1.0.0"}, []string{"read 1.0.0"},
			[]string{"publish 1.0.0+b", "publish 1.1.0+b"},
			[]string{"read 1.1.0", "deprecate 1.1.0", "publish 1.2.0", "withdraw 1.0.0", "records", "read 1.1.0"},
		},
		{
			[]string{second}, []string{"records", "publish 1.1.0", "deprecate 1.1.0"}, []string{"read 1.1.0"},
			[]string{"publish 1.1.0+b"}, []string{"read 1.0.0", "publish 1.2.0", "withdraw 1.1.0"},
		},
		{
			[]string{listing}, []string{"publish 1.2.0", "deprecate 1.0.0"}, []string{"read 1.2.0"}, nil,
			[]string{"read 1.0.0", "records", "withdraw 1.0.0", "repair", "publish 1.2.0"},
		},
		{
			[]string{listing, second},
			[]string{"records", "publish 1.1.0", "publish 1.1.0+b", "publish 1.2.0", "deprecate 1.1.0"},
			[]string{"read 1.1.0", "read 1.2.0"}, nil, []string{"read 1.0.0"},
		},
		{
			[]string{listing, first, second}, []string{"records", "publish 1.0.0", "publish 1.2.0", "deprecate 1.0.0"},
			[]string{"read 1.0.0", "read 1.1.0"}, nil, nil,
		},
		{
			[]string{older}, []string{"publish 1.2.0", "deprecate 1.0.0"}, nil, nil,
			[]string{"read 1.0.0", "read 1.1.0", "records", "withdraw 1.0.0", "repair", "publish 1.2.0"},
		},
		{
			[]string{older, second}, []string{"records", "publish 1.1.0", "publish 1.2.0", "deprecate 1.0.0"},
			[]string{"read 1.1.0", "withdraw 1.1.0"}, nil,
			[]string{"read 1.0.0", "withdraw 1.1.0 missing", "repair", "publish 1.2.0"},
		},
		{
			[]string{bad}, []string{"publish 1.2.0", "deprecate 1.0.0"}, []string{"read 1.2.0"}, nil,
			[]string{"read 1.0.0", "records", "withdraw 1.0.0", "repair", "publish 1.2.0"},
		},
		{
			[]string{entry}, []string{"publish 1.2.0", "deprecate 1.0.0", "deprecate"}, nil, []string{"publish 1.1.0+b"},
			[]string{"read 1.0.0", "records", "repair", "publish 1.2.0", "deprecate 1.0.0"},
		},
		{
			[]string{entry, bad}, []string{"publish 1.2.0", "deprecate 1.0.0"}, []string{"read 1.2.0"}, nil,
			[]string{"read 1.0.0", "repair", "publish 1.2.0"},
		},
		{
			nil, nil, []string{"read 1.2.0", "withdraw 1.2.0"}, []string{"publish 1.0.0+b", "publish 1.1.0+b"},
			[]string{"read 1.0.0", "records", "deprecate 1.0.0", "deprecate", "publish 1.2.0"},
		},
	}
	for _, k := range kinds(t) {
		unreadable, err := protocol.Compress(badListings[k.name])
		if err != nil {
			t.Fatal(err)
		}
		for _, test := range tests {
			t.Run(fmt.Sprint(k.name, " ", test.damaged), func(t *testing.T) {
				t.Parallel()
				table := open(t)
				c := withKey(t, table)
				path := k.address.Path()
				k.publishes(t, c, "1.0.0")
				before, err := table.Get(t.Context(), catalog.Key{Partition: path, Sort: listing})
				if err != nil {
					t.Fatal(err)
				}
				k.publishes(t, c, "1.1.0")
				for _, item := range test.damaged {
					switch item {
					case entry:
						remove(t, table, k.catalog, path)
					case older:
						replace(t, table, path, listing, before.Data)
					case bad:
						replace(t, table, path, listing, unreadable)
					default:
						remove(t, table, path, item)
					}
				}
				for _, is := range []struct {
					calls []string
					as    func(error) bool
				}{
					{test.corrupt, isCorrupt},
					{test.missing, func(err error) bool { return errors.Is(err, registry.ErrNotFound) }},
					{test.taken, func(err error) bool { return errors.Is(err, registry.ErrExists) }},
					{test.fine, func(err error) bool { return err == nil }},
				} {
					for _, call := range is.calls {
						if k.name == "mirror" && strings.HasPrefix(call, "deprecate") {
							continue
						}
						if err := k.do(t, c, call); !is.as(err) {
							t.Errorf("%s: %v", call, err)
						}
					}
				}
			})
		}
	}
}

// A record of another version is not returned or used. It can only be
// withdrawn.
func TestInvalidRecords(t *testing.T) {
	t.Parallel()
	for _, k := range kinds(t) {
		for what, change := range map[string]func(text string) string{
			"another's": func(text string) string {
				return strings.ReplaceAll(text, k.address.Path(), k.address.Path()+"x")
			},
			"another version's":    func(text string) string { return strings.ReplaceAll(text, "1.0.0", "1.1.0") },
			"its objects are":      func(text string) string { return strings.ReplaceAll(text, "/1.0.0/", "/1.1.0/") },
			"above":                func(text string) string { return strings.ReplaceAll(text, "/1.0.0/", "/1.0.0/../") },
			"no version":           func(string) string { return "{}" },
			"without files":        func(string) string { return `{"version":"1.0.0"}` },
			"without packages":     func(text string) string { return without(t, text, "packages", "object") },
			"without a SHA-256":    func(text string) string { return replaced(text, `"sha256":"[^"]*"`, `"sha256":""`) },
			"another SHA-256":      func(text string) string { return replaced(text, `"sha256":"[^"]*"`, `"sha256":"other"`) },
			"a SHA-256 with a URL": func(text string) string { return replaced(text, `"sha256":"[^"]*"`, `"sha256":"1&x"`) },
			"a negative size":      func(text string) string { return replaced(text, `"size":\d+`, `"size":-1`) },
			"a bad platform":       func(text string) string { return replaced(text, `"arch":"[^"]*"`, `"arch":"../x"`) },
			"no file name":         func(text string) string { return replaced(text, `"filename":"[^"]*"`, `"filename":""`) },
			"no h1":                func(text string) string { return replaced(text, `"h1":"[^"]*"`, `"h1":"zh:1"`) },
		} {
			t.Run(k.name+", "+what, func(t *testing.T) {
				t.Parallel()
				table := open(t)
				c := withKey(t, table)
				k.publishes(t, c, "1.0.0", "1.2.0")
				const sort = "version/1.0.0"
				item, err := table.Get(t.Context(), catalog.Key{Partition: k.address.Path(), Sort: sort})
				if err != nil {
					t.Fatal(err)
				}
				changed := change(string(item.Data))
				if changed == string(item.Data) {
					t.Skip("a record of this kind has no such thing")
				}
				replace(t, table, k.address.Path(), sort, []byte(changed))
				for _, call := range []string{"read 1.0.0", "records", "publish 1.0.0"} {
					if err := k.do(t, c, call); !isCorrupt(err) {
						t.Errorf("%s: %v", call, err)
					}
				}
				if _, _, rebuildable, err := k.stored(t.Context(), c); rebuildable || err != nil {
					t.Errorf("verify: %v, %v", rebuildable, err)
				}
				for _, call := range []string{"read 1.2.0", "withdraw 1.0.0"} {
					if err := k.do(t, c, call); err != nil {
						t.Errorf("%s: %v", call, err)
					}
				}
				k.has(t, c, "[1.2.0]", "1.2.0", "[1.0.0]")
			})
		}
	}
}

func replaced(text, pattern, by string) string {
	return regexp.MustCompile(pattern).ReplaceAllString(text, by)
}

// without returns a record without some of its members.
func without(t testing.TB, text string, members ...string) string {
	t.Helper()
	var record map[string]any
	if err := json.Unmarshal([]byte(text), &record); err != nil {
		t.Fatal(err)
	}
	for _, m := range members {
		delete(record, m)
	}
	data, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Signed returns an error if it cannot read what a key has signed, and no error
// for a key that has signed nothing.
func TestSignedUnreadable(t *testing.T) {
	t.Parallel()
	table := open(t)
	c := withKey(t, table)
	for _, v := range []string{"1.0.0", "1.1.0"} {
		publishProvider(t, c, inventory, providerRecord(t, v, "A"))
	}
	remove(t, table, inventory.Path(), "version/1.0.0")
	signed, err := c.Signed(t.Context(), inventory.Namespace)
	if !isCorrupt(err) || fmt.Sprint(signed) != "map[A:[acme/inventory 1.1.0]]" {
		t.Errorf("%v, %v", signed, err)
	}
}

// AllRecords takes one Query. It has the records that can be read, also if others
// are damaged, and does not look for missing ones.
func TestAllRecords(t *testing.T) {
	t.Parallel()
	table := &tabletest.Recorded{Table: open(t)}
	c := catalog.New(table)
	vpc := module(t, "acme/vpc/aws")
	for _, n := range []string{"1.0.0", "1.1.0", "1.2.0", "1.3.0"} {
		publish(t, c, vpc, record(t, n, ""))
	}
	_, _, err := c.Modules.Withdraw(t.Context(), vpc, parseVersion(t, "1.1.0"), leaked(), false)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name, damaged string
		data          []byte // nil deletes the record
		want          []string
		err           error
	}{
		{"complete", "", nil, []string{"1.3.0", "1.2.0", "1.1.0", "1.0.0"}, nil},
		{"a record is missing", "1.3.0", nil, []string{"1.2.0", "1.1.0", "1.0.0"}, nil},
		{"a record is damaged", "1.2.0", []byte("x"), []string{"1.1.0", "1.0.0"}, registry.ErrCorrupt},
	} {
		if step.damaged != "" {
			k := catalog.Key{Partition: vpc.Path(), Sort: "version/" + step.damaged}
			item, err := table.Table.Get(t.Context(), k)
			if err != nil {
				t.Fatal(err)
			}
			change := catalog.Change{Key: k, Revision: item.Revision, Data: step.data, Delete: step.data == nil}
			if err := table.Write(t.Context(), change); err != nil {
				t.Fatal(err)
			}
		}
		table.Take()
		all, err := c.Modules.AllRecords(t.Context(), vpc)
		if !errors.Is(err, step.err) {
			t.Errorf("%s: %v, want %v", step.name, err, step.err)
		}
		if got := table.Take(); got != "Query" {
			t.Errorf("%s: calls %q, want one Query", step.name, got)
		}
		var got []string
		for _, r := range all {
			got = append(got, r.Version.String())
		}
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, diff)
		}
	}
	table.Fail(registry.ErrUnavailable)
	if all, err := c.Modules.AllRecords(t.Context(), vpc); !errors.Is(err, registry.ErrUnavailable) || all != nil {
		t.Errorf("the table fails: %d records, %v", len(all), err)
	}
}
