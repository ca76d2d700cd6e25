package main

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/larder-registry/larder/internal/testkit/keys"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// shelf writes items directly in the form that pkg/catalog stores them.
// Publishing each version would render a long listing each time.
type shelf struct {
	table   catalog.Table
	pending []catalog.Change
}

// batch is the number of items of one write, which is the maximum of the
// tables.
const batch = 100

func (s *shelf) put(ctx context.Context, partition, sort string, data []byte) error {
	s.pending = append(s.pending, catalog.Change{Key: catalog.Key{Partition: partition, Sort: sort}, Data: data})
	if len(s.pending) < batch {
		return nil
	}
	return s.flush(ctx)
}

func (s *shelf) putJSON(ctx context.Context, partition, sort string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return s.put(ctx, partition, sort, data)
}

// flush writes the pending items.
func (s *shelf) flush(ctx context.Context) error {
	if len(s.pending) == 0 {
		return nil
	}
	err := s.table.Write(ctx, s.pending...)
	s.pending = s.pending[:0]
	return err
}

// version returns the nth version, counted from 1: 1.0.0, 1.0.1 and so on.
// There are ten patches to a minor version, and ten minor to a major version.
func version(n int) registry.Version {
	n--
	v, err := registry.ParseVersion(fmt.Sprintf("%d.%d.%d", 1+n/100, n/10%10, n%10))
	if err != nil {
		panic(err) // the format is valid
	}
	return v
}

// newest returns n versions, the newest first.
func newest(n int) []registry.Version {
	all := make([]registry.Version, n)
	for i := range all {
		all[i] = version(n - i)
	}
	return all
}

// platforms are the platforms of providers, the most common ones first.
var platforms = []registry.Platform{
	{OS: "linux", Arch: "amd64"}, {OS: "linux", Arch: "arm64"}, {OS: "darwin", Arch: "amd64"}, {OS: "darwin",
		Arch: "arm64"}, {OS: "windows", Arch: "amd64"},
	{OS: "linux", Arch: "386"}, {OS: "linux", Arch: "arm"}, {OS: "windows", Arch: "386"}, {OS: "freebsd",
		Arch: "386"}, {OS: "freebsd", Arch: "amd64"}, {OS: "freebsd", Arch: "arm"},
	{OS: "freebsd", Arch: "arm64"}, {OS: "openbsd", Arch: "amd64"}, {OS: "windows", Arch: "arm64"},
}

// operator is the publisher of everything.
var operator = registry.Publisher{
	Kind: registry.PublisherAWS, Name: "arn:aws:iam::111122223333:user/publisher",
}

var long = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC) // long ago

// before returns the time of the publish of the version that is i versions
// before the newest. The intervals vary all digits, as in a real listing.
func before(i int) time.Time { return long.Add(-time.Duration(i) * 133_337 * time.Second) }

// sum returns a fake digest of a file.
func sum(of ...any) [sha256.Size]byte { return sha256.Sum256(fmt.Append(nil, of...)) }

// module writes a module with a number of versions, and the records of the
// newest ones.
func (s *shelf) module(ctx context.Context, m registry.Module, versions, records int) error {
	return s.moduleWith(ctx, m, versions, records, registry.ModuleVersion{
		PublishedAt: long, PublishedBy: operator, Description: "A network with public and private subnets",
	})
}

// moduleWith is like module. All records are like the given one, except for
// their versions and archives.
func (s *shelf) moduleWith(
	ctx context.Context, m registry.Module, versions, records int, like registry.ModuleVersion,
) error {
	all := newest(versions)
	var listing protocol.ModuleListing
	for i, v := range all {
		listing.Versions = append(listing.Versions, protocol.ListedModule{Version: v, PublishedAt: before(i)})
	}
	compressed, err := protocol.Compress(listing)
	if err != nil {
		return err
	}
	if err := s.put(ctx, m.Path(), "listing", compressed); err != nil {
		return err
	}
	for _, v := range all[:records] {
		digest := sum(m, v)
		record := like
		record.Version, record.SHA256, record.Size = v, hex.EncodeToString(digest[:]), 12345
		record.ContentSHA256, record.Object = record.SHA256, m.ArchiveKey(v, record.SHA256)
		if err := s.putJSON(ctx, m.Path(), "version/"+v.String(), record); err != nil {
			return err
		}
	}
	like.Version = all[0]
	return s.moduleEntry(ctx, m, like)
}

// moduleEntry writes the catalog entry of a module.
func (s *shelf) moduleEntry(ctx context.Context, m registry.Module, latest registry.ModuleVersion) error {
	return s.putJSON(ctx, "catalog/"+m.Namespace, m.Path(), registry.Summary{
		Address: m.String(), Latest: latest.Version, Description: latest.Description, Words: latest.Words,
		PublishedAt: latest.PublishedAt, Source: latest.PublishedBy.SourceURL(),
	})
}

// packages returns the packages of a version.
func packages(n int, path, kind string, v registry.Version) []registry.ProviderPackage {
	all := make([]registry.ProviderPackage, n)
	for i, platform := range platforms[:n] {
		digest := sum(path, v, platform)
		hexadecimal := hex.EncodeToString(digest[:])
		name := "terraform-provider-" + kind + "_" + v.String() + "_" + platform.String() + ".zip"
		all[i] = registry.ProviderPackage{
			Platform: platform, Filename: name, H1: "h1:" + base64.StdEncoding.EncodeToString(digest[:]),
			StoredFile: registry.StoredFile{Object: path + "/" + v.String() + "/" + hexadecimal + "/" + name,
				SHA256: hexadecimal, Size: 20 << 20},
		}
	}
	slices.SortFunc(all, func(a, b registry.ProviderPackage) int {
		return registry.ComparePlatforms(a.Platform, b.Platform)
	})
	return all
}

// provider writes a provider like module does. The key with the given id signs
// each version.
func (s *shelf) provider(ctx context.Context, p registry.Provider, key string, versions, records,
	platforms int) error {
	var listing protocol.ProviderListing
	for i, v := range newest(versions) {
		of := packages(platforms, p.Path(), p.Type, v)
		file := of[0].StoredFile // any file will do
		record := registry.ProviderVersion{
			Version: v, Protocols: []string{"6.0"}, Packages: of, Sums: file, Signature: file, SigningKey: key,
			PublishedAt: before(i), PublishedBy: operator,
		}
		listing.Versions = append(listing.Versions, protocol.ListProvider(record))
		if i >= records {
			continue
		}
		if err := s.putJSON(ctx, p.Path(), "version/"+v.String(), record); err != nil {
			return err
		}
	}
	data, err := protocol.Compress(listing)
	if err != nil {
		return err
	}
	if err := s.put(ctx, p.Path(), "listing", data); err != nil {
		return err
	}
	return s.putJSON(ctx, "catalog/"+p.Namespace, p.Path(),
		registry.Summary{Address: p.String(), Latest: version(versions)})
}

// mirrored writes a mirrored provider, with the record of its newest version.
func (s *shelf) mirrored(ctx context.Context, p registry.MirrorProvider, versions, platforms int) error {
	all := newest(versions)
	data, err := protocol.Compress(protocol.MirrorListing(all))
	if err != nil {
		return err
	}
	if err := s.put(ctx, p.Path(), "listing", data); err != nil {
		return err
	}
	record := registry.MirrorVersion{Version: all[0]}
	for _, pkg := range packages(platforms, p.Path(), p.Type, all[0]) {
		record.Packages = append(record.Packages,
			registry.MirrorPackage{ProviderPackage: pkg, SigningKey: "0C0AF313E5FD9F80", MirroredAt: long,
				MirroredBy: operator})
	}
	return s.putJSON(ctx, p.Path(), "version/"+all[0].String(), record)
}

// releasePrefix returns the prefix of the names of a release's files.
func releasePrefix(kind string, v registry.Version) string {
	return "terraform-provider-" + kind + "_" + v.String() + "_"
}

// writeRelease writes a release of a provider to a new folder. It has a program
// of random bytes for each platform, and is signed with a key.
func writeRelease(
	dir string, key keys.SigningKey, kind string, v registry.Version, of []registry.Platform, size int,
) error {
	prefix := releasePrefix(kind, v)
	files := map[string][]byte{
		prefix + "manifest.json": []byte(`{"version":1,"metadata":{"protocol_versions":["6.0"]}}`),
	}
	for _, platform := range of {
		var packed bytes.Buffer
		w := zip.NewWriter(&packed)
		header := &zip.FileHeader{Name: "terraform-provider-" + kind + "_v" + v.String(), Method: zip.Store}
		header.SetMode(0o755)
		program, err := w.CreateHeader(header)
		if err == nil {
			_, err = program.Write(random(size))
		}
		if err := errors.Join(err, w.Close()); err != nil {
			return err
		}
		files[prefix+platform.String()+".zip"] = packed.Bytes()
	}
	var sums []byte
	for name, content := range files {
		sums = fmt.Appendf(sums, "%x  %s\n", sha256.Sum256(content), name)
	}
	files[prefix+"SHA256SUMS"] = sums
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return err
		}
	}
	return key.SignRelease(dir)
}
