// Package archive packs modules and reads packed ones.
//
// It promises that the same files give the same tar, whoever packs them, when and where; that what is likely to hold a
// secret stays out unless it is asked for; and that nothing it has accepted leads out of the folder into which a client
// unpacks it.
//
// An archive holds plain files alone. Both clients unpack a symbolic link of a tar as an empty file, so that a link is
// packed as what it leads to, if that is within the module, and an archive with a link is refused.
package archive

import "github.com/dustin/go-humanize"

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
const maxFiles = 100_000

// shownSize returns a bound as people read it.
func shownSize(bytes int64) string { return humanize.IBytes(uint64(bytes)) }

// maxSize is in bytes, unpacked. It is a variable for the sake of tests.
var maxSize int64 = 1 << 30
