// Pack writes files to an archive. The archive depends only on the files'
// names, their contents and whether they are executable, and not on times,
// owners or the umask. scripts/release uses it.
//
//	go run ./scripts/pack OUT.zip|OUT.tar.gz FILE…
package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: pack OUT.zip|OUT.tar.gz FILE…")
		os.Exit(2)
	}
	if err := pack(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "pack:", err)
		os.Exit(1)
	}
}

// entry begins a file of an archive.
type entry func(name string, mode fs.FileMode, size int64) (io.Writer, error)

// then is the modification time of all files: the first day that a zip can
// represent.
var then = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)

// pack writes files to an archive, all in its root. The format depends on out's
// extension.
func pack(out string, files []string) (err error) {
	to, err := os.OpenFile(out, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // everyone may read it
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	switch {
	case strings.HasSuffix(out, ".zip"):
		w := zip.NewWriter(to)
		return errors.Join(fill(zipped(w), files), w.Close())
	case strings.HasSuffix(out, ".tar.gz"):
		compressed, err := gzip.NewWriterLevel(to, gzip.BestCompression)
		if err != nil {
			return err
		}
		w := tar.NewWriter(compressed)
		return errors.Join(fill(tarred(w), files), w.Close(), compressed.Close())
	}
	return fmt.Errorf("%s is neither a .zip nor a .tar.gz", out)
}

func zipped(w *zip.Writer) entry {
	return func(name string, mode fs.FileMode, _ int64) (io.Writer, error) {
		header := &zip.FileHeader{Name: name, Method: zip.Deflate, Modified: then}
		header.SetMode(mode)
		return w.CreateHeader(header)
	}
}

func tarred(w *tar.Writer) entry {
	return func(name string, mode fs.FileMode, size int64) (io.Writer, error) {
		return w, w.WriteHeader(&tar.Header{Name: name, Mode: int64(mode), Size: size, ModTime: then,
			Format: tar.FormatUSTAR})
	}
}

func fill(begin entry, files []string) error {
	for _, path := range files {
		if err := add(begin, path); err != nil {
			return err
		}
	}
	return nil
}

func add(begin entry, path string) error {
	in, err := os.Open(path) //nolint:gosec // it is an argument
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	if info.Mode()&0o100 != 0 {
		mode = 0o755
	}
	w, err := begin(filepath.Base(path), mode, info.Size())
	if err != nil {
		return err
	}
	_, err = io.Copy(w, in)
	return err
}
