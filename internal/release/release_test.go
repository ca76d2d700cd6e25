// Package release_test tests how releases are made: scripts/release and the
// configuration of goreleaser. `scripts/release --twice` makes a whole release.
package release_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	config     = "../../.goreleaser.yaml"
	goreleaser = "../../.tools/goreleaser-v2.16.0/goreleaser"
)

// A release has each function, and nothing that was removed.
func TestFunctions(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	mains, err := filepath.Glob("../../functions/*/main.go")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, path := range mains {
		want = append(want, filepath.Base(filepath.Dir(path)))
	}
	for what, pattern := range map[string]string{
		"builds": `main: \./functions/(\w+)`, "archives": `(?m)^    name_template: 'larder_\{\{ \.Version \}\}_lambda_(\w+?)_`,
	} {
		var got []string
		for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
			got = append(got, match[1])
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-functions +configuration):\n%s", what, diff)
		}
	}
	sboms := regexp.MustCompile(`(?m)^    id: functions\n    ids: \[(.*)\]`).FindStringSubmatch(string(text))
	if len(sboms) == 0 {
		t.Fatal("the functions have no SBOMs")
	}
	if diff := cmp.Diff(want, strings.Split(sboms[1], ", ")); diff != "" {
		t.Errorf("SBOMs (-functions +configuration):\n%s", diff)
	}
}

// The flags of the programs are those of scripts/build and of the image.
func TestFlags(t *testing.T) {
	t.Parallel()
	for _, file := range []string{config, "../../.ko.yaml", "../../scripts/build"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, flag := range []string{
			"GOENV=off", "GOFLAGS=-mod=readonly", "GOWORK=off", "GOFIPS140=off", "GOEXPERIMENT=", "CGO_ENABLED=0", "-trimpath",
			"-buildvcs=false", "-s -w -buildid=", "v8.0", "v1",
		} {
			if !strings.Contains(string(text), flag) {
				t.Errorf("%s lacks %s", file, flag)
			}
		}
	}
}

func TestConfiguration(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat(goreleaser); err != nil {
		t.Skip("LEFT OUT: goreleaser is not in .tools; `scripts/tools goreleaser` builds it")
	}
	if out, err := exec.CommandContext(t.Context(), goreleaser, "check", config).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// Invalid arguments print the usage, or the version that is missing.
func TestReleaseRefuses(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("LEFT OUT: scripts/release needs a shell")
	}
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"a version":         {[]string{"1.2.3"}, "scripts/release --twice"},
		"another flag":      {[]string{"--once"}, "scripts/release --twice"},
		"no version":        {[]string{"--notes"}, "scripts/release --twice"},
		"not a version":     {[]string{"--notes", "latest"}, "scripts/release --twice"},
		"notes of no other": {[]string{"--notes", "99.0.0"}, "[99.0.0]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := exec.CommandContext(t.Context(), "../../scripts/release", test.args...).CombinedOutput()
			if err == nil {
				t.Error("there is no error")
			}
			if !strings.Contains(string(out), test.want) {
				t.Errorf("the output lacks %s:\n%s", test.want, out)
			}
		})
	}
}

// The notes of a release are its section of the changelog, up to the next
// section or the links at the end. They also name the version of Go.
func TestNotes(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("LEFT OUT: scripts/release needs a shell")
	}
	script, err := os.ReadFile("../../scripts/release")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	const changelog = "# Changelog\n\n## [Unreleased]\n\n- later\n\n## [1.2.3] - 2026-11-21\n\n### Added\n\n- this " +
		"[here](README.md), [there](docs/runbook.md#alarms), [above](#added) and [elsewhere](https://example.com/#x)\n\n## " +
		"[1.2.30] - 2026-11-20\n\n- before\n\n[1.2.3]: https://example.com\n"
	for name, text := range map[string]string{"scripts/release": string(script), "CHANGELOG.md": changelog,
		"go.mod": "module github.com/acme/larder\n\ngo 1.26.0\n"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at := "https://github.com/acme/larder/blob/v1.2.3/"
	for version, want := range map[string]string{
		"v1.2.3": "\n### Added\n\n- this [here](" + at + "README.md), [there](" + at +
			"docs/runbook.md#alarms), [above](#added) and [elsewhere](https://example.com/#x)\n",
		"1.2.30": "\n- before\n",
	} {
		out, err := exec.CommandContext(t.Context(), "bash", filepath.Join(dir, "scripts/release"), "--notes",
			version).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", version, err, out)
			continue
		}
		want += fmt.Sprintf("\nBuilt with %[1]s: `GOTOOLCHAIN=%[1]s scripts/release` gives the same bytes.\n", runtime.Version())
		if diff := cmp.Diff(want, string(out)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", version, diff)
		}
	}
}
