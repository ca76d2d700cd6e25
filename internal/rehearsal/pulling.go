package rehearsal

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/larder-registry/larder/internal/testkit/clients"
	"github.com/larder-registry/larder/internal/testkit/modulehosts"
	"github.com/larder-registry/larder/pkg/mirror/hostblock"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
)

// Origin is a registry on this machine, with version 1.0.0 of the provider note
// in any namespace. It has TLS.
type Origin struct {
	// URL is that of its host.
	URL string
	// Modules are public registries and a forge, without a module at first.
	Modules *modulehosts.Hosts

	server *httptest.Server
	host   *host

	namespace string // of the modules

	mu      sync.Mutex
	release string // a folder; empty until Serve
	public  string // the armored key of the release
	checks  int    // how often clients requested the versions
}

// StartOrigin starts an origin without a provider. It writes files below scratch. The
// caller closes it.
func StartOrigin(ctx context.Context, scratch string) *Origin {
	o := &Origin{host: &host{ctx: ctx, scratch: scratch}}
	o.Modules = modulehosts.Serve(o.host)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/terraform.json", func(w http.ResponseWriter, _ *http.Request) {
		o.answer(w, map[string]string{"providers.v1": "/v1/providers/"})
	})
	mux.HandleFunc("GET /v1/providers/{namespace}/note/versions", func(w http.ResponseWriter, _ *http.Request) {
		o.mu.Lock()
		o.checks++
		o.mu.Unlock()
		o.answer(w, protocol.ProviderListing{Versions: []protocol.ListedProvider{{
			Version: registry.Version{Major: 1}, Protocols: []string{"6.0"}, Platforms: []registry.Platform{platform()},
		}}})
	})
	mux.HandleFunc("GET /v1/providers/{namespace}/note/1.0.0/download/{os}/{arch}", o.download)
	mux.HandleFunc("GET /files/{name}", func(w http.ResponseWriter, r *http.Request) {
		o.mu.Lock()
		defer o.mu.Unlock()
		http.ServeFile(w, r, filepath.Join(o.release, filepath.Base(r.PathValue("name"))))
	})
	o.server = httptest.NewTLSServer(mux)
	o.URL = o.server.URL
	return o
}

// platform returns the only platform of the origin's provider.
func platform() registry.Platform {
	name, arch, _ := strings.Cut(clients.Platform(), "_")
	return registry.Platform{OS: name, Arch: arch}
}

// Serve makes the origin serve a signed release.
func (o *Origin) Serve(release, public string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.release, o.public = release, public
}

// Checks returns how often the versions of a provider were requested.
func (o *Origin) Checks() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.checks
}

// WriteCA writes the origin's certificate to a file.
func (o *Origin) WriteCA(path string) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: o.server.Certificate().Raw}),
		0o600)
}

// Close stops the origin.
func (o *Origin) Close() {
	o.server.Close()
	o.host.close()
}

func (o *Origin) download(w http.ResponseWriter, _ *http.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	const prefix = "terraform-provider-note_1.0.0_"
	sums, err := os.ReadFile(filepath.Join(o.release, prefix+"SHA256SUMS"))
	if err != nil {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	name := prefix + platform().String() + ".zip"
	sum := ""
	for line := range strings.Lines(string(sums)) {
		if digest, of, _ := strings.Cut(strings.TrimSpace(line), "  "); of == name {
			sum = digest
		}
	}
	o.answer(w, protocol.ProviderDownload{
		Protocols: []string{"6.0"}, OS: platform().OS, Arch: platform().Arch, Filename: name, SHASum: sum,
		DownloadURL: "/files/" + name, SHASumsURL: "/files/" + prefix + "SHA256SUMS",
		SHASumsSignatureURL: "/files/" + prefix + "SHA256SUMS.sig",
		SigningKeys:         protocol.ProviderKeys{GPGPublicKeys: []registry.PublicKey{{ASCIIArmor: o.public}}},
	})
}

func (*Origin) answer(w http.ResponseWriter, document any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(document) // clients detect a truncated response
}

// awaitPolicy waits until the mirror has a document. A function uses a new policy
// after a minute at most.
func (r *Registry) awaitPolicy(ctx context.Context, path, token string) error {
	const interval = 2 * time.Second
	for end := time.Now().Add(90 * time.Second); ; {
		_, err := r.read(ctx, path, token, http.StatusOK)
		if err == nil || time.Now().After(end) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(interval):
		}
	}
}

// installByHost installs providers with each client, which verifies their signature.
// The hosts of their addresses do not exist. Host blocks lead to the mirror.
func (r *Registry) installByHost(ctx context.Context, token string, addresses ...string) error {
	config := ""
	for _, address := range addresses {
		host, _, _ := strings.Cut(address, "/")
		config += hostblock.Text("https://"+r.Host, registry.Host(host), token)
	}
	return r.with(config).installVerified(ctx, "signed, key ID", addresses...)
}

// pullScenario lets clients fetch a provider through an empty mirror, in both
// modes, and modules. Then the mirror has them. At night it checks the origin again.
func pullScenario(ctx context.Context, r *Registry) error {
	if r.Origin == nil {
		return nil // AWS does not reach this machine
	}
	release, public, err := r.signedRelease(ctx)
	if err != nil {
		return err
	}
	key, err := os.ReadFile(public)
	if err != nil {
		return err
	}
	r.Origin.Serve(release, string(key))
	dir, err := os.MkdirTemp(r.Scratch, "pull")
	if err != nil {
		return err
	}
	policy := ""
	var addresses []string
	for _, mode := range []string{"open", "closed"} {
		policy += fmt.Sprintf("allow \"%s.example.com/*/*\" {\n  pull     = %q\n  upstream = %q\n"+
			"  networks = [\"127.0.0.0/8\"]\n}\n\n", mode, mode, r.Origin.URL)
		// The mirror must lack it.
		addresses = append(addresses, mode+".example.com/"+filepath.Base(dir)+"/note")
	}
	namespace := filepath.Base(dir)
	r.Origin.addModules(namespace)
	policy += r.Origin.modulePolicy(namespace) + "allow \"*/*/*\" {\n}\n"
	file := filepath.Join(dir, "policy.hcl")
	if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
		return err
	}
	if _, err := r.Larder(ctx, "mirror", "policy", "set", file); err != nil {
		return err
	}
	token, err := r.readersToken(ctx)
	if err != nil {
		return err
	}
	for _, address := range addresses {
		if err := r.awaitPolicy(ctx, "/v1/mirror/"+address+"/index.json", token); err != nil {
			return err
		}
	}
	if err := r.installByHost(ctx, token, addresses...); err != nil {
		return err
	}
	if err := r.installMirrored(ctx, addresses...); err != nil {
		return err
	}
	if err := r.installModules(ctx, token, namespace); err != nil {
		return err
	}
	checks := r.Origin.Checks()
	if err := r.Nightly(ctx); err != nil {
		return err
	}
	if now := r.Origin.Checks(); now < checks+len(addresses) {
		return fmt.Errorf("the nightly check requested versions %d times, want at least %d", now-checks, len(addresses))
	}
	for _, address := range addresses {
		path := "/v1/mirror/" + address + "/1.0.0.json"
		body, err := r.read(ctx, path, token, http.StatusOK)
		if err != nil {
			return err
		}
		for _, text := range []string{`"h1:`, `"zh:`, "X-Amz-Signature"} {
			if !strings.Contains(body, text) {
				return fmt.Errorf("GET %s: the response lacks %s, so there is no copy: %s", path, text, body)
			}
		}
	}
	return nil
}
