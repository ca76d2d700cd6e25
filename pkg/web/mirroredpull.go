package web

import (
	"slices"

	"github.com/larder-registry/larder/pkg/mirror/admission"
	"github.com/larder-registry/larder/pkg/network/ipclass"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// onRequest is the section about versions that clients can make the mirror
// fetch.
type onRequest struct {
	// Verdict is when clients get a version that is not mirrored.
	Verdict string
	Fields  []field
	// Count is the number of versions on request.
	Count int

	// problem describes a last check of the origin that failed or found nothing. It is
	// empty for any other check.
	problem string
}

// setPull takes the versions on request out of the states, and describes them.
// Only the newest ones have a place on the page, since an origin can have
// hundreds.
func (e *mirroredEdition) setPull(p registry.MirrorAddress, pull *protocol.MirroredPull) {
	if pull == nil {
		return
	}
	var newest []registry.Version
	kept := e.statuses[:0]
	for _, s := range e.statuses {
		switch {
		case !s.State.IsOnRequest():
			kept = append(kept, s)
			continue
		case slices.ContainsFunc(pull.Pending, s.Version.Same):
			e.pending = append(e.pending, s)
		}
		if len(newest) < admission.MaxShown {
			newest = append(newest, s.Version)
		}
	}
	e.statuses = kept
	o := &onRequest{Count: pull.OnRequest, Verdict: "Closed: clients get a version when it is copied"}
	if pull.Mode == registry.PullOpen {
		o.Verdict = "Open: clients get a version from its origin until it is copied"
	}
	origin := p.Hostname
	if pull.Upstream != "" {
		origin += ", fetched from " + pull.Upstream
	}
	o.Fields = append(o.Fields, textField("Origin", origin))
	if len(newest) > 0 {
		o.Fields = append(o.Fields, textField("Versions", admission.FirstOf(newest, pull.OnRequest)))
	}
	if n := len(pull.Pending); n > 0 {
		o.Fields = append(o.Fields, textField("To be copied", admission.FirstOf(pull.Pending, n)))
	}
	checked := field{Label: "Last check", Time: pull.CheckedAt}
	if pull.Problem != "" {
		problem := ipclass.Hide(pull.Problem)
		if pull.FoundNone {
			o.problem = problem
		} else {
			o.problem, problem = "The last check of the origin failed: "+problem, "failed: "+problem
		}
		o.Fields = append(o.Fields, textField("Last check", problem))
		checked.Label = "Last success"
	}
	for _, f := range []field{checked, {Label: "Last request", Time: pull.RequestedAt}} {
		if !f.Time.IsZero() {
			o.Fields = append(o.Fields, f)
		}
	}
	e.pull = o
}
