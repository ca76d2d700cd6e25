package metadata_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/larder-registry/larder/internal/testkit/clock"
	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/sqlite"
	"github.com/larder-registry/larder/pkg/catalog/tabletest"
	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/metadata"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

var published = time.Date(2026, 11, 22, 6, 55, 44, 0, time.UTC)

// store is a registry for tests. Its items are written directly.
type store struct {
	t       testing.TB
	table   *tabletest.Recorded
	objects *memory
}

func newStore(t testing.TB) *store {
	t.Helper()
	table, err := sqlite.Create(t.Context(), filepath.Join(t.TempDir(), "larder.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = table.Close() })
	return &store{t: t, table: &tabletest.Recorded{Table: table}, objects: &memory{content: make(map[string][]byte)}}
}

// memory has objects. If err is set, it fails.
type memory struct {
	content map[string][]byte
	reads   atomic.Int64
	err     error
}

func (m *memory) Open(_ context.Context, key string, _, _ int64) (io.ReadCloser, error) {
	m.reads.Add(1)
	if m.err != nil {
		return nil, m.err
	}
	content, ok := m.content[key]
	if !ok {
		return nil, registry.ErrNotFound
	}
	return io.NopCloser(bytes.NewReader(content)), nil
}

// put writes an item, as JSON unless it is a document.
func (s *store) put(partition, sort string, v any) {
	s.t.Helper()
	data, ok := v.(protocol.Document)
	if !ok {
		var err error
		if data, err = json.Marshal(v); err != nil {
			s.t.Fatal(err)
		}
	}
	change := catalog.Change{Key: catalog.Key{Partition: partition, Sort: sort}, Data: data}
	if old, err := s.table.Table.Get(s.t.Context(), change.Key); err == nil {
		change.Revision = old.Revision
	}
	if err := s.table.Write(s.t.Context(), change); err != nil {
		s.t.Fatal(err)
	}
}

func version(t testing.TB, text string) registry.Version {
	t.Helper()
	v, err := registry.ParseVersion(text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

const sum = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"

// moduleRecord returns the record of a version of a module.
func moduleRecord(t testing.TB, address, number string) registry.ModuleVersion {
	t.Helper()
	m, err := registry.ParseModule(address)
	if err != nil {
		t.Fatal(err)
	}
	v := version(t, number)
	return registry.ModuleVersion{
		Version: v, Object: m.ArchiveKey(v, sum), SHA256: sum, ContentSHA256: sum, Size: 121, PublishedAt: published,
		Description: "The network of " + address,
		PublishedBy: registry.Publisher{
			Kind: registry.PublisherOIDC, Issuer: "https://token.actions.githubusercontent.com", Subject: "repo:acme/vpc",
			Repository: "acme/vpc", RunURL: "https://github.com/acme/vpc/actions/runs/1",
		},
	}
}

// module publishes versions of a module, the newest first. edit changes its
// entry.
func (s *store) module(address string, edit func(*registry.Summary), versions ...registry.ModuleVersion) {
	s.t.Helper()
	namespace, _, _ := strings.Cut(address, "/")
	summary := registry.Summary{Address: address, Unlisted: true}
	var listing protocol.ModuleListing
	for _, v := range versions {
		s.put("modules/"+address, "version/"+v.Version.String(), v)
		if !v.Listed() {
			continue
		}
		listing.Versions = append(listing.Versions, protocol.ListModule(v))
		if summary.Unlisted {
			summary = registry.Summary{
				Address: address, Latest: v.Version, Description: v.Description, PublishedAt: v.PublishedAt,
				Source: v.PublishedBy.SourceURL(),
			}
		}
	}
	document := protocol.Document{}
	if len(listing.Versions) > 0 {
		var err error
		if document, err = protocol.Compress(listing); err != nil {
			s.t.Fatal(err)
		}
	}
	if edit != nil {
		edit(&summary)
	}
	s.put("modules/"+address, "listing", document)
	for _, v := range versions {
		if v.Version == summary.Latest && len(v.Contents) > 0 {
			summary.Contents = fmt.Sprintf("%x", sha256.Sum256(v.Contents))[:12]
			s.put("catalog/"+namespace, "contents/modules/"+address, protocol.Document(v.Contents))
		}
	}
	s.put("catalog/"+namespace, "modules/"+address, summary)
	s.put("namespaces", namespace, struct{}{})
}

// provider publishes version 1.0.0 of a provider.
func (s *store) provider(address string) {
	s.t.Helper()
	namespace, kind, _ := strings.Cut(address, "/")
	v := version(s.t, "1.0.0")
	file := func(name string) registry.StoredFile {
		return registry.StoredFile{Object: "providers/" + address + "/1.0.0/" + sum + "/" + name, SHA256: sum, Size: 116}
	}
	name := "terraform-provider-" + kind + "_1.0.0_linux_amd64.zip"
	r := registry.ProviderVersion{
		Version: v, Protocols: []string{"6.0"}, Sums: file("SHA256SUMS"), Signature: file("SHA256SUMS.sig"),
		Packages: []registry.ProviderPackage{{
			Platform: registry.Platform{OS: "linux", Arch: "amd64"}, StoredFile: file(name), Filename: name, H1: "h1:x",
		}},
		SigningKey: "51852D87348FFC4C", PublishedAt: published,
		PublishedBy: registry.Publisher{Kind: registry.PublisherToken, Name: "ci"},
	}
	document, err := protocol.Compress(protocol.ProviderListing{Versions: []protocol.ListedProvider{
		protocol.ListProvider(r),
	}})
	if err != nil {
		s.t.Fatal(err)
	}
	s.put("providers/"+address, "version/1.0.0", r)
	s.put("providers/"+address, "listing", document)
	s.put("catalog/"+namespace, "providers/"+address,
		registry.Summary{Address: address, Latest: v, PublishedAt: published})
	s.put("namespaces", namespace, struct{}{})
}

// mirrored adds a mirrored provider with a version, without its record.
func (s *store) mirrored(address, latest string) {
	s.t.Helper()
	document, err := protocol.Compress(protocol.MirrorListing{version(s.t, latest)})
	if err != nil {
		s.t.Fatal(err)
	}
	s.put("mirror/"+address, "listing", document)
	s.put("catalog/mirror", "mirror/"+address, registry.Summary{Address: address, Latest: version(s.t, latest)})
}

// proven adds a mirrored provider with a version that clients can verify.
func (s *store) proven(address, number string) {
	s.t.Helper()
	s.mirrored(address, number)
	record := mirrorRecord(s.t, number)
	file := record.Packages[0].StoredFile
	record.Sums = []registry.MirrorSums{{Sums: file, Signature: file, Keys: []registry.PublicKey{{ASCIIArmor: "key"}}}}
	record.Packages[0].Sums = 1
	s.put("mirror/"+address, "version/"+number, record)
	s.list("mirror/"+address, protocol.MirrorListing{record.Version}.Index(
		map[registry.Version][]registry.Platform{record.Version: record.Verifiable()}))
}

// mirroredVPC is the address of the tests' mirrored module.
const mirroredVPC = "registry.opentofu.org/acme/vpc/aws"

// mirroredModule mirrors versions of a module, the newest first.
func (s *store) mirroredModule(numbers ...string) {
	s.t.Helper()
	var listing protocol.MirrorListing
	for _, number := range numbers {
		record := moduleMirrorRecord(s.t, number)
		record.Module.FilesZip = s.files("mirror-modules/" + mirroredVPC + "/" + number + "/")
		listing = append(listing, record.Version)
		s.put("mirror-modules/"+mirroredVPC, "version/"+number, record)
	}
	s.list("mirror-modules/"+mirroredVPC, listing)
	s.put("catalog/mirror", "mirror-modules/"+mirroredVPC, registry.Summary{Address: mirroredVPC, Latest: listing[0]})
}

// moduleMirrorRecord returns the record of a version of the tests' mirrored module.
func moduleMirrorRecord(t testing.TB, number string) registry.MirrorVersion {
	t.Helper()
	return registry.MirrorVersion{Version: version(t, number), Module: &registry.MirroredModule{
		StoredFile: registry.StoredFile{
			Object: "mirror-modules/" + mirroredVPC + "/" + number + "/" + sum + "/vpc.tar.gz", SHA256: sum, Size: 121,
		},
		Pin: registry.ModulePin{
			Source: "https://github.com/acme/terraform-aws-vpc", Commit: "0123456789abcdef0123456789abcdef01234567", H1: "h1:x",
		},
		MirroredAt: published, MirroredBy: registry.Publisher{Kind: registry.PublisherAWS, Name: "ada"},
	}}
}

// origin adds what the mirror has seen of a provider.
func (s *store) origin(o registry.MirrorOrigin) {
	s.t.Helper()
	s.change(o.Address, nil, func(state *catalog.MirrorState) { state.Origin = o })
}

// change changes the state of a mirrored provider, and of a version unless n is nil.
func (s *store) change(address string, n *registry.Version, edit func(*catalog.MirrorState)) {
	s.t.Helper()
	p, err := registry.ParseMirrorAddress(address)
	if err != nil {
		s.t.Fatal(err)
	}
	state, err := catalog.New(s.table.Table).Mirror.State(s.t.Context(), p, p.Hostname, n, time.Now())
	if err == nil {
		err = state.Update(s.t.Context(), func() error {
			edit(state)
			return nil
		})
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// policy sets the policy of the mirror.
func (s *store) policy(rules ...registry.MirrorRule) {
	s.t.Helper()
	s.put("policy", "mirror", registry.MirrorPolicy{Text: "any", Rules: rules})
}

// documented returns a record with documentation and files.
func (s *store) documented(r registry.ModuleVersion, d docs.Documentation) registry.ModuleVersion {
	s.t.Helper()
	text, err := docs.Encode(d)
	if err != nil {
		s.t.Fatal(err)
	}
	folder := strings.TrimSuffix(r.Object, sum+".tar.gz")
	r.Docs = s.object(folder, registry.DocsName, text)
	r.FilesZip = s.files(folder)
	return r
}

// object stores an object below a folder.
func (s *store) object(folder, name string, data []byte) *registry.StoredFile {
	digest := sha256.Sum256(data)
	f := &registry.StoredFile{SHA256: hex.EncodeToString(digest[:]), Size: int64(len(data))}
	f.Object = folder + f.SHA256 + "/" + name
	s.objects.content[f.Object] = data
	return f
}

// script is an SVG image that runs a script in a browser that lets it.
const script = `<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>`

// files stores the files of a version.
func (s *store) files(folder string) *registry.StoredFile {
	s.t.Helper()
	contents := map[string][]byte{
		"README.md": []byte("# VPC\n\n![plan](docs/plan.svg)\n"), "main.tf": []byte("# <script>alert(1)</script>\n"),
		"docs/plan.svg": []byte(script), "docs/my plan (1).png": []byte("\x89PNG\r\n\x1a\n"), "page.html": []byte("<h1>x</h1>"),
	}
	data, err := docs.EncodeFiles(docs.FileList{
		Files: []docs.SourceFile{
			{Path: "README.md", Size: int64(len(contents["README.md"])), Kind: docs.FileText, Lines: 3},
			{Path: "docs/my plan (1).png", Size: 8, Kind: docs.FileImage, Type: "image/png"},
			{Path: "docs/plan.svg", Size: int64(len(script)), Kind: docs.FileImage, Type: docs.TypeSVG},
			{Path: "large.bin", Size: 1 << 30, Kind: docs.FileOther},
			{Path: "main.tf", Size: int64(len(contents["main.tf"])), Kind: docs.FileText, Lines: 1},
			{Path: "page.html", Size: 10, Kind: docs.FileText, Lines: 1},
		},
		Notes: []string{"Files that are only listed, because they are too large (256 KiB for a text, 1 MiB for an image): 1."},
	}, contents)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.object(folder, registry.FilesName, data)
}

// token adds a token with scopes.
func (s *store) token(scopes ...string) string {
	s.t.Helper()
	token, digest := access.NewToken()
	s.addToken(digest, scopes...)
	return token
}

func (s *store) addToken(digest string, scopes ...string) {
	s.t.Helper()
	err := catalog.New(s.table.Table).AddToken(s.t.Context(), digest,
		registry.Token{Name: fmt.Sprint("tests ", digest[:6]), Scopes: scopes})
	if err != nil {
		s.t.Fatal(err)
	}
}

// server is the API of a store, and its log.
type server struct {
	http.Handler
	log *bytes.Buffer
}

// serve serves the API to everyone.
func (s *store) serve() server { return s.serveWith(access.Everyone) }

// protect serves the API to holders of tokens.
func (s *store) protect(settings string) server {
	s.t.Helper()
	rules, err := access.ParseSettings([]byte(settings))
	if err != nil {
		s.t.Fatal(err)
	}
	return s.serveWith(access.New(rules, catalog.New(s.table.Table)).Identify)
}

func (s *store) serveWith(read func(http.Handler) http.Handler) server {
	return logged(metadata.New(catalog.New(s.table), s.objects, catalog.New(s.table), read))
}

// serveAt is like serve, with another clock.
func (s *store) serveAt(wall *clock.Clock) server {
	return logged(metadata.NewAt(catalog.New(s.table), s.objects, access.Everyone, wall))
}

func logged(api http.Handler) server {
	var log bytes.Buffer
	return server{httpapi.Wrap(slog.New(slog.NewTextHandler(&log, nil)), api), &log}
}

// get sends a request. header has names and values.
func (s server) get(t testing.TB, path string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	return s.send(t, http.MethodGet, path, header...)
}

func (s server) send(t testing.TB, method, path string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// read decodes the response to a request, which must be 200.
func read[T any](t testing.TB, s server, path string, header ...string) (v T) {
	t.Helper()
	w := s.get(t, path, header...)
	if w.Code != http.StatusOK {
		t.Fatalf("GET %s: status %d, want 200: %s", path, w.Code, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
	return v
}
