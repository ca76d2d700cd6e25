package modulemirror_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/larder-registry/larder/internal/testkit/clients"
	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/internal/testkit/modulehosts"
	"github.com/larder-registry/larder/pkg/mirror/filling"
	"github.com/larder-registry/larder/pkg/registry"
)

const (
	vpc    = "acme/vpc/aws"
	pinned = "1.1.0"
	moved  = "the tag moved to another commit"
	call   = "module \"it\" {\n  source  = \"acme/vpc/aws\"\n  version = \"~> 1.0\"\n}\n"
)

// files returns the files of a module, which name what they are.
func files(what string) map[string]string { return map[string]string{"main.tf": "# " + what + "\n"} }

// situation is something that an origin does to a version after the mirror has seen it.
type situation struct {
	name   string
	change func(*modulehosts.Hosts)
	// archive means that the registry answers an archive, which names no commit.
	archive bool
}

func situations() []situation {
	change := func(m func(h *modulehosts.Hosts, address, version string, files map[string]string)) func(*modulehosts.Hosts) {
		return func(h *modulehosts.Hosts) { m(h, vpc, pinned, files("other files")) }
	}
	return []situation{
		{name: "nothing", change: func(*modulehosts.Hosts) {}},
		{name: "the same commit, compressed anew", change: func(h *modulehosts.Hosts) { h.Recompress(vpc, pinned) }},
		{name: moved, change: change((*modulehosts.Hosts).MoveTag)},
		{name: "the same commit with other files", change: change((*modulehosts.Hosts).ChangeFiles)},
		{name: "another repository", change: func(h *modulehosts.Hosts) { h.MoveRepository(vpc, pinned, "evil/terraform-aws-vpc") }},
		{name: "another folder", change: func(h *modulehosts.Hosts) {
			h.Locate(vpc, pinned, "git::https://github.com/acme/terraform-aws-vpc//modules/x?ref=v"+pinned)
		}},
		{name: "an archive without a folder around its files", change: func(h *modulehosts.Hosts) { h.Wrap(vpc, pinned, "") }},
		{name: "a forge that is not known", change: func(h *modulehosts.Hosts) {
			h.Locate(vpc, pinned, "git::https://git.example.com/acme/vpc?ref=v"+pinned)
		}},
		{name: "removed from the registry", change: func(h *modulehosts.Hosts) { h.Remove(vpc, pinned) }},
		{
			name: "an archive at another path", archive: true,
			change: func(h *modulehosts.Hosts) { h.MoveRepository(vpc, pinned, "acme/terraform-aws-vpc-2") },
		},
		{name: "an archive with other files", archive: true, change: change((*modulehosts.Hosts).ChangeFiles)},
	}
}

// An origin changes a version that the mirror has seen. The table has what clients get,
// and the records. The change comes before the copy, after it, or after its loss.
func TestPinning(t *testing.T) {
	t.Parallel()
	found, missing := clients.Find()
	type result struct{ client, text string }
	table := make(map[string][]result)
	var mu sync.Mutex
	moments := []string{"before the copy", "after the copy", "after the copy was lost"}
	t.Run("rows", func(t *testing.T) {
		for _, s := range situations() {
			for _, moment := range moments {
				for _, c := range found {
					t.Run(s.name+"/"+moment+"/"+c.Name, func(t *testing.T) {
						t.Parallel()
						text := happen(t, s, moment, c)
						mu.Lock()
						defer mu.Unlock()
						table[s.name+", "+moment] = append(table[s.name+", "+moment], result{c.Name, text})
					})
				}
			}
		}
	})
	if len(missing) > 0 {
		t.Skipf("LEFT OUT: the table needs %s", strings.Join(missing, " and "))
	}
	var text strings.Builder
	for _, s := range situations() {
		for _, moment := range moments {
			fmt.Fprintf(&text, "# %s, %s\n", s.name, moment)
			byText := make(map[string][]string)
			for _, r := range table[s.name+", "+moment] {
				byText[r.text] = append(byText[r.text], r.client)
			}
			for _, what := range slices.Sorted(maps.Keys(byText)) {
				slices.Sort(byText[what])
				fmt.Fprintf(&text, "%s:\n%s", strings.Join(byText[what], ", "), what)
			}
		}
	}
	golden.Equal(t, filepath.Join("testdata", "pinning.golden"), []byte(text.String()))
}

// happen returns what clients, operators and the catalog have in a situation.
func happen(t *testing.T, s situation, moment string, c clients.Client) string {
	t.Helper()
	h := publicServer(t)
	module := modulehosts.Module{Address: vpc, Version: pinned, Files: files("first files"), Archive: s.archive}
	module.Files["modules/x/main.tf"] = "# folder x\n"
	h.Add(module)
	l := serve(t, h, pulls, true)
	session := l.session(t, c)
	if moment == "before the copy" {
		h.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
			isArchive := strings.Contains(r.Host, "codeload") || strings.Contains(r.URL.Path, "/archive/")
			if isArchive {
				w.WriteHeader(http.StatusNotFound)
			}
			return isArchive
		})
	}
	first := outcome(t, session)
	if (moment == "before the copy") != strings.HasPrefix(first, "error") {
		t.Fatalf("at first: %s\n%s", first, l.log)
	}
	h.Intercept(nil)
	old := h.Commit(vpc, pinned)
	s.change(h)
	now := old
	if s.name == moved {
		now = h.Commit(vpc, pinned)
	}
	l.pass(30 * 24 * time.Hour) // longer than a failure is cached
	address, version := parse(t, string(publicHosts[c.Name])+"/"+vpc, pinned)
	if moment == "after the copy was lost" {
		l.lose(t, address, version)
	}
	var lines []string
	if moment != "after the copy was lost" { // clients get no file, whatever the origin has
		lines = append(lines, "init: "+outcome(t, session))
	}
	m, want := l.operator(), filling.Wanted{Address: address, Constraint: pinned}
	added := filled(m.Add(t.Context(), want))
	lines = append(lines, "mirror add: "+added)
	if strings.Contains(added, "not admitted") {
		lines = append(lines,
			"mirror admit: "+filled(m.Admit(t.Context(), want, version, "the author announced it")),
			"init: "+outcome(t, session), "mirror add: "+filled(m.Add(t.Context(), want)))
	}
	names := strings.NewReplacer(old, "COMMIT", now, "OTHER", string(publicHosts[c.Name]), "HOST")
	lines = append(lines, l.stored(t, address, version)...)
	for i, line := range lines {
		lines[i] = "  " + digests.ReplaceAllString(names.Replace(line), "h1:…") + "\n"
	}
	return strings.Join(lines, "")
}

var (
	digests = regexp.MustCompile(`h1:[\w+/]{43}=`)
	frames  = regexp.MustCompile(`[╷│╵\s]+`)
)

// outcome runs init of an application that calls the module.
func outcome(t *testing.T, s clients.Session) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.tf"), []byte(call), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := s.Run(t.Context(), dir, "init", "-no-color", "-input=false")
	if err != nil {
		_, why, _ := strings.Cut(out, "Error: ")
		return "error: " + strings.TrimSpace(frames.ReplaceAllString(why, " "))
	}
	installed, err := filepath.Glob(filepath.Join(dir, ".terraform/modules/it/main.tf"))
	if err != nil || len(installed) != 1 {
		t.Fatalf("installed are %v, %v\n%s", installed, err, out)
	}
	text, err := os.ReadFile(installed[0])
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(strings.TrimPrefix(string(text), "# "))
}

// filled describes the results of a command that fills the mirror.
func filled(results []filling.Result, err error) string {
	if err != nil {
		return "error: " + err.Error() + ". " + registry.Hint(err)
	}
	var all []string
	for _, r := range results {
		all = append(all, strings.Join(append([]string{r.Status}, r.Notes...), "; "))
	}
	return strings.Join(all, ", ")
}

// stored describes what the catalog has of a version.
func (l *larder) stored(t *testing.T, a registry.MirrorAddress, v registry.Version) (lines []string) {
	t.Helper()
	pin := func(p registry.ModulePin) string {
		text := strings.Join([]string{p.Source, p.Commit, p.Folder, p.H1}, " ")
		if p.Accepted != nil {
			text += " accepted: " + p.Accepted.Reason
		}
		return text
	}
	record, err := l.data.Catalog.Mirror.Get(t.Context(), a, v)
	switch {
	case errors.Is(err, registry.ErrNotFound):
		lines = append(lines, "not stored")
	case err != nil:
		t.Fatal(err)
	default:
		lines = append(lines, "stored: "+pin(record.Module.Pin))
	}
	origin, err := l.data.Catalog.Mirror.Origin(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range origin.Refused {
		lines = append(lines, "refused: "+pin(r.Pin))
	}
	for e, err := range l.data.Catalog.AuditTrail(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Version != nil {
			lines = append(lines, fmt.Sprintf("audit: %s %s: %s", e.Action, e.By, e.Detail))
		}
	}
	return lines
}
