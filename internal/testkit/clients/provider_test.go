package clients

import (
	"archive/zip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A release has the files that goreleaser writes, and each client installs and
// uses it.
func TestProvider(t *testing.T) {
	t.Parallel()
	const version = "1.2.3"
	other := "darwin_arm64"
	if other == Platform() {
		other = "linux_amd64"
	}
	dir := t.TempDir()
	if err := BuildProvider(t.Context(), dir, version, []string{Platform(), other}); err != nil {
		t.Fatal(err)
	}
	const prefix = "terraform-provider-note_" + version + "_"

	t.Run("files", func(t *testing.T) {
		summed := []string{prefix + other + ".zip", prefix + Platform() + ".zip", prefix + "manifest.json"}
		slices.Sort(summed)
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		want := append(slices.Clone(summed), prefix+"SHA256SUMS")
		slices.Sort(want)
		if diff := cmp.Diff(want, names); diff != "" {
			t.Error(diff)
		}
		var sums string
		for _, name := range summed {
			sum := sha256.Sum256(contentOf(t, dir, name))
			sums += fmt.Sprintf("%s  %s\n", hex.EncodeToString(sum[:]), name)
		}
		if diff := cmp.Diff(sums, string(contentOf(t, dir, prefix+"SHA256SUMS"))); diff != "" {
			t.Error(diff)
		}
	})

	t.Run("zip", func(t *testing.T) {
		z, err := zip.OpenReader(filepath.Join(dir, prefix+Platform()+".zip"))
		if err != nil {
			t.Fatal(err)
		}
		defer z.Close()
		modes := make(map[string]fs.FileMode)
		for _, f := range z.File {
			modes[f.Name] = f.Mode()
		}
		want := map[string]fs.FileMode{"LICENSE": 0o644, "README.md": 0o644,
			"terraform-provider-note_v" + version: 0o755}
		if diff := cmp.Diff(want, modes); diff != "" {
			t.Error(diff)
		}
	})

	t.Run("clients", func(t *testing.T) { Each(t, func(t *testing.T, c Client) { useProvider(t, c, dir, version) }) })
}

// useProvider installs a release from a mirror. It creates, replaces and
// destroys a resource.
func useProvider(t *testing.T, c Client, release, version string) {
	t.Helper()
	mirror, work := t.TempDir(), t.TempDir()
	packages := filepath.Join(mirror, "registry.example.com", "acme", "note")
	if err := os.MkdirAll(packages, 0o755); err != nil {
		t.Fatal(err)
	}
	name := "terraform-provider-note_" + version + "_" + Platform() + ".zip"
	if err := os.WriteFile(filepath.Join(packages, name), contentOf(t, release, name), 0o644); err != nil {
		t.Fatal(err)
	}
	session := Session{Client: c, Home: t.TempDir(), Config: fmt.Sprintf(`
provider_installation {
  filesystem_mirror {
    path    = %q
    include = ["registry.example.com/*/*"]
  }
  direct {
    exclude = ["registry.example.com/*/*"]
  }
}
`, mirror)}
	configure := func(content string) {
		if err := os.WriteFile(filepath.Join(work, "main.tf"), fmt.Appendf(nil, `
terraform {
  required_providers {
    note = {
      source  = "registry.example.com/acme/note"
      version = %q
    }
  }
}

resource "note_file" "this" {
  path    = "note.txt"
  content = %q
}
`, version, content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) string {
		out, err := session.Run(t.Context(), work, args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	configure("hello")
	run("init", "-no-color")
	for _, content := range []string{"hello", "goodbye"} {
		configure(content)
		run("apply", "-auto-approve", "-no-color")
		if got := string(contentOf(t, work, "note.txt")); got != content {
			t.Errorf("the file has %q", got)
		}
		if out := run("plan", "-detailed-exitcode", "-no-color"); !strings.Contains(out, "No changes") {
			t.Error(out)
		}
	}
	// A file that someone else deletes is created again.
	if err := os.Remove(filepath.Join(work, "note.txt")); err != nil {
		t.Fatal(err)
	}
	run("apply", "-auto-approve", "-no-color")
	contentOf(t, work, "note.txt")
	run("destroy", "-auto-approve", "-no-color")
	if _, err := os.Stat(filepath.Join(work, "note.txt")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after destroy: %v", err)
	}
}

func contentOf(t *testing.T, dir, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return content
}
