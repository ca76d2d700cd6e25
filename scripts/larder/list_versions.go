package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/larder-registry/larder/pkg/catalog"
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

func (r *versionRows) missing(versions []registry.Version) {
	for _, v := range versions {
		r.add(v, "missing", "its record is missing: run `larder verify`")
	}
}

// withdrawn adds a withdrawn version. The reason includes who withdrew it and
// when. The record no longer has the time of the publish.
func (r *versionRows) withdrawn(p output.Page, v registry.Version, w registry.Withdrawal) {
	by := cmp.Or(w.By, "unknown")
	if p.Width > 0 {
		by = output.ShortIdentity(by, 40)
	}
	r.add(v, "withdrawn", fmt.Sprintf("%s (%s, %s)", w.Reason, by, w.At.UTC().Format(time.DateOnly)))
}

// printVersions prints the versions that clients can select.
func printVersions[V registry.Record](p output.Page, versions []V) {
	for _, v := range versions {
		if v.Listed() {
			p.Printf("%s\n", v.Number())
		}
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

// addressDeprecation returns the deprecation message of an address. It is empty
// if the address is not deprecated.
func addressDeprecation(all iter.Seq2[registry.Summary, error], address string) (string, error) {
	for summary, err := range all {
		if err != nil || summary.Address == address {
			return summary.Deprecated, err
		}
	}
	return "", nil
}

// moduleView is a list of a module's versions.
type moduleView struct {
	Address string `json:"address"`
	// Deprecated is the deprecation message for all versions.
	Deprecated string                   `json:"deprecated,omitempty"`
	Versions   []registry.ModuleVersion `json:"versions"`
	// Missing lists the versions with missing records.
	Missing []registry.Version `json:"missing,omitempty"`
}

func listModule(ctx context.Context, from *catalog.Catalog, m registry.Module) (moduleView, error) {
	versions, err := from.Modules.All(ctx, m)
	missing, err := missingVersions(ctx, err, m, from.Modules)
	v := moduleView{Address: m.String(), Versions: versions, Missing: missing}
	if err == nil {
		v.Deprecated, err = addressDeprecation(from.Modules.Summaries(ctx, m.Namespace), v.Address)
	}
	return v, err
}

func (v moduleView) Text(p output.Page) {
	printDeprecated(p, v.Address, v.Deprecated)
	rows := versionRows{between: 4}
	for _, m := range v.Versions {
		if m.Withdrawn != nil {
			rows.withdrawn(p, m.Version, *m.Withdrawn)
			continue
		}
		name, why := output.State(m.Deprecated, m.Hidden)
		rows.add(m.Version, name, why,
			output.FormatTime(m.PublishedAt), output.ShortPublisher(m.PublishedBy), humanize.IBytes(uint64(m.Size)), "sha256:"+m.SHA256)
	}
	rows.missing(v.Missing)
	p.Table([]terminal.Column{
		output.VersionColumn, output.StateColumn, output.PublishedColumn, output.ByColumn, {Title: "SIZE", Right: true},
		{Title: "ARCHIVE", Min: len("sha256:01234567…"), Optional: true}, output.ReasonColumn,
	}, rows.rows)
}

func (v moduleView) Quiet(p output.Page) {
	printVersions(p, v.Versions)
}

// providerView is a list of a provider's versions.
type providerView struct {
	Address string `json:"address"`
	// Deprecated is the deprecation message for all versions.
	Deprecated string                     `json:"deprecated,omitempty"`
	Versions   []registry.ProviderVersion `json:"versions"`
	// Missing lists the versions with missing records.
	Missing []registry.Version `json:"missing,omitempty"`
}

func listProvider(ctx context.Context, from *catalog.Catalog, a registry.Provider) (providerView, error) {
	versions, err := from.Providers.All(ctx, a)
	missing, err := missingVersions(ctx, err, a, from.Providers)
	v := providerView{Address: a.String(), Versions: versions, Missing: missing}
	if err == nil {
		v.Deprecated, err = addressDeprecation(from.Providers.Summaries(ctx, a.Namespace), v.Address)
	}
	return v, err
}

func (v providerView) Text(p output.Page) {
	printDeprecated(p, v.Address, v.Deprecated)
	rows := versionRows{between: 5}
	for _, one := range v.Versions {
		if one.Withdrawn != nil {
			rows.withdrawn(p, one.Version, *one.Withdrawn)
			continue
		}
		name, why := output.State(one.Deprecated, false)
		platforms := make([]string, len(one.Packages))
		for i, pkg := range one.Packages {
			platforms[i] = pkg.String()
		}
		rows.add(one.Version, name, why, output.FormatTime(one.PublishedAt), output.ShortPublisher(one.PublishedBy),
			strings.Join(one.Protocols, " "), one.SigningKey, strings.Join(platforms, " "))
	}
	rows.missing(v.Missing)
	p.Table([]terminal.Column{
		output.VersionColumn, output.StateColumn, output.PublishedColumn, output.ByColumn,
		{Title: "PROTOCOLS", Optional: true}, {Title: "KEY", Min: 9, Optional: true},
		{Title: "PLATFORMS", Min: len("windows_amd64 +2"), Shorten: output.ShortList}, output.ReasonColumn,
	}, rows.rows)
}

func (v providerView) Quiet(p output.Page) {
	printVersions(p, v.Versions)
}

// missingVersions returns the versions with missing records. It returns nil
// instead of failed if this is the only damage to the address.
func missingVersions[A registry.Address, R registry.Record](
	ctx context.Context, failed error, address A, versions catalog.Versions[A, R],
) ([]registry.Version, error) {
	if !errors.Is(failed, registry.ErrCorrupt) {
		return nil, failed
	}
	s, err := versions.Stored(ctx, address)
	if err == nil && len(s.Missing) > 0 && len(s.Unreadable) == 0 {
		return s.Missing, nil
	}
	return nil, cmp.Or(err, failed)
}
