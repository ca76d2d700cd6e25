package filling

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/mirror/admission"
	"github.com/larder-registry/larder/pkg/registry"
)

// maxPinned is the maximum length of a pin without its digest, in bytes.
const maxPinned = 512

// bindTime bounds the look-ups of [decider.bindWaiting], while a client waits.
const bindTime = 3 * time.Second

// bindWaiting binds versions that are too new, so that the minimum age is one of their
// content too. It looks again at refused ones that are not mirrored, because the origin
// may have undone the change. It leaves out those whose origin does not answer in time.
func (d *decider) bindWaiting(
	ctx context.Context, m *Mirror, origin *client.Service, offered []client.OfferedVersion,
) {
	ctx, cancel := context.WithTimeout(ctx, bindTime)
	defer cancel()
	bound := 0
	for _, v := range offered { // the newest first
		_, isEarly := errors.AsType[admission.TooNewError](d.ready(v.Version))
		isUnbound := isEarly && d.seen[v.Version].Pin.Source == ""
		_, isRefused := d.origin.Refusal(v.Version)
		if !isUnbound && (!isRefused || slices.Contains(d.mirrored, v.Version)) || bound == maxLearned {
			continue
		}
		bound++
		at, err := m.locate(ctx, origin, d, v.Version)
		if err == nil {
			_ = d.bind(ctx, v.Version, &at.pin, registry.MirrorVersion{}) // the table is written later
		}
	}
}

// bind binds a version of a module to what the origin has, at first sight. If that is
// something else later, bind records it and returns [registry.ErrNotAdmitted], unless
// an operator admits the version. stored is the record of the version, or empty. bind
// adds to pin the decision that applies.
func (d *decider) bind(ctx context.Context, v registry.Version, pin *registry.ModulePin,
	stored registry.MirrorVersion) error {
	if len(pin.Source)+len(pin.Folder)+len(pin.Commit) > maxPinned {
		return originError{fmt.Errorf("%w location of the module: it has more than %d characters",
			registry.ErrInvalid, maxPinned)}
	}
	known := d.seen[v].Pin
	if stored.Module != nil {
		known = stored.Module.Pin
	}
	change := changeOf(known, *pin)
	switch {
	case change == "" || d.accepted[v] != "":
		if pin.Accepted == nil {
			pin.Accepted = known.Accepted
		}
	case d.isSeen(v, *pin):
		decision := d.decision(d.admitting)
		pin.Accepted, d.accepted[v] = &decision, change
	default:
		refused := registry.RefusedVersion{Version: v, Pin: *pin, Bound: known, At: d.decision("").At}
		refused.Pin.Accepted, refused.Bound.Accepted = nil, nil
		if err := d.update(ctx, func(o *registry.MirrorOrigin) (bool, *registry.AuditEntry, error) {
			if !o.Refuse(refused) {
				return false, nil, nil
			}
			entry := d.entry(registry.AuditRefuseContent, change)
			entry.Version = &v
			return true, entry, nil
		}); err != nil {
			return err
		}
		return d.changed(v, change)
	}
	_, isRefused := d.origin.Refusal(v)
	if d.accepted[v] != "" || stored.Module != nil && !isRefused {
		return nil // settleModule binds it, or its record does
	}
	return d.update(ctx, func(o *registry.MirrorOrigin) (bool, *registry.AuditEntry, error) {
		seen, _ := o.Seen(v)
		if change := changeOf(seen.Pin, *pin); change != "" { // another run was first
			return false, nil, d.changed(v, change)
		}
		return o.Pin(v, *pin, d.now, d.mirrored...), nil, nil
	})
}

// isSeen reports whether an operator who admits a version has seen its content. It was
// refused before, or it is in the folder of an import.
func (d *decider) isSeen(v registry.Version, pin registry.ModulePin) bool {
	refused, isRefused := d.origin.Refusal(v)
	return d.admitting != "" && (d.importing || isRefused && refused.Pin.Differs(pin) == "")
}

// changeOf describes how what the origin has of a version differs from what the
// mirror saw first, or returns an empty string.
func changeOf(known, now registry.ModulePin) string {
	if known.Source == "" {
		return ""
	}
	return known.Differs(now)
}

// changed returns the error for a version of a module that the origin has changed.
func (d *decider) changed(v registry.Version, change string) error {
	return registry.WithHint(fmt.Errorf("%w: the origin has changed %s: %s", registry.ErrNotAdmitted, v, change),
		"Find out why. To accept it, run `larder mirror admit %s %s --reason WHY`.", d.address, v)
}

// settleModule records that an operator admits a version of a module, accepts what the
// origin has changed, or overrules the policy. It does so before the version is
// stored. It returns a note if the policy was overruled.
func (d *decider) settleModule(ctx context.Context, v registry.Version, pin registry.ModulePin) (
	notes []string, err error,
) {
	change, overruled := d.accepted[v], len(d.overruled[v]) > 0
	if !d.early && change == "" && !overruled {
		return nil, nil
	}
	if err := d.update(ctx, func(o *registry.MirrorOrigin) (bool, *registry.AuditEntry, error) {
		if !d.early && change == "" {
			return true, d.overrule(v), nil
		}
		entry := d.admit(o, v)
		if change != "" {
			o.Pin(v, pin, d.now, d.mirrored...)
			entry.Detail += " (" + change + ")"
		}
		return true, entry, nil
	}); err != nil {
		return nil, err
	}
	if change != "" {
		notes = append(notes, "what the origin has changed was accepted: "+change)
	}
	if overruled {
		notes = append(notes, d.overruledNote(v)...)
	}
	return notes, nil
}
