package doctor_test

import (
	"archive/zip"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/larder-registry/larder/pkg/access"
	"github.com/larder-registry/larder/pkg/archive"
	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/doctor"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/publish"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/rehearsal"
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
	signer   = sync.OnceValues(func() (rehearsal.SigningKey, error) { return rehearsal.NewSigningKey("Ed25519", 0) })
	stranger = sync.OnceValues(func() (rehearsal.SigningKey, error) { return rehearsal.NewSigningKey("Ed25519", 0) })
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
	data, err := local.Open(t.Context(), t.TempDir())
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
			if err := data.Catalog.AddToken(t.Context(), digest, registry.Token{ID: digest[:12], Name: "test", Scopes: []string{scope}, CreatedAt: time.Now()}); err != nil {
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
	_, err := p.Module(t.Context(), publish.Module{Dir: module, Address: vpc, Version: v})
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
	_, err = p.Provider(t.Context(), publish.Provider{Dir: release, Address: inventory, Protocols: []string{"6.0"}})
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
	return func(t *testing.T) (tls.Certificate, *x509.CertPool) {
		t.Helper()
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "the test's authority"}, NotBefore: time.Now().AddDate(-2, 0, 0), NotAfter: time.Now().AddDate(1, 0, 0), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
		leaf := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: time.Now().AddDate(-1, 0, 0), NotAfter: notAfter, DNSNames: names, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
		if len(names) == 0 {
			leaf.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
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
func configured(t *testing.T, d *doctor.Doctor, text string, environ ...string) {
	t.Helper()
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, ".tofurc"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := client.LoadConfig(environ, home)
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
		}}, "module versions", "its scope does not reach", "read:modules/acme/vpc/aws"},

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
		"provider with a wrong h1": {setUp{breaks: editJSON("/download/", func(body map[string]any) {
			for _, p := range body["packages"].(map[string]any) {
				hashes := p.(map[string]any)["hashes"].([]any)
				for i, h := range hashes {
					if strings.HasPrefix(h.(string), "h1:") {
						hashes[i] = "h1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
					}
				}
			}
		})}, "provider package", "wrong hash: the zip's files", "new version"},
		"provider version with a v": {setUp{breaks: edit("/inventory/versions", `"versions":[`, `"versions":[{"version":"v0.9.0"},`)},
			"provider versions", "v0.9.0 is no version", "without a v"},

		"mirror without a slash": {setUp{asks: presented("provider_installation {\n  network_mirror {\n    url = \"https://HOST/v1/mirror\"\n  }\n  direct {}\n}\n")},
			"mirror URL", "has no trailing slash", "/v1/mirror/"},
		"given mirror without a slash": {setUp{asks: mirrorAt("https://HOST/v1/mirror")}, "mirror URL", "the URL that was given, https://127.0.0.1:", "/v1/mirror/"},
		"given mirror without https":   {setUp{asks: mirrorAt("http://HOST/v1/mirror/")}, "mirror URL", "the URL that was given is none with https", "https://127.0.0.1:"},
		"given mirror elsewhere on it": {setUp{asks: mirrorAt("https://HOST/v2/mirror/")}, "mirror versions", "has no version of registry.opentofu.org/hashicorp/random", "larder mirror add"},
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
		}}, "mirror versions", "", "larder mirror add"},
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
			if len(wrong) != 1 || wrong[0].Name != test.step || !strings.Contains(wrong[0].Seen, test.seen) || !strings.Contains(wrong[0].Do, test.do) {
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
		fmt.Fprintf(&b, "%-8s %s\n  tried %s\n  seen  %s\n  do    %s\n", s.Outcome, s.Name, s.Tried, s.Seen, s.Do)
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
			for _, want := range []string{"credentials \"" + report.Host + "\"", "https://" + report.Host + `/v1/mirror/"`, `"registry.opentofu.org/*/*"`} {
				if !strings.Contains(report.Configuration, want) {
					t.Errorf("the configuration lacks %s:\n%s", want, report.Configuration)
				}
			}
		})
	}
}

// What no client stumbles over today is a warning, and not wrong.
func TestWarnings(t *testing.T) {
	t.Parallel()
	located := func(change func(location string) string) func(string, http.Handler) http.Handler {
		return alter("/download", func(_ string, _ *http.Request, a *httptest.ResponseRecorder) {
			if location := a.Header().Get("X-Terraform-Get"); location != "" {
				a.Header().Set("X-Terraform-Get", change(location))
			}
		})
	}
	for name, test := range map[string]struct {
		setUp
		step, seen string
	}{
		"certificate that ends soon": {setUp{certificate: issue(time.Now().AddDate(0, 0, 3), true)}, "connection", "ends soon"},
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
		"trust signature": {setUp{breaks: editJSON("/download/", func(body map[string]any) {
			for _, key := range body["signing_keys"].(map[string]any)["gpg_public_keys"].([]any) {
				key.(map[string]any)["trust_signature"] = "-----BEGIN PGP SIGNATURE-----"
			}
		})}, "provider signature", "a key has a trust_signature"},
		"version that is none": {setUp{breaks: edit("/vpc/aws/versions", `"versions":[`, `"versions":[{"version":"latest"},`)}, "module versions", "latest is no version"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report := start(t, test.setUp).examine(t)
			found := 0
			for _, s := range report.Steps {
				if s.Outcome == doctor.Warning && s.Name == test.step && strings.Contains(s.Seen, test.seen) && s.Do != "" {
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
		11 * time.Second: {doctor.Wrong, "no answer in ten seconds"},
	} {
		t.Run(after.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				state := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{NotAfter: time.Now().AddDate(1, 0, 0)}}}
				report, err := doctor.Doctor{Host: "registry.example.com", Agent: "larder/test", Transport: slowly{mux, after, state}}.Examine(t.Context())
				if err != nil || len(report.Steps) == 0 || report.Steps[0].Name != "connection" || report.Steps[0].Outcome != want.outcome || !strings.Contains(report.Steps[0].Seen, want.seen) {
					t.Errorf("%v\n%s", err, text(report))
				}
			})
		})
	}
}

// A server that quotes what it was sent does not bring a credential into the report.
func TestEcho(t *testing.T) {
	t.Parallel()
	start(t, setUp{
		breaks: alter("/v1/mirror/", func(_ string, r *http.Request, a *httptest.ResponseRecorder) {
			a.Header().Set("Content-Type", "text/"+strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		}),
		asks: func(_ *testing.T, d *doctor.Doctor, _ func(string) string) {
			d.Token, d.TokenFrom = secret, "in LARDER_TOKEN"
		},
	}).examine(t)
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

// A host that is none is the caller's mistake; one that does not answer is a finding.
func TestHosts(t *testing.T) {
	t.Parallel()
	if _, err := (doctor.Doctor{Host: "https://registry.example.com"}).Examine(t.Context()); err == nil {
		t.Error("a URL is taken for a host")
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	host := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]string{host: "connection refused", "larder-doctor.invalid": "no"} {
		report, err := doctor.Doctor{Host: host}.Examine(t.Context())
		if err != nil || len(report.Steps) == 0 || report.Steps[0].Outcome != doctor.Wrong || !strings.Contains(report.Steps[0].Seen, want) {
			t.Errorf("%s: %v\n%s", host, err, text(report))
		}
	}
}
