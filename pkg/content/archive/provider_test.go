package archive_test

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/mod/sumdb/dirhash"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/content/archive"
	"github.com/larder-registry/larder/pkg/registry"
)

// member is a file of a zip. It has mode 0644 and is deflated unless edit
// changes that. If raw is set, body is compressed already, and edit sets the
// sum and the sizes.
type member struct {
	name, body string
	edit       func(*zip.FileHeader)
	raw        bool
}

func mode(m fs.FileMode) func(*zip.FileHeader) { return func(h *zip.FileHeader) { h.SetMode(m) } }

func program(name string) member { return member{name, "\x7fELF and so on", mode(0o755), false} }

// foo is the program of the provider of type foo.
var foo = program("terraform-provider-foo_v1.2.3")

func writeZip(t testing.TB, w io.Writer, members ...member) {
	t.Helper()
	z := zip.NewWriter(w)
	for _, m := range members {
		h := &zip.FileHeader{Name: m.name, Method: zip.Deflate}
		h.SetMode(0o644)
		if m.edit != nil {
			m.edit(h)
		}
		create := z.CreateHeader
		if m.raw {
			create = z.CreateRaw
		}
		out, err := create(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(out, m.body); err != nil && m.body != "" {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
}

func zipOf(t testing.TB, members ...member) []byte {
	t.Helper()
	var b bytes.Buffer
	writeZip(t, &b, members...)
	return b.Bytes()
}

func readProvider(t testing.TB, packed []byte) (archive.Provider, error) {
	t.Helper()
	return archive.ReadProvider(t.Context(), bytes.NewReader(packed), int64(len(packed)), "foo")
}

// The signatures of a zip's records.
const (
	local     = "PK\x03\x04"
	directory = "PK\x01\x02"
	end       = "PK\x05\x06"
)

// patch returns a copy of the zip with bytes replaced at an offset into the nth
// record with a signature.
func patch(t testing.TB, packed []byte, signature string, nth, offset int, put ...byte) []byte {
	t.Helper()
	packed = slices.Clone(packed)
	at := -1
	for range nth + 1 {
		next := bytes.Index(packed[at+1:], []byte(signature))
		if next < 0 {
			t.Fatalf("the zip does not contain %q %d times", signature, nth+1)
		}
		at += 1 + next
	}
	copy(packed[at+offset:], put)
	return packed
}

func le32(v int) []byte { return binary.LittleEndian.AppendUint32(nil, uint32(v)) }

// splice returns a copy of the zip with bytes inserted at an offset, and
// adjusts its directory and its end record.
func splice(t testing.TB, packed []byte, offset int, more string) []byte {
	t.Helper()
	packed = slices.Insert(slices.Clone(packed), offset, []byte(more)...)
	last := packed[bytes.LastIndex(packed, []byte(end)):]
	start := int(binary.LittleEndian.Uint32(last[16:])) + len(more)
	copy(last[16:], le32(start))
	for at := start; bytes.HasPrefix(packed[at:], []byte(directory)); {
		head := packed[at:]
		if begin := int(binary.LittleEndian.Uint32(head[42:])); begin >= offset {
			copy(head[42:], le32(begin+len(more)))
		}
		for _, length := range []int{28, 30, 32} {
			at += int(binary.LittleEndian.Uint16(head[length:]))
		}
		at += 46
	}
	return packed
}

// plain returns a stored member without a descriptor.
func plain(name, body string, m fs.FileMode) member {
	return member{name, body, func(h *zip.FileHeader) {
		h.SetMode(m)
		h.Method, h.CRC32 = zip.Store, crc32.ChecksumIEEE([]byte(body))
		h.CompressedSize64, h.UncompressedSize64 = uint64(len(body)), uint64(len(body))
	}, true}
}

func TestReadProviderRefuses(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	good := zipOf(t, foo, member{name: "LICENSE", body: "text"})
	stored := zipOf(t, plain("terraform-provider-foo", "abc", 0o755), plain("LICENSE", "text", 0o644))
	offset := int(binary.LittleEndian.Uint32(good[len(good)-6:])) // of the directory
	link := func(m fs.FileMode) []byte { return zipOf(t, foo, member{"x", "/etc/passwd", mode(m), false}) }
	named := func(names ...string) []byte {
		members := []member{foo}
		for _, name := range names {
			members = append(members, plain(name, "", 0o644))
		}
		return zipOf(t, members...)
	}
	// claims returns a member whose header has any sizes.
	claims := func(name string, packed, unpacked int) member {
		return member{name, strings.Repeat("x", packed), func(h *zip.FileHeader) {
			h.SetMode(0o755)
			h.CompressedSize64, h.UncompressedSize64 = uint64(packed), uint64(unpacked)
		}, true}
	}
	many := slices.Repeat([]string{""}, 1000)
	for i := range many {
		many[i] = fmt.Sprintf("f%d", i)
	}
	tests := []struct {
		name   string
		packed []byte
	}{
		{"nothing", nil},
		{"a page", []byte("<!DOCTYPE html><title>Sign in</title>")},
		{"cut short", good[:len(good)-1]},
		{"cut in the middle", good[:len(good)/2]},
		{"only an end", []byte(end + strings.Repeat("\x00", 18))},
		{"something behind it", append(slices.Clone(good), 0)},
		{"a comment that is cut", patch(t, good, end, 0, 20, 1, 0)},
		{"something before it", append([]byte("#!/bin/sh\n"), good...)},
		{"something before it that offsets know of", splice(t, good, 0, "#!/bin/sh\n")},
		{"something between files", splice(t, stored, 30+22+3, "hidden")},
		{"much between files", splice(t, good, bytes.LastIndex(good, []byte(local)), strings.Repeat("hidden", 10))},
		{"something before the directory", splice(t, stored, bytes.Index(stored, []byte(directory)), "hidden")},
		{
			"something before the directory, and no file",
			append([]byte("hidden"+end), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0),
		},
		{
			"something behind the directory",
			append(append(slices.Clone(good[:len(good)-22]), "hidden"...), good[len(good)-22:]...),
		},
		{
			"zip64's end record",
			append(
				append(slices.Clone(good[:len(good)-22]), append([]byte("PK\x06\x07"), make([]byte, 16)...)...),
				good[len(good)-22:]...),
		},
		{"zip64's offset", patch(t, good, end, 0, 16, 255, 255, 255, 255)},
		{"split", patch(t, good, end, 0, 4, 1)},
		{"split, with a part of the directory", patch(t, good, end, 0, 8, 1)},
		{"a file of another part", patch(t, good, directory, 1, 34, 1)},
		{"more files than there are", patch(t, good, end, 0, 8, 3, 0, 3, 0)},
		{"fewer files than there are", patch(t, good, end, 0, 8, 1, 0, 1, 0)},
		{"too many files", named(many...)},
		{"a claim of too many files", patch(t, good, end, 0, 8, 255, 254, 255, 254)},
		{"a directory that is too large", patch(t, good, end, 0, 12, 0, 0, 64, 1)},
		{
			"a directory that begins elsewhere",
			patch(t, good, end, 0, 12, append(le32(len(good)-22-offset-1), le32(offset+1)...)...),
		},
		{
			"a broken extra field",
			patch(
				t,
				zipOf(t, foo, member{"x", "", func(h *zip.FileHeader) { h.Extra = []byte{1, 0, 4, 0, 0, 0, 0, 0} }, false}),
				directory,
				1,
				24,
				255,
				255,
				255,
				255,
			),
		},
		{"a file twice", zipOf(t, foo, member{name: "a"}, member{name: "a"})},
		{"a file that is a folder", named("a/b", "a", "a-b")},
		{"a file that is a folder in another case", named("A/b", "a", "a-b")},
		{"a path up", named("../evil")},
		{"a path up in the middle", named("a/../../evil")},
		{"an absolute path", named("/etc/evil")},
		{"no name", named("")},
		{"a long name", named(strings.Repeat("a", 256))},
		{"a very long path", named(strings.Repeat("a/", 30_000))},
		{"a folder", named("docs/", "docs/a")},
		{"a folder by its mode", link(fs.ModeDir | 0o755)},
		{"a symbolic link", link(fs.ModeSymlink | 0o777)},
		{"a device", link(fs.ModeDevice | 0o644)},
		{"a character device", link(fs.ModeDevice | fs.ModeCharDevice | 0o644)},
		{"a pipe", link(fs.ModeNamedPipe | 0o644)},
		{"a socket", link(fs.ModeSocket | 0o644)},
		{"set-user-ID", link(fs.ModeSetuid | 0o755)},
		{"unreadable", link(0o200)},
		{"of an unknown system", patch(t, good, directory, 1, 5, 7)},
		{"encrypted", patch(t, patch(t, good, local, 1, 6, 9), directory, 1, 8, 9)},
		{"encrypted by the file alone", patch(t, good, local, 1, 6, 9)},
		{"compressed otherwise", patch(t, patch(t, good, local, 1, 8, 12), directory, 1, 10, 12)},
		{"another name at the file", patch(t, good, local, 1, 30, 'l')},
		{"a longer name at the file", patch(t, good, local, 1, 26, 8)},
		{"another method at the file", patch(t, good, local, 1, 8, 0)},
		{"another sum at the file", patch(t, stored, local, 1, 14, 1)},
		{"another size at the file", patch(t, stored, local, 1, 18, 1)},
		{"another unpacked size at the file", patch(t, stored, local, 1, 22, 1)},
		{"another size behind the file", patch(t, good, "PK\x07\x08", 1, 8, 1)},
		{"no signature behind the file", patch(t, good, "PK\x07\x08", 1, 0, 'p')},
		{"no file where one is said to begin", patch(t, good, local, 1, 0, 'p')},
		{"files in one place", patch(t, good, directory, 1, 42, 0)},
		{"a file that begins nowhere", patch(t, good, directory, 0, 42, 1)},
		{"a file within another", patch(t, stored, local, 0, 28, 9)},
		{"another size in the directory", patch(t, good, directory, 1, 24, 1)},
		{"a sum of zero", zipOf(t, foo, member{"LICENSE", "text", func(h *zip.FileHeader) {
			h.Method, h.CompressedSize64, h.UncompressedSize64 = zip.Store, 4, 4
		}, true})},
		{"a broken sum", zipOf(t, foo, member{"LICENSE", "text", func(h *zip.FileHeader) {
			h.Method, h.CRC32, h.CompressedSize64, h.UncompressedSize64 = zip.Store, 1, 4, 4
		}, true})},
		{"no deflate", zipOf(t, foo, claims("x", 10, 10))},
		{
			"bytes behind the deflated",
			zipOf(t, foo, member{"x", "\x03\x00more", func(h *zip.FileHeader) { h.CompressedSize64 = 6 }, true}),
		},
		{
			"less than it says",
			zipOf(
				t,
				foo,
				member{"x", "\x03\x00", func(h *zip.FileHeader) { h.CompressedSize64, h.UncompressedSize64 = 2, 1 }, true},
			),
		},
		{"stored, but longer", zipOf(t, foo, member{"x", "abc", func(h *zip.FileHeader) {
			h.Method, h.CompressedSize64, h.UncompressedSize64 = zip.Store, 3, 2
		}, true})},
		{"a bomb", zipOf(t, foo, claims("x", 1000, 64<<20+1))},
		{"a bomb of several", zipOf(t, foo, claims("x", 1000, 64<<20), claims("y", 1000, 64<<20))},
		{"a large file", zipOf(t, foo, claims("x", 1, 4<<30+1))},
		{"a file beyond all numbers", zipOf(t, foo, claims("x", 1, -1))},
		{"large files", zipOf(t, foo, claims("x", 11<<20, 2<<30), claims("y", 11<<20, 2<<30))},
		{"no program", zipOf(t, member{name: "README.md"})},
		{"the program of another type", zipOf(t, program("terraform-provider-foobar"))},
		{"the program of a type with a suffix", zipOf(t, program("terraform-provider-foo-bar_v1"))},
		{"another program", zipOf(t, program("opentofu-provider-foo"))},
		{"the program in another case", zipOf(t, program("Terraform-Provider-foo"))},
		{"a program further down", zipOf(t, program("dist/terraform-provider-foo_v1"))},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p, err := readProvider(t, test.packed)
			if !errors.Is(err, registry.ErrInvalid) {
				t.Fatalf("got %+v and error %v, want ErrInvalid", p, err)
			}
			texts.Error(t, err)
			if len(err.Error()) > 3000 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			if strings.ContainsAny(err.Error(), "\n\\\x00") && !strings.Contains(err.Error(), `"`) {
				t.Errorf("the error is not a line: %v", err)
			}
		})
	}
	for _, size := range []int64{-1, int64(len(good)) + 5} {
		_, err := archive.ReadProvider(t.Context(), bytes.NewReader(good), size, "foo")
		if !errors.Is(err, registry.ErrInvalid) {
			t.Errorf("a size of %d: got error %v, want ErrInvalid", size, err)
		}
	}
}

// TestReadProviderAccepts checks that accepted zips have the sums that clients
// compute, both from the zip and from the unpacked files.
func TestReadProviderAccepts(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("0123456789abcdef", 1<<18)
	released := []member{
		{"CHANGELOG.md", "# 1.2.3\n", nil, false}, {"LICENSE", "text", nil, false}, {"README.md", "# foo\n", nil, false},
		{"terraform-provider-foo_v1.2.3", large, mode(0o755), false},
	}
	dos := func(h *zip.FileHeader) { h.CreatorVersion, h.ExternalAttrs = 0, 0x21 }
	for name, packed := range map[string][]byte{
		"as a release has it":        zipOf(t, released...),
		"a program alone":            zipOf(t, program("terraform-provider-foo")),
		"with the protocol's number": zipOf(t, program("terraform-provider-foo_v1.2.3_x5")),
		"for Windows": zipOf(t,
			member{"terraform-provider-foo_v1.2.3.exe", "MZ", dos, false}, member{"LICENSE", "text", dos, false}),
		"for Windows, unversioned":          zipOf(t, member{"terraform-provider-foo.exe", "MZ", nil, false}),
		"not executable, packed on Windows": zipOf(t, member{"terraform-provider-foo", "MZ", dos, false}),
		"for Windows, packed on it":         zipOf(t, member{"terraform-provider-foo.EXE", "MZ", dos, false}),
		"files in folders": zipOf(t,
			append(released, member{name: "docs/b/c.md"},
				member{name: "docs/a.md"}, member{name: "docs-d"}, member{name: "docs.e"})...),
		"stored": zipOf(t, plain("terraform-provider-foo", "abc", 0o755), plain("empty", "", 0o400)),
		"a comment": func() []byte {
			packed := patch(t, zipOf(t, foo), end, 0, 20, 7, 0)
			return append(packed, "PK\x05\x06 hi"...)
		}(),
		"not in the directory's order": func() []byte {
			// Swap two directory entries of the same length.
			packed := zipOf(t, program("terraform-provider-foo"), plain("terraform-provider-bar", "b", 0o644))
			first, last := bytes.Index(packed, []byte(directory)), len(packed)-22
			size := (last - first) / 2
			return slices.Concat(packed[:first], packed[first+size:last], packed[first:first+size], packed[last:])
		}(),
		"sizes of zip64": zipOf(t, member{"terraform-provider-foo", "abc", func(h *zip.FileHeader) {
			h.SetMode(0o755)
			h.Method, h.CRC32, h.CompressedSize64, h.UncompressedSize64 = zip.Store, crc32.ChecksumIEEE([]byte("abc")), 3, 3
			h.Extra = append([]byte{1, 0, 16, 0, 3, 0, 0, 0, 0, 0, 0, 0, 3}, make([]byte, 7)...)
		}, true}),
		"a descriptor without a signature": func() []byte {
			packed := zipOf(t, foo)
			at := bytes.Index(packed, []byte("PK\x07\x08"))
			packed = slices.Delete(packed, at, at+4)
			return patch(t, packed, end, 0, 16, le32(int(binary.LittleEndian.Uint32(packed[len(packed)-6:]))-4)...)
		}(),
		"a descriptor of eight bytes each": func() []byte {
			packed := zipOf(t, foo)
			at := bytes.Index(packed, []byte("PK\x07\x08"))
			return splice(t, splice(t, packed, at+16, "\x00\x00\x00\x00"), at+12, "\x00\x00\x00\x00")
		}(),
		"the most files": func() []byte {
			members := []member{foo}
			for i := range 999 {
				members = append(members, member{name: fmt.Sprintf("d%d/f%d", i%7, i)})
			}
			return zipOf(t, members...)
		}(),
		"beyond ASCII":     zipOf(t, foo, member{name: "Lizenz für alle.md", body: "text"}),
		"names like paths": zipOf(t, foo, member{name: "...a"}, member{name: "..a/b"}, member{name: "-rf"}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := readProvider(t, packed)
			if err != nil {
				t.Fatal(err)
			}
			sum := sha256.Sum256(packed)
			if want := hex.EncodeToString(sum[:]); p.SHA256 != want {
				t.Errorf("zip is sha256:%s, want %s", p.SHA256, want)
			}
			if p.Size != int64(len(packed)) {
				t.Errorf("zip has %d bytes, want %d", p.Size, len(packed))
			}
			fromZip, dir := clientHash(t, packed), unpack(t, packed)
			fromDir, err := dirhash.HashDir(dir, "", dirhash.Hash1)
			if err != nil {
				t.Fatal(err)
			}
			if p.H1 != fromZip {
				t.Errorf("H1 is %s, and %s of the zip", p.H1, fromZip)
			}
			if p.H1 != fromDir {
				t.Errorf("H1 is %s, and %s of the folder", p.H1, fromDir)
			}
			for _, f := range p.Files {
				info, err := os.Stat(filepath.Join(dir, f.Path))
				if err != nil {
					t.Fatal(err)
				}
				unpacked := archive.File{Path: f.Path, Size: info.Size(), Executable: info.Mode()&0o111 != 0}
				if diff := cmp.Diff(unpacked, f); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
	p, err := readProvider(t, zipOf(t, released...))
	want := []archive.File{
		{Path: "CHANGELOG.md", Size: 8}, {Path: "LICENSE", Size: 4}, {Path: "README.md", Size: 6},
		{Path: "terraform-provider-foo_v1.2.3", Size: 4 << 20, Executable: true},
	}
	if diff := cmp.Diff(want, p.Files); diff != "" || err != nil {
		t.Error(diff, err)
	}
	// This is the output of sha256sum for the lines that sha256sum prints for
	// these files.
	if want := "h1:sMmPAKPgTDo6O2Q5iM9Q0G6+U43/wA7ZlWQ3mAF3aVI="; p.H1 != want {
		t.Errorf("H1 is %s, want %s", p.H1, want)
	}
}

// clientHash returns the hash that clients compute for a zip.
func clientHash(t testing.TB, packed []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "zip")
	if err := os.WriteFile(name, packed, 0o600); err != nil {
		t.Fatal(err)
	}
	sum, err := dirhash.HashZip(name, dirhash.Hash1)
	if err != nil {
		t.Error(err)
	}
	return sum
}

// unpack unpacks a zip in the way that clients do.
func unpack(t testing.TB, packed []byte) string {
	t.Helper()
	dir := t.TempDir()
	z, err := zip.NewReader(bytes.NewReader(packed), int64(len(packed)))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range z.File {
		in, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, f.Name)
		err = errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, body, 0o600), os.Chmod(path, f.Mode()))
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

var zeros = make([]byte, 1<<20)

// sparse is a file that stores only the writes that are not all zeros.
type sparse struct {
	size  int64
	parts map[int64][]byte
}

func (s *sparse) Write(p []byte) (int, error) {
	if !bytes.Equal(p, zeros[:len(p)]) {
		s.parts[s.size] = slices.Clone(p)
	}
	s.size += int64(len(p))
	return len(p), nil
}

func (s *sparse) ReadAt(p []byte, offset int64) (int, error) {
	n := int(min(int64(len(p)), max(0, s.size-offset)))
	clear(p[:n])
	for at, part := range s.parts {
		switch {
		case at >= offset && at < offset+int64(n):
			copy(p[at-offset:n], part)
		case at < offset && at+int64(len(part)) > offset:
			copy(p[:n], part[offset-at:])
		}
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// TestReadProviderMemory checks that reading a zip of any size takes little
// memory. No other test may run at the same time.
func TestReadProviderMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("hashes two gigabytes")
	}
	large := &sparse{parts: make(map[int64][]byte)}
	sum := crc32.NewIEEE()
	for range 1024 {
		_, _ = sum.Write(zeros)
	}
	z := zip.NewWriter(large)
	h := &zip.FileHeader{
		Name: "terraform-provider-foo", Method: zip.Store, CRC32: sum.Sum32(),
		CompressedSize64: 1 << 30, UncompressedSize64: 1 << 30,
	}
	h.SetMode(0o755)
	out, err := z.CreateRaw(h)
	if err != nil {
		t.Fatal(err)
	}
	for range 1024 {
		_, _ = out.Write(zeros)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	most := &sparse{parts: make(map[int64][]byte)}
	members := []member{foo}
	for i := range 999 {
		members = append(members, member{name: fmt.Sprintf("d/%d", i), body: strings.Repeat("x", i)})
	}
	writeZip(t, most, members...)
	for name, packed := range map[string]*sparse{"1 GiB": large, "1000 files": most} {
		began := time.Now()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		p, err := archive.ReadProvider(t.Context(), packed, packed.size, "foo")
		runtime.ReadMemStats(&after)
		if err != nil || p.Size != packed.size {
			t.Errorf("%s: %+v, %v", name, p.Size, err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 16<<20 {
			t.Errorf("%s: reading took %d bytes", name, took)
		}
		t.Logf("%s: %d bytes in %s", name, after.TotalAlloc-before.TotalAlloc, time.Since(began))
	}
}

// TestReadProviderPassesOn checks that errors of reading and of the context do
// not make the zip invalid.
func TestReadProviderPassesOn(t *testing.T) {
	t.Parallel()
	packed := zipOf(t, plain("terraform-provider-foo", strings.Repeat("x", 8<<20), 0o755))
	broken := errors.New("the network is down")
	for name, want := range map[string]error{"cancelled": context.Canceled, "broken": broken} {
		for n := 1; ; n++ {
			ctx, cancel := context.WithCancel(t.Context())
			reads := 0
			_, err := archive.ReadProvider(ctx, readerAt(func(p []byte, offset int64) (int, error) {
				if reads++; reads >= n {
					cancel()
					if errors.Is(want, broken) {
						return 0, broken
					}
				}
				return bytes.NewReader(packed).ReadAt(p, offset)
			}), int64(len(packed)), "foo")
			cancel()
			if reads < n {
				if err != nil || n < 16 {
					t.Errorf("%s: %d reads, error %v", name, reads, err)
				}
				break
			}
			// Nothing is checked after the last read, so the function may have
			// succeeded.
			if err != nil && (!errors.Is(err, want) || errors.Is(err, registry.ErrInvalid)) || reads > n {
				t.Errorf("%s at read %d: %v after %d", name, n, err, reads)
			}
		}
	}
}

type readerAt func(p []byte, offset int64) (int, error)

func (r readerAt) ReadAt(p []byte, offset int64) (int, error) { return r(p, offset) }

// FuzzReadProvider checks that any bytes give ErrInvalid, or a provider that
// clients unpack and hash in the same way.
func FuzzReadProvider(f *testing.F) {
	f.Add(zipOf(f, foo, member{name: "LICENSE", body: "text"}))
	f.Add(zipOf(f, plain("terraform-provider-foo.exe", "MZ", 0o644), plain("docs/a", "", 0o600)))
	f.Add(zipOf(f, plain("terraform-provider-foo", "abc", 0o755)))
	f.Add(zipOf(f, foo, member{name: "../x"}, member{name: "docs/"}))
	f.Add([]byte(end))
	f.Fuzz(func(t *testing.T, packed []byte) {
		p, err := readProvider(t, packed)
		if err != nil {
			if !errors.Is(err, registry.ErrInvalid) {
				t.Error(err)
			}
			return
		}
		if want := clientHash(t, packed); p.H1 != want {
			t.Errorf("H1 is %s, and clients compute %s", p.H1, want)
		}
		for _, f := range p.Files {
			if !filepath.IsLocal(f.Path) {
				t.Errorf("accepted: %q", f.Path)
			}
		}
	})
}
