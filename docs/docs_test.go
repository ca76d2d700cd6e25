// Package docs tests the Markdown pages of the repository.
package docs_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"
)

// root is the folder of the repository.
const root = ".."

// page is a parsed Markdown file.
type page struct {
	path   string // from the root, with slashes
	source []byte
	tree   ast.Node
}

// tracked returns the files that git tracks and that match patterns, from the
// root, without the test data.
func tracked(t *testing.T, patterns ...string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", root, "ls-files", "--cached", "--others", "--exclude-standard", "--"}, patterns...)...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(strings.Fields(string(out)), func(path string) bool {
		if strings.Contains(path, "/testdata/") {
			return true // input of tests
		}
		_, err := os.Stat(filepath.Join(root, path))
		return err != nil // its removal is not committed
	})
}

// pages returns all Markdown files but the templates of web pages.
func pages(t *testing.T) []page {
	t.Helper()
	markdown := goldmark.New(goldmark.WithExtensions(extension.GFM))
	var found []page
	for _, path := range tracked(t, "*.md", ":!pkg/web/templates") {
		source, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, page{path, source, markdown.Parser().Parse(text.NewReader(source))})
	}
	return found
}

// walk calls visit for each node of a kind.
func walk[N ast.Node](p page, visit func(N)) {
	_ = ast.Walk(p.tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if node, ok := n.(N); ok && entering {
			visit(node)
		}
		return ast.WalkContinue, nil
	})
}

// plain returns the text of a node without markup.
func (p page) plain(n ast.Node) string {
	var b bytes.Buffer
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		switch n := n.(type) {
		case *ast.Text:
			if entering {
				b.Write(n.Segment.Value(p.source))
			}
		case *ast.String:
			if entering {
				b.Write(n.Value)
			}
		}
		return ast.WalkContinue, nil
	})
	return b.String()
}

var notInAnchors = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)

// anchors returns the anchors that GitHub makes of a page's headings.
func (p page) anchors() map[string]bool {
	found := make(map[string]bool)
	walk(p, func(h *ast.Heading) {
		anchor := strings.ReplaceAll(notInAnchors.ReplaceAllString(strings.ToLower(p.plain(h)), ""), " ", "-")
		name := anchor
		for i := 1; found[name]; i++ {
			name = fmt.Sprintf("%s-%d", anchor, i)
		}
		found[name] = true
	})
	for _, match := range regexp.MustCompile(`<a (?:id|name)="([^"]+)"`).FindAllSubmatch(p.source, -1) {
		found[string(match[1])] = true
	}
	return found
}

// links returns the destinations of a page's links and images.
func (p page) links() []string {
	var found []string
	walk(p, func(l *ast.Link) { found = append(found, string(l.Destination)) })
	walk(p, func(i *ast.Image) { found = append(found, string(i.Destination)) })
	return found
}

// Each link of a page leads to a file of the repository, and to a heading in it.
func TestLinks(t *testing.T) {
	t.Parallel()
	all := pages(t)
	anchors := make(map[string]map[string]bool)
	for _, p := range all {
		anchors[p.path] = p.anchors()
	}
	checked := 0
	check := func(from, path, anchor string) {
		checked++
		if _, err := os.Stat(filepath.Join(root, path)); err != nil {
			t.Errorf("%s links to %s, which does not exist", from, path)
		} else if anchor != "" && !anchors[path][anchor] {
			t.Errorf("%s links to %s#%s, and that page has no such heading", from, path, anchor)
		}
	}
	for _, p := range all {
		for _, link := range p.links() {
			if strings.Contains(link, "://") || strings.HasPrefix(link, "mailto:") {
				continue
			}
			path, anchor, _ := strings.Cut(link, "#")
			target := p.path
			if path != "" {
				target = filepath.ToSlash(filepath.Join(filepath.Dir(p.path), path))
			}
			check(p.path, target, anchor)
		}
	}
	// Hints and comments name pages too.
	named := regexp.MustCompile(`\bdocs/[a-z0-9-]+\.md(?:#[\p{L}\p{N}_-]+)?`)
	for _, path := range tracked(t, "*.go", "*.golden", "*.txtar", "*.json", "scripts/*", ".github/*") {
		if strings.HasSuffix(path, "_test.go") {
			continue // what it names may be a file of its own
		}
		source, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		for _, link := range named.FindAllString(string(source), -1) {
			target, anchor, _ := strings.Cut(link, "#")
			check(path, target, anchor)
		}
	}
	if checked < 100 {
		t.Errorf("only %d links are found", checked)
	}
}

// The README links to each page of docs.
func TestIndex(t *testing.T) {
	t.Parallel()
	linked := make(map[string]bool)
	all := pages(t)
	for _, p := range all {
		if p.path == "README.md" {
			for _, link := range p.links() {
				path, _, _ := strings.Cut(link, "#")
				linked[path] = true
			}
		}
	}
	for _, p := range all {
		if strings.HasPrefix(p.path, "docs/") && !linked[p.path] {
			t.Errorf("README.md does not link to %s", p.path)
		}
	}
}

// A page of docs has at most 300 lines, because it is for one task. A program
// writes docs/cli.md.
func TestPageLengths(t *testing.T) {
	t.Parallel()
	for _, p := range pages(t) {
		lines := bytes.Count(p.source, []byte("\n"))
		if strings.HasPrefix(p.path, "docs/") && lines > 300 && p.path != "docs/cli.md" {
			t.Errorf("%s has %d lines, and may have 300", p.path, lines)
		}
	}
}

// code returns the lines of a page that are in fenced blocks.
func (p page) code() map[int]bool {
	lines := make(map[int]bool)
	walk(p, func(f *ast.FencedCodeBlock) {
		for _, segment := range f.Lines().Sliced(0, f.Lines().Len()) {
			lines[bytes.Count(p.source[:segment.Start], []byte("\n"))] = true
		}
	})
	return lines
}

// The README is short, and no line of a page is too long to read in a terminal.
// Rows of tables and what programs print cannot be broken.
func TestLengths(t *testing.T) {
	t.Parallel()
	const most, widest = 200, 120
	for _, p := range pages(t) {
		lines := strings.Split(strings.TrimSuffix(string(p.source), "\n"), "\n")
		isReadme := p.path == "README.md"
		if isReadme && len(lines) > most {
			t.Errorf("README.md has %d lines, and may have %d", len(lines), most)
		}
		code := p.code()
		for i, line := range lines {
			width := len([]rune(line))
			if width > widest && (isReadme || !code[i] && !strings.HasPrefix(strings.TrimSpace(line), "|")) {
				t.Errorf("%s:%d has %d columns, and may have %d", p.path, i+1, width, widest)
			}
		}
	}
}
