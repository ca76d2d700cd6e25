package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/clients"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/sqlite"
	"github.com/larder-registry/larder/pkg/verify"
)

// verifies runs `larder verify`, and returns its report and what it printed.
func verifies(t *testing.T, data string, code int, args ...string) (report struct {
	OK       bool
	Findings []struct {
		Kind, Path, Version, Fix string
		Repaired                bool
	}
}, printed string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "larder", append([]string{"verify", "--store", "dir:" + data}, args...)...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run()
	if got := cmd.ProcessState.ExitCode(); got != code {
		t.Fatalf("exit code %d, want %d\n%s%s", got, code, &stdout, &stderr)
	}
	if len(args) > 0 && args[len(args)-1] == "--json" {
		// One document, also where something is found.
		if err := json.Unmarshal(stdout.Bytes(), &report); err != nil {
			t.Fatalf("%v\n%s", err, &stdout)
		}
		if stderr.Len() > 0 {
			t.Errorf("the document says it all, and yet: %s", &stderr)
		}
	}
	return report, stdout.String() + stderr.String()
}

// A registry whose folder was copied, as the README has it backed up, is whole, and clients install from the copy.
func TestRestore(t *testing.T) {
	t.Parallel()
	data, copied := t.TempDir(), t.TempDir()
	first := serve(t, data)
	key := signingKey(t, "Ed25519")
	addKey(t, data, "acme", key)
	larder(t, "publish", "provider", releaseOf(t, key), "acme/note", "--store", "dir:"+data)
	publishModule(t, data, "acme/vpc/aws", "1.0.0", output("restored"))
	first.stop(t)
	if err := os.CopyFS(copied, os.DirFS(data)); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(data); err != nil {
		t.Fatal(err)
	}
	if report, out := verifies(t, copied, 0, "--at-rest", "--json"); !report.OK || len(report.Findings) > 0 {
		t.Errorf("%+v\n%s", report, out)
	}
	s := serve(t, copied)
	clients.Each(t, func(t *testing.T, c clients.Client) {
		dir := note(t, s.Host+"/acme/note", "1.0.0", filepath.Join(t.TempDir(), "note.txt"))
		writeFiles(t, dir, map[string]string{"module.tf": `module "vpc" {
  source  = "` + s.Host + `/acme/vpc/aws"
  version = "1.0.0"
}
`})
		client := session(t, c, s)
		if out, err := client.Run(t.Context(), dir, "init", "-no-color"); err != nil {
			t.Error(err, out)
		}
	})
}

// What is wrong is reported, with what to do, and has an exit code.
func TestVerify(t *testing.T) {
	t.Parallel()
	data := newData(t)
	publishModule(t, data, "acme/vpc/aws", "1.0.0", output("1"))
	if _, out := verifies(t, data, 0); !strings.Contains(out, "Verified 1 module, 0 providers, 0 mirrored providers: 1 version, 1 object") || !strings.Contains(out, "verifying namespace acme") {
		t.Error(out)
	}
	err := filepath.WalkDir(filepath.Join(data, "objects"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		return os.Remove(path)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{}, {"--quick"}, {"--repair"}} {
		if _, out := verifies(t, data, 1, args...); !strings.Contains(out, "version-without-object: modules/acme/vpc/aws 1.0.0: ") || !strings.Contains(out, "publish or mirror the same again") || !strings.Contains(out, "1 fault") {
			t.Error(out)
		}
	}
	if report, out := verifies(t, data, 1, "--json"); report.OK || len(report.Findings) != 1 || report.Findings[0].Kind != "version-without-object" || !strings.Contains(report.Findings[0].Fix, "publish or mirror the same again") {
		t.Error(out)
	}
	// As it says.
	publishModule(t, data, "acme/vpc/aws", "1.0.0", output("1"))
	verifies(t, data, 0)
	verifies(t, filepath.Join(data, "none"), 5)
}

// Findings are a list with a state first, and fit the terminal. With --quiet there
// are faults alone.
func TestFindings(t *testing.T) {
	t.Parallel()
	sum := strings.Repeat("0123456789abcdef", 4)
	v := verifyView{Report: verify.Report{Findings: []verify.Finding{
		{
			Kind: verify.Size, Path: "modules/acme/vpc/aws", Version: "1.0.0", Object: "modules/acme/vpc/aws/1.0.0/" + sum + ".tar.gz",
			Detail: "it has 121 bytes, and 119 are recorded", Fix: "restore the object from a backup, or publish the same again",
		},
		{Kind: verify.Listing, Path: "modules/acme/dns/aws", Detail: "it lists no version", Repaired: true},
		{Kind: verify.ObjectWithoutVersion, Path: "modules/acme/x/aws", Detail: "no version has it", Note: true},
	}}}
	const fault = `fault    size: modules/acme/vpc/aws 1.0.0:
         modules/acme/vpc/aws/1.0.0/01234567….tar.gz: it has 121 bytes, and 119
         are recorded
`
	const want = fault + `repaired listing: modules/acme/dns/aws: it lists no version
note     object-without-version: modules/acme/x/aws: no version has it

Verified 0 modules, 0 providers, 0 mirrored providers: 0 versions, 0 objects, 0
B read.
1 fault, 1 repaired, 1 note.

What to do:
  size: restore the object from a backup, or publish the same again
`
	if diff := cmp.Diff(want, printed(v.text, 80)); diff != "" {
		t.Errorf("at 80 columns: %s", diff)
	}
	if diff := cmp.Diff(fault, printed(v.quiet, 80)); diff != "" {
		t.Errorf("with --quiet: %s", diff)
	}
	if full := printed(v.text, 0); !strings.Contains(full, v.Findings[0].Object+": it has 121 bytes, and 119 are recorded\n") {
		t.Errorf("in full:\n%s", full)
	}
}

// items opens the table of a folder, to write there what no command does.
func items(t *testing.T, data string, changes ...catalog.Change) {
	t.Helper()
	table, err := sqlite.Open(t.Context(), filepath.Join(data, "larder.db"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(table.Write(t.Context(), changes...), table.Close()); err != nil {
		t.Fatal(err)
	}
}

// fails runs a command that has to fail so, and returns what it printed.
func fails(t *testing.T, code int, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "larder", args...)
	out, _ := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != code {
		t.Errorf("larder %s: exit code %d, want %d\n%s", strings.Join(args, " "), got, code, out)
	}
	return string(out)
}

// What the table holds is printed as text, whoever has written it there: it moves no cursor and makes no line of its own.
func TestPrintable(t *testing.T) {
	t.Parallel()
	data := newData(t)
	publishModule(t, data, "acme/vpc/aws", "1.0.0", output("1"))
	const forged = `\u001b[2Kx\n0 faults, 0 repaired, 0 notes.\t\u009b`
	month := time.Now().UTC().Format("2006-01")
	items(t, data,
		catalog.Change{Key: catalog.Key{Partition: "modules/acme/vpc/aws", Sort: "version/2.0.0"}, Data: []byte(`{"version":"2.0.0","object":"modules/acme/vpc/aws/2.0.0/` + forged + `","sha256":"` + forged + `"}`)},
		catalog.Change{Key: catalog.Key{Partition: "namespaces", Sort: "\x1b]0;x\a\n"}, Data: []byte("{}")},
		catalog.Change{Key: catalog.Key{Partition: "catalog/\x1b]0;x\a\n", Sort: "modules/\x1b[2K\n"}, Data: []byte("{}")},
		catalog.Change{Key: catalog.Key{Partition: "audit/" + month, Sort: month + "-01T00:00:00.000000000Z#\x1b[2K"}, Data: []byte(`{"by":"` + forged + `","action":"` + forged + `","subject":"` + forged + `","detail":"` + forged + `"}`)},
	)
	_, verified := verifies(t, data, 1)
	audited := larder(t, "audit", "--since", "40d", "--store", "dir:"+data)
	for what, out := range map[string]string{"verify": verified, "audit": audited} {
		if strings.ContainsAny(out, "\x1b\a\t\u009b") || strings.Contains(out, "\n0 faults") || !strings.Contains(out, `\x1b[2K`) {
			t.Errorf("%s: %q", what, out)
		}
	}
	if !strings.Contains(audited, "  damaged  ") || strings.Count(audited, "\n") != 3 {
		t.Error(audited)
	}
}

// Where the table is damaged, commands say who finds the rest, and what that says works.
func TestDamaged(t *testing.T) {
	t.Parallel()
	data := newData(t)
	for _, version := range []string{"1.0.0", "1.1.0"} {
		publishModule(t, data, "acme/vpc/aws", version, output(version))
	}
	dir := t.TempDir()
	writeFiles(t, dir, output("1.0.0"))
	items(t, data, catalog.Change{Key: catalog.Key{Partition: "modules/acme/vpc/aws", Sort: "version/1.0.0"}, Revision: 1, Delete: true})
	if out := fails(t, exitFailed, "publish", "module", dir, "acme/vpc/aws", "1.0.0", "--store", "dir:"+data); !strings.Contains(out, "`larder verify`") {
		t.Error(out)
	}
	report, _ := verifies(t, data, 1, "--repair", "--json")
	if len(report.Findings) != 2 || report.Findings[1].Kind != "version-without-record" || !strings.Contains(report.Findings[1].Fix, "`larder withdraw ") {
		t.Errorf("%+v", report)
	}
	items(t, data, catalog.Change{Key: catalog.Key{Partition: "modules/acme/vpc/aws", Sort: "version/1.1.0"}, Revision: 1, Data: []byte("\x00")})
	if out := fails(t, exitFailed, "list", "acme/vpc/aws", "--store", "dir:"+data); !strings.Contains(out, "`larder verify`") {
		t.Error(out)
	}
	// As it says, of a record that is lost and of one that cannot be read.
	for _, version := range []string{"1.0.0", "1.1.0"} {
		larder(t, "withdraw", "acme/vpc/aws", version, "--reason", "its record is lost", "--yes", "--store", "dir:"+data)
		fails(t, exitExists, "publish", "module", dir, "acme/vpc/aws", version, "--store", "dir:"+data)
	}
	fails(t, exitNotFound, "withdraw", "acme/vpc/aws", "9.0.0", "--reason", "it never was", "--yes", "--store", "dir:"+data)
	verifies(t, data, 0)
	if err := os.WriteFile(filepath.Join(data, "larder.db"), []byte("no database, and longer than the header of one: "+strings.Repeat("x", 8192)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, ending := range []string{"-wal", "-shm"} {
		_ = os.Remove(filepath.Join(data, "larder.db"+ending))
	}
	if out := fails(t, exitFailed, "list", "--store", "dir:"+data); !strings.Contains(out, "from a backup, as docs/verify-and-restore.md describes") {
		t.Error(out)
	}
}

// Of a provider that was published through the registry nothing is noted, although
// its manifest stays staged until it expires.
func TestVerifyProviderThroughServer(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	key := signingKey(t, "Ed25519")
	addKey(t, s.data, "acme", key)
	p := s.publisher(t, credentials(s.Host, token(t, s.data, "--name", "ci", "--scope", "publish:providers/acme/**")))
	p.run(t, 0, []string{"Published acme/note 1.0.0"}, "publish", "provider", releaseOf(t, key), "acme/note")
	for _, args := range [][]string{{"--json"}, {"--at-rest", "--json"}} {
		if report, out := verifies(t, s.data, 0, args...); len(report.Findings) > 0 {
			t.Errorf("verify %s: %s", args, out)
		}
	}
}

// If the audit trail was removed, verify and audit report that.
func TestLostTrail(t *testing.T) {
	t.Parallel()
	data := newData(t)
	for _, version := range []string{"1.0.0", "1.1.0"} {
		publishModule(t, data, "acme/vpc/aws", version, output(version))
	}
	entries := removalOf(t, data, "audit/"+time.Now().UTC().Format("2006-01"))
	if len(entries) != 2 {
		t.Fatalf("the trail has %d entries", len(entries))
	}
	items(t, data, entries[0])
	report, out := verifies(t, data, 1, "--json")
	if len(report.Findings) != 1 {
		t.Fatalf("without one entry: %s", out)
	}
	if f := report.Findings[0]; f.Kind != "audit-missing" || f.Path != "modules/acme/vpc/aws" {
		t.Errorf("without one entry: %s", out)
	}
	items(t, data, entries[1])
	for _, args := range [][]string{{}, {"--quick"}, {"--repair"}} {
		_, out := verifies(t, data, 1, args...)
		const gone = "audit-missing: audit: the audit trail has no entry, and the registry has 2 versions of 1 module or provider"
		if !strings.Contains(out, gone) {
			t.Errorf("without the trail: %s", out)
		}
		if !strings.Contains(out, "--repair does not make them up") {
			t.Errorf("without the trail, what to do: %s", out)
		}
	}
	for _, args := range [][]string{{"audit"}, {"audit", "--json"}} {
		out := fails(t, exitFailed, append(args, "--store", "dir:"+data)...)
		const gone = "the audit trail is damaged: it has no entry, although the registry has 1 namespace and " +
			"1 module or provider"
		if !strings.Contains(out, gone) {
			t.Errorf("%s: %s", args, out)
		}
		if !strings.Contains(out, "`larder verify`") {
			t.Errorf("%s gives no hint: %s", args, out)
		}
	}
	// An entry of long ago does not stand for later ones that are missing.
	const entry = `{"at":"2026-01-01T00:00:00Z","by":"ada","action":"add-key","subject":"keys/acme/00"}`
	old := catalog.Key{Partition: "audit/2026-01", Sort: "2026-01-01T00:00:00.000000000Z#x"}
	items(t, data, catalog.Change{Key: old, Data: []byte(entry)})
	out = larder(t, "audit", "--since", "1d", "--store", "dir:"+data)
	if !strings.Contains(out, "No change is recorded since 20") || !strings.Contains(out, "`larder verify` compares") {
		t.Errorf("audit since a day: %s", out)
	}
}

// A loss that was accepted is recorded, and is no fault any more.
func TestAcceptedLoss(t *testing.T) {
	t.Parallel()
	data := newData(t)
	publishModule(t, data, "acme/vpc/aws", "1.0.0", output("1.0.0"))
	items(t, data, removalOf(t, data, "audit/"+time.Now().UTC().Format("2006-01"))...)
	if _, out := verifies(t, data, 1); !strings.Contains(out, "larder verify --accept-loss") {
		t.Errorf("what to do: %s", out)
	}
	const noted = "note     audit-missing: modules/acme/vpc/aws: "
	if _, out := verifies(t, data, 0, "--accept-loss"); !strings.Contains(out, noted) {
		t.Errorf("accepting the loss: %s", out)
	}
	if _, out := verifies(t, data, 0); !strings.Contains(out, "has lost 1 entry, which was accepted") {
		t.Errorf("with the loss accepted: %s", out)
	}
	out := larder(t, "audit", "--store", "dir:"+data)
	if !strings.Contains(out, "accept-loss  modules/acme/vpc/aws  publish 1.0.0") {
		t.Errorf("audit: %s", out)
	}
}

// removalOf returns the changes that remove all items of a partition.
func removalOf(t *testing.T, data, partition string) (changes []catalog.Change) {
	t.Helper()
	table, err := sqlite.Open(t.Context(), filepath.Join(data, "larder.db"))
	if err != nil {
		t.Fatal(err)
	}
	page, err := table.Query(t.Context(), catalog.Query{Partition: partition})
	if err := errors.Join(err, table.Close()); err != nil {
		t.Fatal(err)
	}
	for _, item := range page.Items {
		changes = append(changes, catalog.Change{Key: item.Key, Revision: item.Revision, Delete: true})
	}
	return changes
}
