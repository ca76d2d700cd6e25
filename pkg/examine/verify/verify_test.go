package verify_test

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/awstest"
	"github.com/larder-registry/larder/internal/testkit/dynamodbtest"
	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/internal/testkit/keys"
	"github.com/larder-registry/larder/internal/testkit/progresstest"
	"github.com/larder-registry/larder/internal/testkit/s3test"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/dynamodb"
	"github.com/larder-registry/larder/pkg/catalog/sqlite"
	"github.com/larder-registry/larder/pkg/content/archive"
	"github.com/larder-registry/larder/pkg/content/signing"
	"github.com/larder-registry/larder/pkg/examine/verify"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/objects/disk"
	"github.com/larder-registry/larder/pkg/objects/s3"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
)

var (
	vpc       = registry.Module{Namespace: "acme", Name: "vpc", System: "aws"}
	inventory = registry.Provider{Namespace: "acme", Type: "inventory"}
	mirrored  = registry.MirrorAddress{Hostname: "registry.example.com", Namespace: inventory.Namespace, Name: inventory.Type}
	one       = version("1.0.0")
)

func version(s string) registry.Version {
	v, err := registry.ParseTag(s)
	if err != nil {
		panic(err)
	}
	return v
}

// data is a registry in a folder.
type data struct {
	dir     string
	table   catalog.Table
	catalog *catalog.Catalog
	store   objects.Store
	close   func() error
}

func open(ctx context.Context, dir string) (data, error) {
	store, err := disk.Open(dir)
	if err != nil {
		return data{}, err
	}
	table, err := sqlite.Create(ctx, filepath.Join(dir, "larder.db"))
	return data{dir, table, catalog.New(table), store, func() error {
		return errors.Join(table.Close(), store.Close())
	}}, err
}

// fill publishes versions with everything that a version can have.
func (d data) fill(ctx context.Context) error {
	key, err := signer()
	if err != nil {
		return err
	}
	err = d.addKey(ctx, key)
	for _, v := range []string{"1.0.0", "1.1.0", "2.0.0-rc.1"} {
		err = errors.Join(err, d.publishModule(ctx, v), d.publishProvider(ctx, v), d.mirror(ctx, v))
	}
	hidden := version("1.1.0")
	_, hiding := d.catalog.Modules.Deprecate(ctx, vpc, &hidden,
		catalog.Deprecation{Message: "it is broken", Hide: true, By: "ada"})
	_, all := d.catalog.Providers.Deprecate(ctx, inventory, nil, catalog.Deprecation{Message: "use another", By: "ada"})
	_, broken := d.catalog.Providers.Deprecate(ctx, inventory, &hidden,
		catalog.Deprecation{Message: "it is broken", By: "ada"})
	return errors.Join(err, hiding, all, broken)
}

func (d data) publisher() *publish.Publisher {
	by := registry.Publisher{Kind: registry.PublisherUser, Name: "somebody"}
	return &publish.Publisher{Catalog: d.catalog, Objects: d.store, By: by}
}

var signer = sync.OnceValues(func() (keys.SigningKey, error) { return keys.NewSigningKey("Ed25519", 0) })

func (d data) addKey(ctx context.Context, key keys.SigningKey) error {
	public, err := signing.ParseKey(key.Public, time.Now())
	if err != nil {
		return err
	}
	_, err = d.catalog.AddSigningKey(ctx, "acme", registry.SigningKey{ID: public.ID, ASCIIArmor: public.ASCIIArmor})
	return err
}

func (d data) publishModule(ctx context.Context, v string) error {
	dir, err := os.MkdirTemp("", "larder-test-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte("# "+v+"\n"), 0o600); err != nil {
		return err
	}
	_, err = d.publisher().Module(ctx,
		rules.Module{Dir: dir, Address: vpc, Version: version(v), Description: "of " + v})
	return err
}

// release writes and signs the release of a provider. No client could run it.
func release(dir, v string) error {
	name := "terraform-provider-inventory_" + v
	var sums strings.Builder
	for _, platform := range []string{"linux_amd64", "linux_arm64"} {
		var out bytes.Buffer
		z := zip.NewWriter(&out)
		header := &zip.FileHeader{Name: "terraform-provider-inventory_v" + v, Method: zip.Deflate}
		header.SetMode(0o755)
		w, err := z.CreateHeader(header)
		if err == nil {
			_, err = io.WriteString(w, "program for "+platform)
		}
		if err := errors.Join(err, z.Close(),
			os.WriteFile(filepath.Join(dir, name+"_"+platform+".zip"), out.Bytes(), 0o600)); err != nil {
			return err
		}
		sum := sha256.Sum256(out.Bytes())
		fmt.Fprintf(&sums, "%s  %s_%s.zip\n", hex.EncodeToString(sum[:]), name, platform)
	}
	if err := os.WriteFile(filepath.Join(dir, name+"_SHA256SUMS"), []byte(sums.String()), 0o600); err != nil {
		return err
	}
	key, err := signer()
	if err != nil {
		return err
	}
	return key.SignRelease(dir)
}

func (d data) publishProvider(ctx context.Context, v string) error {
	dir, err := os.MkdirTemp("", "larder-test-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := release(dir, v); err != nil {
		return err
	}
	_, err = d.publisher().Provider(ctx, rules.Provider{Dir: dir, Address: inventory, Protocols: []string{"6.0"}})
	return err
}

func (d data) mirror(ctx context.Context, v string) error {
	dir, err := os.MkdirTemp("", "larder-test-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := release(dir, v); err != nil {
		return err
	}
	name := mirrored.Filename(version(v), registry.Platform{OS: "linux", Arch: "amd64"})
	content, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	found, err := archive.ReadProvider(ctx, bytes.NewReader(content), int64(len(content)), inventory.Type)
	if err != nil {
		return err
	}
	pkg := publish.MirrorPackage{Path: filepath.Join(dir, name), ProviderPackage: registry.ProviderPackage{
		Platform: registry.Platform{OS: "linux", Arch: "amd64"}, Filename: name, H1: found.H1,
		StoredFile: registry.StoredFile{SHA256: found.SHA256, Size: found.Size},
	}}
	_, _, err = d.publisher().Mirror(ctx, mirrored, version(v), []publish.MirrorPackage{pkg})
	return err
}

// intact creates a registry without faults.
var intact = sync.OnceValues(func() (string, error) {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "larder-verify-*")
	if err != nil {
		return "", err
	}
	d, err := open(ctx, dir)
	if err != nil {
		return "", err
	}
	return dir, errors.Join(d.fill(ctx), d.close())
})

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, err := intact(); err == nil {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// restored returns a copy of that registry, which is how a backup is restored.
func restored(t *testing.T) data {
	t.Helper()
	from, err := intact()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	d, err := open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.close() })
	return d
}

// verified verifies the registry two days later, when no publish can be
// running.
func (d data) verified(t *testing.T, change ...func(*verify.Verifier)) verify.Report {
	t.Helper()
	v := verify.Verifier{Catalog: d.catalog, Objects: d.store, Now: func() time.Time {
		return time.Now().Add(48 * time.Hour)
	}}
	for _, f := range change {
		f(&v)
	}
	report, err := v.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// summary returns a short form of the findings.
func summary(r verify.Report) []string {
	found := []string{}
	for _, f := range r.Findings {
		s := strings.TrimSpace(fmt.Sprintf("%s %s %s", f.Kind, f.Path, f.Version))
		if f.Note {
			s += " (note)"
		}
		found = append(found, s)
	}
	return found
}

func repairing(v *verify.Verifier) { v.Repair = true }

func TestIntact(t *testing.T) {
	t.Parallel()
	report := restored(t).verified(t)
	want := verify.Report{
		Modules:   1,
		Providers: 1,
		Mirrored:  1,
		Versions:  9,
		Objects:   3*3 + 3*4 + 3,
		Bytes:     report.Bytes,
		Findings:  []verify.Finding{},
	}
	if diff := cmp.Diff(want, report); diff != "" || report.Bytes == 0 {
		t.Error(diff)
	}
	quick := restored(t).verified(t, func(v *verify.Verifier) { v.Quick = true })
	if len(quick.Findings) > 0 || quick.Bytes >= report.Bytes {
		t.Errorf("%+v", quick)
	}
}

// Sessions are not part of a verification, whatever the trail contains.
func TestSessionsAreNotVerified(t *testing.T) {
	t.Parallel()
	d := restored(t)
	until := time.Now().Add(time.Hour)
	session := registry.Session{Identity: registry.Identity{Name: "ada", Token: "gone"}, ExpiresAt: until}
	login := &catalog.UsedLogin{Digest: strings.Repeat("1", 64), Until: until}
	if err := d.catalog.AddSession(t.Context(), strings.Repeat("0", 64), session, login); err != nil {
		t.Fatal(err)
	}
	if found := summary(d.verified(t)); len(found) > 0 {
		t.Errorf("findings: %q", found)
	}
}

// item changes an item of the table directly. If change is nil, it removes the
// item.
func (d data) item(t *testing.T, partition, sort string, change func([]byte) []byte) {
	t.Helper()
	item, err := d.table.Get(t.Context(), catalog.Key{Partition: partition, Sort: sort})
	if err != nil && !errors.Is(err, registry.ErrNotFound) {
		t.Fatal(err)
	}
	c := catalog.Change{Key: catalog.Key{Partition: partition, Sort: sort}, Revision: item.Revision, Delete: change == nil}
	if change != nil {
		c.Data = change(item.Data)
	}
	if err := d.table.Write(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

// data returns the data of an item.
func (d data) data(t *testing.T, partition, sort string) []byte {
	t.Helper()
	item, err := d.table.Get(t.Context(), catalog.Key{Partition: partition, Sort: sort})
	if err != nil {
		t.Fatal(err)
	}
	return item.Data
}

func with(data []byte) func([]byte) []byte { return func([]byte) []byte { return data } }

// record changes a record.
func record[T any](t *testing.T, change func(*T)) func([]byte) []byte {
	return func(data []byte) []byte {
		var r T
		if err := json.Unmarshal(data, &r); err != nil {
			t.Fatal(err)
		}
		change(&r)
		data, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
}

// object changes an object in the folder. If change is nil, it removes the
// object.
func (d data) object(t *testing.T, key string, change func([]byte) []byte) {
	t.Helper()
	path := filepath.Join(d.dir, "objects", filepath.FromSlash(key))
	content, err := os.ReadFile(path)
	if err == nil {
		err = os.Remove(path)
	}
	if err == nil && change != nil {
		err = os.WriteFile(path, change(content), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func flip(b []byte) []byte {
	b[len(b)/2] ^= 1
	return b
}

func (d data) module(t *testing.T) registry.ModuleVersion {
	t.Helper()
	r, err := d.catalog.Modules.Get(t.Context(), vpc, one)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (d data) provider(t *testing.T) registry.ProviderVersion {
	t.Helper()
	r, err := d.catalog.Providers.Get(t.Context(), inventory, one)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (d data) put(t *testing.T, key string) {
	t.Helper()
	const content = "x"
	sum := sha256.Sum256([]byte(content))
	if err := d.store.PutOnce(t.Context(), key, strings.NewReader(content),
		objects.Digest{SHA256: hex.EncodeToString(sum[:]), Size: int64(len(content))}); err != nil {
		t.Fatal(err)
	}
}

// Every slow part reports its progress up to its end.
func TestProgress(t *testing.T) {
	t.Parallel()
	var progress progresstest.Recorder
	restored(t).verified(t, func(v *verify.Verifier) { v.Progress = &progress })
	progress.CheckComplete(t, "reading the audit trail", "listing namespaces", "listing namespace acme",
		"verifying namespace acme: ", "listing the mirror", "verifying the mirror: ", "comparing with the audit trail")
	for _, part := range progress.Transfers("verifying ") {
		if part.Size == 0 {
			t.Errorf("reported %+v", part)
		}
	}
}

// corruption changes a registry.
type corruption func(*testing.T, data)

// changing changes an item. If change is nil, it removes the item.
func changing(partition, sort string, change func([]byte) []byte) corruption {
	return func(t *testing.T, d data) { d.item(t, partition, sort, change) }
}

// changed changes a record or an entry.
func changed[T any](partition, sort string, change func(*T)) corruption {
	return func(t *testing.T, d data) { d.item(t, partition, sort, record(t, change)) }
}

// object changes the object that a function returns.
func object(of func(*testing.T, data) string, change func([]byte) []byte) corruption {
	return func(t *testing.T, d data) { d.object(t, of(t, d), change) }
}

// all makes several changes.
func all(changes ...corruption) corruption {
	return func(t *testing.T, d data) {
		for _, change := range changes {
			change(t, d)
		}
	}
}

// Objects of the first versions.
func archiveOf(t *testing.T, d data) string   { return d.module(t).Object }
func zipOf(t *testing.T, d data) string       { return d.provider(t).Packages[0].Object }
func otherZipOf(t *testing.T, d data) string  { return d.provider(t).Packages[1].Object }
func signatureOf(t *testing.T, d data) string { return d.provider(t).Signature.Object }
func mirroredZipOf(t *testing.T, d data) string {
	r, err := d.catalog.Mirror.Get(t.Context(), mirrored, one)
	if err != nil {
		t.Fatal(err)
	}
	return r.Packages[0].Object
}

// addAnotherKey adds a new key to the namespace.
func addAnotherKey(t *testing.T, d data) {
	other, err := keys.NewSigningKey("Ed25519", 0)
	if err := errors.Join(err, d.addKey(t.Context(), other)); err != nil {
		t.Fatal(err)
	}
}

// compressed returns a listing.
func compressed(t *testing.T, listing any) func([]byte) []byte {
	data, err := protocol.Compress(listing)
	if err != nil {
		t.Fatal(err)
	}
	return with(data)
}

// outcome has the findings of a corruption, and whether a repair corrects it.
type outcome struct {
	want   []string
	mended bool
}

// Each corruption causes exactly the expected findings. A repair rebuilds what
// can be derived from the versions, and leaves the other findings.
func TestCorruptions(t *testing.T) {
	t.Parallel()
	const (
		m, p, o        = "modules/acme/vpc/aws", "providers/acme/inventory", "mirror/registry.example.com/acme/inventory"
		catalogItem, v = "catalog/acme", "version/1.0.0"
		second, third  = "version/1.1.0", "version/2.0.0-rc.1"
		broken         = `{"version": 1`
	)
	month := time.Now().UTC().Format("2006-01")
	trail := func(data string) corruption {
		return changing("audit/"+month, month+"-01T00:00:00.000000000Z#x", with([]byte(data)))
	}
	moduleListing := func(versions ...registry.Version) corruption {
		var l protocol.ModuleListing
		for _, v := range versions {
			l.Versions = append(l.Versions, protocol.ListedModule{Version: v})
		}
		return changing(m, "listing", compressed(t, l))
	}
	text := func(partition, sort, data string) corruption { return changing(partition, sort, with([]byte(data))) }
	lose := func(partition string, sorts ...string) corruption {
		return func(t *testing.T, d data) {
			for _, sort := range sorts {
				d.item(t, partition, sort, nil)
			}
		}
	}
	put := func(keys ...string) corruption {
		return func(t *testing.T, d data) {
			for _, key := range keys {
				d.put(t, key)
			}
		}
	}
	type (
		module = registry.ModuleVersion
		hosted = registry.ProviderVersion
		copied = registry.MirrorVersion
		entry  = registry.Summary
	)
	left := func(findings ...string) outcome { return outcome{findings, false} }
	mended := func(findings ...string) outcome { return outcome{findings, true} }
	tests := map[string]struct {
		corrupt corruption
		outcome
	}{
		"module without archive": {object(archiveOf, nil), left("version-without-object " + m + " 1.0.0")},
		"module cut short": {
			object(archiveOf, func(b []byte) []byte { return b[:len(b)-1] }), left("size " + m + " 1.0.0"),
		},
		"module with other bytes": {object(archiveOf, flip), left("sha256 " + m + " 1.0.0")},
		"module with other content": {
			changed(m, v, func(r *module) { r.ContentSHA256 = r.SHA256 }), left("content " + m + " 1.0.0"),
		},
		"package without zip":      {object(zipOf, nil), left("version-without-object " + p + " 1.0.0")},
		"package with other bytes": {object(otherZipOf, flip), left("sha256 " + p + " 1.0.0")},
		"package with another h1": {
			changed(p, v, func(r *hosted) { r.Packages[0].H1 = "h1:x" }), left("h1 " + p + " 1.0.0"),
		},
		"sums of other packages": {
			changed(p, v, func(r *hosted) { r.Packages[0].Filename = "other.zip" }), left("sums " + p + " 1.0.0"),
		},
		"signature with other bytes": {object(signatureOf, flip), left("sha256 " + p + " 1.0.0")},
		"signature by no key of the namespace": {
			func(t *testing.T, d data) {
				addAnotherKey(t, d)
				if err := d.catalog.RemoveSigningKey(t.Context(), "acme", d.provider(t).SigningKey, "ada"); err != nil {
					t.Fatal(err)
				}
			},
			left("signature "+p+" 1.0.0", "signature "+p+" 1.1.0", "signature "+p+" 2.0.0-rc.1"),
		},
		"mirrored package with another h1": {
			changed(o, v, func(r *copied) { r.Packages[0].H1 = "h1:x" }), left("h1 " + o + " 1.0.0"),
		},
		"mirrored package without zip":    {object(mirroredZipOf, nil), left("version-without-object " + o + " 1.0.0")},
		"module listed without a version": {moduleListing(one), mended("listing " + m)},
		// The listing may be the only trace of it.
		"module listed with a version too many": {
			moduleListing(version("9.0.0"), one), left("version-without-record " + m + " 9.0.0"),
		},
		"module not listed":           {lose(m, "listing"), mended("listing " + m)},
		"listing that cannot be read": {text(m, "listing", "no gzip"), mended("listing " + m)},
		"provider listed without a platform": {
			changing(p, "listing", func(data []byte) []byte {
				l, err := protocol.Decode[protocol.ProviderListing](data)
				if err != nil {
					t.Fatal(err)
				}
				l.Versions[1].Platforms = l.Versions[1].Platforms[:1]
				return compressed(t, l)(nil)
			}),
			mended("listing " + p),
		},
		"mirrored provider not listed": {lose(o, "listing"), mended("listing " + o)},
		"module with another latest version": {
			changed(catalogItem, m, func(s *entry) { s.Latest = version("2.0.0-rc.1") }), mended("catalog-entry " + m),
		},
		"module with a latest version that is nowhere else": {
			changed(catalogItem, m, func(s *entry) { s.Latest = version("9.0.0") }),
			left("version-without-record " + m + " 9.0.0"),
		},
		"module without entry":                         {lose(catalogItem, m), mended("catalog-entry " + m)},
		"provider without entry":                       {lose(catalogItem, p), mended("catalog-entry " + p)},
		"mirrored provider whose entry cannot be read": {text("catalog/mirror", o, "{"), mended("catalog-entry " + o)},
		"no namespace":                                 {lose("namespaces", "acme"), mended("namespace namespaces/acme")},
		"nothing but versions": {
			all(lose("namespaces", "acme"), lose(catalogItem, m), lose(m, "listing")),
			mended("catalog-entry "+m, "listing "+m, "namespace namespaces/acme"),
		},
		"record that cannot be read": {text(m, v, broken), left("record " + m + " 1.0.0")},
		"record of another version": {
			changed(m, v, func(r *module) { r.Version = version("9.0.0") }), left("record " + m + " 1.0.0"),
		},
		// A rebuilt listing would lack this version.
		"record that cannot be read, and no listing": {
			all(text(m, v, broken), lose(m, "listing")), left("listing "+m, "record "+m+" 1.0.0"),
		},
		"key that cannot be read":   {text("keys/acme", "0123456789ABCDEF", "?"), left("record keys/acme")},
		"token that cannot be read": {text("tokens", "abc", "?"), left("record tokens")},
		"archive without record": {
			lose(m, v),
			left(
				"object-without-version "+m+" 1.0.0", // the archive, the documentation and the files
				"object-without-version "+m+" 1.0.0", "object-without-version "+m+" 1.0.0", "version-without-record "+m+" 1.0.0"),
		},
		// Only the trail has them, and the catalog entry has one.
		"records and listing lost": {
			lose(m, "listing", v, second, third),
			left(
				"object-without-version "+m+" 1.0.0", "object-without-version "+m+" 1.0.0",
				"object-without-version "+m+" 1.0.0", "object-without-version "+m+" 1.1.0",
				"object-without-version "+m+" 1.1.0", "object-without-version "+m+" 1.1.0",
				"object-without-version "+m+" 2.0.0-rc.1", "object-without-version "+m+" 2.0.0-rc.1",
				"object-without-version "+m+" 2.0.0-rc.1",
				"version-without-record "+m+" 1.0.0", "version-without-record "+m+" 1.1.0",
				"version-without-record "+m+" 2.0.0-rc.1"),
		},
		"all lost but the trail": {
			all(object(mirroredZipOf, nil), lose(o, "listing", v, second, third), lose("catalog/mirror", o)),
			left(
				"object-without-version "+o+" 1.1.0", "object-without-version "+o+" 2.0.0-rc.1",
				"version-without-record "+o+" 1.0.0", "version-without-record "+o+" 1.1.0",
				"version-without-record "+o+" 2.0.0-rc.1"),
		},
		// Its listing would make clients install the wrong module.
		"record under another address": {
			func(t *testing.T, d data) {
				d.item(t, "modules/acme/db/aws", v, with(d.data(t, m, v)))
				d.item(t, catalogItem, "modules/acme/db/aws", with([]byte("{}")))
			},
			left("listing modules/acme/db/aws", "record modules/acme/db/aws 1.0.0"),
		},
		"record with another object": {
			changed(m, v, func(r *module) { r.SHA256 = r.ContentSHA256 }), left("record " + m + " 1.0.0"),
		},
		"mirrored record without packages": {
			changed(o, v, func(r *copied) { r.Packages = nil }), left("record " + o + " 1.0.0"),
		},
		"record with another size": {changed(m, v, func(r *module) { r.Size++ }), left("size " + m + " 1.0.0")},
		"signature by another key than recorded": {
			func(t *testing.T, d data) {
				addAnotherKey(t, d)
				keys, err := d.catalog.SigningKeys(t.Context(), "acme")
				if err != nil {
					t.Fatal(err)
				}
				is := d.provider(t).SigningKey
				d.item(t, p, v, record(t, func(r *hosted) {
					for _, k := range keys {
						if k.ID != is {
							r.SigningKey = k.ID
						}
					}
				}))
			},
			left("signature " + p + " 1.0.0"),
		},
		// Clients receive the signer's key first and do not reach it.
		"key that clients cannot read": {
			text("keys/acme", "0000000000000000", `{"id":"0000000000000000","ascii_armor":"garbage"}`),
			left("record keys/acme"),
		},
		"deprecations that contradict one another": {
			changed(catalogItem, p, func(s *entry) { s.Deprecated = "" }), left("catalog-entry " + p),
		},
		"entry of a provider that says nothing": {text(catalogItem, p, "{}"), mended("catalog-entry " + p)},
		"entries in another namespace's catalog": {
			all(text(catalogItem, "modules/other/vpc/aws", `{"address":"other/vpc/aws","latest":"1.0.0"}`),
				text("namespaces", "zeta", "{}"), text("catalog/zeta", m, `{"address":"acme/vpc/aws","latest":"1.0.0"}`)),
			left("catalog-entry "+m, "catalog-entry modules/other/vpc/aws"),
		},
		"entry of the trail that cannot be read": {trail("?"), left("audit audit")},
		"entry of the trail about no address": {
			trail(`{"at":"` + month + `-01T00:00:00Z","action":"publish","subject":"modules/x","version":"1.0.0"}`),
			left("audit audit"),
		},
		"archive of nothing": {
			put("modules/other/one/aws/1.0.0/abc.tar.gz"), left("object-without-version modules/other/one/aws 1.0.0"),
		},
		"object under no address": {
			put("providers/stray", "modules/acme/x"),
			left("object-without-version modules/acme", "object-without-version providers"),
		},
		"entry of nothing": {text(catalogItem, "modules/acme/gone/aws", "{}"), left("catalog-entry modules/acme/gone/aws")},
		"what the publish API left": {
			put(p + "/1.0.0/api/abc/manifest.json"), left("object-without-version " + p + " 1.0.0 (note)"),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := restored(t)
			test.corrupt(t, d)
			slices.Sort(test.want)
			sorted := func(r verify.Report) []string {
				found := summary(r)
				slices.Sort(found)
				return found
			}
			report := d.verified(t)
			if diff := cmp.Diff(test.want, sorted(report)); diff != "" {
				t.Errorf("%s\n%+v", diff, report.Findings)
			}
			before := d.versions(t)
			repaired := d.verified(t, repairing)
			if diff := cmp.Diff(test.want, sorted(repaired)); diff != "" {
				t.Error("repairing: ", diff)
			}
			after := test.want
			if test.mended {
				after = []string{}
			}
			left := d.verified(t)
			if diff := cmp.Diff(after, sorted(left)); diff != "" {
				t.Errorf("after the repair: %s\n%+v", diff, left.Findings)
			}
			if repaired.Faults() != left.Faults() {
				t.Errorf("a repair leaves %d faults and says %d", left.Faults(), repaired.Faults())
			}
			if diff := cmp.Diff(before, d.versions(t)); diff != "" {
				t.Error("a repair changes versions: ", diff)
			}
		})
	}
}

// versions returns the items of all versions.
func (d data) versions(t *testing.T) map[string]string {
	t.Helper()
	found := make(map[string]string)
	for _, partition := range []string{vpc.Path(), inventory.Path(), mirrored.Path()} {
		page, err := d.table.Query(t.Context(), catalog.Query{Partition: partition, Prefix: "version/"})
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range page.Items {
			found[partition+" "+item.Sort] = fmt.Sprintf("%d %s", item.Revision, item.Data)
		}
	}
	return found
}

// Data of a provider's catalog entry is also in its listing. It survives if the
// entry is lost or lacks it.
func TestDeprecationComesBack(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func([]byte) []byte{
		"gone": nil, "empty": with([]byte("{}")),
		"garbled": with([]byte("{")), "another's": with([]byte(`{"address":"acme/other"}`)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := restored(t)
			before := d.data(t, inventory.Path(), "listing")
			d.item(t, "catalog/acme", inventory.Path(), change)
			if report := d.verified(t, repairing); report.Faults() > 0 {
				t.Fatalf("%+v", report)
			}
			for summary, err := range d.catalog.Providers.Summaries(t.Context(), "acme") {
				if err != nil || summary.Deprecated != "use another" || summary.Latest != version("1.1.0") {
					t.Errorf("%+v, %v", summary, err)
				}
			}
			if !bytes.Equal(before, d.data(t, inventory.Path(), "listing")) {
				t.Error("the listing is another one")
			}
		})
	}
}

// A published number stays reserved if its record is lost. Neither a repair nor
// a publish reuses it until it is withdrawn. The copy of the registry is as
// young as a running publish, and that hides no fault.
func TestLostRecord(t *testing.T) {
	t.Parallel()
	d := restored(t)
	now := func(v *verify.Verifier) { v.Now = nil }
	for _, path := range []string{vpc.Path(), inventory.Path(), mirrored.Path()} {
		d.item(t, path, "version/1.0.0", nil)
		d.item(t, path, "version/1.1.0", nil)
	}
	listed := d.data(t, vpc.Path(), "listing")
	report := d.verified(t, now, repairing)
	lost := 0
	for _, f := range report.Findings {
		if f.Kind == verify.VersionWithoutRecord {
			lost++
		}
	}
	// Each version has an archive with documentation and files, four files of a
	// provider, and a package.
	if lost != 6 || report.Faults() != lost+2*(3+4+1) || report.Versions != 3 {
		t.Errorf("%+v", report)
	}
	if !bytes.Equal(listed, d.data(t, vpc.Path(), "listing")) {
		t.Error("a repair has removed the lost version from the listing")
	}
	for _, publish := range []func(context.Context, string) error{d.publishModule, d.publishProvider, d.mirror} {
		if err := publish(t.Context(), "1.0.0"); !errors.Is(err, registry.ErrCorrupt) ||
			!strings.Contains(err.Error(), "1.0.0") {
			t.Errorf("published again: %v", err)
		}
	}
	remover, ok := d.store.(publish.Remover)
	if !ok {
		t.Fatal("the store is another one")
	}
	hidden := version("1.1.0") // not in any listing
	w := &publish.Withdrawer{Catalog: d.catalog, Objects: remover}
	if _, err := w.Withdraw(t.Context(), vpc, hidden, "a typo"); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("withdrawn without --missing: %v", err)
	}
	for _, a := range []registry.Address{vpc, inventory, mirrored} {
		for _, v := range []registry.Version{one, hidden} {
			if _, err := (&publish.Withdrawer{
				Catalog: d.catalog, Objects: remover, Missing: true,
			}).Withdraw(t.Context(), a, v, "its record is lost"); err != nil {
				t.Fatal(a, v, err)
			}
		}
	}
	if report := d.verified(t, now); len(report.Findings) > 0 || report.Versions != 3 {
		t.Errorf("withdrawn: %+v", report)
	}
	for _, publish := range []func(context.Context, string) error{d.publishModule, d.publishProvider, d.mirror} {
		if err := publish(t.Context(), "1.0.0"); !errors.Is(err, registry.ErrWithdrawn) {
			t.Errorf("published again: %v", err)
		}
	}
}

// A signature by an expired key is served, and clients accept it.
func TestExpiredKey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d, err := open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.close() })
	key, err := keys.NewSigningKey("Ed25519", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	public, err := signing.ParseKey(key.Public, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	released := t.TempDir()
	_, adding := d.catalog.AddSigningKey(t.Context(), "acme",
		registry.SigningKey{ID: public.ID, ASCIIArmor: public.ASCIIArmor, ExpiresAt: time.Now().Add(time.Hour)})
	if err := errors.Join(adding, release(released, "1.0.0"), key.SignRelease(released)); err != nil {
		t.Fatal(err)
	}
	if _, err := d.publisher().Provider(t.Context(),
		rules.Provider{Dir: released, Address: inventory, Protocols: []string{"6.0"}}); err != nil {
		t.Fatal(err)
	}
	if report := d.verified(t, func(v *verify.Verifier) { v.Now = nil }); len(report.Findings) > 0 {
		t.Errorf("%+v", report)
	}
	if report := d.verified(t); report.Faults() > 0 || len(report.Findings) != 1 ||
		report.Findings[0].Kind != verify.Signature ||
		!report.Findings[0].Note {
		t.Errorf("%+v", report)
	}
}

// Faults have a fix that depends on the kind of change. Notes have none.
// The notes in the records of copies are notes.
func TestCopyNotes(t *testing.T) {
	t.Parallel()
	d, err := open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.close() })
	key, err := signer()
	if err != nil {
		t.Fatal(err)
	}
	dir, released := t.TempDir(), t.TempDir()
	err = errors.Join(d.addKey(t.Context(), key), release(released, "1.0.0"),
		os.Remove(filepath.Join(released, "terraform-provider-inventory_1.0.0_linux_arm64.zip")),
		os.WriteFile(filepath.Join(dir, "main.tf"), []byte("varible \"x\" {}\n"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	_, err = d.publisher().Module(t.Context(), rules.Module{
		Dir: dir, Address: vpc, Version: registry.Version{Major: 1}, CopiedFrom: &registry.CopiedFrom{Source: "x.example/acme/vpc/aws"},
	})
	if err == nil {
		_, err = d.publisher().Provider(t.Context(), rules.Provider{
			Dir: released, Address: inventory, Protocols: []string{"6.0"}, CopiedFrom: &registry.CopiedFrom{Source: "x.example/acme/inventory"},
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	report := d.verified(t)
	var found []string
	for _, f := range report.Findings {
		found = append(found, string(f.Kind)+" "+f.Path+" "+f.Detail)
	}
	slices.Sort(found)
	want := []string{
		"copy-note modules/acme/vpc/aws main.tf:1:1: there is no block varible. Did you mean variable?",
		"copy-note providers/acme/inventory terraform-provider-inventory_1.0.0_linux_arm64.zip is listed in SHA256SUMS, but is missing",
	}
	if diff := cmp.Diff(want, found); diff != "" || report.Faults() > 0 {
		t.Errorf("%d faults, findings (-want +got):\n%s", report.Faults(), diff)
	}
}

func TestAdvice(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	d := restored(t)
	d.object(t, d.provider(t).Packages[0].Object, flip)
	d.object(t, d.provider(t).Signature.Object, nil)
	d.item(t, vpc.Path(), "version/1.0.0", record(t, func(r *registry.ModuleVersion) { r.Size++ }))
	d.item(t, vpc.Path(), "version/1.1.0", record(t, func(r *registry.ModuleVersion) { r.ContentSHA256 = "x" }))
	d.item(t, mirrored.Path(), "listing", nil)
	d.put(t, inventory.Path()+"/1.0.0/api/abc/manifest.json")
	advice := make(map[verify.Kind]string)
	var inFolder []string
	for _, f := range d.verified(t).Findings {
		advice[f.Kind] = f.Fix
	}
	want := []verify.Kind{
		verify.Content, verify.Listing, verify.ObjectWithoutVersion, verify.SHA256, verify.Size, verify.VersionWithoutObject,
	}
	found := slices.Sorted(maps.Keys(advice))
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("kinds of findings (-want +got):\n%s", diff)
	}
	for _, kind := range found {
		if note := kind == verify.ObjectWithoutVersion; note != (advice[kind] == "") {
			t.Errorf("%s: the fix is %q", kind, advice[kind])
		}
		texts.Text(t, string(kind)+": "+advice[kind]+"\n")
	}
	for _, f := range d.verified(t, func(v *verify.Verifier) { v.IsFolder = true }).Findings {
		if text := fmt.Sprintf("%s: %s\n", f.Kind, f.Fix); advice[f.Kind] != f.Fix && !slices.Contains(inFolder, text) {
			inFolder = append(inFolder, text)
		}
	}
	texts.Text(t, "In a folder:\n"+strings.Join(inFolder, ""))
	// The fix works.
	key := d.provider(t).Packages[0].Object
	d.object(t, key, nil)
	if err := d.publishProvider(t.Context(), "1.0.0"); err != nil {
		t.Fatal(err)
	}
	for _, f := range d.verified(t, repairing).Findings {
		if f.Object == key || f.Repaired && f.Fix != "" {
			t.Errorf("%+v", f)
		}
	}
}

// A young object may belong to a running publish, unless there is none or the
// whole catalog is lost.
func TestAtRest(t *testing.T) {
	t.Parallel()
	d := restored(t)
	d.put(t, vpc.ArchiveKey(version("3.0.0"), "abc"))
	d.put(t, vpc.Path()+"/4.0.0/api/abc/x.tar.gz")
	d.put(t, inventory.Path()+"/1.0.0/api/abc/manifest.json")
	for rest, faults := range map[bool]int{false: 0, true: 2} {
		report := d.verified(t, func(v *verify.Verifier) { v.Now, v.AtRest = nil, rest })
		if len(report.Findings) != 3 || report.Faults() != faults {
			t.Errorf("at rest %v: %+v", rest, report.Findings)
		}
	}
	if err := errors.Join(d.close(), os.Remove(filepath.Join(d.dir, "larder.db"))); err != nil {
		t.Fatal(err)
	}
	empty, err := open(t.Context(), d.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer empty.close()
	if report := empty.verified(t, func(v *verify.Verifier) {
		v.Now = nil
	}); report.Faults() != 3*3+3*4+3+3 || report.Modules+report.Providers+report.Mirrored > 0 {
		t.Errorf("%+v", report)
	}
}

// The manifest of a published provider is not reported as long as it is staged.
func TestStagedManifest(t *testing.T) {
	t.Parallel()
	const manifest = "/api/abc/terraform-provider-inventory_1.0.0_manifest.json"
	provider := inventory.Path()
	found := func(path, more string) []string { return []string{"object-without-version " + path + more} }
	for name, test := range map[string]struct {
		key  string
		age  time.Duration
		rest bool
		want []string
	}{
		"new":                {provider + "/1.0.0" + manifest, 0, false, []string{}},
		"new, at rest":       {provider + "/1.0.0" + manifest, 0, true, []string{}},
		"about to expire":    {provider + "/1.0.0" + manifest, 71 * time.Hour, true, []string{}},
		"not expired":        {provider + "/1.0.0" + manifest, 73 * time.Hour, false, found(provider, " 1.0.0 (note)")},
		"of another version": {provider + "/9.0.0" + manifest, 0, true, found(provider, " 9.0.0")},
		"that an operator put": {
			provider + "/1.0.0" + strings.TrimPrefix(manifest, "/api"), 0, true, found(provider, " 1.0.0"),
		},
		"of a module": {vpc.Path() + "/1.0.0" + manifest, 0, false, found(vpc.Path(), " 1.0.0 (note)")},
	} {
		d := restored(t)
		d.put(t, test.key)
		report := d.verified(t, func(v *verify.Verifier) {
			v.AtRest, v.Now = test.rest, func() time.Time { return time.Now().Add(test.age) }
		})
		if diff := cmp.Diff(test.want, summary(report)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// A concurrent publish is never a fault, and a repair removes none of it.
func TestWhilePublishing(t *testing.T) {
	t.Parallel()
	d := restored(t)
	done := make(chan error, 3)
	const versions = 12
	for _, publish := range []func(context.Context, string) error{d.publishModule, d.publishProvider, d.mirror} {
		go func() {
			var err error
			for i := range versions {
				err = errors.Join(err, publish(t.Context(), fmt.Sprintf("3.%d.0", i)))
			}
			done <- err
		}()
	}
	for left := 3; left > 0; {
		select {
		case err := <-done:
			if left--; err != nil {
				t.Error(err)
			}
		default:
			report := d.verified(t, repairing, func(v *verify.Verifier) { v.Now = nil })
			for _, f := range report.Findings {
				if !f.Note {
					t.Errorf("%+v", f)
				}
			}
		}
	}
	report := d.verified(t)
	if len(report.Findings) > 0 || report.Versions != 9+3*versions {
		t.Errorf("%+v", report)
	}
}

// The results are the same with DynamoDB and S3.
func TestOnAWS(t *testing.T) {
	t.Parallel()
	server := s3test.ForTest(t, "larder")
	dynamo, err := dynamodbtest.Start(t.Context(), "larder")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dynamo.Close)
	table := dynamodb.New(awstest.Config(dynamo.URL), "larder")
	d := data{
		table:   table,
		catalog: catalog.New(table),
		store:   s3.New(awstest.Config(server.URL), "larder", s3.Options{PathStyle: true}),
	}
	if err := d.fill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if report := d.verified(t); len(report.Findings) > 0 || report.Versions != 9 || report.Objects != 24 {
		t.Fatalf("%+v", report)
	}
	client := awss3.NewFromConfig(awstest.Config(server.URL), func(o *awss3.Options) { o.UsePathStyle = true })
	if _, err := client.DeleteObject(t.Context(),
		&awss3.DeleteObjectInput{Bucket: new("larder"), Key: new(d.module(t).Object)}); err != nil {
		t.Fatal(err)
	}
	d.item(t, inventory.Path(), "listing", nil)
	d.item(t, vpc.Path(), "version/2.0.0-rc.1", nil)
	lost := []string{
		"version-without-object " + vpc.Path() + " 1.0.0",
		"object-without-version " + vpc.Path() + " 2.0.0-rc.1", // the archive, the documentation and the files
		"object-without-version " + vpc.Path() + " 2.0.0-rc.1",
		"object-without-version " + vpc.Path() + " 2.0.0-rc.1",
		"version-without-record " + vpc.Path() + " 2.0.0-rc.1",
	}
	if diff := cmp.Diff(append(lost, "listing "+inventory.Path()), summary(d.verified(t, repairing))); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(lost, summary(d.verified(t))); diff != "" {
		t.Error(diff)
	}
}

// hooked is a table that calls a function before the versions of the module are
// read for the nth time.
type hooked struct {
	catalog.Table
	queries int
	before  func(n int)
}

func (h *hooked) Query(ctx context.Context, q catalog.Query) (catalog.Page, error) {
	if q.Partition == vpc.Path() {
		h.queries++
		h.before(h.queries)
	}
	return h.Table.Query(ctx, q)
}

// A concurrent publish makes neither its listing nor its archive a fault,
// whenever it happens.
func TestPublishInBetween(t *testing.T) {
	t.Parallel()
	for when := 1; when <= 2; when++ {
		d := restored(t)
		object := vpc.ArchiveKey(version("3.0.0"), "abc")
		if when == 2 { // an object has no version then, but has one when it is read again
			d.put(t, object)
		}
		table := &hooked{Table: d.table, before: func(n int) {
			if n != when {
				return
			}
			var err error
			if when == 1 {
				err = d.publishModule(t.Context(), "3.0.0")
			} else {
				record := registry.ModuleVersion{Version: version("3.0.0"), Object: object, SHA256: "abc", Size: 1}
				makeRecord := func(context.Context, protocol.Document) (registry.ModuleVersion, error) { return record, nil }
				_, _, err = d.catalog.Modules.Publish(t.Context(), vpc, record.Version, "somebody", makeRecord)
			}
			if err != nil {
				t.Error(err)
			}
		}}
		report := d.verified(t, func(v *verify.Verifier) { v.Catalog = catalog.New(table) })
		if len(report.Findings) > 0 || table.queries < when+1 {
			t.Errorf("%d: after %d queries %+v", when, table.queries, report.Findings)
		}
	}
}

// taken is a store that removes a version while it is read.
type taken struct {
	objects.Store
	key  string
	take func()
}

func (s taken) Stat(ctx context.Context, key string) (objects.Info, error) {
	if key == s.key {
		s.take()
	}
	return s.Store.Stat(ctx, key)
}

// A version that is removed while it is read is not a fault.
func TestVersionThatGoes(t *testing.T) {
	t.Parallel()
	d := restored(t)
	key := d.module(t).Object
	var once sync.Once
	store := taken{d.store, key, func() {
		once.Do(func() {
			d.object(t, key, nil)
			if _, _, err := d.catalog.Of(vpc).Withdraw(t.Context(), version("1.0.0"),
				registry.Withdrawal{At: time.Now(), By: "wim", Reason: "it has a key"}, false); err != nil {
				t.Error(err)
			}
		})
	}}
	if report := d.verified(t, func(v *verify.Verifier) { v.Objects = store }); len(report.Findings) > 0 {
		t.Errorf("%+v", report.Findings)
	}
}

// A read error is not a finding.
func TestStoreFails(t *testing.T) {
	t.Parallel()
	d := restored(t)
	for _, kind := range []string{"modules/", "providers/", "mirror/"} {
		v := verify.Verifier{Catalog: d.catalog, Objects: broken{d.store, kind}}
		if report, err := v.Run(t.Context()); !errors.Is(err, errDead) {
			t.Errorf("%s: %+v, %v", kind, report, err)
		}
	}
}

var errDead = errors.New("the line went dead")

// broken is a store that fails to read objects with a prefix.
type broken struct {
	objects.Store
	prefix string
}

func (b broken) Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	in, err := b.Store.Open(ctx, key, offset, length)
	if !strings.HasPrefix(key, b.prefix) {
		return in, err
	}
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(io.LimitReader(in, 10), &failing{}), in}, err
}

// failing fails once, and then returns io.EOF.
type failing struct{ failed bool }

func (f *failing) Read([]byte) (int, error) {
	if f.failed {
		return 0, io.EOF
	}
	f.failed = true
	return 0, errDead
}
