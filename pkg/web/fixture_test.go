package web_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/sqlite"
	"github.com/larder-registry/larder/pkg/catalog/tabletest"
	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/docs/extract"
	"github.com/larder-registry/larder/pkg/docs/render"
	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/web"
	"github.com/larder-registry/larder/pkg/web/session"
)

const host = "registry.example.com"

var published = time.Date(2026, 11, 2, 9, 12, 0, 0, time.UTC)

// store is a registry for tests.
type store struct {
	t       testing.TB
	table   *tabletest.Recorded
	catalog *catalog.Catalog // without counting
	objects *memory
	now     func() time.Time // of the pages; nil for that of the system
	// downloads and local are those of the pages.
	downloads web.Downloads
	local     *web.Local
}

func newStore(t testing.TB) *store {
	t.Helper()
	table, err := sqlite.Create(t.Context(), filepath.Join(t.TempDir(), "larder.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = table.Close() })
	objects := &memory{content: make(map[string][]byte)}
	return &store{t: t, table: &tabletest.Recorded{Table: table}, catalog: catalog.New(table), objects: objects}
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

// SignGet implements [web.Archives].
func (m *memory) SignGet(_ context.Context, key string) (string, error) {
	return "https://bucket.example.com/" + key + "?X-Amz-Signature=00ff", m.err
}

func number(t testing.TB, text string) registry.Version {
	t.Helper()
	v, err := registry.ParseVersion(text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func address(t testing.TB, text string) registry.Module {
	t.Helper()
	m, err := registry.ParseModule(text)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// byCI is a verified CI job.
func byCI(repository, tag string) registry.Publisher {
	return registry.Publisher{
		Kind: registry.PublisherOIDC, Issuer: "https://token.actions.githubusercontent.com", Subject: "repo:" + repository,
		Repository: repository, Ref: "refs/tags/" + tag, Commit: digest([]byte(repository + tag))[:40],
		RunURL: "https://github.com/" + repository + "/actions/runs/9182",
	}
}

// module publishes a version of a module with the documentation of its files,
// or without documentation if files is nil. edit changes the record.
func (s *store) module(text, version string, files map[string]string, edit ...func(*registry.ModuleVersion)) {
	s.t.Helper()
	m, v := address(s.t, text), number(s.t, version)
	sum := digest([]byte(text + version))
	r := registry.ModuleVersion{
		Version: v, Object: m.ArchiveKey(v, sum), SHA256: sum, ContentSHA256: sum, Size: 42291, PublishedAt: published,
		PublishedBy: byCI(m.Namespace+"/terraform-"+m.System+"-"+m.Name, "v"+version),
		Description: "The description of " + text + ".",
	}
	if files != nil {
		s.document(m, &r, s.extract(m, files))
		r.FilesZip = s.files(m.Path()+"/"+version, files)
	}
	for _, e := range edit {
		e(&r)
	}
	_, _, err := s.catalog.Modules.Publish(s.t.Context(), m, v, "tests",
		func(context.Context, protocol.Document) (registry.ModuleVersion, error) { return r, nil })
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *store) extract(m registry.Module, files map[string]string) docs.Documentation {
	s.t.Helper()
	content, shown := make(map[string][]byte), make(map[string]render.File)
	for name, text := range files {
		content[name] = []byte(text)
		shown[name] = render.File{IsImage: path.Ext(name) == ".svg"}
		shown[path.Dir(name)+"/"] = render.File{}
	}
	d, err := extract.Extract(s.t.Context(), m.Name, content, shown)
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

// files stores the files of a version below a folder. A name that ends in .bin is
// only listed, and one that ends in .svg is an image.
func (s *store) files(folder string, files map[string]string) *registry.StoredFile {
	s.t.Helper()
	var list docs.FileList
	contents := make(map[string][]byte)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		text := files[name]
		f := docs.SourceFile{Path: name, Size: int64(len(text)), Kind: docs.FileText, Lines: strings.Count(text, "\n")}
		switch path.Ext(name) {
		case ".bin":
			f.Kind, f.Lines = docs.FileOther, 0
		case ".svg":
			f.Kind, f.Type, f.Lines = docs.FileImage, docs.TypeSVG, 0
		}
		list.Files, contents[name] = append(list.Files, f), []byte(text)
	}
	data, err := docs.EncodeFiles(list, contents)
	if err != nil {
		s.t.Fatal(err)
	}
	sum := digest(data)
	key := folder + "/" + sum + "/" + registry.FilesName
	s.objects.content[key] = data
	return &registry.StoredFile{Object: key, SHA256: sum, Size: int64(len(data))}
}

// document stores documentation for a record.
func (s *store) document(m registry.Module, r *registry.ModuleVersion, d docs.Documentation) {
	s.t.Helper()
	data, err := docs.Encode(d)
	if err != nil {
		s.t.Fatal(err)
	}
	sum := digest(data)
	key := m.DocumentKey(r.Version, sum, registry.DocsName)
	s.objects.content[key] = data
	r.Docs = &registry.StoredFile{Object: key, SHA256: sum, Size: int64(len(data))}
	r.Contents = extract.ContentsOf(d).Encode()
}

// deprecate deprecates a version of a module, or all if version is empty.
func (s *store) deprecate(text, version, message string, hide bool) {
	s.t.Helper()
	var n *registry.Version
	if version != "" {
		v := number(s.t, version)
		n = &v
	}
	d := catalog.Deprecation{Message: message, Hide: hide, By: "tests"}
	if _, err := s.catalog.Modules.Deprecate(s.t.Context(), address(s.t, text), n, d); err != nil {
		s.t.Fatal(err)
	}
}

func (s *store) withdraw(text, version, reason string) {
	s.t.Helper()
	w := registry.Withdrawal{At: published.AddDate(0, 0, 5), By: "tests", Reason: reason}
	_, _, err := s.catalog.Modules.Withdraw(s.t.Context(), address(s.t, text), number(s.t, version), w, false)
	if err != nil {
		s.t.Fatal(err)
	}
}

// provider publishes a version of a provider.
func (s *store) provider(text, version string) {
	s.t.Helper()
	p, err := registry.ParseProvider(text)
	if err != nil {
		s.t.Fatal(err)
	}
	v := number(s.t, version)
	file := func(name string) registry.StoredFile {
		sum := digest([]byte(text + version + name))
		return registry.StoredFile{Object: p.Path() + "/" + version + "/" + sum + "/" + name, SHA256: sum, Size: 18 << 20}
	}
	name := "terraform-provider-" + p.Type + "_" + version + "_linux_amd64.zip"
	r := registry.ProviderVersion{
		Version: v, Protocols: []string{"6.0"}, Sums: file("SHA256SUMS"), Signature: file("SHA256SUMS.sig"),
		Packages: []registry.ProviderPackage{{
			Platform: registry.Platform{OS: "linux", Arch: "amd64"}, StoredFile: file(name), Filename: name, H1: "h1:x",
		}},
		SigningKey: "51852D87348FFC4C", PublishedAt: published.AddDate(0, 0, 1),
		PublishedBy: registry.Publisher{Kind: registry.PublisherToken, Name: "ci"},
	}
	key := registry.SigningKey{
		ID: r.SigningKey, Owner: "Acme <acme@example.com>", Algorithm: "Ed25519", CreatedAt: published, AddedAt: published,
		ASCIIArmor: "-----BEGIN PGP PUBLIC KEY BLOCK-----\n-----END PGP PUBLIC KEY BLOCK-----\n", AddedBy: "ada",
	}
	if _, err = s.catalog.AddSigningKey(s.t.Context(), p.Namespace, key); err != nil {
		s.t.Fatal(err)
	}
	_, _, err = s.catalog.Providers.Publish(s.t.Context(), p, v, "tests",
		func(context.Context, protocol.Document) (registry.ProviderVersion, error) { return r, nil })
	if err != nil {
		s.t.Fatal(err)
	}
}

// mirrored adds a version of a mirrored provider with the SHA256SUMS of its origin.
func (s *store) mirrored(text, version string) {
	s.t.Helper()
	s.mirroredWith(text, version, &catalog.OriginSums{
		MirrorSums: registry.MirrorSums{SigningKey: "51852D87348FFC4C", Keys: []registry.PublicKey{{ASCIIArmor: "key"}}},
		Lists:      func(string, string) bool { return true },
	})
}

// mirroredWith adds a version of a mirrored provider. sums may be nil.
func (s *store) mirroredWith(text, version string, sums *catalog.OriginSums) {
	s.t.Helper()
	p, err := registry.ParseMirrorProvider(text)
	if err != nil {
		s.t.Fatal(err)
	}
	sum := digest([]byte(text + version))
	pkg := registry.MirrorPackage{
		ProviderPackage: registry.ProviderPackage{
			Platform: registry.Platform{OS: "linux", Arch: "amd64"}, Filename: "x.zip", H1: "h1:x",
			StoredFile: registry.StoredFile{Object: p.Path() + "/" + version + "/" + sum + "/x.zip", SHA256: sum, Size: 5},
		},
		SigningKey: "51852D87348FFC4C", MirroredAt: published.AddDate(0, 0, 2),
		MirroredBy: registry.Publisher{Kind: registry.PublisherUser, Name: "ada"},
	}
	r := registry.MirrorVersion{Version: number(s.t, version), Packages: []registry.MirrorPackage{pkg}}
	if sums != nil {
		sums.Sums = registry.StoredFile{Object: p.Path() + "/" + version + "/" + sum + "/SHA256SUMS", SHA256: sum, Size: 5}
		sums.Signature = sums.Sums
	}
	if _, _, err := s.catalog.Mirror.AddSigned(s.t.Context(), p, r, sums, "tests"); err != nil {
		s.t.Fatal(err)
	}
}

// token adds a token with scopes.
func (s *store) token(scopes ...string) string {
	s.t.Helper()
	token, sum := access.NewToken()
	s.addToken(sum, scopes...)
	return token
}

func (s *store) addToken(sum string, scopes ...string) {
	s.t.Helper()
	err := s.catalog.AddToken(s.t.Context(), sum, registry.Token{Name: fmt.Sprint("tests-", sum[:6]), Scopes: scopes})
	if err != nil {
		s.t.Fatal(err)
	}
}

// server serves the pages of a store.
type server struct {
	http.Handler
	log *bytes.Buffer
}

// serve serves the pages to everyone.
func (s *store) serve() server { return s.serveTo(session.Options{Open: true}) }

// protect serves the pages to holders of tokens, and what the settings make
// public to everyone.
func (s *store) protect(settings string) server {
	s.t.Helper()
	rules, err := access.ParseSettings([]byte(settings))
	if err != nil {
		s.t.Fatal(err)
	}
	return s.serveTo(session.Options{Control: access.New(rules, s.catalog), Store: s.catalog})
}

func (s *store) serveTo(accounts session.Options) server {
	o := web.Options{
		Catalog: catalog.New(s.table), Objects: s.objects, Archives: s.objects, Accounts: session.New(accounts), Host: host, Release: "1.2.3",
		Now: s.now, Downloads: s.downloads, Local: s.local,
	}
	var log bytes.Buffer
	return server{httpapi.Wrap(slog.New(slog.NewTextHandler(&log, nil)), web.New(o)), &log}
}

// get sends a request. header has names and values.
func (s server) get(t testing.TB, path string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// text returns the body of a page, which must have the status.
func (s server) text(t testing.TB, status int, path string, header ...string) string {
	t.Helper()
	w := s.get(t, path, header...)
	if w.Code != status {
		t.Fatalf("GET %s: status %d, want %d: %s\n%s", path, w.Code, status, w.Body, s.log)
	}
	return w.Body.String()
}

func bearer(token string) []string { return []string{"Authorization", "Bearer " + token} }
