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

	"github.com/larder-registry/larder/internal/testkit/programs"
)

// tofu is where scripts/tools puts OpenTofu, within the checkout.
const tofu = ".tools/opentofu-v1.12.6/tofu"

// Client is a real client's command line.
type Client struct {
	// Name is tofu or terraform, and the user's configuration file is named after it.
	Name string
	// Path is where its program is.
	Path string
}

// Find returns the clients that are there: OpenTofu as scripts/tools built it,
// and Terraform if it is on PATH. missing says why each of the others is left
// out.
func Find() (found []Client, missing []string) {
	if path, err := programs.InCheckout(tofu); err == nil {
		found = append(found, Client{"tofu", path})
	} else {
		missing = append(missing, "tofu: scripts/tools builds it: "+err.Error())
	}
	if path, err := exec.LookPath("terraform"); err == nil {
		found = append(found, Client{"terraform", path})
	} else {
		missing = append(missing, "terraform: it is not on PATH")
	}
	return found, missing
}

// Session is a user's home in which a client runs: its configuration and what it trusts, and nothing of the machine's.
type Session struct {
	Client Client
	// Home is a folder of the session's own.
	Home string
	// CAFile is the certificate authority to trust, and no other; if it is empty, those of the machine.
	CAFile string
	// Config is the text of the client's configuration file.
	Config string
	// Env has further variables, as NAME=value.
	Env []string
}

// command is the client's command line in a folder, with the session's environment.
func (s Session) command(ctx context.Context, dir string, args ...string) (*exec.Cmd, error) {
	// Where the user's own file lies: with one that TF_CLI_CONFIG_FILE names, clients do not read what a login has stored.
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

// secret is what of a presigned URL lets anyone use it: clients print URLs that fail.
var secret = regexp.MustCompile(`(?i)(X-Amz-(?:Signature|Security-Token|Credential))=[^&\s"]+`)

// Run runs the client in a folder and returns all it printed. It fails where the client does.
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
