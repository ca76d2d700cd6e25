package archive

import (
	"archive/zip"
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/flate"

	"github.com/larder-registry/larder/pkg/files/regularfile"
	"github.com/larder-registry/larder/pkg/progress"
	"github.com/larder-registry/larder/pkg/registry"
)

// Provider is the result of [ReadProvider].
type Provider struct {
	ProviderZip
	// SHA256 of the zip, in lower-case hexadecimal. Lock files contain it with
	// the prefix "zh:".
	SHA256 string
	// H1 is the hash of the files in lock files. Clients compute it from the zip
	// and again from the unpacked files. Both results are this value.
	H1 string
}

// ProviderZip describes the zip of a provider by its directory. Its files are
// not unpacked yet.
type ProviderZip struct {
	// Size of the zip in bytes.
	Size int64
	// Files in the order of the zip's directory.
	Files []File

	members []member // in the order of their content in the zip
	program File
	head    []byte // of the program
}

// member is a file within a zip.
type member struct {
	*zip.FileHeader
	body int64 // offset of the compressed content
}

// The limits of a provider's zip. The clients have no limits of their own,
// except Terragrunt's provider cache with 1 GiB and 100 files.
const (
	maxMembers   = 1000
	maxDirectory = 4 << 20 // bytes
	maxUnpacked  = 4 << 30 // bytes
	// maxRatio limits how many times larger than the zip its content may be, if
	// the content has more than freeRatio bytes. A program's ratio is about 3.
	maxRatio  = 200
	freeRatio = 64 << 20
)

// Hints for invalid zips.
const (
	hintZipAgain = "Zip the files again."
	hintTooLarge = "Remove files that the provider does not need."
)

// providerBuffer is the size of a read, in bytes. It is large because the zip
// may be in an object store, where each request costs money.
const providerBuffer = 1 << 20

// ReadProvider reads the zip of a provider to its end and verifies it. The zip
// must contain a program that clients can run, and every client on every system
// must unpack the same files from it. It takes a few megabytes of memory for
// any zip.
//
// An invalid zip is registry.ErrInvalid with the name of the file. Errors of
// reading the zip and of ctx are returned as they are.
//
// ReadProvider combines [InspectProvider] and [ProviderZip.HashFiles].
func ReadProvider(ctx context.Context, zip io.ReaderAt, size int64, providerType string) (Provider, error) {
	found, err := InspectProvider(ctx, zip, size, providerType)
	if err != nil {
		return Provider{}, err
	}
	sum := sha256.New()
	h1, err := found.HashFiles(io.TeeReader(newSource(ctx, zip, size).stream(), sum))
	if err != nil {
		return Provider{}, err
	}
	return Provider{ProviderZip: found, SHA256: hex.EncodeToString(sum.Sum(nil)), H1: h1}, nil
}

// ReadProviderFile calls [ReadProvider] for a regular file.
func ReadProviderFile(ctx context.Context, path, providerType string, r progress.Reporter) (Provider, error) {
	return withZipFile(path, r, func(zip io.ReaderAt, size int64) (Provider, error) {
		return ReadProvider(ctx, zip, size, providerType)
	})
}

// InspectProviderFile calls [InspectProvider] for a regular file. The result
// includes the SHA256 of the zip, but no H1.
func InspectProviderFile(ctx context.Context, path, providerType string, r progress.Reporter) (Provider, error) {
	return withZipFile(path, r, func(zip io.ReaderAt, size int64) (Provider, error) {
		found, err := InspectProvider(ctx, zip, size, providerType)
		if err != nil {
			return Provider{}, err
		}
		sum := sha256.New()
		_, err = io.Copy(sum, newSource(ctx, zip, size).stream())
		return Provider{ProviderZip: found, SHA256: hex.EncodeToString(sum.Sum(nil))}, err
	})
}

func withZipFile(
	path string, r progress.Reporter, read func(zip io.ReaderAt, size int64) (Provider, error),
) (Provider, error) {
	f, err := regularfile.Open(path)
	if err != nil {
		return Provider{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Provider{}, err
	}
	moved, end := progress.Or(r).Transfer("checking "+filepath.Base(path), info.Size())
	defer end()
	return read(progress.ReaderAt(f, moved), info.Size())
}

// InspectProvider verifies everything about a zip that does not require
// unpacking all of it. It reads the zip's records and the beginning of the
// program. Its errors are those of [ReadProvider].
func InspectProvider(ctx context.Context, zip io.ReaderAt, size int64, providerType string) (ProviderZip, error) {
	in := newSource(ctx, zip, size)
	found, err := inspectProvider(in, providerType)
	if in.failed != nil {
		return ProviderZip{}, fmt.Errorf("cannot read the provider zip: %w", in.failed)
	}
	return found, err
}

// source is a zip to inspect. It records the first error of reading, which does
// not make the zip invalid.
type source struct {
	ctx    context.Context //nolint:containedctx // io.ReaderAt has no parameter for it; it is the caller's
	zip    io.ReaderAt
	size   int64
	failed error
}

func newSource(ctx context.Context, zip io.ReaderAt, size int64) *source {
	return &source{ctx: ctx, zip: zip, size: size}
}

func (s *source) ReadAt(b []byte, offset int64) (int, error) {
	if err := s.ctx.Err(); err != nil {
		s.failed = err
		return 0, err
	}
	n, err := s.zip.ReadAt(b, offset)
	if n < len(b) && err != nil && !errors.Is(err, io.EOF) {
		s.failed = err
	}
	return n, err
}

func (s *source) stream() io.Reader { return io.NewSectionReader(s, 0, s.size) }

func inspectProvider(in *source, providerType string) (ProviderZip, error) {
	z, members, err := openZip(in)
	if err != nil {
		return ProviderZip{}, err
	}
	found := ProviderZip{Size: in.size, members: members}
	var unpacked uint64
	var paths []string
	for _, f := range z.File {
		if err := checkMember(f); err != nil {
			return ProviderZip{}, err
		}
		if unpacked += f.UncompressedSize64; f.UncompressedSize64 > maxUnpacked || unpacked > maxUnpacked {
			return ProviderZip{}, registry.WithHint(
				invalidZip("with %s it unpacks to more than %s", f.Name, shownSize(maxUnpacked)), hintTooLarge)
		}
		if isBomb(f.UncompressedSize64, f.CompressedSize64) {
			return ProviderZip{}, registry.WithHint(
				invalidZip("%s unpacks to more than %d times its size", f.Name, maxRatio), "Remove this file from the zip.")
		}
		paths = append(paths, f.Name)
		found.Files = append(found.Files, File{
			Path: f.Name, Size: int64(f.UncompressedSize64), Executable: f.Mode()&0o111 != 0,
		})
	}
	if isBomb(unpacked, uint64(in.size)) {
		return ProviderZip{}, registry.WithHint(
			invalidZip("it unpacks to more than %d times its size", maxRatio), hintTooLarge)
	}
	if err := checkPaths(paths); err != nil {
		return ProviderZip{}, registry.WithHint(invalidZip("%w", err), renameOneInZip)
	}
	found.program, err = findProgram(found.Files, providerType)
	if err != nil {
		return ProviderZip{}, err
	}
	i := slices.IndexFunc(members, func(m member) bool { return m.Name == found.program.Path })
	found.head, err = readHead(members[i], in)
	return found, err
}

func isBomb(unpacked, packed uint64) bool { return unpacked > freeRatio && unpacked/maxRatio > packed }

// The signatures of a zip's records and the lengths of their fixed parts, in
// bytes.
//
// Source: https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT
const (
	localSignature      = "PK\x03\x04"
	localLength         = 30
	directorySignature  = "PK\x01\x02"
	directoryLength     = 46
	endSignature        = "PK\x05\x06"
	endLength           = 22
	locatorSignature    = "PK\x06\x07" // of zip64, in front of the end record
	locatorLength       = 20
	descriptorSignature = "PK\x07\x08"

	flagEncrypted  = 1 | 1<<6 | 1<<13
	flagDescriptor = 1 << 3
)

var (
	le16 = binary.LittleEndian.Uint16
	le32 = binary.LittleEndian.Uint32
	le64 = binary.LittleEndian.Uint64
)

// openZip opens a zip in which all readers find the same members. The zip must
// consist only of its members, its directory and its end record, without gaps.
// archive/zip accepts more than that, and trusts the number of members in the
// end record.
func openZip(in *source) (*zip.Reader, []member, error) {
	size := in.size
	tail := make([]byte, max(0, min(size, endLength+1<<16-1)))
	at := -1
	if len(tail) >= endLength {
		_, _ = in.ReadAt(tail, size-int64(len(tail))) // after an error there is no signature
		// A signature closer to the end than the length of the record is part of
		// the comment.
		at = bytes.LastIndex(tail[:len(tail)-endLength+len(endSignature)], []byte(endSignature))
	}
	if at < 0 {
		return nil, nil, registry.WithHint(invalidZip("it is not a zip, or it is truncated"),
			"Use the zip of the provider's release for this platform.")
	}
	end := tail[at:]
	if len(end) != endLength+int(le16(end[20:])) {
		return nil, nil, registry.WithHint(invalidZip("its end record is not at its end"),
			"Zip the files again, and append nothing to the zip.")
	}
	count, length, offset := int(le16(end[10:])), int64(le32(end[12:])), int64(le32(end[16:]))
	hasLocator := at >= locatorLength && bytes.HasPrefix(tail[at-locatorLength:], []byte(locatorSignature))
	if hasLocator || offset == 1<<32-1 {
		return nil, nil, registry.WithHint(invalidZip("it is in the zip64 format for more than 4 GiB"),
			"Zip files instead of the output of a pipe, and do not force zip64.")
	}
	if le32(end[4:]) != 0 || le16(end[8:]) != le16(end[10:]) {
		return nil, nil, registry.WithHint(invalidZip("it is split into several files"), "Zip the files into one zip.")
	}
	if count > maxMembers || length > maxDirectory {
		return nil, nil, registry.WithHint(
			invalidZip("it has more than %d files, or more than %s of names", maxMembers, shownSize(maxDirectory)),
			hintTooLarge)
	}
	if offset+length != size-int64(len(end)) {
		return nil, nil, registry.WithHint(
			invalidZip("its directory is not at the offset in its end record, as in a self-extracting program"),
			"Zip the files again, and put nothing in front of them or between them.")
	}
	offsets, err := readDirectory(io.NewSectionReader(in, offset, length), count)
	if err != nil {
		return nil, nil, err
	}
	z, err := zip.NewReader(in, size)
	if err != nil || len(z.File) != count {
		return nil, nil, registry.WithHint(
			invalidZip("its directory is damaged: %w", cmp.Or(err, zip.ErrFormat)),
			hintZipAgain,
		)
	}
	members, err := checkLayout(in, z.File, offsets, offset)
	return z, members, err
}

// readDirectory returns the offsets of the members. It returns an error if
// their number differs from count, the number in the end record.
func readDirectory(in io.Reader, count int) ([]int64, error) {
	r := bufio.NewReader(in)
	offsets := make([]int64, count)
	for i := range offsets {
		var head [directoryLength]byte
		_, err := io.ReadFull(r, head[:])
		if err == nil {
			_, err = r.Discard(int(le16(head[28:])) + int(le16(head[30:])) + int(le16(head[32:])))
		}
		if err != nil || !bytes.HasPrefix(head[:], []byte(directorySignature)) || le16(head[34:]) != 0 {
			return nil, registry.WithHint(invalidZip("its directory is damaged at file %d of %d", i+1, count), hintZipAgain)
		}
		// The placeholder of a zip64 offset is rejected later, because no member
		// begins there.
		offsets[i] = int64(le32(head[42:]))
	}
	if _, err := r.ReadByte(); !errors.Is(err, io.EOF) {
		return nil, registry.WithHint(
			invalidZip("its directory has more than the %d files of its end record", count), hintZipAgain)
	}
	return offsets, nil
}

// checkLayout checks that the members follow one another from the start of the
// zip to its directory, and that their own headers match the directory. It
// returns them in this order. Overlapping members let a small zip unpack to
// petabytes, see https://www.bamsoftware.com/hacks/zipbomb/.
func checkLayout(in io.ReaderAt, files []*zip.File, offsets []int64, directory int64) ([]member, error) {
	order := make([]int, len(files))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(offsets[a], offsets[b]) })
	offsets = append(slices.Clone(offsets), directory)
	members := make([]member, len(files))
	var at int64
	for i, n := range order {
		f, next := files[n], directory
		if i+1 < len(order) {
			next = offsets[order[i+1]]
		}
		if offsets[n] != at {
			return nil, registry.WithHint(
				invalidZip("%.255q does not begin at the start or where the file before it ends, as in a self-extracting program",
					f.Name), hintZipAgain)
		}
		body, err := checkLocal(in, f, at, next)
		if err != nil {
			return nil, err
		}
		members[i] = member{&f.FileHeader, body}
		at = next
	}
	if at != directory {
		return nil, registry.WithHint(invalidZip("there are bytes other than files before its directory"), hintZipAgain)
	}
	return members, nil
}

// checkLocal compares the headers of a member, which takes the bytes from at to
// next, with the directory. Clients use the directory, but other programs do
// not. It returns the offset of the compressed content.
func checkLocal(in io.ReaderAt, f *zip.File, at, next int64) (body int64, err error) {
	differs := registry.WithHint(
		invalidZip("the header of %.255q in front of its content differs from the directory", f.Name), hintZipAgain)
	var head [localLength]byte
	_, err = in.ReadAt(head[:], at)
	if err != nil || !bytes.HasPrefix(head[:], []byte(localSignature)) {
		return 0, differs
	}
	flags, crc, packed, unpacked := le16(head[6:]), le32(head[14:]), le32(head[18:]), le32(head[22:])
	name := make([]byte, len(f.Name))
	_, err = in.ReadAt(name, at+localLength)
	if err != nil || int(le16(head[26:])) != len(name) || string(name) != f.Name {
		return 0, differs
	}
	if le16(head[8:]) != f.Method || (flags^f.Flags)&(flagEncrypted|flagDescriptor) != 0 {
		return 0, differs
	}
	// If the sizes are in the extra field of zip64, these are all ones.
	is := func(got uint32, want uint64) bool { return got == 1<<32-1 || uint64(got) == want }
	sameSizes := is(packed, f.CompressedSize64) && is(unpacked, f.UncompressedSize64)
	if flags&flagDescriptor == 0 && (crc != f.CRC32 || !sameSizes) {
		return 0, differs
	}
	body = at + localLength + int64(len(name)) + int64(le16(head[28:]))
	left := next - body
	if left < 0 || f.CompressedSize64 > uint64(left) {
		return 0, registry.WithHint(invalidZip("%.255q overlaps the record after it", f.Name), hintZipAgain)
	}
	left -= int64(f.CompressedSize64)
	if flags&flagDescriptor == 0 && left == 0 {
		return body, nil
	}
	if flags&flagDescriptor == 0 || left > 24 {
		return 0, registry.WithHint(
			invalidZip("after %.255q there are bytes that do not belong to a file", f.Name), hintZipAgain)
	}
	descriptor := make([]byte, left)
	if _, err := in.ReadAt(descriptor, next-left); err != nil || !isDescriptor(descriptor, f) {
		return 0, differs
	}
	return body, nil
}

// isDescriptor reports whether the bytes after a member repeat its checksum and
// sizes. The signature is optional, and sizes have four or eight bytes.
func isDescriptor(b []byte, f *zip.File) bool {
	if len(b) == 16 || len(b) == 24 {
		if !bytes.HasPrefix(b, []byte(descriptorSignature)) {
			return false
		}
		b = b[4:]
	}
	switch {
	case len(b) == 12 && le32(b) == f.CRC32:
		return uint64(le32(b[4:])) == f.CompressedSize64 && uint64(le32(b[8:])) == f.UncompressedSize64
	case len(b) == 20 && le32(b) == f.CRC32:
		return le64(b[4:]) == f.CompressedSize64 && le64(b[12:]) == f.UncompressedSize64
	}
	return false
}

// checkMember checks that a member is a regular file that all clients can
// unpack to the same place.
func checkMember(f *zip.File) error {
	mode := f.Mode()
	named := checkPath(f.Name)
	switch {
	// The hash of a zip has a line for each folder, and the hash of the
	// unpacked files does not. The lock file of one client would therefore not
	// match in another.
	case strings.HasSuffix(f.Name, "/") || mode.IsDir():
		return registry.WithHint(
			invalidZip("%.255q is an entry for a folder, for which clients compute two different hashes", f.Name),
			"Zip without entries for folders, such as with `zip -D`.")
	case named != nil:
		return registry.WithHint(
			invalidZip("the path %s does not unpack to the same place everywhere: %w", quotePath(f.Name), named), renameInZip)
	// Clients apply the modes of the zip when they unpack, including
	// set-user-ID bits.
	case mode&^fs.ModePerm != 0:
		return registry.WithHint(
			invalidZip("%s is a link, a device or another special file, or has a special mode", f.Name),
			"Zip a regular file instead.")
	// Clients then read the files to hash them. They also use a mode of zero
	// for files from an unknown system.
	case mode&0o400 == 0:
		return registry.WithHint(
			invalidZip("%s has mode %#o, so clients cannot read it after they unpack it", f.Name, mode),
			"Run `chmod +r` on it, and zip it with its mode.")
	case f.Flags&flagEncrypted != 0:
		return registry.WithHint(invalidZip("%s is encrypted", f.Name), "Zip the files without a password.")
	case f.Method != zip.Store && f.Method != zip.Deflate:
		return registry.WithHint(
			invalidZip("%s is compressed with method %d, which clients cannot read", f.Name, f.Method),
			"Compress it with deflate.")
	}
	return nil
}

// findProgram returns the program at the root that clients run.
// Clients choose the first file by name that is terraform-provider-TYPE, or
// continues with a dot or an underscore. They do not check its mode before they
// run it. See ExecutableFile in OpenTofu's
// internal/providercache/cached_provider.go.
func findProgram(files []File, providerType string) (File, error) {
	want := "terraform-provider-" + providerType
	var program File
	var below string
	for _, f := range files {
		rest, ok := strings.CutPrefix(path.Base(f.Path), want)
		if !ok || rest != "" && rest[0] != '_' && rest[0] != '.' {
			continue
		}
		if path.Dir(f.Path) != "." {
			below = f.Path
		} else if program.Path == "" || f.Path < program.Path {
			program = f
		}
	}
	switch {
	case program.Path == "" && below != "":
		return File{}, registry.WithHint(invalidZip("%s is not at its root", below),
			"Zip it from within its folder, or with `zip -j`.")
	case program.Path == "":
		return File{}, registry.WithHint(
			invalidZip("there is no file %s, %s_… or %s.exe at its root", want, want, want),
			"Name the program after the provider's type.")
	}
	return program, nil
}

// HashFiles reads the inspected zip from its first byte to its last and returns
// the h1 hash of its files. It unpacks all files and compares them with their
// sizes and checksums in the zip. It takes about a megabyte of memory.
//
// An invalid zip is registry.ErrInvalid, which HashFiles may return before it
// has read the whole zip. Errors of reading the zip are returned as they are.
func (z ProviderZip) HashFiles(in io.Reader) (h1 string, err error) {
	stream := &stream{in: in}
	u := newUnpacker(providerBuffer)
	sums := make(map[string][]byte, len(z.members))
	for _, m := range z.members {
		if err = stream.skipTo(m.body); err == nil {
			sums[m.Name], err = u.hash(m, stream)
		}
		if stream.failed != nil {
			return "", fmt.Errorf("cannot read the provider zip: %w", stream.failed)
		}
		if err != nil {
			return "", damaged(m, err)
		}
	}
	// Read the rest too, because the caller may hash the bytes of in.
	if _, err := io.Copy(io.Discard, stream); err != nil {
		return "", fmt.Errorf("cannot read the provider zip: %w", err)
	}
	if stream.at != z.Size {
		return "", registry.WithHint(invalidZip("it ends after %d of %d bytes", stream.at, z.Size), "Upload it again.")
	}
	return hash1(sums), nil
}

// hash1 is dirhash.Hash1 for files whose SHA-256 sums are known.
func hash1(sums map[string][]byte) string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		fmt.Fprintf(h, "%x  %s\n", sums[name], name)
	}
	return "h1:" + base64.StdEncoding.EncodeToString(h.Sum(nil))
}

func damaged(m member, err error) error {
	err = invalidZip("%s differs from the zip's directory: %w", m.Name, err)
	return registry.WithHint(err, hintZipAgain)
}

// stream reads a zip from its first byte. It records the first error of
// reading.
type stream struct {
	in     io.Reader
	at     int64
	failed error
}

func (s *stream) Read(b []byte) (int, error) {
	n, err := s.in.Read(b)
	s.at += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		s.failed = err
	}
	return n, err
}

func (s *stream) skipTo(at int64) error {
	_, err := io.CopyN(io.Discard, s, at-s.at)
	return err
}

// unpacker unpacks members one at a time.
type unpacker struct {
	packed  *bufio.Reader
	inflate io.ReadCloser
	chunk   []byte
}

func newUnpacker(buffer int) *unpacker {
	packed := bufio.NewReaderSize(nil, buffer)
	return &unpacker{packed, flate.NewReader(packed), make([]byte, 32<<10)}
}

// open returns the unpacked content of a member. in must be at the start of the
// compressed content.
func (u *unpacker) open(m member, in io.Reader) io.Reader {
	u.packed.Reset(io.LimitReader(in, int64(m.CompressedSize64)))
	if m.Method == zip.Store {
		return u.packed
	}
	_ = u.inflate.(flate.Resetter).Reset(u.packed, nil) // Reset does not fail for an open reader
	return u.inflate
}

// hash unpacks a member to its end and returns its SHA-256. in must be at the
// start of the compressed content.
func (u *unpacker) hash(m member, in io.Reader) ([]byte, error) {
	hash, sum := sha256.New(), crc32.NewIEEE()
	// Reading one byte more than the size shows that there is no more content.
	unpacked := io.LimitReader(u.open(m, in), int64(m.UncompressedSize64)+1)
	n, err := io.CopyBuffer(io.MultiWriter(hash, sum), unpacked, u.chunk)
	if err != nil {
		return nil, err
	}
	// The compressed bytes must end with the content.
	if _, err := u.packed.ReadByte(); !errors.Is(err, io.EOF) || uint64(n) != m.UncompressedSize64 {
		return nil, zip.ErrFormat
	}
	if sum.Sum32() != m.CRC32 {
		return nil, zip.ErrChecksum
	}
	return hash.Sum(nil), nil
}

// readHead returns the first bytes of a member's content.
func readHead(m member, in io.ReaderAt) ([]byte, error) {
	packed := io.NewSectionReader(in, m.body, int64(m.CompressedSize64))
	head := make([]byte, min(headLength, m.UncompressedSize64))
	if _, err := io.ReadFull(newUnpacker(headLength).open(m, packed), head); err != nil {
		return nil, damaged(m, err)
	}
	return head, nil
}
