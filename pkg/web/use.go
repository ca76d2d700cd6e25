package web

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/docs/moduleblock"
)

// use describes how configurations use a version.
type use struct {
	// Blocks are module blocks. They are of submodules if OnlySubmodules, because the
	// root has nothing to use. MustFill means that they have inputs without a value.
	// More is the number of submodules without a block.
	Blocks                   []moduleblock.Block
	OnlySubmodules, MustFill bool
	More                     int
	// Constraint also accepts later releases, such as ~> 4.2, and Later is what it
	// accepts, such as 4.x. A pre-release has neither.
	Constraint, Later string
	// Instead replaces the blocks of a version or a folder that is not for use.
	Instead *instead
}

// instead is a sentence in the words of a publisher or ours, before and after a link.
type instead struct {
	Before string
	Link   link
	After  string
}

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
	u.Blocks, u.More = moduleblock.Of(m.module.Name, m.source, m.Number.String(), folders)
	u.MustFill = slices.ContainsFunc(u.Blocks, func(b moduleblock.Block) bool { return b.MustFill })
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
	if !strings.Contains(readme, "source") {
		return false
	}
	repository := "terraform-" + m.module.System + "-" + m.module.Name
	for _, match := range sources.FindAllStringSubmatch(readme, -1) {
		address, _, _ := strings.Cut(match[1], "//")
		if strings.EqualFold(address, m.source) {
			return false
		}
		parts := strings.Split(address, "/")
		isSame := (len(parts) == 3 || len(parts) == 4) &&
			strings.HasSuffix(address, "/"+m.module.Name+"/"+m.module.System)
		_, after, isRepository := strings.Cut(match[1], repository)
		isRepository = isRepository && (after == "" || strings.HasPrefix(after, ".git") || after[0] == '/' || after[0] == '?')
		elsewhere = elsewhere || isSame || isRepository
	}
	return elsewhere
}

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
