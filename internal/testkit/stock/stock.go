// Package stock fills a table with long listings and many entries, in the form
// in which pkg/catalog stores them. Publishing each version would render a long
// listing each time. The same arguments always give the same items.
package stock

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// batch is the number of items of one write, which is the maximum of the
// tables.
const batch = 100

// Filler writes items to a table. Call Flush after the last one.
type Filler struct {
	Table   catalog.Table
	pending []catalog.Change
}

func (f *Filler) put(t testing.TB, partition, sort string, v any) {
	t.Helper()
	data, ok := v.(protocol.Document)
	if !ok {
		var err error
		if data, err = json.Marshal(v); err != nil {
			t.Fatal(err)
		}
	}
	f.pending = append(f.pending, catalog.Change{Key: catalog.Key{Partition: partition, Sort: sort}, Data: data})
	if len(f.pending) == batch {
		f.Flush(t)
	}
}

// Flush writes the pending items.
func (f *Filler) Flush(t testing.TB) {
	t.Helper()
	if len(f.pending) == 0 {
		return
	}
	if err := f.Table.Write(t.Context(), f.pending...); err != nil {
		t.Fatal(err)
	}
	f.pending = f.pending[:0]
}

func (f *Filler) putListing(t testing.TB, partition string, listing any) {
	t.Helper()
	data, err := protocol.Compress(listing)
	if err != nil {
		t.Fatal(err)
	}
	f.put(t, partition, "listing", data)
}

// Version returns the nth version, counted from 1: 1.0.0, 1.0.1 and so on.
// There are ten patches to a minor version, and ten minor to a major version.
func Version(n int) registry.Version {
	n--
	return registry.Version{Major: uint64(1 + n/100), Minor: uint64(n / 10 % 10), Patch: uint64(n % 10)}
}

// newest returns n versions, the newest first.
func newest(n int) []registry.Version {
	all := make([]registry.Version, n)
	for i := range all {
		all[i] = Version(n - i)
	}
	return all
}

// Platforms are the platforms of providers, the most common ones first.
var Platforms = []registry.Platform{
	{OS: "linux", Arch: "amd64"}, {OS: "linux", Arch: "arm64"}, {OS: "darwin", Arch: "amd64"},
	{OS: "darwin", Arch: "arm64"}, {OS: "windows", Arch: "amd64"}, {OS: "linux", Arch: "386"},
	{OS: "linux", Arch: "arm"}, {OS: "windows", Arch: "386"}, {OS: "freebsd", Arch: "386"},
	{OS: "freebsd", Arch: "amd64"}, {OS: "freebsd", Arch: "arm"}, {OS: "freebsd", Arch: "arm64"},
	{OS: "openbsd", Arch: "amd64"}, {OS: "windows", Arch: "arm64"},
}

var (
	operator = registry.Publisher{Kind: registry.PublisherAWS, Name: "arn:aws:iam::111122223333:user/publisher"}
	long     = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC) // long ago
)

// before returns when the version was published that is i versions before the
// newest. The intervals vary all digits, as in a real listing.
func before(i int) time.Time { return long.Add(-time.Duration(i) * 133_337 * time.Second) }

func file(folder, name string) registry.StoredFile {
	digest := sha256.Sum256([]byte(folder + name))
	text := hex.EncodeToString(digest[:])
	return registry.StoredFile{Object: folder + "/" + text + "/" + name, SHA256: text, Size: 20 << 20}
}

// Module writes a module with a number of versions, and the records of the
// newest ones.
func (f *Filler) Module(t testing.TB, m registry.Module, versions, records int) {
	t.Helper()
	all := newest(versions)
	var listing protocol.ModuleListing
	for i, v := range all {
		listing.Versions = append(listing.Versions, protocol.ListedModule{Version: v, PublishedAt: before(i)})
	}
	f.putListing(t, m.Path(), listing)
	for i, v := range all[:records] {
		archive := file(m.Path()+"/"+v.String(), m.Name+".tar.gz")
		f.put(t, m.Path(), "version/"+v.String(), registry.ModuleVersion{
			Version: v, SHA256: archive.SHA256, Size: archive.Size, ContentSHA256: archive.SHA256,
			Object: m.ArchiveKey(v, archive.SHA256), PublishedAt: before(i), PublishedBy: operator,
			Description: "A network with public and private subnets",
		})
	}
	f.Entry(t, m, all[0], "")
}

// Contents returns stored contents with inputs, whose names are separated by
// spaces.
func Contents(inputs string) []byte {
	return registry.Contents{Names: registry.Names{Inputs: inputs}}.Encode()
}

// Entry writes the catalog entry of a module, and its contents if it has
// inputs.
func (f *Filler) Entry(t testing.TB, m registry.Module, latest registry.Version, inputs string) {
	t.Helper()
	contents := ""
	if inputs != "" {
		contents = "0123456789ab"
		f.put(t, "catalog/"+m.Namespace, "contents/"+m.Path(), protocol.Document(Contents(inputs)))
	}
	f.put(t, "catalog/"+m.Namespace, m.Path(), registry.Summary{
		Address: m.String(), Latest: latest, Description: "A network with public and private subnets", Contents: contents,
		PublishedAt: long, Source: "https://github.com/" + m.Namespace + "/terraform-" + m.System + "-" + m.Name,
	})
}

// Namespace writes a namespace, whose entries lists then read.
func (f *Filler) Namespace(t testing.TB, name string) {
	t.Helper()
	f.put(t, "namespaces", name, struct{}{})
}

func packages(path, kind string, v registry.Version, platforms int) []registry.ProviderPackage {
	all := make([]registry.ProviderPackage, platforms)
	for i, platform := range Platforms[:platforms] {
		name := fmt.Sprintf("terraform-provider-%s_%s_%s.zip", kind, v, platform)
		zip := file(path+"/"+v.String(), name)
		digest := sha256.Sum256([]byte(zip.SHA256))
		all[i] = registry.ProviderPackage{
			Platform: platform, Filename: name, H1: "h1:" + base64.StdEncoding.EncodeToString(digest[:]), StoredFile: zip,
		}
	}
	slices.SortFunc(all, func(a, b registry.ProviderPackage) int {
		return registry.ComparePlatforms(a.Platform, b.Platform)
	})
	return all
}

// Provider writes a provider like Module does. The key with the given id signs
// each version.
func (f *Filler) Provider(t testing.TB, p registry.Provider, key string, versions, records, platforms int) {
	t.Helper()
	var listing protocol.ProviderListing
	for i, v := range newest(versions) {
		of := packages(p.Path(), p.Type, v, platforms)
		like := of[0].StoredFile // any file will do
		record := registry.ProviderVersion{
			Version: v, Protocols: []string{"6.0"}, Packages: of, Sums: like, Signature: like, SigningKey: key,
			PublishedAt: before(i), PublishedBy: operator,
		}
		listing.Versions = append(listing.Versions, protocol.ListProvider(record))
		if i < records {
			f.put(t, p.Path(), "version/"+v.String(), record)
		}
	}
	f.putListing(t, p.Path(), listing)
	f.put(t, "catalog/"+p.Namespace, p.Path(), registry.Summary{Address: p.String(), Latest: Version(versions)})
}

// MirroredModule writes a mirrored module, with the record of its newest version.
func (f *Filler) MirroredModule(t testing.TB, a registry.MirrorAddress, versions int) {
	t.Helper()
	all := newest(versions)
	f.putListing(t, a.Path(), protocol.MirrorListing(all).Index(nil))
	docs := file(a.Path()+"/"+all[0].String(), registry.DocsName)
	f.put(t, a.Path(), "version/"+all[0].String(), registry.MirrorVersion{
		Version: all[0],
		Module: &registry.MirroredModule{
			StoredFile: file(a.Path()+"/"+all[0].String(), a.Name+".tar.gz"), MirroredAt: long, MirroredBy: operator,
			Pin: registry.ModulePin{
				Source: "https://github.com/acme/terraform-aws-" + a.Name, Commit: strings.Repeat("0", 40),
				H1: "h1:" + strings.Repeat("a", 43) + "=",
			},
			Documents: registry.Documents{Docs: &docs}, Contents: Contents(strings.Repeat("input_name ", 40)),
		},
	})
}

// Mirrored writes a mirrored provider, with the record of its newest version. The
// key of its origin has the size of a usual one.
func (f *Filler) Mirrored(t testing.TB, p registry.MirrorAddress, versions, platforms int) {
	t.Helper()
	all := newest(versions)
	verifiable := make(map[registry.Version][]registry.Platform)
	for _, v := range all {
		verifiable[v] = Platforms[:platforms]
	}
	f.putListing(t, p.Path(), protocol.MirrorListing(all).Index(verifiable))
	record := registry.MirrorVersion{Version: all[0]}
	for _, pkg := range packages(p.Path(), p.Name, all[0], platforms) {
		record.Packages = append(record.Packages, registry.MirrorPackage{
			ProviderPackage: pkg, SigningKey: "0C0AF313E5FD9F80", Sums: 1, MirroredAt: long, MirroredBy: operator,
		})
	}
	folder, sums := p.Path()+"/"+all[0].String(), "terraform-provider-"+p.Name+"_"+all[0].String()+"_SHA256SUMS"
	record.Sums = []registry.MirrorSums{{
		Sums: file(folder, sums), Signature: file(folder, sums+".sig"), SigningKey: "0C0AF313E5FD9F80",
		Keys: []registry.PublicKey{{KeyID: "0C0AF313E5FD9F80", ASCIIArmor: strings.Repeat("a", 3200)}},
	}}
	f.put(t, p.Path(), "version/"+all[0].String(), record)
}
