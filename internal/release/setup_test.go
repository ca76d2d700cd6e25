package release_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v4"
)

// program is a script in the place of larder. It records that it was run.
const program = "#!/bin/sh\ntouch \"$HOME/ran\"\necho larder version 1.2.3\n"

func tarball(t *testing.T, name, content string, mode int64) []byte {
	t.Helper()
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	w := tar.NewWriter(compressed)
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(content))}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(content)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := compressed.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func zipped(t *testing.T, name, content string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	header := &zip.FileHeader{Name: name}
	header.SetMode(0o755)
	f, err := w.CreateHeader(header)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte(content)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// sumOf returns a line of SHA256SUMS.
func sumOf(name string, content []byte) string {
	return fmt.Sprintf("%x  %s\n", sha256.Sum256(content), name)
}

// release returns the files of a release with one archive.
func release(name string, archive []byte) map[string][]byte {
	return map[string][]byte{name: archive, "SHA256SUMS": []byte(sumOf(name, archive))}
}

// setup is a run of scripts/setup with a release on a loopback server.
type setup struct {
	version, os, arch string
	files             map[string][]byte // of the release, by their names
	gh                string            // the exit code of gh
}

// result is what a run has left.
type result struct {
	output, path, version, attested string
	ran                             bool // larder
	err                             error
}

// run runs scripts/setup with curl, which connects to a server of the test
// instead of github.com.
func (s setup) run(t *testing.T) (r result) {
	t.Helper()
	tag := "v" + strings.TrimPrefix(s.version, "v")
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		name, found := strings.CutPrefix(req.URL.Path, "/larder-registry/larder/releases/download/"+tag+"/")
		content, exists := s.files[name]
		if !found || !exists || req.Host != "github.com" {
			http.NotFound(w, req)
			return
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(content))) // as GitHub does
		_, _ = w.Write(content)
	}))
	t.Cleanup(server.Close)
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("gh", "#!/bin/sh\necho \"$@\" > \"$HOME/attested\"\nexit "+s.gh+"\n")
	write(".curlrc", "insecure\nconnect-to = github.com:443:"+server.Listener.Addr().String()+"\n")
	pathFile, output := write("path", ""), write("output", "")
	cmd := exec.CommandContext(t.Context(), "bash", "../../scripts/setup")
	cmd.Env = []string{
		"PATH=" + dir + ":" + os.Getenv("PATH"), "HOME=" + dir, "CURL_HOME=" + dir, "RUNNER_TEMP=" + dir, "RUNNER_OS=" + s.os,
		"RUNNER_ARCH=" + s.arch, "GITHUB_PATH=" + pathFile, "GITHUB_OUTPUT=" + output, "LARDER_VERSION=" + s.version,
	}
	out, err := cmd.CombinedOutput()
	read := func(name string) string {
		text, _ := os.ReadFile(filepath.Join(dir, name))
		return strings.TrimSpace(string(text))
	}
	_, notRun := os.Stat(filepath.Join(dir, "ran"))
	return result{string(out), read("path"), read("output"), read("attested"), notRun == nil, err}
}

// right is a release for Linux.
func right(t *testing.T) setup {
	t.Helper()
	const name = "larder_1.2.3_linux_amd64.tar.gz"
	archive := tarball(t, "larder", program, 0o755)
	return setup{"1.2.3", "Linux", "X64", release(name, archive), "0"}
}

func needCurl(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("LEFT OUT: the runner's programs are not here")
	}
	for _, name := range []string{"bash", "curl", "unzip"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("LEFT OUT: %s is not on PATH", name)
		}
	}
}

func TestSetup(t *testing.T) {
	t.Parallel()
	needCurl(t)
	for name, test := range map[string]struct {
		version, os, arch string
		file              string // that is installed, without larder_ and the version
	}{
		"version":          {"1.2.3", "Linux", "X64", "linux_amd64.tar.gz"},
		"tag":              {"v1.2.3", "Linux", "X64", "linux_amd64.tar.gz"},
		"pre-release":      {"1.2.3-rc.1", "Linux", "X64", "linux_amd64.tar.gz"},
		"Linux on arm64":   {"1.2.3", "Linux", "ARM64", "linux_arm64.tar.gz"},
		"macOS on arm64":   {"1.2.3", "macOS", "ARM64", "darwin_arm64.tar.gz"},
		"macOS on amd64":   {"1.2.3", "macOS", "X64", "darwin_amd64.tar.gz"},
		"Windows on amd64": {"1.2.3", "Windows", "X64", "windows_amd64.zip"},
		"Windows on arm64": {"1.2.3", "Windows", "ARM64", "windows_arm64.zip"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			version := strings.TrimPrefix(test.version, "v")
			file := "larder_" + version + "_" + test.file
			script := strings.ReplaceAll(program, "1.2.3", version)
			archive := tarball(t, "larder", script, 0o755)
			if test.os == "Windows" {
				archive = zipped(t, "larder.exe", script)
			}
			s := setup{test.version, test.os, test.arch, release(file, archive), "0"}
			r := s.run(t)
			if r.err != nil {
				t.Fatalf("%v\n%s", r.err, r.output)
			}
			cmd := exec.CommandContext(t.Context(), "sh", "-c", `exec "$0"/larder*`, r.path)
			cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
			out, err := cmd.Output()
			if err != nil {
				t.Errorf("the installed program: %v", err)
			}
			if diff := cmp.Diff("larder version "+version+"\n", string(out)); diff != "" {
				t.Errorf("the installed program prints (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff("version="+version, r.version); diff != "" {
				t.Errorf("the outputs are (-want +got):\n%s", diff)
			}
			want := "attestation verify " + file + " --repo larder-registry/larder " +
				"--signer-workflow larder-registry/larder/.github/workflows/release.yml " +
				"--source-ref refs/tags/v" + version + " --deny-self-hosted-runners"
			if diff := cmp.Diff(want, r.attested); diff != "" {
				t.Errorf("gh got (-want +got):\n%s", diff)
			}
		})
	}
}

// Anything that is not exactly the release is not installed.
func TestSetupRefuses(t *testing.T) {
	t.Parallel()
	needCurl(t)
	const name = "larder_1.2.3_linux_amd64.tar.gz"
	for test, change := range map[string]struct {
		change func(*setup)
		want   string
	}{
		"another checksum": {
			func(s *setup) { s.files[name] = tarball(t, "larder", program+"x", 0o755) }, "does not have the checksum",
		},
		"no checksum": {func(s *setup) { s.files["SHA256SUMS"] = nil }, "exactly one checksum"},
		"checksum of another": {
			func(s *setup) { s.files["SHA256SUMS"] = []byte(sumOf("x"+name, s.files[name])) }, "exactly one checksum",
		},
		"two checksums": {
			func(s *setup) { s.files["SHA256SUMS"] = bytes.Repeat(s.files["SHA256SUMS"], 2) }, "exactly one checksum",
		},
		"short checksum": {func(s *setup) { s.files["SHA256SUMS"] = s.files["SHA256SUMS"][1:] }, "exactly one checksum"},
		"no attestation": {func(s *setup) { s.gh = "1" }, "cannot verify that the release workflow built"},
		"no archive":     {func(s *setup) { delete(s.files, name) }, "cannot download " + name},
		"no SHA256SUMS":  {func(s *setup) { delete(s.files, "SHA256SUMS") }, "cannot download SHA256SUMS"},
		"another release inside": {
			func(s *setup) {
				s.files = release(name, tarball(t, "larder", "#!/bin/sh\necho larder version 1.2.2\n", 0o755))
			},
			"another version",
		},
		"broken program": {
			func(s *setup) { s.files = release(name, tarball(t, "larder", "#!/bin/sh\nexit 1\n", 0o755)) },
			"cannot run larder of",
		},
		"not executable": {
			func(s *setup) { s.files = release(name, tarball(t, "larder", program, 0o644)) }, "cannot run larder of",
		},
		"another program": {
			func(s *setup) { s.files = release(name, tarball(t, "lard", program, 0o755)) }, "cannot unpack larder from",
		},
		"not an archive": {func(s *setup) { s.files = release(name, []byte("x")) }, "cannot unpack larder from"},
		"too many checksums": {
			func(s *setup) { s.files["SHA256SUMS"] = make([]byte, 1<<20+1) }, "cannot download SHA256SUMS",
		},
		"a release that is not there": {func(s *setup) { s.files = nil }, "cannot download SHA256SUMS of release 1.2.3"},
		"no version":                  {func(s *setup) { s.version = "" }, "must be a release"},
		"latest":                      {func(s *setup) { s.version = "latest" }, "must be a release"},
		"two numbers":                 {func(s *setup) { s.version = "1.2" }, "must be a release"},
		"path":                        {func(s *setup) { s.version = "1.2.3-../x" }, "must be a release"},
		"command":                     {func(s *setup) { s.version = "1.2.3$(id)" }, "must be a release"},
		"line break":                  {func(s *setup) { s.version = "1.2.3\n1.2.4" }, "must be a release"},
		"leading zero":                {func(s *setup) { s.version = "01.2.3" }, "must be a release"},
		"another system":              {func(s *setup) { s.os = "Plan9" }, "no release for Plan9"},
		"another architecture":        {func(s *setup) { s.arch = "X86" }, "no release for X86"},
	} {
		t.Run(test, func(t *testing.T) {
			t.Parallel()
			s := right(t)
			change.change(&s)
			r := s.run(t)
			if r.err == nil {
				t.Error("there is no error")
			}
			_, message, _ := strings.Cut(r.output, "::error::")
			if !strings.Contains(message, change.want) {
				t.Errorf("the error lacks %q:\n%s", change.want, r.output)
			}
			if r.path != "" {
				t.Errorf("PATH got %q", r.path)
			}
			if r.version != "" {
				t.Errorf("the outputs are %q", r.version)
			}
			if r.ran {
				t.Error("larder was run")
			}
		})
	}
}

// The text of an input must not become a part of a shell script. Each output
// comes from a step that exists.
func TestAction(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../action.yml")
	if err != nil {
		t.Fatal(err)
	}
	var action struct {
		Name, Description, Author string
		Branding                  struct{ Icon, Color string }
		Inputs                    map[string]struct {
			Description, Default string
			Required             bool
		}
		Outputs map[string]struct{ Description, Value string }
		Runs    struct {
			Using string
			Steps []struct {
				ID, Shell, Run string
				Env            map[string]string
			}
		}
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&action); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("composite", action.Runs.Using); diff != "" {
		t.Errorf("runs.using (-want +got):\n%s", diff)
	}
	if len(action.Runs.Steps) == 0 {
		t.Error("there are no steps")
	}
	var used string
	for i, step := range action.Runs.Steps {
		if step.Shell != "bash" {
			t.Errorf("the shell of step %d is %q", i, step.Shell)
		}
		if strings.Contains(step.Run, "${{") {
			t.Errorf("the script of step %d has an expression: %s", i, step.Run)
		}
		for _, value := range step.Env {
			used += value
		}
	}
	for name, input := range action.Inputs {
		if input.Description == "" {
			t.Errorf("the input %s has no description", name)
		}
		if !strings.Contains(used, "${{ inputs."+name+" }}") {
			t.Errorf("no step uses the input %s", name)
		}
	}
	for name, output := range action.Outputs {
		if want := "${{ steps." + action.Runs.Steps[0].ID + ".outputs." + name + " }}"; output.Value != want {
			t.Errorf("the output %s is %s, want %s", name, output.Value, want)
		}
	}
}
