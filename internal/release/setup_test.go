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
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// program is a script in the place of larder.
const program = "#!/bin/sh\necho larder version 1.2.3\n"

func tarball(t *testing.T, name, content string) []byte {
	t.Helper()
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	w := tar.NewWriter(compressed)
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(content))}); err != nil {
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

// setup is a run of scripts/setup with a release on a loopback server.
type setup struct {
	version, os, arch string
	files             map[string][]byte // of the release, by their names
	gh                string            // the exit code of gh
}

// result is what a run has left.
type result struct {
	output, path, version, attested string
	err                             error
}

// run runs scripts/setup with curl, which connects to a server of the test
// instead of github.com.
func (s setup) run(t *testing.T) (r result) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		name, found := strings.CutPrefix(req.URL.Path, "/larder-registry/larder/releases/download/v1.2.3/")
		content, exists := s.files[name]
		if !found || !exists || req.Host != "github.com" {
			http.NotFound(w, req)
			return
		}
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
	write("gh", "#!/bin/sh\necho \"$@\" > '"+dir+"/attested'\nexit "+s.gh+"\n")
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
	return result{string(out), read("path"), read("output"), read("attested"), err}
}

// right is a release for Linux.
func right(t *testing.T) setup {
	t.Helper()
	const name = "larder_1.2.3_linux_amd64.tar.gz"
	archive := tarball(t, "larder", program)
	return setup{"1.2.3", "Linux", "X64", map[string][]byte{name: archive, "SHA256SUMS": []byte(sumOf(name, archive))}, "0"}
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
	for name, change := range map[string]func(*setup){
		"version":        func(*setup) {},
		"tag":            func(s *setup) { s.version = "v1.2.3" },
		"Linux on arm64": func(s *setup) { s.arch = "ARM64"; s.rename("larder_1.2.3_linux_arm64.tar.gz") },
		"macOS on arm64": func(s *setup) { s.os, s.arch = "macOS", "ARM64"; s.rename("larder_1.2.3_darwin_arm64.tar.gz") },
		"macOS on amd64": func(s *setup) { s.os = "macOS"; s.rename("larder_1.2.3_darwin_amd64.tar.gz") },
		"Windows": func(s *setup) {
			const name = "larder_1.2.3_windows_amd64.zip"
			archive := zipped(t, "larder.exe", program)
			s.os, s.files = "Windows", map[string][]byte{name: archive, "SHA256SUMS": []byte(sumOf(name, archive))}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := right(t)
			change(&s)
			r := s.run(t)
			if r.err != nil {
				t.Fatalf("%v\n%s", r.err, r.output)
			}
			if out, err := exec.CommandContext(t.Context(), "sh", "-c", `exec "$0"/larder*`, r.path).Output(); err != nil ||
				string(out) != "larder version 1.2.3\n" {
				t.Errorf("the installed program prints %q, %v", out, err)
			}
			if r.version != "version=1.2.3" {
				t.Errorf("the output is %q", r.version)
			}
			_, flags, _ := strings.Cut(r.attested, " --")
			const want = "repo larder-registry/larder --signer-workflow larder-registry/larder/.github/workflows/release.yml " +
				"--source-ref refs/tags/v1.2.3 --deny-self-hosted-runners"
			if diff := cmp.Diff(want, flags); diff != "" {
				t.Errorf("gh got (-want +got):\n%s", diff)
			}
		})
	}
}

// rename renames the archive of a release.
func (s *setup) rename(to string) {
	for name, content := range s.files {
		if name != "SHA256SUMS" {
			s.files = map[string][]byte{to: content, "SHA256SUMS": []byte(sumOf(to, content))}
			return
		}
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
		"another checksum":       {func(s *setup) { s.files[name] = tarball(t, "larder", "x") }, "does not have the checksum"},
		"no checksum":            {func(s *setup) { s.files["SHA256SUMS"] = nil }, "exactly one checksum"},
		"checksum of another":    {func(s *setup) { s.files["SHA256SUMS"] = []byte(sumOf("x"+name, s.files[name])) }, "exactly one checksum"},
		"two checksums":          {func(s *setup) { s.files["SHA256SUMS"] = bytes.Repeat(s.files["SHA256SUMS"], 2) }, "exactly one checksum"},
		"short checksum":         {func(s *setup) { s.files["SHA256SUMS"] = s.files["SHA256SUMS"][1:] }, "exactly one checksum"},
		"no attestation":         {func(s *setup) { s.gh = "1" }, "no attestation"},
		"no archive":             {func(s *setup) { delete(s.files, name) }, "cannot download " + name},
		"no SHA256SUMS":          {func(s *setup) { delete(s.files, "SHA256SUMS") }, "cannot download SHA256SUMS"},
		"another release inside": {func(s *setup) { s.replace(t, name, "echo larder version 1.2.2\n") }, "another version"},
		"no version":             {func(s *setup) { s.version = "" }, "must be a release"},
		"latest":                 {func(s *setup) { s.version = "latest" }, "must be a release"},
		"two numbers":            {func(s *setup) { s.version = "1.2" }, "must be a release"},
		"path":                   {func(s *setup) { s.version = "1.2.3-../x" }, "must be a release"},
		"command":                {func(s *setup) { s.version = "1.2.3$(id)" }, "must be a release"},
		"line break":             {func(s *setup) { s.version = "1.2.3\n1.2.4" }, "must be a release"},
		"leading zero":           {func(s *setup) { s.version = "01.2.3" }, "must be a release"},
		"another system":         {func(s *setup) { s.os = "Plan9" }, "no release for Plan9"},
		"another architecture":   {func(s *setup) { s.arch = "X86" }, "no release for X86"},
	} {
		t.Run(test, func(t *testing.T) {
			t.Parallel()
			s := right(t)
			change.change(&s)
			r := s.run(t)
			if r.err == nil {
				t.Error("there is no error")
			}
			if !strings.Contains(r.output, "::error::") || !strings.Contains(r.output, change.want) {
				t.Errorf("the output lacks %q:\n%s", change.want, r.output)
			}
			if r.path+r.version != "" {
				t.Errorf("installed %q, with the output %q", r.path, r.version)
			}
		})
	}
}

// replace replaces the program in the archive, and its checksum.
func (s *setup) replace(t *testing.T, name, script string) {
	t.Helper()
	archive := tarball(t, "larder", "#!/bin/sh\n"+script)
	s.files = map[string][]byte{name: archive, "SHA256SUMS": []byte(sumOf(name, archive))}
}

// The text of an input must not become a part of a shell script.
func TestActionHasNoExpressionInScripts(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../action.yml")
	if err != nil {
		t.Fatal(err)
	}
	runs, shells := 0, 0
	for line := range strings.Lines(string(text)) {
		switch line = strings.TrimSpace(line); {
		case strings.HasPrefix(line, "run:"):
			runs++
			if strings.Contains(line, "${{") {
				t.Errorf("a script has an expression: %s", line)
			}
		case line == "shell: bash":
			shells++
		}
	}
	if runs == 0 || runs != shells {
		t.Errorf("%d scripts have %d shells", runs, shells)
	}
}
