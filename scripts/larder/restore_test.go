package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/larder-registry/larder/pkg/files/regularfile"
)

// onText calls do when a text is written to it for the first time.
type onText struct {
	bytes.Buffer
	text string
	do   func()
}

func (o *onText) Write(p []byte) (int, error) {
	if o.do != nil && bytes.Contains(p, []byte(o.text)) {
		o.do()
		o.do = nil
	}
	return o.Buffer.Write(p)
}

// A restore that is interrupted while it verifies restores nothing, and the same
// command succeeds afterwards. Until it has printed what to revoke again, no
// command uses the restored database.
func TestRestoreInterrupted(t *testing.T) {
	t.Parallel()
	data := newData(t)
	publishModule(t, data, "acme/vpc/aws", "1.0.0", withOutput("1"))
	larder(t, "token", "create", "--name", "ci", "--scope", "read:**", "--store", data)
	file := filepath.Join(t.TempDir(), "larder.tar")
	larder(t, "backup", file, "--store", data)
	larder(t, "token", "revoke", "ci", "--store", data)
	for _, test := range []struct {
		name, dir string
		args      []string
	}{
		{"new folder", filepath.Join(t.TempDir(), "new"), []string{"--previous", data}},
		{"empty folder", t.TempDir(), []string{"--previous", data}},
		{"JSON", filepath.Join(t.TempDir(), "new"), []string{"--previous", data, "--json"}},
		{"database", data, []string{"--database-only"}}, // the last one, because it changes data
	} {
		t.Run(test.name, func(t *testing.T) {
			args := append([]string{"restore", file, "--store", test.dir}, test.args...)
			checkUnused := func() {
				var tokens bytes.Buffer
				run(t.Context(), []string{"token", "list", "--store", test.dir}, &tokens, io.Discard)
				if strings.Contains(tokens.String(), "valid") {
					t.Errorf("the revoked token is valid:\n%s", &tokens)
				}
			}
			if test.name != "JSON" { // it shows no progress
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				stderr := &onText{text: "verifying namespace acme", do: cancel}
				if code := run(ctx, args, io.Discard, stderr); code != 1 || !strings.Contains(stderr.String(), "interrupted") {
					t.Fatalf("exit code %d:\n%s", code, stderr)
				}
				checkUnused()
				if left, _ := filepath.Glob(filepath.Join(test.dir, "*-unfinished-*")); len(left) > 0 {
					t.Errorf("these are left: %q", left)
				}
			}
			stdout := &onText{do: checkUnused}
			var stderr bytes.Buffer
			if code := run(t.Context(), args, stdout, &stderr); code != 0 {
				t.Fatalf("exit code %d:\n%s", code, &stderr)
			}
			if !strings.Contains(stdout.String(), "larder token revoke ") {
				t.Errorf("no command to revoke the token:\n%s", stdout)
			}
			if _, err := os.Stat(filepath.Join(test.dir, "last-verify")); err != nil {
				t.Error(err)
			}
		})
	}
}

// The commands that a restore prints run as its user if sudo has started it.
func TestAsOwner(t *testing.T) {
	me := regularfile.Me()
	if me.Name == "" {
		t.Skip("LEFT OUT: this user has no name")
	}
	const restore = "/usr/bin/larder restore larder.tar"
	for name, test := range map[string]struct{ caller, command, want string }{
		"without sudo":       {"", "", ""},
		"by the same user":   {strconv.Itoa(me.UID), restore, ""},
		"by another user":    {strconv.Itoa(me.UID + 1), restore, "sudo -u " + me.Name + " "},
		"in a shell of sudo": {strconv.Itoa(me.UID + 1), "/bin/bash", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("SUDO_UID", test.caller)
			t.Setenv("SUDO_COMMAND", test.command)
			if got := asOwner(); got != test.want {
				t.Errorf("the commands begin with %q, want %q", got, test.want)
			}
		})
	}
}
