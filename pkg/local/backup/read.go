package backup

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/larder-registry/larder/pkg/files/regularfile"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/progress"
	"github.com/larder-registry/larder/pkg/registry"
)

const (
	// maxManifestEntry bounds the manifest, in bytes for each file: a name of at
	// most 1,000 bytes, a size and a digest.
	maxManifestEntry = 2 << 10
	maxManifestBegin = 4 << 10
)

// Check reads a backup to its end. It returns [registry.ErrInvalid] for a file
// that is not a backup, [registry.ErrCorrupt] for a damaged one, and
// [registry.ErrSchema] for one of a later release. reporter may be nil.
func Check(ctx context.Context, path string, reporter progress.Reporter) (Manifest, error) {
	return readFile(ctx, path, "checking the backup", reporter,
		func(_ string, body io.Reader) error {
			_, err := io.Copy(io.Discard, body)
			return err
		})
}

func readFile(ctx context.Context, path, what string, reporter progress.Reporter, visit visitor) (m Manifest, err error) {
	f, err := regularfile.Open(path)
	if errors.Is(err, fs.ErrPermission) {
		user := regularfile.Me()
		return m, registry.WithHint(err, "As root, give the file to the user of this command, in a folder that this user "+
			"can read: `sudo chown %s %s`.", cmp.Or(user.Name, strconv.Itoa(user.UID)), path)
	}
	if err != nil {
		return m, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return m, regularfile.Unreadable(filepath.Base(path), err)
	}
	moved, end := progress.Or(reporter).Transfer(what, info.Size())
	defer end()
	return read(progress.Reader(progress.WithContext(ctx, f), moved), visit)
}

// visitor receives the content of a file. It must read all of it.
type visitor func(name string, body io.Reader) error

func damaged(reason string, args ...any) error {
	return registry.WithHint(registry.Errorf(registry.ErrCorrupt, "it is damaged: "+reason, args...), "Use another backup.")
}

// read parses a backup strictly. The manifest must be the last entry, and name
// exactly the entries before it, with their digests.
func read(in io.Reader, visit visitor) (m Manifest, err error) {
	t := tar.NewReader(in)
	var files []File
	found := make(map[string]bool)
	for {
		header, err := t.Next()
		switch {
		case err != nil && len(files) == 0 && isMalformed(err):
			return m, registry.WithHint(fmt.Errorf("%w file: it is not a backup of a registry", registry.ErrInvalid),
				"Name the file of a backup.")
		case err != nil:
			return m, unreadable(err)
		}
		if err := checkHeader(header); err != nil {
			return m, err
		}
		if found[header.Name] {
			return m, damaged("it has two files %s", header.Name)
		}
		found[header.Name] = true
		if header.Name == manifestName {
			m, err = readManifest(t, header.Size, files)
			if err != nil {
				return m, err
			}
			return m, checkEnd(t, in)
		}
		digest := sha256.New()
		body := io.TeeReader(t, digest)
		if err := visit(header.Name, body); err != nil {
			return m, unreadable(err)
		}
		files = append(files, File{header.Name, header.Size, hex.EncodeToString(digest.Sum(nil))})
	}
}

// isMalformed reports whether an error means that a tar file breaks off or is
// not one.
func isMalformed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || isMalformedHeader(err)
}

func isMalformedHeader(err error) bool {
	return errors.Is(err, tar.ErrHeader) || errors.Is(err, tar.ErrFieldTooLong)
}

// unreadable returns the error for a malformed tar file. It returns errors of
// other origins as they are.
func unreadable(err error) error {
	switch {
	case isMalformedHeader(err):
		return damaged("it is not a valid tar file")
	case isMalformed(err):
		return damaged("its end is missing")
	}
	return err
}

func isObject(name string) bool { return strings.HasPrefix(name, stored) }

// checkHeader accepts only regular files with the names that a Writer uses. A
// sparse file could be much larger than the backup.
func checkHeader(h *tar.Header) error {
	sparse := slices.ContainsFunc(keys(h.PAXRecords), func(k string) bool { return strings.HasPrefix(k, "GNU.sparse") })
	if h.Typeflag != tar.TypeReg || sparse {
		return damaged("%q is not a regular file", h.Name)
	}
	known := h.Name == manifestName || h.Name == local.DatabaseFile || h.Name == local.MarkerFile ||
		slices.Contains(local.SecretFiles(), h.Name)
	if isObject(h.Name) {
		known = objects.CheckKey(strings.TrimPrefix(h.Name, stored)) == nil
	}
	if !known {
		return damaged("it has the unknown file %q", h.Name)
	}
	return nil
}

func keys(records map[string]string) (names []string) {
	for name := range records {
		names = append(names, name)
	}
	return names
}

// readManifest reads the manifest, and compares it with the files before it.
func readManifest(in io.Reader, size int64, files []File) (m Manifest, err error) {
	if size > maxManifestBegin+int64(len(files))*maxManifestEntry {
		return m, damaged("its manifest is too large")
	}
	text, err := io.ReadAll(in)
	if err != nil {
		return m, unreadable(err)
	}
	var begin struct {
		Format int `json:"larder_backup"`
	}
	if err := json.Unmarshal(text, &begin); err != nil {
		return m, damaged("its manifest is not valid JSON")
	}
	if begin.Format != format {
		return m, registry.WithHint(registry.Errorf(registry.ErrSchema, "it has the format %d, and this release reads %d",
			begin.Format, format), "Use the release that wrote it.")
	}
	strict := json.NewDecoder(bytes.NewReader(text))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&m); err != nil {
		return m, damaged("its manifest has an unknown field or a wrong type")
	}
	if !slices.Equal(m.Files, files) {
		return m, damaged("its content differs from its manifest")
	}
	for _, name := range []string{local.DatabaseFile, local.MarkerFile} {
		if !slices.ContainsFunc(files, func(f File) bool { return f.Name == name }) {
			return m, damaged("%s is missing", name)
		}
	}
	return m, nil
}

func checkEnd(t *tar.Reader, in io.Reader) error {
	if _, err := t.Next(); err == nil {
		return damaged("something follows its manifest")
	} else if !errors.Is(err, io.EOF) {
		return unreadable(err)
	}
	if n, err := io.ReadFull(in, make([]byte, 1)); n > 0 {
		return damaged("something follows its end")
	} else if !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}
