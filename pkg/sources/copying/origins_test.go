package copying_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/builds"
	"github.com/larder-registry/larder/pkg/client"
	"github.com/larder-registry/larder/pkg/client/fetch"
	"github.com/larder-registry/larder/pkg/content/archive"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/sources/copying"
)

// imitation imitates how a registry locates version VERSION of the
// module acme/vpc/aws.
type imitation struct {
	// source is where the form of the response is described.
	source string
	// status, header and body are the response to the request for a download. In
	// them, ORIGIN is the URL of the registry, OTHER that of another host, and
	// COMMIT the commit of the version.
	status       int
	header, body string
	// services is the URL of the modules in the discovery document, by default
	// /api/modules/. If closed, the document needs a token too.
	services string
	closed   bool
	// next is the X-Terraform-Get header of a second response, below /next/.
	next string
}

// imitations have the versions 1.0.0 and v1.1.0, and 1.2.3.4, which Larder cannot
// publish. All requests of their protocols need a token.
var imitations = map[string]imitation{
	"OpenTofu's registry": {
		source: "https://github.com/aquasecurity/trivy/issues/6744, https://github.com/opentofu/registry/issues/209",
		status: http.StatusOK, body: `{"location": "git::ORIGIN/git/.git?ref=vVERSION"}`,
	},
	"Terraform's registry": {
		source: "https://developer.hashicorp.com/terraform/internals/module-registry-protocol; " +
			"the ref is a commit for kube-hetzner/kube-hetzner/hcloud 2.19.2",
		status: http.StatusNoContent, header: "git::ORIGIN/git/.git?ref=COMMIT",
	},
	"GitLab": {
		source: "https://docs.gitlab.com/api/packages/terraform-modules",
		status: http.StatusNoContent, header: "/files/VERSION/file?token=&archive=tgz",
	},
	"boring-registry": {
		source: "https://github.com/boring-registry/boring-registry, pkg/module/transport.go at 143223b",
		status: http.StatusNoContent, header: "ORIGIN/files/VERSION/acme-vpc-aws-VERSION.tar.gz?X-Amz-Signature=1&X-Amz-Expires=60",
	},
	"Terralist": {
		source: "https://github.com/terralist/terralist, internal/server/controllers/module.go at 1193a34",
		status: http.StatusNoContent, header: "ORIGIN/next/VERSION/archive?token=1", next: "ORIGIN/files/VERSION/module.zip",
	},
	"terrareg": {
		source: "https://github.com/MatthewJohn/terrareg/issues/64",
		status: http.StatusNoContent, header: "/files/VERSION/repository.zip//modules/vpc?presign=1",
	},
	"archive of a repository": {
		source: "https://opentofu.org/docs/language/modules/sources/#modules-in-package-sub-directories",
		status: http.StatusNoContent, header: "ORIGIN/files/VERSION/repository.tar.gz//modules/vpc",
	},
	"body and header": {
		source: "OpenTofu 1.12, internal/registry/client.go: a location in the body comes first",
		status: http.StatusOK, header: "ORIGIN/missing.zip", body: `{"location": "ORIGIN/files/VERSION/module.zip"}`,
	},
	"plain URL": {
		source: "OpenTofu 1.12, internal/registry/client.go: use_registry_credentials",
		status: http.StatusOK, body: `{"location": "/files/VERSION/download", "use_registry_credentials": false}`,
	},
	"archive on another host": {
		source: "HCP Terraform: a URL below archivist.terraform.io/v1/object/ in a public test, package autocloud_sdk",
		status: http.StatusNoContent, header: "OTHER/files/VERSION/object?archive=tgz",
	},
	"services on another host": {
		source:   "Spacelift: https://github.com/infracost/docs, docs/integrations/spacelift.md",
		services: "OTHER/api/modules/", status: http.StatusNoContent, header: "ORIGIN/files/VERSION/module.tar.gz",
	},
	"services with a full URL": {
		source: "Artifactory: https://github.com/bridgecrewio/checkov/issues/5154", services: "ORIGIN/api/modules/",
		status: http.StatusNoContent, header: "ORIGIN/files/VERSION/module.zip",
	},
	"nrkno/terraform-registry": {
		source: "https://github.com/nrkno/terraform-registry, pkg/registry/registry.go at 00f4b01 " +
			"and pkg/store/github/github.go at 035a95e",
		closed: true,
		status: http.StatusNoContent, header: "git::ORIGIN/git/.git?ref=vVERSION",
	},
	"citizen": {
		source: "https://github.com/outsideris/citizen, routes/download.js at 0612aae",
		status: http.StatusNoContent, header: "/files/VERSION/module.tar.gz",
	},
	"old Terralist": {
		source: "https://github.com/terralist/terralist, internal/server/controllers/module.go at b7311f0",
		status: http.StatusOK, header: "ORIGIN/files/VERSION/module.zip", body: `{"errors": []}`,
	},
	"credential at a plain URL, and a header for Terraform": {
		source: "OpenTofu 1.12, internal/registry/client.go: use_registry_credentials", status: http.StatusOK,
		body: `{"location": "/nowhere", "use_registry_credentials": true}`, header: "/files/VERSION/module.tar.gz",
	},
	"credential at a plain URL": {
		source: "OpenTofu 1.12, internal/registry/client.go: use_registry_credentials",
		status: http.StatusOK, body: `{"location": "/api/files/VERSION/download", "use_registry_credentials": true}`,
	},
	"redirect of the archive": {
		source: "https://github.com/hashicorp/go-getter: HTTP redirects are followed",
		status: http.StatusNoContent, header: "ORIGIN/redirect/VERSION/module.tar.gz",
	},
}

// foreign is a running imitation.
type foreign struct {
	*httptest.Server
	imitation
	other  *httptest.Server // the same registry with another host
	mu     sync.Mutex
	tokens map[string]bool // paths that received a credential
	git    http.Handler
}

const foreignToken = "the-token-of-a-client"

// moduleFiles returns the files of a version of the module, below a folder.
func moduleFiles(version, folder string) map[string]string {
	return map[string]string{
		path.Join(folder, "main.tf"):             "# version " + version + "\n",
		path.Join(folder, "files/data.txt"):      "data\n",
		path.Join(folder, "modules/sub/main.tf"): "# sub\n",
	}
}

func (f *foreign) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "" {
		f.mu.Lock()
		f.tokens[r.URL.Path] = true
		f.mu.Unlock()
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case r.URL.Path == "/.well-known/terraform.json":
		if f.closed && r.Header.Get("Authorization") != "Bearer "+foreignToken {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		modules := "/api/modules/"
		if f.services != "" {
			modules = f.in(f.services, "")
		}
		_, _ = fmt.Fprintf(w, `{"modules.v1": %q, "providers.v1": "/api/providers/"}`, modules)
	case parts[0] == "api" && r.Header.Get("Authorization") != "Bearer "+foreignToken:
		w.WriteHeader(http.StatusUnauthorized)
	case strings.HasPrefix(r.URL.Path, "/api/modules/acme/vpc/aws/versions"):
		_, _ = io.WriteString(w, `{"modules": [{"versions": [{"version": "1.0.0"}, {"version": "v1.1.0"}, {"version": "1.2.3.4"}]}]}`)
	case strings.HasPrefix(r.URL.Path, "/api/modules/acme/vpc/aws/"):
		f.locate(w, parts[5])
	case parts[0] == "api" && parts[1] == "files":
		serveArchive(w, parts[2], parts[3])
	case parts[0] == "next":
		w.Header().Set("X-Terraform-Get", f.in(f.next, parts[1]))
		w.WriteHeader(http.StatusNoContent)
	case parts[0] == "redirect":
		http.Redirect(w, r, "/files/"+parts[1]+"/module.tar.gz", http.StatusFound)
	case parts[0] == "files":
		serveArchive(w, parts[1], parts[2])
	case parts[0] == "git" && f.git != nil:
		f.git.ServeHTTP(w, r)
	default:
		http.NotFound(w, r)
	}
}

func (f *foreign) in(text, version string) string {
	other := f.URL
	if f.other != nil {
		other = f.other.URL
	}
	return strings.NewReplacer(
		"ORIGIN", f.URL, "OTHER", other, "VERSION", version, "COMMIT", commits[version],
	).Replace(text)
}

func (f *foreign) locate(w http.ResponseWriter, version string) {
	if f.header != "" {
		w.Header().Set("X-Terraform-Get", f.in(f.header, version))
	}
	if f.body != "" {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(f.status)
	_, _ = io.WriteString(w, f.in(f.body, version))
}

// serveArchive serves a module, or a repository with the module in modules/vpc.
func serveArchive(w io.Writer, version, name string) {
	files := moduleFiles(version, "")
	if strings.HasPrefix(name, "repository") {
		files = moduleFiles(version, "modules/vpc")
		files["main.tf"] = "# the root of the repository\n"
	}
	if strings.HasSuffix(name, ".zip") || name == "download" {
		out := zip.NewWriter(w)
		for name, content := range files {
			if file, err := out.Create(name); err == nil {
				_, _ = io.WriteString(file, content)
			}
		}
		_ = out.Close()
		return
	}
	packed := gzip.NewWriter(w)
	out := tar.NewWriter(packed)
	for name, content := range files {
		_ = out.WriteHeader(&tar.Header{Name: name, Size: int64(len(content)), Mode: 0o644})
		_, _ = io.WriteString(out, content)
	}
	_ = errors.Join(out.Close(), packed.Close())
}

// repository is a Git repository with a tag for each version. It is empty if git
// is not installed. commits has the commit of each version.
var (
	repository string
	commits    = map[string]string{}
)

// authority is the certificate authority of all imitations.
var authority string

// TestMain makes the repository, and the file of the authority, which git reads
// from the environment.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "larder-copying-test-*")
	if err != nil {
		panic(err)
	}
	s := httptest.NewTLSServer(http.NotFoundHandler())
	authority = filepath.Join(dir, "ca.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	s.Close() // all servers of httptest have the same certificate
	if err := os.WriteFile(authority, block, 0o600); err != nil {
		panic(err)
	}
	for name, value := range map[string]string{
		"GIT_SSL_CAINFO": authority, "GIT_CONFIG_GLOBAL": os.DevNull, "GIT_CONFIG_NOSYSTEM": "1",
	} {
		_ = os.Setenv(name, value) // it never fails for these
	}
	if _, err := exec.LookPath("git"); err == nil {
		repository = filepath.Join(dir, "repository")
		if err := makeRepository(repository); err != nil {
			panic(err)
		}
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

func makeRepository(dir string) error {
	git := func(args ...string) error {
		all := append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)
		cmd := exec.CommandContext(context.Background(), "git", all...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("git %v: %w: %s", args, err, out)
		}
		return nil
	}
	if err := errors.Join(os.Mkdir(dir, 0o700), git("init", "--quiet", "--initial-branch=main")); err != nil {
		return err
	}
	for _, version := range []string{"1.0.0", "1.1.0"} {
		for name, content := range moduleFiles(version, "") {
			file := filepath.Join(dir, filepath.FromSlash(name))
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(content), 0o600)); err != nil {
				return err
			}
		}
		err := errors.Join(git("add", "--all"), git("commit", "--quiet", "--message="+version), git("tag", "v"+version))
		if err != nil {
			return err
		}
		head, err := os.ReadFile(filepath.Join(dir, ".git", "refs", "heads", "main"))
		if err != nil {
			return err
		}
		commits[version] = strings.TrimSpace(string(head))
	}
	return nil
}

// run starts an imitation.
func (s imitation) run(t *testing.T) *foreign {
	t.Helper()
	f := &foreign{imitation: s, tokens: map[string]bool{}}
	if strings.Contains(s.header+s.body, "git::") {
		if repository == "" {
			t.Skip("LEFT OUT: git is not installed")
		}
		out, err := exec.CommandContext(t.Context(), "git", "--exec-path").Output()
		if err != nil {
			t.Fatal(err)
		}
		f.git = &cgi.Handler{
			Path: filepath.Join(strings.TrimSpace(string(out)), "git-http-backend"), Root: "/git/",
			Env: []string{"GIT_PROJECT_ROOT=" + repository, "GIT_HTTP_EXPORT_ALL=1"},
		}
	}
	f.other = httptest.NewTLSServer(f)
	t.Cleanup(f.other.Close)
	f.Server = httptest.NewTLSServer(f)
	t.Cleanup(f.Close)
	return f
}

// origin returns an imitation as an origin, with the credential of a client.
func (f *foreign) origin(t *testing.T) copying.Origin {
	t.Helper()
	host := strings.TrimPrefix(f.URL, "https://")
	file := filepath.Join(t.TempDir(), "tofurc")
	text := fmt.Sprintf("credentials %q {\n  token = %q\n}\n", host, foreignToken)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := client.LoadConfig([]string{"TF_CLI_CONFIG_FILE=" + file}, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	tls := f.Client().Transport.(*http.Transport).TLSClientConfig //nolint:forcetypeassert // of httptest
	c := client.New(config, "larder/test", &http.Transport{TLSClientConfig: tls.Clone()})
	c.Wait = time.Millisecond
	c = c.Confine(t.Context(), f.URL)
	origin, err := copying.OpenHost(t.Context(), c, host, &fetch.Fetcher{Client: c}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return origin
}

// contentOf returns the files of a published module.
func contentOf(t *testing.T, s copying.Store, m registry.Module, version string) map[string]string {
	t.Helper()
	record, err := s.Catalog.Modules.Get(t.Context(), m, number(t, version))
	if err != nil {
		t.Fatal(err)
	}
	body, err := s.Objects.Open(t.Context(), record.Object, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	packed, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := archive.ReadModule(t.Context(), bytes.NewReader(packed)); err != nil {
		t.Error(err)
	}
	plain, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string]string)
	for in := tar.NewReader(plain); ; {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = string(content)
	}
}

// Modules are copied from each form of location, completely and once. The token
// of the registry reaches only its protocols.
func TestOrigins(t *testing.T) {
	t.Parallel()
	vpc := module(t, "acme/vpc/aws")
	for name, s := range imitations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if s.source == "" {
				t.Error("the form has no source")
			}
			f, to := s.run(t), newStore(t, "prod.example.com")
			c := copying.Copier{Origin: f.origin(t), Target: copying.StoreTarget{Store: to}}
			for _, status := range []copying.Status{copying.Copied, copying.Unchanged} {
				report, err := c.Copy(t.Context(), whole(vpc))
				if err != nil {
					t.Fatal(err)
				}
				want := []string{
					"acme/vpc/aws 1.1.0 " + string(status), "acme/vpc/aws 1.0.0 " + string(status),
					"acme/vpc/aws 1.2.3.4 skipped: not a semantic version",
				}
				if diff := cmp.Diff(want, shown(report)); diff != "" {
					t.Errorf("the report (-want +got):\n%s", diff)
				}
			}
			for _, version := range []string{"1.0.0", "1.1.0"} {
				if diff := cmp.Diff(moduleFiles(version, ""), contentOf(t, to, vpc, version)); diff != "" {
					t.Errorf("the files of %s (-want +got):\n%s", version, diff)
				}
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			for path := range f.tokens {
				if !strings.HasPrefix(path, "/api/") && path != "/.well-known/terraform.json" {
					t.Errorf("%s received a credential", path)
				}
			}
		})
	}
}

// A credential is not sent to another host, although the registry requires it.
func TestCredentialForAnotherHost(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/api/files/VERSION/download", "/files/VERSION/download"} {
		f := imitation{
			status: http.StatusOK, body: `{"location": "OTHER` + path + `", "use_registry_credentials": true}`,
		}.run(t)
		c := copying.Copier{Origin: f.origin(t), Target: copying.StoreTarget{Store: newStore(t, "prod.example.com")}}
		if _, err := c.Copy(t.Context(), whole(module(t, "acme/vpc/aws"))); !errors.Is(err, registry.ErrInvalid) {
			t.Errorf("the error is %v, want ErrInvalid", err)
		}
		f.mu.Lock()
		for path := range f.tokens {
			if strings.Contains(path, "/files/") {
				t.Errorf("%s received a credential", path)
			}
		}
		f.mu.Unlock()
	}
}

// Without the token, nothing is copied, and the error names the registry.
func TestOriginWithoutToken(t *testing.T) {
	t.Parallel()
	f := imitations["GitLab"].run(t)
	tls := f.Client().Transport.(*http.Transport).TLSClientConfig //nolint:forcetypeassert // of httptest
	c := client.New(nil, "larder/test", &http.Transport{TLSClientConfig: tls.Clone()}).Confine(t.Context(), f.URL)
	origin, err := copying.OpenHost(t.Context(), c, strings.TrimPrefix(f.URL, "https://"), &fetch.Fetcher{Client: c}, nil)
	if err != nil {
		t.Fatal(err)
	}
	copier := copying.Copier{Origin: origin, Target: copying.StoreTarget{Store: newStore(t, "prod.example.com")}}
	_, err = copier.Copy(t.Context(), whole(module(t, "acme/vpc/aws")))
	if !errors.Is(err, registry.ErrUnauthenticated) {
		t.Errorf("the error is %v, want ErrUnauthenticated", err)
	}
	if _, own := errors.AsType[*copying.OriginError](err); !own {
		t.Error("the error is not one of the origin")
	}
}

// foreignRelease is a release of acme/inventory 1.0.0 at a registry that is not a
// Larder.
type foreignRelease struct {
	// document changes the response for a platform. If it returns false, the origin
	// does not have the platform.
	document func(platform string, d map[string]any) bool
	// add reports whether the copy adds the key.
	add bool
	// want is the result, and notes are parts of the notes of the version.
	want     string
	notes    []string
	packages int
}

// noKeys makes the origin name no keys.
func noKeys(_ string, d map[string]any) bool {
	delete(d, "signing_keys")
	return true
}

// A provider of a registry that redirects to the files of a release on another
// path, as registries on GitHub do. Its SHA256SUMS lists a manifest that no
// protocol serves. Package oddities has the releases that are odd.
func TestProviderOrigin(t *testing.T) {
	t.Parallel()
	const copied = "acme/inventory 1.0.0 copied"
	other := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "other bytes")
	}))
	t.Cleanup(other.Close)
	for name, c := range map[string]foreignRelease{
		"untrusted key": {want: "acme/inventory 1.0.0 failed: invalid signature: key " + signer(t).ID},
		"release":       {add: true, want: copied, packages: 2, notes: []string{"added key "}},
		"no keys, nowhere": {
			document: noKeys, want: "acme/inventory 1.0.0 failed: invalid release: namespace acme has no key yet",
		},
		"other bytes of another host": {
			add: true, want: "acme/inventory 1.0.0 failed: linux_amd64: " + strings.TrimPrefix(other.URL, "https://") +
				" sent other bytes than SHA256SUMS has",
			document: func(platform string, d map[string]any) bool {
				d["download_url"] = other.URL + "/a.zip"
				return platform == "linux_amd64"
			},
		},
		"a platform with another file": {
			add: true, want: copied, packages: 1, notes: []string{"left out linux_amd64: SHA256SUMS does not list", "linux_amd64.zip is listed"},
			document: func(platform string, d map[string]any) bool {
				if platform == "linux_amd64" {
					d["filename"] = "terraform-provider-inventory_9.9.9_linux_amd64.zip"
				}
				return true
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.check(t)
		})
	}
}

func (c foreignRelease) check(t *testing.T) {
	release := builds.NewRelease(t, "1.0.0", "linux_amd64", "darwin_arm64")
	key, err := builds.Signer()
	if err != nil {
		t.Fatal(err)
	}
	f := &foreign{tokens: map[string]bool{}}
	var zips atomic.Int32
	f.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
		switch {
		case strings.HasSuffix(r.URL.Path, "/inventory/versions"):
			_ = json.NewEncoder(w).Encode(map[string]any{"versions": []any{map[string]any{
				"version": "1.0.0", "protocols": []string{"6.0"},
				"platforms": []registry.Platform{{OS: "linux", Arch: "amd64"}, {OS: "darwin", Arch: "arm64"}},
			}}})
		case strings.Contains(r.URL.Path, "/download/"):
			platform := parts[6] + "_" + parts[7]
			file := release.Name + "_" + platform + ".zip"
			d := map[string]any{
				"protocols": []string{"5.0", "6.0"}, "os": parts[6], "arch": parts[7], "filename": file,
				"download_url":          "/release/" + file,
				"shasums_url":           "/release/" + release.Name + "_SHA256SUMS",
				"shasums_signature_url": "/release/" + release.Name + "_SHA256SUMS.sig",
				"signing_keys": map[string]any{
					"gpg_public_keys": []any{map[string]any{"ascii_armor": string(key.Public)}},
				},
			}
			data, err := os.ReadFile(filepath.Join(release.Dir, file))
			if d["shasum"] = digestOf(data); err != nil || c.document != nil && !c.document(platform, d) {
				http.NotFound(w, r)
				return
			}
			_ = json.NewEncoder(w).Encode(d)
		case parts[0] == "release":
			http.Redirect(w, r, "/stored/"+parts[1], http.StatusFound)
		case parts[0] == "stored":
			if strings.HasSuffix(parts[1], ".zip") {
				zips.Add(1)
			}
			http.ServeFile(w, r, filepath.Join(release.Dir, parts[1]))
		default:
			f.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(f.Close)
	to := newStore(t, "prod.example.com")
	copier := copying.Copier{Origin: f.origin(t), Target: copying.StoreTarget{Store: to}, AddKeys: c.add}
	report, _ := copier.Copy(t.Context(), whole(inventory)) // the report has the error
	if n := zips.Load(); !c.add && n > 0 {
		t.Errorf("%d packages were fetched, although their key is not trusted", n)
	}
	if got := shown(report); len(got) != 1 || !strings.HasPrefix(got[0], c.want) {
		t.Fatalf("the report is %q, want %q", got, c.want)
	}
	record, err := to.Catalog.Providers.Get(t.Context(), inventory, number(t, "1.0.0"))
	if copied := strings.HasSuffix(c.want, "copied"); copied != (err == nil) {
		t.Fatalf("the version in the target: %v", err)
	} else if !copied {
		return
	}
	sums, err := os.ReadFile(filepath.Join(release.Dir, release.Name+"_SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	if record.Sums.SHA256 != digestOf(sums) || len(record.Packages) != c.packages {
		t.Errorf("the record is %+v", record)
	}
	notes := strings.Join(report.Results[0].Notes, "\n")
	for _, want := range c.notes {
		if !strings.Contains(notes, want) {
			t.Errorf("no note has %q: %s", want, notes)
		}
	}
	if len(c.notes) == 0 && notes != "" {
		t.Errorf("there are notes: %s", notes)
	}
	// Copied again, nothing changes.
	report, err = copier.Copy(t.Context(), whole(inventory))
	if got := shown(report); err != nil || len(got) != 1 || !strings.HasPrefix(got[0], "acme/inventory 1.0.0 unchanged") {
		t.Errorf("the second copy is %q, %v", got, err)
	}
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
