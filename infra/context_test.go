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
)

// chdir makes an empty folder, in which the test goes on. Its name is the same each
// time, unless another run has it: Go caches results by the names of the folders
// that tests change to.
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

// inFolder makes a folder with files, in which the test goes on.
func inFolder(t *testing.T, files map[string]string) {
	t.Helper()
	chdir(t)
	for name, text := range files {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// has fails the test unless a file has a text, or is missing if that is empty.
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

// contextFrom is what the CDK makes of its files and of -c.
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

const oldContext = `{"memory": "512", "alarms": "true", "access": "{\"public\": [\"modules/acme/<a>\"]}", "@aws-cdk/core:x": true, "vpc-provider:account=1": {"a": "b"},
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

// Settings in cdk.context.json move to settings.json, in their types, and what is
// the CDK's stays.
func TestMoveSettings(t *testing.T) {
	inFolder(t, map[string]string{contextFile: oldContext})
	_, err := readContext(contextFrom(t, nil))
	want := `cannot take settings from CDK context: settings are in a file of their own, settings.json.
Moved from cdk.context.json to settings.json: domainName, access, memory, metrics, alarms.
Review settings.json, commit it, and run the command again`
	if err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	has(t, defaultFile, newSettings)
	has(t, contextFile, restOfContext)
	// The command that is run again goes on.
	c, err := readContext(contextFrom(t, nil))
	if diff := cmp.Diff(choices{file: defaultFile}, c, cmp.AllowUnexported(choices{})); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
}

// A file of settings is never written over. What it lacks is shown.
func TestMoveBesideSettings(t *testing.T) {
	const there = "{\"memory\": 512, \"metrics\": true}\n"
	inFolder(t, map[string]string{contextFile: oldContext, defaultFile: there})
	_, err := readContext(contextFrom(t, nil))
	want := `cannot take settings from CDK context: settings are in a file of their own, settings.json.
Took out of cdk.context.json what settings.json has too: memory.
settings.json exists and was not changed. Add or change these lines in it, and take the keys out of cdk.context.json:
  "domainName": "registry.example.com",
  "access": {
    "public": [
      "modules/acme/<a>"
    ]
  },
  "metrics": false,
  "alarms": true
Review settings.json, commit it, and run the command again`
	if err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	has(t, defaultFile, there)
	left, err := contextOf(contextFile)
	if err != nil || len(left) != 7 || left["memory"] != nil || left["metrics"] == nil {
		t.Errorf("%s, %v", left, err)
	}
}

// Wherever a move ends, each setting is in one of the files, and running it again
// finishes it.
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
		if _, err := readContext(contextFrom(t, nil)); err == nil || !strings.Contains(err.Error(),
			"run the command again") {
			t.Errorf("write %d: %v", failsAt, err)
		}
		has(t, defaultFile, newSettings)
		has(t, contextFile, restOfContext)
	}
	// Nothing is moved to a folder that is not there.
	inFolder(t, map[string]string{contextFile: oldContext})
	if _, err := readContext(contextFrom(t, map[string]any{"settings": "stacks/a.json"})); err == nil ||
		!strings.Contains(err.Error(), "cannot move settings") {
		t.Error(err)
	}
	has(t, contextFile, oldContext)
}

// Other places of settings are refused with the line to write.
func TestSettingsElsewhere(t *testing.T) {
	inFolder(t, map[string]string{appFile: `{"app": "go run .", "context": {"alarms": "true"}}`})
	_, err := readContext(contextFrom(t, map[string]any{"memory": "512", "stackName": "acme"}))
	want := `cannot take settings from CDK context: settings are in a file of their own, settings.json.
Add or change these lines in settings.json, and take the keys out of cdk.json:
  "alarms": true
Add or change these lines in settings.json instead of using -c:
  "stackName": "acme",
  "memory": 512
Review settings.json, commit it, and run the command again`
	if err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	has(t, defaultFile, "")
}

func TestContext(t *testing.T) {
	inFolder(t, nil)
	for _, test := range []struct {
		line map[string]any
		want string
	}{
		{map[string]any{"stackname": "acme"}, `unknown key "stackname" (did you mean "stackName"?)`},
		{map[string]any{"allowdrop": "domain"}, `unknown key "allowdrop" (did you mean "allow-drop"?)`},
		{map[string]any{"allow-drop": "domian"}, `unknown kind "domian" (did you mean "domain"?)`},
		{map[string]any{"allow-drop": "foo"}, `unknown kind "foo" (there are domain, table, bucket, access, pool)`},
		{map[string]any{"allow-drop": ""}, `unknown kind "" (there are domain, table, bucket, access, pool)`},
		{map[string]any{"settings": ""}, "is not the name of a file"},
	} {
		if _, err := readContext(test.line); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: %v, want %s", test.line, err, test.want)
		}
	}
	c, err := readContext(map[string]any{"settings": "acme.json", "allow-drop": "domain, table",
		"aws:cdk:x": []any{"**"}})
	want := choices{file: "acme.json", allowed: []string{"domain", "table"}}
	if diff := cmp.Diff(want, c, cmp.AllowUnexported(choices{})); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	// A file that is named must be there. The default one need not be.
	if _, err := loadSettings(c, ""); err == nil || !strings.Contains(err.Error(), "acme.json") {
		t.Error(err)
	}
	if s, err := loadSettings(choices{file: defaultFile}, ""); err != nil || s.StackName != "larder" {
		t.Errorf("%+v, %v", s, err)
	}
	// What is allowed once is not allowed for good.
	for name, text := range map[string]string{contextFile: `{"allow-drop": "domain"}`,
		appFile: `{"context": {"allow-drop": "domain"}}`} {
		inFolder(t, map[string]string{name: text})
		if _, err := readContext(contextFrom(t, nil)); err == nil || !strings.Contains(err.Error(),
			"take it out of "+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	inFolder(t, map[string]string{contextFile: "{"})
	if _, err := readContext(nil); err == nil || !strings.Contains(err.Error(), contextFile) {
		t.Error(err)
	}
}

// FuzzTyped holds that what was text in context is JSON in the file.
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
