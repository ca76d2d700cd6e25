package doctor_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
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
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/larder-registry/larder/internal/testkit/keys"
	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/archive"
	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/doctor"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/releases"
	"github.com/larder-registry/larder/pkg/signing"
)

var (
	vpc       = registry.Module{Namespace: "acme", Name: "vpc", System: "aws"}
	inventory = registry.Provider{Namespace: "acme", Type: "inventory"}
	random    = registry.MirrorProvider{Hostname: "registry.opentofu.org", Provider: registry.Provider{Namespace: "hashicorp", Type: "random"}}
	linux     = registry.Platform{OS: "linux", Arch: "amd64"}
)

// signer and stranger are keys that all tests share, since making one takes a while.
var (
	signer   = sync.OnceValues(func() (keys.SigningKey, error) { return keys.NewSigningKey("Ed25519", 0) })
	stranger = sync.OnceValues(func() (keys.SigningKey, error) { return keys.NewSigningKey("Ed25519", 0) })
)

// patient is a registry with one of each, and perhaps something wrong.
type patient struct {
	*httptest.Server
	host   string
	doctor doctor.Doctor
}

// setUp is what is wrong with a registry, or with how it is asked.
type setUp struct {
	// closed registries want a token.
	closed bool
	// breaks stands before the handler.
	breaks func(host string, next http.Handler) http.Handler
	// certificate of the server; nil: one that is trusted.
	certificate func(t *testing.T) (served tls.Certificate, trusted *x509.CertPool)
	// asks changes what is asked. token makes one that holds.
	asks func(t *testing.T, d *doctor.Doctor, token func(scope string) string)
}

func start(t *testing.T, s setUp) patient {
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
	server.Config.Handler = handler
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
	if trusted != nil {
		transport.TLSClientConfig.RootCAs = trusted
	}
	t.Cleanup(transport.CloseIdleConnections)
	p := patient{server, host, doctor.Doctor{Host: host, Platform: linux, Agent: "larder/test", Transport: transport, Module: &vpc, Provider: &inventory, Mirror: &random}}
	if s.asks != nil {
		s.asks(t, &p.doctor, func(scope string) string {
			token, digest := access.NewToken()
			if err := data.Catalog.AddToken(t.Context(), digest, registry.Token{ID: digest[:12], Name: "test-" + digest[:12], Scopes: []string{scope}, CreatedAt: time.Now()}); err != nil {
				t.Fatal(err)
			}
			return token
		})
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
	_, err := p.Module(t.Context(), releases.Module{Dir: module, Address: vpc, Version: v})
	must(err)

	const name = "terraform-provider-inventory_1.0.0"
	packed := zipped(t, "terraform-provider-inventory_v1.0.0")
	sum := sha256.Sum256(packed)
	must(os.WriteFile(filepath.Join(release, name+"_linux_amd64.zip"), packed, 0o600))
	must(os.WriteFile(filepath.Join(release, name+"_SHA256SUMS"), fmt.Appendf(nil, "%x  %s_linux_amd64.zip\n", sum, name), 0o600))
	key, err := signer()
	must(err)
	must(key.SignRelease(release))
	parsed, err := signing.ParseKey(key.Public, time.Now())
	must(err)
	_, err = data.Catalog.AddSigningKey(t.Context(), inventory.Namespace, registry.SigningKey{ID: parsed.ID, ASCIIArmor: parsed.ASCIIArmor})
	must(err)
	_, err = p.Provider(t.Context(), releases.Provider{Dir: release, Address: inventory, Protocols: []string{"6.0"}})
	must(err)

	packed = zipped(t, "terraform-provider-random_v1.0.0")
	found, err := archive.ReadProvider(t.Context(), bytes.NewReader(packed), int64(len(packed)), random.Type)
	must(err)
	path := filepath.Join(t.TempDir(), "random.zip")
	must(os.WriteFile(path, packed, 0o600))
	mirrored := publish.MirrorPackage{Path: path}
	mirrored.Platform, mirrored.H1 = linux, found.H1
	mirrored.Filename, mirrored.SHA256, mirrored.Size = random.Filename(v, linux), found.SHA256, found.Size
	_, _, err = p.Mirror(t.Context(), random, v, []publish.MirrorPackage{mirrored})
	must(err)
}

func zipped(t *testing.T, name string) []byte {
	t.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	header := &zip.FileHeader{Name: name, Method: zip.Store}
	header.SetMode(0o755)
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

// alter changes the answers to paths that hold part.
func alter(part string, change func(host string, r *http.Request, a *httptest.ResponseRecorder)) func(string, http.Handler) http.Handler {
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

// edit replaces text in the answers to paths that hold part.
func edit(part string, oldNew ...string) func(string, http.Handler) http.Handler {
	return alter(part, func(_ string, _ *http.Request, a *httptest.ResponseRecorder) {
		text := strings.NewReplacer(oldNew...).Replace(a.Body.String())
		a.Body = bytes.NewBufferString(text)
	})
}

// editJSON changes a JSON answer to paths that hold part.
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

// page is what stands before a registry.
const page = "<html>please log in</html>"

// answer replaces the answers to paths that hold part, but for the header that locates a module.
func answer(part string, status int, contentType, body string) func(string, http.Handler) http.Handler {
	return alter(part, func(_ string, _ *http.Request, a *httptest.ResponseRecorder) {
		a.Code, a.Body = status, bytes.NewBufferString(body)
		a.Header().Set("Content-Type", contentType)
	})
}

// redirected sends requests for paths that hold part to another root, of which PORT is this one's.
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

// hang answers nothing to paths that hold part.
func hang(part string) func(string, http.Handler) http.Handler {
	return func(_ string, next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.Path, part) {
				<-r.Context().Done()
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// located changes where a module is.
func located(change func(location string) string) func(string, http.Handler) http.Handler {
	return alter("/download", func(_ string, _ *http.Request, a *httptest.ResponseRecorder) {
		if location := a.Header().Get("X-Terraform-Get"); location != "" {
			a.Header().Set("X-Terraform-Get", change(location))
		}
	})
}

// packed has a module in an archive of its own.
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

// direct has OpenTofu fetch the archive from the registry, with its credential and as it is stored, under a name that says
// nothing.
func direct(host string, next http.Handler) http.Handler {
	next = answer("aws/1.0.0/download", http.StatusOK, "application/json", `{"location":"archive","use_registry_credentials":true}`)(host, next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != "/v1/modules/acme/vpc/aws/1.0.0/archive":
			next.ServeHTTP(w, r)
		case !strings.HasPrefix(r.Header.Get("Authorization"), "Bearer larder_") || !strings.HasPrefix(r.Header.Get("Accept-Encoding"), "identity"):
			w.WriteHeader(http.StatusBadRequest)
		default:
			out := gzip.NewWriter(w)
			tarred := tar.NewWriter(out)
			_ = tarred.WriteHeader(&tar.Header{Name: "main.tf", Mode: 0o644})
			_, _ = tarred.Close(), out.Close()
		}
	})
}

// compressed serves files as something between does that compresses what it can.
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

// elsewhere has example.com, on any port, on this machine.
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

// installation is the block of a mirror that has some providers, and of direct that lacks some.
func installation(url, include, exclude string) string {
	return fmt.Sprintf("provider_installation {\n  network_mirror {\n    url = %q\n    include = [%q]\n  }\n  direct {\n    exclude = [%q]\n  }\n}\n", url, include, exclude)
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

// refuse answers requests for files, which carry a signature, as a store does.
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

// spoil changes a byte of files whose path ends so.
func spoil(end string) func(string, http.Handler) http.Handler {
	return alter(end, func(_ string, r *http.Request, a *httptest.ResponseRecorder) {
		if r.URL.Query().Has("signature") && strings.HasSuffix(r.URL.Path, end) {
			b := a.Body.Bytes()
			b[len(b)/2] ^= 1
		}
	})
}

// issue makes a certificate by an authority of its own.
func issue(notAfter time.Time, trusted bool, names ...string) func(*testing.T) (tls.Certificate, *x509.CertPool) {
	return issueBy(time.Now().AddDate(1, 0, 0), notAfter, trusted, names...)
}

// issueBy is like issue, with an authority that expires at a time.
func issueBy(authority, notAfter time.Time, trusted bool, names ...string) func(*testing.T) (tls.Certificate, *x509.CertPool) {
	return func(t *testing.T) (tls.Certificate, *x509.CertPool) {
		t.Helper()
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "the test's authority"}, NotBefore: time.Now().AddDate(-2, 0, 0), NotAfter: authority, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
		leaf := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: time.Now().AddDate(-1, 0, 0), NotAfter: notAfter, DNSNames: names, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
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

// configured gives the CLIs' configuration that is in a file.
func configured(t *testing.T, d *doctor.Doctor, text string) {
	t.Helper()
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, ".tofurc"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := client.LoadConfig(nil, home)
	if err != nil {
		t.Fatal(err)
	}
	d.Config = config
}

func credentials(host, token string) string {
	return fmt.Sprintf("credentials %q {\n  token = %q\n}\n", host, token)
}

func presented(text string) func(*testing.T, *doctor.Doctor, func(string) string) {
	return func(t *testing.T, d *doctor.Doctor, _ func(string) string) {
		configured(t, d, strings.ReplaceAll(text, "HOST", d.Host))
	}
}

// mirrorAt says where the mirror is, as --mirror-url does.
func mirrorAt(url string) func(*testing.T, *doctor.Doctor, func(string) string) {
	return func(_ *testing.T, d *doctor.Doctor, _ func(string) string) {
		d.MirrorURL = strings.ReplaceAll(url, "HOST", d.Host)
	}
}

// secret is in every token and URL that must not be shown.
const secret = "s3cr3t"

// Each broken set-up is told by its cause, once, and nothing that comes of it.
func TestBroken(t *testing.T) {
	t.Parallel()
	year := time.Now().AddDate(1, 0, 0)
	tests := map[string]struct {
		setUp
		step, seen, do string
	}{
		"content type": {setUp{breaks: alter(wellKnown, func(_ string, _ *http.Request, a *httptest.ResponseRecorder) {
			a.Header().Set("Content-Type", "binary/octet-stream")
		})}, "discovery", "content type is binary/octet-stream", "Content-Type: application/json"},
		"no content type": {setUp{breaks: alter(wellKnown, func(_ string, _ *http.Request, a *httptest.ResponseRecorder) {
			a.Header()["Content-Type"] = nil
		})}, "discovery", "content type is missing", "Content-Type: application/json"},
		"no slash at the end of providers": {setUp{breaks: edit(wellKnown, `"/v1/providers/"`, `"/v1/providers"`)},
			"discovery: providers.v1", "/v1/providers has no trailing slash", "/v1/providers/"},
		"no slash at the end of modules": {setUp{breaks: edit(wellKnown, `"/v1/modules/"`, `"/v1/modules"`)},
			"discovery: modules.v1", "/v1/modules has no trailing slash", "/v1/modules/"},
		"no slash at the beginning": {setUp{breaks: edit(wellKnown, `"/v1/modules/"`, `"v1/modules/"`)},
			"discovery: modules.v1", "no slash at its beginning", "/v1/modules/"},
		"no discovery": {setUp{breaks: alter(wellKnown, func(_ string, _ *http.Request, a *httptest.ResponseRecorder) { a.Code = http.StatusNotFound })},
			"discovery", "404", "serve the document there"},
		"a page to log in by": {setUp{breaks: edit(wellKnown, "{", "<html>")},
			"discovery", "no JSON", "proxy"},
		"service of another type": {setUp{breaks: editJSON(wellKnown, func(doc map[string]any) { doc["modules.v1"] = map[string]any{} }), asks: func(_ *testing.T, d *doctor.Doctor, _ func(string) string) {
			d.Module = nil
		}}, "discovery: modules.v1", "no string", "/v1/modules/"},
		"login without a token URL": {setUp{breaks: editJSON(wellKnown, func(doc map[string]any) {
			doc["login.v1"] = map[string]any{"client": "cli", "authz": "/authorize"}
		})}, "login.v1", "no token URL", "credentials block"},
		"login with one port": {setUp{breaks: editJSON(wellKnown, func(doc map[string]any) {
			doc["login.v1"] = map[string]any{"client": "cli", "authz": "/authorize", "token": "/token", "ports": []int{10000, 10000}}
		})}, "login.v1", "ports", ""},

		"expired certificate":   {setUp{certificate: issue(time.Now().AddDate(0, 0, -3), true)}, "connection", "certificate has expired, on " + time.Now().AddDate(0, 0, -3).UTC().Format(time.DateOnly), "renew it"},
		"untrusted certificate": {setUp{certificate: issue(year, false)}, "connection", "not trusted here: it is by the authority \"the test's authority\"", "SSL_CERT_FILE"},
		"certificate for another name": {setUp{certificate: issue(year, true, "registry.example.com")},
			"connection", "other names: registry.example.com", "serve a certificate for 127.0.0.1"},

		"host without a dot": {setUp{certificate: issue(year, true, "localhost"), asks: func(_ *testing.T, d *doctor.Doctor, _ func(string) string) {
			d.Host, d.Provider, d.Mirror = strings.Replace(d.Host, "127.0.0.1", "localhost", 1), nil, nil
		}}, "module", "without a dot", "127.0.0.1"},

		"no token": {setUp{closed: true}, "credential", "there is none for 127.0.0.1", "larder token create"},
		"wrong token": {setUp{closed: true, asks: presented(credentials("HOST", secret))},
			"credential", "the token of the credentials block in", "put another in its place"},
		"token for another host": {setUp{closed: true, asks: presented(credentials("127.0.0.1", secret))},
			"credential", "there are tokens for other hosts: 127.0.0.1", "port included"},
		"scope that does not reach": {setUp{closed: true, asks: func(_ *testing.T, d *doctor.Doctor, token func(string) string) {
			d.Token, d.TokenFrom, d.Provider, d.Mirror = token("read:modules/other/*"), "in LARDER_TOKEN", nil, nil
		}}, "module versions", "its scope does not allow", "read:modules/acme/vpc/aws"},

		"clock of this machine": {setUp{asks: func(_ *testing.T, d *doctor.Doctor, _ func(string) string) {
			d.Now = func() time.Time { return time.Now().Add(time.Hour) }
		}}, "clock", "1h0m0s behind this machine's", "NTP"},
		"clock of the registry": {setUp{breaks: alter("/", func(_ string, _ *http.Request, a *httptest.ResponseRecorder) {
			a.Header().Set("Date", time.Now().Add(20*time.Minute).UTC().Format(http.TimeFormat))
		})}, "clock", "ahead of this machine's", "NTP"},

		"presigned URL of a module refused": {setUp{breaks: refuse("AccessDenied"), asks: func(_ *testing.T, d *doctor.Doctor, _ func(string) string) {
			d.Provider, d.Mirror = nil, nil
		}}, "module archive", "403 Forbidden AccessDenied: the presigned URL is refused", "s3:GetObject"},
		"presigned URL of a provider refused": {setUp{breaks: refuse("RequestTimeTooSkewed"), asks: func(_ *testing.T, d *doctor.Doctor, _ func(string) string) {
			d.Module, d.Mirror = nil, nil
		}}, "provider signature", "RequestTimeTooSkewed", "clock of the machine that signs"},
		"presigned URL that has expired": {setUp{breaks: func(host string, next http.Handler) http.Handler {
			return alter("/download", func(_ string, _ *http.Request, a *httptest.ResponseRecorder) {
				if a.Header().Get("X-Terraform-Get") != "" {
					a.Header().Set("X-Terraform-Get", "https://"+host+"/gone.tar.gz?X-Amz-Date=20200101T000000Z&X-Amz-Expires=3600&X-Amz-Signature="+secret+"&signature=no&archive=tar.gz")
				}
			})(host, refuse("AccessDenied")(host, next))
		}, asks: func(_ *testing.T, d *doctor.Doctor, _ func(string) string) { d.Provider, d.Mirror = nil, nil }},
			"module archive", "had expired as it was given", "set the clock"},
		"module whose object is gone": {setUp{breaks: alter(".tar.gz", func(_ string, _ *http.Request, a *httptest.ResponseRecorder) { a.Code = http.StatusNotFound })},
			"module archive", "not in its store", "publish the version again"},
		"module archive changed": {setUp{breaks: spoil(".tar.gz")}, "module archive", "wrong checksum", "who writes to the store"},
		"module archive cut short": {setUp{breaks: alter(".tar.gz", func(_ string, _ *http.Request, a *httptest.ResponseRecorder) {
			a.Header().Set("Content-Length", fmt.Sprint(a.Body.Len()+1))
		})}, "module archive", "it ends after", "try again"},
		"module archive with an encoding and no checksum": {setUp{breaks: func(host string, next http.Handler) http.Handler {
			return located(func(l string) string { return strings.Split(l, "&checksum=")[0] })(host, alter(".tar.gz", func(_ string, _ *http.Request, a *httptest.ResponseRecorder) {
				a.Header().Set("Content-Encoding", "gzip")
			})(host, next))
		}}, "module archive", "Content-Encoding: gzip", "take that header"},
		"module archive with an encoding": {setUp{breaks: alter(".tar.gz", func(_ string, _ *http.Request, a *httptest.ResponseRecorder) {
			a.Header().Set("Content-Encoding", "gzip")
		})}, "module archive", "Content-Encoding: gzip", "take that header"},
		"module without an archive type": {setUp{breaks: alter("/download", func(_ string, _ *http.Request, a *httptest.ResponseRecorder) {
			if a.Header().Get("X-Terraform-Get") != "" {
				a.Header().Set("X-Terraform-Get", "https://store.example.com/object?signature="+secret)
			}
		})}, "module archive", "nothing says that it is an archive", "archive=tar.gz"},
		"module location in the body alone": {setUp{breaks: alter("/download", func(_ string, _ *http.Request, a *httptest.ResponseRecorder) {
			a.Header().Del("X-Terraform-Get")
		})}, "module download", "without X-Terraform-Get", "204"},

		"unsigned provider": {setUp{breaks: editJSON("/download/", func(body map[string]any) {
			body["signing_keys"] = map[string]any{"gpg_public_keys": []any{}}
		})}, "provider signature", "unsigned", "larder key add"},
		"provider signed by another": {setUp{breaks: editJSON("/download/", func(body map[string]any) {
			key, _ := stranger()
			body["signing_keys"] = map[string]any{"gpg_public_keys": []any{map[string]any{"ascii_armor": string(key.Public)}}}
		})}, "provider signature", "wrong signature", "larder key add"},
		"signing key that is null": {setUp{breaks: editJSON("/download/", func(body map[string]any) {
			body["signing_keys"] = map[string]any{"gpg_public_keys": []any{nil}}
		})}, "provider download", "one of its signing keys is null", "publish the version again"},
		"armored signature": {setUp{breaks: alter("SHA256SUMS.sig", func(_ string, _ *http.Request, a *httptest.ResponseRecorder) {
			text := "-----BEGIN PGP SIGNATURE-----\n\n" + base64.StdEncoding.EncodeToString(a.Body.Bytes()) + "\n-----END PGP SIGNATURE-----\n"
			a.Body = bytes.NewBufferString(text)
		})}, "provider signature", "is armored", "gpg --detach-sign"},
		"sums changed":         {setUp{breaks: spoil("SHA256SUMS")}, "provider signature", "wrong signature", "who writes to the store"},
		"provider zip changed": {setUp{breaks: spoil(".zip"), asks: func(_ *testing.T, d *doctor.Doctor, _ func(string) string) { d.Mirror = nil }}, "provider package", "wrong hash: the zip's SHA-256", "who writes to the store"},
		"provider version with a v": {setUp{breaks: edit("/inventory/versions", `"versions":[`, `"versions":[{"version":"v0.9.0"},`)},
			"provider versions", "v0.9.0 is no version", "without a v"},

		"mirror without a slash": {setUp{asks: presented("provider_installation {\n  network_mirror {\n    url = \"https://HOST/v1/mirror\"\n  }\n  direct {}\n}\n")},
			"mirror URL", "has no trailing slash", "/v1/mirror/"},
		"given mirror without a slash": {setUp{asks: mirrorAt("https://HOST/v1/mirror")}, "mirror URL", "the URL that was given, https://127.0.0.1:", "/v1/mirror/"},
		"given mirror without https":   {setUp{asks: mirrorAt("http://HOST/v1/mirror/")}, "mirror URL", "the URL that was given is none with https", "https://127.0.0.1:"},
		"given mirror elsewhere on it": {setUp{asks: mirrorAt("https://HOST/v2/mirror/")}, "mirror versions", "and one with registry.opentofu.org/hashicorp/random at", "/v1/mirror/"},
		"mirror zip changed":           {setUp{breaks: spoil(".zip"), asks: func(_ *testing.T, d *doctor.Doctor, _ func(string) string) { d.Provider = nil }}, "mirror package", "wrong hash", "who writes to the store"},
		"mirror of another content type": {setUp{breaks: alter("/index.json", func(_ string, _ *http.Request, a *httptest.ResponseRecorder) {
			a.Header().Set("Content-Type", "application/octet-stream")
		})}, "mirror versions", "application/octet-stream", "application/json"},
		"mirror without hashes": {setUp{breaks: editJSON("/1.0.0.json", func(body map[string]any) {
			delete(body["archives"].(map[string]any)["linux_amd64"].(map[string]any), "hashes")
		})}, "mirror version", "verify nothing", "larder mirror add"},
		"mirror that lacks it": {setUp{asks: func(_ *testing.T, d *doctor.Doctor, _ func(string) string) {
			other := random
			other.Type = "aws"
			d.Mirror = &other
		}}, "mirror versions", "no version of registry.opentofu.org/hashicorp/aws", "--platform linux_amd64"},

		"module with a page for a body": {setUp{breaks: answer("aws/1.0.0/download", http.StatusOK, "text/html", page)},
			"module download", "which OpenTofu reads, and refuses", "204"},
		"module that OpenTofu looks for elsewhere": {setUp{breaks: answer("aws/1.0.0/download", http.StatusOK, "application/json", `{"location":"/nowhere","use_registry_credentials":true}`)},
			"module archive of OpenTofu", "404", "publish the version again"},
		"module that a store refuses with a credential": {setUp{closed: true, breaks: func(host string, next http.Handler) http.Handler {
			return edit("aws/1.0.0/download", `"archive"`, `"refused"`)(host, answer("aws/1.0.0/refused", http.StatusBadRequest, "application/xml", "<Error/>")(host, direct(host, next)))
		}, asks: func(_ *testing.T, d *doctor.Doctor, token func(string) string) {
			d.Token, d.TokenFrom = token("read:**"), "in LARDER_TOKEN"
		}}, "module archive of OpenTofu", "400 Bad Request to a request with the registry's credential", "without use_registry_credentials"},
		"module archive that is a page":     {setUp{breaks: packed("tar.gz", []byte(page))}, "module archive", "does not unpack as tar.gz", "what stands before"},
		"module zip that is a page":         {setUp{breaks: packed("zip", []byte(page))}, "module archive", "does not unpack as zip", "what stands before"},
		"module zip that is cut":            {setUp{breaks: packed("zip", zipped(t, "main.tf")[:40])}, "module archive", "does not unpack as zip", ""},
		"module zip with nothing":           {setUp{breaks: packed("zip", append([]byte("PK\x05\x06"), make([]byte, 18)...))}, "module archive", "there is nothing in it", ""},
		"module archive that leads out":     {setUp{breaks: packed("zip", zipped(t, "../main.tf"))}, "module archive", "leads out of it", ""},
		"module without the folder":         {setUp{breaks: located(func(l string) string { return strings.Replace(l, ".tar.gz?", ".tar.gz//no/such?", 1) })}, "module archive", "the folder //no/such, which is not in the archive", ""},
		"module with a pattern of a folder": {setUp{breaks: located(func(l string) string { return strings.Replace(l, ".tar.gz?", ".tar.gz//*?", 1) })}, "module archive", "do not expand a pattern", ""},

		"neither service": {setUp{breaks: answer(wellKnown, http.StatusOK, "application/json", `{"modules.v2":"/v1/modules/","Modules.V1":"/v1/modules/"}`)},
			"discovery", "it has Modules.V1, modules.v2, which they do not look for", "modules.v1"},
		"discovery that fails": {setUp{breaks: answer(wellKnown, http.StatusServiceUnavailable, "text/html", page)}, "discovery", "503", ""},
		"discovery that leads to a dead host": {setUp{breaks: redirected(wellKnown, "https://larder-doctor.invalid/")},
			"connection", "it redirects to https://larder-doctor.invalid/.well-known/terraform.json, and there: the name larder-doctor.invalid is in no DNS", ""},
		"discovery that leads away from https": {setUp{breaks: redirected(wellKnown, "http://registry.example.com/")},
			"connection", "it redirects from https to something else", ""},
		"dead proxy": {setUp{asks: func(_ *testing.T, d *doctor.Doctor, _ func(string) string) {
			d.Transport.(*http.Transport).Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: "127.0.0.1:1"})
		}}, "connection", "the proxy 127.0.0.1:1 does not answer: connection refused", "NO_PROXY"},
		"slow registry": {setUp{breaks: hang(wellKnown), asks: func(_ *testing.T, d *doctor.Doctor, _ func(string) string) { d.SetTimes(50*time.Millisecond, 0) }},
			"connection", "no answer in 50ms, after which clients give up", "its log"},
		"module archive that stalls": {setUp{breaks: hang(".tar.gz"), asks: func(_ *testing.T, d *doctor.Doctor, _ func(string) string) {
			d.SetTimes(0, 300*time.Millisecond)
			d.Provider, d.Mirror = nil, nil
		}}, "module archive", "no byte came in 300ms", "waits for"},
		"authorities that are none": {setUp{certificate: issue(year, false), asks: func(t *testing.T, d *doctor.Doctor, _ func(string) string) {
			t.Helper()
			d.Authorities = filepath.Join(t.TempDir(), "ca.pem")
			if err := os.WriteFile(d.Authorities, []byte("junk"), 0o600); err != nil {
				t.Fatal(err)
			}
		}}, "connection", "ca.pem, in which there is no certificate", ""},
		"authorities that are not there": {setUp{certificate: issue(year, false), asks: func(t *testing.T, d *doctor.Doctor, _ func(string) string) {
			t.Helper()
			d.Authorities = filepath.Join(t.TempDir(), "ca.pem")
		}}, "connection", "ca.pem, which is not there", ""},
		"certificate without names": {setUp{certificate: issue(year, true, "")}, "connection", "for no host name", "serve a certificate for 127.0.0.1"},

		"configuration that cannot be read": {setUp{asks: func(_ *testing.T, d *doctor.Doctor, _ func(string) string) {
			d.Config, d.Unread = client.LoadConfig([]string{"TF_CLI_CONFIG_FILE=doctor_test.go"}, "")
		}}, "configuration", "doctor_test.go: line ", "mend the file"},
		"token with a line break": {setUp{asks: presented(credentials("HOST", secret+"\n"))}, "credential", "there is a line break", "mend it"},
		"token with the word Bearer": {setUp{closed: true, asks: presented(credentials("HOST", "Bearer "+secret))},
			"credential", "it begins with the word Bearer", "another"},
		"token in quotes": {setUp{closed: true, asks: presented(credentials("HOST", `"`+secret+`"`))}, "credential", "quotes", "another"},
		"JWT that has expired": {setUp{closed: true, asks: presented(credentials("HOST", "e30."+base64.RawURLEncoding.EncodeToString([]byte(`{"exp":1000000000}`))+"."+secret))},
			"credential", "a JWT that has expired, on 2001-09-09 01:46:40 UTC", "another"},
		"registry that redirects to another": {setUp{closed: true, breaks: redirected("/v1/modules/", "https://example.com:PORT/"), asks: func(_ *testing.T, d *doctor.Doctor, token func(string) string) {
			d.Token, d.TokenFrom, d.Transport = token("read:**"), "in LARDER_TOKEN", elsewhere{d.Transport}
		}}, "credential", "it redirects to example.com:", "let discovery name where it is"},
		"firewall": {setUp{closed: true, breaks: answer("aws/versions", http.StatusForbidden, "text/html", page), asks: func(_ *testing.T, d *doctor.Doctor, token func(string) string) {
			d.Token, d.TokenFrom = token("read:**"), "in LARDER_TOKEN"
		}}, "module versions", "403 Forbidden, not as a registry answers it", "a firewall"},

		"trust signature": {setUp{breaks: editJSON("/download/linux/amd64", func(body map[string]any) {
			body["signing_keys"].(map[string]any)["gpg_public_keys"].([]any)[0].(map[string]any)["trust_signature"] = "x"
		})}, "provider signature", "trust_signature, which Terraform refuses", "leave it empty"},
		"one hash for two platforms": {setUp{breaks: editJSON("/download/linux/amd64", func(body map[string]any) {
			packages := body["packages"].(map[string]any)
			packages["darwin_arm64"] = packages["linux_amd64"]
		})}, "provider download", "darwin_arm64, linux_amd64, over which OpenTofu crashes", ""},
		"provider without a size": {setUp{breaks: editJSON("/download/linux/amd64", func(body map[string]any) {
			delete(body["packages"].(map[string]any)["linux_amd64"].(map[string]any), "package_size")
		})}, "provider package", "or its size", ""},
		"provider of another size": {setUp{breaks: editJSON("/download/linux/amd64", func(body map[string]any) {
			body["packages"].(map[string]any)["linux_amd64"].(map[string]any)["package_size"] = 1
		})}, "provider package", "its packages say 1, which OpenTofu refuses", ""},

		"mirror elsewhere that wants a token": {setUp{closed: true, asks: func(t *testing.T, d *doctor.Doctor, token func(string) string) {
			t.Helper()
			configured(t, d, credentials(d.Host, token("read:**")))
			d.MirrorURL, d.Transport = "https://example.com:"+port(d.Host)+"/v1/mirror/", elsewhere{d.Transport}
		}}, "mirror versions", "the mirror wants a credential, and there is none for example.com:", "ask the operator of example.com:"},
		"mirror without https":             {setUp{asks: presented(installation("http://HOST/v1/mirror/", "*/*", "*/*"))}, "mirror URL", "is none with https", "/v1/mirror/"},
		"mirror of another provider":       {setUp{asks: presented(installation("https://HOST/v1/mirror/", "hashicorp/aws", "*/*"))}, "mirror URL", "find it nowhere", "registry.opentofu.org/hashicorp/random"},
		"two installations":                {setUp{asks: presented(strings.Repeat(installation("https://HOST/v1/mirror/", "*/*", "*/*"), 2))}, "configuration", "OpenTofu reads 2 provider_installation blocks", "in one"},
		"installation that clients refuse": {setUp{asks: presented(`{"provider_installation": {"network_mirror": {"url": "https://HOST/v1/mirror/"}, "direct": {}}}`)}, "configuration", "do not take the provider_installation", "as a list"},
		"mirror at a host that is none":    {setUp{asks: presented(installation("https://larder-doctor.invalid/v1/mirror/", "*/*", "*/*"))}, "mirror versions", "larder-doctor.invalid is in no DNS", ""},
		"mirror at another path":           {setUp{asks: presented(installation("https://HOST/mirror/", "*/*", "*/*"))}, "mirror versions", "there is no mirror at", "/v1/mirror/"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := start(t, test.setUp).examine(t)
			var wrong []doctor.Step
			for _, step := range report.Steps {
				if step.Outcome == doctor.Wrong {
					wrong = append(wrong, step)
				}
			}
			if len(wrong) != 1 || wrong[0].Name != test.step || !strings.Contains(wrong[0].Result, test.seen) || !strings.Contains(wrong[0].Fix, test.do) {
				t.Errorf("want %q: %q; %q\n%s", test.step, test.seen, test.do, text(report))
			}
		})
	}
}

// examine never shows what is secret.
func (p patient) examine(t *testing.T) doctor.Report {
	t.Helper()
	report, err := p.doctor.Examine(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	shown := text(report)
	for _, word := range []string{secret, "signature=", "X-Amz-Signature", p.doctor.Token} {
		if word != "" && strings.Contains(shown, word) {
			t.Errorf("it shows %q:\n%s", word, shown)
		}
	}
	return report
}

func text(r doctor.Report) string {
	var b strings.Builder
	for _, s := range r.Steps {
		fmt.Fprintf(&b, "%-8s %s\n  tried %s\n  seen  %s\n  do    %s\n", s.Outcome, s.Name, s.Request, s.Result, s.Fix)
	}
	return b.String() + r.Configuration
}

// A registry as Larder serves it has nothing wrong with it, open or with a token.
func TestHealthy(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]setUp{
		"open": {},
		"with a token": {closed: true, asks: func(t *testing.T, d *doctor.Doctor, token func(string) string) {
			configured(t, d, credentials(d.Host, token("read:**"))+"provider_installation {\n  network_mirror {\n    url = \"https://"+d.Host+"/v1/mirror/\"\n  }\n}\n")
		}},
		"with a token that was given": {closed: true, asks: func(_ *testing.T, d *doctor.Doctor, token func(string) string) {
			d.Token, d.TokenFrom = token("read:**"), "in LARDER_TOKEN"
		}},
		"with login": {breaks: editJSON(wellKnown, func(doc map[string]any) {
			doc["login.v1"] = map[string]any{"client": "cli", "grant_types": []string{"authz_code"}, "authz": "https://id.example.com/authorize", "token": "https://id.example.com/token", "ports": []int{10000, 10010}, "scopes": []string{"openid"}}
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

// What no client stumbles over today is a warning, and not wrong.
func TestWarnings(t *testing.T) {
	t.Parallel()
	alone := func(_ *testing.T, d *doctor.Doctor, _ func(string) string) {
		d.Module, d.Provider, d.Mirror = nil, nil, nil
	}
	for name, test := range map[string]struct {
		setUp
		step, seen string
	}{
		"certificate that expires soon": {setUp{certificate: issue(time.Now().AddDate(0, 0, 3), true)}, "connection", "its certificate expires on " + time.Now().AddDate(0, 0, 3).UTC().Format(time.DateOnly)},
		"authority that expires soon":   {setUp{certificate: issueBy(time.Now().AddDate(0, 0, 5), time.Now().AddDate(0, 1, 0), true)}, "connection", "the certificate of its authority expires on " + time.Now().AddDate(0, 0, 5).UTC().Format(time.DateOnly)},
		"clocks that drift": {setUp{asks: func(_ *testing.T, d *doctor.Doctor, _ func(string) string) {
			d.Now = func() time.Time { return time.Now().Add(-2 * time.Minute) }
			d.Provider = nil // its key was made just now
		}}, "clock", "ahead of this machine's"},
		"module without a checksum": {setUp{breaks: located(func(location string) string {
			before, _, _ := strings.Cut(location, "&checksum=")
			return before
		})}, "module archive", "no checksum"},
		"URL that holds a short while": {setUp{breaks: func(host string, next http.Handler) http.Handler {
			return alter("/objects/", func(_ string, _ *http.Request, a *httptest.ResponseRecorder) {
				if a.Header().Get("Date") == "" {
					a.Header().Set("Date", time.Now().Add(55*time.Minute).UTC().Format(http.TimeFormat))
				}
			})(host, next)
		}, asks: func(_ *testing.T, d *doctor.Doctor, _ func(string) string) { d.Provider, d.Mirror = nil, nil }},
			"module archive", "alone, and one init may take longer"},
		"platform that is not there": {setUp{asks: func(_ *testing.T, d *doctor.Doctor, _ func(string) string) {
			d.Mirror, d.Platform = nil, registry.Platform{OS: "windows", Arch: "386"}
		}}, "provider versions", "no package for windows_386; the one for linux_amd64"},
		"host block": {setUp{asks: presented("host \"HOST\" {\n  services = {\n    \"modules.v1\" = \"https://HOST/v1/modules/\"\n  }\n}\n")},
			"configuration", "stands in for discovery"},
		"version that is none": {setUp{breaks: edit("/vpc/aws/versions", `"versions":[`, `"versions":[{"version":"latest"},`)}, "module versions", "latest is no version"},
		"module in a folder": {setUp{breaks: func(host string, next http.Handler) http.Handler {
			return located(func(l string) string { return l + "//a/b" })(host, packed("zip", zipped(t, "a/b/main.tf"))(host, next))
		}}, "module archive", "its location has no checksum"},
		"versions that are none": {setUp{breaks: edit("/vpc/aws/versions", `"versions":[`, `"versions":[`+strings.Repeat(`{"version":"x"},`, 1000))},
			"module versions", "x, x, x and 997 more is no version"},
		"firewall":          {setUp{breaks: answer("/v1/", http.StatusForbidden, "text/html", page), asks: alone}, "credential", "may be by a firewall"},
		"page to log in by": {setUp{breaks: answer("/v1/", http.StatusOK, "text/html", page), asks: alone}, "credential", "200 OK does not tell"},
		"404 for all":       {setUp{breaks: answer("/v1/", http.StatusNotFound, "text/html", page), asks: alone}, "credential", "404 Not Found does not tell"},
		"provider with another h1": {setUp{breaks: editJSON("/download/", func(body map[string]any) {
			swapH1(body["packages"].(map[string]any)["linux_amd64"].(map[string]any))
		})}, "provider package", "and not h1:AAAA"},
		"mirror with another h1": {setUp{breaks: editJSON("/1.0.0.json", func(body map[string]any) {
			swapH1(body["archives"].(map[string]any)["linux_amd64"].(map[string]any))
		})}, "mirror package", "and not h1:AAAA"},
		"mirror of another host": {setUp{asks: func(t *testing.T, d *doctor.Doctor, _ func(string) string) {
			t.Helper()
			configured(t, d, installation("https://example.com:"+port(d.Host)+"/v1/mirror/", "*/*", "*/*"))
			d.Transport = elsewhere{d.Transport}
		}}, "mirror URL", "leads to example.com:"},
		"mirror of other providers": {setUp{asks: presented(installation("https://HOST/v1/mirror/", "hashicorp/aws", "hashicorp/aws"))}, "mirror URL", "which clients install by direct"},
		"file that is not there": {setUp{asks: func(_ *testing.T, d *doctor.Doctor, _ func(string) string) {
			d.Config, _ = client.LoadConfig([]string{"TF_CLI_CONFIG_FILE=/no/such/file"}, "")
		}}, "configuration", "TF_CLI_CONFIG_FILE names /no/such/file, which is not there"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := start(t, test.setUp).examine(t)
			found := 0
			for _, s := range report.Steps {
				if s.Outcome == doctor.Warning && s.Name == test.step && strings.Contains(s.Result, test.seen) && s.Fix != "" {
					found++
				}
			}
			if found != 1 || report.Count(doctor.Wrong) > 0 || report.Count(doctor.Warning) != 1 {
				t.Errorf("want %q: %q\n%s", test.step, test.seen, text(report))
			}
		})
	}
}

// A mirror on another host is asked without the registry's credential, and is the one of the configuration.
func TestMirrorElsewhere(t *testing.T) {
	t.Parallel()
	asked, sent := 0, 0
	var mu sync.Mutex
	other := start(t, setUp{breaks: func(_ string, next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			asked++
			if r.Header.Get("Authorization") != "" {
				sent++
			}
			mu.Unlock()
			next.ServeHTTP(w, r)
		})
	}})
	report := start(t, setUp{closed: true, asks: func(_ *testing.T, d *doctor.Doctor, token func(string) string) {
		d.Token, d.TokenFrom, d.MirrorURL = token("read:**"), "in LARDER_TOKEN", "https://"+other.host+"/v1/mirror/"
	}}).examine(t)
	if asked == 0 || sent > 0 || report.Count(doctor.Wrong)+report.Count(doctor.Warning) > 0 || !strings.Contains(report.Configuration, `"https://`+other.host+`/v1/mirror/"`) {
		t.Errorf("asked %d times, with a credential %d times\n%s", asked, sent, text(report))
	}
}

// slowly answers by a handler, after some time for each document of discovery, and with no network.
type slowly struct {
	next  http.Handler
	after time.Duration
	tls   *tls.ConnectionState
}

func (s slowly) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.Contains(r.URL.Path, wellKnown) {
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

// An answer that the least patient clients do not wait for is told of; one that none waits for is none.
func TestSlow(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/terraform.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"modules.v1": "/v1/modules/", "providers.v1": "/v1/providers/"}`)
	})
	for after, want := range map[time.Duration]struct {
		outcome doctor.Outcome
		seen    string
	}{
		4 * time.Second:  {doctor.OK, ""},
		6 * time.Second:  {doctor.Warning, "the answer took 6s, and some clients wait for 5s"},
		11 * time.Second: {doctor.Wrong, "no answer in 10s, after which clients give up"},
	} {
		t.Run(after.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				state := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{NotAfter: time.Now().AddDate(1, 0, 0)}}}
				report, err := doctor.Doctor{Host: "registry.example.com", Agent: "larder/test", Transport: slowly{mux, after, state}}.Examine(t.Context())
				if err != nil || len(report.Steps) < 2 || report.Steps[1].Name != "connection" || report.Steps[1].Outcome != want.outcome || !strings.Contains(report.Steps[1].Result, want.seen) {
					t.Errorf("%v\n%s", err, text(report))
				}
			})
		})
	}
}

// What clients take is not told of.
func TestFine(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]setUp{
		"answer out of a cache": {breaks: alter(wellKnown, func(_ string, _ *http.Request, a *httptest.ResponseRecorder) {
			a.Header().Set("Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))
			a.Header().Set("Age", "3600")
		})},
		"files that are compressed on their way": {breaks: compressed},
		"module of git":                          {breaks: located(func(string) string { return "git@github.com:acme/vpc.git?ref=v1" })},
		"module of a short form":                 {breaks: located(func(string) string { return "github.com/acme/vpc?ref=v1" })},
		"version of four numbers":                {breaks: edit("/vpc/aws/versions", `"versions":[`, `"versions":[{"version":"0.1.2.3"},`)},
		"module by the body":                     {breaks: answer("aws/1.0.0/download", http.StatusOK, "application/json", "{}")},
		"module that OpenTofu fetches by itself": {closed: true, breaks: direct, asks: func(_ *testing.T, d *doctor.Doctor, token func(string) string) {
			d.Token, d.TokenFrom = token("read:**"), "in LARDER_TOKEN"
		}},
		"login without ports": {breaks: editJSON(wellKnown, func(doc map[string]any) {
			doc["login.v1"] = map[string]any{"client": "cli", "authz": "/authorize", "token": "/token", "ports": nil}
		})},
		"mirror elsewhere with its own token": {closed: true, asks: func(t *testing.T, d *doctor.Doctor, token func(string) string) {
			t.Helper()
			configured(t, d, credentials(d.Host, token("read:modules/**"))+credentials("example.com:"+port(d.Host), token("read:mirror/**")))
			d.MirrorURL, d.Transport, d.Provider = "https://example.com:"+port(d.Host)+"/v1/mirror/", elsewhere{d.Transport}, nil
		}},
		"token for something else": {closed: true, asks: func(_ *testing.T, d *doctor.Doctor, token func(string) string) {
			d.Token, d.TokenFrom = token("read:modules/other/*"), "in LARDER_TOKEN"
			d.Module, d.Provider, d.Mirror = nil, nil, nil
		}},
		"mirror beside another": {asks: presented("provider_installation {\n  network_mirror {\n    url = \"https://larder-doctor.invalid/\"\n    include = [\"hashicorp/aws\"]\n  }\n  network_mirror {\n    url = \"https://HOST/v1/mirror/\"\n  }\n}\n")},
		"mirror alone": {breaks: func(host string, next http.Handler) http.Handler {
			return answer("/v1/modules/", http.StatusNotFound, "text/html", page)(host, answer(wellKnown, http.StatusNotFound, "text/html", page)(host, next))
		}, asks: func(_ *testing.T, d *doctor.Doctor, _ func(string) string) { d.Module, d.Provider = nil, nil }},
		"registry that redirects to another port": {closed: true, breaks: func(host string, next http.Handler) http.Handler {
			other := httptest.NewTLSServer(next)
			t.Cleanup(other.Close)
			return redirected("/v1/modules/", other.URL+"/")(host, next)
		}, asks: func(_ *testing.T, d *doctor.Doctor, token func(string) string) {
			d.Token, d.TokenFrom = token("read:**"), "in LARDER_TOKEN"
		}},
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

// What the configuration lacks is told, and nothing that it has, or that would do harm there.
func TestConfiguration(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		setUp
		has, lacks string
	}{
		"token":           {setUp{closed: true}, "credentials \"", "provider_installation"},
		"mirror":          {setUp{}, `include = ["registry.opentofu.org/hashicorp/random"]`, "credentials"},
		"in place":        {setUp{asks: presented(installation("https://HOST/v1/mirror", "*/*", "*/*"))}, "# In place of", "credentials"},
		"at another path": {setUp{asks: presented(installation("https://HOST/mirror/", "*/*", "*/*"))}, `/v1/mirror/"`, "credentials"},
		"elsewhere": {setUp{closed: true, asks: func(_ *testing.T, d *doctor.Doctor, _ func(string) string) {
			d.Config, _ = client.LoadConfig([]string{"TF_CLI_CONFIG_FILE=/no/such/file"}, "")
			d.Authorities = "/ca.pem"
		}}, "# /no/such/file, which TF_CLI_CONFIG_FILE names\n# Where clients run, SSL_CERT_FILE", "tofurc"},
		"dead host": {setUp{asks: func(_ *testing.T, d *doctor.Doctor, _ func(string) string) { d.Host = "larder-doctor.invalid" }}, "", "#"},
		"no mirror": {setUp{breaks: answer("/v1/mirror/", http.StatusNotFound, "text/html", page)}, "", "#"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := start(t, test.setUp).examine(t)
			if !strings.Contains(report.Configuration, test.has) || strings.Contains(report.Configuration, test.lacks) {
				t.Errorf("want %q and not %q:\n%s", test.has, test.lacks, text(report))
			}
		})
	}
}

// One mirror in both CLIs' files is looked at once, and tokens that differ there matter only where they are sent.
func TestOneMirror(t *testing.T) {
	t.Parallel()
	report := start(t, setUp{asks: func(t *testing.T, d *doctor.Doctor, token func(string) string) {
		t.Helper()
		d.Token, d.TokenFrom = token("read:**"), "in LARDER_TOKEN"
		home := t.TempDir()
		for _, name := range []string{".tofurc", ".terraformrc"} {
			if err := os.WriteFile(filepath.Join(home, name), []byte(credentials(d.Host, name)+installation("https://"+d.Host+"/v1/mirror/", "*/*", "*/*")), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var err error
		if d.Config, err = client.LoadConfig(nil, home); err != nil {
			t.Fatal(err)
		}
	}}).examine(t)
	looked := 0
	for _, s := range report.Steps {
		if s.Name == "mirror versions" {
			looked++
		}
	}
	if looked != 1 || report.Count(doctor.Wrong)+report.Count(doctor.Warning) > 0 {
		t.Errorf("%s", text(report))
	}
}

// A server that quotes what it was sent does not bring a credential into the report: not where it is escaped, or cut.
func TestEcho(t *testing.T) {
	t.Parallel()
	for _, token := range []string{secret, secret + `"\` + strings.Repeat(secret, 60)} {
		for _, before := range []int{0, 275} {
			start(t, setUp{
				breaks: alter("/v1/mirror/", func(_ string, r *http.Request, a *httptest.ResponseRecorder) {
					a.Header().Set("Content-Type", strings.Repeat("x", before)+strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
				}),
				asks: func(_ *testing.T, d *doctor.Doctor, _ func(string) string) {
					d.Token, d.TokenFrom = token, "in LARDER_TOKEN"
				},
			}).examine(t)
		}
	}
}

// Steps are told as they are found, and the end of it all is no finding.
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
	if !errors.Is(err, context.Canceled) || len(found) < 5 || !slices.Equal(found, report.Steps) || report.Count(doctor.Wrong) > 0 {
		t.Errorf("%v\n%+v\n%s", err, found, text(report))
	}
}

// What is not named is left out, and said to be.
func TestNothingNamed(t *testing.T) {
	t.Parallel()
	report := start(t, setUp{asks: func(_ *testing.T, d *doctor.Doctor, _ func(string) string) {
		d.Module, d.Provider, d.Mirror = nil, nil, nil
	}}).examine(t)
	skipped := map[string]bool{}
	for _, s := range report.Steps {
		skipped[s.Name] = s.Outcome == doctor.Skipped
	}
	if report.Count(doctor.Wrong) > 0 || !skipped["module"] || !skipped["provider"] || !skipped["mirror"] {
		t.Errorf("%s", text(report))
	}
}

// A credential goes to its registry alone: not to where files are, and not to another host's mirror.
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
		asks: func(_ *testing.T, d *doctor.Doctor, token func(string) string) {
			d.Token, d.TokenFrom = token("read:**"), "in LARDER_TOKEN"
		}}).examine(t)
	if sent[true] > 0 || sent[false] == 0 || report.Count(doctor.Wrong) > 0 {
		t.Errorf("sent %v\n%s", sent, text(report))
	}
}

// What a discovery that fails would have told is left out for that, and not taken for missing.
func TestLost(t *testing.T) {
	t.Parallel()
	report := start(t, setUp{breaks: answer(wellKnown, http.StatusServiceUnavailable, "text/html", page)}).examine(t)
	lost := 0
	for _, s := range report.Steps {
		if s.Outcome == doctor.Skipped && s.Result == "discovery does not say where it is" {
			lost++
		}
	}
	if lost != 4 { // logging in, the credential, the module and the provider
		t.Errorf("%s", text(report))
	}
}

// Without https a credential goes nowhere, and that is said to be why it is missed.
func TestNotOverHTTP(t *testing.T) {
	t.Parallel()
	var sent atomic.Bool
	report := start(t, setUp{closed: true, breaks: func(host string, next http.Handler) http.Handler {
		plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "" {
				sent.Store(true)
			}
			next.ServeHTTP(w, r)
		}))
		t.Cleanup(plain.Close)
		return edit(wellKnown, `"/v1/modules/"`, `"`+plain.URL+`/v1/modules/"`)(host, next)
	}, asks: func(_ *testing.T, d *doctor.Doctor, token func(string) string) {
		d.Token, d.TokenFrom = token("read:**"), "in LARDER_TOKEN"
	}}).examine(t)
	if sent.Load() || report.Count(doctor.Wrong) != 2 || !strings.Contains(text(report), "the token in LARDER_TOKEN is not sent there, since there is no https") {
		t.Errorf("%s", text(report))
	}
}

// A host that is none is the caller's mistake; one that does not answer is a finding.
func TestHosts(t *testing.T) {
	t.Parallel()
	if _, err := (doctor.Doctor{Host: "https://registry.example.com"}).Examine(t.Context()); err == nil {
		t.Error("a URL is taken for a host")
	}
	const host = "127.0.0.1:1" // a port that no other test is given meanwhile
	for host, want := range map[string]string{host: "connection refused", "larder-doctor.invalid": "in no DNS"} {
		report, err := doctor.Doctor{Host: host}.Examine(t.Context())
		at := slices.IndexFunc(report.Steps, func(s doctor.Step) bool { return s.Name == "connection" })
		if err != nil || at < 0 || report.Steps[at].Outcome != doctor.Wrong || !strings.Contains(report.Steps[at].Result, want) {
			t.Errorf("%s: %v\n%s", host, err, text(report))
		}
	}
}
