package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// packed is a file of an archive.
type packed struct {
	mode    os.FileMode
	content []byte
}

// unpack reads an archive. It fails the test if the archive depends on the
// machine.
func unpack(t *testing.T, path string) map[string]packed {
	t.Helper()
	found := make(map[string]packed)
	if strings.HasSuffix(path, ".zip") {
		z, err := zip.OpenReader(path)
		if err != nil {
			t.Fatal(err)
		}
		defer z.Close()
		for _, f := range z.File {
			in, err := f.Open()
			if err != nil {
				t.Fatal(err)
			}
			content, err := io.ReadAll(in)
			if err != nil || !f.Modified.Equal(then) {
				t.Error(f.Name, f.Modified, err)
			}
			found[f.Name] = packed{f.Mode(), content}
		}
		return found
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	plain, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	for in := tar.NewReader(plain); ; {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(in)
		if err != nil || !header.ModTime.Equal(then) || header.Uid != 0 || header.Gid != 0 || header.Uname != "" ||
			header.Gname != "" {
			t.Error(header, err)
		}
		found[header.Name] = packed{os.FileMode(header.Mode), content}
	}
}

// release runs scripts/release in a new folder with further variables, and
// returns the folder.
func release(t *testing.T, umask string, args ...string) (folder string) {
	t.Helper()
	folder = t.TempDir()
	cmd := exec.CommandContext(t.Context(), "sh",
		append([]string{"-c", "umask " + umask + `; exec ../release "$@"`, "release", args[0], folder},
			args[1:]...)...)
	cmd.Env = append(os.Environ(), "GOFLAGS=-buildvcs=true", "GOAMD64=v2", "TZ=Asia/Tokyo")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return folder
}

// A release has the files of SHA256SUMS, and its command line prints its
// version. Building it again gives the same bytes.
func TestRelease(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("LEFT OUT: scripts/release needs a shell")
	}
	platform := runtime.GOOS + "_" + runtime.GOARCH
	// A folder of a removed function is not part of the release.
	renamed := "../../dist/x86_64/renamed"
	if err := errors.Join(os.MkdirAll(renamed, 0o755),
		os.WriteFile(filepath.Join(renamed, "bootstrap"), nil, 0o755)); err != nil {
		t.Fatal(err)
	}
	first := release(t, "077", "v1.2.3-rc.1", platform, "lambda_x86_64")
	second := release(t, "022", "1.2.3-rc.1",
		platform) // the functions' own tests check that their builds are reproducible

	sums, err := os.ReadFile(filepath.Join(first, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	again, err := os.ReadFile(filepath.Join(second, "SHA256SUMS"))
	if err != nil || len(again) == 0 || !bytes.Contains(sums, again) {
		t.Errorf("the second release differs, %v:\n%s%s", err, sums, again)
	}
	summed := make(map[string]string)
	for line := range strings.Lines(string(sums)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		summed[name] = sum
	}
	entries, err := os.ReadDir(first)
	if err != nil || len(entries) != 10 || len(summed) != 9 {
		t.Errorf("%d files, of which %d are summed, %v", len(entries), len(summed), err)
	}
	for name, want := range summed {
		data, err := os.ReadFile(filepath.Join(first, name))
		if sum := sha256.Sum256(data); err != nil || hex.EncodeToString(sum[:]) != want {
			t.Errorf("%s: SHA256SUMS has another digest, %v", name, err)
		}
	}

	files := unpack(t, filepath.Join(first, "larder_1.2.3-rc.1_"+platform+".tar.gz"))
	if len(files) != 3 || len(files["LICENSE"].content) == 0 || files["README.md"].mode != 0o644 ||
		files["larder"].mode != 0o755 {
		t.Errorf("%d files", len(files))
	}
	program := filepath.Join(t.TempDir(), "larder")
	if err := os.WriteFile(program, files["larder"].content, 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), program, "--version").CombinedOutput(); err != nil ||
		string(out) != "larder version 1.2.3-rc.1\n" {
		t.Errorf("%q, %v", out, err)
	}

	// The notes name the version of Go that built the release.
	if info, err := buildinfo.ReadFile(program); err != nil || info.GoVersion != runtime.Version() {
		t.Errorf("%v, %v", info, err)
	}

	// The mode is executable, as scripts/build leaves it and Lambda needs it.
	built, err := os.ReadFile("../../dist/x86_64/discovery/bootstrap")
	if err != nil {
		t.Fatal(err)
	}
	function := unpack(t, filepath.Join(first, "larder_1.2.3-rc.1_lambda_discovery_x86_64.zip"))
	if len(function) != 1 || function["bootstrap"].mode != 0o755 || !bytes.Equal(function["bootstrap"].content,
		built) {
		t.Errorf("%d files, mode %v", len(function), function["bootstrap"].mode)
	}
}

// Invalid arguments create no files.
func TestReleaseRefuses(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("LEFT OUT: scripts/release needs a shell")
	}
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "other"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args []string
		want string // a part of the usage, a path or a version
	}{
		"nothing":           {nil, "scripts/release 1.2.3 out"},
		"no version":        {[]string{"latest", t.TempDir()}, "scripts/release 1.2.3 out"},
		"no folder":         {[]string{"1.2.3"}, "scripts/release 1.2.3 out"},
		"another platform":  {[]string{"1.2.3", t.TempDir(), "plan9_386"}, "scripts/release 1.2.3 out"},
		"a folder in use":   {[]string{"1.2.3", full, "linux_amd64"}, full},
		"notes of no other": {[]string{"--notes", "99.0.0"}, "[99.0.0]"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := exec.CommandContext(t.Context(), "../release", test.args...).CombinedOutput()
			if err == nil || !strings.Contains(string(out), test.want) {
				t.Errorf("%v\n%s", err, out)
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
	script, err := os.ReadFile("../release")
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
		want += fmt.Sprintf("\nBuilt with %[1]s: `GOTOOLCHAIN=%[1]s scripts/release %[2]s out` gives the same bytes.\n",
			runtime.Version(), strings.TrimPrefix(version, "v"))
		if err != nil || string(out) != want {
			t.Errorf("%s: %q, %v", version, out, err)
		}
	}
}

// Windows gets a zip, which does not depend on the machine either.
func TestPack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program, text := filepath.Join(dir, "larder.exe"), filepath.Join(dir, "LICENSE")
	for path, mode := range map[string]os.FileMode{program: 0o700, text: 0o600} {
		if err := os.WriteFile(path, []byte(path), mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a.zip", "a.tar.gz"} {
		if err := pack(filepath.Join(dir, name), []string{program, text}); err != nil {
			t.Fatal(err)
		}
		got := unpack(t, filepath.Join(dir, name))
		if len(got) != 2 || got["larder.exe"].mode != 0o755 || got["LICENSE"].mode != 0o644 ||
			string(got["LICENSE"].content) != text {
			t.Error(name, got)
		}
		if err := pack(filepath.Join(dir, name), []string{text}); err == nil {
			t.Errorf("%s is overwritten", name)
		}
	}
	if err := pack(filepath.Join(dir, "a.rar"), []string{text}); err == nil {
		t.Error("an unknown format is accepted")
	}
}
