package publishapi_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/larder-registry/larder/internal/testkit/keys"
	"github.com/larder-registry/larder/pkg/content/signing"
	"github.com/larder-registry/larder/pkg/registry"
)

// tarball packs headers with content. It is not compressed, so that its bytes
// do not depend on the compressor.
func tarball(t testing.TB, content string, headers ...tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	zipped, err := gzip.NewWriterLevel(&out, gzip.NoCompression)
	if err != nil {
		t.Fatal(err)
	}
	packed := tar.NewWriter(zipped)
	for _, h := range headers {
		if h.Typeflag == tar.TypeReg && h.Size == 0 {
			h.Size = int64(len(content))
		}
		h.Mode = 0o644
		if err := packed.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			_, _ = packed.Write([]byte(content))
		}
	}
	_ = packed.Close() // which fails if there is less content than a header declares
	if err := zipped.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// vpc returns a module with a value.
func vpc(t testing.TB, value int) map[string][]byte {
	t.Helper()
	return map[string][]byte{
		"vpc.tar.gz": tarball(
			t, fmt.Sprintf("output \"x\" { value = %d }\n", value), tar.Header{Name: "main.tf", Typeflag: tar.TypeReg},
		),
	}
}

// signer and stranger are keys for all tests, because creating one is slow.
var (
	signer   = sync.OnceValues(func() (keys.SigningKey, error) { return keys.NewSigningKey("Ed25519", 0) })
	stranger = sync.OnceValues(func() (keys.SigningKey, error) { return keys.NewSigningKey("Ed25519", 0) })
)

// addKey adds a key to a namespace, and returns its id.
func (d *testAPI) addKey(t testing.TB, namespace string, of func() (keys.SigningKey, error)) string {
	t.Helper()
	pair, err := of()
	if err != nil {
		t.Fatal(err)
	}
	key, err := signing.ParseKey(pair.Public, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.catalog.AddSigningKey(t.Context(), namespace, key); err != nil {
		t.Fatal(err)
	}
	return key.ID
}

// release has the files of a provider's release by their names.
type release map[string][]byte

const (
	linux    = "linux_amd64"
	darwin   = "darwin_arm64"
	manifest = `{"version": 1, "metadata": {"protocol_versions": ["5.0", "6.0"]}}`
)

// named returns the name of a file of version 1.0.0.
func named(end string) string { return "terraform-provider-inventory_1.0.0_" + end }

// zipped returns a zip whose program runs on no machine. It is not compressed,
// so that its bytes are always the same.
func zipped(t testing.TB, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		header := &zip.FileHeader{Name: name, Method: zip.Store}
		header.SetMode(0o755)
		w, err := z.CreateHeader(header)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(files[name])); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// bomb returns a zip of a program whose declared size is much larger than its
// content.
func bomb(t testing.TB) []byte {
	t.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	header := &zip.FileHeader{
		Name: "terraform-provider-inventory", Method: zip.Deflate, UncompressedSize64: 1 << 30, CompressedSize64: 100,
	}
	header.SetMode(0o755)
	w, err := z.CreateRaw(header)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// program returns a zip of a program that contains a text.
func program(t testing.TB, text string) []byte {
	t.Helper()
	return zipped(t, map[string]string{"terraform-provider-inventory_v1.0.0": text})
}

// newRelease returns a signed release for two platforms.
func newRelease(t testing.TB) release {
	t.Helper()
	r := release{
		named(linux + ".zip"): program(t, "for Linux"), named(darwin + ".zip"): program(t, "for macOS"),
		named("manifest.json"): []byte(manifest),
	}
	r.sign(t, signer)
	return r
}

// sums creates SHA256SUMS for the files.
func (r release) sums() {
	var lines strings.Builder
	for _, name := range slices.Sorted(maps.Keys(r)) {
		if !strings.Contains(name, "SHA256SUMS") {
			fmt.Fprintf(&lines, "%s  %s\n", sum(r[name]), name)
		}
	}
	r[named("SHA256SUMS")] = []byte(lines.String())
}

// sign creates SHA256SUMS for the files, and signs it.
func (r release) sign(t testing.TB, by func() (keys.SigningKey, error)) {
	t.Helper()
	r.sums()
	r.resign(t, by)
}

// resign signs SHA256SUMS as it is.
func (r release) resign(t testing.TB, by func() (keys.SigningKey, error)) {
	t.Helper()
	key, err := by()
	if err != nil {
		t.Fatal(err)
	}
	if r[named("SHA256SUMS.sig")], _, err = signing.Sign(
		key.Private, nil, r[named("SHA256SUMS")], time.Now(),
	); err != nil {
		t.Fatal(err)
	}
}

// clone is another release of the same files.
func (r release) clone() release { return maps.Clone(r) }

var (
	v1         = registry.Version{Major: 1}
	vpcAddress = registry.Module{Namespace: "acme", Name: "vpc", System: "aws"}
	inventory  = registry.Provider{Namespace: "acme", Type: "inventory"}
)

const (
	module1   = "modules/acme/vpc/aws/1.0.0"
	provider1 = "providers/acme/inventory/1.0.0"
	both      = "publish:modules/acme/** publish:providers/acme/**"
)

// refusedModule is an archive that no client could use, or that would harm one.
type refusedModule struct {
	name   string
	packed []byte
}

func refusedModules(t testing.TB) []refusedModule {
	t.Helper()
	const config = "output \"x\" { value = 1 }\n"
	file := func(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeReg} }
	main := file("main.tf")
	good := tarball(t, config, main)
	with := func(h tar.Header) []byte { return tarball(t, config, main, h) }
	return []refusedModule{
		{"a path above", with(file("../evil.tf"))},
		{"a path above, further down", with(file("a/../../evil.tf"))},
		{"an absolute path", with(file("/etc/evil"))},
		{"a folder above", with(tar.Header{Name: "../evil/", Typeflag: tar.TypeDir})},
		{"a link out", with(tar.Header{Name: "evil", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"})},
		{"a hard link", with(tar.Header{Name: "evil", Typeflag: tar.TypeLink, Linkname: "main.tf"})},
		{"a device", with(tar.Header{Name: "evil", Typeflag: tar.TypeChar})},
		{"a file twice", with(main)},
		{"a syntax error", tarball(t, "output \"x\" {\n", main)},
		{"no module", tarball(t, "hello", file("README.md"))},
		{"no files", tarball(t, "")},
		{"a module further down", tarball(t, config, file("vpc/main.tf"))},
		{"a tar bomb", with(tar.Header{Name: "big", Typeflag: tar.TypeReg, Size: 2 << 30})},
		{"truncated", good[:len(good)/2]},
		{"without its checksum", good[:len(good)-4]},
		{"no gzip", []byte("hello")},
		{"a zip", program(t, "x")},
	}
}
