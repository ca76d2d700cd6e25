package docs_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/yuin/goldmark/ast"

	"github.com/larder-registry/larder/internal/testkit/clients"
	"github.com/larder-registry/larder/internal/testkit/programs"
)

// served is the address at which larder serves unless it is given another one.
const served = "127.0.0.1:8443"

// needs are what commands may need for no test to run them.
var needs = []string{"AWS", "GitHub", "macOS", "Windows"}

// notRun returns the beginnings and the options of commands that no test runs, from
// the table in CONTRIBUTING.md.
func notRun(t *testing.T) []string {
	t.Helper()
	const path = ".github/CONTRIBUTING.md"
	source, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(source), "| Beginning or option | Needs |\n| --- | --- |\n")
	if !found {
		t.Fatalf("%s has no table of the commands that no test runs", path)
	}
	table, _, _ := strings.Cut(rest, "\n\n")
	var beginnings []string
	for line := range strings.Lines(table) {
		match := regexp.MustCompile("^\\| `([^`]+)` \\| (.+) \\|\n?$").FindStringSubmatch(line)
		if match == nil {
			t.Fatalf("%s has a row that is not understood: %s", path, line)
		}
		if !slices.Contains(needs, match[2]) {
			t.Errorf("%s: %s needs %s, which is none of %v", path, match[1], match[2], needs)
		}
		beginnings = append(beginnings, match[1])
	}
	return beginnings
}

// block is a fenced block of commands.
type block struct {
	line int
	text string
}

// commands returns the blocks of a page that are marked sh.
func (p page) commands() []block {
	var found []block
	walk(p, func(f *ast.FencedCodeBlock) {
		if string(f.Language(p.source)) != "sh" || f.Lines().Len() == 0 {
			return
		}
		begin := f.Lines().At(0).Start
		found = append(found, block{
			line: strings.Count(string(p.source[:begin]), "\n") + 1,
			text: string(f.Lines().Value(p.source)),
		})
	})
	return found
}

// has returns the first of the beginnings or options that a command of the block
// has. Options begin with a hyphen.
func (b block) has(parts []string) (string, bool) {
	for line := range strings.Lines(b.text) {
		for _, part := range parts {
			if part[0] == '-' && strings.Contains(line, " "+part) || strings.HasPrefix(strings.TrimSpace(line), part) {
				return part, true
			}
		}
	}
	return "", false
}

// policyPage is a page whose mirror has its origin on the same machine.
const policyPage = "docs/mirror-policy.md"

func isMirror(beginning string) bool { return strings.HasPrefix(beginning, "larder mirror ") }

var serve = regexp.MustCompile(`^larder serve( [^\n]*)?\n$`)

// script returns what bash runs for a block. A server runs in the background, and
// ends with the script.
func (b block) script(page, address string) string {
	text := b.text
	if match := serve.FindStringSubmatch(text); match != nil {
		text = fmt.Sprintf("larder serve --listen %s%s >serve.log 2>&1 &\n"+
			"servers+=($!)\nuntil grep -q https:// serve.log; do kill -0 $!; sleep 0.1; done\n",
			served, strings.TrimSuffix(match[1], " &"))
	}
	return fmt.Sprintf("echo '== %s:%d' >&2\n%s\n", page, b.line, strings.ReplaceAll(text, served, address))
}

const preamble = `set -eu
servers=()
finish() {
  status=$?
  for server in "${servers[@]}"; do kill "$server" || true; done
  [ -z "${GNUPGHOME-}" ] || { gpgconf --kill all || true; rm -rf "$GNUPGHOME"; }
  wait
  exit $status
}
trap finish EXIT
`

// The commands of each page succeed, one after another, in an empty folder. Only
// those that CONTRIBUTING.md lists are not run, and the project's own scripts.
func TestCommands(t *testing.T) {
	t.Parallel()
	dir := installed(t)
	skip := notRun(t)
	skipped := make(map[string]bool)
	for _, p := range pages(t) {
		address, err := programs.ReserveAddress(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		script := p.script(t, address, skip, skipped)
		if p.path == policyPage {
			script = p.script(t, address, slices.DeleteFunc(slices.Clone(skip), isMirror), make(map[string]bool)) +
				"larder list registry.example.com/acme/hello/null --store ./trial | grep 'minimum age 2 minutes'\n"
		}
		if p.path == mirrorPage || p.path == modulesPage {
			continue // TestPullThrough and TestModuleMirror run them
		}
		if script != "" {
			t.Run(p.path, func(t *testing.T) {
				t.Parallel()
				for _, program := range []string{"curl", "jq", "sqlite3"} {
					if _, err := exec.LookPath(program); err != nil && strings.Contains(script, program+" ") {
						t.Skip("LEFT OUT:", err)
					}
				}
				run(t, preamble+script, dir)
			})
		}
	}
	for _, beginning := range skip {
		if !skipped[beginning] {
			t.Errorf("CONTRIBUTING.md lists %q, which no page has", beginning)
		}
	}
}

// script returns what bash runs for a page, without the blocks with one of the
// beginnings or options in skip. It adds these to skipped.
func (p page) script(t *testing.T, address string, skip []string, skipped map[string]bool) string {
	t.Helper()
	var script strings.Builder
	for _, b := range p.commands() {
		if part, found := b.has(skip); found {
			skipped[part] = true
			continue
		}
		if _, found := b.has(ofCheckout); found {
			checkScripts(t, p, b)
			continue
		}
		script.WriteString(b.script(p.path, address))
	}
	return script.String()
}

// ofCheckout are the beginnings of commands for a checkout. Scripts of the project
// take too long, and CI runs them.
var ofCheckout = []string{"scripts/", "go build ./", "go run ./"}

// checkScripts tests that a block has only commands for a checkout, and that what
// they name exists.
func checkScripts(t *testing.T, p page, b block) {
	t.Helper()
	for line := range strings.Lines(b.text) {
		words := strings.Fields(line)
		name := words[0]
		if name == "go" {
			name = words[2]
		}
		if info, err := os.Stat(filepath.Join(root, name)); err != nil || info.Mode()&0o100 == 0 {
			t.Errorf("%s:%d: the checkout has no %s", p.path, b.line, name)
		}
	}
}

// installed returns a folder with larder and the clients.
func installed(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("LEFT OUT: the commands of pages, because tests are short")
	}
	clients.OpenTofu(t)
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(dir, "larder"), "./scripts/larder")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, client := range clients.Need(t) {
		if err := os.Symlink(client.Path, filepath.Join(dir, client.Name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// run runs a script in an empty folder and a home of its own.
func run(t *testing.T, script, installed string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	home := t.TempDir()
	cmd := exec.CommandContext(ctx, "bash", "-c", script)
	cmd.Dir = t.TempDir()
	cmd.WaitDelay = 5 * time.Second
	cmd.Env = []string{"HOME=" + home, "XDG_CONFIG_HOME=" + home + "/.config", "PATH=" + installed + ":" + os.Getenv("PATH")}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
