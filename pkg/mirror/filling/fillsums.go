package filling

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/registry"
)

// maxFilled is the maximum number of versions for which one call of
// [Pull.FillSums] sends requests.
const maxFilled = 3

// FillSums adds the SHA256SUMS of the origin to versions of a provider that are
// mirrored without it, if it lists their packages. It also restores the keys of one
// if they were lost. It requests nothing else of them, and tries few versions. Each
// day it begins with others, so that a version that fails does not keep others from
// it. It returns how many versions got it.
func (p Pull) FillSums(ctx context.Context, policy *registry.MirrorPolicy, address registry.MirrorAddress) (
	filled int, err error,
) {
	m, d, w, err := p.prepare(policy, address)
	if err != nil {
		return 0, err
	}
	records, err := m.records(ctx, address)
	if err != nil {
		return 0, err
	}
	lacking := slices.DeleteFunc(slices.Clone(records), func(r registry.MirrorVersion) bool {
		return len(lackingPackages(r)) == 0
	})
	if len(lacking) == 0 {
		return 0, nil
	}
	if err := d.load(ctx); err != nil {
		return 0, err
	}
	origin, err := m.origin(ctx, w)
	if err != nil {
		return 0, asOriginError(err)
	}
	const day = 24 * 60 * 60
	first := int(d.now.Unix() / day * maxFilled % int64(len(lacking)))
	var failed []error
	for _, record := range slices.Concat(lacking[first:], lacking[:first])[:min(maxFilled, len(lacking))] {
		added, err := m.fillVersion(ctx, origin, d, w, record, lackingPackages(record), records)
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", record.Version, err))
		}
		if added {
			filled++
		}
	}
	return filled, errors.Join(failed...)
}

// lackingPackages returns the packages of which no signed SHA256SUMS is stored, or not
// its keys.
func lackingPackages(r registry.MirrorVersion) []registry.MirrorPackage {
	return slices.DeleteFunc(slices.Clone(r.Packages), func(p registry.MirrorPackage) bool {
		if p.Sums == 0 {
			return false
		}
		s := r.Sums[p.Sums-1]
		return (!s.Signed() || len(s.Keys) > 0) && (s.Signed() || p.SigningKey != "")
	})
}

// fillVersion adds the SHA256SUMS of the origin to a mirrored version whose packages
// left lack it, and its signing key to packages that have none. The origin can have
// several for platforms that it published later, and lack platforms by now. It reports
// whether it did, also if there is an error.
func (m *Mirror) fillVersion(ctx context.Context, origin *client.Service, d *decider, w Wanted,
	stored registry.MirrorVersion, left []registry.MirrorPackage, records []registry.MirrorVersion,
) (added bool, err error) {
	for len(left) > 0 && err == nil {
		var found signedRelease
		var isNew bool
		found, isNew, err = m.fillFrom(ctx, origin, d, w, left[0].Platform, &stored, records)
		added = added || isNew
		left = slices.DeleteFunc(left[1:], func(p registry.MirrorPackage) bool { return found.lists(p.Filename, p.SHA256) })
	}
	return added, err
}

// fillFrom is fillVersion with the SHA256SUMS that the origin names for a platform, and
// returns that, even if it is not trusted. It is empty if the origin lacks the platform.
// stored becomes the record as it is then.
func (m *Mirror) fillFrom(ctx context.Context, origin *client.Service, d *decider, w Wanted,
	platform registry.Platform, stored *registry.MirrorVersion, records []registry.MirrorVersion,
) (found signedRelease, added bool, err error) {
	offers, err := m.describe(ctx, origin, w, stored.Version, []registry.Platform{platform})
	if err != nil || len(offers) == 0 {
		return found, false, err
	}
	if _, err := find(w.Address, *stored, platform, offers[0].SHA256); err != nil {
		return found, false, err
	}
	signer, signed, err := m.verify(ctx, d, w, stored.Version, offers, *stored, records)
	if err != nil || signed.untrusted != nil {
		return signed.release, false, err
	}
	var confirmed []registry.MirrorPackage
	for _, p := range stored.Packages {
		if p.SigningKey == "" && signed.release.lists(p.Filename, p.SHA256) {
			p.SigningKey = signer.ID
			confirmed = append(confirmed, p)
		}
	}
	sums, err := m.newSums(ctx, w.Address, *stored, nil, signed)
	if err != nil || sums == nil {
		return signed.release, false, err
	}
	if _, err := d.settle(ctx, stored.Version, signed, len(confirmed) > 0); err != nil {
		return signed.release, false, err
	}
	record := registry.MirrorVersion{Version: stored.Version, Packages: confirmed}
	*stored, added, err = m.Publisher.MirrorSigned(ctx, w.Address, record, nil, sums)
	return signed.release, added, err
}
