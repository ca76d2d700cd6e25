package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// All that is wrong with a first release is printed in one run, each problem
// with what to do about it.
func TestProblems(t *testing.T) {
	t.Parallel()
	data, dir := newData(t), t.TempDir()
	for _, name := range []string{"terraform-provider-note_1.0.0_linux_amd64.zip", "terraform-provider-note.zip"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("not a zip"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"publish", "provider", dir, "acme/note", "--store", "dir:" + data}
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), args, &stdout, &stderr); code != exitRefused {
		t.Errorf("exit code %d", code)
	}
	for _, line := range []string{
		"larder: cannot publish acme/note 1.0.0: 6 problems:",
		"  - invalid release: terraform-provider-note.zip is not named as clients know it",
		"  - invalid release: there is no manifest that says which protocol of plugins the provider speaks",
		"    Add terraform-provider-note_1.0.0_manifest.json, or give the protocol with `--protocol 6.0`.",
		"  - invalid release: terraform-provider-note_1.0.0_SHA256SUMS is missing",
		"  - invalid release: terraform-provider-note_1.0.0_SHA256SUMS.sig is missing",
		"  - invalid release: namespace acme has no key yet",
	} {
		if !strings.Contains(stderr.String(), line+"\n") {
			t.Errorf("%q is missing from:\n%s", line, stderr.String())
		}
	}
	if code := run(t.Context(), append(args, "--json"), &stdout, &stderr); code != exitRefused {
		t.Errorf("exit code %d", code)
	}
	var printed struct {
		Error    string
		Problems []problem
	}
	if err := json.Unmarshal(stdout.Bytes(), &printed); err != nil {
		t.Fatal(err)
	}
	if len(printed.Problems) != 6 || !strings.HasPrefix(printed.Error, "cannot publish acme/note 1.0.0: 6 problems: ") {
		t.Errorf("%+v", printed)
	}
	for _, p := range printed.Problems {
		if p.Error == "" || p.Code != "invalid" {
			t.Errorf("%+v", p)
		}
	}
}
