package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/scripts/larder/arguments"
	"github.com/larder-registry/larder/scripts/larder/failure"
)

// newData returns the folder of a new registry.
func newData(t testing.TB) string {
	t.Helper()
	data := filepath.Join(t.TempDir(), "data")
	larder(t, "init", "--store", "dir:"+data)
	return data
}

// contents returns the files of a folder with their sizes and sums, and its
// folders. The bytes of the reserve are random and mean nothing.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := make(map[string]string)
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		found[name] = d.Type().String()
		if d.Type().IsRegular() {
			data, err := os.ReadFile(filepath.Join(dir, name))
			found[name] = fmt.Sprintf("%d bytes, %x", len(data), sha256.Sum256(data))
			if name == "reserve" {
				found[name] = fmt.Sprintf("%d bytes", len(data))
			}
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// commandsOnData are commands that read or write a registry. commandFiles
// replaces the words in braces.
var commandsOnData = []string{
	"publish module {module} acme/vpc/aws 9.0.0",
	"publish module {module} acme/vpc/aws 9.0.0 --dry-run",
	"publish provider {release} acme/note",
	"publish provider {release} acme/note --dry-run",
	"key add acme {key}",
	"key list acme",
	"key remove acme 0123456789ABCDEF",
	"token create --name ci --scope read:**",
	"token list",
	"token rotate ci",
	"token revoke ci",
	"mirror import {folder}",
	"mirror import {folder} --dry-run",
	"mirror export {empty}",
	"mirror add registry.example.com/acme/note --platform linux_amd64 --upstream https://127.0.0.1:1",
	"mirror sync {list}",
	"mirror lock {lock} --platform linux_amd64",
	"deprecate acme/vpc/aws --message x",
	"withdraw acme/vpc/aws 1.0.0 --reason x --yes",
	"audit",
	"verify",
	"verify --repair",
	"list",
}

// If the database is missing, damaged or of another registry, every command
// fails and changes nothing. Its hint describes how to restore the database.
func TestLostDatabase(t *testing.T) {
	t.Parallel()
	data := newData(t)
	files := commandFiles(t)
	publishModule(t, data, "acme/vpc/aws", "1.0.0", withOutput("1"))
	other := newData(t)
	publishModule(t, other, "acme/vpc/aws", "2.0.0", withOutput("2"))
	database := filepath.Join(data, "larder.db")
	stored, err := os.ReadFile(database)
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := os.ReadFile(filepath.Join(other, "larder.db"))
	if err != nil {
		t.Fatal(err)
	}
	texts := golden.New(t)
	for name, content := range map[string][]byte{
		"removed":             nil,
		"emptied":             {},
		"truncated":           stored[:5000],
		"not a database":      []byte(strings.Repeat("x", 8192)),
		"of another registry": foreign,
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.RemoveAll(database); err != nil {
				t.Fatal(err)
			}
			if content != nil {
				if err := os.WriteFile(database, content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			texts.Text(t, rejectAll(t, data, files), data, "DATA")
		})
	}
	if err := os.WriteFile(database, stored, 0o600); err != nil {
		t.Fatal(err)
	}
	verifies(t, data, 0, "--at-rest")
}

// rejectAll runs all commands on a folder. Each of them must fail with the same
// error and hint, and change nothing. It returns the error and the hint.
func rejectAll(t *testing.T, data string, files *strings.Replacer) (rejection string) {
	t.Helper()
	before := contents(t, data)
	for _, command := range append([]string{"serve --listen 127.0.0.1:0", "init"}, commandsOnData...) {
		args := append(strings.Fields(files.Replace(command)), "--store", "dir:"+data)
		out := failsHere(t, failure.ExitFailed, args...)
		// Commands that cannot create a registry first print its name.
		registry, message, _ := strings.Cut(out, "larder: ")
		named := "Registry " + data + " (--store)\n"
		if creates := strings.HasPrefix(command, "serve ") || command == "init"; creates {
			named = ""
		}
		if registry != named {
			t.Errorf("larder %s prints %q before the error, and must print %q", command, registry, named)
		}
		rejection = cmp.Or(rejection, message)
		if diff := gocmp.Diff(rejection, message); diff != "" {
			t.Errorf("larder %s (-want +got):\n%s", command, diff)
		}
	}
	if diff := gocmp.Diff(before, contents(t, data)); diff != "" {
		t.Errorf("the folder has changed: %s", diff)
	}
	return rejection
}

// A backup of the database is rejected as long as it is beside the log of a
// killed server.
func TestRestoreBesideLog(t *testing.T) {
	t.Parallel()
	data := newData(t)
	database := filepath.Join(data, "larder.db")
	publishModule(t, data, "acme/vpc/aws", "1.0.0", withOutput("1"))
	backup, err := os.ReadFile(database)
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, data)
	for _, version := range []string{"1.1.0", "1.2.0"} {
		publishModule(t, data, "acme/vpc/aws", version, withOutput(version))
	}
	statements(t, data, "PRAGMA wal_checkpoint(RESTART)")
	publishModule(t, data, "acme/vpc/aws", "1.3.0", withOutput("3"))
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = s.cmd.Wait()
	killed, err := os.ReadFile(database)
	if err == nil {
		err = os.WriteFile(database, backup, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	golden.New(t).Text(t, rejectAll(t, data, commandFiles(t)), data, "DATA")
	// With the database that the log belongs to, the registry is complete.
	crashed := filepath.Join(t.TempDir(), "data")
	if err := os.CopyFS(crashed, os.DirFS(data)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(crashed, "larder.db"), killed, 0o600); err != nil {
		t.Fatal(err)
	}
	verifies(t, crashed, 0, "--at-rest")
	for _, ending := range []string{"-wal", "-shm"} {
		if err := os.Remove(database + ending); err != nil {
			t.Fatal(err)
		}
	}
	publishModule(t, data, "acme/vpc/aws", "1.1.0", withOutput("1.1.0"))
	verifies(t, data, 0)
}

// failsHere runs a command in this process. It returns the standard error, and
// fails the test if the exit code is another.
func failsHere(t *testing.T, code int, args ...string) string {
	t.Helper()
	_, stderr, got := runHere(t, args...)
	if got != code {
		t.Errorf("larder %s: exit code %d, want %d\n%s", strings.Join(args, " "), got, code, stderr)
	}
	return stderr
}

// commandFiles creates the files that commands name.
func commandFiles(t *testing.T) *strings.Replacer {
	t.Helper()
	dir := t.TempDir()
	writeFiles(t, dir, withOutput("1"))
	writeFiles(t, dir, map[string]string{
		"list.hcl": `platforms = ["linux_amd64"]
provider "registry.example.com/acme/note" {
  versions = ["1.0.0"]
}
`,
		"lock.hcl": `provider "registry.example.com/acme/note" {
  version = "1.0.0"
  hashes  = ["zh:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"]
}
`,
	})
	return strings.NewReplacer(
		"{module}",
		dir,
		"{release}",
		dir,
		"{folder}",
		dir,
		"{empty}",
		t.TempDir(),
		"{key}",
		keyFile(t, signingKey(t, "Ed25519")),
		"{list}",
		filepath.Join(dir, "list.hcl"),
		"{lock}",
		filepath.Join(dir, "lock.hcl"),
	)
}

// Commands other than serve and init create no registry. They print the folder
// that they have searched.
func TestWrongFolder(t *testing.T) {
	t.Parallel()
	files := commandFiles(t)
	for _, command := range commandsOnData {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			cmd := exec.CommandContext(t.Context(), "larder", strings.Fields(files.Replace(command))...)
			cmd.Dir = dir
			out, _ := cmd.CombinedOutput()
			if got := cmd.ProcessState.ExitCode(); got != failure.ExitNotFound {
				t.Errorf("exit code %d, want %d", got, failure.ExitNotFound)
			}
			where, err := filepath.EvalSymlinks(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{
				"larder: ", filepath.Join(where, "larder-data") + "\n",
				"Registry ./larder-data (default)\n",
				"larder init --store " + arguments.Quoted(filepath.Join(where, "larder-data")), "larder serve", "--store", "LARDER_STORE",
			} {
				if !strings.Contains(string(out), want) {
					t.Errorf("the output does not contain %q:\n%s", want, out)
				}
			}
			if left := slices.Sorted(maps.Keys(contents(t, dir))); len(left) != 1 {
				t.Errorf("the folder contains %q", left)
			}
		})
	}
}

// statements runs statements on a folder's database.
func statements(t *testing.T, data string, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(data, "larder.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
}

// A server that cannot start leaves nothing behind.
func TestServeLeavesNothing(t *testing.T) {
	t.Parallel()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	missing := filepath.Join(t.TempDir(), "tls.crt")
	texts := golden.New(t)
	for name, test := range map[string]struct {
		args string
		code int
	}{
		"other machines":      {"--listen 0.0.0.0:0", failure.ExitUsage},
		"no port":             {"--listen 127.0.0.1", failure.ExitUsage},
		"port in use":         {"--listen " + listener.Addr().String(), failure.ExitFailed},
		"no certificate":      {"--host registry.example.com", failure.ExitUsage},
		"missing certificate": {"--host registry.example.com --cert " + missing + " --key " + missing, failure.ExitNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			data := filepath.Join(t.TempDir(), "data")
			out := failsHere(t, test.code, append([]string{"serve", "--store", data}, strings.Fields(test.args)...)...)
			texts.Text(t, out, missing, "TLS.CRT", filepath.Dir(missing), "DIR", listener.Addr().String(), "127.0.0.1:8443")
			if _, err := os.Lstat(data); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("larder serve %s has created the folder: %v", test.args, err)
			}
		})
	}
}

// A server logs that all objects are missing, for example if their folder is
// not mounted.
func TestServeWithoutObjects(t *testing.T) {
	t.Parallel()
	data := newData(t)
	publishModule(t, data, "acme/vpc/aws", "1.0.0", withOutput("x"))
	for _, gone := range []bool{false, true} {
		if gone {
			if err := os.RemoveAll(filepath.Join(data, "objects")); err != nil {
				t.Fatal(err)
			}
		}
		s := serve(t, data)
		s.stop(t)
		// The hint of the log entry names the folder of the objects.
		logged := regexp.MustCompile(`level=ERROR .* missing=3 hint=".*objects/`).MatchString(s.log.String())
		if logged != gone {
			t.Errorf("objects are missing: %t; log:\n%s", gone, s.log)
		}
	}
}

// A server reports that it has created a registry. It creates none in a folder
// with other files.
func TestServeNewRegistry(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	for _, name := range []string{
		".DS_Store", "tls-unfinished-1", "registry.id-unfinished-x", ".larder-room-1", "larder.db-unfinished-x",
	} {
		writeFiles(t, data, map[string]string{name: "x"})
	}
	if err := os.Mkdir(filepath.Join(data, "lost+found"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, created := range []bool{true, false} {
		s := serve(t, data)
		if s.Created != created {
			t.Errorf("created: %t, want %t", s.Created, created)
		}
		s.stop(t)
		// The log entry about a new registry names the folder.
		if logged := strings.Contains(s.log.String(), " data="+data+"\n"); logged != created {
			t.Errorf("logged: %t, want %t:\n%s", logged, created, s.log)
		}
	}
	foreign := t.TempDir()
	writeFiles(t, foreign, map[string]string{"photo.jpg": "x"})
	before := contents(t, foreign)
	for _, command := range [][]string{
		{"serve", "--listen", "127.0.0.1:0", "--store", foreign},
		{"init", "--store", "dir:" + foreign},
	} {
		if out := failsHere(t, failure.ExitInvalid, command...); !strings.Contains(out, "photo.jpg") {
			t.Errorf("larder %s prints %q", command[0], out)
		}
	}
	if diff := gocmp.Diff(before, contents(t, foreign)); diff != "" {
		t.Errorf("the folder has changed: %s", diff)
	}
}

// If someone removes or replaces the database of a server, it publishes nothing
// from then on, and logs the reason.
func TestDatabaseRemovedWhileServing(t *testing.T) {
	t.Parallel()
	module := t.TempDir()
	writeFiles(t, module, withOutput("1"))
	foreign, err := os.ReadFile(filepath.Join(newData(t), "larder.db"))
	if err != nil {
		t.Fatal(err)
	}
	texts := golden.New(t)
	for name, remove := range map[string]func(database string) error{
		"moved":       func(database string) error { return os.Rename(database, database+".old") },
		"overwritten": func(database string) error { return os.WriteFile(database, foreign, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := newData(t)
			publishModule(t, data, "acme/vpc/aws", "0.1.0", withOutput("1"))
			s := serve(t, data)
			secret := token(t, data, "--name", "ci", "--scope", "publish:modules/acme/**")
			statements(t, data, "PRAGMA wal_checkpoint(PASSIVE)")
			p := s.publisher(t, credentials(s.Host, secret))
			p.run(t, 0, nil, "publish", "module", module, "acme/vpc/aws", "1.0.0")
			if err := remove(filepath.Join(data, "larder.db")); err != nil {
				t.Fatal(err)
			}
			out := p.run(t, failure.ExitFailed, []string{"503"}, "publish", "module", module, "acme/vpc/aws", "1.1.0")
			if strings.Contains(out, data) {
				t.Errorf("the publisher gets the path of the data: %s", out)
			}
			s.stop(t)
			why := regexp.MustCompile(`status=503 .* (error=".*")`).FindStringSubmatch(s.log.String())
			if why == nil {
				t.Fatalf("the log has no reason for the status 503:\n%s", s.log)
			}
			texts.Text(t, why[1], data, "DATA")
			if name == "moved" {
				// The old database has only the versions that were published
				// before.
				if err := os.Rename(filepath.Join(data, "larder.db.old"), filepath.Join(data, "larder.db")); err != nil {
					t.Fatal(err)
				}
				verifies(t, data, 0)
				if out := larder(t, "list", "acme/vpc/aws", "--store", "dir:"+data); strings.Contains(out, "1.1.0") ||
					!strings.Contains(out, "1.0.0") {
					t.Error(out)
				}
			}
		})
	}
}

// On a full disk, every command and the server report that the disk is full.
// When there is space again, the registry is complete.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	if err := exec.CommandContext(t.Context(), "unshare", "-Urm", "true").Run(); err != nil {
		t.Skipf("NOT TESTED: a full disk, because unshare -Urm does not work here: %v", err)
	}
	dir, module, mount := t.TempDir(), t.TempDir(), t.TempDir()
	writeFiles(t, module, withOutput("1"))
	writeFiles(t, dir, map[string]string{"run.sh": fullDiskScript})
	large := make([]byte, 600<<10) // gzip cannot compress it
	state := sha256.Sum256(nil)
	for i := range large {
		if i%32 == 0 {
			state = sha256.Sum256(state[:])
		}
		large[i] = state[i%32]
	}
	if err := os.MkdirAll(filepath.Join(dir, "large"), 0o700); err != nil {
		t.Fatal(err)
	}
	writeFiles(t, filepath.Join(dir, "large"), map[string]string{"main.tf": "", "large.bin": string(large)})
	cmd := exec.CommandContext(t.Context(), "unshare", "-Urm", "sh", filepath.Join(dir, "run.sh"))
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "MOUNT="+mount, "MODULE="+module, "LARGE="+filepath.Join(dir, "large"),
		"LARDER_STORE=dir:"+filepath.Join(mount, "data"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	sections := strings.Split(string(out), "\n== ")
	for _, section := range sections[1:] {
		name, text, _ := strings.Cut(section, "\n")
		command, wanted, _ := strings.Cut(name, " => ")
		if !strings.HasSuffix(strings.TrimSpace(text), "exit "+wanted) {
			t.Errorf("%s must exit with %s:\n%s", command, wanted, text)
		}
		if wanted == "1" && !strings.Contains(text, "the disk is full") &&
			!strings.Contains(text, "the registry's disk is full") {
			t.Errorf("%s does not report that the disk is full:\n%s", command, text)
		}
		for _, raw := range []string{"4874", "SQLITE", "no space left", "(13)", "(14)", "rollback"} {
			if wanted == "1" && strings.Contains(text, raw) {
				t.Errorf("%s prints %q:\n%s", command, raw, text)
			}
		}
	}
	if t.Failed() {
		t.Logf("%s", out)
	}
	log, err := os.ReadFile(filepath.Join(dir, "serve.log"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(log, []byte("status=507")) || !bytes.Contains(log, []byte("the disk is full")) {
		t.Errorf("the server's log:\n%s", log)
	}
	var listed struct{ Versions []struct{ Version string } }
	text, err := os.ReadFile(filepath.Join(dir, "versions.json"))
	if err == nil {
		err = json.Unmarshal(text, &listed)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(listed.Versions) != 3 {
		t.Errorf("listed are %v", listed.Versions)
	}
}

// fullDiskScript mounts a small file system and runs commands on it.
const fullDiskScript = `
mount -t tmpfs -o size=3m tmpfs "$MOUNT" || exit 1
check() { want=$1; shift; echo; echo "== $* => $want"; "$@" 2>&1; echo "exit $?"; }
fill() { dd if=/dev/zero of="$MOUNT/fill" bs=4096 >/dev/null 2>&1; }
larder init >/dev/null || exit 1
larder publish module "$MODULE" acme/vpc/aws 1.0.0 >/dev/null 2>&1 || exit 1
larder token create --name ci --scope 'publish:modules/acme/**' --json > token.json || exit 1
fill
check 1 larder list
check 1 larder verify
check 1 larder token create --name x --scope 'read:**'
check 1 larder publish module "$MODULE" acme/vpc/aws 1.1.0
check 1 larder serve --listen 127.0.0.1:0
rm "$MOUNT/fill"

larder serve --listen 127.0.0.1:0 --json > serve.json 2> serve.log &
server=$!
i=0
until [ -s serve.json ]; do
	i=$((i + 1))
	[ $i -gt 300 ] && { echo "larder serve does not start"; cat serve.log; kill $server; exit 1; }
	sleep 0.1
done
fill
check 0 larder list
check 1 larder publish module "$LARGE" acme/vpc/aws 1.1.0
check 1 larder publish module "$MODULE" acme/vpc/aws 1.1.0
host=$(sed -n 's/.*"host": "\(.*\)".*/\1/p' serve.json)
secret=$(sed -n 's/.*"token": "\(.*\)".*/\1/p' token.json)
name=$(echo "$host" | sed 's/[.]/_/g; s/:.*//')
printf 'credentials "%s" {\n  token = "%s"\n}\n' "$host" "$secret" > tofurc
TF_CLI_CONFIG_FILE=$PWD/tofurc SSL_CERT_FILE="$MOUNT/data/tls/ca.pem"
export TF_CLI_CONFIG_FILE SSL_CERT_FILE
unset LARDER_STORE
check 1 larder publish module "$MODULE" acme/vpc/aws 1.1.0 --registry "https://$host"
rm "$MOUNT/fill"
check 0 larder publish module "$MODULE" acme/vpc/aws 1.1.0 --registry "https://$host"
check 0 larder publish module "$LARGE" acme/vpc/aws 1.2.0 --store "dir:$MOUNT/data"
check 0 larder verify --store "dir:$MOUNT/data"
larder list acme/vpc/aws --json --store "dir:$MOUNT/data" > versions.json
kill -INT $server
wait $server
`
