package web

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"unicode"

	"github.com/larder-registry/larder/pkg/mirror/hostblock"
	"github.com/larder-registry/larder/pkg/registry"
)

// step is a step of a guide, with code to copy.
type step struct {
	Title string
	// Text is above the code, and After below it.
	Text, Code, After string
	// Label describes the code for screen readers.
	Label string
	// IsHCL means that the code is configuration, not commands.
	IsHCL bool
}

// guide makes the steps for one registry.
type guide struct {
	own   registry.Host
	host  string // in addresses
	local *Local
	// login means that people can log in with tofu login.
	login bool
	// system is the operating system of a local registry, as in runtime.GOOS.
	system string
}

func (h *handler) guide(v *visit) guide {
	return guide{own: v.own, host: v.host, local: h.Local, login: h.ClientLogin, system: runtime.GOOS}
}

// isOpen reports whether everyone may read everything.
func (g guide) isOpen() bool { return g.local != nil && g.local.Open }

// trust returns the step with which a client on the same machine trusts the
// registry's own authority.
func (g guide) trust() []step {
	if g.local == nil || g.local.CAFile == "" {
		return nil
	}
	return []step{{
		Title: "Trust this registry",
		Text:  "Its certificate comes from its own authority, which your client does not know yet.",
		Code:  trustCommand(absolute(g.local.CAFile), g.system), Label: "Command that trusts the registry",
	}}
}

// trustCommand returns the command that makes clients on a system trust an
// authority.
func trustCommand(file, system string) string {
	switch system {
	case "windows":
		return `certutil -addstore -user Root "` + file + `"`
	case "darwin":
		return "security add-trusted-cert -k ~/Library/Keychains/login.keychain-db " + quoted(file)
	}
	return "export SSL_CERT_FILE=" + quoted(file)
}

// credentials returns the step with which a client can read. There is none if
// everyone can.
func (g guide) credentials() []step {
	switch {
	case g.isOpen():
		return nil
	case g.login:
		return []step{{
			Title: "Log in", Text: "Your browser opens. The client stores a token for this registry.",
			Code: "tofu login " + g.host, Label: "Login command", After: "`terraform login` works too.",
		}}
	}
	return []step{{
		Title: "Set a token",
		Text:  "Put the token that an operator gave you into `~/.tofurc` or `~/.terraformrc`.",
		Code:  credentialsBlock(g.host), Label: "Credentials block", IsHCL: true,
	}}
}

func credentialsBlock(host string) string {
	return fmt.Sprintf("credentials %q {\n  token = \"larder_…\"\n}", host)
}

// publish returns the commands that publish a first module.
func (g guide) publish() string {
	to := " --store stack:larder"
	if g.local != nil {
		to = " --store " + quoted(absolute(g.local.Dir))
	}
	if g.local != nil && g.system == "windows" {
		to = ` --store "` + absolute(g.local.Dir) + `"`
		return "mkdir hello\nSet-Content hello\\main.tf 'output \"hello\" { value = \"world\" }'\n" +
			"larder publish module hello acme/hello/null 1.0.0" + to
	}
	return "mkdir -p hello\necho 'output \"hello\" { value = \"world\" }' > hello/main.tf\n" +
		"larder publish module ./hello acme/hello/null 1.0.0" + to
}

// moduleBlock returns a module block without inputs.
func moduleBlock(name, source, version string) string {
	return fmt.Sprintf("module %q {\n  source  = %q\n  version = %q\n}", name, source, version)
}

// hostBlocks returns the client configuration that leads from other hosts to the
// mirror.
func (g guide) hostBlocks(hosts ...registry.Host) string {
	var shown string // in place of a token
	if !g.isOpen() {
		shown = "larder_…"
	}
	var blocks []string
	for _, host := range hosts {
		blocks = append(blocks, hostblock.Text(g.own.URL(), host, shown))
	}
	return strings.TrimSuffix(strings.Join(blocks, "\n"), "\n")
}

// mirrorBlock returns the client configuration for a network mirror. The patterns are
// the providers that come only from it.
func mirrorBlock(host registry.Host, patterns ...string) string {
	for i, p := range patterns {
		patterns[i] = `"` + p + `"`
	}
	all := strings.Join(patterns, ", ")
	return fmt.Sprintf(`provider_installation {
  network_mirror {
    url     = "%s/v1/mirror/"
    include = [%s]
  }
  direct {
    exclude = [%s]
  }
}`, host.URL(), all, all)
}

// tokenVariable returns the name of the variable that has the token for a host.
// It is empty for a host with a port, which has none.
func tokenVariable(host registry.Host) string {
	if strings.Contains(string(host), ":") {
		return ""
	}
	return "TF_TOKEN_" + strings.NewReplacer(".", "_", "-", "__").Replace(string(host))
}

// absolute returns the absolute path of a file of this machine.
func absolute(file string) string {
	if path, err := filepath.Abs(file); err == nil {
		return path
	}
	return file
}

// quoted returns a word of a command for a POSIX shell.
func quoted(word string) string {
	if strings.ContainsFunc(word, func(r rune) bool {
		return !strings.ContainsRune("/._-", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}) {
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return word
}
