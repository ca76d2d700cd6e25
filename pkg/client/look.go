package client

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/opentofu/svchost"

	"github.com/larder-registry/larder/pkg/printable"
)

// Credential is what a host is sent, and where that is from.
type Credential struct {
	// Token is empty where there is none.
	Token string
	// Place is such as: in TF_TOKEN_example_com. It holds nothing of the token.
	Place string
}

// Credential returns what the CLIs send to a host, which may have a port.
func (c *Config) Credential(ctx context.Context, host string) (Credential, error) {
	name, err := parseHost(host)
	if err != nil {
		return Credential{}, err
	}
	token, from, err := c.token(ctx, name)
	return Credential{Token: token, Place: from.place}, err
}

// Hosts returns those that have a token of their own in the environment or in a file, as a person writes them. A
// credentials program is not asked, since it need not tell.
func (c *Config) Hosts() []string {
	hosts := []string{}
	for _, host := range slices.Sorted(maps.Keys(c.from)) {
		hosts = append(hosts, display(host))
	}
	return hosts
}

// Services says whether a host block of the configuration stands in for a host's discovery.
func (c *Config) Services(host string) bool {
	name, err := parseHost(host)
	_, found := c.services[name]
	return err == nil && found
}

// Files returns those that were read, what counts more after what counts less.
func (c *Config) Files() []string { return slices.Clone(c.files) }

// Place says in which file a person puts settings.
func (c *Config) Place() string {
	if c.named != "" {
		return c.named
	}
	return "~/.tofurc or ~/.terraformrc"
}

// Installations returns the provider_installation blocks.
func (c *Config) Installations() []Installation { return slices.Clone(c.installations) }

// Problem is what the CLIs put up with, and a person overlooks.
type Problem struct{ Result, Fix string }

// Problems returns those of the configuration, of what it says of a host or of all.
func (c *Config) Problems(host string) []Problem {
	found := slices.Clone(c.problems)
	if name, err := parseHost(host); err == nil && c.differing[name] {
		found = append(found, Problem{
			"OpenTofu and Terraform read files of their own, which have different tokens for " + display(name) + "; OpenTofu's is sent here",
			"put the same in both, ~/.tofurc and ~/.terraformrc, or one file in the place of the two: OpenTofu reads ~/.terraformrc where there is no ~/.tofurc"})
	}
	return found
}

// problems says which files are not read, or are not there.
func (p place) problems(files []file, missing string) []Problem {
	if len(files) != 1 || files[0].variable == "" {
		return nil
	}
	if missing != "" {
		return []Problem{{missing, "set " + files[0].variable + " to a file that is there, or unset it: clients read no other while it is set"}}
	}
	var ignored []string
	usual, _ := p.usual() // what cannot be listed is not read either
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
			", so that clients do not read " + strings.Join(ignored, ", "),
		"unset it, unless that is meant"}}
}

// TokenVariable returns the variable of the environment that names a host's token, or nothing where none can: no shell's
// names have a port.
func TokenVariable(host string) string {
	name, err := parseHost(host)
	if err != nil || strings.Contains(string(name), ":") {
		return ""
	}
	return tokenVariable(name)
}

// Reason says in words of its own why a request got no answer: an error of net/http may quote a URL's query.
func Reason(err error) string {
	why, _ := reason(err)
	return why
}

// CheckRedirect is for an http.Client whose requests may carry a credential: it keeps that to the host and port that it
// is for.
func CheckRedirect(request *http.Request, via []*http.Request) error { return redirect(request, via) }

// ParseHost reads a host as a person writes it, perhaps with a port, and returns it so.
func ParseHost(host string) (string, error) {
	name, err := parseHost(host)
	return svchost.ForDisplay(string(name)), err
}
