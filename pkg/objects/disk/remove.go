package disk

import (
	"context"
	"errors"
	"io/fs"
	"path"

	"github.com/larder-registry/larder/pkg/files/regularfile"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/registry"
)

// Remove removes all objects below a prefix, staged or permanent. It returns
// the number of removed objects, even if it fails. It returns nil if there are
// none.
func (s *Store) Remove(ctx context.Context, prefix string) (removed int, err error) {
	if err := objects.CheckFolder(prefix); err != nil {
		return 0, err
	}
	err = s.Walk(ctx, prefix, func(info objects.Info) error {
		if err := s.remove(info.Key); err != nil {
			err = s.denied(path.Join(stored, info.Key), err)
			return registry.Errorf(err, "cannot remove object %s: %s", info.Key, regularfile.Reason(err))
		}
		removed++
		return nil
	})
	if err == nil {
		err = s.removeFolders(prefix)
	}
	return removed, err
}

// remove removes an object and then its marker, as the sweep does.
func (s *Store) remove(key string) error {
	unlock, err := s.lock.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	name := path.Join(stored, key)
	err = s.root.Remove(name)
	if err == nil {
		err = s.syncDir(path.Dir(name))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return s.unmark(key)
}

// removeFolders removes empty folders. It holds the lock, as a put does from
// creating its folders until they have its object.
func (s *Store) removeFolders(prefix string) error {
	unlock, err := s.lock.Lock()
	if err != nil {
		return err
	}
	defer unlock()
	var dirs []string
	err = fs.WalkDir(s.root.FS(), path.Join(stored, prefix), func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, name)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for i := len(dirs) - 1; i >= 0; i-- {
		_ = s.root.Remove(dirs[i]) // this fails if it is not empty
	}
	return nil
}
