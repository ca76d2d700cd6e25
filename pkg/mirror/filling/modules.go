package filling

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/client/fetch"
	"github.com/larder-registry/larder/pkg/client/forge"
	"github.com/larder-registry/larder/pkg/client/location"
	"github.com/larder-registry/larder/pkg/content/archive"
	"github.com/larder-registry/larder/pkg/files/regularfile"
	"github.com/larder-registry/larder/pkg/files/temporary"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/publish/inspection"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
	"github.com/larder-registry/larder/pkg/text/printable"
)

// Inspector reads the archive of a module, as described for
// [inspection.Process.Inspect].
type Inspector interface {
	Inspect(ctx context.Context, request inspection.Request, source io.ReaderAt) (inspection.Found, error)
}

// place is where the origin has a version of a module.
type place struct {
	// pin has no digest yet.
	pin registry.ModulePin
	// archive is the location of an archive. isCommit means that it is the archive of a
	// commit at a forge, which has one folder around everything.
	archive  location.Location
	isCommit bool
	// limit is the maximum size of the archive in bytes.
	limit int64
	// checkout is a temporary folder with the files of a commit that git has fetched, or
	// empty.
	checkout string
}

// locate requests where the origin has a version of a module. The caller removes the
// checkout.
func (m *Mirror) locate(ctx context.Context, origin *client.Service, d *decider, v registry.Version) (place, error) {
	_, end := m.transfer(fmt.Sprintf("looking up %s %s", d.address, v), 0)
	defer end()
	found, err := origin.ModuleLocation(ctx, d.address.Module(), v)
	if err != nil {
		return place{}, err
	}
	at, err := m.fetcher().Locate(ctx, found)
	if err != nil {
		return place{}, err
	}
	p := place{archive: at, pin: registry.ModulePin{Folder: at.Folder}}
	if !at.Git {
		bare := *at.URL
		bare.User, bare.RawQuery, bare.ForceQuery = nil, "", false
		p.pin.Source = bare.String()
		return p, nil
	}
	repository, err := forge.Find(at, d.rule.Forges)
	if err != nil && m.Git {
		return m.checkOut(ctx, at)
	}
	if err != nil {
		return place{}, err
	}
	p.isCommit, p.pin.Source = true, repository.String()
	if p.pin.Commit, err = repository.Commit(ctx, m.Client, at.Ref); err != nil {
		return place{}, err
	}
	p.archive = location.Location{Type: "tar.gz"}
	p.archive.URL, err = url.Parse(repository.Archive(p.pin.Commit))
	return p, err
}

// checkOut fetches a commit with git. Only that shows which one it is.
func (m *Mirror) checkOut(ctx context.Context, at location.Location) (p place, err error) {
	bare := *at.URL
	bare.User = nil
	p.pin = registry.ModulePin{Source: strings.TrimSuffix(bare.String(), ".git"), Folder: at.Folder}
	if p.checkout, err = temporary.Folder("larder-mirror-*"); err != nil {
		return p, err
	}
	if p.pin.Commit, err = m.fetcher().Clone(ctx, at, p.checkout); err != nil {
		err = errors.Join(err, os.RemoveAll(p.checkout))
	}
	return p, err
}

func (m *Mirror) fetcher() *fetch.Fetcher {
	return &fetch.Fetcher{Client: m.Client, Progress: m.Progress, Hosts: m.GitHosts}
}

// addModule mirrors a version of a module. stored is its record, which is empty if it
// is not mirrored. addModule returns the new record, or nil if it has written none.
func (m *Mirror) addModule(ctx context.Context, origin *client.Service, d *decider, w Wanted, v registry.Version,
	stored registry.MirrorVersion) (result Result, written *registry.MirrorVersion, err error) {
	result = Result{Address: w.Address, Version: v, Status: Unchanged, module: stored.Module}
	at, err := m.locate(ctx, origin, d, v)
	if err != nil {
		return Result{}, nil, asOriginError(err)
	}
	if at.checkout != "" {
		defer func() { err = errors.Join(err, os.RemoveAll(at.checkout)) }()
	}
	result.Pin = at.pin
	if err := d.object(v, d.denied); err != nil {
		return Result{}, nil, err
	}
	if err := d.bind(ctx, v, &at.pin, stored); err != nil {
		return Result{}, nil, err
	}
	if stored.Module != nil && stored.Module.Pin.Differs(at.pin) == "" {
		err := m.checkFiles(ctx, stored)
		if errors.Is(err, registry.ErrNotFound) {
			result.Status = Restored
		} else if err != nil || at.pin.Commit != "" {
			return result, nil, err
		}
	} else {
		result.Status = Added
	}
	if m.DryRun {
		return result, nil, nil
	}
	record, notes, err := m.fetchModule(ctx, d, at, v, stored, result.Status)
	if err != nil {
		return result, nil, err
	}
	if result.Status == Unchanged {
		if d.accepted[v] == "" {
			return result, nil, nil
		}
		result.Status = Added
	}
	result.Notes, result.module = append(result.Notes, notes...), record.Module
	return result, &record, nil
}

// checkFiles returns [registry.ErrNotFound] if a file of a version is not stored.
func (m *Mirror) checkFiles(ctx context.Context, record registry.MirrorVersion) (err error) {
	for _, f := range record.Files() {
		err = cmp.Or(err, objects.CheckStored(ctx, m.Objects, f))
	}
	return err
}

// fetchModule downloads, inspects and mirrors a version of a module. The archive is
// packed again, because forges compress the same commit in different ways. If a version
// is [Unchanged], its location names no commit, and fetchModule compares the files.
func (m *Mirror) fetchModule(ctx context.Context, d *decider, at place, v registry.Version,
	stored registry.MirrorVersion, status string) (record registry.MirrorVersion, notes []string, err error) {
	dir, err := temporary.Folder("larder-mirror-*")
	if err != nil {
		return record, nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	spent := spending{m: m}
	defer func() { err = spent.end(ctx, err) }()
	at.limit = d.maxSize()
	if status != Added {
		at.limit = maxPackage
	}
	if m.left != nil {
		at.limit = min(at.limit, m.left.Load())
	}
	packed := filepath.Join(dir, d.address.Name+".tar.gz")
	found, notes, err := m.readModule(ctx, d.address, at, filepath.Join(dir, "module"), packed, &spent.fetched)
	if errors.Is(err, client.ErrTooLarge) && at.limit == d.rule.MaxSize {
		err = d.tooLarge()
	}
	if err != nil {
		return record, nil, err
	}
	at.pin.H1 = found.h1
	if err := d.bind(ctx, v, &at.pin, stored); err != nil {
		return record, nil, err
	}
	if status == Unchanged && d.accepted[v] == "" {
		return stored, nil, nil
	}
	if status == Added {
		if err := d.checkSize(v, found.size); err != nil {
			return record, nil, err
		}
	}
	if err := spent.store(ctx, 1, max(found.size, spent.fetched.Load())); err != nil {
		return record, nil, err
	}
	decided, err := d.settleModule(ctx, v, at.pin)
	if err != nil {
		return record, nil, err
	}
	record, err = m.publishModule(ctx, d.address, publish.MirrorModule{
		Version: v, Path: packed, Pin: at.pin, Found: found.Found, Size: found.size,
	})
	return record, append(notes, decided...), err
}

// publishModule stores and records a version of a module, unless the caller of a [Pull]
// stores the record.
func (m *Mirror) publishModule(ctx context.Context, address registry.MirrorAddress, module publish.MirrorModule) (
	registry.MirrorVersion, error,
) {
	record, err := m.Publisher.StoreMirrorModule(ctx, address, module)
	if err != nil {
		return record, err
	}
	if m.publish != nil {
		return m.publish(ctx, record, nil, m.Publisher.By.String())
	}
	stored, _, err := m.Catalog.Mirror.Add(ctx, address, record, m.Publisher.By.String())
	return stored, err
}

// moduleFiles is the result of reading a module.
type moduleFiles struct {
	inspection.Found

	h1   string
	size int64
}

// readModule fetches a module into a folder, packs it into a file, and inspects that.
func (m *Mirror) readModule(ctx context.Context, address registry.MirrorAddress, at place, dir, packed string,
	received *atomic.Int64) (found moduleFiles, notes []string, err error) {
	// An archive must not end the process, which may serve clients.
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w archive: cannot read it: %v", registry.ErrInvalid, p)
		}
	}()
	if at.checkout != "" {
		dir = at.checkout
	} else if err = os.Mkdir(dir, 0o700); err == nil {
		f := m.fetcher()
		f.MaxBytes, f.Received = at.limit, received
		if err = f.Unpack(ctx, at.archive, at.pin.Commit, dir); !fetch.IsLocal(err) {
			err = asOriginError(err)
		}
	}
	if err == nil && at.isCommit {
		dir, err = unwrapped(dir)
	}
	if err == nil && (at.isCommit || at.checkout != "") {
		notes, err = forge.Examine(dir, at.pin.Folder, at.isCommit)
	}
	if err != nil {
		return found, nil, err
	}
	if dir, err = fetch.Below(dir, at.pin.Folder); err != nil {
		return found, nil, err
	}
	m.step("packing %s", address)
	out, err := os.Create(packed)
	if err != nil {
		return found, nil, regularfile.Unwritable(packed, err)
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	// Clients get everything that a commit or an archive has.
	excluded, err := archive.Pack(ctx, dir, archive.Options{
		Include: []string{"*"}, Existing: true, IgnoreProblem: func(error) {},
	}, out)
	if err != nil {
		return found, nil, errs.DiskFull(err)
	}
	for _, e := range excluded[:min(len(excluded), errs.MaxNotes)] {
		notes = append(notes, printable.Line("excluded "+e.String(), errs.MaxNote))
	}
	if found.size, err = out.Seek(0, io.SeekCurrent); err != nil {
		return found, nil, err
	}
	if err := m.inspect(ctx, address, out, at.pin.Folder != "", &found); err != nil {
		return found, nil, err
	}
	found.Notes = append(notes, found.Notes...)
	return found, found.Notes, nil
}

// inspect inspects a packed module, and sets the results but the size. part is that of
// [inspection.Request].
func (m *Mirror) inspect(ctx context.Context, address registry.MirrorAddress, packed io.ReaderAt, part bool,
	found *moduleFiles) (err error) {
	found.Found, err = m.Inspector.Inspect(ctx, inspection.Request{
		Kind: inspection.Module, Size: found.size, Name: address.Name, Part: part,
	}, packed)
	if err == nil {
		found.h1, err = archive.H1(ctx, io.NewSectionReader(packed, 0, found.size))
	}
	return err
}

// unwrapped returns the only folder in a folder.
func unwrapped(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", regularfile.Unreadable(dir, err)
	}
	if len(entries) != 1 || !entries[0].IsDir() {
		return "", fmt.Errorf("%w archive: the archive of a commit has one folder around everything, and this one has not",
			registry.ErrInvalid)
	}
	return filepath.Join(dir, entries[0].Name()), nil
}
