package verify_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/content/archive"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/publish/inspection"
	"github.com/larder-registry/larder/pkg/registry"
)

// mirroredVPC is the mirrored module of the tests.
var mirroredVPC = registry.MirrorAddress{
	Hostname: "registry.example.com", Namespace: "acme", Name: "vpc", System: "aws",
}

// mirrorModule mirrors a version of a module with some content and documentation, from
// a commit. If accept is set, an operator accepts that it replaces other content.
func (d data) mirrorModule(t *testing.T, v, content, commit string, accept bool) registry.MirrorVersion {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte("# "+content+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	if _, err := archive.Pack(t.Context(), dir, archive.Options{}, &packed); err != nil {
		t.Fatal(err)
	}
	h1, err := archive.H1(t.Context(), bytes.NewReader(packed.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "vpc.tar.gz")
	if err := os.WriteFile(file, packed.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(packed.Bytes())
	var found inspection.Found
	found.SHA256, found.Document.Data = hex.EncodeToString(sum[:]), []byte("documentation")
	pin := registry.ModulePin{Source: "https://github.com/acme/terraform-aws-vpc", Commit: commit, H1: h1}
	if accept {
		pin.Accepted = &registry.Decision{By: "ada", Reason: "announced"}
	}
	record, err := d.publisher().StoreMirrorModule(t.Context(), mirroredVPC, publish.MirrorModule{
		Version: version(v), Path: file, Size: int64(packed.Len()), Found: found, Pin: pin,
	})
	if err == nil {
		record, _, err = d.catalog.Mirror.Add(t.Context(), mirroredVPC, record, "ada")
	}
	if err != nil {
		t.Fatal(err)
	}
	return record
}

// refuseModule records that the origin has changed a version of a module.
func (d data) refuseModule(t *testing.T, v string) {
	t.Helper()
	n := version(v)
	if _, err := d.catalog.Mirror.UpdateOrigin(t.Context(), mirroredVPC,
		func(o *registry.MirrorOrigin) (bool, *registry.AuditEntry, error) {
			pin := registry.ModulePin{Source: "https://github.com/acme/terraform-aws-vpc", Commit: "ccc"}
			o.Refuse(registry.RefusedVersion{Version: n, Pin: pin})
			return true, &registry.AuditEntry{By: "ada", Action: registry.AuditRefuseContent, Version: &n}, nil
		}); err != nil {
		t.Fatal(err)
	}
}

// What clients would reject of a mirrored module is a fault, and so is other content
// than the version is bound to. A repair rebuilds its listing.
func TestMirroredModule(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	const here = "mirror-modules/registry.example.com/acme/vpc/aws"
	edited := func(edit func(*registry.MirrorVersion)) func(*testing.T, data, registry.MirrorVersion) {
		return func(t *testing.T, d data, _ registry.MirrorVersion) {
			d.item(t, here, "version/1.0.0", record(t, edit))
		}
	}
	object := func(of func(registry.MirrorVersion) string,
		change func([]byte) []byte) func(*testing.T, data, registry.MirrorVersion) {
		return func(t *testing.T, d data, r registry.MirrorVersion) { d.object(t, of(r), change) }
	}
	packed := func(r registry.MirrorVersion) string { return r.Module.Object }
	docs := func(r registry.MirrorVersion) string { return r.Module.Docs.Object }
	for name, test := range map[string]struct {
		corrupt  func(*testing.T, data, registry.MirrorVersion)
		want     string // empty: nothing
		repaired bool
	}{
		"valid":              {func(*testing.T, data, registry.MirrorVersion) {}, "", false},
		"archive is missing": {object(packed, nil), "version-without-object " + here + " 1.0.0", false},
		"archive is changed": {object(packed, flip), "sha256 " + here + " 1.0.0", false},
		"archive is cut":     {object(packed, func(b []byte) []byte { return b[1:] }), "size " + here + " 1.0.0", false},
		"docs are missing":   {object(docs, nil), "documentation " + here + " 1.0.0", true},
		"docs are changed":   {object(docs, flip), "documentation " + here + " 1.0.0", false},
		"bound to others": {edited(func(r *registry.MirrorVersion) { r.Module.Pin.H1 = "h1:other" }),
			"content " + here + " 1.0.0", false},
		"other commit": {edited(func(r *registry.MirrorVersion) { r.Module.Pin.Commit = "bbb" }),
			"audit-missing " + here + "; record " + here + " 1.0.0", false},
		"record is gone": {func(t *testing.T, d data, _ registry.MirrorVersion) { d.item(t, here, "version/1.0.0", nil) },
			"object-without-version " + here + " 1.0.0; object-without-version " + here + " 1.0.0; " +
				"version-without-record " + here + " 1.0.0", false},
		"listing is gone": {func(t *testing.T, d data, _ registry.MirrorVersion) { d.item(t, here, "listing", nil) },
			"listing " + here, true},
		"entry is gone": {func(t *testing.T, d data, _ registry.MirrorVersion) { d.item(t, "catalog/mirror", here, nil) },
			"catalog-entry " + here, true},
		"not used": {func(t *testing.T, d data, _ registry.MirrorVersion) {
			d.put(t, mirroredVPC.FileKey(version("1.1.0"), strings.Repeat("a", 64), "vpc.tar.gz"))
		}, "object-without-version " + here + " 1.1.0", false},
		"refused": {func(t *testing.T, d data, _ registry.MirrorVersion) { d.refuseModule(t, "1.0.0") }, "", false},
		"refusal without entry": {func(t *testing.T, d data, _ registry.MirrorVersion) {
			d.refuseModule(t, "1.0.0")
			d.forget(t, of(registry.AuditRefuseContent, here, "1.0.0"))
		}, "audit-missing " + here, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := restored(t)
			test.corrupt(t, d, d.mirrorModule(t, "1.0.0", "some", "aaa", false))
			report := d.verified(t)
			want := []string{}
			if test.want != "" {
				want = strings.Split(test.want, "; ")
			}
			if diff := cmp.Diff(want, summary(report)); diff != "" {
				t.Fatalf("(-want +got):\n%s\n%+v", diff, report.Findings)
			}
			for _, f := range report.Findings {
				texts.Text(t, varying.ReplaceAllString(f.Detail+"\n  fix: "+f.Fix+"\n", "…"))
			}
			if !test.repaired {
				return
			}
			d.verified(t, d.documenting)
			if report := d.verified(t); len(report.Findings) > 0 {
				t.Errorf("after the repair: %+v", report.Findings)
			}
		})
	}
}

// The objects of content that was replaced belong to no version.
func TestReplacedModule(t *testing.T) {
	t.Parallel()
	d := restored(t)
	before := d.mirrorModule(t, "1.0.0", "some", "aaa", false)
	d.mirrorModule(t, "1.0.0", "other", "bbb", true)
	report := d.verified(t)
	if len(report.Findings) != 1 {
		t.Fatalf("%d findings, want 1: %+v", len(report.Findings), report.Findings)
	}
	f := report.Findings[0]
	if f.Object != before.Module.Object {
		t.Errorf("the finding is about %s, want %s", f.Object, before.Module.Object)
	}
	if !f.Note {
		t.Errorf("it is a fault: %s", f.Detail)
	}
}
