package filling

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
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

// exportSums writes the latest SHA256SUMS of a version, and verifies it with its
// digest.
func (m *Mirror) exportSums(ctx context.Context, dir string, address registry.MirrorProvider,
	record registry.MirrorVersion) error {
	latest := 0
	for _, p := range record.Packages {
		latest = max(latest, p.Sums)
	}
	if latest == 0 {
		return nil
	}
	sums := record.Sums[latest-1]
	path := filepath.Join(dir, sumsName(address, record.Version))
	if !sums.Signed() {
		for _, end := range []string{signatureEnd, keysEnd} {
			if err := os.Remove(path + end); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		return m.exportSmall(ctx, path, sums.Sums)
	}
	keys, err := m.Catalog.Mirror.SumsKeys(ctx, address, record.Version)
	if err == nil && len(keys[sums.Sums.SHA256]) == 0 {
		err = fmt.Errorf("the signing keys of its SHA256SUMS are missing: %w", registry.ErrCorrupt)
	}
	if err != nil {
		return err
	}
	var armored []string
	for _, key := range keys[sums.Sums.SHA256] {
		armored = append(armored, strings.TrimSpace(key)+"\n")
	}
	text := strings.NewReader(strings.Join(armored, "\n"))
	if err := m.exportSmall(ctx, path, sums.Sums); err != nil {
		return err
	}
	if err := m.exportSmall(ctx, path+signatureEnd, sums.Signature); err != nil {
		return err
	}
	return writeFile(path+keysEnd, func(w io.Writer) error {
		_, err := io.Copy(w, text)
		return err
	})
}

func (m *Mirror) exportSmall(ctx context.Context, path string, f registry.StoredFile) error {
	stored, err := m.Objects.Open(ctx, f.Object, 0, -1)
	if err != nil {
		return err
	}
	defer stored.Close()
	return writeFile(path, func(w io.Writer) error {
		return objects.Copy(w, stored, objects.Digest{SHA256: f.SHA256, Size: f.Size})
	})
}

// readRelease reads the SHA256SUMS of a version in a folder. Without signature and
// keys, it is that of an origin that signs nothing. Without any of these files, it is
// empty. If only some are missing, that is [registry.ErrInvalid].
func (p folderProvider) readRelease() (r signedRelease, err error) {
	path := filepath.Join(p.dir, sumsName(p.address, p.version))
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
func splitKeys(text string) (keys []string) {
	for i, block := range strings.Split(text, beginKey) {
		if i > 0 {
			keys = append(keys, strings.TrimSpace(beginKey+block)+"\n")
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

// verify verifies the signature of a version in a folder, if there is one.
func (d *importer) verify(p folderProvider) (signature, error) {
	release, err := p.readRelease()
	if err != nil {
		return signature{}, err
	}
	signed := signature{signers: d.signers, release: release}
	if len(release.signature) == 0 {
		return signed, nil
	}
	all, err := signing.VerifyOriginAll(release.keys, release.sums, release.signature, d.now)
	if err != nil {
		return signature{}, fmt.Errorf("%s: %w", sumsName(p.address, p.version), err)
	}
	signed.key = d.keyOf(d.prefer(all, d.signers))
	return signed, nil
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
