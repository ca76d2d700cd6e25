package releases_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/larder-registry/larder/internal/testkit/builds"
	"github.com/larder-registry/larder/internal/testkit/progresstest"
	"github.com/larder-registry/larder/pkg/archive"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/releases"
	"github.com/larder-registry/larder/pkg/signing"
)

// read returns what a prepared file holds, which must be what it says of itself.
func read(t *testing.T, f releases.File) []byte {
	t.Helper()
	body, err := f.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	data, err := io.ReadAll(body)
	sum := sha256.Sum256(data)
	if err != nil || int64(len(data)) != f.Size || hex.EncodeToString(sum[:]) != f.SHA256 {
		t.Errorf("%s holds %d bytes, not %d of sha256:%s: %v", f.Name, len(data), f.Size, f.SHA256, err)
	}
	return data
}

func TestPrepareModule(t *testing.T) {
	t.Parallel()
	m := releases.Module{
		Dir: t.TempDir(), Address: registry.Module{Namespace: "acme", Name: "vpc", System: "aws"},
		Version: registry.Version{Major: 1}, Description: "A network",
	}
	for name, content := range map[string]string{"main.tf": "# a\n", "x.tfvars": "a = 1\n"} {
		if err := os.WriteFile(filepath.Join(m.Dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	progress := &progresstest.Recorder{}
	prepared, err := releases.Preparer{Progress: progress}.Module(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	f, r := prepared.Archive, prepared.Record
	if f.Name != "vpc.tar.gz" || f.SHA256 != r.SHA256 || f.Size != r.Size || r.Object != "modules/acme/vpc/aws/1.0.0/api/"+r.SHA256+"/vpc.tar.gz" || r.Description != "A network" || r.PublishedBy != (registry.Publisher{}) {
		t.Errorf("%+v, %+v", f, r)
	}
	if len(prepared.Files) != 1 || len(prepared.Excluded) != 1 || len(progress.Steps()) != 1 {
		t.Errorf("%+v, %+v, %q", prepared.Files, prepared.Excluded, progress.Steps())
	}
	progress.CheckComplete(t, "packing "+m.Dir, "checking "+m.Dir)
	// Several read it at once, each from its beginning.
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			found, err := archive.ReadModule(t.Context(), strings.NewReader(string(read(t, f))))
			if err != nil || found.ContentSHA256 != r.ContentSHA256 {
				t.Errorf("%+v, %v", found, err)
			}
		})
	}
	group.Wait()
	prepared.Close()
	if body, err := f.Open(); err == nil {
		if _, err := io.ReadAll(body); err == nil {
			t.Error("it is there after Close")
		}
	}
	m.Dir = t.TempDir()
	if _, err := new(releases.Preparer).Module(t.Context(), m); !errors.Is(err, registry.ErrInvalid) {
		t.Errorf("nothing: %v", err)
	}
}

func provider(r builds.Release) releases.Provider {
	return releases.Provider{Dir: r.Dir, Address: registry.Provider{Namespace: "acme", Type: "inventory"}}
}

// A release is prepared without a request to a registry.
func TestPrepareProvider(t *testing.T) {
	t.Parallel()
	signer, err := builds.Signer()
	if err != nil {
		t.Fatal(err)
	}
	key, err := signing.ParseKey(signer.Public, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	id := key.ID
	r := builds.NewRelease(t, "1.0.0", "linux_amd64", "darwin_arm64")
	progress := &progresstest.Recorder{}
	prepared, err := releases.Preparer{Progress: progress}.Provider(t.Context(), provider(r))
	if err != nil {
		t.Fatal(err)
	}
	progress.CheckComplete(t, "checking "+r.Name+"_linux_amd64.zip", "checking "+r.Name+"_darwin_arm64.zip")
	var names []string
	for _, f := range prepared.Files {
		names = append(names, strings.TrimPrefix(f.Name, r.Name+"_"))
		onDisk, err := os.ReadFile(filepath.Join(r.Dir, f.Name))
		if err != nil || string(read(t, f)) != string(onDisk) {
			t.Errorf("%s is another file, %v", f.Name, err)
		}
	}
	if want := []string{"darwin_arm64.zip", "linux_amd64.zip", "SHA256SUMS", "SHA256SUMS.sig", "manifest.json"}; !slices.Equal(names, want) {
		t.Errorf("files: %q", names)
	}
	record := prepared.Record
	if record.SigningKey != id || record.Packages[1].Object != "providers/acme/inventory/1.0.0/api/"+record.Packages[1].SHA256+"/"+r.Name+"_linux_amd64.zip" || record.Sums.Object != "providers/acme/inventory/1.0.0/api/"+record.Sums.SHA256+"/"+r.Name+"_SHA256SUMS" {
		t.Errorf("record: %+v", record)
	}
	// The manifest as goreleaser leaves it goes by the name that SHA256SUMS has for it.
	if err := os.Rename(filepath.Join(r.Dir, r.Name+"_manifest.json"), filepath.Join(r.Dir, "terraform-registry-manifest.json")); err != nil {
		t.Fatal(err)
	}
	again, err := new(releases.Preparer).Provider(t.Context(), provider(r))
	if err != nil || len(again.Files) != 5 || again.Files[4].Name != r.Name+"_manifest.json" || again.Files[4].SHA256 != prepared.Files[4].SHA256 {
		t.Errorf("%+v, %v", again.Files, err)
	}

	r.Write(t, r.Name+"_SHA256SUMS.sig", "-----BEGIN PGP SIGNATURE-----\n")
	if _, err := new(releases.Preparer).Provider(t.Context(), provider(r)); !errors.Is(err, registry.ErrInvalid) || !strings.Contains(err.Error(), "SHA256SUMS.sig: ") {
		t.Errorf("an armored signature: %v", err)
	}
	r.Zip(t, r.Name+"_linux_amd64.zip", map[string]string{"terraform-provider-inventory": "another program"})
	if _, err := new(releases.Preparer).Provider(t.Context(), provider(r)); !errors.Is(err, registry.ErrInvalid) || !strings.Contains(err.Error(), "is not the file that") {
		t.Errorf("another zip: %v", err)
	}
}

// Without sums and manifest both are made, or said.
func TestPrepareSigned(t *testing.T) {
	t.Parallel()
	key, err := builds.Signer()
	if err != nil {
		t.Fatal(err)
	}
	r := builds.Release{Dir: t.TempDir(), Name: "terraform-provider-inventory_1.0.0"}
	r.Zip(t, r.Name+"_linux_amd64.zip", map[string]string{"terraform-provider-inventory": "program"})
	m := provider(r)
	m.SignKey, m.Protocols = key.Private, []string{"6.0"}
	prepared, err := new(releases.Preparer).Provider(t.Context(), m)
	if err != nil || len(prepared.Files) != 3 || !slices.Equal(prepared.Record.Protocols, m.Protocols) || prepared.Record.SigningKey == "" {
		t.Fatalf("%+v, %v", prepared, err)
	}
	if sums := string(read(t, prepared.Files[1])); sums != prepared.Record.Packages[0].SHA256+"  "+r.Name+"_linux_amd64.zip\n" {
		t.Errorf("sums: %q", sums)
	}
	if len(read(t, prepared.Files[2])) == 0 {
		t.Error("there is no signature")
	}
	m.SignKey = nil
	if _, err := new(releases.Preparer).Provider(t.Context(), m); !errors.Is(err, registry.ErrInvalid) {
		t.Errorf("without sums: %v", err)
	}
}
