package web

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/search"
	"github.com/larder-registry/larder/pkg/usage"
)

const (
	// statusDays is the period of downloads, and the time before an expiry, in days.
	statusDays = 30
	// statusRows is the maximum number of rows of a section, and rowsOfAddress that of
	// an address for each concern of the mirror.
	statusRows, rowsOfAddress = 100, 3
	// mostDownloaded and lastChanges are the numbers of rows of shorter sections.
	mostDownloaded, lastChanges = 10, 20
)

// status is the model of the page for operators.
type status struct {
	// IsCalm means that nothing needs attention.
	IsCalm   bool
	Sections []statusSection
}

// statusSection is a table of the status.
type statusSection struct {
	ID, Title string
	// Count is a text beside the title. It can be empty.
	Count string
	// Columns are the titles of the columns. The templates choose by them what a cell shows.
	Columns []string
	Rows    []statusRow
	// More is the number of rows that are left out.
	More int
}

// statusRow is a row of the status. Each section uses some of the fields.
type statusRow struct {
	mirroredRow

	// Subject is what the row is about, with the version if it has one. Before is a
	// text before it.
	Before  string
	Subject link
	Text    string
	At      time.Time
	// Others is the number of versions of the same address that are left out.
	Others int
	count  int64
	of     usage.Download // of a deprecated version
}

// status serves the page for operators to callers who may read everything. For all
// others it does not exist.
func (h *handler) status(w http.ResponseWriter, r *http.Request) error {
	v, err := h.identify(r)
	if err == nil && access.CanReadAll(v.Context()) {
		return h.serve(w, v, nil, h.statusPage)
	}
	h.elsewhere(w, r)
	return nil
}

// statusPage returns the page for operators. It names people and tokens only to a
// caller with an account, or on an open registry of one machine.
//
// The lists are cached. It makes one request to the table for each MiB of origins, and
// one for 20 addresses with something to show. It makes one for tokens, one for each
// namespace with a provider, and 2 to 20 for changes. Each deprecated version of a module
// that it shows is one more. So is, on AWS, each address with downloads in the period.
func (h *handler) statusPage(v *visit) (page, error) {
	ctx := v.Context()
	entries, err := h.readable(ctx, everything()...)
	if err != nil {
		return page{}, err
	}
	isTrusted := v.account.Name != "" || h.Local != nil && h.Local.Open
	mirror, err1 := h.mirrorStatus(ctx)
	expiring, err2 := h.expiring(ctx, entries, isTrusted)
	deprecated, downloads, err3 := h.downloaded(ctx, entries)
	m := status{IsCalm: len(mirror.Rows)+len(expiring.Rows)+len(deprecated.Rows) == 0}
	m.Sections = []statusSection{mirror, expiring, deprecated, downloads}
	if isTrusted {
		changes, err := h.changes(ctx)
		err1, m.Sections = cmp.Or(err1, err), append(m.Sections, changes)
	}
	m.Sections = slices.DeleteFunc(m.Sections, func(s statusSection) bool { return len(s.Rows) == 0 })
	for i := range m.Sections {
		s := &m.Sections[i]
		s.More = max(0, len(s.Rows)-statusRows)
		s.Rows = s.Rows[:len(s.Rows)-s.More]
	}
	return page{template: "status", title: "Status", model: m}, cmp.Or(err1, err2, err3)
}

// mirrorStatus returns what is wrong in the mirror, and then what waits. It reads the
// items of all origins, and the contents of addresses that have something to show.
func (h *handler) mirrorStatus(ctx context.Context) (s statusSection, err error) {
	s = statusSection{ID: "mirror", Title: "Mirror", Columns: []string{"Version", "State"}}
	addresses, err := h.attentive(ctx)
	if err != nil {
		return s, err
	}
	all, err := h.attentions(ctx, addresses...)
	for concern := range concerns {
		for _, p := range addresses {
			rows := all[p][concern]
			for _, r := range rows[:min(rowsOfAddress, len(rows))] {
				s.Rows = append(s.Rows, statusRow{mirroredRow: r, Subject: link{p.Display(), "/" + p.Path() + "/versions"}})
			}
			if others := len(rows) - rowsOfAddress; others > 0 {
				s.Rows[len(s.Rows)-1].Others = others
			}
		}
	}
	return s, err
}

// expiring returns what expires soon. It reads all tokens, and the signing keys of each
// namespace with a provider.
func (h *handler) expiring(ctx context.Context, entries []*search.Entry, isTrusted bool) (s statusSection, err error) {
	s = statusSection{ID: "expires-soon", Title: "Expires soon", Columns: []string{"Name", "State", "Expires"}}
	now := h.now()
	add := func(what, name string, at time.Time) {
		if at.IsZero() || at.After(now.AddDate(0, 0, statusDays)) {
			return
		}
		row := statusRow{Before: what, Subject: link{Text: name}, At: at}
		row.Badges = []badge{{"expires soon", "warn"}}
		if !at.After(now) {
			row.Badges = []badge{{"expired", "bad"}}
		}
		s.Rows = append(s.Rows, row)
	}
	if isTrusted {
		tokens, _, err := h.Catalog.Tokens(ctx)
		if err != nil {
			return s, err
		}
		for _, t := range tokens {
			add("Token", cmp.Or(t.Name, t.ID), t.ExpiresAt)
		}
	}
	ofProvider := func(e *search.Entry) string {
		if e.Kind != search.Providers {
			return ""
		}
		return namespaceOf(e)
	}
	for _, n := range countBy(entries, ofProvider) {
		keys, unreadable, err := h.Catalog.ReadableKeys(ctx, n.Name)
		if err != nil {
			return s, err
		}
		for _, u := range unreadable {
			logDamage(ctx, u.Err)
		}
		for _, k := range keys {
			add("Signing key of "+n.Name, k.ID, k.ExpiresAt)
		}
	}
	if h.Local != nil && h.Local.CertificateExpires != nil {
		add("Certificate of", h.Host, h.Local.CertificateExpires())
	}
	slices.SortStableFunc(s.Rows, func(a, b statusRow) int { return a.At.Compare(b.At) })
	return s, nil
}

// downloaded returns the downloads of deprecated versions, and the most downloaded
// addresses. If downloads cannot be counted, that is logged.
func (h *handler) downloaded(ctx context.Context, entries []*search.Entry) (deprecated, most statusSection, err error) {
	if h.Downloads == nil {
		return deprecated, most, nil
	}
	now := h.now()
	report, err := h.Downloads.Count(ctx, usage.Query{From: now.AddDate(0, 0, -statusDays), To: now})
	switch {
	case errors.Is(err, registry.ErrUnavailable):
		return deprecated, most, err
	case err != nil && !errors.Is(err, registry.ErrNotFound): // no server has counted yet
		logDamage(ctx, err)
	}
	byPath := make(map[string]*search.Entry, len(entries))
	for _, e := range entries {
		byPath[e.Path()] = e
	}
	total, counts := int64(0), make(map[string]int64)
	for _, d := range report.Downloads {
		path := d.Address.Path()
		counts[path] += d.Count
		total += d.Count
		if reason, is := deprecation(byPath[path], d.Version); is {
			row := statusRow{Subject: link{d.Address.String(), "/" + path}, count: d.Count, of: d}
			row.Version, row.Path, row.Note = d.Version.String(), "/"+path+"/"+d.Version.String(), reason
			deprecated.Rows = append(deprecated.Rows, row)
		}
	}
	for path, n := range counts {
		_, address, _ := strings.Cut(path, "/")
		most.Rows = append(most.Rows, statusRow{Subject: link{address, "/" + path}, count: n})
	}
	for _, rows := range [][]statusRow{deprecated.Rows, most.Rows} {
		slices.SortFunc(rows, func(a, b statusRow) int {
			return cmp.Or(cmp.Compare(b.count, a.count), cmp.Compare(a.Subject.URL+a.Path, b.Subject.URL+b.Path))
		})
		for i := range rows {
			rows[i].Text = plural(int(rows[i].count), "download")
		}
	}
	for i := range min(statusRows, len(deprecated.Rows)) {
		if err := h.addReason(ctx, &deprecated.Rows[i]); err != nil {
			return deprecated, most, err
		}
	}
	const period = "in the last 30 days"
	deprecated.ID, deprecated.Title, deprecated.Count = "deprecated", "Deprecated and still downloaded", period
	deprecated.Columns = []string{"Version", "Downloads", "Reason"}
	most.ID, most.Title, most.Count = "downloads", "Downloads", count(int(total))+" "+period
	most.Columns, most.Rows = []string{"Address", "Downloads"}, most.Rows[:min(mostDownloaded, len(most.Rows))]
	return deprecated, most, nil
}

// deprecation reports whether a version of an entry is deprecated, or all its versions.
// The reason is empty if only the record has it. The entry can be nil.
func deprecation(e *search.Entry, n registry.Version) (reason string, is bool) {
	if e == nil {
		return "", false
	}
	for _, d := range e.DeprecatedVersions {
		if d.Version == n {
			return d.Message, true
		}
	}
	return e.Deprecated, e.Deprecated != ""
}

// addReason adds the reason for deprecating a version of a module, which only its
// record has.
func (h *handler) addReason(ctx context.Context, row *statusRow) error {
	m, isModule := row.of.Address.(registry.Module)
	if !isModule || row.Note != "" {
		return nil
	}
	record, err := h.Catalog.Modules.Get(ctx, m, row.of.Version)
	if errors.Is(err, registry.ErrUnavailable) {
		return err
	}
	logDamage(ctx, err)
	row.Note = record.Deprecated
	return nil
}

// changes returns the last entries of the audit trail. The trail is read by months, so
// this first looks for them in the last day.
func (h *handler) changes(ctx context.Context) (s statusSection, err error) {
	s = statusSection{ID: "changes", Title: "Last changes", Columns: []string{"Change", "By", "Date"}}
	now := time.Now() // the trail has the time of the system
	for _, days := range []int{1, statusDays, 365} {
		s.Rows = nil
		for e, err := range h.Catalog.Audit(ctx, now.AddDate(0, 0, -days)) {
			if err != nil {
				return s, err
			}
			if s.Rows = append(s.Rows, changeRow(e)); len(s.Rows) == lastChanges {
				return s, nil
			}
		}
	}
	return s, nil
}

func changeRow(e registry.AuditEntry) statusRow {
	row := statusRow{Before: strings.ReplaceAll(string(e.Action), "-", " "), Text: shortName(e.By), At: e.At}
	first, name, _ := strings.Cut(e.Subject, "/")
	row.Subject = link{Text: name}
	if slices.ContainsFunc(kinds, func(k kind) bool { return k.Path == "/"+first }) {
		row.Subject.URL = "/" + e.Subject
	}
	if e.Version != nil {
		row.Version = e.Version.String()
	}
	if e.Problem != "" {
		row.Before = strings.TrimSpace("damaged entry: " + row.Before)
	}
	return row
}
