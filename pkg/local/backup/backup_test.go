package backup_test

import (
	"archive/tar"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/examine/verify"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/local/backup"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
)

var vpc = registry.Module{Namespace: "acme", Name: "vpc", System: "aws"}

// publishVPC publishes a version of a module with some random content.
func publishVPC(ctx context.Context, data *local.Data, source string, minor uint64) error {
	dir := filepath.Join(source, strconv.FormatUint(minor, 10))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	config := fmt.Sprintf("output \"minor\" {\n  value = %d\n}\n", minor)
	if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte(config), 0o600); err != nil {
		return err
	}
	p := publish.Publisher{Catalog: data.Catalog, Objects: data.Objects}
	_, err := p.Module(ctx, rules.Module{Dir: dir, Address: vpc, Version: registry.Version{Major: 1, Minor: minor}})
	return err
}

// filled returns a registry with some versions of a module.
func filled(t *testing.T, versions uint64) *local.Data {
	t.Helper()
	data, _, err := local.Create(t.Context(), filepath.Join(t.TempDir(), "larder-data"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = data.Close() })
	source := t.TempDir()
	for minor := range versions {
		if err := publishVPC(t.Context(), data, source, minor); err != nil {
			t.Fatal(err)
		}
	}
	return data
}

// written returns a backup of a registry.
func written(t *testing.T, data *local.Data) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "backup.tar")
	if _, err := (backup.Writer{Data: data, Release: "1.2.3"}).Write(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	return path
}

// restored restores a backup, and verifies the registry. It returns the
// versions of the module in it.
func restored(t *testing.T, path string) []string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "restored")
	if _, err := backup.Restore(t.Context(), path, dir, nil, nil, nil); err != nil {
		t.Fatal(err)
	}
	return verified(t, dir)
}

// verified verifies the registry in a folder at rest, and returns the versions
// of the module in it.
func verified(t *testing.T, dir string) (versions []string) {
	t.Helper()
	data, err := local.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer data.Close()
	report, err := verify.Verifier{Catalog: data.Catalog, Objects: data.Objects, AtRest: true}.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]verify.Finding{}, report.Findings); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	records, err := data.Catalog.Modules.All(t.Context(), vpc)
	if err != nil && !errors.Is(err, registry.ErrNotFound) {
		t.Fatal(err)
	}
	for _, r := range records {
		if r.Withdrawal() == nil {
			versions = append(versions, r.Number().String())
		}
	}
	slices.Sort(versions)
	return versions
}

func TestBackup(t *testing.T) {
	t.Parallel()
	data := filled(t, 3)
	path := written(t, data)
	if diff := cmp.Diff([]string{"1.0.0", "1.1.0", "1.2.0"}, restored(t, path)); diff != "" {
		t.Errorf("versions (-want +got):\n%s", diff)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS != "windows" && info.Mode() != 0o600 {
		t.Errorf("the mode is %v", info.Mode())
	}
	if left := others(t, filepath.Dir(path), "backup.tar"); len(left) > 0 {
		t.Errorf("files beside the backup: %q", left)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (backup.Writer{Data: data}).Write(t.Context(), path); !errors.Is(err, registry.ErrExists) {
		t.Errorf("a second backup to the same file: %v", err)
	}
	if after, _ := os.ReadFile(path); !bytes.Equal(after, before) {
		t.Error("the second backup changed the file")
	}
}

// others returns the names in a folder, without one of them.
func others(t *testing.T, dir, but string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != but {
			names = append(names, e.Name())
		}
	}
	return names
}

// A publisher changes the registry during some backups, and an operator
// withdraws a version that the backup has begun to copy. Each backup is whole.
func TestBackupWhilePublishing(t *testing.T) {
	t.Parallel()
	const backups = 5
	data := filled(t, backups+1)
	source := t.TempDir()
	ctx, stop := context.WithCancel(t.Context())
	var publishing sync.WaitGroup
	publishing.Go(func() {
		for minor := uint64(backups + 1); ctx.Err() == nil; minor++ {
			if err := publishVPC(ctx, data, source, minor); err != nil && ctx.Err() == nil {
				t.Errorf("1.%d.0: %v", minor, err)
			}
		}
	})
	w := publish.Withdrawer{Catalog: data.Catalog, Objects: data, By: "ada"}
	var paths []string
	for i := range uint64(backups) {
		path, steps := filepath.Join(t.TempDir(), "backup.tar"), 0
		err := backup.WriteInSteps(ctx, backup.Writer{Data: data}, path, func() {
			if steps++; steps != 5 { // the database, the marker, a key, and one of many objects
				return
			}
			if _, err := w.Withdraw(ctx, vpc, registry.Version{Major: 1, Minor: i}, "a leak"); err != nil {
				t.Errorf("withdraw 1.%d.0: %v", i, err)
			}
		})
		if err != nil {
			t.Errorf("backup %d: %v", i, err)
			continue
		}
		paths = append(paths, path)
	}
	stop()
	publishing.Wait()
	for i, path := range paths {
		versions := restored(t, path)
		if withdrawn := fmt.Sprintf("1.%d.0", i); slices.Contains(versions, withdrawn) {
			t.Errorf("backup %d has the withdrawn version %s", i, withdrawn)
		}
		if last := fmt.Sprintf("1.%d.0", backups); !slices.Contains(versions, last) {
			t.Errorf("backup %d lacks the version %s", i, last)
		}
	}
}

// Variables of a process that runs one command and is killed at a point of it.
const (
	killedCommand = "LARDER_TEST_COMMAND"
	killedFrom    = "LARDER_TEST_FROM"
	killedTo      = "LARDER_TEST_TO"
	killedAt      = "LARDER_TEST_AT"
)

// runKilled runs a backup or a restore, and kills this process at one of its
// changes.
func runKilled(command string) error {
	at, err := strconv.Atoi(os.Getenv(killedAt))
	if err != nil {
		return err
	}
	step := func() {
		if at--; at == 0 {
			self, err := os.FindProcess(os.Getpid())
			if err == nil {
				err = self.Kill()
			}
			panic(err) // a killed process does not get here
		}
	}
	from, to, ctx := os.Getenv(killedFrom), os.Getenv(killedTo), context.Background()
	switch command {
	case "restore":
		return backup.RestoreInSteps(ctx, from, to, step)
	case "restore-database":
		return backup.RestoreDatabaseInSteps(ctx, from, to, step)
	}
	data, err := local.Open(ctx, from)
	if err != nil {
		return err
	}
	return errors.Join(backup.WriteInSteps(ctx, backup.Writer{Data: data}, to, step), data.Close())
}

func TestMain(m *testing.M) {
	if command := os.Getenv(killedCommand); command != "" {
		if err := runKilled(command); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// killAt runs a command in another process, which is killed at a point. It
// reports whether the command ended before.
func killAt(t *testing.T, command, from, to string, at int) (ended bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), killedCommand+"="+command, killedFrom+"="+from, killedTo+"="+to,
		killedAt+"="+strconv.Itoa(at))
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState.ExitCode() == 3 {
		t.Fatalf("%s at %d: %s", command, at, out)
	}
	return err == nil
}

// A backup that is killed leaves no file with its name, and the next one
// succeeds.
func TestBackupKilled(t *testing.T) {
	t.Parallel()
	data := filled(t, 2)
	for at := 1; ; at++ {
		path := filepath.Join(t.TempDir(), "backup.tar")
		ended := killAt(t, "backup", data.Dir, path, at)
		if _, err := os.Stat(path); ended != (err == nil) {
			t.Errorf("killed at %d: %v", at, err)
		}
		if !ended {
			if _, err := (backup.Writer{Data: data}).Write(t.Context(), path); err != nil {
				t.Errorf("the backup after one that was killed at %d: %v", at, err)
			}
		}
		if ended {
			if at < 10 {
				t.Errorf("a backup has only %d points", at-1)
			}
			restored(t, path)
			return
		}
	}
}

// A restore that is killed leaves no folder with its name, and the next one
// succeeds.
func TestRestoreKilled(t *testing.T) {
	t.Parallel()
	path := written(t, filled(t, 2))
	for at := 1; ; at++ {
		dir := filepath.Join(t.TempDir(), "restored")
		ended := killAt(t, "restore", path, dir, at)
		if _, err := os.Stat(dir); ended != (err == nil) {
			t.Errorf("killed at %d: %v", at, err)
		}
		if !ended {
			if _, err := backup.Restore(t.Context(), path, dir, nil, nil, nil); err != nil {
				t.Errorf("the restore after one that was killed at %d: %v", at, err)
			}
		}
		verified(t, dir)
		if ended {
			if at < 10 {
				t.Errorf("a restore has only %d points", at-1)
			}
			return
		}
	}
}

// A registry with a missing or damaged object has no backup, and the error
// names the object.
func TestBackupOfDamage(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(path string) error{
		"missing": os.Remove,
		"shorter": func(path string) error { return os.Truncate(path, 1) },
		"longer":  func(path string) error { return appendTo(path, "x") },
		"changed": func(path string) error {
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			return os.WriteFile(path, bytes.Repeat([]byte("x"), int(info.Size())), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := filled(t, 1)
			objects, err := filepath.Glob(filepath.Join(data.Dir, "objects/modules/acme/vpc/aws/1.0.0/*.tar.gz"))
			if err != nil || len(objects) != 1 {
				t.Fatal(objects, err)
			}
			if err := damage(objects[0]); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "backup.tar")
			_, err = backup.Writer{Data: data}.Write(t.Context(), path)
			if !errors.Is(err, registry.ErrCorrupt) {
				t.Errorf("the error is %v", err)
			}
			if !strings.Contains(fmt.Sprint(err), filepath.Base(objects[0])) {
				t.Errorf("the error does not name the object: %v", err)
			}
			if left := others(t, filepath.Dir(path), ""); len(left) > 0 {
				t.Errorf("files are left: %q", left)
			}
		})
	}
}

func appendTo(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// A folder with content is not changed.
func TestRestoreRefusesContent(t *testing.T) {
	t.Parallel()
	path := written(t, filled(t, 1))
	for name, file := range map[string]string{"a registry": "larder.db", "another file": "notes.txt", "a hidden file": ".x"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, file), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := backup.Restore(t.Context(), path, dir, nil, nil, nil); !errors.Is(err, registry.ErrExists) {
				t.Errorf("the error is %v", err)
			}
			if left := others(t, dir, file); len(left) > 0 {
				t.Errorf("the folder got %q", left)
			}
		})
	}
	empty := t.TempDir()
	if _, err := backup.Restore(t.Context(), path, empty, nil, nil, nil); err != nil {
		t.Errorf("an empty folder: %v", err)
	}
	verified(t, empty)
}

// entry is an entry of a tar file.
type entry struct {
	tar.Header
	content []byte
}

func unpacked(t *testing.T, path string) (entries []entry) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for in := tar.NewReader(f); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return entries
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, entry{*h, content})
	}
}

func packed(t *testing.T, entries []entry) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		e.Size = int64(len(e.content))
		if e.Typeflag != tar.TypeReg {
			e.Size = 0
		}
		if err := w.WriteHeader(&e.Header); err != nil {
			t.Fatal(err)
		}
		if e.Size > 0 {
			if _, err := w.Write(e.content); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// A changed backup is refused with a reason, and leaves nothing.
func TestRestoreOfDamage(t *testing.T) {
	t.Parallel()
	path := written(t, filled(t, 1))
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	other := unpacked(t, written(t, filled(t, 1)))
	flip := func(name string) func([]entry) []entry {
		return func(entries []entry) []entry {
			i := slices.IndexFunc(entries, func(e entry) bool { return strings.HasSuffix(e.Name, name) })
			entries[i].content[len(entries[i].content)/2] ^= 1
			return entries
		}
	}
	before := func(e entry) func([]entry) []entry {
		return func(entries []entry) []entry { return slices.Insert(entries, len(entries)-1, e) }
	}
	file := func(name string) entry {
		return entry{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600}, []byte("x")}
	}
	edit := func(old, new string) func([]entry) []entry {
		return func(entries []entry) []entry {
			last := &entries[len(entries)-1]
			last.content = bytes.Replace(last.content, []byte(old), []byte(new), 1)
			return entries
		}
	}
	for name, test := range map[string]struct {
		change func([]entry) []entry
		want   string
	}{
		"byte of the database": {flip("larder.db"), "differs from its manifest"},
		"byte of an archive":   {flip(".tar.gz"), "differs from its manifest"},
		"byte of the key":      {flip("url.key"), "differs from its manifest"},
		"byte of the marker":   {flip("registry.id"), "differs from its manifest"},
		"file added":           {before(file("objects/x/y")), "differs from its manifest"},
		"unknown file":         {before(file("served.json")), "unknown file"},
		"file twice":           {before(file("larder.db")), "two files"},
		"absolute path":        {before(file("/tmp/x")), "unknown file"},
		"path above":           {before(file("objects/../../x")), "unknown file"},
		"path above objects":   {before(file("objects/..")), "unknown file"},
		"folder": {before(entry{Header: tar.Header{Typeflag: tar.TypeDir, Name: "objects/x/", Mode: 0o700}}),
			"not a regular file"},
		"link": {before(entry{Header: tar.Header{Typeflag: tar.TypeSymlink, Name: "objects/x", Linkname: "/etc/passwd"}}),
			"not a regular file"},
		"hard link": {before(entry{Header: tar.Header{Typeflag: tar.TypeLink, Name: "objects/x", Linkname: "larder.db"}}),
			"not a regular file"},
		"file missing":     {func(e []entry) []entry { return e[1:] }, "differs from its manifest"},
		"manifest missing": {func(e []entry) []entry { return e[:len(e)-1] }, "end is missing"},
		"manifest alone":   {func(e []entry) []entry { return e[len(e)-1:] }, "differs from its manifest"},
		"manifest of another backup": {func(e []entry) []entry { return append(e[:len(e)-1], other[len(other)-1]) },
			"differs from its manifest"},
		"manifest not last":     {func(e []entry) []entry { return append(e, file("objects/x/y")) }, "follows its manifest"},
		"manifest not JSON":     {edit("{", "["), "not valid JSON"},
		"later format":          {edit(`"larder_backup":1`, `"larder_backup":2`), "format 2"},
		"unknown field":         {edit(`"registry"`, `"registrar"`), "unknown field"},
		"ID of another":         {edit(`"registry":"`, `"registry":"A`), "another registry"},
		"no database at all":    {func(e []entry) []entry { return withManifestOf(e, "larder.db") }, "larder.db is missing"},
		"empty manifest object": {edit(`{`, `{}{`), "not valid JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refused(t, packed(t, test.change(unpacked(t, path))), test.want)
		})
	}
	for name, test := range map[string]struct {
		content []byte
		want    string
	}{
		"empty": {nil, "not a backup"}, "text": {bytes.Repeat([]byte("hello "), 200), "not a backup"},
		"one block": {whole[:512], "end is missing"}, "half": {whole[:len(whole)/2], "end is missing"},
		"without its last byte": {whole[:len(whole)-1], "end is missing"},
		"with one byte more":    {append(slices.Clone(whole), 0), "follows its end"},
		"twice":                 {append(slices.Clone(whole), whole...), "follows its end"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refused(t, test.content, test.want)
		})
	}
}

// withManifestOf removes a file and its line of the manifest.
func withManifestOf(entries []entry, without string) []entry {
	last := &entries[len(entries)-1]
	begin := bytes.Index(last.content, []byte(`{"name":"`+without))
	end := begin + bytes.IndexByte(last.content[begin:], '}') + 2 // with the comma
	last.content = slices.Delete(last.content, begin, end)
	return slices.DeleteFunc(entries, func(e entry) bool { return e.Name == without })
}

// refused restores a damaged backup.
func refused(t *testing.T, content []byte, want string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "damaged.tar")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "restored")
	_, err := backup.Restore(t.Context(), path, dir, nil, nil, nil)
	if err == nil {
		t.Fatal("there is no error")
	}
	if !strings.Contains(err.Error(), want) {
		t.Errorf("the error lacks %q: %v", want, err)
	}
	if left := others(t, filepath.Dir(dir), ""); len(left) > 0 {
		t.Errorf("the folder has %q", left)
	}
}

// Sparse files are small in the backup and can be very large on disk.
func TestSparse(t *testing.T) {
	t.Parallel()
	h := tar.Header{Typeflag: tar.TypeReg, Name: "larder.db", PAXRecords: map[string]string{"GNU.sparse.major": "1"}}
	if err := backup.CheckHeader(&h); !errors.Is(err, registry.ErrCorrupt) {
		t.Errorf("the error is %v", err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(nil))
	f.Add(make([]byte, 1024))
	var small bytes.Buffer
	w := tar.NewWriter(&small)
	for _, name := range []string{"larder.db", "objects/a/b", "larder-backup.json"} {
		_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: 2, Mode: 0o600})
		_, _ = w.Write([]byte("{}"))
	}
	_ = w.Close()
	f.Add(small.Bytes())
	f.Fuzz(func(t *testing.T, content []byte) {
		size := int64(0)
		err := backup.Read(bytes.NewReader(content), func(name string, body io.Reader) error {
			if !filepath.IsLocal(name) {
				t.Errorf("%q leads out of the folder", name)
			}
			n, err := io.Copy(io.Discard, body)
			size += n
			return err
		})
		if size > int64(len(content)) {
			t.Errorf("%d bytes come from a file of %d", size, len(content))
		}
		known := errors.Is(err, registry.ErrCorrupt) || errors.Is(err, registry.ErrInvalid) || errors.Is(err, registry.ErrSchema)
		if err != nil && !known {
			t.Errorf("an unknown error: %v", err)
		}
	})
}

// Files of processes that were killed long ago are removed, and no others.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	data := filled(t, 1)
	dir := t.TempDir()
	const random = "-unfinished-ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	old := time.Now().Add(-25 * time.Hour)
	for name, at := range map[string]time.Time{
		"larder-1.tar" + random: old, "larder-1.tar" + random + ".db": old, "larder-1.tar" + random + ".db-wal": old,
		"larder-2.tar" + random: time.Now(), "larder-3.tar": old, "notes-unfinished-yet": old,
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := (backup.Writer{Data: data}).Write(t.Context(), filepath.Join(dir, "larder-4.tar")); err != nil {
		t.Fatal(err)
	}
	want := []string{"larder-2.tar" + random, "larder-3.tar", "notes-unfinished-yet"}
	if diff := cmp.Diff(want, others(t, dir, "larder-4.tar")); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// A later state of the registry has changes that the restored one lacks.
func TestSince(t *testing.T) {
	t.Parallel()
	data := filled(t, 1)
	path := written(t, data)
	w := publish.Withdrawer{Catalog: data.Catalog, Objects: data, By: "ada"}
	if _, err := w.Withdraw(t.Context(), vpc, registry.Version{Major: 1}, "a leak"); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "restored")
	if _, err := backup.Restore(t.Context(), path, dir, nil, nil, nil); err != nil {
		t.Fatal(err)
	}
	before, err := local.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	changes, complete, err := backup.Since(t.Context(), before.Catalog, data.Catalog)
	if err != nil {
		t.Fatal(err)
	}
	if !complete {
		t.Error("the changes are not complete")
	}
	var got []string
	for _, c := range changes {
		got = append(got, fmt.Sprintf("%s %s %s: %s", c.Action, c.Subject, c.Version, c.Detail))
	}
	if diff := cmp.Diff([]string{"withdraw modules/acme/vpc/aws 1.0.0: a leak"}, got); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	none, complete, err := backup.Since(t.Context(), data.Catalog, before.Catalog)
	if err != nil || len(none) != 0 {
		t.Errorf("the earlier state has the changes %v, %v", none, err)
	}
	if complete {
		t.Error("the changes of an earlier state count as complete")
	}
}

// A withdrawal counts even if the trail has lost it. The result is then not
// complete if another entry cannot be read.
func TestSinceWithoutTrail(t *testing.T) {
	t.Parallel()
	data := filled(t, 2)
	path := written(t, data)
	w := publish.Withdrawer{Catalog: data.Catalog, Objects: data, By: "ada"}
	if _, err := w.Withdraw(t.Context(), vpc, registry.Version{Major: 1}, "a leak"); err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		`DELETE FROM items WHERE pk LIKE 'audit/%' AND CAST(data AS TEXT) LIKE '%"withdraw"%'`,
		`UPDATE items SET data = x'7b' WHERE sk = (SELECT max(sk) FROM items WHERE pk LIKE 'audit/%')`,
	} {
		db, err := sql.Open("sqlite", filepath.Join(data.Dir, "larder.db"))
		if err != nil {
			t.Fatal(err)
		}
		result, err := db.ExecContext(t.Context(), statement)
		if err := errors.Join(err, db.Close()); err != nil {
			t.Fatal(err)
		}
		if n, err := result.RowsAffected(); err != nil || n != 1 {
			t.Fatalf("%s changes %d rows: %v", statement, n, err)
		}
	}
	dir := filepath.Join(t.TempDir(), "restored")
	if _, err := backup.Restore(t.Context(), path, dir, data, nil, nil); err != nil {
		t.Fatal(err)
	}
	before, err := local.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	changes, complete, err := backup.Since(t.Context(), before.Catalog, data.Catalog)
	if err != nil {
		t.Fatal(err)
	}
	if len(changes) != 1 || changes[0].Action != registry.AuditWithdraw || changes[0].Detail != "a leak" {
		t.Errorf("the changes are %+v", changes)
	}
	if complete {
		t.Error("the changes count as complete")
	}
}

// A backup of another registry is refused, and leaves nothing.
func TestRestoreOfAnotherRegistry(t *testing.T) {
	t.Parallel()
	path := written(t, filled(t, 1))
	dir := filepath.Join(t.TempDir(), "restored")
	if _, err := backup.Restore(t.Context(), path, dir, filled(t, 1), nil, nil); !errors.Is(err, registry.ErrInvalid) {
		t.Errorf("the error is %v, want ErrInvalid", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder: %v", err)
	}
}

// If the folder is a link to another folder, the link stays.
func TestRestoreToLink(t *testing.T) {
	t.Parallel()
	path, parent := written(t, filled(t, 1)), t.TempDir()
	volume, link := filepath.Join(parent, "volume"), filepath.Join(parent, "link")
	if err := errors.Join(os.Mkdir(volume, 0o700), os.Symlink(volume, link)); err != nil {
		t.Fatal(err)
	}
	if _, err := backup.Restore(t.Context(), path, link, nil, nil, nil); err != nil {
		t.Fatal(err)
	}
	if target, err := os.Readlink(link); err != nil || target != volume {
		t.Errorf("the link leads to %q: %v", target, err)
	}
	verified(t, volume)
}
