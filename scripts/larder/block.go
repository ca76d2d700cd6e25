package main

import (
	"fmt"
	"os"

	"github.com/larder-registry/larder/pkg/local"
)

// addressing is what stands before an address in a configuration.
type addressing struct {
	// host is the registry's.
	host string
	// guessed says why host may be another one; empty if it is known.
	guessed string
	// authority is the file with the registry's own certificate authority; empty if
	// there is none, or this machine trusts it.
	authority string
}

// addressingOf returns the host by which clients call the registry of a store.
func (c *cli) addressingOf(s *store) addressing {
	switch {
	case s.host != "":
		a := addressing{host: s.host}
		if c.about.dir == "" {
			return a
		}
		file := local.AuthorityOf(absolute(c.about.dir), s.host)
		if file != absolute(os.Getenv(authoritiesFromEnv)) {
			a.authority = file
		}
		return a
	case c.about.stack != "":
		return addressing{host: "HOST", guessed: "Put the registry's host in place of HOST: the stack does not name it."}
	}
	return addressing{
		host: defaultAddress, guessed: "The host is the one where `larder serve` listens by default. Use yours if it is another.",
	}
}

// moduleBlock returns the block that uses a module.
func moduleBlock(name, source, version string) string {
	return fmt.Sprintf("  module %q {\n    source  = %q\n    version = %q\n  }\n", identifier(name), source, version)
}

// providerBlock returns the block that requires a provider.
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

// use prints a block to paste.
func (p page) use(block string, a addressing) {
	p.printf("\nUse it:\n\n%s", block)
	if a.guessed != "" {
		p.printf("\n%s\n", p.Wrap(a.guessed))
	}
	if a.authority != "" {
		p.printf("\n%s\n", p.Wrap("Clients must trust its certificate authority, "+a.authority+"."))
	}
}

// identifier makes a name of the language of something that may begin with a digit.
func identifier(name string) string {
	if name[0] >= '0' && name[0] <= '9' {
		return "x" + name
	}
	return name
}
