package main

import (
	"errors"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/sqlite"
)

// A version whose record is lost is not left out in silence, and its key stays until somebody insists.
func TestLostRecord(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	key := signingKey(t, "Ed25519")
	addKey(t, data, "acme", key)
	publishModule(t, data, "acme/vpc/aws", "1.0.0", output("1.0.0"))
	larder(t, "publish", "provider", releaseOf(t, key), "acme/note", "--store", "dir:"+data)
	id := regexp.MustCompile(`(?m)^[0-9A-F]{16}`).FindString(larder(t, "key", "list", "acme", "--store", "dir:"+data))

	table, err := sqlite.Open(t.Context(), filepath.Join(data, "larder.db"))
	for _, partition := range []string{"modules/acme/vpc/aws", "providers/acme/note"} {
		if err == nil {
			err = table.Write(t.Context(), catalog.Change{Key: catalog.Key{Partition: partition, Sort: "version/1.0.0"}, Revision: 1, Delete: true})
		}
	}
	if err = errors.Join(err, table.Close()); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"list", "acme/vpc/aws"}, {"list", "acme/note"}, {"key", "remove", "acme", id}, {"deprecate", "provider", "acme/note", "--message", "x"}} {
		out, err := exec.CommandContext(t.Context(), "larder", append(args, "--store", "dir:"+data)...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "the record of version 1.0.0 is lost") || !strings.Contains(string(out), "larder verify") {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
	larder(t, "key", "remove", "acme", id, "--force", "--store", "dir:"+data)
}
