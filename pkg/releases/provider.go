package releases

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/larder-registry/larder/pkg/archive"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/regularfile"
	"github.com/larder-registry/larder/pkg/signing"
)

// Provider is a release of a provider to publish, as goreleaser leaves it in a
// folder: zips, SHA256SUMS, its signature and a manifest.
type Provider struct {
	Dir     string
	Address registry.Provider
	// SignKey is a private key with which SHA256SUMS, made of the zips that are
	// there, is signed here; nil takes both from the folder.
	SignKey []byte
	// Passphrase opens it.
	Passphrase []byte
	// Protocols are those that the provider speaks, where there is no manifest
	// to say it.
	Protocols []string
}

// ProviderResult is the outcome of publishing a provider.
type ProviderResult struct {
	// Record is the stored one or, if nothing was published yet, the one that would
	// be.
	Record registry.ProviderVersion
	// Unchanged reports that the same content had been published before, and
	// Restored that some of it was missing from the store and was put back.
	Unchanged, Restored bool
	// NotCompared reports that the registry cannot read some of what it has stored,
	// so that it has not compared that.
	NotCompared bool
	// Shared are platforms whose packages are the same as another's, so that
	// OpenTofu gets no hashes of the others.
	Shared []registry.Platform
	// Dropped are platforms that the version before has, and this one has not.
	Dropped *protocol.DroppedPlatforms
}

// PreparedProvider is a provider's release that is ready to be published.
type PreparedProvider struct {
	Address registry.Provider
	// ProviderResult has a record without a publisher, with the object keys
	// that the publish API would choose. Its signing key is the one that the
	// signature names, which may be a part of another, until Verify.
	ProviderResult
	// Files are the zips, in the order of the record's packages, SHA256SUMS, its
	// signature and, if there is one, the manifest.
	Files []File

	preparer        Preparer
	from            Provider
	names           Names
	manifest        []byte // nil if there is none
	sums, signature []byte
}

// Provider checks a release in full and, if it is to be signed here, signs it.
// What is wrong with the release is registry.ErrInvalid. It does not know whether
// the signature is by a key of the namespace.
func (p Preparer) Provider(ctx context.Context, m Provider) (*PreparedProvider, error) {
	r, err := p.Find(m)
	if err != nil {
		return nil, err
	}
	return r, r.Read(ctx, true)
}

// Find finds the files of a release by their names, which must all be of one
// version, and reads the manifest. Errors are registry.ErrInvalid. The result is
// ready after Read.
func (p Preparer) Find(m Provider) (*PreparedProvider, error) {
	p.step("reading " + filepath.Clean(m.Dir))
	r := &PreparedProvider{Address: m.Address, preparer: p, from: m}
	entries, err := os.ReadDir(m.Dir)
	if err != nil {
		return nil, fmt.Errorf("%w folder: %w", registry.ErrInvalid, err)
	}
	var files []string
	for _, entry := range entries {
		if !entry.IsDir() {
			files = append(files, entry.Name())
		}
	}
	if r.names, err = ParseNames(m.Address.Type, files); err != nil {
		return nil, fmt.Errorf("%s: %w", m.Dir, err)
	}
	r.Record.Version, r.Record.PublishedAt = r.names.Version, p.now().UTC().Truncate(time.Second)
	r.Record.Protocols, err = r.protocols()
	return r, err
}

func (r *PreparedProvider) path(name string) string { return filepath.Join(r.from.Dir, name) }

// sourceManifest finds the manifest as it lies beside a provider's source:
// goreleaser takes its sum and uploads it under another name, but leaves it
// where it is, which is one folder above what it makes.
func sourceManifest(dir string) string {
	for _, where := range []string{dir, filepath.Join(dir, "..")} {
		path := filepath.Join(where, "terraform-registry-manifest.json")
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path
		}
	}
	return ""
}

// protocols returns those that the manifest names or, if there is none, those
// that were given.
func (r *PreparedProvider) protocols() (named []string, err error) {
	given := r.from.Protocols
	path := sourceManifest(r.from.Dir)
	if r.names.Manifest != "" {
		path = r.path(r.names.Manifest)
	}
	if path == "" {
		if len(given) == 0 {
			return nil, invalidRelease(
				"there is no manifest that says which protocol of plugins the provider speaks: add %s, or say "+
					"it, such as --protocol 6.0", r.names.ManifestName())
		}
		return given, CheckProtocols(given)
	}
	if r.manifest, err = regularfile.Read(path, MaxManifest); err != nil {
		return nil, err
	}
	if named, err = ParseManifest(r.manifest); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	if len(given) > 0 {
		if err := CheckManifest(named, given); err != nil {
			return nil, fmt.Errorf("%w: leave out --protocol", err)
		}
	}
	return named, nil
}

// Read reads the files and checks them. Unless unpack is set, it leaves the
// unpacking of zips to the caller: these have no H1 yet, and File.Zip.
func (r *PreparedProvider) Read(ctx context.Context, unpack bool) error {
	if err := r.readZips(ctx, unpack); err != nil {
		return err
	}
	var err error
	if r.from.SignKey != nil {
		err = r.sign()
	} else {
		err = r.readSigned()
	}
	if err != nil {
		return err
	}
	r.Files = append(r.Files, fileOf(r.names.Sums, r.sums), fileOf(r.names.Signature(), r.signature))
	if r.manifest != nil {
		r.Files = append(r.Files, fileOf(r.names.ManifestName(), r.manifest))
	}
	r.Place(func(v registry.Version, sha256, filename string) string {
		return registry.UploadKey(r.Address.Path(), v, sha256, filename)
	})
	if unpack {
		r.Shared = protocol.SharedHashes(r.Record.Packages)
	}
	return nil
}

// Place sets the object keys of the files and of the record.
func (r *PreparedProvider) Place(key func(v registry.Version, sha256, filename string) string) {
	for i := range r.Files {
		f := &r.Files[i]
		f.Object = key(r.Record.Version, f.SHA256, f.Name)
		switch {
		case i < len(r.Record.Packages):
			r.Record.Packages[i].StoredFile = f.StoredFile
		case f.Name == r.names.Sums:
			r.Record.Sums = f.StoredFile
		case f.Name == r.names.Signature():
			r.Record.Signature = f.StoredFile
		}
	}
}

// Verify verifies the signature with the keys of a namespace, as clients will,
// and records the key. Errors are registry.ErrInvalid.
func (r *PreparedProvider) Verify(keys []registry.SigningKey) error {
	if namespace, id := r.Address.Namespace, r.Record.SigningKey; r.from.SignKey != nil && !hasKey(keys, id) {
		return fmt.Errorf(
			"%w key: namespace %s does not have key %s, so that no client would trust it: add its public half by "+
				"`larder key add %s FILE`", registry.ErrInvalid, namespace, id, namespace)
	}
	signer, err := signing.Verify(keys, r.sums, r.signature, r.preparer.now())
	if err != nil {
		return fmt.Errorf("%s: %w", r.names.Signature(), err)
	}
	r.Record.SigningKey = signer.ID
	return nil
}

// parallel is how many zips are read at once.
const parallel = 4

// readZips reads the zips, several at once.
func (r *PreparedProvider) readZips(ctx context.Context, unpack bool) error {
	read := archive.InspectProviderFile
	if unpack {
		read = archive.ReadProviderFile
	}
	packages := make([]registry.ProviderPackage, 0, len(r.names.Zips))
	for name, platform := range r.names.Zips {
		packages = append(packages, registry.ProviderPackage{Platform: platform, Filename: name})
	}
	slices.SortFunc(packages, func(a, b registry.ProviderPackage) int {
		return registry.ComparePlatforms(a.Platform, b.Platform)
	})
	files := make([]File, len(packages))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i := range packages {
		group.Go(func() error {
			pkg := &packages[i]
			r.preparer.step("checking " + pkg.Filename)
			path := r.path(pkg.Filename)
			zip, err := read(ctx, path, r.Address.Type)
			if err == nil {
				err = zip.RunsOn(pkg.Platform)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", pkg.Filename, err)
			}
			pkg.H1 = zip.H1
			files[i] = FileAt(path, pkg.Filename, registry.StoredFile{SHA256: zip.SHA256, Size: zip.Size})
			if !unpack {
				files[i].Zip = &zip.ProviderZip
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	r.Record.Packages, r.Files = packages, files
	return nil
}

// readSigned reads the folder's SHA256SUMS and its signature, which must be
// what clients accept, and speak of these zips.
func (r *PreparedProvider) readSigned() (err error) {
	if r.sums, err = regularfile.Read(r.path(r.names.Sums), signing.MaxSums); err != nil {
		return fmt.Errorf(
			"%w: without it there is nothing to verify: build the release with it, or sign here with --sign-key", err)
	}
	if r.signature, err = regularfile.Read(r.path(r.names.Signature()), signing.MaxSignature); err != nil {
		return fmt.Errorf("%w: sign SHA256SUMS by `gpg --detach-sign`, or here with --sign-key", err)
	}
	if err := r.checkSums(); err != nil {
		return err
	}
	if r.Record.SigningKey, err = signing.Issuer(r.signature, r.preparer.now()); err != nil {
		return fmt.Errorf("%s: %w", r.names.Signature(), err)
	}
	return nil
}

// sign signs SHA256SUMS: the folder's own, if it has one and it holds, or one
// that is made of the zips and the manifest.
func (r *PreparedProvider) sign() (err error) {
	if r.names.HasSignature {
		return invalidRelease("%s is signed already: publish it without --sign-key, or take %s away",
			r.from.Dir, r.names.Signature())
	}
	if r.names.HasSums {
		if r.sums, err = regularfile.Read(r.path(r.names.Sums), signing.MaxSums); err == nil {
			err = r.checkSums()
		}
	} else {
		r.sums = r.makeSums()
	}
	if err != nil {
		return err
	}
	var key signing.Key
	r.signature, key, err = signing.Sign(r.from.SignKey, r.from.Passphrase, r.sums, r.preparer.now())
	r.Record.SigningKey = key.ID
	return err
}

func (r *PreparedProvider) makeSums() []byte {
	var sums []signing.Sum
	for _, f := range r.Files {
		sums = append(sums, signing.Sum{SHA256: f.SHA256, Filename: f.Name})
	}
	if r.manifest != nil {
		sums = append(sums, signing.Sum{SHA256: sha256Of(r.manifest), Filename: r.names.ManifestName()})
	}
	return signing.RenderSums(sums)
}

// checkSums checks that SHA256SUMS is what clients read, and holds for the
// files that are there.
func (r *PreparedProvider) checkSums() error {
	listed, err := ParseSums(r.sums)
	if err != nil {
		return fmt.Errorf("%s: %w", r.names.Sums, err)
	}
	files := make(map[string]string, len(listed))
	for _, zip := range r.Files {
		files[zip.Name] = zip.SHA256
	}
	for name := range listed {
		if isZip(name) || IsManifest(name) {
			continue // those of the release alone count
		}
		files[name], err = sha256At(r.path(name))
		if errors.Is(err, os.ErrNotExist) {
			delete(files, name)
		} else if err != nil {
			return err
		}
	}
	manifest := ""
	if r.manifest != nil {
		manifest = sha256Of(r.manifest)
	}
	return CheckSums(files, manifest, listed)
}

// sha256At returns the SHA256 sum of the file at a path.
func sha256At(path string) (string, error) {
	f, err := regularfile.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	hash := sha256.New()
	_, err = io.Copy(hash, f)
	return hex.EncodeToString(hash.Sum(nil)), err
}
