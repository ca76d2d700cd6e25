package publish_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/awstest"
	"github.com/larder-registry/larder/internal/testkit/dynamodbtest"
	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/internal/testkit/progresstest"
	"github.com/larder-registry/larder/internal/testkit/s3test"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/dynamodb"
	"github.com/larder-registry/larder/pkg/catalog/sqlite"
	"github.com/larder-registry/larder/pkg/catalog/tabletest"
	"github.com/larder-registry/larder/pkg/content/archive"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/objects/disk"
	"github.com/larder-registry/larder/pkg/objects/s3"
	"github.com/larder-registry/larder/pkg/objects/storetest"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
)

// backend is an empty registry.
type backend struct {
	table catalog.Table
	store objects.Store
}

func embedded(t testing.TB) backend {
	t.Helper()
	dir := t.TempDir()
	store, err := disk.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	table, err := sqlite.Create(t.Context(), filepath.Join(dir, "larder.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(table.Close(), store.Close()) })
	return backend{table, store}
}

// onAWS returns a function that creates empty registries on emulators of
// DynamoDB and S3.
func onAWS(t *testing.T) func(*testing.T) backend {
	t.Helper()
	server := s3test.ForTest(t, "first")
	client := awss3.NewFromConfig(awstest.Config(server.URL), func(o *awss3.Options) { o.UsePathStyle = true })
	made := 0
	return func(t *testing.T) backend {
		t.Helper()
		dynamo, err := dynamodbtest.Start(t.Context(), "larder")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(dynamo.Close)
		made++
		bucket := fmt.Sprint("bucket-", made)
		if _, err := client.CreateBucket(t.Context(), &awss3.CreateBucketInput{Bucket: &bucket}); err != nil {
			t.Fatal(err)
		}
		table := dynamodb.New(awstest.Config(dynamo.URL), "larder")
		return backend{table, s3.New(awstest.Config(server.URL), bucket, s3.Options{PathStyle: true})}
	}
}

// onBoth runs a test on the embedded registry and on the emulators.
func onBoth(t *testing.T, test func(t *testing.T, empty func(*testing.T) backend)) {
	t.Helper()
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		test(t, func(t *testing.T) backend { t.Helper(); return embedded(t) })
	})
	t.Run("AWS", func(t *testing.T) { t.Parallel(); test(t, onAWS(t)) })
}

func (b backend) publisher() *publish.Publisher {
	by := registry.Publisher{Kind: registry.PublisherUser, Name: "somebody"}
	return &publish.Publisher{Catalog: catalog.New(b.table), Objects: b.store, By: by}
}

func module(t *testing.T, version, content string) rules.Module {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte("# "+content+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	v, err := registry.ParseTag(version)
	if err != nil {
		t.Fatal(err)
	}
	return rules.Module{Dir: dir, Address: registry.Module{Namespace: "acme", Name: "vpc", System: "aws"}, Version: v}
}

func (b backend) versions(t *testing.T) string {
	t.Helper()
	versions, err := catalog.New(b.table).Modules.All(t.Context(), module(t, "1.0.0", "").Address)
	if errors.Is(err, registry.ErrNotFound) {
		return "[]"
	}
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, v := range versions {
		if _, err := b.store.Stat(t.Context(), v.Object); err != nil {
			t.Errorf("version %s is visible without its archive: %v", v.Version, err)
		}
		got = append(got, v.Version.String())
	}
	return fmt.Sprint(got)
}

func TestModule(t *testing.T) {
	t.Parallel()
	b := embedded(t)
	p := b.publisher()
	progress := &progresstest.Recorder{}
	p.Progress = progress
	m := module(t, "v1.0.0", "a")
	m.Description = "A network"
	first, err := p.Module(t.Context(), m)
	if err != nil || first.Unchanged {
		t.Fatalf("%+v, %v", first, err)
	}
	r := first.Record
	if got := r.PublishedBy.String(); got != "somebody" {
		t.Errorf("published by %s", got)
	}
	if r.Description != "A network" {
		t.Errorf("description: %q", r.Description)
	}
	if r.PublishedAt.IsZero() {
		t.Error("the record has no time")
	}
	if want := "modules/acme/vpc/aws/1.0.0/" + r.SHA256 + ".tar.gz"; r.Object != want {
		t.Errorf("object: %s, want %s", r.Object, want)
	}
	if r.Docs == nil {
		t.Fatal("the record has no documentation")
	}
	if want := "modules/acme/vpc/aws/1.0.0/" + r.Docs.SHA256 + "/docs.json.gz"; r.Docs.Object != want {
		t.Errorf("documentation: %s, want %s", r.Docs.Object, want)
	}
	for _, f := range r.Stored() {
		if err := objects.CheckStored(t.Context(), b.store, f); err != nil {
			t.Errorf("%s: %v", f.Object, err)
		}
	}
	progress.CheckComplete(t, "packing ", "checking ", "uploading acme/vpc/aws 1.0.0")
	if sent := progress.Transfers("uploading "); len(sent) != 1 || sent[0].Moved != r.Size || len(progress.Steps()) != 2 {
		t.Errorf("progress: %+v of %d bytes, %q", sent, r.Size, progress.Steps())
	}
	body, err := b.store.Open(t.Context(), r.Object, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	stored, err := archive.ReadModule(t.Context(), body)
	if err != nil {
		t.Fatal(err)
	}
	want := archive.Module{
		SHA256: r.SHA256, ContentSHA256: r.ContentSHA256, Size: r.Size, Files: stored.Files,
		Sources: map[string][]byte{"main.tf": []byte("# a\n")}, Calls: map[string][]archive.Call{},
		Contents: archive.Contents{Files: map[string][]byte{"main.tf": []byte("# a\n")}},
	}
	if diff := cmp.Diff(want, stored); diff != "" {
		t.Errorf("stored archive: (-want +got)\n%s", diff)
	}
	again, err := p.Module(t.Context(), m)
	if err != nil || !again.Unchanged || !again.Record.PublishedAt.Equal(r.PublishedAt) {
		t.Errorf("again: %+v, %v", again, err)
	}
	_, err = p.Module(t.Context(), module(t, "1.0.0", "b"))
	var different *rules.ExistsError
	if !errors.As(err, &different) || !errors.Is(err, registry.ErrExists) {
		t.Fatalf("other content: got error %v, want an ExistsError", err)
	}
	if different.Stored != r.ContentSHA256 {
		t.Errorf("stored: %s, want %s", different.Stored, r.ContentSHA256)
	}
	if different.Offered == r.ContentSHA256 {
		t.Errorf("offered: %s, which is stored", different.Offered)
	}
	golden.New(t).Error(t, err)
	if got := b.versions(t); got != "[1.0.0]" {
		t.Errorf("versions: %s", got)
	}
	if n := b.objects(t); n != perModule {
		t.Errorf("%d objects, want %d: other content was stored", n, perModule)
	}
}

// perModule is the number of objects of a module version: its archive, its
// documentation and its files.
const perModule = 3

func (b backend) objects(t *testing.T) int {
	t.Helper()
	n := 0
	if err := b.store.Walk(t.Context(), "", func(objects.Info) error { n++; return nil }); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestOtherCompression checks that archives by different compressors can have
// the same content.
func TestOtherCompression(t *testing.T) {
	t.Parallel()
	b := embedded(t)
	m := module(t, "1.0.0", "a")
	dry, err := new(publish.Publisher).CheckModule(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	older := dry.Record
	older.SHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	older.Object, older.Size = m.Address.ArchiveKey(m.Version, older.SHA256), 0
	if _, _, err := put(t.Context(), catalog.New(b.table).Modules, m.Address, older); err != nil {
		t.Fatal(err)
	}
	if _, err := b.publisher().Module(t.Context(), m); err == nil {
		t.Error("the archive is missing and cannot be restored, but there is no error")
	}
	digest := objects.Digest{SHA256: older.SHA256}
	if err := b.store.PutOnce(t.Context(), older.Object, strings.NewReader(""), digest); err != nil {
		t.Fatal(err)
	}
	got, err := b.publisher().Module(t.Context(), m)
	if err != nil || !got.Unchanged || got.Record.Object != older.Object {
		t.Errorf("%+v, %v", got, err)
	}
	if n := b.objects(t); n != 1 {
		t.Errorf("%d objects were stored", n)
	}
}

// put publishes a record.
func put[A registry.Address, R registry.Record](
	ctx context.Context, versions catalog.Versions[A, R], a A, r R,
) (stored R, created bool, err error) {
	makeRecord := func(context.Context, protocol.Document) (R, error) { return r, nil }
	return versions.Publish(ctx, a, r.Number(), "somebody", makeRecord)
}

// TestRestore checks that publishing again stores a removed archive.
func TestRestore(t *testing.T) {
	t.Parallel()
	b := embedded(t)
	p := b.publisher()
	m := module(t, "1.0.0", "a")
	first, err := p.Module(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	emptied := embedded(t)
	p.Objects = emptied.store
	again, err := p.Module(t.Context(), m)
	if err != nil || !again.Unchanged || !again.Restored {
		t.Errorf("%+v, %v", again, err)
	}
	if again, err = p.Module(t.Context(), m); err != nil || !again.Unchanged || again.Restored {
		t.Errorf("%+v, %v", again, err)
	}
	for _, f := range first.Record.Files() {
		if err := objects.CheckStored(t.Context(), emptied.store, f); err != nil {
			t.Error(err)
		}
	}
}

// TestNotRestored checks that publishing again changes nothing if only the
// documentation is missing, or the archive and other documentation.
func TestNotRestored(t *testing.T) {
	t.Parallel()
	b := embedded(t)
	p := b.publisher()
	m := module(t, "1.0.0", "a")
	first, err := p.Module(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	docs := first.Record.Docs
	if _, err := b.remover(t).Remove(t.Context(), path.Dir(docs.Object)+"/"); err != nil {
		t.Fatal(err)
	}
	again, err := p.Module(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	if !again.Unchanged || again.Restored {
		t.Errorf("unchanged: %t, restored: %t", again.Unchanged, again.Restored)
	}
	if diff := cmp.Diff(first.Record, again.Record); diff != "" {
		t.Errorf("the record: (-first +again)\n%s", diff)
	}
	other := registry.StoredFile{SHA256: strings.Repeat("0", 64), Size: 9}
	other.Object = m.Address.DocumentKey(m.Version, other.SHA256, registry.DocsName)
	made := registry.Documents{Docs: &other}
	if _, err := p.Catalog.SetDocs(t.Context(), m.Address, m.Version, made, nil, "ada"); err != nil {
		t.Fatal(err)
	}
	emptied := embedded(t)
	p.Objects = emptied.store
	if again, err = p.Module(t.Context(), m); err != nil || !again.Restored {
		t.Errorf("without the archive: %+v, %v", again, err)
	}
	if diff := cmp.Diff([]string{first.Record.Object}, emptied.keys(t)); diff != "" {
		t.Errorf("restored objects: (-want +got)\n%s", diff)
	}
}

// TestUnchangedWithoutDocs checks that publishing again does not need the
// documentation, without which a version can still be installed.
func TestUnchangedWithoutDocs(t *testing.T) {
	t.Parallel()
	b := embedded(t)
	p := b.publisher()
	m := module(t, "1.0.0", "a")
	if _, err := p.Module(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	docs := registry.StoredFile{Object: m.Address.DocumentKey(m.Version, "5", registry.DocsName), SHA256: "5", Size: 7}
	made := registry.Documents{Docs: &docs}
	if _, err := p.Catalog.SetDocs(t.Context(), m.Address, m.Version, made, nil, "ada"); err != nil {
		t.Fatal(err)
	}
	again, err := p.Module(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	if !again.Unchanged {
		t.Error("it is not unchanged")
	}
	if again.Restored {
		t.Error("something was restored")
	}
}

// TestTakenNamespace checks that nothing can be published to a namespace whose
// address is taken, and that a dry run reports that too.
func TestTakenNamespace(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	b := embedded(t)
	p := b.publisher()
	m := module(t, "1.0.0", "a")
	m.Address.Namespace = "search"
	provider := newRelease(t, "1.0.0", "linux_amd64").provider()
	provider.Address.Namespace = "search"
	prepare := rules.Preparer{}
	for name, try := range map[string]func(context.Context) error{
		"module":             func(ctx context.Context) error { _, err := p.Module(ctx, m); return err },
		"module, dry run":    func(ctx context.Context) error { _, err := p.CheckModule(ctx, m); return err },
		"module, prepared":   func(ctx context.Context) error { _, err := prepare.Module(ctx, m); return err },
		"provider":           func(ctx context.Context) error { _, err := p.Provider(ctx, provider); return err },
		"provider, dry run":  func(ctx context.Context) error { _, err := p.CheckProvider(ctx, provider); return err },
		"provider, prepared": func(ctx context.Context) error { _, err := prepare.Provider(ctx, provider); return err },
	} {
		t.Run(name, func(t *testing.T) {
			err := try(t.Context())
			if !errors.Is(err, registry.ErrInvalid) {
				t.Errorf("got error %v, want ErrInvalid", err)
			}
			texts.Error(t, err)
		})
	}
	if n := b.objects(t); n > 0 {
		t.Errorf("%d objects are stored", n)
	}
	if known, err := p.Catalog.HasNamespace(t.Context(), "search"); err != nil || known {
		t.Errorf("the namespace exists: %t, %v", known, err)
	}
}

// TestDamaged checks that publishing again fails if the stored archive has the
// wrong size.
func TestDamaged(t *testing.T) {
	t.Parallel()
	b := embedded(t)
	p := b.publisher()
	m := module(t, "1.0.0", "a")
	if _, err := p.Module(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	p.Objects = &shrunkStore{b.store}
	_, err := p.Module(t.Context(), m)
	checkDamage(t, "a module", err)
}

func TestDescription(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"two\nlines", "\x1b[31mred", strings.Repeat("x", 1001)} {
		m := module(t, "1.0.0", "a")
		m.Description = bad
		if _, err := embedded(t).publisher().Module(t.Context(), m); !errors.Is(err, registry.ErrInvalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestUnloadable checks that a new version must load in a client. A copy and what is
// published already only have notes.
func TestUnloadable(t *testing.T) {
	t.Parallel()
	p := embedded(t).publisher()
	m := module(t, "v1.0.0", "x\nvarible \"a\" {}\noutput \"b\" {}")
	for name, publish := range map[string]func(context.Context, rules.Module) (rules.ModuleResult, error){
		"publish": p.Module, "dry run": p.CheckModule,
	} {
		_, err := publish(t.Context(), m)
		if all, ok := errors.AsType[*errs.ProblemsError](err); !ok || len(all.Problems) != 2 || !errors.Is(err, registry.ErrInvalid) {
			t.Errorf("%s: got error %v, want two problems", name, err)
		}
	}
	copied := m
	copied.CopiedFrom = &registry.CopiedFrom{Source: "registry.example.com/acme/vpc/aws"}
	want := []string{
		"main.tf:2:1: there is no block varible. Did you mean variable?",
		`main.tf:3:12: output "b" has no argument value`,
	}
	for _, moved := range []rules.Module{copied, m} {
		result, err := p.Module(t.Context(), moved)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, result.LoadNotes); diff != "" {
			t.Error(diff)
		}
	}
}

func TestDryRun(t *testing.T) {
	t.Parallel()
	b := embedded(t)
	m := module(t, "1.0.0", "a")
	got, err := b.publisher().CheckModule(t.Context(), m)
	if err != nil || got.Unchanged || got.Record.Size == 0 || len(got.Files) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	if b.versions(t) != "[]" || b.objects(t) != 0 {
		t.Error("a dry run stored something")
	}
}

// faultyStore fails at each write of a file: before it, half-way, or after it
// like a lost response.
type faultyStore struct {
	objects.Store
	file string // how its key ends
	when string
}

func (s *faultyStore) PutOnce(ctx context.Context, key string, body io.ReadSeeker, digest objects.Digest) error {
	if !strings.HasSuffix(key, s.file) {
		return s.Store.PutOnce(ctx, key, body, digest)
	}
	switch s.when {
	case "half-way":
		if err := s.Store.PutOnce(ctx, key, storetest.Broken(body, digest.Size/2), digest); err == nil {
			return nil
		}
	case "after":
		if err := s.Store.PutOnce(ctx, key, body, digest); err != nil {
			return err
		}
	}
	return tabletest.ErrFault
}

// TestFailsAtEachStep checks that after any failure nothing is visible, or the
// complete version is, and that publishing again completes it.
func TestFailsAtEachStep(t *testing.T) {
	t.Parallel()
	onBoth(t, failsAtEachStep)
}

func failsAtEachStep(t *testing.T, empty func(*testing.T) backend) {
	check := func(name string, b backend, p *publish.Publisher) (failed bool) {
		m := module(t, "1.0.0", "a")
		_, err := p.Module(t.Context(), m)
		if err == nil {
			return false
		}
		if !errors.Is(err, tabletest.ErrFault) {
			t.Errorf("%s: %v", name, err)
		}
		visible := b.versions(t)
		if visible != "[]" && name != "answer lost" {
			t.Errorf("%s: visible is %s", name, visible)
		}
		again, err := b.publisher().Module(t.Context(), m)
		if err != nil || again.Unchanged != (visible != "[]") || b.versions(t) != "[1.0.0]" || b.objects(t) != perModule {
			t.Errorf("%s, then again: %+v, %v", name, again, err)
		}
		return true
	}
	for _, file := range []string{".tar.gz", registry.DocsName, registry.FilesName} {
		for _, when := range []string{"before", "half-way", "after"} {
			b := empty(t)
			p := b.publisher()
			p.Objects = &faultyStore{b.store, file, when}
			if !check("storing "+file+" fails "+when, b, p) {
				t.Errorf("storing %s does not fail %s", file, when)
			}
		}
	}
	for name, done := range map[string]bool{"the write of the table": false, "answer lost": true} {
		b := empty(t)
		p := b.publisher()
		p.Catalog = catalog.New(&tabletest.Faulty{Table: b.table, FailAt: 2, Done: done})
		if !check(name, b, p) {
			t.Errorf("%s: it does not fail", name)
		}
	}
}

// interrupted is a store that calls a function after the first write of an
// archive.
type interrupted struct {
	objects.Store
	archives, made atomic.Int32
	then           func()
}

func (s *interrupted) PutOnce(ctx context.Context, key string, body io.ReadSeeker, digest objects.Digest) error {
	err := s.Store.PutOnce(ctx, key, body, digest)
	if !strings.HasSuffix(key, ".tar.gz") {
		s.made.Add(1)
	} else if s.archives.Add(1) == 1 {
		s.then()
	}
	return err
}

// TestPublishInBetween checks that changes by others between the upload and the
// write count, and that the upload is not repeated.
func TestPublishInBetween(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		do        func(*testing.T, backend, rules.Module) error
		err       error
		unchanged bool
		versions  string
	}{
		"another version": {func(t *testing.T, b backend, _ rules.Module) error {
			_, err := b.publisher().Module(t.Context(), module(t, "1.1.0", "a"))
			return err
		}, nil, false, "[1.1.0 1.0.0]"},
		"the same": {func(t *testing.T, b backend, m rules.Module) error {
			_, err := b.publisher().Module(t.Context(), m)
			return err
		}, nil, true, "[1.0.0]"},
		"other content": {func(t *testing.T, b backend, _ rules.Module) error {
			_, err := b.publisher().Module(t.Context(), module(t, "1.0.0", "b"))
			return err
		}, registry.ErrExists, false, "[1.0.0]"},
		"a withdrawal": {func(t *testing.T, b backend, m rules.Module) error {
			w := publish.Withdrawer{Catalog: catalog.New(b.table), Objects: b.remover(t), By: "wim", Missing: true}
			_, err := w.Withdraw(t.Context(), m.Address, m.Version, "it has a key")
			return err
		}, registry.ErrWithdrawn, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := embedded(t)
			m := module(t, "1.0.0", "a")
			store := &interrupted{Store: b.store, then: func() {
				if err := test.do(t, b, m); err != nil {
					t.Error(err)
				}
			}}
			p := b.publisher()
			p.Objects = store
			result, err := p.Module(t.Context(), m)
			if !errors.Is(err, test.err) {
				t.Errorf("%v, want %v", err, test.err)
			}
			if result.Unchanged != test.unchanged || result.Restored {
				t.Errorf("unchanged: %t, restored: %t", result.Unchanged, result.Restored)
			}
			if archives := store.archives.Load(); archives != 1 {
				t.Errorf("%d archives were uploaded", archives)
			}
			if made := store.made.Load(); made != perModule-1 {
				t.Errorf("%d files that were made from it were uploaded", made)
			}
			if test.versions == "" {
				return
			}
			if got := b.versions(t); got != test.versions {
				t.Errorf("versions: %s, want %s", got, test.versions)
			}
		})
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	b := embedded(t)
	m := module(t, "1.0.0", "a\n}")
	_, err := b.publisher().Module(t.Context(), m)
	if !errors.Is(err, registry.ErrInvalid) {
		t.Fatalf("a module that does not parse: got error %v, want ErrInvalid", err)
	}
	if !strings.Contains(err.Error(), "main.tf:2") {
		t.Errorf("the error does not name the line: %v", err)
	}
	if b.versions(t) != "[]" || b.objects(t) != 0 {
		t.Error("something is stored")
	}
}

// TestSameAsPrepared checks that a publish by an operator equals one via the
// publish API.
func TestSameAsPrepared(t *testing.T) {
	t.Parallel()
	m := module(t, "1.0.0", "a")
	packed, err := new(rules.Preparer).Module(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	dry, err := new(publish.Publisher).CheckModule(t.Context(), m)
	if err != nil || dry.Record.SHA256 != packed.Record.SHA256 {
		t.Errorf("%+v, %v", dry, err)
	}
	b := embedded(t)
	key := signer(t)
	id := b.addKey(t, key)
	r := newRelease(t, "1.0.0", "linux_amd64", "darwin_arm64")
	prepared, err := new(rules.Preparer).Provider(t.Context(), r.provider())
	if err != nil {
		t.Fatal(err)
	}
	published, err := b.publisher().Provider(t.Context(), r.provider())
	if err != nil {
		t.Fatal(err)
	}
	got, want := published.Record, prepared.Record
	if got.Sums.SHA256 != want.Sums.SHA256 {
		t.Errorf("SHA256SUMS: %s, want %s", got.Sums.SHA256, want.Sums.SHA256)
	}
	if got.Packages[0].H1 != want.Packages[0].H1 {
		t.Errorf("H1: %s, want %s", got.Packages[0].H1, want.Packages[0].H1)
	}
	if diff := cmp.Diff(want.Protocols, got.Protocols); diff != "" {
		t.Errorf("protocols: (-want +got)\n%s", diff)
	}
	if want.SigningKey != id {
		t.Errorf("signing key: %s, want %s", want.SigningKey, id)
	}
}
