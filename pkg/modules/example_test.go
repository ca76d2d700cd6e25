package modules_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/sqlite"
	"github.com/larder-registry/larder/pkg/modules"
	"github.com/larder-registry/larder/pkg/objects/disk"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// A handler on a local catalog and a local store responds with the versions of a
// module, as `tofu init` requests them.
func ExampleNew() {
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
	store, err := disk.Open(dir)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	published := catalog.New(table).Modules
	vpc := registry.Module{Namespace: "acme", Name: "vpc", System: "aws"}
	v, err := registry.ParseVersion("1.2.0")
	if err != nil {
		log.Fatal(err)
	}
	sum := strings.Repeat("0", 64)
	_, _, err = published.Publish(ctx, vpc, v, "ada",
		func(context.Context, protocol.Document) (registry.ModuleVersion, error) {
			return registry.ModuleVersion{Version: v, Object: vpc.ArchiveKey(v, sum), SHA256: sum, Size: 1}, nil
		})
	if err != nil {
		log.Fatal(err)
	}

	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/modules/acme/vpc/aws/versions", nil)
	modules.New(published, store).ServeHTTP(w, r)
	fmt.Println(w.Code, w.Header().Get("Content-Type"))
	fmt.Println(w.Body)
	// Output:
	// 200 application/json
	// {"modules":[{"versions":[{"version":"1.2.0"}]}]}
}
