package main

import (
	"bytes"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
)

// On a terminal a publish shows what it does, and ends whether it succeeds at once, fails at once, or has to upload.
func TestTerminal(t *testing.T) {
	t.Parallel()
	data, dir := newData(t), t.TempDir()
	writeFiles(t, dir, map[string]string{"main.tf": "", "large.txt": strings.Repeat("0123456789abcdef", 1<<16)})
	publish := func(dir, version string) (shown string, err error) {
		terminal, slave, err := pty.Open()
		if err != nil {
			t.Skip("LEFT OUT: no pseudo-terminal:", err)
		}
		defer terminal.Close()
		cmd := exec.CommandContext(t.Context(), "larder", "publish", "module", dir, "acme/m/null", version, "--store", "dir:"+data)
		cmd.Stderr = slave
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		_ = slave.Close()
		hung := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
		defer hung.Stop()
		var out bytes.Buffer
		_, _ = io.Copy(&out, terminal) // it ends with an error when nobody has the terminal open any more
		return out.String(), cmd.Wait()
	}
	for range 10 {
		if out, err := publish(dir+"/missing", "1.0.0"); err == nil || !strings.Contains(out, "missing") || strings.Contains(err.Error(), "killed") {
			t.Fatalf("a folder that is not there: %v\n%s", err, out)
		}
	}
	if out, err := publish(dir, "1.0.0"); err != nil || !strings.Contains(out, "acme/m/null 1.0.0") || !strings.Contains(out, "\x1b[") {
		t.Errorf("%v\n%q", err, out)
	}
	for range 10 {
		if out, err := publish(dir, "1.0.0"); err != nil {
			t.Fatalf("the same again: %v\n%s", err, out)
		}
	}
}
