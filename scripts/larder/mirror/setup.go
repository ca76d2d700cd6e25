package mirror

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/files/textfile"
	"github.com/larder-registry/larder/pkg/mirror/hostblock"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/text/terminal"
	"github.com/larder-registry/larder/scripts/larder/arguments"
	"github.com/larder-registry/larder/scripts/larder/cli"
	"github.com/larder-registry/larder/scripts/larder/output"
	"github.com/larder-registry/larder/scripts/larder/place"
)

const (
	// setupFile is the name of the file in the clients' configuration folder.
	setupFile = "larder-mirror.tfrc"
	// writtenBy begins each file, so that no other file is overwritten.
	writtenBy = "# Written by `larder mirror setup`."
	// maxSetupFile bounds an existing file, in bytes.
	maxSetupFile = 1 << 20
)

// setup has the flags of the command, and what follows from them.
type setup struct {
	fromStdin, noToken, write bool
	file, client              string

	to    place.Addressing
	hosts []registry.Host
	token string
}

func setupCommand(c *cli.Program) *cobra.Command {
	var s setup
	cmd := &cobra.Command{
		Use:   "setup [HOST…]",
		Short: "Print the configuration with which clients use the mirror",
		Long: `Print a configuration file with which OpenTofu and Terraform get the modules and
providers of other registries from this one. Clients verify the signatures of
the providers, and sources stay as they are. HOST is the hostname of another
registry. By default the file has registry.opentofu.org and
registry.terraform.io.

For each host, the file has a host block, which leads to this registry, and a
credentials block. Clients send the credential of a host to where its host block
leads. So never use one of the blocks without the other: without the host block,
the token goes to the other registry.

With --token-stdin, the command reads the token from standard input. Without it,
the file has a placeholder. If everyone may read the mirror, use --no-token. The
file then has no credentials blocks, and no token can go to another registry.

With --write, the command writes the file ` + setupFile + ` to the folder
that both clients read: ~/.terraform.d, or %APPDATA%\terraform.d on Windows. It
does not overwrite a file that it has not written. It also refuses if another
configuration file has a block for a host, because clients use only one of them.

With --client, the command prints what another program needs instead:
` + clientNames() + `.`,
		Example: `  larder mirror setup --registry https://registry.example.com
  larder token create --quiet --name laptop --scope 'read:mirror/**' \
    --scope 'read:mirror-modules/**' | larder mirror setup --write --token-stdin
  larder mirror setup registry.opentofu.org --no-token --write
  larder mirror setup --client renovate`,
	}
	cmd.RunE = c.Run(func(ctx context.Context, args []string) (output.View, error) {
		if err := s.prepare(args, cmd.InOrStdin()); err != nil {
			return nil, err
		}
		var err error
		if s.to, err = c.Address(ctx); err != nil {
			return nil, err
		}
		if slices.Contains(output.Mapped(s.hosts, registry.Host.Display), s.to.Host) {
			return nil, arguments.Errorf("%s is this registry itself, and not another one", s.to.Host)
		}
		flags := "" // `larder token create` needs a store
		if c.About.Host == "" {
			flags = c.RepeatedFlags()
		}
		v, err := s.run(flags)
		if err != nil {
			return nil, err
		}
		if v.File == "" && !c.JSON && !c.Quiet { // standard output has only the file
			output.Page{Output: terminal.New(c.Stderr)}.Notes(v.Notes)
		}
		return v, nil
	})
	c.StoreFlags(cmd)
	flag := cmd.Flags().Lookup("registry")
	flag.Hidden, flag.Usage = false, "the `URL` of the registry, https://HOST[:PORT]"
	cmd.Flags().BoolVar(&s.fromStdin, "token-stdin", false, "read the token from standard input")
	cmd.Flags().BoolVar(&s.noToken, "no-token", false, "leave out the credentials blocks, if everyone may read the mirror")
	cmd.Flags().BoolVar(&s.write, "write", false, "write the file; needs --token-stdin or --no-token")
	cmd.Flags().StringVar(&s.file, "file", "", "with --write, the `PATH` of the file")
	cmd.Flags().StringVar(&s.client, "client", "", "print what the program `NAME` needs: "+clientNames())
	return cmd
}

// token68 matches the tokens that clients can send.
var token68 = regexp.MustCompile(`^[A-Za-z0-9._~+/-]+=*$`)

// prepare checks the flags and the arguments, and reads the token.
func (s *setup) prepare(args []string, stdin io.Reader) (err error) {
	if len(args) == 0 {
		args = []string{"registry.opentofu.org", "registry.terraform.io"}
	}
	s.hosts = nil
	for _, arg := range args {
		host, err := registry.ParseHost(arg)
		switch {
		case err != nil:
			return arguments.Wrong(err)
		case host.Name() != string(host):
			return arguments.Errorf("%s: a hostname with a port cannot be mirrored", host.Display())
		case !slices.Contains(s.hosts, host):
			s.hosts = append(s.hosts, host)
		}
	}
	switch {
	case s.client != "" && others[s.client] == nil:
		return registry.WithHint(arguments.Errorf("--client: nothing to print for the program%s", arguments.InError(s.client)),
			"Use one of %s. OpenTofu and Terraform need no --client.", clientNames())
	case s.client != "" && (s.write || s.fromStdin || s.noToken):
		return arguments.Errorf("--client cannot be combined with --write, --token-stdin or --no-token")
	case s.fromStdin && s.noToken:
		return arguments.Errorf("--token-stdin cannot be combined with --no-token")
	case s.write && !s.fromStdin && !s.noToken:
		return registry.WithHint(arguments.Errorf("--write needs --token-stdin or --no-token"), "%s", createToken(""))
	case s.file != "" && !s.write:
		return arguments.Errorf("--file needs --write")
	case s.fromStdin:
		if s.token, err = arguments.ReadToken(stdin); err == nil && !token68.MatchString(s.token) {
			err = arguments.Errorf("the token on standard input has a character that no token has")
		}
	}
	return err
}

// createToken is how to create a token that reads only the mirror.
func createToken(flags string) string {
	return "To create a token that reads the mirror and nothing else, run " +
		"`larder token create --name NAME " + hostblock.Scopes + flags + "`."
}

// run prints or writes the configuration. flags are those that name the registry.
func (s *setup) run(flags string) (SetupView, error) {
	v := SetupView{Status: "printed", Hosts: output.Mapped(s.hosts, registry.Host.Display)}
	if s.client != "" {
		v.Client = s.client
		v.Configuration, v.Notes = others[s.client](s)
		if s.to.Guessed != "" {
			v.Notes = append([]string{s.to.Guessed}, v.Notes...)
		}
		return v, nil
	}
	text := s.configuration()
	configuration, err := place.ClientConfiguration()
	if err != nil {
		return v, err
	}
	v.Notes = s.notes(configuration, flags)
	if !s.write {
		v.Configuration = text
		return v, nil
	}
	if s.to.Guessed != "" {
		return v, registry.WithHint(arguments.Errorf("the host of the registry is not certain"),
			"Name the registry with --registry https://HOST.")
	}
	if v.File = place.Absolute(s.file); s.file == "" {
		if v.File, err = configuration.SharedFile(setupFile); err != nil {
			hint := registry.Hint(err) + " Or write a new file with --file, and name that one in TF_CLI_CONFIG_FILE."
			return v, registry.WithHint(fmt.Errorf("cannot write %s: %w", setupFile, err), "%s", strings.TrimSpace(hint))
		}
	}
	if err := s.conflict(configuration, v.File); err != nil {
		return v, err
	}
	v.Status, err = replaceOwn(v.File, []byte(text))
	return v, err
}

// conflict returns an error if another file has a block for one of the hosts. A file
// that clients do not read by default is for TF_CLI_CONFIG_FILE. Clients then read no
// other file.
func (s *setup) conflict(configuration *client.Config, file string) error {
	shared, err := configuration.SharedFile(filepath.Base(file))
	byDefault := []string{".tofurc", ".terraformrc", "tofurc", "tofu.rc", "terraform.rc"}
	if (err != nil || shared != file) && !slices.Contains(byDefault, filepath.Base(file)) {
		return nil
	}
	for _, b := range configuration.Blocks() {
		if host, err := registry.ParseHost(b.Host); err != nil || !slices.Contains(s.hosts, host) ||
			place.Absolute(b.File) == file {
			continue
		}
		hint := "Remove it, and run the command again."
		if filepath.Base(b.File) == "credentials.tfrc.json" {
			hint = fmt.Sprintf("Run `tofu logout %[1]s` or `terraform logout %[1]s`, and then the command again.", b.Host)
		}
		return registry.WithHint(registry.Errorf(registry.ErrExists,
			"cannot write %s: %s already has a %s block for %s, and clients use only one", file, b.File, b.Kind, b.Host),
			"%s", hint)
	}
	return nil
}

// replaceOwn writes a file, unless another program has written the existing one.
func replaceOwn(path string, text []byte) (status string, err error) {
	old, err := textfile.Read(path, maxSetupFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		status = "written"
	case err != nil:
		return "", fmt.Errorf("cannot write %s: %w", path, err)
	case bytes.Equal(old, text):
		return "unchanged", nil
	case !bytes.HasPrefix(old, []byte(writtenBy)):
		return "", registry.WithHint(
			registry.Errorf(registry.ErrExists, "cannot write %s: it exists, and this command has not written it", path),
			"Move it away, or choose another path with --file.")
	default:
		status = "replaced"
	}
	if err := textfile.Replace(path, text); err != nil {
		return "", fmt.Errorf("cannot write %s: %w", path, err)
	}
	return status, nil
}

// url returns the URL of the registry.
func (s *setup) url() string {
	if own, err := registry.ParseHost(s.to.Host); err == nil { // else it is a placeholder
		return own.URL()
	}
	return "https://" + s.to.Host
}

// configuration returns the text of the file.
func (s *setup) configuration() string {
	var b strings.Builder
	b.WriteString(writtenBy + "\n# Never use a host block without its credentials block, or the other way round.\n")
	if s.noToken {
		b.Reset()
		b.WriteString(writtenBy + "\n")
	}
	token := cmp.Or(s.token, "YOUR TOKEN")
	if s.noToken {
		token = ""
	}
	for _, host := range s.hosts {
		b.WriteString("\n" + hostblock.Text(s.url(), host, token))
	}
	return b.String()
}

// notes returns what users of the file must know.
func (s *setup) notes(configuration *client.Config, flags string) (notes []string) {
	if s.to.Guessed != "" {
		notes = append(notes, s.to.Guessed)
	}
	if !s.noToken && s.token == "" {
		notes = append(notes, createToken(flags))
	}
	login := "`tofu login` and `terraform login` do not work for these hosts. "
	if s.noToken {
		login += "Clients send a stored login of them to this registry, so log out of them first."
	} else {
		login += "Clients use no stored login of them."
	}
	notes = append(notes, login)
	if !s.noToken {
		notes = append(notes, "Do not set "+s.variables()+": on a machine without the host block, clients send the token in it to "+
			"the other registry.")
	}
	for _, host := range s.hosts {
		for _, i := range configuration.Installations() {
			if slices.ContainsFunc(i.Methods, func(m client.Method) bool {
				return m.Kind == client.NetworkMirror && m.SelectsHost(host.Display())
			}) {
				notes = append(notes, "The network_mirror in "+i.File+" takes precedence over the host block for the providers of "+
					host.Display()+" that it includes.")
			}
		}
	}
	return notes
}

// variables returns the variables with tokens for the hosts.
func (s *setup) variables() string {
	return arguments.OneOf(output.Mapped(s.hosts, func(h registry.Host) string { return client.TokenVariable(h.Display()) }))
}

// SetupView is the configuration of clients.
type SetupView struct {
	// Status is printed, written, replaced or unchanged.
	Status string   `json:"status"`
	Hosts  []string `json:"hosts"`
	// Client is the other program that the configuration is for. It is missing
	// for OpenTofu and Terraform.
	Client string `json:"client,omitempty"`
	// File is the path of the file. It is missing if none was written.
	File string `json:"file,omitempty"`
	// Configuration is missing if it was written to a file.
	Configuration string   `json:"configuration,omitempty"`
	Notes         []string `json:"notes"`
}

// Text implements [output.View].
func (v SetupView) Text(p output.Page) {
	if v.File == "" {
		p.Printf("%s", v.Configuration)
		return
	}
	p.Println("%s %s", map[string]string{"written": "Wrote", "replaced": "Replaced", "unchanged": "Unchanged:"}[v.Status], v.File)
	p.Notes(v.Notes)
}

// Quiet prints the file, or its path if it was written.
func (v SetupView) Quiet(p output.Page) { p.Printf("%s", cmp.Or(v.Configuration, v.File+"\n")) }
