package rules

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/larder-registry/larder/pkg/content/archive"
	"github.com/larder-registry/larder/pkg/content/signing"
	"github.com/larder-registry/larder/pkg/files/regularfile"
	"github.com/larder-registry/larder/pkg/progress"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
)

// Provider is a release of a provider to publish. Its folder has the files that
// goreleaser creates: zips, SHA256SUMS, its signature and a manifest.
type Provider struct {
	Dir     string
	Address registry.Provider
	// SignKey is a private key to sign SHA256SUMS with. SHA256SUMS is created from
	// the zips if it is missing. If SignKey is nil, both files are read from Dir.
	SignKey []byte
	// Passphrase decrypts SignKey.
	Passphrase []byte
	// Protocols are the provider's protocols if there is no manifest.
	Protocols []string
	// CopiedFrom is set if the provider is copied from another registry. The
	// protocols are then those that this registry serves. The manifest can be
	// missing even if SHA256SUMS lists it, because no registry serves it.
	CopiedFrom *registry.CopiedFrom
	// AllowPlatforms are platforms of a new version that only clients of a later
	// release request.
	AllowPlatforms []string
}

// ProviderResult is the result of publishing a provider.
type ProviderResult struct {
	// Record is the stored record, or the planned one if nothing was published.
	Record registry.ProviderVersion
	// Unchanged reports whether the same content was published before. Restored
	// reports whether some of it was missing from the store and is stored again.
	Unchanged, Restored bool
	// NotCompared reports whether the registry could not read and compare some of
	// its stored objects.
	NotCompared bool
	// Newcomer is the namespace or the address that was created, or would be. It is
	// nil for an existing one, for a copy, and for the first namespace of a registry.
	Newcomer *protocol.Newcomer
	// Shared are platforms whose packages equal the package of another platform.
	// OpenTofu gets no hashes of the other platforms for them.
	Shared []registry.Platform
	// Dropped are platforms of the previous version that this version lacks.
	Dropped *protocol.DroppedPlatforms
}

// PreparedProvider is a provider's release that is ready to be published.
type PreparedProvider struct {
	Address registry.Provider
	// ProviderResult has a record without a publisher and a time. Its object keys
	// are those that the publish API would choose. If the namespace's keys are not
	// given, its signing key is the one that the signature names, which may be a
	// subkey.
	ProviderResult
	// Files are the zips in the order of the record's packages, SHA256SUMS, its
	// signature and the manifest, if any.
	Files []File

	preparer        Preparer
	found           []string // the names of the files in the folder
	from            Provider
	names           Names
	manifest        []byte // nil if there is none
	sums, signature []byte // nil if they are missing or cannot be read
	problems        errs.Problems
	tolerated       errs.Tolerated
	keyProblems     []error
	// rejected has the names of the zips with problems.
	rejected map[string]bool
	// noManifest reports whether the problems include a missing or unreadable
	// manifest. noKey reports whether they include a missing key of the namespace.
	noManifest, noKey bool
}

// Provider verifies a release and signs it if m has a SignKey. It returns all
// problems as a [*errs.ProblemsError]. It does not check whether the
// signature is by a key of the namespace. The caller calls
// [PreparedProvider.CheckNew] before it publishes a new version.
func (p Preparer) Provider(ctx context.Context, m Provider) (*PreparedProvider, error) {
	r, err := p.prepare(m)
	if err != nil {
		return nil, err
	}
	if err := r.read(ctx, true); err != nil {
		return nil, err
	}
	if r.signature != nil && !r.tolerated.Existing { // the keys of the namespace decide for a copy
		if r.Record.SigningKey, err = signing.Issuer(r.signature, p.now()); err != nil {
			r.tolerated.Add(fmt.Errorf("%s: %w", r.names.Signature(), err))
		}
	}
	return r.finish(true)
}

// ProviderFor is like [Preparer.Provider], and verifies the signature with the
// keys of the namespace, as clients will. If unpack is not set, the caller
// unpacks the zips. They then have File.Zip, and no H1.
func (p Preparer) ProviderFor(
	ctx context.Context, m Provider, keys []registry.SigningKey, unpack bool,
) (*PreparedProvider, error) {
	r, err := p.prepare(m)
	if err != nil {
		return nil, err
	}
	// Check the keys first, so that nobody enters the passphrase of an unusable key.
	if err := r.checkKeys(keys); err != nil {
		r.noKey, r.keyProblems = true, append(r.keyProblems, err)
		if err := r.problems.Add(err); err != nil {
			return nil, err
		}
	}
	if err := r.read(ctx, unpack); err != nil {
		return nil, err
	}
	err = r.verify(keys)
	r.keyProblems = append(r.keyProblems, err)
	if err := r.problems.Add(err); err != nil {
		return nil, err
	}
	return r.finish(unpack)
}

// Announcement returns the announcement of the release to the publish API,
// without its zips.
func (r *PreparedProvider) Announcement() protocol.Announcement {
	return protocol.Announcement{
		Sums: r.sums, Signature: r.signature, Manifest: r.manifest,
		Protocols: r.Record.Protocols, CopiedFrom: r.Record.CopiedFrom, AllowPlatforms: r.from.AllowPlatforms,
	}
}

// Zips returns the zips of the release.
func (r *PreparedProvider) Zips() []File { return r.Files[:len(r.Record.Packages)] }

// prepare returns a release that is not read yet.
func (p Preparer) prepare(m Provider) (*PreparedProvider, error) {
	if err := CheckNamespace(m.Address.Namespace); err != nil {
		return nil, fmt.Errorf("cannot publish %s: %w", m.Address, err)
	}
	r := &PreparedProvider{Address: m.Address, preparer: p, from: m}
	r.Record.CopiedFrom, r.tolerated.Existing = m.CopiedFrom, m.CopiedFrom != nil
	return r, nil
}

// read reads and verifies the files, and collects the problems. It returns
// other errors.
func (r *PreparedProvider) read(ctx context.Context, unpack bool) error {
	if err := r.problems.Add(r.find()); err != nil {
		return err
	}
	if r.names.Sums == "" {
		return nil // the version is unknown
	}
	err := r.problems.Add(r.readManifest())
	if err == nil {
		err = r.readZips(ctx, unpack)
	}
	if err == nil && r.from.SignKey != nil {
		err = r.sign()
	} else if err == nil {
		err = r.readSigned()
	}
	return err
}

func (r *PreparedProvider) finish(unpacked bool) (*PreparedProvider, error) {
	if r.problems.Any() {
		_ = r.problems.Add(r.CheckNew()) // any error is ErrInvalid
	}
	if err := r.problems.Err(r.what()); err != nil {
		if r.tolerated.Existing {
			err = hintOfCopy(err, "release", r.keyProblems...)
		}
		return nil, err
	}
	if r.tolerated.Existing {
		r.Record.Notes = r.tolerated.Notes()
	}
	r.Files = append(r.Files, fileOf(r.names.Sums, r.sums), fileOf(r.names.Signature(), r.signature))
	if r.manifest != nil {
		r.Files = append(r.Files, fileOf(r.names.ManifestName(), r.manifest))
	}
	r.Place(func(v registry.Version, sha256, filename string) string {
		return registry.UploadKey(r.Address.Path(), v, sha256, filename)
	})
	if unpacked {
		r.Shared = protocol.SharedHashes(r.Record.Packages)
	}
	return r, nil
}

func (r *PreparedProvider) what() string {
	if v := r.names.Version; v != (registry.Version{}) {
		return "publish " + r.Address.String() + " " + v.String()
	}
	return "publish " + r.Address.String()
}

// CheckNew returns what a new version must not have, as a [*errs.ProblemsError], see
// [errs.Tolerated]. It makes no difference if the same content is published already.
func (r *PreparedProvider) CheckNew() error {
	return r.tolerated.Check(r.what())
}

// find finds the files of the release by their names.
func (r *PreparedProvider) find() error {
	r.preparer.step("reading " + filepath.Clean(r.from.Dir))
	entries, err := os.ReadDir(r.from.Dir)
	if err != nil {
		return registry.Errorf(registry.ErrInvalid, "%w", regularfile.Unreadable(r.from.Dir, err))
	}
	for _, entry := range entries {
		if !entry.IsDir() {
			r.found = append(r.found, entry.Name())
		}
	}
	r.names, err = ParseNames(r.Address.Type, r.found)
	r.Record.Version = r.names.Version
	return err
}

func (r *PreparedProvider) path(name string) string { return filepath.Join(r.from.Dir, name) }

// sourceManifest returns the path of the manifest in a provider's source, or an
// empty string. goreleaser uploads this file under another name, but leaves it
// in place, one folder above its output.
func sourceManifest(dir string) string {
	for _, where := range []string{dir, filepath.Join(dir, "..")} {
		path := filepath.Join(where, "terraform-registry-manifest.json")
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path
		}
	}
	return ""
}

// readManifest sets the protocols from the manifest. Without a manifest it uses
// the given protocols.
func (r *PreparedProvider) readManifest() (err error) {
	given := r.from.Protocols
	path := ""
	if r.names.Manifest != "" {
		path = r.path(r.names.Manifest)
	} else if !r.tolerated.Existing {
		path = sourceManifest(r.from.Dir)
	}
	if path == "" {
		r.Record.Protocols = given
		if len(given) > 0 {
			return CheckProtocols(given)
		}
		r.noManifest = true
		return registry.WithHint(
			invalidRelease("there is no manifest with the plugin protocols of the provider"),
			"Add %s, or specify the protocol with `--protocol 6.0`.", r.names.ManifestName())
	}
	if r.manifest, err = regularfile.Read(path, MaxManifest); err != nil {
		r.noManifest = true
		return err
	}
	if r.Record.Protocols, err = ParseManifest(r.manifest); err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	if len(given) > 0 {
		return registry.WithHint(CheckManifest(r.Record.Protocols, given),
			"Remove `--protocol`, because the manifest has the protocols.")
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

// checkKeys returns registry.ErrInvalid if a namespace has no keys, or does not
// have the key that signs the release.
func (r *PreparedProvider) checkKeys(keys []registry.SigningKey) error {
	namespace := r.Address.Namespace
	if err := CheckKeys(namespace, keys); err != nil || r.from.SignKey == nil {
		return err
	}
	id, err := signing.PrivateKeyID(r.from.SignKey)
	if err != nil || hasKey(keys, id) {
		return nil //nolint:nilerr // sign returns the problem of the private key
	}
	return registry.WithHint(
		fmt.Errorf("%w key: namespace %s does not have key %s, so clients would not trust it",
			registry.ErrInvalid, namespace, id),
		"Add its public key with `larder key add %s FILE`.", namespace)
}

// verify verifies the signature with the keys of a namespace, as clients will,
// and records the key. It returns registry.ErrInvalid if clients will not accept it.
func (r *PreparedProvider) verify(keys []registry.SigningKey) error {
	if r.noKey || r.sums == nil || r.signature == nil {
		return nil // the problems include the reason
	}
	var err error
	r.Record.SigningKey, err = CheckSignature(r.names, keys, r.sums, r.signature, r.preparer.now(), &r.tolerated)
	return err
}

// parallel is the number of zips that are read at once.
const parallel = 4

// readZips reads several zips at once, and collects their problems.
func (r *PreparedProvider) readZips(ctx context.Context, unpack bool) error {
	packages := make([]registry.ProviderPackage, 0, len(r.names.Zips))
	for name, platform := range r.names.Zips {
		packages = append(packages, registry.ProviderPackage{Platform: platform, Filename: name})
	}
	slices.SortFunc(packages, func(a, b registry.ProviderPackage) int {
		return registry.ComparePlatforms(a.Platform, b.Platform)
	})
	files := make([]File, len(packages))
	failed, unusable := make([]error, len(packages)), make([]error, len(packages))
	r.tolerated.Add(CheckPlatforms(r.names.Zips, r.from.AllowPlatforms))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i := range packages {
		group.Go(func() error {
			files[i], unusable[i], failed[i] = r.readZip(ctx, &packages[i], unpack)
			if errors.Is(failed[i], registry.ErrInvalid) {
				return nil
			}
			return failed[i]
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	r.rejected = make(map[string]bool)
	for i, err := range failed {
		if err != nil {
			r.rejected[packages[i].Filename] = true
			_ = r.problems.Add(err) // only ErrInvalid gets here
			continue
		}
		r.tolerated.Add(unusable[i])
		r.Record.Packages, r.Files = append(r.Record.Packages, packages[i]), append(r.Files, files[i])
	}
	return nil
}

// readZip reads the zip of a package, and returns why clients cannot run its
// program. If unpack is set, it sets the package's H1.
func (r *PreparedProvider) readZip(
	ctx context.Context, pkg *registry.ProviderPackage, unpack bool,
) (_ File, unusable, err error) {
	read := archive.InspectProviderFile
	if unpack {
		read = archive.ReadProviderFile
	}
	path := r.path(pkg.Filename)
	zip, err := read(ctx, path, r.Address.Type, r.preparer.Progress)
	if err != nil {
		return File{}, nil, fmt.Errorf("%s: %w", pkg.Filename, err)
	}
	if unusable = zip.RunsOn(pkg.Platform); unusable != nil {
		unusable = fmt.Errorf("%s: %w", pkg.Filename, unusable)
	}
	pkg.H1 = zip.H1
	f := FileAt(path, pkg.Filename, registry.StoredFile{SHA256: zip.SHA256, Size: zip.Size})
	if !unpack {
		f.Zip = &zip.ProviderZip
	}
	return f, unusable, nil
}

// readFile reads a file of the release. If the file is missing or invalid, it
// collects a problem with the hint and returns nil.
func (r *PreparedProvider) readFile(name string, limit int64, hint string) ([]byte, error) {
	data, err := regularfile.Read(r.path(name), limit)
	if errors.Is(err, fs.ErrNotExist) {
		err = invalidRelease("%s is missing", name)
	}
	if err != nil {
		return nil, r.problems.Add(registry.WithHint(err, "%s", hint))
	}
	return data, nil
}

// readSigned reads SHA256SUMS and its signature from the folder, and collects
// their problems.
func (r *PreparedProvider) readSigned() (err error) {
	r.sums, err = r.readFile(r.names.Sums, signing.MaxSums,
		"Build the release with this file, as goreleaser does, or use `--sign-key` to create and sign it.")
	if err != nil {
		return err
	}
	r.signature, err = r.readFile(r.names.Signature(), signing.MaxSignature,
		"Sign SHA256SUMS with `gpg --detach-sign`, or use `--sign-key` to sign it.")
	if err != nil {
		return err
	}
	if r.sums == nil {
		return nil
	}
	return r.problems.Add(r.checkSums())
}

// sign signs SHA256SUMS, and collects the problems. If the folder has no
// SHA256SUMS, it creates one from the zips and the manifest.
func (r *PreparedProvider) sign() (err error) {
	if r.names.HasSignature {
		_ = r.problems.Add(registry.WithHint(invalidRelease("%s has a signature already", r.from.Dir),
			"Publish it without `--sign-key`, or remove %s.", r.names.Signature()))
	}
	if !r.names.HasSums {
		r.sums = r.makeSums()
	} else if r.sums, err = r.readFile(r.names.Sums, signing.MaxSums, ""); err == nil && r.sums != nil {
		err = r.problems.Add(r.checkSums())
	}
	if err != nil {
		return err
	}
	signature, key, err := signing.Sign(r.from.SignKey, r.from.Passphrase, r.sums, r.preparer.now())
	if errors.Is(err, signing.ErrPassphrase) {
		if r.problems.Any() {
			return nil // do not prompt for the passphrase if the release has problems
		}
		return err
	}
	if err != nil {
		return r.problems.Add(err)
	}
	r.signature, r.Record.SigningKey = signature, key.ID
	return nil
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

// checkSums checks that clients can read SHA256SUMS, and that it matches the
// files.
func (r *PreparedProvider) checkSums() error {
	listed, err := ReadSums(r.sums, &r.tolerated)
	if err != nil {
		return fmt.Errorf("%s: %w", r.names.Sums, err)
	}
	files := make(map[string]string, len(listed))
	for _, zip := range r.Files {
		files[zip.Name] = zip.SHA256
	}
	for name := range r.rejected {
		files[name] = listed[name] // the problems include the reason
	}
	for name := range listed {
		// Only the zips of the release count. Other names are not read: the file may be
		// that of a stranger, and the names may lead anywhere.
		if isZip(name) || IsManifest(name) || r.tolerated.Existing || !slices.Contains(r.found, name) {
			continue
		}
		files[name], err = r.preparer.sha256At(r.path(name))
		if errors.Is(err, os.ErrNotExist) {
			delete(files, name)
		} else if err != nil {
			return err
		}
	}
	if r.noManifest || r.manifest == nil && r.tolerated.Existing {
		DropManifest(listed)
	}
	manifest := ""
	if r.manifest != nil {
		manifest = sha256Of(r.manifest)
	}
	return CheckSums(files, manifest, listed, &r.tolerated)
}

// sha256At returns the SHA256 sum of the file at a path.
func (p Preparer) sha256At(path string) (string, error) {
	f, err := regularfile.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	moved, end := progress.Or(p.Progress).Transfer("checking "+filepath.Base(path), info.Size())
	defer end()
	hash := sha256.New()
	_, err = io.Copy(hash, progress.Reader(f, moved))
	return hex.EncodeToString(hash.Sum(nil)), err
}
