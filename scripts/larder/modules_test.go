package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/builds"
	"github.com/larder-registry/larder/internal/testkit/clients"
	"github.com/larder-registry/larder/pkg/registry"
)

// submodules is a module without configuration of its own.
func submodules(name string) map[string]string {
	return map[string]string{
		"README.md":               "# " + name + "\n",
		"modules/one/main.tf":     `output "it" { value = "` + name + ` one" }` + "\n",
		"modules/two/a/main.tofu": `output "it" { value = "` + name + ` two" }` + "\n",
		"modules/two/a/main.tf":   `output "it" { value = "` + name + ` two" }` + "\n",
		"examples/one/main.tf":    `module "it" { source = "../../modules/one" }` + "\n",
	}
}

// A module that has configuration below modules/ alone is published by both ways,
// and installed from there. Doctor and verify take it for what it is.
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

// Names that Windows cannot have are refused by both ways with the file's name
// and the reason, before anything is sent.
func TestNamesOfOtherSystems(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("other systems cannot have files with these names")
	}
	s := serve(t, t.TempDir())
	secret := token(t, s.data, "--name", "ci", "--scope", "publish:modules/acme/**")
	publishModule(t, s.data, "acme/first/null", "1.0.0", output("first"))
	p := s.publisher(t, credentials(s.Host, secret))
	before := fileNames(t, filepath.Join(s.data, "objects"))
	for name, reason := range map[string]string{
		"files/a:b":             `has ':', which names on Windows cannot have`,
		"files/con.txt":         `has the part "con.txt", which is a device on Windows`,
		"aux/main.tf":           `has the part "aux", which is a device on Windows`,
		"files/a.":              `has the part "a.", which ends in a dot or a space`,
		"files/a ":              `has the part "a ", which ends in a dot or a space`,
		"files./x":              `has the part "files.", which ends in a dot or a space`,
		"files/what?":           `has '?', which names on Windows cannot have`,
		"modules/x/nul .tf":     `has the part "nul .tf", which is a device on Windows`,
		"templates/COM1.tftpl":  `has the part "COM1.tftpl", which is a device on Windows`,
		"templates/a\u202eb.md": `has the character U+202E`,
	} {
		dir := t.TempDir()
		writeFiles(t, dir, map[string]string{"main.tf": "", name: ""})
		shown := `"` + strings.ReplaceAll(name, "\u202e", `\u202e`) + `"`
		want := []string{"path " + shown, reason, "rename it"}
		p.run(t, exitRefused, want, "publish", "module", dir, "acme/names/null", "1.0.0")
		p.run(t, exitRefused, want, "publish", "module", dir, "acme/names/null", "1.0.0", "--dry-run")
		out := fails(t, exitRefused, "publish", "module", dir, "acme/names/null", "1.0.0", "--store", "dir:"+s.data)
		for _, text := range want {
			if !strings.Contains(out, text) {
				t.Errorf("the error for %q does not say %q:\n%s", name, text, out)
			}
		}
	}
	if diff := cmp.Diff(before, fileNames(t, filepath.Join(s.data, "objects"))); diff != "" {
		t.Errorf("something was stored:\n%s", diff)
	}
	if log := s.log.String(); strings.Contains(log, "acme/names") {
		t.Errorf("the registry was asked:\n%s", log)
	}
}

// fileNames returns the paths of all files below a folder.
func fileNames(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			names = append(names, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// A module that reads a template of an environment file is published whole, and
// can be planned. What is left out is one line, and a file that the module names
// and that is left out is a warning.
func TestLeftOut(t *testing.T) {
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
		t.Errorf("files that are left out are named %d times:\n%s", n, out)
	}
	for _, want := range []string{
		"left out 197 files", "195 by *.tfvars, 1 by .env, 1 by .env.*",
		"such as .env, .env.production, examples/100/terraform.tfvars\n", "--include",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the output does not say %q:\n%s", want, out)
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

// A version of a provider that lacks platforms of the newest version before it
// is published by both ways, and the platforms are named.
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
	const want = "warning: 1.0.0 is also for darwin_arm64, windows_amd64"

	next := release("1.1.0", linux)
	if out := larder(t, append(next, append(store, "--dry-run")...)...); !strings.Contains(out, want) {
		t.Errorf("a dry run does not say %q:\n%s", want, out)
	}
	if out := larder(t, append(next, store...)...); !strings.Contains(out, want) {
		t.Errorf("publishing to a store does not say %q:\n%s", want, out)
	}
	p.run(t, 0, []string{"warning: 1.1.0 is also for linux_amd64, and"}, release("1.2.0", mac)...)

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
	// Nothing is missing here, and an older version says nothing of a newer one.
	for _, args := range [][]string{release("1.3.0", mac, linux), release("0.9.0", linux)} {
		if out := p.run(t, 0, nil, append(args, "--json")...); strings.Contains(out, "dropped") {
			t.Errorf("%s:\n%s", args[2], out)
		}
	}
}

// A key that old releases of Terraform cannot read is added with a warning.
func TestKeyForOldClients(t *testing.T) {
	t.Parallel()
	data := serve(t, t.TempDir()).data
	for algorithm, warned := range map[string]bool{"Ed25519": true, "RSA 4096": false, "P-256": false} {
		key := signingKey(t, algorithm)
		file := keyFile(t, key)
		out := larder(t, "key", "add", "acme", file, "--store", "dir:"+data)
		const warning = "warning: Terraform 1.5 and older cannot verify signatures by this key"
		if got := strings.Contains(out, warning); got != warned {
			t.Errorf("%s: warned is %t\n%s", algorithm, got, out)
		}
		out = larder(t, "key", "add", "acme", file, "--store", "dir:"+data, "--json")
		if got := strings.Contains(out, `"warnings"`); got != warned {
			t.Errorf("%s, JSON: warned is %t\n%s", algorithm, got, out)
		}
	}
}

// A folder of providers of which one cannot be mirrored is imported for the
// others. Local files are not called downloads.
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
		"Skipped " + own + ": no client can use a mirror for a hostname with a port",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the import does not say %q:\n%s", want, out)
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
	// Nothing that can be imported is an error.
	only := t.TempDir()
	writeFiles(t, only, map[string]string{own + "/index.json": `{"versions":{"1.0.0":{}}}`})
	if out := fails(t, exitRefused, "mirror", "import", only, "--store", "dir:"+data); !strings.Contains(out, own) {
		t.Error(out)
	}
}
