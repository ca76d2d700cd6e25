package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/builds"
	"github.com/larder-registry/larder/internal/testkit/clients"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/scripts/larder/failure"
)

// submodules returns a module with configuration only below modules/.
func submodules(name string) map[string]string {
	return map[string]string{
		"README.md":               "# " + name + "\n",
		"modules/one/main.tf":     `output "it" { value = "` + name + ` one" }` + "\n",
		"modules/two/a/main.tofu": `output "it" { value = "` + name + ` two" }` + "\n",
		"modules/two/a/main.tf":   `output "it" { value = "` + name + ` two" }` + "\n",
		"examples/one/main.tf":    `module "it" { source = "../../modules/one" }` + "\n",
	}
}

// A module with configuration only below modules/ can be published to a store
// and through a registry, and installed. doctor and verify accept it.
func TestSubmodulesOnly(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	secret := token(t, s.data, "--name", "ci", "--scope", "publish:modules/acme/**", "--scope", "read:**")
	p := s.publisher(t, credentials(s.Host, secret))
	direct, through := t.TempDir(), t.TempDir()
	writeFiles(t, direct, submodules("direct"))
	writeFiles(t, through, submodules("through"))
	larder(t, "publish", "module", direct, "acme/direct/null", "1.0.0", "--store", "dir:"+s.data)
	p.run(t, 0, []string{`source  = "` + s.Host + `/acme/through/null//modules/one"`},
		"publish", "module", through, "acme/through/null", "1.0.0")
	larder(t, "verify", "--store", "dir:"+s.data)

	home := t.TempDir()
	writeFiles(t, home, map[string]string{".tofurc": credentials(s.Host, secret)})
	printed := s.doctor(t, 0, home, "", nil, "--module", "acme/direct/null")
	if !strings.Contains(printed, "ok       module archive: ") {
		t.Error(printed)
	}

	clients.Each(t, func(t *testing.T, c clients.Client) {
		dir := t.TempDir()
		var config strings.Builder
		for _, name := range []string{"direct", "through"} {
			for label, folder := range map[string]string{"one": "one", "two": "two/a"} {
				label = name + "_" + label
				config.WriteString(`module "` + label + `" {
  source  = "` + s.Host + "/acme/" + name + "/null//modules/" + folder + `"
  version = "~> 1.0"
}
output "` + label + `" { value = module.` + label + `.it }
`)
			}
		}
		writeFiles(t, dir, map[string]string{"main.tf": config.String()})
		session := session(t, c, s)
		session.Config = credentials(s.Host, secret)
		if _, err := session.Run(t.Context(), dir, "init", "-no-color"); err != nil {
			t.Fatal(err)
		}
		out, err := session.Run(t.Context(), dir, "apply", "-auto-approve", "-no-color")
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"direct one", "direct two", "through one", "through two"} {
			if !strings.Contains(out, `"`+want+`"`) {
				t.Errorf("no output is %q:\n%s", want, out)
			}
		}
	})
}

// A file name that is invalid on Windows is rejected before the first request.
// The error has the name and the reason.
func TestNamesOfOtherSystems(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("other systems cannot have files with these names")
	}
	s := serve(t, t.TempDir())
	secret := token(t, s.data, "--name", "ci", "--scope", "publish:modules/acme/**")
	p := s.publisher(t, credentials(s.Host, secret))
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"main.tf": "", "templates/a\u202eb.md": ""})
	want := []string{`"templates/a\u202eb.md"`, `U+202E`}
	p.run(t, failure.ExitInvalid, want, "publish", "module", dir, "acme/names/null", "1.0.0")
	p.run(t, failure.ExitInvalid, want, "publish", "module", dir, "acme/names/null", "1.0.0", "--dry-run")
	if log := s.log.String(); strings.Contains(log, "acme/names") {
		t.Errorf("the registry has received a request:\n%s", log)
	}
}

// A published module includes templates of environment files. Excluded files
// are summarized in one line.
func TestExcluded(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	files := map[string]string{
		"main.tf":  `output "it" { value = templatefile("${path.module}/.env.tpl", { name = "planned" }) }` + "\n",
		".env.tpl": "NAME=${name}", ".env.example": "", ".env.production.sample": "", ".env.template": "", ".env.dist": "",
		".env": "NAME=secret", ".env.production": "NAME=secret",
	}
	for i := range 195 {
		files["examples/"+strconv.Itoa(100+i)+"/terraform.tfvars"] = ""
	}
	dir := t.TempDir()
	writeFiles(t, dir, files)
	var stdout, stderr bytes.Buffer
	args := []string{"publish", "module", dir, "acme/env/null", "1.0.0", "--store", "dir:" + s.data}
	cmd := exec.CommandContext(t.Context(), "larder", args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	out := stdout.String() + stderr.String()
	if n := strings.Count(out, "tfvars"); n > 5 {
		t.Errorf("excluded files are named %d times:\n%s", n, out)
	}
	for _, want := range []string{
		"197 files", "195 by *.tfvars, 1 by .env, 1 by .env.*",
		"such as .env, .env.production, examples/100/terraform.tfvars\n", "--include",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the output does not contain %q:\n%s", want, out)
		}
	}
	clients.Each(t, func(t *testing.T, c clients.Client) {
		dir := t.TempDir()
		writeFiles(t, dir, map[string]string{"main.tf": `module "it" { source = "` + s.Host + `/acme/env/null" }
output "it" { value = module.it.it }
`})
		session := session(t, c, s)
		if _, err := session.Run(t.Context(), dir, "init", "-no-color"); err != nil {
			t.Fatal(err)
		}
		out, err := session.Run(t.Context(), dir, "plan", "-no-color")
		if err != nil || !strings.Contains(out, `"NAME=planned"`) {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

// A warning names the platforms of the previous version that a new version
// lacks.
func TestFewerPlatforms(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	key, err := builds.Signer()
	if err != nil {
		t.Fatal(err)
	}
	addKey(t, s.data, "acme", key)
	p := s.publisher(t, credentials(s.Host, token(t, s.data, "--name", "ci", "--scope", "publish:providers/acme/**")))
	release := func(version string, platforms ...string) []string {
		return []string{"publish", "provider", builds.NewRelease(t, version, platforms...).Dir, "acme/inventory"}
	}
	store := []string{"--store", "dir:" + s.data}
	const linux, mac, windows = "linux_amd64", "darwin_arm64", "windows_amd64"
	larder(t, append(release("1.0.0", linux, mac, windows), store...)...)
	const want = "warning: 1.0.0 supports darwin_arm64, windows_amd64"

	next := release("1.1.0", linux)
	if out := larder(t, append(next, append(store, "--dry-run")...)...); !strings.Contains(out, want) {
		t.Errorf("the output of a dry run does not contain %q:\n%s", want, out)
	}
	if out := larder(t, append(next, store...)...); !strings.Contains(out, want) {
		t.Errorf("the output of a publish does not contain %q:\n%s", want, out)
	}
	p.run(t, 0, []string{"warning: 1.1.0 supports linux_amd64,"}, release("1.2.0", mac)...)

	var printed struct {
		Dropped struct {
			Since     string
			Platforms []registry.Platform
		} `json:"dropped_platforms"`
	}
	out := p.run(t, 0, nil, append(release("1.0.1", linux, mac), "--json")...)
	if err := json.Unmarshal([]byte(out), &printed); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(printed.Dropped); got != "{1.0.0 [windows_amd64]}" {
		t.Errorf("dropped platforms are %s", got)
	}
	// These versions lack no platform of the version before them.
	for _, args := range [][]string{release("1.3.0", mac, linux), release("0.9.0", linux)} {
		if out := p.run(t, 0, nil, append(args, "--json")...); strings.Contains(out, "dropped") {
			t.Errorf("%s:\n%s", args[2], out)
		}
	}
}

// key add prints a warning for a key that old releases of Terraform cannot
// read.
func TestKeyForOldClients(t *testing.T) {
	t.Parallel()
	data := serve(t, t.TempDir()).data
	for algorithm, warned := range map[string]bool{"Ed25519": true, "RSA 4096": false, "P-256": false} {
		key := signingKey(t, algorithm)
		file := keyFile(t, key)
		out := larder(t, "key", "add", "acme", file, "--store", "dir:"+data)
		const warning = "  warning: Terraform 1.5"
		if got := strings.Contains(out, warning); got != warned {
			t.Errorf("%s: warned is %t\n%s", algorithm, got, out)
		}
		out = larder(t, "key", "add", "acme", file, "--store", "dir:"+data, "--json")
		if got := strings.Contains(out, `"warnings"`); got != warned {
			t.Errorf("%s, JSON: warned is %t\n%s", algorithm, got, out)
		}
	}
}

// import skips providers that cannot be mirrored. Progress does not call local
// files downloads.
func TestImportSkips(t *testing.T) {
	t.Parallel()
	data, folder := serve(t, t.TempDir()).data, t.TempDir()
	const (
		name = "terraform-provider-inventory_1.0.0_linux_amd64.zip"
		good = "registry.example.com/acme/inventory/"
		own  = "127.0.0.1:8443/acme/inventory"
	)
	zip, err := os.ReadFile(filepath.Join(builds.NewRelease(t, "1.0.0", "linux_amd64").Dir, name))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(zip)
	zh := "zh:" + hex.EncodeToString(sum[:])
	writeFiles(t, folder, map[string]string{
		good + name:         string(zip),
		good + "index.json": `{"versions":{"1.0.0":{}}}`,
		good + "1.0.0.json": `{"archives":{"linux_amd64":{"url":"` + name + `","hashes":["` + zh + `"]}}}`,
		own + "/index.json": `{"versions":{"1.0.0":{}}}`,
	})
	run := func(args ...string) (stdout, stderr string) {
		t.Helper()
		var out, progress bytes.Buffer
		cmd := exec.CommandContext(t.Context(), "larder", append(args, "--store", "dir:"+data)...)
		cmd.Stdout, cmd.Stderr = &out, &progress
		if err := cmd.Run(); err != nil {
			t.Errorf("larder %s: %v\n%s%s", strings.Join(args, " "), err, &out, &progress)
		}
		return out.String(), progress.String()
	}
	out, progress := run("mirror", "import", folder)
	for _, want := range []string{
		"Mirrored registry.example.com/acme/inventory 1.0.0\n",
		"Skipped " + own + ": ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the output does not contain %q:\n%s", want, out)
		}
	}
	_, exported := run("mirror", "export", t.TempDir())
	if strings.Contains(progress+exported, "downloading") || !strings.Contains(exported, "writing "+name) {
		t.Errorf("local files are downloaded:\n%s%s", progress, exported)
	}
	var printed struct {
		Skipped []struct{ Address, Reason string }
	}
	text := larder(t, "mirror", "import", folder, "--store", "dir:"+data, "--json")
	if err := json.Unmarshal([]byte(text), &printed); err != nil {
		t.Fatal(err)
	}
	if len(printed.Skipped) != 1 || printed.Skipped[0].Address != own {
		t.Errorf("skipped is not %s:\n%s", own, text)
	}
	// A folder without a provider that can be mirrored is an error.
	only := t.TempDir()
	writeFiles(t, only, map[string]string{own + "/index.json": `{"versions":{"1.0.0":{}}}`})
	if out := fails(t, failure.ExitInvalid, "mirror", "import", only, "--store", "dir:"+data); !strings.Contains(out, own) {
		t.Error(out)
	}
}
