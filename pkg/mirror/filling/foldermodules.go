package filling

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/files/regularfile"
	"github.com/larder-registry/larder/pkg/files/textfile"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/progress"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
	"github.com/larder-registry/larder/pkg/text/printable"
)

// The modules of a folder are in mirror-modules/HOSTNAME/NAMESPACE/NAME/SYSTEM. Each
// version has a VERSION.tar.gz and a VERSION.json. A client that uses the folder as
// its filesystem_mirror ignores them.
const archiveEnd = ".tar.gz"

// folderModule is a version of a module in a folder.
type folderModule struct {
	path    string // of the archive
	address registry.MirrorAddress
	version registry.Version
	moduleDocument
}

// moduleDocument is the content of a VERSION.json of a module.
type moduleDocument struct {
	// SHA256 and Size are those of the archive.
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
	// Pin has no decision of an operator, which applies only in one registry.
	Pin registry.ModulePin `json:"pin"`
	// Notes are those of the mirror that has fetched the module.
	Notes []string `json:"notes,omitempty"`
}

// readFolderModules reads the documents of the modules of a folder. There may be none.
func readFolderModules(dir string) (found []folderModule, err error) {
	names, err := fs.Glob(os.DirFS(dir), strings.TrimSuffix(registry.MirrorModulePrefix, "/")+"/*/*/*/*/*.json")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		f, err := readFolderModule(dir, name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		found = append(found, f)
	}
	return found, nil
}

func readFolderModule(dir, name string) (f folderModule, err error) {
	address := strings.TrimPrefix(path.Dir(name), registry.MirrorModulePrefix)
	version := strings.TrimSuffix(path.Base(name), ".json")
	if f.address, err = registry.ParseMirrorModule(address); err != nil {
		return f, err
	}
	if f.version, err = registry.ParseVersion(version); err != nil {
		return f, err
	}
	if f.address.String() != address || f.version.String() != version {
		return f, fmt.Errorf("%w folder: the file of this version is %s/%s.json", registry.ErrInvalid, f.address.Path(), f.version)
	}
	file := filepath.Join(dir, filepath.FromSlash(name))
	text, err := textfile.Read(file, maxDocument)
	if err != nil {
		return f, err
	}
	if err := json.Unmarshal(text, &f.moduleDocument); err != nil || f.Pin.Source == "" || f.Pin.H1 == "" {
		return f, fmt.Errorf("%w folder: it has no pin with a source and a digest", registry.ErrInvalid)
	}
	f.Pin.Accepted = nil
	f.Notes = f.Notes[:min(len(f.Notes), errs.MaxNotes)]
	for i, note := range f.Notes {
		f.Notes[i] = printable.Line(note, errs.MaxNote)
	}
	f.path = strings.TrimSuffix(file, ".json") + archiveEnd
	return f, nil
}

// importModule inspects a module of a folder, compares its files with the pin, and
// mirrors it.
func (m *Mirror) importModule(ctx context.Context, d *decider, f folderModule) (result Result, err error) {
	result = Result{Address: f.address, Version: f.version, Pin: f.Pin, Status: Added}
	record, err := m.stored(ctx, f.address, f.version)
	if err != nil {
		return Result{}, err
	}
	found, err := m.readPacked(ctx, f)
	if err != nil {
		return Result{}, fmt.Errorf("%s: %w", filepath.Base(f.path), err)
	}
	if record.Module != nil && record.Module.Pin.Differs(f.Pin) == "" {
		err := m.checkFiles(ctx, record)
		if err == nil { // it may have been refused because of another folder
			err = d.bind(ctx, f.version, &f.Pin, record)
		}
		if !errors.Is(err, registry.ErrNotFound) {
			result.Status = Unchanged
			return result, err
		}
		result.Status = Restored
	}
	err = d.checkImport(f.version, record.Module != nil)
	if err == nil && record.Module == nil {
		err = d.checkSize(f.version, f.Size)
	}
	d.admitting, d.importing = m.Accept, true
	defer func() { d.admitting, d.importing = "", false }()
	if err == nil {
		err = d.bind(ctx, f.version, &f.Pin, record)
		if errors.Is(err, registry.ErrNotAdmitted) {
			err = registry.WithHint(err, "Find out why. To accept it, run the command again with `--accept REASON`.")
		}
	}
	if err != nil || m.DryRun {
		return result, err
	}
	if record.Module == nil {
		result.Notes = d.importNotes(f.version, true, false)
	}
	found.Notes = append(slices.DeleteFunc(f.Notes, func(note string) bool { return slices.Contains(found.Notes, note) }),
		found.Notes...)
	notes, err := d.settleModule(ctx, f.version, f.Pin)
	result.Notes = append(result.Notes, notes...)
	if err == nil {
		_, err = m.publishModule(ctx, f.address, publish.MirrorModule{
			Version: f.version, Path: f.path, Pin: f.Pin, Found: found.Found, Size: f.Size,
		})
	}
	if err == nil {
		m.outdate(ctx, &result)
	}
	return result, err
}

// readPacked inspects the archive of a folder. It returns registry.ErrInvalid if it is
// not the one of the document.
func (m *Mirror) readPacked(ctx context.Context, f folderModule) (found moduleFiles, err error) {
	file, err := regularfile.Open(f.path)
	if err != nil {
		return found, registry.Errorf(registry.ErrInvalid, "%w", regularfile.Unreadable(f.path, err))
	}
	defer file.Close()
	checked, end := m.transfer("checking "+filepath.Base(f.path), f.Size)
	err = objects.Copy(io.Discard, progress.Reader(file, checked), objects.Digest{SHA256: f.SHA256, Size: f.Size})
	end()
	if err != nil {
		return found, err
	}
	found.size = f.Size
	if err := m.inspect(ctx, f.address, file, f.Pin.Folder != "", &found); err != nil {
		return found, err
	}
	if found.h1 != f.Pin.H1 {
		return found, fmt.Errorf("%w archive: its files have the digest %s, but its pin has %s", registry.ErrInvalid, found.h1, f.Pin.H1)
	}
	return found, nil
}

func (m *Mirror) exportModule(ctx context.Context, dir string, address registry.MirrorAddress,
	records []registry.MirrorVersion) (results []Result, err error) {
	var failed []error
	for _, record := range records {
		if record.Module == nil {
			continue
		}
		file := filepath.Join(dir, record.Version.String())
		document := moduleDocument{
			record.Module.SHA256, record.Module.Size, record.Module.Pin, record.Module.Notes,
		}
		document.Pin.Accepted = nil
		result := Result{Address: address, Version: record.Version, Pin: document.Pin}
		result.Status, err = m.exportFile(ctx, file+archiveEnd, record.Module.StoredFile)
		if err == nil {
			err = writeDocument(file+".json", document)
		}
		if err != nil {
			err = repairable(address, record.Version, registry.Platform{}, err)
			failed = append(failed, fmt.Errorf("%s: %w", record.Version, err))
			if !isDamage(err) {
				break
			}
			continue
		}
		results = append(results, result)
	}
	return results, errors.Join(failed...)
}
