package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/opentofu/svchost"
	"github.com/opentofu/svchost/svcauth"

	"github.com/larder-registry/larder/pkg/registry"
)

// helperProgram is a credentials helper. If it is run with get and a host, it
// prints a JSON object with the token.
//
// Source: OpenTofu's and Terraform's manual, "Credentials Helpers".
type helperProgram struct {
	name    string
	path    string
	args    []string
	environ []string
}

// ForHost runs the program. Errors never contain its output.
func (p helperProgram) ForHost(ctx context.Context, host svchost.Hostname) (svcauth.HostCredentials, error) {
	args := append(slices.Clone(p.args), "get", host.String())
	command := exec.CommandContext(ctx, p.path, args...) //nolint:gosec // the user's own configuration names it
	command.Env = p.environ
	command.WaitDelay = time.Second // it may leave a child process that has the pipe open
	out := &bounded{}
	command.Stdout = out
	if err := command.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("cannot get the token for %s from %s: %w", display(host), p.path, ctx.Err())
		}
		err := registry.Errorf(registry.ErrUnauthenticated,
			"cannot get the token for %s: the credentials helper of the CLI configuration failed", display(host))
		return nil, registry.WithHint(err, "Run `%s ARGUMENTS get %s` to see the reason.", p.path, host)
	}
	var answer map[string]any
	if json.Unmarshal(out.data, &answer) != nil {
		return nil, registry.Errorf(registry.ErrInvalid,
			"cannot get the token for %s: the credentials helper %s did not print a JSON object", display(host), p.path)
	}
	token, ok := answer["token"].(string)
	if !ok {
		return nil, nil
	}
	return svcauth.HostCredentialsToken(token), nil
}

// bounded is a buffer of at most maxConfig bytes.
type bounded struct{ data []byte }

func (b *bounded) Write(data []byte) (int, error) {
	if len(b.data)+len(data) > maxConfig {
		return 0, errors.New("the output is too long")
	}
	b.data = append(b.data, data...)
	return len(data), nil
}

// find returns the path of a credentials helper, or an empty string. Both CLIs
// use the newest terraform-credentials-NAME in their plugin folders, whose name
// may end in _vVERSION. If two have the same version, the first one is used.
func (p place) find(name string) string {
	var folders []string
	if folder := p.folder(); folder != "" {
		folders = append(folders, folder)
	}
	if base := p.env["XDG_DATA_HOME"]; base != "" && p.system != "windows" {
		folders = append(folders, filepath.Join(base, "opentofu"))
	}
	var newest registry.Version
	found := ""
	for _, folder := range folders {
		plugins := filepath.Join(folder, "plugins")
		for _, plugins := range []string{plugins, filepath.Join(plugins, p.system+"_"+runtime.GOARCH)} {
			entries, err := os.ReadDir(plugins)
			if err != nil {
				continue
			}
			for _, entry := range entries {
				base, ok := strings.CutPrefix(strings.TrimSuffix(strings.ToLower(entry.Name()), ".exe"), "terraform-credentials-")
				base, text, _ := strings.Cut(base, "_v")
				path, err := filepath.Abs(filepath.Join(plugins, entry.Name()))
				if !ok || base != name || err != nil {
					continue
				}
				if info, err := os.Stat(path); err != nil || info.IsDir() {
					continue
				}
				text, _, _ = strings.Cut(text, "_x")
				version, _ := registry.ParseVersion(text) // without a version it is the lowest
				if found == "" || registry.CompareVersions(version, newest) > 0 {
					found, newest = path, version
				}
			}
		}
	}
	return found
}
