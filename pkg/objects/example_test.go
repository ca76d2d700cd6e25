package objects_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/objects/disk"
)

// An object is stored in a folder. Anyone with its presigned URL can download
// it for an hour.
func ExampleStore() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	store, err := disk.Open(dir)
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	server := httptest.NewServer(store.Handler())
	defer server.Close()
	store.BaseURL = server.URL

	body := "hello"
	digest := objects.Digest{SHA256: fmt.Sprintf("%x", sha256.Sum256([]byte(body))), Size: int64(len(body))}
	if err := store.PutOnce(ctx, "notes/hello.txt", strings.NewReader(body), digest); err != nil {
		log.Fatal(err)
	}
	url, err := store.SignGet(ctx, "notes/hello.txt")
	if err != nil {
		log.Fatal(err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		log.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	stored, err := io.ReadAll(resp.Body)
	fmt.Println(resp.Status, string(stored), err)
	// Output:
	// 200 OK hello <nil>
}
