package catalog_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/sqlite"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// A module's version is published to the table of a local registry, and listed.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	table, err := sqlite.Create(ctx, filepath.Join(dir, "larder.db"))
	if err != nil {
		log.Fatal(err)
	}
	defer table.Close()
	c := catalog.New(table)

	vpc := registry.Module{Namespace: "acme", Name: "vpc", System: "aws"}
	v, err := registry.ParseVersion("1.2.0")
	if err != nil {
		log.Fatal(err)
	}
	sum := strings.Repeat("0", 64) // the SHA-256 of an archive that is stored before
	_, created, err := c.Modules.Publish(ctx, vpc, v, "ada",
		func(context.Context, protocol.Document) (registry.ModuleVersion, error) {
			return registry.ModuleVersion{Version: v, Object: vpc.ArchiveKey(v, sum), SHA256: sum, Size: 1}, nil
		})
	fmt.Println("published:", created, err)

	for s, err := range c.Modules.Summaries(ctx, "acme") {
		fmt.Println(s.Address, s.Latest, err)
	}
	// Output:
	// published: true <nil>
	// acme/vpc/aws 1.2.0 <nil>
}
