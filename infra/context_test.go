package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
)

// chdir creates an empty folder and makes it the working directory of the test.
// Its name is the same each time, unless another run uses it: Go caches results
// by the names of the folders that tests change to.
func chdir(t *testing.T) {
	t.Helper()
	for n := 1; ; n++ {
		name := fmt.Sprintf("larder-infra-%s-%d", strings.ReplaceAll(t.Name(), "/", "-"), n)
		dir := filepath.Join(os.TempDir(), name)
		err := os.Mkdir(dir, 0o700)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		t.Chdir(dir)
		return
	}
}

// inFolder creates a folder with files and makes it the working directory of the
// test.
func inFolder(t *testing.T, files map[string]string) {
	t.Helper()
	chdir(t)
	for name, text := range files {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestContext(t *testing.T) {
	texts := golden.New(t)
	inFolder(t, nil)
	for name, line := range map[string]map[string]any{
		"a setting":          {"stackName": "acme"},
		"a key misspelt":     {"allowdrop": "domain"},
		"a kind misspelt":    {"allow-drop": "domian"},
		"an unknown kind":    {"allow-drop": "foo"},
		"an empty kind":      {"allow-drop": ""},
		"an empty file name": {"settings": ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := readContext(line)
			texts.Error(t, err)
		})
	}
	c, err := readContext(map[string]any{"settings": "acme.json", "allow-drop": "domain, table",
		"aws:cdk:x": []any{"**"}})
	want := choices{file: "acme.json", allowed: []string{"domain", "table"}}
	if diff := cmp.Diff(want, c, cmp.AllowUnexported(choices{})); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	// A file that context names must exist. The default one may be missing.
	if _, err := loadSettings(c, ""); err == nil || !strings.Contains(err.Error(), "acme.json") {
		t.Error(err)
	}
	if s, err := loadSettings(choices{file: defaultFile}, ""); err != nil || s.StackName != "larder" {
		t.Errorf("%+v, %v", s, err)
	}
	// allow-drop is rejected in the files, where it would apply to all deploys.
	domain := map[string]any{"allow-drop": "domain"}
	for name, text := range map[string]string{contextFile: `{"allow-drop": "domain"}`,
		appFile: `{"app": "go run .", "context": {"allow-drop": "domain"}}`} {
		inFolder(t, map[string]string{name: text})
		if _, err := readContext(domain); err == nil || !strings.HasSuffix(err.Error(), " "+name) {
			t.Errorf("%s: error is %v, want one that ends with the name", name, err)
		}
	}
	inFolder(t, map[string]string{contextFile: `{"vpc-provider:account=1": {}}`,
		appFile: `{"context": {"@aws-cdk/core:x": true}}`})
	if _, err := readContext(domain); err != nil {
		t.Error(err)
	}
	inFolder(t, map[string]string{contextFile: "{"})
	if _, err := readContext(domain); err == nil || !strings.Contains(err.Error(), contextFile) {
		t.Error(err)
	}
}
