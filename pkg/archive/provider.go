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

	"github.com/larder-registry/larder/pkg/progress"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/regularfile"
)

// Provider is what ReadProvider found.
type Provider struct {
	ProviderZip
	// SHA256 of the zip, in lower-case hexadecimal: what follows zh: in a lock file.
	SHA256 string
	// H1 is the hash of the files, as a lock file has it. Clients compute it from the zip and again from what they
	// unpacked; both give this.
	H1 string
}

// ProviderZip is the zip of a provider as it describes itself, of which the files are yet to be unpacked.
type ProviderZip struct {
	// Size of the zip in bytes.
	Size int64
	// Files in the order of the zip's directory.
	Files []File

	members []member // in the order in which they stand in the zip
	head    []byte   // of the program
}

// member is a file within a zip.
type member struct {
	*zip.FileHeader
	body int64 // where what is compressed of it begins
}

// The bounds of a provider. Clients unpack to disk and keep none, but for Terragrunt's provider cache, which takes 1 GiB
// and 100 files.
const (
	maxMembers   = 1000
	maxDirectory = 4 << 20 // bytes
	maxUnpacked  = 4 << 30 // bytes
	maxRatio     = 200     // of what a zip unpacks to, if that is more than freeRatio bytes; a program's is about 3
	freeRatio    = 64 << 20
)

// providerBuffer is how much is read at a time, since the zip may lie where each request costs.
const providerBuffer = 1 << 20

// ReadProvider reads the zip of a provider to its end and verifies it: that it holds what clients run, and that every
// client unpacks it to the same files, whatever its system. It takes a few megabytes, whatever the zip says. Errors that
// lie in the zip are registry.ErrInvalid and name the file; those of reading it, and ctx's, are passed on.
//
// It is InspectProvider and then HashFiles, which reads the zip a single time.
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

// ReadProviderFile reads a file with [ReadProvider]. It must be a regular one.
func ReadProviderFile(ctx context.Context, path, providerType string, r progress.Reporter) (Provider, error) {
	return withZipFile(path, r, func(zip io.ReaderAt, size int64) (Provider, error) {
		return ReadProvider(ctx, zip, size, providerType)
	})
}

// InspectProviderFile reads a file with [InspectProvider]. It must be a regular
// one. What it returns has the SHA256 of the zip too, and no H1.
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

// withZipFile calls read with the file at a path, and reports how much it reads.
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

// InspectProvider verifies all of a zip that it takes no unpacking to verify, by reading what it says of itself and how its
// program begins. Errors are as those of ReadProvider.
func InspectProvider(ctx context.Context, zip io.ReaderAt, size int64, providerType string) (ProviderZip, error) {
	in := newSource(ctx, zip, size)
	found, err := inspectProvider(in, providerType)
	if in.failed != nil {
		return ProviderZip{}, fmt.Errorf("reading a provider zip: %w", in.failed)
	}
	return found, err
}

// source is a zip to inspect. It remembers what has failed in reading, which the zip has no part in.
type source struct {
	ctx    context.Context //nolint:containedctx // io.ReaderAt has none, and it is that of the one who inspects
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

// stream returns the zip from its first byte to its last.
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
			return ProviderZip{}, fmt.Errorf("%w provider zip: with %s it unpacks to more than %s: leave out what the "+
				"provider does not need", registry.ErrInvalid, f.Name, shownSize(maxUnpacked))
		}
		if isBomb(f.UncompressedSize64, f.CompressedSize64) {
			return ProviderZip{}, fmt.Errorf("%w provider zip: %s unpacks to more than %d times its size: leave it out", registry.ErrInvalid, f.Name, maxRatio)
		}
		paths = append(paths, f.Name)
		found.Files = append(found.Files, File{Path: f.Name, Size: int64(f.UncompressedSize64), Executable: f.Mode()&0o111 != 0})
	}
	if isBomb(unpacked, uint64(in.size)) {
		return ProviderZip{}, fmt.Errorf("%w provider zip: it unpacks to more than %d times its size: leave out what the provider does not need", registry.ErrInvalid, maxRatio)
	}
	if err := checkPaths(paths); err != nil {
		return ProviderZip{}, fmt.Errorf("%w provider zip: %w: %s", registry.ErrInvalid, err, renameOneInZip)
	}
	program, err := findProgram(found.Files, providerType)
	if err != nil {
		return ProviderZip{}, err
	}
	i := slices.IndexFunc(members, func(m member) bool { return m.Name == program })
	found.head, err = headOf(members[i], in)
	return found, err
}

func isBomb(unpacked, packed uint64) bool { return unpacked > freeRatio && unpacked/maxRatio > packed }

// The records of a zip, of which the lengths are those of their fixed parts.
// https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT
const (
	localSignature      = "PK\x03\x04"
	localLength         = 30
	directorySignature  = "PK\x01\x02"
	directoryLength     = 46
	endSignature        = "PK\x05\x06"
	endLength           = 22
	locatorSignature    = "PK\x06\x07" // of zip64, before the end record
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

// openZip opens a zip that all readers find the same members in: it consists of them, its directory and its end, and of
// nothing before, between or behind them. archive/zip alone would take more than that, and believe what the end says of
// the number of members.
func openZip(in *source) (*zip.Reader, []member, error) {
	size := in.size
	tail := make([]byte, max(0, min(size, endLength+1<<16-1)))
	at := -1
	if len(tail) >= endLength {
		_, _ = in.ReadAt(tail, size-int64(len(tail))) // what could not be read has no signature
		// A signature that is nearer to the end than the record is long is a part of the comment.
		at = bytes.LastIndex(tail[:len(tail)-endLength+len(endSignature)], []byte(endSignature))
	}
	if at < 0 {
		return nil, nil, fmt.Errorf("%w provider zip: it is no zip, or is cut short: hand in the zip that the provider's release has for this platform", registry.ErrInvalid)
	}
	end := tail[at:]
	if len(end) != endLength+int(le16(end[20:])) {
		return nil, nil, fmt.Errorf("%w provider zip: its end record is not at its end: zip the files anew, and append nothing", registry.ErrInvalid)
	}
	count, length, offset := int(le16(end[10:])), int64(le32(end[12:])), int64(le32(end[16:]))
	if at >= locatorLength && bytes.HasPrefix(tail[at-locatorLength:], []byte(locatorSignature)) || offset == 1<<32-1 {
		return nil, nil, fmt.Errorf("%w provider zip: it is in the format for more than 4 GiB, zip64: zip files instead of what a pipe brings, and do not force that format", registry.ErrInvalid)
	}
	if le32(end[4:]) != 0 || le16(end[8:]) != le16(end[10:]) {
		return nil, nil, fmt.Errorf("%w provider zip: it is split into several: zip the files into one", registry.ErrInvalid)
	}
	if count > maxMembers || length > maxDirectory {
		return nil, nil, fmt.Errorf("%w provider zip: it has more than %d files, or more than %s of names: leave out what "+
			"the provider does not need", registry.ErrInvalid, maxMembers, shownSize(maxDirectory))
	}
	if offset+length != size-int64(len(end)) {
		return nil, nil, fmt.Errorf("%w provider zip: its directory is not where its end record says, as in a self-extracting program: zip the files anew, and put nothing before or between them", registry.ErrInvalid)
	}
	offsets, err := readDirectory(io.NewSectionReader(in, offset, length), count)
	if err != nil {
		return nil, nil, err
	}
	z, err := zip.NewReader(in, size)
	if err != nil || len(z.File) != count {
		return nil, nil, fmt.Errorf("%w provider zip: its directory is broken, %w: zip the files anew", registry.ErrInvalid, cmp.Or(err, zip.ErrFormat))
	}
	members, err := checkLayout(in, z.File, offsets, offset)
	return z, members, err
}

// readDirectory returns where the members begin, and makes sure that there are just as many as the end record says.
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
			return nil, fmt.Errorf("%w provider zip: its directory is broken at file %d of %d: zip the files anew", registry.ErrInvalid, i+1, count)
		}
		// That of zip64 is refused with the rest, since no member begins there.
		offsets[i] = int64(le32(head[42:]))
	}
	if _, err := r.ReadByte(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w provider zip: its directory has more than the %d files of its end record: zip the files anew", registry.ErrInvalid, count)
	}
	return offsets, nil
}

// checkLayout says whether the members stand one behind the other from the zip's start to its directory, and say of
// themselves what the directory says. It returns them in that order. Members that overlap are how a small zip unpacks to petabytes, see
// https://www.bamsoftware.com/hacks/zipbomb/
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
			return nil, fmt.Errorf("%w provider zip: %.255q does not begin where the file before it, or nothing, ends, as in a self-extracting program: zip the files anew", registry.ErrInvalid, f.Name)
		}
		body, err := checkLocal(in, f, at, next)
		if err != nil {
			return nil, err
		}
		members[i] = member{&f.FileHeader, body}
		at = next
	}
	if at != directory {
		return nil, fmt.Errorf("%w provider zip: something other than files stands before its directory: zip the files anew", registry.ErrInvalid)
	}
	return members, nil
}

// checkLocal compares what stands before and behind a member, between at and next, with the directory. Clients go by the
// directory, other programs do not. It returns where what is compressed of it begins.
func checkLocal(in io.ReaderAt, f *zip.File, at, next int64) (body int64, err error) {
	differs := fmt.Errorf("%w provider zip: what it says of %.255q at the file itself is not what its directory says: zip the files anew", registry.ErrInvalid, f.Name)
	var head [localLength]byte
	if _, err := in.ReadAt(head[:], at); err != nil || !bytes.HasPrefix(head[:], []byte(localSignature)) {
		return 0, differs
	}
	flags, crc, packed, unpacked := le16(head[6:]), le32(head[14:]), le32(head[18:]), le32(head[22:])
	name := make([]byte, len(f.Name))
	if _, err := in.ReadAt(name, at+localLength); err != nil || int(le16(head[26:])) != len(name) || string(name) != f.Name {
		return 0, differs
	}
	if le16(head[8:]) != f.Method || (flags^f.Flags)&(flagEncrypted|flagDescriptor) != 0 {
		return 0, differs
	}
	// Sizes of zip64 are in an extra field, and then these are all ones.
	is := func(got uint32, want uint64) bool { return got == 1<<32-1 || uint64(got) == want }
	if flags&flagDescriptor == 0 && (crc != f.CRC32 || !is(packed, f.CompressedSize64) || !is(unpacked, f.UncompressedSize64)) {
		return 0, differs
	}
	body = at + localLength + int64(len(name)) + int64(le16(head[28:]))
	left := next - body
	if left < 0 || f.CompressedSize64 > uint64(left) {
		return 0, fmt.Errorf("%w provider zip: %.255q overlaps what follows it: zip the files anew", registry.ErrInvalid, f.Name)
	}
	left -= int64(f.CompressedSize64)
	if flags&flagDescriptor == 0 && left == 0 {
		return body, nil
	}
	if flags&flagDescriptor == 0 || left > 24 {
		return 0, fmt.Errorf("%w provider zip: behind %.255q stands something that is no file: zip the files anew", registry.ErrInvalid, f.Name)
	}
	descriptor := make([]byte, left)
	if _, err := in.ReadAt(descriptor, next-left); err != nil || !isDescriptor(descriptor, f) {
		return 0, differs
	}
	return body, nil
}

// isDescriptor says whether the bytes behind a member repeat its sum and sizes. Their signature may be left out, and the
// sizes may have four or eight bytes.
func isDescriptor(b []byte, f *zip.File) bool {
	if len(b) == 16 || len(b) == 24 {
		if !bytes.HasPrefix(b, []byte(descriptorSignature)) {
			return false
		}
		b = b[4:]
	}
	switch {
	case len(b) == 12:
		return le32(b) == f.CRC32 && uint64(le32(b[4:])) == f.CompressedSize64 && uint64(le32(b[8:])) == f.UncompressedSize64
	case len(b) == 20:
		return le32(b) == f.CRC32 && le64(b[4:]) == f.CompressedSize64 && le64(b[12:]) == f.UncompressedSize64
	}
	return false
}

// checkMember says whether a member is a plain file that all clients can unpack to the same place.
func checkMember(f *zip.File) error {
	mode := f.Mode()
	named := checkPath(f.Name)
	switch {
	// The zip's hash has a line for a folder, that of what it unpacks to has none: the lock file of one client would not
	// do for another.
	case strings.HasSuffix(f.Name, "/") || mode.IsDir():
		return fmt.Errorf("%w provider zip: %.255q is an entry for a folder, with which clients compute two different hashes: zip without them, with zip -D", registry.ErrInvalid, f.Name)
	case named != nil:
		return fmt.Errorf("%w provider zip: the path %s does not unpack to the same place everywhere: %w: %s",
			registry.ErrInvalid, quotePath(f.Name), named, renameInZip)
	// Clients give what they unpack the mode that the zip has, set-user-ID bits included.
	case mode&^fs.ModePerm != 0:
		return fmt.Errorf("%w provider zip: %s is a link, a device or the like, or has a special mode: zip a plain file in its place", registry.ErrInvalid, f.Name)
	// They then read the files to hash them. A mode of zero is also what they make of an unknown system's.
	case mode&0o400 == 0:
		return fmt.Errorf("%w provider zip: %s has mode %#o, and cannot be read where it is unpacked: chmod +r it, and zip it with its mode", registry.ErrInvalid, f.Name, mode)
	case f.Flags&flagEncrypted != 0:
		return fmt.Errorf("%w provider zip: %s is encrypted: zip without a password", registry.ErrInvalid, f.Name)
	case f.Method != zip.Store && f.Method != zip.Deflate:
		return fmt.Errorf("%w provider zip: %s is compressed by method %d, which clients cannot read: compress it by deflate", registry.ErrInvalid, f.Name, f.Method)
	}
	return nil
}

// findProgram returns the path of the file at the root that clients take for the provider, and can run. They take the
// first by name that is terraform-provider-TYPE or goes on with a dot or an underscore, whatever it holds, and do not
// look at its mode until they run it (ExecutableFile in OpenTofu's internal/providercache/cached_provider.go). They
// unpack it with the mode that the zip has; one that was packed on Windows has none, and is unpacked as 0666. Windows
// itself wants .exe, and no mode.
func findProgram(files []File, providerType string) (string, error) {
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
		return "", fmt.Errorf("%w provider zip: %s is not at its root: zip it from within its folder, or with zip -j", registry.ErrInvalid, below)
	case program.Path == "":
		return "", fmt.Errorf("%w provider zip: no file %s, %s_… or %s.exe is at its root: name the program so, by the provider's type", registry.ErrInvalid, want, want, want)
	case !program.Executable && !strings.EqualFold(path.Ext(program.Path), ".exe"):
		return "", fmt.Errorf("%w provider zip: clients would run %s, which is not executable: chmod +x it, and zip it on Linux or macOS; if it is not the program, rename it; if it is for Windows, its name ends in .exe", registry.ErrInvalid, program.Path)
	}
	return program.Path, nil
}

// HashFiles reads the zip that was inspected from its first byte to its last, unpacks all files, which compares them with
// the sizes and sums that the zip has for them, and returns their h1. It takes about a megabyte. Errors that lie in the zip
// are registry.ErrInvalid, and may come before the zip's end; those of reading it are passed on.
func (z ProviderZip) HashFiles(in io.Reader) (h1 string, err error) {
	stream := &stream{in: in}
	u := newUnpacker(providerBuffer)
	sums := make(map[string][]byte, len(z.members))
	for _, m := range z.members {
		if err = stream.skipTo(m.body); err == nil {
			sums[m.Name], err = u.hash(m, stream)
		}
		if stream.failed != nil {
			return "", fmt.Errorf("reading a provider zip: %w", stream.failed)
		}
		if err != nil {
			return "", damaged(m, err)
		}
	}
	// Of what is behind them nothing is unread, for who hashes the zip as it is read here.
	if _, err := io.Copy(io.Discard, stream); err != nil {
		return "", fmt.Errorf("reading a provider zip: %w", err)
	}
	if stream.at != z.Size {
		return "", fmt.Errorf("%w provider zip: it ends after %d of %d bytes: upload it again", registry.ErrInvalid, stream.at, z.Size)
	}
	return hash1(sums), nil
}

// hash1 is dirhash.Hash1 of files whose own sums are known.
func hash1(sums map[string][]byte) string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		fmt.Fprintf(h, "%x  %s\n", sums[name], name)
	}
	return "h1:" + base64.StdEncoding.EncodeToString(h.Sum(nil))
}

func damaged(m member, err error) error {
	return fmt.Errorf("%w provider zip: %s is not what the zip's directory says: %w: zip the files anew", registry.ErrInvalid, m.Name, err)
}

// stream is a zip that is read from its first byte on. It remembers what has failed in reading.
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

// unpacker unpacks one member after the other.
type unpacker struct {
	packed  *bufio.Reader
	inflate io.ReadCloser
	chunk   []byte
}

func newUnpacker(buffer int) *unpacker {
	packed := bufio.NewReaderSize(nil, buffer)
	return &unpacker{packed, flate.NewReader(packed), make([]byte, 32<<10)}
}

// open returns what a member unpacks to, from where what is compressed of it begins.
func (u *unpacker) open(m member, in io.Reader) io.Reader {
	u.packed.Reset(io.LimitReader(in, int64(m.CompressedSize64)))
	if m.Method == zip.Store {
		return u.packed
	}
	_ = u.inflate.(flate.Resetter).Reset(u.packed, nil) // of a reader that was not closed, which does not fail
	return u.inflate
}

// hash unpacks a member, of which the stream is at the beginning, to its end and returns its SHA-256.
func (u *unpacker) hash(m member, in io.Reader) ([]byte, error) {
	hash, sum := sha256.New(), crc32.NewIEEE()
	// Asked for a byte more than there should be, it also tells that there is none.
	unpacked := io.LimitReader(u.open(m, in), int64(m.UncompressedSize64)+1)
	n, err := io.CopyBuffer(io.MultiWriter(hash, sum), unpacked, u.chunk)
	if err != nil {
		return nil, err
	}
	// The compressed bytes end where their content does.
	if _, err := u.packed.ReadByte(); !errors.Is(err, io.EOF) || uint64(n) != m.UncompressedSize64 {
		return nil, zip.ErrFormat
	}
	if sum.Sum32() != m.CRC32 {
		return nil, zip.ErrChecksum
	}
	return hash.Sum(nil), nil
}

// headOf returns how a member begins.
func headOf(m member, in io.ReaderAt) ([]byte, error) {
	packed := io.NewSectionReader(in, m.body, int64(m.CompressedSize64))
	head := make([]byte, min(headLength, m.UncompressedSize64))
	if _, err := io.ReadFull(newUnpacker(headLength).open(m, packed), head); err != nil {
		return nil, damaged(m, err)
	}
	return head, nil
}
