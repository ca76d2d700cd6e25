package local

import (
	"path/filepath"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/files/regularfile"
)

// Last is a file in the folder with the time of an event, for the metrics. Each
// event has a file of its own, so that two commands never write the same one. A
// missing or damaged file counts as an event that never happened.
type Last string

const (
	// LastBackup has the time of the state in the last complete backup.
	LastBackup Last = "last-backup"
	// LastVerify has the end of the last complete check that found no fault.
	LastVerify Last = "last-verify"
)

// maxLast is the maximum size of such a file in bytes.
const maxLast = 100

// Record stores the time of an event in a folder.
func (l Last) Record(dir string, at time.Time) error {
	return replaceFile(dir, string(l), []byte(at.UTC().Format(time.RFC3339)+"\n"))
}

// In returns the time of the event in a folder, or the zero time.
func (l Last) In(dir string) time.Time {
	text, err := regularfile.Read(filepath.Join(dir, string(l)), maxLast)
	if err != nil {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339, strings.TrimSpace(string(text)))
	if err != nil {
		return time.Time{}
	}
	return at
}
