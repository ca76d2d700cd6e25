package filling

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/content/signing"
	"github.com/larder-registry/larder/pkg/mirror/admission"
	"github.com/larder-registry/larder/pkg/registry"
)

// signature is who signed a version. The zero key means that nobody did.
type signature struct {
	key registry.OriginKey
	// named reports whether the policy names the key.
	named bool
	// overruled reports whether the policy does not allow the key, and an operator
	// overrules that.
	overruled bool
	// untrusted is why the key is not trusted, if only mirrored packages are
	// signed by it.
	untrusted error
	// newest reports whether no mirrored version is newer.
	newest bool
	// signers are the IDs of the keys that signed mirrored versions.
	signers []string
	// release has the signed SHA256SUMS of the version.
	release signedRelease
}

// signers returns the IDs of the keys that signed mirrored versions, as far as the
// trust in one of all depends on them. records are the mirrored versions, unless a
// reader makes the mirror fetch one.
func (d *decider) signers(ctx context.Context, all []signing.Signer, records []registry.MirrorVersion) ([]string, error) {
	if d.found == nil {
		return signers(records), nil
	}
	if len(d.mirrored) == 0 || len(all) == 0 && len(d.origin.Keys) > 0 ||
		slices.ContainsFunc(all, func(s signing.Signer) bool { return d.origin.Trusts(d.keyOf(s)) }) {
		return nil, nil
	}
	records, err := d.m.records(ctx, d.address)
	if err != nil {
		return nil, tableError{err}
	}
	return signers(records), nil
}

func (d *decider) keyOf(s signing.Signer) registry.OriginKey {
	if s.ID == "" {
		return registry.OriginKey{}
	}
	return registry.OriginKey{
		ID: s.ID, Fingerprint: s.Fingerprint, Owner: s.Owner, SeenAt: d.now.UTC().Truncate(time.Second),
	}
}

// forgotten returns the IDs of keys that signed mirrored versions and that o lacks.
// There are some if an operator removed the damaged item of the origin. The next
// key with such an ID is trusted, and no other one is the first.
func forgotten(o *registry.MirrorOrigin, signers []string) []string {
	return slices.DeleteFunc(slices.Clone(signers), func(id string) bool {
		return slices.Contains(o.Overruled, id) ||
			slices.ContainsFunc(o.Keys, func(k registry.OriginKey) bool { return k.ID == id })
	})
}

// judge decides whether the key of a version is trusted, and adds the decision
// to o. entry is nil unless a refusal is new.
func (d *decider) judge(o *registry.MirrorOrigin, v registry.Version, s signature) (
	trusted, changed bool, entry *registry.AuditEntry,
) {
	lost := forgotten(o, s.signers)
	none := len(o.Keys)+len(lost) == 0
	if s.key.ID == "" {
		trusted = none || o.Unsigned != nil
	} else {
		first := none && (s.overruled || !slices.Contains(o.Overruled, s.key.ID))
		trusted = s.named || first || o.Trusts(s.key) || slices.Contains(lost, s.key.ID)
	}
	if !trusted {
		if o.Refuse(registry.RefusedVersion{Version: v, Key: s.key, At: d.now.UTC().Truncate(time.Second)}) {
			changed = true
			entry = d.entry(registry.AuditRefuseKey, describeKey(s.key))
			entry.Version = &v
		}
		return false, changed, entry
	}
	switch {
	case s.key.ID == "":
	case !s.overruled || o.Trusts(s.key):
		changed = o.Trust(s.key) || changed
	case !slices.Contains(o.Overruled, s.key.ID):
		o.Overruled = append(slices.Clone(o.Overruled), s.key.ID)
		changed = true
	}
	if refused := func(r registry.RefusedVersion) bool { return r.Version == v }; slices.ContainsFunc(o.Refused, refused) {
		o.Refused = slices.DeleteFunc(slices.Clone(o.Refused), refused)
		changed = true
	}
	return true, changed, nil
}

// describeKey names a key in the audit trail.
func describeKey(k registry.OriginKey) string {
	if k.ID == "" {
		return "no signature"
	}
	return strings.TrimSpace(cmp.Or(k.Fingerprint, k.ID) + " " + k.Owner)
}

// prefer returns the signer of a version whose key counts. Origins that change
// their key sign with both for some time. before are the IDs of the keys that
// signed mirrored versions.
func (d *decider) prefer(all []signing.Signer, before []string) signing.Signer {
	lost := forgotten(&d.origin, before)
	value := func(s signing.Signer) int {
		key := d.keyOf(s)
		named, err := admission.CheckKey(d.rule, key)
		value := 0
		if err == nil {
			value += 2
		}
		if named || d.origin.Trusts(key) || slices.Contains(lost, key.ID) {
			value++
		}
		return value
	}
	return slices.MaxFunc(all, func(a, b signing.Signer) int { return cmp.Compare(value(a), value(b)) })
}

// untrustedIn returns why the key of a version is not allowed or not trusted, or
// nil. It records nothing.
func (d *decider) untrustedIn(s signature) error {
	var err error
	if s.named, err = admission.CheckKey(d.rule, s.key); err != nil {
		return err
	}
	o := d.origin
	if trusted, _, _ := d.judge(&o, registry.Version{}, s); !trusted {
		return d.untrusted(s.key)
	}
	return nil
}

// checkSignature checks the key of a version, before any of its packages is
// downloaded. It returns [registry.ErrNotAdmitted] if the key is not trusted, and
// records the refusal.
func (d *decider) checkSignature(ctx context.Context, v registry.Version, s *signature) error {
	var err error
	if s.named, err = admission.CheckKey(d.rule, s.key); err != nil {
		if err := d.object(v, d.orOverrule(err, "Change the policy")); err != nil {
			return err
		}
		s.overruled = true
	}
	o := d.origin
	if trusted, _, _ := d.judge(&o, v, *s); trusted {
		return nil
	}
	trusted := false
	if err := d.update(ctx, func(o *registry.MirrorOrigin) (changed bool, entry *registry.AuditEntry, err error) {
		trusted, changed, entry = d.judge(o, v, *s)
		return changed, entry, nil
	}); err != nil || trusted {
		return err
	}
	return d.untrusted(s.key)
}

// settle records the key of a version, and that an operator admits it or
// overrules the policy for it. It does so before the version is stored. written
// reports whether anything of it will be. It returns a note if the policy was
// overruled.
func (d *decider) settle(ctx context.Context, v registry.Version, s signature, written bool) (
	note []string, err error,
) {
	overruled := d.overruled[v]
	if !written {
		overruled = nil
	}
	judge := func(o *registry.MirrorOrigin) (trusted, changed bool, entry *registry.AuditEntry) {
		if s.untrusted != nil { // a lost file of a mirrored package is restored
			return true, false, nil
		}
		trusted, changed, entry = d.judge(o, v, s)
		// The origin signs again.
		if written && s.newest && s.key.ID != "" && o.Trusts(s.key) && o.Unsigned != nil {
			o.Unsigned, changed = nil, true
		}
		return trusted, changed, entry
	}
	o := d.origin
	admits := d.early && written
	if trusted, changed, _ := judge(&o); trusted && !changed && !admits && len(overruled) == 0 {
		return nil, nil
	}
	trusted := false
	if err := d.update(ctx, func(o *registry.MirrorOrigin) (changed bool, entry *registry.AuditEntry, err error) {
		before := trusted
		trusted, changed, entry = judge(o)
		switch {
		case before && !trusted && d.found != nil: // another run has trusted another key
			return false, nil, d.untrusted(s.key)
		case !trusted:
		case admits:
			changed, entry = true, d.admit(o, v)
		case len(overruled) > 0:
			changed, entry = true, d.overrule(v)
		}
		return changed, entry, nil
	}); err != nil {
		return nil, err
	}
	if !trusted {
		return nil, d.untrusted(s.key)
	}
	if len(overruled) == 0 {
		return nil, nil
	}
	return d.overruledNote(v), nil
}

func (d *decider) settleImport(ctx context.Context, v registry.Version) (note []string, err error) {
	if len(d.overruled[v]) == 0 {
		return nil, nil
	}
	if err := d.update(ctx, func(o *registry.MirrorOrigin) (bool, *registry.AuditEntry, error) {
		return true, d.overrule(v), nil
	}); err != nil {
		return nil, err
	}
	return d.overruledNote(v), nil
}

// overrule returns the audit entry for a version for which an operator overrules
// the policy. Nothing else is recorded, so that a run that fails then does not
// change what later runs may do.
func (d *decider) overrule(v registry.Version) *registry.AuditEntry {
	entry := d.entry(registry.AuditOverrule,
		fmt.Sprintf("%s (policy: %s)", d.m.Overrule, strings.Join(d.overruled[v], "; ")))
	entry.Version = &v
	return entry
}

// overruledNote returns a note about the overruled objections, and forgets them.
func (d *decider) overruledNote(v registry.Version) []string {
	note := "the mirror policy was overruled: " + strings.Join(d.overruled[v], "; ")
	delete(d.overruled, v)
	return []string{note}
}

// untrusted returns the error for a key that is not trusted. The zero key means
// that a version has no signature although others have.
func (d *decider) untrusted(k registry.OriginKey) error {
	var trusted []string
	for _, key := range d.origin.Keys {
		trusted = append(trusted, key.ID)
	}
	keys := cmp.Or(strings.Join(trusted, ", "), "none")
	if k.ID == "" {
		err := fmt.Errorf("%w: %s lists no signing keys for it, but other versions are signed by %s",
			registry.ErrNotAdmitted, d.address.Hostname, keys)
		return registry.WithHint(err, "Find out who removed the keys. If the origin does not sign any more, "+
			"run `larder mirror trust %s unsigned`, and add `--allow-unsigned`.", d.address)
	}
	name := k.ID
	if slices.Contains(trusted, k.ID) || slices.ContainsFunc(d.origin.Refused, func(r registry.RefusedVersion) bool {
		return r.Key.ID == k.ID && r.Key.Fingerprint != k.Fingerprint
	}) {
		name = k.Fingerprint
	}
	by := k.Owner
	if by == "" {
		by = "which names no owner"
	}
	err := fmt.Errorf("%w: it is signed by key %s (%s), which is not trusted for this provider (trusted keys: %s)",
		registry.ErrNotAdmitted, name, by, keys)
	return registry.WithHint(err, "Find out whether the origin has changed its key. "+
		"If it has, run `larder mirror trust %s %s`.", d.address, name)
}
