package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/larder-registry/larder/scripts/larder/cli"
)

const packaging = "../../packaging"

// serviceLines returns the values of a setting in the systemd unit.
func serviceLines(t *testing.T, setting string) (values []string) {
	t.Helper()
	for line := range strings.Lines(readText(t, filepath.Join(packaging, "larder.service"))) {
		if value, found := strings.CutPrefix(strings.TrimSpace(line), setting+"="); found {
			values = append(values, value)
		}
	}
	if len(values) == 0 {
		t.Fatalf("the unit has no %s", setting)
	}
	return values
}

func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The unit and the examples for its options use flags that exist.
func TestServiceFlags(t *testing.T) {
	t.Parallel()
	command := serviceLines(t, "ExecStart")[0]
	if !strings.HasPrefix(command, "/usr/bin/larder serve ") {
		t.Errorf("the unit runs %q, want larder serve", command)
	}
	serve := subcommand(newRoot((&cli.Program{})), "serve")
	checked := 0
	for _, word := range strings.Fields(command + " " + readText(t, filepath.Join(packaging, "larder.env"))) {
		_, name, isFlag := strings.Cut(strings.Trim(word, "\"`"), "--")
		if !isFlag || name == "help" {
			continue
		}
		checked++
		if serve.Flags().Lookup(name) == nil {
			t.Errorf("larder serve has no flag --%s", name)
		}
	}
	if checked < 3 {
		t.Errorf("checked %d flags, want at least 3", checked)
	}
}

// systemd accepts the unit, and considers it well confined.
func TestServiceUnit(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("LEFT OUT: systemd-analyze is not on PATH")
	}
	program, err := exec.LookPath("larder")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(readText(t, filepath.Join(packaging, "larder.service")), "/usr/bin/larder", program, 1)
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"larder.service": text})
	for _, args := range [][]string{{"verify"}, {"security", "--offline=true", "--threshold=20"}} {
		cmd := exec.CommandContext(t.Context(), "systemd-analyze", append(args, filepath.Join(dir, "larder.service"))...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("systemd-analyze %s: %v\n%s", args[0], err, out)
		}
		if args[0] == "verify" && len(out) > 0 {
			t.Errorf("systemd-analyze verify prints:\n%s", out)
		}
	}
}
