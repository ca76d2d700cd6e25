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
	"github.com/larder-registry/larder/pkg/httpapi/requestlog"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/search"
	"github.com/larder-registry/larder/pkg/usage"
)

const (
	// soon is the time before an expiry at which it is shown, in days.
	soon = 30
	// statusRows is the maximum number of rows of a section, and rowsOfAddress that
	// of an address for each state of the mirror.
	statusRows, rowsOfAddress = 100, 3
	// mostDownloaded and lastChanges are the numbers of rows of shorter sections.
	mostDownloaded, lastChanges = 10, 20
)

// status is the model of the page for operators.
type status struct {
	// NothingToDo means that nothing needs attention. Damaged means that some data
	// cannot be read.
	NothingToDo, Damaged bool
	Sections             []statusSection
}

// statusSection is a table of the status. Columns are the titles of its columns.
type statusSection struct {
	ID, Title string
	// Count is a text beside the title. It can be empty.
	Count   string
	Columns []string
	Rows    []statusRow
	// More is the number of rows that are left out.
	More int
}

// statusRow is a row of the status. Its heading is the subject with a text
// before it and a version behind it. Each of the three can be empty.
type statusRow struct {
	Before           string
	Subject, Version link
	Cells            []statusCell
}

// statusCell is the cell of a row. Its parts are shown one after another.
type statusCell struct {
	State *mirroredRow
	Text  string
	More  link
	At    time.Time
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
// caller whose credential permits to read everything, or on an open registry of one
// machine.
//
// The lists are cached. It makes one request to the table for each MiB of
// origins. It makes one for 20 addresses with something to show, and one for 100
// versions to be copied. It makes one for tokens, one for each namespace with a
// provider, and 2 to 3 for changes. Each deprecated version of a module that it
// shows is one more. On AWS, each address with downloads in the period is too.
func (h *handler) statusPage(v *visit) (page, error) {
	ctx := v.Context()
	entries, err := h.readable(ctx, everything()...)
	if err != nil {
		return page{}, err
	}
	namesPeople := access.CredentialReadsAll(ctx) || h.Local != nil && h.Local.Open
	toDo, waiting, err := h.mirrorStatus(ctx)
	if err != nil {
		return page{}, err
	}
	expiring, err := h.expiring(ctx, entries, namesPeople)
	if err != nil {
		return page{}, err
	}
	deprecated, most, err := h.downloaded(ctx, entries)
	if err != nil {
		return page{}, err
	}
	all := []statusSection{toDo, expiring, deprecated, waiting, most}
	if namesPeople {
		changes, err := h.changes(ctx)
		if err != nil {
			return page{}, err
		}
		all = append(all, changes)
	}
	m := status{Damaged: requestlog.From(ctx).Err != nil}
	m.NothingToDo = !m.Damaged && len(toDo.Rows)+len(expiring.Rows)+len(deprecated.Rows) == 0
	for _, s := range all {
		if len(s.Rows) > 0 {
			s.More = max(0, len(s.Rows)-statusRows)
			s.Rows = s.Rows[:len(s.Rows)-s.More]
			m.Sections = append(m.Sections, s)
		}
	}
	return page{template: "status", title: "Status", model: m}, nil
}

// mirrorStatus returns what is wrong in the mirror, and what waits. It reads
// the items of all origins, and the contents of addresses that have something
// to show.
func (h *handler) mirrorStatus(ctx context.Context) (toDo, waiting statusSection, err error) {
	toDo = statusSection{ID: "mirror", Title: "Mirror", Columns: []string{"Version", "State"}}
	waiting = statusSection{ID: "waiting", Title: "Waiting in the mirror", Columns: toDo.Columns}
	addresses, err := h.addressesToCheck(ctx)
	if err != nil {
		return toDo, waiting, err
	}
	all, err := h.findings(ctx, addresses...)
	for state := range mirrorStates {
		to := &toDo
		if state == waitingVersions {
			to = &waiting
		}
		for _, p := range addresses {
			rows := all[p][state]
			versions := link{p.Display(), "/" + p.Path() + "/versions"}
			for i, r := range rows[:min(rowsOfAddress, len(rows))] {
				row := statusRow{Subject: versions, Version: link{r.Version, r.Path}, Cells: []statusCell{{State: &r}}}
				if others := len(rows) - rowsOfAddress; i == rowsOfAddress-1 && others > 0 {
					row.Cells[0].More = link{"and " + count(others) + " more", versions.URL}
				}
				to.Rows = append(to.Rows, row)
			}
		}
	}
	return toDo, waiting, err
}

// expiring returns what expires soon. It reads all tokens if they may be named,
// and the signing keys of each namespace with a provider.
func (h *handler) expiring(ctx context.Context, entries []*search.Entry, namesTokens bool) (s statusSection, err error) {
	s = statusSection{ID: "expires-soon", Title: "Expires soon", Columns: []string{"Name", "Expires"}}
	now := h.now()
	add := func(what, name string, at time.Time) {
		if at.IsZero() || at.After(now.AddDate(0, 0, soon)) {
			return
		}
		row := statusRow{Before: what, Subject: link{Text: name}, Cells: []statusCell{{At: at}}}
		if !at.After(now) {
			row.Cells[0].State = &mirroredRow{listed: listed{Badges: []badge{{"expired", "bad"}}}}
		}
		s.Rows = append(s.Rows, row)
	}
	if namesTokens {
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
	slices.SortStableFunc(s.Rows, func(a, b statusRow) int { return a.Cells[0].At.Compare(b.Cells[0].At) })
	return s, nil
}

// downloaded returns the downloads of deprecated versions, and the most downloaded
// addresses. If downloads cannot be counted, that is logged.
func (h *handler) downloaded(ctx context.Context, entries []*search.Entry) (deprecated, most statusSection, err error) {
	if h.Downloads == nil {
		return deprecated, most, nil
	}
	report, period, err := h.countDownloads(ctx, nil)
	if errors.Is(err, registry.ErrUnavailable) {
		return deprecated, most, err
	}
	logDamage(ctx, err)
	byPath := make(map[string]*search.Entry, len(entries))
	for _, e := range entries {
		byPath[e.Path()] = e
	}
	counts := make(map[string]int64)
	for _, d := range report.Downloads { // the most frequent first
		path := d.Address.Path()
		counts[path] += d.Count
		reason, isDeprecated := deprecation(byPath[path], d.Version)
		if !isDeprecated {
			continue
		}
		if reason == "" && len(deprecated.Rows) < statusRows {
			if reason, err = h.reasonOf(ctx, d); err != nil {
				return deprecated, most, err
			}
		}
		version := link{d.Version.String(), "/" + path + "/" + d.Version.String()}
		deprecated.Rows = append(deprecated.Rows, statusRow{
			Subject: link{d.Address.String(), "/" + path}, Version: version,
			Cells: []statusCell{{Text: plural(int(d.Count), "download")}, {Text: reason}},
		})
	}
	total := int64(0)
	for path, n := range counts {
		total += n
		_, address, _ := strings.Cut(path, "/")
		most.Rows = append(most.Rows, statusRow{
			Subject: link{address, "/" + path}, Cells: []statusCell{{Text: plural(int(n), "download")}},
		})
	}
	slices.SortFunc(most.Rows, func(a, b statusRow) int {
		return cmp.Or(cmp.Compare(counts[b.Subject.URL[1:]], counts[a.Subject.URL[1:]]), cmp.Compare(a.Subject.URL, b.Subject.URL))
	})
	deprecated.ID, deprecated.Title, deprecated.Count = "deprecated", "Deprecated and still downloaded", period
	deprecated.Columns = []string{"Version", "Downloads", "Reason"}
	most.ID, most.Title, most.Count = "downloads", "Downloads", atLeast(count(int(total)), report.Cut)+" "+period
	most.Columns, most.Rows = []string{"Address", "Downloads"}, most.Rows[:min(mostDownloaded, len(most.Rows))]
	return deprecated, most, nil
}

// deprecation reports whether a version of an entry is deprecated, or all its
// versions. The reason is empty if only the record has it. The entry can be
// nil.
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

// reasonOf returns the reason for deprecating a version of a module, which only its
// record has.
func (h *handler) reasonOf(ctx context.Context, d usage.Download) (string, error) {
	m, isModule := d.Address.(registry.Module)
	if !isModule {
		return "", nil
	}
	record, err := h.Catalog.Modules.Get(ctx, m, d.Version)
	if errors.Is(err, registry.ErrUnavailable) {
		return "", err
	}
	logDamage(ctx, err)
	return record.Deprecated, nil
}

// changes returns the last entries of the audit trail. One day often has enough of
// them, and the trail of a month can be long.
func (h *handler) changes(ctx context.Context) (s statusSection, err error) {
	s = statusSection{ID: "changes", Title: "Last changes", Columns: []string{"Change", "By", "Date"}}
	now := time.Now() // the trail has the time of the system
	for _, days := range []int{1, countedDays} {
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
	first, name, _ := strings.Cut(e.Subject, "/")
	if first == "policy" {
		name = "of the " + name
	}
	row := statusRow{
		Before: strings.ReplaceAll(string(e.Action), "-", " "), Subject: link{Text: name},
		Cells: []statusCell{{Text: shortName(e.By)}, {At: e.At}},
	}
	if slices.ContainsFunc(kinds, func(k kind) bool { return k.Path == "/"+first }) {
		row.Subject.URL = "/" + e.Subject
	}
	if e.Version != nil {
		row.Version.Text = e.Version.String()
	}
	return row
}
