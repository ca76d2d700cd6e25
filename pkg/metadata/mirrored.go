package metadata

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
	"github.com/larder-registry/larder/pkg/mirror/admission"
	"github.com/larder-registry/larder/pkg/network/ipclass"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// mirroredOf returns the mirrored provider or module of a request, after checking
// that the caller may read it.
func mirroredOf(r *http.Request) (registry.MirrorAddress, error) {
	p, err := parse(r, registry.ParseMirrorAddress)
	// The scopes were compared with the address exactly as it was sent.
	if _, address := addressOf(r); err == nil && p.String() != address {
		err = fmt.Errorf("%w: clients request %s", registry.ErrInvalid, p)
	}
	return p, err
}

// The warnings of a response. The causes are in the log.
const (
	warnOrigin = "versions that are too new or refused are not listed, because the data about the origin is damaged"
	warnPolicy = "versions that are too new are not listed, because the mirror policy is damaged"
)

// mirroredVersions serves the versions of a mirrored provider or module, and those
// that wait, are refused or can be fetched. It reads the table once, and once a minute
// the policy. If there are versions on request, it reads the table once more.
//
// If the policy is damaged, the response lacks the versions that wait. If what is
// known of the origin is damaged, it has the mirrored versions only. It then has a
// warning, and the log has the error. If nothing remains, the error is the
// response.
//
// With history=true, it is the history of the address. This has the packages or the
// archives of the mirrored versions, and the withdrawn and the missing versions.
// Their records take one Query more. A record that cannot be read is an error. The
// history has no path of its own, because API Gateway takes each such path for a
// document of the mirror.
func (h *handler) mirroredVersions(w http.ResponseWriter, r *http.Request) error {
	p, err := mirroredOf(r)
	if err != nil {
		return err
	}
	policy, badPolicy := h.policies.Get(r.Context())
	if badPolicy != nil && !errors.Is(badPolicy, registry.ErrCorrupt) {
		return badPolicy
	}
	contents, badOrigin := h.catalog.Mirror.ContentsAndOrigin(r.Context(), p)
	tolerant := h.once && errors.Is(badOrigin, registry.ErrCorrupt) // of a damaged listing, as in allVersions
	if badOrigin != nil && contents.Entry.Address == "" && !tolerant {
		return fmt.Errorf("mirrored %s %s: %w", p.Kind(), p, badOrigin)
	}
	damaged := errors.Join(badPolicy, badOrigin)
	requestlog.From(r.Context()).Err = damaged
	d := protocol.MirroredProvider{
		Hostname: p.Hostname, Namespace: p.Namespace, Name: p.Name, Provider: p.System,
		Versions:    []protocol.MirroredVersion{},
		SigningKeys: notNil(contents.Origin.Keys), Unsigned: contents.Origin.Unsigned, Denied: admission.Denial(policy, p),
	}
	if contents.Entry.Address != "" && !contents.Entry.Unlisted {
		d.Version = &contents.Entry.Latest
	}
	if badOrigin != nil {
		d.Warnings = append(d.Warnings, warnOrigin)
		policy = nil // without publication times, all ages would be unknown
	}
	if badPolicy != nil {
		d.Warnings = append(d.Warnings, warnPolicy)
	}
	if rule, err := admission.RuleOf(policy, p); err == nil {
		d.MinAge = rule.MinAge
	}
	stored := admission.Stored{
		Listed: contents.Listed, Excluded: contents.Entry.Withdrawn, Origin: contents.Origin,
		Pulled: contents.Pulled.Forgotten(h.now()),
	}
	var past mirroredPast
	if r.URL.Query().Get("history") == "true" {
		if past, err = h.mirroredPast(r.Context(), p, contents.Listed); err != nil {
			return fmt.Errorf("mirrored %s %s: %w", p.Kind(), p, err)
		}
		stored.Listed, stored.Excluded = past.listed, past.excluded
	}
	statuses := admission.StatusesOf(policy, p, stored, h.now())
	if d.Pull = admission.PullOf(policy, p, stored, statuses); d.Pull != nil {
		d.Pull.Problem = ipclass.Hide(d.Pull.Problem)
	}
	explained := admission.VersionsToExplain(d.Pull, statuses)
	found, err := h.catalog.Mirror.PulledVersions(r.Context(), p, explained...)
	if err != nil {
		return fmt.Errorf("mirrored %s %s: %w", p.Kind(), p, err)
	}
	for _, s := range statuses {
		if slices.Contains(explained, s.Version) {
			s.Explain(policy, p, found[s.Version], stored.Pulled.Slow, h.now())
		}
		s.Reason = ipclass.Hide(s.Reason)
		v := s.Document()
		if m := past.modules[s.Version]; m != nil {
			v.Pin, v.Archive = m.Pin, archiveOf(m)
		}
		v.Packages = past.packages[s.Version]
		d.Versions = append(d.Versions, v)
	}
	d.Versions = append(d.Versions, past.gone...)
	slices.SortStableFunc(d.Versions, func(a, b protocol.MirroredVersion) int {
		return registry.CompareVersions(b.Version, a.Version)
	})
	switch {
	case len(d.Versions) > 0 || d.Pull != nil:
		return respond(w, r, d)
	case damaged != nil:
		return fmt.Errorf("mirrored %s %s: %w", p.Kind(), p, damaged)
	}
	return fmt.Errorf("mirrored %s %s: no version is mirrored, waits or is refused: %w", p.Kind(), p, registry.ErrNotFound)
}
