package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"html/template"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/docs/stored"
	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
)

// modulePage is the model of the page of a module version, of a submodule, and
// of an example.
type modulePage struct {
	Head head
	// Use is a module block for the version. MustFill means that it has inputs
	// without a value.
	Use      string
	MustFill bool
	// Mirror is the configuration with which clients get a mirrored module from here.
	Mirror string
	// Documented means that there is documentation. Notes describe what it lacks.
	Documented bool
	Notes      []string
	// Readme is the README, and ReadmeRest its second part with RestHeadings
	// headings.
	Readme, ReadmeRest template.HTML
	RestHeadings       int
	// ReadmeText is the README in Markdown.
	ReadmeText   string
	Inputs       inputs
	Outputs      []docs.Output
	Resources    []string
	Dependencies []dependency
	// Submodules and Examples are empty on the page of one of them.
	Submodules, Examples []folderLink
	// Provenance, Archive and Requirements are the parts of the aside. The page
	// of a folder only has Requirements.
	Provenance            *provenance
	Archive, Requirements []field
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
	// source is the address in the configuration of clients.
	source string
	docs   docs.Documentation
	// documented means that docs could be read.
	documented bool
}

func (h *handler) module(v *visit) (page, error) { return h.moduleFolder(v, "") }

func (h *handler) submodule(v *visit) (page, error) {
	return h.moduleFolder(v, "modules/"+v.PathValue("folder"))
}

func (h *handler) example(v *visit) (page, error) {
	return h.moduleFolder(v, "examples/"+v.PathValue("folder"))
}

// moduleFolder returns the page of a folder of a module version. The folder is
// empty for the module itself.
func (h *handler) moduleFolder(v *visit, folder string) (page, error) {
	m, err := h.openModule(v, folder)
	if err != nil {
		return page{}, err
	}
	title := m.module.String() + " " + m.Number.String()
	head := m.head(folder)
	if stateOf(m.record()).state == withdrawn {
		return withdrawnPage(head, m.Number, title), nil
	}
	if err := h.readDocs(v.Context(), m); err != nil {
		return page{}, err
	}
	f, err := m.folder(folder)
	if err != nil {
		return page{}, err
	}
	model := newModulePage(v, m, f)
	model.Head = head
	model.Head.Sections = model.sections(m)
	if folder != "" {
		title = folder + " of " + title
	}
	return page{template: "module", title: title, canonical: m.pathOf(m.Number), model: model}, nil
}

// openModule reads the version of a module that a path names with the versions
// beside it. It makes two requests to the table.
func (h *handler) openModule(v *visit, folder string) (*moduleVersion, error) {
	m, err := moduleOf(v)
	if err != nil {
		return nil, err
	}
	e, err := openEdition(v.Context(), h.Catalog.Modules, m, v.PathValue("version"))
	if err != nil {
		return nil, err
	}
	if folder != "" {
		e.Rest = "/" + folder
	}
	records, err := h.Catalog.Modules.Records(v.Context(), m, e.others()...)
	if err := e.add(v.Context(), records, err); err != nil {
		return nil, err
	}
	return &moduleVersion{edition: e, module: m, source: v.host + "/" + m.String()}, nil
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
		requestlog.From(ctx).Err = fmt.Errorf("documentation of module %s %s: %w", m.module, m.Number, err)
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

func (m *moduleVersion) head(folder string) head {
	h := headOfModule(m.module)
	root := "" // the page of the module, from this one
	if folder != "" {
		root = m.Path + "/" + m.Number.String()
		h = h.below(root)
		kind, name, _ := strings.Cut(folder, "/")
		h.Before, h.Name, h.After = kind+"/", name, ""
	}
	h.Banner = m.banner()
	r := m.record()
	if r.Withdrawn != nil {
		return h
	}
	h.Picker = m.picker()
	h.Published = r.PublishedAt
	if folder == "" {
		h.Description = r.Description
	}
	h.From, h.At = sourceOf(r.PublishedBy, root+"#provenance")
	return h
}

// newModulePage returns the model of the page of a folder, without its head.
func newModulePage(v *visit, m *moduleVersion, f docs.Folder) modulePage {
	p := modulePage{
		Use: useModule(m, f), Documented: m.documented, Notes: m.docs.Notes,
		RestHeadings: f.ReadmeRestHeadings, ReadmeText: f.Readme,
		Inputs: newInputs(f.Inputs), Outputs: f.Outputs, Resources: resources(f),
		Requirements: requirements(v, f),
	}
	p.Readme, p.ReadmeRest = m.readme(f.ReadmeHTML), m.readme(f.ReadmeRestHTML)
	p.MustFill = p.Inputs.Required > 0
	for _, d := range f.Dependencies {
		p.Dependencies = append(p.Dependencies, dependency{d, m.sourcePath(v, f, d.Source)})
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
	p.Archive = []field{
		{Label: "Size", Value: link{Text: size(r.Size)}},
		{Label: "SHA-256", Value: link{Text: r.SHA256}, IsCode: true},
	}
	return p
}

func (m *moduleVersion) links(folders []docs.Folder) (links []folderLink) {
	for _, f := range folders {
		links = append(links, folderLink{
			Name: f.Name, Path: m.pathOfFolder(f.Path),
			Summary: plural(len(f.Inputs), "input") + ", " + plural(len(f.Outputs), "output"),
		})
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
	return m.Path + "/" + m.Number.String() + "/" + folder
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
		return m.Path + "/" + m.Number.String()
	}
	if _, err := m.folder(target); err != nil || target == "" {
		return ""
	}
	return m.pathOfFolder(target)
}

// resources returns the addresses of the resources of a folder: the managed
// ones, then the others.
func resources(f docs.Folder) (all []string) {
	for _, kind := range []struct {
		prefix    string
		resources []docs.Resource
	}{{"", f.Resources}, {"data.", f.DataResources}, {"ephemeral.", f.EphemeralResources}} {
		for _, r := range kind.resources {
			all = append(all, kind.prefix+r.Type+"."+r.Name)
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
	add("use", "Use", 0, true)
	add("readme", "README", 0, p.Readme != "")
	list("inputs", "Inputs", p.Inputs.Required+p.Inputs.Optional)
	list("outputs", "Outputs", len(p.Outputs))
	list("resources", "Resources", len(p.Resources))
	list("dependencies", "Dependencies", len(p.Dependencies))
	list("submodules", "Submodules", len(p.Submodules))
	list("examples", "Examples", len(p.Examples))
	if p.Provenance != nil {
		all = append(all, section{ID: "provenance", Title: "Provenance", Apart: true})
	}
	return append(all, section{Title: "Versions", Path: m.Path + "/versions", Count: p.Head.Picker.Total, Apart: true})
}
