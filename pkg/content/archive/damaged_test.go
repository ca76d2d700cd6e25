package archive_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/larder-registry/larder/pkg/content/archive"
	"github.com/larder-registry/larder/pkg/registry"
)

// zipped compresses data with gzip.
func zipped(data []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(data) // into memory
	_ = w.Close()
	return out.Bytes()
}

// rawHeader returns a header of a tar with fields that Go's writer would reject,
// and a valid checksum.
func rawHeader(name, size string, kind byte) []byte {
	h := make([]byte, 512)
	copy(h, name)
	copy(h[100:], "0000644\x00")
	copy(h[108:], "0000000\x000000000\x00")
	copy(h[124:136], size)
	copy(h[136:], "00000000000\x00        ")
	h[156] = kind
	copy(h[257:], "ustar\x0000")
	sum := 0
	for _, b := range h {
		sum += int(b)
	}
	copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
	return h
}

// rawTar returns a module with more blocks of a tar, each padded to its size.
func rawTar(blocks ...[]byte) []byte {
	out := append(rawHeader("main.tf", "00000000001\x00", '0'), '#')
	for _, b := range append(blocks, make([]byte, 1024)) {
		out = append(out, make([]byte, (512-len(out)%512)%512)...)
		out = append(out, b...)
	}
	return out
}

// withPAX returns a module with a PAX header that applies to a file.
func withPAX(records string) []byte {
	size := fmt.Sprintf("%011o\x00", len(records))
	return rawTar(rawHeader("pax", size, 'x'), []byte(records), rawHeader("x.tf", "00000000001\x00", '0'), []byte("#"))
}

// record returns a record of a PAX header with its length.
func record(key, value string) string {
	for n := len(key) + len(value) + 4; ; n++ {
		if r := fmt.Sprintf("%d %s=%s\n", n, key, value); len(r) == n {
			return r
		}
	}
}

// flipped returns data with one byte inverted. A negative index counts from the
// end.
func flipped(data []byte, at int) []byte {
	out := slices.Clone(data)
	if at < 0 {
		at += len(out)
	}
	out[at] ^= 0x55
	return out
}

// TestReadModuleDamaged reads archives whose bytes no writer makes, and bombs.
func TestReadModuleDamaged(t *testing.T) {
	t.Parallel()
	good := zipped(rawTar())
	if _, err := archive.ReadModule(t.Context(), bytes.NewReader(good)); err != nil {
		t.Fatalf("a good archive: %v", err)
	}
	one := func(name, size string, kind byte) []byte {
		return zipped(rawTar(rawHeader(name, size, kind), []byte("evil")))
	}
	many := func(n int, name, body string) []byte {
		entries := []entry{file("main.tf", config)}
		for i := range n {
			entries = append(entries, file(fmt.Sprintf(name, i), body))
		}
		return archiveOf(t, entries...)
	}
	sparse := record("GNU.sparse.major", "1") + record("GNU.sparse.minor", "0") +
		record("GNU.sparse.name", "../evil") + record("GNU.sparse.realsize", "99999999999")
	unnamed := append([]byte("\x1f\x8b\x08\x08\x00\x00\x00\x00\x00\x03"), bytes.Repeat([]byte("a"), 4096)...)
	zeros := bytes.Repeat(zipped(make([]byte, 16<<20)), 128)
	bomb := func(name string) []byte {
		head := rawTar(rawHeader(name, "20000000000\x00", '0'))
		return append(zipped(head[:len(head)-1024]), zeros...)
	}
	for name, packed := range map[string][]byte{
		"a tar that is not compressed":       rawTar(),
		"gzip of another length":             flipped(good, -1),
		"gzip of another method":             flipped(good, 2),
		"gzip with a damaged block":          flipped(good, 12),
		"gzip with a name without an end":    unnamed,
		"gzip of nothing":                    zipped(nil),
		"gzip of gzip":                       zipped(good),
		"only folders":                       archiveOf(t, folder("a/")),
		"a header with another sum":          zipped(flipped(rawTar(rawHeader("a", "00000000000\x00", '0')), 1024+148)),
		"a header that breaks off":           zipped(rawTar(rawHeader("a", "00000000000\x00", '0'))[:1024+100]),
		"a file that breaks off":             zipped(rawTar(rawHeader("a", "00000010000\x00", '0'))[:2048]),
		"a file that is longer":              one("evil", "00077777777\x00", '0'),
		"a file of 8 GiB":                    one("evil", "77777777777\x00", '0'),
		"a file of a negative size":          one("evil", strings.Repeat("\xff", 12), '0'),
		"a file of 2^63 bytes":               one("evil", "\x80\x00\x00\x00\x7f"+strings.Repeat("\xff", 7), '0'),
		"a size that is not a number":        one("evil", "99999999999\x00", '0'),
		"a file without a name":              one("", "00000000000\x00", '0'),
		"a file of an unknown kind":          one("evil", "00000000000\x00", 'Z'),
		"a contiguous file":                  one("evil", "00000000000\x00", '7'),
		"a sparse file":                      one("evil", "00000000000\x00", 'S'),
		"a volume's header":                  one("evil", "00000000000\x00", 'V'),
		"a block device":                     one("evil", "00000000000\x00", tar.TypeBlock),
		"a long name that does not end":      one("././@LongLink", "00000777777\x00", 'L'),
		"a PAX name with NUL":                zipped(withPAX(record("path", "evil\x00.tf"))),
		"a PAX name that leads out":          zipped(withPAX(record("path", "../evil"))),
		"a PAX name of 5,000 bytes":          zipped(withPAX(record("path", strings.Repeat("a", 5000)))),
		"a PAX size that is too large":       zipped(withPAX(record("size", "99999999"))),
		"a negative PAX size":                zipped(withPAX(record("size", "-1"))),
		"a PAX record of a wrong length":     zipped(withPAX("999 path=a\n")),
		"a PAX record without an end":        zipped(withPAX("11 path=abc")),
		"a PAX header of 2 MiB":              zipped(withPAX(record("comment", strings.Repeat("a", 2<<20)))),
		"a PAX record of GNU's sparse files": zipped(withPAX(sparse)),
		"2 GiB of zeros in a file":           bomb("evil"),
		"2 GiB of zeros in configuration":    bomb("evil.tf"),
		"2 GiB of zeros after the end":       append(slices.Clone(good), zeros...),
		"100,001 files":                      many(100_001, "f%d", ""),
		"10,001 files of configuration":      many(10_001, "f%d.tf", "#\n"),
		"70 MiB of configuration":            many(70, "f%d.tf", strings.Repeat("#", 1<<20)),
		"configuration with NUL":             archiveOf(t, file("main.tf", "x = \x00\n")),
		"configuration that is not UTF-8":    archiveOf(t, file("main.tf", "# \xff\nx = \"\xff\"\n")),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := read(t, packed); !errors.Is(err, registry.ErrInvalid) {
				t.Errorf("the error is %v, want ErrInvalid", err)
			}
		})
	}
}
