package main

import (
	"context"
	"errors"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/publish/publishclient"
	"github.com/larder-registry/larder/pkg/registry"
)

// throughRegistry is part of the help of commands that can go through a
// registry's own endpoint.
const throughRegistry = `

With --registry, the command sends requests to the registry instead of using its
store. It uses the token in LARDER_TOKEN, or the credentials that clients have
for the registry. These are TF_TOKEN_… variables, which take precedence, tokens
that ` + "`tofu login`" + ` or ` + "`terraform login`" + ` has stored, and credentials blocks of the
configuration. Without a credential, a CI job uses its own
identity: in GitHub Actions with ` + "`permissions: id-token: write`" + `, in GitLab with
an ID token in LARDER_ID_TOKEN.`

// dryThroughRegistry is part of the help of commands that also have --dry-run.
const dryThroughRegistry = `

With --registry and --dry-run, the command sends no request. It then cannot
check whether the registry would accept the publish.`

const tokenFromEnv = "LARDER_TOKEN" //nolint:gosec // the name of a variable

// remote has the flags for requests to a registry's own endpoint.
type remote struct {
	audience   string
	ciIdentity bool
}

// anyPlace returns the registry of a command that can use a store or the
// registry's own endpoint.
func (f *finder) anyPlace() (place, error) {
	p, err := f.place()
	if err != nil || p.host != "" || f.remote == (remote{}) {
		return p, err
	}
	flag := "--audience"
	if f.remote.ciIdentity {
		flag = "--ci-identity"
	}
	return place{}, registry.WithHint(usagef("%s needs the URL of a registry, but %s is a store", flag, p),
		"Name the registry with --registry https://HOST, or remove %s.", flag)
}

// clientConfiguration reads the configuration of OpenTofu and Terraform.
func clientConfiguration() (*client.Config, error) {
	home, _ := os.UserHomeDir() // if there is none, LoadConfig skips its files
	return client.LoadConfig(os.Environ(), home)
}

// throughEndpoint calls do with a publisher for a registry's own endpoint.
func (f *finder) throughEndpoint(ctx context.Context, host string, do func(*publishclient.Publisher) error) error {
	return f.onHost(host, func(credentials *client.Client) error {
		p, err := publishclient.Open(ctx, credentials, host)
		if err != nil {
			return err
		}
		return do(p)
	})
}

// onHost calls do with a client that has the credentials for the command's registry.
// It adds hints about credentials and certificates to errors.
func (f *finder) onHost(host string, do func(*client.Client) error) error {
	configuration, err := clientConfiguration()
	if err != nil {
		return err
	}
	if err := configuration.UseToken(host, tokenFromEnv, os.Getenv(tokenFromEnv)); err != nil {
		return err
	}
	return f.asHost(configuration, host, client.Identity{Audience: f.remote.audience, Only: f.remote.ciIdentity}, do)
}

// asHost is onHost with another configuration and identity of a CI job.
func (f *finder) asHost(configuration *client.Config, host string, identity client.Identity, do func(*client.Client) error) error {
	if err := configuration.UseIdentity(os.Environ(), host, identity); err != nil {
		return err
	}
	err := do(client.New(configuration, f.agent, nil))
	if errors.Is(err, client.ErrUntrusted) {
		if file := f.authorityOf(host); file != "" {
			return registry.WithHint(err, "%s", trustHint(file, os.Getenv(authoritiesFromEnv), runtime.GOOS))
		}
		return err
	}
	// If the registry explains the denial, the credential is not the reason.
	explained := errors.Is(err, registry.ErrForbidden) &&
		!slices.Contains([]string{"", "forbidden"}, client.ErrorText(err))
	denied := errors.Is(err, registry.ErrUnauthenticated) || errors.Is(err, registry.ErrBadCredential) ||
		errors.Is(err, registry.ErrForbidden)
	if denied && !explained {
		if sent := configuration.IdentitySent(); sent != "" {
			return registry.WithHint(err, "%s", strings.TrimSpace(sent+" "+registry.Hint(err)))
		}
		if advice := configuration.IdentityAdvice(); advice != "" {
			return registry.WithHint(err, "%s", strings.TrimSpace(registry.Hint(err)+" "+advice))
		}
	}
	return err
}

// authoritiesFromEnv is the variable that names the file with the certificate
// authorities that programs on Linux trust.
const authoritiesFromEnv = "SSL_CERT_FILE"

// authorityOf returns the file with the authority of a host's certificate if a
// registry on this machine was served there. It searches the default folder and
// the folders of contexts. It returns an empty string if it finds none.
func (f *finder) authorityOf(host string) string {
	folders := []string{defaultData}
	file, _ := f.readContexts() // the command has already read it without error
	for _, name := range file.Names() {
		if p, err := parseStore(file.Contexts[name].Store); err == nil && p.dir != "" {
			folders = append(folders, p.dir)
		}
	}
	for _, dir := range folders {
		if authority := local.AuthorityOf(dir, host); authority != "" {
			return absolute(authority)
		}
	}
	return ""
}

// trustHint returns how to make clients on a system trust the authority in a
// file. set is the current value of SSL_CERT_FILE and may be empty.
func trustHint(file, set, system string) string {
	switch {
	case system == "windows" || system == "darwin":
		return "Add its certificate authority, " + file + ", to those that this system trusts."
	case set != "" && absolute(set) != file:
		return "Add its certificate authority, " + file + ", to the file in SSL_CERT_FILE, " + set +
			", or run `" + trustCommand(file) + "`."
	}
	return "To trust its certificate authority, run `" + trustCommand(file) + "`."
}

// trustCommand returns the command that makes clients on Linux trust the
// authority in a file.
func trustCommand(file string) string { return "export SSL_CERT_FILE=" + quoted(file) }
