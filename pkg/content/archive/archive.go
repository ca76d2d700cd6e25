// Package archive packs modules, and reads and verifies module and provider
// archives.
//
// Packing is deterministic: the same files give the same tar on every machine
// and at any time. Files that are likely to hold secrets are excluded unless
// the caller includes them. No accepted archive has an entry that a client
// would unpack outside its target folder.
//
// Archives contain regular files only. Both clients unpack a symbolic link of a
// tar as an empty file. [Pack] therefore packs the target of a link if it is
// within the module, and readers reject archives with links.
package archive

import (
	"fmt"

	"github.com/dustin/go-humanize"

	"github.com/larder-registry/larder/pkg/registry"
)

// File is one file of an archive.
type File struct {
	// Path within the module, with slashes.
	Path string `json:"path"`
	// Size in bytes.
	Size int64 `json:"size"`
	// Executable reports whether the file has an executable bit.
	Executable bool `json:"executable,omitempty"`
}

// maxFiles is the largest number of files in a module. Real modules have far
// fewer.
const maxFiles = 100_000

// shownSize formats a number of bytes for people, such as "1.0 GiB".
func shownSize(bytes int64) string { return humanize.IBytes(uint64(bytes)) }

// maxSize is the largest size of an unpacked module, in bytes. Tests lower it.
var maxSize int64 = 1 << 30

func invalidModule(format string, args ...any) error {
	return fmt.Errorf("%w module: %w", registry.ErrInvalid, fmt.Errorf(format, args...))
}

func invalidArchive(format string, args ...any) error {
	return fmt.Errorf("%w module archive: %w", registry.ErrInvalid, fmt.Errorf(format, args...))
}

func invalidZip(format string, args ...any) error {
	return fmt.Errorf("%w provider zip: %w", registry.ErrInvalid, fmt.Errorf(format, args...))
}
