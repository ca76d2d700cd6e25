package verify

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/content/archive"
	"github.com/larder-registry/larder/pkg/content/signing"
	"github.com/larder-registry/larder/pkg/mirror/policyfile"
	"github.com/larder-registry/larder/pkg/registry"
)

// policyPath is the path of the mirror's policy, and its subject in the audit
// trail.
const policyPath = "policy/mirror"

// policy verifies that the mirror's policy can be read, and that its rules and its
// budget are those of its text. A policy is never removed.
func (r *run) policy(ctx context.Context) error {
	p, err := r.Catalog.MirrorPolicy(ctx)
	switch {
	case errors.Is(err, registry.ErrCorrupt):
		r.add(Finding{
			Kind: Record, Path: policyPath, Detail: err.Error(),
			Fix: "run `larder mirror policy set FILE`, or restore the item from a backup of the table; until then nothing " +
				"can be mirrored",
		})
	case err != nil:
		return err
	case p != nil:
		r.claim(policyPath, claim{action: registry.AuditSetPolicy})
		return r.rules(ctx, *p)
	case r.trail.of(policyPath).whole.has(registry.AuditSetPolicy):
		r.add(Finding{
			Kind: Record, Path: policyPath,
			Detail: "the audit trail contains the setting of the policy, but the registry has no policy",
			Fix: "run `larder mirror policy set FILE` again, or restore the item from a backup of the table; until then the " +
				"mirror allows everything",
		})
	}
	return nil
}

func (r *run) rules(ctx context.Context, p registry.MirrorPolicy) error {
	written, err := policyfile.Parse(ctx, policyPath, []byte(p.Text))
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var detail string
	switch {
	case err != nil:
		detail = "its text is not valid"
	case !reflect.DeepEqual(written.Rules, p.Rules):
		detail = "its rules, which apply, are not those of its text, which `larder mirror policy show` shows"
	case written.Budget != p.Budget:
		detail = "its budget, which applies, is not that of its text, which `larder mirror policy show` shows"
	default:
		return nil
	}
	r.add(Finding{
		Kind: Record, Path: policyPath, Detail: detail,
		Fix: "run `larder mirror policy set FILE` with the policy that should apply, and find out who can write to the table",
	})
	return nil
}

// unsigned is the detail of the audit entry for an origin that does not sign any
// more.
const unsigned = "unsigned"

// origin verifies the data about the origin of a mirrored provider, which need
// not have a mirrored version.
func (r *run) origin(ctx context.Context, p registry.MirrorAddress) error {
	o, err := r.Catalog.Mirror.Origin(ctx, p)
	if errors.Is(err, registry.ErrCorrupt) {
		r.add(Finding{
			Kind: Record, Path: p.Path(), Detail: err.Error(),
			Fix: "restore the item from a backup of the table; if there is no backup, remove it (see " +
				"docs/verify.md): the mirror then relies on the origin's publication times for the versions of " +
				"today, and on the keys that signed the mirrored versions",
		})
		return nil
	}
	if err != nil {
		return err
	}
	r.claimOrigin(p, o)
	lost := lostDecisions(o, r.trail.of(p.Path()))
	if len(lost) == 0 {
		return nil
	}
	r.add(Finding{
		Kind: Record, Path: p.Path(),
		Detail: "the audit trail contains " + strings.Join(lost, ", and ") + ", but the data about its origin does not",
		Fix: "restore the item from a backup of the table; if there is no backup, run `larder mirror trust` or " +
			"`larder mirror admit` again for what `larder audit` shows, after you have checked the key that signs new versions",
	})
	return nil
}

// claimOrigin claims the entries of the decisions about an origin.
func (r *run) claimOrigin(p registry.MirrorAddress, o registry.MirrorOrigin) {
	for _, v := range o.Versions {
		if v.Admitted != nil {
			r.claim(p.Path(), claim{action: registry.AuditAdmit, version: v.Version.String()})
		}
	}
	refusal := registry.AuditRefuseKey
	if p.IsModule() {
		refusal = registry.AuditRefuseContent
	}
	for _, refused := range o.Refused {
		r.claim(p.Path(), claim{action: refusal, version: refused.Version.String()})
	}
	trusted := o.Unsigned != nil
	for _, k := range o.Keys {
		trusted = trusted || k.Trusted != nil
	}
	if trusted {
		r.claim(p.Path(), claim{action: registry.AuditTrustKey})
	}
}

// lostDecisions returns what the trail contained about an origin before it was
// read, and the origin does not. Keys are never removed. An admission matters
// until something of the version is mirrored.
func lostDecisions(o registry.MirrorOrigin, was *history) (lost []string) {
	var admitted, keys []string
	refused := false
	for name, done := range was.versions {
		refused = refused || done.has(registry.AuditRefuseKey)
		v, err := registry.ParseTag(name)
		if err != nil || !done.has(registry.AuditAdmit) || done.stored() {
			continue
		}
		if seen, _ := o.Seen(v); seen.Admitted == nil {
			admitted = append(admitted, name)
		}
	}
	for _, id := range was.trusted {
		switch has := slices.ContainsFunc(o.Keys, func(k registry.OriginKey) bool {
			return k.ID == id || k.Fingerprint == id
		}); {
		case id != unsigned && !has && !slices.Contains(keys, id):
			keys = append(keys, id)
		case id == unsigned && o.Unsigned == nil && len(o.Keys) == 0:
			lost = append(lost, "the decision that the origin does not sign any more")
		}
	}
	slices.Sort(admitted)
	if len(admitted) > 0 {
		lost = append(lost, "the admission of "+nameSome(admitted))
	}
	if len(keys) > 0 {
		lost = append(lost, "the trust in key "+nameSome(keys))
	}
	// A key is only refused because there is another.
	if refused && len(keys) == 0 && len(o.Keys) == 0 {
		lost = append(lost, "the refusal of a key that was not the trusted one")
	}
	return slices.Compact(lost)
}

// mirroredModule verifies the archive of a mirrored module and what was made
// from it.
func (r *run) mirroredModule(ctx context.Context, v registry.MirrorVersion, read func(int64)) ([]Finding, error) {
	m := v.Module
	if m == nil {
		return nil, nil // the version was withdrawn
	}
	found, err := r.archive(ctx, m.StoredFile, m.Pin.H1, archive.H1, read)
	if err != nil {
		return nil, err
	}
	more, err := r.documentation(ctx, m.Documents, read)
	return append(found, more...), err
}

// mirroredSums verifies a SHA256SUMS of an origin and its signature as clients do,
// and that it lists the packages that refer to it.
func (r *run) mirroredSums(ctx context.Context, p registry.MirrorAddress, v registry.MirrorVersion, at int,
	read func(int64)) ([]Finding, error) {
	if at >= len(v.Sums) {
		return nil, nil // the version was withdrawn, or it is another one
	}
	s := v.Sums[at]
	sums, found, err := r.small(ctx, s.Sums, signing.MaxSums, read)
	if err != nil {
		return nil, err
	}
	var signature []byte
	if s.Signed() {
		var more []Finding
		if signature, more, err = r.small(ctx, s.Signature, signing.MaxSignature, read); err != nil {
			return nil, err
		}
		found = append(found, more...)
	}
	if len(found) > 0 {
		return found, nil
	}
	for _, pkg := range v.Packages {
		if pkg.Sums == at+1 && !signing.Lists(sums, pkg.Filename, pkg.SHA256) {
			found = append(found, Finding{
				Kind: Sums, Object: s.Sums.Object,
				Detail: "it does not list " + pkg.Filename + " with the recorded sha256:" + pkg.SHA256,
			})
		}
	}
	if s.Signed() {
		found = append(found, r.mirroredSigner(p, v, s, sums, signature)...)
	}
	return found, nil
}

// mirroredSigner verifies a signature with the keys that the origin named.
func (r *run) mirroredSigner(p registry.MirrorAddress, v registry.MirrorVersion, s registry.MirrorSums,
	sums, signature []byte) []Finding {
	const otherwise = "restore the item of the version (with this path, and version/VERSION without build metadata) " +
		"from a backup of the table; if there is no backup, run `larder withdraw ADDRESS VERSION --reason WHY`"
	f := Finding{Kind: Signature, Object: s.Signature.Object, Fix: otherwise}
	if len(s.Keys) == 0 {
		f.Detail = "the signing keys that the origin named are missing"
		platform := "OS_ARCH"
		if len(v.Packages) > 0 {
			platform = v.Packages[0].String()
		}
		f.Fix = fmt.Sprintf("run `larder mirror add %s --version %s --platform %s`, which restores them from the origin; if "+
			"the origin has another key now, ", p, v.Version, platform) + otherwise
		return []Finding{f}
	}
	all, err := signing.VerifyOriginAll(registry.Armored(s.Keys), sums, signature, r.Now())
	switch {
	case err != nil:
		f.Detail = "clients reject it: " + err.Error()
	case !slices.ContainsFunc(all, func(by signing.Signer) bool { return by.ID == s.SigningKey }):
		f.Detail = "it was signed by key " + all[0].ID + ", but the record has key " + s.SigningKey
	default:
		return nil
	}
	return []Finding{f}
}
