// Package backup writes the registry of one machine to a file, and restores it.
//
// A backup is a tar file without compression, since archives are compressed
// already. It has the database, the objects that the database names, and the
// registry's secrets. Its last entry is a manifest with the size and the digest
// of every other entry, so a shortened or changed file is recognized.
package backup

import (
	"archive/tar"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/larder-registry/larder/pkg/files/regularfile"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/progress"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
)

const (
	// format is the version of the format. Readers refuse other ones.
	format       = 1
	manifestName = "larder-backup.json"
	// stored is the folder of objects in the file, as in the registry's folder.
	stored = "objects/"
	// unfinished follows a name in the names of temporary files and folders.
	unfinished = "-unfinished-"
	// attempts is how often Write starts again if a version is withdrawn while
	// it copies.
	attempts = 5
)

// Manifest describes a backup.
type Manifest struct {
	// Format is 1.
	Format int `json:"larder_backup"`
	// Registry is the ID of the registry.
	Registry string `json:"registry"`
	// Taken is the time of the state in the backup.
	Taken time.Time `json:"taken"`
	// Release is the version of the program that wrote it.
	Release string `json:"release"`
	// Files are all other entries, in the order of the file.
	Files []File `json:"files"`
}

// File is an entry of a backup.
type File struct {
	Name string `json:"name"`
	// Size in bytes.
	Size int64 `json:"size"`
	// SHA256 in lower-case hexadecimal.
	SHA256 string `json:"sha256"`
}

// Bytes returns the size of all files.
func (m Manifest) Bytes() (n int64) {
	for _, f := range m.Files {
		n += f.Size
	}
	return n
}

// Objects returns the number of objects.
func (m Manifest) Objects() (n int) {
	for _, f := range m.Files {
		if isObject(f.Name) {
			n++
		}
	}
	return n
}

// Writer writes backups of a registry.
type Writer struct {
	Data *local.Data
	// Release is the version of this program.
	Release string
	// Progress reports the progress. It may be nil.
	Progress progress.Reporter
	// Now returns the time. If nil, [time.Now] is used.
	Now func() time.Time

	// step is called before each change of a file, for tests that end the
	// process there. If nil, nothing is called.
	step func()
}

// Write writes a backup to a new file with mode 0600, and reads it again to
// check it. Others can use and change the registry meanwhile. The file appears
// complete, or not at all.
//
// It returns [registry.ErrExists] if there is a file with the name, and
// [registry.ErrCorrupt] if an object of a version is missing or damaged.
func (w Writer) Write(ctx context.Context, path string) (m Manifest, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("cannot write the backup %s: %w", path, errs.DiskFull(err))
		}
	}()
	w.Progress = progress.Or(w.Progress)
	if w.Now == nil {
		w.Now = time.Now
	}
	if w.step == nil {
		w.step = func() {}
	}
	if _, err := os.Lstat(path); err == nil {
		return m, exists()
	}
	removeUnfinished(filepath.Dir(path), "") // each backup of a timer has another name
	temporary := path + unfinished + rand.Text()
	defer func() { _ = os.Remove(temporary) }()
	if err := w.try(ctx, temporary); err != nil {
		return m, err
	}
	if m, err = Check(ctx, temporary, w.Progress); err != nil {
		return m, err
	}
	w.step()
	return m, publish(temporary, path)
}

func exists() error {
	return registry.WithHint(fmt.Errorf("the file %w", registry.ErrExists),
		"Name a new file, or a folder. A folder has at most one backup of each second.")
}

// publish gives a file its final name, and returns [registry.ErrExists] if the
// name is taken.
func publish(temporary, path string) error {
	err := os.Link(temporary, path)
	if errors.Is(err, fs.ErrExist) {
		return exists()
	}
	if err != nil { // some file systems have no links
		if _, err := os.Lstat(path); err == nil {
			return exists()
		}
		if err := os.Rename(temporary, path); err != nil {
			return regularfile.Unwritable(filepath.Base(path), err)
		}
	}
	return syncDir(filepath.Dir(path))
}

// leftovers matches the names of temporary files, with those of SQLite.
var leftovers = regexp.MustCompile(`(.+)` + unfinished + `[A-Z2-7]{26}(\.db(-wal|-shm|-journal)?)?$`)

// removeUnfinished removes temporary files and folders from a folder, which
// processes left that were killed more than a day ago. A younger one may belong
// to a running process. If of is not empty, it removes only those of this name.
func removeUnfinished(dir, of string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		name := leftovers.FindStringSubmatch(e.Name())
		if name == nil || of != "" && name[1] != of {
			continue
		}
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > 24*time.Hour {
			_ = os.RemoveAll(filepath.Join(dir, e.Name()))
		}
	}
}

// gone is the error of an object that the snapshot names and that cannot be
// read.
type gone struct {
	object string
	error
}

// try writes the file. It starts again with a new snapshot if an object is gone
// because its version was withdrawn meanwhile.
func (w Writer) try(ctx context.Context, path string) error {
	last := ""
	for attempt := 1; ; attempt++ {
		err := w.write(ctx, path)
		lost, ok := errors.AsType[*gone](err)
		if !ok {
			return err
		}
		if lost.object == last || attempt == attempts {
			return registry.WithHint(registry.Errorf(registry.ErrCorrupt, "object %s: %w", lost.object, lost.error),
				"If a version was withdrawn just now, try again. Otherwise run `larder verify`, and do what it prints.")
		}
		last = lost.object
	}
}

func (w Writer) write(ctx context.Context, path string) (err error) {
	database := path + ".db"
	defer func() {
		for _, ending := range []string{"", "-wal", "-shm"} {
			_ = os.Remove(database + ending)
		}
	}()
	w.step()
	taken := w.Now().UTC().Truncate(time.Second)
	snapshot, err := w.Data.Snapshot(ctx, database)
	if errors.Is(err, registry.ErrCorrupt) {
		err = registry.WithHint(err, "Run `larder verify`, and do what it prints for each fault.")
	}
	if err != nil {
		return err
	}
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return regularfile.Unwritable(filepath.Base(path), err)
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	total := int64(0)
	for _, f := range snapshot.Files {
		total += f.Size
	}
	moved, end := w.Progress.Transfer("copying objects", total)
	defer end()
	t := &tarWriter{tar: tar.NewWriter(out), step: w.step, manifest: Manifest{
		Format: format, Registry: w.Data.ID(), Taken: taken, Release: w.Release,
	}}
	if err := t.addFile(local.DatabaseFile, database); err != nil {
		return err
	}
	for _, name := range append([]string{local.MarkerFile}, local.SecretFiles()...) {
		err := t.addFile(name, filepath.Join(w.Data.Dir, filepath.FromSlash(name)))
		if err != nil && (name == local.MarkerFile || !errors.Is(err, fs.ErrNotExist)) {
			return err
		}
	}
	for _, f := range snapshot.Files {
		if err := w.addObject(ctx, t, f, moved); err != nil {
			return err
		}
	}
	if err := t.close(); err != nil {
		return err
	}
	w.step()
	return out.Sync()
}

// addObject adds an object if it has the digest in its record.
func (w Writer) addObject(ctx context.Context, t *tarWriter, f registry.StoredFile, moved func(int64)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	body, err := w.Data.Objects.Open(ctx, f.Object, 0, -1)
	if errors.Is(err, registry.ErrNotFound) {
		return &gone{f.Object, errors.New("it is missing")}
	}
	if err != nil {
		return err
	}
	defer body.Close()
	want := objects.Digest{SHA256: f.SHA256, Size: f.Size}
	err = t.add(stored+f.Object, f.Size, func(out io.Writer) error {
		return objects.Copy(out, progress.Reader(body, moved), want)
	})
	if errors.Is(err, registry.ErrInvalid) || errors.Is(err, tar.ErrWriteTooLong) {
		return &gone{f.Object, errors.New("its content differs from the record")}
	}
	return err
}

// tarWriter writes entries and the manifest of them.
type tarWriter struct {
	tar      *tar.Writer
	manifest Manifest
	step     func()
}

func (t *tarWriter) addFile(name, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return regularfile.Unreadable(name, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return regularfile.Unreadable(name, err)
	}
	return t.add(name, info.Size(), func(out io.Writer) error {
		_, err := io.Copy(out, f)
		return err
	})
}

// add adds a file whose content copyTo writes.
func (t *tarWriter) add(name string, size int64, copyTo func(io.Writer) error) error {
	t.step()
	if err := t.header(name, size); err != nil {
		return err
	}
	digest := sha256.New()
	if err := copyTo(io.MultiWriter(t.tar, digest)); err != nil {
		return err
	}
	t.manifest.Files = append(t.manifest.Files, File{name, size, hex.EncodeToString(digest.Sum(nil))})
	return nil
}

func (t *tarWriter) header(name string, size int64) error {
	return t.tar.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600, ModTime: t.manifest.Taken,
	})
}

func (t *tarWriter) close() error {
	t.step()
	text, err := json.Marshal(t.manifest)
	if err != nil {
		return err
	}
	if err := t.header(manifestName, int64(len(text))); err != nil {
		return err
	}
	if _, err := t.tar.Write(text); err != nil {
		return err
	}
	return t.tar.Close()
}

// syncDir makes a new name survive a power failure, if the system can sync
// folders.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	_ = d.Sync()
	return d.Close()
}
