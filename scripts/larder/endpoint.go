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
	"github.com/larder-registry/larder/pkg/publishapi/publishclient"
	"github.com/larder-registry/larder/pkg/registry"
)

// throughRegistry is part of the help of commands that can go through a registry's
// own endpoint.
const throughRegistry = `

With --registry this goes through the registry's own endpoint, with the
credentials that the clients have for it: TF_TOKEN_… in the environment, what
` + "`tofu login`" + ` or ` + "`terraform login`" + ` has stored, and the credentials blocks of
the configuration. Without these a CI job uses its own identity: in GitHub
Actions with ` + "`permissions: id-token: write`" + `, in GitLab with an ID token in
LARDER_ID_TOKEN.`

// dryThroughRegistry is part of the help of those of them that have a dry run.
const dryThroughRegistry = ` With --dry-run the registry is not asked, so that the
result does not say whether the registry would accept this.`

// remote says how a registry is reached through its own endpoint.
type remote struct {
	audience   string
	ciIdentity bool
}

// publishPlace returns the registry that the command is about, for commands that
// can go through its own endpoint.
func (c *cli) publishPlace() (place, error) {
	p, err := c.place()
	if err != nil || p.host != "" || c.remote == (remote{}) {
		return p, err
	}
	flag := "--audience"
	if c.remote.ciIdentity {
		flag = "--ci-identity"
	}
	return place{}, registry.WithHint(usagef("%s goes with the URL of a registry, and %s is a store", flag, p),
		"Name the registry with --registry https://HOST, or leave out %s.", flag)
}

// clientConfiguration reads what OpenTofu and Terraform are configured with.
func clientConfiguration() (*client.Config, error) {
	home, _ := os.UserHomeDir() // without one there is less to read
	return client.LoadConfig(os.Environ(), home)
}

// throughEndpoint does something through a registry's own endpoint.
func (c *cli) throughEndpoint(ctx context.Context, host string, do func(*publishclient.Publisher) error) error {
	configuration, err := clientConfiguration()
	if err != nil {
		return err
	}
	identity := client.Identity{Audience: c.remote.audience, Only: c.remote.ciIdentity}
	if err := configuration.UseIdentity(os.Environ(), host, identity); err != nil {
		return err
	}
	p, err := publishclient.Open(ctx, client.New(configuration, "larder/"+version(), nil), host)
	if err == nil {
		err = do(p)
	}
	if errors.Is(err, client.ErrUntrusted) {
		if file := c.authorityOf(host); file != "" {
			return registry.WithHint(err, "%s", trustHint(file, os.Getenv(authoritiesFromEnv), runtime.GOOS))
		}
		return err
	}
	// What the registry explains has nothing to do with who asks.
	explained := errors.Is(err, registry.ErrForbidden) && !slices.Contains([]string{"", "forbidden"}, client.Said(err))
	refused := errors.Is(err, registry.ErrUnauthenticated) || errors.Is(err, registry.ErrBadCredential) ||
		errors.Is(err, registry.ErrForbidden)
	if refused && os.Getenv(tokenFromEnv) != "" {
		err = registry.WithHint(err, "%s",
			strings.TrimSpace(registry.Hint(err)+" "+tokenFromEnv+" is for `larder doctor` alone."))
	}
	if refused && !explained {
		if sent := configuration.IdentitySent(); sent != "" {
			return registry.WithHint(err, "%s", strings.TrimSpace(sent+" "+registry.Hint(err)))
		}
		if advice := configuration.IdentityAdvice(); advice != "" {
			return registry.WithHint(err, "%s", strings.TrimSpace(registry.Hint(err)+" "+advice))
		}
	}
	return err
}

// authoritiesFromEnv names the file with the authorities that programs on Linux
// trust.
const authoritiesFromEnv = "SSL_CERT_FILE"

// authorityOf returns the file with the authority of a host's certificate, if a
// registry on this machine was served there. It looks at the folders of contexts
// and the default one.
func (c *cli) authorityOf(host string) string {
	folders := []string{defaultData}
	file, _ := c.readContexts() // an error has ended the command before
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

// trustHint says how clients on a system trust the authority in a file. set is the
// file that SSL_CERT_FILE names already; it may be empty.
func trustHint(file, set, system string) string {
	switch {
	case system == "windows" || system == "darwin":
		return "Add its authority, " + file + ", to those that this system trusts."
	case set != "" && absolute(set) != file:
		return "Add its authority, " + file + ", to the file that SSL_CERT_FILE names, " + set + ", or run `" + trustCommand(file) + "`."
	}
	return "Trust its authority with `" + trustCommand(file) + "`."
}

// trustCommand makes clients on Linux trust the authority in a file.
func trustCommand(file string) string { return "export SSL_CERT_FILE=" + quoted(file) }
