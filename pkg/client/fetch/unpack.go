package fetch

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"cmp"
	"compress/bzip2"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/larder-registry/larder/pkg/progress"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
	"github.com/larder-registry/larder/pkg/text/printable"
)

// unpacker writes the entries of an archive below a root. The root refuses
// everything that leads out of it, also through links.
type unpacker struct {
	ctx  context.Context //nolint:containedctx // of one call
	root *os.Root
	// commit is the one that the archive must be of, or empty.
	commit string
	files  int
	parts  int // of all paths
	bytes  int64
}

// sniff returns the type of an archive by its first bytes, as OpenTofu does for
// a plain URL.
func sniff(in io.ReaderAt) string {
	head := make([]byte, 6)
	n, _ := in.ReadAt(head, 0) // a shorter file has none of the types
	for _, t := range []struct{ magic, kind string }{
		{"PK", "zip"}, {"\x1f\x8b", "tar.gz"}, {"BZh", "tar.bz2"},
	} {
		if bytes.HasPrefix(head[:n], []byte(t.magic)) {
			return t.kind
		}
	}
	return ""
}

func (u *unpacker) unpack(kind string, packed *os.File) error {
	size, err := packed.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	in := progress.WithContext(u.ctx, io.NewSectionReader(packed, 0, size))
	switch kind {
	case "zip":
		err = u.zip(packed, size)
	case "tar.gz", "tgz":
		var plain *gzip.Reader
		if plain, err = gzip.NewReader(in); err == nil {
			err = u.tar(plain)
		}
	case "tar.bz2", "tar.tbz2":
		err = u.tar(bzip2.NewReader(in))
	default:
		return registry.WithHint(invalid("its type %s is not supported", printable.Mark(cmp.Or(kind, "unknown"), 20)),
			"Modules can be copied from zip, tar.gz and tar.bz2.")
	}
	switch {
	case err == nil && u.files == 0:
		return invalid("it has no files")
	case err == nil || u.ctx.Err() != nil || errors.Is(err, registry.ErrInvalid) || IsLocal(err):
		return err
	}
	return invalid("%s", printable.Mark(err.Error(), 200))
}

// IsLocal reports whether an error is of this machine's disk.
func IsLocal(err error) bool {
	_, isPath := errors.AsType[*fs.PathError](err)
	return isPath || errors.Is(errs.DiskFull(err), registry.ErrDiskFull)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w archive: %s", registry.ErrInvalid, fmt.Sprintf(format, args...))
}

func (u *unpacker) tar(plain io.Reader) error {
	// Also the headers are bounded.
	rest := &io.LimitedReader{R: plain, N: maxBytes + int64(maxFiles)<<12}
	in := tar.NewReader(rest)
	for {
		header, err := in.Next()
		switch {
		case rest.N <= 0:
			return errTooLarge()
		case errors.Is(err, io.EOF):
			_, err = io.Copy(io.Discard, rest) // the checksum comes last
			return err
		case err != nil:
			return err
		}
		switch header.Typeflag {
		case tar.TypeXGlobalHeader:
			if is := header.PAXRecords["comment"]; u.commit != "" && is != "" && is != u.commit {
				err = invalid("it is of commit %s, and not of %s", printable.Mark(is, 64), u.commit)
			}
		case tar.TypeXHeader:
		case tar.TypeDir:
			err = u.folder(header.Name)
		case tar.TypeReg:
			err = u.file(header.Name, header.Mode&0o111 != 0, in)
		case tar.TypeSymlink:
			err = u.link(header.Name, header.Linkname)
		default:
			err = invalid("%s is not a file, a folder or a symbolic link", printable.Mark(header.Name, 200))
		}
		if err != nil {
			return err
		}
	}
}

// directory reads a zip, but at most left bytes until it is opened.
type directory struct {
	io.ReaderAt
	left   int
	opened bool
}

func (d *directory) ReadAt(b []byte, offset int64) (int, error) {
	if d.left -= len(b); d.left < 0 && !d.opened {
		return 0, errTooLarge()
	}
	return d.ReaderAt.ReadAt(b, offset)
}

func (u *unpacker) zip(packed io.ReaderAt, size int64) error {
	d := &directory{ReaderAt: packed, left: maxDirectory}
	in, err := zip.NewReader(d, size)
	if err != nil {
		return err
	}
	d.opened = true
	for _, f := range in.File {
		if err := u.zipped(f); err != nil {
			return err
		}
	}
	return nil
}

func (u *unpacker) zipped(f *zip.File) error {
	if strings.HasSuffix(f.Name, "/") || f.Mode().IsDir() {
		return u.folder(f.Name)
	}
	content, err := f.Open()
	if err != nil {
		return err
	}
	defer content.Close()
	in := progress.WithContext(u.ctx, content)
	switch f.Mode().Type() {
	case 0:
		return u.file(f.Name, f.Mode()&0o111 != 0, in)
	case fs.ModeSymlink:
		target, err := io.ReadAll(io.LimitReader(in, 4<<10))
		if err != nil {
			return err
		}
		return u.link(f.Name, string(target))
	}
	return invalid("%s is not a file, a folder or a symbolic link", printable.Mark(f.Name, 200))
}

// place returns the path of an entry, and makes its folder.
func (u *unpacker) place(name string) (string, error) {
	// A backslash separates folders on Windows. Elsewhere it is part of a name, which
	// packing leaves out.
	separated := strings.ReplaceAll(name, `\`, "/")
	clean := path.Clean(separated)
	u.files++
	u.parts += 1 + strings.Count(clean, "/")
	if u.files > maxFiles || u.parts > maxParts*maxFiles {
		return "", errTooLarge()
	}
	if !filepath.IsLocal(filepath.FromSlash(clean)) || strings.Contains(name, "\x00") || len(name) > 4<<10 {
		return "", invalid("the path %s leads out of it, or is not valid", printable.Mark(name, 200))
	}
	for part := range strings.SplitSeq(separated, "/") {
		if part == ".." {
			return "", invalid("the path %s contains ..", printable.Mark(name, 200))
		}
	}
	return filepath.FromSlash(path.Clean(name)), nil
}

func (u *unpacker) folder(name string) error {
	to, err := u.place(name)
	if err != nil {
		return err
	}
	return u.outside(name, u.root.MkdirAll(to, 0o700))
}

func (u *unpacker) file(name string, executable bool, content io.Reader) (err error) {
	to, err := u.place(name)
	if err != nil {
		return err
	}
	if err := u.root.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return u.outside(name, err)
	}
	mode := fs.FileMode(0o600)
	if executable {
		mode = 0o700
	}
	// Clients let a later entry replace an earlier one.
	f, err := u.root.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return u.outside(name, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	n, err := io.Copy(f, io.LimitReader(content, maxBytes-u.bytes+1))
	if u.bytes += n; u.bytes > maxBytes {
		return errTooLarge()
	}
	return err
}

// link makes a symbolic link. What follows it later must stay in the root.
func (u *unpacker) link(name, target string) error {
	to, err := u.place(name)
	if err != nil {
		return err
	}
	if target == "" || path.IsAbs(target) || strings.ContainsAny(target, "\\\x00") ||
		!filepath.IsLocal(filepath.FromSlash(path.Join(path.Dir(path.Clean(name)), target))) {
		return invalid("the link %s leads out of it", printable.Mark(name, 200))
	}
	if err := u.root.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return u.outside(name, err)
	}
	_ = u.root.Remove(to) // an earlier entry of the same name
	return u.outside(name, u.root.Symlink(filepath.FromSlash(target), to))
}

// outside returns the error for an entry that cannot be written. If this is not
// the fault of the disk, the entry leads out of the root or conflicts with
// another one.
func (u *unpacker) outside(name string, err error) error {
	if err == nil || errors.Is(errs.DiskFull(err), registry.ErrDiskFull) || errors.Is(err, fs.ErrPermission) {
		return err
	}
	return invalid("%s leads out of it, or conflicts with another entry", printable.Mark(name, 200))
}

func errTooLarge() error {
	return invalid("it has more than %d files or folders, or more than %d bytes", maxFiles, maxBytes)
}
