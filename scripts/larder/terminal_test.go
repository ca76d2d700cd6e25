package main

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/creack/pty"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/content/archive"
	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/terminal"
	"github.com/larder-registry/larder/scripts/larder/failure"
	"github.com/larder-registry/larder/scripts/larder/output"
	"github.com/larder-registry/larder/scripts/larder/place"
	publishcommand "github.com/larder-registry/larder/scripts/larder/publish"
)

// On a terminal a publish shows its progress. It always ends, whether it fails
// immediately, changes nothing, or uploads.
func TestTerminal(t *testing.T) {
	t.Parallel()
	data, dir := newData(t), t.TempDir()
	noise := make([]byte, 3<<20) // gzip cannot compress it
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	writeFiles(t, dir, map[string]string{"main.tf": "", "large.txt": string(noise)})
	publish := func(dir, version string) (shown string, err error) {
		terminal, slave, err := pty.Open()
		if err != nil {
			t.Skip("LEFT OUT: no pseudo-terminal:", err)
		}
		defer terminal.Close()
		cmd := exec.CommandContext(
			t.Context(),
			"larder",
			"publish",
			"module",
			dir,
			"acme/m/null",
			version,
			"--store",
			"dir:"+data,
		)
		cmd.Stderr = slave
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		_ = slave.Close()
		hung := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
		defer hung.Stop()
		var out bytes.Buffer
		_, _ = io.Copy(&out, terminal) // reading fails when no process has the terminal open
		return out.String(), cmd.Wait()
	}
	for range 10 {
		if out, err := publish(dir+"/missing", "1.0.0"); err == nil || !strings.Contains(out, "missing") ||
			strings.Contains(err.Error(), "killed") {
			t.Fatalf("a folder that is not there: %v\n%s", err, out)
		}
	}
	if out, err := publish(dir, "1.0.0"); err != nil || !strings.Contains(out, "acme/m/null 1.0.0") ||
		!strings.Contains(out, "\x1b[") {
		t.Errorf("%v\n%q", err, out)
	}
	for range 10 {
		if out, err := publish(dir, "1.0.0"); err != nil {
			t.Fatalf("the same again: %v\n%s", err, out)
		}
	}
}

// fits fails the test if a line is wider than the terminal.
func fits(t *testing.T, what string, width int, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\r\n")); n > width {
			t.Errorf("%s: a line has %d columns, more than %d: %s", what, n, width, line)
		}
	}
}

// The results of commands fit a terminal, without line breaks in commands to
// paste. A pipe gets complete digests.
func TestViewsFit(t *testing.T) {
	t.Parallel()
	const host = "registry.example.com"
	sum := strings.Repeat("0123456789abcdef", 4)
	version, err := registry.ParseTag("1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	linux := registry.Platform{OS: "linux", Arch: "amd64"}
	platforms := []registry.Platform{linux, linux, linux, linux, linux, linux}
	module := publishcommand.PublishedModuleView{
		Status: "unchanged", Address: "platform-engineering/kubernetes/aws", To: "https://" + host,
		ModuleVersion: registry.ModuleVersion{Version: version, SHA256: sum, ContentSHA256: sum},
		Files:         []archive.File{{Path: strings.Repeat("folder/", 20) + "main.tf"}},
		Excluded: []archive.Excluded{
			{Path: strings.Repeat("long/", 6) + "a.tfvars", Reason: "may contain secrets", Pattern: "*.tfvars"},
			{Path: strings.Repeat("long/", 6) + "b.tfvars", Reason: "may contain secrets", Pattern: "*.tfvars"},
			{Path: ".env", Reason: "may contain secrets", Pattern: ".env", NamedBy: "modules/nodes/main.tf:12"},
		},
		NotCompared: true,
		Callable: []docs.Folder{{Inputs: []docs.Input{
			{Name: "id", Type: "string", Required: true}, {Name: "nodes", Type: "map(object({\n}))", Required: true},
			{Name: "size", Type: "number"},
		}}},
	}
	provider := publishcommand.PublishedProviderView{
		Status: "published", Address: "platform-engineering/inventory", To: "https://" + host,
		ProviderVersion: registry.ProviderVersion{
			Version: version, Protocols: []string{"5.0", "6.0"}, SigningKey: "0123456789ABCDEF",
			Packages: []registry.ProviderPackage{{Platform: linux, H1: "h1:" + sum[:44]}},
		},
		Shared: platforms, Dropped: &protocol.DroppedPlatforms{Since: version, Platforms: platforms},
		Host: place.Addressing{Host: host},
	}
	dry := module
	dry.DryRun, dry.NotChecked, dry.Status = true, host, "dry_run"
	module.Host = place.Addressing{
		Host:    host,
		Guessed: "The host is the default of `larder serve`. Replace it if your registry has another host.",
	}
	served := servedView{
		URL: "https://" + host, Host: host, CAFile: "/srv/platform/larder-data/tls/ca.pem",
		Created: true, Process: 123456,
		Store: "/srv/platform/larder-data", dir: "/srv/platform/larder-data", context: "local", isNew: true,
	}
	for name, v := range map[string]output.View{
		"module": module, "dry run": dry, "provider": provider, "server": served,
		"deprecation": deprecationView{
			subject: module.Address + " 1.0.0", Deprecated: strings.Repeat("too old ", 20), Latest: &version,
		},
		"withdrawal": withdrawnView{
			Status: "unchanged", Address: module.Address, Version: version, from: "stack:larder",
			Withdrawal: registry.Withdrawal{By: "arn:aws:iam::000000000000:user/operator", Reason: "it has a key"},
		},
	} {
		var shown, piped bytes.Buffer
		v.Text(output.Page{Output: terminal.Output{Writer: &shown, Width: 80}})
		v.Text(output.Page{Output: terminal.Output{Writer: &piped}})
		if server, ok := v.(servedView); ok {
			server.hints(output.Page{Output: terminal.Output{Writer: &shown, Width: 80}})
		}
		fits(t, name, 80, shown.String())
		if full := strings.Contains(piped.String(), sum); (name == "module" || name == "dry run") != full {
			t.Errorf("%s: a pipe gets the complete digest: %t\n%s", name, full, &piped)
		}
		if name == "server" {
			for _, command := range []string{
				"\n  export SSL_CERT_FILE=/srv/platform/larder-data/tls/ca.pem\n",
				"\n  larder context add local /srv/platform/larder-data\n",
				"\n  larder token create --name NAME --scope 'read:**' --context local\n",
				"\n  larder publish module DIR acme/vpc/aws 1.0.0 --context local\n",
				"\n    source  = \"" + host + "/acme/vpc/aws\"\n",
			} {
				if !strings.Contains(shown.String(), command) {
					t.Errorf("the server does not print %q:\n%s", command, &shown)
				}
			}
		}
	}
}

// The prompt of a withdrawal fits the terminal.
func TestPromptFits(t *testing.T) {
	t.Parallel()
	data := newData(t)
	const address = "platform-engineering/kubernetes-cluster/aws"
	publishModule(t, data, address, "1.0.0", withOutput("x"))
	cmd := exec.CommandContext(
		t.Context(),
		"larder",
		"withdraw",
		address,
		"1.0.0",
		"--reason",
		"it has a key",
		"--store",
		"data",
	)
	cmd.Dir = filepath.Dir(data)
	out, code := onTerminal(t, cmd, 80, "n\n")
	if code != failure.ExitFailed {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	golden.New(t).Text(t, out)
	fits(t, "withdraw", 80, out)
}
