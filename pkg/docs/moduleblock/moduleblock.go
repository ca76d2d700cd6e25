// Package moduleblock writes the module blocks with which configurations use the
// folders of a module, for pages and for the command line.
package moduleblock

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/docs/highlight"
)

const (
	// maxBlocks bounds the blocks for one module, and maxRequired the inputs of
	// one block.
	maxBlocks   = 5
	maxRequired = 500
	// maxType is the length of the longest type that is written out in one line.
	maxType = 60
)

// Block is a module block. Path is that of its folder, and MustFill means that it
// has inputs without a value.
type Block struct {
	Path, Text string
	MustFill   bool
}

// Of returns the blocks for folders of a module with a name and a source, and the
// number of folders without one. Each required input is a line without a value that
// names its type.
func Of(name, source, version string, folders []docs.Folder) (blocks []Block, more int) {
	if len(folders) > maxBlocks+1 { // a sentence about one more is as long as its block
		more = len(folders) - maxBlocks
	}
	for _, f := range folders[:len(folders)-more] {
		name, source := name, source
		if f.Path != "" {
			name, source = path.Base(f.Path), source+"//"+f.Path
		}
		lines := required(f.Inputs)
		blocks = append(blocks, Block{f.Path, New(name, source, version, lines...), len(lines) > 0})
	}
	return blocks, more
}

// New returns a module block with further lines. A name that begins with a digit is
// not valid in the configuration language, so it gets a letter.
func New(name, source, version string, lines ...string) string {
	if name[0] >= '0' && name[0] <= '9' {
		name = "x" + name
	}
	block := fmt.Sprintf("module %q {\n  source  = %q\n  version = %q\n", name, source, version)
	if len(lines) > 0 {
		block += "\n  " + strings.Join(lines, "\n  ") + "\n"
	}
	return block + "}\n"
}

func required(inputs []docs.Input) (lines []string) {
	inputs = slices.DeleteFunc(slices.Clone(inputs), func(in docs.Input) bool { return !in.Required })
	more := max(len(inputs)-maxRequired, 0)
	inputs = inputs[:len(inputs)-more]
	longest := 0
	for _, in := range inputs {
		longest = max(longest, len(in.Name))
	}
	for _, in := range inputs {
		kind := strings.ReplaceAll(ShortType(in.Type), "({ … })", "")
		lines = append(lines, fmt.Sprintf("%-*s = # %s", longest, highlight.Visible(in.Name), highlight.Visible(kind)))
	}
	if more > 0 {
		lines = append(lines, "# and "+humanize.Comma(int64(more))+" more required inputs")
	}
	return lines
}

// ShortType returns a type in one line. A long one has only the outermost types and
// an ellipsis.
func ShortType(written string) string {
	written = strings.TrimSpace(written)
	if IsShort(written) {
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

// IsShort reports whether a text fits into one line beside a name.
func IsShort(text string) bool { return len(text) <= maxType && !strings.Contains(text, "\n") }
