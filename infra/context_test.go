package main

import (
	"encoding/json"
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

// has fails the test unless a file has the content want. If want is empty, the
// file may be missing.
func has(t *testing.T, name, want string) {
	t.Helper()
	got, err := os.ReadFile(name)
	if want == "" && os.IsNotExist(err) {
		return
	}
	if diff := cmp.Diff(want, string(got)); diff != "" || err != nil {
		t.Errorf("%s: %v\n%s", name, err, diff)
	}
}

// contextFrom merges context like the CDK does: the files, then -c.
func contextFrom(t *testing.T, line map[string]any) map[string]any {
	t.Helper()
	context := make(map[string]any)
	for _, name := range []string{appFile, contextFile} {
		of, err := contextOf(name)
		if err != nil {
			t.Fatal(err)
		}
		for key, v := range of {
			context[key] = decoded(v)
		}
	}
	for key, v := range line {
		context[key] = v
	}
	return context
}

const oldContext = `{"memory": "512", "alarms": "true", "access": "{\"public\": [\"modules/acme/<a>\"]}",
 "@aws-cdk/core:x": true, "vpc-provider:account=1": {"a": "b"},
 "domainName": "registry.example.com", "metrics": false, "cli-telemetry": false}`

const newSettings = `{
  "$schema": "./settings.schema.json",
  "domainName": "registry.example.com",
  "access": {
    "public": [
      "modules/acme/<a>"
    ]
  },
  "memory": 512,
  "metrics": false,
  "alarms": true
}
`

const restOfContext = `{
  "@aws-cdk/core:x": true,
  "cli-telemetry": false,
  "vpc-provider:account=1": {
    "a": "b"
  }
}
`

// Settings in cdk.context.json move to settings.json with their types. The CDK's
// own context stays.
func TestMoveSettings(t *testing.T) {
	texts := golden.New(t)
	inFolder(t, map[string]string{contextFile: oldContext})
	_, err := readContext(contextFrom(t, nil))
	texts.Error(t, err)
	has(t, defaultFile, newSettings)
	has(t, contextFile, restOfContext)
	// The same command then succeeds.
	c, err := readContext(contextFrom(t, nil))
	if diff := cmp.Diff(choices{file: defaultFile}, c, cmp.AllowUnexported(choices{})); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
}

// An existing settings file is not overwritten. The error lists the settings
// that it lacks.
func TestMoveBesideSettings(t *testing.T) {
	texts := golden.New(t)
	const there = "{\"memory\": 512, \"metrics\": true}\n"
	inFolder(t, map[string]string{contextFile: oldContext, defaultFile: there})
	_, err := readContext(contextFrom(t, nil))
	texts.Error(t, err)
	has(t, defaultFile, there)
	left, err := contextOf(contextFile)
	if err != nil || len(left) != 7 || left["memory"] != nil || left["metrics"] == nil {
		t.Errorf("%s, %v", left, err)
	}
}

// If a move fails at any write, each setting is in one of the files, and running
// it again completes it.
func TestMoveInterrupted(t *testing.T) {
	full := errors.New("the disk is full")
	for _, failsAt := range []int{1, 2} {
		inFolder(t, map[string]string{contextFile: oldContext})
		context := contextFrom(t, nil)
		var old []setting
		for _, s := range defaultSettings().keys() {
			if _, there := context[s.key]; there {
				old = append(old, s)
			}
		}
		inContextFile, err := contextOf(contextFile)
		if err != nil {
			t.Fatal(err)
		}
		writes := 0
		m := mover{to: defaultFile, context: context, inContextFile: inContextFile, write: func(name string,
			text []byte) error {
			if writes++; writes == failsAt {
				return full
			}
			return replaceFile(name, text)
		}}
		if err := m.move(old); !errors.Is(err, full) {
			t.Errorf("write %d: %v", failsAt, err)
		}
		has(t, contextFile, oldContext)
		if _, err := readContext(contextFrom(t, nil)); err == nil {
			t.Errorf("write %d: the move was complete, and must not be", failsAt)
		}
		has(t, defaultFile, newSettings)
		has(t, contextFile, restOfContext)
	}
	// Nothing is moved to a folder that does not exist.
	inFolder(t, map[string]string{contextFile: oldContext})
	_, err := readContext(contextFrom(t, map[string]any{"settings": "stacks/a.json"}))
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error is %v, want fs.ErrNotExist", err)
	}
	has(t, contextFile, oldContext)
}

// Settings in other places are rejected, with the lines to write.
func TestSettingsElsewhere(t *testing.T) {
	texts := golden.New(t)
	inFolder(t, map[string]string{appFile: `{"app": "go run .", "context": {"alarms": "true"}}`})
	_, err := readContext(contextFrom(t, map[string]any{"memory": "512", "stackName": "acme"}))
	texts.Error(t, err)
	has(t, defaultFile, "")
}

func TestContext(t *testing.T) {
	texts := golden.New(t)
	inFolder(t, nil)
	for name, line := range map[string]map[string]any{
		"a setting misspelt": {"stackname": "acme"},
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
	for name, text := range map[string]string{contextFile: `{"allow-drop": "domain"}`,
		appFile: `{"context": {"allow-drop": "domain"}}`} {
		inFolder(t, map[string]string{name: text})
		if _, err := readContext(contextFrom(t, nil)); err == nil || !strings.HasSuffix(err.Error(), " "+name) {
			t.Errorf("%s: error is %v, want one that ends with the name", name, err)
		}
	}
	inFolder(t, map[string]string{contextFile: "{"})
	if _, err := readContext(nil); err == nil || !strings.Contains(err.Error(), contextFile) {
		t.Error(err)
	}
}

// FuzzTyped checks that any text in context becomes valid JSON in the file.
func FuzzTyped(f *testing.F) {
	f.Add("true")
	f.Add(`{"a": 1} x`)
	f.Fuzz(func(t *testing.T, text string) {
		for _, s := range defaultSettings().keys() {
			if _, err := json.Marshal(typed(s, text)); err != nil {
				t.Error(err)
			}
		}
	})
}
