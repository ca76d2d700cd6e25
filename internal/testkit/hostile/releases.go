package hostile

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"crypto"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

// Signers have keys that sign releases. The registry trusts Good and Expired,
// of which Expired has expired. It does not trust Foreign. Each is an armored
// private key without a passphrase.
type Signers struct{ Good, Expired, Foreign []byte }

// Release is a release of the provider TYPE that no registry should publish.
type Release struct {
	Name string
	// Make returns the release's files by name, for a version.
	Make func(kind, version string, s Signers) (map[string][]byte, error)
}

// parts are the parts of a release before its checksums and its signature.
type parts struct {
	kind, version string
	zip, manifest []byte
	// sums returns the content of SHA256SUMS, and sign its signature. If nil,
	// they are those of a good release.
	sums func(files map[string][]byte) string
	sign func(s Signers, sums []byte) ([]byte, error)
	// drop is the suffix of the name of a file to leave out.
	drop string
}

func (p parts) prefix() string { return "terraform-provider-" + p.kind + "_" + p.version }

func (p parts) files(s Signers) (map[string][]byte, error) {
	files := map[string][]byte{p.prefix() + "_linux_amd64.zip": p.zip, p.prefix() + "_manifest.json": p.manifest}
	text := goodSums(files)
	if p.sums != nil {
		text = p.sums(files)
	}
	sign := p.sign
	if sign == nil {
		sign = func(s Signers, sums []byte) ([]byte, error) { return signed(s.Good, sums, crypto.SHA256) }
	}
	signature, err := sign(s, []byte(text))
	if err != nil {
		return nil, err
	}
	files[p.prefix()+"_SHA256SUMS"], files[p.prefix()+"_SHA256SUMS.sig"] = []byte(text), signature
	for name := range files {
		if p.drop != "" && strings.HasSuffix(name, p.drop) {
			delete(files, name)
		}
	}
	return files, nil
}

// goodSums returns the content of SHA256SUMS for files.
func goodSums(files map[string][]byte) string {
	var out strings.Builder
	for name, data := range files {
		fmt.Fprintf(&out, "%x  %s\n", sha256.Sum256(data), name)
	}
	return out.String()
}

// signed returns a detached signature with a hash algorithm. Its time is the
// creation of the key.
func signed(private, text []byte, hash crypto.Hash) ([]byte, error) {
	keys, err := openpgp.ReadArmoredKeyRing(bytes.NewReader(private))
	if err != nil {
		return nil, err
	}
	made := keys[0].PrimaryKey.CreationTime
	signature := &packet.Signature{
		Version: 4, SigType: packet.SigTypeBinary, PubKeyAlgo: keys[0].PrimaryKey.PubKeyAlgo, Hash: hash,
		CreationTime: made, IssuerKeyId: &keys[0].PrimaryKey.KeyId,
		IssuerFingerprint: keys[0].PrimaryKey.Fingerprint,
	}
	digest := hash.New()
	digest.Write(text)
	salted := false // SHA-1 has no size for a salt
	config := &packet.Config{
		DefaultHash: hash, Time: func() time.Time { return made }, NonDeterministicSignaturesViaNotation: &salted,
	}
	if err := signature.Sign(digest, keys[0].PrivateKey, config); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = signature.Serialize(&out)
	return out.Bytes(), err
}

// zipMember is a file of a zip.
type zipMember struct {
	name, body string
	mode       fs.FileMode
}

// programOf returns the program of a provider.
func programOf(kind, version string) zipMember {
	return zipMember{"terraform-provider-" + kind + "_v" + version, "#!/bin/sh\n", 0o755}
}

// zipOf returns a zip with uncompressed members.
func zipOf(members ...zipMember) []byte {
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, m := range members {
		h := &zip.FileHeader{Name: m.name, Method: zip.Store}
		h.SetMode(m.mode)
		f, err := w.CreateHeader(h)
		if err != nil {
			panic(fmt.Sprintf("writing %q to a zip: %v", m.name, err))
		}
		_, _ = f.Write([]byte(m.body)) // writes to a buffer never fail
	}
	_ = w.Close()
	return out.Bytes()
}

// rawZip returns a zip of one member with the fields of a header, and with
// packed bytes that Go's writer does not check.
func rawZip(h *zip.FileHeader, packed []byte, more ...zipMember) []byte {
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, m := range more {
		header := &zip.FileHeader{Name: m.name, Method: zip.Store}
		header.SetMode(m.mode)
		f, err := w.CreateHeader(header)
		if err != nil {
			panic(fmt.Sprintf("writing %q to a zip: %v", m.name, err))
		}
		_, _ = f.Write([]byte(m.body))
	}
	f, err := w.CreateRaw(h)
	if err != nil {
		panic(fmt.Sprintf("writing %q to a zip: %v", h.Name, err))
	}
	_, _ = f.Write(packed)
	_ = w.Close()
	return out.Bytes()
}

func deflated(data []byte) []byte {
	var out bytes.Buffer
	w, _ := flate.NewWriter(&out, flate.BestCompression) // the level is valid
	_, _ = w.Write(data)
	_ = w.Close()
	return out.Bytes()
}

// zipHeader returns the header of uncompressed data.
func zipHeader(name, data string) *zip.FileHeader {
	h := &zip.FileHeader{
		Name: name, Method: zip.Store, CRC32: crc32.ChecksumIEEE([]byte(data)),
		CompressedSize64: uint64(len(data)), UncompressedSize64: uint64(len(data)),
	}
	h.SetMode(0o644)
	return h
}

// patched returns a copy of data with text written over it, at an offset from
// the last occurrence of a mark.
func patched(data []byte, mark string, offset int, text string) []byte {
	out := bytes.Clone(data)
	if at := bytes.LastIndex(out, []byte(mark)); at >= 0 {
		copy(out[at+offset:], text)
	}
	return out
}

// The marks of a zip's parts.
const (
	zipDirectory = "PK\x01\x02"
	zipEnd       = "PK\x05\x06"
)

// Releases returns releases with an invalid zip, SHA256SUMS, signature or
// manifest.
func Releases() []Release {
	var all []Release
	for name, data := range zips() {
		all = append(all, Release{name, func(kind, version string, s Signers) (map[string][]byte, error) {
			return parts{kind: kind, version: version, zip: data(kind, version), manifest: goodManifest}.files(s)
		}})
	}
	for name, change := range changes() {
		all = append(all, Release{name, func(kind, version string, s Signers) (map[string][]byte, error) {
			p := parts{kind: kind, version: version, manifest: goodManifest}
			p.zip = typed(kind, version)
			change(&p)
			return p.files(s)
		}})
	}
	slices.SortFunc(all, func(a, b Release) int { return strings.Compare(a.Name, b.Name) })
	return all
}

var goodManifest = []byte(`{"version":1,"metadata":{"protocol_versions":["6.0"]}}`)

// typed returns a zip with the program of a provider and more members.
func typed(kind, version string, more ...zipMember) []byte {
	return zipOf(append([]zipMember{programOf(kind, version)}, more...)...)
}

// zips are zips that do not unpack to the same provider everywhere.
func zips() map[string]func(kind, version string) []byte {
	with := func(members ...zipMember) func(kind, version string) []byte {
		return func(kind, version string) []byte { return typed(kind, version, members...) }
	}
	named := func(name string) func(kind, version string) []byte { return with(zipMember{name, "evil", 0o644}) }
	raw := func(change func(*zip.FileHeader)) func(kind, version string) []byte {
		const data = "evil"
		return func(kind, version string) []byte {
			h := zipHeader("evil", data)
			change(h)
			return rawZip(h, []byte(data), programOf(kind, version))
		}
	}
	changed := func(mark string, offset int, text string) func(kind, version string) []byte {
		return func(kind, version string) []byte {
			return patched(typed(kind, version, zipMember{"a", "b", 0o644}), mark, offset, text)
		}
	}
	alone := func(folder string, mode fs.FileMode) func(kind, version string) []byte {
		return func(kind, _ string) []byte {
			return zipOf(zipMember{folder + "terraform-provider-" + kind, "#!", mode})
		}
	}
	body := func(text string) func(kind, version string) []byte {
		return func(kind, version string) []byte {
			return zipOf(zipMember{"terraform-provider-" + kind + "_v" + version, text, 0o755})
		}
	}
	return map[string]func(kind, version string) []byte{
		"text": func(string, string) []byte { return []byte("this is text") },
		"only the end of a zip": func(string,
			string) []byte {
			return []byte(zipEnd + strings.Repeat("\x00", 18))
		},
		"a zip that breaks off": func(k, v string) []byte { d := typed(k, v); return d[:len(d)-30] },
		"a zip with leading data": func(k,
			v string) []byte {
			return append([]byte("#!/bin/sh\n"), typed(k, v)...)
		},
		"a zip with trailing data": func(k, v string) []byte { return append(typed(k, v), "evil"...) },
		"a zip without a program": func(string,
			string) []byte {
			return zipOf(zipMember{"LICENSE", "none", 0o644})
		},
		"a program of another provider": func(_, v string) []byte { return typed("other", v) },
		"a program in a folder":         alone("a/", 0o755),
		"a program that cannot be run":  alone("", 0o644),
		"a program for Windows": body("MZ" + strings.Repeat("\x00", 58) +
			"\x40\x00\x00\x00PE\x00\x00\x64\x86"),
		"a program for macOS":             body("\xcf\xfa\xed\xfe\x07\x00\x00\x01" + strings.Repeat("\x00", 64)),
		"a program for arm64":             body("\x7fELF\x02\x01\x01" + nul(9) + "\x02\x00\xb7\x00" + nul(64)),
		"a name that leads out of a zip":  named("../evil"),
		"an absolute name in a zip":       named("/etc/evil"),
		"a backslash in a zip":            named(`a\evil`),
		"a drive in a zip":                named("C:/evil"),
		"a stream of a file in a zip":     named("evil:stream"),
		"NUL in a zip":                    named("evil\x00"),
		"a newline in a zip":              named("evil\n"),
		"no UTF-8 in a zip":               named("evil\xff"),
		"right to left in a zip":          named("evil\u202etxt.exe"),
		"a name of 5,000 bytes in a zip":  named(strings.Repeat("a", 5000)),
		"a link in a zip":                 with(zipMember{"evil", "/etc/passwd", fs.ModeSymlink | 0o777}),
		"a device in a zip":               with(zipMember{"evil", "", fs.ModeDevice | 0o644}),
		"a pipe in a zip":                 with(zipMember{"evil", "", fs.ModeNamedPipe | 0o644}),
		"set-user-id in a zip":            with(zipMember{"evil", "evil", fs.ModeSetuid | 0o755}),
		"a folder in a zip":               with(zipMember{"evil/", "", fs.ModeDir | 0o755}),
		"a file twice in a zip":           with(zipMember{"evil", "1", 0o644}, zipMember{"evil", "2", 0o644}),
		"case twins in a zip":             with(zipMember{"evil", "1", 0o644}, zipMember{"EVIL", "2", 0o644}),
		"folders of two cases in a zip":   with(zipMember{"A/x", "1", 0o644}, zipMember{"a/y", "2", 0o644}),
		"a file and a folder in a zip":    with(zipMember{"evil", "1", 0o644}, zipMember{"evil/a", "2", 0o644}),
		"a file nobody may read in a zip": with(zipMember{"evil", "1", 0o200}),
		"encryption in a zip":             raw(func(h *zip.FileHeader) { h.Flags |= 1 }),
		"another method in a zip":         raw(func(h *zip.FileHeader) { h.Method = 12 }),
		"a wrong sum in a zip":            raw(func(h *zip.FileHeader) { h.CRC32++ }),
		"a size that is too large":        raw(func(h *zip.FileHeader) { h.UncompressedSize64 = 1 << 30 }),
		"a size that is too small":        raw(func(h *zip.FileHeader) { h.UncompressedSize64 = 1 }),
		"a packed size that is too large": raw(func(h *zip.FileHeader) { h.CompressedSize64 = 1 << 20 }),
		"a size of zip64 that lies":       raw(func(h *zip.FileHeader) { h.UncompressedSize64 = 1 << 62 }),
		"a directory with another name":   changed(zipDirectory, 46, "z"),
		"a directory with another offset": changed(zipDirectory, 42, "\x00\x00\x00\x00"),
		"a directory beyond the end":      changed(zipEnd, 16, "\xff\xff\xff\x7f"),
		"a directory of 65,535 files":     changed(zipEnd, 8, "\xff\xff\xff\xff"),
		"a directory of no files":         changed(zipEnd, 8, "\x00\x00\x00\x00"),
		"a comment longer than the zip":   changed(zipEnd, 20, "\xff\xff"),
		"a zip of several disks":          changed(zipEnd, 4, "\x01\x00\x01\x00"),
		"a bomb in a zip":                 deflateBomb,
		"members that overlap":            overlapping,
		"zip64 that leads beyond the end": zip64Beyond,
		"70,000 files in a zip":           func(k, v string) []byte { return manyMembers(k, v, 70_000) },
		"a second directory before it": func(k, v string) []byte {
			return append(typed(k, v), typed(k, v, zipMember{"a", "b", 0o644})...)
		},
		"a deflate block that is damaged": damagedDeflate,
		"a member that is left out of it": func(k, v string) []byte { return hiddenMember(k, v) },
	}
}

func nul(n int) string { return strings.Repeat("\x00", n) }

// deflateBomb returns a zip of 256 KiB that unpacks to 256 MiB.
func deflateBomb(kind, version string) []byte {
	data := make([]byte, 256<<20)
	packed := deflated(data)
	h := &zip.FileHeader{
		Name: "evil", Method: zip.Deflate, CRC32: crc32.ChecksumIEEE(data),
		CompressedSize64: uint64(len(packed)), UncompressedSize64: uint64(len(data)),
	}
	h.SetMode(0o644)
	return rawZip(h, packed, programOf(kind, version))
}

// overlapping returns a zip whose directory has two entries for one member.
func overlapping(kind, version string) []byte {
	data := typed(kind, version, zipMember{"aaaa", "evil", 0o644}, zipMember{"bbbb", "evil", 0o644})
	first := bytes.Index(data, []byte("PK\x03\x04\x14\x00"))
	if first < 0 {
		first = 0
	}
	return patched(data, zipDirectory, 42, string(binary.LittleEndian.AppendUint32(nil, uint32(first))))
}

// zip64Beyond returns a zip with a zip64 locator that refers beyond the end.
func zip64Beyond(kind, version string) []byte {
	data := typed(kind, version)
	at := bytes.LastIndex(data, []byte(zipEnd))
	end := patched(data[at:], zipEnd, 8, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")
	locator := []byte("PK\x06\x07\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\x7f\x01\x00\x00\x00")
	return append(append(bytes.Clone(data[:at]), locator...), end...)
}

func manyMembers(kind, version string, n int) []byte {
	members := make([]zipMember, n)
	for i := range members {
		members[i] = zipMember{fmt.Sprintf("f%d", i), "", 0o644}
	}
	return typed(kind, version, members...)
}

func damagedDeflate(kind, version string) []byte {
	h := zipHeader("evil", "evil")
	h.Method, h.CompressedSize64 = zip.Deflate, 8
	return rawZip(h, []byte(strings.Repeat("\xff", 8)), programOf(kind, version))
}

// hiddenMember returns a zip with a member that is not in the directory.
func hiddenMember(kind, version string) []byte {
	data := typed(kind, version, zipMember{"evil", "evil", 0o644})
	last := bytes.LastIndex(data, []byte(zipDirectory))
	end := bytes.LastIndex(data, []byte(zipEnd))
	out := append(bytes.Clone(data[:last]), data[end:]...)
	size := uint32(last - bytes.Index(data, []byte(zipDirectory)))
	out = patched(out, zipEnd, 8, "\x01\x00\x01\x00")
	return patched(out, zipEnd, 12, string(binary.LittleEndian.AppendUint32(nil, size)))
}

// changes are changes to a release whose zip is valid.
func changes() map[string]func(*parts) {
	sums := func(change func(p *parts, good string) string) func(*parts) {
		return func(p *parts) { p.sums = func(files map[string][]byte) string { return change(p, goodSums(files)) } }
	}
	signature := func(sign func(s Signers, sums []byte) ([]byte, error)) func(*parts) {
		return func(p *parts) { p.sign = sign }
	}
	hashed := func(hash crypto.Hash) func(*parts) {
		return signature(func(s Signers, sums []byte) ([]byte, error) { return signed(s.Good, sums, hash) })
	}
	manifest := func(text string) func(*parts) { return func(p *parts) { p.manifest = []byte(text) } }
	zeroes := strings.Repeat("0", 64) + "  "
	// replaced returns sums that name only one file. added returns sums with
	// another entry.
	replaced := func(end string) func(*parts) {
		return sums(func(p *parts, _ string) string { return zeroes + p.prefix() + end + "\n" })
	}
	added := func(line string) func(*parts) {
		return sums(func(_ *parts, good string) string { return good + line })
	}
	// by signs with a key, and then changes the signature.
	by := func(key func(Signers) []byte, change func([]byte) []byte) func(*parts) {
		return signature(func(s Signers, sums []byte) ([]byte, error) {
			made, err := signed(key(s), sums, crypto.SHA256)
			if err != nil {
				return nil, err
			}
			return change(made), nil
		})
	}
	good := func(s Signers) []byte { return s.Good }
	same := func(made []byte) []byte { return made }
	return map[string]func(*parts){
		"sums of other bytes":  replaced("_linux_amd64.zip"),
		"sums that are empty":  sums(func(*parts, string) string { return "\n" }),
		"sums without the zip": replaced("_darwin_arm64.zip"),
		"sums with a zip that is missing": sums(func(p *parts, good string) string {
			return good + zeroes + p.prefix() + "_darwin_arm64.zip\n"
		}),
		"sums of a zip twice": sums(func(p *parts, good string) string {
			return good + zeroes + p.prefix() + "_linux_amd64.zip\n"
		}),
		"sums of a name that leads out": added(zeroes + "../../evil.zip\n"),
		"sums without sums":             sums(func(*parts, string) string { return "evil\n" }),
		"sums of 33 bytes":              sums(func(_ *parts, good string) string { return "00" + good }),
		"sums with NUL":                 added("\x00"),
		"sums that are not UTF-8":       added(zeroes + "evil\xff\n"),
		"sums of 2 MiB":                 added(strings.Repeat(zeroes+"evil\n", 2<<20/71)),
		"a signature by a foreign key":  by(func(s Signers) []byte { return s.Foreign }, same),
		"a signature by an expired key": by(func(s Signers) []byte { return s.Expired }, same),
		"a signature of something else": signature(func(s Signers, _ []byte) ([]byte, error) {
			return signed(s.Good, []byte("evil"), crypto.SHA256)
		}),
		"a signature that is none": signature(func(Signers, []byte) ([]byte, error) {
			return []byte("evil"),
				nil
		}),
		"a signature of NUL":               by(good, func([]byte) []byte { return make([]byte, 100) }),
		"a signature that breaks off":      by(good, func(made []byte) []byte { return made[:len(made)/2] }),
		"a signature with a damaged value": by(good, func(made []byte) []byte { return flipped(made, -1) }),
		"a signature over SHA-1":           hashed(crypto.SHA1),
		"a signature of 1 MiB":             by(good, func([]byte) []byte { return make([]byte, 1<<20) }),
		"a private key as a signature": signature(func(s Signers, _ []byte) ([]byte, error) {
			return s.Foreign,
				nil
		}),
		"no signature":                  func(p *parts) { p.drop = ".sig" },
		"no sums":                       func(p *parts) { p.drop = "_SHA256SUMS" },
		"a release without its zip":     func(p *parts) { p.drop = ".zip" },
		"a manifest that is not JSON":   manifest("evil"),
		"a manifest of other protocols": manifest(`{"version":1,"metadata":{"protocol_versions":["5.0"]}}`),
		"a manifest of another version": manifest(`{"version":2,"metadata":{"protocol_versions":["6.0"]}}`),
		"a manifest of no protocols":    manifest(`{"version":1,"metadata":{"protocol_versions":[]}}`),
		"a manifest of deep JSON":       manifest(strings.Repeat("[", 100_000)),
		"a manifest of 2 MiB":           manifest(string(goodManifest) + strings.Repeat(" ", 2<<20)),
	}
}
