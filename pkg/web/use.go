package web

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/docs/highlight"
)

// use describes how configurations use a version.
type use struct {
	// Blocks are module blocks. They are of submodules if OnlySubmodules, because the
	// root has nothing to use. MustFill means that they have inputs without a value.
	// More is the number of submodules without a block.
	Blocks                   []useBlock
	OnlySubmodules, MustFill bool
	More                     int
	// Constraint also accepts later releases, such as ~> 4.2, and Later is what it
	// accepts, such as 4.x. A pre-release has neither.
	Constraint, Later string
	// Instead replaces the blocks of a version or a folder that is not for use.
	Instead *instead
}

// useBlock is a module block with its label for screen readers.
type useBlock struct{ Label, Code string }

// instead is a sentence in the words of a publisher or ours, before and after a link.
type instead struct {
	Before string
	Link   link
	After  string
}

// maxBlocks bounds the module blocks of one page.
const maxBlocks = 5

// newUse describes how configurations use a folder of a version.
func newUse(m *moduleVersion, f docs.Folder) (u use) {
	if u.Instead = m.instead(f); u.Instead != nil {
		return u
	}
	folders := []docs.Folder{f}
	if f.Path == "" && m.documented {
		folders = m.docs.Callable()
		u.OnlySubmodules = folders[0].Path != ""
	}
	if u.More = max(len(folders)-maxBlocks, 0); u.More == 1 {
		u.More = 0 // the block is not longer than the sentence about it
	}
	for _, f := range folders[:len(folders)-u.More] {
		label := "Module block"
		if len(folders) > 1 {
			label += " of " + f.Path
		}
		u.Blocks = append(u.Blocks, useBlock{label, useModule(m, f)})
		u.MustFill = u.MustFill || slices.ContainsFunc(f.Inputs, func(in docs.Input) bool { return in.Required })
	}
	switch n := m.Number; {
	case n.Prerelease != "":
	case n.Major == 0:
		u.Constraint, u.Later = "~> "+n.String(), fmt.Sprintf("0.%d.x", n.Minor)
	default:
		u.Constraint, u.Later = fmt.Sprintf("~> %d.%d", n.Major, n.Minor), fmt.Sprintf("%d.x", n.Major)
	}
	return u
}

// instead returns what to use in place of a hidden version or a root without
// configuration. It returns nil for anything else.
func (m *moduleVersion) instead(f docs.Folder) *instead {
	s := stateOf(m.record())
	cannot := "Clients cannot install " + m.Number.String()
	switch {
	case s.state == hidden && m.Entry.Deprecated != "":
		return &instead{Before: cannot + ". " + m.Entry.Deprecated}
	case s.state == hidden && !m.Entry.Unlisted:
		latest := m.Entry.Latest
		return &instead{cannot + ". Use ", link{latest.String(), m.pathOf(latest)}, ", the latest version."}
	case s.state == hidden && s.reason != "":
		return &instead{Before: cannot + ". " + s.reason}
	case s.state == hidden:
		return &instead{Before: cannot + ", and no other version is listed."}
	case f.Path == "" && m.documented && len(m.docs.Callable()) == 0:
		return &instead{Before: "The root of this module has no configuration to use."}
	}
	return nil
}

// sources matches the sources of module blocks in a README.
var sources = regexp.MustCompile(`(?m)^\s*source\s*=\s*"([^"\n]+)"`)

// isElsewhere reports whether the examples of a README use the module from another
// registry or from its repository, and never from this registry.
func (m *moduleVersion) isElsewhere(readme string) (elsewhere bool) {
	repository := "terraform-" + m.module.System + "-" + m.module.Name
	for _, match := range sources.FindAllStringSubmatch(readme, -1) {
		address, _, _ := strings.Cut(match[1], "//")
		if strings.EqualFold(address, m.source) {
			return false
		}
		parts := strings.Split(address, "/")
		isSame := (len(parts) == 3 || len(parts) == 4) &&
			strings.HasSuffix(address, "/"+m.module.Name+"/"+m.module.System)
		elsewhere = elsewhere || isSame || strings.Contains(match[1], repository)
	}
	return elsewhere
}

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
		fmt.Fprintf(&b, "  %-*s = # %s\n", width, highlight.Visible(in.Name), highlight.Visible(short))
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
