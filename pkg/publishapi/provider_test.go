package publishapi_test

import (
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

func serve(t testing.TB, h http.Handler, method, path, body string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body)))
	return w
}

// A provider is published with what was read of its files, and not with what was said of them.
func TestPublishProvider(t *testing.T) {
	t.Parallel()
	d := open(t)
	key := d.addKey(t, "acme", signer)
	d.addKey(t, "acme", stranger) // which may come first
	token := d.token(t, both)
	r := newRelease(t)
	sums, signature := named("SHA256SUMS"), named("SHA256SUMS.sig")
	u := &upload{testAPI: d, token: token, path: provider1, files: r}
	begun := d.send(t, token, http.MethodPost, protocol.PublishPath+provider1+"/uploads", announce(r))
	begun.into(t, http.StatusCreated, &u.Begun)
	// A signature is another one each time.
	changing := []string{sum(r[signature]), "SHA256-OF-SIGNATURE", u.Upload, "UPLOAD", d.url, "https://registry.example.com", key, "KEY", fmt.Sprintf(`"size": %d`, len(r[signature])), `"size": 0`}
	for i, put := range u.Files {
		if put.Name == signature {
			changing = append(changing, u.Files[i].Header["X-Amz-Checksum-Sha256"], "CHECKSUM-OF-SIGNATURE", `"Content-Length": "`+fmt.Sprint(len(r[signature]))+`"`, `"Content-Length": "0"`)
		}
	}
	golden(t, "provider-announcement", asked(t, announce(r)), changing...)
	golden(t, "provider-begun", begun.body, changing...)
	before := d.visible(t)
	u.putAll(t).inspectAll(t).inspectAll(t)
	if n := d.faults.claims.count(); n != len(r) {
		t.Errorf("%d inspections of %d files", n, len(r))
	}
	if d.visible(t) != before {
		t.Error("something is visible before the commit")
	}
	committed := u.commit(t)
	committed.into(t, http.StatusOK, nil)
	golden(t, "provider-published", committed.body, changing...)
	after := d.visible(t)
	if again := u.commit(t); string(again.body) != string(committed.body) || d.visible(t) != after {
		t.Errorf("commit again: %d %s", again.status, again.body)
	}
	record, err := d.catalog.Providers.Get(t.Context(), inventory, v1)
	if err != nil || record.SigningKey != key || record.PublishedBy.String() != "token ci" || len(record.Packages) != 2 || record.Packages[0].String() != darwin || record.Packages[1].H1 == "" || record.Sums.SHA256 != sum(r[sums]) || record.Signature.SHA256 != sum(r[signature]) {
		t.Errorf("%+v, %v", record, err)
	}
	// The manifest is read, and not served.
	for object, state := range d.objects(t) {
		if want := map[bool]string{true: "staged", false: "kept"}[strings.HasSuffix(object, "manifest.json")]; state != want {
			t.Errorf("%s is %s", object, state)
		}
	}

	// A new signature of the same sums is no other content; other sums, and other protocols, are.
	signed := r.clone()
	signed.resign(t, signer)
	same := d.send(t, token, http.MethodPost, protocol.PublishPath+provider1+"/uploads", announce(signed))
	same.into(t, http.StatusOK, nil)
	golden(t, "provider-unchanged", same.body, changing...)
	other := r.clone()
	other[named(linux+".zip")] = program(t, "of another")
	other.sign(t, signer)
	const exists = "cannot publish acme/inventory 1.0.0: it is published already with other content"
	d.send(t, token, http.MethodPost, protocol.PublishPath+provider1+"/uploads", announce(other)).refused(t, http.StatusConflict, exists)
	a := announce(r)
	a.Protocols = []string{"6.0"}
	d.send(t, token, http.MethodPost, protocol.PublishPath+provider1+"/uploads", a).refused(t, http.StatusConflict, "cannot publish acme/inventory 1.0.0: it is published already for protocols 5.0, 6.0")
	// Without its key nobody can install it, and it is not said to be there.
	if err := d.catalog.RemoveSigningKey(t.Context(), "acme", key, "ada"); err != nil {
		t.Fatal(err)
	}
	d.send(t, token, http.MethodPost, protocol.PublishPath+provider1+"/uploads", announce(r)).refused(t, http.StatusConflict, "with a signature by key "+key+", which the namespace does not have any more")
}

// What must not become a release does not, at the step that can tell, and says why.
func TestRefusedReleases(t *testing.T) {
	t.Parallel()
	d := open(t)
	d.addKey(t, "acme", signer)
	d.addKey(t, "other", stranger)
	token := d.token(t, both)
	d.publishes(t, token, "modules/acme/vpc/aws/0.1.0", vpc(t, 0))
	before := d.visible(t)
	sums, signature, zip := named("SHA256SUMS"), named("SHA256SUMS.sig"), named(linux+".zip")
	good := newRelease(t)
	elf := append([]byte("\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x3e\x00"), make([]byte, 64)...)
	holding := func(data []byte) func(release) {
		return func(r release) { r[zip] = data; r.sign(t, signer) }
	}
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
	tests := []struct {
		name   string
		change func(release)
		step   string
		text   string
	}{
		{"a signature of other sums", func(r release) {
			other := byte('0')
			if r[sums][0] == other {
				other = '1'
			}
			r[sums] = append([]byte{other}, r[sums][1:]...)
		}, "inspect " + signature, "\nSign exactly the file that is published."},
		{"a signature by another namespace's key", func(r release) { r.resign(t, stranger) }, "inspect " + signature, "this is none of the keys"},
		{"an armored signature", func(r release) { r[signature] = []byte("-----BEGIN PGP SIGNATURE-----\n\nx\n") }, "inspect " + signature, "it is armored"},
		{"a signature that names SHA-1", func(r release) {
			const hash = 5 // behind a header of two bytes
			r[signature] = append(slices.Clone(r[signature][:hash]), append([]byte{2}, r[signature][hash+1:]...)...)
		}, "inspect " + signature, "it uses SHA-1"},
		{"no signature", func(r release) { r[signature] = []byte("x") }, "inspect " + signature, "invalid signature"},
		{"a huge signature", func(r release) { r[signature] = make([]byte, 17<<10) }, "inspect " + signature, "more than 16384"},
		{"sums of another zip", replaced(sum(good[zip]), strings.Repeat("0", 64)), "commit", zip + " is not the file that SHA256SUMS lists: it has sha256:"},
		{"sums of a zip that is not there", replaced(zip, named("linux_arm64.zip")), "commit", zip + " is not in SHA256SUMS"},
		{"sums of one zip more", func(r release) {
			r[sums] = fmt.Appendf(r[sums], "%064d  %s\n", 0, named("linux_arm64.zip"))
			r.resign(t, signer)
		}, "commit", named("linux_arm64.zip") + " is listed in SHA256SUMS, and is not there"},
		{"sums of another manifest", replaced(sum(good[named("manifest.json")]), strings.Repeat("0", 64)), "commit", named("manifest.json") + " is not the file that SHA256SUMS lists"},
		{"a zip that is not in the sums", func(r release) { r[named("linux_arm64.zip")] = program(t, "for arm64") }, "commit", named("linux_arm64.zip") + " is not in SHA256SUMS"},
		{"sums that clients cannot read", replaced("\n", "\n\n"), "inspect " + sums, "line 2: it is blank"},
		{"sums with a zip twice", func(r release) { r[sums] = append(r[sums], r[sums]...); r.resign(t, signer) }, "inspect " + sums, "already\nList each file once, and sign the file again."},
		{"another manifest", func(r release) {
			r[named("manifest.json")] = []byte(strings.Replace(manifest, `"5.0", `, "", 1))
			r.sign(t, signer)
		}, "commit", "protocols 5.0, 6.0: the manifest says 6.0"},
		{"a manifest that is held back", func(r release) { delete(r, named("manifest.json")) }, "commit", named("manifest.json") + " is listed in SHA256SUMS, and is not there"},
		{"what is no manifest", func(r release) { r[named("manifest.json")] = []byte("x"); r.sign(t, signer) }, "inspect " + named("manifest.json"), "invalid manifest"},
		{"a huge manifest", func(r release) { r[named("manifest.json")] = make([]byte, 65<<10); r.sign(t, signer) }, "inspect " + named("manifest.json"), "more than 65536"},
		{"a zip bomb", holding(bomb(t)), "inspect " + zip, "unpacks to more than 200 times its size"},
		{"another provider's program", zipOf("terraform-provider-other_v1.0.0"), "inspect " + zip, "name the program so, by the provider's type"},
		{"a program that is not at the root", zipOf("bin/terraform-provider-inventory"), "inspect " + zip, "is not at its root"},
		{"another platform's program", holding(zipped(t, map[string]string{"terraform-provider-inventory": strings.Replace(string(elf), "\x3e", "\xb7", 1)})), "inspect " + zip, "cannot run on linux_amd64"},
		{"a path above", zipOf("terraform-provider-inventory", "../evil"), "inspect " + zip, "does not unpack to the same place everywhere"},
		{"an absolute path", zipOf("terraform-provider-inventory", "/etc/evil"), "inspect " + zip, "does not unpack to the same place everywhere"},
		{"no zip", holding([]byte("x")), "inspect " + zip, "it is no zip, or is cut short"},
		{"a truncated zip", holding(good[zip][:len(good[zip])-9]), "inspect " + zip, "it is no zip, or is cut short"},
		{"what stands before a zip", holding(append([]byte("#!/bin/sh\n"), good[zip]...)), "inspect " + zip, "zip the files anew"},
	}
	for _, test := range tests {
		r := good.clone()
		test.change(r)
		a := announce(r)
		step, last := d.publish(t, token, provider1, a, r)
		if step != test.step || last.status != http.StatusBadRequest || !strings.Contains(last.shown(), test.text) {
			t.Errorf("%s: %s: %d %s, want %s: %q", test.name, step, last.status, last.shown(), test.step, test.text)
		}
		if d.visible(t) != before {
			t.Fatalf("%s: something is visible of it", test.name)
		}
	}
	// What is good then is published nonetheless.
	d.publishes(t, token, provider1, good)
}

// A zip of other bytes than were announced, be they those of a good zip, is refused wherever they come from.
func TestZipThatLies(t *testing.T) {
	t.Parallel()
	d := open(t)
	d.addKey(t, "acme", signer)
	r := newRelease(t)
	u := d.begin(t, d.token(t, both), provider1, r).putAll(t)
	before := d.visible(t)
	d.overwrite(t, named(linux+".zip"), program(t, "for linux"))
	d.overwrite(t, named("manifest.json"), []byte(strings.ReplaceAll(manifest, "5", "4")))
	d.overwrite(t, named("SHA256SUMS.sig"), make([]byte, len(r[named("SHA256SUMS.sig")])))
	for i, put := range u.Files {
		switch put.Name {
		case named(linux + ".zip"):
			u.inspect(t, i).refused(t, http.StatusBadRequest, "its bytes have sha256:")
		case named("manifest.json"), named("SHA256SUMS.sig"):
			u.inspect(t, i).refused(t, http.StatusBadRequest, put.Name+": "+put.Name+": invalid object: its bytes are not those of sha256:")
		}
	}
	if d.visible(t) != before {
		t.Error("something is visible of it")
	}
}

// A key that goes between inspection and commit takes the release with it.
func TestKeyThatGoes(t *testing.T) {
	t.Parallel()
	d := open(t)
	key := d.addKey(t, "acme", signer)
	token := d.token(t, both)
	u := d.begin(t, token, provider1, newRelease(t)).putAll(t).inspectAll(t)
	if err := d.catalog.RemoveSigningKey(t.Context(), "acme", key, "ada"); err != nil {
		t.Fatal(err)
	}
	u.commit(t).refused(t, http.StatusBadRequest, "invalid signature by key "+key+": there is no key to verify it by")
	if _, err := d.catalog.Providers.Get(t.Context(), inventory, v1); !errors.Is(err, registry.ErrNotFound) {
		t.Error(err)
	}
	d.send(t, token, http.MethodPost, protocol.PublishPath+"providers/acme/inventory/1.0.0/uploads", announce(newRelease(t))).refused(t, http.StatusBadRequest, "namespace acme has no key yet")
	// It is there again, and so the release can be.
	d.addKey(t, "acme", signer)
	u.commit(t).into(t, http.StatusOK, nil)
}

// A key that a newer release has written is an error of the registry's, which no
// other try mends, and no fault of the file's.
func TestKeyOfNewerRelease(t *testing.T) {
	t.Parallel()
	d := open(t)
	d.failing = true
	d.addKey(t, "acme", signer)
	u := d.begin(t, d.token(t, both), provider1, newRelease(t)).putAll(t)
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
	signature := slices.IndexFunc(u.Files, func(f protocol.Put) bool { return f.Name == named("SHA256SUMS.sig") })
	u.inspect(t, signature).refused(t, http.StatusInternalServerError, "internal error")
	const logged = " has schema version 2, and this release of Larder reads version 1: use a newer release"
	if n := strings.Count(d.log.String(), logged); n != 1 {
		t.Errorf("the log says %d times%s:\n%s", n, logged, d.log.String())
	}
	setSchema(1)
	u.inspectAll(t).commit(t).into(t, http.StatusOK, nil)
}

// Files that another publisher stored are read as any others.
func TestStoredBySomebodyElse(t *testing.T) {
	t.Parallel()
	d := open(t)
	d.addKey(t, "acme", signer)
	r := newRelease(t)
	d.begin(t, d.token(t, both), provider1, r).putAll(t)
	u := d.begin(t, d.token(t, both), provider1, r)
	for _, put := range u.Files {
		if !put.Stored {
			t.Errorf("%+v", put)
		}
	}
	u.commit(t).refused(t, http.StatusConflict, "has not passed inspection yet")
	u.inspectAll(t).commit(t).into(t, http.StatusOK, nil)
}

// The signature is inspected by SHA256SUMS, which may come later.
func TestSignatureBeforeSums(t *testing.T) {
	t.Parallel()
	d := open(t)
	d.addKey(t, "acme", signer)
	r := newRelease(t)
	u := d.begin(t, d.token(t, both), provider1, r)
	for i, put := range u.Files {
		if put.Name == named("SHA256SUMS.sig") {
			u.put(t, i, r[put.Name]).into(t, http.StatusOK, nil)
			u.inspect(t, i).refused(t, http.StatusConflict, named("SHA256SUMS")+" is not uploaded yet")
			u.Files[i].Stored = true
		}
	}
	u.putAll(t).inspectAll(t).commit(t).into(t, http.StatusOK, nil)
}
