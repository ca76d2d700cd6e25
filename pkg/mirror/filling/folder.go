package filling

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/content/archive"
	"github.com/larder-registry/larder/pkg/files/regularfile"
	"github.com/larder-registry/larder/pkg/files/textfile"
	"github.com/larder-registry/larder/pkg/mirror/admission"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/progress"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
)

// The folder that `tofu providers mirror` or `terraform providers mirror`
// writes contains HOSTNAME/NAMESPACE/TYPE folders. Each has an index.json,
// VERSION.json files and zips. The JSON files are documents of the provider
// network mirror protocol, with relative URLs.
const (
	indexFile = "index.json"
	// maxDocument is the maximum size of a JSON document in bytes.
	maxDocument = 16 << 20
)

// folderPackage is a package in a folder, with its expected hashes.
type folderPackage struct {
	platform registry.Platform
	filename string
	hashes   []string
}

// folderProvider is a version of a provider in a folder.
type folderProvider struct {
	dir      string
	address  registry.MirrorAddress
	version  registry.Version
	packages []folderPackage
}

// Import mirrors everything in a folder, and verifies it with the hashes in the
// folder's documents. It skips providers whose hostname has a port, because no
// client uses a mirror for them. It returns [registry.ErrInvalid] if there are
// no other providers, or if a document is damaged, and then mirrors nothing. If
// one version cannot be mirrored, it continues with the others.
//
// The folder can have SHA256SUMS of a version, each with its signature and the keys
// of the origin, as [Mirror.Export] writes them. Then Import verifies each package
// with the one that lists it, and decides about the key as [Mirror.Add] does. It
// stores the packages of one SHA256SUMS after those of another. So a version can lack
// those whose key is not trusted, until the folder is imported again.
//
// The policy of the mirror applies, as for a request of all platforms. If it names
// signing keys, Import refuses packages without a signature. It also refuses them
// for a version that was refused because of its key. It has no publication times
// other than those that [Mirror.Add] has recorded. It compares them with the clock
// of this machine, and no origin's clock confirms that.
//
// The folder can have modules, as Export writes them. Import compares the files of each
// with its pin, and binds the version to it, as Add does.
func (m *Mirror) Import(ctx context.Context, dir string) ([]Result, error) {
	modules, err := readFolderModules(dir)
	var found []folderProvider
	if err == nil {
		found, err = m.readFolder(dir, len(modules) > 0)
	}
	if err != nil {
		return nil, err
	}
	policy, err := m.policy(ctx)
	if err != nil {
		return nil, err
	}
	var results []Result
	var failed []error
	deciders := make(map[registry.MirrorAddress]*importer) // nil for those that failed
	each := func(address registry.MirrorAddress, v registry.Version, do func(*importer) (Result, error)) {
		d, decided := deciders[address]
		if !decided && ctx.Err() == nil {
			if d, err = m.decideImport(ctx, policy, address); err != nil {
				failed = append(failed, fmt.Errorf("cannot import %s: %w", address, err))
			}
			deciders[address] = d
		}
		if d == nil || ctx.Err() != nil {
			return
		}
		if result, err := do(d); err != nil {
			failed = append(failed, fmt.Errorf("cannot import %s %s: %w", address, v, err))
		} else {
			results = append(results, result)
		}
	}
	for _, p := range found {
		each(p.address, p.version, func(d *importer) (Result, error) { return m.importVersion(ctx, d, p) })
	}
	for _, f := range modules {
		each(f.address, f.version, func(d *importer) (Result, error) { return m.importModule(ctx, d.decider, f) })
	}
	if ctx.Err() != nil && len(failed) == 0 {
		failed = append(failed, ctx.Err())
	}
	return results, errors.Join(failed...)
}

// decideImport returns the decider for a provider of a folder, or nil and an
// error. It returns [registry.ErrNotAdmitted] if the policy denies the address.
func (m *Mirror) decideImport(ctx context.Context, policy *registry.MirrorPolicy, address registry.MirrorAddress) (
	*importer, error,
) {
	d, err := m.decide(policy, address)
	if err == nil {
		err = d.load(ctx)
	}
	if err == nil {
		err = d.checkSeen()
	}
	var records []registry.MirrorVersion
	if err == nil {
		records, err = m.records(ctx, address)
	}
	if err != nil {
		return nil, err
	}
	return &importer{d, signers(records)}, nil
}

// checkSeen returns [registry.ErrInvalid] if this machine's clock shows a time
// before that of a sighting and a minimum age applies.
func (d *decider) checkSeen() error {
	latest := d.origin.SeenAt
	for _, v := range d.origin.Versions {
		if v.SeenAt.After(latest) {
			latest = v.SeenAt
		}
	}
	if d.rule.MinAge == 0 || latest.Sub(d.now) <= maxSkew {
		return nil
	}
	return registry.WithHint(fmt.Errorf("%w clock: this machine's clock shows %s, but the mirror saw the provider at %s, "+
		"so the ages of versions would be wrong", registry.ErrInvalid, admission.ShowTime(d.now), admission.ShowTime(latest)),
		"Set the clock of this machine.")
}

// checkUnsigned checks what the policy requires of a package without a signature,
// and that its version was not refused because of its key.
func (d *decider) checkUnsigned(v registry.Version) error {
	_, err := admission.CheckKey(d.rule, registry.OriginKey{})
	if err := d.object(v, err); err != nil {
		return registry.WithHint(err, "The folder has no signature of it. Use `larder mirror add`, or overrule the "+
			"policy with `--overrule REASON`.")
	}
	for _, r := range d.origin.Refused {
		if named, _ := admission.CheckKey(d.rule, r.Key); r.Version.Same(v) && !named {
			return d.untrusted(r.Key)
		}
	}
	return nil
}

// checkImport checks what else the policy requires of a version to import.
func (d *decider) checkImport(v registry.Version, stored bool) error {
	if err := d.object(v, d.denied); err != nil || stored {
		return err
	}
	err := d.ready(v)
	early, ok := errors.AsType[admission.TooNewError](err)
	if _, seen := d.seen[v]; ok && !seen {
		return registry.WithHint(fmt.Errorf("%w: the mirror never saw the version at its origin, so its age is unknown "+
			"(minimum age %s)", registry.ErrNotAdmitted, admission.ShowAge(d.rule.MinAge)),
			"Overrule the policy with `--overrule REASON`.")
	}
	if ok {
		return d.notAdmitted([]admission.TooNewError{early})
	}
	return err
}

// importNotes returns notes about what is not known of a version to import.
func (d *decider) importNotes(v registry.Version, signed, stored bool) (notes []string) {
	if len(d.origin.Keys) > 0 && !signed {
		notes = append(notes, "the mirror has signing keys of this provider, but the folder has no signature of it")
	}
	if !stored && d.rule.MinAge > 0 && d.seen[v].Admitted == nil && len(d.overruled[v]) == 0 && d.available(v).AgeUnknown {
		notes = append(notes, "no publication time is recorded, so its age is unknown")
	}
	return notes
}

func (m *Mirror) importVersion(ctx context.Context, d *importer, p folderProvider) (Result, error) {
	result := Result{Address: p.address, Version: p.version}
	record, err := m.stored(ctx, p.address, p.version)
	if err != nil {
		return Result{}, err
	}
	var all, excluded []registry.Platform
	for _, pkg := range p.packages {
		all = append(all, pkg.platform)
	}
	if all, excluded = d.allowed(all); len(excluded) > 0 {
		result.Notes = append(result.Notes, "the mirror policy does not allow it for "+list(excluded))
	}
	if len(all) == 0 {
		return Result{}, d.checkNamed(excluded)
	}
	signed, err := d.verify(p)
	if err != nil {
		return Result{}, err
	}
	var found []importedPackage
	var unusable []error
	for _, pkg := range p.packages {
		if !slices.Contains(all, pkg.platform) {
			continue
		}
		one, err := m.importPackage(ctx, d, p, pkg, record, signed)
		if err != nil {
			return Result{}, err
		}
		found = append(found, one)
		result.Packages = append(result.Packages, PackageResult{pkg.platform, one.status})
		unusable = append(unusable, one.unusable)
	}
	result.Notes = append(result.Notes, unusableNotes(unusable)...)
	of := func(i int) []importedPackage {
		return slices.DeleteFunc(slices.Clone(found), func(one importedPackage) bool { return one.sums != i })
	}
	for i := range signed {
		if err := d.decide(ctx, p.version, of(i), &signed[i]); err != nil {
			return Result{}, err
		}
	}
	for i, s := range signed {
		if record, err = m.storeImport(ctx, d, p, record, of(i), s, &result); err != nil {
			return Result{}, err
		}
	}
	return result, nil
}

// importedPackage is a verified package of a folder. It has a signing key if a
// signed SHA256SUMS of the folder lists it.
type importedPackage struct {
	publish.MirrorPackage
	sums   int                     // the index of the SHA256SUMS that lists it, or 0
	stored *registry.MirrorPackage // nil if there is none
	status string
	// unusable is why clients cannot run the program of a new package, or nil.
	unusable error
}

// importPackage verifies a package of a folder, and checks whether it may be
// mirrored.
func (m *Mirror) importPackage(ctx context.Context, d *importer, p folderProvider, pkg folderPackage,
	record registry.MirrorVersion, signed []signature) (one importedPackage, err error) {
	path := filepath.Join(p.dir, pkg.filename)
	found, err := archive.ReadProviderFile(ctx, path, p.address.Name, m.Progress)
	if err == nil {
		err = checkHashes(pkg.hashes, found.H1, "zh:"+found.SHA256)
	}
	if err != nil {
		return one, fmt.Errorf("%s: %w", pkg.filename, err)
	}
	filename := p.address.Filename(p.version, pkg.platform)
	at, listed, err := listing(signed, filename, found.SHA256)
	if err != nil {
		return one, err
	}
	if one.stored, err = find(p.address, record, pkg.platform, found.SHA256); err != nil {
		return one, err
	}
	there := false
	if one.stored != nil {
		filename = one.stored.Filename // restore it under its stored name
		if there, err = m.has(ctx, one.stored); err != nil {
			return one, err
		}
	}
	one.MirrorPackage = inspected(pkg.platform, filename, path, found)
	if one.sums = at; listed {
		one.SigningKey = signed[at].key.ID
	}
	switch {
	case there && one.stored.SigningKey == "" && one.SigningKey != "":
		one.status = Verified
		return one, nil
	case there:
		one.status = Unchanged
		return one, nil
	case one.stored != nil:
		one.status = Restored
	default:
		one.status = Added
	}
	one.unusable = checkProgram(one.MirrorPackage, found)
	err = d.checkImport(p.version, len(record.Packages) > 0)
	if err == nil && one.SigningKey == "" {
		err = d.checkUnsigned(p.version)
	}
	if err == nil {
		err = d.object(p.version, admission.CheckPlatform(d.rule, pkg.platform))
	}
	if err == nil {
		err = d.checkSize(p.version, found.Size)
	}
	return one, err
}

// storeImport stores what is new of a version, unless it is a dry run. It returns the
// new record.
func (m *Mirror) storeImport(ctx context.Context, d *importer, p folderProvider, record registry.MirrorVersion,
	found []importedPackage, signed signature, result *Result) (registry.MirrorVersion, error) {
	var packages []publish.MirrorPackage
	var added, confirmed []registry.MirrorPackage
	for _, one := range found {
		switch {
		case one.status == Verified:
			with := *one.stored
			with.SigningKey = one.SigningKey
			confirmed = append(confirmed, with)
			continue
		case one.status == Unchanged:
			continue
		case one.stored == nil:
			added = append(added, registry.MirrorPackage{ProviderPackage: one.ProviderPackage})
		}
		packages = append(packages, one.MirrorPackage)
	}
	signs := slices.ContainsFunc(found, func(one importedPackage) bool { return one.SigningKey != "" })
	if signs && signed.untrusted == nil {
		result.Signer, result.Owner = signed.key.ID, signed.key.Owner
	}
	if len(packages) > 0 {
		result.Notes = append(result.Notes, d.importNotes(p.version, signs, len(record.Packages) > 0)...)
	}
	if len(packages)+len(confirmed) > 0 {
		note, err := d.settleAll(ctx, p.version, found, signed)
		result.Notes = append(result.Notes, note...)
		if err != nil {
			return record, err
		}
	}
	sums, err := m.newSums(ctx, p.address, record, added, signed)
	if err != nil || m.DryRun || len(packages)+len(confirmed) == 0 && sums == nil {
		return record, err
	}
	more := registry.MirrorVersion{Version: p.version, Packages: confirmed}
	if record, _, err = m.Publisher.MirrorSigned(ctx, p.address, more, packages, sums); err == nil && len(packages) > 0 {
		m.outdate(ctx, result)
	}
	return record, err
}

// checkHashes checks a package's hashes against the named ones. It must have
// one of the named hashes for each scheme that they use. A document may also
// name hashes for other platforms.
func checkHashes(named []string, has ...string) error {
	checked := false
	for _, h := range has {
		scheme, _, _ := strings.Cut(h, ":")
		same := func(n string) bool { return strings.HasPrefix(n, scheme+":") }
		if !slices.ContainsFunc(named, same) {
			continue
		}
		if checked = true; !slices.Contains(named, h) {
			return fmt.Errorf("%w package: it has %s, but its document lists %s",
				registry.ErrInvalid, h, strings.Join(slices.DeleteFunc(slices.Clone(named), func(n string) bool {
					return !same(n)
				}), ", "))
		}
	}
	if !checked {
		return fmt.Errorf("%w package: its document has neither an h1 nor a zh hash for it", registry.ErrInvalid)
	}
	return nil
}

// mirrorFolder is the hint for a folder with other content.
const mirrorFolder = "Name the folder that you gave to `tofu providers mirror`."

// readFolder reads the documents of the providers of a folder. It sorts the versions by
// address and number. optional means that there need not be one.
func (m *Mirror) readFolder(dir string, optional bool) ([]folderProvider, error) {
	m.step("reading %s", dir)
	if _, err := os.Stat(dir); err != nil {
		return nil, registry.WithHint(registry.Errorf(registry.ErrInvalid, "%w", regularfile.Unreadable(dir, err)),
			mirrorFolder)
	}
	indexes, err := fs.Glob(os.DirFS(dir), "*/*/*/"+indexFile)
	if err != nil {
		return nil, err
	}
	if len(indexes) == 0 && !optional {
		err := fmt.Errorf("%w folder: there is no HOSTNAME/NAMESPACE/TYPE/%s in %s", registry.ErrInvalid, indexFile, dir)
		return nil, registry.WithHint(err, mirrorFolder)
	}
	var found []folderProvider
	var skipped []string
	for _, index := range indexes {
		name := filepath.ToSlash(filepath.Dir(index))
		address, err := registry.ParseMirrorProvider(name)
		if hostname, _, _ := strings.Cut(name, "/"); err != nil && strings.Contains(hostname, ":") {
			if skipped = append(skipped, name); len(skipped) == len(indexes) && !optional {
				return nil, err // there are no other providers
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		versions, err := readFolderProvider(filepath.Join(dir, filepath.FromSlash(name)), address)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		found = append(found, versions...)
	}
	for _, name := range skipped {
		if m.Skip != nil {
			m.Skip(name, "no client can use a mirror for a hostname with a port")
		}
	}
	return found, nil
}

func readFolderProvider(dir string, address registry.MirrorAddress) ([]folderProvider, error) {
	text, err := textfile.Read(filepath.Join(dir, indexFile), maxDocument)
	if err != nil {
		return nil, err
	}
	versions, err := parseIndex(text)
	if err != nil {
		return nil, err
	}
	var found []folderProvider
	for _, name := range slices.Sorted(maps.Keys(versions)) {
		document := name + ".json"
		text, err := textfile.Read(filepath.Join(dir, document), maxDocument)
		if err != nil {
			return nil, err
		}
		packages, err := parseVersion(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", document, err)
		}
		if len(packages) > 0 {
			found = append(found, folderProvider{dir, address, versions[name], packages})
		}
	}
	slices.SortFunc(found, func(a, b folderProvider) int { return registry.CompareVersions(a.version, b.version) })
	return found, nil
}

// parseIndex parses an index.json. It returns the versions by the names of
// their documents.
func parseIndex(text []byte) (map[string]registry.Version, error) {
	var index protocol.MirrorIndex
	if err := json.Unmarshal(text, &index); err != nil || index.Versions == nil {
		return nil, fmt.Errorf(`%w folder: %s must look like {"versions": {"1.0.0": {}}}`, registry.ErrInvalid, indexFile)
	}
	versions := make(map[string]registry.Version)
	for name := range index.Versions {
		v, err := registry.ParseVersion(name)
		if err != nil {
			return nil, err
		}
		if v.String() != name {
			return nil, fmt.Errorf("%w version %q: write it as %s", registry.ErrInvalid, name, v)
		}
		versions[name] = v
	}
	return versions, nil
}

// parseVersion parses a VERSION.json. It sorts the packages by platform.
func parseVersion(text []byte) ([]folderPackage, error) {
	var version protocol.MirrorPackages
	if err := json.Unmarshal(text, &version); err != nil || version.Archives == nil {
		return nil, fmt.Errorf(
			`%w folder: it must look like {"archives": {"linux_amd64": {"url": "….zip", "hashes": ["h1:…"]}}}`,
			registry.ErrInvalid)
	}
	var packages []folderPackage
	for _, name := range slices.Sorted(maps.Keys(version.Archives)) {
		platform, err := registry.ParsePlatform(name)
		if err != nil {
			return nil, err
		}
		a := version.Archives[name]
		// Base does not change ".", ".." and "/", which are not file names.
		if a.URL != filepath.Base(a.URL) || slices.Contains([]string{".", "..", "/"}, a.URL) || !errs.IsPlain(a.URL) {
			return nil, fmt.Errorf(
				"%w folder: the url of %s must be the name of a file in the same folder, not %.200q", registry.ErrInvalid,
				platform, a.URL)
		}
		packages = append(packages, folderPackage{platform, a.URL, a.Hashes})
	}
	return packages, nil
}

// Export writes the mirrored versions of some providers and modules, or of all, to a
// folder. Providers have the format of `providers mirror`. Beside them, it writes each SHA256SUMS that
// packages refer to, instead of those of an earlier export. It leaves other content
// of the folder as it is, and does not write existing zips again. It writes
// documents after the files that they name. If a stored part of a version is missing
// or damaged, it continues with the others.
func (m *Mirror) Export(ctx context.Context, dir string, addresses []registry.MirrorAddress) ([]Result, error) {
	if len(addresses) == 0 {
		for summary, err := range m.Catalog.Mirror.Summaries(ctx, "") {
			if err != nil {
				return nil, err
			}
			address, err := registry.ParseMirrorAddress(summary.Address)
			if err != nil {
				return nil, err
			}
			addresses = append(addresses, address)
		}
	}
	var results []Result
	var failed []error
	for _, address := range addresses {
		exported, err := m.exportAddress(ctx, dir, address)
		results = append(results, exported...)
		if err != nil {
			failed = append(failed, fmt.Errorf("cannot export %s: %w", address, err))
		}
		if err != nil && !isDamage(err) {
			break
		}
	}
	return results, errors.Join(failed...)
}

// isDamage reports whether something stored is missing or damaged, which does not
// affect other versions.
func isDamage(err error) bool {
	return errors.Is(err, registry.ErrCorrupt) || errors.Is(err, registry.ErrInvalid)
}

func (m *Mirror) exportAddress(ctx context.Context, dir string, address registry.MirrorAddress) ([]Result, error) {
	records, err := m.records(ctx, address)
	if err != nil {
		return nil, err
	}
	records = slices.DeleteFunc(records, func(r registry.MirrorVersion) bool { return r.Withdrawn != nil })
	if len(records) == 0 {
		return nil, registry.ErrNotFound
	}
	folder := filepath.Join(address.Hostname, address.Namespace, address.Name)
	if address.IsModule() {
		folder = filepath.FromSlash(address.Path())
	}
	dir = filepath.Join(dir, folder)
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // for a web server to read
		return nil, regularfile.Unwritable(dir, err)
	}
	if address.IsModule() {
		return m.exportModule(ctx, dir, address, records)
	}
	return m.exportProvider(ctx, dir, address, records)
}

func (m *Mirror) exportProvider(ctx context.Context, dir string, address registry.MirrorAddress,
	records []registry.MirrorVersion) ([]Result, error) {
	index := protocol.MirrorIndex{Versions: make(map[string]struct{})}
	if err := readBefore(filepath.Join(dir, indexFile), func(text []byte) error {
		versions, err := parseIndex(text)
		for name := range versions {
			index.Versions[name] = struct{}{}
		}
		return err
	}); err != nil {
		return nil, err
	}
	var results []Result
	var failed []error
	for _, record := range records {
		result, err := m.exportVersion(ctx, dir, address, record)
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", record.Version, err))
			if isDamage(err) {
				continue
			}
			return results, errors.Join(failed...)
		}
		results = append(results, result)
		index.Versions[record.Version.String()] = struct{}{}
	}
	if len(results) > 0 {
		failed = append(failed, writeDocument(filepath.Join(dir, indexFile), index))
	}
	return results, errors.Join(failed...)
}

// readBefore parses a document of the folder if it exists.
func readBefore(path string, parse func([]byte) error) error {
	text, err := textfile.Read(path, maxDocument)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = parse(text)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func (m *Mirror) exportVersion(ctx context.Context, dir string, address registry.MirrorAddress,
	record registry.MirrorVersion) (Result, error) {
	result := Result{Address: address, Version: record.Version}
	document := protocol.MirrorPackages{Archives: make(map[string]protocol.MirrorArchive)}
	path := filepath.Join(dir, record.Version.String()+".json")
	if err := readBefore(path, func(text []byte) error {
		packages, err := parseVersion(text)
		for _, p := range packages {
			document.Archives[p.platform.String()] = protocol.MirrorArchive{URL: p.filename, Hashes: p.hashes}
		}
		return err
	}); err != nil {
		return Result{}, err
	}
	if err := m.exportSums(ctx, dir, address, record); err != nil {
		return Result{}, err
	}
	for _, pkg := range record.Packages {
		filename := address.Filename(record.Version, pkg.Platform)
		status, err := m.exportFile(ctx, filepath.Join(dir, filename), pkg.StoredFile)
		if err != nil {
			return Result{}, fmt.Errorf("%s: %w", filename, repairable(address, record.Version, pkg.Platform, err))
		}
		document.Archives[pkg.String()] = protocol.MirrorArchive{URL: filename, Hashes: []string{pkg.H1, "zh:" + pkg.SHA256}}
		result.Packages = append(result.Packages, PackageResult{pkg.Platform, status})
	}
	return result, writeDocument(path, document)
}

// exportFile writes and verifies a stored file, unless it exists.
func (m *Mirror) exportFile(ctx context.Context, path string, file registry.StoredFile) (string, error) {
	want := objects.Digest{SHA256: file.SHA256, Size: file.Size}
	if f, err := regularfile.Open(path); err == nil {
		checked, end := m.transfer("checking "+filepath.Base(path), file.Size)
		err = objects.Copy(io.Discard, progress.Reader(f, checked), want)
		end()
		_ = f.Close()
		if err == nil {
			return Unchanged, nil
		}
	}
	stored, err := m.open(ctx, file)
	if err != nil {
		return "", err
	}
	defer stored.Close()
	written, end := m.transfer("writing "+filepath.Base(path), file.Size)
	defer end()
	return Added, writeFile(path, func(w io.Writer) error {
		return objects.Copy(io.MultiWriter(w, progress.Writer(written)), stored, want)
	})
}

func writeDocument(path string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(path, func(w io.Writer) error {
		_, err := io.Copy(w, bytes.NewReader(append(text, '\n')))
		return err
	})
}

// writeFile writes a complete file, or none.
func writeFile(path string, write func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".larder-*")
	if err != nil {
		return regularfile.Unwritable(path, err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	err = write(f)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
