package docs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/larder-registry/larder/internal/testkit/modulehosts"
	"github.com/larder-registry/larder/internal/testkit/programs"
)

// modulesPage is the page whose commands TestModuleMirror runs.
const modulesPage = "docs/module-mirror.md"

// The commands of the page work as they are for modules with the names in it. A fake is
// the registry and the forge, so the policy names its network and its URLs.
func TestModuleMirror(t *testing.T) {
	t.Parallel()
	dir := installed(t)
	h := modulehosts.Serve(t)
	published := time.Now().AddDate(0, -1, 0)
	for _, version := range []string{
		"cloudposse/label/null 0.25.0", "terraform-aws-modules/vpc/aws 5.8.1", "terraform-aws-modules/vpc/aws 6.0.1",
		"terraform-aws-modules/eks/aws 20.37.2",
	} {
		address, number, _ := strings.Cut(version, " ")
		files := map[string]string{"main.tf": "output \"id\" {\n  value = 1\n}\n"}
		if strings.Contains(address, "eks") {
			files["main.tf"] = "module \"vpc\" {\n  source  = \"terraform-aws-modules/vpc/aws\"\n  version = \"~> 5.0\"\n}\n"
		}
		h.Add(modulehosts.Module{Address: address, Version: number, Files: files, Published: published})
	}
	authorities := t.TempDir()
	certificate, err := os.ReadFile(h.CAFile)
	if err == nil {
		err = os.WriteFile(filepath.Join(authorities, "origin.pem"), certificate, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	address, err := programs.ReserveAddress(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all := pages(t)
	page := all[slices.IndexFunc(all, func(p page) bool { return p.path == modulesPage })]
	skip := slices.DeleteFunc(notRun(t), isMirror)
	script := "export SSL_CERT_DIR='" + authorities + "'\n" + page.script(t, address, skip, make(map[string]bool)) +
		"larder list registry.opentofu.org/terraform-aws-modules/vpc/aws --quiet --store ./isolated | sort | xargs |\n" +
		"  grep -qx '5.8.1 6.0.1'\n"
	text := strings.ReplaceAll(script, `pull        = "closed"`, fmt.Sprintf(`pull = "closed"
  networks = ["127.0.0.0/8"]
  upstream = %q
  forges = ["github://%s"]`, h.URL, h.Host))
	run(t, preamble+text, dir)
}
