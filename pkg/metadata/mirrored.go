package metadata

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
	"github.com/larder-registry/larder/pkg/mirror/admission"
	"github.com/larder-registry/larder/pkg/network/ipclass"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/search"
)

// mirrorProviderOf returns the mirrored provider of a request, after checking
// that the caller may read it.
func mirrorProviderOf(r *http.Request) (registry.MirrorProvider, error) {
	address := r.PathValue("hostname") + "/" + r.PathValue("namespace") + "/" + r.PathValue("type")
	if err := access.CheckRead(r.Context(), string(search.Mirrored)+address); err != nil {
		return registry.MirrorProvider{}, err
	}
	p, err := registry.ParseMirrorProvider(address)
	// The scopes were compared with the address exactly as it was sent.
	if err == nil && p.String() != address {
		err = fmt.Errorf("%w: clients request %s", registry.ErrInvalid, p)
	}
	return p, err
}

// mirroredProvider serves the versions of a mirrored provider, and those that
// wait, are refused or can be fetched. It reads the table once, and once a minute
// the policy. If there are versions on request, it reads the table once more.
//
// If the policy is damaged, the response lacks the versions that wait. If what is
// known of the origin is damaged, it has the mirrored versions only. The log has
// the error, and so has the response if nothing remains.
func (h *handler) mirroredProvider(w http.ResponseWriter, r *http.Request) error {
	p, err := mirrorProviderOf(r)
	if err != nil {
		return err
	}
	policy, badPolicy := h.policies.Get(r.Context())
	if badPolicy != nil && !errors.Is(badPolicy, registry.ErrCorrupt) {
		return badPolicy
	}
	contents, badOrigin := h.catalog.Mirror.ContentsAndOrigin(r.Context(), p)
	if badOrigin != nil && contents.Entry.Address == "" {
		return fmt.Errorf("mirrored provider %s: %w", p, badOrigin)
	}
	damaged := errors.Join(badPolicy, badOrigin)
	requestlog.From(r.Context()).Err = damaged
	d := protocol.MirroredProvider{
		Hostname: p.Hostname, Namespace: p.Namespace, Name: p.Type, Versions: []protocol.MirroredVersion{},
		SigningKeys: notNil(contents.Origin.Keys), Denied: admission.Denial(policy, p),
	}
	if !contents.Entry.Unlisted {
		d.Version = &contents.Entry.Latest
	}
	stored := admission.Stored{
		Listed: contents.Listed, Excluded: contents.Entry.Withdrawn, Origin: contents.Origin,
		Pulled: contents.Pulled.Forgotten(h.now()),
	}
	statuses := admission.StatusesOf(policy, p, stored, h.now())
	if d.Pull = admission.PullOf(policy, p, stored, statuses); d.Pull != nil {
		d.Pull.Problem = ipclass.Hide(d.Pull.Problem)
	}
	explained := admission.VersionsToExplain(d.Pull, statuses)
	found, err := h.catalog.Mirror.PulledVersions(r.Context(), p, explained...)
	if err != nil {
		return fmt.Errorf("mirrored provider %s: %w", p, err)
	}
	for _, s := range statuses {
		if slices.Contains(explained, s.Version) {
			s.Explain(policy, p, found[s.Version], stored.Pulled.Slow, h.now())
		}
		s.Reason = ipclass.Hide(s.Reason)
		d.Versions = append(d.Versions, s.Document())
	}
	switch {
	case len(d.Versions) > 0 || d.Pull != nil && badOrigin == nil:
		return respond(w, r, d)
	case damaged != nil:
		return fmt.Errorf("mirrored provider %s: %w", p, damaged)
	}
	return fmt.Errorf("mirrored provider %s: no version is mirrored, waits or is refused: %w", p, registry.ErrNotFound)
}
