package publishapi_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"database/sql"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/docs/extract"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/publish/inspection"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
)

// docsObjects returns the states of the stored documentation by version.
func (d *testAPI) docsObjects(t *testing.T) map[string]string {
	t.Helper()
	found := make(map[string]string)
	for key, state := range d.objects(t) {
		if rest, ok := strings.CutSuffix(key, "/"+registry.DocsName); ok {
			version, _, _ := strings.Cut(strings.TrimPrefix(rest, vpcAddress.Path()+"/"), "/")
			found[version] += state
		}
	}
	return found
}

// module returns the record of a version.
func (d *testAPI) module(t *testing.T, v registry.Version) registry.ModuleVersion {
	t.Helper()
	record, err := d.catalog.Modules.Get(t.Context(), vpcAddress, v)
	if err != nil {
		t.Fatal(err)
	}
	return record
}

// documentation reads the stored documentation of a version.
func (d *testAPI) documentation(t *testing.T, record registry.ModuleVersion) docs.Documentation {
	t.Helper()
	if record.Docs == nil {
		t.Fatal("the version has no documentation")
	}
	if err := objects.CheckStored(t.Context(), d.store, *record.Docs); err != nil {
		t.Fatal(err)
	}
	stored, err := d.store.Open(t.Context(), record.Docs.Object, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer stored.Close()
	documentation, err := docs.Decode(stored)
	if err != nil {
		t.Fatal(err)
	}
	return documentation
}

// Documentation is staged by the inspection, and permanent after the commit.
// Until then, no item has words.
func TestDocumentation(t *testing.T) {
	t.Parallel()
	d := open(t)
	u := d.begin(t, d.token(t, both), module1, vpc(t, 1)).putAll(t)
	if diff := cmp.Diff(map[string]string{}, d.docsObjects(t)); diff != "" {
		t.Errorf("before the inspection: (-want +got)\n%s", diff)
	}
	for range 2 {
		u.inspectAll(t)
		if diff := cmp.Diff(map[string]string{"1.0.0": "staged"}, d.docsObjects(t)); diff != "" {
			t.Errorf("after the inspection: (-want +got)\n%s", diff)
		}
	}
	for range 2 {
		u.commit(t).into(t, http.StatusOK, nil)
		if diff := cmp.Diff(map[string]string{"1.0.0": "kept"}, d.docsObjects(t)); diff != "" {
			t.Errorf("after the commit: (-want +got)\n%s", diff)
		}
	}
	record := d.module(t, v1)
	if want := vpcAddress.Path() + "/1.0.0/api/" + record.Docs.SHA256 + "/docs.json.gz"; record.Docs.Object != want {
		t.Errorf("object %s, want %s", record.Docs.Object, want)
	}
	if got := registry.DecodeContents(record.Contents).Outputs; got != "x" {
		t.Errorf("outputs %q, want the name of the output", got)
	}
	got := d.documentation(t, record).Root.Outputs
	if diff := cmp.Diff([]docs.Output{{Name: "x", Place: docs.Place{File: "main.tf", Line: 1}}}, got); diff != "" {
		t.Errorf("outputs: (-want +got)\n%s", diff)
	}
}

// The items of an ended upload neither have the description nor the words,
// because they remain for some time after a withdrawal.
func TestUploadHasNoWords(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*testing.T, *upload){
		"committed": func(t *testing.T, u *upload) { t.Helper(); u.commit(t).into(t, http.StatusOK, nil) },
		"aborted":   func(t *testing.T, u *upload) { t.Helper(); u.abort(t).into(t, http.StatusNoContent, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t)
			token, files, a := d.token(t, both), secretModule(t), announce(secretModule(t))
			a.Description = "about " + secret
			u := &upload{testAPI: d, token: token, path: module1, files: files}
			d.send(t, token, http.MethodPost, protocol.PublishPath+module1+"/uploads", a).into(t, http.StatusCreated, &u.Begun)
			u.putAll(t).inspectAll(t)
			end(t, u)
			items := 0
			for item, data := range d.rows(t) {
				if !strings.HasPrefix(item, "uploads/") {
					continue
				}
				items++
				if strings.Contains(data, secret) {
					t.Errorf("item %s has the secret: %s", item, data)
				}
			}
			if items != 2 {
				t.Errorf("the upload has %d items, want 2", items)
			}
		})
	}
}

// If documentation cannot be stored, the inspection has no result. It can be
// repeated, whatever the error was.
func TestStagingFails(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	for name, err := range map[string]error{
		"unavailable": errDied, "invalid": registry.ErrInvalid, "not found": registry.ErrNotFound,
		"conflict": registry.ErrConflict, "forbidden": registry.ErrForbidden, "another": io.ErrUnexpectedEOF,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t)
			d.failing = true
			u := d.begin(t, d.token(t, both), module1, vpc(t, 1)).putAll(t)
			d.faults.stage = func() error { return err }
			for range 2 {
				u.inspect(t).refused(t, texts, http.StatusServiceUnavailable)
			}
			u.commit(t).refused(t, texts, http.StatusConflict)
			d.faults.stage = nil
			u.inspectAll(t).commit(t).into(t, http.StatusOK, nil)
			if got := registry.DecodeContents(d.module(t, v1).Contents).Outputs; got != "x" {
				t.Errorf("outputs %q", got)
			}
		})
	}
}

// If documentation is lost between inspection and commit, the upload ends, and
// another upload stores it again. Damaged documentation is never published.
func TestLostDocumentation(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	for name, test := range map[string]struct {
		lose   func(*testing.T, string)
		status int
	}{
		"missing": {func(t *testing.T, path string) {
			t.Helper()
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}, http.StatusNotFound},
		"cut short": {func(t *testing.T, path string) {
			t.Helper()
			replace(t, path, func(data []byte) []byte { return data[1:] })
		}, http.StatusNotFound},
		"other bytes": {func(t *testing.T, path string) {
			t.Helper()
			replace(t, path, func(data []byte) []byte { return bytes.Repeat([]byte("x"), len(data)) })
		}, http.StatusInternalServerError},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t)
			d.failing = true
			token := d.token(t, both)
			u := d.begin(t, token, module1, vpc(t, 1)).putAll(t).inspectAll(t)
			lost := ""
			for key := range d.objects(t) {
				if strings.HasSuffix(key, registry.DocsName) {
					lost = filepath.Join(d.dir, "objects", key)
				}
			}
			test.lose(t, lost)
			for range 2 {
				u.commit(t).refused(t, texts, test.status)
			}
			if _, err := d.catalog.Modules.Get(t.Context(), vpcAddress, v1); err == nil {
				t.Error("the version is published")
			}
			if test.status != http.StatusNotFound {
				return
			}
			_ = os.Remove(lost) // it may be missing
			d.publishes(t, token, module1, vpc(t, 1))
			d.documentation(t, d.module(t, v1))
		})
	}
}

func replace(t *testing.T, path string, change func([]byte) []byte) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err == nil {
		err = os.Remove(path)
	}
	if err == nil {
		err = os.WriteFile(path, change(data), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// The documentation of an abandoned upload stays staged, so that it expires.
func TestAbandonedDocumentation(t *testing.T) {
	t.Parallel()
	d := open(t)
	token := d.token(t, both)
	d.begin(t, token, module1, vpc(t, 1)).putAll(t).inspectAll(t).abort(t).into(t, http.StatusNoContent, nil)
	d.begin(t, token, "modules/acme/vpc/aws/1.1.0", vpc(t, 1)).putAll(t).inspectAll(t)
	if diff := cmp.Diff(map[string]string{"1.0.0": "staged", "1.1.0": "staged"}, d.docsObjects(t)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// Two uploads with the same content share the object, and the second one gets
// the version of the first.
func TestSameDocumentation(t *testing.T) {
	t.Parallel()
	d := open(t)
	one := d.begin(t, d.token(t, both), module1, vpc(t, 1)).putAll(t).inspectAll(t)
	other := d.begin(t, d.token(t, both), module1, vpc(t, 1)).putAll(t).inspectAll(t)
	if diff := cmp.Diff(map[string]string{"1.0.0": "staged"}, d.docsObjects(t)); diff != "" {
		t.Errorf("after the inspections: (-want +got)\n%s", diff)
	}
	var first, second protocol.Published
	one.commit(t).into(t, http.StatusOK, &first)
	other.commit(t).into(t, http.StatusOK, &second)
	if first.Unchanged || !second.Unchanged {
		t.Errorf("unchanged: %t and %t, want false and true", first.Unchanged, second.Unchanged)
	}
	if diff := cmp.Diff(first.Module, second.Module); diff != "" {
		t.Errorf("the second version: (-first +second)\n%s", diff)
	}
	third := d.begin(t, one.token, "modules/acme/vpc/aws/1.1.0", vpc(t, 1)).putAll(t).inspectAll(t)
	third.commit(t).into(t, http.StatusOK, nil)
	if diff := cmp.Diff(map[string]string{"1.0.0": "kept", "1.1.0": "kept"}, d.docsObjects(t)); diff != "" {
		t.Errorf("after the commits: (-want +got)\n%s", diff)
	}
}

// A module that cannot be documented is published with a note.
func TestUndocumented(t *testing.T) {
	t.Parallel()
	d := open(t)
	d.faults.inspected = func(f *inspection.Found) { f.Document = extract.Document{Notes: []string{extract.Failed}} }
	u := d.begin(t, d.token(t, both), module1, vpc(t, 1)).putAll(t).inspectAll(t)
	for range 2 {
		var published protocol.Published
		u.commit(t).into(t, http.StatusOK, &published)
		if diff := cmp.Diff([]string{extract.Failed}, published.Notes); diff != "" {
			t.Errorf("notes: (-want +got)\n%s", diff)
		}
	}
	record := d.module(t, v1)
	if record.Docs != nil || record.Contents != nil {
		t.Errorf("documentation %v and contents %q, want none", record.Docs, record.Contents)
	}
	if diff := cmp.Diff(map[string]string{record.Object: "kept"}, d.objects(t)); diff != "" {
		t.Errorf("objects: (-want +got)\n%s", diff)
	}
}

// The notes of documentation are in the response to the commit.
func TestNotes(t *testing.T) {
	t.Parallel()
	d := open(t)
	// This file parses, but a variable cannot have this type.
	text := "variable \"a\" {\n  type = list(nothing)\n}\n"
	files := map[string][]byte{"vpc.tar.gz": tarball(t, text, tar.Header{Name: "main.tf", Typeflag: tar.TypeReg})}
	u := d.begin(t, d.token(t, both), module1, files).putAll(t).inspectAll(t)
	var published protocol.Published
	u.commit(t).into(t, http.StatusOK, &published)
	want := d.documentation(t, d.module(t, v1)).Notes
	if len(want) == 0 {
		t.Fatal("the documentation has no notes")
	}
	if diff := cmp.Diff(want, published.Notes); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// secret is in everything that is documented.
const secret = "hunter2_correct_horse"

const secretText = `variable "` + secret + `" {
  description = "the password ` + secret + `"
  default     = "` + secret + `"
}

output "` + secret + `_output" {
  description = "the password ` + secret + `"
  value       = "` + secret + `"
}
`

// secretModule returns a module with secrets in its configuration and README.
func secretModule(t testing.TB) map[string][]byte {
	t.Helper()
	return map[string][]byte{"vpc.tar.gz": tarball(
		t, secretText, tar.Header{Name: "main.tf", Typeflag: tar.TypeReg}, tar.Header{Name: "README.md", Typeflag: tar.TypeReg},
	)}
}

// rows returns the data of all rows of the table by their keys.
func (d *testAPI) rows(t *testing.T) map[string]string {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(d.dir, "larder.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	rows, err := db.QueryContext(t.Context(), `SELECT pk, sk, data FROM items`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	found := make(map[string]string)
	for rows.Next() {
		var pk, sk string
		var data []byte
		if err := rows.Scan(&pk, &sk, &data); err != nil {
			t.Fatal(err)
		}
		found[pk+" "+sk] = decompressed(t, data)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return found
}

// files returns the content of all files other than the database.
func (d *testAPI) files(t *testing.T) map[string]string {
	t.Helper()
	found := make(map[string]string)
	err := filepath.WalkDir(d.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasPrefix(entry.Name(), "larder.db") {
			return err
		}
		data, err := os.ReadFile(path)
		found[path] = decompressed(t, data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func decompressed(t *testing.T, data []byte) string {
	t.Helper()
	in, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return string(data) // it is not compressed
	}
	text, err := io.ReadAll(in)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// leaks returns the rows and files that have the secret.
func (d *testAPI) leaks(t *testing.T) (found []string) {
	t.Helper()
	for _, all := range []map[string]string{d.rows(t), d.files(t)} {
		for name, content := range all {
			if strings.Contains(content, secret) {
				found = append(found, name)
			}
		}
	}
	return found
}

// After a withdrawal, no row and no file has a secret of the module. It may be
// published through the store or through the publish API.
func TestWithdrawSecret(t *testing.T) {
	t.Parallel()
	for name, publishIt := range map[string]func(*testing.T, *testAPI){
		"through the publish API": func(t *testing.T, d *testAPI) {
			t.Helper()
			a := announce(secretModule(t))
			a.Description = "about " + secret
			token := d.token(t, both)
			step, last := d.publish(t, token, module1, a, secretModule(t))
			if step != "commit" {
				t.Fatalf("%s: %s", step, last.body)
			}
			last.into(t, http.StatusOK, nil)
			// An aborted upload of the same version has other documentation.
			other := map[string][]byte{"vpc.tar.gz": tarball(
				t, secretText+"\n", tar.Header{Name: "main.tf", Typeflag: tar.TypeReg},
			)}
			d.begin(t, token, "modules/acme/vpc/aws/1.0.1", other).putAll(t).inspectAll(t).abort(t).
				into(t, http.StatusNoContent, nil)
		},
		"through the store": func(t *testing.T, d *testAPI) {
			t.Helper()
			m := rules.Module{Dir: t.TempDir(), Address: vpcAddress, Version: v1, Description: "about " + secret}
			for _, name := range []string{"main.tf", "README.md"} {
				if err := os.WriteFile(filepath.Join(m.Dir, name), []byte(secretText), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			by := registry.Publisher{Kind: registry.PublisherUser, Name: "ada"}
			p := &publish.Publisher{Catalog: d.catalog, Objects: d.store, By: by}
			if _, err := p.Module(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t)
			publishIt(t, d)
			leaks := fmt.Sprint(d.leaks(t))
			for _, part := range []string{"version/1.0.0", "catalog/acme", ".tar.gz", registry.DocsName} {
				if !strings.Contains(leaks, part) {
					t.Errorf("before the withdrawal, nothing with %q has the secret: %s", part, leaks)
				}
			}
			w := &publish.Withdrawer{Catalog: catalog.New(d.table), Objects: d.store, By: "wim"}
			withdrawn := []registry.Version{v1}
			if strings.Contains(leaks, "/1.0.1/") {
				w.Missing = true // it was never published
				withdrawn = append(withdrawn, registry.Version{Major: 1, Patch: 1})
			}
			for _, v := range withdrawn {
				if _, err := w.Withdraw(context.WithoutCancel(t.Context()), vpcAddress, v, "it has a key"); err != nil {
					t.Fatal(err)
				}
			}
			if leaks := d.leaks(t); len(leaks) > 0 {
				t.Errorf("after the withdrawal, these have the secret: %q", leaks)
			}
		})
	}
}
