package verify

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize/english"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/registry"
)

// Each change of a registry is written together with its entry in the audit trail,
// and neither expires. So what is stored implies entries, which are called claims
// here. A claim that the trail does not have is a finding, but only if the trail
// lacks it when it is read again at the end: others publish meanwhile.

// trail is what the audit trail says that was done, without who and when. It takes
// about 60 bytes for each version.
type trail struct {
	entries  int // that can be read
	accepted int // that were lost, and are named by others
	subjects map[string]*history
	keys     map[string][]string // the IDs of keys, by namespace
}

func newTrail() *trail {
	return &trail{subjects: make(map[string]*history), keys: make(map[string][]string)}
}

// history is what was done to one address, key or token.
type history struct {
	whole    actions
	versions map[string]actions
	// platforms are those of mirrored versions, separated by spaces.
	platforms map[string]string
	// added reports that a key was added and not removed since. A key that was lost
	// can be added twice without a removal in between.
	added bool
}

// actions is a set of actions.
type actions uint16

// known are the actions that a set can hold.
var known = []registry.AuditAction{
	registry.AuditPublish, registry.AuditMirror, registry.AuditDeprecate, registry.AuditHide,
	registry.AuditUndeprecate, registry.AuditWithdraw, registry.AuditCreateToken,
}

func setOf(action registry.AuditAction) actions {
	if i := slices.Index(known, action); i >= 0 {
		return 1 << i
	}
	return 0
}

func (a actions) has(action registry.AuditAction) bool { return a&setOf(action) != 0 }

// deprecated reports whether there was a deprecation, which hiding is too.
func (a actions) deprecated() bool {
	return a.has(registry.AuditDeprecate) || a.has(registry.AuditHide)
}

// stored reports whether there was a version, of which a record remains for ever.
func (a actions) stored() bool {
	return a.has(registry.AuditPublish) || a.has(registry.AuditMirror) || a.has(registry.AuditWithdraw)
}

// add adds an entry that can be relied on, which is newer than those before.
func (t *trail) add(e registry.AuditEntry) {
	t.entries++
	h := t.subjects[e.Subject]
	if h == nil {
		h = &history{}
		t.subjects[e.Subject] = h
		if namespace, id, ok := strings.Cut(strings.TrimPrefix(e.Subject, keysPrefix), "/"); ok && isKey(e.Subject) {
			t.keys[namespace] = append(t.keys[namespace], id)
		}
	}
	switch {
	case e.Action == registry.AuditAcceptLoss:
		// What it names counts as if it were there: what is lost later is a fault.
		for _, lost := range parseClaims(e.Detail, e.Subject) {
			t.accepted++
			t.add(lost)
		}
	case e.Action == registry.AuditAddKey, e.Action == registry.AuditRemoveKey:
		h.added = e.Action == registry.AuditAddKey
	case e.Version == nil:
		h.whole |= setOf(e.Action)
	default:
		v := e.Version.String()
		if h.versions == nil {
			h.versions = make(map[string]actions)
		}
		h.versions[v] |= setOf(e.Action)
		if e.Action == registry.AuditMirror {
			if h.platforms == nil {
				h.platforms = make(map[string]string)
			}
			h.platforms[v] += " " + e.Detail
		}
	}
}

// keysPrefix is what the subjects of keys begin with.
const keysPrefix = "keys/"

func isKey(subject string) bool { return strings.HasPrefix(subject, keysPrefix) }

// of returns the history of a subject, which is empty if there is none.
func (t *trail) of(subject string) *history {
	if h := t.subjects[subject]; h != nil {
		return h
	}
	return &history{}
}

// addresses returns the paths of which the trail has versions.
func (t *trail) addresses() []string {
	var paths []string
	for subject, h := range t.subjects {
		if len(h.versions) > 0 {
			paths = append(paths, subject)
		}
	}
	return paths
}

// claim is an entry that the trail must have.
type claim struct {
	action registry.AuditAction
	// version is empty for the whole of an address, a key or a token.
	version string
	// platform is that of a mirrored package.
	platform string
}

// String returns a claim as an accepted loss names it.
func (c claim) String() string {
	return strings.TrimSpace(string(c.action) + " " + c.version + " " + c.platform)
}

// parseClaims returns the entries about a subject that an accepted loss names.
func parseClaims(names, subject string) (lost []registry.AuditEntry) {
	for name := range strings.SplitSeq(names, ", ") {
		parts := append(strings.Fields(name), "", "", "")
		e := registry.AuditEntry{Subject: subject, Action: registry.AuditAction(parts[0]), Detail: parts[2]}
		if v, err := registry.ParseTag(parts[1]); err == nil {
			e.Version = &v
		}
		lost = append(lost, e)
	}
	return lost
}

// has reports whether the trail has the entry that a claim is about.
func (t *trail) has(subject string, c claim) bool {
	h := t.of(subject)
	done := h.whole
	if c.version != "" {
		done = h.versions[c.version]
	}
	switch c.action {
	case registry.AuditAddKey:
		return h.added
	case registry.AuditRemoveKey:
		return !h.added
	case registry.AuditDeprecate:
		return done.deprecated()
	case registry.AuditMirror:
		return slices.Contains(strings.Fields(h.platforms[c.version]), c.platform)
	}
	return done.has(c.action)
}

// readTrail reads the trail, and reports what of it cannot be relied on.
func (r *run) readTrail(ctx context.Context) error {
	r.trail, r.missing = newTrail(), make(map[string][]claim)
	for entry, err := range r.Catalog.AuditTrail(ctx) {
		if err != nil {
			return err
		}
		if entry.Problem != "" {
			r.add(Finding{Kind: Audit, Path: "audit", Detail: entry.Problem})
			continue
		}
		if entry.Version != nil && r.trail.subjects[entry.Subject] == nil && addressOf(entry.Subject) == nil {
			const noAddress = "an entry of %s is about %q, which is no address"
			detail := fmt.Sprintf(noAddress, entry.At.Format(time.RFC3339), entry.Subject)
			r.add(Finding{Kind: Audit, Path: "audit", Detail: detail})
			continue
		}
		r.trail.add(entry)
	}
	if n := r.trail.accepted; n > 0 {
		r.add(Finding{
			Kind: AuditMissing, Path: "audit", Note: true,
			Detail: "the audit trail has lost " + english.Plural(n, "entry", "entries") +
				", which was accepted: `larder audit` lists by whom",
		})
	}
	return nil
}

// claim notes which of the entries that something stored implies are not in the
// trail as it was read.
func (r *run) claim(subject string, claims ...claim) {
	for _, c := range claims {
		if !r.trail.has(subject, c) {
			r.missing[subject] = append(r.missing[subject], c)
		}
	}
}

// claimsOf returns the entries that a record implies.
func claimsOf[R registry.Record](record R) []claim {
	v := record.Number().String()
	if m, ok := any(record).(registry.MirrorVersion); ok {
		var made []claim
		for _, pkg := range m.Packages {
			made = append(made, claim{registry.AuditMirror, v, pkg.String()})
		}
		return made
	}
	made := []claim{{action: registry.AuditPublish, version: v}}
	if message, hidden := deprecation(record); hidden {
		made = append(made, claim{action: registry.AuditHide, version: v})
	} else if message != "" {
		made = append(made, claim{action: registry.AuditDeprecate, version: v})
	}
	return made
}

// deprecation returns why a version is deprecated, and whether it is hidden too.
func deprecation[R registry.Record](record R) (message string, hidden bool) {
	switch r := any(record).(type) {
	case registry.ModuleVersion:
		return r.Deprecated, r.Hidden
	case registry.ProviderVersion:
		return r.Deprecated, false
	}
	return "", false
}

// compareTrail compares what is stored of an address with the trail, both ways but
// for versions without a record, which lost finds.
func compareTrail[A registry.Address, R registry.Record](r *run, s subject[A, R], stored catalog.Stored[R]) {
	path := s.address.Path()
	was := r.trail.of(path)
	for _, record := range stored.Records {
		v, implied := record.Number().String(), claimsOf(record)
		r.claim(path, implied...)
		// Whatever was deprecated and is not any more was undeprecated.
		if message, _ := deprecation(record); message == "" && was.versions[v].deprecated() {
			r.claim(path, claim{action: registry.AuditUndeprecate, version: v})
		}
		r.compareRecord(path, v, was, implied)
	}
	for _, v := range stored.Withdrawn {
		r.claim(path, claim{action: registry.AuditWithdraw, version: v.String()})
	}
	switch {
	case stored.Deprecated != "":
		r.claim(path, claim{action: registry.AuditDeprecate})
	case len(stored.Records) > 0 && was.whole.deprecated():
		r.claim(path, claim{action: registry.AuditUndeprecate})
	}
}

// compareKeys compares the keys of a namespace, by their IDs, with the trail.
func (r *run) compareKeys(namespace string, readable []registry.SigningKey, unreadable []catalog.Unreadable) {
	there := make(map[string]bool)
	for _, u := range unreadable {
		there[u.Name] = true
	}
	for _, k := range readable {
		there[k.ID] = true
		r.claim(keysPrefix+namespace+"/"+k.ID, claim{action: registry.AuditAddKey})
	}
	for _, id := range r.trail.keys[namespace] {
		if !there[id] {
			r.claim(keysPrefix+namespace+"/"+id, claim{action: registry.AuditRemoveKey})
		}
	}
}

// compareRecord reports what the trail had of a version before its record was
// read, and the record has not. Nothing takes that back.
func (r *run) compareRecord(path, v string, was *history, implied []claim) {
	if was.versions[v].has(registry.AuditWithdraw) {
		r.add(Finding{
			Kind: Record, Path: path, Version: v,
			Detail: "the audit trail has it as withdrawn, and its record does not",
			Fix:    "run `larder withdraw` of that version again: somebody has put its record back",
		})
		return
	}
	var gone []string
	for _, platform := range strings.Fields(was.platforms[v]) {
		if !slices.Contains(implied, claim{registry.AuditMirror, v, platform}) {
			gone = append(gone, platform)
		}
	}
	if len(gone) > 0 {
		r.add(Finding{
			Kind: Record, Path: path, Version: v,
			Detail: "the audit trail has it as mirrored for " + nameSome(gone) + ", and its record does not",
			Fix: "run `larder mirror add` of that version and platform again, or restore the version's record " +
				"from a backup of the table",
		})
	}
}

// settleTrail reports the claims that the trail still does not have.
func (r *run) settleTrail(ctx context.Context) error {
	if len(r.missing) == 0 {
		return nil
	}
	// What is wrong with its entries was reported when it was first read.
	now := newTrail()
	for entry, err := range r.Catalog.AuditTrail(ctx) {
		if err != nil {
			return err
		}
		if entry.Problem == "" {
			now.add(entry)
		}
	}
	byPath := make(map[string][]lacking)
	for _, subject := range slices.Sorted(maps.Keys(r.missing)) {
		for _, c := range r.missing[subject] {
			if !now.has(subject, c) {
				path := pathOfSubject(subject)
				byPath[path] = append(byPath[path], lacking{subject, c})
			}
		}
	}
	if r.AcceptLossBy != "" {
		return r.acceptLoss(ctx, byPath)
	}
	if now.entries == 0 && len(byPath) > 0 {
		r.add(noTrail(byPath))
		return nil
	}
	for path, claims := range byPath {
		r.add(missingEntries(path, claims)...)
	}
	return nil
}

// maxAccepted is how many losses one entry names, so that it stays a small item.
const maxAccepted = 1000

// acceptLoss records which entries the trail has lost, and reports that.
func (r *run) acceptLoss(ctx context.Context, byPath map[string][]lacking) error {
	for path, claims := range byPath {
		lost := make(map[string][]string)
		for _, c := range claims {
			// Of these the registry has lost what the trail has.
			if c.action != registry.AuditUndeprecate && c.action != registry.AuditRemoveKey {
				lost[c.subject] = append(lost[c.subject], c.String())
			}
		}
		for subject, names := range lost {
			for some := range slices.Chunk(names, maxAccepted) {
				if err := r.Catalog.AcceptLoss(ctx, subject, strings.Join(some, ", "), r.AcceptLossBy); err != nil {
					return err
				}
			}
		}
		for _, f := range missingEntries(path, claims) {
			f.Note = f.Kind == AuditMissing // from now on
			r.add(f)
		}
	}
	return nil
}

// lacking is a claim that the trail does not have.
type lacking struct {
	subject string
	claim
}

// pathOfSubject returns where findings about a subject of the trail are. Keys and
// tokens are with others of their namespace, or of the registry.
func pathOfSubject(subject string) string {
	kind, rest, _ := strings.Cut(subject, "/")
	switch kind {
	case "tokens":
		return kind
	case "keys":
		namespace, _, _ := strings.Cut(rest, "/")
		return kind + "/" + namespace
	}
	return subject
}

// noTrail is the finding of a registry whose trail has no entry.
func noTrail(byPath map[string][]lacking) Finding {
	versions := make(map[string]bool)
	addresses, keys, tokens := 0, 0, 0
	for path, claims := range byPath {
		switch kind, _, _ := strings.Cut(path, "/"); kind {
		case "keys":
			keys += len(claims)
		case "tokens":
			tokens += len(claims)
		default:
			addresses++
			for _, c := range claims {
				if c.version != "" {
					versions[path+" "+c.version] = true
				}
			}
		}
	}
	return Finding{Kind: AuditMissing, Path: "audit", Detail: fmt.Sprintf(
		"the audit trail has no entry, and the registry has %s of %s, %s and %s",
		english.Plural(len(versions), "version", ""),
		english.Plural(addresses, "module or provider", "modules and providers"),
		english.Plural(keys, "signing key", ""), english.Plural(tokens, "token", ""))}
}

// wording is what findings call a missing entry, in the order in which they name
// them.
var wording = []struct {
	action registry.AuditAction
	text   string
}{
	{registry.AuditPublish, "publish of "},
	{registry.AuditMirror, "mirroring of "},
	{registry.AuditWithdraw, "withdrawal of "},
	{registry.AuditDeprecate, "deprecation of "},
	{registry.AuditHide, "hiding of "},
	{registry.AuditAddKey, "adding of key "},
	{registry.AuditCreateToken, "creation of token "},
}

// missingEntries are the findings about what the trail lacks at a path.
func missingEntries(path string, claims []lacking) (found []Finding) {
	names := make(map[registry.AuditAction][]string)
	for _, c := range claims {
		name := c.version
		switch {
		case c.platform != "":
			name += " for " + c.platform
		case c.subject != path: // of a key or a token
			name = c.subject[strings.LastIndexByte(c.subject, '/')+1:]
		case name == "":
			name = "all versions"
		}
		names[c.action] = append(names[c.action], name)
	}
	var parts []string
	for _, w := range wording {
		if of := names[w.action]; len(of) > 0 {
			parts = append(parts, w.text+nameSome(of))
		}
	}
	if len(parts) > 0 {
		detail := "the audit trail lacks the " + strings.Join(parts, ", and the ")
		found = append(found, Finding{Kind: AuditMissing, Path: path, Detail: detail})
	}
	// Here the trail has something that is not stored, and not how it ended.
	if of := names[registry.AuditUndeprecate]; len(of) > 0 {
		found = append(found, Finding{
			Kind: Record, Path: path,
			Detail: "the audit trail has a deprecation of " + nameSome(of) + ", and the registry does not",
			Fix:    "run `larder deprecate` again, with the message of `larder audit`, or with --undo",
		})
	}
	if of := names[registry.AuditRemoveKey]; len(of) > 0 {
		found = append(found, Finding{
			Kind: Record, Path: path,
			Detail: "the audit trail has the adding of key " + nameSome(of) +
				" and no removal, and the registry has no such key",
			Fix: "add the key again by `larder key add NAMESPACE FILE`, or restore the item from a backup of the table",
		})
	}
	return found
}

// maxNamed is how many versions a finding names, so that it stays one readable
// line.
const maxNamed = 5

// nameSome names the first of several things, and how many more there are.
func nameSome(names []string) string {
	text := strings.Join(names[:min(len(names), maxNamed)], ", ")
	if more := len(names) - maxNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
