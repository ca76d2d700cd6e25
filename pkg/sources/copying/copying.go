// Package copying copies modules and providers from one registry to another.
//
// The origin is any registry that speaks the protocols, or the store of a
// Larder. A module of another Larder is copied byte for byte. A module of any
// other registry is fetched as clients fetch it, and packed. The SHA256SUMS
// and the signature of a provider stay the same.
//
// Every version is published in one write, so a copy can be interrupted at any
// point and run again. It then does only what is missing.
package copying

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dustin/go-humanize/english"
	"golang.org/x/sync/errgroup"

	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/files/temporary"
	"github.com/larder-registry/larder/pkg/progress"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
)

// parallel is the number of versions that are copied at once.
const parallel = 4

// Origin is a registry to copy from.
type Origin interface {
	// Name is the host of the registry, or the name of its store.
	Name() string
	// Versions lists the versions of a module or a provider. It returns
	// registry.ErrNotFound if there are none.
	Versions(ctx context.Context, a registry.Address) (Listing, error)
	// Describe completes a listed version with its description at the origin.
	Describe(ctx context.Context, a registry.Address, v Version) (Version, error)
	// Module fetches a version of a module into an empty folder. The result has
	// the Dir or the Archive to publish, and nothing else.
	Module(ctx context.Context, m registry.Module, v Version, dir string) (rules.Module, error)
	// Provider fetches the SHA256SUMS and the signature of a provider into an empty
	// folder, and verifies the signature.
	Provider(ctx context.Context, p registry.Provider, v Version, dir string) (Release, error)
	// AddCopy records in the origin that a version was copied to a target. It
	// returns [ErrNoTrail] if the origin is not a Larder.
	AddCopy(ctx context.Context, a registry.Address, v registry.Version, target string) error
	// Documentation returns the documentation of a version. It returns
	// registry.ErrNotFound if the registry has none.
	Documentation(ctx context.Context, m registry.Module, v registry.Version) (docs.Documentation, error)
}

// ErrNoTrail means that an origin does not record copies.
var ErrNoTrail = errors.New("the registry does not record copies")

// OriginError is an error of an origin, and not of the target.
type OriginError struct{ error }

// Unwrap returns the error.
func (e *OriginError) Unwrap() error { return e.error }

func ofOrigin(err error) error {
	if err == nil {
		return nil
	}
	return &OriginError{err}
}

// Target is a registry to copy to.
type Target interface {
	// Name is the host of the registry, or the name of its store.
	Name() string
	// Published returns a published version. It returns registry.ErrNotFound if
	// the version is not published, or if the caller may not read it.
	Published(ctx context.Context, a registry.Address, v registry.Version) (Version, error)
	// Module and Provider publish a version.
	Module(ctx context.Context, m rules.Module) (rules.ModuleResult, error)
	Provider(ctx context.Context, p rules.Provider) (rules.ProviderResult, error)
	// Trusts returns registry.ErrInvalid if the namespace of a provider lacks the
	// key, or has no key at all if key has no ID. It returns nil if the keys of the
	// target cannot be listed.
	Trusts(ctx context.Context, namespace string, key registry.SigningKey) error
	// AddKey adds a key to a namespace, unless it has it, and reports whether it is new.
	AddKey(ctx context.Context, namespace string, key registry.SigningKey) (isNew bool, err error)
	// Deprecation returns why all versions are deprecated, or "". It returns "" as
	// well if the caller may not read that.
	Deprecation(ctx context.Context, a registry.Address) (string, error)
	// Deprecate deprecates a version, or all versions if v is nil.
	Deprecate(ctx context.Context, a registry.Address, v *registry.Version, message string, hide bool) error
	// Sources returns the sources of all versions of a module, as in
	// [registry.CopiedFrom]. The source of a version that was not copied is "". It
	// returns registry.ErrNotFound if there are no versions.
	Sources(ctx context.Context, m registry.Module) ([]string, error)
	// Documentation is like that of [Origin].
	Documentation(ctx context.Context, m registry.Module, v registry.Version) (docs.Documentation, error)
}

// Listing has the versions of a module or a provider.
type Listing struct {
	// Versions are sorted, the highest first.
	Versions []Version
	// Withdrawn are the withdrawn versions, if the origin names them.
	Withdrawn []registry.Version
	// Other are versions that Larder cannot publish, such as 1.2.3.4.
	Other []string
	// Deprecated is why all versions are deprecated.
	Deprecated string
}

// Version is a version of an origin or a target. Fields are empty if the
// registry does not have them.
type Version struct {
	Number      registry.Version
	PublishedAt time.Time
	PublishedBy registry.Publisher
	Claimed     *registry.ClaimedSource
	Description string
	// Deprecated is why the version is deprecated. Hidden means that it is not
	// listed either.
	Deprecated string
	Hidden     bool
	// SHA256 is the digest of the archive of a module, or of the SHA256SUMS of a
	// provider. Content is the digest of the files of a module.
	SHA256, Content string
	// CopiedFrom is where a version of a target was copied from.
	CopiedFrom *registry.CopiedFrom
}

// sameContent reports whether two versions are known to be the same, and
// whether that is known at all.
func (v Version) sameContent(other Version) (same, known bool) {
	switch {
	case v.SHA256 != "" && v.SHA256 == other.SHA256:
		return true, true
	case v.Content != "" && other.Content != "":
		return v.Content == other.Content, true
	}
	return false, v.SHA256 != "" && other.SHA256 != "" && v.Content == ""
}

// Release is a release of a provider.
type Release struct {
	Protocols []string
	// Key is the public key that signed the release. It has no ID if the origin names
	// no key. NoKey is why the key cannot be added to a namespace, or nil.
	Key   registry.SigningKey
	NoKey error
	// Packages fetches the packages into the folder of the SHA256SUMS. It returns what
	// was left out.
	Packages func(ctx context.Context) (notes []string, err error)
}

// Wanted is a module or a provider to copy.
type Wanted struct {
	Address registry.Address
	// As is the address in the target. Only a module can get another name.
	As registry.Address
	// Exact selects one version. Otherwise Constraint selects versions, in the
	// syntax of required_providers. If both are empty, all versions are selected.
	Exact      *registry.Version
	Constraint string
}

// Copier copies from an origin to a target.
type Copier struct {
	Origin Origin
	Target Target
	// AddKeys adds the keys of copied providers to their namespaces.
	AddKeys bool
	// DryRun reports what would be copied. It fetches no packages, but verifies the
	// signatures of providers. It fetches modules only to follow their Dependencies.
	DryRun bool
	// Dependencies also copies the versions that clients install for the module
	// blocks of copied modules. It follows blocks that name the origin, or one of the
	// DependencyHosts, whose modules the origin has too.
	Dependencies    bool
	DependencyHosts []registry.Host
	// Progress may be nil.
	Progress progress.Reporter

	// denied has the errors of the target by the paths of addresses to which the
	// caller may not publish.
	denied sync.Map
	// addingKey lets one version add a key that several need.
	addingKey sync.Mutex
}

// Status is what happened to a version.
type Status string

// The statuses.
const (
	// Copied means that the version is new in the target. In a dry run it would be.
	Copied Status = "copied"
	// Unchanged means that the target has the same version already.
	Unchanged Status = "unchanged"
	// Skipped means that the version was withdrawn, or cannot be published.
	Skipped Status = "skipped"
	// Failed means that there was an error.
	Failed Status = "failed"
)

// Result is the result for one version.
type Result struct {
	Address, As registry.Address
	// Version is a text, because an origin can have versions that Larder cannot
	// publish.
	Version string
	Status  Status
	// Reason is why a version was skipped or failed.
	Reason string
	// Err is the error of a version that failed.
	Err error
	// SHA256 is the digest of the module's archive or of the provider's
	// SHA256SUMS in the target. It is empty if that is not known.
	SHA256 string
	// Deprecated is set if the deprecation was copied now. Hidden means that it
	// hides the version too.
	Deprecated string
	Hidden     bool
	// Notes describe what differs from the original.
	Notes []string
	// CalledBy is the first module with its version that has the version as a
	// dependency. It is empty if the version was wanted itself.
	CalledBy string
	// recorded reports whether the origin has recorded the copy. recordErr is why
	// it has not.
	recordErr error
	// unverified means that the version counts as unchanged, because it was copied
	// before and the origin has no digests.
	unverified bool

	number registry.Version
	origin Version // as described
	target Version // as published
}

// Report has the results of a copy.
type Report struct {
	Results []Result
	// NotFollowed are the module blocks that could not be followed.
	NotFollowed []NotFollowed
	// Notes concern the whole copy.
	Notes []string
}

// Copy copies the wanted versions. It continues with the other versions if one
// fails. The error then contains the first error, and the report has all. If ctx
// ends, Copy returns its error and a report of the versions that were copied
// before.
func (c *Copier) Copy(ctx context.Context, wanted []Wanted) (Report, error) {
	var report Report
	var jobs []*job
	var problems []error
	for _, w := range wanted {
		selected, skipped, err := c.choose(ctx, w)
		if err != nil {
			problems = append(problems, err)
			report.Results = append(report.Results, Result{Address: w.Address, As: w.As, Status: Failed,
				Reason: reason(err), Err: err})
			continue
		}
		report.Results = append(report.Results, skipped...)
		jobs = append(jobs, selected...)
	}
	c.run(ctx, jobs)
	if c.Dependencies {
		jobs = c.follow(ctx, wanted, jobs, &report)
	}
	if ctx.Err() == nil {
		report.Notes = append(report.Notes, c.deprecate(ctx, jobs)...)
	}
	for _, j := range jobs {
		if j.Status == "" || j.Err != nil && ctx.Err() != nil {
			continue // interrupted
		}
		report.Results = append(report.Results, j.Result)
		if j.Err != nil {
			problems = append(problems, j.Err)
		}
	}
	slices.SortStableFunc(report.Results, func(a, b Result) int {
		return cmp.Or(strings.Compare(a.Address.Path(), b.Address.Path()), registry.CompareVersions(b.number, a.number))
	})
	report.Notes = append(report.Notes, c.notes(jobs)...)
	switch total := len(report.Results); {
	case ctx.Err() != nil:
		return report, ctx.Err()
	case len(problems) == 0:
		return report, nil
	case total == 1:
		return report, problems[0]
	default:
		return report, fmt.Errorf("%d of %d failed: %w", len(problems), total, problems[0])
	}
}

// job is a version to copy.
type job struct {
	Result
	// exact means that the version is wanted by its number.
	exact bool
	// all is why all versions are deprecated.
	all string
	// calls are the module blocks to follow. callsErr is why they cannot be read, and
	// incomplete why some may be missing.
	calls      []call
	callsErr   error
	incomplete string
}

// choose lists the versions of an address and selects those that are wanted.
// It also returns results for those that are skipped.
func (c *Copier) choose(ctx context.Context, w Wanted) (selected []*job, skipped []Result, err error) {
	progress.Or(c.Progress).Step("listing the versions of " + w.Address.String())
	listing, err := c.Origin.Versions(ctx, w.Address)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot copy %s: %w", w.Address, ofOrigin(err))
	}
	matches, err := w.matcher()
	if err != nil {
		return nil, nil, err
	}
	for _, v := range listing.Versions {
		if matches(v.Number) {
			selected = append(selected, &job{exact: w.Exact != nil, all: listing.Deprecated, Result: Result{
				Address: w.Address, As: w.As, Version: v.Number.String(), number: v.Number, origin: v,
			}})
		}
	}
	skip := func(v registry.Version, text, why string) {
		skipped = append(skipped, Result{
			Address: w.Address, As: w.As, Version: text, Status: Skipped, Reason: why, number: v,
		})
	}
	for _, v := range listing.Withdrawn {
		if !matches(v) {
			continue
		}
		where := c.Origin.Name()
		if _, err := c.Target.Published(ctx, w.As, v); err == nil {
			where += ", but not in " + c.Target.Name()
		}
		if w.Exact != nil {
			return nil, nil, fmt.Errorf("cannot copy %s %s: it is %w in %s", w.Address, v, registry.ErrWithdrawn, where)
		}
		skip(v, v.String(), "withdrawn in "+where)
	}
	if w.Exact == nil {
		for _, text := range listing.Other {
			skip(registry.Version{}, text, "not a semantic version")
		}
	}
	if len(selected) == 0 && len(skipped) == 0 {
		what := "versions"
		if w.Exact != nil {
			what = "version " + w.Exact.String()
		} else if w.Constraint != "" {
			what = "version that meets " + w.Constraint
		}
		return nil, nil, registry.WithHint(
			fmt.Errorf("cannot copy %s: %s has no %s: %w", w.Address, c.Origin.Name(), what, registry.ErrNotFound),
			"%s", newest(listing))
	}
	return selected, skipped, nil
}

// newest describes the newest version of a listing, for a hint.
func newest(l Listing) string {
	if len(l.Versions) == 0 {
		return "Some registries list no versions to a caller who may not read them. Check the credential."
	}
	return "Its newest version is " + l.Versions[0].Number.String() + "."
}

func (w Wanted) matcher() (func(registry.Version) bool, error) {
	if w.Exact != nil {
		return w.Exact.Same, nil
	}
	if strings.TrimSpace(w.Constraint) == "" {
		return func(registry.Version) bool { return true }, nil
	}
	acceptable, err := registry.ParseConstraint(w.Constraint)
	return acceptable.Has, err
}

// run copies several versions at once, the oldest first, so that a publish finds a
// version before to count the changes.
func (c *Copier) run(ctx context.Context, jobs []*job) {
	var done sync.Mutex
	count := 0
	var group errgroup.Group
	group.SetLimit(parallel)
	for _, j := range slices.Backward(jobs) {
		group.Go(func() error {
			if ctx.Err() != nil || j.Status == Failed {
				return nil // the caller returns it
			}
			if err := c.one(ctx, j); err != nil {
				j.Status, j.Err, j.Reason = Failed, fmt.Errorf("%s %s: %w", j.Address, j.Version, err), reason(err)
			} else if c.Dependencies && j.inTarget() {
				j.calls, j.callsErr = c.calls(ctx, j)
			}
			done.Lock()
			defer done.Unlock()
			count++
			status := string(j.Status)
			if c.DryRun {
				status = "compared"
			}
			progress.Or(c.Progress).Step(fmt.Sprintf("%s %s %s (%d of %d)", status, j.Address, j.Version, count, len(jobs)))
			return nil
		})
	}
	_ = group.Wait() // there are no errors
}

func reason(err error) string {
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	if hint := registry.Hint(err); hint != "" {
		text += ". " + hint
	}
	return text
}

// one copies a version, and records the copy in the origin.
func (c *Copier) one(ctx context.Context, j *job) (err error) {
	if j.origin, err = c.Origin.Describe(ctx, j.Address, j.origin); err != nil {
		return ofOrigin(err)
	}
	from := registry.CopiedFrom{
		Source:      c.Origin.Name() + "/" + j.Address.String(),
		PublishedAt: j.origin.PublishedAt, PublishedBy: j.origin.PublishedBy,
		Claimed: j.origin.Claimed,
	}
	if err := from.Check(); err != nil { // the origin's texts are too long
		from = registry.CopiedFrom{Source: from.Source}
	}
	published, err := c.Target.Published(ctx, j.As, j.number)
	switch {
	case errors.Is(err, registry.ErrWithdrawn):
		return j.withdrawn(c.Target.Name())
	case err == nil:
		unchanged, err := c.unchanged(j, published, from)
		if err != nil {
			return err
		}
		if unchanged {
			j.Status, j.SHA256, j.target = Unchanged, published.SHA256, published
			return c.record(ctx, j)
		}
	case !errors.Is(err, registry.ErrNotFound):
		return err
	}
	if denied, ok := c.denied.Load(j.As.Path()); ok {
		err, _ = denied.(error)
		return err // nothing is fetched in vain
	}
	err = c.publish(ctx, j, from)
	_, ofOrigin := errors.AsType[*OriginError](err)
	switch {
	case err == nil:
		return c.record(ctx, j)
	case errors.Is(err, registry.ErrWithdrawn) && ofOrigin:
		return j.withdrawn(c.Origin.Name())
	case errors.Is(err, registry.ErrWithdrawn):
		return j.withdrawn(c.Target.Name())
	case !ofOrigin && (errors.Is(err, registry.ErrForbidden) || errors.Is(err, registry.ErrUnauthenticated)):
		c.denied.Store(j.As.Path(), err)
	}
	return err
}

// withdrawn skips a version that a registry has withdrawn. It returns an error if
// the version is wanted by its number.
func (j *job) withdrawn(host string) error {
	if j.exact {
		return fmt.Errorf("%w in %s", registry.ErrWithdrawn, host)
	}
	j.Status, j.Reason = Skipped, "withdrawn in "+host
	return nil
}

// unchanged reports whether the target has the content of the origin. If the
// origin has no digests, a version that was copied from there counts as
// unchanged. unchanged returns registry.ErrExists for other content.
func (c *Copier) unchanged(j *job, published Version, from registry.CopiedFrom) (bool, error) {
	same, known := j.origin.sameContent(published)
	switch {
	case same:
		return true, nil
	case known:
		return false, registry.WithHint(
			fmt.Errorf("%w in %s with other content", registry.ErrExists, c.Target.Name()),
			"A published version cannot change. Find out which of the two registries has the right one.")
	}
	j.unverified = published.CopiedFrom != nil && published.CopiedFrom.Source == from.Source
	return j.unverified, nil
}

// publish fetches and publishes a version. A dry run ends before that.
func (c *Copier) publish(ctx context.Context, j *job, from registry.CopiedFrom) (err error) {
	m, isModule := j.Address.(registry.Module)
	if isModule && c.DryRun {
		j.Status = Copied
		return nil
	}
	dir, err := temporary.Folder("larder-copy-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	progress.Or(c.Progress).Step(fmt.Sprintf("fetching %s %s", j.Address, j.Version))
	if isModule {
		return c.publishModule(ctx, j, m, from, dir)
	}
	p, _ := j.Address.(registry.Provider) // the caller has parsed one of both
	return c.publishProvider(ctx, j, p, from, dir)
}

func (c *Copier) publishModule(
	ctx context.Context, j *job, m registry.Module, from registry.CopiedFrom, dir string,
) error {
	fetched, err := c.Origin.Module(ctx, m, j.origin, dir)
	if err != nil {
		return ofOrigin(err)
	}
	fetched.Address, _ = j.As.(registry.Module)
	fetched.Version, fetched.CopiedFrom = j.number, &from
	if rules.CheckDescription(j.origin.Description) == nil {
		fetched.Description = j.origin.Description
	}
	result, err := c.Target.Module(ctx, fetched)
	if err != nil {
		return err
	}
	r := result.Record
	j.settle(result.Unchanged && !result.Restored, Version{
		SHA256: r.SHA256, Deprecated: r.Deprecated, Hidden: r.Hidden, CopiedFrom: r.CopiedFrom,
	})
	for _, e := range result.Excluded {
		j.Notes = append(j.Notes, "excluded "+e.String())
	}
	j.Notes = append(j.Notes, result.LoadNotes...)
	if n := len(result.Secrets); n > 0 {
		note := result.Secrets[0].String()
		if n > 1 {
			note += fmt.Sprintf(", the first of %d", n)
		}
		j.Notes = append(j.Notes, note)
	}
	for _, source := range result.Sources {
		if host, _, _ := strings.Cut(source, "/"); strings.EqualFold(host, c.Origin.Name()) {
			j.Notes = append(j.Notes, fmt.Sprintf("it uses %s, which clients still install from there", source))
		}
	}
	return nil
}

func (c *Copier) publishProvider(
	ctx context.Context, j *job, p registry.Provider, from registry.CopiedFrom, dir string,
) error {
	as, _ := j.As.(registry.Provider)
	release, err := c.Origin.Provider(ctx, p, j.origin, dir)
	if err != nil {
		return ofOrigin(err)
	}
	if !c.AddKeys {
		if err := c.Target.Trusts(ctx, as.Namespace, release.Key); err != nil {
			return err
		}
	}
	if c.AddKeys && release.NoKey != nil {
		return ofOrigin(release.NoKey)
	}
	added := fmt.Sprintf("key %s (%s) to namespace %s", release.Key.ID, release.Key.Owner, as.Namespace)
	if c.DryRun {
		if c.AddKeys && c.Target.Trusts(ctx, as.Namespace, release.Key) != nil {
			j.Notes = append(j.Notes, "would add "+added)
		}
		j.Status = Copied
		return nil
	}
	notes, err := release.Packages(ctx)
	if err != nil {
		return ofOrigin(err)
	}
	if c.AddKeys {
		isNew, err := c.addKey(ctx, as.Namespace, release.Key)
		if err != nil {
			return err
		}
		if isNew {
			notes = append(notes, "added "+added)
		}
	}
	result, err := c.Target.Provider(ctx, rules.Provider{
		Dir: dir, Address: as, Protocols: release.Protocols, CopiedFrom: &from,
	})
	if err != nil {
		return err
	}
	r := result.Record
	j.Notes = append(notes, r.Notes...)
	j.settle(result.Unchanged && !result.Restored, Version{
		SHA256: r.Sums.SHA256, Deprecated: r.Deprecated, CopiedFrom: r.CopiedFrom,
	})
	return nil
}

func (c *Copier) addKey(ctx context.Context, namespace string, key registry.SigningKey) (isNew bool, err error) {
	c.addingKey.Lock()
	defer c.addingKey.Unlock()
	return c.Target.AddKey(ctx, namespace, key)
}

func (j *job) settle(unchanged bool, published Version) {
	j.Status, j.SHA256, j.target = Copied, published.SHA256, published
	if unchanged {
		j.Status = Unchanged
	}
}

// record records the copy in the origin, if the version of the target is a copy
// of it. An origin that refuses is only a note, since the version is copied.
func (c *Copier) record(ctx context.Context, j *job) error {
	source := c.Origin.Name() + "/" + j.Address.String()
	if c.DryRun || j.target.CopiedFrom == nil || j.target.CopiedFrom.Source != source {
		return nil
	}
	err := c.Origin.AddCopy(ctx, j.Address, j.number, c.Target.Name()+"/"+j.As.String())
	switch {
	case err == nil, errors.Is(err, ErrNoTrail):
		return nil
	case errors.Is(err, registry.ErrForbidden), errors.Is(err, registry.ErrUnauthenticated),
		errors.Is(err, registry.ErrBadCredential), errors.Is(err, registry.ErrNotFound):
		j.recordErr = err
		return nil
	}
	return fmt.Errorf("it is copied, but %s does not record that: %w", c.Origin.Name(), err)
}

// deprecate copies deprecations, and returns notes about those of all versions.
// It runs after all versions are published, since the only version of a module
// cannot be hidden.
func (c *Copier) deprecate(ctx context.Context, jobs []*job) (notes []string) {
	byAddress := make(map[string][]*job)
	var order []string
	for _, j := range jobs {
		if path := j.As.Path(); len(byAddress[path]) == 0 {
			order = append(order, path)
		}
		byAddress[j.As.Path()] = append(byAddress[j.As.Path()], j)
	}
	for _, path := range order {
		all := byAddress[path]
		note, err := c.deprecateAll(ctx, all)
		if err != nil {
			all[0].fail(err)
		}
		if note != "" {
			notes = append(notes, note)
		}
		for _, j := range all {
			if err := c.deprecateVersion(ctx, j); err != nil {
				j.fail(err)
			}
		}
	}
	return notes
}

// deprecateAll copies the deprecation of all versions of an address, unless the
// target has one.
func (c *Copier) deprecateAll(ctx context.Context, jobs []*job) (note string, err error) {
	first := jobs[0]
	if first.all == "" || first.CalledBy != "" || !slices.ContainsFunc(jobs, (*job).inTarget) {
		return "", nil
	}
	existing, err := c.Target.Deprecation(ctx, first.As)
	if err != nil || existing != "" {
		return "", err
	}
	if c.DryRun {
		return fmt.Sprintf("%s would be deprecated: %s", first.As, first.all), nil
	}
	if err := c.Target.Deprecate(ctx, first.As, nil, first.all, false); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s is deprecated now: %s", first.As, first.all), nil
}

func (j *job) inTarget() bool { return j.Status == Copied || j.Status == Unchanged }

// fail marks a version as failed because of its deprecation.
func (j *job) fail(err error) {
	err = fmt.Errorf("it is copied, but not deprecated: %w", err)
	j.Status, j.Err, j.Reason = Failed, fmt.Errorf("%s %s: %w", j.Address, j.Version, err), reason(err)
}

// deprecateVersion copies the deprecation of a version. It does not replace one
// of a version that the target had before.
func (c *Copier) deprecateVersion(ctx context.Context, j *job) error {
	message, existing := j.origin.Deprecated, j.target.Deprecated
	if !j.inTarget() || message == "" || message == j.all || existing != "" && existing != j.all {
		return nil
	}
	if !c.DryRun {
		if err := c.Target.Deprecate(ctx, j.As, &j.number, message, j.origin.Hidden); err != nil {
			return err
		}
	}
	j.Deprecated, j.Hidden = message, j.origin.Hidden
	return nil
}

// notes returns the notes about the whole copy.
func (c *Copier) notes(jobs []*job) (notes []string) {
	unverified := 0
	for _, j := range jobs {
		if j.Status == Unchanged && j.unverified {
			unverified++
		}
	}
	if unverified > 0 {
		notes = append(notes, fmt.Sprintf("%s copied before and not compared, since %s has no digests",
			english.Plural(unverified, "version was", "versions were"), c.Origin.Name()))
	}
	at := slices.IndexFunc(jobs, func(j *job) bool { return j.recordErr != nil })
	if at >= 0 {
		notes = append(notes, fmt.Sprintf("%s does not record these copies: %s", c.Origin.Name(), reason(jobs[at].recordErr)))
	}
	return notes
}
