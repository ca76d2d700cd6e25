// Package builds writes folders with the result of a provider's build, for
// tests that publish it.
package builds

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/keys"
)

// Signer returns the signing key that all tests of a program share, because
// creating one is slow.
var Signer = sync.OnceValues(func() (keys.SigningKey, error) { return keys.NewSigningKey("Ed25519", 0) })

// Release is a folder with a release of terraform-provider-inventory. Its
// programs do not run.
type Release struct {
	Dir string
	// Name is the prefix of the names of its files.
	Name string
}

// NewRelease writes a release of a version for platforms, and signs it.
func NewRelease(t testing.TB, version string, platforms ...string) Release {
	t.Helper()
	r := Release{t.TempDir(), "terraform-provider-inventory_" + version}
	for _, p := range platforms {
		program := "terraform-provider-inventory_v" + version
		if strings.HasPrefix(p, "windows_") {
			program += ".exe"
		}
		r.Zip(t, r.Name+"_"+p+".zip", map[string]string{program: "program for " + p, "LICENSE": "of " + p})
	}
	r.Write(t, r.Name+"_manifest.json", `{"version": 1, "metadata": {"protocol_versions": ["5.0", "6.0"]}}`)
	r.Sign(t)
	return r
}

// Write writes a file of the release.
func (r Release) Write(t testing.TB, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(r.Dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Zip writes a zip of executable files, with an entry for each of their
// folders.
func (r Release) Zip(t testing.TB, name string, files map[string]string) {
	t.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for path, content := range files {
		header := &zip.FileHeader{Name: path, Method: zip.Deflate}
		header.SetMode(0o755)
		if strings.HasSuffix(path, "/") {
			header.SetMode(0o755 | os.ModeDir)
		}
		w, err := z.CreateHeader(header)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	r.Write(t, name, out.String())
}

// Sign writes SHA256SUMS of the current files, and its signature.
func (r Release) Sign(t testing.TB) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(r.Dir, "terraform-provider-*"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	var sums strings.Builder
	for _, name := range names {
		if strings.Contains(filepath.Base(name), "SHA256SUMS") {
			continue
		}
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(data)
		fmt.Fprintf(&sums, "%s  %s\n", hex.EncodeToString(sum[:]), filepath.Base(name))
	}
	r.Write(t, r.Name+"_SHA256SUMS", sums.String())
	r.Resign(t)
}

// Resign signs SHA256SUMS without changing it.
func (r Release) Resign(t testing.TB) {
	t.Helper()
	key, err := Signer()
	if err != nil {
		t.Fatal(err)
	}
	if err := key.SignRelease(r.Dir); err != nil {
		t.Fatal(err)
	}
}
