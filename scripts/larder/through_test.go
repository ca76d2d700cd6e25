package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/clients"
	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/scripts/larder/failure"
)

// publisher runs commands against the endpoint of a server. Its environment has
// only a configuration of the clients and the server's authority.
type publisher struct {
	host string
	env  []string
	// texts, if not nil, records the errors of run.
	texts *golden.Texts
}

// publisher returns a publisher with a configuration of the clients and
// additional environment variables.
func (s *server) publisher(t *testing.T, config string, env ...string) publisher {
	t.Helper()
	home := t.TempDir()
	writeFiles(t, home, map[string]string{".tofurc": config})
	return publisher{
		host: s.Host,
		env: append(
			[]string{
				"PATH=" + os.Getenv("PATH"),
				"HOME=" + home,
				"SSL_CERT_FILE=" + s.CAFile,
				"GORACE=atexit_sleep_ms=0",
			},
			env...),
	}
}

func (p publisher) command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "larder", append(args, "--registry", "https://"+p.host)...)
	cmd.Env = p.env
	cmd.Dir = t.TempDir() // the command must not create files there
	return cmd
}

// run runs larder and returns its standard output. It fails the test if the
// exit code is another, if the output lacks one of the texts, or if the command
// creates a file.
func (p publisher) run(t *testing.T, code int, texts []string, args ...string) string {
	t.Helper()
	var out, both bytes.Buffer
	cmd := p.command(t, args...)
	cmd.Stdout, cmd.Stderr = &out, &both
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	all := out.String() + both.String()
	if got := cmd.ProcessState.ExitCode(); got != code {
		t.Fatalf("larder %s: exit code %d, want %d\n%s", strings.Join(args, " "), got, code, all)
	}
	for _, want := range texts {
		if !strings.Contains(all, want) {
			t.Errorf("the output of larder %s does not contain %q:\n%s", strings.Join(args, " "), want, all)
		}
	}
	if p.texts != nil && code != 0 {
		p.texts.Text(t, "$ larder "+steady(quotedAll(args))+"\n"+errorText(both.String()))
	}
	if entries, err := os.ReadDir(cmd.Dir); err != nil || len(entries) > 0 {
		t.Errorf("larder %s creates %v", strings.Join(args, " "), entries)
	}
	return out.String()
}

// A token with the right scope publishes a module through the registry, and
// clients install it. The log has the caller, and no secret.
func TestPublishModuleThroughServer(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	secret := token(t, s.data, "--name", "ci", "--scope", "publish:modules/acme/**", "--scope", "read:modules/acme/**")
	p := s.publisher(t, credentials(s.Host, secret))
	p.texts = golden.New(t)
	dir, other := t.TempDir(), t.TempDir()
	writeFiles(t, dir, withOutput("published"))
	writeFiles(t, other, withOutput("other"))
	module := []string{"publish", "module", dir, "acme/vpc/aws", "v1.0.0"}
	p.run(t, 0, []string{
		"uploading acme/vpc/aws 1.0.0", "vpc.tar.gz", "Published acme/vpc/aws 1.0.0 to " + s.Host,
		`source  = "` + s.Host + `/acme/vpc/aws"`,
	}, module...)
	p.run(t, 0, []string{"Unchanged: acme/vpc/aws 1.0.0"}, module...)
	p.run(t, failure.ExitExists, nil, "publish", "module", other, "acme/vpc/aws", "1.0.0")
	p.run(t, 0, nil, "publish", "module", other, "acme/vpc/aws", "1.1.0")
	p.run(t, 0, []string{"acme/vpc/aws 1.1.0", ": opens a port"},
		"deprecate", "acme/vpc/aws", "1.1.0", "--message", "opens a port", "--hide")
	t.Run("clients", func(t *testing.T) {
		clients.Each(t, func(t *testing.T, c clients.Client) {
			session, dir := session(t, c, s), use(t, s.Host)
			session.Config = credentials(s.Host, secret)
			inits(t, session, dir)
			if out, err := session.Run(t.Context(), dir, "apply", "-auto-approve", "-no-color"); err != nil ||
				!strings.Contains(out, `it = "published"`) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	})
	undone := p.run(t, 0, nil, "deprecate", "acme/vpc/aws", "1.1.0", "--undo", "--json")
	if !strings.Contains(undone, `"status": "undeprecated"`) {
		t.Errorf("undo prints %s", undone)
	}
	s.stop(t)
	log := s.log.String()
	for _, secret := range []string{"larder_", "signature="} {
		if strings.Contains(log, secret) {
			t.Errorf("the log contains %q:\n%s", secret, log)
		}
	}
	if !strings.Contains(log, `caller="token ci"`) {
		t.Errorf("the log does not name the caller:\n%s", log)
	}
}

// The hint of a refused publish depends on the credential, and on whether the
// registry's authority is known here.
func TestRefusedByServer(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	secret := token(t, s.data, "--name", "ci", "--scope", "publish:modules/acme/**")
	dir, texts := t.TempDir(), golden.New(t)
	writeFiles(t, dir, withOutput("published"))
	config := t.TempDir()
	writeFiles(t, filepath.Join(config, "larder"), map[string]string{
		"config.json": `{"contexts": {"local": {"store": "` + s.data + `"}}}`,
	})
	untrusting := []string{"SSL_CERT_FILE=", "SSL_CERT_DIR=" + t.TempDir()}
	for _, test := range []struct {
		config string
		env    []string
		wanted []string
	}{
		{credentials(s.Host, secret+"0"), nil, []string{"401"}},
		{"", nil, []string{"no credential for " + s.Host + " was found", "set LARDER_TOKEN"}},
		{"", []string{"LARDER_TOKEN=" + secret + "0"}, []string{"401", "in LARDER_TOKEN"}},
		{credentials(s.Host, secret), untrusting, []string{"SSL_CERT_FILE"}},
		{
			credentials(s.Host, secret), append(untrusting, "XDG_CONFIG_HOME="+config),
			[]string{"`export SSL_CERT_FILE=" + filepath.Join(s.data, "tls/ca.pem") + "`."},
		},
	} {
		p := s.publisher(t, test.config, test.env...)
		p.texts = texts
		p.run(t, failure.ExitFailed, test.wanted, "publish", "module", dir, "acme/vpc/aws", "v1.0.0")
	}
}

// A provider can be published through the registry if a key of the namespace
// has signed it. Clients install it.
func TestPublishProviderThroughServer(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	key := signingKey(t, "Ed25519")
	p := s.publisher(t, credentials(s.Host, token(t, s.data, "--name", "ci", "--scope", "publish:providers/acme/**")))
	p.texts = golden.New(t)
	provider := []string{"publish", "provider", releaseOf(t, key), "acme/note"}
	p.run(t, failure.ExitInvalid, []string{s.Host + ": ", "larder key add acme"}, provider...)
	addKey(t, s.data, "acme", key)
	p.run(t, failure.ExitInvalid, []string{s.Host + ": terraform-provider-note_1.0.0_SHA256SUMS.sig: "},
		"publish", "provider", releaseOf(t, signingKey(t, "P-256")), "acme/note")
	p.run(t, 0, []string{
		"uploading 2 files", "waiting for " + s.Host + " to inspect 2 files",
		"Published acme/note 1.0.0 to " + s.Host + " for 2 platforms", "protocols 6.0, signed by ",
	}, provider...)

	// --sign-key creates the same SHA256SUMS for the same zips, and another one
	// for fewer zips.
	zips, private := releaseOf(t, key), filepath.Join(t.TempDir(), "private.asc")
	remove := func(names ...string) {
		t.Helper()
		for _, name := range names {
			if err := os.Remove(filepath.Join(zips, "terraform-provider-note_1.0.0_"+name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	writeFiles(t, filepath.Dir(private), map[string]string{"private.asc": string(key.Private)})
	signing := []string{"publish", "provider", zips, "acme/note", "--sign-key", private}
	remove("SHA256SUMS", "SHA256SUMS.sig")
	p.run(t, 0, []string{"Unchanged: acme/note 1.0.0"}, signing...)
	remove(platforms()[1] + ".zip")
	p.run(t, failure.ExitExists, nil, signing...)
	clients.Each(t, func(t *testing.T, c clients.Client) {
		if out := inits(t, session(t, c, s), note(t, s.Host+"/acme/note", "1.0.0", "x")); !strings.Contains(out, "signed") {
			t.Error(out)
		}
	})
}

// An interrupted publish reports that it was interrupted. A second publish
// uploads no file again.
func TestInterruptedThroughServer(t *testing.T) {
	t.Parallel()
	s := serve(t, t.TempDir())
	key := signingKey(t, "Ed25519")
	addKey(t, s.data, "acme", key)
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "https", Host: s.Host}) },
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	}
	inspecting := make(chan struct{}, 10)
	var resumed atomic.Bool
	front := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Files are inspected when all are uploaded.
		if strings.HasSuffix(r.URL.Path, "/inspect") && !resumed.Load() {
			inspecting <- struct{}{}
			<-r.Context().Done()
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	defer front.Close()
	host := front.Listener.Addr().String()
	p := s.publisher(t, credentials(host, token(t, s.data, "--name", "ci", "--scope", "publish:providers/acme/**")),
		"SSL_CERT_DIR="+filepath.Dir(authority(t, front)))
	p.host = host
	args := []string{"publish", "provider", releaseOf(t, key), "acme/note"}

	var printed bytes.Buffer
	cmd := p.command(t, args...)
	cmd.Stderr = &printed
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		<-inspecting
		_ = cmd.Process.Signal(os.Interrupt)
	}()
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != failure.ExitFailed {
		t.Errorf("exit code %d\n%s", code, &printed)
	}
	golden.New(t).Text(t, errorText(printed.String()))
	resumed.Store(true)
	p.run(t, 0, []string{"2 of 2 files", "Published acme/note 1.0.0"}, args...)
}

// jobs is the identity provider of an emulated CI service.
type jobs struct {
	url    string
	signer jose.Signer
	// authority is the file with the provider's certificate, if it has one.
	authority string
}

// newJobs starts an identity provider. path is the path of its issuer URL.
func newJobs(t *testing.T, path string) jobs {
	t.Helper()
	return newJobsOf(t, path, httptest.NewServer)
}

// newJobsOf is newJobs with another way to start the server.
func newJobsOf(t *testing.T, path string, start func(http.Handler) *httptest.Server) jobs {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := jose.NewSigner(
		jose.SigningKey{Algorithm: jose.ES256, Key: key},
		(&jose.SignerOptions{}).WithType("JWT").WithHeader("kid", "1"),
	)
	if err != nil {
		t.Fatal(err)
	}
	var server *httptest.Server
	server = start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == path+"/keys" {
			_ = json.NewEncoder(w).
				Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &key.PublicKey, KeyID: "1", Use: "sig"}}})
			return
		}
		_ = json.NewEncoder(w).
			Encode(map[string]string{"issuer": server.URL + path, "jwks_uri": server.URL + path + "/keys"})
	}))
	t.Cleanup(server.Close)
	j := jobs{url: server.URL + path, signer: signer}
	if server.TLS != nil {
		j.authority = authority(t, server)
	}
	return j
}

// token returns the identity token of a job with these claims.
func (j jobs) token(t *testing.T, audience, claims string) string {
	t.Helper()
	all := map[string]any{
		"iss": j.url,
		"aud": audience,
		"iat": time.Now().Unix(),
		"exp": time.Now().Add(5 * time.Minute).Unix(),
	}
	var more map[string]any
	if err := json.Unmarshal([]byte(claims), &more); err != nil {
		t.Fatal(err)
	}
	maps.Copy(all, more)
	text, err := jwt.Signed(j.signer).Claims(all).Serialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// The rules in the example workflows allow the jobs of these workflows, and no
// other job of the repository.
func TestExampleRules(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFiles(t, dir, withOutput("x"))
	const sha = "0123456789abcdef0123456789abcdef01234567"
	texts := golden.New(t)
	for name, test := range map[string]struct{ path, run, module, another, taken string }{
		"github": {
			path: "/_services/token", run: "/acme/terraform-aws-vpc/actions/runs/9001/attempts/1",
			module: `{"sub": "repo:acme/terraform-aws-vpc:environment:release", ` +
				`"repository": "acme/terraform-aws-vpc", "repository_owner_id": "1234567", ` +
				`"environment": "release", "ref": "refs/tags/v1.0.0", "event_name": "push", "sha": "` + sha +
				`", "run_id": "9001", "run_attempt": "1"}`,
			taken: `{"sub": "repo:acme/terraform-aws-vpc:environment:release", ` +
				`"repository": "acme/terraform-aws-vpc", "repository_owner_id": "9", "environment": "release", ` +
				`"ref": "refs/tags/v1.0.0", "event_name": "push"}`,
			another: `{"sub": "repo:acme/terraform-aws-vpc:pull_request", "repository": "acme/terraform-aws-vpc", ` +
				`"repository_owner_id": "1234567", "ref": "refs/pull/1/merge", "event_name": "pull_request"}`,
		},
		"gitlab": {
			run: "/acme/terraform-aws-vpc/-/jobs/302",
			module: `{"sub": "project_path:acme/terraform-aws-vpc:ref_type:tag:ref:v1.0.0", ` +
				`"project_path": "acme/terraform-aws-vpc", "namespace_id": "7654321", "ref": "v1.0.0", ` +
				`"ref_path": "refs/tags/v1.0.0", "ref_type": "tag", "ref_protected": "true", "sha": "` + sha +
				`", "job_id": "302", "pipeline_id": "574"}`,
			taken: `{"sub": "project_path:acme/terraform-aws-vpc:ref_type:tag:ref:v1.0.0", ` +
				`"project_path": "acme/terraform-aws-vpc", "namespace_id": "9", "ref": "v1.0.0", ` +
				`"ref_type": "tag", "ref_protected": "true"}`,
			another: `{"sub": "project_path:acme/terraform-aws-vpc:ref_type:branch:ref:x", ` +
				`"project_path": "acme/terraform-aws-vpc", "namespace_id": "7654321", "ref": "x", ` +
				`"ref_type": "branch", "ref_protected": "false"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j, example := newJobs(t, test.path), readExample(t, name)
			rules := filepath.Join(t.TempDir(), "access.json")
			writeFiles(t, filepath.Dir(rules), map[string]string{
				"access.json": strings.Replace(example.rules, example.settings.Issuers[0].Issuer, j.url, 1),
			})
			s := serve(t, t.TempDir(), "--access", rules)
			job := func(claims, audience string) publisher {
				p := s.publisher(t, "", "LARDER_ID_TOKEN="+j.token(t, audience, claims))
				p.texts = texts
				return p
			}
			const audience = "https://registry.example.com"
			good := job(test.module, audience)
			module := []string{"publish", "module", dir, "acme/vpc/aws", "--ci-identity", "--audience", audience}
			var printed struct {
				PublishedBy registry.Publisher `json:"published_by"`
			}
			out := good.run(t, 0, nil, append(module, "1.0.0", "--json")...)
			if err := json.Unmarshal([]byte(out), &printed); err != nil {
				t.Fatalf("published: %v: %s", err, out)
			}
			var claims struct{ Sub string }
			if err := json.Unmarshal([]byte(test.module), &claims); err != nil {
				t.Fatal(err)
			}
			want := registry.Publisher{
				Kind: registry.PublisherOIDC, Issuer: j.url, Subject: claims.Sub, Repository: "acme/terraform-aws-vpc",
				Ref: "refs/tags/v1.0.0", Commit: sha, RunURL: strings.TrimSuffix(j.url, test.path) + test.run,
			}
			if diff := cmp.Diff(want, printed.PublishedBy); diff != "" {
				t.Errorf("published by (-want +got):\n%s", diff)
			}
			const advice = "LARDER_ID_TOKEN"
			good.run(t, failure.ExitFailed, []string{"403", advice},
				append([]string{"publish", "module", dir, "acme/other/aws", "1.0.0"}, module[4:]...)...)
			module = append(module, "1.1.0")
			job(test.another, audience).run(t, failure.ExitFailed, []string{advice, "aud " + audience}, module...)
			// A job of another owner, who has registered the same name.
			job(test.taken, audience).run(t, failure.ExitFailed, []string{"403"}, module...)
			if warnings := example.settings.Warnings(); len(warnings) > 0 {
				t.Errorf("the example's rules: %q", warnings)
			}
			const other = "https://other.example.com"
			elsewhere := job(test.module, other)
			elsewhere.run(t, failure.ExitInvalid, []string{other, audience}, module...)
			elsewhere.run(t, failure.ExitFailed, []string{"401", advice, "aud " + other}, append(module, "--audience", other)...)
			s.stop(t)
			if log := s.log.String(); strings.Contains(log, "eyJ") {
				t.Errorf("the log has a token:\n%s", log)
			}
		})
	}
}
