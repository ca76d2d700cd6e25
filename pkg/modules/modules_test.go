package modules_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
	"github.com/larder-registry/larder/pkg/modules"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

var vpc = registry.Module{Namespace: "acme", Name: "vpc", System: "aws"}

const sum = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

// fake is a catalog of one module, and its signer. It counts calls.
type fake struct {
	versions []registry.Version
	reads    int
	signed   int
	err      error
	signErr  error
}

func (f *fake) Listing(_ context.Context, m registry.Module) (protocol.Document, error) {
	f.reads++
	if f.err != nil {
		return nil, f.err
	}
	if m != vpc {
		return nil, registry.ErrNotFound
	}
	var listing protocol.ModuleListing
	for _, v := range f.versions {
		listing.Versions = append(listing.Versions, protocol.ListedModule{Version: v})
	}
	return protocol.Compress(listing)
}

func (f *fake) Get(_ context.Context, m registry.Module, v registry.Version) (registry.ModuleVersion, error) {
	f.reads++
	if f.err != nil {
		return registry.ModuleVersion{}, f.err
	}
	for _, have := range f.versions {
		if m == vpc && v == have {
			return registry.ModuleVersion{Version: v, Object: m.ArchiveKey(v, sum), SHA256: sum}, nil
		}
	}
	return registry.ModuleVersion{}, registry.ErrNotFound
}

func (f *fake) SignGet(_ context.Context, key string) (string, error) {
	f.signed++
	u := url.URL{
		Scheme: "https", Host: "bucket.example.com", Path: key, RawQuery: "X-Amz-Expires=3600&X-Amz-Signature=00ff",
	}
	return u.String(), f.signErr
}

func versions(t testing.TB, texts ...string) []registry.Version {
	t.Helper()
	var vs []registry.Version
	for _, text := range texts {
		v, err := registry.ParseVersion(text)
		if err != nil {
			t.Fatal(err)
		}
		vs = append(vs, v)
	}
	return vs
}

func ask(t testing.TB, h http.Handler, path string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// compare compares a complete response with a golden file.
func compare(t *testing.T, name string, w *httptest.ResponseRecorder) {
	t.Helper()
	var got bytes.Buffer
	fmt.Fprintf(&got, "%d\n", w.Code)
	if err := w.Header().WriteSubset(&got, nil); err != nil {
		t.Fatal(err)
	}
	got.WriteString("\n" + w.Body.String())
	text := strings.ReplaceAll(got.String(), "\r\n", "\n")
	golden.Equal(t, filepath.Join("testdata", name+".golden"), []byte(text))
}

func TestResponses(t *testing.T) {
	t.Parallel()
	f := &fake{versions: versions(t, "2.0.0-rc.1", "1.10.0", "1.9.0", "1.0.0+build.5", "1.0.0")}
	h := modules.New(f, f)
	for name, test := range map[string]struct {
		path   string
		header []string
	}{
		"versions":                {"/v1/modules/acme/vpc/aws/versions", nil},
		"download":                {"/v1/modules/acme/vpc/aws/1.10.0/download", nil},
		"download-short-version":  {"/v1/modules/acme/vpc/aws/1.0/download", nil},
		"download-build-metadata": {"/v1/modules/acme/vpc/aws/1.0.0+build.5/download", nil},
		"download-any":            {"/v1/modules/acme/vpc/aws/1.10.0/download", []string{"Accept", "*/*"}},
		"download-json": {
			"/v1/modules/acme/vpc/aws/1.10.0/download", []string{"Accept", "text/html, application/json;q=0.9"},
		},
		"versions-unknown":          {"/v1/modules/acme/other/aws/versions", nil},
		"versions-other-case":       {"/v1/modules/Acme/vpc/aws/versions", nil},
		"versions-malformed":        {"/v1/modules/-acme/vpc/aws/versions", nil},
		"download-unknown":          {"/v1/modules/acme/vpc/aws/9.9.9/download", nil},
		"download-tag":              {"/v1/modules/acme/vpc/aws/v1.10.0/download", nil},
		"download-tag-unknown":      {"/v1/modules/acme/vpc/aws/v9.9.9/download", nil},
		"download-malformed":        {"/v1/modules/acme/vpc/aws/latest/download", nil},
		"another-path-of-the-world": {"/v1/modules/acme/vpc/aws", nil},
	} {
		compare(t, name, ask(t, h, test.path, test.header...))
	}
}

// go-getter removes archive and checksum, and sorts the remaining query. The
// result is the signed URL.
func TestLocation(t *testing.T) {
	t.Parallel()
	f := &fake{versions: versions(t, "1.0.0")}
	w := ask(t, modules.New(f, f), "/v1/modules/acme/vpc/aws/1.0.0/download")
	location := w.Header().Get("X-Terraform-Get")
	signed, _ := f.SignGet(t.Context(), vpc.ArchiveKey(f.versions[0], sum))
	if !strings.HasPrefix(location, signed+"&") {
		t.Errorf("the location does not begin with what was signed: %s", location)
	}
	u, err := url.Parse(location)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	if q.Get("archive") != "tar.gz" || q.Get("checksum") != "sha256:"+sum {
		t.Errorf("location is %s", location)
	}
	q.Del("archive")
	q.Del("checksum")
	u.RawQuery = q.Encode()
	if u.String() != signed {
		t.Errorf("what remains is %s, signed was %s", u, signed)
	}
	if !u.IsAbs() || !strings.HasSuffix(u.Path, ".tar.gz") {
		t.Errorf("not an absolute URL of an archive: %s", u)
	}
}

func TestOneReadEach(t *testing.T) {
	t.Parallel()
	for path, signed := range map[string]int{
		"/v1/modules/acme/vpc/aws/versions":       0,
		"/v1/modules/acme/vpc/aws/1.0.0/download": 1,
	} {
		f := &fake{versions: versions(t, "1.0.0")}
		ask(t, modules.New(f, f), path)
		if f.reads != 1 || f.signed != signed {
			t.Errorf("%s: %d reads, %d signatures", path, f.reads, f.signed)
		}
	}
	// A malformed request is rejected without a lookup.
	f := &fake{}
	for _, path := range []string{
		"/v1/modules/a-/b/c/versions", "/v1/modules/a/b/C/versions", "/v1/modules/a/b/c/x/download",
		"/v1/modules/a/b/c/1.2.3.4/download",
	} {
		if w := ask(t, modules.New(f, f), path); w.Code != 400 || f.reads != 0 {
			t.Errorf("%s: %d after %d reads", path, w.Code, f.reads)
		}
	}
}

// A store that fails is not reported as "not found", which clients would
// believe, and the response has no details.
func TestStoreFails(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]int{registry.ErrUnavailable: 503, errors.New("no route to table in 10.0.0.1"): 500} {
		h := modules.New(&fake{err: err}, &fake{})
		for _, path := range []string{"/v1/modules/acme/vpc/aws/versions", "/v1/modules/acme/vpc/aws/1.0.0/download"} {
			if w := ask(t, h, path); w.Code != want || strings.Contains(w.Body.String(), "10.0.0.1") {
				t.Errorf("%v: %d %s", err, w.Code, w.Body)
			}
		}
	}
	f := &fake{versions: versions(t, "1.0.0"), signErr: errors.New("no credentials")}
	if w := ask(t, modules.New(f, f), "/v1/modules/acme/vpc/aws/1.0.0/download"); w.Code != 500 ||
		w.Header().Get("X-Terraform-Get") != "" {
		t.Errorf("signing fails: %d %v", w.Code, w.Header())
	}
}

// A download is counted for the canonical version, however it was requested.
func TestLoggedVersion(t *testing.T) {
	t.Parallel()
	f := &fake{versions: versions(t, "1.0.0")}
	for _, version := range []string{"1.0.0", "1.0", "v1.0.0"} {
		var entry requestlog.Entry
		path := "/v1/modules/acme/vpc/aws/" + version + "/download"
		r := httptest.NewRequestWithContext(requestlog.NewContext(t.Context(), &entry), http.MethodGet, path, nil)
		modules.New(f, f).ServeHTTP(httptest.NewRecorder(), r)
		if entry.Download != requestlog.ModuleDownload || entry.Version != "1.0.0" {
			t.Errorf("%s is logged as a download %q of %q", version, entry.Download, entry.Version)
		}
	}
}
