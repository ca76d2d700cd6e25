package web

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/larder-registry/larder/pkg/mirror/admission"
	"github.com/larder-registry/larder/pkg/network/ipclass"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/search"
)

// findings are the rows of an address that an operator should see, by what they
// are. They are in the order of [mirrorStates].
type findings [len(mirrorStates)][]mirroredRow

// The places in [findings].
const (
	refusedVersions = iota
	failed
	changedVersions
	waitingVersions
)

// mirrorStates are the badges that count the rows of [findings].
var mirrorStates = [...]badge{{"refused", "bad"}, {"failed", "bad"}, {"changed", "warn"}, {"waiting", "note"}}

// findings returns what an operator should see: all that is refused, failing or
// changed at the origin. Versions that wait are newer than all mirrored ones.
// It needs no records. copies is what the mirror found out about the pending
// versions.
func (e *mirroredEdition) findings(p registry.MirrorAddress, copies map[registry.Version]registry.PulledVersion) (f findings) {
	for _, s := range e.statuses {
		switch {
		case s.State == admission.Refused:
			f[refusedVersions] = append(f[refusedVersions], e.row(s))
		case s.ChangedTo != (registry.ModulePin{}):
			row := e.row(s)
			row.Badges = []badge{mirrorStates[changedVersions]}
			f[changedVersions] = append(f[changedVersions], row)
		case s.State == admission.TooNew && (e.Entry.Unlisted || registry.CompareVersions(s.Version, e.Entry.Latest) > 0):
			f[waitingVersions] = append(f[waitingVersions], e.row(s))
		}
	}
	if e.pull != nil && e.pull.problem != "" {
		f[failed] = append(f[failed], failedRow("", e.pull.problem))
	}
	for _, s := range e.failures(p, copies) {
		f[failed] = append(f[failed], failedRow(s.Version.String(), ipclass.Hide(s.Reason)))
	}
	return f
}

// hints returns what an operator can do about refused and waiting versions, once for
// each reason.
func (e *mirroredEdition) hints() (hints []string) {
	known := make(map[string]bool)
	for _, s := range e.statuses {
		when, command, object := "", "trust", s.Key.ID
		switch {
		case e.denial != "":
		case s.ChangedTo != (registry.ModulePin{}):
			when, command, object = "If the origin has announced what changed", "admit", s.Version.String()
		case s.State == admission.TooNew:
			when, command, object = "To mirror a version early", "admit", s.Version.String()
		case s.State != admission.Refused || s.KeyDenied:
		case s.Key.ID == "":
			when, object = "If the origin has announced that it does not sign any more", "unsigned"
		default:
			when = "If the origin has announced its new key"
		}
		if when != "" && !known[when] {
			known[when] = true
			hints = append(hints, when+", an operator runs "+e.command(command, object))
		}
	}
	return hints
}

// command returns a sentence's end with a command of the mirror for the address.
func (e *mirroredEdition) command(name, object string) string {
	_, address, _ := strings.Cut(e.Path[1:], "/")
	platforms := ""
	if name == "admit" && e.Entry.Unlisted && !e.isModule() { // otherwise they are those of the newest version
		platforms = " --platform PLATFORMS"
	}
	return fmt.Sprintf("`larder mirror %s %s %s --reason WHY%s`.", name, address, object, platforms)
}

func (e *mirroredEdition) pendingVersions() (numbers []registry.Version) {
	for _, s := range e.pending {
		numbers = append(numbers, s.Version)
	}
	return numbers
}

// failures returns the versions that clients requested and the mirror failed to
// copy.
func (e *mirroredEdition) failures(
	p registry.MirrorAddress, copies map[registry.Version]registry.PulledVersion,
) (failures []admission.Status) {
	for _, s := range e.pending {
		if s.Explain(e.policy, p, copies[s.Version], e.slow, e.now); s.State == admission.Failed {
			failures = append(failures, s)
		}
	}
	return failures
}

func failedRow(version, why string) mirroredRow {
	return mirroredRow{listed: listed{Version: version, Badges: []badge{mirrorStates[failed]}, Note: why}}
}

// badges counts the rows, such as 2 refused.
func (f findings) badges() (badges []badge) {
	for i, rows := range f {
		if len(rows) > 0 {
			badges = append(badges, badge{fmt.Sprintf("%s %s", count(len(rows)), mirrorStates[i].Text), mirrorStates[i].Tone})
		}
	}
	return badges
}

// findings returns what an operator should see of some addresses. It makes one
// request to the table for 20 addresses, and one for 100 versions to be copied.
// It logs those that cannot be read.
func (h *handler) findings(ctx context.Context, addresses ...registry.MirrorAddress) (
	map[registry.MirrorAddress]findings, error,
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
	editions := make(map[registry.MirrorAddress]*mirroredEdition, len(contents))
	pending := make(map[registry.MirrorAddress][]registry.Version)
	for p, c := range contents {
		e := newMirroredEdition(p, c, policy, h.now())
		editions[p], pending[p] = e, e.pendingVersions()
	}
	copies, err := h.Catalog.Mirror.AllPulledVersions(ctx, pending)
	if err != nil {
		return nil, err
	}
	all := make(map[registry.MirrorAddress]findings, len(contents))
	for p, e := range editions {
		all[p] = e.findings(p, copies[p])
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
	all, err := h.findings(ctx, addresses...)
	for p, f := range all {
		rowOf[p].Badges = append(rowOf[p].Badges, f.badges()...)
	}
	return err
}

// addressesToCheck returns all addresses of which an operator may have to see
// something. It reads what the mirror has seen, but not what it has.
func (h *handler) addressesToCheck(ctx context.Context) (addresses []registry.MirrorAddress, err error) {
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
			if len(e.pending) > 0 || len(e.findings(p, nil).badges()) > 0 {
				addresses = append(addresses, p)
			}
		}
	}
	return addresses, nil
}
