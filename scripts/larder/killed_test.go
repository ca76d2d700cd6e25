package main

import (
	"context"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"

	"modernc.org/sqlite"

	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/scripts/larder/place"
)

// killAt is the variable of the change before which larder-killed is killed.
const killAt = "LARDER_TEST_KILL_AT"

// mainKilled is main in a process that is killed before one of its changes.
// Changes are objects that it stores in a folder, transactions that it commits,
// and the end of its use of a registry.
func mainKilled() {
	at, err := strconv.Atoi(os.Getenv(killAt))
	if err != nil {
		panic(err)
	}
	var mu sync.Mutex
	change := func(effect func() error) error {
		mu.Lock()
		defer mu.Unlock()
		if at--; at == 0 {
			self, err := os.FindProcess(os.Getpid())
			if err == nil {
				err = self.Kill()
			}
			panic(err) // a killed process does not get here
		}
		return effect()
	}
	sqlite.RegisterConnectionHook(func(conn sqlite.ExecQuerierContext, _ string) error {
		conn.(sqlite.HookRegisterer).RegisterCommitHook(func() int32 {
			_ = change(func() error { return nil })
			return 0
		})
		return nil
	})
	open := place.OpenFolder
	place.OpenFolder = func(ctx context.Context, dir string, by place.FolderOpener) (*place.Store, error) {
		s, err := open(ctx, dir, by)
		if err == nil {
			s.Objects = changedObjects{s.Objects, change}
			closed := s.Close
			s.Close = func() error { return change(closed) }
		}
		return s, err
	}
	main()
}

// changedObjects stores each object in a change.
type changedObjects struct {
	objects.Store
	change func(effect func() error) error
}

func (o changedObjects) PutOnce(ctx context.Context, key string, body io.ReadSeeker, digest objects.Digest) error {
	return o.change(func() error { return o.Store.PutOnce(ctx, key, body, digest) })
}

// killed runs a command of larder in a folder, in a process that is killed
// before a change, counted from 1. It reports whether there was such a change.
func killed(t *testing.T, at int, dir string, args ...string) bool {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "larder-killed", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), killAt+"="+strconv.Itoa(at), "TMPDIR="+t.TempDir()) // it leaves files there
	out, err := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code > 0 {
		t.Fatalf("larder %v, killed at change %d: %v\n%s", args, at, err, out)
	}
	return err != nil
}
