package place

import (
	"fmt"
	"strings"

	"github.com/dustin/go-humanize/english"

	"github.com/larder-registry/larder/pkg/docs"
	"github.com/larder-registry/larder/pkg/docs/moduleblock"
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

// ModuleBlock returns a module block to paste, with further lines.
func ModuleBlock(name, source, version string, lines ...string) string {
	return indented(moduleblock.New(name, source, version, lines...))
}

// ModuleBlocks returns the blocks that use folders of a module, with a line for each
// required input to fill in.
func ModuleBlocks(host string, m registry.Module, version registry.Version, folders []docs.Folder) string {
	found, more := moduleblock.Of(m.Name, host+"/"+m.String(), version.String(), folders)
	blocks := make([]string, len(found))
	for i, b := range found {
		blocks[i] = indented(b.Text)
	}
	if more > 0 {
		blocks = append(blocks, "  # and "+english.Plural(more, "more submodule", "")+"\n")
	}
	return strings.Join(blocks, "\n")
}

func indented(block string) string {
	return strings.ReplaceAll("  "+strings.ReplaceAll(strings.TrimSuffix(block, "\n"), "\n", "\n  "), "\n  \n", "\n\n") + "\n"
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
