package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/docs/highlight"
	"github.com/larder-registry/larder/pkg/docs/stored"
	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
)

// modulePage is the model of the page of a module version, of a submodule, and
// of an example.
type modulePage struct {
	Head head
	// Example has the code of an example, which is nothing to call.
	Example *example
	Use     use
	// Mirror is the configuration with which clients get a mirrored module from here.
	Mirror string
	// Documented means that there is documentation. Notes describe what it lacks.
	Documented bool
	Notes      []string
	// Readme is the README, and ReadmeRest its second part with RestHeadings
	// headings.
	Readme, ReadmeRest template.HTML
	RestHeadings       int
	// Elsewhere means that the examples of the README use another address.
	Elsewhere bool
	// ReadmeText is the README in Markdown.
	ReadmeText   string
	Inputs       inputs
	Outputs      []output
	Resources    []link
	Dependencies []dependency
	// Submodules and Examples are empty on the page of one of them.
	Submodules, Examples []folderLink
	// Provenance, Archive and Requirements are the parts of the aside. The page
	// of a folder only has Requirements.
	Provenance            *provenance
	Archive, Requirements []field
}

// HasReadme reports whether the page has a README.
func (p modulePage) HasReadme() bool { return p.Readme != "" || p.ReadmeRest != "" }

// output is an output. At is its place in the files.
type output struct {
	docs.Output
	At link
}

// dependency is a module that a module uses. Path is its page, if the caller may
// read it in this registry.
type dependency struct {
	docs.Dependency
	Path string
}

// folderLink is a submodule or an example in a list.
type folderLink struct{ Name, Path, Summary string }

// moduleVersion is what the pages of a module version are made of.
type moduleVersion struct {
	*edition[registry.ModuleVersion]
	module registry.Module
	// address is the module, or the mirrored module.
	address registry.Address
	// source is the address in the configuration of clients.
	source string
	docs   docs.Documentation
	// documented means that docs could be read.
	documented bool
	// top is the head of the page, and title the title of the version.
	top   head
	title string
	// copied is set for a mirrored module.
	copied *copied
	// placed is the file of the last place, with its path.
	placed link
}

// copied is what only the page of a mirrored module shows.
type copied struct {
	// clients is the configuration with which clients get the module from here.
	clients    string
	provenance provenance
	notes      []string
}

// partPage returns a page about a part of a module version. The part is empty for
// the version itself. It is a folder, such as modules/endpoints, or files, or a
// file below files/.
type partPage func(v *visit, m *moduleVersion, part string) (page, error)

// moduleView returns the page of a kind of part of a module version.
func (h *handler) moduleView(kind string, show partPage) pageFunc {
	return func(v *visit) (page, error) {
		part := partOf(v, kind)
		m, err := h.openModule(v, part)
		if err != nil {
			return page{}, err
		}
		if stateOf(m.record()).state == withdrawn {
			return withdrawnPage(m.top, m.Number, m.title), nil
		}
		return show(v, m, part)
	}
}

func partOf(v *visit, kind string) string {
	name := cmp.Or(v.PathValue("folder"), v.PathValue("path"))
	if kind == filesKind {
		name = cmp.Or(name, v.URL.Query().Get("path"))
	}
	return strings.TrimSuffix(kind+"/"+name, "/")
}

// folderPage returns the page of a folder of a module version. The folder is
// empty for the module itself.
func (h *handler) folderPage(v *visit, m *moduleVersion, folder string) (page, error) {
	var counted func() *downloads
	if folder == "" {
		counted = h.startDownloads(v.Context(), m.address)
	}
	if err := h.readDocs(v.Context(), m); err != nil {
		return page{}, err
	}
	f, err := m.folder(folder)
	if err != nil {
		return page{}, err
	}
	model := newModulePage(v, m, f)
	if strings.HasPrefix(folder, "examples/") {
		model.Example, err = h.example(v, m, f)
	} else {
		model.Use = newUse(m, f)
	}
	if err != nil {
		return page{}, err
	}
	model.Elsewhere = len(model.Use.Blocks) > 0 && m.isElsewhere(f.Readme)
	if folder == "" && h.Archives != nil && !m.record().Hidden {
		download := link{"tar.gz", m.Path + "/" + m.Number.String() + "/download"}
		model.Archive = append(model.Archive, field{Label: "Download", Value: download})
	}
	if counted != nil {
		m.top.setUses(m.address, m.Number, counted())
	}
	model.Head = m.top
	model.Head.Sections = model.sections(m)
	return page{
		template: "module", title: m.titleOf(folder), description: m.top.Description, canonical: m.pathOf(m.Number), model: model,
	}, nil
}

// download redirects to the archive of a module version, which counts as a
// download. As for clients, a hidden version has none.
func (h *handler) download(v *visit, m *moduleVersion, _ string) (page, error) {
	r := m.record()
	if h.Archives == nil || r.Hidden {
		return page{}, fmt.Errorf("archive of %s: %w", m.title, registry.ErrNotFound)
	}
	signed, err := h.Archives.SignGet(v.Context(), r.Object)
	if err != nil {
		return page{}, fmt.Errorf("cannot sign a URL for %s: %w", m.title, err)
	}
	entry := requestlog.From(v.Context())
	entry.Download, entry.Version = requestlog.ModuleDownload, m.Number.String()
	if m.copied != nil {
		entry.Download = requestlog.MirrorDownload
	}
	return page{respond: func(w http.ResponseWriter) {
		w.Header().Set("Location", signed)
		httpapi.WriteEmpty(w, http.StatusSeeOther, httpapi.NoStore)
	}}, nil
}

func (m *moduleVersion) titleOf(part string) string {
	if part == "" {
		return m.title
	}
	return part + " of " + m.title
}

// openModule reads the version of a module that a path names with the versions
// beside it. It makes two requests to the table.
func (h *handler) openModule(v *visit, part string) (*moduleVersion, error) {
	m, err := moduleOf(v)
	if err != nil {
		return nil, err
	}
	e, err := openEdition(v.Context(), h.Catalog.Modules, m, v.PathValue("version"))
	if err != nil {
		return nil, err
	}
	e.Rest = restOf(part)
	records, err := h.Catalog.Modules.Records(v.Context(), m, e.others()...)
	if err := e.add(v.Context(), records, err); err != nil {
		return nil, err
	}
	all := &moduleVersion{
		edition: e, module: m, address: m, source: v.host + "/" + m.String(), title: m.String() + " " + e.Number.String(),
	}
	all.top = all.head(part)
	return all, nil
}

// readDocs reads the documentation of a version. A version without readable
// documentation has a page too.
func (h *handler) readDocs(ctx context.Context, m *moduleVersion) error {
	file := m.record().Docs
	if file == nil {
		return nil
	}
	d, err := stored.Read(ctx, h.Objects, *file)
	if errors.Is(err, stored.ErrDamaged) {
		logDamage(ctx, fmt.Errorf("documentation of module %s %s: %w", m.module, m.Number, err))
		return nil
	}
	if err != nil {
		return fmt.Errorf("documentation of module %s %s: %w", m.module, m.Number, err)
	}
	m.docs, m.documented = d, true
	return nil
}

// folder returns the documentation of a folder. The error is
// registry.ErrNotFound if the version has no such folder.
func (m *moduleVersion) folder(path string) (docs.Folder, error) {
	if path == "" {
		return m.docs.Root, nil
	}
	for _, f := range slices.Concat(m.docs.Submodules, m.docs.Examples) {
		if f.Path == path {
			return f, nil
		}
	}
	return docs.Folder{}, fmt.Errorf("folder %.80q of %s %s: %w", path, m.module, m.Number, registry.ErrNotFound)
}

func (m *moduleVersion) head(part string) head {
	h := headOfModule(m.module)
	root := "" // the page of the module, from this one
	if part != "" {
		root = m.root()
		h = h.below(root).of(part, root)
	}
	h.Banner, h.Picker = m.banner(), m.picker()
	r := m.record()
	if r.Withdrawn != nil {
		return h
	}
	h.Published = r.PublishedAt
	if part == "" {
		h.Description, h.Changes = r.Description, m.changesOf(m.Number, r.Changes)
	}
	h.From, h.At = sourceOf(r.PublishedBy, root+"#provenance")
	return h
}

// newModulePage returns the model of the page of a folder, without its head.
func newModulePage(v *visit, m *moduleVersion, f docs.Folder) modulePage {
	p := modulePage{
		Documented: m.documented, Notes: m.docs.Notes,
		RestHeadings: f.ReadmeRestHeadings, ReadmeText: f.Readme,
		Inputs: newInputs(v, f.Inputs, func(p docs.Place) link { return m.placeOf(p).from(v) }), Resources: m.resources(f),
		Requirements: requirements(v, f),
	}
	if !isMarkdown(v.Request) {
		p.Readme, p.ReadmeRest = m.readme(f.ReadmeHTML), m.readme(f.ReadmeRestHTML)
		if f.ReadmeHTML == "" && f.Readme != "" { // it did not fit into the documentation
			p.ReadmeRest = finished(`<pre tabindex="0" role="group" aria-label="README"><code>` + highlight.Plain(f.Readme) + "</code></pre>")
		}
	}
	for _, o := range f.Outputs {
		p.Outputs = append(p.Outputs, output{o, m.placeOf(o.Place)})
	}
	for _, d := range f.Dependencies {
		p.Dependencies = append(p.Dependencies, dependency{d, m.sourcePath(v, f, d.Source)})
	}
	if m.copied != nil {
		p.Mirror = m.copied.clients
	}
	if f.Path != "" {
		return p
	}
	p.Submodules, p.Examples = m.links(m.docs.Submodules), m.links(m.docs.Examples)
	r := m.record()
	by := newProvenance(r.PublishedBy, r.PublishedAt)
	by.addClaimed("Publisher claims", r.Claimed)
	by.addCopies(r.CopiedFrom, r.CopiedTo)
	p.Provenance = &by
	if m.copied != nil {
		p.Provenance, p.Notes = &m.copied.provenance, slices.Concat(p.Notes, m.copied.notes)
	}
	p.Archive = []field{
		{Label: "Size", Value: link{Text: size(r.Size)}},
		{Label: "SHA-256", Value: link{Text: r.SHA256}, IsCode: true},
	}
	return p
}

func (m *moduleVersion) links(folders []docs.Folder) (links []folderLink) {
	for _, f := range folders {
		summary := plural(len(f.Inputs), "input")
		if len(f.Outputs) > 0 {
			summary += ", " + plural(len(f.Outputs), "output")
		}
		links = append(links, folderLink{Name: f.Name, Path: m.pathOfFolder(f.Path), Summary: summary})
	}
	return links
}

// pathOfFolder returns the path of the page of a folder, or an empty string if
// its name has characters that no request may have. A name that ends in .md would
// be that of another page.
func (m *moduleVersion) pathOfFolder(folder string) string {
	if !errs.IsPlain(folder) || strings.HasSuffix(folder, ".md") {
		return ""
	}
	return m.root() + "/" + folder
}

// sourcePath returns the path of the page of a module source. It is empty unless
// the module is in this registry and the caller may read it.
func (m *moduleVersion) sourcePath(v *visit, f docs.Folder, source string) string {
	if strings.HasPrefix(source, "./") || strings.HasPrefix(source, "../") {
		return m.localPath(f, source)
	}
	address, found := v.addressOf(source)
	if !found {
		return ""
	}
	address, _, _ = strings.Cut(address, "//")
	other, err := registry.ParseModule(address)
	if err != nil || !access.CanRead(v.Context(), other.Path()) {
		return ""
	}
	return "/" + other.Path()
}

func (m *moduleVersion) localPath(f docs.Folder, source string) string {
	target := relativePath(f.Path, source)
	if target == "." {
		return m.root()
	}
	if _, err := m.folder(target); err != nil || target == "" {
		return ""
	}
	return m.pathOfFolder(target)
}

// root returns the path of the page of the version.
func (m *moduleVersion) root() string { return m.Path + "/" + m.Number.String() }

// resources returns the addresses of the resources of a folder with their places:
// the managed ones, then the others.
func (m *moduleVersion) resources(f docs.Folder) (all []link) {
	for _, kind := range []struct {
		prefix    string
		resources []docs.Resource
	}{{"", f.Resources}, {"data.", f.DataResources}, {"ephemeral.", f.EphemeralResources}} {
		for _, r := range kind.resources {
			all = append(all, link{kind.prefix + r.Type + "." + r.Name, m.placeOf(r.Place).URL})
		}
	}
	return all
}

// requirements returns what a folder needs: the client and the providers.
func requirements(v *visit, f docs.Folder) (all []field) {
	if f.RequiredVersion != "" {
		all = append(all, field{
			Label: "OpenTofu or Terraform", Value: link{Text: f.RequiredVersion}, IsCode: true,
		})
	}
	for _, p := range f.ProviderDependencies {
		value := link{Text: strings.TrimSpace(p.Version)}
		if p.Source != "" && p.Source != "hashicorp/"+p.Name {
			value.Text = strings.TrimSpace(p.Source + " " + p.Version)
			value.URL = providerPath(v, p.Source)
		}
		isCode := value.Text != ""
		value.Text = cmp.Or(value.Text, "any version")
		all = append(all, field{Label: p.Name, Value: value, IsCode: isCode})
	}
	return all
}

// providerPath returns the path of the page of a provider source. It is empty
// unless the provider is in this registry and the caller may read it.
func providerPath(v *visit, source string) string {
	address, found := v.addressOf(source)
	if !found {
		return ""
	}
	p, err := registry.ParseProvider(address)
	if err != nil || !access.CanRead(v.Context(), p.Path()) {
		return ""
	}
	return "/" + p.Path()
}

func (p *modulePage) sections(m *moduleVersion) (all []section) {
	add := func(id, title string, count int, has bool) {
		if has {
			all = append(all, section{ID: id, Title: title, Count: count})
		}
	}
	list := func(id, title string, count int) { add(id, title, count, count > 0) }
	add("use", "Use", 0, p.Example == nil)
	add("code", "Code", 0, p.Example != nil)
	add("readme", "README", 0, p.HasReadme())
	list("inputs", "Inputs", p.Inputs.Required+p.Inputs.Optional)
	list("outputs", "Outputs", len(p.Outputs))
	list("resources", "Resources", len(p.Resources))
	list("dependencies", "Dependencies", len(p.Dependencies))
	list("submodules", "Submodules", len(p.Submodules))
	list("examples", "Examples", len(p.Examples))
	if p.Provenance != nil {
		all = append(all, section{ID: "provenance", Title: "Provenance", Apart: true})
	}
	if m.record().FilesZip != nil {
		all = append(all, section{Title: "Files", Path: m.root() + "/files", Apart: true})
	}
	return append(all, section{Title: "Versions", Path: m.Path + "/versions", Count: p.Head.Picker.Total, Apart: true})
}
