package filling

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dustin/go-humanize/english"
	"golang.org/x/sync/errgroup"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/mirror/admission"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
)

// maxSkew is how much this machine's clock may differ from that of an origin.
// If a minimum age is shorter than twice this time, half of it is the limit.
const maxSkew = 24 * time.Hour

// decider decides what of one provider may be mirrored, in one run.
type decider struct {
	m       *Mirror
	address registry.MirrorAddress
	rule    registry.MirrorRule
	// denied is why the policy denies the address, if an operator overrules that.
	denied error
	now    time.Time
	// origin is the stored record of the origin. A dry run adds to it what other
	// runs would store.
	origin registry.MirrorOrigin
	seen   map[registry.Version]registry.SeenVersion
	// mirrored are the mirrored versions.
	mirrored []registry.Version
	// state is that of a [Pull], or nil.
	state *catalog.MirrorState
	// found gets the changes of the record, if the caller of a [Pull] stores them.
	found *findings
	// admitting is the reason for which an operator admits the version admitted.
	// It is empty if that is not the purpose of the run.
	admitting string
	// importing means that the content of versions comes from a folder.
	importing bool
	admitted  registry.Version
	// early reports whether the version needs that.
	early bool

	mu sync.Mutex
	// learned are publication times that the listing of the origin lacks.
	learned map[registry.Version]time.Time
	// failed are the errors of requests for them.
	failed map[registry.Version]error
	// times requests the times of all versions, once. It is nil before.
	times func() (map[registry.Version]time.Time, error)
	// clockless means that this machine's clock may be wrong, so that sightings
	// are not recorded.
	clockless bool
	// overruled are the objections that an operator overrules.
	overruled map[registry.Version][]string
	// accepted are the changes of modules at the origin that an operator accepts.
	accepted map[registry.Version]string
}

// policy returns the policy of the mirror, or nil if there is none.
func (m *Mirror) policy(ctx context.Context) (*registry.MirrorPolicy, error) {
	policies, err := m.policies(ctx)
	if err != nil {
		return nil, err
	}
	return policies.Get(ctx)
}

// policies returns the policy of the mirror for a run with several providers,
// which can take long. It returns an error if the policy cannot be read.
func (m *Mirror) policies(ctx context.Context) (*admission.Policies, error) {
	if m.Overrule != "" {
		if err := rules.CheckReason(m.Overrule); err != nil {
			return nil, err
		}
	}
	policies := admission.NewPolicies(m.Catalog, m.Now)
	_, err := policies.Get(ctx)
	return policies, err
}

// mirrorEach is [Mirror.mirror] with the policy of now.
func (m *Mirror) mirrorEach(ctx context.Context, policies *admission.Policies, w Wanted) ([]Result, error) {
	policy, err := policies.Get(ctx)
	if err != nil {
		return nil, fmt.Errorf("cannot mirror %s: %w", w.Address, err)
	}
	return m.mirror(ctx, policy, w)
}

// decide returns the decider for a provider. If the policy denies the address,
// and is not overruled, it returns [registry.ErrNotAdmitted].
func (m *Mirror) decide(policy *registry.MirrorPolicy, address registry.MirrorAddress) (*decider, error) {
	return m.decideWanted(policy, Wanted{Address: address})
}

// decideWanted is [Mirror.decide] for a run that can admit a version.
func (m *Mirror) decideWanted(policy *registry.MirrorPolicy, w Wanted) (*decider, error) {
	d := &decider{
		m: m, address: w.Address, now: m.now(), admitting: w.admitting,
		learned:   make(map[registry.Version]time.Time),
		failed:    make(map[registry.Version]error),
		overruled: make(map[registry.Version][]string), accepted: make(map[registry.Version]string),
	}
	if w.exact != nil {
		d.admitted = *w.exact
	}
	var err error
	if d.rule, err = admission.RuleOf(policy, w.Address); err != nil {
		if m.Overrule == "" {
			return nil, d.orOverrule(err, "Change the policy with `larder mirror policy set`")
		}
		d.rule, d.denied = registry.MirrorRule{}, err
	}
	return d, nil
}

// orOverrule returns an error with the hint to do something, or to overrule the
// policy. Who admits a version cannot overrule the policy in the same run.
func (d *decider) orOverrule(err error, do string) error {
	if d.admitting == "" {
		return registry.WithHint(err, "%s, or overrule it with `--overrule REASON`.", do)
	}
	return registry.WithHint(err, "%s, or run `larder mirror add %s --version %s --platform PLATFORMS --overrule REASON`.",
		do, d.address, d.admitted)
}

func (m *Mirror) now() time.Time {
	if m.Now != nil {
		return m.Now()
	}
	return time.Now()
}

// object returns an objection of the policy to a version, or nil if an operator
// overrules it.
func (d *decider) object(v registry.Version, err error) error {
	if err == nil || d.m.Overrule == "" {
		return err
	}
	text := admission.Reason(err)
	if !slices.Contains(d.overruled[v], text) {
		d.overruled[v] = append(d.overruled[v], text)
	}
	return nil
}

// checkNamed checks platforms that an operator names. If the policy is
// overruled, they are checked for each version, so that each is audited.
func (d *decider) checkNamed(platforms []registry.Platform) error {
	if d.m.Overrule != "" {
		return nil
	}
	for _, p := range platforms {
		if err := admission.CheckPlatform(d.rule, p); err != nil {
			return d.orOverrule(err, "Name other platforms, change the policy")
		}
	}
	return nil
}

// allowed returns the platforms that the policy allows, and the others. If the
// policy is overruled, it allows all.
func (d *decider) allowed(platforms []registry.Platform) (allowed, excluded []registry.Platform) {
	for _, p := range platforms {
		if d.m.Overrule == "" && admission.CheckPlatform(d.rule, p) != nil {
			excluded = append(excluded, p)
		} else {
			allowed = append(allowed, p)
		}
	}
	return allowed, excluded
}

// maxSize returns the maximum size of a package in bytes.
func (d *decider) maxSize() int64 {
	if d.m.Overrule != "" || d.rule.MaxSize == 0 {
		return maxPackage
	}
	return min(d.rule.MaxSize, maxPackage)
}

// tooLarge returns the error for a package of more than maxSize bytes.
func (d *decider) tooLarge() error {
	err := registry.Errorf(client.ErrTooLarge, "%w", fmt.Errorf(
		"%w: it has more than %s, the maximum in line %d of the mirror policy", registry.ErrNotAdmitted,
		mebibytes(d.rule.MaxSize), d.rule.Line))
	return d.orOverrule(err, "Change the policy")
}

func mebibytes(size int64) string { return fmt.Sprintf("%.1f MiB", float64(size)/(1<<20)) }

func (d *decider) checkSize(v registry.Version, size int64) error {
	if d.rule.MaxSize == 0 || size <= d.rule.MaxSize {
		return nil
	}
	return d.object(v, d.tooLarge())
}

// load reads the record of the origin.
func (d *decider) load(ctx context.Context) error {
	if d.found != nil {
		return nil // it was read before
	}
	o, err := d.m.Catalog.Mirror.Origin(ctx, d.address)
	if err == nil {
		d.set(o)
	}
	return err
}

func (d *decider) set(o registry.MirrorOrigin) {
	d.origin = o
	d.seen = make(map[registry.Version]registry.SeenVersion, len(o.Versions))
	for _, v := range o.Versions {
		d.seen[v.Version] = v
	}
}

// update changes the record of the origin. A dry run and a [Pull] change only the
// copy in memory.
func (d *decider) update(ctx context.Context,
	edit func(o *registry.MirrorOrigin) (changed bool, entry *registry.AuditEntry, err error)) error {
	if d.m.DryRun || d.found != nil {
		o := d.origin
		o.Versions = slices.Clone(o.Versions)
		if _, _, err := edit(&o); err != nil {
			return err
		}
		d.set(o)
		if d.found != nil {
			d.found.edits = append(d.found.edits, edit)
		}
		return nil
	}
	o, err := d.m.Catalog.Mirror.UpdateOrigin(ctx, d.address, edit)
	if err != nil {
		return tableError{err}
	}
	d.set(o)
	return nil
}

// see records the versions that the origin lists, unless it cannot compare the
// clock of this machine with date, the time of the origin's clock. If the clock
// is wrong, ages are wrong too. If a minimum age applies, that is then
// [registry.ErrInvalid].
func (d *decider) see(ctx context.Context, offered []client.OfferedVersion, date time.Time) error {
	limit := maxSkew
	if d.rule.MinAge > 0 {
		limit = min(limit, time.Duration(d.rule.MinAge)*time.Second/2)
	}
	skew := d.now.Sub(date).Abs()
	switch {
	case !date.IsZero() && skew <= limit:
	case d.rule.MinAge == 0, date.IsZero() && d.m.Overrule != "":
		d.clockless = true
		return d.load(ctx)
	case date.IsZero():
		return d.orOverrule(fmt.Errorf("%w response of %s: it has no Date header, so this machine's clock cannot be "+
			"checked, and a minimum age applies", registry.ErrInvalid, d.address.Hostname),
			"Change the policy")
	default:
		return registry.WithHint(fmt.Errorf("%w clock: this machine's clock shows %s, and that of %s shows %s, "+
			"so the ages of versions would be wrong", registry.ErrInvalid, admission.ShowTime(d.now), d.address.Hostname,
			admission.ShowTime(date)), "Set the clock of this machine.")
	}
	published := make(map[registry.Version]time.Time, len(offered))
	for _, v := range offered {
		published[v.Version] = v.PublishedAt
	}
	return d.record(ctx, published)
}

// record records versions of the origin, with their publication times.
func (d *decider) record(ctx context.Context, published map[registry.Version]time.Time) error {
	if d.m.DryRun {
		if err := d.load(ctx); err != nil {
			return err
		}
	}
	return d.update(ctx, func(o *registry.MirrorOrigin) (bool, *registry.AuditEntry, error) {
		return o.See(published, d.now), nil, nil
	})
}

// timesOf returns the service with the publication times of all versions, if the
// origin is a public registry that has one. An origin at another URL, which an
// operator has named, can have other versions.
func (d *decider) timesOf(origin *client.Service) (*client.Service, bool) {
	if d.rule.Upstream != "" || origin.URL.Host != d.address.Hostname {
		return nil, false
	}
	return origin.Times()
}

// learn requests the publication times of versions, if a minimum age applies
// and they are not known. ready returns the errors if the times can matter. If
// one request returns the times of all versions, learn adds all that are not
// known, so that later runs need no request.
func (d *decider) learn(ctx context.Context, service *client.Service, all []client.OfferedVersion) {
	if d.rule.MinAge == 0 {
		return
	}
	// Select the versions first, because the requests change d.learned.
	var asked []registry.Version
	matters := make(map[registry.Version]bool)
	for _, v := range all {
		known := d.seen[v.Version]
		if !known.PublishedAt.IsZero() {
			continue
		}
		// If a version without a time is too new, one with a time is too.
		matters[v.Version] = known.Admitted == nil && d.available(v.Version).Ready(d.now)
		if matters[v.Version] || known.Admitted != nil || d.admitting != "" || d.m.Overrule != "" {
			asked = append(asked, v.Version)
		}
	}
	request := func(v registry.Version) (time.Time, error) {
		return service.PublishedAt(ctx, d.address.AtOrigin(), v)
	}
	if all, ok := d.timesOf(service); ok && len(asked) > 0 {
		if d.times == nil {
			d.times = sync.OnceValues(func() (map[registry.Version]time.Time, error) {
				return all.VersionTimes(ctx, d.address.AtOrigin())
			})
		}
		published, err := d.times()
		for v, known := range d.seen {
			if at, found := published[v]; found && known.PublishedAt.IsZero() {
				d.learned[v] = at
			}
		}
		request = func(v registry.Version) (time.Time, error) { return published[v], err }
	}
	var group errgroup.Group
	group.SetLimit(parallel)
	for _, v := range asked {
		group.Go(func() error {
			at, err := request(v)
			d.mu.Lock()
			defer d.mu.Unlock()
			if err != nil && matters[v] {
				d.failed[v] = registry.WithHint(fmt.Errorf("cannot find out when it was published: %w", err), "%s",
					strings.TrimSpace(fmt.Sprintf("%s To mirror it anyway, run `%s`.", registry.Hint(err), d.admitCommand(v))))
			} else if err == nil && !at.IsZero() {
				d.learned[v] = at
			}
			return nil
		})
	}
	_ = group.Wait() // d.failed has the errors
}

// recordLearned records the publication times that learn has found, if see has
// recorded the versions.
func (d *decider) recordLearned(ctx context.Context) error {
	if d.clockless || len(d.learned) == 0 {
		return nil
	}
	return d.update(ctx, func(o *registry.MirrorOrigin) (bool, *registry.AuditEntry, error) {
		return o.Learn(d.learned), nil, nil
	})
}

// available returns when a version may be mirrored.
func (d *decider) available(v registry.Version) admission.Availability {
	known, ok := d.seen[v]
	known.Version = v
	if at, found := d.learned[v]; found && at.After(known.PublishedAt) {
		known.PublishedAt = at
	}
	return admission.AvailabilityOf(d.rule, known, ok, d.now)
}

// ready returns nil if a version may be mirrored now, or an [admission.TooNewError]. If an
// operator admits the version, settle records that.
func (d *decider) ready(v registry.Version) error {
	failed := d.failed[v]
	switch {
	case failed == nil:
	case d.admitting != "":
		d.early = true
		return nil
	case d.m.Overrule != "":
		return d.object(v, fmt.Errorf("%w: cannot find out when it was published", registry.ErrNotAdmitted))
	default:
		return failed
	}
	a := d.available(v)
	if a.Ready(d.now) {
		return nil
	}
	if d.admitting != "" {
		d.early = true
		return nil
	}
	return d.object(v, admission.TooNewError{Version: v, Until: a.At, MinAge: d.rule.MinAge, Unknown: a.AgeUnknown})
}

func (d *decider) admit(o *registry.MirrorOrigin, v registry.Version) *registry.AuditEntry {
	o.Admit(v, d.decision(d.admitting))
	entry := d.entry(registry.AuditAdmit, d.admitting)
	entry.Version = &v
	return entry
}

func (d *decider) decision(reason string) registry.Decision {
	return registry.Decision{At: d.now.UTC().Truncate(time.Second), By: d.m.Publisher.By.String(), Reason: reason}
}

func (d *decider) entry(action registry.AuditAction, detail string) *registry.AuditEntry {
	return &registry.AuditEntry{By: d.m.Publisher.By.String(), Action: action, Detail: detail}
}

func (d *decider) notAdmitted(waiting []admission.TooNewError) error {
	first := slices.MinFunc(waiting, func(a, b admission.TooNewError) int { return a.Until.Compare(b.Until) })
	more := ""
	if first != waiting[0] {
		more = fmt.Sprintf(", and %s", waiting[0])
	}
	return registry.WithHint(fmt.Errorf("%w: %w%s", registry.ErrNotAdmitted, first, more),
		"Wait, or run `%s`.", d.admitCommand(first.Version))
}

// admitCommand returns the command that admits a version. It needs platforms if
// neither the policy nor a mirrored version has them.
func (d *decider) admitCommand(v registry.Version) string {
	command := fmt.Sprintf("larder mirror admit %s %s --reason WHY", d.address, v)
	if !d.address.IsModule() && len(d.rule.Platforms) == 0 && len(d.mirrored) == 0 {
		command += " --platform PLATFORMS"
	}
	return command
}

// maxWaiting is the maximum number of notes about versions that are too new.
const maxWaiting = 3

func waitingNotes(waiting []admission.TooNewError) []string {
	var notes []string
	for _, v := range waiting[:min(len(waiting), maxWaiting)] {
		notes = append(notes, v.Error())
	}
	if more := len(waiting) - maxWaiting; more > 0 {
		notes = append(notes, english.Plural(more, "more newer version is too new", "more newer versions are too new"))
	}
	return notes
}
