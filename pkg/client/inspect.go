package client

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/text/printable"
)

// Credential is the credential for a host and its source.
type Credential struct {
	// Token is empty if there is none.
	Token string
	// Place describes the source, for example "in TF_TOKEN_example_com". It
	// contains no part of the token.
	Place string
}

// Credential returns the credential that the CLIs send to a host, which may
// have a port.
func (c *Config) Credential(ctx context.Context, host string) (Credential, error) {
	name, err := parseHost(host)
	if err != nil {
		return Credential{}, err
	}
	token, from, err := c.token(ctx, name)
	return Credential{Token: token, Place: from.place}, err
}

// Hosts returns the hosts with a token in the environment or in a file, in the
// form for people. It does not include hosts whose token a credentials helper
// has.
func (c *Config) Hosts() []string {
	hosts := []string{}
	for _, host := range slices.Sorted(maps.Keys(c.from)) {
		hosts = append(hosts, display(host))
	}
	return hosts
}

// Services reports whether a host block of the configuration replaces a host's
// discovery.
func (c *Config) Services(host string) bool {
	name, err := parseHost(host)
	_, found := c.services[name]
	return err == nil && found
}

// Files returns the files that were read. Later files take precedence.
func (c *Config) Files() []string { return slices.Clone(c.files) }

// Place returns the name of the file for a user's settings.
func (c *Config) Place() string {
	if c.named != "" {
		return c.named
	}
	return "~/.tofurc or ~/.terraformrc"
}

// Installations returns the provider_installation blocks.
func (c *Config) Installations() []Installation { return slices.Clone(c.installations) }

// Problem is a problem that the CLIs ignore and that a person overlooks, with a
// fix.
type Problem struct{ Result, Fix string }

// Problems returns the problems of the configuration that concern a host or all
// hosts.
func (c *Config) Problems(host string) []Problem {
	found := slices.Clone(c.problems)
	if name, err := parseHost(host); err == nil && c.differing[name] {
		found = append(found, Problem{
			"OpenTofu's and Terraform's configuration files have different tokens for " + display(name) +
				"; Larder sends OpenTofu's",
			"put the same token in ~/.tofurc and ~/.terraformrc, or remove ~/.tofurc: " +
				"without it, OpenTofu reads ~/.terraformrc"})
	}
	return found
}

// problems returns the problems with files that are ignored or do not exist.
func (p place) problems(files []file, missing string) []Problem {
	if len(files) != 1 || files[0].variable == "" {
		return nil
	}
	if missing != "" {
		return []Problem{{missing, "set " + files[0].variable + " to an existing file, or unset it: " +
			"while it is set, clients read no other file"}}
	}
	var ignored []string
	usual, _ := p.usual() // the CLIs do not read files that cannot be listed
	for _, file := range usual {
		if file.path != files[0].path {
			ignored = append(ignored, printable.Mark(file.path, 300))
		}
	}
	if ignored == nil {
		return nil
	}
	return []Problem{{
		files[0].variable + " names " + printable.Mark(files[0].path, 300) +
			", so clients do not read " + strings.Join(ignored, ", "),
		"unset it, unless this is intended"}}
}

// TokenVariable returns the environment variable for a host's token. It returns
// an empty string for a host with a port, because shell variables cannot name
// one.
func TokenVariable(host string) string {
	name, err := parseHost(host)
	if err != nil || strings.Contains(string(name), ":") {
		return ""
	}
	return tokenVariable(name)
}

// Reason returns why a request got no response, in a fixed text. Errors of
// net/http may quote a URL's query.
func Reason(err error) string {
	_, why, _ := reason(err)
	return why
}

// CheckRedirect is the CheckRedirect function of an http.Client whose requests
// may carry a credential. It sends the credential only to its own host and
// port.
func CheckRedirect(request *http.Request, via []*http.Request) error { return redirect(request, via) }
