package functions_test

import (
	"archive/zip"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/awstest"
	"github.com/larder-registry/larder/internal/testkit/keys"
	"github.com/larder-registry/larder/internal/testkit/lambda"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/dynamodb"
	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/content/signing"
	"github.com/larder-registry/larder/pkg/publish/publishclient"
	"github.com/larder-registry/larder/pkg/publish/rules"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/settings"
)

// publishAPI publishes through a gateway of its own to a function that serves the
// publish API.
func (d deployed) publishAPI(t *testing.T, f *lambda.Function,
	transport func(http.RoundTripper) http.RoundTripper) *publishclient.Publisher {
	t.Helper()
	functions := maps.Clone(d.functions)
	functions["publish"] = f
	gateway := lambda.StartGateway(routes(functions))
	t.Cleanup(gateway.Close)
	file := filepath.Join(t.TempDir(), "tofurc")
	if err := os.WriteFile(file, fmt.Appendf(nil, "credentials %q {\n  token = %q\n}\n", gateway.Host, d.token),
		0o600); err != nil {
		t.Fatal(err)
	}
	config, err := client.LoadConfig([]string{"TF_CLI_CONFIG_FILE=" + file}, "")
	if err != nil {
		t.Fatal(err)
	}
	c := client.New(config, "larder/test", transport(gateway.Client().Transport))
	c.Wait = time.Millisecond
	p, err := publishclient.Open(t.Context(), c, gateway.Host)
	if err != nil {
		t.Fatal(err)
	}
	p.Interval = 5 * time.Millisecond
	return p
}

func direct(t http.RoundTripper) http.RoundTripper { return t }

// writeRelease writes a signed release of the provider note. sizes has the size of
// each platform's program, which consists of random bytes.
func writeRelease(t *testing.T, key keys.SigningKey, version string, sizes map[string]int64) string {
	t.Helper()
	return writeReleaseOf(t, key, "note", version, sizes)
}

func writeReleaseOf(t *testing.T, key keys.SigningKey, name, version string, sizes map[string]int64) string {
	t.Helper()
	program := "terraform-provider-" + name + "_"
	dir := t.TempDir()
	var sums strings.Builder
	for platform, size := range sizes {
		name := program + version + "_" + platform + ".zip"
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		hash := sha256.New()
		z := zip.NewWriter(io.MultiWriter(f, hash))
		for _, file := range []struct {
			name    string
			content io.Reader
		}{{"LICENSE", strings.NewReader("none")}, {program + "v1.0.0", io.LimitReader(rand.Reader, size)}} {
			header := &zip.FileHeader{Name: file.name, Method: zip.Store}
			header.SetMode(0o755)
			w, err := z.CreateHeader(header)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(w, file.content); err != nil {
				t.Fatal(err)
			}
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&sums, "%s  %s\n", hex.EncodeToString(hash.Sum(nil)), name)
	}
	finishRelease(t, key, dir, program, version, sums.String())
	return dir
}

// finishRelease adds the remaining files of a release to its zips.
func finishRelease(t *testing.T, key keys.SigningKey, dir, prefix, version, sums string) {
	t.Helper()
	manifest := `{"version": 1, "metadata": {"protocol_versions": ["6.0"]}}`
	sum := sha256.Sum256([]byte(manifest))
	for name, content := range map[string]string{
		prefix + version + "_manifest.json": manifest,
		prefix + version + "_SHA256SUMS":    sums + hex.EncodeToString(sum[:]) + "  " + prefix + version + "_manifest.json\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := key.SignRelease(dir); err != nil {
		t.Fatal(err)
	}
}

// signer creates a key and adds it to the namespace acme.
func (d deployed) signer(t testing.TB) keys.SigningKey {
	t.Helper()
	key, err := keys.NewSigningKey("Ed25519", 0)
	if err != nil {
		t.Fatal(err)
	}
	public, err := signing.ParseKey(key.Public, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.catalog.AddSigningKey(t.Context(), "acme", public); err != nil {
		t.Fatal(err)
	}
	return key
}

// killer is a proxy in front of an emulator. It kills a function at its nth
// change, before or after the change is made.
type killer struct {
	mu      sync.Mutex
	f       *lambda.Function
	at      int
	after   bool
	changes int
	killed  bool
}

// proxyTo returns a proxy to a URL. It does not change the signed host.
func proxyTo(t *testing.T, target string) http.Handler {
	t.Helper()
	to, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	return &httputil.ReverseProxy{ErrorLog: log.New(io.Discard, "", 0), Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = r.In.Host // it is signed
	}}
}

// watch starts a proxy to a URL.
func (k *killer) watch(t *testing.T, target string) string {
	t.Helper()
	proxy := proxyTo(t, target)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kill := k.kills(r)
		if kill && !k.after {
			k.f.Close()
			return
		}
		if kill {
			w = httptest.NewRecorder() // the client receives no response
		}
		proxy.ServeHTTP(w, r)
		if kill {
			k.f.Close()
		}
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// kills counts the changes and the first reads of an archive, and reports whether
// a request is the one at which the function is killed. Changes are requests of
// the function that are neither reads nor uploads by a presigned URL.
func (k *killer) kills(r *http.Request) bool {
	change := strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".TransactWriteItems") ||
		r.Header.Get("Authorization") != "" &&
			(r.URL.Query().Has("tagging") && r.Method == http.MethodPut || r.Header.Get("Range") != "")
	k.mu.Lock()
	defer k.mu.Unlock()
	if !change || k.f == nil {
		return false
	}
	k.changes++
	if k.changes == k.at {
		k.killed = true
	}
	return k.changes == k.at
}

// uploading stores which upload a client's requests belong to.
type uploading struct {
	http.RoundTripper
	mu sync.Mutex
	id string
}

func (u *uploading) RoundTrip(r *http.Request) (*http.Response, error) {
	if _, after, found := strings.Cut(r.URL.Path, "/uploads/"); found {
		u.mu.Lock()
		u.id, _, _ = strings.Cut(after, "/")
		u.mu.Unlock()
	}
	return u.RoundTripper.RoundTrip(r)
}

// giveUp expires the claim to inspect an upload. Otherwise it would expire after
// some seconds.
func (d deployed) giveUp(t *testing.T, id string) {
	t.Helper()
	if id == "" {
		return
	}
	table := dynamodb.New(awstest.Config(d.dynamo.URL), "larder")
	item, err := table.Get(t.Context(), catalog.Key{Partition: "uploads/" + id, Sort: "upload"})
	if err != nil {
		t.Fatal(err)
	}
	var u registry.Upload
	if err := json.Unmarshal(item.Data, &u); err != nil {
		t.Fatal(err)
	}
	if u.ClaimedUntil.IsZero() {
		return
	}
	u.ClaimedUntil = time.Now()
	change := catalog.Change{Key: item.Key, Revision: item.Revision, Expires: item.Expires}
	if change.Data, err = json.Marshal(u); err != nil {
		t.Fatal(err)
	}
	if err := table.Write(t.Context(), change); err != nil {
		t.Fatal(err)
	}
}

// begin watches a function.
func (k *killer) begin(f *lambda.Function, at int, after bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.f, k.at, k.after, k.changes, k.killed = f, at, after, 0, false
}

// The function that inspects and commits may be killed at any change. Nobody then
// sees half a version, and publishing again finishes.
func TestKilledPublish(t *testing.T) {
	t.Parallel()
	k := &killer{}
	d := deploy(t)
	key := d.signer(t)
	env := maps.Clone(d.env)
	env["AWS_ENDPOINT_URL_DYNAMODB"], env["AWS_ENDPOINT_URL_S3"] = k.watch(t,
		d.env["AWS_ENDPOINT_URL_DYNAMODB"]), k.watch(t, d.env["AWS_ENDPOINT_URL_S3"])
	limits := settings.DefaultPublishLimits
	limits.Uploads = settings.MaxPublishLimits.Uploads // killed uploads count for hours
	maps.Copy(env, limits.Environment())
	address := registry.Provider{Namespace: "acme", Type: "note"}
	var before, visible int
	for at := 1; ; at++ {
		killed := false
		for _, after := range []bool{false, true} {
			text := fmt.Sprintf("1.%d.0", at)
			if after {
				text = fmt.Sprintf("1.%d.1", at)
			}
			version, err := registry.ParseVersion(text)
			if err != nil {
				t.Fatal(err)
			}
			release, err := rules.Preparer{}.Provider(t.Context(),
				rules.Provider{Dir: writeRelease(t, key, text, map[string]int64{"linux_amd64": 1000}), Address: address})
			if err != nil {
				t.Fatal(err)
			}
			f := start(t, "publish", env)
			requests := &uploading{}
			p := d.publishAPI(t, f, func(next http.RoundTripper) http.RoundTripper {
				requests.RoundTripper = next
				return requests
			})
			k.begin(f, at, after)
			_, err = p.Provider(t.Context(), release)
			k.mu.Lock()
			died := k.killed
			k.mu.Unlock()
			k.begin(nil, 0, false)
			if !died {
				if err != nil {
					t.Errorf("%s: %v", text, err)
				}
				break
			}
			killed = true
			if !errors.Is(err, registry.ErrUnavailable) {
				t.Errorf("killed at change %d, after it: %t: %v", at, after, err)
			}
			stored, err := d.catalog.Providers.Get(t.Context(), address, version)
			there := err == nil
			if !there && !errors.Is(err, registry.ErrNotFound) {
				t.Fatal(err)
			}
			if there {
				visible++
			} else {
				before++
			}
			d.giveUp(t, requests.id)
			again, err := d.publishAPI(t, start(t, "publish", env), direct).Provider(t.Context(), release)
			if err != nil || again.Unchanged != there || there && !cmp.Equal(again.Record, stored) {
				t.Errorf("killed at change %d, after it: %t, and published again: %+v, %v", at, after, again, err)
			}
		}
		if !killed {
			break
		}
	}
	// The version is inspected before it is visible. The last write makes it visible
	// and ends the upload.
	if before < 10 || visible != 1 {
		t.Errorf("it ended %d times before the version was visible, and %d times behind that", before, visible)
	}
}
