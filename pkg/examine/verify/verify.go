// Package verify reads a whole registry and reports everything that is wrong:
//   - versions without records or objects, and objects without versions
//   - content that differs from the record
//   - signatures that no longer verify
//   - listings and catalog entries that differ from the versions
//   - documentation that is missing or damaged
//   - a policy of the mirror, or an origin, that cannot be read
//   - an audit trail that disagrees with the stored versions, keys, tokens and
//     decisions about the mirror
//
// It reads one namespace at a time. For the whole registry it only has the
// audit trail in memory. Because others may publish meanwhile, it reads
// everything a second time, with new records, before it reports it. A repair
// rebuilds derived data, including documentation. It deletes nothing and changes
// no archive, version number or key. It also leaves any item that may be the
// last to name a version, so that nobody can reuse the number.
//
// A table cannot be listed as a whole. Run finds an address by the catalog of
// its namespace, by its objects or by the audit trail. It does not find an
// address that has none of them.
package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dustin/go-humanize/english"
	"golang.org/x/sync/errgroup"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/content/signing"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/progress"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
)

// Objects is the part of the object store that a Verifier reads.
type Objects interface {
	Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error)
	Stat(ctx context.Context, key string) (objects.Info, error)
	Walk(ctx context.Context, prefix string, visit func(objects.Info) error) error
}

// Verifier verifies one registry.
type Verifier struct {
	Catalog *catalog.Catalog
	Objects Objects
	// IsFolder means that the registry is a folder of this machine, and not on
	// AWS. Fixes then name what its operator has.
	IsFolder bool
	// Quick skips reading packages and archives. SHA256SUMS files and their
	// signatures are small and are still read.
	Quick bool
	// Repair rebuilds wrong listings, catalog entries and namespaces, and calls
	// Document.
	Repair bool
	// Document makes the documentation of a version of a module from its
	// archive. Run calls it for one version at a time. If nil, documentation is
	// not repaired.
	Document func(context.Context, registry.Address, registry.Version) error
	// AcceptLossBy is the person who accepts that the audit trail has lost the
	// missing entries. If empty, missing entries are faults.
	AcceptLossBy string
	// AtRest means that nothing is being published, so that an object without a
	// version is a fault whatever its age.
	AtRest bool
	// Progress reports the progress. It may be nil.
	Progress progress.Reporter
	// Now returns the time. If nil, [time.Now] is used.
	Now func() time.Time
}

const (
	// parallel is how many objects are read at the same time.
	parallel = 8
	// manifestExpires is the age at which a staged object must have expired. S3
	// removes it at the following midnight.
	manifestExpires = objects.StagedFor + 24*time.Hour
	// orphanedAfter is the age at which an object without a version cannot belong
	// to a running publish.
	orphanedAfter = 24 * time.Hour
)

// run is the state of one call of [Verifier.Run].
type run struct {
	Verifier
	read  func(int64)
	trail *trail
	// missing are the claims that the trail lacked when it was first read, by
	// subject.
	missing map[string][]claim

	mu     sync.Mutex
	report Report

	// documenting is locked during Document, which needs much memory.
	documenting sync.Mutex
}

// Run verifies the registry. It returns an error if it cannot read the
// registry. The report contains what is wrong.
func (v Verifier) Run(ctx context.Context) (Report, error) {
	r := &run{Verifier: v, report: Report{Findings: []Finding{}}}
	r.Progress = progress.Or(v.Progress)
	if r.Now == nil {
		r.Now = time.Now
	}
	if err := r.wait("reading the audit trail", func() error { return r.readTrail(ctx) }); err != nil {
		return Report{}, err
	}
	var names []string
	err := r.wait("listing namespaces", func() (err error) {
		names, err = r.namespaces(ctx)
		return err
	})
	if err != nil {
		return Report{}, err
	}
	for _, name := range names {
		if err := r.namespace(ctx, name); err != nil {
			return Report{}, err
		}
	}
	part := part{what: "the mirror", prefixes: []string{registry.MirrorPrefix, registry.MirrorModulePrefix}, entries: r.Catalog.MirrorEntries}
	if err := r.part(ctx, part); err != nil {
		return Report{}, err
	}
	if err := r.policy(ctx); err != nil {
		return Report{}, err
	}
	tokens, unreadable, err := r.Catalog.Tokens(ctx)
	if err != nil {
		return Report{}, err
	}
	for _, t := range tokens {
		r.claim("tokens/"+t.ID, claim{action: registry.AuditCreateToken})
	}
	for _, u := range unreadable {
		r.add(
			Finding{
				Kind:   Record,
				Path:   "tokens",
				Detail: u.Err.Error(),
				Fix: "restore the item from a backup of the table, or remove it with `larder token " +
					"revoke " + u.Name + "`; its token does not work",
			},
		)
	}
	if err := r.wait("comparing with the audit trail", func() error { return r.reportMissing(ctx) }); err != nil {
		return Report{}, err
	}
	r.report.Findings = sort(r.report.Findings, r.IsFolder)
	return r.report, nil
}

// wait calls do, which takes an unknown time, and shows its progress.
func (r *run) wait(what string, do func() error) error {
	_, end := r.Progress.Transfer(what, 0)
	defer end()
	return do()
}

func (r *run) add(findings ...Finding) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Findings = append(r.report.Findings, findings...)
}

func (r *run) count(change func(*Report)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.report)
}

// namespaces returns the recorded namespaces, and those of objects and of the
// audit trail.
func (r *run) namespaces(ctx context.Context) ([]string, error) {
	recorded, err := r.Catalog.Namespaces(ctx)
	if err != nil {
		return nil, err
	}
	mirrored, err := r.Catalog.MirrorEntries(ctx)
	if err != nil {
		return nil, err
	}
	// An empty catalog was lost, or nobody has published yet.
	if len(recorded)+len(mirrored)+len(r.trail.addresses()) == 0 {
		r.AtRest = true
	}
	names := make(map[string]bool)
	for _, name := range recorded {
		names[name] = true
	}
	for _, path := range r.trail.addresses() {
		if kind, rest, _ := strings.Cut(path, "/"); kind == "modules" || kind == "providers" {
			name, _, _ := strings.Cut(rest, "/")
			names[name] = true
		}
	}
	for name := range r.trail.keys {
		names[name] = true
	}
	for _, kind := range []string{"modules/", "providers/"} {
		if err := r.walk(ctx, kind, func(info objects.Info) error {
			name, rest, _ := strings.Cut(strings.TrimPrefix(info.Key, kind), "/")
			if rest == "" {
				r.add(orphan(strings.TrimSuffix(kind, "/"), info))
				return nil
			}
			names[name] = true
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return slices.Sorted(maps.Keys(names)), nil
}

// walk visits the objects below a prefix. It reports folders that it may not
// read, and visits the rest.
func (r *run) walk(ctx context.Context, prefix string, visit func(objects.Info) error) error {
	err := r.Objects.Walk(ctx, prefix, visit)
	if errors.Is(err, fs.ErrPermission) {
		r.add(unreadable(strings.TrimSuffix(prefix, "/"), "", err)...)
		return nil
	}
	return err
}

func (r *run) namespace(ctx context.Context, name string) error {
	if err := r.keys(ctx, name); err != nil {
		return err
	}
	return r.part(ctx, part{
		what:     "namespace " + name,
		prefixes: []string{"modules/" + name + "/", "providers/" + name + "/"},
		entries:  func(ctx context.Context) ([]string, error) { return r.Catalog.Entries(ctx, name) },
	})
}

// part is a part of the registry that is verified as a whole.
type part struct {
	what string
	// prefixes are the key prefixes of its objects.
	prefixes []string
	// entries returns the paths in its catalog.
	entries func(context.Context) ([]string, error)
}

func (p part) has(path string) bool {
	return slices.ContainsFunc(p.prefixes, func(prefix string) bool { return strings.HasPrefix(path, prefix) })
}

func (r *run) part(ctx context.Context, p part) error {
	stored := make(map[string][]objects.Info) // by path
	var size int64
	if err := r.wait("listing "+p.what, func() error {
		for _, prefix := range p.prefixes {
			if err := r.walk(ctx, prefix, func(info objects.Info) error {
				path := pathOf(info.Key)
				stored[path] = append(stored[path], info)
				size += info.Size
				return nil
			}); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	// A publish stores objects before entries. The objects of a new address may be
	// missing here, but then the second reading finds them.
	entries, err := p.entries(ctx)
	if err != nil {
		return err
	}
	for _, path := range entries {
		if !p.has(path) {
			r.add(
				Finding{Kind: CatalogEntry, Path: path, Detail: "it is in the catalog of " + p.what + ", but does not belong there",
					Fix: "remove the item from that catalog in the table (see docs/verify.md); Larder did not write " +
						"it, but `larder list` shows it"})
			continue
		}
		if _, there := stored[path]; !there {
			stored[path] = nil
		}
	}
	for _, path := range r.trail.addresses() {
		if _, there := stored[path]; !there && p.has(path) {
			stored[path] = nil
		}
	}
	r.read = func(int64) {}
	if len(stored) > 0 {
		if r.Quick {
			size = 0
		}
		addresses := english.Plural(len(stored), "module or provider", "modules and providers")
		read, end := r.Progress.Transfer("verifying "+p.what+": "+addresses, size)
		defer end()
		r.read = read
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	err = func() error {
		for _, path := range slices.Sorted(maps.Keys(stored)) {
			if err := r.address(ctx, group, path, stored[path]); err != nil {
				return err
			}
		}
		return nil
	}()
	// An error in the group cancels the rest, so it comes first.
	return cmp.Or(group.Wait(), err)
}

// pathOf returns the path of the address in an object's key. For a shorter key
// it returns the part before the last slash.
func pathOf(key string) string {
	parts := strings.Split(key, "/")
	n := 4
	switch parts[0] {
	case "providers":
		n = 3
	case "mirror-modules":
		n = 5
	}
	return strings.Join(parts[:min(n, len(parts)-1)], "/")
}

// addressOf returns the address with a path, or nil if there is none.
func addressOf(path string) registry.Address {
	var a registry.Address
	var err error
	switch kind, address, _ := strings.Cut(path, "/"); kind {
	case "modules":
		a, err = registry.ParseModule(address)
	case "providers":
		a, err = registry.ParseProvider(address)
	case "mirror", "mirror-modules":
		a, err = registry.ParseMirrorAddress(address)
	}
	if err != nil || a == nil || a.Path() != path {
		return nil
	}
	return a
}

func (r *run) address(ctx context.Context, group *errgroup.Group, path string, infos []objects.Info) error {
	switch a := addressOf(path).(type) {
	case registry.Module:
		return verifyAddress(ctx, r, group, r.module(a), infos)
	case registry.Provider:
		return verifyAddress(ctx, r, group, r.provider(a), infos)
	case registry.MirrorAddress:
		if err := r.origin(ctx, a); err != nil {
			return err
		}
		return verifyAddress(ctx, r, group, r.mirrored(a), infos)
	}
	if len(infos) == 0 {
		r.add(Finding{
			Kind:   CatalogEntry,
			Path:   path,
			Detail: "its path is not a valid address",
			Fix:    "remove the item from the table (see docs/verify.md); nothing can be published there",
		})
	}
	for _, info := range infos {
		r.add(orphan(path, info))
	}
	return nil
}

// subject is one module or provider, own or mirrored.
type subject[A registry.Address, R registry.Record] struct {
	address  A
	versions catalog.Versions[A, R]
	// count returns the report's counter of addresses of this kind.
	count func(*Report) *int
	// checks returns the checks for a version. A check uses the record that it
	// receives, which may be newer.
	checks func(R) []check[R]
	// repair repairs findings of a version, and marks those that it has repaired.
	// It may be nil.
	repair func(ctx context.Context, n registry.Version, found []Finding) error
}

// check verifies one aspect of a version. Its findings have no path and version
// yet.
type check[R registry.Record] func(ctx context.Context, record R, read func(int64)) ([]Finding, error)

func verifyAddress[A registry.Address, R registry.Record](ctx context.Context, r *run, group *errgroup.Group,
	s subject[A, R], infos []objects.Info) error {
	stored, err := s.versions.Stored(ctx, s.address)
	if err != nil {
		return err
	}
	if len(stored.Records)+len(stored.Withdrawn)+len(stored.Unreadable) > 0 {
		r.count(func(r *Report) { *s.count(r)++ })
	}
	if err := derived(ctx, r, s, stored); err != nil {
		return err
	}
	compareTrail(r, s, stored)
	lost := lost(r, s, stored)
	there := make(map[string]bool, len(infos))
	for _, info := range infos {
		there[info.Key] = true
	}
	for _, record := range stored.Records {
		r.count(func(r *Report) {
			r.Versions++
			for _, f := range record.Files() {
				if there[f.Object] {
					r.Objects++
				}
			}
		})
		for _, run := range s.checks(record) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			group.Go(func() error {
				found, err := twice(ctx, r, s, record, run)
				if err != nil {
					return fmt.Errorf("%s %s: %w", s.address.Path(), record.Number(), err)
				}
				if r.Repair && s.repair != nil {
					if err := s.repair(ctx, record.Number(), found); err != nil {
						return err
					}
				}
				for i := range found {
					found[i].Path, found[i].Version = s.address.Path(), record.Number().String()
				}
				r.add(found...)
				return nil
			})
		}
	}
	return orphans(ctx, r, s, stored, lost, infos)
}

// lost reports the versions whose record is missing, and returns their names.
func lost[A registry.Address, R registry.Record](r *run, s subject[A, R], stored catalog.Stored[R]) (names []string) {
	report := func(v registry.Version, why string) {
		names = append(names, v.String())
		r.add(Finding{
			Kind:    VersionWithoutRecord,
			Path:    s.address.Path(),
			Version: v.String(),
			Detail:  why + ", but its record is missing",
		})
	}
	for _, v := range stored.Missing {
		report(v, "the listing or the catalog entry contains it")
	}
	recorded := make(map[registry.Version]bool)
	for _, record := range stored.Records {
		recorded[record.Number()] = true
	}
	for name, done := range r.trail.of(s.address.Path()).versions {
		v, err := registry.ParseTag(name)
		if err != nil || !done.stored() {
			continue
		}
		unreadable := slices.ContainsFunc(stored.Unreadable, func(u catalog.Unreadable) bool {
			return u.Name == v.String() || u.Name == v.Comparable().String()
		})
		if !recorded[v] && !unreadable && !slices.ContainsFunc(stored.Withdrawn, v.Same) &&
			!slices.Contains(stored.Missing, v) {
			why := "the audit trail contains its publish"
			if done.has(registry.AuditWithdraw) {
				why = "the audit trail contains its withdrawal"
			}
			report(v, why)
		}
	}
	return names
}

// twice runs a check, and runs it again with the current record if it found
// something. The version may have been withdrawn since, or a key may have been
// added.
func twice[A registry.Address, R registry.Record](ctx context.Context, r *run, s subject[A, R], record R,
	run check[R]) ([]Finding, error) {
	found, err := run(ctx, record, func(n int64) {
		r.read(n)
		r.count(func(r *Report) { r.Bytes += n })
	})
	// An object may also be removed while it is read.
	gone := errors.Is(err, registry.ErrNotFound)
	if err != nil && !gone || len(found) == 0 && !gone {
		return nil, err
	}
	record, err = s.versions.Get(ctx, s.address, record.Number())
	if errors.Is(err, registry.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return run(ctx, record, func(int64) {})
}

// derived reports derived data that does not match the versions, and repairs it
// if requested.
func derived[A registry.Address, R registry.Record](ctx context.Context, r *run, s subject[A, R],
	stored catalog.Stored[R]) error {
	for _, u := range stored.Unreadable {
		r.add(Finding{Kind: Record, Path: s.address.Path(), Version: u.Name, Detail: u.Err.Error(), Fix: restoreRecord})
	}
	if len(stored.Mismatches) == 0 {
		return nil
	}
	repaired := false
	if r.Repair && stored.Rebuildable {
		var err error
		if repaired, err = s.versions.Rebuild(ctx, s.address); err != nil {
			return err
		}
	}
	for _, m := range stored.Mismatches {
		f := Finding{
			Kind: Kind(m.What), Path: s.address.Path(), Detail: m.Detail, Fix: m.Fix,
			Repaired: repaired,
		}
		if f.Fix == "" && !stored.Rebuildable {
			f.Fix = "fix the versions of this address first, then run the command again with --repair"
		}
		if f.Kind == Namespace {
			f.Path = "namespaces/" + strings.Split(s.address.Path(), "/")[1]
		}
		r.add(f)
	}
	return nil
}

func orphans[A registry.Address, R registry.Record](ctx context.Context, r *run, s subject[A, R],
	stored catalog.Stored[R], lost []string, infos []objects.Info) error {
	left := unused(s, stored, infos)
	if len(left) == 0 {
		return nil
	}
	stored, err := s.versions.Stored(ctx, s.address)
	if err != nil {
		return err
	}
	for _, info := range unused(s, stored, left) {
		now, err := r.Objects.Stat(ctx, info.Key)
		if errors.Is(err, registry.ErrNotFound) {
			continue
		}
		if errors.Is(err, fs.ErrPermission) {
			r.add(unreadable(s.address.Path(), info.Key, err)...)
			continue
		}
		if err != nil {
			return err
		}
		if v := withdrawn(s, stored, info); v != "" {
			r.add(Finding{
				Kind:    WithdrawnObject,
				Path:    s.address.Path(),
				Version: v,
				Object:  info.Key,
				Detail:  fmt.Sprintf("the version is withdrawn, but %d bytes of it are still stored", now.Size),
			})
			continue
		}
		f := orphan(s.address.Path(), now)
		published := slices.ContainsFunc(stored.Records, func(record R) bool { return record.Number().String() == f.Version })
		manifest := published && isStagedManifest(s.address, info.Key)
		if manifest && r.Now().Sub(now.Modified) < manifestExpires {
			continue
		}
		switch {
		case slices.Contains(lost, f.Version):
			f.Fix = "do not remove it: first fix its version, whose record is missing"
		case manifest:
			f.Note, f.Detail = true, f.Detail+"; it is a staged manifest and should have expired: "+
				"check that the bucket expires objects with the tag "+objects.Tag+"="+objects.TagStaged
		case published && isDocumentation(s.address, info.Key):
			f.Note, f.Detail = true, f.Detail+"; it is documentation or files that the version does not use, for example because "+
				"it was damaged and made again"
		case published && isMirroredSums(s.address, info.Key):
			f.Note, f.Detail = true, f.Detail+"; it is a SHA256SUMS or a signature that the version does not use, because "+
				"others were stored at the same time"
		case published && isMirroredModule(s.address):
			f.Note, f.Detail = true, f.Detail+"; it is content that the version does not have any more, because an operator "+
				"accepted what the origin has changed"
		case isUploaded(s.address.Path(), info.Key) && (!r.AtRest || published):
			f.Note, f.Detail = true, f.Detail+"; it was uploaded with the publish API and not published"
		case !r.AtRest && r.Now().Sub(now.Modified) < orphanedAfter:
			f.Note, f.Detail = true, f.Detail+"; it was written in the last 24 hours and may belong to a running publish"
		}
		r.add(f)
	}
	return nil
}

// unused returns the objects that belong to no version. It omits those below a
// version whose record cannot be read.
func unused[A registry.Address, R registry.Record](s subject[A, R], stored catalog.Stored[R],
	infos []objects.Info) (left []objects.Info) {
	used := make(map[string]bool)
	for _, record := range stored.Records {
		for _, f := range record.Files() {
			used[f.Object] = true
		}
	}
	for _, info := range infos {
		if !used[info.Key] &&
			!slices.ContainsFunc(stored.Unreadable,
				func(u catalog.Unreadable) bool { return below(info.Key, s.address.Path()+"/"+u.Name) }) {
			left = append(left, info)
		}
	}
	return left
}

// below reports whether a key is below a version's, whatever the build metadata
// of the version.
func below(key, version string) bool {
	rest, found := strings.CutPrefix(key, version)
	return found && (strings.HasPrefix(rest, "/") || strings.HasPrefix(rest, "+"))
}

// withdrawn returns the withdrawn version that an object belongs to, or "".
func withdrawn[A registry.Address, R registry.Record](s subject[A, R], stored catalog.Stored[R],
	info objects.Info) string {
	for _, v := range stored.Withdrawn {
		if strings.HasPrefix(info.Key, s.address.Path()+"/"+v.String()+"/") {
			return v.String()
		}
	}
	return ""
}

func orphan(path string, info objects.Info) Finding {
	f := Finding{
		Kind:   ObjectWithoutVersion,
		Path:   path,
		Object: info.Key,
		Detail: fmt.Sprintf("no version has this object of %d bytes", info.Size),
	}
	if version, _, ok := strings.Cut(strings.TrimPrefix(info.Key, path+"/"), "/"); ok {
		f.Version = version
	}
	return f
}

// isStagedManifest reports whether an object is the manifest of a provider that
// was uploaded with the publish API. It expires, because the version's record
// has its content.
func isStagedManifest(a registry.Address, key string) bool {
	_, provider := a.(registry.Provider)
	return provider && isUploaded(a.Path(), key) && rules.IsManifest(key)
}

func isDocumentation(a registry.Address, key string) bool {
	_, module := a.(registry.Module)
	return module && (strings.HasSuffix(key, "/"+registry.DocsName) || strings.HasSuffix(key, "/"+registry.FilesName))
}

func isMirroredSums(a registry.Address, key string) bool {
	_, mirrored := a.(registry.MirrorAddress)
	return mirrored && strings.HasSuffix(strings.TrimSuffix(key, ".sig"), "_SHA256SUMS")
}

func isMirroredModule(a registry.Address) bool {
	m, mirrored := a.(registry.MirrorAddress)
	return mirrored && m.IsModule()
}

// isUploaded reports whether an object was uploaded with the publish API. It
// may be staged.
func isUploaded(path, key string) bool {
	_, rest, _ := strings.Cut(strings.TrimPrefix(key, path+"/"), "/")
	return strings.HasPrefix(rest, "api/")
}

// keys reports the keys of a namespace that Larder or clients cannot read.
func (r *run) keys(ctx context.Context, namespace string) error {
	keys, unreadable, err := r.Catalog.ReadableKeys(ctx, namespace)
	for _, k := range keys {
		if err := signing.CheckKey(k.ASCIIArmor); err != nil {
			unreadable = append(unreadable, catalog.Unreadable{Name: k.ID, Err: fmt.Errorf("key %s: %w", k.ID, err)})
		}
	}
	if err == nil {
		r.compareKeys(namespace, keys, unreadable)
	}
	for _, u := range unreadable {
		r.add(Finding{
			Kind:   Record,
			Path:   "keys/" + namespace,
			Detail: u.Err.Error(),
			Fix:    "replace the key with `larder key add NAMESPACE FILE`, or restore the item from a backup of the table",
		})
	}
	return err
}
