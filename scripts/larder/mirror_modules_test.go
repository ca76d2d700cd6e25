package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/internal/testkit/modulehosts"
)

// Operators mirror modules with the ones that they call, and accept changes of an
// origin. They take the modules to a registry without a network, and restore them from
// a backup. The golden file has the output of each command.
func TestMirrorModules(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	h := modulehosts.Serve(t)
	for _, m := range modulehosts.World() {
		if m.Forge == modulehosts.GitHub { // the server has one name, which is one kind of forge
			h.Add(m)
		}
	}
	dir := t.TempDir()
	home, data := t.TempDir(), filepath.Join(t.TempDir(), "data")
	writeFiles(t, home, map[string]string{".terraformrc": h.HostBlocks("registry.opentofu.org")})
	const aws = "registry.opentofu.org/terraform-aws-modules/"
	writeFiles(t, dir, map[string]string{
		"policy.hcl": fmt.Sprintf("deny %q {\n  reason = \"We have our own.\"\n}\n"+
			"allow \"registry.opentofu.org/*/*/*\" {\n  forges = [\"github://%s\"]\n}\n", aws+"kms/aws", h.Host),
		"mirror.hcl": "module \"registry.opentofu.org/cloudposse/s3-bucket/aws\" {\n  versions = [\"~> 4.0\"]\n}\n",
		"app/.terraform/modules/modules.json": `{"Modules":[{"Key":"vpc","Source":"` + aws +
			`vpc/aws","Version":"5.0.0","Dir":"x"}]}`,
	})
	env := []string{
		"HOME=" + home, "TF_CLI_CONFIG_FILE=" + filepath.Join(home, ".terraformrc"), "SSL_CERT_FILE=" + h.CAFile,
	}
	f, other := filler{data, env}, filler{filepath.Join(t.TempDir(), "data"), env}
	larder(t, "init", "--store", "dir:"+f.data)
	larder(t, "init", "--store", "dir:"+other.data)
	step := func(f filler, code int, args ...string) {
		t.Helper()
		shown := strings.Join(args, " ")
		out, all, got := f.try(t, args...)
		if got != code {
			t.Errorf("larder %s: exit code %d, want %d", shown, got, code)
		}
		if code != 0 {
			out += errorText(all) + "\n"
		}
		texts.Text(t, steady("$ larder "+shown+"\n"+out))
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	step(f, 0, "mirror", "policy", "set", file("policy.hcl"))
	step(f, 0, "mirror", "add", aws+"eks/aws")
	step(f, 0, "mirror", "add", aws+"notify-slack/aws", "--dry-run")
	step(f, 0, "mirror", "sync", file("mirror.hcl"), file("app"))
	step(f, 0, "mirror", "sync", file("mirror.hcl"), file("app"))
	h.MoveTag("terraform-aws-modules/vpc/aws", "5.0.0", map[string]string{"main.tf": "variable \"name\" {}\n"})
	step(f, 8, "mirror", "sync", file("app"))
	step(f, 0, "mirror", "admit", aws+"vpc/aws", "5.0.0", "--reason", "announced")
	h.Stop()
	removed, err := filepath.Glob(filepath.Join(f.data, "objects/mirror-modules/*/*/eks/*/*/*/files.zip"))
	if err != nil || len(removed) != 1 {
		t.Fatalf("the browsable files of eks are %q, %v", removed, err)
	}
	if err := os.Remove(removed[0]); err != nil {
		t.Fatal(err)
	}
	step(f, 0, "docs", "rebuild")
	step(f, 0, "docs", "rebuild", aws+"eks/aws", "20.8.5")
	step(f, 0, "mirror", "export", file("folder"))
	step(f, 0, "mirror", "export", file("vpc"), aws+"vpc/aws")
	step(other, 0, "mirror", "import", file("folder"))
	step(other, 0, "mirror", "import", file("folder"))
	step(f, 0, "backup", file("backup.tar"))
	restored := filler{filepath.Join(t.TempDir(), "data"), env}
	larder(t, "restore", file("backup.tar"), "--store", restored.data)
	larder(t, "verify", "--at-rest", "--store", restored.data)
	step(restored, 0, "mirror", "export", file("restored"))
	if diff := cmp.Diff(contents(t, file("folder")), contents(t, file("restored"))); diff != "" {
		t.Errorf("the restored registry exports (-before +after):\n%s", diff)
	}
}
