package doctor_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/internal/testkit/keys"
	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/content/archive"
	"github.com/larder-registry/larder/pkg/content/signing"
	"github.com/larder-registry/larder/pkg/examine/doctor"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/mirror/hostblock"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
)

var (
	vpc       = registry.Module{Namespace: "acme", Name: "vpc", System: "aws"}
	inventory = registry.Provider{Namespace: "acme", Type: "inventory"}
	random    = registry.MirrorAddress{
		Hostname:  "registry.opentofu.org",
		Namespace: "hashicorp", Name: "random",
	}
	linux = registry.Platform{OS: "linux", Arch: "amd64"}
)

// signer and stranger are keys that all tests share, because key generation is
// slow.
var (
	signer   = sync.OnceValues(func() (keys.SigningKey, error) { return keys.NewSigningKey("Ed25519", 0) })
	stranger = sync.OnceValues(func() (keys.SigningKey, error) { return keys.NewSigningKey("Ed25519", 0) })
)

// fixture is a registry with one of each kind, and a doctor for it.
type fixture struct {
	*httptest.Server
	host      string
	transport *http.Transport
	doctor    doctor.Doctor
	now       time.Time
}

// preparation is a doctor that a test changes.
type preparation struct {
	*doctor.Doctor
	t *testing.T
	// token creates a valid token.
	token func(scope string) string
}

// setUp describes what is wrong with a registry, or with the request.
type setUp struct {
	// closed registries need a token.
	closed bool
	// breaks wraps the handler.
	breaks func(host string, next http.Handler) http.Handler
	// certificate returns the server's certificate. If nil, it is a trusted one.
	certificate func(t *testing.T) (served tls.Certificate, trusted *x509.CertPool)
	// prepare changes the doctor.
	prepare func(preparation)
}

// dial connects to this machine, and refuses other hosts. It looks up nothing,
// because the resolver has channels that bubbles cannot share.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	if net.ParseIP(host) == nil {
		err := &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	return new(net.Dialer).DialContext(ctx, network, net.JoinHostPort(host, port))
}

func start(t *testing.T, s setUp) fixture {
	t.Helper()
	data, _, err := local.Create(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := data.Close(); err != nil {
			t.Error(err)
		}
	})
	publishAll(t, data)
	server := httptest.NewUnstartedServer(nil)
	host := server.Listener.Addr().String()
	handler := data.Handler("https://"+host, !s.closed, access.Settings{}, slog.New(slog.DiscardHandler))
	if s.breaks != nil {
		handler = s.breaks(host, handler)
	}
	now := time.Now().Round(0) // bubbles have a monotonic clock of their own
	server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", now.UTC().Format(http.TimeFormat))
		handler.ServeHTTP(w, r)
	})
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	var trusted *x509.CertPool
	if s.certificate != nil {
		var served tls.Certificate
		served, trusted = s.certificate(t)
		server.TLS = &tls.Config{Certificates: []tls.Certificate{served}}
	}
	server.StartTLS()
	t.Cleanup(server.Close)
	transport := server.Client().Transport.(*http.Transport).Clone()
	transport.DialContext = dial
	if trusted != nil {
		transport.TLSClientConfig.RootCAs = trusted
	}
	p := fixture{
		server,
		host,
		transport,
		doctor.Doctor{
			Host:      host,
			Platform:  linux,
			Agent:     "larder/test",
			Transport: transport,
			Module:    &vpc,
			Provider:  &inventory,
			Mirror:    &random,
		},
		now,
	}
	if s.prepare != nil {
		s.prepare(preparation{&p.doctor, t, func(scope string) string {
			token, digest := access.NewToken()
			created := registry.Token{
				ID: digest[:12], Name: "test-" + digest[:12], Scopes: []string{scope}, CreatedAt: time.Now(),
			}
			if err := data.Catalog.AddToken(t.Context(), digest, created); err != nil {
				t.Fatal(err)
			}
			return token
		}})
	}
	return p
}

// publishAll publishes a module and a provider, and mirrors another.
func publishAll(t *testing.T, data *local.Data) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	p := publish.Publisher{Catalog: data.Catalog, Objects: data.Objects}
	v := registry.Version{Major: 1}
	module, release := t.TempDir(), t.TempDir()
	must(os.WriteFile(filepath.Join(module, "main.tf"), []byte("# nothing\n"), 0o600))
	_, err := p.Module(t.Context(), rules.Module{Dir: module, Address: vpc, Version: v})
	must(err)

	const name = "terraform-provider-inventory_1.0.0"
	packed := zipped(t, "terraform-provider-inventory_v1.0.0")
	sum := sha256.Sum256(packed)
	must(os.WriteFile(filepath.Join(release, name+"_linux_amd64.zip"), packed, 0o600))
	must(
		os.WriteFile(filepath.Join(release, name+"_SHA256SUMS"),
			fmt.Appendf(nil, "%x  %s_linux_amd64.zip\n", sum, name), 0o600))
	key, err := signer()
	must(err)
	must(key.SignRelease(release))
	parsed, err := signing.ParseKey(key.Public, time.Now())
	must(err)
	_, err = data.Catalog.AddSigningKey(t.Context(), inventory.Namespace,
		registry.SigningKey{ID: parsed.ID, ASCIIArmor: parsed.ASCIIArmor})
	must(err)
	_, err = p.Provider(t.Context(), rules.Provider{Dir: release, Address: inventory, Protocols: []string{"6.0"}})
	must(err)

	packed = zipped(t, "terraform-provider-random_v1.0.0")
	found, err := archive.ReadProvider(t.Context(), bytes.NewReader(packed), int64(len(packed)), random.Name)
	must(err)
	origin := t.TempDir()
	path := filepath.Join(origin, "random.zip")
	must(os.WriteFile(path, packed, 0o600))
	sums := filepath.Join(origin, "terraform-provider-random_1.0.0_SHA256SUMS")
	must(os.WriteFile(sums, fmt.Appendf(nil, "%s  %s\n", found.SHA256, random.Filename(v, linux)), 0o600))
	must(key.SignRelease(origin))
	signed := publish.MirrorSums{}
	signed.Lists = func(string, string) bool { return true }
	signed.SigningKey, signed.Keys = parsed.ID, []registry.PublicKey{{KeyID: parsed.ID, ASCIIArmor: parsed.ASCIIArmor}}
	for _, f := range []struct {
		path   string
		data   *[]byte
		stored *registry.StoredFile
	}{{sums, &signed.SumsData, &signed.Sums}, {sums + ".sig", &signed.SignatureData, &signed.Signature}} {
		*f.data, err = os.ReadFile(f.path)
		must(err)
		digest := fmt.Sprintf("%x", sha256.Sum256(*f.data))
		*f.stored = registry.StoredFile{
			Object: random.FileKey(v, digest, filepath.Base(f.path)), SHA256: digest, Size: int64(len(*f.data)),
		}
	}
	mirrored := publish.MirrorPackage{Path: path}
	mirrored.Platform, mirrored.H1 = linux, found.H1
	mirrored.Filename, mirrored.SHA256, mirrored.Size = random.Filename(v, linux), found.SHA256, found.Size
	_, _, err = p.MirrorSigned(t.Context(), random, registry.MirrorVersion{Version: v}, []publish.MirrorPackage{mirrored}, &signed)
	must(err)
	mirrorModule(t, data, module)
}

func zipped(t *testing.T, name string) []byte {
	t.Helper()
	return zippedAs(t, name, 0o755)
}

func zippedAs(t *testing.T, name string, mode fs.FileMode) []byte {
	t.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	header := &zip.FileHeader{Name: name, Method: zip.Store}
	header.SetMode(mode)
	w, err := z.CreateHeader(header)
	if err == nil {
		_, err = io.WriteString(w, "the program "+name)
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// alter changes the responses for paths that contain part.
func alter(part string,
	change func(host string, r *http.Request, a *httptest.ResponseRecorder)) func(string, http.Handler) http.Handler {
	return func(host string, next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !strings.Contains(r.URL.Path, part) {
				next.ServeHTTP(w, r)
				return
			}
			a := httptest.NewRecorder()
			r.Header.Del("Accept-Encoding")
			next.ServeHTTP(a, r)
			a.Header().Del("Content-Length")
			change(host, r, a)
			for name, values := range a.Header() {
				w.Header()[name] = values
			}
			w.WriteHeader(a.Code)
			_, _ = w.Write(a.Body.Bytes())
		})
	}
}

// header sets a header of the responses for paths that contain part.
func header(part, name, value string) func(string, http.Handler) http.Handler {
	return alter(part, func(_ string, _ *http.Request, a *httptest.ResponseRecorder) { a.Header().Set(name, value) })
}

// dateAfter returns the Date header of a time after now.
func dateAfter(after time.Duration) string {
	return time.Now().Add(after).UTC().Format(http.TimeFormat)
}

// status changes the status of the responses for paths that contain part.
func status(part string, code int) func(string, http.Handler) http.Handler {
	return alter(part, func(_ string, _ *http.Request, a *httptest.ResponseRecorder) { a.Code = code })
}

// login serves a description of the login.
func login(of map[string]any) func(string, http.Handler) http.Handler {
	return editJSON(wellKnown, func(doc map[string]any) { doc["login.v1"] = of })
}

// editPackage changes the package in the responses for paths that contain part.
// of is the member that has the packages.
func editPackage(part, of string, change func(map[string]any)) func(string, http.Handler) http.Handler {
	return editJSON(part, func(body map[string]any) { change(body[of].(map[string]any)["linux_amd64"].(map[string]any)) })
}

// keysAre replaces the signing keys of a provider.
func keysAre(keys ...any) func(string, http.Handler) http.Handler {
	return editJSON("/download/", func(body map[string]any) {
		body["signing_keys"] = map[string]any{"gpg_public_keys": append([]any{}, keys...)}
	})
}

// edit replaces text in the responses for paths that contain part.
func edit(part string, oldNew ...string) func(string, http.Handler) http.Handler {
	return alter(part, func(_ string, _ *http.Request, a *httptest.ResponseRecorder) {
		text := strings.NewReplacer(oldNew...).Replace(a.Body.String())
		a.Body = bytes.NewBufferString(text)
	})
}

// editJSON changes a JSON response for paths that contain part.
func editJSON(part string, change func(map[string]any)) func(string, http.Handler) http.Handler {
	return alter(part, func(_ string, _ *http.Request, a *httptest.ResponseRecorder) {
		var body map[string]any
		if json.Unmarshal(a.Body.Bytes(), &body) == nil {
			change(body)
			text, _ := json.Marshal(body)
			a.Body = bytes.NewBuffer(text)
		}
	})
}

const wellKnown = "/.well-known/"

// page is the page of a proxy in front of a registry.
const page = "<html>please log in</html>"

// answer replaces the responses for paths that contain part. The
// X-Terraform-Get header stays.
func answer(part string, status int, contentType, body string) func(string, http.Handler) http.Handler {
	return alter(part, func(_ string, _ *http.Request, a *httptest.ResponseRecorder) {
		a.Code, a.Body = status, bytes.NewBufferString(body)
		a.Header().Set("Content-Type", contentType)
	})
}

// redirected redirects requests for paths that contain part to another root, in
// which PORT is replaced by this server's port.
func redirected(part, root string) func(string, http.Handler) http.Handler {
	return func(host string, next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			to := strings.TrimSuffix(strings.Replace(root, "PORT", port(host), 1), "/") + r.URL.Path
			if strings.Contains(r.URL.Path, part) && !strings.HasPrefix(to, "https://"+r.Host+"/") {
				http.Redirect(w, r, to, http.StatusTemporaryRedirect)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// modulesAtExample makes discovery name example.com, with this server's port,
// for modules.
func modulesAtExample(host string, next http.Handler) http.Handler {
	return edit(wellKnown, `"/v1/modules/"`, `"https://example.com:`+port(host)+`/v1/modules/"`)(host, next)
}

// atExample sends requests for example.com to this machine.
func atExample(d preparation) { d.Transport = elsewhere{d.Transport} }

// located changes the location of a module.
func located(change func(location string) string) func(string, http.Handler) http.Handler {
	return alter("/download", func(_ string, _ *http.Request, a *httptest.ResponseRecorder) {
		if location := a.Header().Get("X-Terraform-Get"); location != "" {
			a.Header().Set("X-Terraform-Get", change(location))
		}
	})
}

// packed serves another archive as the module.
func packed(kind string, body []byte) func(string, http.Handler) http.Handler {
	return func(host string, next http.Handler) http.Handler {
		next = located(func(string) string { return "https://" + host + "/packed." + kind })(host, next)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/packed."+kind {
				_, _ = w.Write(body)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// direct makes OpenTofu fetch the archive from the registry, with its
// credential and without unpacking it. The name of the archive has no
// extension.
func direct(host string, next http.Handler) http.Handler {
	next = answer("aws/1.0.0/download", http.StatusOK, "application/json",
		`{"location":"archive","use_registry_credentials":true}`)(host, next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != "/v1/modules/acme/vpc/aws/1.0.0/archive":
			next.ServeHTTP(w, r)
		case !strings.HasPrefix(r.Header.Get("Authorization"), "Bearer larder_") ||
			!strings.HasPrefix(r.Header.Get("Accept-Encoding"), "identity"):
			w.WriteHeader(http.StatusBadRequest)
		default:
			out := gzip.NewWriter(w)
			tarred := tar.NewWriter(out)
			_ = tarred.WriteHeader(&tar.Header{Name: "main.tf", Mode: 0o644})
			_, _ = tarred.Close(), out.Close()
		}
	})
}

// compressed serves files like a proxy that compresses what it can.
func compressed(_ string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !r.URL.Query().Has("signature") || r.Header.Get("Accept-Encoding") != "gzip" {
			next.ServeHTTP(w, r)
			return
		}
		a := httptest.NewRecorder()
		next.ServeHTTP(a, r)
		w.Header().Set("Content-Encoding", "gzip")
		out := gzip.NewWriter(w)
		_, _ = out.Write(a.Body.Bytes())
		_ = out.Close()
	})
}

// elsewhere is a transport for which example.com, on any port, is this machine.
type elsewhere struct{ http.RoundTripper }

func (e elsewhere) RoundTrip(r *http.Request) (*http.Response, error) {
	sent := r.Clone(r.Context())
	if r.URL.Hostname() == "example.com" {
		sent.Host, sent.URL.Host = r.URL.Host, "127.0.0.1:"+r.URL.Port()
	}
	response, err := e.RoundTripper.RoundTrip(sent)
	if response != nil {
		response.Request = r
	}
	return response, err
}

func port(host string) string {
	_, p, _ := strings.Cut(host, ":")
	return p
}

// installation returns a provider_installation block with a mirror for some
// providers.
func installation(url, include, exclude string) string {
	return fmt.Sprintf(
		"provider_installation {\n  network_mirror {\n    url = %q\n    include = [%q]\n  }\n  direct {\n    exclude = "+
			"[%q]\n  }\n}\n", url, include, exclude)
}

// swapH1 replaces the h1 among a package's hashes.
func swapH1(p map[string]any) {
	hashes := p["hashes"].([]any)
	for i, h := range hashes {
		if strings.HasPrefix(h.(string), "h1:") {
			hashes[i] = "h1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
		}
	}
}

// refuse answers requests for files, which have a signature, with an error of a
// store.
func refuse(code string) func(string, http.Handler) http.Handler {
	return func(_ string, next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !r.URL.Query().Has("signature") {
				next.ServeHTTP(w, r)
				return
			}
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>no</Message></Error>`, code)
		})
	}
}

// corrupt changes a byte of the files whose path has a suffix.
func corrupt(end string) func(string, http.Handler) http.Handler {
	return alter(end, func(_ string, r *http.Request, a *httptest.ResponseRecorder) {
		if r.URL.Query().Has("signature") && strings.HasSuffix(r.URL.Path, end) {
			b := a.Body.Bytes()
			b[len(b)/2] ^= 1
		}
	})
}

// issueUntil returns a function that issues a certificate by a new authority.
func issueUntil(notAfter time.Time, trusted bool, names ...string) func(*testing.T) (tls.Certificate, *x509.CertPool) {
	return issueBy(time.Now().AddDate(1, 0, 0), notAfter, trusted, names...)
}

// issueBy is like issueUntil, with an authority that expires at a time.
func issueBy(authority, notAfter time.Time, trusted bool,
	names ...string) func(*testing.T) (tls.Certificate, *x509.CertPool) {
	return func(t *testing.T) (tls.Certificate, *x509.CertPool) {
		t.Helper()
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		ca := &x509.Certificate{
			SerialNumber:          big.NewInt(1),
			Subject:               pkix.Name{CommonName: "the test's authority"},
			NotBefore:             time.Now().AddDate(-2, 0, 0),
			NotAfter:              authority,
			IsCA:                  true,
			BasicConstraintsValid: true,
			KeyUsage:              x509.KeyUsageCertSign,
		}
		leaf := &x509.Certificate{
			SerialNumber: big.NewInt(2),
			NotBefore:    time.Now().AddDate(-1, 0, 0),
			NotAfter:     notAfter,
			DNSNames:     names,
			KeyUsage:     x509.KeyUsageDigitalSignature,
			ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		}
		switch {
		case len(names) == 0:
			leaf.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
		case names[0] == "":
			leaf.DNSNames = nil
		}
		pool := x509.NewCertPool()
		if trusted {
			der, err := x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key)
			if err != nil {
				t.Fatal(err)
			}
			parsed, err := x509.ParseCertificate(der)
			if err != nil {
				t.Fatal(err)
			}
			pool.AddCert(parsed)
		}
		der, err := x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), key)
		if err != nil {
			t.Fatal(err)
		}
		return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
	}
}

// configured writes and loads a configuration file of the clients.
func (d preparation) configured(text string) {
	d.t.Helper()
	home := d.t.TempDir()
	if err := os.WriteFile(filepath.Join(home, ".tofurc"), []byte(text), 0o600); err != nil {
		d.t.Fatal(err)
	}
	config, err := client.LoadConfig(nil, home)
	if err != nil {
		d.t.Fatal(err)
	}
	d.Config = config
}

// given sets a token with a scope, as in the environment.
func given(scope string) func(preparation) {
	return func(d preparation) { d.Token, d.TokenFrom = d.token(scope), "in LARDER_TOKEN" }
}

// stored configures a token with a scope for the clients.
func stored(scope string) func(preparation) {
	return func(d preparation) { d.configured(credentials(d.Host, d.token(scope))) }
}

// examining leaves only the given ones of a module, a provider and a mirror.
func examining(kinds ...string) func(preparation) {
	return func(d preparation) {
		for kind, forget := range map[string]func(){
			"module": func() { d.Module = nil }, "provider": func() { d.Provider = nil }, "mirror": func() { d.Mirror = nil },
		} {
			if !slices.Contains(kinds, kind) {
				forget()
			}
		}
	}
}

// each prepares several things.
func each(all ...func(preparation)) func(preparation) {
	return func(d preparation) {
		for _, prepare := range all {
			prepare(d)
		}
	}
}

func credentials(host, token string) string {
	return fmt.Sprintf("credentials %q {\n  token = %q\n}\n", host, token)
}

func presented(text string) func(preparation) {
	return func(d preparation) { d.configured(strings.ReplaceAll(text, "HOST", d.Host)) }
}

// leading has a host block that leads to the mirror. HOST is the registry.
var leading = hostblock.Text("https://HOST", "registry.opentofu.org", "")

// byBlock configures the host block with a token of a scope.
func byBlock(scope string) func(preparation) {
	return func(d preparation) { presented(leading + credentials(random.Hostname, d.token(scope)))(d) }
}

// mirrorAt sets the URL of the mirror, as --mirror-url does.
func mirrorAt(url string) func(preparation) {
	return func(d preparation) { d.MirrorURL = strings.ReplaceAll(url, "HOST", d.Host) }
}

// noFile names a configuration file that does not exist.
func noFile(d preparation) {
	d.Config, _ = client.LoadConfig([]string{"TF_CLI_CONFIG_FILE=/no/such/file"}, "")
}

// secret is part of every token and URL that must not be shown.
const secret = "s3cr3t-t0ken"

// broken is a set-up, and the name of the step that finds what is wrong.
type broken struct {
	step string
	setUp
}

// Each broken set-up has exactly one wrong step, which names the cause.
func TestBroken(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	year := time.Now().AddDate(1, 0, 0)
	key, err := stranger()
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]broken{
		"content type": {"discovery", setUp{breaks: header(wellKnown, "Content-Type", "binary/octet-stream")}},
		"no content type": {"discovery",
			setUp{breaks: alter(wellKnown, func(_ string, _ *http.Request, a *httptest.ResponseRecorder) {
				a.Header()["Content-Type"] = nil
			})}},
		"no slash at the end of providers": {"discovery: providers.v1",
			setUp{breaks: edit(wellKnown, `"/v1/providers/"`, `"/v1/providers"`)}},
		"no slash at the end of modules": {"discovery: modules.v1",
			setUp{breaks: edit(wellKnown, `"/v1/modules/"`, `"/v1/modules"`)}},
		"no slash at the beginning": {"discovery: modules.v1",
			setUp{breaks: edit(wellKnown, `"/v1/modules/"`, `"v1/modules/"`)}},
		"no discovery":        {"discovery", setUp{breaks: status(wellKnown, http.StatusNotFound)}},
		"a page to log in by": {"discovery", setUp{breaks: edit(wellKnown, "{", "<html>")}},
		"service of another type": {"discovery: modules.v1", setUp{
			breaks:  editJSON(wellKnown, func(doc map[string]any) { doc["modules.v1"] = map[string]any{} }),
			prepare: examining("provider", "mirror"),
		}},
		"login without a token URL": {"login.v1",
			setUp{breaks: login(map[string]any{"client": "cli", "authz": "/authorize"})}},
		"login with one port": {"login.v1", setUp{breaks: login(map[string]any{
			"client": "cli", "authz": "/authorize", "token": "/token", "ports": []int{10000, 10000},
		})}},

		"expired certificate":          {"connection", setUp{certificate: issueUntil(time.Now().AddDate(0, 0, -3), true)}},
		"untrusted certificate":        {"connection", setUp{certificate: issueUntil(year, false)}},
		"certificate for another name": {"connection", setUp{certificate: issueUntil(year, true, "registry.example.com")}},
		"certificate without names":    {"connection", setUp{certificate: issueUntil(year, true, "")}},
		"host without a dot": {"module", setUp{
			certificate: issueUntil(year, true, "localhost"),
			prepare: each(examining("module"), func(d preparation) {
				d.Host = strings.Replace(d.Host, "127.0.0.1", "localhost", 1)
			}),
		}},

		"no token":               {"credential", setUp{closed: true}},
		"wrong token":            {"credential", setUp{closed: true, prepare: presented(credentials("HOST", secret))}},
		"token for another host": {"credential", setUp{closed: true, prepare: presented(credentials("127.0.0.1", secret))}},
		"scope that does not reach": {"module versions",
			setUp{closed: true, prepare: each(given("read:modules/other/*"), examining("module"))}},

		"clock of this machine": {"clock", setUp{prepare: func(d preparation) {
			d.Now = func() time.Time { return time.Now().Add(time.Hour) }
		}}},
		"clock of the registry": {"clock", setUp{breaks: header("/", "Date", dateAfter(20*time.Minute))}},

		"presigned URL of a module refused": {"module archive",
			setUp{breaks: refuse("AccessDenied"), prepare: examining("module")}},
		"presigned URL of a provider refused": {"provider signature",
			setUp{breaks: refuse("RequestTimeTooSkewed"), prepare: examining("provider")}},
		"presigned URL that has expired": {"module archive", setUp{breaks: func(host string, next http.Handler) http.Handler {
			return located(func(string) string {
				return "https://" + host + "/gone.tar.gz?X-Amz-Date=20200101T000000Z&X-Amz-Expires=3600&X-Amz-Signature=" +
					secret + "&signature=no&archive=tar.gz"
			})(host, refuse("AccessDenied")(host, next))
		}, prepare: examining("module")}},
		"module whose object is gone": {"module archive", setUp{breaks: status(".tar.gz", http.StatusNotFound)}},
		"module archive changed":      {"module archive", setUp{breaks: corrupt(".tar.gz")}},
		"module archive cut short": {"module archive",
			setUp{breaks: alter(".tar.gz", func(_ string, _ *http.Request, a *httptest.ResponseRecorder) {
				a.Header().Set("Content-Length", fmt.Sprint(a.Body.Len()+1))
			})}},
		"module archive with an encoding and no checksum": {"module archive",
			setUp{breaks: func(host string, next http.Handler) http.Handler {
				return located(func(l string) string { return strings.Split(l, "&checksum=")[0] })(host,
					header(".tar.gz", "Content-Encoding", "gzip")(host, next))
			}}},
		"module archive with an encoding": {"module archive", setUp{breaks: header(".tar.gz", "Content-Encoding", "gzip")}},
		"module without an archive type": {"module archive",
			setUp{breaks: located(func(string) string { return "https://store.example.com/object?signature=" + secret })}},
		"module location only in the body": {"module download",
			setUp{breaks: alter("/download", func(_ string, _ *http.Request, a *httptest.ResponseRecorder) {
				a.Header().Del("X-Terraform-Get")
			})}},

		"unsigned provider": {"provider signature", setUp{breaks: keysAre()}},
		"provider signed by another": {"provider signature",
			setUp{breaks: keysAre(map[string]any{"ascii_armor": string(key.Public)})}},
		"signing key that is null": {"provider download", setUp{breaks: keysAre(nil)}},
		"armored signature": {"provider signature",
			setUp{breaks: alter("SHA256SUMS.sig", func(_ string, _ *http.Request, a *httptest.ResponseRecorder) {
				a.Body = bytes.NewBufferString("-----BEGIN PGP SIGNATURE-----\n\n" +
					base64.StdEncoding.EncodeToString(a.Body.Bytes()) + "\n-----END PGP SIGNATURE-----\n")
			})}},
		"sums changed": {"provider signature", setUp{breaks: corrupt("SHA256SUMS")}},
		"provider zip changed": {"provider package",
			setUp{breaks: corrupt(".zip"), prepare: examining("module", "provider")}},
		"provider version with a v": {"provider versions",
			setUp{breaks: edit("/inventory/versions", `"versions":[`, `"versions":[{"version":"v0.9.0"},`)}},

		"mirror without a slash": {"mirror URL", setUp{prepare: presented(
			"provider_installation {\n  network_mirror {\n    url = \"https://HOST/v1/mirror\"\n  }\n  direct {}\n}\n")}},
		"given mirror without a slash": {"mirror URL", setUp{prepare: mirrorAt("https://HOST/v1/mirror")}},
		"given mirror without https":   {"mirror URL", setUp{prepare: mirrorAt("http://HOST/v1/mirror/")}},
		"given mirror elsewhere on it": {"mirror versions", setUp{prepare: mirrorAt("https://HOST/v2/mirror/")}},
		"mirror zip changed": {
			"mirror package", setUp{breaks: corrupt(".zip"), prepare: examining("module", "mirror")},
		},
		"mirror of another content type": {"mirror versions",
			setUp{breaks: header("/index.json", "Content-Type", "application/octet-stream")}},
		"mirror without hashes": {"mirror version",
			setUp{breaks: editPackage("/1.0.0.json", "archives", func(p map[string]any) { delete(p, "hashes") })}},
		"mirror that lacks it": {"mirror versions", setUp{prepare: func(d preparation) {
			other := random
			other.Name = "aws"
			d.Mirror = &other
		}}},

		"module with a page for a body": {"module download",
			setUp{breaks: answer("aws/1.0.0/download", http.StatusOK, "text/html", page)}},
		"module that OpenTofu looks for elsewhere": {"module archive of OpenTofu", setUp{breaks: answer(
			"aws/1.0.0/download", http.StatusOK, "application/json",
			`{"location":"/nowhere","use_registry_credentials":true}`)}},
		"module that a store refuses with a credential": {"module archive of OpenTofu",
			setUp{closed: true, prepare: given("read:**"), breaks: func(host string, next http.Handler) http.Handler {
				return edit("aws/1.0.0/download", `"archive"`, `"refused"`)(host,
					answer("aws/1.0.0/refused", http.StatusBadRequest, "application/xml", "<Error/>")(host, direct(host, next)))
			}}},
		"module archive that is a page": {"module archive", setUp{breaks: packed("tar.gz", []byte(page))}},
		"module zip that is a page":     {"module archive", setUp{breaks: packed("zip", []byte(page))}},
		"module zip that is cut":        {"module archive", setUp{breaks: packed("zip", zipped(t, "main.tf")[:40])}},
		"module zip with nothing": {"module archive",
			setUp{breaks: packed("zip", append([]byte("PK\x05\x06"), make([]byte, 18)...))}},
		"module archive that leads out": {"module archive", setUp{breaks: packed("zip", zipped(t, "../main.tf"))}},
		"module without the folder": {"module archive",
			setUp{breaks: located(func(l string) string { return strings.Replace(l, ".tar.gz?", ".tar.gz//no/such?", 1) })}},
		"module with a pattern of a folder": {"module archive",
			setUp{breaks: located(func(l string) string { return strings.Replace(l, ".tar.gz?", ".tar.gz//*?", 1) })}},

		"neither service": {"discovery", setUp{breaks: answer(
			wellKnown, http.StatusOK, "application/json", `{"modules.v2":"/v1/modules/","Modules.V1":"/v1/modules/"}`)}},
		"discovery that fails": {"discovery",
			setUp{breaks: answer(wellKnown, http.StatusServiceUnavailable, "text/html", page)}},
		"discovery that leads to a dead host": {"connection",
			setUp{breaks: redirected(wellKnown, "https://larder-doctor.invalid/")}},
		"discovery that leads away from https": {"connection",
			setUp{breaks: redirected(wellKnown, "http://registry.example.com/")}},
		"dead proxy": {"connection", setUp{prepare: func(d preparation) {
			d.Transport.(*http.Transport).Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: "127.0.0.1:1"})
		}}},
		"authorities that are none": {"connection", setUp{
			certificate: issueUntil(year, false),
			prepare: func(d preparation) {
				d.Authorities = filepath.Join(d.t.TempDir(), "ca.pem")
				if err := os.WriteFile(d.Authorities, []byte("junk"), 0o600); err != nil {
					d.t.Fatal(err)
				}
			},
		}},
		"authorities that are not there": {"connection", setUp{
			certificate: issueUntil(year, false),
			prepare:     func(d preparation) { d.Authorities = filepath.Join(d.t.TempDir(), "ca.pem") },
		}},

		"configuration that cannot be read": {"configuration", setUp{prepare: func(d preparation) {
			d.Config, d.Unread = client.LoadConfig([]string{"TF_CLI_CONFIG_FILE=doctor_test.go"}, "")
		}}},
		"token with a line break": {"credential", setUp{prepare: presented(credentials("HOST", secret+"\n"))}},
		"token with the word Bearer": {"credential",
			setUp{closed: true, prepare: presented(credentials("HOST", "Bearer "+secret))}},
		"token in quotes": {"credential", setUp{closed: true, prepare: presented(credentials("HOST", `"`+secret+`"`))}},
		"JWT that has expired": {"credential", setUp{closed: true, prepare: presented(
			credentials("HOST", "e30."+base64.RawURLEncoding.EncodeToString([]byte(`{"exp":1000000000}`))+"."+secret))}},
		"registry that redirects to another": {"credential", setUp{
			closed:  true,
			breaks:  redirected("/v1/modules/", "https://example.com:PORT/"),
			prepare: each(stored("read:**"), atExample),
		}},
		"services elsewhere for a given token": {"credential", setUp{
			closed: true, breaks: modulesAtExample, prepare: each(given("read:**"), atExample),
		}},
		"module elsewhere for a given token": {"module versions", setUp{
			breaks: func(host string, next http.Handler) http.Handler {
				return modulesAtExample(host, answer("aws/versions", http.StatusForbidden, "text/html", page)(host, next))
			},
			prepare: each(given("read:**"), atExample),
		}},
		"firewall": {"module versions", setUp{
			closed: true, prepare: given("read:**"), breaks: answer("aws/versions", http.StatusForbidden, "text/html", page),
		}},

		"trust signature": {"provider signature",
			setUp{breaks: editJSON("/download/linux/amd64", func(body map[string]any) {
				body["signing_keys"].(map[string]any)["gpg_public_keys"].([]any)[0].(map[string]any)["trust_signature"] = "x"
			})}},
		"one hash for two platforms": {"provider download",
			setUp{breaks: editJSON("/download/linux/amd64", func(body map[string]any) {
				packages := body["packages"].(map[string]any)
				packages["darwin_arm64"] = packages["linux_amd64"]
			})}},
		"provider without a size": {"provider package", setUp{breaks: editPackage("/download/linux/amd64", "packages",
			func(p map[string]any) { delete(p, "package_size") })}},
		"provider of another size": {"provider package", setUp{breaks: editPackage("/download/linux/amd64", "packages",
			func(p map[string]any) { p["package_size"] = 1 })}},

		"mirror elsewhere that wants a token": {"mirror versions", setUp{closed: true, prepare: func(d preparation) {
			d.configured(credentials(d.Host, d.token("read:**")))
			d.MirrorURL, d.Transport = "https://example.com:"+port(d.Host)+"/v1/mirror/", elsewhere{d.Transport}
		}}},
		"mirror without https": {"mirror URL",
			setUp{prepare: presented(installation("http://HOST/v1/mirror/", "*/*", "*/*"))}},
		"mirror of another provider": {"mirror URL",
			setUp{prepare: presented(installation("https://HOST/v1/mirror/", "hashicorp/aws", "*/*"))}},
		"two installations": {"configuration",
			setUp{prepare: presented(strings.Repeat(installation("https://HOST/v1/mirror/", "*/*", "*/*"), 2))}},
		"installation that clients refuse": {"configuration", setUp{prepare: presented(
			`{"provider_installation": {"network_mirror": {"url": "https://HOST/v1/mirror/"}, "direct": {}}}`)}},
		"mirror at a host that is none": {"mirror versions",
			setUp{prepare: presented(installation("https://larder-doctor.invalid/v1/mirror/", "*/*", "*/*"))}},
		"short token": {"credential", setUp{closed: true, prepare: presented(credentials("HOST", "e"))}},
		"host block without a token": {"credential",
			setUp{closed: true, prepare: each(presented(leading), examining("mirror"))}},
		"host block with a wrong token": {"configuration", setUp{closed: true, prepare: each(
			presented(leading+credentials(random.Hostname, secret)), examining("mirror"))}},
		"host block without a slash": {"configuration", setUp{closed: true, prepare: each(func(d preparation) {
			presented(strings.ReplaceAll(leading, `/"`, `"`) + credentials(random.Hostname, d.token("read:mirror/**")))(d)
		}, examining("mirror"))}},
		"host block with another scope": {"credential",
			setUp{closed: true, prepare: each(byBlock("read:modules/**"), examining("mirror"))}},
		"module with a token for the mirror": {"credential",
			setUp{closed: true, prepare: each(byBlock("read:mirror/**"), examining("module", "mirror"))}},
		"wrong token beside a host block": {"credential", setUp{closed: true, prepare: each(func(d preparation) {
			presented(leading + credentials(random.Hostname, d.token("read:mirror/**")) + credentials(d.Host, secret))(d)
		}, examining("mirror"))}},
		"nothing for a host block": {"mirror versions", setUp{
			prepare: each(presented(leading), examining("mirror")),
			breaks:  at(randomPath+"/index.json", http.StatusNotFound, "application/json", `{"errors":["not found"]}`),
		}},
		"origin that is down, with a host block": {"mirror versions", setUp{
			prepare: each(presented(leading), examining("mirror")),
			breaks: func(host string, next http.Handler) http.Handler {
				pull := protocol.MirroredPull{Mode: registry.PullOpen, Problem: "the origin did not answer in time"}
				next = at(randomPath, http.StatusOK, "application/json", withPull(t, described(t), pull, nil))(host, next)
				next = status("/v1/providers-of/registry.opentofu.org/hashicorp/", http.StatusServiceUnavailable)(host, next)
				return at(randomPath+"/index.json", http.StatusNotFound, "application/json", `{"errors":["no"]}`)(host, next)
			},
		}},
		"host block without SHA256SUMS": {"host block", setUp{
			prepare: each(presented(leading), examining("mirror")),
			breaks:  status("/v1/providers-of/registry.opentofu.org/hashicorp/random/versions", http.StatusNotFound),
		}},
		"host block with another key": {"host block", setUp{
			prepare: each(presented(leading), examining("mirror")),
			breaks:  keysAre(map[string]any{"ascii_armor": string(key.Public)}),
		}},
		"host block with changed sums": {"host block", setUp{
			prepare: each(presented(leading), examining("mirror")), breaks: corrupt("SHA256SUMS"),
		}},
		"mirror at another path": {"mirror versions",
			setUp{prepare: presented(installation("https://HOST/mirror/", "*/*", "*/*"))}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, test.setUp)
			report := p.examine(t)
			var wrong []string
			for _, step := range report.Steps {
				if step.Outcome == doctor.Wrong {
					wrong = append(wrong, step.Name)
					record(t, texts, step, p.replace(t))
				}
			}
			if diff := gocmp.Diff([]string{test.step}, wrong); diff != "" {
				t.Errorf("wrong steps (-want +got):\n%s\n%s", diff, text(report))
			}
		})
	}
}

// examine examines the registry, and fails the test if the report contains a
// secret.
func (p fixture) examine(t *testing.T) (report doctor.Report) {
	t.Helper()
	// No time passes in a bubble that waits for a network. Therefore no answer is
	// slow on a slow machine.
	synctest.Test(t, func(t *testing.T) {
		defer p.transport.CloseIdleConnections()
		time.Sleep(time.Until(p.now))
		var err error
		if report, err = p.doctor.Examine(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	shown := text(report)
	for _, word := range []string{secret, "signature=", "X-Amz-Signature", p.doctor.Token} {
		if word != "" && strings.Contains(shown, word) {
			t.Errorf("it shows %q:\n%s", word, shown)
		}
	}
	return report
}

// varying matches what differs from run to run.
var varying = regexp.MustCompile(`[0-9a-f]{64}|\b[0-9A-F]{16}\b|\d\d:\d\d(:\d\d)? UTC|\b\d+m\d+s( ahead|, but)|` +
	regexp.QuoteMeta(os.TempDir()) + `/[^ "]*?/\d{3}/`)

// replace returns what the golden files contain instead of hosts, ports,
// folders, digests and times.
func (p fixture) replace(t *testing.T) []string {
	t.Helper()
	pairs := []string{":" + port(p.host), ":PORT"}
	for days, name := range map[int]string{-3: "-3 DAYS", 0: "TODAY", 3: "+3 DAYS", 5: "+5 DAYS"} {
		pairs = append(pairs, p.now.UTC().AddDate(0, 0, days).Format(time.DateOnly), name)
	}
	return pairs
}

// record records the texts of a step in a golden file.
func record(t *testing.T, texts *golden.Texts, s doctor.Step, replace []string) {
	t.Helper()
	text := "result: " + s.Result + "\nfix:    " + s.Fix + "\n"
	texts.Text(t, varying.ReplaceAllString(text, "…"), replace...)
}

func text(r doctor.Report) string {
	var b strings.Builder
	for _, s := range r.Steps {
		fmt.Fprintf(&b, "%-8s %s\n  tried %s\n  seen  %s\n  do    %s\n", s.Outcome, s.Name, s.Request, s.Result, s.Fix)
	}
	return b.String() + r.Configuration
}

// A registry as Larder serves it has no problems, whether it is open or needs a
// token.
func TestHealthy(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]setUp{
		"open": {},
		"with a token": {closed: true, prepare: func(d preparation) {
			d.configured(credentials(d.Host, d.token("read:**")) +
				"provider_installation {\n  network_mirror {\n    url = \"https://" + d.Host + "/v1/mirror/\"\n  }\n}\n")
		}},
		"with a token that was given": {closed: true, prepare: given("read:**")},
		"with login": {breaks: login(map[string]any{
			"client": "cli", "grant_types": []string{"authz_code"}, "authz": "https://id.example.com/authorize",
			"token": "https://id.example.com/token", "ports": []int{10000, 10010}, "scopes": []string{"openid"},
		})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := start(t, s).examine(t)
			if report.Count(doctor.Wrong)+report.Count(doctor.Warning) > 0 || report.Count(doctor.OK) < 14 {
				t.Errorf("%s", text(report))
			}
		})
	}
}

// What breaks no client today is a warning.
func TestWarnings(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	for name, test := range map[string]broken{
		"mirror program that is not executable": {
			"mirror package", setUp{prepare: examining("module", "mirror"), breaks: func(host string, next http.Handler) http.Handler {
				zip := zippedAs(t, "terraform-provider-random_v1.0.0", 0o644)
				hash := fmt.Sprintf("zh:%x", sha256.Sum256(zip))
				other := func(_ string, _ *http.Request, a *httptest.ResponseRecorder) { a.Body = bytes.NewBuffer(zip) }
				return alter(".zip", other)(host, editPackage("/1.0.0.json", "archives", func(p map[string]any) {
					p["hashes"] = []any{hash}
				})(host, next))
			}},
		},
		"certificate that expires soon": {"connection", setUp{certificate: issueUntil(time.Now().AddDate(0, 0, 3), true)}},
		"authority that expires soon": {"connection",
			setUp{certificate: issueBy(time.Now().AddDate(0, 0, 5), time.Now().AddDate(0, 1, 0), true)}},
		"clocks that drift": {"clock", setUp{prepare: func(d preparation) {
			d.Now = func() time.Time { return time.Now().Add(-2 * time.Minute) }
			d.Provider = nil // its key is newer than that
		}}},
		"module without a checksum": {"module archive",
			setUp{breaks: located(func(l string) string { return strings.Split(l, "&checksum=")[0] })}},
		"URL that holds a short while": {"module archive", setUp{
			breaks: alter("/objects/", func(_ string, _ *http.Request, a *httptest.ResponseRecorder) {
				if a.Header().Get("Date") == "" {
					a.Header().Set("Date", dateAfter(55*time.Minute))
				}
			}),
			prepare: examining("module"),
		}},
		"platform that is not there": {"provider versions", setUp{prepare: func(d preparation) {
			d.Mirror, d.Platform = nil, registry.Platform{OS: "windows", Arch: "386"}
		}}},
		"host block": {"configuration", setUp{prepare: presented(
			"host \"HOST\" {\n  services = {\n    \"modules.v1\" = \"https://HOST/v1/modules/\"\n  }\n}\n")}},
		"version that is none": {"module versions",
			setUp{breaks: edit("/vpc/aws/versions", `"versions":[`, `"versions":[{"version":"latest"},`)}},
		"module in a folder": {"module archive", setUp{breaks: func(host string, next http.Handler) http.Handler {
			return located(func(l string) string { return l + "//a/b" })(host,
				packed("zip", zipped(t, "a/b/main.tf"))(host, next))
		}}},
		"versions that are none": {"module versions", setUp{
			breaks: edit("/vpc/aws/versions", `"versions":[`, `"versions":[`+strings.Repeat(`{"version":"x"},`, 1000)),
		}},
		"firewall": {"credential",
			setUp{breaks: answer("/v1/", http.StatusForbidden, "text/html", page), prepare: examining()}},
		"page to log in by": {"credential",
			setUp{breaks: answer("/v1/", http.StatusOK, "text/html", page), prepare: examining()}},
		"404 for all": {"credential",
			setUp{breaks: answer("/v1/", http.StatusNotFound, "text/html", page), prepare: examining()}},
		"provider with another h1": {"provider package", setUp{breaks: editPackage("/download/", "packages", swapH1)}},
		"mirror with another h1":   {"mirror package", setUp{breaks: editPackage("/1.0.0.json", "archives", swapH1)}},
		"token for the mirror": {"credential",
			setUp{closed: true, prepare: each(byBlock("read:mirror/**"), examining("mirror"))}},
		"token for the mirror alone": {"credential", setUp{closed: true, prepare: each(byBlock("read:mirror/**"), examining())}},
		"host block without a key":   {"host block", setUp{prepare: each(presented(leading), examining("mirror")), breaks: keysAre()}},
		"mirror of another host": {"mirror URL", setUp{prepare: func(d preparation) {
			d.configured(installation("https://example.com:"+port(d.Host)+"/v1/mirror/", "*/*", "*/*"))
			d.Transport = elsewhere{d.Transport}
		}}},
		"mirror of other providers": {"mirror URL",
			setUp{prepare: presented(installation("https://HOST/v1/mirror/", "hashicorp/aws", "hashicorp/aws"))}},
		"file that is not there": {"configuration", setUp{prepare: noFile}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, test.setUp)
			report := p.examine(t)

			found := 0
			for _, s := range report.Steps {
				if s.Outcome == doctor.Warning && s.Name == test.step && s.Fix != "" {
					found++
					record(t, texts, s, p.replace(t))
				}
			}
			if found != 1 || report.Count(doctor.Wrong) > 0 || report.Count(doctor.Warning) != 1 {
				t.Errorf("want one warning, by %q\n%s", test.step, text(report))
			}
		})
	}
}

// A mirror on another host receives no credential of the registry, and becomes
// part of the configuration.
func TestMirrorElsewhere(t *testing.T) {
	t.Parallel()
	requests, sent := 0, 0
	var mu sync.Mutex
	other := start(t, setUp{breaks: func(_ string, next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			requests++
			if r.Header.Get("Authorization") != "" {
				sent++
			}
			mu.Unlock()
			next.ServeHTTP(w, r)
		})
	}})
	report := start(t, setUp{closed: true, prepare: func(d preparation) {
		d.Token, d.TokenFrom, d.MirrorURL = d.token("read:**"), "in LARDER_TOKEN", "https://"+other.host+"/v1/mirror/"
	}}).examine(t)
	if requests == 0 {
		t.Error("the mirror received no request")
	}
	if sent > 0 {
		t.Errorf("the mirror received a credential %d times", sent)
	}
	if report.Count(doctor.Wrong)+report.Count(doctor.Warning) > 0 {
		t.Errorf("a step has a problem\n%s", text(report))
	}
	if !strings.Contains(report.Configuration, `"https://`+other.host+`/v1/providers-of/registry.opentofu.org/"`) {
		t.Errorf("the configuration lacks the mirror\n%s", report.Configuration)
	}
}

// slowTransport answers with a handler, and delays responses for paths that
// contain part.
type slowTransport struct {
	next  http.Handler
	part  string
	after time.Duration
	tls   *tls.ConnectionState
}

func (s slowTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.Contains(r.URL.Path, s.part) {
		select {
		case <-time.After(s.after):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	a := httptest.NewRecorder()
	s.next.ServeHTTP(a, r)
	response := a.Result()
	response.Request, response.TLS = r, s.tls
	return response, nil
}

// A slow answer is a warning if some clients do not wait for it, and wrong if
// no client does. Downloads are wrong if no byte arrives for a minute.
func TestSlow(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	mux := http.NewServeMux()
	respond := func(path, body string) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("X-Terraform-Get", "/vpc.tar.gz")
			_, _ = io.WriteString(w, body)
		})
	}
	respond("/.well-known/terraform.json", `{"modules.v1": "/v1/modules/", "providers.v1": "/v1/providers/"}`)
	respond("/v1/modules/acme/vpc/aws/versions", `{"modules": [{"versions": [{"version": "1.0.0"}]}]}`)
	respond("/v1/modules/acme/vpc/aws/1.0.0/download", "{}")
	for name, test := range map[string]struct {
		part  string
		after time.Duration
		step  string
		want  doctor.Outcome
	}{
		"4s":                     {wellKnown, 4 * time.Second, "connection", doctor.OK},
		"6s":                     {wellKnown, 6 * time.Second, "connection", doctor.Warning},
		"11s":                    {wellKnown, 11 * time.Second, "connection", doctor.Wrong},
		"archive after a minute": {".tar.gz", time.Minute + time.Second, "module archive", doctor.Wrong},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				leaf := &x509.Certificate{NotAfter: time.Now().AddDate(1, 0, 0)}
				state := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}}
				d := doctor.Doctor{
					Host: "registry.example.com", Agent: "larder/test", Module: &vpc,
					Transport: slowTransport{mux, test.part, test.after, state},
				}
				report, err := d.Examine(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				step := find(t, report, test.step)
				if step.Outcome != test.want {
					t.Errorf("the outcome is %s, want %s\n%s", step.Outcome, test.want, text(report))
				}
				record(t, texts, step, nil)
			})
		})
	}
}

// find returns the first step with a name.
func find(t *testing.T, report doctor.Report, name string) doctor.Step {
	t.Helper()
	at := slices.IndexFunc(report.Steps, func(s doctor.Step) bool { return s.Name == name })
	if at < 0 {
		t.Fatalf("there is no step %s\n%s", name, text(report))
	}
	return report.Steps[at]
}

// Deviations that clients accept are not reported.
func TestFine(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]setUp{
		"answer out of a cache": {breaks: alter(wellKnown, func(_ string, _ *http.Request, a *httptest.ResponseRecorder) {
			a.Header().Set("Date", dateAfter(-time.Hour))
			a.Header().Set("Age", "3600")
		})},
		"files that are compressed on their way": {breaks: compressed},
		"module of git": {
			breaks: located(func(string) string { return "git@github.com:acme/vpc.git?ref=v1" }),
		},
		"module of a short form": {
			breaks: located(func(string) string { return "github.com/acme/vpc?ref=v1" }),
		},
		"version of four numbers": {
			breaks: edit("/vpc/aws/versions", `"versions":[`, `"versions":[{"version":"0.1.2.3"},`),
		},
		"module by the body": {
			breaks: answer("aws/1.0.0/download", http.StatusOK, "application/json", "{}"),
		},
		"module that OpenTofu fetches by itself": {closed: true, breaks: direct, prepare: given("read:**")},
		"login without ports": {breaks: login(
			map[string]any{"client": "cli", "authz": "/authorize", "token": "/token", "ports": nil})},
		"mirror elsewhere with its own token": {closed: true, prepare: func(d preparation) {
			d.configured(credentials(d.Host, d.token("read:modules/**")) +
				credentials("example.com:"+port(d.Host), d.token("read:mirror/**")))
			d.MirrorURL, d.Transport, d.Provider = "https://example.com:"+port(d.Host)+"/v1/mirror/", elsewhere{d.Transport}, nil
		}},
		"token for something else": {closed: true, prepare: each(given("read:modules/other/*"), examining())},
		"mirror beside another": {prepare: presented("provider_installation {\n  network_mirror {\n    url = " +
			"\"https://larder-doctor.invalid/\"\n    include = [\"hashicorp/aws\"]\n  }\n  network_mirror {\n    url = " +
			"\"https://HOST/v1/mirror/\"\n  }\n}\n")},
		"host block and a trust signature": {
			prepare: each(presented(leading), examining("mirror")),
			breaks: editJSON("/download/linux/amd64", func(body map[string]any) {
				body["signing_keys"].(map[string]any)["gpg_public_keys"].([]any)[0].(map[string]any)["trust_signature"] = "x"
			}),
		},
		"host block beside a network mirror": {prepare: each(presented(leading+"provider_installation {\n  network_mirror {\n    "+
			"url = \"https://larder-doctor.invalid/\"\n    include = [\"example.com/*/*\"]\n  }\n  direct {}\n}\n"), examining("mirror"))},
		"mirror nothing": {prepare: examining("mirror"), breaks: func(host string, next http.Handler) http.Handler {
			return answer("/v1/modules/", http.StatusNotFound, "text/html", page)(host,
				answer(wellKnown, http.StatusNotFound, "text/html", page)(host, next))
		}},
		"registry that redirects to another port": {
			closed: true, prepare: stored("read:**"), breaks: func(host string, next http.Handler) http.Handler {
				other := httptest.NewTLSServer(next)
				t.Cleanup(other.Close)
				return redirected("/v1/modules/", other.URL+"/")(host, next)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := start(t, s).examine(t)
			if report.Count(doctor.Wrong)+report.Count(doctor.Warning) > 0 {
				t.Errorf("%s", text(report))
			}
		})
	}
}

// The configuration contains what is missing, and nothing that exists or would
// do harm.
func TestConfiguration(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	for name, s := range map[string]setUp{
		"token":           {closed: true},
		"mirror":          {},
		"in place":        {prepare: presented(installation("https://HOST/v1/mirror", "*/*", "*/*"))},
		"at another path": {prepare: presented(installation("https://HOST/mirror/", "*/*", "*/*"))},
		"elsewhere": {closed: true, prepare: func(d preparation) {
			noFile(d)
			d.Authorities = "/ca.pem"
		}},
		"dead host":                  {prepare: func(d preparation) { d.Host = "larder-doctor.invalid" }},
		"no mirror":                  {breaks: answer("/v1/mirror/", http.StatusNotFound, "text/html", page)},
		"mirror with a token":        {closed: true, prepare: given("read:**")},
		"mirror without host blocks": {breaks: answer("/v1/providers-of/", http.StatusNotFound, "text/html", page)},
		"host block":                 {prepare: presented(leading)},
		"host block with a token":    {closed: true, prepare: each(byBlock("read:mirror/**"), examining("mirror"))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, s)
			report := p.examine(t)
			texts.Text(t, varying.ReplaceAllString(cmp.Or(report.Configuration, "(empty)\n"), "…"), p.replace(t)...)
		})
	}
}

// With a host block, the doctor verifies what clients verify. It examines it even if
// the registry needs a token, and clients have none but that of the block.
func TestByHost(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	p := start(t, setUp{closed: true, prepare: each(byBlock("read:mirror/**"), examining("mirror"))})
	report := p.examine(t)
	for _, s := range report.Steps {
		if s.Name == "host block" || s.Name == "credential" {
			texts.Text(t, varying.ReplaceAllString(string(s.Outcome)+": "+s.Result+"\n", "…"), p.replace(t)...)
		}
	}
	if last := report.Steps[len(report.Steps)-1]; last.Name != "host block" || last.Outcome != doctor.OK {
		t.Errorf("the last step is %s, with the outcome %s\n%s", last.Name, last.Outcome, text(report))
	}
}

// A mirror in both CLIs' files is examined once. Different tokens in them only
// matter if one of them is sent.
func TestOneMirror(t *testing.T) {
	t.Parallel()
	report := start(t, setUp{prepare: func(d preparation) {
		t.Helper()
		d.Token, d.TokenFrom = d.token("read:**"), "in LARDER_TOKEN"
		home := t.TempDir()
		for _, name := range []string{".tofurc", ".terraformrc"} {
			text := credentials(d.Host, name) + installation("https://"+d.Host+"/v1/mirror/", "*/*", "*/*")
			if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var err error
		if d.Config, err = client.LoadConfig(nil, home); err != nil {
			t.Fatal(err)
		}
	}}).examine(t)
	inspections := 0
	for _, s := range report.Steps {
		if s.Name == "mirror versions" {
			inspections++
		}
	}
	if inspections != 1 {
		t.Errorf("the mirror was examined %d times, want 1", inspections)
	}
	if report.Count(doctor.Wrong)+report.Count(doctor.Warning) > 0 {
		t.Errorf("%s", text(report))
	}
}

// A server that echoes a credential does not get it into the report, even if it
// is escaped or cut.
func TestEcho(t *testing.T) {
	t.Parallel()
	for _, token := range []string{secret, secret + `"\` + strings.Repeat(secret, 60)} {
		for _, before := range []int{0, 275} {
			start(t, setUp{
				breaks: alter("/v1/mirror/", func(_ string, r *http.Request, a *httptest.ResponseRecorder) {
					a.Header().Set("Content-Type",
						strings.Repeat("x", before)+strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
				}),
				prepare: func(d preparation) { d.Token, d.TokenFrom = token, "in LARDER_TOKEN" },
			}).examine(t)
		}
	}
}

// Found is called for each step. The end of the context adds no step.
func TestFound(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var found []doctor.Step
	p := start(t, setUp{breaks: alter("/v1/providers/", func(string, *http.Request, *httptest.ResponseRecorder) {
		cancel()
		<-ctx.Done()
	})})
	p.doctor.Found = func(s doctor.Step) { found = append(found, s) }
	report, err := p.doctor.Examine(ctx)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v, want %v", err, context.Canceled)
	}
	if len(found) < 5 {
		t.Errorf("%d steps were found, want 5 or more", len(found))
	}
	if diff := gocmp.Diff(report.Steps, found); diff != "" {
		t.Errorf("found steps (-report +found):\n%s", diff)
	}
	if report.Count(doctor.Wrong) > 0 {
		t.Errorf("a step is wrong\n%s", text(report))
	}
}

// Modules, providers and mirrors that are not named are skipped.
func TestNothingNamed(t *testing.T) {
	t.Parallel()
	report := start(t, setUp{prepare: examining()}).examine(t)
	skipped := map[string]bool{}
	for _, s := range report.Steps {
		skipped[s.Name] = s.Outcome == doctor.Skipped
	}
	if report.Count(doctor.Wrong) > 0 || !skipped["module"] || !skipped["provider"] || !skipped["mirror"] {
		t.Errorf("%s", text(report))
	}
}

// A credential is sent only to its registry, not to the host of the files or to
// another host's mirror.
func TestCredentialStays(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	sent := map[bool]int{}
	report := start(t, setUp{closed: true,
		breaks: func(_ string, next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				file := r.URL.Query().Has("signature")
				if r.Header.Get("Authorization") != "" {
					mu.Lock()
					sent[file]++
					mu.Unlock()
				}
				next.ServeHTTP(w, r)
			})
		},
		prepare: given("read:**")}).examine(t)
	if sent[true] > 0 || sent[false] == 0 || report.Count(doctor.Wrong) > 0 {
		t.Errorf("sent %v\n%s", sent, text(report))
	}
}

// After a failed discovery, the steps that depend on it are skipped.
func TestLost(t *testing.T) {
	t.Parallel()
	report := start(t, setUp{
		breaks: answer(wellKnown, http.StatusServiceUnavailable, "text/html", page),
	}).examine(t)
	var skipped []string
	for _, s := range report.Steps {
		if s.Outcome == doctor.Skipped {
			skipped = append(skipped, s.Name)
		}
	}
	if diff := gocmp.Diff([]string{"login.v1", "credential", "module", "provider"}, skipped); diff != "" {
		t.Errorf("skipped steps (-want +got):\n%s\n%s", diff, text(report))
	}
}

// A credential is never sent without https, and the report names that as the
// reason.
func TestNotOverHTTP(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	var sent atomic.Bool
	var plainURL string
	p := start(t, setUp{closed: true, breaks: func(host string, next http.Handler) http.Handler {
		plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "" {
				sent.Store(true)
			}
			next.ServeHTTP(w, r)
		}))
		t.Cleanup(plain.Close)
		plainURL = plain.URL
		return edit(wellKnown, `"/v1/modules/"`, `"`+plain.URL+`/v1/modules/"`)(host, next)
	}, prepare: given("read:**")})
	report := p.examine(t)
	if sent.Load() {
		t.Error("the credential was sent without https")
	}
	var wrong []string
	for _, s := range report.Steps {
		if s.Outcome == doctor.Wrong {
			wrong = append(wrong, s.Name)
			replace := append(p.replace(t), strings.TrimPrefix(plainURL, "http://"), "PLAIN")
			record(t, texts, s, replace)
		}
	}
	if diff := gocmp.Diff([]string{"discovery: modules.v1", "credential"}, wrong); diff != "" {
		t.Errorf("wrong steps (-want +got):\n%s\n%s", diff, text(report))
	}
}

// Examine returns an error for an invalid host, and a step for one that does
// not answer.
func TestHosts(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	if _, err := (doctor.Doctor{Host: "https://registry.example.com"}).Examine(t.Context()); err == nil {
		t.Error("a URL is taken for a host")
	}
	// No other test uses port 1.
	for _, host := range []string{"127.0.0.1:1", "larder-doctor.invalid"} {
		report, err := doctor.Doctor{Host: host}.Examine(t.Context())
		if err != nil {
			t.Errorf("%s: %v", host, err)
			continue
		}
		step := find(t, report, "connection")
		if step.Outcome != doctor.Wrong {
			t.Errorf("%s: the outcome is %s\n%s", host, step.Outcome, text(report))
		}
		texts.Text(t, step.Result+"\n")
	}
}
