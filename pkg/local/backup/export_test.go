package backup

import (
	"archive/tar"
	"context"
	"io"
)

// WriteInSteps writes a backup, and calls step before each change of a file.
func WriteInSteps(ctx context.Context, w Writer, path string, step func()) error {
	w.step = step
	_, err := w.Write(ctx, path)
	return err
}

// RestoreInSteps restores a backup, and calls step before each change of a file.
func RestoreInSteps(ctx context.Context, file, dir string, step func()) error {
	_, err := restore(ctx, file, dir, nil, nil, nil, step)
	return err
}

// RestoreDatabaseInSteps restores a database, and calls step before each change
// of a file.
func RestoreDatabaseInSteps(ctx context.Context, file, dir string, step func()) error {
	_, _, err := restoreDatabase(ctx, file, dir, nil, nil, step)
	return err
}

// CheckHeader checks the header of an entry.
func CheckHeader(h *tar.Header) error { return checkHeader(h) }

// Read parses a backup.
func Read(in io.Reader, visit func(name string, body io.Reader) error) error {
	_, err := read(in, visit)
	return err
}
