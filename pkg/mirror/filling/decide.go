package filling

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
)

// Admit admits a version that is too new, or one of a module that its origin has
// changed, and mirrors it. It records the admission after it has verified the
// packages. So a run that fails before admits nothing. If w has no platforms, they are those of the policy that the
// version has. If the policy names none, they are those of the newest mirrored
// version that is not withdrawn. If nothing is mirrored then, that is
// [registry.ErrInvalid]. The fields Constraint and All of w are not used.
//
// Admit records nothing if the version is mirrored, or is not too new. A note of
// the result then reports that. The rest of the policy applies, and the trust in
// keys. A version that the origin does not list is [registry.ErrNotFound].
func (m *Mirror) Admit(ctx context.Context, w Wanted, v registry.Version, reason string) ([]Result, error) {
	w.exact, w.Constraint, w.All, w.admitting = &v, "", false, reason
	policy, err := m.policy(ctx)
	if err == nil {
		err = rules.CheckReason(reason)
	}
	if err == nil && len(w.Platforms) == 0 && !w.Address.IsModule() {
		err = m.setUsualPlatforms(ctx, &w, policy)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot admit %s %s: %w", w.Address, v, err)
	}
	return m.mirror(ctx, policy, w)
}

// setUsualPlatforms sets the platforms of w to those of the policy. If it names
// none, they are those of the newest mirrored version that is not withdrawn.
func (m *Mirror) setUsualPlatforms(ctx context.Context, w *Wanted, policy *registry.MirrorPolicy) error {
	d, err := m.decideWanted(policy, *w)
	if err != nil {
		return err
	}
	if len(d.rule.Platforms) > 0 {
		w.Platforms, w.ofPolicy = d.rule.Platforms, true
		return nil
	}
	records, err := m.records(ctx, w.Address)
	if err != nil {
		return err
	}
	records = slices.DeleteFunc(records, func(r registry.MirrorVersion) bool { return r.Withdrawn != nil })
	if len(records) == 0 {
		return registry.WithHint(
			fmt.Errorf("%w platforms: no version of %s is mirrored yet", registry.ErrInvalid, w.Address),
			"Name the platforms with `--platform`.")
	}
	newest := slices.MaxFunc(records, func(a, b registry.MirrorVersion) int {
		return registry.CompareVersions(a.Version, b.Version)
	})
	for _, p := range newest.Packages {
		w.Platforms = append(w.Platforms, p.Platform)
	}
	return nil
}

// Unsigned is the key of [Mirror.Trust] that means that there is none.
const Unsigned = "unsigned"

// Trust trusts a signing key of a provider's origin, from now on. The key is the
// ID or the fingerprint of a refused key, or any whole fingerprint. The word
// "unsigned" accepts that the origin does not sign any more. changed reports
// whether it was not trusted before. reason can be empty.
//
// An ID that no refused key has is [registry.ErrNotFound]. If several have it,
// that is [registry.ErrInvalid].
func (m *Mirror) Trust(ctx context.Context, p registry.MirrorAddress, key, reason string) (
	trusted registry.OriginKey, changed bool, err error,
) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("cannot trust a key of %s: %w", p, err)
		}
	}()
	if reason != "" {
		if err := rules.CheckReason(reason); err != nil {
			return trusted, false, err
		}
	}
	d := &decider{m: m, address: p, now: m.now()}
	if m.DryRun {
		if err := d.load(ctx); err != nil {
			return trusted, false, err
		}
	}
	var unknown error              // is not one of the update
	var refused []registry.Version // because of the key
	err = d.update(ctx, func(o *registry.MirrorOrigin) (bool, *registry.AuditEntry, error) {
		var detail string
		before := o.Refused
		defer func() {
			refused = nil
			for _, r := range before {
				if !slices.Contains(o.Refused, r) {
					refused = append(refused, r.Version)
				}
			}
		}()
		if strings.EqualFold(key, Unsigned) {
			trusted, detail = registry.OriginKey{}, Unsigned
			changed = o.Unsigned == nil
			if changed {
				decision := d.decision(reason)
				o.Unsigned = &decision
				o.Refused = slices.DeleteFunc(slices.Clone(o.Refused), func(r registry.RefusedVersion) bool {
					return r.Key.ID == ""
				})
			}
		} else {
			if trusted, unknown = findKey(*o, key); unknown != nil {
				changed = false
				return false, nil, nil
			}
			if changed = !o.Trusts(trusted); changed {
				decision := d.decision(reason)
				trusted.Trusted = &decision
				o.Trust(trusted)
			}
			detail = describeKey(trusted)
		}
		if !changed {
			return false, nil, nil
		}
		if reason != "" {
			detail += ": " + reason
		}
		return true, d.entry(registry.AuditTrustKey, detail), nil
	})
	if err = errors.Join(err, unknown); err != nil {
		return registry.OriginKey{}, false, err
	}
	if changed && !m.DryRun {
		err = m.Catalog.Mirror.OutdatePulled(ctx, p, refused...)
	}
	return trusted, changed, err
}

// findKey finds the key that an operator names, among the refused and the
// trusted keys of an origin. A fingerprint need not be known.
func findKey(o registry.MirrorOrigin, name string) (registry.OriginKey, error) {
	name = strings.ToUpper(strings.ReplaceAll(name, " ", ""))
	const id, fingerprint, longFingerprint = 16, 40, 64 // characters
	raw, err := hex.DecodeString(name)
	if n := 2 * len(raw); err != nil || n != id && n != fingerprint && n != longFingerprint {
		return registry.OriginKey{}, registry.WithHint(
			fmt.Errorf("%w key: it is neither a key ID of 16 hexadecimal digits nor a fingerprint of 40 or 64",
				registry.ErrInvalid), "Copy it from the message about the refused key. To accept that the origin does "+
				"not sign any more, write %q.", Unsigned)
	}
	named := func(k registry.OriginKey) bool { return k.Fingerprint == name || len(name) == id && k.ID == name }
	var found []registry.OriginKey
	for _, r := range o.Refused {
		if named(r.Key) && !slices.ContainsFunc(found, func(k registry.OriginKey) bool {
			return k.Fingerprint == r.Key.Fingerprint
		}) {
			found = append(found, r.Key)
		}
	}
	if len(found) > 1 {
		return registry.OriginKey{}, registry.WithHint(fmt.Errorf("%w key: several refused keys have the ID %s",
			registry.ErrInvalid, name), "Name the fingerprint: %s or %s.", found[0].Fingerprint, found[1].Fingerprint)
	}
	if len(found) == 1 {
		return found[0], nil
	}
	if at := slices.IndexFunc(o.Keys, named); at >= 0 {
		return o.Keys[at], nil
	}
	switch len(name) {
	case fingerprint:
		return registry.OriginKey{ID: name[len(name)-id:], Fingerprint: name}, nil
	case longFingerprint:
		return registry.OriginKey{ID: name[:id], Fingerprint: name}, nil
	}
	return registry.OriginKey{}, registry.WithHint(
		fmt.Errorf("%w: no version was refused because of a key %s", registry.ErrNotFound, name),
		"Run `larder list %s` to see which keys were refused, or name the whole fingerprint.", o.Address)
}
