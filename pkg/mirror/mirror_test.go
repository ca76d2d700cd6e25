package mirror_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/mirror"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

var random = registry.MirrorAddress{
	Hostname: "registry.opentofu.org", Namespace: "hashicorp", Name: "random",
}

func version(t testing.TB, text string) registry.Version {
	t.Helper()
	v, err := registry.ParseVersion(text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func pkg(t testing.TB, v registry.Version, platform, sum string) registry.MirrorPackage {
	t.Helper()
	p, err := registry.ParsePlatform(platform)
	if err != nil {
		t.Fatal(err)
	}
	sum = strings.Repeat(sum, 64)
	name := random.Filename(v, p)
	return registry.MirrorPackage{ProviderPackage: registry.ProviderPackage{
		Platform: p, Filename: name, H1: "h1:" + sum[:43] + "=",
		StoredFile: registry.StoredFile{Object: random.FileKey(v, sum, name), SHA256: sum, Size: 1234},
	}}
}

// fake is a catalog of one provider, and its signer. It counts calls.
type fake struct {
	listing protocol.MirrorListing
	stored  []byte // instead of the listing
	records []registry.MirrorVersion
	reads   int
	err     error
	signErr error
}

func (f *fake) Listing(_ context.Context, p registry.MirrorAddress) (protocol.Document, error) {
	f.reads++
	switch {
	case f.err != nil:
		return nil, f.err
	case p != random:
		return nil, registry.ErrNotFound
	case f.stored != nil:
		return f.stored, nil
	}
	return protocol.Compress(f.listing)
}

func (f *fake) Get(_ context.Context, p registry.MirrorAddress, v registry.Version) (registry.MirrorVersion, error) {
	f.reads++
	at := slices.IndexFunc(f.records, func(r registry.MirrorVersion) bool { return r.Version == v })
	switch {
	case f.err != nil:
		return registry.MirrorVersion{}, f.err
	case p != random || at < 0:
		return registry.MirrorVersion{}, registry.ErrNotFound
	}
	return f.records[at], nil
}

func (f *fake) SignGet(_ context.Context, key string) (string, error) {
	if f.signErr != nil {
		return "", f.signErr
	}
	return "https://bucket.example.com/" + key + "?X-Amz-Signature=00ff&x=y", nil
}

func newFake(t testing.TB) *fake {
	t.Helper()
	f := &fake{}
	for _, text := range []string{"1.0.0", "1.10.0", "2.0.0-beta.1", "2.0.0+build.5"} {
		v := version(t, text)
		f.listing = append(f.listing, v)
		f.records = append(f.records, registry.MirrorVersion{Version: v, Packages: []registry.MirrorPackage{
			pkg(t, v, "darwin_arm64", "1"), pkg(t, v, "linux_amd64", "2"), pkg(t, v, "windows_amd64", "3"),
		}})
	}
	return f
}

// do returns the status, the header and the uncompressed body of a response.
func (f *fake) do(t testing.TB, method, path, encoding string) (int, http.Header, string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
	if encoding != "" {
		r.Header.Set("Accept-Encoding", encoding)
	}
	w := httptest.NewRecorder()
	mirror.New(f, f, nil).ServeHTTP(w, r)
	if w.Header().Get("Content-Encoding") != "gzip" {
		return w.Code, w.Header(), w.Body.String()
	}
	z, err := gzip.NewReader(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, w.Header(), string(body)
}

func (f *fake) get(t testing.TB, path string) (int, http.Header, string) {
	t.Helper()
	return f.do(t, http.MethodGet, path, "gzip")
}

const (
	of      = "/v1/mirror/registry.opentofu.org/hashicorp/random/"
	nothing = `{"archives":{}}` + "\n"
)

// Responses equal the golden files, which were reviewed.
func TestGolden(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{
		"index":          of + "index.json",
		"version":        of + "1.0.0.json",
		"version-beta":   of + "2.0.0-beta.1.json",
		"version-build":  of + "2.0.0+build.5.json",
		"version-absent": of + "3.0.0.json",
	} {
		status, header, body := newFake(t).get(t, path)
		want := httpapi.NoStore // it has presigned URLs, or will as soon as the version is mirrored
		if name == "index" {
			want = httpapi.Revalidate
		}
		if status != 200 || header.Get("Content-Type") != "application/json" || header.Get("Cache-Control") != want {
			t.Errorf("%s: %d %v", name, status, header)
		}
		var indented bytes.Buffer
		if err := json.Indent(&indented, []byte(body), "", "  "); err != nil {
			t.Fatal(err)
		}
		golden.Equal(t, filepath.Join("testdata", name+".golden.json"), indented.Bytes())
	}
}

// An empty response lets clients continue with their next source, but a 404 for
// a version document ends their search. Each request takes one read, or none
// for an impossible address.
func TestAnswers(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		path   string
		status int
		empty  bool
		reads  int
	}{
		{of + "index.json", 200, false, 1},
		{of + "1.0.0.json", 200, false, 1},
		{of + "1.0.json", 200, false, 1}, // the canonical form is looked up
		{of + "1.json", 200, false, 1},
		{of + "1.10.0.json", 200, false, 1},
		{of + "2.0.0-beta.1.json", 200, false, 1},
		{of + "2.0.0+build.5.json", 200, false, 1},
		{of + "2.0.0%2Bbuild.5.json", 200, false, 1},

		{of + "1.0.1.json", 200, true, 1},
		{of + "2.0.0.json", 200, true, 1},
		{of + "2.0.0-beta.2.json", 200, true, 1},
		{of + "v1.0.0.json", 200, true, 0},
		{of + "latest.json", 200, true, 0},
		{of + "Index.json", 200, true, 0},
		{of + "index.json.json", 200, true, 0},
		{of + "..json", 200, true, 0},
		{of + "99999999999999999999.0.0.json", 200, true, 0},

		{of + "1.0.0", 404, false, 0},
		{of + "index", 404, false, 0},
		{of + ".json", 404, false, 0},
		{of + "1.0.0.JSON", 404, false, 0},
		{of + "terraform-provider-random_1.0.0_linux_amd64.zip", 404, false, 0},
		{of, 404, false, 0},
		{of + "1.0.0.json/x", 404, false, 0},
		{"/v1/mirror/", 404, false, 0},
		{"/v1/mirror", 404, false, 0},
	} {
		f := newFake(t)
		status, header, body := f.get(t, test.path)
		if status != test.status || (body == nothing) != test.empty || f.reads != test.reads ||
			header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d after %d reads, %v: %s", test.path, status, f.reads, header, body)
		}
		if want := httpapi.NoStore; header.Get("Cache-Control") != want && !strings.HasSuffix(test.path, "/index.json") {
			t.Errorf("%s: %v", test.path, header)
		}
	}
}

// A provider that is not mirrored, or cannot be, has no index, and each version
// has no packages.
func TestOtherProviders(t *testing.T) {
	t.Parallel()
	for provider, reads := range map[string]int{
		"registry.opentofu.org/hashicorp/null":   1,
		"registry.opentofu.org/opentofu/random":  1,
		"registry.terraform.io/hashicorp/random": 1,
		"xn--bcher-kva.example/a/b":              1,
		// Another spelling is not the same provider, because access control has
		// checked this one.
		"Registry.opentofu.org/hashicorp/random": 0,
		"registry.opentofu.org/Hashicorp/random": 0,
		"registry.opentofu.org/hashicorp/RANDOM": 0,
		"XN--bcher-kva.example/a/b":              0,
		"b%C3%BCcher.example/a/b":                0,
		"registry.opentofu.org:443/a/b":          0,
		"host:8443/a/b":                          0,
		"example.com/b%C3%BCcher/b":              0, // clients accept this namespace
		"example.com/a/terraform-b":              0,
		"terraform.io/builtin/terraform":         0,
		"registry.opentofu.org/-/random":         0,
		"registry.opentofu.org/a%2Fb/c":          0,
		"registry.opentofu.org/%2e%2e/c":         0,
		"registry.opentofu.org/a/b%00":           0,
	} {
		for document, want := range map[string]int{"index.json": 404, "1.0.0.json": 200, "latest.json": 200} {
			f := newFake(t)
			status, header, body := f.get(t, "/v1/mirror/"+provider+"/"+document)
			most := reads
			if document == "latest.json" {
				most = 0
			}
			if status != want || want == 200 && body != nothing || f.reads != most ||
				header.Get("Content-Type") != "application/json" || header.Get("Cache-Control") != httpapi.NoStore {
				t.Errorf("%s/%s: %d after %d reads, %v: %s", provider, document, status, f.reads, header, body)
			}
		}
	}
}

// A failure is reported. An empty response would send clients to the origin,
// although an administrator requires the mirror.
func TestFailures(t *testing.T) {
	t.Parallel()
	broken := errors.New("it broke at https://bucket.example.com/?X-Amz-Signature=00ff")
	for name, test := range map[string]struct {
		change                  func(*fake)
		index, version, missing int
	}{
		"table unavailable":  {func(f *fake) { f.err = registry.ErrUnavailable }, 503, 503, 503},
		"table broken":       {func(f *fake) { f.err = broken }, 500, 500, 500},
		"caller is gone":     {func(f *fake) { f.err = context.Canceled }, 500, 500, 500},
		"signer unavailable": {func(f *fake) { f.signErr = registry.ErrUnavailable }, 200, 503, 200},
		"signer broken":      {func(f *fake) { f.signErr = broken }, 200, 500, 200},
	} {
		for document, want := range map[string]int{
			"index.json": test.index, "1.0.0.json": test.version, "9.0.0.json": test.missing,
		} {
			f := newFake(t)
			test.change(f)
			status, header, body := f.get(t, of+document)
			if status != want || f.reads != 1 || header.Get("Content-Type") != "application/json" {
				t.Errorf("%s: %s: %d after %d reads, %v: %s", name, document, status, f.reads, header, body)
			}
			if status == 200 {
				continue
			}
			if strings.Contains(body, "archives") || strings.Contains(body, "bucket") ||
				header.Get("Cache-Control") != httpapi.NoStore || (header.Get("Retry-After") != "") != (status == 503) {
				t.Errorf("%s: %s: %v: %s", name, document, header, body)
			}
		}
	}
	f := newFake(t)
	f.stored = []byte("no gzip")
	if status, _, body := f.do(t, http.MethodGet, of+"index.json", ""); status != 500 ||
		strings.Contains(body, "versions") {
		t.Errorf("a corrupt listing: %d %s", status, body)
	}
}

// If one package cannot be signed, the response is an error. A missing platform
// would look like one that is not mirrored.
func TestOneOfManyNotSigned(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	s := &signsSome{fake: f, most: 2}
	w := httptest.NewRecorder()
	mirror.New(f, s, nil).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, of+"1.0.0.json", nil))
	if w.Code != 500 || strings.Contains(w.Body.String(), "archives") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

type signsSome struct {
	*fake
	most int
}

func (s *signsSome) SignGet(ctx context.Context, key string) (string, error) {
	if s.most--; s.most < 0 {
		return "", errors.New("no credentials")
	}
	return s.fake.SignGet(ctx, key)
}

func TestMethods(t *testing.T) {
	t.Parallel()
	for _, document := range []string{"index.json", "1.0.0.json", "9.0.0.json"} {
		_, want, _ := newFake(t).get(t, of+document)
		f := newFake(t)
		status, header, _ := f.do(t, http.MethodHead, of+document, "gzip")
		if status != 200 || f.reads != 1 || header.Get("Content-Length") == "" {
			t.Errorf("HEAD %s: %d %v", document, status, header)
		}
		for name := range want {
			if header.Get(name) != want.Get(name) {
				t.Errorf("HEAD %s: %s is %q, not %q", document, name, header.Get(name), want.Get(name))
			}
		}
		for _, method := range []string{
			http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodOptions,
		} {
			f := newFake(t)
			if status, header, _ := f.do(t, method, of+document, ""); status != 405 || header.Get("Allow") != "GET, HEAD" ||
				f.reads != 0 {
				t.Errorf("%s %s: %d %v", method, document, status, header)
			}
		}
	}
}

// The index is stored compressed. A client that does not accept gzip gets it
// uncompressed, and caches store both separately.
func TestGzip(t *testing.T) {
	t.Parallel()
	for encoding, want := range map[string]string{
		"gzip": "gzip", "br, gzip;q=0.5": "gzip", "": "", "identity": "", "gzip;q=0": "",
	} {
		f := newFake(t)
		status, header, body := f.do(t, http.MethodGet, of+"index.json", encoding)
		if status != 200 || header.Get("Content-Encoding") != want || header.Get("Vary") != "Accept-Encoding" ||
			!strings.HasPrefix(body, `{"versions":{"1.0.0":{},"1.10.0":{},`) {
			t.Errorf("%q: %d %v: %s", encoding, status, header, body)
		}
		if _, header, body := f.do(t, http.MethodGet, of+"1.0.0.json", encoding); header.Get("Content-Encoding") != "" ||
			!json.Valid([]byte(body)) {
			t.Errorf("%q: %v: %s", encoding, header, body)
		}
	}
}

// For a client, an empty response looks like any other. The log has its reason.
// Presigned URLs are not logged.
func TestLog(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	for name, test := range map[string]struct {
		path   string
		logged bool // whether the line has an error
	}{
		"malformed version": {of + "latest.json", true},
		"another spelling":  {"/v1/mirror/Registry.opentofu.org/hashicorp/random/1.0.0.json", true},
		"built in":          {"/v1/mirror/terraform.io/builtin/terraform/1.0.0.json", true},
		"found":             {of + "1.0.0.json", false},
		"not found":         {of + "9.0.0.json", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			var log bytes.Buffer
			w := httptest.NewRecorder()
			httpapi.Wrap(
				slog.New(slog.NewJSONHandler(&log, nil)), mirror.New(f, f, nil),
			).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, test.path, nil))
			if w.Code != http.StatusOK {
				t.Fatalf("status %d", w.Code)
			}
			var line struct{ Error string }
			if err := json.Unmarshal(log.Bytes(), &line); err != nil {
				t.Fatal(err)
			}
			if (line.Error != "") != test.logged {
				t.Errorf("logged error %q, want one: %t", line.Error, test.logged)
			}
			texts.Text(t, line.Error+"\n")
			if strings.Contains(log.String(), "Signature") {
				t.Errorf("the log has a signature: %s", &log)
			}
		})
	}
}
