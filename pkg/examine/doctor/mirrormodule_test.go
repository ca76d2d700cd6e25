package doctor_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/content/archive"
	"github.com/larder-registry/larder/pkg/examine/doctor"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/registry"
)

// mirroredVPC is the mirrored module of the fixture.
var mirroredVPC = registry.MirrorAddress{
	Hostname: "registry.opentofu.org", Namespace: "acme", Name: "vpc", System: "aws",
}

// mirrorModule mirrors version 1.0.0 of a module with the files of a folder.
func mirrorModule(t *testing.T, data *local.Data, dir string) {
	t.Helper()
	var packed bytes.Buffer
	file := filepath.Join(t.TempDir(), "vpc.tar.gz")
	_, err := archive.Pack(t.Context(), dir, archive.Options{}, &packed)
	if err == nil {
		err = os.WriteFile(file, packed.Bytes(), 0o600)
	}
	p := publish.Publisher{Catalog: data.Catalog, Objects: data.Objects}
	m := publish.MirrorModule{Version: registry.Version{Major: 1}, Path: file, Size: int64(packed.Len())}
	m.Found.SHA256 = fmt.Sprintf("%x", sha256.Sum256(packed.Bytes()))
	m.Pin = registry.ModulePin{Source: "https://github.com/acme/terraform-aws-vpc", H1: "h1:x"}
	var record registry.MirrorVersion
	if err == nil {
		record, err = p.StoreMirrorModule(t.Context(), mirroredVPC, m)
	}
	if err == nil {
		_, _, err = data.Catalog.Mirror.Add(t.Context(), mirroredVPC, record, "ada")
	}
	if err != nil {
		t.Fatal(err)
	}
}

// The doctor follows a mirrored module to the end of its archive. If the mirror does
// not offer a version, it explains why.
func TestMirroredModule(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	const (
		described = "/v1/mirror-modules/registry.opentofu.org/acme/vpc/aws"
		listed    = "/v1/modules-of/registry.opentofu.org/acme/vpc/aws/versions"
		download  = "/v1/modules-of/registry.opentofu.org/acme/vpc/aws/1.0.0/download"
		address   = `{"hostname":"registry.opentofu.org","namespace":"acme","name":"vpc","provider":"aws",`
		tooNew    = `{"version":"1.1.0","state":"too new","available_at":"2031-11-29T00:00:00Z"}`
		changed   = `{"version":"1.1.0","state":"refused","reason":"the origin has changed it: it was commit a, and is now b",` +
			`"changed_to":{"source":"https://github.com/acme/terraform-aws-vpc","commit":"b"}}`
		failed = `{"version":"1.0.0","state":"failed","reason":"the archive has a link"}`
		pull   = `,"pull":{"mode":"closed","on_request":1,"pending":[]}`
	)
	versions := func(all ...string) string { return address + `"versions":[` + strings.Join(all, ",") + `]` }
	for name, test := range map[string]struct {
		// without are paths that are 404. description is what the metadata API answers.
		without     []string
		description string
		outcome     doctor.Outcome // of the worst step
	}{
		"offered":                 {nil, "", doctor.OK},
		"a newer one too new":     {nil, versions(tooNew) + "}", doctor.Warning},
		"a newer one changed":     {nil, versions(changed) + "}", doctor.Warning},
		"too new":                 {[]string{listed}, versions(tooNew) + "}", doctor.Wrong},
		"changed":                 {[]string{listed}, versions(changed) + "}", doctor.Wrong},
		"denied":                  {[]string{listed}, versions() + `,"denied":"no rule of the mirror policy allows it"}`, doctor.Wrong},
		"nothing":                 {[]string{listed}, versions() + "}", doctor.Wrong},
		"content that is refused": {[]string{download}, versions(failed) + pull + "}", doctor.Wrong},
		"origin that is down":     {[]string{listed}, versions() + strings.Replace(pull, "1", `0,"problem":"the origin did not answer in time"`, 1) + "}", doctor.Wrong},
		"registry that fails":     {[]string{listed}, versions() + "}", doctor.Wrong},
		"not in time":             {[]string{download}, versions(strings.Replace(failed, "failed", "on request", 1)) + pull + "}", doctor.Wrong},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, setUp{breaks: func(host string, next http.Handler) http.Handler {
				missing := http.StatusNotFound
				if name == "origin that is down" || name == "registry that fails" {
					missing = http.StatusServiceUnavailable
				}
				for _, path := range test.without {
					next = at(path, missing, "application/json", "{}")(host, next)
				}
				if test.description != "" {
					next = at(described, http.StatusOK, "application/json", test.description)(host, next)
				}
				return next
			}})
			p.doctor.Mirror, p.doctor.Module, p.doctor.Provider = &mirroredVPC, nil, nil
			report := p.examine(t)
			worst := doctor.OK
			for _, s := range report.Steps {
				if s.Outcome == doctor.Warning || s.Outcome == doctor.Wrong {
					worst = s.Outcome
					record(t, texts, s, p.replace(t))
				}
			}
			if worst != test.outcome {
				t.Errorf("the outcome is %s, want %s\n%s", worst, test.outcome, text(report))
			}
			if name == "offered" && !strings.Contains(report.Configuration, "/v1/modules-of/registry.opentofu.org/") {
				t.Errorf("there is no host block:\n%s", text(report))
			}
		})
	}
}
