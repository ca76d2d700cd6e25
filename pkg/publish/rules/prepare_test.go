package rules_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/builds"
	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/internal/testkit/progresstest"
	"github.com/larder-registry/larder/pkg/content/archive"
	"github.com/larder-registry/larder/pkg/content/signing"
	documentation "github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
)

// read returns the content of a prepared file, and checks its size and its sum.
func read(t *testing.T, f rules.File) []byte {
	t.Helper()
	body, err := f.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	data, err := io.ReadAll(body)
	sum := sha256.Sum256(data)
	if err != nil {
		t.Errorf("cannot read %s: %v", f.Name, err)
	}
	got := registry.StoredFile{Object: f.Object, SHA256: hex.EncodeToString(sum[:]), Size: int64(len(data))}
	if diff := cmp.Diff(f.StoredFile, got); diff != "" {
		t.Errorf("%s: (-want +got)\n%s", f.Name, diff)
	}
	return data
}

// CheckFolder has the content of the module that is published, and its problems.
func TestCheckFolder(t *testing.T) {
	t.Parallel()
	valid, invalid := t.TempDir(), t.TempDir()
	for path, content := range map[string]string{
		filepath.Join(valid, "main.tf"): "# a\n", filepath.Join(valid, "x.tfvars"): "a = 1\n",
		filepath.Join(invalid, "a.tf"): "output {", filepath.Join(invalid, "b.tf"): "x",
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	prepared, err := rules.Preparer{}.Module(t.Context(), rules.Module{
		Dir: valid, Address: registry.Module{Namespace: "acme", Name: "vpc", System: "aws"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer prepared.Close()
	got, err := rules.Preparer{}.CheckFolder(t.Context(), valid, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got.Record.SHA256 != prepared.Record.SHA256 {
		t.Errorf("the archive has the sum %s, want %s", got.Record.SHA256, prepared.Record.SHA256)
	}
	if diff := cmp.Diff(prepared.Excluded, got.Excluded); diff != "" {
		t.Errorf("excluded (-want +got):\n%s", diff)
	}
	_, err = rules.Preparer{}.CheckFolder(t.Context(), invalid, nil)
	problems, ok := errors.AsType[*errs.ProblemsError](err)
	if !ok {
		t.Fatalf("got error %v, want a ProblemsError", err)
	}
	if n := len(problems.Problems); n != 2 {
		t.Errorf("got %d problems, want 2: %v", n, err)
	}
}

func TestPrepareModule(t *testing.T) {
	t.Parallel()
	m := rules.Module{
		Dir: t.TempDir(), Address: registry.Module{Namespace: "acme", Name: "vpc", System: "aws"},
		Version: registry.Version{Major: 1}, Description: "A network",
	}
	for name, content := range map[string]string{"main.tf": "# a\n", "x.tfvars": "a = 1\n"} {
		if err := os.WriteFile(filepath.Join(m.Dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	progress := &progresstest.Recorder{}
	prepared, err := rules.Preparer{Progress: progress}.Module(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	f, docs, files, r := prepared.Archive, prepared.Docs, prepared.FilesZip, prepared.Record
	if docs == nil || files == nil {
		t.Fatal("the module has no documentation or no files")
	}
	want := registry.ModuleVersion{
		Version: m.Version, SHA256: f.SHA256, ContentSHA256: r.ContentSHA256, Size: f.Size, Description: "A network",
		Object: "modules/acme/vpc/aws/1.0.0/api/" + f.SHA256 + "/vpc.tar.gz",
		Documents: registry.Documents{
			Docs: &registry.StoredFile{
				Object: "modules/acme/vpc/aws/1.0.0/api/" + docs.SHA256 + "/docs.json.gz", SHA256: docs.SHA256, Size: docs.Size,
			},
			FilesZip: &registry.StoredFile{
				Object: "modules/acme/vpc/aws/1.0.0/api/" + files.SHA256 + "/files.zip", SHA256: files.SHA256, Size: files.Size,
			},
		},
		Contents: r.Contents,
	}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Errorf("record: (-want +got)\n%s", diff)
	}
	if f.Name != "vpc.tar.gz" {
		t.Errorf("the archive is named %s", f.Name)
	}
	if _, err := documentation.Decode(bytes.NewReader(read(t, *docs))); err != nil {
		t.Error(err)
	}
	if len(prepared.Files) != 1 {
		t.Errorf("files: %+v", prepared.Files)
	}
	if len(prepared.Excluded) != 1 {
		t.Errorf("excluded: %+v", prepared.Excluded)
	}
	if len(progress.Steps()) != 1 {
		t.Errorf("steps: %q", progress.Steps())
	}
	progress.CheckComplete(t, "packing "+m.Dir, "checking "+m.Dir)
	// Several goroutines read it at once, each from its beginning.
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
			t.Error("the archive can be read after Close")
		}
	}
	prepared.Place()
	place := map[string]string{
		"modules/acme/vpc/aws/1.0.0/" + f.SHA256 + ".tar.gz":          prepared.Archive.Object,
		"modules/acme/vpc/aws/1.0.0/" + docs.SHA256 + "/docs.json.gz": prepared.Docs.Object,
		"modules/acme/vpc/aws/1.0.0/" + files.SHA256 + "/files.zip":   prepared.FilesZip.Object,
	}
	for want, got := range place {
		if got != want {
			t.Errorf("an operator's file has the key %s, want %s", got, want)
		}
	}
	all := []registry.StoredFile{prepared.Archive.StoredFile, prepared.Docs.StoredFile, prepared.FilesZip.StoredFile}
	if diff := cmp.Diff(all, prepared.Record.Files()); diff != "" {
		t.Errorf("an operator's record: (-want +got)\n%s", diff)
	}
	m.Dir = t.TempDir()
	if _, err := new(rules.Preparer).Module(t.Context(), m); !errors.Is(err, registry.ErrInvalid) {
		t.Errorf("nothing: %v", err)
	}
}

// A broken .terraformignore refuses a new version. A copy only has a note.
func TestIgnoreProblems(t *testing.T) {
	t.Parallel()
	const problem = "cannot read .terraformignore: line 1 is not UTF-8"
	for _, test := range []struct {
		from *registry.CopiedFrom
		want []string // the problem and the notes
	}{
		{nil, []string{problem, problem}},
		{&registry.CopiedFrom{Source: "dev.example.com/acme/vpc/aws"}, []string{"", problem}},
	} {
		m := rules.Module{
			Dir: t.TempDir(), Address: registry.Module{Namespace: "acme", Name: "vpc", System: "aws"},
			Version: registry.Version{Major: 1}, CopiedFrom: test.from,
		}
		for name, content := range map[string]string{"main.tf": "# a\n", ".terraformignore": "\xe9\n"} {
			if err := os.WriteFile(filepath.Join(m.Dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		prepared, err := new(rules.Preparer).Module(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		got := []string{""}
		if err := prepared.CheckNew(); err != nil {
			got[0] = strings.TrimPrefix(err.Error(), "cannot publish acme/vpc/aws 1.0.0: ")
		}
		if diff := cmp.Diff(test.want, append(got, prepared.LoadNotes...)); diff != "" {
			t.Errorf("copied from %v (-want +got):\n%s", test.from, diff)
		}
		prepared.Close()
	}
}

func provider(r builds.Release) rules.Provider {
	return rules.Provider{Dir: r.Dir, Address: registry.Provider{Namespace: "acme", Type: "inventory"}}
}

// TestPrepareProvider checks that preparing a release needs no registry.
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
	prepared, err := rules.Preparer{Progress: progress}.Provider(t.Context(), provider(r))
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
	want := []string{"darwin_arm64.zip", "linux_amd64.zip", "SHA256SUMS", "SHA256SUMS.sig", "manifest.json"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("files: (-want +got)\n%s", diff)
	}
	record := prepared.Record
	if record.SigningKey != id {
		t.Errorf("signing key: %s, want %s", record.SigningKey, id)
	}
	const prefix = "providers/acme/inventory/1.0.0/api/"
	linux := record.Packages[1]
	if want := prefix + linux.SHA256 + "/" + r.Name + "_linux_amd64.zip"; linux.Object != want {
		t.Errorf("object of the package: %s, want %s", linux.Object, want)
	}
	if want := prefix + record.Sums.SHA256 + "/" + r.Name + "_SHA256SUMS"; record.Sums.Object != want {
		t.Errorf("object of SHA256SUMS: %s, want %s", record.Sums.Object, want)
	}
	// The manifest of the source has the name that SHA256SUMS lists.
	source := filepath.Join(r.Dir, "terraform-registry-manifest.json")
	if err := os.Rename(filepath.Join(r.Dir, r.Name+"_manifest.json"), source); err != nil {
		t.Fatal(err)
	}
	again, err := new(rules.Preparer).Provider(t.Context(), provider(r))
	if err != nil {
		t.Fatal(err)
	}
	if len(again.Files) != 5 {
		t.Fatalf("files: %+v", again.Files)
	}
	if got, want := again.Files[4], prepared.Files[4]; got.Name != want.Name || got.SHA256 != want.SHA256 {
		t.Errorf("manifest: %+v, want %+v", got, want)
	}

	texts := golden.New(t)
	r.Write(t, r.Name+"_SHA256SUMS.sig", "-----BEGIN PGP SIGNATURE-----\n")
	armored, err := new(rules.Preparer).Provider(t.Context(), provider(r))
	if err != nil {
		t.Fatal(err)
	}
	if err = armored.CheckNew(); !errors.Is(err, registry.ErrInvalid) {
		t.Fatalf("an armored signature: got error %v, want ErrInvalid", err)
	}
	if !strings.Contains(err.Error(), "SHA256SUMS.sig: ") {
		t.Errorf("the error does not name the signature: %v", err)
	}
	recordProblems(t, texts, []error{err}, r.Dir)
	r.Zip(t, r.Name+"_linux_amd64.zip", map[string]string{"terraform-provider-inventory": "another program"})
	_, err = new(rules.Preparer).Provider(t.Context(), provider(r))
	if !errors.Is(err, registry.ErrInvalid) {
		t.Fatalf("another zip: got error %v, want ErrInvalid", err)
	}
	recordProblems(t, texts, []error{err}, r.Dir)
}

// TestPrepareSigned creates and signs SHA256SUMS, with given protocols.
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
	prepared, err := new(rules.Preparer).Provider(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	if len(prepared.Files) != 3 {
		t.Fatalf("files: %+v", prepared.Files)
	}
	if diff := cmp.Diff(m.Protocols, prepared.Record.Protocols); diff != "" {
		t.Errorf("protocols: (-want +got)\n%s", diff)
	}
	if prepared.Record.SigningKey == "" {
		t.Error("the record has no signing key")
	}
	sums := string(read(t, prepared.Files[1]))
	if want := prepared.Record.Packages[0].SHA256 + "  " + r.Name + "_linux_amd64.zip\n"; sums != want {
		t.Errorf("sums: %q, want %q", sums, want)
	}
	if len(read(t, prepared.Files[2])) == 0 {
		t.Error("there is no signature")
	}
	m.SignKey = nil
	if _, err := new(rules.Preparer).Provider(t.Context(), m); !errors.Is(err, registry.ErrInvalid) {
		t.Errorf("without sums: %v", err)
	}
}
