// Package golden compares texts with golden files, so that tests do not pin
// prose. scripts/golden writes all golden files from what the tests produce.
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

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/registry"
)

var update = flag.Bool("update", false, "write the golden files from what the tests produce")

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
		if err := os.WriteFile(path, got, 0o644); err != nil { //nolint:gosec // a file of the repository
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("cannot read the golden file, which -update writes: %v", err)
	}
	if diff := gocmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs, and -update writes it (-want +got):\n%s", path, diff)
	}
}

// Texts are the texts of one test, each under the name of its sub-test. They are
// compared with testdata/TEST.golden when the test ends. Its methods may be called
// by parallel sub-tests.
type Texts struct {
	path  string
	mu    sync.Mutex
	texts map[string]string
}

// New returns the texts of a test.
func New(t *testing.T) *Texts {
	t.Helper()
	g := &Texts{path: filepath.Join("testdata", t.Name()+".golden"), texts: make(map[string]string)}
	t.Cleanup(func() { g.compare(t) })
	return g
}

// Error records an error with its hint and its code. The caller replaces what
// differs from run to run, such as temporary folders, with pairs of old and new
// texts as for [strings.NewReplacer].
func (g *Texts) Error(t testing.TB, err error, replace ...string) {
	t.Helper()
	if err == nil {
		t.Error("there is no error")
		return
	}
	text := "error: " + err.Error() + "\n"
	if hint := registry.Hint(err); hint != "" {
		text += "hint: " + hint + "\n"
	}
	if code := registry.Code(err); code != "" {
		text += "code: " + code + "\n"
	}
	g.Text(t, text, replace...)
}

// Text records a text.
func (g *Texts) Text(t testing.TB, text string, replace ...string) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.texts[t.Name()] += strings.NewReplacer(replace...).Replace(text)
}

// compare compares the texts with the file. If only some sub-tests have run, the
// others' texts in the file stay as they are.
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

// format writes each text below its name, indented by a tab, in the order of the
// names.
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
