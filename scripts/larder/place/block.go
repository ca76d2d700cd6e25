package place

import (
	"fmt"

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

// ModuleBlock returns a module block to paste.
func ModuleBlock(name, source, version string) string {
	return fmt.Sprintf("  module %q {\n    source  = %q\n    version = %q\n  }\n", identifier(name), source, version)
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
