package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/larder-registry/larder/internal/testkit/clients"
	"github.com/larder-registry/larder/internal/testkit/poll"
	"github.com/larder-registry/larder/pkg/publish/inspection"
	"github.com/larder-registry/larder/scripts/larder/failure"
	"github.com/larder-registry/larder/scripts/larder/output"
)

// TestMain makes the test binary available as commands.
func TestMain(m *testing.M) {
	inspection.RunIfChild()
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0") // otherwise the race detector delays each exit by a second
	output.Silence = time.Hour                   // output does not depend on the time that a test takes
	// Tests do not use the user's contexts, registries, AWS account, credentials
	// and CLI configuration. Scripts have their own contexts.
	if strings.HasSuffix(strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe"), ".test") {
		_ = os.Setenv("XDG_CONFIG_HOME", "/nonexistent")
		_ = os.Setenv("TF_CLI_CONFIG_FILE", os.DevNull)
		for _, name := range []string{"CONTEXT", "STORE", "REGISTRY", "TOKEN", "ID_TOKEN"} {
			_ = os.Unsetenv("LARDER_" + name)
		}
		for _, variable := range os.Environ() {
			if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "AWS_") {
				_ = os.Unsetenv(name)
			}
		}
	}
	testscript.Main(m, map[string]func(){
		"larder": main, "larder-in-8-days": mainIn8Days, "larder-killed": mainKilled, "uploader": uploader,
	})
}

// closedEnv returns an environment with nothing of the developer's but the
// programs. Its home folder is empty.
func closedEnv(t *testing.T) []string {
	t.Helper()
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "GORACE=" + os.Getenv("GORACE")}
	if dir := os.Getenv("GOCOVERDIR"); dir != "" {
		env = append(env, "GOCOVERDIR="+dir)
	}
	return env
}

// mainIn8Days is main with a clock that is 8 days ahead.
func mainIn8Days() {
	inspection.RunIfChild()
	ahead := func() time.Time { return time.Now().AddDate(0, 0, 8) }
	os.Exit(runAt(context.Background(), ahead, os.Args[1:], os.Stdout, os.Stderr))
}

// server is a running `larder serve`.
type server struct {
	Host   string `json:"host"`
	URL    string `json:"url"`
	CAFile string `json:"ca_file"`
	// Address is the address and port on which the server listens.
	Address string `json:"address"`
	Created bool   `json:"created"`
	Metrics string `json:"metrics"`
	data    string
	cmd     *exec.Cmd
	log     *serverLog
}

// serverLog collects the log of a server. Tests read it while the server runs.
type serverLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *serverLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *serverLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// waitFor waits until the log contains a text.
func (l *serverLog) waitFor(t *testing.T, text string) {
	t.Helper()
	poll.Until(t, fmt.Sprintf("the log contains %q", text), func() bool { return strings.Contains(l.String(), text) })
}

// serve runs `larder serve` until the test ends.
func serve(t *testing.T, data string, args ...string) *server {
	t.Helper()
	return serveIn(t, nil, data, args...)
}

// serveIn is serve with further variables of the environment, as NAME=value.
func serveIn(t *testing.T, env []string, data string, args ...string) *server {
	t.Helper()
	s := &server{data: data, log: new(serverLog)}
	command := []string{"serve", "--json", "--store", data}
	if !slices.Contains(args, "--listen-plain") {
		command = append(command, "--listen", "127.0.0.1:0")
	}
	s.cmd = exec.CommandContext(t.Context(), "larder", append(command, args...)...)
	s.cmd.Env = append(os.Environ(), env...)
	s.start(t)
	return s
}

// start starts the command of a server, and waits until it listens.
func (s *server) start(t *testing.T) {
	t.Helper()
	s.cmd.Cancel = func() error { return s.cmd.Process.Signal(os.Interrupt) }
	s.cmd.Stderr = s.log
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(out).Decode(s); err != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		t.Fatalf("larder serve: %v\n%s", err, s.log)
	}
	t.Cleanup(func() {
		s.stop(t)
		if t.Failed() {
			t.Logf("larder serve:\n%s", s.log)
		}
	})
}

// stop interrupts the server like Ctrl-C, and waits for its end.
func (s *server) stop(t *testing.T) {
	t.Helper()
	s.end(t, os.Interrupt)
}

// end sends a signal to the server, and waits for its end.
func (s *server) end(t *testing.T, signal os.Signal) {
	t.Helper()
	if s.cmd.ProcessState != nil {
		return
	}
	if err := s.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Error(err)
	}
	if err := s.cmd.Wait(); err != nil && signal == os.Interrupt && t.Context().Err() == nil {
		t.Errorf("larder serve does not end cleanly: %v\n%s", err, s.log)
	}
}

// publishModule publishes files as a module.
func publishModule(t testing.TB, data, address, version string, files map[string]string) {
	t.Helper()
	dir := t.TempDir()
	writeFiles(t, dir, files)
	larder(t, "publish", "module", dir, address, version, "--store", "dir:"+data)
}

// larder runs a command, which must succeed, and returns its standard output.
func larder(t testing.TB, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "larder", args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("larder %s: %v\n%s%s", strings.Join(args, " "), err, &stdout, &stderr)
	}
	return stdout.String()
}

// tempText matches folders of t.TempDir.
var tempText = regexp.MustCompile(regexp.QuoteMeta(filepath.Clean(os.TempDir())) + `[/\\][\w.-]+[/\\]\d{3}\b`)

// steady replaces texts that differ between runs: temporary folders, ports,
// dates, and IDs.
func steady(text string) string {
	text = tempText.ReplaceAllString(text, "DIR")
	text = portText.ReplaceAllString(text, "HOST")
	text = dateText.ReplaceAllString(text, "DATE")
	return randomID.ReplaceAllString(text, "ID")
}

// errorText returns the error and its hints from the output of a command.
func errorText(printed string) string {
	if _, text, found := strings.Cut(printed, "larder: "); found {
		printed = text
	}
	return steady(printed)
}

// writeFiles writes files to a folder. The content "-> TARGET" creates a
// symbolic link.
func writeFiles(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if target, ok := strings.CutPrefix(content, "-> "); ok {
			if err := os.Symlink(target, path); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// withOutput returns a module with value as its output.
func withOutput(value string) map[string]string {
	return map[string]string{"main.tf": `output "it" { value = "` + value + `" }` + "\n"}
}

// session returns a session of a client that trusts the server.
func session(t *testing.T, c clients.Client, s *server) clients.Session {
	t.Helper()
	return clients.Session{Client: c, Home: t.TempDir(), CAFile: s.CAFile}
}

// Clients install the versions that match their constraints.
func TestInit(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	for _, v := range []string{
		"1.0.0", "1.0.1", "1.4.0", "1.10.0", "1.11.0-beta.1", "v2.0.0", "3.0.0-rc.1", "4.0.0+build.5",
	} {
		publishModule(t, s.data, "acme/vpc/aws", v, withOutput("acme/vpc/aws "+strings.TrimPrefix(v, "v")))
	}
	publishModule(t, s.data, "Beta_Team/VPC-Main/aws", "1.0.0", withOutput("Beta_Team/VPC-Main/aws 1.0.0"))
	publishModule(t, s.data, "beta_team/vpc-main/aws", "1.0.0", withOutput("beta_team/vpc-main/aws 1.0.0"))
	publishModule(t, s.data, "acme/nested/aws", "1.0.0", map[string]string{
		"main.tf":              `module "x" { source = "./modules/x" }` + "\n" + `output "it" { value = module.x.it }`,
		"modules/x/main.tf":    `output "it" { value = "nested ${trimspace(file("${path.module}/../../shared/name.txt"))}" }`,
		"shared/name.txt":      "x\n",
		"modules/y/main.tf":    "-> ../x/main.tf",
		"modules/y/shared":     "-> ../../shared",
		"modules/x/run.sh":     "#!/bin/sh\n",
		"LICENSE":              "none\n",
		"docs/LICENSE":         "-> ../LICENSE",
		"a/folder/with/a/file": strings.Repeat("content ", 10_000),
		strings.Repeat("l", 120) + "/" + strings.Repeat("m", 120): "a path too long for a plain tar header",
	})

	want := map[string]struct{ source, version, output string }{
		"exact":      {"acme/vpc/aws", `1.0.0`, "acme/vpc/aws 1.0.0"},
		"highest":    {"acme/vpc/aws", `~> 1.0`, "acme/vpc/aws 1.10.0"},
		"patch":      {"acme/vpc/aws", `~> 1.0.0`, "acme/vpc/aws 1.0.1"},
		"tag":        {"acme/vpc/aws", `2.0.0`, "acme/vpc/aws 2.0.0"},
		"prerelease": {"acme/vpc/aws", `3.0.0-rc.1`, "acme/vpc/aws 3.0.0-rc.1"},
		"upper":      {"Beta_Team/VPC-Main/aws", `1.0.0`, "Beta_Team/VPC-Main/aws 1.0.0"},
		"lower":      {"beta_team/vpc-main/aws", `1.0.0`, "beta_team/vpc-main/aws 1.0.0"},
		"nested":     {"acme/nested/aws", `1.0.0`, "nested x"},
		"build":      {"acme/vpc/aws", `4.0.0+build.5`, "acme/vpc/aws 4.0.0+build.5"},
		"subdir":     {"acme/nested/aws//modules/x", `~> 1.0`, "nested x"},
		"linked":     {"acme/nested/aws//modules/y", `1.0.0`, "nested x"},
	}
	var config strings.Builder
	for _, name := range slices.Sorted(maps.Keys(want)) {
		w := want[name]
		config.WriteString(`module "` + name + `" {
  source  = "` + s.Host + "/" + w.source + `"
  version = "` + w.version + `"
}
output "` + name + `" { value = module.` + name + `.it }
`)
	}
	clients.Each(t, func(t *testing.T, c clients.Client) {
		dir := t.TempDir()
		writeFiles(t, dir, map[string]string{"main.tf": config.String()})
		client := session(t, c, s)
		if _, err := client.Run(t.Context(), dir, "init"); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Run(t.Context(), dir, "apply", "-auto-approve"); err != nil {
			t.Fatal(err)
		}
		printed, err := client.Run(t.Context(), dir, "output", "-json")
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]struct{ Value string }
		if err := json.Unmarshal([]byte(printed), &got); err != nil {
			t.Fatal(err)
		}
		for name, w := range want {
			if got[name].Value != w.output {
				t.Errorf(
					"%s: module %s at %q outputs %q, want %q",
					name,
					w.source,
					w.version,
					got[name].Value,
					w.output,
				)
			}
		}
		if info, err := os.Stat(filepath.Join(dir, ".terraform/modules/nested/LICENSE")); err != nil ||
			info.Size() == 0 {
			t.Errorf("a file of the module is missing: %v", err)
		}
	})
}

// Clients reject an archive if one byte has changed.
func TestTamperedArchive(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	publishModule(t, s.data, "acme/vpc/aws", "1.0.0", withOutput("x"))
	archives, err := filepath.Glob(filepath.Join(s.data, "objects/modules/acme/vpc/aws/1.0.0/*.tar.gz"))
	if err != nil || len(archives) != 1 {
		t.Fatal(archives, err)
	}
	// The byte at offset 9 names the operating system. The content does not
	// depend on it.
	f, err := os.OpenFile(archives[0], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{3}, 9); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	clients.Each(t, func(t *testing.T, c clients.Client) {
		dir := t.TempDir()
		writeFiles(t, dir, map[string]string{"main.tf": `module "vpc" {
  source  = "` + s.Host + `/acme/vpc/aws"
  version = "1.0.0"
}`})
		out, err := session(t, c, s).Run(t.Context(), dir, "init")
		if err == nil || !strings.Contains(out, "Checksums did not match") {
			t.Errorf("init with a changed archive: %v\n%s", err, out)
		}
	})
}

// Clients print their own error for a module or version that does not exist.
func TestInitOfUnknown(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	publishModule(t, s.data, "acme/vpc/aws", "1.0.0", withOutput("x"))
	clients.Each(t, func(t *testing.T, c clients.Client) {
		for source, want := range map[string]string{
			`source = "HOST/acme/other/aws"`: "Module not found",
			`source = "HOST/acme/vpc/aws"
			 version = "2.0.0"`: "There is no available version of module",
		} {
			dir := t.TempDir()
			writeFiles(
				t,
				dir,
				map[string]string{"main.tf": "module \"m\" {\n" + strings.ReplaceAll(source, "HOST", s.Host) + "\n}"},
			)
			out, err := session(t, c, s).Run(t.Context(), dir, "init")
			if err == nil || !strings.Contains(out, want) {
				t.Errorf("%s: %v\n%s", source, err, out)
			}
		}
	})
}

// Ctrl-C stops the server with exit code 0. After a restart it has the same
// versions and the same authority.
func TestServeAgain(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	first := serve(t, data)
	publishModule(t, data, "acme/vpc/aws", "1.0.0", withOutput("x"))
	before, err := os.ReadFile(first.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	first.stop(t)
	if code := first.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	second := serve(t, data)
	after, err := os.ReadFile(second.CAFile)
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the authority changed: %v", err)
	}
	for _, name := range []string{"tls/ca.key", "url.key"} {
		if info, err := os.Stat(filepath.Join(data, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	clients.Each(t, func(t *testing.T, c clients.Client) {
		dir := t.TempDir()
		writeFiles(t, dir, map[string]string{"main.tf": `module "vpc" { source = "` + second.Host + `/acme/vpc/aws" }`})
		if _, err := session(t, c, second).Run(t.Context(), dir, "init"); err != nil {
			t.Error(err)
		}
	})
}

// Concurrent publishes of different versions all succeed. If concurrent
// publishes of one version have different content, one succeeds and the others
// fail.
func TestPublishersAtOnce(t *testing.T) {
	t.Parallel()
	const publishers = 20
	data := newData(t)
	publish := func(module func(i int) (version string, files map[string]string)) (exits map[int]int) {
		running := make([]*exec.Cmd, publishers)
		for i := range running {
			dir := t.TempDir()
			version, files := module(i)
			writeFiles(t, dir, files)
			running[i] = exec.CommandContext(
				t.Context(),
				"larder",
				"publish",
				"module",
				dir,
				"acme/vpc/aws",
				version,
				"--store",
				"dir:"+data,
			)
			running[i].Stderr = new(bytes.Buffer)
		}
		for _, cmd := range running {
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
		}
		exits = make(map[int]int)
		for _, cmd := range running {
			_ = cmd.Wait()
			code := cmd.ProcessState.ExitCode()
			exits[code]++
			if code != 0 && code != failure.ExitExists {
				t.Errorf("%v: exit code %d\n%s", cmd.Args, code, cmd.Stderr)
			}
		}
		return exits
	}
	all := publish(func(i int) (string, map[string]string) { return fmt.Sprintf("1.%d.0", i), withOutput("x") })
	one := publish(func(i int) (string, map[string]string) { return "2.0.0", withOutput(fmt.Sprint(i)) })
	if all[0] != publishers || one[0] != 1 || one[failure.ExitExists] != publishers-1 {
		t.Errorf("exit codes of %d versions: %v; of one: %v", publishers, all, one)
	}
	var got struct{ Versions []struct{ Version string } }
	listed := larder(t, "list", "acme/vpc/aws", "--json", "--store", "dir:"+data)
	if err := json.Unmarshal([]byte(listed), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Versions) != publishers+1 || got.Versions[0].Version != "2.0.0" || got.Versions[1].Version != "1.19.0" {
		t.Errorf("listed: %v", got.Versions)
	}
}
