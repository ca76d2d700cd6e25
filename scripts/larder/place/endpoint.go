package place

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
	"github.com/larder-registry/larder/scripts/larder/arguments"
)

// ThroughRegistry is part of the help of commands that can go through a
// registry's own endpoint.
const ThroughRegistry = `

With --registry, the command sends requests to the registry instead of using its
store. It uses the token in LARDER_TOKEN, or the credentials that clients have
for the registry. These are TF_TOKEN_… variables, which take precedence, tokens
that ` + "`tofu login`" + ` or ` + "`terraform login`" + ` has stored, and credentials blocks of the
configuration. Without a credential, a CI job uses its own
identity: in GitHub Actions with ` + "`permissions: id-token: write`" + `, in GitLab with
an ID token in LARDER_ID_TOKEN.`

// DryThroughRegistry is part of the help of commands that also have --dry-run.
const DryThroughRegistry = `

With --registry and --dry-run, the command sends no request. It then cannot
check whether the registry would accept the publish.`

// TokenVariable is the variable with the token for the registry's URL.
const TokenVariable = "LARDER_TOKEN" //nolint:gosec // the name of a variable

// ClientConfiguration reads the configuration of OpenTofu and Terraform.
func ClientConfiguration() (*client.Config, error) {
	home, _ := os.UserHomeDir() // if there is none, LoadConfig skips its files
	return client.LoadConfig(os.Environ(), home)
}

// ThroughEndpoint calls do with a publisher for a registry's own endpoint.
func (f *Finder) ThroughEndpoint(ctx context.Context, host string, do func(*publishclient.Publisher) error) error {
	return f.OnHost(host, func(credentials *client.Client) error {
		p, err := publishclient.Open(ctx, credentials, host)
		if err != nil {
			return err
		}
		return do(p)
	})
}

// OnHost calls do with a client that has the credentials for the command's registry.
// It adds hints about credentials and certificates to errors.
func (f *Finder) OnHost(host string, do func(*client.Client) error) error {
	configuration, err := ClientConfiguration()
	if err != nil {
		return err
	}
	if err := configuration.UseToken(host, TokenVariable, os.Getenv(TokenVariable)); err != nil {
		return err
	}
	return f.AsHost(configuration, host, client.Identity{Audience: f.Remote.audience, Only: f.Remote.CIIdentity}, do)
}

// AsHost is [Finder.OnHost] with another configuration and identity of a CI job.
func (f *Finder) AsHost(
	configuration *client.Config, host string, identity client.Identity, do func(*client.Client) error,
) error {
	if err := configuration.UseIdentity(os.Environ(), host, identity); err != nil {
		return err
	}
	err := do(client.New(configuration, f.Agent, nil))
	if errors.Is(err, client.ErrUntrusted) {
		if file := f.authorityOf(host); file != "" {
			return registry.WithHint(err, "%s", TrustHint(file, os.Getenv(authoritiesFromEnv), runtime.GOOS))
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
func (f *Finder) authorityOf(host string) string {
	folders := []string{DefaultFolder}
	file, _ := ReadContexts() // the command has already read it without error
	for _, name := range file.Names() {
		if p, err := ParseStore(file.Contexts[name].Store); err == nil && p.Dir != "" {
			folders = append(folders, p.Dir)
		}
	}
	for _, dir := range folders {
		if authority := local.AuthorityOf(dir, host); authority != "" {
			return Absolute(authority)
		}
	}
	return ""
}

// TrustHint returns how to make clients on a system trust the authority in a
// file. set is the current value of SSL_CERT_FILE and may be empty.
func TrustHint(file, set, system string) string {
	switch {
	case system == "windows" || system == "darwin":
		return "Add its certificate authority, " + file + ", to those that this system trusts."
	case set != "" && Absolute(set) != file:
		return "Add its certificate authority, " + file + ", to the file in SSL_CERT_FILE, " + set +
			", or run `" + TrustCommand(file) + "`."
	}
	return "To trust its certificate authority, run `" + TrustCommand(file) + "`."
}

// TrustCommand returns the command that makes clients on Linux trust the
// authority in a file.
func TrustCommand(file string) string { return "export SSL_CERT_FILE=" + arguments.Quoted(file) }
