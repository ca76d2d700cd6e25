// Package clients runs the real clients, OpenTofu and Terraform, in tests, and
// builds a provider that they install.
package clients

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/programs"
)

// tofu is the path of OpenTofu from scripts/tools, within the checkout.
const tofu = ".tools/opentofu-v1.12.6/tofu"

// Client is a real client's program.
type Client struct {
	// Name is tofu or terraform. The user's configuration file is named after
	// it.
	Name string
	// Path is the path of the program.
	Path string
}

// Find returns the clients on this machine: OpenTofu if scripts/tools has built
// it, then Terraform if it is on PATH. Short tests do not use Terraform. missing
// has the reason for each missing client.
func Find() (found []Client, missing []string) {
	if path, err := programs.InCheckout(tofu); err == nil {
		found = append(found, Client{"tofu", path})
	} else {
		missing = append(missing, "tofu: scripts/tools builds it: "+err.Error())
	}
	if testing.Testing() && testing.Short() {
		missing = append(missing, "terraform: short tests use only OpenTofu")
	} else if path, err := exec.LookPath("terraform"); err == nil {
		found = append(found, Client{"terraform", path})
	} else {
		missing = append(missing, "terraform: it is not on PATH")
	}
	return found, missing
}

// Session is a user's home in which a client runs. It has its own configuration
// and trusted certificates, and nothing of the machine's.
type Session struct {
	Client Client
	// Home is the session's own folder.
	Home string
	// CAFile is the only certificate authority to trust. If empty, the
	// machine's are used.
	CAFile string
	// Config is the content of the client's configuration file.
	Config string
	// Env has further variables, as NAME=value.
	Env []string
}

// command returns a command that runs the client in a folder, with the
// session's environment.
func (s Session) command(ctx context.Context, dir string, args ...string) (*exec.Cmd, error) {
	// Config is in the user's own file: clients that use TF_CLI_CONFIG_FILE do
	// not read the credentials that a login has stored.
	if err := os.WriteFile(filepath.Join(s.Home, "."+s.Client.Name+"rc"), []byte(s.Config), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, s.Client.Path, args...)
	cmd.Dir = dir
	cmd.Env = append([]string{
		"HOME=" + s.Home,
		"PATH=" + os.Getenv("PATH"),
		"TMPDIR=" + os.TempDir(),
		"CHECKPOINT_DISABLE=1",
		"TF_IN_AUTOMATION=1",
		"TF_INPUT=0",
	}, s.Env...)
	if s.CAFile != "" {
		cmd.Env = append(cmd.Env, "SSL_CERT_FILE="+s.CAFile, "SSL_CERT_DIR="+filepath.Join(s.Home, "no-certificates"))
	}
	return cmd, nil
}

// secret matches the parts of a presigned URL that grant access. Clients print
// URLs that fail.
var secret = regexp.MustCompile(`(?i)(X-Amz-(?:Signature|Security-Token|Credential))=[^&\s"]+`)

// Run runs the client in a folder and returns all its output. It returns an
// error if the client fails.
func (s Session) Run(ctx context.Context, dir string, args ...string) (string, error) {
	cmd, err := s.command(ctx, dir, args...)
	if err != nil {
		return "", err
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	text := secret.ReplaceAllString(strings.ReplaceAll(out.String(), "\r\n", "\n"), "$1=...")
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return text, fmt.Errorf("%s %s: %w:\n%s", s.Client.Name, strings.Join(args, " "), err, text)
	}
	return text, err
}
