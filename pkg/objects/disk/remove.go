package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/larder-registry/larder/pkg/objects"
)

// Remove removes all that is below a prefix, staged or kept, and returns how many objects it has removed, also where it fails.
// Nothing being there is no error.
func (s *Store) Remove(ctx context.Context, prefix string) (removed int, err error) {
	if err := objects.CheckFolder(prefix); err != nil {
		return 0, err
	}
	err = s.Walk(ctx, prefix, func(info objects.Info) error {
		if err := s.remove(info.Key); err != nil {
			if e, ok := errors.AsType[*fs.PathError](err); ok {
				err = e.Err // the rest names the file in the store's folder
			}
			return fmt.Errorf("removing object %s: %w", info.Key, err)
		}
		removed++
		return nil
	})
	if err == nil {
		err = s.removeFolders(prefix)
	}
	return removed, err
}

// remove removes an object, and then its marker, as the sweep does.
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

// removeFolders removes the folders that nothing is in any more. It holds the lock,
// as a put does from making its folders until they have its object.
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
		_ = s.root.Remove(dirs[i]) // one that is not empty stays
	}
	return nil
}
