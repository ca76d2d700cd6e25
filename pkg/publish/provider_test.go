package publish_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/builds"
	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/internal/testkit/keys"
	"github.com/larder-registry/larder/internal/testkit/progresstest"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/tabletest"
	"github.com/larder-registry/larder/pkg/content/signing"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
)

var inventory = registry.Provider{Namespace: "acme", Type: "inventory"}

// addKey adds a public key to the namespace, and returns its ID.
func (b backend) addKey(t testing.TB, k keys.SigningKey) string {
	t.Helper()
	key, err := signing.ParseKey(k.Public, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	stored := registry.SigningKey{ID: key.ID, ASCIIArmor: key.ASCIIArmor}
	if _, err := catalog.New(b.table).AddSigningKey(t.Context(), inventory.Namespace, stored); err != nil {
		t.Fatal(err)
	}
	return key.ID
}

// signer returns the key that signs the releases.
func signer(t testing.TB) keys.SigningKey {
	t.Helper()
	key, err := builds.Signer()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// release is a folder with a provider's release. Its programs cannot run.
type release struct{ builds.Release }

func newRelease(t testing.TB, version string, platforms ...string) release {
	t.Helper()
	return release{builds.NewRelease(t, version, platforms...)}
}

func (r release) provider() rules.Provider {
	return rules.Provider{Dir: r.Dir, Address: inventory}
}

func (b backend) providerVersions(t *testing.T) string {
	t.Helper()
	versions, err := catalog.New(b.table).Providers.All(t.Context(), inventory)
	if errors.Is(err, registry.ErrNotFound) {
		return "[]"
	}
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, v := range versions {
		for _, f := range append([]registry.StoredFile{v.Sums, v.Signature}, v.Packages[0].StoredFile) {
			if _, err := b.store.Stat(t.Context(), f.Object); err != nil {
				t.Errorf("version %s is visible without %s: %v", v.Version, f.Object, err)
			}
		}
		got = append(got, v.Version.String())
	}
	return fmt.Sprint(got)
}

func TestProvider(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, empty func(*testing.T) backend) {
		b := empty(t)
		key := signer(t)
		id := b.addKey(t, key)
		r := newRelease(t, "1.0.0", "linux_amd64", "darwin_arm64", "windows_amd64")
		p := b.publisher()
		progress := &progresstest.Recorder{}
		p.Progress = progress
		result, err := p.Provider(t.Context(), r.provider())
		if err != nil {
			t.Fatal(err)
		}
		if result.Unchanged {
			t.Error("the first publish reports that nothing changed")
		}
		if len(result.Shared) != 0 {
			t.Errorf("shared: %v", result.Shared)
		}
		record := result.Record
		if record.SigningKey != id {
			t.Errorf("signing key: %s, want %s", record.SigningKey, id)
		}
		if diff := cmp.Diff([]string{"5.0", "6.0"}, record.Protocols); diff != "" {
			t.Errorf("protocols: (-want +got)\n%s", diff)
		}
		if len(record.Packages) != 3 || record.Packages[0].String() != "darwin_arm64" {
			t.Errorf("packages: %+v", record.Packages)
		}
		if got := record.PublishedBy.String(); got != "somebody" {
			t.Errorf("published by %s", got)
		}
		for _, pkg := range record.Packages {
			data, err := os.ReadFile(filepath.Join(r.Dir, pkg.Filename))
			sum := sha256.Sum256(data)
			if err != nil {
				t.Fatal(err)
			}
			want := registry.StoredFile{
				SHA256: hex.EncodeToString(sum[:]), Size: int64(len(data)),
				Object: "providers/acme/inventory/1.0.0/" + pkg.SHA256 + "/" + pkg.Filename,
			}
			if diff := cmp.Diff(want, pkg.StoredFile); diff != "" {
				t.Errorf("%s: (-want +got)\n%s", pkg.Filename, diff)
			}
			if !strings.HasPrefix(pkg.H1, "h1:") {
				t.Errorf("%s: H1 is %q", pkg.Filename, pkg.H1)
			}
		}
		progress.CheckComplete(t, "checking "+r.Name+"_linux_amd64.zip", "comparing 5 files with the store")
		if sent := progress.Transfers("uploading "); len(sent) != 6 { // a total, and one for each file
			t.Errorf("uploads: %+v", sent)
		}
		if b.objects(t) != 5 || b.providerVersions(t) != "[1.0.0]" {
			t.Errorf("%d objects, %s", b.objects(t), b.providerVersions(t))
		}

		// A release that is signed again has the same content.
		r.Resign(t)
		again, err := b.publisher().Provider(t.Context(), r.provider())
		if err != nil {
			t.Fatal(err)
		}
		if !again.Unchanged || again.Record.Signature != record.Signature {
			t.Errorf("publishing again: %+v", again)
		}
		if n := b.objects(t); n != 5 {
			t.Errorf("publishing again: %d objects, want 5", n)
		}
		// Other content under the same version is rejected.
		other := newRelease(t, "1.0.0", "linux_amd64")
		if _, err := b.publisher().
			Provider(t.Context(), other.provider()); !errors.Is(err, registry.ErrExists) ||
			b.objects(t) != 5 {
			t.Errorf("%v, %d objects", err, b.objects(t))
		}
		// Another version joins the listing.
		rc := newRelease(t, "1.1.0-rc.1", "linux_amd64").provider()
		if _, err := b.publisher().Provider(t.Context(), rc); err != nil {
			t.Fatal(err)
		}
		if got := b.providerVersions(t); got != "[1.1.0-rc.1 1.0.0]" {
			t.Errorf("versions: %s", got)
		}
		// A dry run stores nothing.
		dry := newRelease(t, "2.0.0", "linux_amd64").provider()
		if _, err := b.publisher().
			CheckProvider(t.Context(), dry); err != nil ||
			b.providerVersions(t) != "[1.1.0-rc.1 1.0.0]" {
			t.Errorf("%v, %s", err, b.providerVersions(t))
		}
	})
}

// TestSignHere signs a release that consists only of zips.
func TestSignHere(t *testing.T) {
	t.Parallel()
	b := embedded(t)
	key := signer(t)
	r := release{builds.Release{Dir: t.TempDir(), Name: "terraform-provider-inventory_1.0.0"}}
	r.Zip(t, r.Name+"_linux_amd64.zip", map[string]string{"terraform-provider-inventory": "program"})
	m := r.provider()
	m.SignKey = key.Private
	texts := golden.New(t)
	if _, err := b.publisher().Provider(t.Context(), m); !errors.Is(err, registry.ErrInvalid) {
		t.Errorf("without a manifest: got error %v, want ErrInvalid", err)
	} else {
		record(t, texts, err)
	}
	m.Protocols = []string{"6.0"}
	if _, err := b.publisher().Provider(t.Context(), m); !errors.Is(err, registry.ErrInvalid) {
		t.Errorf("without a key of the namespace: got error %v, want ErrInvalid", err)
	} else {
		record(t, texts, err)
	}
	id := b.addKey(t, key)
	result, err := b.publisher().Provider(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	if result.Record.SigningKey != id {
		t.Errorf("signing key: %s, want %s", result.Record.SigningKey, id)
	}
	if diff := cmp.Diff(m.Protocols, result.Record.Protocols); diff != "" {
		t.Errorf("protocols: (-want +got)\n%s", diff)
	}
	if entries, err := os.ReadDir(r.Dir); err != nil || len(entries) != 1 {
		t.Errorf("the folder was changed: %v, %v", entries, err)
	}
	// An existing SHA256SUMS is signed if it is correct, and not created again.
	signed := newRelease(t, "1.1.0", "linux_amd64")
	if err := os.Remove(filepath.Join(signed.Dir, signed.Name+"_SHA256SUMS.sig")); err != nil {
		t.Fatal(err)
	}
	m = signed.provider()
	m.SignKey = key.Private
	if _, err := b.publisher().Provider(t.Context(), m); err != nil {
		t.Error(err)
	}
	wrong := newRelease(t, "1.2.0", "linux_amd64")
	if err := os.Remove(filepath.Join(wrong.Dir, wrong.Name+"_SHA256SUMS.sig")); err != nil {
		t.Fatal(err)
	}
	wrong.Zip(t, wrong.Name+"_linux_amd64.zip", map[string]string{"terraform-provider-inventory": "another program"})
	m.Dir = wrong.Dir
	if _, err := b.publisher().Provider(t.Context(), m); !errors.Is(err, registry.ErrInvalid) {
		t.Errorf("wrong sums: got error %v, want ErrInvalid", err)
	} else {
		record(t, texts, err)
	}
}

// variable matches the parts of errors that differ between test runs: key IDs
// and SHA256 sums.
var variable = regexp.MustCompile(`\b[0-9A-F]{16}\b|\b[0-9a-f]{64}\b`)

// record records an error in texts.
func record(t *testing.T, texts *golden.Texts, err error) {
	t.Helper()
	var replace []string
	for _, text := range variable.FindAllString(err.Error(), -1) {
		replace = append(replace, text, "VARIABLE")
	}
	texts.Error(t, err, replace...)
}

// TestReleaseRefused checks that a release that clients would reject is
// rejected before anything is stored.
func TestReleaseRefused(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	b := embedded(t)
	key := signer(t)
	b.addKey(t, key)
	stranger, err := keys.NewSigningKey("Ed25519", 0)
	if err != nil {
		t.Fatal(err)
	}
	const linux = "terraform-provider-inventory_1.0.0_linux_amd64.zip"
	rezip := func(files map[string]string) func(*testing.T, release) {
		return func(t *testing.T, r release) { r.Zip(t, linux, files); r.Sign(t) }
	}
	for name, change := range map[string]func(*testing.T, release){
		"a zip that does not match its sum": func(t *testing.T, r release) {
			r.Zip(t, linux, map[string]string{"terraform-provider-inventory": "another program"})
		},
		"a foreign key": func(t *testing.T, r release) {
			if err := stranger.SignRelease(r.Dir); err != nil {
				t.Fatal(err)
			}
		},
		"a path that leads out":   rezip(map[string]string{"terraform-provider-inventory": "p", "../x": "y"}),
		"another provider inside": rezip(map[string]string{"terraform-provider-other": "p"}),
		"a program for another platform": rezip(map[string]string{
			"terraform-provider-inventory": "MZ" + strings.Repeat("\x00", 0x100),
		}),
		"a manifest of old plugins": func(t *testing.T, r release) {
			r.Write(t, r.Name+"_manifest.json", `{"version": 1, "metadata": {"protocol_versions": ["4.0"]}}`)
			r.Sign(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRelease(t, "1.0.0", "linux_amd64", "darwin_arm64")
			change(t, r)
			_, err := b.publisher().Provider(t.Context(), r.provider())
			if !errors.Is(err, registry.ErrInvalid) {
				t.Fatalf("got error %v, want ErrInvalid", err)
			}
			record(t, texts, err)
			if all, ok := errors.AsType[*errs.ProblemsError](err); !ok || len(all.Problems) != 1 {
				t.Errorf("got error %v, want one problem", err)
			}
		})
	}
	for name, change := range map[string]func(*rules.Provider){
		"v in file names": func(m *rules.Provider) { m.Dir = newRelease(t, "v1.0.0", "linux_amd64").Dir },
		"version 0.0.0":   func(m *rules.Provider) { m.Dir = newRelease(t, "0.0.0", "linux_amd64").Dir },
		"a zip by another name": func(m *rules.Provider) {
			r := newRelease(t, "1.0.0", "linux_amd64")
			r.Zip(t, r.Name+".zip", nil)
			m.Dir = r.Dir
		},
		"sums that are a folder": func(m *rules.Provider) {
			r := newRelease(t, "1.0.0", "linux_amd64")
			path := filepath.Join(r.Dir, r.Name+"_SHA256SUMS.sig")
			if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
				t.Fatal(err)
			}
			m.Dir = r.Dir
		},
		"a short version":          func(m *rules.Provider) { m.Dir = newRelease(t, "1.0", "linux_amd64").Dir },
		"another type":             func(m *rules.Provider) { m.Address.Type = "other" },
		"no folder":                func(m *rules.Provider) { m.Dir = filepath.Join(t.TempDir(), "nowhere") },
		"signed already":           func(m *rules.Provider) { m.SignKey = key.Private },
		"other protocols":          func(m *rules.Provider) { m.Protocols = []string{"6.0"} },
		"a namespace without keys": func(m *rules.Provider) { m.Address.Namespace = "other" },
	} {
		m := newRelease(t, "1.0.0", "linux_amd64").provider()
		change(&m)
		if _, err := b.publisher().Provider(t.Context(), m); !errors.Is(err, registry.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if b.objects(t) != 0 || b.providerVersions(t) != "[]" {
		t.Errorf("%d objects are stored, %s is visible", b.objects(t), b.providerVersions(t))
	}
}

// TestSignedByAnother checks that a version is not published again if the
// namespace no longer has the key that signed it.
func TestSignedByAnother(t *testing.T) {
	t.Parallel()
	b := embedded(t)
	r := newRelease(t, "1.0.0", "linux_amd64")
	var ids [2]string
	for i := range ids {
		if i > 0 {
			if err := catalog.New(b.table).RemoveSigningKey(t.Context(), "acme", ids[0], "rob"); err != nil {
				t.Fatal(err)
			}
		}
		key, err := keys.NewSigningKey("Ed25519", 0)
		if err != nil {
			t.Fatal(err)
		}
		ids[i] = b.addKey(t, key)
		if err := key.SignRelease(r.Dir); err != nil {
			t.Fatal(err)
		}
		_, err = b.publisher().Provider(t.Context(), r.provider())
		if exists := errors.Is(err, registry.ErrExists); exists != (i > 0) || err != nil && !exists {
			t.Errorf("publish %d: %v", i+1, err)
		}
	}
}

// TestExpiredKey checks that an expired key signs no new version. A version that it
// signed before can be published again and copied.
func TestExpiredKey(t *testing.T) {
	t.Parallel()
	b := embedded(t)
	old, err := keys.NewSigningKey("Ed25519", -time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	key, err := signing.ParseKey(old.Public, time.Now().Add(-90*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	stored := registry.SigningKey{ID: key.ID, ASCIIArmor: key.ASCIIArmor, ExpiresAt: key.ExpiresAt}
	if _, err := catalog.New(b.table).AddSigningKey(t.Context(), inventory.Namespace, stored); err != nil {
		t.Fatal(err)
	}
	r := newRelease(t, "1.0.0", "linux_amd64")
	if err := old.SignRelease(r.Dir); err != nil {
		t.Fatal(err)
	}
	_, err = b.publisher().Provider(t.Context(), r.provider())
	if !errors.Is(err, registry.ErrInvalid) {
		t.Fatalf("got error %v, want ErrInvalid", err)
	}
	const form = "2006-01-02 15:04 MST"
	golden.New(t).Error(t, err, key.ID, "KEY", key.ExpiresAt.Format(form), "EXPIRED", key.CreatedAt.Format(form), "SIGNED")
	if _, err := b.publisher().CheckProvider(t.Context(), r.provider()); !errors.Is(err, registry.ErrInvalid) {
		t.Errorf("a dry run: got error %v, want ErrInvalid", err)
	}

	before := b.publisher()
	before.Now = func() time.Time { return key.CreatedAt.Add(time.Minute) }
	if _, err := before.Provider(t.Context(), r.provider()); err != nil {
		t.Fatalf("before the key expired: %v", err)
	}
	again, err := b.publisher().Provider(t.Context(), r.provider())
	if err != nil || !again.Unchanged {
		t.Errorf("published again: unchanged %t, %v", again.Unchanged, err)
	}
	other := newRelease(t, "1.1.0", "linux_amd64")
	if err := old.SignRelease(other.Dir); err != nil {
		t.Fatal(err)
	}
	copied := other.provider()
	copied.CopiedFrom = &registry.CopiedFrom{Source: "registry.example.com/acme/inventory"}
	result, err := b.publisher().Provider(t.Context(), copied)
	if err != nil {
		t.Fatalf("copied: %v", err)
	}
	if notes := strings.Join(result.Record.Notes, "; "); !strings.Contains(notes, "this key expired on ") {
		t.Errorf("copied: the notes are %q", notes)
	}
}

// countingStore counts the stored objects, and fails after some of them.
type countingStore struct {
	objects.Store
	mu   sync.Mutex
	left int // number of objects to store before an error
	sent []string
}

func (s *countingStore) PutOnce(ctx context.Context, key string, body io.ReadSeeker, digest objects.Digest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left == 0 {
		return tabletest.ErrFault
	}
	s.left--
	s.sent = append(s.sent, key)
	return s.Store.PutOnce(ctx, key, body, digest)
}

// TestProviderInterrupted checks that an interrupted publish leaves nothing
// visible, and that the next one only sends the missing files.
func TestProviderInterrupted(t *testing.T) {
	t.Parallel()
	key := signer(t)
	r := newRelease(t, "1.0.0", "linux_amd64", "linux_arm64", "darwin_arm64")
	for stored := range 5 {
		b := embedded(t)
		b.addKey(t, key)
		p := b.publisher()
		p.Objects = &countingStore{Store: b.store, left: stored}
		if _, err := p.Provider(t.Context(), r.provider()); !errors.Is(err, tabletest.ErrFault) {
			t.Errorf("%d stored: %v", stored, err)
		}
		if b.providerVersions(t) != "[]" || b.objects(t) != stored {
			t.Errorf("%d stored: %s is visible, %d objects", stored, b.providerVersions(t), b.objects(t))
		}
		again := &countingStore{Store: b.store, left: -1}
		p.Objects = again
		if _, err := p.Provider(t.Context(), r.provider()); err != nil {
			t.Errorf("%d stored, then again: %v", stored, err)
		}
		if got := b.providerVersions(t); got != "[1.0.0]" {
			t.Errorf("%d stored, then again: the versions are %s", stored, got)
		}
		if len(again.sent) != 5-stored {
			t.Errorf("%d stored, then again: %d sent", stored, len(again.sent))
		}
	}
	for call := int64(1); ; call++ {
		b := embedded(t)
		b.addKey(t, key)
		p := b.publisher()
		p.Catalog = catalog.New(&tabletest.Faulty{Table: b.table, FailAt: call})
		if _, err := p.Provider(t.Context(), r.provider()); err == nil {
			if call < 5 {
				t.Errorf("a publish makes %d calls of the table", call-1)
			}
			break
		}
		if b.providerVersions(t) != "[]" {
			t.Errorf("call %d fails, and %s is visible", call, b.providerVersions(t))
		}
		if _, err := b.publisher().Provider(t.Context(), r.provider()); err != nil {
			t.Errorf("after call %d failed: %v", call, err)
		}
	}
}

// TestProviderRestore checks that publishing again stores removed files, and
// reports that.
func TestProviderRestore(t *testing.T) {
	t.Parallel()
	b := embedded(t)
	key := signer(t)
	b.addKey(t, key)
	p := b.publisher()
	r := newRelease(t, "1.0.0", "linux_amd64")
	if _, err := p.Provider(t.Context(), r.provider()); err != nil {
		t.Fatal(err)
	}
	emptied := embedded(t)
	p.Objects = emptied.store
	for _, restored := range []bool{true, false} {
		got, err := p.Provider(t.Context(), r.provider())
		if err != nil {
			t.Fatal(err)
		}
		if !got.Unchanged || got.Restored != restored {
			t.Errorf("got %+v, want restored %t", got, restored)
		}
		if n := emptied.objects(t); n != 3 {
			t.Errorf("%d objects, want 3", n)
		}
	}
}

// TestUnusable checks that a new version only has packages that clients request and
// can run. A copy and a published version only have notes.
func TestUnusable(t *testing.T) {
	t.Parallel()
	b := embedded(t)
	b.addKey(t, signer(t))
	r := newRelease(t, "1.0.0", "linux_amd64", "linux_armv7")
	r.Zip(t, r.Name+"_windows_amd64.zip", map[string]string{"terraform-provider-inventory": "program"})
	r.Sign(t)
	p := b.publisher()
	for name, publish := range map[string]func(context.Context, rules.Provider) (rules.ProviderResult, error){
		"publish": p.Provider, "dry run": p.CheckProvider,
	} {
		_, err := publish(t.Context(), r.provider())
		if all, ok := errors.AsType[*errs.ProblemsError](err); !ok || len(all.Problems) != 2 || !errors.Is(err, registry.ErrInvalid) {
			t.Errorf("%s: got error %v, want two problems", name, err)
		}
	}
	copied := r.provider()
	copied.CopiedFrom, copied.Protocols = &registry.CopiedFrom{Source: "registry.example.com/acme/inventory"}, nil
	for _, moved := range []rules.Provider{copied, r.provider()} {
		result, err := p.Provider(t.Context(), moved)
		if err != nil {
			t.Fatal(err)
		}
		if len(result.Record.Notes) != 2 {
			t.Errorf("got notes %q, want two", result.Record.Notes)
		}
	}
	next := newRelease(t, "1.1.0", "linux_amd64", "later_one").provider()
	next.AllowPlatforms = []string{"later_one"}
	if _, err := p.Provider(t.Context(), next); err != nil {
		t.Error(err)
	}
}

// TestSharedHashes checks that platforms with equal packages are reported,
// because OpenTofu must not get their hashes.
func TestSharedHashes(t *testing.T) {
	t.Parallel()
	b := embedded(t)
	key := signer(t)
	b.addKey(t, key)
	r := newRelease(t, "1.0.0", "linux_amd64", "darwin_arm64")
	for _, p := range []string{"darwin_amd64", "freebsd_amd64"} {
		r.Zip(t, r.Name+"_"+p+".zip", map[string]string{"terraform-provider-inventory": "the same"})
	}
	r.Sign(t)
	result, err := b.publisher().Provider(t.Context(), r.provider())
	if err != nil || fmt.Sprint(result.Shared) != "[darwin_amd64 freebsd_amd64]" {
		t.Errorf("%v, %v", result.Shared, err)
	}
}

// TestSourceManifest checks that the manifest of the source is used if its sum
// is listed.
func TestSourceManifest(t *testing.T) {
	t.Parallel()
	key := signer(t)
	for name, test := range map[string]struct {
		content string
		ok      bool
	}{
		"the listed one": {`{"version": 1, "metadata": {"protocol_versions": ["5.0", "6.0"]}}`, true},
		"another one":    {`{"version": 1, "metadata": {"protocol_versions": ["6.0"]}}`, false},
	} {
		b := embedded(t)
		b.addKey(t, key)
		r := newRelease(t, "1.0.0", "linux_amd64")
		source := t.TempDir()
		dist := filepath.Join(source, "dist")
		if err := os.CopyFS(dist, os.DirFS(r.Dir)); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(dist, r.Name+"_manifest.json")); err != nil {
			t.Fatal(err)
		}
		manifest := filepath.Join(source, "terraform-registry-manifest.json")
		if err := os.WriteFile(manifest, []byte(test.content), 0o600); err != nil {
			t.Fatal(err)
		}
		m := r.provider()
		m.Dir = dist
		result, err := b.publisher().Provider(t.Context(), m)
		if (err == nil) != test.ok || test.ok && fmt.Sprint(result.Record.Protocols) != "[5.0 6.0]" {
			t.Errorf("%s: %+v, %v", name, result.Record.Protocols, err)
		}
	}
}

// TestDamagedObject checks that an object with the wrong size is an error.
func TestDamagedObject(t *testing.T) {
	t.Parallel()
	b := embedded(t)
	key := signer(t)
	b.addKey(t, key)
	p := b.publisher()
	p.Objects = &shrunkStore{b.store}
	_, err := p.Provider(t.Context(), newRelease(t, "1.0.0", "linux_amd64").provider())
	checkDamage(t, "a provider", err)
	if got := b.providerVersions(t); got != "[]" {
		t.Errorf("versions: %s", got)
	}
}

// shrunkStore has every object, with one byte.
type shrunkStore struct{ objects.Store }

func (s *shrunkStore) Stat(_ context.Context, key string) (objects.Info, error) {
	return objects.Info{Key: key, Size: 1}, nil
}

func (s *shrunkStore) Open(context.Context, string, int64, int64) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader("x")), nil
}
