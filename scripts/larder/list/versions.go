package list

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/terminal"
	"github.com/larder-registry/larder/scripts/larder/output"
)

// versionRows are the rows of a table of versions. The first columns are the
// version and its state. The last column is the reason for the state.
type versionRows struct {
	between int // number of columns between the state and the reason
	rows    [][]string
}

func (r *versionRows) add(v registry.Version, state, why string, between ...string) {
	for len(between) < r.between {
		between = append(between, "-")
	}
	r.rows = append(r.rows, append(append([]string{v.String(), state}, between...), why))
}

// table returns the rows. If no version has a value between its state and the reason,
// these columns are empty.
func (r *versionRows) table() [][]string {
	for _, row := range r.rows {
		if slices.ContainsFunc(row[2:len(row)-1], func(value string) bool { return value != "-" }) {
			return r.rows
		}
	}
	for _, row := range r.rows {
		clear(row[2 : len(row)-1])
	}
	return r.rows
}

// lost adds a version that is withdrawn or missing, and reports whether it is. The
// reason for a withdrawal includes who withdrew the version and when: the record no
// longer has the time of the publish.
func (r *versionRows) lost(p output.Page, v protocol.VersionState) bool {
	switch {
	case v.Withdrawn != nil:
		by := cmp.Or(v.Withdrawn.By, "unknown")
		if p.Width > 0 {
			by = output.ShortIdentity(by, 40)
		}
		r.add(v.Version, v.State,
			fmt.Sprintf("%s (%s, %s)", v.Withdrawn.Reason, by, v.Withdrawn.At.UTC().Format(time.DateOnly)))
	case v.State == protocol.StateMissing:
		r.add(v.Version, v.State, "its record is missing: see `larder verify`")
	default:
		return false
	}
	return true
}

// printSelectable prints a version if clients can select it.
func printSelectable(p output.Page, v protocol.VersionState) {
	if v.State == "" || v.State == protocol.StateDeprecated {
		p.Printf("%s\n", v.Version)
	}
}

// printDeprecated prints that all versions of an address are deprecated. It prints
// nothing if the message is empty.
func printDeprecated(p output.Page, address, message string) {
	if message != "" {
		p.Println("%s is %s: %s", address, p.Paint("deprecated", output.PaintState("deprecated")), message)
		p.Printf("\n")
	}
}

// ModuleView is a list of a module's versions.
type ModuleView struct{ protocol.ModuleHistory }

// Text implements [output.View].
func (v ModuleView) Text(p output.Page) {
	printDeprecated(p, v.Address, v.AllDeprecated)
	rows := versionRows{between: 4}
	for _, m := range v.Versions {
		if !rows.lost(p, m.VersionState) {
			rows.add(m.Version, m.State, m.Reason, output.FormatTime(m.PublishedAt), output.ShortPublisher(m.PublishedBy),
				humanize.IBytes(uint64(max(m.Size, 0))), "sha256:"+m.SHA256)
		}
	}
	p.Table([]terminal.Column{
		output.VersionColumn, output.StateColumn, output.PublishedColumn, output.ByColumn, {Title: "SIZE", Right: true},
		{Title: "ARCHIVE", Min: len("sha256:01234567…"), Optional: true}, output.ReasonColumn,
	}, rows.table())
}

// Quiet prints what a script needs.
func (v ModuleView) Quiet(p output.Page) {
	for _, one := range v.Versions {
		printSelectable(p, one.VersionState)
	}
}

// ProviderView is a list of a provider's versions.
type ProviderView struct{ protocol.ProviderHistory }

// Text implements [output.View].
func (v ProviderView) Text(p output.Page) {
	printDeprecated(p, v.Address, v.AllDeprecated)
	rows := versionRows{between: 5}
	for _, one := range v.Versions {
		if rows.lost(p, one.VersionState) {
			continue
		}
		platforms := output.Mapped(one.Packages, func(f protocol.ProviderFile) string { return f.String() })
		rows.add(one.Version, one.State, one.Reason, output.FormatTime(one.PublishedAt),
			output.ShortPublisher(one.PublishedBy), strings.Join(one.Protocols, " "), one.SigningKey, strings.Join(platforms, " "))
	}
	p.Table([]terminal.Column{
		output.VersionColumn, output.StateColumn, output.PublishedColumn, output.ByColumn,
		{Title: "PROTOCOLS", Optional: true}, {Title: "KEY", Min: 9, Optional: true},
		{Title: "PLATFORMS", Min: len("windows_amd64 +2"), Shorten: output.ShortList}, output.ReasonColumn,
	}, rows.table())
}

// Quiet prints what a script needs.
func (v ProviderView) Quiet(p output.Page) {
	for _, one := range v.Versions {
		printSelectable(p, one.VersionState)
	}
}
