package main

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/scripts/larder/failure"
)

// message is output that was once wrong or unhelpful. One of args, docs and
// open is set.
type message struct {
	// situation describes when the message is printed.
	situation string
	// before is the command with its former output.
	before string

	setup [][]string // commands to run first
	files map[string]string
	env   []string
	args  []string
	// columns is the width of the terminal. If 0, the command prints to a pipe.
	columns int
	// lines is the number of lines to compare. If 0, all lines are compared.
	lines int
	// code is the exit code.
	code int

	// progress includes lines of progress.
	progress bool
	// serves stops the command when it has printed a warning.
	serves bool
	// onServed runs the command in a folder while its registry is served.
	onServed bool

	// docs is the section of the documentation that helps now.
	docs string
	// open names the planned improvement.
	open string
}

// expiredIdentity is an expired identity token of a CI job.
var expiredIdentity = strings.Join([]string{
	base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"RS256","kid":"k","typ":"JWT"}`)),
	base64.RawURLEncoding.EncodeToString([]byte(`{"iss":"https://token.actions.githubusercontent.com",` +
		`"aud":"https://registry.example.com","sub":"repo:acme/vpc","iat":1678440000,"exp":1678440300}`)),
	"c2lnbmF0dXJl",
}, ".")

// messages lists all messages.
var messages = []message{
	{
		situation: "The first command in a new clone prints nothing for minutes",
		before:    "$ go run ./scripts/larder serve\n(nothing for 228 seconds, while it is compiled)",
		open:      "installed binaries",
	},
	{
		situation: "An argument is missing",
		before: "$ larder publish module ./vpc acme/vpc/aws\n" +
			"larder: accepts 3 arg(s), received 2\n" +
			"Usage: larder publish module DIR NAMESPACE/NAME/SYSTEM VERSION [flags]\nMore with --help.",
		args: []string{"publish", "module", "./vpc", "acme/vpc/aws"}, code: failure.ExitUsage,
	},
	{
		situation: "A command is mistyped",
		before: "$ larder lsit\nlarder: unknown command \"lsit\" for \"larder\"\nUsage: larder [flags]\nMore " +
			"with --help.",
		args: []string{"lsit"}, code: failure.ExitUsage,
	},
	{
		situation: "A port is mistyped",
		before: "$ larder serve --listen 127.0.0.1:80a\n" +
			"larder: listen tcp4: lookup tcp4/80a: unknown port: if another registry runs there, choose another " +
			"port, " +
			"such as 127.0.0.1:8444",
		args: []string{"serve", "--store", "larder-data", "--listen", "127.0.0.1:80a"}, code: failure.ExitUsage,
	},
	{
		situation: "SSL_CERT_FILE names a file that does not exist",
		before: "$ larder publish module ./vpc acme/vpc/aws 2.0.0 --registry https://127.0.0.1:18443\n" +
			"packing vpc\n" +
			"larder: GET https://127.0.0.1:18443/.well-known/terraform.json: unavailable: its certificate is " +
			"not trusted here: " +
			"on Linux, SSL_CERT_FILE names a file with the authorities to trust; elsewhere, add its authority " +
			"to those of the system",
		env:  []string{"SSL_CERT_FILE=/nope"},
		args: []string{"publish", "module", "./vpc", "acme/vpc/aws", "2.0.0", "--registry", "https://{served}"},
		code: failure.ExitFailed,
	},
	{
		situation: "A file of access settings ends too early",
		before:    "$ larder serve --access access.json\nlarder: access.json: invalid access settings: unexpected EOF",
		files:     map[string]string{"access.json": "{\n  \"issuers\": [\n"},
		args:      []string{"serve", "--store", "larder-data", "--listen", "127.0.0.1:0", "--access", "access.json"},
		code:      failure.ExitInvalid,
	},
	{
		situation: "A field of the access settings is misspelt",
		before: "$ larder serve --access access.json\nlarder: access.json: invalid access settings: json: " +
			"unknown field \"isuers\"",
		files: map[string]string{"access.json": "{\n  \"isuers\": []\n}\n"},
		args:  []string{"serve", "--store", "larder-data", "--listen", "127.0.0.1:0", "--access", "access.json"},
		code:  failure.ExitInvalid,
	},
	{
		situation: "The identity of a CI job has expired",
		before: "$ larder publish module ./vpc acme/vpc/aws 2.0.0 --registry https://registry.example.com " +
			"--ci-identity\n" +
			"packing vpc\n" +
			"larder: this job's identity was sent, that of LARDER_ID_TOKEN, which says iss " +
			"https://token.actions.githubusercontent.com, " +
			"aud https://registry.example.com, sub repo:acme/vpc: the registry must trust this issuer for this " +
			"audience, and have a rule " +
			"that lets such a job in: POST https://registry.example.com/v1/publish/modules/acme/vpc/aws/2.0.0/uploads: " +
			"bad credential: it answers 401 Unauthorized: invalid credential; it does not accept this job's identity; " +
			"publishing takes the scope " +
			"publish:modules/acme/vpc/aws",
		env: []string{"LARDER_ID_TOKEN=" + expiredIdentity},
		args: []string{
			"publish", "module", "./vpc", "acme/vpc/aws", "2.0.0", "--registry", "https://registry.example.com", "--ci-identity",
		},
		code: failure.ExitFailed,
	},
	{
		situation: "An issuer of the access settings cannot be reached",
		before: "$ larder serve --access access.json\n" +
			"(nothing; later its tokens get 503 with \"try again\", for ever)",
		files: map[string]string{"access.json": `{
  "issuers": [{
    "issuer": "https://127.0.0.1:1",
    "audiences": ["https://registry.example.com"],
    "rules": [{"claims": {"sub": "ci"}, "scopes": ["read:**"]}]
  }]
}
`},
		args: []string{
			"serve",
			"--store",
			"larder-data",
			"--listen",
			"127.0.0.1:0",
			"--access",
			"access.json",
			"--quiet",
		},
		serves: true,
	},
	{
		situation: "A command that cannot go through a registry is given one by the environment",
		before: "$ LARDER_REGISTRY=https://registry.example.com larder list\n" +
			"(what is in ./larder-data, without saying so)",
		env:  []string{"LARDER_REGISTRY=https://registry.example.com"},
		args: []string{"audit"}, code: failure.ExitUsage,
	},
	{
		situation: "A first release of a provider has several problems",
		before: "$ larder publish provider ./release acme/note\n" +
			"larder: invalid release: there is no manifest that says which protocol of plugins the provider " +
			"speaks: add " +
			"terraform-provider-note_1.0.0_manifest.json, or say it, such as --protocol 6.0\n" +
			"(and in the runs after that: no key, a broken zip, no SHA256SUMS, no signature)",
		files: map[string]string{"release/terraform-provider-note_1.0.0_linux_amd64.zip": "this is no zip"},
		args:  []string{"publish", "provider", "./release", "newcomer/note"}, code: failure.ExitInvalid,
	},
	{
		situation: "A token expires soon",
		before: "$ larder token list\n" +
			"ID            NAME          HOLDS                       SCOPES                            MADE        BY\n" +
			"146538e75183  ci-inventory  until 2025-12-06 00:00 UTC  publish:providers/acme/inventory  2023-03-12  ada",
		args: []string{"token", "list"}, columns: 160,
	},
	{
		situation: "A new token has the name of another",
		before: "$ larder token create --name web --scope 'read:**'\n" +
			"(makes it)\n" +
			"$ larder token revoke web\n" +
			"larder: invalid: 2 tokens are named \"web\": revoke each by its id: 2e3ba5cd1beb, a1addc692627",
		args: []string{"token", "create", "--name", "web", "--scope", "read:**"}, code: failure.ExitExists,
	},
	{
		situation: "A token is created for a registry that is served at another port",
		before:    "$ larder token create --name ci --scope 'read:**'\n…\n  credentials \"127.0.0.1:8443\" {\n…",
		onServed:  true,
		args:      []string{"token", "create", "--name", "new", "--scope", "read:**"},
	},
	{
		situation: "A dry run prints the time of a publish",
		before: "$ larder publish module ./vpc acme/vpc/aws 2.0.0 --dry-run --json\n{\n  \"status\": \"dry " +
			"run\",\n…\n" +
			"  \"published_at\": \"2025-12-01T12:12:12Z\",\n  \"published_by\": {\n    \"kind\": \"user\",\n    " +
			"\"name\": \"ada\"\n  },\n…",
		args: []string{"publish", "module", "./vpc", "acme/vpc/aws", "2.0.0", "--dry-run", "--json", "--quiet"},
	},
	{
		situation: "A folder of 300 MB is packed",
		before: "$ larder publish module ./large acme/large/null 1.0.0\npacking large\n(and nothing for 15 " +
			"to 25 seconds)",
		files: map[string]string{"large/main.tf": "", "large/data.bin": incompressible(3 << 20)},
		args:  []string{"publish", "module", "./large", "acme/large/null", "1.0.0"}, progress: true,
	},
	{
		situation: "Sizes have two units",
		before: "$ larder publish module ./large acme/large/null 1.0.0\n" +
			"uploading acme/large/null 1.0.0 ... done! [41.96MB in 145ms]\n" +
			"Published acme/large/null 1.0.0 to dir:./larder-data: 3 files, 40 MiB packed",
		files: map[string]string{"large/main.tf": "", "large/data.bin": incompressible(3 << 20)},
		args:  []string{"publish", "module", "./large", "acme/large/null", "1.0.0"}, progress: true,
	},
	{
		situation: "A table is wider than the terminal",
		before: "$ larder list acme/vpc/aws\n" +
			"VERSION  PUBLISHED             BY                                                                  " +
			"                      " +
			"              SIZE   ARCHIVE\n" +
			"1.4.0    2023-03-15 09:30 UTC  acme-platform/terraform-aws-vpc refs/tags/v1.3.0 0123456 " +
			"(https://token.actions.githubuse" +
			"rcontent.com)  115 B  sha256:cf934f259dc9542cf2429ee55b90bed58870d12f7113cb9df48ed5dfd1c5025e\n…",
		args: []string{"list", "acme/vpc/aws"}, columns: 80, lines: 3,
	},
	{
		situation: "The state of a version is in the column of the checksum",
		before: "$ larder list acme/vpc/aws\n" +
			"VERSION  PUBLISHED             BY    SIZE   ARCHIVE\n…\n" +
			"1.1.0    2023-03-12 09:30 UTC  ada   115 B  hidden: opens port 22 to the world\n…",
		args: []string{"list", "acme/vpc/aws", "--wide"},
	},
	{
		situation: "There is no color",
		before: "$ larder list acme/inventory\n" +
			"1.0.0    2023-03-20 09:30 UTC  ada  5.0 6.0  51852D87348FFC4C  deprecated: it leaks file handles: " +
			"use 1.1.0",
		args: []string{"list", "acme/inventory"}, columns: 120,
	},
	{
		situation: "Lines of the help have up to 191 columns",
		before: "$ larder usage --help\n…\n" +
			"      --store string   where the registry keeps its data: dir:FOLDER, or stack:NAME for a deployed " +
			"one; the environment's " +
			"LARDER_STORE does the same (default \"dir:./larder-data\")",
		args: []string{"usage", "--help"}, columns: 80,
	},
	{
		situation: "The help begins with exit codes",
		before: "$ larder --help\nLarder is a private registry for OpenTofu and Terraform.\n\nExit codes:\n" +
			"  0  done, also where the same content was published before\n…",
		args: []string{"--help"}, lines: 12,
	},
	{
		situation: "An error has no code for programs",
		before: "$ larder list nobody --json\n{\n  \"error\": \"namespace \\\"nobody\\\": not found\",\n  " +
			"\"exit_code\": 5\n}",
		args: []string{"list", "nobody", "--json"}, code: failure.ExitNotFound,
	},
	{
		situation: "A script needs only names",
		before: "$ larder list --quiet\nlarder: unknown flag: --quiet\n" +
			"Usage: larder list [NAMESPACE | NAMESPACE/NAME/SYSTEM | NAMESPACE/TYPE | HOSTNAME/NAMESPACE/TYPE] " +
			"[flags]\nMore with --help.",
		args: []string{"list", "--quiet"},
	},
	{
		situation: "Help does not mention completion",
		before:    "$ larder --help\n(a hidden command writes the scripts)",
		args:      []string{"completion", "--help"}, lines: 12,
	},
	{
		situation: "A publisher with a token cannot list the registry",
		before: "$ larder list --registry https://registry.example.com\nlarder: unknown flag: " +
			"--registry\n(so do verify, audit, token and key)",
		open: "the metadata API",
	},
	{
		situation: "Each command needs the store again",
		before:    "$ larder list --store stack:larder-production-eu-central-1\n(each time)",
		setup:     [][]string{{"context", "use", "local"}},
		args:      []string{"context", "list"},
	},
	{
		situation: "A browser opens the registry",
		before:    "$ curl https://registry.example.com/\n{\"errors\":[\"not found\"]}",
		open:      "the pages",
	},
	{
		situation: "The documentation does not describe trust on Windows",
		before:    "(no line for Windows in README.md)",
		docs:      "README.md, \"Trust it\"",
	},
	{
		situation: "On macOS, trusting a registry needs sudo and cannot be undone",
		before: "$ sudo security add-trusted-cert -d -k /Library/Keychains/System.keychain larder-data/tls/ca.pem\n" +
			"(and no command that removes it)",
		docs: "README.md, \"Trust it\"",
	},
}

// The golden file compares each former message with the current output.
func TestMessages(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	folder := f.copied(t)
	s := serve(t, filepath.Join(folder, "larder-data"))
	var all strings.Builder
	all.WriteString("Messages that were wrong or unhelpful, before and now\n")
	for _, m := range messages {
		fmt.Fprintf(&all, "\n== %s\nbefore:\n%s", m.situation, indented(m.before))
		switch {
		case m.open != "":
			fmt.Fprintf(&all, "open: %s\n", m.open)
		case m.docs != "":
			fmt.Fprintf(&all, "now: see %s\n", m.docs)
		case m.args != nil:
			fmt.Fprintf(&all, "now:\n%s", indented(f.message(t, m, folder, s.Host)))
		default:
			all.WriteString("now: not tested yet\n")
		}
	}
	text := docsText.ReplaceAllString(all.String(), "SHA256${1}SHA256${2}SIZE")
	golden.Equal(t, filepath.Join("testdata", "messages.golden"), []byte(text))
}

// docsText matches the digests and the size of documentation in a record. They
// change with the extraction.
var docsText = regexp.MustCompile(`[0-9a-f]{64}(/docs\.json\.gz",\s+"sha256": ")[0-9a-f]{64}(",\s+"size": )\d+`)

// message runs a command, and returns the command with its output.
func (f fixture) message(t *testing.T, m message, folder, served string) string {
	t.Helper()
	dir := folder
	if !m.onServed {
		dir = f.copied(t)
	}
	writeFiles(t, dir, m.files)
	for _, args := range m.setup {
		if out, err := f.command(t.Context(), dir, args).CombinedOutput(); err != nil {
			t.Fatalf("larder %s: %v\n%s", quotedAll(args), err, out)
		}
	}
	args := make([]string, len(m.args))
	for i, arg := range m.args {
		args[i] = strings.ReplaceAll(arg, "{served}", served)
	}
	var shown, environment string
	for _, variable := range m.env {
		if name, value, _ := strings.Cut(variable, "="); len(value) < 80 {
			environment += name + "=" + value + " "
		}
	}
	if m.columns > 0 {
		shown = f.onTerminal(t, dir, m.columns, args)
	} else {
		var out bytes.Buffer
		cmd := f.command(t.Context(), dir, args)
		cmd.Env = append(cmd.Env, m.env...)
		cmd.Stdout, cmd.Stderr = &out, &out
		if m.serves {
			end := &warned{cmd: cmd, out: &out}
			cmd.Stdout, cmd.Stderr = end, end
		}
		_ = cmd.Run()
		if code := cmd.ProcessState.ExitCode(); code != m.code {
			t.Errorf("larder %s: exit code %d, want %d\n%s", quotedAll(args), code, m.code, &out)
		}
		shown = out.String()
		switch {
		case m.serves:
			shown = strings.Join(warning.FindAllString(shown, -1), "")
		case !m.progress:
			shown = logLine.ReplaceAllString(progressLine.ReplaceAllString(shown, ""), "")
		}
		shown = f.normalize(strings.ReplaceAll(shown, dir, "/home/ada"))
	}
	if lines := strings.SplitAfter(shown, "\n"); m.lines > 0 && len(lines) > m.lines {
		shown = strings.Join(lines[:m.lines], "") + "…\n"
	}
	return "$ " + environment + "larder " + f.normalize(quotedAll(args)) + "\n" + shown
}

// warning matches a warning in a server's log, without its time.
var warning = regexp.MustCompile(`level=WARN .*\n`)

// logLine matches a line of a server's log.
var logLine = regexp.MustCompile(`(?m)^time=.*\n`)

// warned collects the output of a server, and interrupts it after the first
// warning.
type warned struct {
	cmd  *exec.Cmd
	out  *bytes.Buffer
	once sync.Once // a second interrupt would kill it
}

func (w *warned) Write(b []byte) (int, error) {
	_, _ = w.out.Write(b)
	if warning.Match(w.out.Bytes()) {
		w.once.Do(func() { _ = w.cmd.Process.Signal(os.Interrupt) })
	}
	return len(b), nil
}

// incompressible returns random bytes, which are the same in each run.
func incompressible(size int) string {
	content := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{}).Read(content) // it never fails
	return string(content)
}

// indented returns a text with each line indented.
func indented(s string) string {
	var b strings.Builder
	for line := range strings.Lines(strings.TrimSuffix(s, "\n") + "\n") {
		if line != "\n" {
			b.WriteString("  ")
		}
		b.WriteString(line)
	}
	return b.String()
}
