package admission_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/larder-registry/larder/pkg/mirror/admission"
	"github.com/larder-registry/larder/pkg/registry"
)

// The times of the table.
var (
	noon  = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	setAt = noon.Add(-time.Hour) // of the policy
)

// The keys of the table.
var (
	ours  = registry.OriginKey{ID: "34365D9472D7468F", Fingerprint: "C874011F0AB405110D02105534365D9472D7468F"}
	other = registry.OriginKey{ID: "51852D87348FFC4C", Fingerprint: "91A6E7F85D05C65630BEF18951852D87348FFC4C"}
)

// The decision about a version depends on the rule, on the stored data and on the time,
// and each has its reason.
func TestDecide(t *testing.T) {
	t.Parallel()
	const week = 7 * 24 * 60 * 60
	open := registry.MirrorRule{Pattern: "*/*/*", Line: 1, Pull: registry.PullOpen}
	closed := open
	closed.Pull = registry.PullClosed
	plain := open
	plain.Pull = ""
	aged := open
	aged.MinAge = week
	patient := aged
	patient.WaitUnknown = true
	named := open
	named.SigningKeys = []string{ours.ID}
	deny := registry.MirrorRule{Pattern: "*/*/*", Line: 3, Deny: true, Reason: "We do not use it."}
	at := func(days int) time.Time { return noon.AddDate(0, 0, days) }
	version := registry.Version{Major: 1}
	twin := registry.Version{Major: 1, Metadata: "build"}
	seen := func(published, first time.Time) *registry.SeenVersion {
		return &registry.SeenVersion{Version: version, PublishedAt: published, SeenAt: first}
	}
	admitted := seen(at(-1), at(-1))
	admitted.Admitted = &registry.Decision{At: at(-1), By: "ada", Reason: "a fix"}
	by := func(k registry.OriginKey) *registry.RefusedVersion {
		return &registry.RefusedVersion{Version: version, Key: k, At: at(-1)}
	}
	// The origin has changed a version of a module.
	const repository, commit, moved = "https://github.com/acme/vpc", "1111111", "2222222"
	pin := func(source, commit, folder, h1 string) registry.ModulePin {
		return registry.ModulePin{Source: source, Commit: commit, Folder: folder, H1: h1}
	}
	bound := seen(at(-9), at(-9))
	bound.Pin = pin(repository, commit, "", "h1:a")
	boundAndYoung := seen(at(-1), at(-1))
	boundAndYoung.Pin = bound.Pin
	to := func(p registry.ModulePin) *registry.RefusedVersion {
		return &registry.RefusedVersion{Version: version, Pin: p, Bound: bound.Pin, At: at(-1)}
	}
	// These are answers for a client.
	answer := func(problem string, until time.Time) registry.PulledVersion {
		return registry.PulledVersion{PolicySetAt: setAt, Problem: problem, Until: until}
	}
	later, ago := noon.Add(time.Minute), noon.Add(-time.Minute)
	last := noon.Add(time.Hour)
	earlier := answer("it is down", later)
	earlier.PolicySetAt = setAt.Add(-time.Hour)
	held := registry.PulledVersion{Copying: registry.Lease{Owner: "a", Until: later}}
	ended := registry.PulledVersion{Copying: registry.Lease{Owner: "a", Until: ago}}
	heldWith := func(v registry.PulledVersion) registry.PulledVersion {
		v.Copying = held.Copying
		return v
	}
	waits := registry.BackOff{Until: later, PolicySetAt: setAt}
	waited := registry.BackOff{Until: ago, PolicySetAt: setAt}
	waitsForEarlier := registry.BackOff{Until: later, PolicySetAt: setAt.Add(-time.Hour)}
	refused := func(b registry.BackOff) registry.PulledVersion { return registry.PulledVersion{Refused: b} }
	const young = "1.0.0 is too new until 2026-11-26 12:00 UTC (minimum age 7 days"
	type known = admission.Known
	listed := func(k known) known {
		k.IsListed = true
		return k
	}
	for name, test := range map[string]struct {
		rule  registry.MirrorRule
		known known
		want  string // the state, and whether a copy may begin
		why   string
		until time.Time
	}{
		// A mirrored version stays available, whatever the policy and the origin are.
		"mirrored":                             {open, known{IsMirrored: true, IsComplete: true}, "available", "", time.Time{}},
		"mirrored, listed":                     {open, listed(known{IsMirrored: true, IsComplete: true}), "available", "", time.Time{}},
		"mirrored, denied now":                 {deny, known{IsMirrored: true, IsComplete: true}, "available", "", time.Time{}},
		"mirrored, its key is refused":         {open, known{IsMirrored: true, IsComplete: true, Refused: by(other)}, "available", "", time.Time{}},
		"mirrored, too new by a later policy":  {aged, known{IsMirrored: true, IsComplete: true, Seen: seen(at(-1), at(-1))}, "available", "", time.Time{}},
		"mirrored, a copy failed":              {open, known{IsMirrored: true, IsComplete: true, Found: answer("it is down", later)}, "available", "", time.Time{}},
		"mirrored, without pull":               {plain, known{IsMirrored: true}, "available", "", time.Time{}},
		"one platform is missing":              {open, listed(known{IsMirrored: true}), "available copy", "", time.Time{}},
		"one platform is missing, closed":      {closed, listed(known{IsMirrored: true}), "available copy", "", time.Time{}},
		"one platform is missing, denied now":  {deny, known{IsMirrored: true}, "available", "", time.Time{}},
		"one platform is missing, too new":     {aged, listed(known{IsMirrored: true, Seen: seen(at(-1), at(-1))}), "available copy", "", time.Time{}},
		"the origin lacks the platform":        {open, listed(known{IsMirrored: true, Found: answer("no package for it", later)}), "available copy", "no package for it", time.Time{}},
		"the origin lacked the platform":       {open, listed(known{IsMirrored: true, Found: answer("no package for it", ago)}), "available copy", "", time.Time{}},
		"the missing platform is being copied": {open, listed(known{IsMirrored: true, Found: held}), "available", "", time.Time{}},
		"the missing platform failed":          {open, listed(known{IsMirrored: true, Found: refused(waits)}), "available", "", time.Time{}},
		// Withdrawn numbers and twins never come back.
		"withdrawn":                    {open, known{IsWithdrawn: true}, "withdrawn", "it is withdrawn", time.Time{}},
		"withdrawn, listed":            {open, listed(known{IsWithdrawn: true}), "withdrawn", "it is withdrawn", time.Time{}},
		"withdrawn, denied":            {deny, known{IsWithdrawn: true}, "withdrawn", "it is withdrawn", time.Time{}},
		"withdrawn during a copy":      {open, listed(known{IsWithdrawn: true, Found: held}), "withdrawn", "it is withdrawn", time.Time{}},
		"other build metadata":         {open, listed(known{Twin: &twin}), "denied", "it differs from the mirrored version 1.0.0+build only in build metadata", time.Time{}},
		"other build metadata, denied": {deny, known{Twin: &twin}, "denied", "it differs from the mirrored version 1.0.0+build", time.Time{}},
		// Signatures.
		"signed by another key":               {open, listed(known{Refused: by(other)}), "refused copy", "signed by key 51852D87348FFC4C, which is not trusted", time.Time{}},
		"signed by another key, without pull": {plain, known{Refused: by(other)}, "refused", "signed by key 51852D87348FFC4C, which is not trusted", time.Time{}},
		"signed by a key that is named now":   {named, listed(known{Refused: by(ours)}), "on request copy", "", time.Time{}},
		"signed by a key that is not named":   {named, listed(known{Refused: by(other)}), "refused copy denied", "signed by key 51852D87348FFC4C, not in the mirror policy", time.Time{}},
		"signed by another key, denied":       {deny, known{Refused: by(other)}, "refused denied", "signed by key 51852D87348FFC4C, which is not trusted", time.Time{}},
		"without a signature":                 {open, listed(known{Refused: by(registry.OriginKey{})}), "refused copy", "it has no signature, but earlier versions have", time.Time{}},
		"without a signature, keys named":     {named, listed(known{Refused: by(registry.OriginKey{})}), "refused copy denied", "it has no signature, but earlier versions have", time.Time{}},
		"refused, and the refusal is cached":  {open, listed(known{Refused: by(other), Found: answer("it is signed by another key", later)}), "refused copy", "signed by key 51852D87348FFC4C, which is not trusted", time.Time{}},
		"refused, and it is too new":          {aged, listed(known{Refused: by(other), Seen: seen(at(-1), at(-1))}), "refused copy", "signed by key 51852D87348FFC4C, which is not trusted", time.Time{}},
		"refused, and a copy waits":           {open, listed(known{Refused: by(other), Found: refused(waits)}), "refused", "signed by key 51852D87348FFC4C, which is not trusted", time.Time{}},
		// Modules. A copy finds out whether the origin has changed back.
		"moved tag":           {closed, listed(known{Seen: bound, Refused: to(pin(repository, moved, "", ""))}), "refused copy", "the origin has changed it: it was commit 1111111, and is now 2222222", time.Time{}},
		"other repository":    {closed, listed(known{Seen: bound, Refused: to(pin("https://github.com/other/vpc", commit, "", ""))}), "refused copy", "it came from https://github.com/acme/vpc, and now from https://github.com/other/vpc", time.Time{}},
		"other folder":        {closed, listed(known{Seen: bound, Refused: to(pin(repository, commit, "modules/vpc", ""))}), "refused copy", `it was in folder "", and is now in "modules/vpc"`, time.Time{}},
		"other files":         {closed, listed(known{Seen: bound, Refused: to(pin(repository, commit, "", "h1:b"))}), "refused copy", "its files had the digest h1:a, and now have h1:b", time.Time{}},
		"moved tag, too new":  {aged, listed(known{Seen: boundAndYoung, Refused: to(pin(repository, moved, "", ""))}), "refused copy", "it was commit 1111111, and is now 2222222", time.Time{}},
		"moved tag, denied":   {deny, known{Seen: bound, Refused: to(pin(repository, moved, "", ""))}, "refused", "it was commit 1111111, and is now 2222222", time.Time{}},
		"moved tag, mirrored": {closed, listed(known{IsMirrored: true, IsComplete: true, Seen: bound, Refused: to(pin(repository, moved, "", ""))}), "available", "it was commit 1111111, and is now 2222222", time.Time{}},
		// The policy.
		"denied":                    {deny, known{}, "denied", "line 3 of the mirror policy denies */*/*: We do not use it.", time.Time{}},
		"denied, seen before":       {deny, known{Seen: seen(at(-9), at(-9))}, "denied", "line 3 of the mirror policy denies */*/*", time.Time{}},
		"denied during a copy":      {deny, listed(known{Found: held}), "denied", "line 3 of the mirror policy denies */*/*", time.Time{}},
		"denied, with an offer":     {deny, listed(known{Found: answer("", later)}), "denied", "line 3 of the mirror policy denies */*/*", time.Time{}},
		"clients may not fetch it":  {plain, known{Seen: seen(at(-9), at(-9))}, "absent", "the mirror policy does not let clients fetch it", time.Time{}},
		"never seen, without pull":  {plain, known{}, "absent", "the mirror policy does not let clients fetch it", time.Time{}},
		"not listed":                {open, known{}, "absent copy", "the origin does not list it", time.Time{}},
		"not listed, closed":        {closed, known{}, "absent copy", "the origin does not list it", time.Time{}},
		"not listed, and asked for": {open, known{Found: answer("the origin does not list it", later)}, "absent copy", "the origin does not list it", time.Time{}},
		// The minimum age.
		"a day old":                           {aged, listed(known{Seen: seen(at(-1), at(-1))}), "too new", young + ")", at(6)},
		"a week old":                          {aged, listed(known{Seen: seen(at(-7), at(-7))}), "on request copy", "", time.Time{}},
		"a second less than a week":           {aged, listed(known{Seen: seen(at(-7).Add(time.Second), at(-9))}), "too new", "1.0.0 is too new until 2026-11-20 12:01 UTC", noon.Add(time.Second)},
		"old, but first seen yesterday":       {aged, listed(known{Seen: seen(at(-90), at(-1))}), "too new", young + ")", at(6)},
		"old, seen at first sight":            {aged, listed(known{Seen: seen(at(-90), time.Time{})}), "on request copy", "", time.Time{}},
		"published in the future":             {aged, listed(known{Seen: seen(at(1), at(-9))}), "too new", "1.0.0 is too new until 2026-11-28 12:00 UTC", at(8)},
		"of unknown age":                      {aged, listed(known{Seen: seen(time.Time{}, at(-1))}), "on request copy", "", time.Time{}},
		"of unknown age, which waits":         {patient, listed(known{Seen: seen(time.Time{}, at(-1))}), "too new copy", young + ", publication time unknown)", at(6)},
		"of unknown age, which has waited":    {patient, listed(known{Seen: seen(time.Time{}, at(-8))}), "on request copy", "", time.Time{}},
		"of unknown age, at first sight":      {patient, listed(known{Seen: seen(time.Time{}, time.Time{})}), "on request copy", "", time.Time{}},
		"never seen, which waits":             {patient, listed(known{}), "too new copy", "1.0.0 is too new until 2026-11-27 12:00 UTC", at(7)},
		"admitted early":                      {aged, listed(known{Seen: admitted}), "on request copy", "", time.Time{}},
		"too new, without pull":               {func() registry.MirrorRule { r := aged; r.Pull = ""; return r }(), known{Seen: seen(at(-1), at(-1))}, "too new", young, at(6)},
		"too new, and the answer is cached":   {aged, listed(known{Seen: seen(at(-1), at(-1)), Found: answer("it is too new", later)}), "too new", young, at(6)},
		"became old enough, answer is cached": {aged, listed(known{Seen: seen(at(-7), at(-7)), Found: answer("it is too new", later)}), "failed copy", "it is too new", later},
		// Requests of clients.
		"on request":                              {open, listed(known{}), "on request copy", "", time.Time{}},
		"on request, closed":                      {closed, listed(known{}), "on request copy", "", time.Time{}},
		"offered":                                 {open, listed(known{Found: answer("", later)}), "on request copy", "", time.Time{}},
		"offered, until now":                      {open, listed(known{Found: answer("", noon)}), "on request copy", "", time.Time{}},
		"failed":                                  {open, listed(known{Found: answer("it is down", later)}), "failed copy", "it is down", later},
		"failed, some time ago":                   {open, listed(known{Found: answer("it is down", ago)}), "on request copy", "", time.Time{}},
		"failed, with an earlier policy":          {open, listed(known{Found: earlier}), "on request copy", "", time.Time{}},
		"failed, and a copy runs":                 {open, listed(known{Found: heldWith(answer("it is down", later))}), "failed", "it is down", later},
		"is being copied":                         {open, listed(known{Found: held}), "copying", "it is not copied yet", time.Time{}},
		"is being copied, closed":                 {closed, listed(known{Found: heldWith(answer("", later))}), "copying", "it is not copied yet", time.Time{}},
		"the process that copied it has ended":    {open, listed(known{Found: ended}), "on request copy", "", time.Time{}},
		"a copy was refused":                      {open, listed(known{Found: refused(waits)}), "failed", "its last copy failed, and the next one waits", later},
		"a copy was refused, some time ago":       {open, listed(known{Found: refused(waited)}), "on request copy", "", time.Time{}},
		"a copy was refused, earlier policy":      {open, listed(known{Found: refused(waitsForEarlier)}), "on request copy", "", time.Time{}},
		"failed, and the next copy waits longer":  {open, listed(known{Found: registry.PulledVersion{PolicySetAt: setAt, Problem: "it is down", Until: later, Refused: registry.BackOff{Until: last, PolicySetAt: setAt}}}), "failed", "it is down", last},
		"failed, and all copies wait longer":      {open, listed(known{Found: answer("it is down", later), Slow: registry.BackOff{Until: last, PolicySetAt: setAt}}), "failed", "it is down", last},
		"the origin is too slow":                  {open, listed(known{Slow: waits}), "failed", "the origin was too slow for another version", later},
		"the origin is too slow, closed":          {closed, listed(known{Slow: waits, Found: answer("", later)}), "failed", "the origin was too slow for another version", later},
		"the origin was too slow":                 {open, listed(known{Slow: waited}), "on request copy", "", time.Time{}},
		"the origin was too slow, earlier policy": {open, listed(known{Slow: waitsForEarlier}), "on request copy", "", time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			policy := &registry.MirrorPolicy{SetAt: setAt, Rules: []registry.MirrorRule{test.rule}}
			test.known.Version = version
			got := admission.RulesOf(policy, provider(t, random)).Decide(test.known, noon)
			words := []string{string(got.State)}
			if got.CanCopy {
				words = append(words, "copy")
			}
			if got.KeyDenied {
				words = append(words, "denied")
			}
			if text := strings.Join(words, " "); text != test.want {
				t.Errorf("it is %q, want %q", text, test.want)
			}
			if test.why == "" && got.Reason != "" || !strings.Contains(got.Reason, test.why) {
				t.Errorf("because %q, want %q", got.Reason, test.why)
			}
			var changedTo registry.ModulePin
			if test.known.Refused != nil {
				changedTo = test.known.Refused.Pin
			}
			if got.ChangedTo != changedTo {
				t.Errorf("the origin has %+v, want %+v", got.ChangedTo, changedTo)
			}
			if !got.Until.Equal(test.until) {
				t.Errorf("until %s, want %s", got.Until, test.until)
			}
		})
	}
}

// A check by an earlier policy is outdated, and one before a change by an operator,
// which has no time. It can be repeated at once.
func TestPullOfOutdated(t *testing.T) {
	t.Parallel()
	retry := noon.Add(time.Minute)
	for name, test := range map[string]struct {
		found    registry.PulledAddress
		outdated bool
	}{
		"this policy":     {registry.PulledAddress{Problem: "it is down", RetryAt: retry, PolicySetAt: setAt}, false},
		"a later policy":  {registry.PulledAddress{Problem: "it is down", RetryAt: retry, PolicySetAt: noon}, false},
		"earlier policy":  {registry.PulledAddress{Problem: "it is down", RetryAt: retry, PolicySetAt: setAt.Add(-time.Second)}, true},
		"changed":         {registry.PulledAddress{Problem: "it is down", RetryAt: retry}, true},
		"success":         {registry.PulledAddress{Index: []byte("x"), PolicySetAt: setAt}, false},
		"earlier success": {registry.PulledAddress{Index: []byte("x")}, true},
		"never checked":   {registry.PulledAddress{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			policy := &registry.MirrorPolicy{SetAt: setAt, Rules: []registry.MirrorRule{{Pattern: "*/*/*", Pull: registry.PullOpen}}}
			pull := admission.PullOf(policy, provider(t, random), admission.Stored{Pulled: test.found}, nil)
			if pull.Outdated != test.outdated {
				t.Errorf("outdated is %t, want %t", pull.Outdated, test.outdated)
			}
			want := test.found.RetryAt
			if test.outdated {
				want = time.Time{}
			}
			if !pull.RetryAt.Equal(want) {
				t.Errorf("it can be repeated at %s, want %s", pull.RetryAt, want)
			}
		})
	}
}

// Without a policy, nothing is denied, and clients make the mirror fetch nothing.
func TestDecideWithoutPolicy(t *testing.T) {
	t.Parallel()
	got := admission.RulesOf(nil, provider(t, random)).Decide(admission.Known{IsListed: true}, noon)
	if want := fmt.Sprint(admission.Decision{State: admission.Absent, Reason: "the mirror policy does not let clients fetch it"}); fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
}
