// Package verify reads a whole registry and reports everything that is wrong:
// versions without records, versions without objects and objects without versions,
// bytes that differ from the recorded ones, signatures that no longer verify,
// listings and catalog entries that differ from the versions, and an audit trail
// that disagrees with what is stored.
//
// It reads one namespace after the other. Of the whole registry it keeps only what
// the audit trail has in memory. Others publish meanwhile: before it reports
// something, it reads it a second time, with new records. A repair rebuilds what is
// derived from other things. It deletes nothing, changes no object, version or key,
// and keeps any item that may be the last to name a version, so that the number
// stays taken.
//
// It cannot find what nothing points to, because a table cannot be listed as a
// whole. It finds an address by its entry in the catalog of its namespace, by its
// objects or by the audit trail. An address without all three is not found.
package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dustin/go-humanize/english"
	"golang.org/x/sync/errgroup"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/progress"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/releases"
	"github.com/larder-registry/larder/pkg/signing"
)

// Objects is what is read of the object store.
type Objects interface {
	Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error)
	Stat(ctx context.Context, key string) (objects.Info, error)
	Walk(ctx context.Context, prefix string, visit func(objects.Info) error) error
}

// Verifier verifies one registry.
type Verifier struct {
	Catalog *catalog.Catalog
	Objects Objects
	// Quick leaves out what takes reading packages and archives. SHA256SUMS and their signatures are small, and are read.
	Quick bool
	// Repair rebuilds listings, catalog entries and namespaces that are wrong.
	Repair bool
	// AcceptLossBy is who accepts that the audit trail has lost the entries that are
	// missing. If empty, they are faults.
	AcceptLossBy string
	// AtRest says that nothing is being published, so that an object without a version is a fault however young it is.
	AtRest bool
	// Progress may be nil.
	Progress progress.Reporter
	// Now tells the time; time.Now where it is nil.
	Now func() time.Time
}

const (
	// parallel is how many objects are read at once.
	parallel = 8
	// manifestExpires is the age at which a staged object is gone for certain: S3
	// expires it at the midnight that follows.
	manifestExpires = objects.StagedFor + 24*time.Hour
	// settled is after what time an object without a version is no publish that is under way.
	settled = 24 * time.Hour
)

// run is one verification.
type run struct {
	Verifier
	read  func(int64)
	trail *trail
	// missing are claims that the trail did not have when it was read first, by
	// subject.
	missing map[string][]claim

	mu     sync.Mutex
	report Report
}

// Run verifies the registry. Errors are those of reading it; what it finds is in the report.
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
	err := r.wait("listing what is stored", func() (err error) {
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
	part := part{what: "the mirror", prefixes: []string{"mirror/"}, entries: r.Catalog.MirrorEntries}
	if err := r.part(ctx, part); err != nil {
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
		r.add(Finding{Kind: Record, Path: "tokens", Detail: u.Err.Error(), Fix: "restore the item from a backup of the table, or remove it by `larder token revoke " + u.Name + "`: nobody gets in by its token as it is"})
	}
	if err := r.wait("comparing with the audit trail", func() error { return r.settleTrail(ctx) }); err != nil {
		return Report{}, err
	}
	r.report.Findings = sort(r.report.Findings)
	return r.report, nil
}

// wait does something of an unknown length, and reports that.
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

// namespaces returns those that are recorded, and those that objects and the audit trail tell of.
func (r *run) namespaces(ctx context.Context) ([]string, error) {
	recorded, err := r.Catalog.Namespaces(ctx)
	if err != nil {
		return nil, err
	}
	mirrored, err := r.Catalog.MirrorEntries(ctx)
	if err != nil {
		return nil, err
	}
	// A catalog without anything is one that was lost, or into which nobody has published yet.
	if len(recorded)+len(mirrored)+len(r.trail.addresses()) == 0 {
		r.AtRest = true
	}
	names := make(map[string]bool)
	for _, name := range recorded {
		names[name] = true
	}
	for _, path := range r.trail.addresses() {
		if kind, rest, _ := strings.Cut(path, "/"); kind != "mirror" {
			name, _, _ := strings.Cut(rest, "/")
			names[name] = true
		}
	}
	for name := range r.trail.keys {
		names[name] = true
	}
	for _, kind := range []string{"modules/", "providers/"} {
		if err := r.Objects.Walk(ctx, kind, func(info objects.Info) error {
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

// part is what is verified at a time.
type part struct {
	what string
	// prefixes are those of its objects.
	prefixes []string
	// entries are the paths that the catalog has of it.
	entries func(context.Context) ([]string, error)
}

// has says whether a path is one of it.
func (p part) has(path string) bool {
	return slices.ContainsFunc(p.prefixes, func(prefix string) bool { return strings.HasPrefix(path, prefix) })
}

func (r *run) part(ctx context.Context, p part) error {
	stored := make(map[string][]objects.Info) // by path
	var size int64
	if err := r.wait("listing "+p.what, func() error {
		for _, prefix := range p.prefixes {
			if err := r.Objects.Walk(ctx, prefix, func(info objects.Info) error {
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
	// A publish puts objects first: an address that comes in between has an entry and none of these objects, which is asked again.
	entries, err := p.entries(ctx)
	if err != nil {
		return err
	}
	for _, path := range entries {
		if !p.has(path) {
			r.add(Finding{Kind: CatalogEntry, Path: path, Detail: "it is in the catalog of " + p.what + ", and not of that",
				Fix: "remove the item from the table (see docs/verify-and-restore.md), of that catalog alone: no release has written it there, and `larder list` shows it"})
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
	// What has failed in the group is why the rest was cancelled.
	return cmp.Or(group.Wait(), err)
}

// pathOf returns the path of the address that a key of an object begins with, or as much of it as the key has.
func pathOf(key string) string {
	parts := strings.Split(key, "/")
	n := 4
	if parts[0] == "providers" {
		n = 3
	}
	return strings.Join(parts[:min(n, len(parts)-1)], "/")
}

// addressOf returns the address that has a path, or nil where none has it.
func addressOf(path string) registry.Address {
	var a registry.Address
	var err error
	switch kind, address, _ := strings.Cut(path, "/"); kind {
	case "modules":
		a, err = registry.ParseModule(address)
	case "providers":
		a, err = registry.ParseProvider(address)
	case "mirror":
		a, err = registry.ParseMirrorProvider(address)
	}
	if err != nil || a == nil || a.Path() != path {
		return nil
	}
	return a
}

// address verifies what is published or mirrored under a path, and its objects.
func (r *run) address(ctx context.Context, group *errgroup.Group, path string, infos []objects.Info) error {
	switch a := addressOf(path).(type) {
	case registry.Module:
		return verifyAddress(ctx, r, group, r.module(a), infos)
	case registry.Provider:
		return verifyAddress(ctx, r, group, r.provider(a), infos)
	case registry.MirrorProvider:
		return verifyAddress(ctx, r, group, r.mirrored(a), infos)
	}
	if len(infos) == 0 {
		r.add(Finding{Kind: CatalogEntry, Path: path, Detail: "it is there under what is no address", Fix: "remove the item from the table (see docs/verify-and-restore.md): nothing can be published there"})
	}
	for _, info := range infos {
		r.add(orphan(path, info))
	}
	return nil
}

// subject is one module, provider or mirrored provider.
type subject[A registry.Address, R registry.Record] struct {
	address  A
	versions catalog.Versions[A, R]
	// count returns where such addresses are counted.
	count func(*Report) *int
	// checks returns what there is to verify of a version. Checks use the record
	// that they get, which may have grown since.
	checks func(R) []check[R]
}

// check verifies one thing of a version. What it finds has neither path nor version yet.
type check[R registry.Record] func(ctx context.Context, record R, read func(int64)) ([]Finding, error)

func verifyAddress[A registry.Address, R registry.Record](ctx context.Context, r *run, group *errgroup.Group, s subject[A, R], infos []objects.Info) error {
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
		for _, look := range s.checks(record) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			group.Go(func() error {
				found, err := twice(ctx, r, s, record, look)
				if err != nil {
					return fmt.Errorf("%s %s: %w", s.address.Path(), record.Number(), err)
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

// lost reports the versions that have no record any more, and returns their names.
func lost[A registry.Address, R registry.Record](r *run, s subject[A, R], stored catalog.Stored[R]) (names []string) {
	report := func(v registry.Version, why string) {
		names = append(names, v.String())
		r.add(Finding{Kind: VersionWithoutRecord, Path: s.address.Path(), Version: v.String(), Detail: why + ", and its record is lost"})
	}
	for _, v := range stored.Lost {
		report(v, "the listing or the catalog entry has it")
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
		if !recorded[v] && !unreadable && !slices.ContainsFunc(stored.Withdrawn, v.Same) && !slices.Contains(stored.Lost, v) {
			why := "the audit trail has it as published"
			if done.has(registry.AuditWithdraw) {
				why = "the audit trail has it as withdrawn"
			}
			report(v, why)
		}
	}
	return names
}

// twice looks at a version again where something is found, with its record as it is then: it may have been taken out of the
// registry since, or a key have been added.
func twice[A registry.Address, R registry.Record](ctx context.Context, r *run, s subject[A, R], record R, look check[R]) ([]Finding, error) {
	found, err := look(ctx, record, func(n int64) {
		r.read(n)
		r.count(func(r *Report) { r.Bytes += n })
	})
	// An object may also go while it is read.
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
	return look(ctx, record, func(int64) {})
}

// derived reports what is not as the versions make it, and mends it if that is wanted.
func derived[A registry.Address, R registry.Record](ctx context.Context, r *run, s subject[A, R], stored catalog.Stored[R]) error {
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
		f := Finding{Kind: Kind(m.What), Path: s.address.Path(), Detail: m.Detail, Fix: m.Do, Repaired: repaired}
		if f.Fix == "" && !stored.Rebuildable {
			f.Fix = "mend the versions of this address first, and run it again with --repair then"
		}
		if f.Kind == Namespace {
			f.Path = "namespaces/" + strings.Split(s.address.Path(), "/")[1]
		}
		r.add(f)
	}
	return nil
}

// orphans reports objects that no version has.
func orphans[A registry.Address, R registry.Record](ctx context.Context, r *run, s subject[A, R], stored catalog.Stored[R], lost []string, infos []objects.Info) error {
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
		if err != nil {
			return err
		}
		if v := withdrawn(s, stored, info); v != "" {
			r.add(Finding{Kind: WithdrawnObject, Path: s.address.Path(), Version: v, Object: info.Key, Detail: fmt.Sprintf("the version is withdrawn, and %d bytes of it are still stored", now.Size)})
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
			f.Fix = "keep it, and mend its version first, which has lost its record"
		case manifest:
			f.Note, f.Detail = true, f.Detail+": it is a manifest, and should have expired: "+
				"see if the bucket expires objects with the tag "+objects.Tag+"="+objects.TagStaged
		case isUploaded(s.address.Path(), info.Key) && (!r.AtRest || published):
			f.Note, f.Detail = true, f.Detail+": it came through the publish API, and was not published"
		case !r.AtRest && r.Now().Sub(now.Modified) < settled:
			f.Note, f.Detail = true, f.Detail+": it is of the last 24 hours, and may be of a publish that is under way"
		}
		r.add(f)
	}
	return nil
}

// unused returns the objects that no version has. Those below a version whose record cannot be read may be its own.
func unused[A registry.Address, R registry.Record](s subject[A, R], stored catalog.Stored[R], infos []objects.Info) (left []objects.Info) {
	used := make(map[string]bool)
	for _, record := range stored.Records {
		for _, f := range record.Files() {
			used[f.Object] = true
		}
	}
	for _, info := range infos {
		if !used[info.Key] && !slices.ContainsFunc(stored.Unreadable, func(u catalog.Unreadable) bool { return below(info.Key, s.address.Path()+"/"+u.Name) }) {
			left = append(left, info)
		}
	}
	return left
}

// below reports whether a key is below that of a version, whatever the version's
// build metadata.
func below(key, version string) bool {
	rest, found := strings.CutPrefix(key, version)
	return found && (strings.HasPrefix(rest, "/") || strings.HasPrefix(rest, "+"))
}

// withdrawn returns the withdrawn version that an object is of, if it is.
func withdrawn[A registry.Address, R registry.Record](s subject[A, R], stored catalog.Stored[R], info objects.Info) string {
	for _, v := range stored.Withdrawn {
		if strings.HasPrefix(info.Key, s.address.Path()+"/"+v.String()+"/") {
			return v.String()
		}
	}
	return ""
}

// orphan is the finding of an object that no version has.
func orphan(path string, info objects.Info) Finding {
	f := Finding{Kind: ObjectWithoutVersion, Path: path, Object: info.Key, Detail: fmt.Sprintf("no version has it, %d bytes", info.Size)}
	if version, _, ok := strings.Cut(strings.TrimPrefix(info.Key, path+"/"), "/"); ok {
		f.Version = version
	}
	return f
}

// isStagedManifest reports whether an object is the manifest of a provider that
// came through the publish API. What it says is in the version's record, so that
// the API does not keep it, and it expires.
func isStagedManifest(a registry.Address, key string) bool {
	_, provider := a.(registry.Provider)
	return provider && isUploaded(a.Path(), key) && releases.IsManifest(key)
}

// isUploaded reports whether an object came through the publish API. It may be
// staged.
func isUploaded(path, key string) bool {
	_, rest, _ := strings.Cut(strings.TrimPrefix(key, path+"/"), "/")
	return strings.HasPrefix(rest, "api/")
}

// keys reports keys of a namespace that cannot be read, by us or by clients.
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
		r.add(Finding{Kind: Record, Path: "keys/" + namespace, Detail: u.Err.Error(), Fix: "add the key again by `larder key add NAMESPACE FILE`, which writes over what is there, or restore the item from a backup of the table"})
	}
	return err
}
