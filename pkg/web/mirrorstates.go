package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
	"github.com/larder-registry/larder/pkg/mirror/admission"
	"github.com/larder-registry/larder/pkg/network/ipclass"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/search"
)

// attention are the rows of an address that an operator should see, by what they are.
// They are in the order of [concerns].
type attention [len(concerns)][]mirroredRow

// The places in an [attention].
const (
	refusedVersions = iota
	failed
	changedVersions
	waitingVersions
)

// concerns are the badges that count the rows of an [attention].
var concerns = [...]badge{{"refused", "bad"}, {"failed", "bad"}, {"changed", "warn"}, {"waiting", "note"}}

// attention returns what an operator should see: all that is refused, failing or
// changed at the origin. Versions that wait are newer than all mirrored ones. It needs
// no records.
func (e *mirroredEdition) attention() (a attention) {
	for _, s := range e.statuses {
		switch {
		case s.State == admission.Refused:
			a[refusedVersions] = append(a[refusedVersions], e.row(s))
		case s.ChangedTo != (registry.ModulePin{}):
			a[changedVersions] = append(a[changedVersions], e.row(s))
		case s.State == admission.TooNew && (e.Entry.Unlisted || registry.CompareVersions(s.Version, e.Entry.Latest) > 0):
			a[waitingVersions] = append(a[waitingVersions], e.row(s))
		}
	}
	if e.pull != nil && e.pull.problem != "" {
		a[failed] = []mirroredRow{failedRow("", "The last check of the origin failed: "+e.pull.problem)}
	}
	return a
}

func failedRow(version, why string) mirroredRow {
	return mirroredRow{listed: listed{Version: version, Badges: []badge{{"failed", "bad"}}, Note: why}}
}

// failures returns the versions that clients requested and the mirror failed to copy.
// That is one request to the table if there are versions to be copied.
func (h *handler) failures(ctx context.Context, e *mirroredEdition, p registry.MirrorAddress) (rows []mirroredRow, err error) {
	var numbers []registry.Version
	for _, s := range e.pending {
		numbers = append(numbers, s.Version)
	}
	found, err := h.Catalog.Mirror.PulledVersions(ctx, p, numbers...)
	for _, s := range e.pending {
		if s.Explain(e.policy, p, found[s.Version], e.slow, e.now); s.State == admission.Failed {
			rows = append(rows, failedRow(s.Version.String(), ipclass.Hide(s.Reason)))
		}
	}
	return rows, err
}

func (a attention) isEmpty() bool { return len(a.badges()) == 0 }

// badges counts the rows, such as 2 refused.
func (a attention) badges() (badges []badge) {
	for i, rows := range a {
		if len(rows) > 0 {
			badges = append(badges, badge{fmt.Sprintf("%s %s", count(len(rows)), concerns[i].Text), concerns[i].Tone})
		}
	}
	return badges
}

// attentions returns what an operator should see of some addresses. It makes one request
// to the table for 20 addresses, and one for each address with versions to be copied. It
// logs those that cannot be read.
func (h *handler) attentions(ctx context.Context, addresses ...registry.MirrorAddress) (
	map[registry.MirrorAddress]attention, error,
) {
	policy, err := h.mirrorPolicy(ctx)
	if err != nil {
		return nil, err
	}
	contents, err := h.Catalog.Mirror.AllContents(ctx, addresses...)
	if contents == nil {
		return nil, err
	}
	logDamage(ctx, err)
	all := make(map[registry.MirrorAddress]attention, len(contents))
	for p, c := range contents {
		e := newMirroredEdition(p, c, policy, h.now())
		rows, err := h.failures(ctx, e, p)
		if err != nil {
			return nil, err
		}
		a := e.attention()
		a[failed] = append(a[failed], rows...)
		all[p] = a
	}
	return all, nil
}

// addStates adds to rows what an operator should see of their entries.
func (h *handler) addStates(ctx context.Context, rows []row, entries []*search.Entry) error {
	var addresses []registry.MirrorAddress
	rowOf := make(map[registry.MirrorAddress]*row)
	for i, e := range entries {
		if p, err := registry.ParseMirrorAddress(e.Address); err == nil {
			addresses, rowOf[p] = append(addresses, p), &rows[i]
		}
	}
	all, err := h.attentions(ctx, addresses...)
	for p, a := range all {
		rowOf[p].Badges = append(rowOf[p].Badges, a.badges()...)
	}
	return err
}

// attentive returns all addresses of which an operator may have to see something. It
// reads what the mirror has seen, but not what it has.
func (h *handler) attentive(ctx context.Context) (addresses []registry.MirrorAddress, err error) {
	policy, err := h.mirrorPolicy(ctx)
	if err != nil {
		return nil, err
	}
	for c, err := range h.Catalog.Mirror.AllOrigins(ctx) {
		p, bad := registry.ParseMirrorAddress(c.Entry.Address)
		switch {
		case errors.Is(err, registry.ErrCorrupt):
			logDamage(ctx, err)
		case err != nil:
			return nil, err
		case bad == nil:
			e := newMirroredEdition(p, c, policy, h.now())
			if len(e.pending) > 0 || !e.attention().isEmpty() {
				addresses = append(addresses, p)
			}
		}
	}
	return addresses, nil
}

// logDamage logs the first cause of something that a page lacks. The error can be nil.
func logDamage(ctx context.Context, err error) {
	entry := requestlog.From(ctx)
	entry.Err = cmp.Or(entry.Err, err)
}
