package publishapi_test

import (
	"archive/tar"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// The registry itself refuses a module that no client loads. The record of a copy has
// notes.
func TestUnloadable(t *testing.T) {
	t.Parallel()
	d := open(t)
	token := d.token(t, both)
	files := map[string][]byte{"vpc.tar.gz": tarball(t, "varible \"x\" {}\nmodule \"a\" {\n  source = \"../a\"\n}\n",
		tar.Header{Name: "main.tf", Typeflag: tar.TypeReg})}
	step, last := d.publish(t, token, "modules/acme/vpc/aws/1.0.0", announce(files), files)
	if step != "inspect" {
		t.Errorf("refused at step %q, want the inspection", step)
	}
	last.refused(t, golden.New(t), http.StatusBadRequest)
	copied := announce(files)
	copied.CopiedFrom = &registry.CopiedFrom{Source: "registry.example.com/acme/vpc/aws"}
	if step, last := d.publish(t, token, "modules/acme/vpc/aws/1.0.0", copied, files); last.status != http.StatusOK {
		t.Errorf("refused at step %q: %d %s", step, last.status, last.body)
	}
	record, err := d.catalog.Modules.Get(t.Context(), vpcAddress, v1)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"main.tf:1:1: there is no block varible. Did you mean variable?",
		"main.tf:3 calls ../a, which is outside of the published folder",
	}
	if diff := cmp.Diff(want, record.Notes); diff != "" {
		t.Errorf("the notes (-want +got):\n%s", diff)
	}
}

// The registry itself finds the secrets of a module. It accepts them in the
// paths that the publisher allows, in a copy, and in a published version.
func TestSecrets(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	d := open(t)
	token := d.token(t, both)
	secret := registry.FormatToken([32]byte{1})
	files := map[string][]byte{"vpc.tar.gz": tarball(t, "locals {\n  a = \""+secret+"\"\n}\n",
		tar.Header{Name: "main.tf", Typeflag: tar.TypeReg}, tar.Header{Name: "modules/a/b.tf", Typeflag: tar.TypeReg})}
	at := func(version string) string { return "modules/acme/vpc/aws/" + version }
	allowing := func(paths ...string) protocol.Announcement {
		a := announce(files)
		a.AllowSecrets = paths
		return a
	}
	t.Run("refused", func(t *testing.T) {
		for name, a := range map[string]protocol.Announcement{"none": allowing(), "one": allowing("main.tf")} {
			t.Run(name, func(t *testing.T) {
				step, last := d.publish(t, token, at("1.0.0"), a, files)
				if step != "inspect" {
					t.Errorf("refused at step %q, want the inspection", step)
				}
				if strings.Contains(string(last.body), secret) {
					t.Errorf("the error has the secret: %s", last.body)
				}
				last.refused(t, texts, http.StatusBadRequest)
			})
		}
		for name, path := range map[string]string{"outside": "../a", "everything": ".", "empty": ""} {
			t.Run(name, func(t *testing.T) {
				step, last := d.publish(t, token, at("1.0.0"), allowing(path), files)
				if step != "begin" {
					t.Errorf("refused at step %q, want the first", step)
				}
				last.refused(t, texts, http.StatusBadRequest)
			})
		}
	})
	copied := announce(files)
	copied.CopiedFrom = &registry.CopiedFrom{Source: "registry.example.com/acme/vpc/aws"}
	for _, accepted := range []struct {
		version string
		a       protocol.Announcement
	}{
		{"1.0.0", allowing("main.tf", "modules")},
		{"1.0.0", allowing()}, // it is published already
		{"1.1.0", copied},
	} {
		step, last := d.publish(t, token, at(accepted.version), accepted.a, files)
		if last.status != http.StatusOK {
			t.Errorf("%s: refused at step %q: %d %s", accepted.version, step, last.status, last.body)
		}
	}
	allowed := make(map[string][]string)
	for e, err := range d.catalog.Audit(t.Context(), time.Now().Add(-time.Hour)) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Action == registry.AuditPublish {
			allowed[e.Version.String()+" "+e.Detail] = e.AllowedSecrets
		}
	}
	if diff := cmp.Diff(map[string][]string{
		"1.0.0 ": {"main.tf", "modules"}, "1.1.0 copied from registry.example.com/acme/vpc/aws": nil,
	}, allowed); diff != "" {
		t.Errorf("allowed secrets in the audit trail (-want +got):\n%s", diff)
	}
}
