package pull_test

import (
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/keys"
	"github.com/larder-registry/larder/internal/testkit/pipes"
	"github.com/larder-registry/larder/internal/testkit/providerfiles"
)

// The keys of the origins, created once.
var (
	ours     = sync.OnceValues(func() (keys.SigningKey, error) { return keys.NewSigningKey("Ed25519", 0) })
	stranger = sync.OnceValues(func() (keys.SigningKey, error) { return keys.NewSigningKey("P-256", 0) })
)

type keyMaker = func() (keys.SigningKey, error)

// The paths of an origin.
const (
	discoveryPath = "/.well-known/terraform.json"
	versionsPath  = "/v1/providers/acme/inventory/versions"
	sumsPath      = "/files/1.1.0/SHA256SUMS"
	signaturePath = sumsPath + ".sig"
	linux         = "linux_amd64"
	darwin        = "darwin_arm64"
)

func descriptionPath(platform string) string {
	return "/v1/providers/acme/inventory/1.1.0/download/" + strings.ReplaceAll(platform, "_", "/")
}
func zipPath(platform string) string { return "/files/1.1.0/" + platform + ".zip" }

// release is a version that an origin has.
type release struct {
	platforms   []string
	key         keyMaker
	content     string // of each program
	published   string
	protocol    string
	noProvider  bool // the packages contain something else
	keyless     bool // the descriptions name no key
	wrongDigest bool // SHA256SUMS has other digests, correctly signed
}

// tlsOrigin is a provider registry on this machine.
type tlsOrigin struct {
	*httptest.Server
	transport *http.Transport // reaches it

	mu       sync.Mutex
	pages    map[string]http.HandlerFunc
	requests map[string]int
	// signed are the digests that a trusted key of the origin has signed, and those of
	// the signed files and their signatures.
	signed map[string]bool
}

// newTLSOrigin starts an origin. With within it is one without a network.
func newTLSOrigin(t *testing.T, within bool) *tlsOrigin {
	t.Helper()
	o := &tlsOrigin{
		pages: make(map[string]http.HandlerFunc), requests: make(map[string]int), signed: make(map[string]bool),
	}
	o.Server = httptest.NewUnstartedServer(o)
	o.Config.ErrorLog = log.New(io.Discard, "", 0) // of connections that break off
	listener := pipes.Listen()
	if within {
		_ = o.Listener.Close()
		o.Listener = listener
	}
	o.StartTLS()
	authorities := x509.NewCertPool()
	authorities.AddCert(o.Certificate())
	o.transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12}}
	if within {
		o.transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return listener.Dial(ctx) }
	}
	t.Cleanup(func() {
		o.transport.CloseIdleConnections()
		o.Close()
	})
	o.set(discoveryPath, jsonPage(map[string]any{"providers.v1": "/v1/providers/"}))
	return o
}

// ServeHTTP implements [http.Handler].
func (o *tlsOrigin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	page := o.pages[r.URL.Path]
	if page == nil {
		page = o.pages["*"]
	}
	o.requests[r.URL.Path]++
	o.mu.Unlock()
	if page == nil {
		page = http.NotFound
	}
	page(w, r)
}

// set replaces pages. The path * stands for every path without a page.
func (o *tlsOrigin) set(path string, page http.HandlerFunc) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pages[path] = page
}

// page returns a page.
func (o *tlsOrigin) page(path string) http.HandlerFunc {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.pages[path]
}

// each changes pages.
func (o *tlsOrigin) each(change func(http.HandlerFunc) http.HandlerFunc, paths ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for path, page := range o.pages {
		if len(paths) == 0 || slices.Contains(paths, path) {
			o.pages[path] = change(page)
		}
	}
}

func jsonPage(v any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
}

func filePage(content []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/octet-stream")
		_, _ = w.Write(content)
	}
}

// publish makes the origin serve versions, and no others.
func (o *tlsOrigin) publish(t testing.TB, releases map[string]release) {
	t.Helper()
	o.mu.Lock()
	maps.DeleteFunc(o.pages, func(path string, _ http.HandlerFunc) bool { return path != discoveryPath })
	o.mu.Unlock()
	versions := []any{}
	for version, r := range releases {
		listed := []any{}
		for _, platform := range r.platforms {
			system, arch, _ := strings.Cut(platform, "_")
			listed = append(listed, map[string]any{"os": system, "arch": arch})
		}
		entry := map[string]any{"version": version, "platforms": listed}
		if r.published != "" {
			entry["published_at"] = r.published
		}
		versions = append(versions, entry)
		o.serve(t, version, r)
	}
	o.set(versionsPath, jsonPage(map[string]any{"versions": versions}))
}

// serve makes the origin serve a version, which it need not list.
func (o *tlsOrigin) serve(t testing.TB, version string, r release) {
	t.Helper()
	key, err := r.key()
	if err != nil {
		t.Fatal(err)
	}
	file := "terraform-provider-inventory"
	if r.noProvider {
		file = "README"
	}
	at := func(path string) string { return strings.ReplaceAll(path, "1.1.0", version) }
	armored := []any{}
	if !r.keyless {
		armored = append(armored, map[string]any{"ascii_armor": string(key.Public)})
	}
	var sums strings.Builder
	for _, platform := range r.platforms {
		packed := providerfiles.Zip(t, file, version+" for "+platform+r.content)
		digest := providerfiles.Sum(packed)
		if r.wrongDigest {
			digest = providerfiles.Sum([]byte(digest))
		}
		name := "terraform-provider-inventory_" + version + "_" + platform + ".zip"
		fmt.Fprintf(&sums, "%s  %s\n", digest, name)
		o.mu.Lock()
		o.signed[digest] = true
		o.mu.Unlock()
		o.set(at(zipPath(platform)), filePage(packed))
		system, arch, _ := strings.Cut(platform, "_")
		o.set(at(descriptionPath(platform)), jsonPage(map[string]any{
			"protocols": []any{r.protocol}, "os": system, "arch": arch, "filename": name, "shasum": digest,
			"download_url": at(zipPath(platform)), "shasums_url": at(sumsPath), "shasums_signature_url": at(signaturePath),
			"signing_keys": map[string]any{"gpg_public_keys": armored},
		}))
	}
	signature := providerfiles.Sign(t, key, []byte(sums.String()))
	o.mu.Lock()
	o.signed[providerfiles.Sum([]byte(sums.String()))], o.signed[providerfiles.Sum(signature)] = true, true
	o.mu.Unlock()
	o.set(at(sumsPath), filePage([]byte(sums.String())))
	o.set(at(signaturePath), filePage(signature))
}

// What pages can do instead of answering.

func status(code int, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
	}
}

func redirect(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, inside, http.StatusFound) }

// hang does not answer.
func hang(_ http.ResponseWriter, r *http.Request) {
	<-r.Context().Done()
	panic(http.ErrAbortHandler)
}

// down closes each connection.
func down(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// breakOff sends half of what a page answers.
func breakOff(page http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		whole := httptest.NewRecorder()
		page(whole, r)
		w.Header().Set("Content-Length", fmt.Sprint(whole.Body.Len()))
		_, _ = w.Write(whole.Body.Bytes()[:whole.Body.Len()/2])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

// compress compresses what a page answers, if the request allows it or in any
// case.
func compress(always bool) func(http.HandlerFunc) http.HandlerFunc {
	return func(page http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if !always && !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
				page(w, r)
				return
			}
			whole := httptest.NewRecorder()
			page(whole, r)
			w.Header().Set("Content-Type", whole.Header().Get("Content-Type"))
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			_, _ = z.Write(whole.Body.Bytes())
			_ = z.Close()
		}
	}
}
