package backup

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/files/regularfile"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/registry"
)

// dated matches the names that [Name] returns.
var dated = regexp.MustCompile(`^larder-[0-9]{8}-[0-9]{6}\.tar$`)

// Name returns the name of a backup of a time, for a folder of backups.
func Name(at time.Time) string { return "larder-" + at.UTC().Format("20060102-150405") + ".tar" }

// Rotate removes the older backups of a registry from the folder of a new one.
// It leaves the new one and those with newer names, and as many older ones that
// keep backups are left. It returns the names that it removed. If the new one is
// no longer there, it removes nothing, and returns [registry.ErrNotFound].
//
// Rotate removes only regular files that [Name] has named and that begin as a
// backup of the same registry does. The newest keep names are never removed, even
// if several processes rotate at the same time.
func Rotate(path, id string, keep int) (removed []string, err error) {
	dir, newest := filepath.Split(path)
	entries, err := os.ReadDir(filepath.Clean(dir))
	if err != nil {
		return nil, fmt.Errorf("cannot remove old backups: %w", regularfile.Unreadable(dir, err))
	}
	var older []string // in order, as ReadDir returns them
	newer, found := 0, false
	for _, e := range entries {
		switch name := e.Name(); {
		case name == newest:
			found = true
		case !e.Type().IsRegular() || !dated.MatchString(name) || registryOf(filepath.Join(dir, name)) != id:
		case name < newest:
			older = append(older, name)
		default:
			newer++
		}
	}
	if !found {
		return nil, registry.WithHint(fmt.Errorf("cannot remove old backups: the new backup %s: %w", path, registry.ErrNotFound),
			"Another backup to the folder may have removed it. Run one after the other.")
	}
	for _, name := range older[:max(0, len(older)-max(0, keep-1-newer))] {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return removed, fmt.Errorf("cannot remove the old backup: %w", regularfile.Unwritable(name, err))
		}
		removed = append(removed, name)
	}
	return removed, nil
}

// registryOf returns the ID in the marker of a backup, or "". The marker is the
// second file, so this reads little of the backup.
func registryOf(path string) string {
	f, err := regularfile.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	in := tar.NewReader(f)
	for range 2 {
		header, err := in.Next()
		if err != nil {
			return ""
		}
		if header.Name != local.MarkerFile {
			continue
		}
		text, err := io.ReadAll(io.LimitReader(in, 1<<10))
		if err != nil {
			return ""
		}
		id, _, _ := strings.Cut(string(text), "\n")
		return strings.TrimSpace(id)
	}
	return ""
}
