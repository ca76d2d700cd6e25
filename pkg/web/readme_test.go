package web_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/registry"
)

// The README of a version leads to its folders and files, and shows its images.
func TestReadmeLinks(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	root := "variable \"zones\" {}\n"
	files := map[string]string{
		"main.tf": root, "docs/a b+c.svg": "<svg/>", "test/x": "x", "examples/all/main.tf": root, "modules/m/main.tf": root,
		"README.md": "![A](docs/a%20b+c.svg) [a](main.tf#L1) [b](test) [c](modules/m) [d](./examples/none) " +
			"[e](examples/all/README.md) [f](#input_zones) [g](docs)",
		"modules/m/README.md": "[a](../..) [b](../../main.tf) [c](main.tf) [d](../m2) ![e](../../docs/a%20b+c.svg)",
	}
	s.module("acme/vpc/aws", "1.0.0", files)
	s.module("acme/vpc/aws", "1.1.0", files, func(r *registry.ModuleVersion) { r.FilesZip = nil })
	pages := s.serve()
	const version = "/modules/acme/vpc/aws/1.0.0"
	image := version + "/files?path=docs%2Fa+b%2Bc.svg&amp;raw"
	for path, want := range map[string]string{
		"1.0.0": image + " " + version + "/files/main.tf#L1 " + version + "/files " + version + "/modules/m  " +
			version + "/examples/all #input-zones " + version + "/files",
		"1.0.0/modules/m": version + " " + version + "/files/main.tf " + version + "/files/modules/m/main.tf  " + image,
		"1.1.0":           "   /modules/acme/vpc/aws/1.1.0/modules/m  /modules/acme/vpc/aws/1.1.0/examples/all #input-zones ",
	} {
		page := pages.text(t, http.StatusOK, "/modules/acme/vpc/aws/"+path)
		_, page, _ = strings.Cut(page, `<div class="prose">`)
		page, _, _ = strings.Cut(page, "</div>")
		var got []string
		for _, m := range regexp.MustCompile(`<(?:a|img)(?: (?:href|src)="([^"]*)")?`).FindAllStringSubmatch(page, -1) {
			got = append(got, m[1])
		}
		if diff := cmp.Diff(want, strings.Join(got, " ")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
		if strings.Contains(page, "data-") {
			t.Errorf("%s has an attribute that is incomplete", path)
		}
	}
}
