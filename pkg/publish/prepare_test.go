package publish_test

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

	"github.com/larder-registry/larder/pkg/archive"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/registry"
)

// read returns what a prepared file holds, which must be what it says of itself.
func read(t *testing.T, f publish.PreparedFile) []byte {
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
	m := module(t, "1.0.0", "a")
	m.Description = "A network"
	if err := os.WriteFile(filepath.Join(m.Dir, "x.tfvars"), []byte("a = 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	progress := &progress{}
	prepared, err := (&publish.Publisher{Progress: progress}).PrepareModule(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	f, r := prepared.Archive, prepared.Record
	if f.Name != "vpc.tar.gz" || f.SHA256 != r.SHA256 || f.Size != r.Size || r.Object != "modules/acme/vpc/aws/1.0.0/api/"+r.SHA256+"/vpc.tar.gz" || r.Description != "A network" || r.PublishedBy != (registry.Publisher{}) {
		t.Errorf("%+v, %+v", f, r)
	}
	if len(prepared.Files) != 1 || len(prepared.LeftOut) != 1 || len(progress.steps) != 2 {
		t.Errorf("%+v, %+v, %q", prepared.Files, prepared.LeftOut, progress.steps)
	}
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
	// It is the same archive as an operator's publish stores.
	m.DryRun = true
	dry, err := new(publish.Publisher).Module(t.Context(), m)
	if err != nil || dry.Record.SHA256 != r.SHA256 {
		t.Errorf("%+v, %v", dry, err)
	}
	m.Dir = t.TempDir()
	if _, err := new(publish.Publisher).PrepareModule(t.Context(), m); !errors.Is(err, registry.ErrInvalid) {
		t.Errorf("nothing: %v", err)
	}
}

// A release is prepared without a request to a registry, and is what an operator
// would publish.
func TestPrepareProvider(t *testing.T) {
	t.Parallel()
	b := embedded(t)
	key, err := signer()
	if err != nil {
		t.Fatal(err)
	}
	id := b.addKey(t, key)
	r := newRelease(t, "1.0.0", "linux_amd64", "darwin_arm64")
	prepared, err := new(publish.Publisher).PrepareProvider(t.Context(), r.provider())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range prepared.Send {
		names = append(names, strings.TrimPrefix(f.Name, r.name+"_"))
		onDisk, err := os.ReadFile(filepath.Join(r.dir, f.Name))
		if err != nil || string(read(t, f)) != string(onDisk) {
			t.Errorf("%s is another file, %v", f.Name, err)
		}
	}
	if want := []string{"darwin_arm64.zip", "linux_amd64.zip", "SHA256SUMS", "SHA256SUMS.sig", "manifest.json"}; !slices.Equal(names, want) {
		t.Errorf("files: %q", names)
	}
	record := prepared.Record
	if record.SigningKey != id || record.Packages[1].Object != "providers/acme/inventory/1.0.0/api/"+record.Packages[1].SHA256+"/"+r.name+"_linux_amd64.zip" || record.Sums.Object != "providers/acme/inventory/1.0.0/api/"+record.Sums.SHA256+"/"+r.name+"_SHA256SUMS" {
		t.Errorf("record: %+v", record)
	}
	published, err := b.publisher().Provider(t.Context(), r.provider())
	if err != nil || published.Record.Sums.SHA256 != record.Sums.SHA256 || published.Record.Packages[0].H1 != record.Packages[0].H1 || !slices.Equal(published.Record.Protocols, record.Protocols) {
		t.Errorf("%+v, %v", published.Record, err)
	}

	// The manifest as goreleaser leaves it goes by the name that SHA256SUMS has for it.
	if err := os.Rename(filepath.Join(r.dir, r.name+"_manifest.json"), filepath.Join(r.dir, "terraform-registry-manifest.json")); err != nil {
		t.Fatal(err)
	}
	again, err := new(publish.Publisher).PrepareProvider(t.Context(), r.provider())
	if err != nil || len(again.Send) != 5 || again.Send[4].Name != r.name+"_manifest.json" || again.Send[4].SHA256 != prepared.Send[4].SHA256 {
		t.Errorf("%+v, %v", again.Send, err)
	}

	r.write(t, r.name+"_SHA256SUMS.sig", "-----BEGIN PGP SIGNATURE-----\n")
	if _, err := new(publish.Publisher).PrepareProvider(t.Context(), r.provider()); !errors.Is(err, registry.ErrInvalid) || !strings.Contains(err.Error(), "SHA256SUMS.sig: ") {
		t.Errorf("an armored signature: %v", err)
	}
	r.zip(t, r.name+"_linux_amd64.zip", map[string]string{"terraform-provider-inventory": "another program"})
	if _, err := new(publish.Publisher).PrepareProvider(t.Context(), r.provider()); !errors.Is(err, registry.ErrInvalid) || !strings.Contains(err.Error(), "is not the file that") {
		t.Errorf("another zip: %v", err)
	}
}

// Without sums and manifest both are made, or said.
func TestPrepareSigned(t *testing.T) {
	t.Parallel()
	key, err := signer()
	if err != nil {
		t.Fatal(err)
	}
	r := release{t.TempDir(), "terraform-provider-inventory_1.0.0"}
	r.zip(t, r.name+"_linux_amd64.zip", map[string]string{"terraform-provider-inventory": "program"})
	m := r.provider()
	m.SignKey, m.Protocols = key.Private, []string{"6.0"}
	prepared, err := new(publish.Publisher).PrepareProvider(t.Context(), m)
	if err != nil || len(prepared.Send) != 3 || !slices.Equal(prepared.Record.Protocols, m.Protocols) || prepared.Record.SigningKey == "" {
		t.Fatalf("%+v, %v", prepared, err)
	}
	if sums := string(read(t, prepared.Send[1])); sums != prepared.Record.Packages[0].SHA256+"  "+r.name+"_linux_amd64.zip\n" {
		t.Errorf("sums: %q", sums)
	}
	if len(read(t, prepared.Send[2])) == 0 {
		t.Error("there is no signature")
	}
	m.SignKey = nil
	if _, err := new(publish.Publisher).PrepareProvider(t.Context(), m); !errors.Is(err, registry.ErrInvalid) {
		t.Errorf("without sums: %v", err)
	}
}
