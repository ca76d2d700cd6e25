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

	"github.com/larder-registry/larder/pkg/archive"
	"github.com/larder-registry/larder/pkg/registry"
)

// member is a file of a zip: 0644 and deflated, unless edit says otherwise. Where raw is set, body is compressed already,
// and sum and sizes are edit's.
type member struct {
	name, body string
	edit       func(*zip.FileHeader)
	raw        bool
}

func mode(m fs.FileMode) func(*zip.FileHeader) { return func(h *zip.FileHeader) { h.SetMode(m) } }

func program(name string) member { return member{name, "\x7fELF and so on", mode(0o755), false} }

// foo is the program of the provider of that type.
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

// patch returns the zip with bytes put over those at an offset into the nth record of a signature.
func patch(t testing.TB, packed []byte, signature string, nth, offset int, put ...byte) []byte {
	t.Helper()
	packed = slices.Clone(packed)
	at := -1
	for range nth + 1 {
		next := bytes.Index(packed[at+1:], []byte(signature))
		if next < 0 {
			t.Fatalf("%q is not in it %d times", signature, nth+1)
		}
		at += 1 + next
	}
	copy(packed[at+offset:], put)
	return packed
}

func le32(v int) []byte { return binary.LittleEndian.AppendUint32(nil, uint32(v)) }

// splice returns the zip with more bytes at an offset, its directory and end moved accordingly.
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
		at += 46 + int(binary.LittleEndian.Uint16(head[28:])) + int(binary.LittleEndian.Uint16(head[30:])) + int(binary.LittleEndian.Uint16(head[32:]))
	}
	return packed
}

// plain stores a member without a descriptor.
func plain(name, body string, m fs.FileMode) member {
	return member{name, body, func(h *zip.FileHeader) {
		h.SetMode(m)
		h.Method, h.CRC32 = zip.Store, crc32.ChecksumIEEE([]byte(body))
		h.CompressedSize64, h.UncompressedSize64 = uint64(len(body)), uint64(len(body))
	}, true}
}

func TestReadProviderRefuses(t *testing.T) {
	t.Parallel()
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
	// A program may say of itself that it is more than it is.
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
		want   string
	}{
		{"nothing", nil, "no zip"},
		{"a page", []byte("<!DOCTYPE html><title>Sign in</title>"), "no zip"},
		{"cut short", good[:len(good)-1], "no zip"},
		{"cut in the middle", good[:len(good)/2], "no zip"},
		{"only an end", []byte(end + strings.Repeat("\x00", 18)), "no file terraform-provider-foo"},
		{"something behind it", append(slices.Clone(good), 0), "append nothing"},
		{"a comment that is cut", patch(t, good, end, 0, 20, 1, 0), "append nothing"},
		{"something before it", append([]byte("#!/bin/sh\n"), good...), "self-extracting"},
		{"something before it that offsets know of", splice(t, good, 0, "#!/bin/sh\n"), "terraform-provider-foo_v1.2.3"},
		{"something between files", splice(t, stored, 30+22+3, "hidden"), "terraform-provider-foo"},
		{"much between files", splice(t, good, bytes.LastIndex(good, []byte(local)), strings.Repeat("hidden", 10)), "terraform-provider-foo"},
		{"something before the directory", splice(t, stored, bytes.Index(stored, []byte(directory)), "hidden"), "LICENSE"},
		{"something before the directory, and no file", append([]byte("hidden"+end), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0), "before its directory"},
		{"something behind the directory", append(append(slices.Clone(good[:len(good)-22]), "hidden"...), good[len(good)-22:]...), "self-extracting"},
		{"zip64's end record", append(append(slices.Clone(good[:len(good)-22]), append([]byte("PK\x06\x07"), make([]byte, 16)...)...), good[len(good)-22:]...), "zip64"},
		{"zip64's offset", patch(t, good, end, 0, 16, 255, 255, 255, 255), "zip64"},
		{"split", patch(t, good, end, 0, 4, 1), "split"},
		{"split, with a part of the directory", patch(t, good, end, 0, 8, 1), "split"},
		{"a file of another part", patch(t, good, directory, 1, 34, 1), "at file 2 of 2"},
		{"more files than there are", patch(t, good, end, 0, 8, 3, 0, 3, 0), "at file 3 of 3"},
		{"fewer files than there are", patch(t, good, end, 0, 8, 1, 0, 1, 0), "more than the 1 files"},
		{"too many files", named(many...), "more than 1000 files"},
		{"a claim of too many files", patch(t, good, end, 0, 8, 255, 254, 255, 254), "more than 1000 files"},
		{"a directory that is too large", patch(t, good, end, 0, 12, 0, 0, 64, 1), "4.0 MiB of names"},
		{"a directory that begins elsewhere", patch(t, good, end, 0, 12, append(le32(len(good)-22-offset-1), le32(offset+1)...)...), "at file 1 of 2"},
		{"a broken extra field", patch(t, zipOf(t, foo, member{"x", "", func(h *zip.FileHeader) { h.Extra = []byte{1, 0, 4, 0, 0, 0, 0, 0} }, false}), directory, 1, 24, 255, 255, 255, 255), "its directory is broken"},
		{"a file twice", zipOf(t, foo, member{name: "a"}, member{name: "a"}), "a is in it twice"},
		{"a file in two cases", named("License", "LICENSE"), "LICENSE and License are one"},
		{"a folder in two cases", named("docs/a", "e", "Docs/b"), "docs/a and Docs/b are one"},
		{"a file that ends in a dot", named("LICENSE", "LICENSE."), `it has the part "LICENSE."`},
		{"a file that is a folder", named("a/b", "a", "a-b"), "both a file and a folder"},
		{"a file that is a folder in another case", named("A/b", "a", "a-b"), "a and A/b are one"},
		{"a path up", named("../evil"), "../evil"},
		{"a path up in the middle", named("a/../../evil"), "a/../../evil"},
		{"an absolute path", named("/etc/evil"), "/etc/evil"},
		{"a path of Windows", named(`a\..\evil`), `a\\..\\evil`},
		{"a drive", named("C:evil"), "C:evil"},
		{"a stream", named("LICENSE:evil"), "LICENSE:evil"},
		{"no name", named(""), `""`},
		{"a line break", named("a\nb"), `a\nb`},
		{"a long name", named(strings.Repeat("a", 256)), "aaa"},
		{"a very long path", named(strings.Repeat("a/", 30_000)), "zip -D"},
		{"a folder", named("docs/", "docs/a"), "zip -D"},
		{"a folder by its mode", link(fs.ModeDir | 0o755), "zip -D"},
		{"a symbolic link", link(fs.ModeSymlink | 0o777), "x is a link"},
		{"a device", link(fs.ModeDevice | 0o644), "x is a link, a device"},
		{"a character device", link(fs.ModeDevice | fs.ModeCharDevice | 0o644), "x is a link, a device"},
		{"a pipe", link(fs.ModeNamedPipe | 0o644), "x is a link, a device"},
		{"a socket", link(fs.ModeSocket | 0o644), "x is a link, a device"},
		{"set-user-ID", link(fs.ModeSetuid | 0o755), "special mode"},
		{"unreadable", link(0o200), "chmod +r"},
		{"of an unknown system", patch(t, good, directory, 1, 5, 7), "LICENSE has mode"},
		{"encrypted", patch(t, patch(t, good, local, 1, 6, 9), directory, 1, 8, 9), "LICENSE is encrypted"},
		{"encrypted by the file alone", patch(t, good, local, 1, 6, 9), "LICENSE"},
		{"compressed otherwise", patch(t, patch(t, good, local, 1, 8, 12), directory, 1, 10, 12), "LICENSE is compressed by method 12"},
		{"another name at the file", patch(t, good, local, 1, 30, 'l'), "LICENSE"},
		{"a longer name at the file", patch(t, good, local, 1, 26, 8), "LICENSE"},
		{"another method at the file", patch(t, good, local, 1, 8, 0), "LICENSE"},
		{"another sum at the file", patch(t, stored, local, 1, 14, 1), "LICENSE"},
		{"another size at the file", patch(t, stored, local, 1, 18, 1), "LICENSE"},
		{"another unpacked size at the file", patch(t, stored, local, 1, 22, 1), "LICENSE"},
		{"another size behind the file", patch(t, good, "PK\x07\x08", 1, 8, 1), "LICENSE"},
		{"no signature behind the file", patch(t, good, "PK\x07\x08", 1, 0, 'p'), "LICENSE"},
		{"no file where one is said to begin", patch(t, good, local, 1, 0, 'p'), "LICENSE"},
		{"files in one place", patch(t, good, directory, 1, 42, 0), "overlaps"},
		{"a file that begins nowhere", patch(t, good, directory, 0, 42, 1), "does not begin where"},
		{"a file within another", patch(t, stored, local, 0, 28, 9), "terraform-provider-foo\" overlaps"},
		{"another size in the directory", patch(t, good, directory, 1, 24, 1), "LICENSE"},
		{"a sum of zero", zipOf(t, foo, member{"LICENSE", "text", func(h *zip.FileHeader) {
			h.Method, h.CompressedSize64, h.UncompressedSize64 = zip.Store, 4, 4
		}, true}), "LICENSE is not what the zip's directory says"},
		{"a broken sum", zipOf(t, foo, member{"LICENSE", "text", func(h *zip.FileHeader) {
			h.Method, h.CRC32, h.CompressedSize64, h.UncompressedSize64 = zip.Store, 1, 4, 4
		}, true}), "LICENSE is not what the zip's directory says"},
		{"no deflate", zipOf(t, foo, claims("x", 10, 10)), "x is not what"},
		{"bytes behind the deflated", zipOf(t, foo, member{"x", "\x03\x00more", func(h *zip.FileHeader) { h.CompressedSize64 = 6 }, true}), "x is not what"},
		{"less than it says", zipOf(t, foo, member{"x", "\x03\x00", func(h *zip.FileHeader) { h.CompressedSize64, h.UncompressedSize64 = 2, 1 }, true}), "x is not what"},
		{"stored, but longer", zipOf(t, foo, member{"x", "abc", func(h *zip.FileHeader) {
			h.Method, h.CompressedSize64, h.UncompressedSize64 = zip.Store, 3, 2
		}, true}), "x is not what"},
		{"a bomb", zipOf(t, foo, claims("x", 1000, 64<<20+1)), "x unpacks to more than 200 times"},
		{"a bomb of several", zipOf(t, foo, claims("x", 1000, 64<<20), claims("y", 1000, 64<<20)), "it unpacks to more than 200 times"},
		{"a large file", zipOf(t, foo, claims("x", 1, 4<<30+1)), "with x it unpacks to more than 4.0 GiB"},
		{"a file beyond all numbers", zipOf(t, foo, claims("x", 1, -1)), "with x it unpacks to more than 4.0 GiB"},
		{"large files", zipOf(t, foo, claims("x", 11<<20, 2<<30), claims("y", 11<<20, 2<<30)), "with y it unpacks to more than 4.0 GiB"},
		{"no program", zipOf(t, member{name: "README.md"}), "no file terraform-provider-foo"},
		{"the program of another type", zipOf(t, program("terraform-provider-foobar")), "no file terraform-provider-foo,"},
		{"the program of a type with a suffix", zipOf(t, program("terraform-provider-foo-bar_v1")), "no file terraform-provider-foo,"},
		{"another program", zipOf(t, program("opentofu-provider-foo")), "no file terraform-provider-foo,"},
		{"the program in another case", zipOf(t, program("Terraform-Provider-foo")), "no file terraform-provider-foo,"},
		{"a program further down", zipOf(t, program("dist/terraform-provider-foo_v1")), "dist/terraform-provider-foo_v1 is not at its root"},
		{"a program that is not executable", zipOf(t, member{name: "terraform-provider-foo_v1"}), "terraform-provider-foo_v1, which is not executable"},
		{"a program that was packed on Windows", zipOf(t, member{"terraform-provider-foo", "", func(h *zip.FileHeader) { h.CreatorVersion, h.ExternalAttrs = 0, 0 }, false}), "terraform-provider-foo, which is not executable"},
		{"a file that clients take for the program", zipOf(t, foo, member{name: "terraform-provider-foo.md"}), "terraform-provider-foo.md, which is not executable"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p, err := readProvider(t, test.packed)
			if !errors.Is(err, registry.ErrInvalid) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%+v, %v; want ErrInvalid that names %q", p, err, test.want)
			}
			if err != nil && (len(err.Error()) > 3000 || strings.ContainsAny(err.Error(), "\n\\\x00") && !strings.Contains(err.Error(), `"`)) {
				t.Errorf("not a line: %v", err)
			}
		})
	}
	if _, err := archive.ReadProvider(t.Context(), bytes.NewReader(good), -1, "foo"); !errors.Is(err, registry.ErrInvalid) {
		t.Errorf("a negative size: %v", err)
	}
	if _, err := archive.ReadProvider(t.Context(), bytes.NewReader(good), int64(len(good))+5, "foo"); !errors.Is(err, registry.ErrInvalid) {
		t.Errorf("a size beyond the end: %v", err)
	}
}

// What is accepted has the sums that clients compute, from the zip and from what they unpack.
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
		"for Windows":                zipOf(t, member{"terraform-provider-foo_v1.2.3.exe", "MZ", dos, false}, member{"LICENSE", "text", dos, false}),
		"for Windows, unversioned":   zipOf(t, member{"terraform-provider-foo.exe", "MZ", nil, false}),
		"for Windows, packed on it":  zipOf(t, member{"terraform-provider-foo.EXE", "MZ", dos, false}),
		"files in folders":           zipOf(t, append(released, member{name: "docs/b/c.md"}, member{name: "docs/a.md"}, member{name: "docs-d"}, member{name: "docs.e"})...),
		"stored":                     zipOf(t, plain("terraform-provider-foo", "abc", 0o755), plain("empty", "", 0o400)),
		"a comment": func() []byte {
			packed := patch(t, zipOf(t, foo), end, 0, 20, 7, 0)
			return append(packed, "PK\x05\x06 hi"...)
		}(),
		"not in the directory's order": func() []byte {
			// Two directory entries of one length change places.
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
			if p.SHA256 != hex.EncodeToString(sum[:]) || p.Size != int64(len(packed)) {
				t.Errorf("zip is sha256:%s, %d bytes", p.SHA256, p.Size)
			}
			fromZip, dir := clientHash(t, packed), unpack(t, packed)
			fromDir, err := dirhash.HashDir(dir, "", dirhash.Hash1)
			if err != nil || p.H1 != fromZip || p.H1 != fromDir {
				t.Errorf("%s, but of the zip %s and of the folder %s, %v", p.H1, fromZip, fromDir, err)
			}
			for _, f := range p.Files {
				if info, err := os.Stat(filepath.Join(dir, f.Path)); err != nil || info.Size() != f.Size || f.Executable != (info.Mode()&0o111 != 0) {
					t.Errorf("%+v is %v, %v", f, info, err)
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
	// As sha256sum gives it for the lines that it gives for these files.
	if want := "h1:sMmPAKPgTDo6O2Q5iM9Q0G6+U43/wA7ZlWQ3mAF3aVI="; p.H1 != want {
		t.Errorf("%s, want %s", p.H1, want)
	}
}

// clientHash returns the hash that clients compute of a zip.
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

// unpack unpacks a zip as clients do.
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
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, body, 0o600), os.Chmod(path, f.Mode())); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

var zeros = make([]byte, 1<<20)

// sparse keeps only what is written that is not all zeros.
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

// However large a zip is, reading it takes little memory. Nothing may run beside this test.
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
	h := &zip.FileHeader{Name: "terraform-provider-foo", Method: zip.Store, CRC32: sum.Sum32(), CompressedSize64: 1 << 30, UncompressedSize64: 1 << 30}
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

// What ends the reading is not the zip's fault.
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
					t.Errorf("%s: read at once, or %v", name, err)
				}
				break
			}
			// Nothing checks what comes after the last read, which may have ended well.
			if err != nil && (!errors.Is(err, want) || errors.Is(err, registry.ErrInvalid)) || reads > n {
				t.Errorf("%s at read %d: %v after %d", name, n, err, reads)
			}
		}
	}
}

type readerAt func(p []byte, offset int64) (int, error)

func (r readerAt) ReadAt(p []byte, offset int64) (int, error) { return r(p, offset) }

// Whatever the bytes are, reading them ends with a provider that clients unpack and hash the same, or with ErrInvalid.
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
			t.Errorf("%s, and to clients %s", p.H1, want)
		}
		for _, f := range p.Files {
			if !filepath.IsLocal(f.Path) {
				t.Errorf("accepted: %q", f.Path)
			}
		}
	})
}
