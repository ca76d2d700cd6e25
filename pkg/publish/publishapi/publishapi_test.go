package publishapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/publish/inspection"
	"github.com/larder-registry/larder/pkg/publish/publishapi"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
)

// compare compares a response with a golden file, without the parts that vary.
func compare(t *testing.T, name string, body []byte, changing ...string) {
	t.Helper()
	var indented bytes.Buffer
	if err := json.Indent(&indented, body, "", "  "); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	text := strings.TrimSpace(indented.String()) + "\n"
	for i := 0; i < len(changing); i += 2 {
		text = strings.ReplaceAll(text, changing[i], changing[i+1])
	}
	text = regexp.MustCompile(`"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"`).ReplaceAllString(text, `"TIME"`)
	text = regexp.MustCompile(`\?expires=\d+&signature=[0-9a-f]+`).ReplaceAllString(text, "?SIGNED")
	golden.Equal(t, filepath.Join("testdata", name+".golden.json"), []byte(text))
}

// requestJSON returns a client's request as JSON.
func requestJSON(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// A module is published in steps, each of which can be repeated. It is visible
// after the last step.
func TestPublishModule(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	d := open(t)
	token := d.token(t, "publish:modules/acme/** read:modules/acme/**")
	files := vpc(t, 1)
	a := announce(files)
	a.Description, a.ContentSHA256 = "A network", strings.Repeat("0", 64)
	compare(t, "module-announcement", requestJSON(t, a))
	begun := d.send(t, token, http.MethodPost, protocol.PublishPath+module1+"/uploads", a)
	u := &upload{testAPI: d, token: token, path: module1, files: files}
	begun.into(t, http.StatusCreated, &u.Begun)
	compare(t, "module-begun", begun.body, u.Upload, "UPLOAD", d.url, "https://registry.example.com")
	if life := time.Until(u.ExpiresAt); life > publishapi.Lifetime || life < publishapi.Lifetime-time.Minute {
		t.Errorf("it expires in %s", life)
	}
	if begun.header.Get("Cache-Control") != "no-store" || begun.header.Get("Content-Type") != "application/json" {
		t.Error(begun.header)
	}
	before := d.visible(t)
	u.putAll(t)
	if a := u.put(t, 0, files["vpc.tar.gz"]); a.status != http.StatusPreconditionFailed {
		t.Errorf("a second PUT: %d", a.status)
	}
	for range 3 {
		inspected := u.inspect(t)
		inspected.into(t, http.StatusOK, nil)
		compare(t, "inspected", inspected.body)
	}
	if n := d.faults.claims.count(); n != 1 {
		t.Errorf("it was inspected %d times", n)
	}
	if after := d.visible(t); after != before {
		t.Errorf("something is visible before the commit:\n%s", after)
	}
	d.send(t, token, http.MethodGet, "/v1/modules/acme/vpc/aws/versions", nil).into(t, http.StatusNotFound, nil)
	committed := u.commit(t)
	var published protocol.Published
	committed.into(t, http.StatusOK, &published)
	made := published.Module.Documents
	if len(made.Stored()) != 2 {
		t.Fatalf("the module has no documentation or no files: %+v", made)
	}
	varies := []string{
		made.Docs.SHA256, "DOCUMENTATION", fmt.Sprintf(`"size": %d`, made.Docs.Size), `"size": "SIZE"`,
		made.FilesZip.SHA256, "FILES", fmt.Sprintf(`"size": %d`, made.FilesZip.Size), `"size": "SIZE"`,
	}
	compare(t, "module-published", committed.body, varies...)
	after := d.visible(t)
	for range 2 {
		if again := u.commit(t); again.status != http.StatusOK || string(again.body) != string(committed.body) {
			t.Errorf("commit again: %d %s", again.status, again.body)
		}
		u.inspect(t).into(t, http.StatusOK, nil)
	}
	u.abort(t).refused(t, texts, http.StatusConflict)
	if again := d.visible(t); again != after {
		t.Errorf("a later announcement has changed something:\n%s", again)
	}
	d.send(t, token, http.MethodGet, "/v1/modules/acme/vpc/aws/versions", nil).into(t, http.StatusOK, nil)
	d.send(t, token, http.MethodGet, "/v1/modules/acme/vpc/aws/1.0.0/download", nil).into(t, http.StatusNoContent, nil)
	record, err := d.catalog.Modules.Get(t.Context(), vpcAddress, v1)
	if err != nil || record.PublishedBy.String() != "token ci" || record.Description != "A network" ||
		record.SHA256 != sum(files["vpc.tar.gz"]) || record.ContentSHA256 == a.ContentSHA256 {
		t.Errorf("%+v, %v", record, err)
	}
	kept := map[string]string{record.Object: "kept", made.Docs.Object: "kept", made.FilesZip.Object: "kept"}
	if diff := cmp.Diff(kept, d.objects(t)); diff != "" {
		t.Errorf("objects: (-want +got)\n%s", diff)
	}

	// The same content is published already, even in another archive. Other
	// content is rejected.
	same := d.send(t, token, http.MethodPost, protocol.PublishPath+module1+"/uploads", announce(files))
	same.into(t, http.StatusOK, nil)
	compare(t, "module-unchanged", same.body, varies...)
	packed := announce(vpc(t, 2))
	packed.ContentSHA256 = record.ContentSHA256
	d.send(t, token, http.MethodPost, protocol.PublishPath+module1+"/uploads", packed).into(t, http.StatusOK, nil)
	packed.ContentSHA256 = ""
	other := d.send(t, token, http.MethodPost, protocol.PublishPath+module1+"/uploads", packed)
	other.refused(t, texts, http.StatusConflict)
	compare(t, "refused", other.body)
	if other.header.Get("Retry-After") != "" {
		t.Error("a permanent rejection has a Retry-After header")
	}
	if again := d.visible(t); again != after {
		t.Errorf("a later announcement has changed something:\n%s", again)
	}
}

// Stored files are not accepted again, and an upload that continues reports them.
func TestStoredFilesAreNotSentAgain(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	d := open(t)
	token, other := d.token(t, both), d.token(t, both)
	files := vpc(t, 1)
	first := d.begin(t, token, module1, files).putAll(t)
	first.abort(t).into(t, http.StatusNoContent, nil)
	first.abort(t).into(t, http.StatusNoContent, nil)
	for name, a := range map[string]answer{"inspect": first.inspect(t), "commit": first.commit(t)} {
		if a.refused(t, texts, http.StatusNotFound); d.visible(t) != "" {
			t.Errorf("%s of what was aborted published something", name)
		}
	}
	// Not from another caller either: the bytes are inspected in any case. The new
	// upload does not look for stored files.
	listed := 0
	d.faults.listed = func() error { listed++; return nil }
	second := d.begin(t, other, module1, files)
	if put := second.Files[0]; put.Stored || listed != 0 {
		t.Errorf("a new upload, after %d listed objects: %+v", listed, put)
	}
	second.put(t, 0, files["vpc.tar.gz"]).into(t, http.StatusPreconditionFailed, nil)
	again := d.begin(t, other, module1, files)
	if diff := cmp.Diff([]protocol.Put{{Name: "vpc.tar.gz", Stored: true}}, again.Files); diff != "" {
		t.Errorf("an upload that continues (-want +got):\n%s", diff)
	}
	if again.Upload != second.Upload {
		t.Errorf("%s is another upload than %s", again.Upload, second.Upload)
	}
	second.commit(t).refused(t, texts, http.StatusConflict)
	second.inspectAll(t).commit(t).into(t, http.StatusOK, nil)
}

// If too many objects of a version are stored, files are sent again, which
// changes nothing.
func TestManyStoredFiles(t *testing.T) {
	t.Parallel()
	d := open(t)
	token, files := d.token(t, both), vpc(t, 1)
	d.begin(t, token, module1, files).putAll(t)
	listed := 0
	d.faults.listed, d.faults.others = func() error { listed++; return nil }, 2000
	u := d.begin(t, token, module1, files)
	if listed != 1000 {
		t.Errorf("%d objects are listed, want 1000", listed)
	}
	u.put(t, 0, files["vpc.tar.gz"]).into(t, http.StatusPreconditionFailed, nil)
	u.inspectAll(t).commit(t).into(t, http.StatusOK, nil)
}

// Invalid announcements are rejected before anything is stored.
func TestAnnouncementsAreStrict(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	d := open(t)
	d.addKey(t, "acme", signer)
	token, all := d.token(t, both), d.token(t, "publish:**")
	d.publishes(t, token, "modules/acme/vpc/aws/0.1.0", vpc(t, 0))
	before, stored := d.visible(t), fmt.Sprint(d.objects(t))
	const good = `{"name": "vpc.tar.gz", "size": 7, "sha256": ` +
		`"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"}`
	file := func(from, to string) string {
		if !strings.Contains(good, from) {
			t.Fatal(from)
		}
		return `{"files": [` + strings.Replace(good, from, to, 1) + `]}`
	}
	many := `{"files": [` + strings.Repeat(good+",", limits.Files) + good + `]}`
	name := func(n string) string { return strings.Replace(good, "vpc.tar.gz", n, 1) }
	release := func(names ...string) string {
		var files []string
		for _, n := range names {
			files = append(files, name(n))
		}
		return `{"protocols": ["6.0"], "sums": "eA==", "signature": "eA==", "files": [` + strings.Join(files, ",") + `]}`
	}
	zip := named(linux + ".zip")
	without := func(field string) string { return strings.Replace(release(zip), `"`+field+`": "eA==", `, "", 1) }
	for _, test := range []struct {
		path   string
		bodies []string
	}{
		{module1, []string{
			``, `[]`, `null`, `{`, `{}`, file(`"name"`, `"path": "x", "name"`), `{"files": [` + good + `], "by": "somebody"}`,
			`{"files": [` + good + `]} {}`, `{"files": [` + good + `]}]`,
			`{"files": [` + good + `], "description": "` + strings.Repeat("x", 600<<10) + `"}`, many,
			`{"files": [` + good + `,` + good + `]}`, `{"files": [` + good + `,` + name("b.tar.gz") + `]}`,
			file("vpc.tar.gz", ""), file("vpc.tar.gz", "a/vpc.tar.gz"), file("vpc.tar.gz", "../vpc.tar.gz"),
			file("vpc.tar.gz", `..\\vpc.tar.gz`), file("vpc.tar.gz", ".."), file("vpc.tar.gz", "vpc\u202e.tar.gz"),
			file("vpc.tar.gz", strings.Repeat("x", 251)), file("vpc.tar.gz", "VPC.tar.gz"), file("vpc.tar.gz", "vpc.zip"),
			file("7", "0"), file("7", "-1"), file("7", "1048577"), file("7", "9223372036854775807"),
			file("7", "9223372036854775808"), file("7", "7.5"), file("7", `"7"`), file("9f86d081884c7d65", "9F86D081884C7D65"),
			file("9f86d081884c7d65", ""), file("9f86d081884c7d65", "zz86d081884c7d65"),
			`{"files": [` + good + `], "content_sha256": "x"}`, `{"files": [` + good + `], "description": "a\nb"}`,
			`{"files": [` + good + `], "description": "a\u001b[31m"}`,
			`{"files": [` + good + `], "description": "` + strings.Repeat("x", 1001) + `"}`,
			`{"files": [` + good + `], "protocols": ["6.0"]}`, `{"files": [` + good + `], "sums": "eA=="}`,
			`{"files": [` + good + `], "signature": "eA=="}`, `{"files": [` + good + `], "manifest": "eA=="}`, "{\"files\": [" + good + "], \"description\": \"\xff\"}",
		}},
		{provider1, []string{
			release(), without("sums"), without("signature"), release(zip, "README.md"), release(zip, named("SHA256SUMS")),
			release(zip, named("SHA256SUMS.sig")), release(zip, named("manifest.json")),
			release(zip, "terraform-provider-inventory_1.0.1_darwin_arm64.zip"),
			release(zip, "terraform-provider-other_1.0.0_darwin_arm64.zip"),
			release(zip, named("plan9.zip")), strings.Replace(release(zip), "6.0", "4.0", 1),
			strings.Replace(release(zip), `"6.0"`, `"6.0", "6.1"`, 1),
			strings.Replace(release(zip), `["6.0"]`, `[]`, 1),
			strings.Replace(release(zip), `"eA=="`, `"?"`, 1),
			strings.Replace(release(zip), `"protocols"`, `"description": "x", "protocols"`, 1),
			strings.Replace(release(zip), `"protocols"`, `"allow_secrets": ["a"], "protocols"`, 1),
			strings.Replace(release(zip), `"protocols"`, `"claimed": {"commit": "`+strings.Repeat("a", 40)+`"}, "protocols"`, 1),
		}},
		{"providers/acme/inventory/1.0.1", []string{release(zip)}},
		{"providers/other/inventory/1.0.0", []string{release(zip)}},
	} {
		for _, body := range test.bodies {
			status := http.StatusBadRequest
			if strings.HasPrefix(test.path, "providers/other") {
				status = http.StatusForbidden
			}
			d.send(t, all, http.MethodPost, protocol.PublishPath+test.path+"/uploads", body).refused(t, texts, status)
		}
	}
	for _, path := range []string{
		"modules/acme/vpc/aws/v1.0.0", "modules/acme/vpc/aws/1.0", "modules/acme/vpc/aws/latest",
		"modules/acme/vpc/aws/01.0.0", "modules/acme/vpc/aws/99999999999999999999.0.0", "modules/acme/vpc/aws-/1.0.0",
		"modules/-acme/vpc/aws/1.0.0", "modules/acme/" + strings.Repeat("x", 65) + "/aws/1.0.0",
		"providers/acme/Inventory/1.0.0", "providers/ACME/inventory/1.0.0",
		"modules/acme/vpc/aws/1.0.0-" + strings.Repeat("x", 128), "modules/acme/vpc/aws/%2E%2E/1.0.0/x/../../aws/1.0.0/..x",
	} {
		d.send(
			t, all, http.MethodPost, protocol.PublishPath+path+"/uploads", announce(vpc(t, 1)),
		).refused(t, texts, http.StatusBadRequest)
	}
	if d.visible(t) != before || fmt.Sprint(d.objects(t)) != stored {
		t.Error("a rejected request has changed something")
	}
	// None of them counts as an upload in progress.
	for range limits.Uploads {
		d.begin(t, token, module1, vpc(t, 1))
	}
}

// A module's bytes must be the announced ones, and valid.
func TestRejectedModules(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	d := open(t)
	token := d.token(t, both)
	d.publishes(t, token, "modules/acme/vpc/aws/0.1.0", vpc(t, 0))
	before := d.visible(t)
	for i, test := range refusedModules(t) {
		t.Run(test.name, func(t *testing.T) {
			path := fmt.Sprintf("modules/acme/vpc/aws/1.0.%d", i)
			files := map[string][]byte{"vpc.tar.gz": test.packed}
			step, a := d.publish(t, token, path, announce(files), files)
			if step != "inspect" {
				t.Errorf("rejected at step %q, want the inspection", step)
			}
			if code, want := a.code(t), errs.Code(registry.ErrInvalid); code != want {
				t.Errorf("code %q, want %q", code, want)
			}
			if !strings.HasPrefix(a.text(), "vpc.tar.gz: ") {
				t.Errorf("the error %q does not name the file", a.text())
			}
			a.refused(t, texts, http.StatusBadRequest)
			if diff := cmp.Diff(before, d.visible(t)); diff != "" {
				t.Errorf("visible (-before +after):\n%s", diff)
			}
		})
	}
}

// The store accepts only the announced bytes, once.
func TestOtherBytesThanAnnounced(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	d := open(t)
	token := d.token(t, both)
	good, other := vpc(t, 1), vpc(t, 2)["vpc.tar.gz"]
	u := d.begin(t, token, module1, good)
	for name, test := range map[string]struct {
		bytes  []byte
		status int
	}{
		"as many": {other, http.StatusBadRequest}, "more": {
			append(bytes.Clone(good["vpc.tar.gz"]), 0), http.StatusForbidden,
		}, "fewer": {other[1:], http.StatusForbidden},
	} {
		if a := u.put(t, 0, test.bytes); a.status != test.status {
			t.Errorf("%s: %d %s", name, a.status, a.body)
		}
	}
	a := u.inspect(t)
	a.refused(t, texts, http.StatusConflict)
	if a.header.Get("Retry-After") == "" {
		t.Error("the response has no Retry-After header")
	}
	u.commit(t).refused(t, texts, http.StatusConflict)
	if len(d.objects(t)) != 0 || d.visible(t) != "" {
		t.Error(d.objects(t), d.visible(t))
	}
	// The upload can continue.
	u.putAll(t).inspectAll(t).commit(t).into(t, http.StatusOK, nil)
}

// If the store returns other bytes than it accepted, the inspection fails. If
// it loses an object or a part of one, the commit fails.
func TestFaultyStore(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	good, other := vpc(t, 1), vpc(t, 2)["vpc.tar.gz"]
	for name, test := range map[string]struct {
		lie    []byte
		status int
	}{
		"other bytes":        {other, http.StatusBadRequest},
		"fewer bytes":        {other[1:], http.StatusBadRequest},
		"more bytes":         {append(bytes.Clone(other), 0), http.StatusBadRequest},
		"bytes of no module": {bytes.Repeat([]byte("x"), len(other)), http.StatusBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t)
			u := d.begin(t, d.token(t, both), module1, good).putAll(t)
			d.overwrite(t, "vpc.tar.gz", test.lie)
			u.inspect(t).refused(t, texts, test.status)
			u.commit(t).refused(t, texts, test.status)
			if d.visible(t) != "" {
				t.Error(d.visible(t))
			}
		})
	}
	t.Run("more bytes at the end", func(t *testing.T) {
		t.Parallel()
		d := open(t)
		u := d.begin(t, d.token(t, both), module1, good).putAll(t)
		d.overwrite(t, "vpc.tar.gz", append(bytes.Clone(good["vpc.tar.gz"]), 0))
		u.inspectAll(t).commit(t).refused(t, texts, http.StatusConflict)
		if _, err := d.catalog.Modules.Get(t.Context(), vpcAddress, v1); !errors.Is(err, registry.ErrNotFound) {
			t.Errorf("the version: %v, want ErrNotFound", err)
		}
	})
	t.Run("lost after inspection", func(t *testing.T) {
		t.Parallel()
		d := open(t)
		u := d.begin(t, d.token(t, both), module1, good).putAll(t).inspectAll(t)
		d.overwrite(t, "vpc.tar.gz", other[1:])
		u.commit(t).refused(t, texts, http.StatusConflict)
		if _, err := d.catalog.Modules.Get(t.Context(), vpcAddress, v1); err == nil {
			t.Error("the version is published")
		}
		for key := range d.objects(t) {
			if !strings.HasSuffix(key, ".tar.gz") {
				continue // TestLostDocumentation removes it
			}
			if err := os.Remove(filepath.Join(d.dir, "objects", key)); err != nil {
				t.Fatal(err)
			}
		}
		u.commit(t).refused(t, texts, http.StatusConflict)
		if visible := d.visible(t); strings.Contains(visible, "vpc.tar.gz") || strings.Contains(visible, " version/") {
			t.Error(visible)
		}
	})
}

// An upload belongs to its caller and to its version.
func TestUploadsBelongToCallers(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	d := open(t)
	token, other := d.token(t, both), d.token(t, both)
	u := d.begin(t, token, module1, vpc(t, 1)).putAll(t).inspectAll(t)
	theirs := *u
	theirs.token = other
	moved, newer := *u, *u
	moved.path, newer.path = "modules/acme/vpc2/aws/1.0.0", "modules/acme/vpc/aws/1.0.1"
	tag, made := *u, *u
	tag.path, made.Upload = "modules/acme/vpc/aws/v1.0.0", "AAAAAAAAAAAAAAAAAAAAAAAAAA"
	odd := *u
	odd.Upload = "of%2F" + strings.Repeat("0", 64)
	provider := *u
	provider.path = provider1
	for name, x := range map[string]*upload{
		"another's": &theirs, "another module's": &moved, "another version's": &newer, "of a provider": &provider,
		"an unknown upload": &made, "another item": &odd,
	} {
		for step, a := range map[string]answer{"inspect": x.inspect(t), "commit": x.commit(t), "abort": x.abort(t)} {
			t.Run(name+"/"+step, func(t *testing.T) { a.refused(t, texts, http.StatusNotFound) })
		}
	}
	tag.commit(t).refused(t, texts, http.StatusBadRequest)
	if d.visible(t) != "" {
		t.Error(d.visible(t))
	}
	u.commit(t).into(t, http.StatusOK, nil)
}

// Scopes cover only what they name, and publishing does not include reading.
func TestScopes(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	d := open(t)
	d.addKey(t, "acme", signer)
	acme, all := d.token(t, "publish:modules/acme/**"), d.token(t, "publish:**")
	for _, path := range []string{"modules/other/vpc/aws/1.0.0", "modules/acme2/vpc/aws/1.0.0", provider1} {
		for method, at := range map[string]string{
			"/uploads": http.MethodPost, "/uploads/x/commit": http.MethodPost, "/uploads/x/inspect": http.MethodPost,
			"/uploads/x": http.MethodDelete, "/deprecation": http.MethodPut,
		} {
			d.send(t, acme, at, protocol.PublishPath+path+method, announce(vpc(t, 1))).refused(t, texts, http.StatusForbidden)
		}
	}
	// The first publish in a namespace needs a scope that names it. Other
	// scopes cover it from then on.
	const fresh = "modules/new/vpc/aws/1.0.0"
	for _, scope := range []string{
		"publish:**", "publish:modules/**", "publish:modules/*/vpc/aws",
		"publish:** publish:modules/new/other/aws publish:providers/new",
	} {
		d.send(
			t, d.token(t, scope), http.MethodPost, protocol.PublishPath+fresh+"/uploads", announce(vpc(t, 1)),
		).refused(t, texts, http.StatusForbidden)
	}
	if strings.Contains(d.visible(t), "new") {
		t.Error(d.visible(t))
	}
	d.publishes(t, d.token(t, "publish:modules/new/vpc/aws"), fresh, vpc(t, 1))
	d.publishes(t, all, "modules/new/vpc/aws/1.0.1", vpc(t, 2))
	// The owner names a namespace by adding a key.
	d.publishes(t, all, module1, vpc(t, 1))
	for _, token := range []string{acme, all} {
		for _, path := range []string{"/v1/modules/acme/vpc/aws/versions", "/v1/modules/acme/vpc/aws/1.0.0/download"} {
			d.send(t, token, http.MethodGet, path, nil).refused(t, texts, http.StatusForbidden)
		}
	}
	d.send(
		t, d.token(t, "read:**"), http.MethodPost, protocol.PublishPath+module1+"/uploads", announce(vpc(t, 1)),
	).refused(t, texts, http.StatusForbidden)
	d.send(
		t, "", http.MethodPost, protocol.PublishPath+module1+"/uploads", announce(vpc(t, 1)),
	).refused(t, texts, http.StatusUnauthorized)
	if a := d.send(
		t, acme, http.MethodGet, protocol.PublishPath+module1+"/uploads", nil,
	); a.status != http.StatusMethodNotAllowed {
		t.Errorf("GET: %d", a.status)
	}
}

// A read-only copy refuses every request, and names the reason.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	const want = `{"errors":["this registry is a read-only copy"],"code":"forbidden",` +
		`"hint":"Publish to the registry that it copies."}`
	handler := publishapi.ReadOnly()
	for _, route := range publishapi.Routes() {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), route.Method,
			strings.NewReplacer("{", "", "}", "").Replace(route.Path), nil))
		if got := strings.TrimSpace(w.Body.String()); w.Code != http.StatusForbidden || got != want {
			t.Errorf("%s %s: %d %s", route.Method, route.Path, w.Code, got)
		}
	}
}

// An identity may have a limited number of uploads in progress. Finished ones
// do not count.
func TestUploadLimit(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	d := open(t)
	token, other := d.token(t, both), d.token(t, both)
	paths := func(n int) string { return fmt.Sprintf("modules/acme/vpc/aws/1.0.%d", n) }
	var all []*upload
	for n := range limits.Uploads {
		all = append(all, d.begin(t, token, paths(n), vpc(t, n)))
	}
	full := func() {
		t.Helper()
		d.send(
			t, token, http.MethodPost, protocol.PublishPath+paths(8)+"/uploads", announce(vpc(t, 8)),
		).refused(t, texts, http.StatusForbidden)
	}
	full()
	d.begin(t, other, paths(9), vpc(t, 9))
	all[0].abort(t).into(t, http.StatusNoContent, nil)
	all[0].abort(t).into(t, http.StatusNoContent, nil)
	nine := d.begin(t, token, paths(9), vpc(t, 9))
	full()
	// Anyone who begins the same upload again continues it.
	if again := d.begin(t, token, paths(9), vpc(t, 9)); again.Upload != nine.Upload {
		t.Errorf("%s is another upload than %s", again.Upload, nine.Upload)
	}
	all[1].putAll(t).inspectAll(t).commit(t).into(t, http.StatusOK, nil)
	all[1].commit(t).into(t, http.StatusOK, nil)
	d.begin(t, token, paths(10), vpc(t, 10))
	full()
	// A published version does not count as an upload.
	d.send(
		t, token, http.MethodPost, protocol.PublishPath+paths(1)+"/uploads", announce(vpc(t, 1)),
	).into(t, http.StatusOK, nil)
	d.at(publishapi.Lifetime - time.Minute)
	full()
	d.at(publishapi.Lifetime)
	for n := range limits.Uploads {
		d.begin(t, token, paths(20+n), vpc(t, 9))
	}
	full()
}

// An upload expires.
func TestExpiredUpload(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	d := open(t)
	u := d.begin(t, d.token(t, both), module1, vpc(t, 1)).putAll(t).inspectAll(t)
	d.at(publishapi.Lifetime)
	for step, a := range map[string]answer{"inspect": u.inspect(t), "commit": u.commit(t), "abort": u.abort(t)} {
		t.Run(step, func(t *testing.T) {
			if a.hint() == "" {
				t.Error("the error has no hint")
			}
			a.refused(t, texts, http.StatusNotFound)
		})
	}
	if d.visible(t) != "" {
		t.Error(d.visible(t))
	}
}

// Publishers can deprecate their versions.
func TestDeprecate(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	d := open(t)
	d.addKey(t, "acme", signer)
	token := d.token(t, both)
	d.publishes(t, token, module1, vpc(t, 1))
	d.publishes(t, token, provider1, newRelease(t))
	compare(t, "deprecation", requestJSON(t, protocol.Deprecation{Message: "use 2.0.0", Hide: true}))
	put := func(path string, body any) answer {
		t.Helper()
		return d.send(t, token, http.MethodPut, protocol.PublishPath+path+"/deprecation", body)
	}
	before := d.visible(t)
	for _, test := range []struct {
		path   string
		body   any
		status int
	}{
		{module1, protocol.Deprecation{Message: "bad", Hide: true}, http.StatusBadRequest},
		{module1, protocol.Deprecation{Hide: true}, http.StatusBadRequest},
		{"modules/acme/vpc/aws", protocol.Deprecation{Message: "bad", Hide: true}, http.StatusBadRequest},
		{provider1, protocol.Deprecation{Message: "bad", Hide: true}, http.StatusBadRequest},
		{module1, protocol.Deprecation{Message: "a\nb"}, http.StatusBadRequest},
		{module1, protocol.Deprecation{Message: strings.Repeat("x", 501)}, http.StatusBadRequest},
		{module1, `{"message": "x", "by": "y"}`, http.StatusBadRequest},
		{module1, ``, http.StatusBadRequest},
		{"modules/acme/vpc/aws/2.0.0", protocol.Deprecation{Message: "bad"}, http.StatusNotFound},
		{"modules/acme/other/aws", protocol.Deprecation{Message: "bad"}, http.StatusNotFound},
		{"providers/acme/inventory/2.0.0", protocol.Deprecation{Message: "bad"}, http.StatusNotFound},
		{"providers/acme/other", protocol.Deprecation{Message: "bad"}, http.StatusNotFound},
		{"modules/acme/vpc/aws/v1.0.0", protocol.Deprecation{Message: "bad"}, http.StatusBadRequest},
	} {
		put(test.path, test.body).refused(t, texts, test.status)
	}
	if d.visible(t) != before {
		t.Error("a rejected request has changed something")
	}
	d.publishes(t, token, "modules/acme/vpc/aws/1.0.1", vpc(t, 2))
	for path, body := range map[string]protocol.Deprecation{
		module1: {Message: "opens a port", Hide: true}, "modules/acme/vpc/aws": {Message: "use another"},
		provider1: {Message: "leaks"}, "providers/acme/inventory": {Message: "gone"},
	} {
		for range 2 {
			put(path, body).into(t, http.StatusNoContent, nil)
		}
	}
	m, err := d.catalog.Modules.Get(t.Context(), vpcAddress, v1)
	if err != nil || !m.Hidden || m.Deprecated != "opens a port" {
		t.Errorf("%+v, %v", m, err)
	}
	p, err := d.catalog.Providers.Get(t.Context(), inventory, v1)
	if err != nil || p.Deprecated != "leaks" {
		t.Errorf("%+v, %v", p, err)
	}
	put(module1, protocol.Deprecation{}).into(t, http.StatusNoContent, nil)
	if m, err = d.catalog.Modules.Get(t.Context(), vpcAddress, v1); err != nil || m.Hidden || m.Deprecated != "" {
		t.Errorf("%+v, %v", m, err)
	}
}

// Versions that differ only in build metadata are the same for clients.
func TestBuildMetadata(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	d := open(t)
	token := d.token(t, both)
	d.publishes(t, token, "modules/acme/vpc/aws/1.0.0+a", vpc(t, 1))
	before := d.visible(t)
	step, a := d.publish(t, token, "modules/acme/vpc/aws/1.0.0+b", announce(vpc(t, 2)), vpc(t, 2))
	if a.refused(t, texts, http.StatusConflict); step != "begin" || d.visible(t) != before {
		t.Error(step)
	}
	// A concurrent one is found before any file becomes permanent.
	x, y := d.begin(
		t, token, "modules/acme/vpc/aws/2.0.0+x", vpc(t, 3),
	).putAll(t).inspectAll(t), d.begin(t, token, "modules/acme/vpc/aws/2.0.0+y", vpc(t, 4)).putAll(t).inspectAll(t)
	x.commit(t).into(t, http.StatusOK, nil)
	keeps := 0
	d.faults.keep = func(string) error { keeps++; return nil }
	if y.commit(t).refused(t, texts, http.StatusConflict); keeps != 0 {
		t.Errorf("%d files are permanent", keeps)
	}
	_, a = d.publish(t, token, "modules/acme/vpc/aws/1.0.0+a", announce(vpc(t, 1)), vpc(t, 1))
	var begun protocol.Begun
	a.into(t, http.StatusOK, &begun)
	if p := begun.Published; !p.Unchanged || p.Module.Version != (registry.Version{Major: 1, Metadata: "a"}) {
		t.Errorf("%+v", p)
	}
}

// Without access control, nothing can be published.
func TestNoGate(t *testing.T) {
	t.Parallel()
	d := open(t)
	h := publishapi.New(d.catalog, d.store, publishapi.OwnObjects, inspection.InThisProcess{}, limits)
	for _, path := range []string{"/uploads", "/uploads/x/commit"} {
		w := serve(t, h, http.MethodPost, protocol.PublishPath+module1+path, `{}`)
		if w.Code != http.StatusForbidden {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}

// A publish of an existing version succeeds only if its files are stored
// unchanged.
func TestUnchangedOverDamage(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	released := newRelease(t)
	for name, test := range map[string]struct {
		path, file string
		files      map[string][]byte
	}{
		"module archive":     {module1, "vpc.tar.gz", vpc(t, 1)},
		"provider zip":       {provider1, linux + ".zip", released},
		"provider signature": {provider1, ".sig", released},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t)
			d.failing = true
			d.addKey(t, "acme", signer)
			token := d.token(t, both)
			d.publishes(t, token, test.path, test.files)
			begin := func() answer {
				return d.send(t, token, http.MethodPost, protocol.PublishPath+test.path+"/uploads", announce(test.files))
			}
			var begun protocol.Begun
			begin().into(t, http.StatusOK, &begun)
			if begun.Published == nil || begun.Published.NotCompared {
				t.Errorf("got %+v", begun)
			}
			var content []byte
			for key := range d.objects(t) {
				if !strings.Contains(key, test.file) {
					continue
				}
				path := filepath.Join(d.dir, "objects", key)
				var err error
				if content, err = os.ReadFile(path); err != nil {
					t.Fatal(err)
				}
			}
			other := bytes.Clone(content)
			other[len(other)/2] ^= 1
			d.overwrite(t, test.file, other)
			begin().refused(t, texts, http.StatusInternalServerError)
			d.overwrite(t, test.file, other[1:])
			begin().refused(t, texts, http.StatusInternalServerError)
			d.overwrite(t, test.file, content)
			begin().into(t, http.StatusOK, nil)
			for key := range d.objects(t) {
				if strings.Contains(key, test.file) {
					if err := os.Remove(filepath.Join(d.dir, "objects", key)); err != nil {
						t.Fatal(err)
					}
				}
			}
			begin().refused(t, texts, http.StatusInternalServerError)
		})
	}
}

// A version can be installed without its documentation, so a publish of an
// existing version does not need it.
func TestUnchangedWithoutDocs(t *testing.T) {
	t.Parallel()
	d := open(t)
	token, files := d.token(t, both), vpc(t, 1)
	d.publishes(t, token, module1, files)
	digest := sum([]byte("documentation that is not stored"))
	docs := registry.StoredFile{
		Object: registry.UploadKey(vpcAddress.Path(), v1, digest, registry.DocsName), SHA256: digest, Size: 7,
	}
	made := registry.Documents{Docs: &docs}
	if _, err := d.catalog.SetDocs(t.Context(), vpcAddress, v1, made, nil, "ada"); err != nil {
		t.Fatal(err)
	}
	var begun protocol.Begun
	again := d.send(t, token, http.MethodPost, protocol.PublishPath+module1+"/uploads", announce(files))
	again.into(t, http.StatusOK, &begun)
	if begun.Published == nil || !begun.Published.Unchanged {
		t.Errorf("got %s", again.body)
	}
}

// Nothing can be published to a namespace whose address is taken. What exists
// there can still be changed.
func TestTakenNamespace(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	d := open(t)
	there := registry.Module{Namespace: "search", Name: "vpc", System: "aws"}
	publish := func(context.Context, protocol.Document) (registry.ModuleVersion, error) {
		return registry.ModuleVersion{Version: v1, Object: there.ArchiveKey(v1, "5"), SHA256: "5"}, nil
	}
	if _, _, err := d.catalog.Modules.Publish(t.Context(), there, v1, "ada", publish); err != nil {
		t.Fatal(err)
	}
	before := d.visible(t)
	for scope, path := range map[string]string{
		"publish:modules/search/**":   "modules/search/vpc/aws/2.0.0",
		"publish:providers/search/**": "providers/search/inventory/1.0.0",
		"publish:**":                  "modules/search/vpc/aws/1.0.0",
	} {
		t.Run(scope, func(t *testing.T) {
			refused := d.send(t, d.token(t, scope), http.MethodPost, protocol.PublishPath+path+"/uploads", announce(vpc(t, 1)))
			if code, want := refused.code(t), errs.Code(registry.ErrInvalid); code != want {
				t.Errorf("code %q, want %q", code, want)
			}
			refused.refused(t, texts, http.StatusBadRequest)
		})
	}
	if diff := cmp.Diff(before, d.visible(t)); diff != "" {
		t.Errorf("visible (-before +after):\n%s", diff)
	}
	path := protocol.PublishPath + "modules/search/vpc/aws/1.0.0/deprecation"
	body := protocol.Deprecation{Message: "use acme/vpc/aws"}
	d.send(t, d.token(t, "publish:modules/search/**"), http.MethodPut, path, body).into(t, http.StatusNoContent, nil)
}

// The function's role cannot read objects that an operator has stored, and the
// response reports that.
func TestUnchangedOfAnOperator(t *testing.T) {
	t.Parallel()
	d := open(t)
	token, files := d.token(t, both), vpc(t, 1)
	record := registry.ModuleVersion{
		Version: v1, Object: vpcAddress.ArchiveKey(v1, sum(files["vpc.tar.gz"])), SHA256: sum(files["vpc.tar.gz"]),
		ContentSHA256: "x", Size: int64(len(files["vpc.tar.gz"])),
	}
	publish := func(context.Context, protocol.Document) (registry.ModuleVersion, error) { return record, nil }
	if _, _, err := d.catalog.Modules.Publish(t.Context(), vpcAddress, v1, "ada", publish); err != nil {
		t.Fatal(err)
	}
	var begun protocol.Begun
	again := d.send(t, token, http.MethodPost, protocol.PublishPath+module1+"/uploads", announce(files))
	again.into(t, http.StatusOK, &begun)
	if begun.Published == nil || !begun.Published.Unchanged || !begun.Published.NotCompared {
		t.Errorf("got %s", again.body)
	}
}
