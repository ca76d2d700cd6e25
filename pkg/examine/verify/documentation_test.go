package verify_test

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/examine/verify"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/publish/inspection"
	"github.com/larder-registry/larder/pkg/registry"
)

// documenting repairs documentation.
func (d data) documenting(v *verify.Verifier) {
	documenter := &publish.Documenter{
		Catalog: d.catalog, Objects: d.store, Inspector: inspection.InThisProcess{}, By: "ada",
	}
	v.Repair = true
	v.Document = func(ctx context.Context, a registry.Address, n registry.Version) error {
		_, err := documenter.Rebuild(ctx, a, n)
		return err
	}
}

// undocumented removes the documentation of a version.
func (d data) undocumented(t *testing.T) {
	t.Helper()
	docs := d.module(t).Docs.Object
	d.item(t, vpc.Path(), "version/1.0.0", record(t, func(r *registry.ModuleVersion) { r.Docs = nil }))
	d.object(t, docs, nil)
}

// numbers matches digests and sizes, which change with the content of the
// documentation.
var numbers = regexp.MustCompile(`\b([0-9a-f]{64}|[0-9]{2,})\b`)

func cut(b []byte) []byte { return b[:len(b)-1] }

// Documentation that is missing or damaged is reported. A repair makes it again
// from the archive. A damaged object cannot be replaced, so it remains as a
// note.
func TestDocumentation(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	const (
		found  = "documentation modules/acme/vpc/aws 1.0.0"
		unused = "object-without-version modules/acme/vpc/aws 1.0.0 (note)"
	)
	for _, test := range []struct {
		name    string
		corrupt func(*testing.T, data)
		want    string
		quick   bool // a quick run finds it too
		left    []string
	}{
		{"never made", func(t *testing.T, d data) { d.undocumented(t) }, found + " (note)", true, []string{}},
		{"missing", func(t *testing.T, d data) { d.object(t, d.module(t).Docs.Object, nil) }, found, true, []string{}},
		{"cut short", func(t *testing.T, d data) { d.object(t, d.module(t).Docs.Object, cut) }, found, true, []string{unused}},
		{"other bytes", func(t *testing.T, d data) { d.object(t, d.module(t).Docs.Object, flip) }, found, false,
			[]string{unused}},
		{"files missing", func(t *testing.T, d data) { d.object(t, d.module(t).FilesZip.Object, nil) }, found, true, []string{}},
		{"files of other bytes", func(t *testing.T, d data) { d.object(t, d.module(t).FilesZip.Object, flip) }, found, false,
			[]string{unused}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := restored(t)
			test.corrupt(t, d)
			first := d.verified(t)
			if diff := cmp.Diff([]string{test.want}, summary(first)); diff != "" {
				t.Fatalf("(-want +got)\n%s", diff)
			}
			texts.Text(t, numbers.ReplaceAllString(first.Findings[0].Detail, "N")+"\n  fix: "+first.Findings[0].Fix+"\n")
			quick := d.verified(t, func(v *verify.Verifier) { v.Quick = true })
			if got := len(quick.Findings) > 0; got != test.quick {
				t.Errorf("a quick run finds %q", summary(quick))
			}
			if got := summary(d.verified(t, repairing)); !slices.Equal(got, []string{test.want}) {
				t.Errorf("a repair without Document: %q", got)
			}
			repaired := d.verified(t, d.documenting)
			if diff := cmp.Diff([]string{test.want}, summary(repaired)); diff != "" {
				t.Errorf("repairing: (-want +got)\n%s", diff)
			}
			if faults := repaired.Faults(); faults != 0 {
				t.Errorf("the repair leaves %d faults", faults)
			}
			if !repaired.Findings[0].Repaired {
				t.Error("the finding is not marked as repaired")
			}
			for _, rest := range []bool{false, true} {
				left := d.verified(t, func(v *verify.Verifier) { v.AtRest = rest })
				if diff := cmp.Diff(test.left, summary(left)); diff != "" {
					t.Errorf("after the repair: (-want +got)\n%s", diff)
				}
			}
		})
	}
}

// If the archive is damaged too, the fault remains and has the reason.
func TestDocumentationWithoutArchive(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	for _, test := range []struct {
		name   string
		change func([]byte) []byte
		also   string
	}{
		{"missing", nil, "version-without-object modules/acme/vpc/aws 1.0.0"},
		{"damaged", flip, "sha256 modules/acme/vpc/aws 1.0.0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := restored(t)
			d.object(t, d.module(t).Object, test.change)
			d.object(t, d.module(t).Docs.Object, nil)
			report := d.verified(t, d.documenting)
			if diff := cmp.Diff([]string{"documentation modules/acme/vpc/aws 1.0.0", test.also}, summary(report)); diff != "" {
				t.Fatalf("(-want +got)\n%s", diff)
			}
			if faults := report.Faults(); faults != 2 {
				t.Errorf("%d faults, want 2", faults)
			}
			texts.Text(t, numbers.ReplaceAllString(report.Findings[0].Detail, "N")+"\n")
		})
	}
}

// A repair ends with an error that concerns the registry and not the version.
func TestDocumentationFails(t *testing.T) {
	t.Parallel()
	d := restored(t)
	d.object(t, d.module(t).Docs.Object, nil)
	v := verify.Verifier{Catalog: d.catalog, Objects: d.store, Repair: true}
	v.Document = func(context.Context, registry.Address, registry.Version) error { return errDead }
	if _, err := v.Run(t.Context()); !errors.Is(err, errDead) {
		t.Errorf("got error %v, want that of Document", err)
	}
}
