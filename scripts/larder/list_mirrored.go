package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/mirror/admission"
	"github.com/larder-registry/larder/pkg/mirror/filling"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/printable"
	"github.com/larder-registry/larder/pkg/text/terminal"
	"github.com/larder-registry/larder/scripts/larder/arguments"
	"github.com/larder-registry/larder/scripts/larder/output"
)

// mirrorProviderView is a list of a mirrored provider's versions.
type mirrorProviderView struct {
	Address  string                   `json:"address"`
	Versions []registry.MirrorVersion `json:"versions"`
	// Missing lists the versions with missing records.
	Missing []registry.Version `json:"missing,omitempty"`
	// States has the states of the mirrored versions, and of the versions of the
	// origin that are too new, refused or on request. It lacks withdrawn versions.
	States []protocol.MirroredVersion `json:"states"`
	// SigningKeys are the trusted keys of the origin.
	SigningKeys []registry.OriginKey `json:"signing_keys,omitempty"`
	// Unsigned is set if an operator accepts that the origin does not sign any
	// more.
	Unsigned *registry.Decision `json:"unsigned,omitempty"`
	// Denied is the reason if the mirror policy allows no further version.
	Denied string `json:"denied,omitempty"`
	// Pull describes how clients make the mirror fetch versions that it lacks. It
	// is missing if the mirror policy does not let them.
	Pull *protocol.MirroredPull `json:"pull,omitempty"`
	// Warnings describe damage because of which versions that are too new or
	// refused are not listed.
	Warnings []string `json:"warnings,omitempty"`

	rule     registry.MirrorRule
	statuses []admission.Status
	// flags are those of [place.Finder.RepeatedFlags].
	flags string
}

// listMirrorProvider lists the versions of a mirrored provider, with their states
// at a time. It also finds a provider of which only the origin was seen or
// checked. If the origin or the policy is damaged, it lists the mirrored versions,
// with a warning.
func listMirrorProvider(ctx context.Context, from *catalog.Catalog, a registry.MirrorProvider, now time.Time) (
	v mirrorProviderView, err error,
) {
	origin, badOrigin := from.Mirror.Origin(ctx, a)
	policy, badPolicy := from.MirrorPolicy(ctx)
	for _, err := range []error{badOrigin, badPolicy} {
		if err != nil && !errors.Is(err, registry.ErrCorrupt) {
			return v, err
		}
	}
	v = mirrorProviderView{Address: a.String(), SigningKeys: origin.Keys, Unsigned: origin.Unsigned}
	if badOrigin != nil {
		v.warn("versions that are too new or refused are not listed", badOrigin)
	}
	if badPolicy != nil {
		v.warn("versions that are too new are not listed", badPolicy)
	}
	found, err := pulledProvider(ctx, from, policy, a, now)
	if err != nil {
		return v, err
	}
	v.Versions, err = from.Mirror.All(ctx, a)
	if errors.Is(err, registry.ErrNotFound) {
		switch {
		case badOrigin != nil:
			err = badOrigin
		case !origin.IsEmpty() || found.HasFindings():
			v.Versions, err = []registry.MirrorVersion{}, nil
		}
	}
	if v.Missing, err = missingVersions(ctx, err, a, from.Mirror.Versions); err != nil {
		return v, err
	}
	v.Denied = admission.Denial(policy, a)
	if badOrigin != nil {
		policy = nil // without publication times, all ages would be unknown
	}
	return v, v.addStates(ctx, from, policy, a, admission.Stored{Origin: origin, Pulled: found}, now)
}

// pulledProvider returns what the mirror found when it last checked for a client.
// It is empty if there is nothing, or if the policy does not let clients make the
// mirror fetch the provider.
func pulledProvider(ctx context.Context, from *catalog.Catalog, policy *registry.MirrorPolicy,
	a registry.MirrorProvider, now time.Time) (registry.PulledProvider, error) {
	if rule, err := admission.RuleOf(policy, a); err != nil || rule.Pull == "" {
		return registry.PulledProvider{}, nil //nolint:nilerr // documented above
	}
	found, err := from.Mirror.Pulled(ctx, a)
	if errors.Is(err, registry.ErrCorrupt) {
		return registry.PulledProvider{}, nil // the origin is damaged too, which is reported
	}
	return found.Forgotten(now), err
}

func (v *mirrorProviderView) warn(effect string, damage error) {
	v.Warnings = append(v.Warnings, fmt.Sprintf("%s: %s. Run `larder verify` to list the damage and how to repair it.",
		effect, printable.Escape(damage.Error())))
}

// addStates adds the states of the versions at a time. stored has no versions.
func (v *mirrorProviderView) addStates(ctx context.Context, from *catalog.Catalog, policy *registry.MirrorPolicy,
	a registry.MirrorProvider, stored admission.Stored, now time.Time) error {
	v.rule, _ = admission.RuleOf(policy, a)
	stored.Excluded = slices.Clone(v.Missing)
	for _, one := range v.Versions {
		if one.Withdrawn != nil {
			stored.Excluded = append(stored.Excluded, one.Version)
		} else {
			stored.Listed = append(stored.Listed, one.Version)
		}
	}
	v.statuses = admission.StatusesOf(policy, a, stored, now)
	v.Pull = admission.PullOf(policy, a, stored, v.statuses)
	explained := admission.VersionsToExplain(v.Pull, v.statuses)
	found, err := from.Mirror.PulledVersions(ctx, a, explained...)
	for i, s := range v.statuses {
		if slices.Contains(explained, s.Version) {
			v.statuses[i].Explain(policy, a, found[s.Version], stored.Pulled.Slow, now)
		}
	}
	v.States = output.Mapped(v.statuses, admission.Status.Document)
	return err
}

func (v mirrorProviderView) Text(p output.Page) {
	printDenied(p, v.Address, v.Denied)
	if len(v.Versions)+len(v.Missing) > 0 {
		v.mirroredText(p)
	} else {
		p.Println("No version of %s is mirrored.", v.Address)
	}
	if absent := v.absent(); len(absent) > 0 {
		p.Printf("\n")
		v.absentText(p, absent)
	}
	if v.Pull != nil {
		p.Printf("\n")
		printPulled(p, *v.Pull, v.States)
	}
	v.keysText(p)
	p.Warnings(v.Warnings)
}

// printDenied prints that the mirror policy denies further versions of a mirrored
// provider, and why. It prints nothing if why is empty.
func printDenied(p output.Page, address, why string) {
	if why != "" {
		p.Println("No further version of %s is mirrored: %s", address, printable.Escape(why))
		p.Printf("\n")
	}
}

func (v mirrorProviderView) mirroredText(p output.Page) {
	why := make(map[registry.Version]string, len(v.statuses))
	for _, s := range v.statuses {
		why[s.Version] = whyMirrored(s)
	}
	rows := versionRows{between: 5}
	for _, one := range v.Versions {
		if one.Withdrawn != nil {
			rows.withdrawn(p, one.Version, *one.Withdrawn)
			continue
		}
		for _, pkg := range one.Packages {
			rows.add(one.Version, "", why[one.Version], output.FormatTime(pkg.MirroredAt), output.ShortPublisher(pkg.MirroredBy),
				pkg.String(), humanize.IBytes(uint64(pkg.Size)), cmp.Or(pkg.SigningKey, "not verified"))
		}
	}
	rows.missing(v.Missing)
	mirrored := output.PublishedColumn
	mirrored.Title = "MIRRORED"
	p.Table([]terminal.Column{
		output.VersionColumn, output.StateColumn, mirrored, output.ByColumn, {Title: "PLATFORM"},
		{Title: "SIZE", Right: true, Optional: true}, {Title: "SIGNED BY"}, output.ReasonColumn,
	}, rows.rows)
	v.admittedText(p)
}

// admittedText prints who admitted mirrored versions, and why.
func (v mirrorProviderView) admittedText(p output.Page) {
	first := true
	for _, s := range v.statuses {
		if s.State != admission.Available || s.Admitted == nil {
			continue
		}
		if first {
			p.Printf("\n")
		}
		first = false
		p.Println("%s was admitted %s", s.Version, decidedBy(*s.Admitted))
	}
}

// whyMirrored returns what a minimum age means for a mirrored version.
func whyMirrored(s admission.Status) string {
	switch {
	case s.Admitted != nil:
		return "admitted" // admittedText has the reason
	case s.AgeUnknown:
		return "age unknown"
	}
	return ""
}

// decidedBy returns who made a decision, and why.
func decidedBy(d registry.Decision) string {
	by := "by " + cmp.Or(d.By, "unknown")
	if d.Reason != "" {
		by += ": " + d.Reason
	}
	return by
}

// keysText prints the trusted keys, if operators have decided about them.
func (v mirrorProviderView) keysText(p output.Page) {
	decided := func(k registry.OriginKey) bool { return k.Trusted != nil }
	if v.Unsigned == nil && !slices.ContainsFunc(v.SigningKeys, decided) {
		return
	}
	p.Printf("\n")
	for _, k := range v.SigningKeys {
		text := "Trusted key " + k.ID
		if k.Owner != "" {
			text += " of " + printable.Escape(k.Owner)
		}
		if decided(k) {
			text += ", " + decidedBy(*k.Trusted)
		}
		p.Println("%s", text)
	}
	if v.Unsigned != nil {
		p.Println("Versions without a signature are accepted, %s", decidedBy(*v.Unsigned))
	}
}

// absent returns the versions that are too new or refused.
func (v mirrorProviderView) absent() []admission.Status {
	return slices.DeleteFunc(slices.Clone(v.statuses), func(s admission.Status) bool {
		return s.State == admission.Available || s.State.IsOnRequest()
	})
}

// absentText prints the versions that are too new or refused, and what an
// operator can do.
func (v mirrorProviderView) absentText(p output.Page, absent []admission.Status) {
	var hints []string
	hint := func(format string, args ...any) {
		if text := fmt.Sprintf(format, args...); !slices.Contains(hints, text) {
			hints = append(hints, text)
		}
	}
	rows := make([][]string, len(absent))
	for i, s := range absent {
		rows[i] = []string{s.Version.String(), string(s.State), v.whyAbsent(s)}
		key, owner := cmp.Or(s.Key.ID, filling.Unsigned), ""
		if s.Key.Owner != "" {
			owner = " of " + printable.Escape(s.Key.Owner)
		}
		switch {
		case v.Denied != "":
		case s.State == admission.TooNew:
			hint("To mirror a version early, run `larder mirror admit %s VERSION --reason WHY%s`.", v.Address, v.flags)
		case s.KeyDenied:
			hint("The mirror policy allows only the signing keys that it names.")
		case s.Key.ID == "":
			hint("If the origin has announced that it does not sign any more, run `larder mirror trust %s %s --reason WHY%s`.",
				v.Address, key, v.flags)
		default:
			hint("If the origin has announced the key %s%s, run `larder mirror trust %s %s --reason WHY%s`.",
				key, owner, v.Address, key, v.flags)
		}
	}
	column := output.VersionColumn
	column.Title = "NOT MIRRORED"
	p.Table([]terminal.Column{column, output.StateColumn, output.ReasonColumn}, rows)
	if len(hints) > 0 {
		p.Printf("\n")
	}
	for _, text := range hints {
		p.Println("%s", text)
	}
}

// whyAbsent returns the reason for which a version is not mirrored.
func (v mirrorProviderView) whyAbsent(s admission.Status) string {
	if s.State == admission.TooNew {
		return v.whyTooNew(s)
	}
	return s.Reason
}

// whyTooNew returns from when a version can be mirrored, and why.
func (v mirrorProviderView) whyTooNew(s admission.Status) string {
	minAge := time.Duration(v.rule.MinAge) * time.Second
	since, known := s.AvailableAt.Add(-minAge), "first seen"
	if since.Equal(s.PublishedAt) {
		known = "published"
	}
	if s.AgeUnknown {
		known = "publication time unknown, first seen"
	}
	return fmt.Sprintf("from %s (minimum age %s, %s %s)", output.FormatFrom(s.AvailableAt),
		formatAge(minAge), known, output.FormatTime(since))
}

// formatAge formats an age in days, or in hours if it has parts of a day.
func formatAge(age time.Duration) string {
	if age%arguments.Day == 0 {
		return english.Plural(int(age/arguments.Day), "day", "")
	}
	return english.Plural(int(age/time.Hour), "hour", "")
}

func (v mirrorProviderView) Quiet(p output.Page) {
	printVersions(p, v.Versions)
}
