// Package nodejs installs the packages of the Node.js programs that tests run.
package nodejs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// ErrMissing means that Node.js is not installed.
var ErrMissing = errors.New("node or npm is not on PATH")

// Required reports whether Node.js must be present. Otherwise a test without it
// is skipped.
func Required() bool { return os.Getenv("LARDER_REQUIRE_NODE") != "" }

// Install runs npm ci in a folder, and then runs scripts of the folder with
// Node.js. It does nothing if the folder's lock file is already installed. It
// returns the path of Node.js, or [ErrMissing].
func Install(ctx context.Context, dir string, scripts ...string) (node string, err error) {
	if node, err = exec.LookPath("node"); err != nil {
		return "", ErrMissing
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return "", ErrMissing
	}
	lock, err := os.Open(filepath.Join(dir, "package-lock.json"))
	if err != nil {
		return "", err
	}
	defer lock.Close() // this releases the lock
	// Tests of several packages, each in its own process, may run this at the
	// same time.
	for !tryLock(lock) {
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("cannot wait for another installation: %w", ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
	wanted, err := os.ReadFile(lock.Name())
	if err != nil {
		return "", err
	}
	// An incomplete installation does not have this file.
	stamp := filepath.Join(dir, "node_modules", ".installed")
	if installed, err := os.ReadFile(stamp); err == nil && bytes.Equal(installed, wanted) {
		return node, nil
	}
	if err := run(ctx, dir, npm, "ci", "--loglevel=error", "--no-audit", "--no-fund"); err != nil {
		return "", err
	}
	for _, script := range scripts {
		if err := run(ctx, dir, node, script); err != nil {
			return "", err
		}
	}
	return node, os.WriteFile(stamp, wanted, 0o600)
}

func run(ctx context.Context, dir, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", filepath.Base(program), args[0], err, out)
	}
	return nil
}
