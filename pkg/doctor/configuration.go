package doctor

import (
	"fmt"
	"strings"
)

// configuration returns what fits in the CLIs' configuration for this registry.
func (e *examination) configuration() string {
	var b strings.Builder
	b.WriteString("# ~/.tofurc or ~/.terraformrc\n")
	if _, found := e.discovered.raw[loginService]; found {
		fmt.Fprintf(&b, "# `tofu login %[1]s` or `terraform login %[1]s` does the same as this block.\n", e.Host)
	}
	if variable := tokenVariable(e.Host); variable != "" {
		fmt.Fprintf(&b, "# The variable %s does, too, and comes before it.\n", variable)
	}
	fmt.Fprintf(&b, "credentials %q {\n  token = \"YOUR TOKEN\"\n}\n", e.Host)
	_, larder := e.discovered.raw[larderService]
	if e.Mirror == nil && !larder {
		return b.String()
	}
	mirror := "https://" + e.Host + usualMirror
	if bases := e.mirrors; len(bases) > 0 {
		mirror = shown(bases[0])
	}
	include := `"registry.opentofu.org/*/*", "registry.terraform.io/*/*"`
	if e.Mirror != nil {
		include = fmt.Sprintf("%q", e.Mirror.Hostname+"/*/*")
	}
	fmt.Fprintf(&b, `
# To install other registries' providers from the mirror. The slash at the end of the URL matters.
provider_installation {
  network_mirror {
    url     = %q
    include = [%s]
  }
  direct {
    exclude = [%[2]s]
  }
}
`, mirror, include)
	return b.String()
}
