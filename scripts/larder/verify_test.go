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

	"github.com/larder-registry/larder/internal/testkit/clients"
	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/sqlite"
	"github.com/larder-registry/larder/pkg/examine/verify"
	"github.com/larder-registry/larder/scripts/larder/failure"
)

// verifies runs `larder verify`, and returns its report and what it printed.
func verifies(t *testing.T, data string, code int, args ...string) (report struct {
	OK       bool
	Findings []struct {
		Kind, Path, Version, Fix string
		Repaired                 bool
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
		// There is one JSON object, also if verify finds faults.
		if err := json.Unmarshal(stdout.Bytes(), &report); err != nil {
			t.Fatalf("%v\n%s", err, &stdout)
		}
		if stderr.Len() > 0 {
			t.Errorf("standard error: %s", &stderr)
		}
	}
	return report, stdout.String() + stderr.String()
}

// A copy of a registry's folder is complete, and clients install from it.
func TestRestore(t *testing.T) {
	t.Parallel()
	data, copied := t.TempDir(), t.TempDir()
	first := serve(t, data)
	key := signingKey(t, "Ed25519")
	addKey(t, data, "acme", key)
	larder(t, "publish", "provider", releaseOf(t, key), "acme/note", "--store", "dir:"+data)
	publishModule(t, data, "acme/vpc/aws", "1.0.0", withOutput("restored"))
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

// verify reports faults with how to fix them, and fails.
func TestVerify(t *testing.T) {
	t.Parallel()
	data := newData(t)
	publishModule(t, data, "acme/vpc/aws", "1.0.0", withOutput("1"))
	if _, out := verifies(t, data, 0); !strings.Contains(out, "Checked 1 module, ") ||
		!strings.Contains(out, "verifying namespace acme") {
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
		if _, out := verifies(t, data, 1, args...); !strings.Contains(
			out,
			"version-without-object: modules/acme/vpc/aws 1.0.0: ",
		) ||
			!strings.Contains(out, "3 faults, ") {
			t.Error(out)
		}
	}
	if report, out := verifies(t, data, 1, "--json"); report.OK || len(report.Findings) != 3 ||
		report.Findings[0].Kind != "documentation" || report.Findings[0].Fix == "" ||
		report.Findings[2].Kind != "version-without-object" || report.Findings[2].Fix == "" {
		t.Error(out)
	}
	// Publishing the same content again fixes the fault.
	publishModule(t, data, "acme/vpc/aws", "1.0.0", withOutput("1"))
	verifies(t, data, 0)
	verifies(t, filepath.Join(data, "none"), 5)
}

// The list of findings begins with their states and fits the terminal. With
// --quiet it contains only faults.
func TestFindings(t *testing.T) {
	t.Parallel()
	sum := strings.Repeat("0123456789abcdef", 4)
	v := verifyView{Report: verify.Report{Findings: []verify.Finding{
		{
			Kind: verify.Size, Path: "modules/acme/vpc/aws", Version: "1.0.0",
			Object: "modules/acme/vpc/aws/1.0.0/" + sum + ".tar.gz",
			Detail: "it has 121 bytes, and 119 are recorded", Fix: "restore the object from a backup, or publish the same again",
		},
		{Kind: verify.Listing, Path: "modules/acme/dns/aws", Detail: "it lists no version", Repaired: true},
		{Kind: verify.ObjectWithoutVersion, Path: "modules/acme/x/aws", Detail: "no version has it", Note: true},
	}}}
	texts := golden.New(t)
	texts.Text(t, "at 80 columns:\n"+printed(v.Text, 80))
	texts.Text(t, "\nwith --quiet:\n"+printed(v.Quiet, 80))
	full := printed(v.Text, 0)
	texts.Text(t, "\nin full:\n"+full)
	if !strings.Contains(full, v.Findings[0].Object) {
		t.Errorf("the object is shortened:\n%s", full)
	}
}

// items writes items to the table of a folder.
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

// fails runs a command and returns its output. It fails the test if the exit
// code is another.
func fails(t *testing.T, code int, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "larder", args...)
	out, _ := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != code {
		t.Errorf("larder %s: exit code %d, want %d\n%s", strings.Join(args, " "), got, code, out)
	}
	return string(out)
}

// Control characters from the table are escaped, so that forged items cannot
// move the cursor or add lines.
func TestPrintable(t *testing.T) {
	t.Parallel()
	data := newData(t)
	publishModule(t, data, "acme/vpc/aws", "1.0.0", withOutput("1"))
	const forged = `\u001b[2Kx\n0 faults, 0 repaired, 0 notes.\t\u009b`
	month := time.Now().UTC().Format("2006-01")
	items(
		t,
		data,
		catalog.Change{
			Key: catalog.Key{Partition: "modules/acme/vpc/aws", Sort: "version/2.0.0"},
			Data: []byte(
				`{"version":"2.0.0","object":"modules/acme/vpc/aws/2.0.0/` + forged + `","sha256":"` + forged + `"}`,
			),
		},
		catalog.Change{Key: catalog.Key{Partition: "namespaces", Sort: "\x1b]0;x\a\n"}, Data: []byte("{}")},
		catalog.Change{
			Key:  catalog.Key{Partition: "catalog/\x1b]0;x\a\n", Sort: "modules/\x1b[2K\n"},
			Data: []byte("{}"),
		},
		catalog.Change{
			Key: catalog.Key{Partition: "audit/" + month, Sort: month + "-01T00:00:00.000000000Z#\x1b[2K"},
			Data: []byte(
				`{"by":"` + forged + `","action":"` + forged + `","subject":"` + forged + `","detail":"` + forged + `"}`,
			),
		},
	)
	_, verified := verifies(t, data, 1)
	audited := larder(t, "audit", "--since", "40d", "--store", "dir:"+data)
	for what, out := range map[string]string{"verify": verified, "audit": audited} {
		if strings.ContainsAny(out, "\x1b\a\t\u009b") || strings.Contains(out, "\n0 faults") ||
			!strings.Contains(out, `\x1b[2K`) {
			t.Errorf("%s: %q", what, out)
		}
	}
	if !strings.Contains(audited, "  damaged  ") || strings.Count(audited, "\n") != 3 {
		t.Error(audited)
	}
}

// If the audit trail was removed, audit reports that.
func TestLostTrail(t *testing.T) {
	t.Parallel()
	data := newData(t)
	publishModule(t, data, "acme/vpc/aws", "1.0.0", withOutput("1.0.0"))
	items(t, data, removalOf(t, data, "audit/"+time.Now().UTC().Format("2006-01"))...)
	for _, args := range [][]string{{"audit"}, {"audit", "--json"}} {
		out := fails(t, failure.ExitFailed, append(args, "--store", "dir:"+data)...)
		if !strings.Contains(out, "1 namespace and 1 module or provider") {
			t.Errorf("%s: %s", args, out)
		}
		if !strings.Contains(out, "`larder verify --store dir:") {
			t.Errorf("%s gives no hint: %s", args, out)
		}
	}
	// An old entry does not hide that later entries are missing.
	const entry = `{"at":"2026-01-01T00:00:00Z","by":"ada","action":"add-key","subject":"keys/acme/00"}`
	old := catalog.Key{Partition: "audit/2026-01", Sort: "2026-01-01T00:00:00.000000000Z#x"}
	items(t, data, catalog.Change{Key: old, Data: []byte(entry)})
	out := larder(t, "audit", "--since", "1d", "--store", "dir:"+data)
	if !strings.Contains(out, "There are no changes since 20") || !strings.Contains(out, "`larder verify`") {
		t.Errorf("audit since a day: %s", out)
	}
}

// --accept-loss records the missing entries. They are no longer faults.
func TestAcceptedLoss(t *testing.T) {
	t.Parallel()
	data := newData(t)
	publishModule(t, data, "acme/vpc/aws", "1.0.0", withOutput("1.0.0"))
	items(t, data, removalOf(t, data, "audit/"+time.Now().UTC().Format("2006-01"))...)
	if _, out := verifies(t, data, 1); !strings.Contains(out, "larder verify --accept-loss") {
		t.Errorf("what to do: %s", out)
	}
	const noted = "note     audit-missing: modules/acme/vpc/aws: "
	if _, out := verifies(t, data, 0, "--accept-loss"); !strings.Contains(out, noted) {
		t.Errorf("accepting the loss: %s", out)
	}
	if _, out := verifies(t, data, 0); !strings.Contains(out, "note     audit-") {
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
