package filling

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/larder-registry/larder/pkg/content/signing"
	"github.com/larder-registry/larder/pkg/files/regularfile"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/registry"
)

// Beside the zips of a version, a folder can have the SHA256SUMS of the origin
// with its signature and the origin's keys. Clients ignore files that are not
// zips.
const (
	keysEnd = ".keys.asc"
	// maxKeyFile is the maximum size of the keys in bytes.
	maxKeyFile = 512 << 10
	beginKey   = "-----BEGIN PGP PUBLIC KEY BLOCK-----"
)

// releasePath returns the path of a SHA256SUMS in a folder. n is its number, from 1.
func releasePath(dir string, address registry.MirrorAddress, v registry.Version, n int) string {
	path := filepath.Join(dir, sumsName(address, v))
	if n > 1 {
		path += "." + strconv.Itoa(n)
	}
	return path
}

// exportSums writes each SHA256SUMS that packages of a version refer to, with its
// signature and keys, and removes those of an earlier export. It reads all of them
// first, so that the folder does not get only some.
func (m *Mirror) exportSums(ctx context.Context, dir string, address registry.MirrorAddress,
	record registry.MirrorVersion) error {
	releases, err := m.usedReleases(ctx, address, record)
	if err != nil {
		return err
	}
	for n, removed := 1, false; n <= len(releases)+1 || removed; n++ {
		var r signedRelease
		if n <= len(releases) {
			r = releases[n-1]
		}
		removed = false
		path := releasePath(dir, address, record.Version, n)
		for _, f := range []struct{ path, text string }{
			{path, string(r.sums)}, {path + signatureEnd, string(r.signature)},
			{path + keysEnd, strings.Join(registry.Armored(r.keys), "\n")},
		} {
			if f.text != "" {
				err = writeFile(f.path, func(w io.Writer) error {
					_, err := io.WriteString(w, f.text)
					return err
				})
			} else if err = os.Remove(f.path); err == nil {
				removed = true
			}
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// usedReleases returns each SHA256SUMS that packages of a version refer to, in the
// order of the record. If a part of one is missing, that is [registry.ErrCorrupt]. If
// it is damaged, that is [registry.ErrInvalid].
func (m *Mirror) usedReleases(ctx context.Context, address registry.MirrorAddress, record registry.MirrorVersion) (
	used []signedRelease, err error,
) {
	for i, s := range record.Sums {
		at := slices.IndexFunc(record.Packages, func(p registry.MirrorPackage) bool { return p.Sums == i+1 })
		if at < 0 {
			continue
		}
		r, err := m.readFiles(ctx, s)
		if err == nil && s.Signed() {
			if len(s.Keys) == 0 {
				err = registry.Errorf(registry.ErrCorrupt, "the signing keys of its SHA256SUMS are missing")
			}
			for _, key := range s.Keys {
				r.keys = append(r.keys, registry.PublicKey{ASCIIArmor: strings.TrimSpace(key.ASCIIArmor) + "\n"})
			}
		}
		if err != nil {
			return nil, repairable(address, record.Version, record.Packages[at].Platform, err)
		}
		used = append(used, r)
	}
	return used, nil
}

// readFiles reads a stored SHA256SUMS and its signature.
func (m *Mirror) readFiles(ctx context.Context, s registry.MirrorSums) (r signedRelease, err error) {
	if r.sums, err = m.readSmall(ctx, s.Sums); err == nil && s.Signed() {
		r.signature, err = m.readSmall(ctx, s.Signature)
	}
	return r, err
}

func (m *Mirror) readSmall(ctx context.Context, f registry.StoredFile) ([]byte, error) {
	var text bytes.Buffer
	stored, err := m.open(ctx, f)
	if err == nil {
		defer stored.Close()
		err = objects.Copy(&text, stored, objects.Digest{SHA256: f.SHA256, Size: f.Size})
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path.Base(f.Object), err)
	}
	return text.Bytes(), nil
}

// open opens a stored file. If it is missing, that is [registry.ErrCorrupt].
func (m *Mirror) open(ctx context.Context, f registry.StoredFile) (io.ReadCloser, error) {
	stored, err := m.Objects.Open(ctx, f.Object, 0, -1)
	if errors.Is(err, registry.ErrNotFound) {
		err = registry.Errorf(registry.ErrCorrupt, "the stored file is missing")
	}
	return stored, err
}

// repairable adds what to do if a stored part of a version is missing or damaged. The
// platform does not matter for a module.
func repairable(address registry.MirrorAddress, v registry.Version, platform registry.Platform, err error) error {
	switch {
	case errors.Is(err, registry.ErrCorrupt):
		of := ""
		if !address.IsModule() {
			of = fmt.Sprintf(" --platform %s", platform)
		}
		return registry.WithHint(err, "Restore it with `larder mirror add %s --version %s%s`. "+
			"`larder verify` lists all that is missing.", address, v, of)
	case errors.Is(err, registry.ErrInvalid):
		return registry.WithHint(err, "Run `larder verify` to list the damage and how to repair it.")
	}
	return err
}

// readReleases reads the SHA256SUMS of a version in a folder. It returns at least
// one, which is empty if the folder has none.
func (p folderProvider) readReleases() (all []signedRelease, err error) {
	for n := 1; ; n++ {
		r, err := readRelease(releasePath(p.dir, p.address, p.version, n))
		if err != nil {
			return nil, err
		}
		if len(r.sums) == 0 && n > 1 {
			return all, nil
		}
		all = append(all, r)
	}
}

// readRelease reads a SHA256SUMS with its signature and keys. Without these, it is
// that of an origin that signs nothing. Without any of the files, it is empty. If only
// some are missing, that is [registry.ErrInvalid].
func readRelease(path string) (r signedRelease, err error) {
	read := func(end string, limit int64) (text []byte) {
		if err != nil {
			return nil
		}
		text, failed := regularfile.Read(path+end, limit)
		if failed != nil && !errors.Is(failed, fs.ErrNotExist) {
			err = failed
		}
		return text
	}
	r.sums = read("", signing.MaxSums)
	signature, keys := read(signatureEnd, signing.MaxSignature), read(keysEnd, maxKeyFile)
	switch {
	case err != nil || len(signature)+len(keys) == 0:
		return r, err
	case len(r.sums) == 0 || len(signature) == 0 || len(keys) == 0:
		// Otherwise, anyone who removes one of them decides that nothing is verified.
		return r, registry.WithHint(fmt.Errorf("%w folder: it lacks some of %s, its signature (%s) and the keys (%s)",
			registry.ErrInvalid, filepath.Base(path), signatureEnd, keysEnd),
			"Export or copy the folder again. Remove all three to import the version without a signature.")
	case bytes.Contains(keys, []byte(beginKey)):
		r.signature, r.keys = signature, splitKeys(string(keys))
		return r, nil
	}
	return r, fmt.Errorf("%w folder: there is no key in %s", registry.ErrInvalid, filepath.Base(path)+keysEnd)
}

// splitKeys returns the armored keys of a text. Clients read one key at a time.
func splitKeys(text string) (keys []registry.PublicKey) {
	for i, block := range strings.Split(text, beginKey) {
		if i > 0 {
			keys = append(keys, registry.PublicKey{ASCIIArmor: strings.TrimSpace(beginKey+block) + "\n"})
		}
	}
	return keys
}

// check reports whether a SHA256SUMS lists a file. If it lists it with another
// SHA-256, that is [registry.ErrInvalid].
func (r signedRelease) check(filename, sha256 string) (listed bool, err error) {
	sum, listed := signing.ListedSum(r.sums, filename)
	if listed && !strings.EqualFold(sum, sha256) {
		return false, fmt.Errorf("%w package: %s does not match SHA256SUMS: it has sha256:%s instead of %.80q",
			registry.ErrInvalid, filename, sha256, sum)
	}
	return listed, nil
}

// importer decides about the versions of a provider in a folder.
type importer struct {
	*decider
	// signers are the IDs of the keys that signed mirrored versions.
	signers []string
}

// verify verifies the signatures of a version in a folder. It returns one for each
// SHA256SUMS.
func (d *importer) verify(p folderProvider) (all []signature, err error) {
	releases, err := p.readReleases()
	if err != nil {
		return nil, err
	}
	for i, release := range releases {
		signed := signature{signers: d.signers, release: release}
		if len(release.signature) > 0 {
			by, err := signing.VerifyOriginAll(registry.Armored(release.keys), release.sums, release.signature, d.now)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", filepath.Base(releasePath(p.dir, p.address, p.version, i+1)), err)
			}
			signed.key = d.keyOf(d.prefer(by, d.signers))
		}
		all = append(all, signed)
	}
	return all, nil
}

// listing returns the index of the SHA256SUMS that lists a file with a SHA-256,
// preferably of a signed one. If none does, and one lists it with another SHA-256, that
// is [registry.ErrInvalid]. So it is if a signed one does, and only unsigned ones list
// the file. An origin can have changed other packages before it published one.
func listing(all []signature, filename, sha256 string) (at int, listed bool, err error) {
	denied := false
	for i, s := range all {
		here, failed := s.release.check(filename, sha256)
		if failed != nil && !denied {
			err, denied = failed, s.key.ID != ""
		}
		if here && (!listed || s.key.ID != "" && all[at].key.ID == "") {
			at, listed = i, true
		}
	}
	if listed && (!denied || all[at].key.ID != "") {
		err = nil
	}
	return at, listed, err
}

// signsNew reports whether the key of a version signed anything that is new.
func signsNew(found []importedPackage) bool {
	return slices.ContainsFunc(found, func(p importedPackage) bool { return p.status != Unchanged && p.SigningKey != "" })
}

// decide checks the key of a version, if anything that it signed is new. Otherwise
// the SHA256SUMS is not stored if its key is not trusted.
func (d *importer) decide(ctx context.Context, v registry.Version, found []importedPackage, signed *signature) error {
	if signsNew(found) {
		return d.checkSignature(ctx, v, signed)
	}
	signed.untrusted = d.untrustedIn(*signed)
	return nil
}

// settleAll is [decider.settle] for a version in a folder.
func (d *importer) settleAll(ctx context.Context, v registry.Version, found []importedPackage, signed signature) (
	note []string, err error,
) {
	if !signsNew(found) {
		return d.settleImport(ctx, v)
	}
	note, err = d.settle(ctx, v, signed, true)
	if err == nil && !slices.Contains(d.signers, signed.key.ID) {
		d.signers = append(slices.Clip(d.signers), signed.key.ID)
	}
	return note, err
}
