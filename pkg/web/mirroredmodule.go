package web

import (
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/registry"
)

// mirroredModule returns a version of a mirrored module for the pages of its parts.
// base has what a page of a provider has too.
func (h *handler) mirroredModule(
	v *visit, p registry.MirrorAddress, e *mirroredEdition, part string, base providerPage, title string,
) *moduleVersion {
	stored := e.record().Module
	record := registry.ModuleVersion{
		Version: e.Number, Documents: stored.Documents, Object: stored.Object, SHA256: stored.SHA256, Size: stored.Size,
	}
	m := &moduleVersion{
		edition: &edition[registry.ModuleVersion]{
			Contents: catalog.Contents[registry.ModuleVersion]{
				Records: map[registry.Version]registry.ModuleVersion{e.Number: record},
			},
			Number: e.Number, Path: e.Path, Rest: e.Rest,
		},
		module: p.Module(), address: p, source: p.Source(), top: base.Head, title: title,
		copied: &copied{h.guide(v).hostBlocks(registry.Host(p.Hostname)), base.Provenance, stored.Notes},
	}
	m.copied.provenance.Fields = append(m.copied.provenance.Fields, pinFields(stored.Pin)...)
	if part != "" {
		m.top = m.top.below(m.root()).of(part, m.root())
	}
	return m
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
