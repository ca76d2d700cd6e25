package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/scripts/larder/failure"
)

// One run prints all problems of a release, each with its hint.
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
	if code := run(t.Context(), args, &stdout, &stderr); code != failure.ExitInvalid {
		t.Errorf("exit code %d", code)
	}
	_, printedProblems, _ := strings.Cut(stderr.String(), "larder: ")
	golden.New(t).Text(t, steady(printedProblems))
	if code := run(t.Context(), append(args, "--json"), &stdout, &stderr); code != failure.ExitInvalid {
		t.Errorf("exit code %d", code)
	}
	var printed struct {
		Error    string
		Problems []failure.Problem
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
