// Package golden compares the texts of tests with golden files, so that test
// code does not contain them. scripts/golden rewrites the golden files.
package golden

import (
	"bytes"
	"cmp"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rogpeppe/go-internal/diff"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// Updating reports whether the tests were started with -update.
func Updating() bool { return *update }

// Equal fails the test if got differs from the content of the golden file. With
// -update it writes the file instead.
func Equal(t testing.TB, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("cannot read the golden file (run the test with -update to write it): %v", err)
	}
	if lines := diff.Diff("want", want, "got", got); lines != nil {
		t.Errorf("%s differs; run the test with -update to write it:\n%s", path, lines)
	}
}

// Texts collects the texts of one test, each under the name of its sub-test.
// When the test ends, it compares them with testdata/TEST.golden. Parallel
// sub-tests may call its methods concurrently.
type Texts struct {
	path  string
	mu    sync.Mutex
	texts map[string]string
}

// New returns an empty collection of texts for t. The golden file is below the
// working directory of this call, even if the test changes directory later.
func New(t *testing.T) *Texts {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("testdata", t.Name()+".golden"))
	if err != nil {
		t.Fatal(err)
	}
	g := &Texts{path: path, texts: make(map[string]string)}
	t.Cleanup(func() { g.compare(t) })
	return g
}

// Error records an error with its hint and its code, and fails the test if err
// is nil. The arguments replace are pairs of old and new strings, as for
// [strings.NewReplacer]. Use them for parts that differ from run to run, such as
// temporary folders.
func (g *Texts) Error(t testing.TB, err error, replace ...string) {
	t.Helper()
	if err == nil {
		t.Error("got no error to record")
		return
	}
	text := "error: " + err.Error() + "\n"
	if hint := registry.Hint(err); hint != "" {
		text += "hint: " + hint + "\n"
	}
	if code := errs.Code(err); code != "" {
		text += "code: " + code + "\n"
	}
	g.Text(t, text, replace...)
}

// Text appends to the text of a sub-test, with the same replacements as
// [Texts.Error].
func (g *Texts) Text(t testing.TB, text string, replace ...string) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.texts[t.Name()] += strings.NewReplacer(replace...).Replace(text)
}

// compare compares the texts with the golden file. If the test has failed, or
// -run may have skipped sub-tests, sub-tests without a text may be in the file.
func (g *Texts) compare(t *testing.T) {
	t.Helper()
	stored := make(map[string]string)
	if text, err := os.ReadFile(g.path); err == nil {
		stored = parse(string(text))
	}
	merged := g.texts
	if run := flag.Lookup("test.run"); run != nil && strings.Contains(run.Value.String(), "/") || t.Failed() {
		merged = make(map[string]string)
		for name, text := range stored {
			merged[name] = text
		}
		for name, text := range g.texts {
			merged[name] = text
		}
	}
	Equal(t, g.path, format(merged))
}

// format returns the content of a golden file: the names in order, each followed
// by its text, indented by a tab.
func format(texts map[string]string) []byte {
	names := make([]string, 0, len(texts))
	for name := range texts {
		names = append(names, name)
	}
	slices.SortFunc(names, cmp.Compare[string])
	var out bytes.Buffer
	for i, name := range names {
		if i > 0 {
			out.WriteString("\n")
		}
		out.WriteString(name + "\n")
		for line := range strings.Lines(strings.TrimSuffix(texts[name], "\n") + "\n") {
			out.WriteString("\t" + line)
		}
	}
	return out.Bytes()
}

// parse is the inverse of format.
func parse(file string) map[string]string {
	texts := make(map[string]string)
	var name string
	for line := range strings.Lines(file) {
		switch text, isText := strings.CutPrefix(line, "\t"); {
		case isText:
			texts[name] += text
		case strings.TrimSpace(line) != "":
			name = strings.TrimSpace(line)
		}
	}
	return texts
}
