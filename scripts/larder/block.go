package main

import (
	"fmt"
	"os"

	"github.com/larder-registry/larder/pkg/local"
)

// defaultAddress is where `larder serve` listens by default.
const defaultAddress = "127.0.0.1:8443"

// addressing describes how clients write the host of a registry.
type addressing struct {
	// host is the registry's host.
	host string
	// guessed explains that host is a guess. It is empty if the host is
	// certain.
	guessed string
	// authority is the file with the registry's own certificate authority. It
	// is empty if the registry has none, or if this machine trusts it.
	authority string
}

// addressingOf returns the host that clients use for the registry of a store.
func (f *finder) addressingOf(s *store) addressing {
	switch {
	case s.host != "":
		a := addressing{host: s.host}
		if f.about.dir == "" {
			return a
		}
		file := local.AuthorityOf(absolute(f.about.dir), s.host)
		if file != absolute(os.Getenv(authoritiesFromEnv)) {
			a.authority = file
		}
		return a
	case f.about.stack != "":
		return addressing{host: "HOST", guessed: "Replace HOST with the registry's host, which the stack does not name."}
	}
	return addressing{
		host:    defaultAddress,
		guessed: "The host is the default of `larder serve`. Replace it if your registry has another host.",
	}
}

func moduleBlock(name, source, version string) string {
	return fmt.Sprintf("  module %q {\n    source  = %q\n    version = %q\n  }\n", identifier(name), source, version)
}

func providerBlock(name, source, version string) string {
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

// use prints a configuration block to paste.
func (p page) use(block string, a addressing) {
	p.printf("\nUse it:\n\n%s", block)
	if a.guessed != "" {
		p.printf("\n%s\n", p.Wrap(a.guessed))
	}
	if a.authority != "" {
		p.printf("\n%s\n", p.Wrap("Clients must trust the certificate authority in "+a.authority+"."))
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
