package metadata

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/docs/stored"
	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// filesOf returns where the files of the version of a request are stored, after
// checking that the caller may read it. It returns nil if they are not stored.
type filesOf func(*http.Request) (*registry.StoredFile, error)

func (h *handler) moduleFiles(r *http.Request) (*registry.StoredFile, error) {
	m, err := moduleOf(r)
	if err != nil {
		return nil, err
	}
	v, err := versionOf(r, registry.Version{})
	if err != nil {
		return nil, err
	}
	details, err := h.catalog.Modules.Details(r.Context(), m, v)
	if err != nil {
		return nil, fmt.Errorf("module %s: %w", m, err)
	}
	return details.Record.FilesZip, nil
}

func (h *handler) mirroredFiles(r *http.Request) (*registry.StoredFile, error) {
	p, err := mirroredOf(r)
	if err != nil {
		return nil, err
	}
	v, err := versionOf(r, registry.Version{})
	if err != nil {
		return nil, err
	}
	details, err := h.catalog.Mirror.Details(r.Context(), p, v)
	if err != nil {
		return nil, fmt.Errorf("mirrored module %s: %w", p, err)
	}
	if details.Record.Module == nil {
		return nil, nil //nolint:nilnil // documented above
	}
	return details.Record.Module.FilesZip, nil
}

// listFiles serves the list of the files of a version, or one file that the
// query names. It reads the table once and at most one object.
func (h *handler) listFiles(of filesOf) httpapi.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		if path := r.URL.Query().Get("path"); path != "" {
			return h.serveFile(w, r, of, path)
		}
		files, err := h.readFiles(r, of)
		if err != nil {
			return err
		}
		list := protocol.ModuleFiles{Files: []docs.SourceFile{}}
		if files != nil {
			list = protocol.ModuleFiles{Stored: true, Files: notNil(files.Files), Notes: files.Notes}
		}
		return respond(w, r, list)
	}
}

// file serves one file of a version, which the path of the request names.
func (h *handler) file(of filesOf) httpapi.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error { return h.serveFile(w, r, of, r.PathValue("path")) }
}

// serveFile serves a file with its path.
func (h *handler) serveFile(w http.ResponseWriter, r *http.Request, of filesOf, path string) error {
	files, err := h.readFiles(r, of)
	if err != nil {
		return err
	}
	f, data, err := stored.File(files, path)
	if err != nil {
		return err
	}
	httpapi.WriteFile(w, f.MediaType(), data)
	return nil
}

// readFiles reads the files of a version. It returns nil if they are not stored
// or damaged, and logs the damage.
func (h *handler) readFiles(r *http.Request, of filesOf) (*docs.Files, error) {
	file, err := of(r)
	if err != nil || file == nil {
		return nil, err
	}
	files, err := h.files.Read(r.Context(), *file)
	if errors.Is(err, stored.ErrDamaged) {
		requestlog.From(r.Context()).Err = err
		return nil, nil //nolint:nilnil // documented above
	}
	return files, err
}
