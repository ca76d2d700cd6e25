package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/mirror/admission"
	"github.com/larder-registry/larder/pkg/network/ipclass"
	"github.com/larder-registry/larder/pkg/registry"
)

// mirroredEdition is a version of a mirrored provider or module, with what the
// mirror has seen at the origin.
type mirroredEdition struct {
	edition[registry.MirrorVersion]

	origin registry.MirrorOrigin
	// rule is the rule of the policy for the address.
	rule registry.MirrorRule
	// denial is why the mirror takes no further versions. It is empty if the
	// policy allows the address.
	denial string
	now    time.Time
	// statuses are those of all versions that are not withdrawn, the newest
	// first. They include versions that are not mirrored, except for those on
	// request.
	statuses []admission.Status
	// pull is nil if clients cannot make the mirror fetch versions. pending are
	// those on request that clients requested. policy and slow explain them.
	pull    *onRequest
	pending []admission.Status
	policy  *registry.MirrorPolicy
	slow    registry.BackOff
}

// openMirrored is like [openEdition]. If the text is empty, and no version is
// mirrored but some wait, are refused or can be fetched, the edition shows no
// version.
//
// A policy or an origin that cannot be read is logged. The page then lacks what
// depends on it.
func (h *handler) openMirrored(ctx context.Context, p registry.MirrorAddress, text string) (*mirroredEdition, error) {
	numbers, err := numbersOf(text)
	if err != nil {
		return nil, err
	}
	c, err := h.Catalog.Mirror.ContentsAndOrigin(ctx, p, numbers...)
	if errors.Is(err, registry.ErrCorrupt) && c.Entry.Address != "" && len(c.Records) == len(numbers) {
		logDamage(ctx, err)
		err = nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p, err)
	}
	policy, err := h.mirrorPolicy(ctx)
	if err != nil {
		return nil, err
	}
	e := newMirroredEdition(p, c, policy, h.now())
	copies, err := h.Catalog.Mirror.PulledVersions(ctx, p, e.pendingVersions()...)
	if err != nil {
		return nil, err
	}
	for _, s := range e.failures(p, copies) {
		e.pull.Fields = append(e.pull.Fields, textField("Failed", s.Version.String()+": "+ipclass.Hide(s.Reason)))
	}
	err = e.choose(numbers)
	if text == "" && err != nil && (len(e.statuses) > 0 || e.pull != nil) {
		return e, nil
	}
	return e, err
}

// mirrorPolicy returns the policy of the mirror, or nil if there is none. One that
// cannot be read is logged.
func (h *handler) mirrorPolicy(ctx context.Context) (*registry.MirrorPolicy, error) {
	policy, err := h.policies.Get(ctx)
	if errors.Is(err, registry.ErrCorrupt) {
		logDamage(ctx, err)
		err = nil
	}
	return policy, err
}

// newMirroredEdition returns an edition that shows no version yet.
func newMirroredEdition(
	p registry.MirrorAddress, c catalog.MirrorContents, policy *registry.MirrorPolicy, now time.Time,
) *mirroredEdition {
	e := &mirroredEdition{origin: c.Origin, now: now, policy: policy, slow: c.Pulled.Forgotten(now).Slow}
	e.Contents, e.Path = c.Contents, "/"+p.Path()
	rule, err := admission.RuleOf(policy, p)
	if err == nil {
		e.rule = rule
	} else {
		e.denial = sentence(cmp.Or(rule.Reason, "The mirror policy does not allow this "+p.Kind()))
	}
	stored := admission.Stored{Listed: e.Listed, Excluded: e.Entry.Withdrawn, Origin: e.origin, Pulled: c.Pulled.Forgotten(e.now)}
	e.statuses = admission.StatusesOf(policy, p, stored, e.now)
	e.setPull(p, admission.PullOf(policy, p, stored, e.statuses))
	return e
}

func (e *mirroredEdition) isModule() bool {
	return strings.HasPrefix(e.Path, "/"+registry.MirrorModulePrefix)
}

func (e *mirroredEdition) isEmpty() bool { return e.Entry.Unlisted && len(e.Entry.Withdrawn) == 0 }

// all returns all versions, the newest first.
func (e *mirroredEdition) all() []registry.Version {
	all := slices.Clone(e.Entry.Withdrawn)
	for _, s := range e.statuses {
		all = append(all, s.Version)
	}
	slices.SortFunc(all, func(a, b registry.Version) int { return registry.CompareVersions(b, a) })
	return all
}

// shown returns the versions in the table of the page: the newest ones, and that
// of the page.
func (e *mirroredEdition) shown() []registry.Version {
	all := e.all()
	return slices.DeleteFunc(slices.Clone(all), func(n registry.Version) bool {
		return n != e.Number && slices.Index(all, n) >= pickable
	})
}

// picker is that of the mirrored versions, since the others have no page.
func (e *mirroredEdition) picker() picker {
	p := e.edition.picker()
	p.Total = len(e.all())
	return p
}

// banner returns the one notice of the page that counts most, or nil.
func (e *mirroredEdition) banner() *banner {
	waits, found := e.waiting()
	change := e.change()
	switch {
	case e.record().Withdrawn != nil:
		return e.edition.banner()
	case change != "":
		return &banner{
			Tone: "warn", Strong: "This is not what the origin has now.",
			Text:  sentence(change) + " To accept that, an operator runs " + e.command("admit", e.Number.String()),
			Links: e.waysOut(current),
		}
	case e.denial != "":
		return &banner{Tone: "note", Strong: noneFollow, Text: e.denial, Links: e.waysOut(current)}
	case !found:
		return e.edition.banner()
	}
	minAge := time.Duration(e.rule.MinAge) * time.Second
	age := "a version " + admission.ShowAge(e.rule.MinAge) + " after its release"
	if waits.AvailableAt.Add(-minAge).After(waits.PublishedAt) {
		age = "this version " + admission.ShowAge(e.rule.MinAge) + " after it first saw it"
	}
	when := "`larder mirror sync` or `add` next runs"
	if e.pull != nil {
		when = "a client requests it"
	}
	return &banner{
		Tone: "note", Strong: fmt.Sprintf("%s can be mirrored from %s.", waits.Version, moment(roundUp(waits.AvailableAt))),
		Text:  "The mirror takes " + age + ", when " + when + ".",
		Links: e.waysOut(current),
	}
}

// change returns how the origin has changed the shown version, or an empty string.
func (e *mirroredEdition) change() string {
	for _, s := range e.statuses {
		if s.Version == e.Number && s.ChangedTo != (registry.ModulePin{}) {
			return changeOf(s)
		}
	}
	return ""
}

// changeOf returns how the origin has changed a version, for people.
func changeOf(s admission.Status) string {
	return ipclass.Hide(s.Reason)
}

// noneFollow is the notice for an address that the policy denies.
const noneFollow = "The mirror takes no further versions."

// waiting returns the version that is next to become available, if it is newer
// than all mirrored ones.
func (e *mirroredEdition) waiting() (next admission.Status, found bool) {
	for _, s := range e.statuses {
		if !e.Entry.Unlisted && registry.CompareVersions(s.Version, e.Entry.Latest) <= 0 {
			break
		}
		if s.State == admission.TooNew && s.Version.Prerelease == "" &&
			(!found || s.AvailableAt.Before(next.AvailableAt)) {
			next, found = s, true
		}
	}
	return next, found
}

// mirroredRow is a version in the table of a mirrored provider or module.
type mirroredRow struct {
	listed

	// Released is when the origin has published the version, and Seen when the
	// mirror first saw it. They are the zero time if that is unknown.
	Released, Seen time.Time
	// Admitted is set if an operator has admitted the version early.
	Admitted *decision
	// AvailableAt is when a version that is too new can be mirrored, in whole
	// minutes.
	AvailableAt time.Time
	// Refused is set if the version is refused because of its signature. Key is
	// then the ID of the key, or empty if there is no signature. KeyDenied means
	// that the policy names other keys.
	Refused, KeyDenied bool
	Key                string
	// Change is how the origin has changed the version of a module.
	Change string
	// Content is the mirrored content in short: the platforms, or the commit of
	// a module.
	Content string
	// IsModule means that it is a version of a module.
	IsModule bool
}

// decision is a decision of an operator.
type decision struct {
	At         time.Time
	By, Reason string
}

// newDecision returns a decision with a short name of the operator. It returns
// nil for nil.
func newDecision(d *registry.Decision) *decision {
	if d == nil {
		return nil
	}
	return &decision{At: d.At, By: shortName(d.By), Reason: d.Reason}
}

// shortName returns a name of the audit trail in short.
func shortName(by string) string {
	if _, name, found := strings.Cut(by, "/"); found && strings.HasPrefix(by, "arn:") {
		return name // the rest of an ARN is the same for all
	}
	return by
}

// rows returns versions for a table. The records of those that are mirrored must
// be known.
func (e *mirroredEdition) rows(numbers []registry.Version) (rows []mirroredRow) {
	for _, n := range numbers {
		i := slices.IndexFunc(e.statuses, func(s admission.Status) bool { return s.Version == n })
		if i < 0 {
			rows = append(rows, mirroredRow{listed: e.line(n), IsModule: e.isModule()}) // withdrawn
			continue
		}
		rows = append(rows, e.row(e.statuses[i]))
	}
	return rows
}

// row returns the row of a version that is not withdrawn.
func (e *mirroredEdition) row(s admission.Status) mirroredRow {
	row := mirroredRow{Released: s.PublishedAt, Seen: e.firstSeen(s.SeenVersion), Admitted: newDecision(s.Admitted)}
	row.Version = s.Version.String()
	row.IsModule = e.isModule()
	if s.ChangedTo != (registry.ModulePin{}) {
		row.Change = changeOf(s)
	}
	switch s.State {
	case admission.Available:
		row.listed = e.line(s.Version)
		row.Badges = []badge{{"available", "ok"}}
		row.Content = contentOf(e.Records[s.Version])
	case admission.TooNew:
		row.AvailableAt = roundUp(s.AvailableAt)
		row.Badges = []badge{{"available " + dayOf(row.AvailableAt, e.now), "note"}}
	case admission.Refused:
		row.Badges = []badge{{"refused", "bad"}}
		row.Refused, row.Key = !row.IsModule, s.Key.ID
		row.KeyDenied = s.KeyDenied && e.denial == "" // else no key is allowed
	}
	if s.Version.Prerelease != "" {
		row.Badges = append(row.Badges, badge{"pre-release", "note"})
	}
	if s.AgeUnknown && s.State != admission.Refused {
		row.Badges = append(row.Badges, badge{Text: "age unknown"})
	}
	return row
}

// firstSeen returns when the mirror first saw a version, or the zero time if
// that is unknown. Releases before the first one with a policy have only recorded
// when they mirrored it.
func (e *mirroredEdition) firstSeen(v registry.SeenVersion) time.Time {
	seen := v.SeenAt
	if _, found := e.origin.Seen(v.Version); found && seen.IsZero() {
		seen = e.origin.SeenAt
	}
	r := e.Records[v.Version]
	if seen.IsZero() && r.Module != nil {
		seen = r.Module.MirroredAt
	}
	for _, p := range r.Packages {
		if seen.IsZero() || p.MirroredAt.Before(seen) {
			seen = p.MirroredAt
		}
	}
	return seen
}

// maxPlatforms is the number of platforms that the row of a version names.
const maxPlatforms = 2

func contentOf(r registry.MirrorVersion) string {
	if r.Module != nil {
		return shortCommit(r.Module.Pin.Commit)
	}
	if len(r.Packages) > maxPlatforms {
		return plural(len(r.Packages), "platform")
	}
	var names []string
	for _, p := range r.Packages {
		names = append(names, p.String())
	}
	return strings.Join(names, ", ")
}

// mirroredView returns the page of a version of a mirrored provider, or of a
// kind of part of a version of a mirrored module. It makes two requests to the
// table, one more if versions wait to be copied, and one for the policy about
// every minute. If no version is mirrored, it serves the list of those that
// wait, are refused or can be fetched.
func (h *handler) mirroredView(kind string, show partPage) pageFunc {
	return func(v *visit) (page, error) { return h.mirrored(v, partOf(v, kind), show) }
}

func (h *handler) mirrored(v *visit, part string, show partPage) (page, error) {
	p, err := mirrorOf(v)
	if err != nil {
		return page{}, err
	}
	e, err := h.openMirrored(v.Context(), p, v.PathValue("version"))
	if e != nil && err != nil {
		return e.notMirrored(p, err)
	}
	if err != nil {
		return page{}, err
	}
	if e.isEmpty() {
		return h.mirroredList(v, p, e)
	}
	var counted func() *downloads
	if !p.IsModule() { // the page of a module reads them itself
		counted = h.startDownloads(v.Context(), p)
	}
	records, err := h.Catalog.Mirror.Records(v.Context(), p, e.others()...)
	if err := e.add(v.Context(), records, err); err != nil {
		return page{}, fmt.Errorf("mirrored %s %s: %w", p.Kind(), p, err)
	}
	e.Rest = restOf(part)
	r := e.record()
	m := providerPage{Head: headOfMirror(p), Origin: p.Hostname, Total: len(e.all()), All: e.Path + "/versions"}
	m.Head.Description = fmt.Sprintf("A copy of %s from %s.", p.AtOrigin(), p.Hostname)
	m.Head.Picker, m.Head.Banner = e.picker(), e.banner()
	title := fmt.Sprintf("%s %s of %s", p.AtOrigin(), e.Number, p.Hostname)
	if r.Withdrawn != nil {
		return withdrawnPage(m.Head, e.Number, title), nil
	}
	state := stateOf(r)
	seen, isSeen := e.origin.Seen(e.Number)
	if !seen.PublishedAt.IsZero() {
		m.Head.Facts = append(m.Head.Facts, field{Label: "Released", Time: seen.PublishedAt})
	}
	m.Head.Facts = append(m.Head.Facts, field{Label: "Mirrored", Time: state.published})
	m.Provenance = newCopied(p.Hostname, state)
	if isSeen {
		m.Provenance.Fields = append(m.Provenance.Fields, e.seenFields(seen)...)
	}
	if p.IsModule() {
		return show(v, h.mirroredModule(v, p, e, part, m, title), part)
	}
	m.Head.setUses(p, e.Number, counted())
	m.Use = h.guide(v).hostBlocks(registry.Host(p.Hostname))
	m.Hint = fmt.Sprintf("`larder mirror setup` writes this to `~/.terraform.d/larder-mirror.tfrc`. Keep the blocks together. "+
		"They replace all services of the host. Your configurations keep `%s` as the source.", p.Source())
	isSigned := slices.ContainsFunc(r.Packages, func(pkg registry.MirrorPackage) bool { return pkg.SigningKey != "" })
	// Clients require a signature of each host but one.
	if len(r.Verifiable()) == 0 || !isSigned && p.Hostname != "registry.opentofu.org" {
		m.Use = mirrorBlock(v.own, p.Display())
		m.Hint = fmt.Sprintf("Put this in `~/.tofurc` or `~/.terraformrc`. Your configurations keep `%s` as the source. With a "+
			"host block, clients could not verify this version.", p.Source())
	}
	var packages []registry.ProviderPackage
	for _, pkg := range r.Packages {
		packages = append(packages, pkg.ProviderPackage)
	}
	m.setPackages(packages)
	m.Key, m.Verification = e.keys(p.Hostname)
	m.Mirrored, m.Hints, m.Pull = e.rows(e.shown()), e.hints(), e.pull
	m.addSections()
	return page{
		template: "provider", title: title, description: m.Head.Description, canonical: e.pathOf(e.Number), model: m,
	}, nil
}

// notMirrored returns the page of a version that waits or is refused. Of any other, it
// returns err.
func (e *mirroredEdition) notMirrored(p registry.MirrorAddress, err error) (page, error) {
	all := slices.Concat(e.statuses, e.pending)
	i := slices.IndexFunc(all, func(s admission.Status) bool { return s.Version == e.Number })
	if i < 0 {
		return page{}, err
	}
	s, top := all[i], headOfMirror(p)
	top.Picker = e.picker()
	top.Banner = &banner{Tone: "note", Strong: s.Version.String() + " is not mirrored.", Links: e.waysOut(current)}
	switch s.State {
	case admission.TooNew:
		top.Banner.Strong = s.Version.String() + " can be mirrored from " + moment(roundUp(s.AvailableAt)) + "."
	case admission.Refused:
		top.Banner.Tone, top.Banner.Strong = "bad", s.Version.String()+" is refused."
		fallthrough
	default:
		top.Banner.Text = sentence(changeOf(s))
	}
	return withdrawnPage(top, s.Version, fmt.Sprintf("%s %s of %s", p.AtOrigin(), s.Version, p.Hostname)), nil
}

// mirrorVersions serves the list of the versions of a mirrored provider or module,
// with those that are not mirrored.
func (h *handler) mirrorVersions(v *visit) (page, error) {
	p, err := mirrorOf(v)
	if err != nil {
		return page{}, err
	}
	e, err := h.openMirrored(v.Context(), p, "")
	if err != nil {
		return page{}, err
	}
	return h.mirroredList(v, p, e)
}

// mirroredList returns the list of the versions of an edition. It makes one
// request to the table.
func (h *handler) mirroredList(v *visit, p registry.MirrorAddress, e *mirroredEdition) (page, error) {
	all := e.all()
	rows, err := paginate(v.URL, len(all), versionsPerPage, "versions")
	if err != nil {
		return page{}, err
	}
	shown := all[rows.before():rows.To]
	var mirrored []registry.Version
	for _, n := range shown {
		if slices.Contains(e.Listed, n) || slices.Contains(e.Entry.Withdrawn, n) {
			mirrored = append(mirrored, n)
		}
	}
	e.Records, err = h.Catalog.Mirror.Records(v.Context(), p, mirrored...)
	if errors.Is(err, registry.ErrCorrupt) {
		// The others are still worth a page.
		logDamage(v.Context(), err)
		err = nil
	}
	if err != nil {
		return page{}, fmt.Errorf("%s: %w", p, err)
	}
	top := headOfMirror(p)
	m := versionList{Head: top.below(e.Path), Mirrored: e.rows(shown), Pull: e.pull, pagination: rows}
	m.Hints = e.hints()
	if e.isEmpty() {
		m.Note = "No version of this " + p.Kind() + " is mirrored yet."
	}
	if e.denial != "" {
		m.Note = noneFollow + " " + e.denial
	}
	return page{template: "versions", title: "Versions of " + top.address(), model: m}, nil
}

// seenFields describes when a version was released and seen, and who admitted it
// early.
func (e *mirroredEdition) seenFields(v registry.SeenVersion) (fields []field) {
	if !v.PublishedAt.IsZero() {
		fields = append(fields, field{Label: "Released", Time: v.PublishedAt})
	}
	if seen := e.firstSeen(v); !seen.IsZero() {
		fields = append(fields, field{Label: "First seen", Time: seen})
	}
	return append(fields, decisionFields("Admitted", v.Admitted)...)
}

// newCopied describes who copied a mirrored version.
func newCopied(origin string, s versionState) provenance {
	p := provenance{Verdict: "Copied from " + origin}
	by := newProvenance(s.by, s.published)
	for _, f := range by.Fields {
		if f.Label == "Published" {
			f.Label = "Copied"
		}
		p.Fields = append(p.Fields, f)
	}
	return p
}
