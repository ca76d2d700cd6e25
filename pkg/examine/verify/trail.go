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

// Each change of a registry is written together with its entry in the audit
// trail, and neither expires. Versions, keys and tokens therefore imply entries,
// which are called claims here. Others may publish during a verification. So a
// claim is only reported if the trail still lacks it when it is read again at
// the end.

// trail contains the changes in the audit trail, without their authors and
// times. It takes about 60 bytes for each version.
type trail struct {
	entries  int // how many were readable
	accepted int // how many are lost, and named by an accepted loss
	subjects map[string]*history
	keys     map[string][]string // the IDs of keys, by namespace
}

func newTrail() *trail {
	return &trail{subjects: make(map[string]*history), keys: make(map[string][]string)}
}

// history contains the changes of one address, key or token.
type history struct {
	whole    actions
	versions map[string]actions
	// platforms are the platforms of mirrored versions, separated by spaces. For a
	// module they are words of [registry.ModulePin.Origin].
	platforms map[string]string
	// trusted are the fingerprints or IDs of the trusted keys of an origin, and
	// "unsigned".
	trusted []string
	// added reports whether the last change of a key was to add it. A key that was
	// lost can be added twice without a removal in between.
	added bool
}

// actions is a set of actions.
type actions uint16

// known are the actions that a set can contain.
var knownActions = []registry.AuditAction{
	registry.AuditPublish, registry.AuditMirror, registry.AuditDeprecate, registry.AuditHide,
	registry.AuditUndeprecate, registry.AuditWithdraw, registry.AuditCreateToken,
	registry.AuditSetPolicy, registry.AuditAdmit, registry.AuditOverrule, registry.AuditRefuseKey, registry.AuditTrustKey,
	registry.AuditCopy, registry.AuditRefuseContent,
}

func setOf(action registry.AuditAction) actions {
	if i := slices.Index(knownActions, action); i >= 0 {
		return 1 << i
	}
	return 0
}

func (a actions) has(action registry.AuditAction) bool { return a&setOf(action) != 0 }

// deprecated reports whether there was a deprecation. Hiding is one too.
func (a actions) deprecated() bool {
	return a.has(registry.AuditDeprecate) || a.has(registry.AuditHide)
}

// stored reports whether there was a version. Its record is never removed.
func (a actions) stored() bool {
	return a.has(registry.AuditPublish) || a.has(registry.AuditMirror) || a.has(registry.AuditWithdraw)
}

// add adds a readable entry. Entries are added in the order of their times.
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
		// The entries that it names count as present, so only later losses are
		// faults.
		for _, lost := range parseClaims(e.Detail, e.Subject) {
			t.accepted++
			t.add(lost)
		}
	case e.Action == registry.AuditAddKey, e.Action == registry.AuditRemoveKey:
		h.added = e.Action == registry.AuditAddKey
	case e.Version == nil:
		h.whole |= setOf(e.Action)
		// The detail is the ID of a key and its owner, or "unsigned". A reason
		// follows after a colon.
		if id := strings.Fields(e.Detail); e.Action == registry.AuditTrustKey && len(id) > 0 {
			h.trusted = append(h.trusted, strings.TrimSuffix(id[0], ":"))
		}
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
			if strings.HasPrefix(e.Subject, registry.MirrorModulePrefix) {
				h.platforms[v] = "" // other content that an operator accepts replaces it
			}
			h.platforms[v] += " " + e.Detail
		}
	}
}

// keysPrefix is the prefix of the subjects of keys.
const keysPrefix = "keys/"

func isKey(subject string) bool { return strings.HasPrefix(subject, keysPrefix) }

// of returns the history of a subject. It is empty if there is none.
func (t *trail) of(subject string) *history {
	if h := t.subjects[subject]; h != nil {
		return h
	}
	return &history{}
}

func (t *trail) addresses() []string {
	var paths []string
	for subject, h := range t.subjects {
		if len(h.versions) > 0 || h.whole.has(registry.AuditTrustKey) {
			paths = append(paths, subject)
		}
	}
	return paths
}

// claim is an entry that the trail must have.
type claim struct {
	action registry.AuditAction
	// version is empty for an entry about all versions, a key or a token.
	version string
	// platform is the platform of a mirrored package, or [registry.AuditedSums]. For a
	// mirrored module it is a word of [registry.ModulePin.Origin].
	platform string
}

// String returns the claim in the form of an accepted loss.
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

// readTrail reads the trail, and reports the entries that it cannot use.
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
			const noAddress = "an entry of %s is about %q, which is not an address"
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
				", and someone accepted that; `larder audit` shows who",
		})
	}
	return nil
}

// claim stores the claims that the trail lacks.
func (r *run) claim(subject string, claims ...claim) {
	for _, c := range claims {
		if !r.trail.has(subject, c) {
			r.missing[subject] = append(r.missing[subject], c)
		}
	}
}

func claimsOf[R registry.Record](record R) []claim {
	v := record.Number().String()
	if m, ok := any(record).(registry.MirrorVersion); ok {
		var made []claim
		if m.Module != nil {
			for word := range strings.FieldsSeq(m.Module.Pin.Origin()) {
				made = append(made, claim{registry.AuditMirror, v, word})
			}
		}
		for _, pkg := range m.Packages {
			made = append(made, claim{registry.AuditMirror, v, pkg.String()})
		}
		if len(m.Sums) > 0 {
			made = append(made, claim{registry.AuditMirror, v, registry.AuditedSums})
		}
		return made
	}
	made := []claim{{action: registry.AuditPublish, version: v}}
	if copied(record) {
		made = append(made, claim{action: registry.AuditCopy, version: v})
	}
	if message, hidden := deprecation(record); hidden {
		made = append(made, claim{action: registry.AuditHide, version: v})
	} else if message != "" {
		made = append(made, claim{action: registry.AuditDeprecate, version: v})
	}
	return made
}

// copied reports whether a version was copied to other registries.
func copied[R registry.Record](record R) bool {
	switch r := any(record).(type) {
	case registry.ModuleVersion:
		return len(r.CopiedTo) > 0
	case registry.ProviderVersion:
		return len(r.CopiedTo) > 0
	}
	return false
}

func deprecation[R registry.Record](record R) (message string, hidden bool) {
	switch r := any(record).(type) {
	case registry.ModuleVersion:
		return r.Deprecated, r.Hidden
	case registry.ProviderVersion:
		return r.Deprecated, false
	}
	return "", false
}

// compareTrail compares the stored versions of an address with the trail, in
// both directions. The function lost finds the versions without a record.
func compareTrail[A registry.Address, R registry.Record](r *run, s subject[A, R], stored catalog.Stored[R]) {
	path := s.address.Path()
	was := r.trail.of(path)
	for _, record := range stored.Records {
		v, implied := record.Number().String(), claimsOf(record)
		r.claim(path, implied...)
		// If it is no longer deprecated, the trail must have the undo.
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

// compareKeys compares the key IDs of a namespace with the trail.
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

// compareRecord reports what the trail contained about a version before its
// record was read, and the record does not. No action removes it from a record.
func (r *run) compareRecord(path, v string, was *history, implied []claim) {
	if was.versions[v].has(registry.AuditWithdraw) {
		r.add(Finding{
			Kind: Record, Path: path, Version: v,
			Detail: "the audit trail contains its withdrawal, but its record is not withdrawn",
			Fix:    "run `larder withdraw` for that version again: someone has restored its old record",
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
			Detail: "the audit trail contains its mirroring for " + nameSome(gone) + ", but its record does not",
			Fix: "run `larder mirror add` for that version and platform again, or restore the version's record " +
				"from a backup of the table",
		})
	}
}

// reportMissing reports the claims that the trail still lacks.
func (r *run) reportMissing(ctx context.Context) error {
	if len(r.missing) == 0 {
		return nil
	}
	// The first reading has reported the invalid entries.
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

// maxAccepted is how many losses one entry names, which limits the size of the
// item.
const maxAccepted = 1000

// acceptLoss records the missing entries as an accepted loss, and reports that.
func (r *run) acceptLoss(ctx context.Context, byPath map[string][]lacking) error {
	for path, claims := range byPath {
		lost := make(map[string][]string)
		for _, c := range claims {
			// For these two the trail is complete, and the registry has lost data.
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
			f.Note = f.Kind == AuditMissing // it is accepted now
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

// pathOfSubject returns the path of findings about a subject of the trail. Keys
// share the path of their namespace, and tokens share one path.
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

// noTrail returns the finding for a registry whose trail is empty.
func noTrail(byPath map[string][]lacking) Finding {
	versions := make(map[string]bool)
	addresses, keys, tokens := 0, 0, 0
	for path, claims := range byPath {
		switch kind, _, _ := strings.Cut(path, "/"); kind {
		case "policy":
		case "keys":
			keys += len(claims)
		case "tokens":
			tokens += len(claims)
		default:
			addresses++
			for _, c := range claims {
				if c.version != "" && setOf(c.action).stored() {
					versions[path+" "+c.version] = true
				}
			}
		}
	}
	return Finding{Kind: AuditMissing, Path: "audit", Detail: fmt.Sprintf(
		"the audit trail is empty, but the registry has %s of %s, %s and %s",
		english.Plural(len(versions), "version", ""),
		english.Plural(addresses, "module or provider", "modules and providers"),
		english.Plural(keys, "signing key", ""), english.Plural(tokens, "token", ""))}
}

// wording contains the descriptions of missing entries, in the order in which
// findings list them.
var wording = []struct {
	action registry.AuditAction
	text   string
}{
	{registry.AuditPublish, "publish of "},
	{registry.AuditMirror, "mirroring of "},
	{registry.AuditWithdraw, "withdrawal of "},
	{registry.AuditDeprecate, "deprecation of "},
	{registry.AuditHide, "hiding of "},
	{registry.AuditCopy, "copying of "},
	{registry.AuditAddKey, "addition of key "},
	{registry.AuditCreateToken, "creation of token "},
	{registry.AuditAdmit, "admission of "},
	{registry.AuditRefuseKey, "refusal of "},
	{registry.AuditRefuseContent, "refusal of changes to "},
	{registry.AuditTrustKey, "trust in a key of "},
	{registry.AuditSetPolicy, "setting of "},
}

// missingEntries returns the findings about the claims that the trail lacks at
// a path.
func missingEntries(path string, claims []lacking) (found []Finding) {
	names := make(map[registry.AuditAction][]string)
	for _, c := range claims {
		name := c.version
		switch {
		case c.platform != "":
			name += " for " + c.platform
		case c.subject != path: // of a key or a token
			name = c.subject[strings.LastIndexByte(c.subject, '/')+1:]
		case c.action == registry.AuditTrustKey:
			name = "the origin"
		case c.action == registry.AuditSetPolicy:
			name = "the policy"
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
	// For these the trail has an entry, but neither the data nor its removal is
	// stored.
	if of := names[registry.AuditUndeprecate]; len(of) > 0 {
		found = append(found, Finding{
			Kind: Record, Path: path,
			Detail: "the audit trail contains a deprecation of " + nameSome(of) + ", but the registry does not",
			Fix:    "run `larder deprecate` again, with the message that `larder audit` shows or with --undo",
		})
	}
	if of := names[registry.AuditRemoveKey]; len(of) > 0 {
		found = append(found, Finding{
			Kind: Record, Path: path,
			Detail: "the audit trail contains the addition of key " + nameSome(of) +
				" and no removal, but the registry does not have the key",
			Fix: "add the key again with `larder key add NAMESPACE FILE`, or restore the item from a backup of the table",
		})
	}
	return found
}

// maxNamed is how many versions a finding lists, which limits the length of its
// text.
const maxNamed = 5

// nameSome lists the first names, and how many more there are.
func nameSome(names []string) string {
	text := strings.Join(names[:min(len(names), maxNamed)], ", ")
	if more := len(names) - maxNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
