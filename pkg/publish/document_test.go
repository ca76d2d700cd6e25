package publish_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/docs/extract"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/publish/inspection"
	"github.com/larder-registry/larder/pkg/registry"
)

var rebuiltAt = time.Date(2026, 11, 21, 1, 2, 3, 0, time.UTC)

func (b backend) documenter() *publish.Documenter {
	return &publish.Documenter{
		Catalog: catalog.New(b.table), Objects: b.store, Inspector: inspection.InThisProcess{}, By: "ada",
		Now: func() time.Time { return rebuiltAt },
	}
}

// published publishes a module with documentation, and returns its record.
func (b backend) published(t *testing.T) registry.ModuleVersion {
	t.Helper()
	m := module(t, "1.0.0", "a")
	text := "variable \"cidr\" {\n  description = \"the addresses\"\n}\n"
	if err := os.WriteFile(filepath.Join(m.Dir, "main.tf"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	m.Description = "A network"
	result, err := b.publisher().Module(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	if result.Record.Docs == nil {
		t.Fatal("the record has no documentation")
	}
	return result.Record
}

func (b backend) record(t *testing.T) registry.ModuleVersion {
	t.Helper()
	m := module(t, "1.0.0", "")
	record, err := catalog.New(b.table).Modules.Get(t.Context(), m.Address, m.Version)
	if err != nil {
		t.Fatal(err)
	}
	return record
}

// stored returns the content of all objects by their keys.
func (b backend) stored(t *testing.T) map[string][]byte {
	t.Helper()
	found := make(map[string][]byte)
	for _, key := range b.keys(t) {
		in, err := b.store.Open(t.Context(), key, 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(in)
		if err := errors.Join(err, in.Close()); err != nil {
			t.Fatal(err)
		}
		found[key] = data
	}
	return found
}

// change replaces the content of an object, or removes it if change is nil.
func (b backend) change(t *testing.T, key string, change func([]byte) []byte) {
	t.Helper()
	all := b.stored(t)
	if _, err := b.remover(t).Remove(t.Context(), "modules/"); err != nil {
		t.Fatal(err)
	}
	for other, data := range all {
		if other == key && change == nil {
			continue
		}
		if other == key {
			data = change(data)
		}
		digest := objects.Digest{SHA256: digestOf(data), Size: int64(len(data))}
		if err := b.store.PutOnce(t.Context(), other, bytes.NewReader(data), digest); err != nil {
			t.Fatal(err)
		}
	}
}

func damage(data []byte) []byte {
	data = bytes.Clone(data)
	data[len(data)/2] ^= 1
	return data
}

// undocumented stores a version without documentation in another store.
func (b backend) undocumented(t *testing.T) backend {
	t.Helper()
	record, empty := b.published(t), embedded(t)
	record.Documents, record.Contents = registry.Documents{}, nil
	archive := b.stored(t)[record.Object]
	digest := objects.Digest{SHA256: record.SHA256, Size: record.Size}
	if err := empty.store.PutOnce(t.Context(), record.Object, bytes.NewReader(archive), digest); err != nil {
		t.Fatal(err)
	}
	if _, _, err := put(t.Context(), catalog.New(empty.table).Modules, module(t, "1.0.0", "").Address, record); err != nil {
		t.Fatal(err)
	}
	return empty
}

// documentation returns the stored documentation of the version.
func (b backend) documentation(t *testing.T) docs.Documentation {
	t.Helper()
	record := b.record(t)
	if err := b.documenter().Check(t.Context(), record.Documents); err != nil {
		t.Fatal(err)
	}
	d, err := docs.Decode(bytes.NewReader(b.stored(t)[record.Docs.Object]))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestRebuild checks that Rebuild makes documentation that is missing or
// damaged, and that it leaves the rest of the record unchanged.
func TestRebuild(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		before func(*testing.T, backend) backend
		check  error
		// rebuilt means that the documentation has a new key.
		rebuilt bool
	}{
		"valid": {func(_ *testing.T, b backend) backend { return b }, nil, false},
		"never made": {func(t *testing.T, b backend) backend {
			t.Helper()
			return b.undocumented(t)
		}, registry.ErrNotFound, false},
		"missing": {func(t *testing.T, b backend) backend {
			t.Helper()
			b.change(t, b.record(t).Docs.Object, nil)
			return b
		}, registry.ErrNotFound, false},
		"damaged": {func(t *testing.T, b backend) backend {
			t.Helper()
			b.change(t, b.record(t).Docs.Object, damage)
			return b
		}, registry.ErrCorrupt, true},
		"cut short": {func(t *testing.T, b backend) backend {
			t.Helper()
			b.change(t, b.record(t).Docs.Object, func(data []byte) []byte { return data[1:] })
			return b
		}, registry.ErrCorrupt, true},
		"files never made": {func(t *testing.T, b backend) backend {
			t.Helper()
			made := registry.Documents{Docs: b.record(t).Docs}
			m := module(t, "1.0.0", "")
			if _, err := catalog.New(b.table).SetDocs(t.Context(), m.Address, m.Version, made, b.record(t).Contents, "ada"); err != nil {
				t.Fatal(err)
			}
			return b
		}, registry.ErrNotFound, false},
		"files missing": {func(t *testing.T, b backend) backend {
			t.Helper()
			b.change(t, b.record(t).FilesZip.Object, nil)
			return b
		}, registry.ErrNotFound, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := embedded(t)
			want := b.published(t)
			b = test.before(t, b)
			d := b.documenter()
			if err := d.Check(t.Context(), b.record(t).Documents); !errors.Is(err, test.check) {
				t.Errorf("before: %v, want %v", err, test.check)
			}
			notes, err := d.Rebuild(t.Context(), module(t, "1.0.0", "").Address, want.Version)
			if err != nil {
				t.Fatal(err)
			}
			if len(notes) > 0 {
				t.Errorf("notes: %q", notes)
			}
			got, made := b.record(t), b.documentation(t)
			if test.rebuilt {
				if got.Docs.Object == want.Docs.Object {
					t.Errorf("the documentation still has the key %s", got.Docs.Object)
				}
				if made.RebuiltAt != "2026-11-21T01:02:03Z" {
					t.Errorf("rebuilt at %q", made.RebuiltAt)
				}
				got.Docs = want.Docs
			}
			if got.PublishedAt.Equal(want.PublishedAt) {
				got.PublishedAt = want.PublishedAt
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the record: (-want +got)\n%s", diff)
			}
			if len(made.Root.Inputs) != 1 || made.Root.Inputs[0].Name != "cidr" {
				t.Errorf("inputs: %+v", made.Root.Inputs)
			}
		})
	}
}

// TestRebuildFiles checks that files replace damaged ones, under another key.
func TestRebuildFiles(t *testing.T) {
	t.Parallel()
	b := embedded(t)
	was := b.published(t)
	b.change(t, was.FilesZip.Object, damage)
	if _, err := b.documenter().Rebuild(t.Context(), module(t, "1.0.0", "").Address, was.Version); err != nil {
		t.Fatal(err)
	}
	is := b.record(t)
	if diff := cmp.Diff(was.Docs, is.Docs); diff != "" {
		t.Errorf("the documentation: (-was +is)\n%s", diff)
	}
	if is.FilesZip.Object == was.FilesZip.Object {
		t.Errorf("the files still have the key %s", is.FilesZip.Object)
	}
	files, err := docs.DecodeFiles(b.stored(t)[is.FilesZip.Object])
	if err != nil {
		t.Fatal(err)
	}
	if files.RebuiltAt != "2026-11-21T01:02:03Z" {
		t.Errorf("rebuilt at %q", files.RebuiltAt)
	}
	if _, text, err := files.Read("main.tf"); err != nil || len(text) == 0 {
		t.Errorf("main.tf: %q, %v", text, err)
	}
}

// TestRebuildKeepsKey checks that documentation that was published through the
// publish API has the same key afterwards.
func TestRebuildKeepsKey(t *testing.T) {
	t.Parallel()
	b := embedded(t)
	record := b.published(t)
	uploaded := *record.Docs
	address := module(t, "1.0.0", "").Address
	uploaded.Object = registry.UploadKey(address.Path(), record.Version, uploaded.SHA256, registry.DocsName)
	if _, err := catalog.New(b.table).SetDocs(
		t.Context(), address, record.Version, registry.Documents{Docs: &uploaded}, record.Contents, "ada",
	); err != nil {
		t.Fatal(err)
	}
	if _, err := b.documenter().Rebuild(t.Context(), address, record.Version); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&uploaded, b.record(t).Docs); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	b.documentation(t)
}

// undocumentable is an inspector that cannot document a module.
type undocumentable struct{ publish.Inspector }

func (u undocumentable) Inspect(
	ctx context.Context, request inspection.Request, source io.ReaderAt,
) (inspection.Found, error) {
	found, err := u.Inspector.Inspect(ctx, request, source)
	found.Document = extract.Document{Notes: []string{extract.Failed}}
	return found, err
}

// TestRebuildFails checks that Rebuild changes nothing if it fails.
func TestRebuildFails(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	for _, test := range []struct {
		name   string
		before func(*testing.T, backend, *publish.Documenter)
		want   error
	}{
		{"archive missing", func(t *testing.T, b backend, _ *publish.Documenter) {
			t.Helper()
			b.change(t, b.record(t).Object, nil)
		}, registry.ErrNotFound},
		{"archive damaged", func(t *testing.T, b backend, _ *publish.Documenter) {
			t.Helper()
			b.change(t, b.record(t).Object, damage)
		}, registry.ErrCorrupt},
		{"cannot be documented", func(_ *testing.T, _ backend, d *publish.Documenter) {
			d.Inspector = undocumentable{d.Inspector}
		}, registry.ErrInvalid},
		{"cannot be stored", func(t *testing.T, b backend, d *publish.Documenter) {
			t.Helper()
			b.change(t, b.record(t).Docs.Object, nil)
			d.Objects = refusing{b.store}
		}, registry.ErrForbidden},
		{"withdrawn", func(t *testing.T, b backend, _ *publish.Documenter) {
			t.Helper()
			b.withdraw(t)
		}, registry.ErrWithdrawn},
		{"withdrawn meanwhile", func(t *testing.T, b backend, d *publish.Documenter) {
			t.Helper()
			d.Inspector = hooked{d.Inspector, func() { b.withdraw(t) }}
		}, registry.ErrWithdrawn},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := embedded(t)
			published := b.published(t)
			d := b.documenter()
			test.before(t, b, d)
			_, err := d.Rebuild(t.Context(), module(t, "1.0.0", "").Address, published.Version)
			if !errors.Is(err, test.want) {
				t.Errorf("got error %v, want %v", err, test.want)
			}
			texts.Error(t, err, digests(published)...)
			if errors.Is(test.want, registry.ErrWithdrawn) {
				return
			}
			if diff := cmp.Diff(published, b.record(t)); diff != "" {
				t.Errorf("the record: (-before +after)\n%s", diff)
			}
		})
	}
	t.Run("unknown", func(t *testing.T) {
		t.Parallel()
		b := embedded(t)
		b.published(t)
		m := module(t, "9.0.0", "")
		_, err := b.documenter().Rebuild(t.Context(), m.Address, m.Version)
		if !errors.Is(err, registry.ErrNotFound) {
			t.Errorf("got error %v, want ErrNotFound", err)
		}
	})
}

// digests returns replacements for the digests of a version.
func digests(v registry.ModuleVersion) []string {
	return []string{v.SHA256, "SHA256"}
}

// refusing is a store that stores nothing.
type refusing struct{ objects.Store }

func (refusing) PutOnce(context.Context, string, io.ReadSeeker, objects.Digest) error {
	return registry.ErrForbidden
}

// hooked is an inspector that calls a function after an inspection.
type hooked struct {
	publish.Inspector
	then func()
}

func (h hooked) Inspect(ctx context.Context, request inspection.Request, source io.ReaderAt) (inspection.Found, error) {
	found, err := h.Inspector.Inspect(ctx, request, source)
	h.then()
	return found, err
}

func (b backend) withdraw(t *testing.T) {
	t.Helper()
	now := func() time.Time { return rebuiltAt }
	w := &publish.Withdrawer{Catalog: catalog.New(b.table), Objects: b.remover(t), By: "wim", Now: now}
	m := module(t, "1.0.0", "")
	if _, err := w.Withdraw(t.Context(), m.Address, m.Version, "it has a key"); err != nil {
		t.Error(err)
	}
}
