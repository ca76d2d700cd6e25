package metadata

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// moduleHistory serves all versions of a module, including hidden, withdrawn and
// missing ones. It reads the listing and the entry with a Snapshot, and all
// records with a Query.
func (h *handler) moduleHistory(w http.ResponseWriter, r *http.Request) error {
	m, err := moduleOf(r)
	if err != nil {
		return err
	}
	entry, versions, err := allVersions(r.Context(), h.once, h.catalog.Modules, m,
		func(v registry.ModuleVersion) (string, bool) { return v.Deprecated, v.Hidden })
	if err != nil {
		return fmt.Errorf("module %s: %w", m, err)
	}
	d := protocol.ModuleHistory{Address: m.String(), AllDeprecated: entry.Deprecated, Versions: []protocol.PastModule{}}
	for _, past := range versions {
		v := past.record
		d.Versions = append(d.Versions, protocol.PastModule{
			VersionState: past.VersionState, Description: v.Description,
			PublishedAt: v.PublishedAt, PublishedBy: v.PublishedBy, Claimed: v.Claimed, Changes: v.Changes,
			SHA256: v.SHA256, ContentSHA256: v.ContentSHA256, Size: v.Size,
			Copies: protocol.Copies{CopiedFrom: v.CopiedFrom, CopiedTo: v.CopiedTo},
		})
	}
	return respond(w, r, d)
}

// providerHistory serves all versions of a provider, including withdrawn and
// missing ones. It reads the listing and the entry with a Snapshot, and all
// records with a Query.
func (h *handler) providerHistory(w http.ResponseWriter, r *http.Request) error {
	p, err := providerOf(r)
	if err != nil {
		return err
	}
	entry, versions, err := allVersions(r.Context(), h.once, h.catalog.Providers, p,
		func(v registry.ProviderVersion) (string, bool) { return v.Deprecated, false })
	if err != nil {
		return fmt.Errorf("provider %s: %w", p, err)
	}
	d := protocol.ProviderHistory{
		Address: p.String(), AllDeprecated: entry.Deprecated, Versions: []protocol.PastProvider{},
	}
	for _, past := range versions {
		v := past.record
		d.Versions = append(d.Versions, protocol.PastProvider{
			VersionState: past.VersionState, PublishedAt: v.PublishedAt, PublishedBy: v.PublishedBy,
			Protocols: v.Protocols, Packages: packages(v.Packages), SigningKey: v.SigningKey, SumsSHA256: v.Sums.SHA256,
			Copies: protocol.Copies{CopiedFrom: v.CopiedFrom, CopiedTo: v.CopiedTo},
		})
	}
	return respond(w, r, d)
}

// pastVersion is a version with its state. The record of a missing one is empty.
type pastVersion[R registry.Record] struct {
	protocol.VersionState
	record R
}

// allVersions returns the entry and all versions of an address, the newest first.
// deprecation returns why a version is deprecated, and whether it is hidden. The error is
// [registry.ErrNotFound] if nothing was ever published there, and [registry.ErrCorrupt]
// if anything cannot be read. With tolerant, allVersions returns the records despite a
// damaged listing or entry, which it logs.
func allVersions[A registry.Address, R registry.Record](
	ctx context.Context, tolerant bool, from catalog.Versions[A, R], a A, deprecation func(R) (string, bool),
) (entry registry.Summary, all []pastVersion[R], err error) {
	// The listing comes first: every version in it has a record by then.
	contents, err := from.Contents(ctx, a)
	if err != nil && (!tolerant || !errors.Is(err, registry.ErrCorrupt)) {
		return entry, nil, err
	}
	requestlog.From(ctx).Err = err
	records, err := from.AllRecords(ctx, a)
	for _, r := range records {
		reason, hidden := deprecation(r)
		all = append(all, pastVersion[R]{stateOf(r, reason, hidden), r})
	}
	for _, n := range withoutRecord(contents.Listed, records) {
		all = append(all, pastVersion[R]{VersionState: protocol.VersionState{Version: n, State: protocol.StateMissing}})
	}
	slices.SortFunc(all, func(a, b pastVersion[R]) int { return registry.CompareVersions(b.Version, a.Version) })
	return contents.Entry, all, err
}

// withoutRecord returns the listed versions that have no record.
func withoutRecord[R registry.Record](listed []registry.Version, records []R) (missing []registry.Version) {
	found := make(map[registry.Version]bool, len(records))
	for _, r := range records {
		found[r.Number()] = true
	}
	for _, n := range listed {
		if !found[n] {
			missing = append(missing, n)
		}
	}
	return missing
}

// stateOf returns the state of a version of a module or a provider.
func stateOf[R registry.Record](r R, deprecated string, hidden bool) protocol.VersionState {
	s := protocol.VersionState{Version: r.Number(), Reason: deprecated, Withdrawn: r.Withdrawal()}
	switch {
	case s.Withdrawn != nil:
		s.State, s.Reason = protocol.StateWithdrawn, s.Withdrawn.Reason
	case hidden:
		s.State = protocol.StateHidden
	case deprecated != "":
		s.State = protocol.StateDeprecated
	}
	return s
}

// mirroredPast has the versions of a mirrored address by their records.
type mirroredPast struct {
	listed, excluded []registry.Version
	// packages and modules are those of the listed versions.
	packages map[registry.Version][]protocol.MirroredFile
	modules  map[registry.Version]*registry.MirroredModule
	// gone are the withdrawn and the missing versions.
	gone []protocol.MirroredVersion
}

// mirroredPast reads all records of a mirrored address with a Query. listed are
// the versions of its listing, which was read before.
func (h *handler) mirroredPast(
	ctx context.Context, p registry.MirrorAddress, listed []registry.Version,
) (past mirroredPast, err error) {
	records, err := h.catalog.Mirror.AllRecords(ctx, p)
	if err != nil {
		return past, err
	}
	past.packages = make(map[registry.Version][]protocol.MirroredFile)
	past.modules = make(map[registry.Version]*registry.MirroredModule)
	exclude := func(v protocol.MirroredVersion) {
		past.excluded, past.gone = append(past.excluded, v.Version), append(past.gone, v)
	}
	for _, v := range records {
		if w := v.Withdrawn; w != nil {
			exclude(protocol.MirroredVersion{
				Version: v.Version, State: protocol.StateWithdrawn, Reason: w.Reason, Withdrawn: w,
			})
			continue
		}
		past.listed = append(past.listed, v.Version)
		past.modules[v.Version] = v.Module
		verifiable := v.Verifiable()
		for _, pkg := range v.Packages {
			past.packages[v.Version] = append(past.packages[v.Version], protocol.MirroredFile{
				ProviderFile: file(pkg.ProviderPackage), SigningKey: pkg.SigningKey,
				Verifiable: slices.Contains(verifiable, pkg.Platform),
				MirroredAt: pkg.MirroredAt, MirroredBy: pkg.MirroredBy,
			})
		}
	}
	for _, n := range withoutRecord(listed, records) {
		exclude(protocol.MirroredVersion{Version: n, State: protocol.StateMissing})
	}
	return past, nil
}

func archiveOf(m *registry.MirroredModule) *protocol.MirroredArchive {
	return &protocol.MirroredArchive{
		SHA256: m.SHA256, Size: m.Size, Notes: m.Notes, MirroredAt: m.MirroredAt, MirroredBy: m.MirroredBy,
	}
}
