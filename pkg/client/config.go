package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/hashicorp/hcl"
	"github.com/hashicorp/hcl/hcl/parser"
	"github.com/opentofu/svchost"
	"github.com/opentofu/svchost/svcauth"

	"github.com/larder-registry/larder/pkg/content/safehcl"
	"github.com/larder-registry/larder/pkg/files/regularfile"
	"github.com/larder-registry/larder/pkg/files/textfile"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/printable"
)

// maxConfig bounds a configuration file, in bytes.
const maxConfig = 1 << 20

// Config is the configuration of the CLIs: credentials, the credentials helper,
// and host blocks with services. The zero value is an empty configuration.
type Config struct {
	source   svcauth.CredentialsSource
	services map[svchost.Hostname]map[string]any
	identity *identity
	own      ownToken
	// files lists the files that were read, and installations their
	// provider_installation blocks.
	files         []string
	installations []Installation
	// from has the sources of the configured tokens by host. helper is the
	// source of all others, or nil if there is no credentials helper.
	from   map[svchost.Hostname]source
	helper *source
	// named describes the file that an environment variable names in place of
	// all others. It is empty if no variable is set.
	named string
	// missing describes a file that a variable names but that does not exist.
	// It is empty if there is none.
	missing string
	// blocks lists the host and credentials blocks of all files. tokens are all
	// tokens outside the credentials helper.
	blocks []Block
	tokens map[svchost.Hostname]svcauth.HostCredentials
	// place is where the configuration was read.
	place place
	// problems lists the problems that concern all hosts. differing has the
	// hosts whose tokens differ between the CLIs.
	problems  []Problem
	differing map[svchost.Hostname]bool
}

// source describes where a credential comes from, without the credential.
type source struct {
	place    string // for example "in TF_TOKEN_example_com"; empty if there is no credential
	variable bool   // an environment variable, which takes precedence over a stored login
	job      bool   // the identity of this CI job
	bound    bool   // sent only to the host itself, whatever its discovery document names
}

// LoadConfig reads the configuration of OpenTofu and Terraform from the places
// where they look for it. These are the environment, in the form of os.Environ,
// the files that it names, and files in the folder home.
//
// A token in the environment takes precedence over one in a file, which takes
// precedence over the credentials helper. If both CLIs have a settings file,
// OpenTofu's takes precedence. As in the CLIs, files of the configuration
// folder take precedence over both.
//
// Errors in a file are registry.ErrInvalid and never quote it.
//
// Source: OpenTofu's and Terraform's manual, "CLI Configuration File".
func LoadConfig(environ []string, home string) (*Config, error) {
	return loadConfig(newPlace(environ, home, runtime.GOOS))
}

func loadConfig(p place) (*Config, error) {
	files, err := p.files()
	if err != nil {
		return nil, err
	}
	c := &Config{services: make(map[svchost.Hostname]map[string]any), from: make(map[svchost.Hostname]source), place: p}
	tokens := make(map[svchost.Hostname]svcauth.HostCredentials)
	c.tokens = tokens
	both := len(files) > 1 && files[0].reader != "" && files[1].reader != ""
	var helper helperProgram
	for i, file := range files {
		read, err := p.read(file)
		if err != nil {
			return nil, err
		}
		maps.Copy(c.services, read.services)
		if both && i == 1 {
			c.differing = differing(tokens, read.tokens)
		}
		maps.Copy(tokens, read.tokens)
		name := printable.Mark(file.path, 300)
		for _, installation := range read.installations {
			installation.File = name
			if both {
				installation.Reader = file.reader
			}
			c.installations = append(c.installations, installation)
		}
		c.blocks = append(c.blocks, read.blocks(file)...)
		for host := range read.tokens {
			c.from[host] = source{place: "of the credentials block in " + name}
			if !both || i > 1 {
				delete(c.differing, host) // both CLIs use this token
			}
		}
		if file.variable != "" {
			c.named = name + ", which " + file.variable + " names"
		}
		if file.variable != "" && !exists(file.path) {
			c.missing = file.variable + " names " + name + ", which does not exist"
		} else {
			c.files = append(c.files, name)
		}
		if read.helper.name != "" {
			helper = read.helper
		}
	}
	for host, variable := range environmentTokens(p.environ) {
		tokens[host] = svcauth.HostCredentialsToken(variable.token)
		c.from[host] = source{place: "in " + printable.Mark(variable.name, 300), variable: true}
		delete(c.differing, host)
	}
	c.problems = p.problems(files, c.missing)
	sources := svcauth.Credentials{svcauth.StaticCredentialsSource(tokens)}
	// Like the CLIs, continue without a credentials helper that does not exist.
	if helper.name != "" {
		if helper.path = p.find(helper.name); helper.path != "" {
			helper.environ = p.environ
			sources = append(sources, svcauth.CachingCredentialsSource(helper))
			c.helper = &source{place: "of the credentials helper " + printable.Mark(helper.path, 300)}
		} else {
			c.problems = append(c.problems, Problem{
				fmt.Sprintf("the program terraform-credentials-%s of the credentials_helper block does not exist, "+
					"and clients continue without it", printable.Mark(helper.name, 100)),
				"put the program in the plugins folder of the CLI configuration, for example ~/.terraform.d/plugins on Linux, " +
					"or remove the block"})
		}
	}
	c.source = sources
	return c, nil
}

// differing returns the hosts whose tokens differ between two files.
func differing(one, other map[svchost.Hostname]svcauth.HostCredentials) map[svchost.Hostname]bool {
	found := make(map[svchost.Hostname]bool)
	for _, tokens := range []map[svchost.Hostname]svcauth.HostCredentials{one, other} {
		for host := range tokens {
			found[host] = one[host] != other[host]
		}
	}
	return found
}

// ownToken is a token for one host, in an environment variable that does not name
// the host.
type ownToken struct {
	host     svchost.Hostname
	variable string
	token    string // empty if the variable is not set
}

// UseToken lets the client send one host the token of an environment variable. A
// TF_TOKEN_… variable for the host takes precedence, and the token takes precedence
// over all other credentials except [Identity.Only]. Unlike other credentials, it is
// not sent to other hosts that the host's discovery document names. token may be
// empty: then hints name the variable.
//
// The error is registry.ErrInvalid for a malformed host.
func (c *Config) UseToken(host, variable, token string) error {
	name, err := parseHost(host)
	c.own = ownToken{name, variable, strings.TrimSpace(token)}
	return err
}

// ownVariable returns the variable of [Config.UseToken] if it is for a host, and
// otherwise an empty string.
func (c *Config) ownVariable(host svchost.Hostname) string {
	if c.own.host != host {
		return ""
	}
	return c.own.variable
}

// ForHost returns the credential for a host, or nil if there is none. It
// implements svcauth.CredentialsSource.
func (c *Config) ForHost(ctx context.Context, host svchost.Hostname) (svcauth.HostCredentials, error) {
	token, _, err := c.token(ctx, host)
	if token == "" {
		return nil, err
	}
	return svcauth.HostCredentialsToken(token), nil
}

// token returns the token to send to a host and its source. The token is empty
// if there is none.
func (c *Config) token(ctx context.Context, host svchost.Hostname) (string, source, error) {
	if host == "" {
		return "", source{}, nil
	}
	var found svcauth.HostCredentials
	var err error
	from, configured := c.from[host]
	own := c.own.host == host && c.own.token != "" && !from.variable
	switch {
	case c.identity.only(host):
	case own:
		from = source{place: "in " + c.own.variable, variable: true, bound: true}
		found = svcauth.HostCredentialsToken(c.own.token)
	case c.source != nil:
		found, err = c.source.ForHost(ctx, host)
	}
	if !configured && !own && c.helper != nil {
		from = *c.helper
	}
	if err == nil && found == nil && c.identity.is(host) {
		from = source{place: "of this job", job: true}
		found, err = c.identity.forHost(ctx)
	}
	if err != nil {
		return "", source{}, err
	}
	// An empty token means that none is sent, even if another source has one.
	token, _ := found.(svcauth.HostCredentialsToken)
	if token == "" {
		return "", source{}, nil
	}
	if strings.ContainsFunc(string(token), func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "", source{}, registry.Errorf(registry.ErrInvalid,
			"cannot use the token for %s: it has a line break or another control character", display(host))
	}
	return string(token), from, nil
}

const tokenPrefix = "TF_TOKEN_"

// variable is an environment variable with a token.
type variable struct{ name, token string }

// environmentTokens returns the tokens in environment variables. Shell
// variables cannot have dots or hyphens in their names, so underscores replace
// them. Hosts may be in Punycode.
func environmentTokens(environ []string) map[svchost.Hostname]variable {
	tokens := make(map[svchost.Hostname]variable)
	for _, line := range environ {
		name, token, _ := strings.Cut(line, "=")
		encoded, found := strings.CutPrefix(name, tokenPrefix)
		if !found {
			continue
		}
		host, err := svchost.ForComparison(svchost.ForDisplay(strings.NewReplacer("__", "-", "_", ".").Replace(encoded)))
		if err != nil {
			continue // like the CLIs; the variable may have another purpose
		}
		tokens[host] = variable{name, token}
	}
	return tokens
}

// tokenVariable returns the name of the variable for a host without a port.
func tokenVariable(host svchost.Hostname) string {
	return tokenPrefix + strings.NewReplacer("-", "__", ".", "_").Replace(string(host))
}

// place is where the CLIs look for configuration.
type place struct {
	environ []string
	env     map[string]string
	root    string // home folder, or %APPDATA% on Windows; empty if unknown
	system  string // its GOOS
}

func newPlace(environ []string, home, system string) place {
	p := place{environ: append([]string{}, environ...), env: make(map[string]string), root: home, system: system}
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		if system == "windows" {
			name = strings.ToUpper(name)
		}
		p.env[name] = value
	}
	if system == "windows" {
		p.root = p.env["APPDATA"]
	}
	return p
}

// file is a configuration file.
type file struct {
	path string
	// variable is the environment variable that names the file. The file need
	// not exist: the CLIs only warn about it.
	variable string
	// reader is the CLI that reads the file. It is empty if both do.
	reader string
	// only is the only CLI that reads the file. Unlike reader, it is empty for
	// ~/.terraformrc if there is no ~/.tofurc, and set for OpenTofu's newer places.
	only string
}

// files returns the files to read. Later files take precedence.
func (p place) files() ([]file, error) {
	for _, variable := range []string{"TF_CLI_CONFIG_FILE", "TERRAFORM_CONFIG"} {
		if path := p.env[variable]; path != "" {
			return []file{{path: path, variable: variable}}, nil
		}
	}
	return p.usual()
}

// usual returns the files that are read if no variable names one.
func (p place) usual() ([]file, error) {
	names, folder := []string{".terraformrc", ".tofurc"}, p.folder()
	if p.system == "windows" {
		names = []string{"terraform.rc", "tofu.rc"}
	}
	var files []file
	for i, name := range names {
		if path := filepath.Join(p.root, name); p.root != "" && exists(path) {
			files = append(files, file{path: path, reader: CLIs[1-i], only: CLIs[1-i]})
		}
	}
	if len(files) == 1 && files[0].reader == CLIs[1] {
		files[0].only = ""
	}
	// OpenTofu's newer places are used only if the old ones do not exist.
	newer, only := p.newer(), ""
	if path := filepath.Join(newer, "tofurc"); len(files) == 0 && newer != "" && exists(path) {
		files = append(files, file{path: path, only: CLIs[0]})
	}
	if folder == "" || !exists(folder) {
		folder, only = newer, CLIs[0]
	}
	if folder == "" {
		return files, nil
	}
	entries, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot read the CLI configuration: %w", regularfile.Unreadable(folder, err))
	}
	for _, entry := range entries {
		if name := entry.Name(); strings.HasSuffix(name, ".tfrc") || strings.HasSuffix(name, ".tfrc.json") {
			files = append(files, file{path: filepath.Join(folder, name), only: only})
		}
	}
	return files, nil
}

// folder returns the configuration folder of both CLIs.
func (p place) folder() string {
	switch {
	case p.root == "":
		return ""
	case p.system == "windows":
		return filepath.Join(p.root, "terraform.d")
	}
	return filepath.Join(p.root, ".terraform.d")
}

// newer returns OpenTofu's newer configuration folder, or an empty string.
func (p place) newer() string {
	if base := p.env["XDG_CONFIG_HOME"]; base != "" && p.system != "windows" {
		return filepath.Join(base, "opentofu")
	}
	return ""
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// settings is the content of one file.
type settings struct {
	services map[svchost.Hostname]map[string]any
	tokens   map[svchost.Hostname]svcauth.HostCredentials
	helper   helperProgram

	installations []Installation
}

func (p place) read(from file) (settings, error) {
	opened, err := os.Open(from.path)
	if err != nil {
		if from.variable != "" && errors.Is(err, fs.ErrNotExist) {
			return settings{}, nil
		}
		return settings{}, fmt.Errorf("cannot read the CLI configuration: %w", regularfile.Unreadable(from.path, err))
	}
	defer opened.Close()
	data, err := io.ReadAll(io.LimitReader(opened, maxConfig+1))
	if err != nil {
		return settings{}, fmt.Errorf("cannot read the CLI configuration: %w", regularfile.Unreadable(from.path, err))
	}
	if len(data) > maxConfig {
		return settings{}, registry.Errorf(registry.ErrInvalid,
			"cannot read the CLI configuration: %s has more than %d bytes", from.path, maxConfig)
	}
	if textfile.HasMark(data) {
		return settings{}, registry.WithHint(registry.Errorf(registry.ErrInvalid,
			"cannot read the CLI configuration: %s begins with a byte order mark, which tofu and terraform reject", from.path),
			"Save it as UTF-8 without a byte order mark.")
	}
	read, err := parseSettings(data)
	if err != nil {
		return settings{}, registry.Errorf(registry.ErrInvalid, "cannot read the CLI configuration: %s: %w", from.path, err)
	}
	return read, nil
}

// hostBlock and helperBlock are blocks of a file, as the CLIs decode them.
type hostBlock struct {
	Services map[string]any `hcl:"services"`
}

type helperBlock struct {
	Args []string `hcl:"args"`
}

// parseSettings parses a file in either syntax. Its errors have the line, but not
// the parser's text, because that quotes the file. A value in the wrong place may
// be a token.
func parseSettings(data []byte) (read settings, err error) {
	defer func() {
		if recover() != nil { // the parser panics if it cannot read a number or a string
			read, err = settings{}, errors.New("the file has an unreadable value")
		}
	}()
	if err := safehcl.CheckLegacy(data); err != nil {
		return settings{}, err
	}
	tree, err := hcl.ParseBytes(data)
	if err != nil {
		return settings{}, fmt.Errorf("%sinvalid HCL or JSON", where(data, err))
	}
	var blocks struct {
		Hosts       map[string]*hostBlock     `hcl:"host"`
		Credentials map[string]map[string]any `hcl:"credentials"`
		Programs    map[string]*helperBlock   `hcl:"credentials_helper"`
	}
	if err := hcl.DecodeObject(&blocks, tree); err != nil {
		return settings{}, fmt.Errorf("%sa host, credentials or credentials_helper block has an unknown form",
			where(data, err))
	}
	const noHost = "a %s block has an invalid host: write it like registry.example.com, " +
		"without https:// and not in Punycode"
	read = settings{
		services: make(map[svchost.Hostname]map[string]any),
		tokens:   make(map[svchost.Hostname]svcauth.HostCredentials),
	}
	for _, host := range slices.Sorted(maps.Keys(blocks.Hosts)) {
		name, err := svchost.ForComparison(host) // the CLIs do not accept all that parseHost does
		if err != nil {
			return settings{}, fmt.Errorf(noHost, "host")
		}
		read.services[name] = nil
		if block := blocks.Hosts[host]; block != nil {
			read.services[name] = block.Services
		}
	}
	for _, host := range slices.Sorted(maps.Keys(blocks.Credentials)) {
		name, err := svchost.ForComparison(host)
		if err != nil {
			return settings{}, fmt.Errorf(noHost, "credentials")
		}
		// A block without a token that is a string means that no token is sent.
		token, _ := blocks.Credentials[host]["token"].(string)
		read.tokens[name] = svcauth.HostCredentialsToken(token)
	}
	read.installations = installationsOf(tree)
	if len(blocks.Programs) > 1 {
		return settings{}, errors.New("there is more than one credentials_helper block")
	}
	for name, block := range blocks.Programs {
		read.helper.name = name
		if block != nil {
			read.helper.args = block.Args
		}
	}
	return read, nil
}

// where returns a prefix with the line of an error, or nothing if the line is
// unknown.
func where(data []byte, err error) string {
	line := 0
	if at, ok := errors.AsType[*parser.PosError](err); ok {
		line = at.Pos.Line
	} else if bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) { // JSON, whose HCL parser loses positions
		if bad, ok := errors.AsType[*json.SyntaxError](json.Unmarshal(data, new(any))); ok {
			line = 1 + bytes.Count(data[:bad.Offset], []byte("\n"))
		}
	}
	if line == 0 {
		return ""
	}
	return fmt.Sprintf("line %d: ", line)
}
