package client

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opentofu/svchost"
	"github.com/opentofu/svchost/svcauth"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/printable"
)

// BlockKind is the type of a block, as in a file.
type BlockKind string

// The kinds of blocks.
const (
	HostBlock        BlockKind = "host"
	CredentialsBlock BlockKind = "credentials"
)

// Block is a host or credentials block of a configuration file.
type Block struct {
	Kind BlockKind
	// Host is the host, in the form for people.
	Host string
	// File is the path of the file.
	File string
	// Reader is the only CLI that reads the file. It is empty if both do.
	Reader string
	// Services are the URLs of the services of a host block.
	Services map[string]string
}

// Blocks returns the host and credentials blocks of all files. If there are
// several of one kind for a host, the CLIs use only the last one. They merge
// nothing, not even within a file.
func (c *Config) Blocks() []Block { return slices.Clone(c.blocks) }

// blocks returns the blocks of a file.
func (s settings) blocks(from file) (found []Block) {
	for _, host := range slices.Sorted(maps.Keys(s.services)) {
		services := make(map[string]string)
		for id, value := range s.services[host] {
			if text, ok := value.(string); ok {
				services[id] = text
			}
		}
		found = append(found, Block{HostBlock, display(host), from.path, from.only, services})
	}
	for _, host := range slices.Sorted(maps.Keys(s.tokens)) {
		found = append(found, Block{CredentialsBlock, display(host), from.path, from.only, nil})
	}
	return found
}

// publicHosts are the hosts of sources that name none.
var publicHosts = []svchost.Hostname{"registry.opentofu.org", "registry.terraform.io"}

// IgnoreServices ignores the host blocks with a service below one of the paths, such as
// those that lead to a mirror of the host. It ignores the credentials for these hosts
// too, which are for the mirror. A token of Larder in a file or a variable is also
// ignored for the public registries.
func (c *Config) IgnoreServices(paths ...string) {
	none := svcauth.HostCredentialsToken("") // so that no helper is used
	for host, services := range c.services {
		for _, value := range services {
			text, _ := value.(string)
			if slices.ContainsFunc(paths, func(path string) bool { return strings.Contains(text, path) }) {
				delete(c.services, host)
				c.tokens[host] = none
			}
		}
	}
	for _, host := range publicHosts {
		if token, _ := c.tokens[host].(svcauth.HostCredentialsToken); registry.IsToken(string(token)) {
			c.tokens[host] = none
		}
	}
}

// SharedFile returns the path of a file in the configuration folder that both CLIs
// read. If they would not read it, the error is registry.ErrInvalid.
func (c *Config) SharedFile(name string) (string, error) {
	folder := c.place.folder()
	switch newer := c.place.newer(); {
	case c.named != "":
		return "", registry.WithHint(
			registry.Errorf(registry.ErrInvalid, "clients read no other configuration file than %s", c.named),
			"Unset the variable, or add the blocks to that file.")
	case folder == "":
		return "", registry.Errorf(registry.ErrNotFound, "there is no home folder for the configuration of clients")
	case newer != "" && exists(newer) && !exists(folder):
		return "", registry.WithHint(
			registry.Errorf(registry.ErrInvalid, "OpenTofu reads %s only while %s does not exist, and Terraform does not "+
				"read it",
				printable.Mark(newer, 300), printable.Mark(folder, 300)),
			"Move its files to %s, so that both clients read them.", printable.Mark(folder, 300))
	}
	return filepath.Join(folder, name), nil
}
