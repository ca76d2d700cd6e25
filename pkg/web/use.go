package web

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/docs"
)

// maxRequired bounds the inputs of a suggested module block.
const maxRequired = 500

// useModule returns a module block for a folder of a module version. Each
// required input is a line without a value that names the type.
func useModule(m *moduleVersion, f docs.Folder) string {
	name, source := m.module.Name, m.source
	if f.Path != "" {
		name, source = f.Name, source+"//"+f.Path
	}
	var b strings.Builder
	fmt.Fprintf(&b, "module %q {\n  source  = %q\n  version = %q\n", name, source, m.Number.String())
	required := slices.DeleteFunc(slices.Clone(f.Inputs), func(in docs.Input) bool { return !in.Required })
	more := max(len(required)-maxRequired, 0)
	required = required[:len(required)-more]
	width := 0
	for _, in := range required {
		width = max(width, len(in.Name))
	}
	if len(required) > 0 {
		b.WriteString("\n")
	}
	for _, in := range required {
		short := strings.ReplaceAll(shortType(in.Type), "({ … })", "")
		fmt.Fprintf(&b, "  %-*s = # %s\n", width, plain(in.Name), plain(short))
	}
	if more > 0 {
		fmt.Fprintf(&b, "  # and %s more required inputs\n", count(more))
	}
	return b.String() + "}\n"
}

// maxShortType is the length of the longest type that is written out in one
// line.
const maxShortType = 60

// shortType returns a type in one line. A long one has only the outermost types
// and an ellipsis.
func shortType(written string) string {
	written = strings.TrimSpace(written)
	if isShort(written) {
		return written
	}
	open := opening.FindString(written)
	if open == "" {
		return "…"
	}
	closing := strings.Map(func(r rune) rune {
		if i := strings.IndexRune("({[", r); i >= 0 {
			return rune(")}]"[i])
		}
		return -1
	}, open)
	reversed := []byte(closing)
	slices.Reverse(reversed)
	return open + " … " + string(reversed)
}

// opening matches the beginning of a type up to its attributes or elements.
var opening = regexp.MustCompile(`^(?:[a-z]{1,10}\(){1,3}[{[]?`)

// isShort reports whether a text fits into a cell in one line.
func isShort(text string) bool { return len(text) <= maxShortType && !strings.Contains(text, "\n") }

// relativePath returns the folder that a local source names, or an empty string
// if that is outside of the module. It is a dot for the module itself.
func relativePath(from, source string) string {
	target := path.Join("/root", from, source)
	if target == "/root" {
		return "."
	}
	inside, found := strings.CutPrefix(target, "/root/")
	if !found {
		return ""
	}
	return inside
}
