package doctor

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
)

// sniff returns the type of a file by its first bytes, or "". OpenTofu uses it
// if the name does not matter.
func sniff(in io.ReaderAt) string {
	head := make([]byte, 6)
	n, _ := in.ReadAt(head, 0) // shorter files have none of these types
	for _, t := range []struct{ magic, kind string }{
		{"PK", "zip"}, {"\x1f\x8b", "tar.gz"}, {"BZh", "tar.bz2"}, {"\xfd7zXZ\x00", "tar.xz"},
	} {
		if bytes.HasPrefix(head[:n], []byte(t.magic)) {
			return t.kind
		}
	}
	return ""
}

// maxUnpacked is how many bytes an archive may unpack to.
const maxUnpacked = 16 << 30

var errUnpacked = fmt.Errorf("it unpacks to more than %d bytes", int64(maxUnpacked))

// unpacked describes the content of an archive.
type unpacked struct {
	files int
	// found reports whether the archive has the folder.
	found bool
	// unknown reports that the doctor cannot unpack this type of archive.
	unknown bool
}

// unpack reads an archive to its end, as clients do, and looks for a folder in
// it.
func unpack(kind string, in *os.File, size int64, folder string) (u unpacked, err error) {
	see := func(name string) error {
		if slices.Contains(strings.FieldsFunc(name, func(r rune) bool { return r == '/' || r == '\\' }), "..") {
			return errors.New("a file name contains .., which leads out of the archive")
		}
		u.files++
		u.found = u.found || strings.HasPrefix(path.Clean("/"+name), folder+"/")
		return nil
	}
	folder = path.Clean("/" + folder)
	if folder == "/" {
		folder, u.found = "", true
	}
	packed := io.NewSectionReader(in, 0, size)
	switch kind {
	case "zip":
		err = readZip(packed, size, see)
	case "tar.gz", "tgz":
		var plain *gzip.Reader
		if plain, err = gzip.NewReader(packed); err == nil {
			err = readTar(plain, see)
		}
	case "tar.bz2", "tar.tbz2":
		err = readTar(bzip2.NewReader(packed), see)
	default:
		u.unknown = true
		return u, nil
	}
	if err == nil && u.files == 0 {
		err = errors.New("the archive is empty")
	}
	return u, err
}

func readTar(plain io.Reader, see func(name string) error) error {
	rest := &io.LimitedReader{R: plain, N: maxUnpacked}
	in := tar.NewReader(rest)
	for {
		header, err := in.Next()
		switch {
		case rest.N <= 0:
			return errUnpacked
		case errors.Is(err, io.EOF):
			_, err = io.Copy(io.Discard, rest) // the checksum comes last
			return err
		case err != nil:
			return err
		case header.Typeflag == tar.TypeXGlobalHeader || header.Typeflag == tar.TypeXHeader:
			continue
		}
		if err := see(header.Name); err != nil {
			return err
		}
	}
}

func readZip(packed io.ReaderAt, size int64, see func(name string) error) error {
	in, err := zip.NewReader(packed, size)
	if err != nil {
		return err
	}
	left := int64(maxUnpacked)
	for _, f := range in.File {
		if err := see(f.Name); err != nil {
			return err
		}
		plain, err := f.Open()
		if err != nil {
			return err
		}
		n, err := io.Copy(io.Discard, io.LimitReader(plain, left))
		_ = plain.Close()
		if left -= n; err == nil && left <= 0 {
			err = errUnpacked
		}
		if err != nil {
			return err
		}
	}
	return nil
}
