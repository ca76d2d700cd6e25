package rules

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/content/archive"
	"github.com/larder-registry/larder/pkg/content/secrets"
	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/docs/extract"
	"github.com/larder-registry/larder/pkg/files/regularfile"
	"github.com/larder-registry/larder/pkg/files/temporary"
	"github.com/larder-registry/larder/pkg/progress"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
	"github.com/larder-registry/larder/pkg/text/printable"
)

// Module is a module to publish.
type Module struct {
	// Dir is the module's folder.
	Dir         string
	Address     registry.Module
	Version     registry.Version
	Description string
	// Pack are the options of packing Dir.
	Pack archive.Options
	// Archive is the path of a packed module to publish unchanged, in place of
	// Dir. It is empty otherwise.
	Archive string
	// CopiedFrom is set if the module is copied from another registry.
	CopiedFrom *registry.CopiedFrom
	// Claimed is the Git source of Dir, or nil.
	Claimed *registry.ClaimedSource
	// AllowSecrets are the paths of files and folders that may have secrets,
	// relative to the root of the module.
	AllowSecrets []string
	// Incomplete are paths in Dir whose content is missing, with the reason.
	Incomplete map[string]string
}

// ModuleResult is the result of publishing a module.
type ModuleResult struct {
	// Record is the stored record, or the planned one if nothing was published.
	Record registry.ModuleVersion
	// Unchanged reports whether the same content was published before. Restored
	// reports whether its archive was missing from the store and is stored again.
	Unchanged, Restored bool
	// NotCompared reports whether the registry could not read and compare some of
	// its stored objects.
	NotCompared bool
	// Newcomer is the namespace or the address that was created, or would be. It is
	// nil for an existing one, for a copy, and for the first namespace of a registry.
	Newcomer *protocol.Newcomer

	Files    []archive.File
	Excluded []archive.Excluded
	// Notes describe what is missing in the documentation.
	Notes []string
	// LoadNotes describe what only one client or a later release can load. They have
	// what is [errs.Tolerated] too, if the module was published before or is a copy.
	LoadNotes []string
	// Sources are the sources of its module blocks and providers.
	Sources []string
	// Callable are the folders to suggest in module blocks. It is empty without
	// documentation.
	Callable []docs.Folder
	// Secrets are the secrets in files that may not have any. If the result is not
	// an error, the same content was published before, or is a copy.
	Secrets []secrets.Finding
	// Unmatched are the allowed paths that contain no file of the module.
	Unmatched []string
}

// PreparedModule is a module that is ready to be published.
type PreparedModule struct {
	Address registry.Module
	// ModuleResult has a record without a publisher and a time. Its object key is
	// the one that the publish API would choose.
	ModuleResult
	// Archive, Docs and FilesZip are the files to store. The last two are nil
	// if they could not be made.
	Archive        File
	Docs, FilesZip *File

	packed     *os.File
	what       string   // the What of its problems
	incomplete []string // packed files without their content
	tolerated  errs.Tolerated
}

// ArchiveName returns the name of a module's archive in the publish API.
func ArchiveName(m registry.Module) string { return m.Name + ".tar.gz" }

// Module verifies and packs a module. It returns the problems of the module as
// a [*errs.ProblemsError]. The caller closes the result, and calls
// [PreparedModule.CheckNew] before it publishes a new version.
func (p Preparer) Module(ctx context.Context, m Module) (*PreparedModule, error) {
	if err := CheckNamespace(m.Address.Namespace); err != nil {
		return nil, fmt.Errorf("cannot publish %s %s: %w", m.Address, m.Version, err)
	}
	return p.module(ctx, m, fmt.Sprintf("publish %s %s", m.Address, m.Version))
}

// CheckNew returns the files without their content and, unless the module is a copy,
// its secrets and what is [errs.Tolerated], as a [*errs.ProblemsError]. They make no
// difference if the same content is published already.
func (m *PreparedModule) CheckNew() error {
	var problems errs.Problems
	for _, problem := range m.incomplete {
		_ = problems.Add(registry.WithHint(fmt.Errorf("%w module: %s", registry.ErrInvalid, problem),
			"Commit the files themselves, or name them in .terraformignore.")) // any error is ErrInvalid
	}
	if err := problems.Add(m.tolerated.Check(m.what)); err != nil {
		return err
	}
	if !m.tolerated.Existing {
		_ = problems.Add(secrets.Check(m.Secrets)) // any error is ErrInvalid
	}
	return problems.Err(m.what)
}

// Plan is like [Preparer.Module] for a version that is not published yet. It returns
// only what would be published.
func (p Preparer) Plan(ctx context.Context, m Module) (ModuleResult, error) {
	prepared, err := p.Module(ctx, m)
	if err != nil {
		return ModuleResult{}, err
	}
	defer prepared.Close()
	return prepared.ModuleResult, prepared.CheckNew()
}

// CheckFolder verifies the module in a folder as [Preparer.Plan] does,
// without an address and a version. The record of the result has neither of
// them.
func (p Preparer) CheckFolder(ctx context.Context, dir string, allowSecrets []string) (ModuleResult, error) {
	prepared, err := p.module(ctx, Module{Dir: dir, AllowSecrets: allowSecrets}, "publish "+filepath.Clean(dir))
	if err != nil {
		return ModuleResult{}, err
	}
	defer prepared.Close()
	if err := prepared.CheckNew(); err != nil {
		return ModuleResult{}, err
	}
	prepared.Record.Object, prepared.Record.Documents = "", registry.Documents{}
	return prepared.ModuleResult, nil
}

// module verifies and packs a module. what is the What of its problems.
func (p Preparer) module(ctx context.Context, m Module, what string) (*PreparedModule, error) {
	var problems errs.Problems
	_ = problems.Add(CheckDescription(m.Description)) // any error is ErrInvalid
	packed, err := temporary.File("larder-module-*.tar.gz")
	if err != nil {
		return nil, fmt.Errorf("cannot pack %s: %w", m.Dir, err)
	}
	// Nothing remains if this process is killed. Windows removes the file when it
	// is closed.
	_ = os.Remove(packed.Name())
	prepared := &PreparedModule{Address: m.Address, packed: packed, what: what}
	prepared.tolerated.Existing = m.CopiedFrom != nil
	_ = problems.Add(secrets.CheckAllowed(m.AllowSecrets))
	err = problems.Add(prepared.pack(ctx, m, p))
	if problems.Any() {
		_ = problems.Add(prepared.CheckNew())
	}
	if err == nil {
		err = problems.Err(what)
	}
	if err != nil {
		prepared.Close()
		if prepared.tolerated.Existing {
			err = hintOfCopy(err, "module")
		}
		return nil, err
	}
	return prepared, nil
}

// pack packs a module and reads the archive, as its receivers will.
func (m *PreparedModule) pack(ctx context.Context, from Module, p Preparer) (err error) {
	from.Pack.Progress, from.Pack.AllowSecrets, from.Pack.Existing = p.Progress, from.AllowSecrets, m.tolerated.Existing
	from.Pack.IgnoreProblem = func(err error) { m.tolerated.Add(err) }
	shown := filepath.Clean(from.Dir)
	if from.Archive != "" {
		shown = m.Address.String() + " " + from.Version.String()
		err = m.keep(from.Archive)
	} else {
		m.Excluded, err = archive.Pack(ctx, from.Dir, from.Pack, m.packed)
	}
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(from.Incomplete)) {
		isExcluded := func(e archive.Excluded) bool { return name == e.Path || strings.HasPrefix(name, e.Path+"/") }
		if !slices.ContainsFunc(m.Excluded, isExcluded) {
			m.incomplete = append(m.incomplete, printable.Mark(name, 200)+" "+from.Incomplete[name])
		}
	}
	size, err := m.packed.Seek(0, io.SeekCurrent)
	if err == nil {
		_, err = m.packed.Seek(0, io.SeekStart)
	}
	if err != nil {
		return fmt.Errorf("cannot pack %s: %w", shown, err)
	}
	moved, end := progress.Or(p.Progress).Transfer("checking "+shown, size)
	defer end()
	scanner := &secrets.Scanner{Allowed: from.AllowSecrets}
	found, err := archive.ScanModule(ctx, progress.Reader(m.packed, moved), scanner)
	m.Secrets = found.Secrets
	var outside errs.Problems
	for _, problem := range found.Problems {
		if from.Archive == "" && errors.Is(problem, archive.ErrOutside) {
			_ = outside.Add(problem) // the module works where it comes from, but not from its archive
		} else {
			m.tolerated.Add(problem)
		}
	}
	if err == nil {
		err = outside.Err("")
	}
	if err != nil {
		return err
	}
	m.Files = found.Files
	m.LoadNotes = m.tolerated.Notes()
	for _, note := range found.Notes[:min(len(found.Notes), errs.MaxNotes)] {
		m.LoadNotes = append(m.LoadNotes, printable.Line(note, errs.MaxNote))
	}
	for _, path := range from.AllowSecrets {
		isIn := func(f archive.File) bool { return secrets.IsAllowed([]string{path}, f.Path) }
		if !slices.ContainsFunc(m.Files, isIn) {
			m.Unmatched = append(m.Unmatched, path)
		}
	}
	m.Record = registry.ModuleVersion{
		Version: from.Version, SHA256: found.SHA256, ContentSHA256: found.ContentSHA256, Size: found.Size,
		Description: from.Description, CopiedFrom: from.CopiedFrom, Claimed: from.Claimed, AllowedSecrets: from.AllowSecrets,
	}
	if m.tolerated.Existing {
		m.Record.Notes = m.tolerated.Notes()
	}
	document, err := extract.Encode(ctx, m.Address.Name, found)
	if err != nil {
		return err
	}
	m.Notes, m.Sources = append(document.Notes, m.incomplete...), document.Sources
	m.Callable = document.Callable
	m.setDocument(document)
	name := ArchiveName(m.Address)
	m.Record.Object = registry.UploadKey(m.Address.Path(), from.Version, found.SHA256, name)
	m.Archive = File{Name: name, StoredFile: m.Record.Archive(), open: func() (io.ReadSeekCloser, error) {
		return unclosed{io.NewSectionReader(m.packed, 0, found.Size)}, nil
	}}
	return nil
}

func (m *PreparedModule) keep(path string) error {
	in, err := regularfile.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	_, err = io.Copy(m.packed, in)
	return err
}

// setDocument adds the documentation and the files of a module, if there are
// any.
func (m *PreparedModule) setDocument(d extract.Document) {
	add := func(name string, data []byte) *File {
		if len(data) == 0 {
			return nil
		}
		file := fileOf(name, data)
		file.Object = registry.UploadKey(m.Address.Path(), m.Record.Version, file.SHA256, file.Name)
		return &file
	}
	if m.Docs = add(registry.DocsName, d.Data); m.Docs != nil {
		m.Record.Docs, m.Record.Contents = &m.Docs.StoredFile, d.Contents
	}
	if m.FilesZip = add(registry.FilesName, d.Files); m.FilesZip != nil {
		m.Record.FilesZip = new(m.FilesZip.StoredFile)
	}
}

// Place sets the object keys of the files to those of a module that an operator
// publishes.
func (m *PreparedModule) Place() {
	key := m.Address.ArchiveKey(m.Record.Version, m.Record.SHA256)
	m.Record.Object, m.Archive.Object = key, key
	for _, d := range []struct {
		made   *File
		stored *registry.StoredFile
	}{{m.Docs, m.Record.Docs}, {m.FilesZip, m.Record.FilesZip}} {
		if d.made != nil {
			d.made.Object = m.Address.DocumentKey(m.Record.Version, d.made.SHA256, d.made.Name)
			d.stored.Object = d.made.Object
		}
	}
}

// Close removes the packed module.
func (m *PreparedModule) Close() {
	_ = m.packed.Close()
	_ = os.Remove(m.packed.Name())
}
