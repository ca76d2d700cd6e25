package main

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/larder-registry/larder/pkg/rehearsal"
)

// verifies runs `larder verify`, and returns its report and what it printed.
func verifies(t *testing.T, data string, code int, args ...string) (report struct {
	Holds    bool
	Findings []struct {
		Kind, Path, Version string
		Repaired            bool
	}
}, printed string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "larder", append([]string{"verify", "--store", "dir:" + data}, args...)...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run()
	if got := cmd.ProcessState.ExitCode(); got != code {
		t.Fatalf("exit code %d, want %d\n%s%s", got, code, &stdout, &stderr)
	}
	if len(args) > 0 && args[len(args)-1] == "--json" {
		// One document, also where something is found.
		if err := json.Unmarshal(stdout.Bytes(), &report); err != nil {
			t.Fatalf("%v\n%s", err, &stdout)
		}
	}
	return report, stdout.String() + stderr.String()
}

// A registry whose folder was copied, as the README has it backed up, is whole, and clients install from the copy.
func TestRestore(t *testing.T) {
	t.Parallel()
	data, copied := t.TempDir(), t.TempDir()
	first := serve(t, data)
	key := signingKey(t, "Ed25519")
	addKey(t, data, "acme", key)
	larder(t, "publish", "provider", releaseOf(t, key), "acme/note", "--store", "dir:"+data)
	publishModule(t, data, "acme/vpc/aws", "1.0.0", output("restored"))
	first.stop(t)
	if err := os.CopyFS(copied, os.DirFS(data)); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(data); err != nil {
		t.Fatal(err)
	}
	if report, out := verifies(t, copied, 0, "--json"); !report.Holds || len(report.Findings) > 0 {
		t.Errorf("%+v\n%s", report, out)
	}
	s := serve(t, copied)
	rehearsal.EachClient(t, func(t *testing.T, c rehearsal.Client) {
		dir := note(t, s.Host+"/acme/note", "1.0.0", filepath.Join(t.TempDir(), "note.txt"))
		writeFiles(t, dir, map[string]string{"module.tf": `module "vpc" {
  source  = "` + s.Host + `/acme/vpc/aws"
  version = "1.0.0"
}
`})
		client := session(t, c, s)
		if out, err := client.Run(t.Context(), dir, "init", "-no-color"); err != nil {
			t.Error(err, out)
		}
	})
}

// What does not hold is told, with what to do, and has an exit code.
func TestVerify(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	publishModule(t, data, "acme/vpc/aws", "1.0.0", output("1"))
	if _, out := verifies(t, data, 0); !strings.Contains(out, "Verified 1 module, 0 providers, 0 mirrored providers: 1 version, 1 object") || !strings.Contains(out, "verifying namespace acme") {
		t.Error(out)
	}
	err := filepath.WalkDir(filepath.Join(data, "objects"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		return os.Remove(path)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{}, {"--quick"}, {"--repair"}} {
		if _, out := verifies(t, data, 1, args...); !strings.Contains(out, "version-without-object: modules/acme/vpc/aws 1.0.0: ") || !strings.Contains(out, "publish the same again") || !strings.Contains(out, "1 fault") {
			t.Error(out)
		}
	}
	if report, out := verifies(t, data, 1, "--json"); report.Holds || len(report.Findings) != 1 || report.Findings[0].Kind != "version-without-object" {
		t.Error(out)
	}
	// As it says.
	publishModule(t, data, "acme/vpc/aws", "1.0.0", output("1"))
	verifies(t, data, 0)
	verifies(t, filepath.Join(data, "none"), 5)
}
