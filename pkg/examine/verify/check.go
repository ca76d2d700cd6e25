package verify

import (
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/content/archive"
	"github.com/larder-registry/larder/pkg/content/signing"
	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/files/regularfile"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/progress"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
)

func (r *run) module(m registry.Module) subject[registry.Module, registry.ModuleVersion] {
	return subject[registry.Module, registry.ModuleVersion]{
		address: m, versions: r.Catalog.Modules, count: func(r *Report) *int { return &r.Modules },
		repair: func(ctx context.Context, n registry.Version, found []Finding) error {
			return r.document(ctx, m, n, found)
		},
		checks: func(registry.ModuleVersion) []check[registry.ModuleVersion] {
			return []check[registry.ModuleVersion]{
				func(ctx context.Context, v registry.ModuleVersion, read func(int64)) ([]Finding, error) {
					return r.documentation(ctx, v.Documents, read)
				},
				func(ctx context.Context, v registry.ModuleVersion, read func(int64)) ([]Finding, error) {
					return r.archive(ctx, v.Archive(), "sha256:"+v.ContentSHA256, unpackedSHA256, read)
				},
				func(_ context.Context, v registry.ModuleVersion, _ func(int64)) ([]Finding, error) {
					return noted(v.Notes), nil
				},
			}
		},
	}
}

func (r *run) provider(p registry.Provider) subject[registry.Provider, registry.ProviderVersion] {
	return subject[registry.Provider, registry.ProviderVersion]{
		address: p, versions: r.Catalog.Providers, count: func(r *Report) *int { return &r.Providers },
		checks: func(v registry.ProviderVersion) []check[registry.ProviderVersion] {
			checks := []check[registry.ProviderVersion]{
				func(ctx context.Context, v registry.ProviderVersion, read func(int64)) ([]Finding, error) {
					return r.signed(ctx, p, v, read)
				},
				func(_ context.Context, v registry.ProviderVersion, _ func(int64)) ([]Finding, error) {
					return noted(v.Notes), nil
				},
			}
			for _, pkg := range v.Packages {
				checks = append(checks, func(ctx context.Context, v registry.ProviderVersion, read func(int64)) ([]Finding, error) {
					return r.packages(ctx, p, v.Packages, pkg.Platform, read)
				})
			}
			return checks
		},
	}
}

func (r *run) mirrored(p registry.MirrorAddress) subject[registry.MirrorAddress, registry.MirrorVersion] {
	packages := func(v registry.MirrorVersion) []registry.ProviderPackage {
		found := make([]registry.ProviderPackage, len(v.Packages))
		for i, pkg := range v.Packages {
			found[i] = pkg.ProviderPackage
		}
		return found
	}
	return subject[registry.MirrorAddress, registry.MirrorVersion]{
		address: p, versions: r.Catalog.Mirror.Versions, count: func(r *Report) *int { return &r.Mirrored },
		repair: func(ctx context.Context, n registry.Version, found []Finding) error {
			return r.document(ctx, p, n, found)
		},
		checks: func(v registry.MirrorVersion) []check[registry.MirrorVersion] {
			var checks []check[registry.MirrorVersion]
			if v.Module != nil {
				checks = append(checks, r.mirroredModule)
			}
			for i := range v.Sums {
				checks = append(checks, func(ctx context.Context, v registry.MirrorVersion, read func(int64)) ([]Finding, error) {
					return r.mirroredSums(ctx, p, v, i, read)
				})
			}
			for _, pkg := range v.Packages {
				checks = append(checks, func(ctx context.Context, v registry.MirrorVersion, read func(int64)) ([]Finding, error) {
					return r.packages(ctx, p.Provider(), packages(v), pkg.Platform, read)
				})
			}
			return checks
		},
	}
}

// noted returns the notes in the record of a copy as findings.
func noted(notes []string) (found []Finding) {
	for _, note := range notes {
		found = append(found, Finding{Kind: CopyNote, Note: true, Detail: note})
	}
	return found
}

// unreadable returns the findings for the files and folders that this process
// may not read, which [objects.Store] names in err.
func unreadable(path, object string, err error) (found []Finding) {
	if several, ok := err.(interface{ Unwrap() []error }); ok && registry.Hint(err) == "" {
		for _, one := range several.Unwrap() {
			found = append(found, unreadable(path, object, one)...)
		}
		return found
	}
	if denied, ok := errors.AsType[*regularfile.DeniedError](err); ok && object == "" {
		path = strings.TrimPrefix(denied.Path, "objects/")
	}
	return []Finding{{
		Kind: Unreadable, Path: path, Object: object, Detail: err.Error(),
		Fix: strings.TrimSuffix(registry.Hint(err), "."),
	}}
}

// inspect checks that an object exists and has its size.
func (r *run) inspect(ctx context.Context, f registry.StoredFile) ([]Finding, error) {
	info, err := r.Objects.Stat(ctx, f.Object)
	switch {
	case errors.Is(err, registry.ErrNotFound):
		return []Finding{{Kind: VersionWithoutObject, Object: f.Object, Detail: "the object is missing"}}, nil
	case errors.Is(err, registry.ErrInvalid):
		return []Finding{
			{
				Kind:   Record,
				Object: f.Object,
				Detail: fmt.Sprintf("the record has an invalid object key: %s", err),
				Fix:    restoreRecord,
			},
		}, nil
	case errors.Is(err, fs.ErrPermission):
		return unreadable("", f.Object, err), nil
	case err != nil || info.Size == f.Size:
		return nil, err
	}
	finding := Finding{
		Kind:   Size,
		Object: f.Object,
		Detail: fmt.Sprintf("it has %d bytes, but the record has %d", info.Size, f.Size),
	}
	if !r.Quick {
		sum, err := r.sum(ctx, f)
		if err != nil {
			return nil, err
		}
		if sum == f.SHA256 {
			finding.Detail, finding.Fix = finding.Detail+"; its SHA-256 matches the record", restoreRecord
		}
	}
	return []Finding{finding}, nil
}

// otherBytes returns the finding for an object with the right size and the
// wrong content.
func otherBytes(f registry.StoredFile, sum string) []Finding {
	return []Finding{
		{
			Kind:   SHA256,
			Object: f.Object,
			Detail: fmt.Sprintf("it has sha256:%s, but the record has sha256:%s", sum, f.SHA256),
		},
	}
}

// unpackedSHA256 returns the digest of what gzip has compressed.
func unpackedSHA256(_ context.Context, in io.Reader) (string, error) {
	unpacked := sha256.New()
	unzipped, err := gzip.NewReader(in)
	if err == nil {
		_, err = io.Copy(unpacked, unzipped) //nolint:gosec // only its hash is computed
	}
	return "sha256:" + hex.EncodeToString(unpacked.Sum(nil)), err
}

// archive verifies a module's archive. content is the digest that digest must return of
// it.
func (r *run) archive(ctx context.Context, f registry.StoredFile, content string,
	digest func(context.Context, io.Reader) (string, error), read func(int64)) ([]Finding, error) {
	found, err := r.inspect(ctx, f)
	if err != nil || len(found) > 0 || r.Quick {
		return found, err
	}
	in, err := r.open(ctx, f, read)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	packed := sha256.New()
	tee := io.TeeReader(in, packed)
	unpacked, bad := digest(ctx, tee)
	if _, err := io.Copy(io.Discard, tee); err != nil || in.failed != nil {
		return nil, errors.Join(err, in.failed)
	}
	switch sum := hex.EncodeToString(packed.Sum(nil)); {
	case sum != f.SHA256:
		return otherBytes(f, sum), nil
	case bad != nil:
		return []Finding{{Kind: Content, Object: f.Object, Detail: fmt.Sprintf("it cannot be unpacked: %s", bad)}}, nil
	}
	if unpacked != content {
		return []Finding{
			{
				Kind:   Content,
				Object: f.Object,
				Detail: fmt.Sprintf("its content has %s, but the record has %s", unpacked, content),
			},
		}, nil
	}
	return nil, nil
}

// documentation verifies the files that were made from the archive of a module.
func (r *run) documentation(ctx context.Context, d registry.Documents, read func(int64)) (found []Finding, err error) {
	if d.Docs == nil {
		none := Finding{Kind: Documentation, Note: true, Detail: "the version has no documentation"}
		if !r.Repair {
			none.Detail += "; `larder docs rebuild` makes it from the archive"
		}
		return []Finding{none}, nil
	}
	for _, f := range d.Stored() {
		var more []Finding
		if r.Quick {
			more, err = r.inspect(ctx, f)
		} else {
			_, more, err = r.small(ctx, f, docs.MaxFiles, read)
		}
		if err != nil {
			return nil, err
		}
		found = append(found, more...)
	}
	for i := range found {
		if found[i].Kind != Unreadable {
			found[i].Kind, found[i].Fix = Documentation, ""
		}
	}
	return found, nil
}

// document makes the documentation and the files of a version again if findings
// are about them.
func (r *run) document(ctx context.Context, a registry.Address, n registry.Version, found []Finding) error {
	isOther := func(f Finding) bool { return f.Kind != Documentation }
	if r.Document == nil || !slices.ContainsFunc(found, func(f Finding) bool { return !isOther(f) }) {
		return nil
	}
	r.documenting.Lock()
	err := r.Document(ctx, a, n)
	r.documenting.Unlock()
	known := errors.Is(err, registry.ErrInvalid) || errors.Is(err, registry.ErrCorrupt) || errors.Is(err, registry.ErrNotFound)
	if err != nil && !known {
		return err
	}
	for i := range found {
		switch {
		case isOther(found[i]):
		case err == nil:
			found[i].Repaired = true
		default:
			found[i].Detail += "; " + err.Error()
		}
	}
	return nil
}

func (r *run) packages(ctx context.Context, p registry.Provider, packages []registry.ProviderPackage,
	platform registry.Platform, read func(int64)) ([]Finding, error) {
	at := slices.IndexFunc(packages, func(pkg registry.ProviderPackage) bool { return pkg.Platform == platform })
	if at < 0 {
		return nil, nil
	}
	pkg := packages[at]
	found, err := r.inspect(ctx, pkg.StoredFile)
	if err != nil || len(found) > 0 || r.Quick {
		return found, err
	}
	object := objects.NewReaderAt(ctx, r.Objects, pkg.Object, pkg.Size)
	defer func() { _ = object.Close() }() // a reader
	unread := pkg.Size
	counted := func(n int64) { read(n); unread -= n }
	zip, bad := archive.ReadProvider(ctx, progress.ReaderAt(object, counted), pkg.Size, p.Type)
	if bad != nil && !errors.Is(bad, registry.ErrInvalid) {
		return nil, bad
	}
	sum := zip.SHA256
	if bad != nil {
		// The SHA-256 shows whether it was damaged after it was published.
		if sum, err = r.sum(ctx, pkg.StoredFile); err != nil {
			return nil, err
		}
	}
	read(unread) // the rest of a zip that was rejected
	switch {
	case sum != pkg.SHA256:
		return otherBytes(pkg.StoredFile, sum), nil
	case bad != nil:
		return []Finding{{Kind: H1, Object: pkg.Object, Detail: fmt.Sprintf("it cannot be hashed: %s", bad)}}, nil
	case zip.H1 != pkg.H1:
		return []Finding{
			{Kind: H1, Object: pkg.Object, Detail: fmt.Sprintf("it has %s, but the record has %s", zip.H1, pkg.H1)},
		}, nil
	}
	return nil, nil
}

// signed verifies SHA256SUMS and its signature as clients do.
func (r *run) signed(ctx context.Context, p registry.Provider, v registry.ProviderVersion,
	read func(int64)) ([]Finding, error) {
	sums, found, err := r.small(ctx, v.Sums, signing.MaxSums, read)
	if err != nil {
		return nil, err
	}
	sig, more, err := r.small(ctx, v.Signature, signing.MaxSignature, read)
	if err != nil {
		return nil, err
	}
	if found = append(found, more...); len(found) > 0 {
		return found, nil
	}
	tolerated := errs.Tolerated{Existing: v.CopiedFrom != nil}
	listed, err := rules.ReadSums(sums, &tolerated)
	if err == nil {
		files := make(map[string]string, len(v.Packages))
		for _, pkg := range v.Packages {
			files[pkg.Filename] = pkg.SHA256
		}
		rules.DropManifest(listed) // it is not a file of the version
		err = rules.CheckSums(files, "", listed, &tolerated)
	}
	if err == nil {
		err = tolerated.Check("")
	}
	if err != nil {
		found = append(found, Finding{Kind: Sums, Object: v.Sums.Object, Detail: err.Error()})
	}
	signature, err := r.signer(ctx, p, v, sums, sig)
	// The record may have the note about the signature already, with the dates.
	name := path.Base(v.Signature.Object) + ": "
	isKnown := slices.ContainsFunc(v.Notes, func(note string) bool { return strings.HasPrefix(note, name) })
	signature = slices.DeleteFunc(signature, func(f Finding) bool { return f.Note && isKnown })
	return append(found, signature...), err
}

// signer verifies a signature as clients do, with the keys that the registry
// currently returns.
func (r *run) signer(ctx context.Context, p registry.Provider, v registry.ProviderVersion,
	sums, signature []byte) ([]Finding, error) {
	keys, _, err := r.Catalog.ReadableKeys(ctx, p.Namespace)
	if err != nil {
		return nil, err
	}
	f := Finding{Kind: Signature, Object: v.Signature.Object}
	if !slices.ContainsFunc(keys, func(k registry.SigningKey) bool { return k.ID == v.SigningKey }) {
		f.Detail = fmt.Sprintf("it was signed by key %s, which is not a key of the namespace", v.SigningKey)
		return []Finding{f}, nil
	}
	var armored []string
	for _, k := range protocol.KeysFor(v.SigningKey, keys, r.Now()) {
		armored = append(armored, k.ASCIIArmor)
	}
	signer, err := signing.VerifyOrigin(armored, sums, signature, r.Now())
	switch {
	case err != nil:
		f.Detail = "clients reject it: " + err.Error()
	case signer.ID != v.SigningKey:
		f.Detail, f.Fix = fmt.Sprintf("it was signed by key %s, but the record has key %s", signer.ID,
			v.SigningKey), restoreRecord
	case signer.Expired:
		f.Note, f.Detail = true, fmt.Sprintf("it was signed by key %s, which has expired; clients still accept it", signer.ID)
	default:
		return nil, nil
	}
	return []Finding{f}, nil
}

// small reads and verifies an object of at most limit bytes.
func (r *run) small(ctx context.Context, f registry.StoredFile, limit int64,
	read func(int64)) ([]byte, []Finding, error) {
	found, err := r.inspect(ctx, f)
	if err != nil || len(found) > 0 {
		return nil, found, err
	}
	in, err := r.open(ctx, f, read)
	if err != nil {
		return nil, nil, err
	}
	defer in.Close()
	data, err := io.ReadAll(io.LimitReader(in, limit+1))
	if err != nil {
		return nil, nil, err
	}
	digest := sha256.Sum256(data)
	if sum := hex.EncodeToString(digest[:]); sum != f.SHA256 {
		return nil, otherBytes(f, sum), nil
	}
	return data, nil, nil
}

func (r *run) sum(ctx context.Context, f registry.StoredFile) (string, error) {
	in, err := r.open(ctx, f, func(int64) {})
	if err != nil {
		return "", err
	}
	defer in.Close()
	hash := sha256.New()
	_, err = io.Copy(hash, in)
	return hex.EncodeToString(hash.Sum(nil)), err
}

// body reads an object. It stores a read error, which is not the object's
// fault.
type body struct {
	io.ReadCloser
	read   func(int64)
	failed error
}

func (r *run) open(ctx context.Context, f registry.StoredFile, read func(int64)) (*body, error) {
	in, err := r.Objects.Open(ctx, f.Object, 0, -1)
	return &body{ReadCloser: in, read: read}, err
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read(int64(n))
	if err != nil && !errors.Is(err, io.EOF) {
		b.failed = err
	}
	return n, err
}
