package filling

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/content/signing"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/registry"
)

// signedRelease is a verified SHA256SUMS of an origin.
type signedRelease struct {
	sums []byte
	// signature is empty, and there are no keys, if the origin signs nothing.
	signature []byte
	// keys are those that the origin names. After a verification, they are those that
	// have signed: clients need no others, and must not trust another SHA256SUMS.
	keys []registry.PublicKey
	// from is the package with which the origin named it. It has no URLs if that was
	// earlier.
	from offer
}

// signing returns the keys that have signed a release, which is verified.
func (r signedRelease) signing(now time.Time) []registry.PublicKey {
	return slices.DeleteFunc(slices.Clone(r.keys), func(k registry.PublicKey) bool {
		_, err := signing.VerifyOrigin([]string{k.ASCIIArmor}, r.sums, r.signature, now)
		return err != nil
	})
}

// described returns the packages of a version that the origin has described, as far as
// the SHA256SUMS lists them. If there are more than maxOffers, it returns none, because
// they are in one item.
func (r signedRelease) described(address registry.MirrorAddress, v registry.Version,
	offers []offer) (packages []registry.OfferedPackage) {
	for _, o := range offers {
		for _, p := range o.Packages {
			if r.lists(address.Filename(v, p.Platform), p.SHA256) {
				packages = append(packages, p)
			}
		}
		if len(packages) > 0 {
			break // the others describe the same packages
		}
	}
	if len(packages) > maxOffers {
		return nil
	}
	return packages
}

// agrees returns [registry.ErrExists] if a SHA256SUMS lists one of the packages of a
// mirrored version with another SHA-256. Then the origin has changed the release.
func (r signedRelease) agrees(address registry.MirrorAddress, stored registry.MirrorVersion,
	packages []registry.MirrorPackage) error {
	for _, p := range packages {
		if sum, listed := signing.ListedSum(r.sums, p.Filename); listed {
			if _, err := find(address, stored, p.Platform, strings.ToLower(sum)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r signedRelease) lists(filename, sha256 string) bool {
	return signing.Lists(r.sums, filename, sha256)
}

// added returns the packages that a version gets, as far as a SHA256SUMS has them.
func added(missing []offer) (packages []registry.MirrorPackage) {
	for _, o := range missing {
		if !o.restores {
			packages = append(packages, registry.MirrorPackage{ProviderPackage: registry.ProviderPackage{
				Filename: o.stored, StoredFile: registry.StoredFile{SHA256: o.SHA256},
			}})
		}
	}
	return packages
}

// newSums returns the SHA256SUMS of a version as the mirror should store it. It
// returns nil if its key is not trusted, or if the stored record needs nothing of it.
// more are the packages that the version gets.
//
// The stored SHA256SUMS of a version is not replaced, because it verifies the
// stored packages. Another one is only stored for packages that have none. Otherwise an
// origin that signs again and again could make the mirror store all of it. It must
// agree with stored packages that have no signed one. Otherwise nobody could verify
// these in an exported folder. For packages that the version gets, that is
// [registry.ErrExists]. For the same reason, a stored SHA256SUMS must not contradict
// these, as [listing] reports.
func (m *Mirror) newSums(ctx context.Context, address registry.MirrorAddress, stored registry.MirrorVersion,
	more []registry.MirrorPackage, signed signature) (*publish.MirrorSums, error) {
	if err := m.checkListed(ctx, stored, more, signed); err != nil {
		return nil, err
	}
	if signed.untrusted != nil {
		return nil, nil //nolint:nilnil,nilerr // documented above
	}
	sums := signed.release.place(address, stored, signed.key.ID)
	with := stored
	with.Packages = slices.Concat(stored.Packages, more)
	if with.LacksSums(sums.MirrorSums, sums.Lists) {
		err := signed.release.agrees(address, stored, slices.DeleteFunc(slices.Clone(stored.Packages),
			func(p registry.MirrorPackage) bool { return p.Sums > 0 && stored.Sums[p.Sums-1].Signed() }))
		if err == nil {
			return sums, nil
		}
		if len(more) == 0 {
			err = nil
		}
		return nil, err
	}
	if at := stored.FindSums(sums.Sums.SHA256); at >= 0 && stored.Sums[at].Same(sums.MirrorSums) {
		if lost, err := m.lostFiles(ctx, sums); err != nil || lost {
			return sums, err
		}
	}
	return nil, nil //nolint:nilnil // documented above
}

// checkListed checks packages that a version gets with [listing], as an import of the
// exported folder would. It reads stored files only if one of them is not signed.
func (m *Mirror) checkListed(ctx context.Context, stored registry.MirrorVersion, more []registry.MirrorPackage,
	signed signature) error {
	more = slices.DeleteFunc(slices.Clone(more), func(p registry.MirrorPackage) bool {
		return signed.key.ID != "" && signed.release.lists(p.Filename, p.SHA256)
	})
	if len(more) == 0 {
		return nil
	}
	all := []signature{signed}
	for i, s := range stored.Sums {
		if !slices.ContainsFunc(stored.Packages, func(p registry.MirrorPackage) bool { return p.Sums == i+1 }) {
			continue // an export leaves it out
		}
		r, err := m.readFiles(ctx, s)
		if err != nil {
			return err
		}
		all = append(all, signature{key: registry.OriginKey{ID: s.SigningKey}, release: r})
	}
	for _, p := range more {
		if _, _, err := listing(all, p.Filename, p.SHA256); err != nil {
			return registry.WithHint(err, "A mirrored SHA256SUMS lists it otherwise. Find out who changed the package.")
		}
	}
	return nil
}

// lostFiles reports whether the store has lost a file of a SHA256SUMS.
func (m *Mirror) lostFiles(ctx context.Context, sums *publish.MirrorSums) (bool, error) {
	for _, f := range []struct {
		registry.StoredFile
		data []byte
	}{{sums.Sums, sums.SumsData}, {sums.Signature, sums.SignatureData}} {
		if f.data == nil {
			continue
		}
		if err := objects.CheckStored(ctx, m.Objects, f.StoredFile); errors.Is(err, registry.ErrNotFound) {
			return true, nil
		} else if err != nil {
			return false, err
		}
	}
	return false, nil
}

// signatureEnd is the end of the name of the signature of a SHA256SUMS.
const signatureEnd = ".sig"

// sumsName returns the name of the SHA256SUMS of a version.
func sumsName(p registry.MirrorAddress, v registry.Version) string {
	return "terraform-provider-" + p.Name + "_" + v.String() + "_SHA256SUMS"
}

// place returns the SHA256SUMS with the keys of its objects. If the record has the
// same one with another signature, the result has that one, without its data and keys.
func (r signedRelease) place(address registry.MirrorAddress, stored registry.MirrorVersion,
	signer string) *publish.MirrorSums {
	name := sumsName(address, stored.Version)
	file := func(data []byte, name string) registry.StoredFile {
		digest := sha256.Sum256(data)
		sum := hex.EncodeToString(digest[:])
		return registry.StoredFile{Object: address.FileKey(stored.Version, sum, name), SHA256: sum, Size: int64(len(data))}
	}
	placed := &publish.MirrorSums{
		OriginSums: catalog.OriginSums{
			MirrorSums: registry.MirrorSums{Sums: file(r.sums, name), SigningKey: signer, Keys: r.keys}, Lists: r.lists,
		},
		SumsData: r.sums,
	}
	if len(r.signature) > 0 {
		placed.Signature, placed.SignatureData = file(r.signature, name+signatureEnd), r.signature
	}
	if at := stored.FindSums(placed.Sums.SHA256); at >= 0 && stored.Sums[at].Signed() &&
		!stored.Sums[at].Same(placed.MirrorSums) {
		placed.MirrorSums, placed.SignatureData = stored.Sums[at], nil
	}
	return placed
}
