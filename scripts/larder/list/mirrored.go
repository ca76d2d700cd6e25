package list

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/larder-registry/larder/pkg/mirror/admission"
	"github.com/larder-registry/larder/pkg/mirror/filling"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/printable"
	"github.com/larder-registry/larder/pkg/text/terminal"
	"github.com/larder-registry/larder/scripts/larder/output"
	"github.com/larder-registry/larder/scripts/larder/place"
)

// MirroredView is a list of the versions of a mirrored provider or module.
type MirroredView struct {
	Address string `json:"address"`
	protocol.MirroredProvider

	// operator reports whether the reader can run the commands of hints.
	operator bool
	// flags are those of [place.Finder.RepeatedFlags].
	flags string
}

func listMirrored(ctx context.Context, r *place.Reader, a registry.MirrorAddress) (MirroredView, error) {
	history, err := r.MirroredHistory(ctx, a)
	for i, warning := range history.Warnings {
		history.Warnings[i] = warning + ". " + verifyHint(r)
	}
	return MirroredView{Address: a.String(), MirroredProvider: history, operator: r.Store, flags: r.Flags}, err
}

// verifyHint returns how to repair damage.
func verifyHint(r *place.Reader) string {
	if r.Store {
		return fmt.Sprintf("Run `larder verify%s` to list the damage and how to repair it.", r.Flags)
	}
	return "The registry's operator can run `larder verify`, which lists the damage and how to repair it."
}

// isStored reports whether the mirror has, or had, a version.
func isStored(v protocol.MirroredVersion) bool {
	return v.State == string(admission.Available) || v.State == protocol.StateWithdrawn || v.State == protocol.StateMissing
}

// isAbsent reports whether a version is too new or refused.
func isAbsent(v protocol.MirroredVersion) bool {
	return !isStored(v) && !admission.State(v.State).IsOnRequest()
}

// Text implements [output.View].
func (v MirroredView) Text(p output.Page) {
	if v.Denied != "" {
		p.Println("No further version of %s is mirrored: %s", v.Address, printable.Escape(v.Denied))
		p.Printf("\n")
	}
	if slices.ContainsFunc(v.Versions, isStored) {
		v.printMirrored(p)
	} else {
		p.Println("No version of %s is mirrored.", v.Address)
	}
	if slices.ContainsFunc(v.Versions, isAbsent) {
		p.Printf("\n")
		v.printAbsent(p)
	}
	v.printHints(p)
	if v.Pull != nil {
		p.Printf("\n")
		printPulled(p, *v.Pull, v.kind(), v.Versions)
	}
	v.printKeys(p)
	p.Warnings(v.Warnings)
}

// isModule reports whether the versions are those of a module.
func (v MirroredView) isModule() bool { return v.Provider != "" }

func (v MirroredView) kind() string { return registry.MirrorAddress{System: v.Provider}.Kind() }

func (v MirroredView) printMirrored(p output.Page) {
	rows := versionRows{between: 5}
	if v.isModule() {
		rows.between = 4
	}
	for _, one := range v.Versions {
		state := protocol.VersionState{Version: one.Version, State: one.State, Withdrawn: one.Withdrawn}
		if !isStored(one) || rows.lost(p, state) {
			continue
		}
		why := ""
		switch {
		case one.Admitted != nil:
			why = "admitted" // the reason is below the table
		case one.Reason != "":
			why = one.Reason
		case one.Pin.Accepted != nil:
			why = "accepted" // the reason is below the table
		case one.AgeUnknown:
			why = "age unknown"
		}
		if a := one.Archive; a != nil {
			rows.add(one.Version, "", why, output.FormatTime(a.MirroredAt), output.ShortPublisher(a.MirroredBy),
				cmp.Or(one.Pin.Commit, "none"), humanize.IBytes(uint64(max(a.Size, 0))))
			continue
		}
		if len(one.Packages) == 0 {
			rows.add(one.Version, "", why)
		}
		for _, pkg := range one.Packages {
			reason := why
			if reason == "" && !pkg.Verifiable {
				reason = "not for host blocks"
			}
			rows.add(one.Version, "", reason, output.FormatTime(pkg.MirroredAt), output.ShortPublisher(pkg.MirroredBy),
				pkg.String(), humanize.IBytes(uint64(max(pkg.Size, 0))), cmp.Or(pkg.SigningKey, "not verified"))
		}
	}
	mirrored := output.PublishedColumn
	mirrored.Title = "MIRRORED"
	size := terminal.Column{Title: "SIZE", Right: true, Optional: true}
	columns := []terminal.Column{
		output.VersionColumn, output.StateColumn, mirrored, output.ByColumn, {Title: "PLATFORM"},
		size, {Title: "SIGNED BY"}, output.ReasonColumn,
	}
	if v.isModule() {
		columns = []terminal.Column{
			output.VersionColumn, output.StateColumn, mirrored, output.ByColumn, {Title: "COMMIT", Min: 12},
			size, output.ReasonColumn,
		}
	}
	p.Table(columns, rows.table())
	first := true
	for _, one := range v.Versions {
		for _, d := range []struct {
			how string
			*registry.Decision
		}{{"was admitted", one.Admitted}, {"was accepted as the origin changed it,", one.Pin.Accepted}} {
			if one.State != string(admission.Available) || d.Decision == nil {
				continue
			}
			if first {
				p.Printf("\n")
			}
			first = false
			p.Println("%s %s %s", one.Version, d.how, DecidedBy(*d.Decision))
		}
	}
}

// DecidedBy returns who made a decision, and why.
func DecidedBy(d registry.Decision) string {
	by := "by " + printable.Escape(cmp.Or(d.By, "unknown"))
	if d.Reason != "" {
		by += ": " + printable.Escape(d.Reason)
	}
	return by
}

// printKeys prints the trusted keys, if operators have decided about them.
func (v MirroredView) printKeys(p output.Page) {
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
			text += ", " + DecidedBy(*k.Trusted)
		}
		p.Println("%s", text)
	}
	if v.Unsigned != nil {
		p.Println("Versions without a signature are accepted, %s", DecidedBy(*v.Unsigned))
	}
}

// printAbsent prints the versions that are too new or refused.
func (v MirroredView) printAbsent(p output.Page) {
	var rows [][]string
	for _, one := range v.Versions {
		if !isAbsent(one) {
			continue
		}
		why := one.Reason
		if one.State == string(admission.TooNew) {
			why = v.whyTooNew(one)
		}
		rows = append(rows, []string{one.Version.String(), one.State, why})
	}
	column := output.VersionColumn
	column.Title = "NOT MIRRORED"
	p.Table([]terminal.Column{column, output.StateColumn, output.ReasonColumn}, rows)
}

// printHints prints what an operator can do.
func (v MirroredView) printHints(p output.Page) {
	var hints []string
	for _, one := range v.Versions {
		if !isAbsent(one) && !IsChanged(one) {
			continue
		}
		if hint := v.hint(one); hint != "" && !slices.Contains(hints, hint) {
			hints = append(hints, hint)
		}
	}
	if len(hints) > 0 {
		p.Printf("\n")
	}
	for _, text := range hints {
		p.Println("%s", text)
	}
}

// IsChanged reports whether the origin has changed a version of a module.
func IsChanged(v protocol.MirroredVersion) bool { return v.ChangedTo != registry.ModulePin{} }

// hint returns what an operator can do about a version that is too new or refused.
func (v MirroredView) hint(one protocol.MirroredVersion) string {
	run := "run"
	if !v.operator {
		run = "the registry's operator can run"
	}
	trust := func(key string) string {
		return fmt.Sprintf("%s `larder mirror trust %s %s --reason WHY%s`.", run, v.Address, key, v.ofOperator())
	}
	owner := ""
	if one.KeyOwner != "" {
		owner = " of " + printable.Escape(one.KeyOwner)
	}
	switch {
	case v.Denied != "":
		return ""
	case one.State == string(admission.TooNew):
		platforms := ""
		if v.NeedsPlatforms() {
			platforms = " --platform PLATFORMS"
		}
		return fmt.Sprintf("To mirror a version early, %s `larder mirror admit %s VERSION --reason WHY%s%s`.", run, v.Address,
			platforms, v.ofOperator())
	case IsChanged(one):
		return fmt.Sprintf("If the origin has announced what changed, %s `larder mirror admit %s VERSION --reason WHY%s`.", run,
			v.Address, v.ofOperator())
	case one.KeyDenied:
		return "The mirror policy allows only the signing keys that it names."
	case one.SigningKey == "":
		return "If the origin has announced that it does not sign any more, " + trust(filling.Unsigned)
	}
	return "If the origin has announced the key " + one.SigningKey + owner + ", " + trust(one.SigningKey)
}

// ofOperator returns the flags for a command that needs the store.
func (v MirroredView) ofOperator() string {
	if !v.operator {
		return ""
	}
	return v.flags
}

// whyTooNew returns from when a version can be mirrored, and why.
func (v MirroredView) whyTooNew(one protocol.MirroredVersion) string {
	minAge := time.Duration(v.MinAge) * time.Second
	since, known := one.AvailableAt.Add(-minAge), "first seen"
	if since.Equal(one.PublishedAt) {
		known = "published"
	}
	if one.AgeUnknown {
		known = "publication time unknown, first seen"
	}
	return fmt.Sprintf("from %s (minimum age %s, %s %s)", output.FormatFrom(one.AvailableAt),
		admission.ShowAge(v.MinAge), known, output.FormatTime(since))
}

// Quiet prints what a script needs.
func (v MirroredView) Quiet(p output.Page) {
	for _, one := range v.Versions {
		if one.State == string(admission.Available) {
			p.Printf("%s\n", one.Version)
		}
	}
}
