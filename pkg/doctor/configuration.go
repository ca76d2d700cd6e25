package doctor

import (
	"fmt"
	"strings"

	"github.com/larder-registry/larder/pkg/client"
)

// configured tells of what clients are configured with, as far as it can be seen without a registry.
func (e *examination) configured() {
	const name = "configuration"
	if e.Unread != nil {
		e.wrong(name, "", e.quote(e.Unread.Error()), "mend the file: clients complain of it, and go on without what it says")
		if e.Token == "" {
			e.barred = "the CLIs' configuration cannot be read"
		}
		return
	}
	found := false
	if e.Config.Services(e.Host) {
		found = true
		e.warn(name, "", "a host block for "+e.Host+" in the CLIs' configuration stands in for discovery, which is what is examined here", "take the block out, unless it is meant")
	}
	host := e.Host
	if e.Token != "" {
		host = "" // what they have for it is not looked at
	}
	for _, problem := range e.Config.Problems(host) {
		found = true
		e.warn(name, "", problem.Result, problem.Fix)
	}
	for _, i := range e.Config.Installations() {
		if i.Refused {
			found = true
			e.wrong(name, "", "clients do not take the provider_installation in "+i.File+" as it is written", `write each method in it as a list, such as "direct": [{}]`)
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
			e.wrong(name, "", fmt.Sprintf("%s reads %d provider_installation blocks, of %s: it complains, and installs by the first alone", cli, len(files), e.several(files)), "put what they say in one")
			break
		}
	}
	switch files := e.Config.Files(); {
	case found:
	case len(files) == 0:
		e.ok(name, "", "clients have no configuration file here")
	default:
		e.ok(name, "", "it is read from "+e.several(files))
	}
}

// configuration returns what the CLIs' configuration lacks for this registry, as far as it was seen.
func (e *examination) configuration() string {
	var b strings.Builder
	if e.wanted {
		if _, found := e.discovered.raw[loginService]; found {
			fmt.Fprintf(&b, "# `tofu login %[1]s` or `terraform login %[1]s` does the same as this block.\n", e.Host)
		}
		if variable := client.TokenVariable(e.Host); variable != "" {
			fmt.Fprintf(&b, "# The variable %s does, too, and comes before it.\n", variable)
		}
		fmt.Fprintf(&b, "credentials %q {\n  token = \"YOUR TOKEN\"\n}\n", e.Host)
	}
	if len(e.mirrors) > 0 {
		if e.wanted {
			b.WriteString("\n")
		}
		if len(e.Config.Installations()) > 0 {
			b.WriteString("# In place of the provider_installation block that is there: clients take one alone.\n")
		}
		fmt.Fprintf(&b, `# Of a host whose providers are all mirrored, "%s/*/*" is enough. The slash at the end of the URL matters.
provider_installation {
  network_mirror {
    url     = %q
    include = [%[3]q]
  }
  direct {
    exclude = [%[3]q]
  }
}
`, e.Mirror.Hostname, e.shown(e.mirrors[0]), e.Mirror.String())
	}
	if b.Len() == 0 {
		return ""
	}
	head := "# " + e.Config.Place() + "\n"
	if e.Authorities != "" {
		head += "# Where clients run, SSL_CERT_FILE must name the authorities as it does here, unless the system trusts them.\n"
	}
	return head + b.String()
}
