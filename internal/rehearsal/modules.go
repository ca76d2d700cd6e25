package rehearsal

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/larder-registry/larder/internal/testkit/modulehosts"
	"github.com/larder-registry/larder/pkg/mirror"
	"github.com/larder-registry/larder/pkg/mirror/hostblock"
	"github.com/larder-registry/larder/pkg/registry"
)

// publicHosts are the hosts of modules whose source names none, by client.
var publicHosts = map[string]registry.Host{"tofu": "registry.opentofu.org", "terraform": "registry.terraform.io"}

// host has what modulehosts needs of a test.
type host struct {
	ctx     context.Context //nolint:containedctx // it is that of the rehearsal
	scratch string
	cleanup []func()
}

func (*host) Helper()                    {}
func (h *host) Context() context.Context { return h.ctx }
func (h *host) Cleanup(do func())        { h.cleanup = append(h.cleanup, do) }
func (h *host) TempDir() string          { return h.scratch }
func (*host) Fatal(args ...any)          { panic(fmt.Sprint(args...)) }
func (*host) Fatalf(f string, a ...any)  { panic(fmt.Sprintf(f, a...)) }

func (h *host) close() {
	for _, do := range slices.Backward(h.cleanup) {
		do()
	}
}

// modulePolicy lets clients fetch the modules of a namespace at both public hosts.
func (o *Origin) modulePolicy(namespace string) (policy string) {
	for _, host := range publicHosts {
		policy += fmt.Sprintf("allow \"%s/%s/*/*\" {\n  pull     = \"closed\"\n  upstream = %q\n"+
			"  networks = [\"127.0.0.0/8\"]\n  forges   = [\"gitlab://%s\"]\n}\n\n", host, namespace, o.Modules.URL, o.Modules.Host)
	}
	return policy
}

// mirroredModule returns the address of the module outer or inner, which the mirror
// has after [Registry.installModules].
func (o *Origin) mirroredModule(host registry.Host, name string) string {
	return string(host) + "/" + o.namespace + "/" + name + "/null"
}

// addModules adds a module that calls another one by a short source, with a tag of
// Git each.
func (o *Origin) addModules(namespace string) {
	o.namespace = namespace
	outer := "module \"inner\" {\n  source  = \"" + namespace + "/inner/null\"\n  version = \"~> 1.0\"\n}\n"
	for name, main := range map[string]string{"inner": "output \"it\" {\n  value = 1\n}\n", "outer": outer} {
		o.Modules.Add(modulehosts.Module{
			Address: namespace + "/" + name + "/null", Annotated: true, Forge: modulehosts.GitLab,
			Files: map[string]string{"main.tf": main, "README.md": "# " + name + "\n"},
		})
	}
}

// installModules installs a module that calls another one with each client, by host
// blocks: from an empty mirror, and then without the origin. The application names
// only a short source. The mirror downloads each archive once.
func (r *Registry) installModules(ctx context.Context, token, namespace string) error {
	config := ""
	for _, host := range publicHosts {
		config += hostblock.Text("https://"+r.Host, host, token)
	}
	install := func() error {
		return r.with(config).eachClient(ctx, "module \"outer\" {\n  source  = \""+namespace+
			"/outer/null\"\n  version = \"1.0.0\"\n}\n", func(run func(args ...string) (string, error)) error {
			out, err := run("init", "-no-color")
			if err == nil && strings.Count(out, "Downloading ") != 2 {
				err = fmt.Errorf("init has not downloaded two modules:\n%s", out)
			}
			return err
		})
	}
	if err := install(); err != nil {
		return err
	}
	var errs []error
	for path, n := range r.Origin.Modules.Archives() {
		if strings.Contains(path, namespace) && n != len(r.Clients) { // one for each public host
			errs = append(errs, fmt.Errorf("the forge sent %s %d times, want %d", path, n, len(r.Clients)))
		}
	}
	r.Origin.Modules.Stop()
	errs = append(errs, install())
	r.Origin.Modules.Start()
	return errors.Join(append(errs, r.checkModules(ctx, token, namespace))...)
}

// checkModules checks what a client's requests for a mirrored module return.
func (r *Registry) checkModules(ctx context.Context, token, namespace string) error {
	for _, c := range r.Clients {
		host := publicHosts[c.Name]
		of, outer := mirror.ModulesPath+string(host)+"/", r.Origin.mirroredModule(host, "outer")
		for path, status := range map[string]int{
			of + ".well-known/terraform.json":              http.StatusOK,
			mirror.ModulesPath + outer + "/versions":       http.StatusOK,
			mirror.ModulesPath + outer + "/1.0.0/download": http.StatusNoContent,
			mirror.ModulesPath + outer + "/2.0.0/download": http.StatusNotFound,
			of + namespace + "/a/b/versions":               http.StatusNotFound,
		} {
			if _, err := r.read(ctx, path, token, status); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeCAs writes the certificates of the origin's servers to a file.
func (o *Origin) writeCAs(path string) error {
	if err := o.WriteCA(path); err != nil {
		return err
	}
	own, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	more, err := os.ReadFile(o.Modules.CAFile)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Clean(path), append(own, more...), 0o600)
}
