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
	"slices"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/files/regularfile"
	"github.com/larder-registry/larder/pkg/local"
)

// dated matches the names that [Name] returns.
var dated = regexp.MustCompile(`^larder-[0-9]{8}-[0-9]{6}\.tar$`)

// Name returns the name of a backup of a time, for a folder of backups.
func Name(at time.Time) string { return "larder-" + at.UTC().Format("20060102-150405") + ".tar" }

// Rotate removes the older backups of a registry from the folder of a new one.
// It leaves keep backups: the new one, and the newest others by their names. It
// returns the names that it removed.
//
// Rotate removes only regular files that [Name] has named and that begin as a
// backup of the same registry does.
func Rotate(path, id string, keep int) (removed []string, err error) {
	dir, newest := filepath.Split(path)
	entries, err := os.ReadDir(filepath.Clean(dir))
	if err != nil {
		return nil, fmt.Errorf("cannot remove old backups: %w", regularfile.Unreadable(dir, err))
	}
	var older []string
	for _, e := range entries {
		if e.Name() != newest && e.Type().IsRegular() && dated.MatchString(e.Name()) &&
			registryOf(filepath.Join(dir, e.Name())) == id {
			older = append(older, e.Name())
		}
	}
	slices.Sort(older)
	for _, name := range older[:max(0, len(older)-keep+1)] {
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
