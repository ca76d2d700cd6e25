package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/docs/changelog"
	"github.com/larder-registry/larder/pkg/docs/stored"
	"github.com/larder-registry/larder/pkg/registry"
)

// comparison is the model of the comparison of two versions of a module.
type comparison struct {
	Head     head
	From, To comparedVersion
	// Choices are the versions to compare, the newest first.
	Choices []choice
	// Path is the path of the form, and Swap that of the opposite comparison.
	Path, Swap string
	// Commits is the URL of a comparison of the commits, or empty.
	Commits string
	// Undocumented are the versions without documentation. If there is one,
	// nothing is compared.
	Undocumented []string
	// Sections are the changes of the root, and Folders those of submodules.
	Sections []changes
	Folders  []changedFolder
	// Unchanged are the sections without changes, such as "4 outputs".
	Unchanged []string
	// IsRenaming reports whether something was perhaps renamed.
	IsRenaming bool
	// Changelog is the part of the later version's changelog between the
	// versions, and ChangelogFile the place of it. They can be empty.
	Changelog     changelog.Part
	ChangelogFile link
	// summary describes the comparison. It is empty if nothing is compared.
	summary string
}

// choice is a version to compare. State is empty, hidden or deprecated.
type choice struct{ Version, State string }

// HasShortChangelog reports whether the changelog fits on a page that it opens
// on.
func (c comparison) HasShortChangelog() bool { return strings.Count(c.Changelog.Plain(), "\n") < 15 }

// IsSame reports whether the two versions are one.
func (c comparison) IsSame() bool { return c.From.Version == c.To.Version }

// IsOnly reports whether there is no other version to compare with.
func (c comparison) IsOnly() bool { return len(c.Choices) == 1 }

// comparedVersion is one of the two versions.
type comparedVersion struct {
	Version, Path string
	Published     time.Time
	// Commit is the short commit, or who published the version.
	Commit   link
	IsCommit bool
}

// compare serves the comparison. It makes at most two requests to the table,
// and reads two objects, or three if the files of the later version are stored.
func (h *handler) compare(v *visit) (page, error) {
	query := v.URL.Query()
	v.wanted = comparedAddress(v, cmp.Or(query.Get("from"), query.Get("to")))
	m, err := moduleOf(v)
	if err != nil {
		return page{}, err
	}
	var numbers [2]registry.Version
	var given []registry.Version
	for i, name := range []string{"from", "to"} {
		if text := query.Get(name); text != "" {
			if numbers[i], err = registry.ParseVersion(text); err != nil {
				v.wanted = comparedAddress(v, text)
				return page{}, err
			}
			given = append(given, numbers[i])
		}
	}
	contents, err := h.Catalog.Modules.Contents(v.Context(), m, given...)
	if err != nil {
		return page{}, fmt.Errorf("module %s: %w", m, err)
	}
	isGone := func(n registry.Version) bool {
		r, found := contents.Records[n]
		return !found || r.Withdrawn != nil
	}
	at := slices.IndexFunc(given, isGone)
	if at < 0 && len(given) < 2 {
		if err := h.completePair(v, m, &numbers, &contents); err != nil {
			return page{}, err
		}
		given = numbers[:]
		at = slices.IndexFunc(given, isGone)
	}
	if at >= 0 { // the page of the version explains it
		v.wanted = comparedAddress(v, given[at].String())
		v.SetPathValue("version", given[at].String())
		return h.moduleView("", h.folderPage)(v)
	}
	return h.comparisonPage(v, m, contents, [2]registry.ModuleVersion{
		contents.Records[numbers[0]], contents.Records[numbers[1]],
	})
}

// comparedAddress returns the address of a version for the page that reports
// that it does not exist. version can be empty.
func comparedAddress(v *visit, version string) string {
	address := v.PathValue("namespace") + "/" + v.PathValue("name") + "/" + v.PathValue("system")
	return strings.TrimSpace(address + " " + version)
}

// completePair sets the versions that the request does not name, and reads
// their records. These are the latest version and the one before.
func (h *handler) completePair(
	v *visit, m registry.Module, numbers *[2]registry.Version, c *catalog.Contents[registry.ModuleVersion],
) error {
	if len(c.Listed) == 0 {
		return fmt.Errorf("module %s: no version is listed: %w", m, registry.ErrNotFound)
	}
	var none registry.Version
	if numbers[1] == none {
		numbers[1] = c.Entry.Latest
	}
	if numbers[0] == none {
		// If there is none before, the version is compared with itself.
		numbers[0] = numbers[1]
		if before, found := registry.Before(numbers[1], c.Listed); found {
			numbers[0] = before
		}
	}
	records, err := h.Catalog.Modules.Records(v.Context(), m, numbers[:]...)
	if err != nil {
		return fmt.Errorf("module %s: %w", m, err)
	}
	c.Records = records
	return nil
}

func (h *handler) comparisonPage(
	v *visit, m registry.Module, contents catalog.Contents[registry.ModuleVersion], records [2]registry.ModuleVersion,
) (page, error) {
	path := "/" + m.Path()
	from, to := records[0], records[1]
	c := comparison{
		Head: headOfModule(m).below(path),
		From: newComparedVersion(path, from), To: newComparedVersion(path, to),
		Path: path + "/compare", Swap: comparePath(path, to.Version, from.Version),
		Commits: commitsURL(from.PublishedBy, to.PublishedBy),
		Choices: selectable(contents, from.Version, to.Version),
	}
	if !c.IsSame() {
		read := inBackground(func() error { return h.addChangelog(v.Context(), &c, records) })
		err := h.addChanges(v, m, &c, records)
		if failed := read(); failed != nil {
			logDamage(v.Context(), fmt.Errorf("changelog of module %s %s: %w", m, to.Version, failed))
		}
		if err != nil {
			return page{}, err
		}
	}
	title := fmt.Sprintf("%s %s → %s", m, from.Version, to.Version)
	if c.IsOnly() {
		title = fmt.Sprintf("%s %s", m, to.Version)
	}
	return page{
		template: "compare", title: title, description: c.summary,
		canonical: comparePath(path, from.Version, to.Version), model: c,
	}, nil
}

func newComparedVersion(path string, r registry.ModuleVersion) comparedVersion {
	c := comparedVersion{
		Version: r.Version.String(), Path: path + "/" + r.Version.String(), Published: r.PublishedAt,
		Commit: newBy(r.PublishedBy),
	}
	if r.PublishedBy.Commit != "" {
		c.Commit.Text, c.IsCommit = shortCommit(r.PublishedBy.Commit), true
	}
	return c
}

// comparePath returns the path of the comparison of two versions of a module.
func comparePath(path string, from, to registry.Version) string {
	return path + "/compare?" + url.Values{"from": {from.String()}, "to": {to.String()}}.Encode()
}

// selectable returns the listed and the hidden versions, and those that are
// compared. The catalog lacks some hidden ones if there are very many.
func selectable(c catalog.Contents[registry.ModuleVersion], compared ...registry.Version) []choice {
	all := slices.Concat(c.Listed, c.Entry.Hidden)
	for _, n := range compared {
		if !slices.Contains(all, n) {
			all = append(all, n)
		}
	}
	slices.SortFunc(all, func(a, b registry.Version) int { return registry.CompareVersions(b, a) })
	states := make(map[registry.Version]string)
	for _, d := range c.Entry.DeprecatedVersions {
		states[d.Version] = "deprecated"
	}
	for _, n := range c.Entry.Hidden {
		states[n] = "hidden"
	}
	choices := make([]choice, len(all))
	for i, n := range all {
		choices[i] = choice{n.String(), states[n]}
	}
	return choices
}

// commitsURL returns the URL at which the host of a repository compares the
// commits of two versions. It is empty unless the identities of both prove
// commits of one repository.
func commitsURL(from, to registry.Publisher) string {
	source := from.SourceURL()
	if source == "" || source != to.SourceURL() || from.Commit == to.Commit || from.Commit == "" || to.Commit == "" {
		return ""
	}
	if strings.Contains(to.RunURL, "/-/") { // GitLab
		source += "/-"
	}
	return source + "/compare/" + url.PathEscape(from.Commit) + "..." + url.PathEscape(to.Commit)
}

// addChanges compares the documentation of two versions.
func (h *handler) addChanges(v *visit, m registry.Module, c *comparison, records [2]registry.ModuleVersion) error {
	var documents [2]*docs.Documentation
	var errs [2]error
	var both sync.WaitGroup
	for i := range records {
		if records[i].Docs == nil {
			c.Undocumented = append(c.Undocumented, records[i].Version.String())
		}
	}
	if len(c.Undocumented) > 0 {
		return nil
	}
	for i, r := range records {
		both.Go(func() {
			var d docs.Documentation
			d, errs[i] = stored.Read(v.Context(), h.Objects, *r.Docs)
			documents[i] = &d
		})
	}
	both.Wait()
	for i, err := range errs {
		if err == nil {
			continue
		}
		err = fmt.Errorf("documentation of module %s %s: %w", m, records[i].Version, err)
		if !errors.Is(err, stored.ErrDamaged) {
			return err
		}
		logDamage(v.Context(), err)
		c.Undocumented = append(c.Undocumented, records[i].Version.String())
	}
	if len(c.Undocumented) == 0 {
		c.compare(*documents[0], *documents[1])
	}
	return nil
}

// changelogTimeout bounds the time to read a changelog, which only explains the
// changes.
const changelogTimeout = 2 * time.Second

// addChangelog adds the part of the changelog between two versions. There is
// none if the second one is not later, or if its files are not stored. The
// comparison does not need it, so that an error is only for the log.
func (h *handler) addChangelog(ctx context.Context, c *comparison, records [2]registry.ModuleVersion) error {
	from, to := records[0].Version, records[1]
	if to.FilesZip == nil || registry.CompareVersions(from, to.Version) >= 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, changelogTimeout)
	defer cancel()
	files, err := h.files.Read(ctx, *to.FilesZip)
	if err != nil {
		return err
	}
	part, err := changelog.Read(files.Files, from, to.Version, func(path string) ([]byte, error) {
		_, text, err := stored.File(files, path)
		return text, err
	})
	c.Changelog, c.ChangelogFile = part, link{
		fmt.Sprintf("%s:%d", part.File, part.Line),
		fmt.Sprintf("%s%s#L%d", c.To.Path, restOf(filesKind+"/"+part.File), part.Line),
	}
	return err
}
