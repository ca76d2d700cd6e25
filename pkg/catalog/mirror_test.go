package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

var random = registry.MirrorAddress{
	Hostname: "registry.opentofu.org", Namespace: "hashicorp", Name: "random",
}

// mirrorRecord returns a record of a version. Each package is written as
// PLATFORM CONTENT KEY, where KEY can be missing.
func mirrorRecord(t testing.TB, version string, packages ...string) registry.MirrorVersion {
	t.Helper()
	return mirrorRecordOf(t, random, version, packages...)
}

func mirrorRecordOf(
	t testing.TB, p registry.MirrorAddress, version string, packages ...string,
) registry.MirrorVersion {
	t.Helper()
	v, err := registry.ParseTag(version)
	if err != nil {
		t.Fatal(err)
	}
	r := registry.MirrorVersion{Version: v}
	for _, text := range packages {
		words := append(strings.Fields(text), "")
		platform, err := registry.ParsePlatform(words[0])
		if err != nil {
			t.Fatal(err)
		}
		name := p.Filename(v, platform)
		r.Packages = append(r.Packages, registry.MirrorPackage{
			ProviderPackage: registry.ProviderPackage{
				Platform: platform, Filename: name, H1: "h1:" + words[1],
				StoredFile: registry.StoredFile{Object: p.FileKey(v, words[1], name), SHA256: words[1], Size: 7},
			},
			SigningKey: words[2],
			MirroredAt: time.Date(2026, 11, 21, 1, 2, 3, 0, time.UTC),
			MirroredBy: registry.Publisher{Kind: registry.PublisherUser, Name: "somebody"},
		})
	}
	return r
}

// written is the reverse of mirrorRecord.
func written(r registry.MirrorVersion) string {
	words := []string{r.Version.String()}
	for _, pkg := range r.Packages {
		words = append(words, strings.TrimSpace(pkg.String()+" "+pkg.SHA256+" "+pkg.SigningKey))
	}
	return strings.Join(words, "; ")
}

// mirrorAll returns the records of a mirrored provider, after checking that the
// index has exactly their versions.
func mirrorAll(t testing.TB, c *catalog.Catalog, p registry.MirrorAddress) []string {
	t.Helper()
	records, err := c.Mirror.All(t.Context(), p)
	if err != nil && !errors.Is(err, registry.ErrNotFound) {
		t.Fatal(err)
	}
	var texts []string
	var want, got protocol.MirrorListing
	for _, r := range records {
		texts = append(texts, written(r))
		want = append(want, r.Version)
		if one, err := c.Mirror.Get(t.Context(), p, r.Version); err != nil || !cmp.Equal(one, r) {
			t.Errorf("%s by itself: %v, %v", r.Version, one, err)
		}
	}
	data, err := c.Mirror.Listing(t.Context(), p)
	if err == nil {
		got, err = protocol.Decode[protocol.MirrorListing](data)
	}
	if err != nil && (len(want) > 0 || !errors.Is(err, registry.ErrNotFound)) {
		t.Fatal(err)
	}
	slices.SortFunc(got, func(a, b registry.Version) int { return registry.CompareVersions(b, a) })
	if !slices.Equal(got, want) {
		t.Errorf("the index has %v, but the records have %v", got, want)
	}
	return texts
}

func mirrored(t testing.TB, c *catalog.Catalog) string {
	t.Helper()
	var got []string
	for s := range each(t, c.Mirror.Summaries(t.Context(), "")) {
		got = append(got, s.Address+" "+s.Latest.String())
	}
	return strings.Join(got, ", ")
}

// writes counts the writes to a table.
type writes struct {
	catalog.Table
	count atomic.Int64
}

func (w *writes) Write(ctx context.Context, changes ...catalog.Change) error {
	w.count.Add(1)
	return w.Table.Write(ctx, changes...)
}

// The same files packed in another way replace a stored module. Other content does so
// only for a decision that is newer than the stored one.
func TestMirrorModule(t *testing.T) {
	t.Parallel()
	c := catalog.New(open(t))
	vpc, err := registry.ParseMirrorModule("registry.opentofu.org/acme/vpc/aws")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []struct {
		name, packed, h1 string
		accepted         int // the day of the decision
		isStored         bool
	}{
		{"a module", "a", "h1:a", 0, true},
		{"packed anew", "b", "h1:a", 0, true},
		{"other files", "c", "h1:c", 0, false},
		{"other files, accepted", "c", "h1:c", 1, true},
		{"further files with the same decision", "d", "h1:d", 1, false},
		{"further files with a new one", "d", "h1:d", 2, true},
		{"the first files", "a", "h1:a", 0, false},
	} {
		record := registry.MirrorVersion{Version: parseVersion(t, "1.0.0"), Module: &registry.MirroredModule{
			StoredFile: registry.StoredFile{
				Object: vpc.FileKey(parseVersion(t, "1.0.0"), digest(s.packed), "vpc.tar.gz"), SHA256: digest(s.packed), Size: 1,
			},
			Pin: registry.ModulePin{Source: "https://github.com/acme/vpc", Commit: "a", H1: s.h1},
		}}
		if s.accepted > 0 {
			at := time.Date(2026, 11, s.accepted, 0, 0, 0, 0, time.UTC)
			record.Module.Pin.Accepted = &registry.Decision{At: at, By: "ada", Reason: "a fix"}
		}
		_, changed, err := c.Mirror.Add(t.Context(), vpc, record, "ada")
		if changed != s.isStored || errors.Is(err, registry.ErrExists) == s.isStored {
			t.Errorf("%s: changed is %v, and the error %v", s.name, changed, err)
		}
	}
}

func TestMirror(t *testing.T) {
	t.Parallel()
	type step struct {
		name    string
		record  registry.MirrorVersion
		want    string // the returned record; empty: it is rejected
		changed bool
	}
	exists := ""
	steps := []step{
		{"nothing", mirrorRecord(t, "1.0.0"), exists, false},
		{"a version", mirrorRecord(t, "1.0.0", "linux_amd64 l"), "1.0.0; linux_amd64 l", true},
		{"it again", mirrorRecord(t, "1.0.0", "linux_amd64 l"), "1.0.0; linux_amd64 l", false},
		{
			"platforms, in no order", mirrorRecord(t, "1.0.0", "windows_amd64 w", "darwin_arm64 d K1"),
			"1.0.0; darwin_arm64 d K1; linux_amd64 l; windows_amd64 w", true,
		},
		{
			"an existing and a new one", mirrorRecord(t, "1.0.0", "linux_amd64 l", "linux_386 3"),
			"1.0.0; darwin_arm64 d K1; linux_386 3; linux_amd64 l; windows_amd64 w", true,
		},
		{
			"all of it, in another order",
			mirrorRecord(t, "1.0.0", "windows_amd64 w", "linux_amd64 l", "linux_386 3", "darwin_arm64 d K1"),
			"1.0.0; darwin_arm64 d K1; linux_386 3; linux_amd64 l; windows_amd64 w", false,
		},
		{"another content", mirrorRecord(t, "1.0.0", "linux_amd64 x"), exists, false},
		{"another content, signed", mirrorRecord(t, "1.0.0", "linux_amd64 x K1"), exists, false},
		{"other content after a new platform", mirrorRecord(t, "1.0.0", "freebsd_amd64 f", "linux_amd64 x"), exists, false},
		{"another content after a signature", mirrorRecord(t, "1.0.0", "windows_amd64 w K1", "linux_amd64 x"), exists, false},
		{
			"a signature for an unsigned package", mirrorRecord(t, "1.0.0", "linux_amd64 l K2"),
			"1.0.0; darwin_arm64 d K1; linux_386 3; linux_amd64 l K2; windows_amd64 w", true,
		},
		{
			"it again", mirrorRecord(t, "1.0.0", "linux_amd64 l K2"),
			"1.0.0; darwin_arm64 d K1; linux_386 3; linux_amd64 l K2; windows_amd64 w", false,
		},
		{
			"no signature for a signed package", mirrorRecord(t, "1.0.0", "linux_amd64 l"),
			"1.0.0; darwin_arm64 d K1; linux_386 3; linux_amd64 l K2; windows_amd64 w", false,
		},
		{
			"another signature", mirrorRecord(t, "1.0.0", "linux_amd64 l K1"),
			"1.0.0; darwin_arm64 d K1; linux_386 3; linux_amd64 l K2; windows_amd64 w", false,
		},
		{"another version", mirrorRecord(t, "1.1.0-rc.1", "linux_amd64 x"), "1.1.0-rc.1; linux_amd64 x", true},
		{"other build metadata", mirrorRecord(t, "1.0.0+b", "linux_amd64 l"), exists, false},
		{"other build metadata of a pre-release", mirrorRecord(t, "1.1.0-rc.1+b", "linux_amd64 l"), exists, false},
		{"build metadata", mirrorRecord(t, "2.0.0+build.5", "linux_amd64 l"), "2.0.0+build.5; linux_amd64 l", true},
		{
			"a platform for it", mirrorRecord(t, "2.0.0+build.5", "linux_386 l"), "2.0.0+build.5; linux_386 l; linux_amd64 l",
			true,
		},
		{"less build metadata", mirrorRecord(t, "2.0.0", "linux_amd64 l"), exists, false},
		{"one platform twice", mirrorRecord(t, "3.0.0", "linux_amd64 l", "linux_amd64 x"), exists, false},
	}
	table := &writes{Table: open(t)}
	c := catalog.New(table)
	for _, s := range steps {
		t.Run(s.name, func(t *testing.T) {
			before, count := mirrorAll(t, c, random), table.count.Load()
			stored, changed, err := c.Mirror.Add(t.Context(), random, s.record, "ada")
			after := mirrorAll(t, c, random)
			if changed != s.changed {
				t.Errorf("changed is %t, want %t", changed, s.changed)
			}
			if s.want == exists {
				if err == nil {
					t.Error("it succeeds")
				}
				// A version without packages is a mistake of the program and not of
				// a user.
				if wrong := len(s.record.Packages) == 0; errors.Is(err, registry.ErrExists) == wrong {
					t.Errorf("%v is ErrExists: %t", err, wrong)
				}
				if len(stored.Packages) > 0 {
					t.Errorf("it returns %s", written(stored))
				}
			} else {
				if err != nil {
					t.Error(err)
				}
				if diff := cmp.Diff(s.want, written(stored)); diff != "" {
					t.Errorf("it returns (-want +got):\n%s", diff)
				}
				if !slices.Contains(after, s.want) {
					t.Errorf("%q is stored, without %s", after, s.want)
				}
			}
			if !s.changed && !slices.Equal(before, after) {
				t.Errorf("%q became %q", before, after)
			}
			if got := table.count.Load() - count; got == 1 != s.changed {
				t.Errorf("%d writes", got)
			}
		})
	}
	want := []string{
		"2.0.0+build.5; linux_386 l; linux_amd64 l", "1.1.0-rc.1; linux_amd64 x",
		"1.0.0; darwin_arm64 d K1; linux_386 3; linux_amd64 l K2; windows_amd64 w",
	}
	if got := mirrorAll(t, c, random); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// If someone adds platforms to a version, its other packages still have their
// publisher, time and file name.
func TestMirrorKeepsPackages(t *testing.T) {
	t.Parallel()
	c := catalog.New(open(t))
	first := mirrorRecord(t, "1.0.0", "linux_amd64 l")
	again := mirrorRecord(t, "1.0.0", "linux_amd64 l K", "linux_386 3")
	for i := range again.Packages {
		pkg := &again.Packages[i]
		pkg.MirroredAt = pkg.MirroredAt.Add(time.Hour)
		pkg.MirroredBy = registry.Publisher{Kind: registry.PublisherUser, Name: "another"}
		pkg.Filename = "other.zip"
		pkg.Object = random.FileKey(again.Version, pkg.SHA256, "other.zip")
	}
	given := slices.Clone(again.Packages)
	for _, r := range []registry.MirrorVersion{first, again} {
		if _, changed, err := c.Mirror.Add(t.Context(), random, r, "ada"); err != nil || !changed {
			t.Fatal(changed, err)
		}
	}
	want := first.Packages[0]
	want.SigningKey = "K"
	stored, err := c.Mirror.Get(t.Context(), random, first.Version)
	if diff := cmp.Diff([]registry.MirrorPackage{again.Packages[1], want}, stored.Packages); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
	if diff := cmp.Diff(given, again.Packages); diff != "" {
		t.Errorf("the caller's record is changed: %s", diff)
	}
}

// The list of mirrored providers is separate from the published providers of
// every namespace.
func TestMirrorSummaries(t *testing.T) {
	t.Parallel()
	c := catalog.New(open(t))
	if got := mirrored(t, c); got != "" {
		t.Errorf("an empty table: %s", got)
	}
	publish(t, c, module(t, "mirror/vpc/aws"), record(t, "1.0.0", "x"))
	own := registry.Provider{Namespace: "mirror", Type: "inventory"}
	if _, err := c.AddSigningKey(t.Context(), own.Namespace, registry.SigningKey{ID: "A"}); err != nil {
		t.Fatal(err)
	}
	publishProvider(t, c, own, providerRecord(t, "1.0.0", "A"))
	if got := mirrored(t, c); got != "" {
		t.Errorf("a namespace called mirror: %s", got)
	}
	for address, versions := range map[string][]string{
		"registry.opentofu.org/hashicorp/random":  {"1.0.0", "0.9.0", "1.10.0", "1.9.0", "2.0.0-rc.1"},
		"registry.opentofu.org/hashicorp/rand":    {"4.0.0"}, // a prefix of another address
		"registry.terraform.io/hashicorp/random":  {"1.0.0-a", "1.0.0-b"},
		"modules/mirror/vpc":                      {"5.0.0"},
		"xn--bcher-kva.example/acme/random":       {"3.0.0-rc.1", "3.0.0+b"},
		"registry.opentofu.org/hashicorp/random2": {"6.0.0"},
	} {
		p, err := registry.ParseMirrorProvider(address)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range versions {
			if _, changed, err := c.Mirror.Add(
				t.Context(), p, mirrorRecordOf(t, p, v, "linux_amd64 l"), "ada",
			); err != nil || !changed {
				t.Errorf("%s %s: %v, %v", p, v, changed, err)
			}
		}
		if got := mirrorAll(t, c, p); len(got) != len(versions) {
			t.Errorf("%s: %q", p, got)
		}
	}
	// A new platform of an older version does not make that version the latest.
	if _, _, err := c.Mirror.Add(t.Context(), random, mirrorRecord(t, "0.9.0", "linux_386 l"), "ada"); err != nil {
		t.Error(err)
	}
	want := "modules/mirror/vpc 5.0.0, registry.opentofu.org/hashicorp/rand 4.0.0, " +
		"registry.opentofu.org/hashicorp/random 1.10.0, registry.opentofu.org/hashicorp/random2 6.0.0, " +
		"registry.terraform.io/hashicorp/random 1.0.0-b, xn--bcher-kva.example/acme/random 3.0.0+b"
	if got := mirrored(t, c); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	var published []string
	for _, namespace := range []string{"", "mirror"} {
		for s := range each(t, c.Modules.Summaries(t.Context(), namespace)) {
			published = append(published, s.Address)
		}
		for s := range each(t, c.Providers.Summaries(t.Context(), namespace)) {
			published = append(published, s.Address)
		}
	}
	if fmt.Sprint(published) != "[mirror/vpc/aws mirror/inventory mirror/vpc/aws mirror/inventory]" {
		t.Errorf("published: %v", published)
	}
	if _, err := c.Mirror.All(t.Context(), registry.MirrorAddress{
		Hostname: "registry.opentofu.org", Namespace: "hashicorp", Name: "ran",
	}); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("an address without versions: %v", err)
	}
}

// Concurrent writers add platforms to a version, and none is lost. If versions
// differ only in build metadata, one of them is mirrored.
func TestMirrorsAtOnce(t *testing.T) {
	t.Parallel()
	const writers = 12
	c := catalog.New(open(t))
	var group sync.WaitGroup
	var won atomic.Int64
	want := "2.0.0; linux_amd64 l"
	for i := range writers {
		platform := fmt.Sprintf("os%02d_amd64 %d", i, i)
		want += "; " + platform
		group.Go(func() {
			r := mirrorRecord(t, "2.0.0", platform, "linux_amd64 l")
			if _, changed, err := c.Mirror.Add(t.Context(), random, r, "ada"); err != nil || !changed {
				t.Errorf("%s: %v, %v", written(r), changed, err)
			}
		})
		group.Go(func() {
			r := mirrorRecord(t, fmt.Sprintf("3.0.0+b%d", i), "linux_amd64 l")
			switch _, changed, err := c.Mirror.Add(t.Context(), random, r, "ada"); {
			case err == nil && changed:
				won.Add(1)
			case !errors.Is(err, registry.ErrExists):
				t.Errorf("%s: %v, %v", written(r), changed, err)
			}
		})
	}
	group.Wait()
	if n := won.Load(); n != 1 {
		t.Errorf("%d writers made 3.0.0, want 1", n)
	}
	got := mirrorAll(t, c, random)
	if len(got) != 2 || !strings.HasPrefix(got[0], "3.0.0+b") || got[1] != want {
		t.Errorf("%q, want a version 3.0.0 and %q", got, want)
	}
}
