package providers_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/providers"
	"github.com/larder-registry/larder/pkg/registry"
)

var inventory = registry.Provider{Namespace: "acme", Type: "inventory"}

func version(t testing.TB, text string) registry.Version {
	t.Helper()
	v, err := registry.ParseVersion(text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func pkg(t testing.TB, platform, sum string) registry.ProviderPackage {
	t.Helper()
	p, err := registry.ParsePlatform(platform)
	if err != nil {
		t.Fatal(err)
	}
	name := "terraform-provider-inventory_1.0.0_" + platform + ".zip"
	sum = strings.Repeat(sum, 64)
	return registry.ProviderPackage{
		Platform: p, Filename: name, H1: "h1:" + sum[:43] + "=",
		StoredFile: registry.StoredFile{
			Object: "providers/acme/inventory/1.0.0/" + sum + "/" + name, SHA256: sum, Size: 1234,
		},
	}
}

// fake is a catalog of one provider, and its signer. It counts calls.
type fake struct {
	record  registry.ProviderVersion
	listing protocol.ProviderListing
	keys    []registry.SigningKey
	reads   int
	err     error
	keysErr error
	signErr error
}

func (f *fake) Listing(_ context.Context, p registry.Provider) (protocol.Document, error) {
	f.reads++
	if f.err != nil {
		return nil, f.err
	}
	if p != inventory {
		return nil, registry.ErrNotFound
	}
	return protocol.Compress(f.listing)
}

func (f *fake) Get(_ context.Context, p registry.Provider, v registry.Version) (registry.ProviderVersion, error) {
	f.reads++
	if f.err != nil {
		return registry.ProviderVersion{}, f.err
	}
	if p != inventory || v != f.record.Version {
		return registry.ProviderVersion{}, registry.ErrNotFound
	}
	return f.record, nil
}

func (f *fake) SigningKeys(_ context.Context, namespace string) ([]registry.SigningKey, error) {
	f.reads++
	if namespace != inventory.Namespace {
		return nil, errors.New("another namespace")
	}
	return f.keys, f.keysErr
}

func (f *fake) SignGet(_ context.Context, key string) (string, error) {
	return "https://bucket.example.com/" + key + "?X-Amz-Signature=00ff&x=y", f.signErr
}

func newFake(t testing.TB) *fake {
	t.Helper()
	f := &fake{record: registry.ProviderVersion{
		Version: version(t, "1.0.0"), Protocols: []string{"5.0", "6.0"}, SigningKey: "BBBBBBBBBBBBBBBB",
		Packages: []registry.ProviderPackage{pkg(t, "darwin_arm64", "1"), pkg(t, "linux_amd64", "2")},
		Sums: registry.StoredFile{
			Object: "providers/acme/inventory/1.0.0/3/terraform-provider-inventory_1.0.0_SHA256SUMS",
		},
		Signature: registry.StoredFile{
			Object: "providers/acme/inventory/1.0.0/4/terraform-provider-inventory_1.0.0_SHA256SUMS.sig",
		},
	}}
	beta := f.record
	beta.Version = version(t, "2.0.0-beta.1")
	beta.Packages = beta.Packages[1:]
	f.listing = protocol.ProviderListing{
		Versions: []protocol.ListedProvider{protocol.ListProvider(beta), protocol.ListProvider(f.record)},
	}
	for _, id := range []string{"A", "B", "C"} {
		f.keys = append(
			f.keys,
			registry.SigningKey{
				ID:         strings.Repeat(id, 16),
				ASCIIArmor: "-----BEGIN PGP PUBLIC KEY BLOCK-----\n" + id + "\n-----END PGP PUBLIC KEY BLOCK-----\n",
			},
		)
	}
	return f
}

func (f *fake) get(t testing.TB, path string) (int, http.Header, string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	w := httptest.NewRecorder()
	providers.New(f, f, f).ServeHTTP(w, r)
	body := w.Body.String()
	if w.Header().Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		body = string(text)
	}
	return w.Code, w.Header(), body
}

const downloadPath = "/v1/providers/acme/inventory/1.0.0/download/linux/amd64"

// Responses equal the golden files, which were reviewed.
func TestGolden(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		path   string
		change func(*fake)
	}{
		"versions": {"/v1/providers/acme/inventory/versions", func(*fake) {}},
		"versions-warnings": {"/v1/providers/acme/inventory/versions", func(f *fake) {
			f.listing.Warnings = []string{"Provider acme/inventory 1.0.0 is deprecated: use <2.0.0>"}
		}},
		"download":        {downloadPath, func(*fake) {}},
		"download-shared": {downloadPath, func(f *fake) { f.record.Packages[0].H1 = f.record.Packages[1].H1 }},
		"download-no-key": {downloadPath, func(f *fake) { f.keys = nil }},
		"download-expired": {downloadPath, func(f *fake) {
			f.keys[1].ExpiresAt, f.keys[2].ExpiresAt = time.Unix(1, 0), time.Unix(1, 0)
		}},
	} {
		f := newFake(t)
		test.change(f)
		status, header, body := f.get(t, test.path)
		if status != 200 || header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %v", name, status, header)
		}
		var indented bytes.Buffer
		if err := json.Indent(&indented, []byte(body), "", "  "); err != nil {
			t.Fatal(err)
		}
		golden.Equal(t, filepath.Join("testdata", name+".golden.json"), indented.Bytes())
	}
}

func TestStatuses(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]int{
		downloadPath: 200,
		"/v1/providers/acme/inventory/1.0/download/linux/amd64":      200, // Renovate and people write versions like this
		"/v1/providers/acme/inventory/1.0.0/download/linux/arm64":    404,
		"/v1/providers/acme/inventory/1.0.1/download/linux/amd64":    404,
		"/v1/providers/acme/inventory/v1.0.0/download/linux/amd64":   400,
		"/v1/providers/acme/inventory/1.0.0/download/linux/AMD64":    400,
		"/v1/providers/acme/inventory/1.0.0/download/linux_x/amd64":  400,
		"/v1/providers/acme/other/versions":                          404,
		"/v1/providers/Acme/inventory/versions":                      400,
		"/v1/providers/acme/terraform-provider-inventory/versions":   400,
		"/v1/providers/acme/inv.entory/versions":                     400,
		"/v1/providers/-/inventory/versions":                         400,
		"/v1/providers/acme/inventory":                               404, // Dependabot requests this
		"/v1/providers/acme/inventory/1.0.0":                         404,
		"/v1/providers/acme/inventory/1.0.0/download":                404,
		"/v1/providers/acme/inventory/1.0.0/download/linux/amd64/x":  404,
		"/v1/providers/acme/inventory/99999999999999999999/download": 404,
	} {
		if status, _, body := newFake(t).get(t, path); status != want {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	for name, change := range map[string]func(*fake){
		"a table":    func(f *fake) { f.err = registry.ErrUnavailable },
		"the keys":   func(f *fake) { f.keysErr = registry.ErrUnavailable },
		"the signer": func(f *fake) { f.signErr = registry.ErrUnavailable },
	} {
		f := newFake(t)
		change(f)
		if status, _, body := f.get(t, downloadPath); status != 503 || strings.Contains(body, "bucket") {
			t.Errorf("without %s: %d %s", name, status, body)
		}
	}
}

// A download has three presigned URLs, so its response must not be cached. It
// takes two reads. The listing takes one.
func TestReads(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	if _, header, _ := f.get(t, downloadPath); header.Get("Cache-Control") != "no-store" || f.reads != 2 {
		t.Errorf("%d reads, %v", f.reads, header)
	}
	f.reads = 0
	if _, header, _ := f.get(
		t, "/v1/providers/acme/inventory/versions",
	); header.Get("Cache-Control") != "private, no-cache" || f.reads != 1 {
		t.Errorf("%d reads, %v", f.reads, header)
	}
}
