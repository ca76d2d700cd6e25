package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
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
	"go.yaml.in/yaml/v4"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/scripts/larder/arguments"
	"github.com/larder-registry/larder/scripts/larder/cli"
)

// example is a workflow in the folder examples.
type example struct {
	text string
	// rules are the access settings in its comment.
	rules    string
	settings access.Settings
}

// readExample reads the workflow for a CI service that publishes one module or
// provider.
func readExample(t *testing.T, service string) example {
	t.Helper()
	return readExampleFile(t, service+"-publish.yml")
}

// readExampleFile reads a workflow.
func readExampleFile(t *testing.T, name string) example {
	t.Helper()
	text, err := os.ReadFile("../../examples/" + name)
	if err != nil {
		t.Fatal(err)
	}
	e := example{text: string(text)}
	for line := range strings.Lines(e.text) {
		if rule, ok := strings.CutPrefix(line, "#   "); ok && !strings.HasPrefix(rule, "-") &&
			(e.rules != "" || rule == "{\n") {
			e.rules += rule
		}
	}
	if e.settings, err = access.ParseSettings([]byte(e.rules)); err != nil || len(e.settings.Issuers) != 1 {
		t.Fatalf("%s: %v\n%s", name, err, e.rules)
	}
	return e
}

// The example workflows use valid commands, and their rules allow exactly what
// they publish.
func TestExamples(t *testing.T) {
	t.Parallel()
	for _, service := range []string{"github", "gitlab"} {
		t.Run(service, func(t *testing.T) {
			t.Parallel()
			e := readExample(t, service)
			var published []string
			command := regexp.MustCompile(`(?m)^(?:#|[ -]*(?:run:)?) *larder (.*)$`)
			for _, found := range command.FindAllStringSubmatch(e.text, -1) {
				var args []string
				for _, word := range strings.Fields(found[1]) {
					args = append(
						args,
						os.Expand(
							strings.Trim(word, `"`),
							func(variable string) string { return "v1.0.0-of-" + strings.ReplaceAll(variable, "_", "-") },
						),
					)
				}
				c := &cli.Program{}
				cmd, rest, err := newRoot(c).Find(args)
				if err == nil {
					err = cmd.ParseFlags(rest)
				}
				if err == nil {
					err = cmd.ValidateArgs(cmd.Flags().Args())
				}
				if err != nil || !cmd.Runnable() || arguments.IsGroup(cmd) {
					t.Errorf("larder %s: %v", found[1], err)
					continue
				}
				if cmd.Name() != "module" && cmd.Name() != "provider" {
					continue
				}
				c.Flags = cmd.Flags()
				p, err := c.Find()
				host := p.Host
				if err != nil || !c.Remote.CIIdentity ||
					!slices.Contains(e.settings.Issuers[0].Audiences, "https://"+host) {
					t.Errorf("larder %s goes to %s: %v", found[1], host, err)
				}
				published = append(published, "publish:"+cmd.Name()+"s/"+cmd.Flags().Arg(1))
			}
			var allowed []string
			for _, scope := range regexp.MustCompile(`"(publish:[^"]*)"`).FindAllStringSubmatch(e.rules, -1) {
				allowed = append(allowed, scope[1])
			}
			if len(published) != 2 || !slices.Equal(published, allowed) {
				t.Errorf("published is %q, and allowed %q", published, allowed)
			}
			for _, action := range regexp.MustCompile(`uses: *(.*)`).FindAllStringSubmatch(e.text, -1) {
				if !regexp.MustCompile(`^[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`).MatchString(action[1]) {
					t.Errorf("action %s is not pinned to a commit", action[1])
				}
			}
		})
	}
}

// A job that builds a provider runs code of its dependencies. It must have
// neither the job's identity nor the signing key. Jobs that publish do not
// build.
func TestExamplesKeepApart(t *testing.T) {
	t.Parallel()
	for service, test := range map[string]struct{ job, powers, publishes string }{
		"github": {`(?m)^  (\w+):\n(?:(?:    .*)?\n)+`, `id-token|environment:|secrets\.|larder publish`, "id-token: write"},
		"gitlab": {
			`(?m)^([.\w]+):\n(?:(?:  .*)?\n)+`, `id_tokens|environment:|SIGNING|larder publish|\.publish`,
			"extends: .publish",
		},
	} {
		e := readExample(t, service)
		_, text, _ := strings.Cut(e.text, map[string]string{"github": "\njobs:\n", "gitlab": "\n.tagged:"}[service])
		builds, publishes := 0, 0
		for _, job := range regexp.MustCompile(test.job).FindAllStringSubmatch(text, -1) {
			body := job[0]
			if strings.Contains(body, " release --clean") {
				builds++
				if found := regexp.MustCompile(test.powers).FindString(body); found != "" {
					t.Errorf("%s: %s builds, and has %s:\n%s", service, job[1], found, body)
				}
				continue
			}
			if strings.Contains(body, "larder publish") {
				publishes++
				if !strings.Contains(body, test.publishes) ||
					strings.Contains(body, "publish provider") && !strings.Contains(body, "needs: ") {
					t.Errorf("%s: %s publishes:\n%s", service, job[1], body)
				}
				if service == "github" && !strings.Contains(body, "uses: larder-registry/larder@") {
					t.Errorf("%s: %s does not install a verified release:\n%s", service, job[1], body)
				}
				if strings.Contains(body, "go install") {
					t.Errorf("%s: %s compiles:\n%s", service, job[1], body)
				}
			}
		}
		if builds != 1 || publishes != 2 {
			t.Errorf("%s: %d jobs build, and %d publish", service, builds, publishes)
		}
	}
	if github := readExample(t, "github").text; !strings.Contains(github, "\npermissions: {}") {
		t.Error("github: every job has the permissions of the whole workflow")
	}
}

// The jobs of GitLab download the release's archive for Linux, and unpack it
// only if it has the checksum.
func TestGitLabExampleInstalls(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("the example is for Linux")
	}
	var jobs struct {
		Variables map[string]string
		Publish   struct {
			BeforeScript []string `yaml:"before_script"`
		} `yaml:".publish"`
	}
	if err := yaml.Unmarshal([]byte(readExample(t, "gitlab").text), &jobs); err != nil {
		t.Fatal(err)
	}
	const program = "a release"
	var archive bytes.Buffer
	compressed := gzip.NewWriter(&archive)
	w := tar.NewWriter(compressed)
	header := w.WriteHeader(&tar.Header{Name: "larder", Mode: 0o755, Size: int64(len(program))})
	_, err := w.Write([]byte(program))
	if err := errors.Join(header, err, w.Close(), compressed.Close()); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ checksum, want string }{
		"verified":         {fmt.Sprintf("%x", sha256.Sum256(archive.Bytes())), program},
		"another checksum": {fmt.Sprintf("%x", sha256.Sum256(nil)), ""},
		"no checksum":      {"", ""},
		"placeholder":      {jobs.Variables["LARDER_SHA256"], ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			// This curl copies the archive to the file after -o, and writes its last
			// argument to the file url.
			const curl = `#!/bin/sh
for arg; do [ "$before" != -o ] || cp "$HOME/archive" "$arg"; before=$arg; done
echo "$arg" > "$HOME/url"
`
			write := func(name, content string) error {
				return os.WriteFile(filepath.Join(dir, name), []byte(content), 0o700)
			}
			if err := errors.Join(write("archive", archive.String()), write("curl", curl)); err != nil {
				t.Fatal(err)
			}
			inDir := strings.NewReplacer("/usr/local/bin", dir, "/tmp", dir)
			script := inDir.Replace(strings.Join(jobs.Publish.BeforeScript, "\n"))
			// GitLab runs scripts with these options.
			cmd := exec.CommandContext(t.Context(), "bash", "-eo", "pipefail", "-c", script)
			cmd.Env = []string{
				"HOME=" + dir, "PATH=" + dir + ":" + os.Getenv("PATH"),
				"LARDER_VERSION=" + jobs.Variables["LARDER_VERSION"], "LARDER_SHA256=" + test.checksum,
			}
			if out, err := cmd.CombinedOutput(); (err == nil) != (test.want != "") {
				t.Errorf("%v\n%s", err, out)
			}
			unpacked, _ := os.ReadFile(filepath.Join(dir, "larder")) // it is missing in most cases
			if diff := cmp.Diff(test.want, string(unpacked)); diff != "" {
				t.Errorf("unpacked (-want +got):\n%s", diff)
			}
			url, err := os.ReadFile(filepath.Join(dir, "url"))
			if err != nil {
				t.Fatal(err)
			}
			const want = "https://github.com/larder-registry/larder/releases/download/v1.0.0/larder_1.0.0_linux_amd64.tar.gz\n"
			if diff := cmp.Diff(want, string(url)); diff != "" {
				t.Errorf("downloaded (-want +got):\n%s", diff)
			}
		})
	}
}
