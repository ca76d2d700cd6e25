package mirror

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
	"github.com/larder-registry/larder/pkg/modules"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// moduleAddress parses the address in the path of a request. Access control has
// checked it exactly as it was sent.
func moduleAddress(r *http.Request) (registry.MirrorAddress, error) {
	name := strings.Join([]string{
		r.PathValue("hostname"), r.PathValue("namespace"), r.PathValue("name"), r.PathValue("system"),
	}, "/")
	m, err := registry.ParseMirrorModule(name)
	if err == nil && !strings.EqualFold(m.String(), name) {
		err = fmt.Errorf("clients request %s", m)
	}
	if err != nil {
		err = fmt.Errorf("mirrored module %s: %w: %s", name, registry.ErrNotFound, err.Error())
	}
	return m, err
}

// moduleVersions serves "List Available Versions for a Specific Module".
func (h *handler) moduleVersions(w http.ResponseWriter, r *http.Request) error {
	m, err := moduleAddress(r)
	if err != nil {
		return err
	}
	var listing protocol.Document
	index, err := h.listed(r.Context(), m)
	if err == nil {
		listing, err = h.modules.of(index, time.Now(), moduleListing)
	}
	if err != nil {
		return fmt.Errorf("versions of mirrored module %s: %w", m, err)
	}
	if err := httpapi.WriteDocument(w, r, httpapi.Revalidate, listing); err != nil {
		return fmt.Errorf("versions of mirrored module %s: %w: %w", m, err, registry.ErrCorrupt)
	}
	return nil
}

func moduleListing(index protocol.MirrorIndex) (protocol.Document, error) {
	versions, err := index.Listing()
	if err != nil {
		return nil, err
	}
	var all protocol.ModuleListing
	for _, v := range versions {
		all.Versions = append(all.Versions, protocol.ListedModule{Version: v})
	}
	return protocol.Compress(all)
}

// module serves "Download Source Code for a Specific Module Version". A version that
// the mirror lacks is copied first, because only then is it bound to its files.
func (h *handler) module(w http.ResponseWriter, r *http.Request) error {
	m, err := moduleAddress(r)
	if err != nil {
		return err
	}
	// Terragrunt requests the version in its configuration, for example v1.0.0 for a
	// tag.
	v, err := registry.ParseVersion(strings.TrimPrefix(r.PathValue("version"), "v"))
	if err != nil {
		return err
	}
	record, found, err := h.find(r.Context(), m, v, nil)
	switch {
	case err != nil:
	case record.Module != nil:
	case found.IsTransient:
		err = unanswered(found.Problem)
	case found.Problem != "":
		err = fmt.Errorf("%w: %s", registry.ErrNotFound, found.Problem)
	default:
		err = registry.ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("mirrored module %s %s: %w", m, v, err)
	}
	signed, err := h.signer.SignGet(r.Context(), record.Module.Object)
	if err != nil {
		return fmt.Errorf("signing a URL for mirrored module %s %s: %w", m, v, err)
	}
	entry := requestlog.From(r.Context())
	entry.Download, entry.Version = requestlog.MirrorDownload, v.String()
	modules.WriteLocation(w, r, signed, record.Module.SHA256)
	return nil
}
