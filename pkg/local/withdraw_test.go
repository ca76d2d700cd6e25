package local_test

import (
	"bytes"
	"encoding/base64"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/larder-registry/larder/pkg/catalog"
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

// After a withdrawal, no byte of the folder has the description or the names of
// the version.
func TestWithdrawalLeavesNoBytes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := create(t, dir)
	t.Cleanup(func() { _ = data.Close() })
	source := t.TempDir()
	const secret = "hunter2"
	config := "variable \"" + secret + "\" {\n  description = \"" + secret + "\"\n}\n"
	if err := os.WriteFile(filepath.Join(source, "main.tf"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
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
}

// compressed returns the contents of a module and of its versions as they are stored.
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
