package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/publishapi/publishclient"
	"github.com/larder-registry/larder/pkg/registry"
)

const registryFromEnv = "LARDER_REGISTRY"

// throughRegistry is what commands that can go through a registry's own endpoint tell their users of it.
const throughRegistry = `

With --registry this goes through the registry's own endpoint, with the credentials that the clients have for it: TF_TOKEN_… in the
environment, what ` + "`tofu login`" + ` or ` + "`terraform login`" + ` has stored, and the credentials blocks of the configuration. Without these a CI job
goes by its own identity: in GitHub Actions with ` + "`permissions: id-token: write`" + `, in GitLab by an ID token in LARDER_ID_TOKEN.`

// dryThroughRegistry is what those of them that have a dry run say of it.
const dryThroughRegistry = ` With --dry-run it is not asked
at all, and so does not say whether it would take this.`

// remote says which registry is published to through its own endpoint.
type remote struct {
	url        string
	audience   string
	ciIdentity bool
}

// targetFlags give a command the flags that say which registry it is about: the one whose data is in a store, or one that
// answers.
func (c *cli) targetFlags(cmd *cobra.Command) {
	c.storeFlag(cmd)
	cmd.Flags().StringVar(&c.remote.url, "registry", "",
		"the registry to go to with the clients' credentials, in place of --store: https://HOST[:PORT]; the environment's "+registryFromEnv+" does the same")
	cmd.Flags().StringVar(&c.remote.audience, "audience", "", "whom a CI job's identity is made for (default https://HOST of the registry)")
	cmd.Flags().BoolVar(&c.remote.ciIdentity, "ci-identity", false, "go by this CI job's identity, even where there is another credential for the registry")
}

// target returns the host, as a person writes it, of the registry that a command is to go through, or nothing where it is about a store.
func (c *cli) target(cmd *cobra.Command) (host string, err error) {
	where, store := c.remote.url, cmd.Flags().Changed("store")
	fromEnv := os.Getenv(registryFromEnv)
	switch named := cmd.Flags().Changed("registry"); {
	case named && store:
		return "", usageError{errors.New("--store and --registry are two ways to the same: give one of them")}
	case !named && !store && fromEnv != "" && os.Getenv(storeFromEnv) != "":
		return "", usageError{fmt.Errorf("the environment has both %s and %s: give --store or --registry, or unset one of them", storeFromEnv, registryFromEnv)}
	case named:
		if where == "" {
			return "", errRegistry(where)
		}
	case !store:
		where = fromEnv
	}
	if where == "" {
		if c.remote.audience != "" || c.remote.ciIdentity {
			return "", usageError{errors.New("--audience and --ci-identity go with --registry")}
		}
		return "", nil
	}
	return registryHost(where)
}

// registryHost reads the URL of a registry, https://HOST, and returns its host as a person writes it.
func registryHost(where string) (string, error) {
	bare := strings.TrimSuffix(strings.TrimPrefix(where, "https://"), "/")
	host, err := client.ParseHost(bare)
	if err != nil || strings.ContainsAny(bare, "/?#@") {
		return "", errRegistry(where)
	}
	return host, nil
}

func errRegistry(where string) error {
	shown := fmt.Sprintf(" %.200q", where)
	if strings.ContainsAny(where, "@?#") {
		shown = "" // there may be a password in it
	}
	if strings.HasPrefix(strings.ToLower(where), "http://") {
		return usageError{fmt.Errorf("registry%s: clients do not speak http with a registry; it is https://HOST, such as https://registry.example.com", shown)}
	}
	return usageError{fmt.Errorf("registry%s: it is https://HOST, such as https://registry.example.com or https://127.0.0.1:8443", shown)}
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
	if err := configuration.UseIdentity(os.Environ(), host, client.Identity{Audience: c.remote.audience, Only: c.remote.ciIdentity}); err != nil {
		return err
	}
	p, err := publishclient.Open(ctx, client.New(configuration, "larder/"+version(), nil), host)
	if err == nil {
		err = do(p)
	}
	// What the registry explains has nothing to do with who asks.
	explained := errors.Is(err, registry.ErrForbidden) && !slices.Contains([]string{"", "forbidden"}, client.Said(err))
	if !explained && (errors.Is(err, registry.ErrUnauthenticated) || errors.Is(err, registry.ErrBadCredential) || errors.Is(err, registry.ErrForbidden)) {
		if sent := configuration.IdentitySent(); sent != "" {
			return fmt.Errorf("%s: %w", sent, err)
		}
		if advice := configuration.IdentityAdvice(); advice != "" {
			return fmt.Errorf("%w; %s", err, advice)
		}
	}
	return err
}

// place is where something was published to, as it is told.
type place struct {
	name string
	host string // what addresses begin with; empty where that is not known
	// notAsked is the registry that a dry run would have gone through; empty: there is none.
	notAsked string
}

// placeOf is a store.
func (c *cli) placeOf(data *store) place {
	return place{name: c.store, host: data.host}
}

// through is a registry that is gone through, but for a dry run.
func through(host string, dryRun bool) place {
	to := place{name: host, host: host}
	if dryRun {
		to.notAsked = host
	}
	return to
}

// printNotAsked says what a dry run did not find out.
func (c *cli) printNotAsked(to place) {
	if to.notAsked != "" {
		c.printf("%s was not asked: whether it would take this, and whether it has this version already, is not known\n", to.notAsked)
	}
}

// useModule prints the module block that uses a module with configuration in some
// folders: of its root or else of the first.
func (c *cli) useModule(host string, m registry.Module, v registry.Version, folders []string) {
	source := host + "/" + m.String()
	if len(folders) > 0 && !slices.Contains(folders, ".") {
		source += "//" + folders[0]
	}
	c.printf("\nUse it:\n\n  module %q {\n    source  = %q\n    version = %q\n  }\n",
		identifier(m.Name), source, v.String())
}

// useProvider shows what whoever uses a provider writes.
func (c *cli) useProvider(host string, p registry.Provider, v registry.Version) {
	c.printf("\nUse it:\n\n  terraform {\n    required_providers {\n      %s = {\n        source  = %q\n        version = %q\n      }\n    }\n  }\n", identifier(p.Type), host+"/"+p.String(), v.String())
}

// identifier makes a name of the language of something that may begin with a digit.
func identifier(name string) string {
	if name[0] >= '0' && name[0] <= '9' {
		return "x" + name
	}
	return name
}
