package main

import (
	"archive/zip"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/larder-registry/larder/internal/testkit/clients"
	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/internal/testkit/keys"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/content/signing"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/mirror/filling"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/scripts/larder/arguments"
	"github.com/larder-registry/larder/scripts/larder/output"
)

// The output of the most used commands fits the terminal. A pipe gets it in
// full.
func TestOutput(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	read, served := f.copied(t), f.copied(t)
	s := serve(t, filepath.Join(served, "larder-data"))
	for _, test := range []struct {
		name   string
		args   []string
		writes bool
		dir    string // working folder; if empty, the folder of all reading commands
	}{
		{name: "list", args: []string{"list"}},
		{name: "list-module", args: []string{"list", "acme/vpc/aws"}},
		{name: "list-provider", args: []string{"list", "acme/inventory"}},
		{name: "list-mirrored", args: []string{"list", "registry.opentofu.org/hashicorp/random"}},
		{name: "publish-module", args: []string{"publish", "module", "./vpc", "acme/vpc/aws", "2.0.0"}, writes: true},
		{name: "publish-provider", args: []string{"publish", "provider", "./dist", "acme/inventory"}, writes: true},
		{name: "deprecate", args: []string{
			"deprecate", "acme/vpc/aws", "1.3.0", "--message", "use 1.4.0, which closes port 22",
		}, writes: true},
		{name: "token-create", args: []string{
			"token", "create", "--name", "ci", "--scope", "read:modules/acme/**", "--host", "registry.example.com",
		}, writes: true},
		{name: "token-list", args: []string{"token", "list"}},
		{name: "key-list", args: []string{"key", "list", "acme"}},
		{name: "audit", args: []string{"audit"}},
		{name: "verify", args: []string{"verify"}},
		{name: "doctor", args: []string{
			"doctor", "https://" + s.Host, "--module", "acme/vpc/aws", "--provider", "acme/inventory",
		}, dir: served},
		{name: "mirror-import", args: []string{"mirror", "import", "./mirror"}, writes: true},
		{name: "mirror-policy-set", args: []string{"mirror", "policy", "set", "policy.hcl"}, writes: true},
		{name: "mirror-policy-check", args: []string{
			"mirror", "policy", "check", "policy.hcl", "registry.opentofu.org/hashicorp/aws", "registry.example.com/acme/note",
		}},
		{name: "context-list", args: []string{"context", "list"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			command := "larder " + f.normalize(quotedAll(test.args)) + "\n"
			archive := &txtar.Archive{Comment: []byte(command)}
			dir := func() string {
				if test.writes {
					return f.copied(t)
				}
				return cmp.Or(test.dir, read)
			}
			for _, columns := range []int{80, 100, 160} {
				shown := f.onTerminal(t, dir(), columns, test.args)
				for line := range strings.Lines(shown) {
					if tokenText.MatchString(line) {
						continue // a token is never wrapped
					}
					if wide := text.StringWidth(strings.TrimSuffix(readable.ReplaceAllString(line, ""), "\n")); wide > columns {
						t.Errorf("this line has %d columns on a terminal of %d:\n%s", wide, columns, line)
					}
				}
				archive.Files = append(archive.Files, txtar.File{Name: fmt.Sprintf("%d columns", columns), Data: []byte(shown)})
			}
			stdout, stderr := f.piped(t, dir(), test.args)
			archive.Files = append(archive.Files, txtar.File{Name: "piped", Data: []byte(stdout)})
			if stderr != "" {
				archive.Files = append(archive.Files, txtar.File{Name: "piped, standard error", Data: []byte(stderr)})
			}
			for _, mark := range []string{"\x1b", "…"} {
				if strings.Contains(stdout+stderr, mark) {
					t.Errorf("a pipe gets %q:\n%s%s", mark, stdout, stderr)
				}
			}
			golden.Equal(t, filepath.Join("testdata", "output", test.name+".txtar"), txtar.Format(archive))
		})
	}
}

func quotedAll(args []string) string {
	all := make([]string, len(args))
	for i, a := range args {
		all[i] = arguments.Quoted(a)
	}
	return strings.Join(all, " ")
}

// fixture is a working folder with a registry that contains examples of
// everything:
//
//	larder-data  the registry
//	vpc          a module to publish as 2.0.0
//	dist         a release to publish, of acme/inventory 2.0.0
//	mirror       a folder in the format of `tofu providers mirror`
//	policy.hcl   a mirror policy
//	config       the contexts
type fixture struct {
	dir   string
	begun time.Time
	key   registry.SigningKey
	// linux is the SHA-256 sum of the zip of acme/inventory 1.1.0 for Linux.
	linux string
	// tokens are the IDs of the fixture's tokens, which are the same in each
	// run.
	tokens []string
}

// Publishers with AWS credentials, from a CI job, and of this machine.
var (
	publisherAWS = registry.Publisher{
		Kind: registry.PublisherAWS,
		Name: "arn:aws:sts::123456789012:assumed-role/" +
			"AWSReservedSSO_RegistryOperator_0f1e2d3c4b5a6978/ada.lovelace@example.com",
	}
	publisherCI = registry.Publisher{
		Kind: registry.PublisherOIDC, Issuer: "https://token.actions.githubusercontent.com",
		Subject: "repo:acme-platform/terraform-aws-vpc:ref:refs/tags/v1.3.0", Repository: "acme-platform/terraform-aws-vpc",
		Ref: "refs/tags/v1.3.0", Commit: "0123456789abcdef0123456789abcdef01234567",
		RunURL: "https://github.com/acme-platform/terraform-aws-vpc/actions/runs/9876543210",
	}
	publisherUser = registry.Publisher{Kind: registry.PublisherUser, Name: "ada"}
)

// outputDay is the time of most publishes. It is far in the past, so that
// normalize can distinguish it from the current time.
var outputDay = time.Date(2023, 3, 10, 9, 30, 0, 0, time.UTC)

func newFixture(t *testing.T) fixture {
	t.Helper()
	f := fixture{dir: t.TempDir(), begun: time.Now().UTC().Truncate(24 * time.Hour)}
	writeFiles(t, f.dir, map[string]string{
		"vpc/main.tf":      "resource \"terraform_data\" \"vpc\" {}\n",
		"vpc/variables.tf": "variable \"cidr\" {\n  type = string\n}\n",
		"vpc/README.md":    "# VPC\n",
		"policy.hcl": `# The policy of the platform team.
deny "registry.opentofu.org/hashicorp/random" {
  reason = "We do not use it."
}
allow "registry.opentofu.org/hashicorp/*" {
  min_age      = "7d"
  unknown_age  = "wait"
  platforms    = ["linux_amd64", "darwin_arm64"]
  max_size     = "600MiB"
  signing_keys = ["34365D9472D7468F", "C874011F0AB405110D02105534365D9472D7468F"]
}
allow "registry.example.com/*/*" { min_age = "90m" }
`,
		"vpc/.env": "AWS_PROFILE=production\n",
		"config/larder/config.json": `{
  "current": "local",
  "contexts": {
    "local": {"store": "larder-data"},
    "production": {"store": "stack:larder-production-eu-central-1"},
    "platform-team-registry": {"registry": "https://registry.platform.eu-central-1.internal.example.com"}
  }
}
`,
	})
	data, _, err := local.Create(t.Context(), filepath.Join(f.dir, "larder-data"))
	if err != nil {
		t.Fatal(err)
	}
	f.fill(t, data)
	if err := data.Close(); err != nil {
		t.Fatal(err)
	}
	return f
}

// fill publishes, deprecates, hides and withdraws.
func (f *fixture) fill(t *testing.T, data *local.Data) {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	at := func(day int) func() time.Time {
		return func() time.Time { return outputDay.AddDate(0, 0, day) }
	}
	publisher := func(by registry.Publisher, day int) *publish.Publisher {
		return &publish.Publisher{Catalog: data.Catalog, Objects: data.Objects, By: by, Now: at(day)}
	}
	module := func(address, version, description string, by registry.Publisher, day int) {
		t.Helper()
		dir := t.TempDir()
		writeFiles(t, dir, map[string]string{"main.tf": "# " + address + " " + version + "\n"})
		m := rules.Module{Dir: dir, Description: description}
		m.Address, m.Version = must(registry.ParseModule(address)), must(registry.ParseVersion(version))
		_, err := publisher(by, day).Module(t.Context(), m)
		check(err)
	}
	const longest = "Subnets, route tables and gateways of one region, with flow logs and endpoints"
	module("acme/dns/aws", "1.0.0", "Hosted zones and their records", publisherUser, 0)
	module("acme/vpc/aws", "1.0.0", longest, publisherUser, 1)
	module("acme/vpc/aws", "1.1.0", longest, publisherUser, 2)
	module("acme/vpc/aws", "1.2.0", longest, publisherAWS, 3)
	module("acme/vpc/aws", "1.3.0", longest, publisherCI, 4)
	module("acme/vpc/aws", "1.4.0", longest, publisherCI, 5)
	module("platform-engineering/kubernetes-cluster/azurerm", "0.12.1", "", publisherAWS, 6)
	vpc := must(registry.ParseModule("acme/vpc/aws"))
	deprecate := func(version string, d catalog.Deprecation) {
		t.Helper()
		v := must(registry.ParseVersion(version))
		_, err := data.Catalog.Modules.Deprecate(t.Context(), vpc, &v, d)
		check(err)
	}
	deprecate("1.0.0", catalog.Deprecation{Message: "use 1.4.0: it has flow logs", By: publisherUser.String()})
	deprecate("1.1.0", catalog.Deprecation{Message: "opens port 22 to the world", Hide: true, By: publisherCI.String()})
	withdrawer := publish.Withdrawer{Catalog: data.Catalog, Objects: data.Objects, By: publisherAWS.String(), Now: at(7)}
	leaked := must(registry.ParseVersion("1.2.0"))
	_, err := withdrawer.Withdraw(t.Context(), vpc, leaked, "it has a key of the build account")
	check(err)

	f.providers(t, data, publisher)

	today := time.Now().UTC().Truncate(24 * time.Hour)
	for i, one := range []registry.Token{
		{Name: "ada.lovelace@example.com", Scopes: []string{"read:**"}},
		{
			Name: "ci-vpc", Scopes: []string{"publish:modules/acme/**", "read:modules/acme/**"},
			ExpiresAt: today.AddDate(0, 0, 60),
		},
		{Name: "ci-inventory", Scopes: []string{"publish:providers/acme/inventory"}, ExpiresAt: today.AddDate(0, 0, 5)},
		{Name: "web", Scopes: []string{"read:mirror/**"}, ExpiresAt: outputDay.AddDate(75, 0, 0)},
		{Name: "of-last-year", Scopes: []string{"read:**"}, ExpiresAt: today.AddDate(0, 0, -5)}, // is not listed
	} {
		digest := sha256.Sum256([]byte(one.Name))
		hexed := hex.EncodeToString(digest[:])
		one.ID, one.CreatedBy, one.CreatedAt = registry.TokenID(hexed), publisherUser.String(), at(i)()
		if i == 1 {
			one.CreatedBy = publisherAWS.String()
		}
		f.tokens = append(f.tokens, one.ID)
		check(data.Catalog.AddToken(t.Context(), hexed, one))
	}
}

// providers publishes a provider, adds its key and mirrors another provider.
func (f *fixture) providers(
	t *testing.T, data *local.Data, publisher func(by registry.Publisher, day int) *publish.Publisher,
) {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	inventory := must(registry.ParseProvider("acme/inventory"))
	signer := writeReleases(t, map[string]string{
		"1.0.0": t.TempDir(), "1.1.0": t.TempDir(), "2.0.0": filepath.Join(f.dir, "dist"),
	})
	key, err := signing.ParseKey(signer.key.Public, time.Now())
	check(err)
	key.AddedAt, key.AddedBy = outputDay, publisherUser.String()
	f.key = key
	_, err = data.Catalog.AddSigningKey(t.Context(), inventory.Namespace, key)
	check(err)
	for i, version := range []string{"1.0.0", "1.1.0"} {
		by := []registry.Publisher{publisherUser, publisherCI}[i]
		p := publisher(by, 0)
		p.Now = nil // the key must not be newer than the publish
		result, err := p.Provider(t.Context(), rules.Provider{Dir: signer.dirs[version], Address: inventory})
		check(err)
		f.linux = result.Record.Packages[len(result.Record.Packages)-1].SHA256
	}
	old := must(registry.ParseVersion("1.0.0"))
	_, err = data.Catalog.Providers.Deprecate(t.Context(), inventory, &old,
		catalog.Deprecation{Message: "it leaks file handles: use 1.1.0", By: publisherUser.String()})
	check(err)

	const random = "registry.opentofu.org/hashicorp/random"
	mirrored := t.TempDir()
	writeMirrored(t, filepath.Join(mirrored, random), "random", "3.5.1", "3.6.3")
	writeMirrored(t, filepath.Join(f.dir, "mirror", random), "random", "3.7.2")
	writeMirrored(t, filepath.Join(f.dir, "mirror", "registry.opentofu.org/hashicorp/tls"), "tls", "4.0.6")
	writeMirrored(t, filepath.Join(f.dir, "mirror", "127.0.0.1:8443/acme/inventory"), "inventory", "1.1.0")
	mirror := filling.Mirror{
		Catalog: data.Catalog, Objects: data.Objects, Publisher: publisher(publisherAWS, 12),
		Progress: (&output.Printer{Stderr: io.Discard}).NewProgress(),
	}
	_, err = mirror.Import(t.Context(), mirrored)
	check(err)
}

// signedReleases are the folders of signed releases by version.
type signedReleases struct {
	key  keys.SigningKey
	dirs map[string]string
}

// writeReleases writes releases of terraform-provider-inventory for three
// platforms. Two platforms have the same content. Only the key and the
// signatures differ between runs, and the signatures have the same size.
func writeReleases(t *testing.T, dirs map[string]string) signedReleases {
	t.Helper()
	for version, dir := range dirs {
		writeZips(t, dir, "inventory", version)
	}
	for {
		key := signingKey(t, "Ed25519")
		same := true
		for version, dir := range dirs {
			if err := key.SignRelease(dir); err != nil {
				t.Fatal(err)
			}
			signature, err := os.Stat(filepath.Join(dir, "terraform-provider-inventory_"+version+"_SHA256SUMS.sig"))
			if err != nil {
				t.Fatal(err)
			}
			const usual = 173 // bytes; shorter if a number begins with a zero byte
			same = same && signature.Size() == usual
		}
		if same {
			return signedReleases{key, dirs}
		}
	}
}

func writeZips(t *testing.T, dir, name, version string) {
	t.Helper()
	var sums strings.Builder
	full := "terraform-provider-" + name + "_" + version
	files := map[string]string{
		full + "_manifest.json": `{"version": 1, "metadata": {"protocol_versions": ["5.0", "6.0"]}}`,
	}
	for platform, content := range map[string]string{
		"darwin_amd64": "universal program", "darwin_arm64": "universal program", "linux_amd64": "program for Linux",
	} {
		var b bytes.Buffer
		z := zip.NewWriter(&b)
		header := &zip.FileHeader{Name: "terraform-provider-" + name + "_v" + version, Modified: outputDay}
		header.SetMode(0o755)
		w, err := z.CreateHeader(header)
		if err == nil {
			_, err = io.WriteString(w, strings.Repeat(content+" of "+name+" "+version+"\n", 500))
		}
		if err := errors.Join(err, z.Close()); err != nil {
			t.Fatal(err)
		}
		files[full+"_"+platform+".zip"] = b.String()
	}
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256([]byte(files[name])), name)
	}
	files[full+"_SHA256SUMS"] = sums.String()
	writeFiles(t, dir, files)
}

// writeMirrored writes versions in the format of `tofu providers mirror`.
func writeMirrored(t *testing.T, folder, name string, versions ...string) {
	t.Helper()
	dir := t.TempDir()
	for _, version := range versions {
		writeZips(t, dir, name, version)
	}
	if err := clients.WriteMirrorFolder(dir, folder); err != nil {
		t.Fatal(err)
	}
}

// must returns v, or panics if there is an error.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// secured returns the settings of clients that trust the certificates in a file.
func secured(file string) *tls.Config {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(must(os.ReadFile(file)))
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
}

// copied returns a copy of the folder that the test can change.
func (f fixture) copied(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(f.dir)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func (f fixture) command(ctx context.Context, dir string, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "larder", args...)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Join(dir, "home"),
		"XDG_CONFIG_HOME=" + filepath.Join(dir, "config"), "TERM=xterm",
		"SSL_CERT_FILE=" + filepath.Join("larder-data", "tls", "ca.pem"), "GORACE=atexit_sleep_ms=0",
	}
	return cmd
}

// piped runs a command with pipes and returns its output.
func (f fixture) piped(t *testing.T, dir string, args []string) (stdout, stderr string) {
	t.Helper()
	var out, other bytes.Buffer
	cmd := f.command(t.Context(), dir, args)
	cmd.Stdout, cmd.Stderr = &out, &other
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s%s", err, &out, &other)
	}
	return f.normalize(out.String()), f.normalize(progressLine.ReplaceAllString(other.String(), ""))
}

// onTerminal runs a command on a terminal with a width in columns. It returns
// the final content of the terminal.
func (f fixture) onTerminal(t *testing.T, dir string, columns int, args []string) string {
	t.Helper()
	terminal, slave, err := pty.Open()
	if err != nil {
		t.Skip("LEFT OUT: no pseudo-terminal:", err)
	}
	defer terminal.Close()
	if err := pty.Setsize(terminal, &pty.Winsize{Cols: uint16(columns), Rows: 40}); err != nil {
		t.Fatal(err)
	}
	cmd := f.command(t.Context(), dir, args)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = slave.Close()
	hung := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer hung.Stop()
	var out bytes.Buffer
	_, _ = io.Copy(&out, terminal) // reading fails when no process has the terminal open
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	shown := &display{}
	shown.print(t, out.String())
	if shown.widest > columns && !tokenText.MatchString(out.String()) {
		t.Errorf("a line had %d columns at some time, on a terminal of %d:\n%q", shown.widest, columns, out.String())
	}
	return f.normalize(progressLine.ReplaceAllString(shown.String(), ""))
}

// Texts that differ between runs.
var (
	tokenText = regexp.MustCompile(`larder_[0-9A-Za-z]{49}`)
	tokenID   = regexp.MustCompile(`\b[0-9a-f]{12}\b`)
	dateText  = regexp.MustCompile(`\b20\d\d-\d\d-\d\d( \d\d:\d\d(:\d\d)? UTC)?`)
	clockText = regexp.MustCompile(`\bshows \d\d:\d\d UTC`)
	portText  = regexp.MustCompile(`127\.0\.0\.1:\d{5}\b`)
	tookText  = regexp.MustCompile(`\bin \d+(\.\d+)?(ms|µs|s)\b`)
	// progressLine matches a line of progress. The order of these lines, and
	// which of them remain on a terminal, depends on timing. Tests still check
	// their widths.
	progressLine = regexp.MustCompile(`(?m)^(checking|comparing|listing|mirroring|packing|publishing|` +
		`reading|removing|uploading|verifying|waiting) .*\n`)
)

// normalize replaces texts that differ between runs by texts of the same width.
func (f fixture) normalize(s string) string {
	const key = "51852D87348FFC4C"
	s = strings.ReplaceAll(s, f.key.ID, key)
	for n := len(key) - 1; n > 3; n-- {
		s = strings.ReplaceAll(s, f.key.ID[:n]+"…", key[:n]+"…")
	}
	s = tokenText.ReplaceAllString(s, "larder_"+strings.Repeat("x", 49))
	s = tokenID.ReplaceAllStringFunc(s, func(id string) string {
		if slices.Contains(f.tokens, id) || strings.Contains(publisherAWS.Name, id) {
			return id
		}
		return "0a1b2c3d4e5f"
	})
	s = dateText.ReplaceAllStringFunc(s, func(at string) string {
		day, err := time.Parse(time.DateOnly, at[:len(time.DateOnly)])
		days := math.Round(day.Sub(f.begun).Hours() / 24)
		if err != nil || math.Abs(days) > 1000 || day.Sub(outputDay).Abs() < 300*24*time.Hour {
			return at
		}
		// A test may run past midnight.
		const today, multiple = "2025-12-01", 5
		days = math.Floor(days/multiple) * multiple
		shown := must(time.Parse(time.DateOnly, today)).AddDate(0, 0, int(days)).Format(time.DateOnly)
		return shown + noon(at[len(shown):])
	})
	s = clockText.ReplaceAllString(s, "shows 12:12 UTC")
	s = portText.ReplaceAllString(s, "127.0.0.1:18443")
	return tookText.ReplaceAllString(s, "in 1ms")
}

// noon replaces the numbers of a time of day by 12.
func noon(at string) string {
	return regexp.MustCompile(`\d\d`).ReplaceAllStringFunc(at, func(string) string { return "12" })
}

// readable matches the color sequences in the text of a display.
var readable = regexp.MustCompile(`␛\[[0-9;]*m`)

// display emulates a terminal. It supports the control sequences that the
// command line prints. Its width is unlimited, so that tests can find lines
// that are too long.
type display struct {
	lines  [][]cell
	row    int
	column int
	style  string
	widest int
}

type cell struct {
	style string
	char  rune
}

var sequence = regexp.MustCompile(`^\x1b\[(\??[0-9;]*)([A-Za-z])`)

func (d *display) print(t *testing.T, s string) {
	t.Helper()
	for s != "" {
		if found := sequence.FindStringSubmatch(s); found != nil {
			d.control(t, found[1], found[2])
			s = s[len(found[0]):]
			continue
		}
		r := []rune(s[:min(len(s), 4)])[0]
		s = s[len(string(r)):]
		switch r {
		case '\r':
			d.column = 0
		case '\n':
			d.row, d.column = d.row+1, 0
		default:
			d.put(r)
		}
	}
}

func (d *display) put(r rune) {
	for len(d.lines) <= d.row {
		d.lines = append(d.lines, nil)
	}
	for len(d.lines[d.row]) <= d.column {
		d.lines[d.row] = append(d.lines[d.row], cell{char: ' '})
	}
	d.lines[d.row][d.column] = cell{d.style, r}
	d.column++
	d.widest = max(d.widest, d.column)
}

func (d *display) control(t *testing.T, parameters, command string) {
	t.Helper()
	n := 1
	if parsed, err := strconv.Atoi(parameters); err == nil {
		n = parsed
	}
	switch command {
	case "m":
		d.style = parameters
		if parameters == "0" {
			d.style = ""
		}
	case "A":
		d.row = max(0, d.row-n)
	case "K":
		if d.row < len(d.lines) {
			from := d.column
			if n == 2 {
				from = 0
			}
			d.lines[d.row] = d.lines[d.row][:min(from, len(d.lines[d.row]))]
		}
	case "h", "l": // show and hide the cursor
	default:
		t.Errorf("unknown control sequence ESC[%s%s", parameters, command)
	}
}

// String returns the lines with their colors, and ␛ in place of ESC.
func (d *display) String() string {
	var b strings.Builder
	for _, line := range d.lines {
		style := ""
		for _, c := range line {
			if c.style != style {
				fmt.Fprintf(&b, "␛[%sm", c.style)
				style = c.style
			}
			b.WriteRune(c.char)
		}
		if style != "" {
			b.WriteString("␛[m")
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// parsed parses a version.
func parsed(version string) registry.Version { return must(registry.ParseVersion(version)) }
