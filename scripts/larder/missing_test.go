package main

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/clients"
	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/scripts/larder/failure"
)

// A version without a record is listed as missing. Commands fail instead of
// ignoring it.
func TestMissingRecords(t *testing.T) {
	t.Parallel()
	data := newData(t)
	store := []string{"--store", "dir:" + data}
	run := func(args ...string) string { t.Helper(); return larder(t, append(args, store...)...) }
	for _, version := range []string{"1.0.0", "1.1.0"} {
		publishModule(t, data, "acme/vpc/aws", version, withOutput(version))
	}
	publishModule(t, data, "acme/solo/aws", "1.0.0", withOutput("1.0.0"))
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
	for _, missing := range []catalog.Key{
		{Partition: "modules/acme/vpc/aws", Sort: "version/1.1.0"},
		{Partition: "modules/acme/solo/aws", Sort: "version/1.0.0"},
		{Partition: "providers/acme/note", Sort: "version/1.0.0"}, {Partition: "mirror/" + mirrored, Sort: "version/1.0.0"},
	} {
		items(t, data, catalog.Change{Key: missing, Revision: 1, Delete: true})
	}
	for address, version := range map[string]string{
		"acme/vpc/aws": "1.1.0", "acme/solo/aws": "1.0.0", "acme/note": "1.0.0", mirrored: "1.0.0",
	} {
		row := regexp.MustCompile(`(?m)^` + version + ` +missing +(- +){0,5}.*` + "`larder verify`$")
		if out := run("list", address); !row.MatchString(out) {
			t.Errorf("list %s has no row for the missing version:\n%s", address, out)
		}
		var listed struct{ Versions []protocol.VersionState }
		if err := json.Unmarshal([]byte(run("list", address, "--json")), &listed); err != nil {
			t.Fatal(err)
		}
		missing := protocol.VersionState{Version: parsed(version), State: protocol.StateMissing}
		if !slices.Contains(listed.Versions, missing) {
			t.Errorf("list %s --json lacks the missing version: %v", address, listed.Versions)
		}
	}
	if out := run("list", "acme/vpc/aws"); !strings.Contains(out, "sha256:") {
		t.Errorf("list does not print the checksum of the other version:\n%s", out)
	}
	texts := golden.New(t)
	rejects := func(args ...string) {
		t.Helper()
		out := fails(t, failure.ExitFailed, append(args, store...)...)
		texts.Text(t, "$ larder "+steady(quotedAll(args))+"\n"+errorText(out))
	}
	for _, args := range [][]string{{}, {mirrored}} {
		rejects(append([]string{"mirror", "export", t.TempDir()}, args...)...)
	}
	rejects("key", "remove", "acme", id)
	rejects("deprecate", "acme/note", "1.0.0", "--message", "x")
	run("key", "remove", "acme", id, "--force")
}
