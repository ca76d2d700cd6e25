package functions_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/awstest"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/dynamodb"
	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
)

// document stores documentation of a published module version, with an object
// unless lost is set.
func (d deployed) document(t *testing.T, m registry.Module, number string, lost bool) {
	t.Helper()
	text, err := docs.Encode(docs.Documentation{Root: docs.Folder{Readme: "# " + m.Name}})
	if err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256(text)
	name := hex.EncodeToString(digest[:])
	key := m.Path() + "/" + number + "/" + name + "/docs.json.gz"
	if !lost {
		if err := d.publisher.Objects.PutOnce(t.Context(), key, bytes.NewReader(text),
			objects.Digest{SHA256: name, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
	}
	table := dynamodb.New(awstest.Config(d.env["AWS_ENDPOINT_URL_DYNAMODB"]), d.env["LARDER_TABLE"])
	item, err := table.Get(t.Context(), catalog.Key{Partition: m.Path(), Sort: "version/" + number})
	if err != nil {
		t.Fatal(err)
	}
	var record registry.ModuleVersion
	if err := json.Unmarshal(item.Data, &record); err != nil {
		t.Fatal(err)
	}
	record.Docs = &registry.StoredFile{Object: key, SHA256: name, Size: int64(len(text))}
	data, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	if err := table.Write(t.Context(), catalog.Change{Key: item.Key, Revision: item.Revision, Data: data}); err != nil {
		t.Fatal(err)
	}
}

// The function serves lists, searches and descriptions from the table, and
// documentation from the bucket.
func TestMetadata(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	for _, name := range []string{"vpc", "lost"} {
		d.publish(t, "acme/"+name+"/aws", "1.0.0", "")
		d.document(t, registry.Module{Namespace: "acme", Name: name, System: "aws"}, "1.0.0", name == "lost")
	}
	for path, want := range map[string]int{
		"/v1/modules": 2, "/v1/modules/search?q=vpc": 1, "/v1/modules/acme/lost": 1, "/v1/modules?limit=1": 2,
	} {
		response, body := d.get(t, path)
		var list protocol.ModuleList
		if err := json.Unmarshal([]byte(body), &list); err != nil || list.Meta.Total != want {
			t.Errorf("%s: %s, %d modules, want %d: %v", path, response.Status, list.Meta.Total, want, err)
		}
	}
	for path, want := range map[string]bool{
		"/v1/modules/acme/vpc/aws": true, "/v1/modules/acme/vpc/aws/1.0.0": true, "/v1/modules/acme/lost/aws": false,
	} {
		response, body := d.get(t, path)
		var detail protocol.ModuleDetail
		if err := json.Unmarshal([]byte(body), &detail); err != nil || detail.Documented != want {
			t.Errorf("%s: %s, documented is %t, want %t: %v", path, response.Status, detail.Documented, want, err)
		}
		if want && detail.Root.Readme != "# vpc" {
			t.Errorf("%s: the README is %q", path, detail.Root.Readme)
		}
	}
	response := d.getOnce(t, "/v1/modules/acme/vpc/aws/download")
	if diff := cmp.Diff("302 1.0.0/download", response.Status[:4]+response.Header.Get("Location")); diff != "" {
		t.Errorf("the newest download (-want +got):\n%s", diff)
	}
	if response, _ := d.get(t, "/v1/modules/acme/vpc/aws/download"); response.Header.Get("X-Terraform-Get") == "" {
		t.Errorf("the newest download leads to %s without a location", response.Status)
	}
	log := d.functions["metadata"].Log()
	for _, part := range []string{d.token, "X-Amz-Signature"} {
		if strings.Contains(log, part) {
			t.Errorf("the log has %s", part)
		}
	}
	if n := strings.Count(log, `"level":"ERROR"`); n != 1 {
		t.Errorf("the log has %d errors, want the missing object:\n%s", n, log)
	}
}

// The function serves texts and images of modules unchanged.
func TestMetadataFiles(t *testing.T) {
	t.Parallel()
	d := deploy(t)
	files := map[string]string{
		"main.tf": "# \u00e9\n", "README.md": "![plan](docs/plan.png)\n",
		"docs/plan.png": "\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x02\x00\x00\x00\x90wS\xde",
	}
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m := rules.Module{
		Dir: dir, Address: registry.Module{Namespace: "acme", Name: "vpc", System: "aws"}, Version: registry.Version{Major: 1},
	}
	if _, err := d.publisher.Module(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		response, body := d.get(t, "/v1/modules/acme/vpc/aws/1.0.0/files/"+name)
		if response.StatusCode != http.StatusOK || body != want {
			t.Errorf("%s: %s %q, want %q", name, response.Status, body, want)
		}
	}
}

// getOnce sends a request, and does not follow a redirect.
func (d deployed) getOnce(t *testing.T, path string) *http.Response {
	t.Helper()
	client := *d.gateway.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+d.gateway.Host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+d.token)
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Fatal(err)
	}
	return response
}
