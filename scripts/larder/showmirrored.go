package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/dustin/go-humanize"

	"github.com/larder-registry/larder/pkg/mirror/admission"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/scripts/larder/list"
	"github.com/larder-registry/larder/scripts/larder/output"
	"github.com/larder-registry/larder/scripts/larder/place"
)

// shownMirroredView is a version of a mirrored module.
type shownMirroredView struct {
	Address string `json:"address"`
	protocol.MirroredVersion
	Dependents *place.Dependents `json:"dependents,omitempty"`

	address registry.MirrorAddress
}

// showMirrored returns the view of a version of a mirrored module, or of the newest
// mirrored version if version is nil.
func showMirrored(ctx context.Context, r *place.Reader, a registry.MirrorAddress, version *registry.Version) (
	v shownMirroredView, err error,
) {
	history, err := r.MirroredHistory(ctx, a)
	if err != nil {
		return v, r.NotFound(ctx, a, version, err)
	}
	at := slices.IndexFunc(history.Versions, func(one protocol.MirroredVersion) bool {
		if version != nil {
			return one.Version == *version
		}
		return history.Version != nil && one.Version == *history.Version
	})
	if at < 0 {
		return v, r.NotFound(ctx, a, version, fmt.Errorf("cannot show %s: no such version is mirrored: %w", a,
			registry.ErrNotFound))
	}
	return shownMirroredView{a.String(), history.Versions[at], r.Dependents(ctx, a), a}, nil
}

func (v shownMirroredView) Text(p output.Page) {
	p.Head(v.address.String()+" "+v.Version.String(), "", "", "")
	reason := v.Reason
	if w := v.Withdrawn; w != nil {
		reason = fmt.Sprintf("%s (%s, %s)", w.Reason, cmp.Or(w.By, "unknown"), output.FormatTime(w.At))
	}
	facts := [][2]string{{"State", v.State}, {"Reason", reason}}
	if !v.PublishedAt.IsZero() {
		facts = append(facts, [2]string{"Released", output.PublishedTime(v.PublishedAt)})
	}
	facts = append(facts, pinned("", v.Pin)...)
	if list.IsChanged(v.MirroredVersion) {
		facts = append(facts, pinned("Now ", v.ChangedTo)...)
	}
	if d := v.Admitted; d != nil {
		facts = append(facts, [2]string{"Admitted", list.DecidedBy(*d)})
	}
	if a := v.Archive; a != nil {
		facts = append(facts, [2]string{"Mirrored", output.PublishedTime(a.MirroredAt)}, [2]string{"By", a.MirroredBy.String()},
			[2]string{"Archive", p.Digest("sha256:"+a.SHA256) + ", " + humanize.IBytes(uint64(max(a.Size, 0)))})
		for _, note := range a.Notes {
			facts = append(facts, [2]string{"Note", note})
		}
	}
	facts = append(facts, [2]string{"Called by", v.Dependents.String()})
	p.Facts(facts)
	if s := admission.State(v.State); s == admission.Available || s.IsOnRequest() {
		place.PrintUse(p, place.ModuleBlock(v.address.Name, v.address.Source(), v.Version.String(), place.UnknownInputs),
			place.Addressing{})
		p.Printf("\n")
		p.Println("Clients get it from this registry if `larder mirror setup` has configured them.")
	}
}

// pinned returns the facts about what a version is bound to. before is the beginning
// of their names.
func pinned(before string, pin registry.ModulePin) [][2]string {
	facts := [][2]string{{before + "Source", pin.Source}, {before + "Commit", pin.Commit}, {before + "Folder", pin.Folder},
		{before + "Files", pin.H1}}
	if pin.Accepted != nil {
		facts = append(facts, [2]string{"Accepted", list.DecidedBy(*pin.Accepted)})
	}
	return facts
}

func (v shownMirroredView) Quiet(p output.Page) { p.Printf("%s\n", v.Version) }
