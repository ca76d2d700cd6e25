package local_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/metadata"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
)

// filesWith returns the files in a folder that contain a text.
func filesWith(t *testing.T, dir, text string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(text)) {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// After a withdrawal, no byte of the folder has the description, the names or
// the files of the version. An API that has cached them returns none of them.
func TestWithdrawalLeavesNoBytes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := create(t, dir)
	t.Cleanup(func() { _ = data.Close() })
	source := t.TempDir()
	const secret = "hunter2"
	config := "variable \"" + secret + "\" {\n  description = \"" + secret + "\"\n}\n" +
		"module \"x\" {\n  source = \"registry.example.com/acme/" + secret + "/aws\"\n}\n"
	image := append([]byte("\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x02\x00\x00\x00\x90wS\xde"), secret...)
	for name, content := range map[string][]byte{
		"main.tf": []byte(config), secret + ".txt": []byte(secret), "a.png": image, "README.md": []byte("![" + secret + "](a.png)"),
	} {
		if err := os.WriteFile(filepath.Join(source, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := publish.Publisher{Catalog: data.Catalog, Objects: data.Objects}
	m := registry.Module{Namespace: "acme", Name: "vpc", System: "aws"}
	for minor := range uint64(3) {
		_, err := p.Module(t.Context(), rules.Module{
			Dir: source, Address: m, Version: registry.Version{Major: 1, Minor: minor}, Description: "it has " + secret,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	secrets := append(compressed(t, data.Catalog, m), secret)
	for _, s := range secrets {
		if len(filesWith(t, dir, s)) == 0 {
			t.Fatalf("the test does not find %q before the withdrawal", s)
		}
	}
	found := strings.Join(filesWith(t, dir, secret), "\n")
	for _, name := range []string{"larder.db", registry.FilesName} {
		if !strings.Contains(found, name) {
			t.Errorf("the test does not find the secret in %s before the withdrawal", name)
		}
	}
	api := metadata.New(data.Catalog, data.Objects, nil, access.Everyone)
	get := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/modules/acme/vpc/aws/1.0.0/files"+path, nil)
		api.ServeHTTP(w, r)
		return w
	}
	paths := []string{"", "/main.tf", "/a.png", "/" + secret + ".txt"}
	for _, path := range paths {
		if w := get(path); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), secret) {
			t.Errorf("%q before the withdrawal: %d %q", path, w.Code, w.Body)
		}
	}
	clean := t.TempDir()
	if err := os.WriteFile(filepath.Join(clean, "main.tf"), []byte("output \"id\" {\n  value = 1\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := p.Module(t.Context(), rules.Module{Dir: clean, Address: m, Version: registry.Version{Major: 2}})
	if err != nil {
		t.Fatal(err)
	}
	w := publish.Withdrawer{Catalog: data.Catalog, Objects: data, By: "ada"}
	for minor := range uint64(3) {
		if _, err := w.Withdraw(t.Context(), m, registry.Version{Major: 1, Minor: minor}, "a leak"); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range secrets {
		if found := filesWith(t, dir, s); len(found) > 0 {
			t.Errorf("files with %q: %q", s, found)
		}
	}
	for found, err := range data.Catalog.Contents(t.Context(), m.Namespace) {
		if err != nil {
			t.Fatal(err)
		}
		if c := fmt.Sprint(registry.DecodeContents(found.Data)); strings.Contains(c, secret) {
			t.Errorf("the contents of %s: %s", found.Path, c)
		}
	}
	for _, path := range paths {
		if w := get(path); w.Code != http.StatusNotFound {
			t.Errorf("%q after the withdrawal: %d %q", path, w.Code, w.Body)
		}
	}
}

// compressed returns the contents of a module and of its versions as they are
// stored.
func compressed(t *testing.T, c *catalog.Catalog, m registry.Module) (all []string) {
	t.Helper()
	for found, err := range c.Contents(t.Context(), m.Namespace, m.Path()) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(found.Data))
	}
	records, err := c.Modules.AllRecords(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		all = append(all, base64.StdEncoding.EncodeToString(r.Contents))
	}
	return all
}
