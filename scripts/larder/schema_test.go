package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/internal/testkit/clients"
	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/scripts/larder/arguments"
	"github.com/larder-registry/larder/scripts/larder/cli"
	"github.com/larder-registry/larder/scripts/larder/failure"
)

// noSchema has the commands that do not open a registry, with the reason.
var noSchema = map[string]string{
	"doctor":              "it examines a registry from outside",
	"context add":         "it names a registry, and does not open it",
	"context use":         "it names a registry, and does not open it",
	"context list":        "it names registries, and opens none",
	"context remove":      "it names a registry, and does not open it",
	"check":               "it reads a folder, and no registry",
	"completion":          "it only prints a script",
	"mirror policy check": "it reads a file, and no registry",
	"help":                "it reads no registry",
	"restore":             "it makes a new registry, and opens it as init does",
	"version":             "it reads no registry",
}

// schemaRow is a command on a registry of another release.
type schemaRow struct {
	args string // words in braces are replaced by files
	// fresh is true if the command does not read an existing item first. Then
	// only the registry's own schema version rejects it.
	fresh bool
}

// schemaRows has all commands that read or write a registry, with all variants
// of their arguments.
var schemaRows = []schemaRow{
	{args: "backup {folder}/larder.tar", fresh: true},
	{args: "copy acme/vpc/aws --from {registry} --dry-run", fresh: true},
	{args: "usage", fresh: true},
	{args: "usage acme/vpc/aws", fresh: true},
	{args: "publish module {module} acme/vpc/aws 1.0.0"},
	{args: "publish module {module} acme/vpc/aws 1.2.0"},
	{args: "publish module {module} acme/vpc/aws 1.2.0 --dry-run"},
	{args: "publish module {module} acme/new/aws 1.0.0"}, // the namespace is there
	{args: "publish module {module} other/new/aws 1.0.0", fresh: true},
	{args: "publish module {module} other/new/aws 1.0.0 --dry-run", fresh: true},
	{args: "publish provider {release} acme/note"},
	{args: "publish provider {release} acme/note --dry-run"},
	{args: "mirror add {mirrored} --platform linux_amd64 --upstream https://127.0.0.1:1", fresh: true},
	{args: "mirror add {mirrored} --platform linux_amd64 --upstream https://127.0.0.1:1 --dry-run", fresh: true},
	{args: "mirror lock {lock} --platform linux_amd64", fresh: true},
	{args: "mirror sync {list}", fresh: true},
	{args: "mirror admit {mirrored} 1.1.0 --reason urgent --upstream https://127.0.0.1:1", fresh: true},
	{args: "mirror trust {mirrored} 0123456789ABCDEF0123456789ABCDEF01234567", fresh: true},
	{args: "mirror import {folder}"},
	{args: "mirror import {folder} --dry-run"},
	{args: "mirror import {others}", fresh: true},
	{args: "mirror policy show", fresh: true},
	{args: "mirror setup", fresh: true},
	{args: "mirror policy set {policy}", fresh: true},
	{args: "mirror export {empty}"},
	{args: "mirror export {empty} {mirrored}"},
	{args: "list"},
	{args: "list acme"},
	{args: "list other", fresh: true},
	{args: "list acme/vpc/aws"},
	{args: "list acme/note"},
	{args: "list registry.example.com"},
	{args: "list registry.example.com/acme"},
	{args: "list {mirrored}"},
	{args: "list mirror/{mirrored}"},
	{args: "show acme/vpc/aws"},
	{args: "show acme/vpc/aws 1.0.0"},
	{args: "show acme/note"},
	{args: "search vpc"},
	{args: "diff acme/vpc/aws 1.0.0 1.1.0"},
	{args: "diff acme/vpc/aws 1.0.0"},
	{args: "key add acme {key}"},
	{args: "key add other {key}", fresh: true},
	{args: "key list acme"},
	{args: "key remove acme {id}"},
	{args: "key remove acme {id} --force"},
	{args: "token create --name new --scope read:**", fresh: true},
	{args: "token list"},
	{args: "token rotate ci", fresh: true},
	{args: "token revoke ci"},
	{args: "deprecate acme/vpc/aws --message old"},
	{args: "deprecate acme/vpc/aws 1.0.0 --message old"},
	{args: "deprecate acme/vpc/aws 1.0.0 --message old --hide"},
	{args: "deprecate acme/vpc/aws 1.0.0 --undo"},
	{args: "deprecate acme/note --message old"},
	{args: "deprecate acme/note 1.0.0 --message old"},
	{args: "deprecate acme/note --undo"},
	{args: "withdraw acme/vpc/aws 1.0.0 --reason leaked --yes"},
	{args: "withdraw acme/vpc/aws 7.0.0 --reason leaked --yes --missing"},
	{args: "withdraw acme/note 1.0.0 --reason leaked --yes"},
	{args: "withdraw {mirrored} 1.0.0 --reason leaked --yes"},
	{args: "audit"},
	{args: "audit --since 1h"},
	{args: "verify"},
	{args: "verify --quick"},
	{args: "verify --at-rest"},
	{args: "verify --repair"},
	{args: "docs rebuild"},
	{args: "docs rebuild acme/vpc/aws"},
	{args: "docs rebuild acme/vpc/aws 1.0.0 --all"},
	{args: "serve --listen 127.0.0.1:0", fresh: true},
	{args: "init", fresh: true},
	{args: "init --adopt", fresh: true},
}

// Each command is in the table, or in the list of those that it does not
// concern.
func TestSchemaOfEachCommand(t *testing.T) {
	t.Parallel()
	has := make(map[string]bool)
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		if arguments.IsGroup(cmd) || cmd.IsAdditionalHelpTopicCommand() {
			return
		}
		name := strings.TrimPrefix(cmd.CommandPath(), "larder ")
		inTable := slices.ContainsFunc(schemaRows, func(r schemaRow) bool {
			return strings.HasPrefix(r.args+" ", name+" ")
		})
		if inTable == (noSchema[name] != "") {
			t.Errorf("larder %s must be in schemaRows or in noSchema", name)
		}
		has[name] = true
	}
	walk(newRoot((&cli.Program{})))
	for name := range noSchema {
		if !has[name] {
			t.Errorf("there is no larder %s", name)
		}
	}
}

// otherRelease is a registry that a test changes into one of another release,
// with files for commands.
type otherRelease struct {
	data  string
	db    *sql.DB
	files *strings.Replacer
}

func newOtherRelease(t *testing.T) otherRelease {
	t.Helper()
	const mirrored = "registry.example.com/acme/note"
	data, module, empty := newData(t), t.TempDir(), t.TempDir()
	folder, others, texts := t.TempDir(), t.TempDir(), t.TempDir()
	key := signingKey(t, "Ed25519")
	release, public := releaseOf(t, key), keyFile(t, key)
	writeFiles(t, module, withOutput("1"))
	writeFiles(t, texts, map[string]string{
		"lock.hcl": `provider "` + mirrored + `" {
  version = "1.0.0"
  hashes  = ["zh:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"]
}
`,
		"policy.hcl": "allow \"*/*/*\" {}\n",
		"list.hcl": `platforms = ["linux_amd64"]
provider "` + mirrored + `" {
  versions = ["1.0.0"]
  upstream = "https://127.0.0.1:1"
}
`,
	})
	for dir, address := range map[string]string{folder: mirrored, others: "other.example.com/acme/note"} {
		if err := clients.WriteMirrorFolder(release, filepath.Join(dir, address)); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"publish", "module", module, "acme/vpc/aws", "1.0.0"},
		{"publish", "module", module, "acme/vpc/aws", "1.1.0"},
		{"key", "add", "acme", public},
		{"publish", "provider", release, "acme/note"},
		{"mirror", "import", folder},
		{"token", "create", "--name", "ci", "--scope", "read:**"},
	} {
		if _, stderr, code := runHere(t, append(args, "--store", "dir:"+data)...); code != 0 {
			t.Fatalf("larder %s: %d\n%s", args, code, stderr)
		}
	}
	db, err := sql.Open("sqlite", filepath.Join(data, "larder.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	o := otherRelease{data: data, db: db}
	var id string
	if err := db.QueryRowContext(t.Context(), "SELECT sk FROM items WHERE pk = 'keys/acme'").Scan(&id); err != nil {
		t.Fatal(err)
	}
	o.files = strings.NewReplacer("{module}", module, "{release}", release, "{mirrored}", mirrored, "{folder}", folder, "{registry}", newData(t),
		"{others}", others, "{empty}", empty, "{key}", public, "{id}", id,
		"{lock}", filepath.Join(texts, "lock.hcl"), "{list}", filepath.Join(texts, "list.hcl"),
		"{policy}", filepath.Join(texts, "policy.hcl"))
	return o
}

// runHere runs a command in this process.
func runHere(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // serve does not end by itself
	defer cancel()
	var out, err bytes.Buffer
	code = run(ctx, args, &out, &err)
	return out.String(), err.String(), code
}

func (o otherRelease) exec(t *testing.T, statement string) {
	t.Helper()
	if _, err := o.db.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

// state returns all rows of the database, and the names and sizes of all other
// files.
func (o otherRelease) state(t *testing.T) (lines []string) {
	t.Helper()
	rows, err := o.db.QueryContext(t.Context(), "SELECT * FROM items ORDER BY pk, sk")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		values, at := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			at[i] = &values[i]
		}
		if err := rows.Scan(at...); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("%q", values))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	err = fs.WalkDir(os.DirFS(o.data), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || strings.HasPrefix(path, "larder.db") {
			return err
		}
		info, err := entry.Info()
		lines = append(lines, fmt.Sprint(path, " ", info.Size()))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

// rejects runs a command with and without --json, and returns its error with
// the hint. It fails the test unless the command fails and changes nothing.
func (o otherRelease) rejects(t *testing.T, row schemaRow) string {
	t.Helper()
	before := o.state(t)
	args := append(strings.Fields(o.files.Replace(row.args)), "--store", "dir:"+o.data)
	stdout, stderr, code := runHere(t, args...)
	if code != failure.ExitFailed {
		t.Errorf("%s: exit code %d", row.args, code)
	}
	if stdout != "" {
		t.Errorf("%s prints %s", row.args, stdout)
	}
	_, message, ok := strings.Cut(stderr, "larder: ")
	if !ok {
		t.Errorf("%s: %s", row.args, stderr)
	}

	stdout, _, code = runHere(t, append(args, "--json")...)
	if code != failure.ExitFailed {
		t.Errorf("%s --json: exit code %d", row.args, code)
	}
	printed := struct {
		Registry string `json:"registry"`
		Error    string `json:"error"`
		Hint     string `json:"hint"`
		Code     string `json:"code"`
		ExitCode int    `json:"exit_code"`
	}{}
	decoder := json.NewDecoder(strings.NewReader(stdout))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&printed); err != nil || decoder.More() {
		t.Errorf("%s --json prints %s: %v", row.args, stdout, err)
	}
	if !strings.HasPrefix(message, printed.Error) {
		t.Errorf("%s --json: error %q, want that of %q", row.args, printed.Error, message)
	}
	if printed.Code != "incompatible_release" {
		t.Errorf("%s --json: code %q", row.args, printed.Code)
	}
	if printed.ExitCode != failure.ExitFailed {
		t.Errorf("%s --json: exit_code %d", row.args, printed.ExitCode)
	}
	if diff := gocmp.Diff(before, o.state(t)); diff != "" {
		t.Errorf("%s changes the registry: %s", row.args, diff)
	}
	return randomID.ReplaceAllString(strings.ReplaceAll(message, o.data, "DATA"), "ID")
}

// randomID matches the IDs of keys, tokens and audit entries, and digests.
var randomID = regexp.MustCompile(`\b(?:[0-9A-F]{16}|[0-9a-f]{12}|[0-9a-f]{64}|20\d\d-\d\d 20\d\d-\S+)\b`)

// No command reads or changes a registry of another release.
func TestSchema(t *testing.T) {
	t.Parallel()
	o := newOtherRelease(t)
	const own = `pk = 'catalog/' AND sk = 'schema'`
	texts := golden.New(t)
	for _, stage := range []struct {
		name, statement string
		items           bool // the registry's own schema version is that of this release
	}{
		{"newer", `UPDATE items SET schema = 2`, false},
		{"newer items", `UPDATE items SET schema = CASE WHEN ` + own + ` THEN 1 ELSE 2 END`, true},
	} {
		t.Run(stage.name, func(t *testing.T) {
			o.exec(t, stage.statement)
			rejections := make(map[string]bool)
			for _, row := range schemaRows {
				if !stage.items || !row.fresh {
					rejections[o.rejects(t, row)] = true
				}
			}
			for _, rejection := range slices.Sorted(maps.Keys(rejections)) {
				texts.Text(t, rejection)
			}
		})
	}
}
