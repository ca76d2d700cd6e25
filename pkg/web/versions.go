package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/registry"
)

// pickable is the number of versions that the menu beside the title has.
const pickable = 10

// edition is a version of an address, with what the head of its pages shows.
// Read it with two requests: [openEdition], then the records of
// [edition.others], which [edition.add] takes.
type edition[R registry.Record] struct {
	catalog.Contents[R]
	// Number is the version that the page shows.
	Number registry.Version
	// Path is the path of the address, such as /modules/acme/vpc/aws. Rest is
	// what follows the version in the path of the page, such as
	// /modules/endpoints.
	Path, Rest string
}

// openEdition reads the version of an address that a path names: the newest one
// if the text is empty. If no version is listed, that is the newest withdrawn
// one.
//
// Errors are registry.ErrNotFound and registry.ErrInvalid for a path without a
// page. Check first that the caller may read the address.
func openEdition[A registry.Address, R registry.Record](
	ctx context.Context, versions catalog.Versions[A, R], a A, text string,
) (*edition[R], error) {
	numbers, err := numbersOf(text)
	if err != nil {
		return nil, err
	}
	c, err := versions.Contents(ctx, a, numbers...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a, err)
	}
	e := &edition[R]{Contents: c, Path: "/" + a.Path()}
	return e, e.choose(numbers)
}

// numbersOf returns the version that a path names, or none if the text is empty.
func numbersOf(text string) ([]registry.Version, error) {
	if text == "" {
		return nil, nil
	}
	// As in the module registry protocol, a tag works too.
	n, err := registry.ParseVersion(strings.TrimPrefix(text, "v"))
	return []registry.Version{n}, err
}

// choose sets the version that the page shows: the one of numbers, or the newest
// one. The error is registry.ErrNotFound if there is none.
func (e *edition[R]) choose(numbers []registry.Version) error {
	switch {
	case len(numbers) > 0:
		e.Number = numbers[0]
		if _, found := e.Records[e.Number]; !found {
			return &noVersion{e.Entry.Address, e.Path, e.Number.String()}
		}
	case !e.Entry.Unlisted:
		e.Number = e.Entry.Latest
	case len(e.Entry.Withdrawn) > 0:
		e.Number = e.Entry.Withdrawn[0]
	case len(e.Entry.Hidden) > 0:
		e.Number = e.Entry.Hidden[0]
	default: // none is mirrored
		return fmt.Errorf("%s: no version is listed: %w", e.Entry.Address, registry.ErrNotFound)
	}
	return nil
}

// noVersion is the error for an unknown version of an address that exists and that
// the caller may read.
type noVersion struct{ Address, Path, Version string }

func (e *noVersion) Error() string { return fmt.Sprintf("%s %s: %v", e.Address, e.Version, e.Unwrap()) }

func (*noVersion) Unwrap() error { return registry.ErrNotFound }

// IsMirrored reports whether the version can exist at the origin of the address.
func (e *noVersion) IsMirrored() bool { return strings.HasPrefix(e.Path, "/mirror") }

// all returns all versions, the newest first.
func (e *edition[R]) all() []registry.Version {
	all := slices.Concat(e.Listed, e.Entry.Hidden, e.Entry.Withdrawn, []registry.Version{e.Number})
	slices.SortFunc(all, func(a, b registry.Version) int { return registry.CompareVersions(b, a) })
	return slices.Compact(all)
}

// picked returns the versions of the menu: the newest ones, and the shown one.
func (e *edition[R]) picked() []registry.Version {
	all := e.all()
	return slices.DeleteFunc(slices.Clone(all), func(n registry.Version) bool {
		return n != e.Number && slices.Index(all, n) >= pickable
	})
}

// others returns the versions whose records the page still needs.
func (e *edition[R]) others() []registry.Version {
	return slices.DeleteFunc(e.picked(), func(n registry.Version) bool {
		_, found := e.Records[n]
		return found
	})
}

// add adds the records of other versions. An error of another version than the
// shown one only removes it from the menu.
func (e *edition[R]) add(ctx context.Context, records map[registry.Version]R, err error) error {
	for n, r := range records {
		e.Records[n] = r
	}
	if _, found := e.Records[e.Number]; !found && err == nil {
		err = fmt.Errorf("version %s of %s: %w", e.Number, e.Path, registry.ErrNotFound)
	} else if found && errors.Is(err, registry.ErrCorrupt) {
		logDamage(ctx, err)
		err = nil
	}
	return err
}

func (e *edition[R]) record() R { return e.Records[e.Number] }

// isLatest reports whether the shown version is the one that clients choose
// without a constraint.
func (e *edition[R]) isLatest() bool { return !e.Entry.Unlisted && e.Number == e.Entry.Latest }

func (e *edition[R]) pathOf(n registry.Version) string { return e.Path + "/" + n.String() + e.Rest }

func (e *edition[R]) picker() picker {
	p := picker{Current: e.Number.String(), All: e.Path + "/versions"}
	p.Total = len(e.all())
	if e.isLatest() && e.Number.Prerelease == "" {
		p.Badges = []badge{{"latest", "ok"}}
	}
	for _, n := range e.picked() {
		p.Newest = append(p.Newest, e.line(n))
	}
	if e.comparable() && len(e.Listed) > 1 {
		p.Compare = e.Path + "/compare"
		if !e.isLatest() && !e.Entry.Unlisted {
			p.Compare = comparePath(e.Path, e.Number, e.Entry.Latest)
		}
	}
	return p
}

func (e *edition[R]) line(n registry.Version) listed {
	l := listed{Version: n.String(), Path: e.pathOf(n), IsCurrent: n == e.Number, Published: e.Published[n]}
	r, found := e.Records[n]
	if !found {
		l.Withdrawn = slices.Contains(e.Entry.Withdrawn, n)
	} else {
		s := stateOf(r)
		l.Published, l.Note, l.By, l.Withdrawn = s.published, s.reason, newBy(s.by), s.state == withdrawn
		l.Badges = s.badges()
		if c := s.claimed; c != nil {
			l.Claimed = strings.TrimSpace(c.Tag + " " + shortCommit(c.Commit))
			if c.Dirty {
				l.Claimed += ", with changes"
			}
		}
		if !l.Withdrawn && e.comparable() {
			l.Changes = e.changesOf(n, s.changes)
		}
	}
	switch {
	case l.Withdrawn:
		l.Path = ""
	case n.Prerelease != "":
		l.Badges = append(l.Badges, badge{"pre-release", "note"})
	case !e.Entry.Unlisted && n == e.Entry.Latest:
		l.Badges = append([]badge{{"latest", "ok"}}, l.Badges...)
	}
	return l
}

// changesOf returns the link to what changed from the version before to n. counts
// are those of its record, or nil.
func (e *edition[R]) changesOf(n registry.Version, counts *registry.Changes) changesLink {
	before, found := registry.Before(n, e.Listed)
	if counts == nil || slices.Contains(e.Entry.Withdrawn, counts.Since) {
		if !found {
			return changesLink{}
		}
		return changesLink{link: link{"compare with " + before.String(), comparePath(e.Path, before, n)}}
	}
	rest := *counts
	rest.Breaking = 0
	c := changesLink{
		link:  link{rest.String(), comparePath(e.Path, counts.Since, n)},
		Since: counts.Since.String(), IsBefore: counts.Since == before,
	}
	if counts.Breaking > 0 {
		c.Breaking = count(counts.Breaking) + " breaking"
		if rest == (registry.Changes{Since: rest.Since}) {
			c.Text = ""
		}
	}
	return c
}

// comparable reports whether versions of the kind have a comparison.
func (e *edition[R]) comparable() bool {
	_, isModule := any(e.record()).(registry.ModuleVersion)
	return isModule
}

// banner returns the one notice of the page that counts most, or nil.
func (e *edition[R]) banner() *banner {
	s, n := stateOf(e.record()), e.Number.String()
	b := &banner{Tone: "warn", Text: s.reason}
	switch {
	case s.state == withdrawn:
		b.Tone, b.Strong = "bad", n+" was withdrawn on "+date(s.published)+"."
		b.Text = strings.TrimSpace(sentence(s.reason) + " Its number will not be used again.")
	case s.state == hidden:
		b.Strong, b.Text = n+" is hidden.", strings.TrimSpace("Clients can no longer install it. "+s.reason)
	case s.state == deprecated:
		b.Strong = n + " is deprecated."
	case e.Entry.Deprecated != "":
		b.Strong, b.Text = e.Entry.Address+" is deprecated.", e.Entry.Deprecated
	case e.Number.Prerelease != "":
		b.Tone, b.Strong = "note", n+" is a pre-release."
		b.Text = "Clients install it only when a configuration names it exactly."
	case !e.isLatest():
		b.Tone, b.Strong = "note", n+" is not the latest version."
	default:
		return nil
	}
	b.Links = e.waysOut(s.state)
	return b
}

// waysOut returns the links from another version than the latest to that.
func (e *edition[R]) waysOut(s state) (links []link) {
	if e.Entry.Unlisted || e.isLatest() {
		return nil
	}
	latest := e.Entry.Latest
	links = []link{{"Go to " + latest.String() + ", the latest version", e.pathOf(latest)}}
	if e.comparable() && s != withdrawn {
		links = append(links, link{
			"See what changes from " + e.Number.String() + " to " + latest.String(), comparePath(e.Path, e.Number, latest),
		})
	}
	return links
}

// state is what happened to a version.
type state int

const (
	current state = iota
	deprecated
	hidden
	withdrawn
)

// versionState is the state of a version, with the reason of the author. The
// time is that of the withdrawal of a withdrawn version, and of the publish of
// any other.
type versionState struct {
	state     state
	reason    string
	published time.Time
	by        registry.Publisher
	// claimed is the Git source that the publisher claims, or nil. changes are
	// those of the record.
	claimed *registry.ClaimedSource
	changes *registry.Changes
}

func stateOf[R registry.Record](r R) (s versionState) {
	if w := r.Withdrawal(); w != nil {
		return versionState{state: withdrawn, reason: w.Reason, published: w.At}
	}
	switch r := any(r).(type) {
	case registry.ModuleVersion:
		s = versionState{
			reason: r.Deprecated, published: r.PublishedAt, by: r.PublishedBy, claimed: r.Claimed, changes: r.Changes,
		}
		if r.Hidden {
			s.state = hidden
		}
	case registry.ProviderVersion:
		s = versionState{reason: r.Deprecated, published: r.PublishedAt, by: r.PublishedBy}
	case registry.MirrorVersion:
		if m := r.Module; m != nil {
			s.published, s.by = m.MirroredAt, m.MirroredBy
		}
		for _, p := range r.Packages {
			if p.MirroredAt.After(s.published) {
				s.published, s.by = p.MirroredAt, p.MirroredBy
			}
		}
	}
	if s.reason != "" && s.state == current {
		s.state = deprecated
	}
	return s
}

func (s versionState) badges() []badge {
	switch s.state {
	case deprecated:
		return []badge{{"deprecated", "warn"}}
	case hidden:
		return []badge{{"hidden", "warn"}}
	case withdrawn:
		return []badge{{"withdrawn", "bad"}}
	case current:
	}
	return nil
}

// withdrawnPage is the page of a version that was withdrawn or is not mirrored: the
// banner with the reason, and where to continue.
func withdrawnPage(h head, n registry.Version, title string) page {
	all := link{"List of versions", h.Picker.All}
	if h.Picker.Total > 1 {
		all.Text = "All " + plural(h.Picker.Total, "version")
	}
	h.Banner.Links = append(h.Banner.Links, all, link{"Who uses it", path.Dir(all.URL) + "/used-by"})
	h.Picker = picker{}
	h.After += " " + n.String()
	return page{template: "withdrawn", title: title, status: http.StatusNotFound, model: h}
}
