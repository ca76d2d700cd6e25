package hostile

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"strings"
)

// Archive is an archive that no registry should publish.
type Archive struct {
	// Name describes it, such as "a link to /etc".
	Name string
	Make func() []byte
}

// member is a file of an archive.
type member struct {
	header tar.Header
	body   string
}

func file(name, body string) member {
	return member{tar.Header{Name: name, Mode: 0o644, Typeflag: tar.TypeReg}, body}
}

func special(kind byte, name, target string) member {
	return member{tar.Header{Name: name, Linkname: target, Mode: 0o755, Typeflag: kind}, ""}
}

// root is the configuration that makes an archive a module.
var root = file("main.tf", "output \"it\" { value = 1 }\n")

// tarOf returns a tar with members. Use rawTar for members that Go's writer
// rejects.
func tarOf(members ...member) []byte {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, m := range members {
		h := m.header
		h.Size = int64(len(m.body))
		if err := w.WriteHeader(&h); err != nil {
			panic(fmt.Sprintf("writing %q to a tar: %v", h.Name, err))
		}
		if _, err := w.Write([]byte(m.body)); err != nil {
			panic(fmt.Sprintf("writing %q to a tar: %v", h.Name, err))
		}
	}
	if err := w.Close(); err != nil {
		panic(fmt.Sprintf("closing a tar: %v", err))
	}
	return out.Bytes()
}

// zipped compresses data with gzip.
func zipped(data []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(data) // writes to a buffer never fail
	_ = w.Close()
	return out.Bytes()
}

// rawHeader returns a header of a tar with fields that Go's writer would
// reject, and a valid checksum.
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

// padded pads data to a block of a tar.
func padded(data string) []byte {
	return append([]byte(data), make([]byte, (512-len(data)%512)%512)...)
}

// rawTar returns a tar with main.tf followed by blocks.
func rawTar(blocks ...[]byte) []byte {
	whole := tarOf(root)
	out := whole[:1024] // main.tf and its header
	for _, b := range blocks {
		out = append(out[:len(out):len(out)], b...)
	}
	return append(out, make([]byte, 1024)...)
}

// withPAX returns a tar with a PAX header that applies to a file.
func withPAX(records string) []byte {
	return rawTar(
		rawHeader("pax", fmt.Sprintf("%011o\x00", len(records)), 'x'), padded(records),
		rawHeader("other.tf", "00000000001\x00", '0'), padded("#"),
	)
}

// record returns a record of a PAX header with its length.
func record(key, value string) string {
	for n := len(key) + len(value) + 4; ; n++ {
		if r := fmt.Sprintf("%d %s=%s\n", n, key, value); len(r) == n {
			return r
		}
	}
}

// zeros returns a member of a gzip stream that unpacks to 16 MiB.
func zeros() []byte { return zipped(make([]byte, 16<<20)) }

// bomb returns a gzip stream that begins with data, followed by n times 16 MiB.
func bomb(data []byte, n int) []byte { return append(zipped(data), bytes.Repeat(zeros(), n)...) }

// Modules returns archives that are not modules, or that harm a program that
// unpacks them.
func Modules() []Archive {
	all := damagedModules()
	for _, name := range []struct{ what, name string }{
		{"a name that leads out", "../evil.tf"},
		{"a name that leads out from within", "a/../../evil.tf"},
		{"a name that leads out by backslashes", `..\evil.tf`},
		{"an absolute name", "/etc/evil.tf"},
		{"a name with two slashes first", "//host/share/evil.tf"},
		{"a name with a drive", `C:\evil.tf`},
		{"a name with a drive and slashes", "C:/evil.tf"},
		{"a name with a backslash", `a\evil.tf`},
		{"a name with a dot as a part", "a/./evil.tf"},
		{"a name that begins with a dot as a part", "./evil.tf"},
		{"a name with an empty part", "a//evil.tf"},
		{"a name that is a dot", "."},
		{"a name that is two dots", ".."},
		{"a name with a newline", "evil\n.tf"},
		{"a name with a control character", "evil\x1b[2J.tf"},
		{"a name with DEL", "evil\x7f.tf"},
		{"a name that is not UTF-8", "evil\xff\xfe.tf"},
		{"a name that is written from right to left", "evil\u202eft.tf"},
		{"a name with an isolate", "evil\u2066.tf"},
		{"a name with a colon", "a:evil"},
		{"a name of a device", "con.txt"},
		{"a name of a numbered device", "a/LPT1"},
		{"a name that ends in a dot", "evil."},
		{"a name that ends in a space", "evil "},
		{"a folder that ends in a dot", "a./evil.txt"},
		{"a file of a git repository", ".git/config"},
		{"a hook of a git repository", ".git/hooks/post-checkout"},
		{"a file of a git repository in capitals", ".GIT/config"},
	} {
		all = append(all, Archive{name.what, func() []byte {
			return zipped(tarOf(root, file(name.name, "# evil\n")))
		}})
	}
	for _, special := range []struct {
		what    string
		members []member
	}{
		{"a link to /etc/passwd", []member{special(tar.TypeSymlink, "evil", "/etc/passwd")}},
		{"a link that leads out", []member{special(tar.TypeSymlink, "evil", "../../evil")}},
		{"a link within the module", []member{special(tar.TypeSymlink, "evil", "main.tf")}},
		{"a link to itself", []member{special(tar.TypeSymlink, "evil", "evil")}},
		{"a file below a link", []member{special(tar.TypeSymlink, "a", "/tmp"), file("a/evil", "evil")}},
		{"a hard link", []member{special(tar.TypeLink, "evil", "main.tf")}},
		{"a hard link to /etc/passwd", []member{special(tar.TypeLink, "evil", "/etc/passwd")}},
		{"a character device", []member{special(tar.TypeChar, "evil", "")}},
		{"a block device", []member{special(tar.TypeBlock, "evil", "")}},
		{"a pipe", []member{special(tar.TypeFifo, "evil", "")}},
		{"a file twice", []member{file("evil", "1"), file("evil", "2")}},
		{"main.tf twice", []member{file("main.tf", "# other\n")}},
		{"main.tf in capitals", []member{file("MAIN.TF", "# other\n")}},
		{"folders that differ by case", []member{file("A/x", "1"), file("a/y", "2")}},
		{"names that differ by normal form", []member{file("caf\u00e9", "1"), file("cafe\u0301", "2")}},
		{"a file that is a folder too", []member{file("a", "1"), file("a/b", "2")}},
		{"a folder that is a file later", []member{file("a/b", "1"), file("a", "2")}},
		{"a file with set-user-id", []member{{tar.Header{Name: "evil", Mode: 0o4755, Typeflag: tar.TypeReg},
			"evil"}}},
		{"a file with set-group-id", []member{{tar.Header{Name: "evil", Mode: 0o2755, Typeflag: tar.TypeReg},
			"evil"}}},
		{"a folder with set-user-id", []member{{tar.Header{Name: "evil/", Mode: 0o6755, Typeflag: tar.TypeDir}, ""}}},
		{"a folder that leads out", []member{{tar.Header{Name: "../evil/", Mode: 0o755, Typeflag: tar.TypeDir}, ""}}},
		{"configuration that does not parse", []member{file("evil.tf", "resource {{{")}},
		{"configuration in JSON that does not parse", []member{file("evil.tf.json", "{")}},
		{"a resource with one label", []member{file("evil.tf", "resource \"a\" {}\n")}},
		{"a variable without a label", []member{file("evil.tf", "variable {}\n")}},
		{"a submodule that does not parse", []member{file("modules/a/evil.tf", "x = ")}},
		{"configuration with NUL", []member{file("evil.tf", "x = \x00\n")}},
		{"configuration that is not UTF-8", []member{file("evil.tf", "# \xff\nx = \"\xff\"\n")}},
		{"configuration of more than a MiB", []member{file("evil.tf", strings.Repeat("#", 1<<20+1))}},
	} {
		all = append(all, Archive{special.what, func() []byte {
			return zipped(tarOf(append([]member{root}, special.members...)...))
		}})
	}
	return all
}

// damagedModules returns data that is not an archive, or whose fields are
// wrong.
func damagedModules() []Archive {
	good := func() []byte { return tarOf(root) }
	return []Archive{
		{"one byte", func() []byte { return []byte{0x1f} }},
		{"text", func() []byte { return []byte("this is text") }},
		{"a tar that is not compressed", good},
		{"a zip", func() []byte { return []byte("PK\x03\x04" + strings.Repeat("\x00", 26)) }},
		{"bzip2", func() []byte { return []byte("BZh91AY&SY" + strings.Repeat("\x00", 26)) }},
		{"xz", func() []byte { return []byte("\xfd7zXZ\x00" + strings.Repeat("\x00", 26)) }},
		{"only a gzip header", func() []byte { return zipped(good())[:10] }},
		{"gzip that breaks off", func() []byte { data := zipped(good()); return data[:len(data)/2] }},
		{"gzip without its sum", func() []byte { data := zipped(good()); return data[:len(data)-8] }},
		{"gzip with another sum", func() []byte { return flipped(zipped(good()), -8) }},
		{"gzip with another length", func() []byte { return flipped(zipped(good()), -1) }},
		{"gzip with another method", func() []byte { return flipped(zipped(good()), 2) }},
		{"gzip with a damaged block", func() []byte { return flipped(zipped(good()), 12) }},
		{"gzip with trailing data", func() []byte { return append(zipped(good()), "evil"...) }},
		{"gzip with a name that does not end", func() []byte {
			return append([]byte{0x1f, 0x8b, 8, 8, 0, 0, 0, 0, 0, 3}, strings.Repeat("a", 4096)...)
		}},
		{"gzip of nothing", func() []byte { return zipped(nil) }},
		{"gzip of gzip", func() []byte { return zipped(zipped(good())) }},
		{"a tar without files", func() []byte { return zipped(tarOf()) }},
		{"a tar of only folders", func() []byte {
			return zipped(tarOf(member{tar.Header{Name: "a/", Mode: 0o755, Typeflag: tar.TypeDir}, ""}))
		}},
		{"a tar without configuration", func() []byte { return zipped(tarOf(file("README.md", "#"))) }},
		{"configuration only in a folder", func() []byte { return zipped(tarOf(file("a/main.tf", "#"))) }},
		{"a tar with another sum", func() []byte { return zipped(flipped(tarOf(root, file("a", "b")), 1024+148)) }},
		{"a tar that breaks off in a header",
			func() []byte { return zipped(tarOf(root, file("a", "b"))[:1024+100]) }},
		{"a tar that breaks off in a file", func() []byte {
			return zipped(tarOf(root, file("a", strings.Repeat("b", 5000)))[:1024+1024])
		}},
		{"a file that is longer than the archive", func() []byte {
			return zipped(rawTar(rawHeader("evil", "00077777777\x00", '0'), padded("evil")))
		}},
		{"a file of 8 GiB", func() []byte { return zipped(rawTar(rawHeader("evil", "77777777777\x00", '0'))) }},
		{"a file of a negative size", func() []byte {
			return zipped(rawTar(rawHeader("evil", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", '0')))
		}},
		{"a file of 2^63 bytes", func() []byte {
			return zipped(rawTar(rawHeader("evil", "\x80\x00\x00\x00\x7f\xff\xff\xff\xff\xff\xff\xff", '0')))
		}},
		{"a file whose size is not a number", func() []byte {
			return zipped(rawTar(rawHeader("evil", "99999999999\x00", '0')))
		}},
		{"a file without a name", func() []byte { return zipped(rawTar(rawHeader("", "00000000000\x00", '0'))) }},
		{"a file of an unknown kind", func() []byte {
			return zipped(rawTar(rawHeader("evil", "00000000000\x00",
				'Z')))
		}},
		{"a contiguous file", func() []byte { return zipped(rawTar(rawHeader("evil", "00000000000\x00", '7'))) }},
		{"a sparse file", func() []byte { return zipped(rawTar(rawHeader("evil", "00000000000\x00", 'S'))) }},
		{"a volume's header", func() []byte { return zipped(rawTar(rawHeader("evil", "00000000000\x00", 'V'))) }},
		{"a long name that does not end", func() []byte {
			return zipped(rawTar(rawHeader("././@LongLink", "00000777777\x00", 'L')))
		}},
		{"a name of 5,000 bytes", func() []byte {
			return zipped(withPAX(record("path",
				strings.Repeat("a", 5000))))
		}},
		{"a name of 1,000 folders", func() []byte {
			return zipped(withPAX(record("path", strings.Repeat("a/", 1000)+"evil")))
		}},
		{"a name with NUL", func() []byte { return zipped(withPAX(record("path", "evil\x00.tf"))) }},
		{"a PAX name that leads out", func() []byte { return zipped(withPAX(record("path", "../evil"))) }},
		{"a PAX size that lies", func() []byte { return zipped(withPAX(record("size", "99999999"))) }},
		{"a PAX size that is negative", func() []byte { return zipped(withPAX(record("size", "-1"))) }},
		{"a PAX record of a wrong length", func() []byte { return zipped(withPAX("999 path=a\n")) }},
		{"a PAX record without an end", func() []byte { return zipped(withPAX("11 path=abc")) }},
		{"a PAX record of GNU's sparse files", func() []byte {
			return zipped(withPAX(record("GNU.sparse.major", "1") + record("GNU.sparse.minor", "0") +
				record("GNU.sparse.name", "../evil") + record("GNU.sparse.realsize", "99999999999")))
		}},
		{"a PAX header of 2 MiB", func() []byte {
			return zipped(withPAX(record("comment",
				strings.Repeat("a", 2<<20))))
		}},
		{"2 GiB of zeros in a file", func() []byte {
			head := rawTar(rawHeader("evil", "20000000000\x00", '0'))
			return bomb(head[:len(head)-1024], 128)
		}},
		{"2 GiB of zeros after the end", func() []byte { return bomb(good(), 128) }},
		{"2 GiB of zeros in a configuration", func() []byte {
			head := rawTar(rawHeader("evil.tf", "20000000000\x00", '0'))
			return bomb(head[:len(head)-1024], 128)
		}},
		{"100,001 files", func() []byte { return manyFiles(100_001, "f%d", "") }},
		{"10,001 files of configuration", func() []byte { return manyFiles(10_001, "f%d.tf", "#\n") }},
		{"70 MiB of configuration", func() []byte { return manyFiles(70, "f%d.tf", strings.Repeat("#", 1<<20)) }},
	}
}

// flipped returns data with one byte inverted. A negative index counts from the
// end.
func flipped(data []byte, at int) []byte {
	out := bytes.Clone(data)
	if at < 0 {
		at += len(out)
	}
	out[at] ^= 0x55
	return out
}

func manyFiles(n int, name, body string) []byte {
	members := []member{root}
	for i := range n {
		members = append(members, file(fmt.Sprintf(name, i), body))
	}
	return zipped(tarOf(members...))
}
