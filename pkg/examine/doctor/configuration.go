package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/registry"
)

// configured adds the steps about the clients' configuration, which need no
// registry.
func (e *examination) configured(ctx context.Context) {
	const name = "configuration"
	if e.Unread != nil {
		e.wrong(name, "", e.quote(e.Unread.Error()), "fix the file: clients report the error and then ignore the file")
		if e.Token == "" {
			e.blocked = "the clients' configuration cannot be read"
		}
		return
	}
	found := e.hostBlocks(ctx)
	if e.Config.Services(e.Host) {
		found = true
		e.warn(name, "",
			"a host block for "+e.Host+" in the clients' configuration replaces discovery, but discovery is examined here",
			"remove the block unless you need it")
	}
	host := e.Host
	if e.Token != "" {
		host = "" // skip the token in the configuration
	}
	for _, problem := range e.Config.Problems(host) {
		found = true
		e.warn(name, "", problem.Result, problem.Fix)
	}
	for _, i := range e.Config.Installations() {
		if i.Refused {
			found = true
			e.wrong(name, "", "clients reject the provider_installation in "+i.File,
				`write each method in it as a list, such as "direct": [{}]`)
		}
	}
	for _, cli := range client.CLIs {
		var files []string
		for _, i := range e.Config.Installations() {
			if i.Reader == "" || i.Reader == cli {
				files = append(files, i.File)
			}
		}
		if len(files) > 1 {
			found = true
			e.wrong(name, "",
				fmt.Sprintf(
					"%s reads %d provider_installation blocks, from %s: it reports an error and uses only the first", cli,
					len(files), e.several(files)), "combine them into one block")
			break
		}
	}
	switch files := e.Config.Files(); {
	case found:
	case len(files) == 0:
		e.ok(name, "", "there is no configuration file")
	default:
		e.ok(name, "", "read from "+e.several(files))
	}
}

// configuration returns what to add to the clients' configuration for this
// registry, or "".
func (e *examination) configuration() string {
	var b strings.Builder
	if e.needsToken {
		if _, found := e.discovered.raw[loginService]; found {
			fmt.Fprintf(&b,
				"# You can run `tofu login %[1]s` or `terraform login %[1]s` instead of adding this block.\n", e.Host)
		}
		if variable := client.TokenVariable(e.Host); variable != "" {
			fmt.Fprintf(&b, "# You can also set the variable %s, which takes precedence.\n", variable)
		}
		fmt.Fprintf(&b, "credentials %q {\n  token = \"YOUR TOKEN\"\n}\n", e.Host)
	}
	if len(e.mirrors) > 0 && e.needsToken {
		b.WriteString("\n")
	}
	switch {
	case len(e.mirrors) == 0:
	case e.block != "":
		b.WriteString("# `larder mirror setup --write` writes this to a file that both clients read.\n" + e.block)
	default:
		if len(e.Config.Installations()) > 0 {
			b.WriteString("# This replaces the existing provider_installation block. Clients use only one.\n")
		}
		fmt.Fprintf(&b, `# If all providers of a host are mirrored, "%s/*/*" is enough. The URL must end with a slash.
provider_installation {
  network_mirror {
    url     = %q
    include = [%[3]q]
  }
  direct {
    exclude = [%[3]q]
  }
}
`, registry.Host(e.Mirror.Hostname).Display(), e.shown(e.mirrors[0]), e.Mirror.Display())
	}
	if b.Len() == 0 {
		return ""
	}
	head := "# " + e.Config.Place() + "\n"
	if e.Authorities != "" {
		head += "# Clients need the same value of SSL_CERT_FILE as this command, unless the system trusts the authorities.\n"
	}
	return head + b.String()
}
