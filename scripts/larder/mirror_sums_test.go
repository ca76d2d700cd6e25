package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/clients"
	"github.com/larder-registry/larder/pkg/content/signing"
	"github.com/larder-registry/larder/pkg/registry"
)

// A mirrored version has the SHA256SUMS of its origin, the signature and the keys.
// An export, an import, a backup and a withdrawal include them, and clients can
// use the folder.
func TestMirrorSums(t *testing.T) {
	t.Parallel()
	o := serveOrigin(t)
	here, elsewhere := platforms()[0], platforms()[1]
	o.publish(t, "acme/note", "1.0.0", here, elsewhere)
	address := originHost + "/acme/note"
	const sums = "terraform-provider-note_1.0.0_SHA256SUMS"
	f := o.fill(t, filepath.Join(t.TempDir(), "data"), o.block())
	f.run(t, 0, []string{"signed by "}, "mirror", "add", address, "--platform", here)
	f.checkSigned(t, address, here)

	folder := t.TempDir()
	f.run(t, 0, nil, "mirror", "export", folder)
	if got, want := namesBelow(t, folder), []string{
		"1.0.0.json", "index.json", sums, sums + ".keys.asc", sums + ".sig", "terraform-provider-note_1.0.0_" + here + ".zip",
	}; !slices.Equal(got, want) {
		t.Errorf("the folder has %q, want %q", got, want)
	}
	third := o.fill(t, filepath.Join(t.TempDir(), "data"), "")
	third.run(t, 0, []string{"signed by "}, "mirror", "import", folder)
	third.checkSigned(t, address, here)

	backup, restored := filepath.Join(t.TempDir(), "backup.tar"), f
	restored.data = filepath.Join(t.TempDir(), "data")
	f.run(t, 0, nil, "backup", backup)
	restored.run(t, 0, nil, "restore", backup)
	restored.checkSigned(t, address, here)

	clients.Each(t, func(t *testing.T, c clients.Client) {
		client, dir := session(t, c, o.server), need(t, address+" 1.0.0")
		client.Config = fmt.Sprintf("provider_installation {\n  filesystem_mirror {\n    path = %q\n  }\n}\n", folder)
		inits(t, client, dir)
		static := httptest.NewTLSServer(http.StripPrefix("/providers/", http.FileServer(http.Dir(folder))))
		t.Cleanup(static.Close)
		client.CAFile, client.Config = authority(t, static), installation(static.URL+"/providers/", "")
		if out := inits(t, client, need(t, address+" 1.0.0")); !strings.Contains(out, "(verified checksum)") {
			t.Error(out)
		}
	})

	for _, f := range []filler{f, third, restored} {
		f.run(t, 0, nil, "withdraw", address, "1.0.0", "--reason", "leaked", "--yes")
		if left := namesBelow(t, filepath.Join(f.data, "objects")); len(left) > 0 {
			t.Errorf("after the withdrawal, the store has %q", left)
		}
		f.run(t, 0, nil, "verify")
	}
}

// checkSigned checks that a version with one platform can be verified again as its
// origin signed it, and that verify finds nothing.
func (f filler) checkSigned(t *testing.T, address, platform string) {
	t.Helper()
	f.run(t, 0, nil, "verify")
	d := opened(t, f.data)
	all, err := d.Catalog.Mirror.All(t.Context(), must(registry.ParseMirrorProvider(address)))
	if err != nil || len(all) != 1 || len(all[0].Sums) != 1 {
		t.Fatalf("%v: %v", all, err)
	}
	v := all[0]
	s, pkg := v.Sums[0], v.Packages[0]
	read := func(file registry.StoredFile) []byte {
		text, err := os.ReadFile(filepath.Join(f.data, "objects", filepath.FromSlash(file.Object)))
		if err != nil {
			t.Error(err)
		}
		return text
	}
	text := read(s.Sums)
	signer, err := signing.VerifyOrigin(registry.Armored(s.Keys), text, read(s.Signature), pkg.MirroredAt)
	if err != nil || signer.ID != pkg.SigningKey || signer.ID != s.SigningKey {
		t.Errorf("signed by %q, want %q and %q: %v", signer.ID, pkg.SigningKey, s.SigningKey, err)
	}
	if pkg.String() != platform || pkg.Sums != 1 || !signing.Lists(text, pkg.Filename, pkg.SHA256) {
		t.Errorf("SHA256SUMS does not list %+v:\n%s", pkg, text)
	}
}

// namesBelow returns the sorted names of the files in a folder and its folders.
func namesBelow(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, d.Name())
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}
