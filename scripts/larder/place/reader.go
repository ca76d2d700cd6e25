package place

import (
	"context"
	"fmt"

	"github.com/larder-registry/larder/pkg/metadata"
	"github.com/larder-registry/larder/pkg/metadata/metadataclient"
	"github.com/larder-registry/larder/pkg/mirror/admission"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/scripts/larder/output"
)

// ReadThroughRegistry is part of the help of commands that can read through a
// registry's own endpoint.
const ReadThroughRegistry = `

With --registry, the command sends requests to the registry instead of using its
store. It prints only what the credential can read. The credential is the token
in LARDER_TOKEN, one that clients have for the registry, or the identity of a CI
job.`

// Reader reads the metadata API of a registry, over HTTP or in this process.
type Reader struct {
	*metadataclient.Client
	// Host describes the registry's host in configurations.
	Host Addressing
	// Flags are those of [Finder.RepeatedFlags].
	Flags string
	// Store reports whether the command has the registry's store. It does not if the
	// registry is named by its URL.
	Store bool
}

// Reader returns a reader of the store.
func (s *Store) Reader() *Reader {
	api := metadata.NewOnce(s.Catalog, s.Objects, s.Downloads, s.Now)
	return &Reader{Client: metadataclient.InProcess(api, s.Addressing.Host), Host: s.Addressing, Flags: s.flags, Store: true}
}

// States returns all versions of an address with their states, the newest first. For
// something mirrored it returns those that are mirrored, withdrawn or missing.
func (r *Reader) States(ctx context.Context, a registry.Address) (all []protocol.VersionState, err error) {
	switch a := a.(type) {
	case registry.Module:
		history, err := r.ModuleHistory(ctx, a)
		return output.Mapped(history.Versions, func(v protocol.PastModule) protocol.VersionState { return v.VersionState }), err
	case registry.Provider:
		history, err := r.ProviderHistory(ctx, a)
		return output.Mapped(history.Versions, func(v protocol.PastProvider) protocol.VersionState { return v.VersionState }), err
	case registry.MirrorAddress:
		history, err := r.MirroredHistory(ctx, a)
		for _, v := range history.Versions {
			switch state := admission.State(v.State); {
			case state == admission.Available:
				all = append(all, protocol.VersionState{Version: v.Version})
			case v.Withdrawn != nil || v.State == protocol.StateMissing:
				all = append(all, protocol.VersionState{Version: v.Version, State: v.State, Withdrawn: v.Withdrawn})
			}
		}
		return all, err
	}
	panic(fmt.Sprintf("place: unexpected address %T", a))
}

// DocumentationError returns the error for a version without documentation that
// can be read.
func (r *Reader) DocumentationError(do string, m registry.Module, v registry.Version) error {
	return registry.WithHint(
		fmt.Errorf("cannot %s %s %s: readable documentation is %w", do, m, v, registry.ErrNotFound),
		"%s", r.RebuildHint(m, v))
}

// RebuildHint describes how to make the documentation of a version.
func (r *Reader) RebuildHint(m registry.Module, v registry.Version) string {
	if !r.Store {
		return fmt.Sprintf("The registry's operator can run `larder docs rebuild %s %s`.", m, v)
	}
	return fmt.Sprintf("Run `larder docs rebuild %s %s%s` to extract it from the archive.", m, v, r.Flags)
}
