package calls_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/larder-registry/larder/internal/testkit/awstest"
	"github.com/larder-registry/larder/internal/testkit/builds"
	"github.com/larder-registry/larder/internal/testkit/dynamodbtest"
	"github.com/larder-registry/larder/internal/testkit/providerfiles"
	"github.com/larder-registry/larder/internal/testkit/stock"
	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/dynamodb"
	"github.com/larder-registry/larder/pkg/catalog/sqlite"
	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/content/signing"
	"github.com/larder-registry/larder/pkg/discovery"
	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/objects/disk"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/publish/inspection"
	"github.com/larder-registry/larder/pkg/publish/publishapi"
	"github.com/larder-registry/larder/pkg/publish/publishclient"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/settings"
)

// The addresses that operations use.
var (
	module   = registry.Module{Namespace: "direct", Name: "vpc", System: "aws"}
	provider = registry.Provider{Namespace: "acme", Type: "note"}
	mirrored = registry.MirrorAddress{Hostname: "registry.example.com", Namespace: provider.Namespace, Name: provider.Type}
	// mirroredModule is another one, so that its rows begin with an empty mirror.
	mirroredModule = registry.MirrorAddress{Hostname: "registry.example.com", Namespace: "far", Name: "vpc", System: "aws"}
)

var operator = registry.Publisher{Kind: registry.PublisherUser, Name: "operator"}

// countedRegistry is a registry in this process whose calls are counted.
type countedRegistry struct {
	*counter
	table   *countedTable
	catalog *catalog.Catalog
	objects *disk.Store
	store   countedStore         // counts the calls of objects
	dynamo  *dynamodbtest.Server // nil on SQLite
	signer  string               // the id of the signing key
}

// openSQLite and openDynamoDB open an empty registry. The signing key of
// [builds] is one of its namespace acme.
func openSQLite(t *testing.T) *countedRegistry {
	t.Helper()
	table, err := sqlite.Create(t.Context(), filepath.Join(t.TempDir(), "larder.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = table.Close() })
	return open(t, table)
}

func openDynamoDB(t *testing.T) *countedRegistry {
	t.Helper()
	const name = "larder"
	dynamo, err := dynamodbtest.Start(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dynamo.Close)
	r := open(t, dynamodb.New(awstest.Config(dynamo.URL), name))
	r.dynamo = dynamo
	return r
}

func open(t *testing.T, table catalog.Table) *countedRegistry {
	t.Helper()
	r := &countedRegistry{counter: &counter{}}
	r.table = &countedTable{Table: table, counter: r.counter}
	r.catalog = catalog.New(r.table)
	var err error
	if r.objects, err = disk.Open(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.objects.Close() })
	r.objects.BaseURL = "https://registry.example.com"
	r.store = countedStore{r.objects, r.counter}
	key, err := builds.Signer()
	if err != nil {
		t.Fatal(err)
	}
	public, err := signing.ParseKey(key.Public, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	r.signer = public.ID
	if _, err := r.catalog.AddSigningKey(t.Context(), provider.Namespace, public); err != nil {
		t.Fatal(err)
	}
	return r
}

// token adds a credential with scopes.
func (r *countedRegistry) token(t *testing.T, scopes ...string) string {
	t.Helper()
	token, digest := access.NewToken()
	record := registry.Token{Name: strings.Join(scopes, " "), Scopes: scopes}
	if err := r.catalog.AddToken(t.Context(), digest, record); err != nil {
		t.Fatal(err)
	}
	return token
}

func (r *countedRegistry) publisher() *publish.Publisher {
	return &publish.Publisher{Catalog: r.catalog, Objects: r.store, By: operator}
}

// through calls do with a client of the publish API. A new process serves the
// API, so that no credential is cached.
func (r *countedRegistry) through(
	t *testing.T, token string, do func(context.Context, *publishclient.Publisher) error,
) error {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	onDisk := *r.objects
	store := countedStore{&onDisk, r.counter}
	const readable = publishapi.OwnObjects
	api := publishapi.New(r.catalog, store, readable, inspection.InThisProcess{}, settings.DefaultPublishLimits)
	var rules access.Settings
	server.Config.Handler = httpapi.Wrap(slog.New(slog.DiscardHandler), httpapi.Join(
		httpapi.Service{Routes: discovery.Routes(), Handler: discovery.New(discovery.Larder(), rules.Login.Service())},
		httpapi.Service{Routes: publishapi.Routes(), Handler: access.New(rules, r.catalog).RequirePublish(api)},
		httpapi.Service{Routes: disk.Routes(), Handler: store.uploads(onDisk.Handler())},
	))
	server.StartTLS()
	defer server.Close()
	onDisk.BaseURL = server.URL
	host := strings.TrimPrefix(server.URL, "https://")
	file := filepath.Join(t.TempDir(), "tofurc")
	text := fmt.Appendf(nil, "credentials %q {\n  token = %q\n}\n", host, token)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return err
	}
	config, err := client.LoadConfig([]string{"TF_CLI_CONFIG_FILE=" + file}, "")
	if err != nil {
		return err
	}
	c := client.New(config, "larder/test", r.sending(server))
	p, err := publishclient.Open(t.Context(), c, host)
	if err != nil {
		return err
	}
	p.Interval = time.Millisecond
	return do(t.Context(), p)
}

// release writes a signed release of a provider of the namespace acme. Its zips
// have at least size bytes.
func release(t *testing.T, kind string, v registry.Version, platforms, size int) builds.Release {
	t.Helper()
	random := make([]byte, size) // which cannot be compressed
	_, _ = rand.NewChaCha8([32]byte{}).Read(random)
	r := builds.Release{Dir: t.TempDir(), Name: "terraform-provider-" + kind + "_" + v.String()}
	for _, platform := range stock.Platforms[:platforms] {
		program := map[string]string{"terraform-provider-" + kind + "_v" + v.String(): "program for " + platform.String() + string(random)}
		r.Zip(t, r.Name+"_"+platform.String()+".zip", program)
	}
	r.Write(t, r.Name+"_manifest.json", `{"version": 1, "metadata": {"protocol_versions": ["6.0"]}}`)
	r.Sign(t)
	return r
}

// originServices is the path of an origin's provider registry protocol.
const originServices = "/v1/providers/"

// offerModule lets a registry have versions of the module mirroredModule, whose
// archives it has itself.
func offerModule(t *testing.T, at *http.ServeMux, versions int) {
	t.Helper()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	w, main := tar.NewWriter(z), []byte("output \"it\" { value = 1 }\n")
	err := w.WriteHeader(&tar.Header{Name: "main.tf", Mode: 0o644, Size: int64(len(main))})
	if err == nil {
		_, err = w.Write(main)
	}
	if err := errors.Join(err, w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	var listing protocol.ModuleListing
	for n := range versions {
		listing.Versions = append(listing.Versions, protocol.ListedModule{Version: stock.Version(n + 1)})
	}
	path := originServices + mirroredModule.Module().String()
	at.HandleFunc("GET "+path+"/versions", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(listing) // the client detects a truncated response
	})
	at.HandleFunc("GET "+path+"/{version}/download", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Terraform-Get", "/files/vpc.tar.gz")
		w.WriteHeader(http.StatusNoContent)
	})
	at.HandleFunc("GET /files/vpc.tar.gz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(packed.Bytes()) // the client detects a truncated response
	})
}

// startOrigin starts a registry that has versions of the provider for one
// platform, and of a module. The counter counts the requests.
func startOrigin(t *testing.T, requests *counter, versions int) *httptest.Server {
	t.Helper()
	key, err := builds.Signer()
	if err != nil {
		t.Fatal(err)
	}
	platform := stock.Platforms[0]
	mux := http.NewServeMux()
	document := func(path string, content any) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(content) // the client detects a truncated response
		})
	}
	document("/.well-known/terraform.json", map[string]string{"providers.v1": originServices, "modules.v1": originServices})
	offerModule(t, mux, versions)
	var listing protocol.ProviderListing
	for n := range versions {
		v := stock.Version(n + 1)
		listing.Versions = append(listing.Versions, protocol.ListedProvider{
			Version: v, Protocols: []string{"6.0"}, Platforms: []registry.Platform{platform},
		})
		r := release(t, provider.Type, v, 1, 0)
		zip, err := os.ReadFile(filepath.Join(r.Dir, r.Name+"_"+platform.String()+".zip"))
		if err != nil {
			t.Fatal(err)
		}
		files := "/files/" + v.String() + "/"
		mux.Handle("GET "+files, http.StripPrefix(files, http.FileServer(http.Dir(r.Dir))))
		path := fmt.Sprintf("%s%s/%s/download/%s/%s", originServices, provider, v, platform.OS, platform.Arch)
		document(path, protocol.ProviderDownload{
			Protocols: []string{"6.0"}, OS: platform.OS, Arch: platform.Arch,
			Filename: r.Name + "_" + platform.String() + ".zip", DownloadURL: files + r.Name + "_" + platform.String() + ".zip",
			SHASum: providerfiles.Sum(zip), SHASumsURL: files + r.Name + "_SHA256SUMS",
			SHASumsSignatureURL: files + r.Name + "_SHA256SUMS.sig",
			SigningKeys:         protocol.ProviderKeys{GPGPublicKeys: []registry.PublicKey{{ASCIIArmor: string(key.Public)}}},
		})
	}
	document(fmt.Sprintf("%s%s/versions", originServices, provider), listing)
	origin := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.add(func(c *count) { c.Origin++ })
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(origin.Close)
	return origin
}
