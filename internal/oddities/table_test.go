// Package oddities_test compares what the clients and Larder do with releases and
// modules that are odd. Each golden file has a table with a row for each oddity, and
// then the reasons.
package oddities_test

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/internal/testkit/oddities"
	"github.com/larder-registry/larder/internal/testkit/programs"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/sources/copying"
)

// cell is what a client or Larder does with an oddity, and why.
type cell struct{ verdict, why string }

// The verdicts that the rules are about.
const (
	installs, refuses, crashes = "installs", "refuses", "crashes"
	refused                    = "refused"
	published                  = "published"
	// leftOut means that the copy lacks the package for this machine.
	leftOut = "left out"
	// same means that the files are not odd.
	same = "-"
)

// column is a way of using an oddity.
type column struct {
	name string
	// client is the name of the client that does it, or empty.
	client string
	// move means that what clients install must not be refused.
	move bool
	// use is nil if the client is missing.
	use func(t *testing.T, row int) cell
}

// row is an oddity.
type row struct {
	name string
	oddities.Reason
}

// compare makes the table of an origin, compares it with a golden file, and checks the
// rules. Columns of clients that this machine lacks stay as they are in that file.
func compare(t *testing.T, path string, rows []row, columns []column, replace ...string) {
	t.Helper()
	cells := make([][]cell, len(rows))
	stored := storedCells(t, path)
	var work sync.WaitGroup
	room := make(chan struct{}, 2*runtime.NumCPU())
	for i, r := range rows {
		cells[i] = make([]cell, len(columns))
		for j, c := range columns {
			if c.use == nil {
				cells[i][j] = stored[r.name+" "+c.name]
				continue
			}
			room <- struct{}{}
			work.Go(func() {
				defer func() { <-room }()
				got := c.use(t, i)
				got.why = short(strings.NewReplacer(replace...).Replace(got.why), r.name)
				cells[i][j] = got
			})
		}
	}
	work.Wait()
	golden.Equal(t, path, format(rows, columns, cells))
	for i, r := range rows {
		checkRules(t, r, columns, cells[i])
	}
}

// format returns the golden file: a line for each row, then the reasons.
func format(rows []row, columns []column, cells [][]cell) []byte {
	var out, why bytes.Buffer
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	head := []string{"oddity"}
	for _, c := range columns {
		head = append(head, c.name)
	}
	fmt.Fprintln(w, strings.Join(append(head, "difference"), "\t"))
	for i, r := range rows {
		line := []string{r.name}
		for j, c := range cells[i] {
			line = append(line, c.verdict)
			if c.why == "" || slices.ContainsFunc(cells[i][:j], func(other cell) bool { return other.why == c.why }) {
				continue
			}
			var names []string
			for k, column := range columns {
				if cells[i][k].why == c.why {
					names = append(names, column.name)
				}
			}
			fmt.Fprintf(&why, "%s %s: %s\n", r.name, strings.Join(names, ", "), c.why)
		}
		difference := same
		if r.Documented != "" {
			difference = "documented"
		}
		if r.Open != "" {
			difference = "open: " + r.Open
		}
		fmt.Fprintln(w, strings.Join(append(line, difference), "\t"))
	}
	_ = w.Flush() // it writes to memory
	return append(append(out.Bytes(), '\n'), why.Bytes()...)
}

// storedCells returns the cells of a golden file by the names of row and column.
func storedCells(t *testing.T, path string) map[string]cell {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		return nil // the comparison returns the error
	}
	cells := make(map[string]cell)
	table, why, _ := strings.Cut(string(text), "\n\n")
	lines := strings.Split(table, "\n")
	fields := regexp.MustCompile(` {2,}`)
	names := fields.Split(strings.TrimSpace(lines[0]), -1)
	for _, line := range lines[1:] {
		values := fields.Split(strings.TrimSpace(line), -1)
		for i := 1; i < len(values) && i < len(names); i++ {
			cells[values[0]+" "+names[i]] = cell{verdict: values[i]}
		}
	}
	for line := range strings.Lines(why) {
		names, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		row, columns, _ := strings.Cut(names, " ")
		for name := range strings.SplitSeq(columns, ", ") {
			cells[row+" "+name] = cell{cells[row+" "+name].verdict, text}
		}
	}
	return cells
}

// checkRules checks two rules, unless the row has a reason. A move does not refuse what
// a client installs. A new version is refused if no client installs it.
func checkRules(t *testing.T, r row, columns []column, cells []cell) {
	t.Helper()
	var install, fail, moves []string
	accepted := false
	for i, c := range columns {
		switch v := cells[i].verdict; {
		case c.client != "" && v == installs:
			install = append(install, c.name)
		case c.client != "":
			fail = append(fail, c.name)
		case c.move && (v == refused || v == leftOut || v == string(copying.Skipped)):
			moves = append(moves, c.name)
		case c.name == "publish" || c.name == "check":
			accepted = accepted || v != refused && v != same
		}
	}
	differs := len(install) > 0 && len(moves) > 0
	useless := len(install) == 0 && len(fail) > 0 && accepted
	switch {
	case differs && r.Documented == "" && r.Open == "":
		t.Errorf("%s: %v installs it, and %v refuses it", r.name, install, moves)
	case useless && r.Documented == "" && r.Open == "":
		t.Errorf("%s: no client installs it, and a new version may have it", r.name)
	case !differs && !useless && r.Reason != oddities.Reason{}:
		t.Errorf("%s has a reason, and needs none", r.name)
	}
	if r.Documented != "" && !slices.ContainsFunc(pages(t), func(page string) bool { return strings.Contains(page, r.Documented) }) {
		t.Errorf("%s: no page has the text %q", r.name, r.Documented)
	}
}

// pages returns the text of the pages that reasons are from, each in one line.
func pages(t *testing.T) (texts []string) {
	t.Helper()
	for _, name := range []string{"docs/moving-here.md", "docs/mirror.md", "docs/pull-through.md", "docs/module-mirror.md", "docs/publish-modules.md"} {
		path, err := programs.InCheckout(name)
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, strings.Join(strings.Fields(string(text)), " "))
	}
	return texts
}

var steady = []struct {
	text *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`[╷│╵]`), " "},
	{regexp.MustCompile(`\s+`), " "},
	{regexp.MustCompile(`[\x00-\x1f\x7f]+`), "?"},
	{regexp.MustCompile(`https?://127\.0\.0\.1:\d+`), "ORIGIN"},
	{regexp.MustCompile(`127\.0\.0\.1:\d+`), "HOST"},
	{regexp.MustCompile(`/\S*/Test\w+/\d+`), "DIR"},
	{regexp.MustCompile(`/\S*/(larder|getmodules|terraform-provider|terraform-registry|tofu-|opentofu)[\w-]*\d{4,}[\w.]*`), "TEMP"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d( \d\d:\d\d(:\d\d)? UTC|T[\d:]+Z)?`), "DATE"},
	{regexp.MustCompile(`\b[0-9a-f]{64}\b`), "DIGEST"},
	{regexp.MustCompile(`\b(0x)?[0-9A-F]{16}\b`), "KEY"},
	{regexp.MustCompile(`\b[0-9A-F]{40}\b`), "FINGERPRINT"},
	// What every reason of a column begins with.
	{regexp.MustCompile(`^(Failed to install provider )?Error while installing \S+ v\S+: `), ""},
	{regexp.MustCompile(`^cannot mirror \S+: `), ""},
	{regexp.MustCompile(`^(\S+/\S+ )?1\.0\.0\S*: `), ""},
	{regexp.MustCompile(`^cannot publish \S+( \S+)?: `), ""},
}

// maxWhy bounds a reason.
const maxWhy = 160

// short returns a reason in one line, without what differs between runs.
func short(text, name string) string {
	for _, s := range steady {
		text = s.text.ReplaceAllString(text, s.with)
	}
	text = strings.NewReplacer(oddities.Here, "HERE", oddities.Elsewhere, "ELSEWHERE",
		strings.ReplaceAll(oddities.Here, "_", "/"), "HERE", name+"/", "NAME/").Replace(strings.TrimSpace(text))
	if len(text) > maxWhy {
		text = text[:maxWhy] + "..."
	}
	return strings.ToValidUTF8(text, "?")
}

// errorCell returns the cell of an error. The package of any platform can be the first
// one that fails.
func errorCell(err error) cell {
	why := strings.ReplaceAll(err.Error(), oddities.Elsewhere, oddities.Here)
	if hint := registry.Hint(err); hint != "" {
		why += ". " + hint
	}
	return cell{refused, why}
}

// noted returns the cell of a success, which can have notes.
func noted(verdict string, notes []string) cell {
	if len(notes) == 0 {
		return cell{verdict: verdict}
	}
	return cell{verdict + ", note", strings.Join(notes, "; ")}
}

// failure is the part of a client's output with its error.
var failure = regexp.MustCompile(`(?s)Error: (.*)`)

// initCell returns what a client's init does.
func initCell(out string, err error) cell {
	switch {
	case err == nil:
		return cell{verdict: installs}
	case strings.Contains(out, "goroutine 1 [") || strings.Contains(out, "panic:"):
		return cell{crashes, ""}
	}
	text := regexp.MustCompile(`[╷│╵]`).ReplaceAllString(out, " ")
	if found := failure.FindStringSubmatch(text); found != nil {
		text = found[1]
	}
	return cell{refuses, text}
}
