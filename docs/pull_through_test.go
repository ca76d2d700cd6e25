package docs_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/builds"
	"github.com/larder-registry/larder/internal/testkit/clients"
	"github.com/larder-registry/larder/internal/testkit/programs"
)

// mirrorPage is the page whose commands TestPullThrough runs.
const mirrorPage = "docs/mirror.md"

// The commands of the page work as they are for a team that has only
// registry.opentofu.org so far. A fake is the origin, so the policy names its
// network and its URL. Later, the mirror is enough: for the signature of the author
// and the hashes of all platforms too.
func TestPullThrough(t *testing.T) {
	t.Parallel()
	dir := installed(t)
	all := pages(t)
	page := all[slices.IndexFunc(all, func(p page) bool { return p.path == mirrorPage })]
	skip := notRun(t)
	for _, mode := range []string{"open", "closed"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			origin := newFakeOrigin(t)
			address, err := programs.ReserveAddress(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			script := "export SSL_CERT_DIR='" + origin.authorities + "'\n" +
				page.script(t, address, skip, make(map[string]bool)) +
				"address=registry.opentofu.org/hashicorp/random\n" +
				"until larder list $address --quiet | grep -qx 3.6.0; do sleep 0.1; done\n" +
				"touch '" + origin.down + "'\n" +
				"rm -r app/.terraform\ntofu -chdir=app init\nrm -r app/.terraform*\n" +
				"tofu -chdir=app init | grep 'signed, key ID'\n" +
				"[ $(grep -c zh: app/.terraform.lock.hcl) = 2 ]\n"
			rule := `pull = "` + mode + `"
  networks = ["127.0.0.0/8"]
  upstream = "` + origin.url + `"`
			text := strings.NewReplacer(`pull        = "open"`, rule, `"linux_amd64"`, `"`+fakePlatforms[0]+`"`,
				`"darwin_arm64"`, `"`+fakePlatforms[1]+`"`).Replace(script)
			run(t, preamble+text, dir)
		})
	}
}

// fakePlatforms are this machine's platform and another one.
var fakePlatforms = []string{clients.Platform(), "plan9_386"}

// fakeOrigin is a fake of registry.opentofu.org. It has one version of the provider
// hashicorp/random, without a publication time, as there.
type fakeOrigin struct {
	url string
	// authorities is a folder with the certificate of the origin.
	authorities string
	// down is the name of a file. While it exists, the origin fails.
	down string
}

func newFakeOrigin(t *testing.T) fakeOrigin {
	t.Helper()
	mux := http.NewServeMux()
	o := fakeOrigin{authorities: t.TempDir(), down: filepath.Join(t.TempDir(), "down")}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := os.Stat(o.down); err == nil {
			http.Error(w, "down", http.StatusServiceUnavailable)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	o.url = server.URL
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(filepath.Join(o.authorities, "origin.pem"), authority, 0o600); err != nil {
		t.Fatal(err)
	}
	o.release(t, mux)
	return o
}

// release adds the documents and the files of a release.
func (o fakeOrigin) release(t *testing.T, mux *http.ServeMux) {
	t.Helper()
	const version = "3.6.0"
	key, err := builds.Signer()
	if err != nil {
		t.Fatal(err)
	}
	release := builds.Release{Dir: t.TempDir(), Name: "terraform-provider-random_" + version}
	files := o.url + "/files/" + release.Name
	const base = "/v1/providers/hashicorp/random/"
	var platforms []any
	for _, platform := range fakePlatforms {
		zip := "_" + platform + ".zip"
		release.Zip(t, release.Name+zip, map[string]string{"terraform-provider-random_v" + version: "for " + platform})
		content, err := os.ReadFile(filepath.Join(release.Dir, release.Name+zip))
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(content)
		goos, arch, _ := strings.Cut(platform, "_")
		platforms = append(platforms, map[string]any{"os": goos, "arch": arch})
		sends(mux, base+version+"/download/"+goos+"/"+arch, map[string]any{
			"protocols": []string{"5.0"}, "os": goos, "arch": arch, "filename": release.Name + zip,
			"download_url": files + zip, "shasum": hex.EncodeToString(sum[:]),
			"shasums_url": files + "_SHA256SUMS", "shasums_signature_url": files + "_SHA256SUMS.sig",
			"signing_keys": map[string]any{"gpg_public_keys": []any{map[string]any{"ascii_armor": string(key.Public)}}},
		})
	}
	release.Sign(t)
	mux.Handle("GET /files/", http.StripPrefix("/files/", http.FileServer(http.Dir(release.Dir))))
	sends(mux, "/.well-known/terraform.json", map[string]any{"providers.v1": "/v1/providers/"})
	sends(mux, base+"versions", map[string]any{"versions": []any{
		map[string]any{"version": version, "protocols": []string{"5.0"}, "platforms": platforms},
	}})
}

// sends makes a server send a document.
func sends(mux *http.ServeMux, path string, document map[string]any) {
	mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(document)
	})
}
