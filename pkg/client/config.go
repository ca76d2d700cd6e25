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

	"github.com/larder-registry/larder/pkg/printable"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/regularfile"
	"github.com/larder-registry/larder/pkg/safehcl"
)

// maxConfig bounds a file of configuration.
const maxConfig = 1 << 20

// Config is what the configuration of the CLIs says of hosts: credentials, the program that keeps further ones, and
// services that are known without discovery. The zero value is of somebody who has configured nothing.
type Config struct {
	source   svcauth.CredentialsSource
	services map[svchost.Hostname]map[string]any
	identity *identity
	// files are those that were read, and installations their provider_installation blocks.
	files         []string
	installations []Installation
	// from says where the tokens of hosts are configured, and keeper is the program for all others; nil: there is none.
	from   map[svchost.Hostname]source
	keeper *source
	// named is the one that a variable names in place of all others; empty: none does.
	named string
	// missing says which file a variable names that is not there; empty: none.
	missing string
	// problems are those of all hosts, and differing has the hosts whose tokens differ by CLI.
	problems  []Problem
	differing map[svchost.Hostname]bool
}

// source is where a credential comes from, with nothing of what it is.
type source struct {
	place    string // such as: in TF_TOKEN_example_com; empty: there is no credential
	variable bool   // of the environment, which comes before what logging in stores
	job      bool   // it is the identity of this job
}

// LoadConfig reads the configuration of OpenTofu and Terraform from where either looks for it: the environment, as
// os.Environ gives it, and the files that it names or that are in the user's home.
//
// A token in the environment comes before one in a file, and that before the credentials program. Where both CLIs have
// a file of settings, OpenTofu's comes first; files of the configuration folder come before both, as the CLIs have it.
// Errors in a file are ErrInvalid and never quote it.
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
	c := &Config{services: make(map[svchost.Hostname]map[string]any), from: make(map[svchost.Hostname]source)}
	tokens := make(map[svchost.Hostname]svcauth.HostCredentials)
	both := len(files) > 1 && files[0].reader != "" && files[1].reader != ""
	var keeper program
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
		for host := range read.tokens {
			c.from[host] = source{place: "of the credentials block in " + name}
			if !both || i > 1 {
				delete(c.differing, host) // this one counts for both
			}
		}
		if file.variable != "" {
			c.named = name + ", which " + file.variable + " names"
		}
		if file.variable != "" && !exists(file.path) {
			c.missing = file.variable + " names " + name + ", which is not there"
		} else {
			c.files = append(c.files, name)
		}
		if read.program.name != "" {
			keeper = read.program
		}
	}
	for host, variable := range environmentTokens(p.environ) {
		tokens[host] = svcauth.HostCredentialsToken(variable.token)
		c.from[host] = source{place: "in " + printable.Mark(variable.name, 300), variable: true}
		delete(c.differing, host)
	}
	c.problems = p.problems(files, c.missing)
	sources := svcauth.Credentials{svcauth.StaticCredentialsSource(tokens)}
	// Like the CLIs, go on without a program that is not there.
	if keeper.name != "" {
		if keeper.path = p.find(keeper.name); keeper.path != "" {
			keeper.environ = p.environ
			sources = append(sources, svcauth.CachingCredentialsSource(keeper))
			c.keeper = &source{place: "of the credentials program " + printable.Mark(keeper.path, 300)}
		} else {
			c.problems = append(c.problems, Problem{
				fmt.Sprintf("the credentials_helper %q has no program terraform-credentials-%[1]s, and clients go on without it",
					printable.Mark(keeper.name, 100)),
				"put the program in the folder plugins of the CLIs' configuration, ~/.terraform.d/plugins on Linux, or take the block out"})
		}
	}
	c.source = sources
	return c, nil
}

// differing returns the hosts whose tokens are not the same in two files.
func differing(one, other map[svchost.Hostname]svcauth.HostCredentials) map[svchost.Hostname]bool {
	found := make(map[svchost.Hostname]bool)
	for _, tokens := range []map[svchost.Hostname]svcauth.HostCredentials{one, other} {
		for host := range tokens {
			found[host] = one[host] != other[host]
		}
	}
	return found
}

// ForHost returns the credential for a host, or nil if there is none. With it a Config is a svcauth.CredentialsSource.
func (c *Config) ForHost(ctx context.Context, host svchost.Hostname) (svcauth.HostCredentials, error) {
	token, _, err := c.token(ctx, host)
	if token == "" {
		return nil, err
	}
	return svcauth.HostCredentialsToken(token), nil
}

// token returns what to send to a host and where that is from, or nothing.
func (c *Config) token(ctx context.Context, host svchost.Hostname) (string, source, error) {
	if host == "" {
		return "", source{}, nil
	}
	var found svcauth.HostCredentials
	var err error
	if c.source != nil && !c.identity.only(host) {
		found, err = c.source.ForHost(ctx, host)
	}
	from, configured := c.from[host]
	if !configured && c.keeper != nil {
		from = *c.keeper
	}
	if err == nil && found == nil && c.identity.is(host) {
		from = source{place: "of this job", job: true}
		found, err = c.identity.forHost(ctx)
	}
	if err != nil {
		return "", source{}, err
	}
	// An empty token says that nothing is to be sent, whatever is found elsewhere.
	token, _ := found.(svcauth.HostCredentialsToken)
	if token == "" {
		return "", source{}, nil
	}
	if strings.ContainsFunc(string(token), func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "", source{}, registry.Errorf(registry.ErrInvalid,
			"cannot use the token for %s: there is a line break or another control character in it", display(host))
	}
	return string(token), from, nil
}

const tokenPrefix = "TF_TOKEN_"

// variable is one of the environment with a token.
type variable struct{ name, token string }

// environmentTokens reads the variables with tokens. A shell's names have neither dots nor hyphens, so underscores stand
// for them; hosts may be in punycode.
func environmentTokens(environ []string) map[svchost.Hostname]variable {
	tokens := make(map[svchost.Hostname]variable)
	for _, line := range environ {
		name, token, _ := strings.Cut(line, "=")
		encoded, found := strings.CutPrefix(name, tokenPrefix)
		if !found {
			continue
		}
		host, err := parseHost(svchost.ForDisplay(strings.NewReplacer("__", "-", "_", ".").Replace(encoded)))
		if err != nil {
			continue // as the CLIs do; a variable may be meant for something else
		}
		tokens[host] = variable{name, token}
	}
	return tokens
}

// tokenVariable returns the name of the variable for a host without a port.
func tokenVariable(host svchost.Hostname) string {
	return tokenPrefix + strings.NewReplacer("-", "__", ".", "_").Replace(string(host))
}

// place is where configuration is looked for.
type place struct {
	environ []string
	env     map[string]string
	root    string // the home, or on Windows the folder of applications' data; empty: none
	system  string // by Go's name for it
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

// file is one to read.
type file struct {
	path string
	// variable is the one that names it. Such a file need not be there: the CLIs do no more than warn.
	variable string
	// reader is the CLI whose file it is; empty: it is of both.
	reader string
}

// files returns what is to be read, what counts more after what counts less.
func (p place) files() ([]file, error) {
	for _, variable := range []string{"TF_CLI_CONFIG_FILE", "TERRAFORM_CONFIG"} {
		if path := p.env[variable]; path != "" {
			return []file{{path: path, variable: variable}}, nil
		}
	}
	return p.usual()
}

// usual returns the files that are read where no variable names another.
func (p place) usual() ([]file, error) {
	names, folder := []string{".terraformrc", ".tofurc"}, p.folder()
	if p.system == "windows" {
		names = []string{"terraform.rc", "tofu.rc"}
	}
	var files []file
	for i, name := range names {
		if path := filepath.Join(p.root, name); p.root != "" && exists(path) {
			files = append(files, file{path: path, reader: CLIs[1-i]})
		}
	}
	// OpenTofu's newer places count only where the old ones do not exist.
	newer := ""
	if base := p.env["XDG_CONFIG_HOME"]; base != "" && p.system != "windows" {
		newer = filepath.Join(base, "opentofu")
	}
	if path := filepath.Join(newer, "tofurc"); len(files) == 0 && newer != "" && exists(path) {
		files = append(files, file{path: path})
	}
	if folder == "" || !exists(folder) {
		folder = newer
	}
	if folder == "" {
		return files, nil
	}
	entries, err := os.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("cannot read the CLIs' configuration: %w", regularfile.Unreadable(folder, err))
	}
	for _, entry := range entries {
		if name := entry.Name(); strings.HasSuffix(name, ".tfrc") || strings.HasSuffix(name, ".tfrc.json") {
			files = append(files, file{path: filepath.Join(folder, name)})
		}
	}
	return files, nil
}

// folder is the one of both CLIs.
func (p place) folder() string {
	switch {
	case p.root == "":
		return ""
	case p.system == "windows":
		return filepath.Join(p.root, "terraform.d")
	}
	return filepath.Join(p.root, ".terraform.d")
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// settings is what one file says.
type settings struct {
	services map[svchost.Hostname]map[string]any
	tokens   map[svchost.Hostname]svcauth.HostCredentials
	program  program

	installations []Installation
}

func (p place) read(from file) (settings, error) {
	opened, err := os.Open(from.path)
	if err != nil {
		if from.variable != "" && errors.Is(err, fs.ErrNotExist) {
			return settings{}, nil
		}
		return settings{}, fmt.Errorf("cannot read the CLIs' configuration: %w", regularfile.Unreadable(from.path, err))
	}
	defer opened.Close()
	data, err := io.ReadAll(io.LimitReader(opened, maxConfig+1))
	if err != nil {
		return settings{}, fmt.Errorf("cannot read the CLIs' configuration: %w", regularfile.Unreadable(from.path, err))
	}
	if len(data) > maxConfig {
		return settings{}, registry.Errorf(registry.ErrInvalid,
			"cannot read the CLIs' configuration: %s has more than %d bytes", from.path, maxConfig)
	}
	read, err := parseSettings(data)
	if err != nil {
		return settings{}, registry.Errorf(registry.ErrInvalid, "cannot read the CLIs' configuration: %s: %w", from.path, err)
	}
	return read, nil
}

// hostBlock and programBlock are blocks of a file, as the CLIs decode them.
type hostBlock struct {
	Services map[string]any `hcl:"services"`
}

type programBlock struct {
	Args []string `hcl:"args"`
}

// parseSettings reads a file in either syntax. Its errors say where, and what in words of their own: the parser's quote
// the file, and what a mistyped file has in the wrong place may be a token.
func parseSettings(data []byte) (read settings, err error) {
	defer func() {
		if recover() != nil { // so the parser says that it cannot read a number or a string
			read, err = settings{}, errors.New("a value in it cannot be read")
		}
	}()
	if err := safehcl.CheckLegacy(data); err != nil {
		return settings{}, err
	}
	tree, err := hcl.ParseBytes(data)
	if err != nil {
		return settings{}, fmt.Errorf("%sit is not written as HCL or JSON", where(data, err))
	}
	var blocks struct {
		Hosts       map[string]*hostBlock     `hcl:"host"`
		Credentials map[string]map[string]any `hcl:"credentials"`
		Programs    map[string]*programBlock  `hcl:"credentials_helper"`
	}
	if err := hcl.DecodeObject(&blocks, tree); err != nil {
		return settings{}, fmt.Errorf("%sa host, credentials or credentials_helper block has another form than the CLIs read",
			where(data, err))
	}
	const noHost = "a %s block is for something that is no host: it is such as registry.example.com, without https:// and not in punycode"
	read = settings{services: make(map[svchost.Hostname]map[string]any), tokens: make(map[svchost.Hostname]svcauth.HostCredentials)}
	for _, host := range slices.Sorted(maps.Keys(blocks.Hosts)) {
		name, err := parseHost(host)
		if err != nil {
			return settings{}, fmt.Errorf(noHost, "host")
		}
		read.services[name] = nil
		if block := blocks.Hosts[host]; block != nil {
			read.services[name] = block.Services
		}
	}
	for _, host := range slices.Sorted(maps.Keys(blocks.Credentials)) {
		name, err := parseHost(host)
		if err != nil {
			return settings{}, fmt.Errorf(noHost, "credentials")
		}
		// Without a token that is a string it says that nothing is to be sent.
		token, _ := blocks.Credentials[host]["token"].(string)
		read.tokens[name] = svcauth.HostCredentialsToken(token)
	}
	read.installations = installationsOf(tree)
	if len(blocks.Programs) > 1 {
		return settings{}, errors.New("there may be one credentials_helper block at most")
	}
	for name, block := range blocks.Programs {
		read.program.name = name
		if block != nil {
			read.program.args = block.Args
		}
	}
	return read, nil
}

// where says in which line an error is, if that is known.
func where(data []byte, err error) string {
	line := 0
	if at, ok := errors.AsType[*parser.PosError](err); ok {
		line = at.Pos.Line
	} else if bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) { // JSON, whose parser does not keep places
		if bad, ok := errors.AsType[*json.SyntaxError](json.Unmarshal(data, new(any))); ok {
			line = 1 + bytes.Count(data[:bad.Offset], []byte("\n"))
		}
	}
	if line == 0 {
		return ""
	}
	return fmt.Sprintf("line %d: ", line)
}
