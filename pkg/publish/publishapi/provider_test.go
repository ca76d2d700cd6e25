package publishapi_test

import (
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
)

func serve(t testing.TB, h http.Handler, method, path, body string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body)))
	return w
}

// The registry itself refuses packages that clients do not request or cannot run,
// unless they are allowed or copied. The record of a copy has notes.
func TestUnusable(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	copied := protocol.Announcement{CopiedFrom: &registry.CopiedFrom{Source: "registry.example.com/acme/inventory"}}
	allowed := protocol.Announcement{AllowPlatforms: []string{"linux_armv7"}}
	for name, test := range map[string]struct {
		platform string
		with     protocol.Announcement
		step     string // at which it is refused
		note     string // the end of the note in the record
	}{
		"an unknown platform":         {"linux_armv7", protocol.Announcement{}, "begin", ""},
		"an allowed platform":         {"linux_armv7", allowed, "", ""},
		"a copy of a platform":        {"linux_armv7", copied, "", "linux_armv7"},
		"a program without .exe":      {"windows_amd64", protocol.Announcement{}, "inspect", ""},
		"a copy of one without .exe":  {"windows_amd64", copied, "", "does not end in .exe, so clients cannot run it on windows_amd64"},
		"a platform that is not one":  {"linux_arm", protocol.Announcement{AllowPlatforms: []string{"x"}}, "begin", ""},
		"a platform that clients use": {"linux_arm", protocol.Announcement{}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t)
			d.addKey(t, "acme", signer)
			r := newRelease(t)
			r[named(test.platform+".zip")] = program(t, "for "+test.platform)
			r.sign(t, signer)
			a := announce(r)
			a.CopiedFrom, a.AllowPlatforms = test.with.CopiedFrom, test.with.AllowPlatforms
			step, last := d.publish(t, d.token(t, both), provider1, a, r)
			if test.step == "" {
				if last.status != http.StatusOK {
					t.Fatalf("refused at step %q: %d %s", step, last.status, last.body)
				}
				record, err := d.catalog.Providers.Get(t.Context(), inventory, v1)
				if err != nil {
					t.Fatal(err)
				}
				if notes := strings.Join(record.Notes, "\n"); !strings.Contains(notes, test.note) || test.note == "" && notes != "" {
					t.Errorf("the notes are %q, want %q", notes, test.note)
				}
				return
			}
			if step != test.step {
				t.Errorf("refused at step %q, want %q", step, test.step)
			}
			last.refused(t, texts, http.StatusBadRequest)
		})
	}
}

// A provider is published with data from its files, and not from the
// announcement.
func TestPublishProvider(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	d := open(t)
	key := d.addKey(t, "acme", signer)
	d.addKey(t, "acme", stranger) // it may come first
	token := d.token(t, both)
	r := newRelease(t)
	sums, signature := named("SHA256SUMS"), named("SHA256SUMS.sig")
	u := &upload{testAPI: d, token: token, path: provider1, files: r}
	begun := d.send(t, token, http.MethodPost, protocol.PublishPath+provider1+"/uploads", announce(r))
	begun.into(t, http.StatusCreated, &u.Begun)
	// A signature is different each time.
	changing := []string{
		sum(r[signature]), "SHA256-OF-SIGNATURE", base64.StdEncoding.EncodeToString(r[signature]), "SIGNATURE",
		u.Upload, "UPLOAD", d.url, "https://registry.example.com", key, "KEY",
		fmt.Sprintf(`"size": %d`, len(r[signature])), `"size": 0`,
	}
	compare(t, "provider-announcement", requestJSON(t, announce(r)), changing...)
	compare(t, "provider-begun", begun.body, changing...)
	before := d.visible(t)
	u.putAll(t).inspectAll(t).inspectAll(t)
	if n := d.faults.claims.count(); n != 2 {
		t.Errorf("%d inspections of 2 zips", n)
	}
	if d.visible(t) != before {
		t.Error("something is visible before the commit")
	}
	committed := u.commit(t)
	committed.into(t, http.StatusOK, nil)
	compare(t, "provider-published", committed.body, changing...)
	after := d.visible(t)
	if again := u.commit(t); string(again.body) != string(committed.body) || d.visible(t) != after {
		t.Errorf("commit again: %d %s", again.status, again.body)
	}
	record, err := d.catalog.Providers.Get(t.Context(), inventory, v1)
	if err != nil || record.SigningKey != key || record.PublishedBy.String() != "token ci" || len(record.Packages) != 2 ||
		record.Packages[0].String() != darwin || record.Packages[1].H1 == "" || record.Sums.SHA256 != sum(r[sums]) ||
		record.Signature.SHA256 != sum(r[signature]) {
		t.Errorf("%+v, %v", record, err)
	}
	// The manifest is read, and not served.
	want := make(map[string]string)
	for _, f := range record.Files() {
		want[f.Object] = "kept"
	}
	if diff := cmp.Diff(want, d.objects(t)); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}

	// A new signature of the same checksums is the same content. Other
	// checksums and other protocols are not.
	signed := r.clone()
	signed.resign(t, signer)
	same := d.send(t, token, http.MethodPost, protocol.PublishPath+provider1+"/uploads", announce(signed))
	same.into(t, http.StatusOK, nil)
	compare(t, "provider-unchanged", same.body, changing...)
	other := r.clone()
	other[named(linux+".zip")] = program(t, "of another")
	other.sign(t, signer)
	d.send(
		t, token, http.MethodPost, protocol.PublishPath+provider1+"/uploads", announce(other),
	).refused(t, texts, http.StatusConflict)
	a := announce(r)
	a.Protocols = []string{"6.0"}
	d.send(t, token, http.MethodPost, protocol.PublishPath+provider1+"/uploads", a).refused(t, texts, http.StatusConflict)
	// Without its key nobody can install the version, so publishing it again is
	// an error.
	if err := d.catalog.RemoveSigningKey(t.Context(), "acme", key, "ada"); err != nil {
		t.Fatal(err)
	}
	d.send(
		t, token, http.MethodPost, protocol.PublishPath+provider1+"/uploads", announce(r),
	).refused(t, texts, http.StatusConflict, key, "KEY")
}

// An invalid release is rejected with a reason, at the first step that can
// detect it.
func TestRejectedReleases(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	d := open(t)
	key, strangersKey := d.addKey(t, "acme", signer), d.addKey(t, "other", stranger)
	token := d.token(t, both)
	d.publishes(t, token, "modules/acme/vpc/aws/0.1.0", vpc(t, 0))
	before := d.visible(t)
	sums, signature, manifestFile := named("SHA256SUMS"), named("SHA256SUMS.sig"), named("manifest.json")
	zip, arm := named(linux+".zip"), named("linux_arm64.zip")
	good := newRelease(t)
	elf := append([]byte("\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x3e\x00"), make([]byte, 64)...)
	holding := func(data []byte) func(release) { return func(r release) { r[zip] = data; r.sign(t, signer) } }
	zipOf := func(names ...string) func(release) {
		files := make(map[string]string)
		for _, name := range names {
			files[name] = "x"
		}
		return holding(zipped(t, files))
	}
	replaced := func(from, to string) func(release) {
		return func(r release) {
			text := string(r[sums])
			if r[sums] = []byte(strings.Replace(text, from, to, 1)); string(r[sums]) == text {
				t.Fatalf("%q is not in %s", from, text)
			}
			r.resign(t, signer)
		}
	}
	again := func(change func(release)) func(release) { return func(r release) { change(r); r.sign(t, signer) } }
	for _, test := range []struct {
		name   string
		change func(release)
		step   string
		named  string // what the error names
	}{
		{"a signature of other sums", func(r release) {
			r[sums] = fmt.Appendf(r[sums], "%064d  README.md\n", 0) // a file that a release need not have
		}, "begin", signature},
		{"a signature by another namespace's key", func(r release) {
			r.resign(t, stranger)
		}, "begin", strangersKey},
		{"an armored signature", func(r release) {
			r[signature] = []byte("-----BEGIN PGP SIGNATURE-----\n\nx\n")
		}, "begin", signature},
		{"a signature that names SHA-1", func(r release) {
			const hash = 5 // after a header of two bytes
			r[signature] = append(slices.Clone(r[signature][:hash]), append([]byte{2}, r[signature][hash+1:]...)...)
		}, "begin", "SHA-1"},
		{"no signature", func(r release) { r[signature] = []byte("x") }, "begin", signature},
		{"a huge signature", func(r release) { r[signature] = make([]byte, 17<<10) }, "begin", "16384"},
		{"sums of another zip", replaced(sum(good[zip]), strings.Repeat("0", 64)), "begin", zip},
		{"sums without a zip", replaced(zip, arm), "begin", zip},
		{"sums of one more zip", func(r release) {
			r[sums] = fmt.Appendf(r[sums], "%064d  %s\n", 0, arm)
			r.resign(t, signer)
		}, "begin", arm},
		{"sums of another manifest", replaced(sum(good[manifestFile]), strings.Repeat("0", 64)), "begin", manifestFile},
		{"a zip that is not in the sums", func(r release) { r[arm] = program(t, "for arm64") }, "begin", arm},
		{"huge sums", func(r release) {
			r[sums] = make([]byte, 129<<10)
			r.resign(t, signer)
		}, "begin", "131072"},
		{"sums that clients cannot read", replaced("\n", "\n\n"), "begin", "line 2"},
		{"sums with a zip twice", func(r release) {
			r[sums] = append(r[sums], r[sums]...)
			r.resign(t, signer)
		}, "begin", "line 4"},
		{"another manifest", again(func(r release) {
			r[manifestFile] = []byte(strings.Replace(manifest, `"5.0", `, "", 1))
		}), "begin", "5.0, 6.0"},
		{"a missing manifest", func(r release) { delete(r, manifestFile) }, "begin", manifestFile},
		{"an invalid manifest", again(func(r release) {
			r[manifestFile] = []byte("x")
		}), "begin", manifestFile},
		{"a huge manifest", again(func(r release) {
			r[manifestFile] = make([]byte, 65<<10)
		}), "begin", "65536"},
		{"a zip bomb", holding(bomb(t)), "inspect", "200 times"},
		{"another provider's program", zipOf("terraform-provider-other_v1.0.0"), "inspect", zip},
		{"a program that is not at the root", zipOf("bin/terraform-provider-inventory"), "inspect", "root"},
		{"another platform's program", holding(zipped(t, map[string]string{
			"terraform-provider-inventory": strings.Replace(string(elf), "\x3e", "\xb7", 1),
		})), "inspect", linux},
		{"a path above", zipOf("terraform-provider-inventory", "../evil"), "inspect", "../evil"},
		{"an absolute path", zipOf("terraform-provider-inventory", "/etc/evil"), "inspect", "/etc/evil"},
		{"no zip", holding([]byte("x")), "inspect", zip},
		{"a truncated zip", holding(good[zip][:len(good[zip])-9]), "inspect", zip},
		{"a zip after a script", holding(append([]byte("#!/bin/sh\n"), good[zip]...)), "inspect", zip},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := good.clone()
			test.change(r)
			step, last := d.publish(t, token, provider1, announce(r), r)
			if step != test.step {
				t.Errorf("rejected at step %q, want %q", step, test.step)
			}
			if code, want := last.code(t), errs.Code(registry.ErrInvalid); code != want {
				t.Errorf("code %q, want %q", code, want)
			}
			if !strings.Contains(last.text(), test.named) {
				t.Errorf("the error %q does not contain %q", last.text(), test.named)
			}
			last.refused(t, texts, http.StatusBadRequest, key, "KEY", strangersKey, "STRANGERS-KEY")
			if diff := cmp.Diff(before, d.visible(t)); diff != "" {
				t.Errorf("visible (-before +after):\n%s", diff)
			}
		})
	}
	// A valid release can still be published afterwards.
	d.publishes(t, token, provider1, good)
}

// A zip with other bytes than announced is rejected, even if they are those of
// a valid zip.
func TestChangedObjects(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	d := open(t)
	d.addKey(t, "acme", signer)
	r := newRelease(t)
	u := d.begin(t, d.token(t, both), provider1, r).putAll(t)
	before := d.visible(t)
	d.overwrite(t, named(linux+".zip"), program(t, "for linux"))
	u.inspect(t).refused(t, texts, http.StatusBadRequest)
	if d.visible(t) != before {
		t.Error("something is visible of it")
	}
}

// A file that changes until it is permanent is not published.
func TestChangedBeforeKeep(t *testing.T) {
	t.Parallel()
	d := open(t)
	u := d.begin(t, d.token(t, both), module1, vpc(t, 1)).putAll(t).inspectAll(t)
	d.faults.keep = func(key string) error {
		if strings.HasSuffix(key, "/vpc.tar.gz") {
			d.overwrite(t, key, []byte("other"))
		}
		return nil
	}
	if a := u.commit(t); a.status != http.StatusConflict {
		t.Errorf("status %d, want 409: %s", a.status, a.body)
	}
	if _, err := d.catalog.Modules.Get(t.Context(), vpcAddress, v1); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("the version: %v, want ErrNotFound", err)
	}
}

// If a key is removed between inspection and commit, the commit is rejected.
func TestKeyRemovedBeforeCommit(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	d := open(t)
	key := d.addKey(t, "acme", signer)
	token := d.token(t, both)
	u := d.begin(t, token, provider1, newRelease(t)).putAll(t).inspectAll(t)
	if err := d.catalog.RemoveSigningKey(t.Context(), "acme", key, "ada"); err != nil {
		t.Fatal(err)
	}
	u.commit(t).refused(t, texts, http.StatusBadRequest, key, "KEY")
	if _, err := d.catalog.Providers.Get(t.Context(), inventory, v1); !errors.Is(err, registry.ErrNotFound) {
		t.Error(err)
	}
	d.send(
		t, token, http.MethodPost, protocol.PublishPath+"providers/acme/inventory/1.0.0/uploads", announce(newRelease(t)),
	).refused(t, texts, http.StatusBadRequest, key, "KEY")
	// After the key is added again, the commit succeeds.
	d.addKey(t, "acme", signer)
	u.commit(t).into(t, http.StatusOK, nil)
}

// A key record of a newer release of Larder is an error of the registry.
// Another attempt cannot fix it, and it is not a fault of the file.
func TestKeyOfNewerRelease(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	d := open(t)
	d.failing = true
	key := d.addKey(t, "acme", signer)
	u := d.begin(t, d.token(t, both), provider1, newRelease(t)).putAll(t).inspectAll(t)
	setSchema := func(version int) {
		t.Helper()
		db, err := sql.Open("sqlite", filepath.Join(d.dir, "larder.db"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = db.ExecContext(t.Context(), "UPDATE items SET schema = ? WHERE pk = 'keys/acme'", version)
		if err = errors.Join(err, db.Close()); err != nil {
			t.Fatal(err)
		}
	}
	setSchema(2)
	u.commit(t).refused(t, texts, http.StatusInternalServerError)
	var logged []string
	for line := range strings.Lines(d.log.String()) {
		if strings.Contains(line, "level=ERROR") {
			logged = append(logged, line[strings.Index(line, "error="):])
		}
	}
	if len(logged) != 1 {
		t.Fatalf("logged %d errors, want 1:\n%s", len(logged), d.log.String())
	}
	if !strings.Contains(logged[0], "schema version 2") {
		t.Errorf("the log does not name the version: %s", logged[0])
	}
	if !strings.Contains(logged[0], " hint=") {
		t.Errorf("the log does not have the hint: %s", logged[0])
	}
	texts.Text(t, logged[0], key, "KEY")
	setSchema(1)
	u.commit(t).into(t, http.StatusOK, nil)
}

// Files that another publisher stored are inspected like any others.
func TestStoredBySomebodyElse(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	d := open(t)
	d.addKey(t, "acme", signer)
	r := newRelease(t)
	d.begin(t, d.token(t, both), provider1, r).putAll(t)
	u := d.begin(t, d.token(t, both), provider1, r)
	for i, put := range u.Files {
		u.put(t, i, r[put.Name]).into(t, http.StatusPreconditionFailed, nil)
	}
	u.commit(t).refused(t, texts, http.StatusConflict)
	u.inspectAll(t).commit(t).into(t, http.StatusOK, nil)
}
