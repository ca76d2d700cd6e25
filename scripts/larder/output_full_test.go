package main

import (
	"bytes"
	"strings"
	"syscall"
	"testing"

	"github.com/larder-registry/larder/scripts/larder/failure"
)

// fullDisk is a file on a disk without room.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// A command fails if it cannot write its result.
func TestFullOutput(t *testing.T) {
	t.Parallel()
	data := newData(t)
	for _, args := range []string{
		"token create --name text --scope read:**", "token create --name quiet --scope read:** --quiet",
		"token create --name json --scope read:** --json", "list", "list --json", "version", "completion bash",
	} {
		words := strings.Fields(args)
		if words[0] == "token" || words[0] == "list" {
			words = append(words, "--store", data)
		}
		var stderr bytes.Buffer
		code := run(t.Context(), words, fullDisk{}, &stderr)
		if code != failure.ExitFailed {
			t.Errorf("larder %s: exit code %d, want %d\n%s", args, code, failure.ExitFailed, &stderr)
		}
		if !strings.Contains(stderr.String(), "the disk is full") {
			t.Errorf("larder %s prints %s", args, &stderr)
		}
	}
}
