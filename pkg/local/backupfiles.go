package local

import (
	"context"
	"errors"
	"os"
	"path/filepath"

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

// HasContent reports whether a folder has any file.
func HasContent(dir string) (bool, error) {
	entries, err := os.ReadDir(filepath.Clean(dir))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return len(entries) > 0, err
}
