package web

import (
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/registry"
)

// mirroredModule returns the page of a folder of a version of a mirrored module. of is
// the page of the version without what only a module has, with a [providerPage]. It
// reads the documentation as [handler.moduleFolder] does.
func (h *handler) mirroredModule(v *visit, p registry.MirrorAddress, e *mirroredEdition, folder string, of page) (
	page, error,
) {
	stored := e.record().Module
	record := registry.ModuleVersion{Version: e.Number, Documents: stored.Documents, SHA256: stored.SHA256, Size: stored.Size}
	m := &moduleVersion{
		edition: &edition[registry.ModuleVersion]{
			Contents: catalog.Contents[registry.ModuleVersion]{
				Records: map[registry.Version]registry.ModuleVersion{e.Number: record},
			},
			Number: e.Number, Path: e.Path,
		},
		module: p.Module(), source: p.Source(),
	}
	if err := h.readDocs(v.Context(), m); err != nil {
		return page{}, err
	}
	f, err := m.folder(folder)
	if err != nil {
		return page{}, err
	}
	base, _ := of.model.(providerPage)
	model := newModulePage(v, m, f)
	model.Head, model.Mirror = base.Head, h.guide(v).hostBlocks(registry.Host(p.Hostname))
	if folder != "" {
		root := m.Path + "/" + m.Number.String()
		model.Head = model.Head.below(root)
		model.Head.Before, model.Head.Name, model.Head.After = "", folder, ""
		of.title = folder + " of " + of.title
		for i, l := range model.Head.Picker.Newest {
			if l.Path != "" {
				model.Head.Picker.Newest[i].Path = l.Path + "/" + folder
			}
		}
	} else {
		base.Provenance.Fields = append(base.Provenance.Fields, pinFields(stored.Pin)...)
		model.Provenance = &base.Provenance
		model.Notes = append(model.Notes, stored.Notes...)
	}
	model.Head.Sections = model.sections(m)
	of.template, of.model, of.canonical = "module", model, m.pathOf(m.Number)
	return of, nil
}

// pinFields describes what a version is bound to, and who accepted it instead of what
// the mirror first saw.
func pinFields(pin registry.ModulePin) (fields []field) {
	source := link{Text: pin.Source, URL: httpsOnly(pin.Source)} // Git can also use ssh
	fields = append(fields, field{Label: "Source", Value: source})
	for _, f := range []field{
		{Label: "Commit", Value: link{Text: pin.Commit}, IsCode: true}, textField("Folder", pin.Folder),
		{Label: "Files", Value: link{Text: pin.H1}, IsCode: true},
	} {
		if f.Value.Text != "" {
			fields = append(fields, f)
		}
	}
	return append(fields, decisionFields("Accepted", pin.Accepted)...)
}
