package rehearsal

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/larder-registry/larder/internal/testkit/clients"
	"github.com/larder-registry/larder/internal/testkit/issuers"
	"github.com/larder-registry/larder/internal/testkit/keys"
	"github.com/larder-registry/larder/pkg/registry"
)

// Scenario is one use of a deployed registry, from publishing to installing
// with the real clients.
type Scenario struct {
	Name string
	// Run returns an error if the registry does not behave as expected. It can
	// run again on the same registry.
	Run func(context.Context, *Registry) error
}

// Scenarios returns the scenarios of a rehearsal in their order. Add one for
// each new feature: together they must request each route, and need each
// permission of each role.
func Scenarios() []Scenario {
	return []Scenario{
		{"discovery, and responses without a token", discoveryScenario},
		{"tokens: create, list, revoke", tokenScenario},
		{"a module: publish, init, list", moduleScenario},
		{"a module with a missing archive: publish again", lostArchiveScenario},
		{"a provider: key, publish, deprecate, init, apply", providerScenario},
		// Functions cache the policy of the mirror for a minute, so this comes before
		// other requests to the mirror.
		{"a mirror that fetches: policy, init, copies, nightly check", pullScenario},
		{"a mirror: import, init of two hosts' providers, export", mirrorScenario},
		{"the mirror's policy: set, refuse, overrule, describe", mirrorPolicyScenario},
		{"a module with a token: publish, deprecate, init", publishModuleScenario},
		{"a provider with a token: publish, deprecate, init, apply", publishProviderScenario},
		{"publishing with a CI job's identity", trustScenario},
		{"the metadata API: list, search, describe", metadataScenario},
		{"the pages: log in, read, log out", pagesScenario},
		{"withdrawing: count downloads, withdraw, no more downloads", withdrawScenario},
		{"the operator: verify, audit, doctor --stack", operatorScenario},
		{"a key that may not be used: doctor --stack", keyScenario},
	}
}

// Registry is a deployed registry in the form that its users have.
type Registry struct {
	// Host is the host of the addresses of modules and providers.
	Host string
	// Clients are the real clients on this machine.
	Clients []clients.Client
	// HTTP trusts the registry's certificate.
	HTTP *http.Client
	// CAFile is a certificate that clients must trust. It is empty if they
	// already do.
	CAFile string
	// Larder runs the command line on the deployed stack, with a role that has
	// only the operator's policy. It returns the standard output.
	Larder func(ctx context.Context, args ...string) (string, error)
	// Withdraw runs `larder withdraw`, with a role that also has the withdraw
	// policy.
	Withdraw func(ctx context.Context, args ...string) error
	// Examine runs `larder doctor --stack` as the operator, and returns its
	// JSON output.
	Examine func(ctx context.Context) (string, error)
	// WithoutKey calls do while no role may use the key of the stack, and returns
	// the requests that were denied meanwhile. It is nil in AWS.
	WithoutKey func(ctx context.Context, do func() error) (denied []string, err error)
	// Deliver sends new lines of the logs to the function that counts. It is
	// nil in AWS, where CloudWatch does that.
	Deliver func(ctx context.Context) error
	// Through runs the command line through the registry's own endpoint,
	// without AWS credentials. env are further variables as NAME=value.
	Through func(ctx context.Context, env []string, args ...string) (string, error)
	// CI is an issuer that the registry trusts, or nil.
	CI *issuers.CI
	// Lose deletes an object directly in the bucket.
	Lose func(ctx context.Context, key string) error
	// Origin is a registry whose providers the functions can fetch, and Nightly
	// waits for all copies and then makes the nightly rule check it. Both are nil
	// in AWS.
	Origin  *Origin
	Nightly func(ctx context.Context) error
	// Namespace is the namespace in which scenarios publish.
	Namespace string
	// Readers are the clients' tokens, by namespace. They are stored because a
	// name can have only one token.
	Readers *sync.Map
	// Older is the module that the command line of an older commit may have
	// published, with an administrator's credentials.
	Older string
	// Scratch is a folder for temporary files.
	Scratch string
	// Operator are the credentials of the role with only the operator's policy,
	// and AWS is the URL that evaluates its policy. It is empty in AWS.
	Operator aws.Credentials
	AWS      string

	config string // of clients, in addition to their credentials
}

// nowhere is the only request of the scenarios to a path that does not exist.
const nowhere = "GET /nowhere"

func discoveryScenario(ctx context.Context, r *Registry) error {
	if err := r.get(ctx, "/.well-known/terraform.json", "", http.StatusOK); err != nil {
		return err
	}
	if err := r.get(ctx, "/nowhere", "", http.StatusNotFound); err != nil {
		return err
	}
	for _, path := range []string{
		"/v1/modules/rehearsal/absent/null/versions", "/v1/modules/rehearsal/absent/null/1.0.0/download",
		"/v1/providers/rehearsal/absent/versions", "/v1/providers/rehearsal/absent/1.0.0/download/linux/amd64",
		"/v1/mirror/registry.example.com/rehearsal/absent/index.json",
		"/v1/mirror/registry.example.com/rehearsal/absent/1.0.0.json",
	} {
		if err := r.get(ctx, path, "", http.StatusUnauthorized); err != nil {
			return err
		}
	}
	return nil
}

func tokenScenario(ctx context.Context, r *Registry) error {
	const path = "/v1/modules/rehearsal/absent/null/versions"
	token, err := r.newToken(ctx, "revoked", "read:modules/rehearsal/*")
	if err != nil {
		return err
	}
	if err := r.get(ctx, path, token, http.StatusNotFound); err != nil {
		return err
	}
	if err := r.get(ctx, "/v1/modules/other/absent/null/versions", token, http.StatusForbidden); err != nil {
		return err
	}
	listed, err := r.Larder(ctx, "token", "list", "--json")
	if err != nil {
		return err
	}
	if name := r.Namespace + ".revoked"; !strings.Contains(listed, name) || strings.Contains(listed, token) {
		return fmt.Errorf("the listing lacks %s, or contains the token itself", name)
	}
	// Other tests check that the token is rejected within a minute.
	_, err = r.Larder(ctx, "token", "revoke", r.Namespace+".revoked")
	return err
}

// readersToken returns the clients' token, which it creates once for a
// namespace.
func (r *Registry) readersToken(ctx context.Context) (string, error) {
	if token, ok := r.Readers.Load(r.Namespace); ok {
		return token.(string), nil
	}
	token, err := r.newToken(ctx, "clients", "read:**")
	if err == nil {
		r.Readers.Store(r.Namespace, token)
	}
	return token, err
}

// newToken creates a token with a name in the rehearsal's namespace.
func (r *Registry) newToken(ctx context.Context, name, scope string) (string, error) {
	var made struct{ Token string }
	text, err := r.Larder(ctx, "token", "create", "--json", "--name", r.Namespace+"."+name, "--scope", scope,
		"--expires", "1h")
	if err != nil {
		return "", err
	}
	err = json.Unmarshal([]byte(text), &made)
	return made.Token, err
}

func moduleScenario(ctx context.Context, r *Registry) error {
	address := r.Namespace + "/hello/null"
	if err := r.publishModule(ctx, address, "1.2.0", "hello"); err != nil {
		return err
	}
	if err := r.installModule(ctx, address, "~> 1.0", "hello"); err != nil {
		return err
	}
	listed, err := r.Larder(ctx, "list", r.Namespace)
	if err == nil && !strings.Contains(listed, address) {
		err = fmt.Errorf("the listing lacks %s:\n%s", address, listed)
	}
	return err
}

func lostArchiveScenario(ctx context.Context, r *Registry) error {
	m := registry.Module{Namespace: r.Namespace, Name: "lost", System: "null"}
	address, version := m.String(), registry.Version{Major: 1}
	if err := r.publishModule(ctx, address, "1.0.0", "lost"); err != nil {
		return err
	}
	listed, err := r.Larder(ctx, "list", address, "--json")
	if err != nil {
		return err
	}
	var list struct{ Versions []struct{ SHA256 string } }
	if err := json.Unmarshal([]byte(listed), &list); err != nil {
		return fmt.Errorf("cannot parse the list of versions: %w:\n%s", err, listed)
	}
	if len(list.Versions) != 1 {
		return fmt.Errorf("the list does not have exactly one version:\n%s", listed)
	}
	if err := r.Lose(ctx, m.ArchiveKey(version, list.Versions[0].SHA256)); err != nil {
		return err
	}
	if err := r.publishModule(ctx, address, "1.0.0", "lost"); err != nil {
		return err
	}
	return r.installModule(ctx, address, "1.0.0", "lost")
}

// metadataScenario lists, finds and describes the module and the providers of
// earlier scenarios. A token for another namespace gets none of them.
func metadataScenario(ctx context.Context, r *Registry) error {
	if err := r.get(ctx, "/v1/openapi.json", "", http.StatusOK); err != nil {
		return err
	}
	if err := r.get(ctx, "/v1/modules", "", http.StatusUnauthorized); err != nil {
		return err
	}
	token, err := r.readersToken(ctx)
	if err != nil {
		return err
	}
	module, provider := "/v1/modules/"+r.Namespace, "/v1/providers/"+r.Namespace
	texts := map[string]string{
		"/v1/modules": `"modules":[{`,
		"/v1/modules/search?q=hello+" + r.Namespace: r.Namespace + "/hello/null/1.2.0",
		module:                                     r.Namespace + "/hello/null/1.2.0",
		module + "/hello":                          r.Namespace + "/hello/null/1.2.0",
		module + "/hello/null":                     `"versions":["1.2.0"]`,
		module + "/hello/null/1.2.0":               `"readme"`,
		module + "/hello/null/history":             `"content_sha256"`,
		module + "/hello/null/dependents":          `"dependents":[`,
		module + "/hello/null/1.2.0/files":         `"stored":true`,
		module + "/hello/null/1.2.0/files/main.tf": "output",
		"/v1/providers":                            `"providers":[{`,
		provider:                                   r.Namespace + "/note/",
		provider + "/note":                         `"protocols":[`,
		provider + "/note/1.0.0":                   `"protocols":[`,
		provider + "/note/history":                 `"state":"deprecated","reason":"rehearsed"`,
		provider + "/note/dependents":              `"dependents":[`,
		"/v1/mirror":                               "one.example.com",
		"/v1/mirror/one.example.com/" + r.Namespace + "/note?history=true":         `"mirrored_by"`,
		"/v1/mirror-providers/one.example.com/" + r.Namespace + "/note/dependents": `"dependents":[`,
	}
	if r.Origin != nil {
		mirrored := "/v1/mirror-modules/" + r.Origin.mirroredModule(publicHosts["tofu"], "outer")
		texts["/v1/mirror-modules"], texts[mirrored+"?history=true"] = r.Origin.namespace, `"commit"`
		texts["/v1/mirror-modules/"+r.Origin.mirroredModule(publicHosts["tofu"], "inner")+"/dependents"] = "/outer/"
		texts[mirrored+"/1.0.0/files"], texts[mirrored+"/1.0.0/files/README.md"] = `"stored":true`, "# outer"
	}
	for path, text := range texts {
		body, err := r.read(ctx, path, token, http.StatusOK)
		if err != nil {
			return err
		}
		if !strings.Contains(body, text) {
			return fmt.Errorf("GET %s: the response lacks %s: %s", path, text, body)
		}
	}
	// The redirect leads to a 204.
	if _, err := r.read(ctx, module+"/hello/null/download", token, http.StatusNoContent); err != nil {
		return err
	}
	other, err := r.newToken(ctx, "other", "read:modules/other/*")
	if err != nil {
		return err
	}
	if err := r.get(ctx, module+"/hello/null", other, http.StatusForbidden); err != nil {
		return err
	}
	body, err := r.read(ctx, "/v1/modules", other, http.StatusOK)
	if err == nil && !strings.Contains(body, `"total":0`) {
		err = fmt.Errorf("a token for another namespace gets %s", body)
	}
	return err
}

// signedRelease returns a folder with a release of the test provider, signed
// with a new key, and the path of the public key.
func (r *Registry) signedRelease(ctx context.Context) (release, public string, err error) {
	if release, err = r.release(ctx); err != nil {
		return "", "", err
	}
	key, err := keys.NewSigningKey("Ed25519", 0)
	if err != nil {
		return "", "", err
	}
	if err := key.SignRelease(release); err != nil {
		return "", "", err
	}
	public = filepath.Join(release, "key.asc")
	return release, public, os.WriteFile(public, key.Public, 0o600)
}

// providerScenario builds a real provider that writes a file. The clients
// install and run it.
func providerScenario(ctx context.Context, r *Registry) error {
	release, public, err := r.signedRelease(ctx)
	if err != nil {
		return err
	}
	address := r.Namespace + "/note"
	for _, args := range [][]string{
		{"key", "add", r.Namespace, public},
		{"publish", "provider", release, address},
		{"deprecate", address, "1.0.0", "--message", "rehearsed"},
	} {
		if _, err := r.Larder(ctx, args...); err != nil {
			return err
		}
	}
	if err := r.installProvider(ctx, address, "rehearsed"); err != nil {
		return err
	}
	// The key belongs to this namespace only, so nobody else needs it.
	id, err := r.keyID(ctx)
	if err != nil {
		return err
	}
	_, err = r.Larder(ctx, "key", "remove", r.Namespace, id, "--force")
	return err
}

// installProvider installs the provider note with each client. Each client must
// print a warning, and writes a file with the provider.
func (r *Registry) installProvider(ctx context.Context, address, warning string) error {
	written := filepath.Join(r.Scratch, "note.txt")
	return r.eachClient(ctx, fmt.Sprintf(`terraform {
  required_providers {
    note = {
      source  = "%s/%s"
      version = "1.0.0"
    }
  }
}

resource "note_file" "it" {
  path    = %q
  content = "written"
}
`, r.Host, address, written), func(run func(args ...string) (string, error)) error {
		out, err := run("init", "-no-color")
		if err != nil {
			return err
		}
		if !strings.Contains(out, warning) {
			return fmt.Errorf("the output of init lacks the deprecation:\n%s", out)
		}
		if _, err := run("apply", "-auto-approve"); err != nil {
			return err
		}
		text, err := os.ReadFile(written)
		if err == nil && string(text) != "written" {
			err = fmt.Errorf("the provider wrote %q", text)
		}
		return errors.Join(err, os.Remove(written)) // so that the next client writes its own
	})
}

// release returns a folder with a release of the provider note, which it builds
// once.
func (r *Registry) release(ctx context.Context) (string, error) {
	built := filepath.Join(r.Scratch, "provider")
	if _, err := os.Stat(built); err != nil {
		if err := os.Mkdir(built, 0o700); err != nil {
			return "", err
		}
		if err := clients.BuildProvider(ctx, built, "1.0.0", []string{clients.Platform()}); err != nil {
			return "", err
		}
	}
	release, err := os.MkdirTemp(r.Scratch, "release")
	if err != nil {
		return "", err
	}
	return release, os.CopyFS(release, os.DirFS(built))
}

// mirrorScenario mirrors the same provider for two hosts that do not exist. The
// clients install it by both addresses.
func mirrorScenario(ctx context.Context, r *Registry) error {
	release, err := r.release(ctx)
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp(r.Scratch, "folder")
	if err != nil {
		return err
	}
	addresses := []string{"one.example.com/" + r.Namespace + "/note", "two.example.com/" + r.Namespace + "/note"}
	for _, address := range addresses {
		if err := clients.WriteMirrorFolder(release, filepath.Join(folder, address)); err != nil {
			return err
		}
	}
	exported, err := os.MkdirTemp(r.Scratch, "exported")
	if err != nil {
		return err
	}
	for _, args := range [][]string{
		{"mirror", "import", folder},
		{"mirror", "import", folder}, // imports nothing
		append([]string{"mirror", "export", exported}, addresses...),
		{"list", addresses[0]},
	} {
		if _, err := r.Larder(ctx, args...); err != nil {
			return err
		}
	}
	if err := sameZips(folder, exported); err != nil {
		return err
	}
	return r.installMirrored(ctx, addresses...)
}

// installMirrored installs two providers from the mirror with each client.
func (r *Registry) installMirrored(ctx context.Context, addresses ...string) error {
	return r.with(fmt.Sprintf(`provider_installation {
  network_mirror {
    url = "https://%s/v1/mirror/"
  }
}
`, r.Host)).installVerified(ctx, "verified checksum", addresses...)
}

// installVerified installs providers with each client, which verifies each in some way.
func (r *Registry) installVerified(ctx context.Context, verified string, addresses ...string) error {
	return r.eachClient(ctx, fmt.Sprintf(`terraform {
  required_providers {
    one = {
      source = %q
    }
    two = {
      source = %q
    }
  }
}
`, addresses[0], addresses[1]), func(run func(args ...string) (string, error)) error {
		out, err := run("init", "-no-color")
		if err != nil {
			return err
		}
		for _, address := range addresses {
			if !strings.Contains(out, "Installed "+address) {
				return fmt.Errorf("the output of init lacks the installation of %s:\n%s", address, out)
			}
		}
		if count := strings.Count(out, verified); count != len(addresses) {
			return fmt.Errorf("init reports %q of %d providers, want %d:\n%s", verified, count, len(addresses), out)
		}
		return nil
	})
}

// mirrorPolicy allows all origins but one. The versions of a folder are older
// than a minimum age, or of unknown age.
const mirrorPolicy = `deny "denied.example.com/*/*" {
  reason = "rehearsed"
}

allow "*/*/*" {
  min_age = "7d"
}
`

// mirrorPolicyScenario sets a policy, which refuses a provider until it is
// overruled. The registry then describes the provider.
func mirrorPolicyScenario(ctx context.Context, r *Registry) error {
	dir, err := os.MkdirTemp(r.Scratch, "policy")
	if err != nil {
		return err
	}
	file, folder := filepath.Join(dir, "policy.hcl"), filepath.Join(dir, "folder")
	if err := os.WriteFile(file, []byte(mirrorPolicy), 0o600); err != nil {
		return err
	}
	release, err := r.release(ctx)
	if err != nil {
		return err
	}
	address := "denied.example.com/" + r.Namespace + "/note"
	if err := clients.WriteMirrorFolder(release, filepath.Join(folder, address)); err != nil {
		return err
	}
	if _, err := r.Larder(ctx, "mirror", "policy", "set", file); err != nil {
		return err
	}
	shown, err := r.Larder(ctx, "mirror", "policy", "show")
	if err != nil {
		return err
	}
	if !strings.Contains(shown, mirrorPolicy) {
		return fmt.Errorf("the policy is\n%s", shown)
	}
	if out, err := r.Larder(ctx, "mirror", "import", folder); err == nil {
		return fmt.Errorf("larder mirror import imports a denied provider:\n%s", out)
	} else if !strings.Contains(err.Error(), "rehearsed") {
		return fmt.Errorf("larder mirror import fails for another reason: %w", err)
	}
	const fingerprint = "0123456789ABCDEF0123456789ABCDEF01234567"
	for _, args := range [][]string{
		{"mirror", "import", folder, "--overrule", "rehearsed"},
		{"mirror", "trust", address, fingerprint, "--reason", "rehearsed"},
	} {
		if _, err := r.Larder(ctx, args...); err != nil {
			return err
		}
	}
	token, err := r.readersToken(ctx)
	if err != nil {
		return err
	}
	path := "/v1/mirror/" + address
	body, err := r.read(ctx, path, token, http.StatusOK)
	if err != nil {
		return err
	}
	for _, text := range []string{`"state":"available"`, `"reason":"rehearsed"`, fingerprint} {
		if !strings.Contains(body, text) {
			return fmt.Errorf("GET %s: the response lacks %s: %s", path, text, body)
		}
	}
	return r.get(ctx, path, "", http.StatusUnauthorized)
}

// sameZips returns an error unless each zip of one folder is also in the other,
// with the same content.
func sameZips(folder, other string) error {
	zips, err := filepath.Glob(filepath.Join(folder, "*/*/*/*.zip"))
	if err != nil {
		return err
	}
	for _, path := range zips {
		name, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		first, err1 := os.ReadFile(path)
		second, err2 := os.ReadFile(filepath.Join(other, name))
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		if !bytes.Equal(first, second) {
			return fmt.Errorf("the exported file %s differs from the imported one", name)
		}
	}
	return nil
}

// with returns the registry for clients with more in their configuration.
func (r *Registry) with(config string) *Registry {
	with := *r
	with.config += config
	return &with
}

// keyID returns the id of the namespace's only key.
func (r *Registry) keyID(ctx context.Context) (string, error) {
	text, err := r.Larder(ctx, "key", "list", r.Namespace, "--json")
	if err != nil {
		return "", err
	}
	var list struct{ Keys []struct{ ID string } }
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return "", err
	}
	if len(list.Keys) != 1 {
		return "", fmt.Errorf("namespace %s has %d keys", r.Namespace, len(list.Keys))
	}
	return list.Keys[0].ID, nil
}

// get requests a path, with a token or without one. It returns an error unless
// the response has the status and is JSON.
func (r *Registry) get(ctx context.Context, path, token string, want int) error {
	body, err := r.read(ctx, path, token, want)
	if err == nil && !json.Valid([]byte(body)) {
		err = fmt.Errorf("GET %s: not JSON: %s", path, body)
	}
	return err
}

// read returns the body of the response to a request, which must have a status.
func (r *Registry) read(ctx context.Context, path, token string, want int) (string, error) {
	status, body, err := r.fetch(ctx, path, token)
	if err == nil && status != want {
		err = fmt.Errorf("GET %s: %d %s, want %d: %s", path, status, http.StatusText(status), want, body)
	}
	return body, err
}

func (r *Registry) fetch(ctx context.Context, path, token string) (status int, body string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+r.Host+path, nil)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := r.HTTP.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	return response.StatusCode, string(text), err
}

func (r *Registry) publishModule(ctx context.Context, address, version, text string) error {
	dir, err := r.folder(fmt.Sprintf("output \"text\" {\n  value = %q\n}\n", text))
	if err != nil {
		return err
	}
	_, err = r.Larder(ctx, "publish", "module", dir, address, version)
	return err
}

// installModule installs a module with each client. Its output must be a text.
func (r *Registry) installModule(ctx context.Context, address, constraint, text string) error {
	config := fmt.Sprintf(`module "it" {
  source  = "%s/%s"
  version = "%s"
}

output "text" {
  value = module.it.text
}
`, r.Host, address, constraint)
	return r.eachClient(ctx, config, func(run func(args ...string) (string, error)) error {
		for _, args := range [][]string{{"init"}, {"apply", "-auto-approve"}} {
			if _, err := run(args...); err != nil {
				return err
			}
		}
		out, err := run("output", "-raw", "text")
		if err == nil && out != text {
			err = fmt.Errorf("the module's output is %q, want %q", out, text)
		}
		return err
	})
}

func (r *Registry) eachClient(ctx context.Context, config string,
	use func(run func(args ...string) (string, error)) error) error {
	token, err := r.readersToken(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range r.Clients {
		dir, err := r.folder(config)
		if err != nil {
			return err
		}
		home, err := os.MkdirTemp(r.Scratch, "home")
		if err != nil {
			return err
		}
		session := clients.Session{Client: c, Home: home, CAFile: r.CAFile,
			Config: fmt.Sprintf("credentials %q {\n  token = %q\n}\n", r.Host, token) + r.config}
		if err := use(func(args ...string) (string, error) { return session.Run(ctx, dir, args...) }); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", c.Name, err))
		}
	}
	return errors.Join(errs...)
}

func (r *Registry) folder(main string) (string, error) {
	dir, err := os.MkdirTemp(r.Scratch, "module")
	if err != nil {
		return "", err
	}
	return dir, os.WriteFile(filepath.Join(dir, "main.tf"), []byte(main), 0o600)
}
