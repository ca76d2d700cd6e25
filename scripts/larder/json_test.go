package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	source "go/token"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	diff "github.com/google/go-cmp/cmp"
	"github.com/invopop/jsonschema"
	validator "github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
	"github.com/larder-registry/larder/scripts/larder/arguments"
	"github.com/larder-registry/larder/scripts/larder/cli"
	"github.com/larder-registry/larder/scripts/larder/failure"
	"github.com/larder-registry/larder/scripts/larder/list"
	mirrorcommand "github.com/larder-registry/larder/scripts/larder/mirror"
	"github.com/larder-registry/larder/scripts/larder/output"
	publishcommand "github.com/larder-registry/larder/scripts/larder/publish"
)

// viewsOf are the views that each command returns.
var viewsOf = map[string][]output.View{
	"audit":               {auditView{}},
	"completion":          {completionView{}},
	"context add":         {contextView{}},
	"context list":        {contextsView{}},
	"context remove":      {contextView{}},
	"context use":         {contextView{}},
	"deprecate":           {deprecationView{}},
	"diff":                {diffView{}},
	"docs rebuild":        {docsView{}},
	"doctor":              {examinedView{}, examinedStackView{}},
	"init":                {initView{}},
	"backup":              {backupView{}},
	"restore":             {restoreView{}},
	"key add":             {addedKeyView{}},
	"key list":            {keysView{}},
	"key remove":          {removedKeyView{}},
	"list":                {list.ContentsView{}, list.ModuleView{}, list.ProviderView{}, list.MirroredView{}},
	"mirror add":          {mirrorcommand.ResultView{}},
	"mirror admit":        {mirrorcommand.ResultView{}},
	"mirror export":       {mirrorcommand.ExportView{}},
	"mirror import":       {mirrorcommand.ResultView{}},
	"mirror lock":         {mirrorcommand.ResultView{}},
	"mirror sync":         {mirrorcommand.ResultView{}},
	"mirror trust":        {mirrorcommand.TrustedView{}},
	"mirror policy check": {mirrorcommand.CheckedPolicyView{}},
	"mirror policy set":   {mirrorcommand.SetPolicyView{}},
	"mirror policy show":  {mirrorcommand.PolicyView{}},
	"mirror setup":        {mirrorcommand.SetupView{}},
	"check":               {checkedView{}},
	"copy":                {copyView{}},
	"publish":             {publishcommand.PublishedTagsView{}},
	"publish module":      {publishcommand.PublishedModuleView{}},
	"publish provider":    {publishcommand.PublishedProviderView{}},
	"search":              {searchView{}},
	"serve":               {servedView{}},
	"show":                {shownModuleView{}, shownProviderView{}, shownMirroredView{}},
	"token create":        {createdTokenView{}},
	"token list":          {tokensView{}},
	"token revoke":        {revokedTokenView{}},
	"token rotate":        {rotatedTokenView{}},
	"usage":               {usageView{}},
	"verify":              {verifyView{}},
	"version":             {versionView{}},
	"withdraw":            {withdrawnView{}},
}

// noViews are the commands without views, with the reason.
var noViews = map[string]string{"help": "it prints pages for people"}

// jsonRuns are runs of each command with --json, in this order, in the folder
// of a [fixture].
var jsonRuns = []struct {
	command string
	args    string
	code    int
}{
	{"version", "", 0},
	{"version", "now", failure.ExitUsage},
	{"init", "--store new", 0},
	{"init", "--store new", 0},
	{"init", "--store vpc", failure.ExitInvalid},
	{"backup", "new.tar --store new", 0},
	{"backup", "new.tar --store new", failure.ExitExists},
	{"restore", "new.tar --store restored", 0},
	{"restore", "new.tar --store also --previous new", 0},
	{"restore", "new.tar --store new", failure.ExitExists},
	{"restore", "new.tar --store restored --database-only", 0},
	{"context add", "new ./new", 0},
	{"context add", "new ./new", 0},
	{"context add", "new stack:larder", 0},
	{"context add", "new", failure.ExitUsage},
	{"context use", "new", 0},
	{"context use", "neww", failure.ExitUsage},
	{"context list", "", 0},
	{"context remove", "new", 0},
	{"context remove", "new", failure.ExitUsage},
	{"context use", "local", 0},
	{"list", "", 0},
	{"list", "acme", 0},
	{"list", "acme/vpc/aws", 0},
	{"list", "acme/inventory", 0},
	{"list", "registry.opentofu.org", 0},
	{"list", "registry.opentofu.org/hashicorp/random", 0},
	{"list", "nobody", failure.ExitNotFound},
	{"list", "acme/Other", failure.ExitInvalid},
	{"list", "--registry https://{served}", failure.ExitFailed},
	{"show", "acme/vpc/aws", 0},
	{"show", "acme/vpc/aws 1.3.0 --readme", 0},
	{"show", "acme/vpc/aws 1.3.1", failure.ExitNotFound},
	{"show", "acme/inventory", 0},
	{"show", "acme/inventory --readme", failure.ExitUsage},
	{"show", "acme/vpc/aws --path modules/nothing", failure.ExitNotFound},
	{"show", "registry.opentofu.org/hashicorp/random", failure.ExitUsage},
	{"show", "acme/Other", failure.ExitInvalid},
	{"show", "acme/vpc/aws --registry https://{served}", failure.ExitFailed},
	{"search", "vpc", 0},
	{"search", "nothing at all", 0},
	{"search", "vpc --limit 0", failure.ExitUsage},
	{"diff", "acme/vpc/aws 1.3.0 1.4.0", 0},
	{"diff", "acme/vpc/aws 1.3.0", 0},
	{"diff", "acme/vpc/aws 9.0.0 1.4.0", failure.ExitNotFound},
	{"diff", "acme/vpc/aws", failure.ExitUsage},
	{"list", "--store nowhere", failure.ExitNotFound},
	{"list", "--what", failure.ExitUsage},
	{"audit", "", 0},
	{"audit", "--since 3w", failure.ExitUsage},
	{"verify", "", 0},
	{"verify", "--repair --at-rest", 0},
	{"verify", "--store nowhere", failure.ExitNotFound},
	{"docs rebuild", "", 0},
	{"docs rebuild", "acme/vpc/aws 1.4.0 --all", 0},
	{"docs rebuild", "acme/vpc/aws 9.9.9", failure.ExitNotFound},
	{"docs rebuild", "acme/other/aws", failure.ExitNotFound},
	{"docs rebuild", "acme/inventory", failure.ExitInvalid},
	{"docs rebuild", "registry.opentofu.org/hashicorp/random", failure.ExitInvalid},
	{"docs rebuild", "acme/vpc/aws x", failure.ExitInvalid},
	{"docs rebuild", "acme/vpc/aws 1.4.0 x", failure.ExitUsage},
	{"publish module", "./vpc acme/vpc/aws 2.0.0 --dry-run", 0},
	{"publish module", "./vpc acme/vpc/aws 2.0.0", 0},
	{"publish module", "./vpc acme/vpc/aws 2.0.0", 0},
	{"diff", "acme/vpc/aws 1.4.0", failure.ExitBreaking}, // an input is new and required
	{"publish module", "./vpc acme/vpc/aws 1.4.0", failure.ExitExists},
	{"publish module", "./vpc acme/vpc/aws 1.2.0", failure.ExitExists},
	{"publish module", "./nowhere acme/vpc/aws 2.0.1", failure.ExitNotFound},
	{"publish module", "./vpc acme/vpc/aws 2.0.1 --registry https://{served}", failure.ExitFailed},
	{"publish module", "./vpc acme/vpc/aws", failure.ExitUsage},
	{"check", "vpc", 0},
	{"check", "", 0},
	{"check", "--changed-since HEAD", 0},
	{"check", "--changed-since nothing", failure.ExitInvalid},
	{"check", "vpc --changed-since HEAD", failure.ExitUsage},
	{"check", "nowhere", failure.ExitNotFound},
	{"publish", "--dry-run", 0},
	{"publish", "", 0},
	{"publish", "--tag subnet/v1.0.0", 0},
	{"publish", "--tag subnet/v9.0.0", failure.ExitNotFound},
	{"publish", "--all-tags", failure.ExitInvalid}, // there is an empty commit
	{"publish", "--all-tags --dry-run --registry https://{served}", failure.ExitInvalid},
	{"publish", "--tag subnet/v1.0.0 --all-tags", failure.ExitUsage},
	{"publish provider", "./dist acme/inventory --dry-run", 0},
	{"publish provider", "./dist acme/inventory", 0},
	{"publish provider", "./dist acme/inventory", 0},
	{"publish provider", "./dist newcomer/inventory", failure.ExitInvalid},
	{"publish provider", "./mirror acme/inventory", failure.ExitInvalid},
	{"copy", "acme/vpc/aws acme/inventory --from local --to ./new --dry-run --add-keys", 0},
	{"copy", "acme/vpc/aws acme/inventory --from local --to ./new", failure.ExitInvalid}, // a key is missing
	{"copy", "acme/vpc/aws acme/inventory --from local --to ./new --add-keys", 0},
	{"copy", "acme/vpc/aws 9.9.9 --from local --to ./new", failure.ExitNotFound},
	{"copy", "acme/vpc/aws --from {served} --to ./new", failure.ExitFailed},
	{"copy", "acme/vpc/aws --to ./new", failure.ExitUsage},
	{"copy", "acme/inventory --from local --to https://{served} --add-keys", failure.ExitUsage},
	{"copy", "acme/vpc/aws --from local --to local", failure.ExitUsage},
	{"copy", "acme/vpc/aws --from nothing", failure.ExitUsage},
	{"copy", "acme/inventory --from local --to ./new --rename acme/inventory=acme/stock", failure.ExitUsage},
	{"deprecate", "acme/vpc/aws --message old", 0},
	{"deprecate", "acme/vpc/aws 1.3.0 --message old --hide", 0},
	{"deprecate", "acme/vpc/aws --undo", 0},
	{"deprecate", "acme/other/aws --message old", failure.ExitNotFound},
	{"deprecate", "acme/vpc/aws", failure.ExitUsage},
	{"deprecate", "acme/vpc/aws 1.4.0 --message old", 0},
	{"deprecate", "acme/inventory 1.1.0 --message old", 0},
	{"deprecate", "acme/inventory --undo", 0},
	{"deprecate", "acme/other --message old", failure.ExitNotFound},
	{"withdraw", "acme/vpc/aws 1.0.0 --reason leaked --yes", 0},
	{"withdraw", "acme/vpc/aws 1.0.0 --reason leaked --yes", 0},
	{"withdraw", "acme/inventory 1.0.0 --reason leaked --yes", 0},
	{"withdraw", "acme/vpc/aws 9.9.9 --reason leaked --yes", failure.ExitNotFound},
	{"withdraw", "acme/vpc/aws 1.1.0", failure.ExitUsage},
	{"list", "acme/vpc/aws", 0},
	{"list", "acme/inventory", 0},
	{"key list", "acme", 0},
	{"key list", "nobody", 0},
	{"key list", "No", failure.ExitInvalid},
	{"key add", "acme key.asc", 0},
	{"key add", "other key.asc", 0},
	{"key add", "acme vpc/main.tf", failure.ExitInvalid},
	{"key remove", "acme {key}", failure.ExitInvalid},
	{"key remove", "acme {key} --force", 0},
	{"key remove", "acme {key} --force", failure.ExitNotFound},
	{"token list", "", 0},
	{"token create", "--name ci --scope read:**", 0},
	{"token create", "--name ci2 --scope read:** --expires never --host registry.example.com", 0},
	{"token create", "--name ci3", failure.ExitUsage},
	{"token rotate", "ci --overlap 1h", 0},
	{"token rotate", "ci --overlap never", failure.ExitUsage},
	{"token rotate", "nobody", failure.ExitNotFound},
	{"token revoke", "ci", 0},
	{"token revoke", "ci", failure.ExitNotFound},
	{"mirror import", "./mirror --dry-run", 0},
	{"mirror import", "./mirror", 0},
	{"mirror import", "./mirror", 0},
	{"mirror import", "./vpc", failure.ExitInvalid},
	{"mirror export", "./exported", 0},
	{"mirror export", "./exported registry.opentofu.org/hashicorp/nothing", failure.ExitNotFound},
	{"mirror add", originProvider + " --platform all --upstream https://{served}", 0},
	{"mirror add", originProvider + " --platform all --version 9 --upstream https://{served}", failure.ExitNotFound},
	{"mirror add", originProvider, failure.ExitUsage},
	{"mirror admit", originProvider + " 1.1.0 --reason urgent --upstream https://{served}", 0},
	{"mirror admit", originProvider + " 9.0.0 --reason urgent --upstream https://{served}", failure.ExitNotFound},
	{"mirror admit", originProvider + " 1.1.0", failure.ExitUsage},
	{"mirror trust", originProvider + " 0123456789ABCDEF0123456789ABCDEF01234567", 0},
	{"mirror trust", originProvider + " 0123456789ABCDEF0123456789ABCDEF01234567", 0},
	{"mirror trust", originProvider + " unsigned --reason announced", 0},
	{"mirror trust", originProvider + " 0123456789ABCDEE", failure.ExitNotFound},
	{"mirror trust", originProvider, failure.ExitUsage},
	{"list", originProvider, 0},
	{"mirror sync", "mirror.hcl", 0},
	{"mirror sync", "vpc/main.tf", failure.ExitInvalid},
	{"mirror lock", "lock.hcl --platform linux_amd64", 0},
	{"mirror lock", "lock.hcl", failure.ExitUsage},
	{"mirror policy show", "", 0},
	{"mirror policy check", "policy.hcl", 0},
	{"mirror policy check", "policy.hcl registry.opentofu.org/hashicorp/random", 0},
	{"mirror policy check", "policy.hcl registry.opentofu.org/hashicorp/random registry.example.net/acme/x", failure.ExitNotAdmitted},
	{"mirror policy check", "mirror.hcl", failure.ExitInvalid},
	{"mirror policy check", "nowhere.hcl", failure.ExitNotFound},
	{"mirror policy set", "policy.hcl", 0},
	{"mirror policy set", "policy.hcl", 0},
	{"mirror policy set", "mirror.hcl", failure.ExitInvalid},
	{"mirror policy show", "", 0},
	{"mirror policy show", "--store nowhere", failure.ExitNotFound},
	{"mirror setup", "--registry https://{served}", 0},
	{"mirror setup", "--registry https://{served} --no-token --write --file setup.tfrc", 0},
	{"mirror setup", "--registry https://{served} --client dependabot", 0},
	{"mirror setup", "--registry https://{served} --write", failure.ExitUsage},
	{"mirror policy set", "policy.hcl --store stack:larder", 0},
	{"mirror policy show", "--store stack:larder", 0},
	{"completion", "bash", 0},
	{"completion", "cmd", failure.ExitUsage},
	{"doctor", "https://{served} --module acme/vpc/aws --provider acme/inventory", 0},
	{"doctor", "https://{served} --module acme/other/aws", failure.ExitFailed},
	{"doctor", "--stack larder", failure.ExitFailed},
	{"doctor", "--stack other", failure.ExitNotFound},
	{"doctor", "", failure.ExitUsage},
	{"usage", "--store stack:larder", 0},
	{"usage", "acme/vpc/aws --store stack:larder", 0},
	{"usage", "--store stack:other", failure.ExitNotFound},
	{"usage", "", failure.ExitNotFound},
	{"usage", "--since x", failure.ExitUsage},
	{"serve", "--store new --listen 127.0.0.1:0", 0},
	{"serve", "--store vpc --listen 127.0.0.1:0", failure.ExitInvalid},
}

// originProvider is a provider that is mirrored from the server of the test.
const originProvider = "registry.example.com/acme/inventory"

// schemaPath returns the path of the schema of a command.
func schemaPath(command string) string {
	return filepath.Join("..", "..", "docs", "schemas", strings.ReplaceAll(command, " ", "-")+".json")
}

// commandNames returns the names of all commands without subcommands.
func commandNames() []string {
	var names []string
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		if cmd.Runnable() && !arguments.IsGroup(cmd) {
			names = append(names, strings.TrimPrefix(cmd.CommandPath(), "larder "))
		}
	}
	walk(newRoot((&cli.Program{})))
	slices.Sort(names)
	return names
}

// Each command has views, or a reason to have none. jsonRuns contains a
// successful run of each.
func TestViewsOfEachCommand(t *testing.T) {
	t.Parallel()
	names := commandNames()
	for _, name := range names {
		if (viewsOf[name] == nil) == (noViews[name] == "") {
			t.Errorf("larder %s must be in viewsOf or in noViews", name)
		}
		succeeds := false
		for _, r := range jsonRuns {
			succeeds = succeeds || r.command == name && r.code == 0
		}
		if viewsOf[name] != nil && !succeeds {
			t.Errorf("jsonRuns lacks a success of larder %s", name)
		}
	}
	for name := range viewsOf {
		if !slices.Contains(names, name) {
			t.Errorf("there is no larder %s", name)
		}
	}
	for name := range noViews {
		if !slices.Contains(names, name) {
			t.Errorf("there is no larder %s", name)
		}
	}
}

// The schemas in docs/schemas are generated from the views.
func TestSchemas(t *testing.T) {
	t.Parallel()
	comments := make(goComments)
	for name, views := range viewsOf {
		golden.Equal(t, schemaPath(name), commandSchema(t, comments, name, views))
	}
	stored, err := filepath.Glob(schemaPath("*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stored {
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		if !slices.ContainsFunc(
			commandNames(),
			func(n string) bool { return strings.ReplaceAll(n, " ", "-") == name },
		) {
			t.Errorf("%s is of no command", path)
		}
	}
}

// The output with --json matches the schema of the command, both if it succeeds
// and if it fails.
func TestJSON(t *testing.T) {
	f := newFixture(t)
	served := serve(t, filepath.Join(f.copied(t), "larder-data"))
	t.Chdir(f.copied(t))
	for name, value := range onAccount(t, downloaded(time.Hour, "1.0.0", "ci")) {
		t.Setenv(name, value)
	}
	t.Setenv("XDG_CONFIG_HOME", must(filepath.Abs("config")))
	t.Setenv("TF_CLI_CONFIG_FILE", must(filepath.Abs("clients.hcl")))
	writeFiles(t, ".", map[string]string{
		"key.asc": string(signingKey(t, "Ed25519").Public),
		"mirror.hcl": fmt.Sprintf("platforms = [\"all\"]\nprovider %q {\n  versions = [\"1.0.0\"]\n  upstream = "+
			"%q\n}\n",
			originProvider, "https://"+served.Host),
		"larder.hcl": "module \"acme/subnet/aws\" {\n  path = \"vpc\"\n  tag = \"subnet/v*\"\n}\n",
		"policy.hcl": "allow \"registry.opentofu.org/*/*\" {\n  min_age = \"7d\"\n  unknown_age = \"wait\"\n" +
			"  platforms = [\"linux_amd64\"]\n  max_size = \"600MiB\"\n  signing_keys = [\"34365D9472D7468F\"]\n}\n",
		"lock.hcl": fmt.Sprintf("provider %q {\n  version = \"1.1.0\"\n  hashes  = [\"zh:%s\"]\n}\n",
			originProvider, f.linux),
		"clients.hcl": fmt.Sprintf("host \"registry.example.com\" {\n  services = {\n    \"providers.v1\" = "+
			"%q\n  }\n}\n",
			"https://"+served.Host+"/v1/providers/"),
	})
	git(t, ".", "init", "--quiet")
	git(t, ".", "commit", "--quiet", "--allow-empty", "--message=empty")
	git(t, ".", "tag", "subnet/v0.9.0")
	git(t, ".", "add", "vpc", "larder.hcl")
	git(t, ".", "commit", "--quiet", "--message=module")
	git(t, ".", "tag", "subnet/v1.0.0")
	git(t, ".", "tag", "other")
	schemas := make(map[string]*validator.Schema)
	for name := range viewsOf {
		compiler := validator.NewCompiler()
		compiler.AssertFormat()
		schemas[name] = must(compiler.Compile(filepath.Join(sourceDir, schemaPath(name))))
	}
	for _, r := range jsonRuns {
		words := strings.NewReplacer("{served}", served.Host, "{key}", f.key.ID).Replace(r.command + " " + r.args)
		args := append(strings.Fields(words), "--json")
		t.Run(r.command+" "+r.args, func(t *testing.T) {
			var stdout, stderr string
			var code int
			if strings.HasPrefix(r.command, "mirror ") || r.command == "doctor" {
				stdout, stderr, code = runTrusting(t, served.CAFile, args...)
			} else {
				stdout, stderr, code = runUntilPrinted(t, args...)
			}
			if code != r.code {
				t.Fatalf("exit code %d, want %d\n%s%s", code, r.code, stdout, stderr)
			}
			printed, err := validator.UnmarshalJSON(strings.NewReader(stdout))
			if err != nil {
				t.Fatalf("%v\n%s", err, stdout)
			}
			if err := schemas[r.command].Validate(printed); err != nil {
				t.Errorf("%v\n%s", err, stdout)
			}
			if object, _ := printed.(map[string]any); (object["error"] != nil) != (code != 0) {
				t.Errorf("exit code %d with\n%s", code, stdout)
			}
		})
	}
}

// The examples in docs/json.md are the output of the commands.
func TestJSONExamples(t *testing.T) {
	path := filepath.Join(sourceDir, "..", "..", "docs", "json.md")
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f := newFixture(t)
	t.Chdir(f.dir)
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	example := regexp.MustCompile("(?s)```console\n\\$ larder ([^\n]*)\n.*?```")
	if !example.Match(page) {
		t.Error("there is no example")
	}
	golden.Equal(t, path, example.ReplaceAllFunc(page, func(block []byte) []byte {
		words := string(example.FindSubmatch(block)[1])
		stdout, _, _ := runUntilPrinted(t, strings.Fields(words)...)
		stdout = strings.ReplaceAll(stdout, f.dir, "/home/ada")
		return []byte("```console\n$ larder " + words + "\n" + f.normalize(stdout) + "```")
	}))
}

// runTrusting runs a command in its own process, because a process reads
// SSL_CERT_FILE only once.
func runTrusting(t *testing.T, caFile string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, other bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "larder", args...)
	cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+caFile)
	cmd.Stdout, cmd.Stderr = &out, &other
	_ = cmd.Run()
	return out.String(), other.String(), cmd.ProcessState.ExitCode()
}

// printing cancels a command when it prints something.
type printing struct {
	bytes.Buffer
	end context.CancelFunc
}

func (p *printing) Write(b []byte) (int, error) {
	defer p.end()
	return p.Buffer.Write(b)
}

// runUntilPrinted runs a command in this process. It stops `larder serve` when
// that has printed its result.
func runUntilPrinted(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, other := &printing{end: cancel}, new(bytes.Buffer)
	code = run(ctx, args, out, other)
	return out.String(), other.String(), code
}

// The documentation lists all error codes, with their exit codes and HTTP
// statuses.
func TestCodes(t *testing.T) {
	t.Parallel()
	ofJSON, ofHTTP := codeRows(t, "json.md", "## Codes"), codeRows(t, "cli.md", "## Error codes")
	want := make(map[string]string)
	others := []error{
		arguments.Errorf("x"), failure.ErrInterrupted, errors.New("x"), failure.Unchecked(errors.New("x")), failure.BreakingChanges(errors.New("x")),
		&local.NoRegistryError{}, &local.MismatchError{}, &local.OwnerError{}, &publish.RemainsError{},
	}
	for _, err := range slices.AppendSeq(others, maps.Values(errs.Codes())) {
		if code, exit := failure.Classify(err); want[code] == "" {
			want[code] = strconv.Itoa(exit)
		}
	}
	if changed := diff.Diff(want, ofJSON); changed != "" {
		t.Errorf("the table of docs/json.md (-want +got):\n%s", changed)
	}
	want = map[string]string{"method_not_allowed": "405", "internal": "500"} // defined only in package httpapi
	for code, err := range errs.Codes() {
		switch code {
		case "withdrawn":
			err = fmt.Errorf("%w: %w", registry.ErrExists, err)
		case "issuer":
			err = fmt.Errorf("%w: %w", registry.ErrUnavailable, err)
		}
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil)
		httpapi.Error(w, r, httpapi.Explain(err, "x"))
		var body struct{ Code string }
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
			t.Fatal(err)
		}
		want[code] = strconv.Itoa(w.Code)
		if body.Code != code {
			want[code] = "none"
		}
	}
	if changed := diff.Diff(want, ofHTTP); changed != "" {
		t.Errorf("the table of docs/cli.md (-want +got):\n%s", changed)
	}
}

// codeRows returns the second column of a table of codes by code. The table is
// the first below a heading of a page.
func codeRows(t *testing.T, page, heading string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", page))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n"+heading+"\n")
	if !found {
		t.Fatalf("docs/%s has no %q", page, heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	rows := make(map[string]string)
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([^|]+) \\|").FindAllStringSubmatch(section, -1) {
		rows[row[1]] = row[2]
	}
	return rows
}

// sourceDir is the folder of this package. Tests may change the working
// directory.
var sourceDir = must(os.Getwd())

// commandSchema returns the schema of the output of a command with --json.
func commandSchema(t *testing.T, comments goComments, name string, views []output.View) []byte {
	t.Helper()
	command, _, err := newRoot((&cli.Program{})).Find(strings.Fields(name))
	if err != nil {
		t.Fatal(err)
	}
	r := &jsonschema.Reflector{
		Anonymous:      true,
		ExpandedStruct: true,
		Mapper:         textSchema,
		LookupComment:  comments.lookup,
	}
	common := r.Reflect(failure.Failure{})
	whole := &jsonschema.Schema{
		Version:     jsonschema.Version,
		Title:       "larder " + name + " --json",
		Description: command.Short + ".",
		Definitions: jsonschema.Definitions{},
	}
	for _, v := range views {
		s := r.Reflect(v)
		properties := jsonschema.NewProperties()
		properties.Set("registry", registrySchema)
		for p := s.Properties.Oldest(); p != nil; p = p.Next() {
			properties.Set(p.Key, p.Value)
		}
		for p := common.Properties.Oldest(); p != nil; p = p.Next() {
			if _, taken := properties.Get(p.Key); taken {
				t.Errorf("larder %s: %T has the field %s, which is that of errors", name, v, p.Key)
			}
			properties.Set(p.Key, p.Value)
		}
		s.Properties, s.Version = properties, ""
		s.DependentRequired = map[string][]string{"error": common.Required}
		for name, d := range s.Definitions {
			whole.Definitions[name] = d
		}
		s.Definitions = nil
		whole.Definitions[reflect.TypeOf(v).Name()] = s
		whole.AnyOf = append(whole.AnyOf, &jsonschema.Schema{Ref: "#/$defs/" + reflect.TypeOf(v).Name()})
	}
	properties := jsonschema.NewProperties()
	properties.Set("registry", registrySchema)
	for p := common.Properties.Oldest(); p != nil; p = p.Next() {
		properties.Set(p.Key, p.Value)
	}
	for name, d := range common.Definitions {
		whole.Definitions[name] = d
	}
	common.Properties, common.Definitions, common.Version = properties, nil, ""
	whole.Definitions["failure"] = common
	whole.AnyOf = append(whole.AnyOf, &jsonschema.Schema{Ref: "#/$defs/failure"})
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(whole); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

var registrySchema = &jsonschema.Schema{
	Type:        "string",
	Description: "The registry that the command read or wrote, as --store or --registry takes it.",
}

// textSchema returns the schema of a type that is a string in JSON, or nil.
func textSchema(t reflect.Type) *jsonschema.Schema {
	marshaler := reflect.TypeFor[encoding.TextMarshaler]()
	switch {
	case t == reflect.TypeFor[time.Time]():
		return &jsonschema.Schema{Type: "string", Format: "date-time"}
	case t.Implements(marshaler) || reflect.PointerTo(t).Implements(marshaler):
		return &jsonschema.Schema{Type: "string"}
	}
	return nil
}

// goComments are doc comments of types and fields, first by package and then by
// TYPE or TYPE.FIELD. lookup reads a package when it needs it.
type goComments map[string]map[string]string

const modulePath = "github.com/larder-registry/larder/"

// lookup returns the doc comment of a type or of one of its fields.
func (c goComments) lookup(t reflect.Type, field string) string {
	path, ours := strings.CutPrefix(t.PkgPath(), modulePath)
	if !ours {
		return ""
	}
	if c[path] == nil {
		c[path] = must(commentsOf(filepath.Join(sourceDir, "..", "..", path)))
	}
	comment := c[path][strings.TrimSuffix(t.Name()+"."+field, ".")]
	if f, ok := t.FieldByName(field); ok && strings.HasPrefix(comment, field+" ") {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		comment = name + strings.TrimPrefix(comment, field)
	}
	// Join the lines of the doc comment, and remove the brackets of links.
	return bracketed.ReplaceAllString(strings.Join(strings.Fields(comment), " "), "$1")
}

var bracketed = regexp.MustCompile(`\[([A-Za-z.]+)\]`)

func commentsOf(dir string) (map[string]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	found := make(map[string]string)
	for _, path := range files {
		file, err := parser.ParseFile(source.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, fmt.Errorf("cannot read comments: %w", err)
		}
		for _, declared := range file.Decls {
			general, ok := declared.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, spec := range general.Specs {
				if spec, ok := spec.(*ast.TypeSpec); ok {
					found[spec.Name.Name] = cmp.Or(spec.Doc.Text(), general.Doc.Text())
					addFields(found, spec)
				}
			}
		}
	}
	return found, nil
}

func addFields(found map[string]string, spec *ast.TypeSpec) {
	of, ok := spec.Type.(*ast.StructType)
	if !ok {
		return
	}
	for _, field := range of.Fields.List {
		for _, name := range field.Names {
			found[spec.Name.Name+"."+name.Name] = cmp.Or(field.Doc.Text(), field.Comment.Text())
		}
	}
}
