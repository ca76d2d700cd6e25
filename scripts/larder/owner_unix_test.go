//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/scripts/larder/failure"
)

// serviceUser is the user of the container image. It has no name here.
const serviceUser = 65532

// service is a folder that belongs to serviceUser, and a program that this user
// can run.
type service struct{ dir, bin string }

func newService(t *testing.T) service {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("LEFT OUT: only root can run programs as other users")
	}
	base := t.TempDir()
	s := service{filepath.Join(base, "srv"), filepath.Join(base, "bin")}
	for _, dir := range []string{s.dir, s.bin} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{base, filepath.Dir(base)} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(s.dir, serviceUser, serviceUser); err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	// The fake setpriv runs a command as the user who calls it.
	for name, text := range map[string][]byte{"larder": data, "setpriv": []byte("#!/bin/sh\nshift 5\nexec \"$@\"\n")} {
		if err := os.WriteFile(filepath.Join(s.bin, name), text, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// command returns a command in the folder, as root or as the user.
func (s service) command(ctx context.Context, asUser bool, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = s.dir
	cmd.Env = []string{"PATH=" + s.bin + ":/usr/bin:/bin", "HOME=" + s.dir, "XDG_CONFIG_HOME=/nonexistent"}
	if asUser {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: serviceUser, Gid: serviceUser}}
	}
	return cmd
}

// user runs a command as the user, which must succeed.
func (s service) user(t *testing.T, args ...string) {
	t.Helper()
	out, err := s.command(t.Context(), true, filepath.Join(s.bin, "larder"), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("larder %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// refused runs a command as root, and returns the command of the hint.
func (s service) refused(t *testing.T, args ...string) (hint string) {
	t.Helper()
	out, err := s.command(t.Context(), false, filepath.Join(s.bin, "larder"), append(args, "--json")...).Output()
	if err == nil {
		t.Fatalf("root can run larder %s", strings.Join(args, " "))
	}
	var failed failure.Failure
	if err := json.Unmarshal(out, &failed); err != nil {
		t.Fatalf("larder %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	if failed.Code != "other_owner" {
		t.Fatalf("larder %s: %s", strings.Join(args, " "), failed.Error)
	}
	if !strings.Contains(failed.Hint, "`--user 65532`") {
		t.Errorf("larder %s: the hint is %s", strings.Join(args, " "), failed.Hint)
	}
	_, hint, _ = strings.Cut(failed.Hint, "`")
	hint, _, _ = strings.Cut(hint, "`. ")
	return hint
}

// others returns the files of a folder that do not belong to the user.
func (s service) others(t *testing.T) (found []string) {
	t.Helper()
	err := filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Sys().(*syscall.Stat_t).Uid != serviceUser {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// files writes files that belong to the user.
func (s service) files(t *testing.T, files map[string]string) {
	t.Helper()
	writeFiles(t, s.dir, files)
	if err := filepath.WalkDir(s.dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, serviceUser, serviceUser)
	}); err != nil {
		t.Fatal(err)
	}
}

// A context can have a folder that another user must use, such as a service's.
func TestContextOfOthers(t *testing.T) {
	t.Parallel()
	s := newService(t)
	closed := filepath.Join(s.bin, "closed")
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := s.command(t.Context(), true, filepath.Join(s.bin, "larder"), "context", "add", "local", closed)
	cmd.Env = append(cmd.Env, "XDG_CONFIG_HOME="+s.dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if want := "this user may not read " + closed; !strings.Contains(string(out), want) {
		t.Errorf("the output lacks %q:\n%s", want, out)
	}
}

// Only the hint for an unreadable certificate is where to get one.
func TestUnreadableFilesOfServer(t *testing.T) {
	t.Parallel()
	s := newService(t)
	file := filepath.Join(s.bin, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"file and its folder.": {"--access", file},
		"file and its folder: see docs/team-on-one-machine.md#3": {"--cert", file, "--key", file, "--host", "r.example.com"},
	} {
		args = append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)
		out, err := s.command(t.Context(), true, filepath.Join(s.bin, "larder"), args...).CombinedOutput()
		if err == nil {
			t.Errorf("larder %s succeeds", strings.Join(args, " "))
		}
		if !strings.Contains(strings.Join(strings.Fields(string(out)), " "), want) {
			t.Errorf("the output lacks %q:\n%s", want, out)
		}
	}
}

// A new disk belongs to root. The user of a service needs it for a restore.
func TestRestoreToFolderOfRoot(t *testing.T) {
	t.Parallel()
	s := newService(t)
	dir := filepath.Join(s.bin, "disk")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	args := []string{"restore", "larder.tar", "--store", dir}
	out, err := s.command(t.Context(), true, filepath.Join(s.bin, "larder"), args...).CombinedOutput()
	if err == nil {
		t.Fatalf("it succeeds:\n%s", out)
	}
	if want := "`sudo chown larder: " + dir + "`"; !strings.Contains(string(out), want) {
		t.Errorf("the output lacks %s:\n%s", want, out)
	}
}

// Root has copied a backup for the user of a service, who cannot read it yet.
func TestRestoreOfFileOfRoot(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.user(t, "init", "--store", "data")
	s.user(t, "backup", "larder.tar", "--store", "data")
	file := filepath.Join(s.dir, "larder.tar")
	if err := errors.Join(os.Chown(file, 0, 0), os.Chmod(file, 0o600)); err != nil {
		t.Fatal(err)
	}
	args := []string{"restore", file, "--store", "restored"}
	out, err := s.command(t.Context(), true, filepath.Join(s.bin, "larder"), args...).CombinedOutput()
	if err == nil {
		t.Fatalf("it succeeds:\n%s", out)
	}
	if want := "`sudo chown 65532 " + file + "`"; !strings.Contains(string(out), want) {
		t.Errorf("the output lacks %s:\n%s", want, out)
	}
}

// Root changes nothing in the folder of another user, whatever links that user
// has planted there. The command of the hint works.
func TestRootOnFolderOfOthers(t *testing.T) {
	t.Parallel()
	s := newService(t)
	outside := filepath.Join(filepath.Dir(s.dir), "outside")
	writeFiles(t, outside, map[string]string{"victim": "untouched\n"})
	s.files(t, map[string]string{
		"m/main.tf": withOutput("1")["main.tf"], "key.asc": string(signingKey(t, "Ed25519").Public), "backups/.keep": "",
		"policy.hcl": "mode = \"open\"\n",
	})
	s.user(t, "init", "--store", "data")
	s.user(t, "publish", "module", "m", "acme/a/aws", "1.0.0", "--store", "data")
	if err := os.Remove(filepath.Join(s.dir, "data/reserve")); err != nil {
		t.Fatal(err)
	}
	link := "-> " + outside
	s.files(t, map[string]string{
		"data/unfinished/link": link, "data/staged/link": link, "data/objects/modules/acme/link": link,
		"data/served.json": link + "/victim", "data/reserve": link + "/new", "linked": "-> data",
	})
	restored := filepath.Join(s.bin, "restored")
	if err := os.Mkdir(restored, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(restored, serviceUser, serviceUser); err != nil {
		t.Fatal(err)
	}
	before := contents(t, outside)

	for _, test := range []struct {
		args string
		// refusal means that the hint is not run.
		refusal bool
	}{
		{"publish module m acme/b/aws 1.0.0 --store data", false},
		{"publish module m acme/c/aws 1.0.0 --store linked", false},
		{"key add acme key.asc --store data", false},
		{"token create --name ci --scope read:** --store data", false},
		{"mirror add registry.opentofu.org/hashicorp/random --version 3.6.0 --platform linux_amd64 --store data", true},
		{"backup backups/larder.tar --store data", false},
		{"restore backups/larder.tar --store " + restored, false},
		{"restore backups/larder.tar --database-only --store data", true},
		{"list --store data", false},
		{"init --store new/registry", false},
		{"serve --listen 127.0.0.1:0 --store data", true},
	} {
		hint := s.refused(t, strings.Fields(test.args)...)
		if found := s.others(t); len(found) > 0 {
			t.Fatalf("after larder %s, these belong to root: %s", test.args, found)
		}
		if test.refusal {
			continue
		}
		cmd := s.command(t.Context(), true, "/bin/sh", "-c", hint)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", hint, err, out)
		}
	}
	// With a variable instead of a flag, the command names the folder.
	cmd := s.command(t.Context(), false, filepath.Join(s.bin, "larder"), "list")
	cmd.Env = append(cmd.Env, "LARDER_STORE="+filepath.Join(s.dir, "data"))
	out, err := cmd.CombinedOutput()
	want := "setpriv --reuid 65532 --regid 65532 --clear-groups larder list --store " + filepath.Join(s.dir, "data") + "`"
	if err == nil || !strings.Contains(string(out), want) {
		t.Errorf("%v, want a hint with %s:\n%s", err, want, out)
	}

	for _, name := range []string{"objects/modules/acme/link", "reserve"} {
		if err := os.Remove(filepath.Join(s.dir, "data", name)); err != nil {
			t.Fatal(err)
		}
	}
	if found := s.others(t); len(found) > 0 {
		t.Errorf("these belong to root: %s", found)
	}
	for _, args := range []string{
		"verify --repair --store data", "restore backups/larder.tar --database-only --store data",
	} {
		hint := s.refused(t, strings.Fields(args)...)
		if out, err := s.command(t.Context(), true, "/bin/sh", "-c", hint).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", hint, err, out)
		}
	}
	// The restored registry and the first one are complete for the user.
	for _, data := range []string{"data", restored} {
		s.user(t, "verify", "--at-rest", "--store", data)
		s.user(t, "publish", "module", "m", "acme/d/aws", "1.0.0", "--store", data)
	}
	if diff := gocmp.Diff(before, contents(t, outside)); diff != "" {
		t.Errorf("files outside the folder have changed (-before +after):\n%s", diff)
	}
}

// A file of root from an earlier mistake is named by verify, by the server's
// log and by doctor.
func TestFileOfRoot(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.files(t, map[string]string{"m/main.tf": withOutput("1")["main.tf"]})
	s.user(t, "init", "--store", "data")
	s.user(t, "publish", "module", "m", "acme/a/aws", "1.0.0", "--store", "data")
	s.user(t, "publish", "module", "m", "acme/b/aws", "1.0.0", "--store", "data")
	const folder = "objects/modules/acme/b"
	if err := os.Chown(filepath.Join(s.dir, "data", folder), 0, 0); err != nil {
		t.Fatal(err)
	}
	const denied = "permission denied for " + folder + ", which belongs to root"

	// A volume of Kubernetes belongs to root and to the group of the user.
	data := filepath.Join(s.dir, "data")
	for _, owner := range []int{0, serviceUser} {
		if err := errors.Join(os.Chown(data, owner, serviceUser), os.Chmod(data, 0o775|fs.ModeSetgid)); err != nil {
			t.Fatal(err)
		}
		verified := s.command(t.Context(), true, filepath.Join(s.bin, "larder"), "verify", "--store", "data")
		out, err := verified.CombinedOutput()
		if err == nil || !strings.Contains(string(out), denied) || !strings.Contains(string(out), "chown -R 65532 ") {
			t.Errorf("verify in a folder of %d: %v\n%s", owner, err, out)
		}
	}

	var log serverLog
	server := s.command(t.Context(), true, filepath.Join(s.bin, "larder"), "serve", "--json",
		"--listen", "127.0.0.1:0", "--store", "data")
	server.Stderr = &log
	server.Cancel = func() error { return server.Process.Signal(os.Interrupt) }
	stdout, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Process.Signal(os.Interrupt); _ = server.Wait() }()
	var view servedView
	if err := json.NewDecoder(stdout).Decode(&view); err != nil {
		t.Fatalf("%v\n%s", err, &log)
	}
	doctor := s.command(t.Context(), true, filepath.Join(s.bin, "larder"), "doctor", view.URL, "--module", "acme/b/aws")
	doctor.Env = append(doctor.Env, "SSL_CERT_FILE="+view.CAFile)
	out, err := doctor.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "permission denied for a file in the registry's folder") {
		t.Errorf("doctor: %v\n%s", err, out)
	}
	log.waitFor(t, denied)
}
