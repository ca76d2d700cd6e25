package place

import (
	"fmt"
	"path"
	"strings"

	"github.com/dustin/go-humanize/english"

	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/scripts/larder/output"
)

// DefaultAddress is where `larder serve` listens by default.
const DefaultAddress = "127.0.0.1:8443"

// Addressing describes how clients write the host of a registry.
type Addressing struct {
	// Host is the registry's host.
	Host string
	// Guessed explains that host is a guess. It is empty if the host is
	// certain.
	Guessed string
	// authority is the file with the registry's own certificate authority. It
	// is empty if the registry has none, or if this machine trusts it.
	authority string
}

// UnknownInputs is a line of a [ModuleBlock] without documentation.
const UnknownInputs = "# The inputs are unknown, and some may be required."

// maxBlocks bounds the blocks for the submodules of one module.
const maxBlocks = 5

// ModuleBlock returns a module block to paste, with further lines.
func ModuleBlock(name, source, version string, lines ...string) string {
	block := fmt.Sprintf("  module %q {\n    source  = %q\n    version = %q\n", identifier(name), source, version)
	if len(lines) > 0 {
		block += "\n    " + strings.Join(lines, "\n    ") + "\n"
	}
	return block + "  }\n"
}

// ModuleBlocks returns the blocks that use folders of a module, with a line for each
// required input to fill in. It counts the folders after the fifth one.
func ModuleBlocks(host string, m registry.Module, version registry.Version, folders []docs.Folder) string {
	blocks := make([]string, min(len(folders), maxBlocks))
	for i, f := range folders[:len(blocks)] {
		name, source := m.Name, host+"/"+m.String()
		if f.Path != "" {
			name, source = path.Base(f.Path), source+"//"+f.Path
		}
		blocks[i] = ModuleBlock(name, source, version.String(), required(f.Inputs)...)
	}
	if more := len(folders) - len(blocks); more > 0 {
		blocks = append(blocks, "  # and "+english.Plural(more, "more submodule", "")+"\n")
	}
	return strings.Join(blocks, "\n")
}

// required returns a line for each required input.
func required(inputs []docs.Input) (lines []string) {
	longest := 0
	for _, in := range inputs {
		if in.Required {
			longest = max(longest, len(in.Name))
		}
	}
	for _, in := range inputs {
		if in.Required {
			lines = append(lines, fmt.Sprintf("%-*s = # %s", longest, in.Name, shortType(in.Type)))
		}
	}
	return lines
}

// shortType returns a type in one line. A long one has only its outermost types.
func shortType(written string) string {
	line := strings.Join(strings.Fields(written), " ")
	if !strings.Contains(written, "\n") && len(line) <= 60 {
		return line
	}
	if outer, _, found := strings.Cut(line, "{"); found && len(outer) <= 60 {
		return outer + "{ … }" + strings.Repeat(")", strings.Count(outer, "("))
	}
	return "…"
}

// ProviderBlock returns a required_providers block to paste.
func ProviderBlock(name, source, version string) string {
	return fmt.Sprintf(`  terraform {
    required_providers {
      %s = {
        source  = %q
        version = %q
      }
    }
  }
`, identifier(name), source, version)
}

// PrintUse prints a configuration block to paste.
func PrintUse(p output.Page, block string, a Addressing) {
	p.Printf("\nUse it:\n\n%s", block)
	if a.Guessed != "" {
		p.Printf("\n%s\n", p.Wrap(a.Guessed))
	}
	if a.authority != "" {
		p.Printf("\n%s\n", p.Wrap("Clients must trust the certificate authority in "+a.authority+"."))
	}
}

// identifier returns a name that is valid in the configuration language. An
// identifier cannot begin with a digit.
func identifier(name string) string {
	if name[0] >= '0' && name[0] <= '9' {
		return "x" + name
	}
	return name
}
