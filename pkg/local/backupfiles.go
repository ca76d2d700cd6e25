package local

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/sqlite"
	"github.com/larder-registry/larder/pkg/objects/disk"
	"github.com/larder-registry/larder/pkg/registry"
)

// The files of a backup, as paths below the folder. The database and the marker
// are always there.
const (
	DatabaseFile = database
	MarkerFile   = marker
)

// SecretFiles returns the files with the secrets of a registry and their
// certificates, as slash-separated paths below the folder. A file is missing
// until the registry needs it.
func SecretFiles() []string {
	return append(disk.Secrets(), "tls/"+caCertificateFile, "tls/"+caKeyFile)
}

// ID returns the ID of the registry.
func (d *Data) ID() string { return d.table.ID() }

// Snapshot is the state of a registry at one moment.
type Snapshot struct {
	// Files are the objects of these versions.
	Files []registry.StoredFile
}

// Snapshot copies the database to a new file with mode 0600, while others read
// and write it. It returns what the copy names. The objects are not copied. It
// returns [registry.ErrCorrupt] if it cannot read a record.
func (d *Data) Snapshot(ctx context.Context, path string) (s Snapshot, err error) {
	if err := d.table.CopyTo(ctx, path); err != nil {
		return s, err
	}
	table, err := sqlite.Open(ctx, path)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, table.Close()) }()
	found := make(map[string]bool)
	err = eachFile(ctx, catalog.New(table), func(f registry.StoredFile) {
		if !found[f.Object] { // the platforms of a version can have the same package
			found[f.Object] = true
			s.Files = append(s.Files, f)
		}
	})
	return s, err
}

// lostAndFound is the folder that the file systems of Linux make on a new disk.
const lostAndFound = "lost+found"

// Content returns the names in a folder, without the folder lost+found of a new
// disk. A missing folder has no content.
func Content(dir string) (names []string, err error) {
	entries, err := os.ReadDir(filepath.Clean(dir))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if e.Name() != lostAndFound || !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// Restoring begins the name of the folder in which a restore unpacks a backup,
// below the registry's folder.
const Restoring = "restore-unfinished-"

// IsRestoring reports whether a folder has parts of a registry whose restore has
// not finished. The database is the last file that such a restore moves.
func IsRestoring(dir string) bool {
	if _, err := os.Lstat(filepath.Join(dir, database)); err == nil {
		return false
	}
	names, _ := Content(dir)
	return slices.ContainsFunc(names, func(name string) bool {
		_, err := os.Lstat(filepath.Join(dir, name, database))
		return err == nil && strings.HasPrefix(name, Restoring)
	})
}
