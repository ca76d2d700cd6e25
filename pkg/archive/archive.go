// Package archive packs modules and reads packed ones.
//
// It promises that the same files give the same tar, whoever packs them, when and where; that what is likely to hold a
// secret stays out unless it is asked for; and that nothing it has accepted leads out of the folder into which a client
// unpacks it.
//
// An archive holds plain files alone. Both clients unpack a symbolic link of a tar as an empty file, so that a link is
// packed as what it leads to, if that is within the module, and an archive with a link is refused.
package archive

import (
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/larder-registry/larder/pkg/registry"
)

// File is one file of an archive.
type File struct {
	// Path within the module, with slashes.
	Path string `json:"path"`
	// Size in bytes.
	Size int64 `json:"size"`
	// Executable says whether the file may be run.
	Executable bool `json:"executable,omitempty"`
}

// The bounds of a module. They are far from what a module needs, and near enough to keep whoever reads one safe.
const (
	maxFiles = 100_000
	maxPath  = 1024 // bytes
	maxName  = 255  // bytes of one part of a path, which is what file systems take
)

// maxSize is in bytes, unpacked. It is a variable for the sake of tests.
var maxSize int64 = 1 << 30

// checkPath says whether a path is one that every client can unpack to the same place.
func checkPath(name string) error {
	if len(name) > maxPath {
		return fmt.Errorf("%w path in an archive: %.40q… has more than %d bytes", registry.ErrInvalid, name, maxPath)
	}
	if !fs.ValidPath(name) || name == "." {
		return fmt.Errorf("%w path %q in an archive", registry.ErrInvalid, name)
	}
	for part := range strings.SplitSeq(name, "/") {
		if len(part) > maxName {
			return fmt.Errorf("%w path in an archive: %.40q… has a name of more than %d bytes", registry.ErrInvalid, name, maxName)
		}
	}
	for _, r := range name {
		// A backslash separates folders on Windows; the replacement character stands for what is no UTF-8.
		if r < ' ' || r == '\\' || r == 0x7f || r == '\ufffd' {
			return fmt.Errorf("%w path %q: rename the file, or leave it out in .terraformignore", registry.ErrInvalid, name)
		}
	}
	return nil
}

// checkTree says whether files can stand beside one another: each path is there once, and none is a folder of another.
func checkTree(files []File) error {
	taken := make(map[string]bool, len(files))
	for _, f := range files {
		if taken[f.Path] {
			return fmt.Errorf("%w module archive: %s is in it twice", registry.ErrInvalid, f.Path)
		}
		taken[f.Path] = true
	}
	for _, f := range files {
		for dir := path.Dir(f.Path); dir != "."; dir = path.Dir(dir) {
			if taken[dir] {
				return fmt.Errorf("%w module archive: %s is both a file and a folder", registry.ErrInvalid, dir)
			}
		}
	}
	return nil
}
