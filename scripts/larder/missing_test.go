package main

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/clients"
	"github.com/larder-registry/larder/pkg/catalog"
)

// A version that has lost its record is shown, and nothing goes on as if it had never been.
func TestLost(t *testing.T) {
	t.Parallel()
	data := newData(t)
	store := []string{"--store", "dir:" + data}
	run := func(args ...string) string { t.Helper(); return larder(t, append(args, store...)...) }
	for _, version := range []string{"1.0.0", "1.1.0"} {
		publishModule(t, data, "acme/vpc/aws", version, output(version))
	}
	publishModule(t, data, "acme/solo/aws", "1.0.0", output("1.0.0"))
	key := signingKey(t, "Ed25519")
	addKey(t, data, "acme", key)
	id := regexp.MustCompile(`(?m)^[0-9A-F]{16}`).FindString(run("key", "list", "acme"))
	run("publish", "provider", releaseOf(t, key), "acme/note")
	const mirrored = "registry.example.com/acme/note"
	folder := t.TempDir()
	if err := clients.WriteMirrorFolder(releaseOf(t, key), filepath.Join(folder, mirrored)); err != nil {
		t.Fatal(err)
	}
	run("mirror", "import", folder)
	for _, lost := range []catalog.Key{
		{Partition: "modules/acme/vpc/aws", Sort: "version/1.1.0"}, {Partition: "modules/acme/solo/aws", Sort: "version/1.0.0"},
		{Partition: "providers/acme/note", Sort: "version/1.0.0"}, {Partition: "mirror/" + mirrored, Sort: "version/1.0.0"},
	} {
		items(t, data, catalog.Change{Key: lost, Revision: 1, Delete: true})
	}
	for address, version := range map[string]string{"acme/vpc/aws": "1.1.0", "acme/solo/aws": "1.0.0", "acme/note": "1.0.0", mirrored: "1.0.0"} {
		if out := run("list", address); !regexp.MustCompile(`(?m)^` + version + ` +lost +(- +){3,5}its record is missing: see ` + "`larder verify`$").MatchString(out) {
			t.Errorf("%s: %s", address, out)
		}
		if out := run("list", address, "--json"); !strings.Contains(out, `"lost": [`+"\n    "+`"`+version+`"`) {
			t.Errorf("%s: %s", address, out)
		}
	}
	if out := run("list", "acme/vpc/aws"); !strings.Contains(out, "sha256:") {
		t.Error(out)
	}
	for _, args := range [][]string{{}, {mirrored}} {
		export := append([]string{"mirror", "export", t.TempDir()}, append(args, store...)...)
		if out := fails(t, exitFailed, export...); !strings.Contains(out, "the record of version 1.0.0 is lost") {
			t.Error(out)
		}
	}
	for _, args := range [][]string{{"key", "remove", "acme", id}, {"deprecate", "acme/note", "1.0.0", "--message", "x"}} {
		if out := fails(t, exitFailed, append(args, store...)...); !strings.Contains(out, "the record of version 1.0.0 is lost") || !strings.Contains(out, "larder verify") {
			t.Error(out)
		}
	}
	run("key", "remove", "acme", id, "--force")
}
