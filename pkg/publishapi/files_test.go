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
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/signing"
)

// tarball packs what headers say, with content behind those that have some. It is not compressed, so that its bytes are the
// same for every release of a compressor.
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
	_ = packed.Close() // which fails where there is less than a header says
	if err := zipped.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// vpc is a module that has a value.
func vpc(t testing.TB, value int) map[string][]byte {
	t.Helper()
	return map[string][]byte{"vpc.tar.gz": tarball(t, fmt.Sprintf("output \"x\" { value = %d }\n", value), tar.Header{Name: "main.tf", Typeflag: tar.TypeReg})}
}

// signer and stranger are keys that all tests sign with, since making one takes a while.
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

// release has the files of a provider's release, by their names.
type release map[string][]byte

const (
	linux    = "linux_amd64"
	darwin   = "darwin_arm64"
	manifest = `{"version": 1, "metadata": {"protocol_versions": ["5.0", "6.0"]}}`
)

// named returns what the name of a file of version 1.0.0 is.
func named(end string) string { return "terraform-provider-inventory_1.0.0_" + end }

// zipped packs what will run on no machine, stored as it is so that its bytes are always the same.
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

// bomb is a zip of a program that says it unpacks to much more than it has.
func bomb(t testing.TB) []byte {
	t.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	header := &zip.FileHeader{Name: "terraform-provider-inventory", Method: zip.Deflate, UncompressedSize64: 1 << 30, CompressedSize64: 100}
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

// program is a zip of a program with some text in it.
func program(t testing.TB, text string) []byte {
	t.Helper()
	return zipped(t, map[string]string{"terraform-provider-inventory_v1.0.0": text})
}

// newRelease is one of two platforms, whose sums are signed.
func newRelease(t testing.TB) release {
	t.Helper()
	r := release{named(linux + ".zip"): program(t, "for Linux"), named(darwin + ".zip"): program(t, "for macOS"), named("manifest.json"): []byte(manifest)}
	r.sign(t, signer)
	return r
}

// sums makes SHA256SUMS of what is there.
func (r release) sums() {
	var lines strings.Builder
	for _, name := range slices.Sorted(maps.Keys(r)) {
		if !strings.Contains(name, "SHA256SUMS") {
			fmt.Fprintf(&lines, "%s  %s\n", sum(r[name]), name)
		}
	}
	r[named("SHA256SUMS")] = []byte(lines.String())
}

// sign makes SHA256SUMS of what is there, and signs it.
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
	if r[named("SHA256SUMS.sig")], _, err = signing.Sign(key.Private, nil, r[named("SHA256SUMS")], time.Now()); err != nil {
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
	text   string
}

func refusedModules(t testing.TB) []refusedModule {
	t.Helper()
	const config = "output \"x\" { value = 1 }\n"
	file := func(name string) tar.Header { return tar.Header{Name: name, Typeflag: tar.TypeReg} }
	main := file("main.tf")
	good := tarball(t, config, main)
	return []refusedModule{
		{"a path above", tarball(t, config, main, file("../evil.tf")), `invalid path "../evil.tf" in an archive`},
		{"a path above, further down", tarball(t, config, main, file("a/../../evil.tf")), `invalid path "a/../../evil.tf" in an archive`},
		{"an absolute path", tarball(t, config, main, file("/etc/evil")), `invalid path "/etc/evil" in an archive`},
		{"a folder above", tarball(t, config, main, tar.Header{Name: "../evil/", Typeflag: tar.TypeDir}), `invalid path "../evil" in an archive`},
		{"a link out", tarball(t, config, main, tar.Header{Name: "evil", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}), "evil is not a plain file"},
		{"a hard link", tarball(t, config, main, tar.Header{Name: "evil", Typeflag: tar.TypeLink, Linkname: "main.tf"}), "evil is not a plain file"},
		{"a device", tarball(t, config, main, tar.Header{Name: "evil", Typeflag: tar.TypeChar}), "evil is not a plain file"},
		{"a file twice", tarball(t, config, main, main), "main.tf is in it twice"},
		{"what does not parse", tarball(t, "output \"x\" {\n", main), "invalid module: main.tf:"},
		{"no module", tarball(t, "hello", file("README.md")), "there is no .tf or .tofu file at its root"},
		{"nothing", tarball(t, ""), "there is no .tf or .tofu file at its root"},
		{"a module further down", tarball(t, config, file("vpc/main.tf")), "publish the folder that holds them, such as vpc"},
		{"a tar bomb", tarball(t, config, main, tar.Header{Name: "big", Typeflag: tar.TypeReg, Size: 2 << 30}), "invalid module archive"},
		{"truncated", good[:len(good)/2], "invalid module archive"},
		{"without its checksum", good[:len(good)-4], "invalid module archive"},
		{"no gzip", []byte("hello"), "invalid module archive"},
		{"a zip", program(t, "x"), "invalid module archive"},
	}
}
