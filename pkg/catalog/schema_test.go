package catalog_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/sqlite"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// The first change of a registry records its schema version. A newer version
// prevents all additions before anything is uploaded. Requests do not read it.
func TestSchema(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "larder.db")
	table, err := sqlite.Create(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = table.Close() })
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	c := catalog.New(table)
	if err := c.CheckSchema(ctx); err != nil {
		t.Errorf("an empty registry: %v", err)
	}
	vpc := module(t, "acme/vpc/aws")
	publish(t, c, vpc, record(t, "1.0.0", "a"))
	publish(t, c, vpc, record(t, "1.1.0", "b"))
	if err := c.CheckSchema(ctx); err != nil {
		t.Errorf("a registry of this release: %v", err)
	}
	of := catalog.Key{Partition: "catalog/", Sort: "schema"}
	item, err := table.Get(ctx, of)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(catalog.Item{Key: of, Revision: 1, Data: []byte("{}")}, item); diff != "" {
		t.Errorf("the item of the schema version: %s", diff)
	}

	_, err = db.ExecContext(ctx, "UPDATE items SET schema = 2 WHERE pk = ? AND sk = ?", of.Partition, of.Sort)
	if err != nil {
		t.Fatal(err)
	}
	before := rows(t, db)
	upload := registry.Upload{ID: "new", Owner: "ada", CreatedAt: time.Now(), ExpiresAt: time.Now().Add(time.Hour)}
	note := registry.Provider{Namespace: "acme", Type: "note"}
	mirrored := registry.MirrorAddress{Hostname: "example.com", Namespace: note.Namespace, Name: note.Type}
	other := record(t, "1.0.0", "c")
	makeRecord := func(context.Context, protocol.Document) (registry.ModuleVersion, error) {
		t.Error("Publish makes a record, which can upload files")
		return other, errors.New("it must not be made")
	}
	texts := golden.New(t)
	for change, try := range map[string]func() error{
		"CheckSchema": func() error { return c.CheckSchema(ctx) },
		"Publish": func() error {
			_, _, err := c.Modules.Publish(ctx, module(t, "other/new/aws"), other.Version, "ada", makeRecord)
			return err
		},
		"Add": func() error {
			_, _, err := c.Mirror.Add(ctx, mirrored, registry.MirrorVersion{Version: other.Version}, "ada")
			return err
		},
		"AddSigningKey": func() error {
			_, err := c.AddSigningKey(ctx, "other", registry.SigningKey{ID: "0123456789ABCDEF"})
			return err
		},
		"AddToken": func() error { return c.AddToken(ctx, "digest", registry.Token{}) },
		"BeginUpload": func() error {
			_, err := c.BeginUpload(ctx, upload, 1)
			return err
		},
		"Deprecate": func() error {
			_, err := c.Modules.Deprecate(ctx, vpc, nil, catalog.Deprecation{Message: "old"})
			return err
		},
		"Withdraw": func() error {
			_, _, err := c.Of(vpc).Withdraw(ctx, record(t, "7.0.0", "").Version, registry.Withdrawal{}, true)
			return err
		},
	} {
		t.Run(change, func(t *testing.T) {
			err := try()
			if !errors.Is(err, registry.ErrSchema) {
				t.Fatalf("%v, want ErrSchema", err)
			}
			if part := "the registry has schema version 2"; !strings.Contains(err.Error(), part) {
				t.Errorf("%v, want an error with %q", err, part)
			}
			texts.Error(t, err)
		})
	}
	t.Run("older item", func(t *testing.T) {
		texts.Error(t, catalog.CheckSchema(catalog.Key{Partition: vpc.Path(), Sort: "listing"}, 0))
	})
	if diff := cmp.Diff(before, rows(t, db)); diff != "" {
		t.Errorf("the table changes: %s", diff)
	}
	if got := listed(t, c, vpc); got != "[1.1.0 1.0.0]" {
		t.Errorf("listed: %s", got)
	}
}

// rows returns the keys of all items with their revisions.
func rows(t *testing.T, db *sql.DB) (all []string) {
	t.Helper()
	found, err := db.QueryContext(t.Context(), "SELECT pk || ' ' || sk || ' ' || revision FROM items ORDER BY pk, sk")
	if err != nil {
		t.Fatal(err)
	}
	defer found.Close()
	for found.Next() {
		var row string
		if err := found.Scan(&row); err != nil {
			t.Fatal(err)
		}
		all = append(all, row)
	}
	if err := found.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}
