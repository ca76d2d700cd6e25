package publish

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/larder-registry/larder/pkg/archive"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/regularfile"
	"github.com/larder-registry/larder/pkg/signing"
)

// Provider is a release of a provider to publish, as goreleaser leaves it in a folder: zips, SHA256SUMS, its signature and
// a manifest.
type Provider struct {
	Dir     string
	Address registry.Provider
	// SignKey is a private key with which SHA256SUMS, made of the zips that are there, is signed here; nil takes both from
	// the folder.
	SignKey []byte
	// Passphrase opens it.
	Passphrase []byte
	// Protocols are those that the provider speaks, where there is no manifest to say it.
	Protocols []string
	// DryRun ends after inspection.
	DryRun bool
}

// ProviderResult says what became of a publish.
type ProviderResult struct {
	// Record is the stored one, or, of a dry run, the one that would be.
	Record registry.ProviderVersion
	// Unchanged says that the same content had been published before, and Restored that some of it was missing from the store, and
	// was put back.
	Unchanged, Restored bool
	// Shared are platforms whose packages are the same as another's, so that OpenTofu gets no hashes of the others.
	Shared []registry.Platform
}

// MaxManifest bounds a manifest, in bytes.
const MaxManifest = 64 << 10

// parallel is how many files are read or sent at once.
const parallel = 4

// release is what inspection found out about a folder.
type release struct {
	record registry.ProviderVersion
	files  []file
	keys   map[string]bool // of the namespace, by their ids
}

// file is one to be stored.
type file struct {
	name   string
	stored registry.StoredFile
	path   string // where it lies
	data   []byte // what is in it, if it lies nowhere

	zip archive.ProviderZip
	h1  *string // where the zip's goes; nil where it is known, or nobody asks for it
}

// Provider publishes a provider. Publishing the same SHA256SUMS again changes nothing and succeeds; another one under the
// same version is registry.ErrExists. What is wrong with the release is registry.ErrInvalid.
//
// It needs a Catalog, also for a dry run: the keys are there.
func (p *Publisher) Provider(ctx context.Context, m Provider) (ProviderResult, error) {
	p.step("reading " + filepath.Clean(m.Dir))
	r, err := p.inspectProvider(ctx, m)
	if err != nil {
		return ProviderResult{}, err
	}
	result := ProviderResult{Record: r.record}
	if m.DryRun {
		return p.checkProvider(ctx, m, result)
	}
	version, signer := r.record.Version, r.record.SigningKey
	stored, created, err := p.Catalog.Providers.Publish(ctx, m.Address, version, p.By.String(), func(ctx context.Context) (registry.ProviderVersion, error) {
		if _, err := p.uploadFiles(ctx, r.files); err != nil {
			return registry.ProviderVersion{}, err
		}
		p.step(fmt.Sprintf("publishing %s %s", m.Address, version))
		return r.record, nil
	})
	if err != nil {
		return ProviderResult{}, err
	}
	if result, err = result.settle(m.Address, stored, !created); err != nil || created {
		return result, err
	}
	if stored.SigningKey != signer && !r.keys[stored.SigningKey] {
		return ProviderResult{}, fmt.Errorf("%w: provider %s %s is published with a signature by key %s, which the namespace does not have any more, so that nobody can install it: add that key again, or publish under a new version", registry.ErrExists, m.Address, stored.Version, stored.SigningKey)
	}
	// What is missing from the store is put back.
	result.Restored, err = p.uploadFiles(ctx, r.of(stored))
	return result, err
}

// checkProvider returns what a publish would come to.
func (p *Publisher) checkProvider(ctx context.Context, m Provider, result ProviderResult) (ProviderResult, error) {
	stored, err := p.Catalog.Providers.Check(ctx, m.Address, result.Record.Version)
	switch {
	case errors.Is(err, registry.ErrNotFound):
		result.Shared = protocol.SharedHashes(result.Record.Packages)
		return result, nil
	case err != nil:
		return ProviderResult{}, fmt.Errorf("cannot publish %s %s: %w", m.Address, result.Record.Version, err)
	}
	return result.settle(m.Address, stored, true)
}

// settle compares what is stored with what was to be. A signature is made anew each time, and is no other content.
func (r ProviderResult) settle(p registry.Provider, stored registry.ProviderVersion, before bool) (ProviderResult, error) {
	if stored.Sums.SHA256 == r.Record.Sums.SHA256 && !slices.Equal(stored.Protocols, r.Record.Protocols) {
		return ProviderResult{}, fmt.Errorf("%w: provider %s %s is published for protocols %s, and versions do not change", registry.ErrExists, p, stored.Version, strings.Join(stored.Protocols, ", "))
	}
	if stored.Sums.SHA256 != r.Record.Sums.SHA256 {
		return ProviderResult{}, fmt.Errorf("%w: provider %s %s is published with another SHA256SUMS, and versions do not change: publish yours under a new version (stored sha256:%s, yours sha256:%s)",
			registry.ErrExists, p, stored.Version, stored.Sums.SHA256, r.Record.Sums.SHA256)
	}
	r.Record, r.Unchanged, r.Shared = stored, before, protocol.SharedHashes(stored.Packages)
	return r, nil
}

// of returns the files that a record names, which has the h1 of its packages.
func (r release) of(record registry.ProviderVersion) []file {
	files := slices.DeleteFunc(slices.Clone(r.files), func(f file) bool {
		return f.stored != record.Sums && f.stored != record.Signature &&
			!slices.ContainsFunc(record.Packages, func(p registry.ProviderPackage) bool { return p.StoredFile == f.stored })
	})
	for i := range files {
		files[i].h1 = nil
	}
	return files
}

// inspectProvider finds out about a release, and fails where a client would, or might. A dry run finds out all; otherwise
// zips are unpacked as they are sent.
func (p *Publisher) inspectProvider(ctx context.Context, m Provider) (release, error) {
	names, r, err := p.nameProvider(m)
	if err != nil {
		return release{}, err
	}
	keys, err := p.Catalog.SigningKeys(ctx, m.Address.Namespace)
	if err != nil {
		return release{}, err
	}
	if len(keys) == 0 {
		return release{}, fmt.Errorf("%w release: namespace %s has no key yet: add the public key that signs its providers by `larder key add %s FILE`", registry.ErrInvalid, m.Address.Namespace, m.Address.Namespace)
	}
	r.keys = make(map[string]bool, len(keys))
	for _, k := range keys {
		r.keys[k.ID] = true
	}
	read := archive.InspectProviderFile
	if m.DryRun {
		read = archive.ReadProviderFile
	}
	if err := p.readZips(ctx, m, names, &r, read); err != nil {
		return release{}, err
	}
	signed, err := r.signed(m, names, p.now())
	if err != nil {
		return release{}, err
	}
	if m.SignKey != nil && !r.keys[signed.key] {
		return release{}, fmt.Errorf("%w key: namespace %s does not have key %s, so that no client would trust it: add its public half by `larder key add %s FILE`", registry.ErrInvalid, m.Address.Namespace, signed.key, m.Address.Namespace)
	}
	// As clients will.
	signer, err := signing.Verify(keys, signed.sums, signed.signature, p.now())
	if err != nil {
		return release{}, fmt.Errorf("%s.sig: %w", names.sums, err)
	}
	r.record.SigningKey = signer.ID
	r.addSigned(m, names, signed)
	return r, nil
}

// nameProvider begins a release with what names and the manifest say of it.
func (p *Publisher) nameProvider(m Provider) (releaseFiles, release, error) {
	names, version, err := findRelease(m.Dir, m.Address.Type)
	if err != nil {
		return releaseFiles{}, release{}, err
	}
	r := release{record: registry.ProviderVersion{Version: version, PublishedAt: p.now().UTC().Truncate(time.Second), PublishedBy: p.By}}
	r.record.Protocols, err = protocols(m, names)
	return names, r, err
}

// signed is a SHA256SUMS with its signature. Whether the signature holds is not known yet.
type signed struct {
	sums, signature []byte
	key             string // that it names, or of the key that it was made with
}

// signed takes SHA256SUMS and its signature from the folder, or makes them.
func (r *release) signed(m Provider, names releaseFiles, now time.Time) (signed, error) {
	if m.SignKey != nil {
		return r.sign(m, names, now)
	}
	return r.readSigned(m, names, now)
}

func (r *release) addSigned(m Provider, names releaseFiles, s signed) {
	r.record.Sums = r.add(m, names.sums, s.sums)
	r.record.Signature = r.add(m, names.sums+".sig", s.signature)
}

// add takes a file of which the content is known.
func (r *release) add(m Provider, name string, data []byte) registry.StoredFile {
	sum := sha256Of(data)
	stored := registry.StoredFile{Object: m.Address.FileKey(r.record.Version, sum, name), SHA256: sum, Size: int64(len(data))}
	r.files = append(r.files, file{name: name, stored: stored, data: data})
	return stored
}

// releaseFiles are the names of a release's files.
type releaseFiles struct {
	sums                string // its name, also where it is not there
	hasSums             bool
	signature, manifest string // a name and a path; empty where there is none
	zips                map[string]registry.Platform
}

// manifestName is how SHA256SUMS calls the manifest, whatever it is called where it lies.
func (f releaseFiles) manifestName() string {
	return strings.TrimSuffix(f.sums, "SHA256SUMS") + "manifest.json"
}

// findRelease finds the files of a release by their names, which must all be of one version.
func findRelease(dir, providerType string) (releaseFiles, registry.Version, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return releaseFiles{}, registry.Version{}, fmt.Errorf("%w folder: %w", registry.ErrInvalid, err)
	}
	var files []string
	for _, entry := range entries {
		if !entry.IsDir() {
			files = append(files, entry.Name())
		}
	}
	names, err := NameRelease(providerType, files)
	if err != nil {
		return releaseFiles{}, registry.Version{}, fmt.Errorf("%s: %w", dir, err)
	}
	found := releaseFiles{sums: names.Sums, hasSums: names.HasSums, zips: names.Zips}
	if names.HasSignature {
		found.signature = names.Sums + ".sig"
	}
	if found.manifest = sourceManifest(dir); names.Manifest != "" {
		found.manifest = filepath.Join(dir, names.Manifest)
	}
	return found, names.Version, nil
}

// sourceManifest finds the manifest as it lies beside a provider's source: goreleaser takes its sum and uploads it under
// another name, but leaves it where it is, which is one folder above what it makes.
func sourceManifest(dir string) string {
	for _, where := range []string{dir, filepath.Join(dir, "..")} {
		path := filepath.Join(where, "terraform-registry-manifest.json")
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path
		}
	}
	return ""
}

// maxPlatforms keeps a version's record well within an item of the table.
const maxPlatforms = 200

var pluginProtocol = regexp.MustCompile(`^(0|[1-9][0-9]{0,2})\.(0|[1-9][0-9]{0,2})$`)

// protocols returns those that the manifest names, or, where there is none, those that were given.
func protocols(m Provider, names releaseFiles) ([]string, error) {
	if names.manifest == "" {
		if len(m.Protocols) == 0 {
			return nil, fmt.Errorf("%w release: there is no manifest that says which protocol of plugins the provider speaks: add %s, or say it, such as --protocol 6.0",
				registry.ErrInvalid, names.manifestName())
		}
		return m.Protocols, CheckProtocols(m.Protocols)
	}
	text, err := regularfile.Read(names.manifest, MaxManifest)
	if err != nil {
		return nil, err
	}
	found, err := ParseManifest(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Base(names.manifest), err)
	}
	if len(m.Protocols) > 0 && !slices.Equal(m.Protocols, found) {
		return nil, fmt.Errorf("%w protocols: the manifest says %s: leave out --protocol", registry.ErrInvalid, strings.Join(found, ", "))
	}
	return found, nil
}

// ParseManifest returns the protocols that a provider's manifest names. Errors are registry.ErrInvalid.
//
// Source: https://developer.hashicorp.com/terraform/registry/providers/publishing, "Terraform Registry Manifest File".
func ParseManifest(text []byte) ([]string, error) {
	var manifest struct {
		Version  int
		Metadata struct {
			ProtocolVersions []string `json:"protocol_versions"`
		}
	}
	if err := json.Unmarshal(text, &manifest); err != nil || manifest.Version != 1 {
		return nil, fmt.Errorf(`%w manifest: it must look like {"version": 1, "metadata": {"protocol_versions": ["6.0"]}}`, registry.ErrInvalid)
	}
	return manifest.Metadata.ProtocolVersions, CheckProtocols(manifest.Metadata.ProtocolVersions)
}

// CheckProtocols says whether clients can make sense of protocols: each major version once, and one that they speak. Errors
// are registry.ErrInvalid.
func CheckProtocols(protocols []string) error {
	majors := make(map[string]bool)
	for _, v := range protocols {
		major, _, _ := strings.Cut(v, ".")
		if !pluginProtocol.MatchString(v) || majors[major] {
			return fmt.Errorf("%w protocols %q: each is MAJOR.MINOR, such as 6.0, and no major version comes twice", registry.ErrInvalid, protocols)
		}
		majors[major] = true
	}
	if !majors["5"] && !majors["6"] {
		return fmt.Errorf("%w protocols %q: clients speak 5 and 6: say so in the manifest, or by --protocol", registry.ErrInvalid, protocols)
	}
	return nil
}

// readZips reads the zips by one of archive.ReadProviderFile and archive.InspectProviderFile, several at once.
func (p *Publisher) readZips(ctx context.Context, m Provider, names releaseFiles, r *release, read func(context.Context, string, string) (archive.Provider, error)) error {
	found := make([]registry.ProviderPackage, 0, len(names.zips))
	for name, platform := range names.zips {
		found = append(found, registry.ProviderPackage{Platform: platform, Filename: name})
	}
	slices.SortFunc(found, func(a, b registry.ProviderPackage) int {
		return registry.ComparePlatforms(a.Platform, b.Platform)
	})
	files := make([]file, len(found))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i := range found {
		group.Go(func() error {
			pkg := &found[i]
			p.step("checking " + pkg.Filename)
			path := filepath.Join(m.Dir, pkg.Filename)
			zip, err := read(ctx, path, m.Address.Type)
			if err == nil {
				err = zip.RunsOn(pkg.Platform)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", pkg.Filename, err)
			}
			pkg.StoredFile = registry.StoredFile{Object: m.Address.FileKey(r.record.Version, zip.SHA256, pkg.Filename), SHA256: zip.SHA256, Size: zip.Size}
			pkg.H1 = zip.H1
			files[i] = file{name: pkg.Filename, stored: pkg.StoredFile, path: path}
			if pkg.H1 == "" {
				files[i].zip, files[i].h1 = zip.ProviderZip, &pkg.H1
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	r.record.Packages = found
	r.files = append(r.files, files...)
	return nil
}

// checkSums checks that SHA256SUMS is what clients read, and holds for the files that are there.
func (r *release) checkSums(m Provider, names releaseFiles, text []byte) error {
	sums, err := signing.ParseSums(text)
	if err != nil {
		return fmt.Errorf("%s: %w", names.sums, err)
	}
	if err := CheckSums(r.record.Packages, names.manifest != "", sums); err != nil {
		return err
	}
	for _, s := range sums {
		if err := r.accounts(m, names, s); err != nil {
			return err
		}
	}
	return nil
}

// readSigned reads the folder's SHA256SUMS and its signature, which must be what clients accept, and speak of these zips.
func (r *release) readSigned(m Provider, names releaseFiles, now time.Time) (found signed, err error) {
	if found.sums, err = regularfile.Read(filepath.Join(m.Dir, names.sums), signing.MaxSums); err != nil {
		return found, fmt.Errorf("%w: without it there is nothing to verify: build the release with it, or sign here with --sign-key", err)
	}
	if found.signature, err = regularfile.Read(filepath.Join(m.Dir, names.sums+".sig"), signing.MaxSignature); err != nil {
		return found, fmt.Errorf("%w: sign SHA256SUMS by `gpg --detach-sign`, or here with --sign-key", err)
	}
	if err := r.checkSums(m, names, found.sums); err != nil {
		return found, err
	}
	if found.key, err = signing.Issuer(found.signature, now); err != nil {
		return found, fmt.Errorf("%s.sig: %w", names.sums, err)
	}
	return found, nil
}

// accounts checks a line of SHA256SUMS that is of another file than a zip, whose sum must hold where it is there.
func (r *release) accounts(m Provider, names releaseFiles, s signing.Sum) error {
	if _, there := names.zips[s.Filename]; there {
		return nil
	}
	path := filepath.Join(m.Dir, s.Filename)
	if strings.HasSuffix(s.Filename, "_manifest.json") && names.manifest != "" {
		path = names.manifest
	}
	f, err := regularfile.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil // no client reads it
	}
	if err != nil {
		return err
	}
	defer f.Close()
	got, err := sha256From(f)
	if err == nil && got != s.SHA256 {
		err = fmt.Errorf("%w release: %s is not the file that %s speaks of", registry.ErrInvalid, s.Filename, names.sums)
	}
	return err
}

// sign signs SHA256SUMS: the folder's own, if it has one and it holds, or one that is made of the zips and the manifest.
func (r *release) sign(m Provider, names releaseFiles, now time.Time) (made signed, err error) {
	if names.signature != "" {
		return made, fmt.Errorf("%w release: %s is signed already: publish it without --sign-key, or take %s away", registry.ErrInvalid, m.Dir, names.signature)
	}
	if names.hasSums {
		if made.sums, err = regularfile.Read(filepath.Join(m.Dir, names.sums), signing.MaxSums); err == nil {
			err = r.checkSums(m, names, made.sums)
		}
	} else {
		made.sums, err = r.makeSums(names)
	}
	if err != nil {
		return made, err
	}
	var key signing.Key
	made.signature, key, err = signing.Sign(m.SignKey, m.Passphrase, made.sums, now)
	made.key = key.ID
	return made, err
}

func (r *release) makeSums(names releaseFiles) ([]byte, error) {
	var sums []signing.Sum
	for _, pkg := range r.record.Packages {
		sums = append(sums, signing.Sum{SHA256: pkg.SHA256, Filename: pkg.Filename})
	}
	if names.manifest != "" {
		manifest, err := regularfile.Read(names.manifest, MaxManifest)
		if err != nil {
			return nil, err
		}
		sums = append(sums, signing.Sum{SHA256: sha256Of(manifest), Filename: names.manifestName()})
	}
	return signing.RenderSums(sums), nil
}

// uploadFiles puts files where their records say, several at once. Keys name their content, so one that is there is the
// right one, and is not sent again.
func (p *Publisher) uploadFiles(ctx context.Context, files []file) (sent bool, err error) {
	var missing, unknown []file
	var size int64
	for _, f := range files {
		info, err := p.Objects.Stat(ctx, f.stored.Object)
		if err != nil && !errors.Is(err, registry.ErrNotFound) {
			return false, err
		}
		if err == nil && info.Size != f.stored.Size {
			return false, damagedObject(f.stored.Object, info.Size, f.stored.Size)
		}
		switch {
		case err != nil:
			missing = append(missing, f)
			size += f.stored.Size
		case f.h1 != nil:
			unknown = append(unknown, f)
		}
	}
	if stored := len(files) - len(missing); stored > 0 && len(missing) > 0 {
		p.step(fmt.Sprintf("%d of %d files are stored already", stored, len(files)))
	}
	total := func(int) {}
	if p.Progress != nil && len(missing) > 1 {
		total = p.Progress.Upload(fmt.Sprintf("%d files", len(missing)), size)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, f := range missing {
		group.Go(func() error {
			if err := p.uploadFile(ctx, f, total); err != nil {
				return fmt.Errorf("uploading %s: %w", f.name, err)
			}
			return nil
		})
	}
	for _, f := range unknown {
		group.Go(func() error {
			p.step("unpacking " + f.name)
			if err := hashZip(ctx, f); err != nil {
				return fmt.Errorf("%s: %w", f.name, err)
			}
			return nil
		})
	}
	return len(missing) > 0, group.Wait()
}

func (p *Publisher) uploadFile(ctx context.Context, f file, total func(int)) error {
	if f.h1 != nil {
		return p.sendZip(ctx, f, total)
	}
	body := io.ReadSeeker(bytes.NewReader(f.data))
	if f.path != "" {
		opened, err := os.Open(f.path)
		if err != nil {
			return err
		}
		defer opened.Close()
		body = opened
	}
	_, err := p.put(ctx, f.name, body, f.stored, total)
	return err
}
