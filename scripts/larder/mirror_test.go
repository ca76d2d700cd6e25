package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/dirhash"

	"github.com/larder-registry/larder/internal/testkit/clients"
	"github.com/larder-registry/larder/internal/testkit/keys"
	"github.com/larder-registry/larder/pkg/mirror/filling"
	"github.com/larder-registry/larder/scripts/larder/failure"
)

// thirdPlatform is not in platforms.
const thirdPlatform = "freebsd_amd64"

// originHost is the hostname of the origin in host blocks.
const originHost = "origin.example.com"

// origin is an origin registry. Its namespace acme has a key.
type origin struct {
	*server
	key     keys.SigningKey
	private string // file of the private key
}

// serveOrigin runs an origin registry until the test ends.
func serveOrigin(t *testing.T, args ...string) *origin {
	t.Helper()
	key := signingKey(t, "Ed25519")
	o := &origin{serve(t, t.TempDir(), args...), key, filepath.Join(t.TempDir(), "private.asc")}
	if err := os.WriteFile(o.private, key.Private, 0o600); err != nil {
		t.Fatal(err)
	}
	addKey(t, o.data, "acme", key)
	return o
}

// publish publishes a provider that clients can install but not run. It returns
// the folder of its zips. They are small, and each has different content.
func (o *origin) publish(t *testing.T, address, version string, platforms ...string) string {
	t.Helper()
	dir := t.TempDir()
	_, name, _ := strings.Cut(address, "/")
	name = "terraform-provider-" + name + "_"
	for _, platform := range platforms {
		var content bytes.Buffer
		z := zip.NewWriter(&content)
		program := &zip.FileHeader{Name: name + "v" + version}
		if strings.HasPrefix(platform, "windows_") {
			program.Name += ".exe"
		}
		program.SetMode(0o755)
		w, err := z.CreateHeader(program)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(w, "#!/bin/sh\nexit 1 # %s %s %s\n", address, version, platform)
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name+version+"_"+platform+".zip"), content.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	larder(
		t,
		"publish",
		"provider",
		dir,
		address,
		"--sign-key",
		o.private,
		"--protocol",
		"6.0",
		"--store",
		"dir:"+o.data,
	)
	return dir
}

// upstream returns the value for --upstream.
func (o *origin) upstream() string { return "https://" + o.Host }

// block returns a host block with the origin's URL.
func (o *origin) block() string {
	return fmt.Sprintf(
		"host %q {\n  services = {\n    \"providers.v1\" = \"https://%s/v1/providers/\"\n  }\n}\n",
		originHost,
		o.Host,
	)
}

// installation returns a provider_installation block with a network mirror,
// followed by other methods.
func installation(url, others string) string {
	return fmt.Sprintf("provider_installation {\n  network_mirror {\n    url = %q\n  }\n%s}\n", url, others)
}

func (s *server) mirrorURL() string { return "https://" + s.Host + "/v1/mirror/" }

// trust joins the certificate authorities in files in one file, and returns its
// path.
func trust(t *testing.T, files ...string) string {
	t.Helper()
	var all []byte
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(append(all, text...), '\n')
	}
	path := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(path, all, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// filler runs commands that fill a mirror: in a store, with a user's
// environment.
type filler struct {
	data string
	env  []string
}

// fill returns a filler with a configuration of the clients, which trusts the
// origin.
func (o *origin) fill(t *testing.T, data, config string) filler {
	t.Helper()
	home := t.TempDir()
	writeFiles(t, home, map[string]string{".terraformrc": config})
	larder(t, "init", "--store", "dir:"+data)
	return filler{
		data,
		[]string{
			"HOME=" + home,
			"TF_CLI_CONFIG_FILE=" + filepath.Join(home, ".terraformrc"),
			"SSL_CERT_FILE=" + o.CAFile,
		},
	}
}

// try runs larder, and returns its standard output, its whole output, and its
// exit code.
func (f filler) try(t *testing.T, args ...string) (stdout, all string, code int) {
	t.Helper()
	var out, both bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "larder", append(args, "--store", "dir:"+f.data)...)
	cmd.Env = append(os.Environ(), f.env...)
	cmd.Stdout, cmd.Stderr = &out, &both
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), out.String() + both.String(), cmd.ProcessState.ExitCode()
}

// run runs larder and returns its standard output. It fails the test if the
// exit code is another, or if the output lacks one of the texts.
func (f filler) run(t *testing.T, code int, texts []string, args ...string) string {
	t.Helper()
	out, all, got := f.try(t, args...)
	if got != code {
		t.Fatalf("larder %s: exit code %d, want %d\n%s", strings.Join(args, " "), got, code, all)
	}
	for _, want := range texts {
		if !strings.Contains(all, want) {
			t.Errorf("the output of larder %s does not contain %q:\n%s", strings.Join(args, " "), want, all)
		}
	}
	return out
}

// listed returns the mirrored packages of a provider, as VERSION OS_ARCH.
func (f filler) listed(t *testing.T, address string) []string {
	t.Helper()
	out, all, code := f.try(t, "list", address, "--json")
	if code == failure.ExitNotFound {
		return nil
	}
	var got struct {
		Versions []struct {
			Version  string
			Packages []struct{ OS, Arch string }
		}
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 {
		t.Fatal(err, all)
	}
	packages := []string{}
	for _, v := range got.Versions {
		for _, p := range v.Packages {
			packages = append(packages, v.Version+" "+p.OS+"_"+p.Arch)
		}
	}
	return packages
}

// check compares the mirrored packages of a provider.
func (f filler) check(t *testing.T, address string, want ...string) {
	t.Helper()
	if got := f.listed(t, address); !slices.Equal(got, want) {
		t.Errorf("mirrored packages of %s: %q, want %q", address, got, want)
	}
}

// sorted returns the packages of a version for platforms, in the format of
// listed.
func sorted(version string, platforms ...string) (packages []string) {
	for _, p := range slices.Sorted(slices.Values(platforms)) {
		packages = append(packages, version+" "+p)
	}
	return packages
}

// need writes a configuration that requires providers. Each is an address and a
// version constraint, separated by a space.
func need(t *testing.T, providers ...string) string {
	t.Helper()
	var text strings.Builder
	for i, p := range providers {
		source, version, _ := strings.Cut(p, " ")
		fmt.Fprintf(&text, "    p%d = {\n      source  = %q\n      version = %q\n    }\n", i, source, version)
	}
	dir := t.TempDir()
	writeFiles(
		t,
		dir,
		map[string]string{"main.tf": "terraform {\n  required_providers {\n" + text.String() + "  }\n}\n"},
	)
	return dir
}

// plain removes frames and line breaks from the output of a client.
func plain(out string) string {
	return strings.Join(strings.Fields(strings.NewReplacer("│", "", "╷", "", "╵", "").Replace(out)), " ")
}

// inits runs init, which must succeed, and returns its output.
func inits(t *testing.T, s clients.Session, dir string, args ...string) string {
	t.Helper()
	out, err := s.Run(t.Context(), dir, append([]string{"init", "-no-color"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return plain(out)
}

// initFails runs init, which must fail and print a text.
func initFails(t *testing.T, s clients.Session, dir, want string) {
	t.Helper()
	out, err := s.Run(t.Context(), dir, "init", "-no-color")
	if err == nil || !strings.Contains(plain(out), want) {
		t.Errorf("init must fail and print %q: %v\n%s", want, err, out)
	}
}

// hashes returns the hashes of a zip as in lock files.
func hashes(t *testing.T, path string) (h1, zh string) {
	t.Helper()
	h1, err := dirhash.HashZip(path, dirhash.Hash1)
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(content)
	return h1, "zh:" + hex.EncodeToString(sum[:])
}

// locked returns the hashes of a provider in a configuration's lock file.
func locked(t *testing.T, dir, address string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, ".terraform.lock.hcl"))
	if err != nil {
		t.Fatal(err)
	}
	all, _, err := filling.ParseLock(t.Context(), dir, text)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range all {
		if l.Address.String() == address {
			return l.Hashes
		}
	}
	t.Fatalf("%s is not locked:\n%s", address, text)
	return nil
}

// mirrorLock returns the hashes that a client locks for a zip from a mirror.
func mirrorLock(t *testing.T, c clients.Client, path string) []string {
	t.Helper()
	h1, zh := hashes(t, path)
	if c.Name == "terraform" {
		return []string{h1}
	}
	return []string{h1, zh}
}

// requests stops a server, and returns the lines of its log that contain all
// words.
func (s *server) requests(t *testing.T, words ...string) (found []string) {
	t.Helper()
	s.stop(t)
	for line := range strings.Lines(s.log.String()) {
		if strings.Contains(line, "method=") &&
			!slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			found = append(found, line)
		}
	}
	return found
}

// Parts of a small zip for change. The time of a file changes only the hash of
// the zip, and not the hash of its files.
const (
	timeOfFile    = "PK\x03\x04"
	contentOfFile = "#!/bin/sh"
)

// change flips a bit of a zip. A second call undoes it.
func change(t *testing.T, path, part string) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(content, []byte(part))
	if at < 0 {
		t.Fatalf("%s has no %q", path, part)
	}
	content[at+len(part)+6] ^= 1 // the time is 10 bytes from the beginning
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// With a token, clients install providers of two hosts only from the mirror.
// Without permission to read the mirror, they fail and do not use the origin.
func TestMirrorOnly(t *testing.T) {
	t.Parallel()
	o, s := serveOrigin(t), serve(t, t.TempDir(), "--require-token")
	key := signingKey(t, "P-256")
	addKey(t, o.data, "acme", key)
	release := releaseOf(t, key)
	larder(t, "publish", "provider", release, "acme/note", "--store", "dir:"+o.data)
	f := o.fill(t, s.data, "")
	f.run(t, 0, nil, "mirror", "add", "one.example.com/acme/note", "--platform", "all", "--upstream", o.upstream())
	f.run(
		t,
		0,
		nil,
		"mirror",
		"add",
		"two.example.com/acme/note",
		"--platform",
		clients.Platform(),
		"--upstream",
		o.upstream(),
	)
	good := token(t, s.data, "--name", "good", "--scope", "read:mirror/**")
	narrow := token(t, s.data, "--name", "narrow", "--scope", "read:mirror/two.example.com/**")
	modules := token(t, s.data, "--name", "modules", "--scope", "read:modules/**")
	t.Run("clients", func(t *testing.T) {
		clients.Each(t, func(t *testing.T, c clients.Client) {
			t.Run("with its token", func(t *testing.T) {
				written := filepath.Join(t.TempDir(), "note.txt")
				dir := note(t, "one.example.com/acme/note", "~> 1.0", written)
				writeFiles(
					t,
					dir,
					map[string]string{
						"two_override.tf": "terraform {\n  required_providers {\n" +
							"    two = {\n      source = \"two.example.com/acme/note\"\n    }\n  }\n}\n",
					},
				)
				session := session(t, c, s) // does not trust the origin
				session.Config = installation(s.mirrorURL(), "") + credentials(s.Host, good)
				out := inits(t, session, dir)
				for _, want := range []string{
					"Installed one.example.com/acme/note v1.0.0 (verified checksum)",
					"Installed two.example.com/acme/note v1.0.0 (verified checksum)",
				} {
					if !strings.Contains(out, want) {
						t.Errorf("the output of init does not contain %q:\n%s", want, out)
					}
				}
				want := mirrorLock(
					t,
					c,
					filepath.Join(release, "terraform-provider-note_1.0.0_"+clients.Platform()+".zip"),
				)
				for _, address := range []string{"one.example.com/acme/note", "two.example.com/acme/note"} {
					if got := locked(t, dir, address); !slices.Equal(got, want) {
						t.Errorf("%s: locked is %q, want %q", address, got, want)
					}
				}
				if out, err := session.Run(t.Context(), dir, "apply", "-auto-approve"); err != nil {
					t.Fatal(err, out)
				}
				if text, err := os.ReadFile(written); err != nil || string(text) != "written" {
					t.Errorf("%q, %v", text, err)
				}
			})
			for name, config := range map[string]string{
				"no token": "", "an empty one": credentials(s.Host, ""), "a wrong one": credentials(s.Host, good+"0"),
				"one for modules": credentials(s.Host, modules), "one for the other host": credentials(s.Host, narrow),
				// Clients use the credentials for the mirror's host with its
				// port.
				"the provider's host":           credentials("one.example.com", good),
				"the mirror's without its port": credentials("127.0.0.1", good),
			} {
				t.Run(name, func(t *testing.T) {
					session := session(t, c, s)
					session.CAFile = trust(t, s.CAFile, o.CAFile)
					session.Config = strings.ReplaceAll(
						o.block(),
						originHost,
						"one.example.com",
					) + installation(
						s.mirrorURL(),
						"  direct {}\n",
					) + config
					initFails(
						t,
						session,
						need(t, "one.example.com/acme/note 1.0.0"),
						s.Host+" rejected the given authentication credentials",
					)
				})
			}
		})
	})
	// Larder sends two requests for versions, and three for packages. Clients
	// send none.
	if received := o.requests(t, "path=/v1/providers/"); len(received) != 5 {
		t.Errorf("the origin has received:\n%s", received)
	}
}

// With an unrestricted `direct` method, clients install missing providers,
// versions and platforms from the origin.
func TestMirrorAndDirect(t *testing.T) {
	t.Parallel()
	o, s := serveOrigin(t), serve(t, t.TempDir())
	here, elsewhere := platforms()[0], platforms()[1]
	mirrored := o.publish(t, "acme/near", "1.0.0", here, elsewhere)
	o.publish(t, "acme/note", "1.0.0", here, elsewhere)
	o.publish(t, "acme/far", "1.0.0", here, elsewhere)
	o.publish(t, "acme/pad", "1.0.0", here, elsewhere)
	f := o.fill(t, s.data, o.block())
	for _, p := range []string{"near " + here, "note " + here, "far " + elsewhere} {
		name, platform, _ := strings.Cut(p, " ")
		f.run(t, 0, nil, "mirror", "add", originHost+"/acme/"+name, "--platform", platform)
	}
	o.publish(t, "acme/note", "1.1.0", here, elsewhere)
	clients.Each(t, func(t *testing.T, c clients.Client) {
		session := session(t, c, s)
		session.CAFile = trust(t, s.CAFile, o.CAFile)
		session.Config = o.block() + installation(s.mirrorURL(), "  direct {}\n")
		dir := need(
			t,
			originHost+"/acme/near ~> 1.0",
			originHost+"/acme/note ~> 1.0",
			originHost+"/acme/far ~> 1.0",
			originHost+"/acme/pad ~> 1.0",
		)
		out := inits(t, session, dir)
		for provider, want := range map[string]string{
			"near v1.0.0": "verified checksum", // from the mirror
			"note v1.1.0": "signed, key ID", "far v1.0.0": "signed, key ID", "pad v1.0.0": "signed, key ID",
		} {
			// Terraform prints "self-signed" unless HashiCorp's key has signed
			// the provider.
			installed := "Installed " + originHost + "/acme/" + provider + " ("
			if !strings.Contains(out, installed+want) && !strings.Contains(out, installed+"self-"+want) {
				t.Errorf("the output of init does not contain %q:\n%s", installed+want, out)
			}
		}
		near := filepath.Join(mirrored, "terraform-provider-near_1.0.0_"+here+".zip")
		if got, want := locked(t, dir, originHost+"/acme/near"), mirrorLock(t, c, near); !slices.Equal(
			got,
			want,
		) {
			t.Errorf("locked from the mirror is %q, want %q", got, want)
		}
		for _, name := range []string{"note", "far", "pad"} { // SHA256SUMS has both zips
			if got := locked(t, dir, originHost+"/acme/"+name); len(got) != 3 {
				t.Errorf("%s: locked from the origin is %q", name, got)
			}
		}
		// If `direct` excludes the host, clients get only mirrored packages.
		session.Config = o.block() + installation(
			s.mirrorURL(),
			fmt.Sprintf("  direct {\n    exclude = [%q]\n  }\n", originHost+"/*/*"),
		)
		inits(t, session, need(t, originHost+"/acme/note ~> 1.0, < 1.1"))
		initFails(
			t,
			session,
			need(t, originHost+"/acme/note 1.1.0"),
			"no available releases match the given constraints 1.1.0",
		)
		initFails(t, session, need(t, originHost+"/acme/pad ~> 1.0"), "was not found in any of the search locations")
		initFails(
			t,
			session,
			need(t, originHost+"/acme/far ~> 1.0"),
			"does not have a package available for your current platform",
		)
	})
}

// add mirrors the versions and platforms of its flags. The hint for an origin
// that needs a token names the host of the credentials, and no output has it.
func TestMirrorAdd(t *testing.T) {
	t.Parallel()
	o, s := serveOrigin(t, "--require-token"), serve(t, t.TempDir())
	here, elsewhere := platforms()[0], platforms()[1]
	for _, v := range []string{"1.0.0", "1.0.1", "1.1.0"} {
		o.publish(t, "acme/note", v, here, elsewhere)
	}
	address := originHost + "/acme/note"
	f := o.fill(t, s.data, o.block())
	add := func(args ...string) []string {
		return append([]string{"mirror", "add", address, "--platform", here}, args...)
	}
	f.run(t, failure.ExitFailed, []string{"TF_TOKEN_origin_example_com"}, add()...)
	f.run(t, failure.ExitFailed, []string{"127.0.0.1", "credentials block for " + o.Host}, add("--upstream", o.upstream())...)
	with := func(token string) filler {
		return filler{f.data, append([]string{"TF_TOKEN_origin_example_com=" + token}, f.env...)}
	}
	other := token(t, o.data, "--name", "other", "--scope", "read:providers/other/*")
	_, all, code := with(other).try(t, add()...)
	if code != failure.ExitFailed || !strings.Contains(all, "403") || strings.Contains(all, other) {
		t.Errorf("exit code %d:\n%s", code, all)
	}
	f.check(t, address)

	f = with(token(t, o.data, "--name", "key", "--scope", "read:providers/acme/*"))
	mirrored := []string{"Mirrored " + address + " 1.0.1\n", "signed by ", "Acme Releases"}
	f.run(t, 0, mirrored, add("--version", "~> 1.0.0", "--platform", elsewhere)...)
	f.run(t, 0, []string{"Unchanged: " + address + " 1.0.1\n"},
		"mirror", "add", address, "--version", "1.0.1", "--platform", "all")
	f.run(t, 0, nil, add("--version", ">= 1.0.0", "--all")...)
	f.check(t, address, slices.Concat(
		[]string{"1.1.0 " + here}, sorted("1.0.1", here, elsewhere), []string{"1.0.0 " + here})...)
	f.run(t, failure.ExitNotFound, []string{"2.0.0"}, add("--version", "2.0.0")...)
	f.run(t, failure.ExitUsage, []string{"--platform"}, "mirror", "add", address)
}

// proxy starts a proxy for the origin. write writes the response to a request,
// with the header and the body of the origin's response.
func (o *origin) proxy(t *testing.T, write func(w http.ResponseWriter, r *http.Request, status int, body []byte),
) *httptest.Server {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: secured(o.CAFile)}}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request, err := http.NewRequestWithContext(r.Context(), r.Method, o.upstream()+r.URL.RequestURI(), nil)
		if err != nil {
			panic(err)
		}
		response, err := client.Do(request)
		if err != nil {
			panic(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			panic(err)
		}
		// URLs in responses must name the proxy.
		body = bytes.ReplaceAll(body, []byte(o.Host), []byte(r.Host))
		w.Header().Set("Content-Type", response.Header.Get("Content-Type"))
		write(w, r, response.StatusCode, body)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	t.Cleanup(client.CloseIdleConnections)
	return s
}

// authority writes the certificate of a server to a file, and returns its path.
func authority(t testing.TB, s *httptest.Server) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ca.pem")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(path, certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// import reads a folder that `providers mirror` has written. export writes the
// same folder, for a static web server or another registry.
func TestMirrorFolder(t *testing.T) {
	t.Parallel()
	o := serveOrigin(t)
	here, elsewhere := platforms()[0], platforms()[1]
	o.publish(t, "acme/note", "1.0.0", here, elsewhere)
	o.publish(t, "acme/pad", "2.0.0-rc.1", here, elsewhere)
	addresses := []string{originHost + "/acme/note", originHost + "/acme/pad"}
	clients.Each(t, func(t *testing.T, c clients.Client) {
		dir := need(t, addresses[0]+" 1.0.0", addresses[1]+" 2.0.0-rc.1")
		client := session(t, c, o.server)
		client.Config = o.block()
		folder, exported := filepath.Join(t.TempDir(), "folder"), filepath.Join(t.TempDir(), "exported")
		args := []string{"providers", "mirror", "-platform=" + here, "-platform=" + elsewhere, folder}
		if _, err := client.Run(t.Context(), dir, args...); err != nil {
			t.Fatal(err)
		}
		f, third := o.fill(
			t,
			filepath.Join(t.TempDir(), "data"),
			"",
		), o.fill(
			t,
			filepath.Join(t.TempDir(), "third"),
			"",
		)
		f.run(
			t,
			0,
			[]string{"Mirrored " + addresses[0] + " 1.0.0\n", "Mirrored " + addresses[1] + " 2.0.0-rc.1\n"},
			"mirror",
			"import",
			folder,
		)
		f.run(
			t,
			0,
			[]string{"Unchanged: " + addresses[0] + " 1.0.0\n", "Unchanged: " + addresses[1] + " 2.0.0-rc.1\n"},
			"mirror",
			"import",
			folder,
		)
		f.run(t, 0, []string{"Exported " + addresses[0] + " 1.0.0\n"}, "mirror", "export", exported)
		f.run(t, 0, []string{"Unchanged: " + addresses[0] + " 1.0.0\n"}, "mirror", "export", exported, addresses[0])
		compareFolders(t, folder, exported)
		third.run(t, 0, nil, "mirror", "import", exported)
		for _, f := range []filler{f, third} {
			f.check(t, addresses[0], sorted("1.0.0", here, elsewhere)...)
			f.check(t, addresses[1], sorted("2.0.0-rc.1", here, elsewhere)...)
		}

		files := http.StripPrefix("/providers/", http.FileServer(http.Dir(exported)))
		static := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			// Clients send the credentials of the mirror's host for documents,
			// but not for packages.
			if sent := r.Header.Get("Authorization") != ""; sent != strings.HasSuffix(r.URL.Path, ".json") {
				t.Errorf("a credential with %s: %t", r.URL.Path, sent)
			}
			files.ServeHTTP(w, r)
		}))
		t.Cleanup(static.Close)
		client.CAFile = authority(t, static)
		client.Config = installation(
			static.URL+"/providers/",
			"",
		) + credentials(
			strings.TrimPrefix(static.URL, "https://"),
			"secret",
		)
		if out := inits(t, client, dir); strings.Count(out, "(verified checksum)") != 2 {
			t.Error(out)
		}

		// If one byte of a zip has changed, nothing of its provider is
		// imported.
		empty := o.fill(t, filepath.Join(t.TempDir(), "data"), "")
		bad := filepath.Join(folder, addresses[0], "terraform-provider-note_1.0.0_"+elsewhere+".zip")
		change(t, bad, contentOfFile)
		empty.run(t, failure.ExitInvalid, []string{filepath.Base(bad)}, "mirror", "import", folder)
		empty.check(t, addresses[0])
		change(t, bad, contentOfFile)
		empty.run(t, 0, nil, "mirror", "import", folder)
	})
}

// compareFolders fails the test unless other has the same zips as folder, and
// documents with at least the same hashes.
func compareFolders(t *testing.T, folder, other string) {
	t.Helper()
	type version struct {
		Versions map[string]struct{}
		Archives map[string]struct {
			URL    string
			Hashes []string
		}
	}
	n := 0
	err := filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		n++
		name, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		first, err1 := os.ReadFile(path)
		second, err2 := os.ReadFile(filepath.Join(other, name))
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		if filepath.Ext(name) != ".json" {
			if !bytes.Equal(first, second) {
				t.Errorf("%s differs", name)
			}
			return nil
		}
		var was, is version
		if err := errors.Join(json.Unmarshal(first, &was), json.Unmarshal(second, &is)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		same := len(was.Versions) == len(is.Versions) && len(was.Archives) == len(is.Archives)
		for v := range was.Versions {
			_, there := is.Versions[v]
			same = same && there
		}
		for platform, a := range was.Archives {
			b := is.Archives[platform]
			same = same && a.URL == b.URL &&
				!slices.ContainsFunc(a.Hashes, func(h string) bool { return !slices.Contains(b.Hashes, h) })
		}
		if !same {
			t.Errorf("%s was\n%s\nand is\n%s", name, first, second)
		}
		return nil
	})
	if err != nil || n != 8 {
		t.Errorf("%d files: %v", n, err)
	}
}

// Clients reject a package if a byte of its content has changed, or if it is
// another package. They accept another zip with the same files, because one
// matching hash is enough.
func TestMirrorTampered(t *testing.T) {
	t.Parallel()
	o, s := serveOrigin(t), serve(t, t.TempDir())
	here := clients.Platform()
	zips := make(map[string]string)
	for _, name := range []string{"byte", "time", "other"} {
		zips[name] = o.publish(t, "acme/"+name, "1.0.0", here)
		o.fill(t, s.data, o.block()).run(t, 0, nil, "mirror", "add", originHost+"/acme/"+name, "--platform", "all")
	}
	stored := func(name string) string {
		found, err := filepath.Glob(filepath.Join(s.data, "objects/mirror", originHost, "acme", name, "1.0.0/*/*.zip"))
		if err != nil || len(found) != 1 {
			t.Fatal(found, err)
		}
		return found[0]
	}
	change(t, stored("byte"), contentOfFile)
	change(t, stored("time"), timeOfFile)
	// A valid package of the same provider.
	another := o.publish(t, "acme/other", "2.0.0", here)
	content, err := os.ReadFile(filepath.Join(another, "terraform-provider-other_2.0.0_"+here+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(stored("other"), content, 0o600); err != nil {
		t.Fatal(err)
	}
	clients.Each(t, func(t *testing.T, c clients.Client) {
		session := session(t, c, s)
		session.Config = installation(s.mirrorURL(), "")
		initFails(t, session, need(t, originHost+"/acme/byte 1.0.0"), "failed to verify provider package checksums")
		initFails(
			t,
			session,
			need(t, originHost+"/acme/other 1.0.0"),
			"provider package doesn't match the any of the expected checksums",
		)
		dir := need(t, originHost+"/acme/time 1.0.0")
		inits(t, session, dir)
		h1, _ := hashes(t, filepath.Join(zips["time"], "terraform-provider-time_1.0.0_"+here+".zip"))
		if got := locked(t, dir, originHost+"/acme/time"); !slices.Contains(got, h1) {
			t.Errorf("locked is %q, want %s", got, h1)
		}
	})
}

// Lock files that clients wrote with packages from the origin are valid for
// packages from the mirror.
func TestMirrorLock(t *testing.T) {
	t.Parallel()
	o, s := serveOrigin(t), serve(t, t.TempDir())
	here, elsewhere := platforms()[0], platforms()[1]
	zips := o.publish(t, "acme/note", "1.0.0", here, elsewhere, thirdPlatform)
	o.publish(t, "acme/note", "1.1.0", here, elsewhere)
	o.publish(t, "acme/pad", "1.0.0", here, elsewhere)
	address := originHost + "/acme/note"
	found := clients.Need(t)
	// One lock file by each client, if both are there.
	configs := []string{need(t, address+" 1.0.0"), need(t, address+" 1.0.0", originHost+"/acme/pad ~> 1.0")}
	var files []string
	for i, dir := range configs {
		session := session(t, found[i%len(found)], o.server)
		session.Config = o.block()
		inits(t, session, dir)
		files = append(files, filepath.Join(dir, ".terraform.lock.hcl"))
	}
	f := o.fill(t, s.data, o.block())
	lock := func(args ...string) []string { return append([]string{"mirror", "lock"}, args...) }

	// The hashes in these lock files match no package, or only that of one
	// platform.
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	h1, _ := hashes(t, filepath.Join(zips, "terraform-provider-note_1.0.0_"+here+".zip"))
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{
		"foreign.hcl": regexp.MustCompile(`"(h1|zh):....`).ReplaceAllString(string(text), `"$1:0000`),
		"one.hcl":     regexp.MustCompile(`(?s)hashes = \[.*\]`).ReplaceAllString(string(text), `hashes = ["`+h1+`"]`),
	})
	foreign, one := filepath.Join(dir, "foreign.hcl"), filepath.Join(dir, "one.hcl")
	f.run(t, failure.ExitInvalid, []string{"foreign.hcl", address}, lock(foreign, "--platform", here)...)
	f.run(t, failure.ExitInvalid, []string{"foreign.hcl", address}, lock(files[0], foreign, "--platform", here)...)
	f.run(
		t,
		failure.ExitInvalid,
		[]string{"one.hcl", "providers lock -platform=" + elsewhere},
		lock(one, "--platform", here+","+elsewhere)...)
	f.check(t, address)

	f.run(
		t,
		0,
		[]string{"Mirrored " + address + " 1.0.0\n"},
		lock(files[0], files[1], "--platform", here+","+elsewhere)...)
	f.run(
		t,
		0,
		[]string{"Unchanged: " + address + " 1.0.0\n"},
		lock(files[0], files[1], "--platform", here+","+elsewhere)...)
	f.run(t, 0, []string{"Unchanged: " + address + " 1.0.0\n"}, lock(one, "--platform", here)...)
	f.run(t, failure.ExitInvalid, []string{"one.hcl"}, lock(one, "--platform", elsewhere)...) // although it is mirrored
	f.check(t, address, sorted("1.0.0", here, elsewhere)...)
	f.check(t, originHost+"/acme/pad", sorted("1.0.0", here, elsewhere)...)
	clients.Each(t, func(t *testing.T, c clients.Client) {
		session := session(t, c, s)
		session.Config = installation(s.mirrorURL(), "")
		for i, file := range files {
			before, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, args := range [][]string{{"-lockfile=readonly"}, nil} {
				dir := need(t, address+" 1.0.0", originHost+"/acme/pad ~> 1.0")
				if i == 0 {
					dir = need(t, address+" 1.0.0")
				}
				writeFiles(t, dir, map[string]string{".terraform.lock.hcl": string(before)})
				inits(t, session, dir, args...)
				if after, err := os.ReadFile(filepath.Join(dir, ".terraform.lock.hcl")); err != nil ||
					!bytes.Equal(after, before) {
					t.Errorf("init %s has changed the lock file: %v\n%s\nbefore:\n%s", args, err, after, before)
				}
				if i == 0 && args == nil {
					// The lock file also accepts the mirror's package for the
					// other platform, and the client adds its h1 hash.
					args := []string{"providers", "lock", "-platform=" + elsewhere, "-net-mirror=" + s.mirrorURL()}
					if _, err := session.Run(t.Context(), dir, args...); err != nil {
						t.Error(err)
					}
					h1, zh := hashes(t, filepath.Join(zips, "terraform-provider-note_1.0.0_"+elsewhere+".zip"))
					if got := locked(t, dir, address); !slices.Contains(got, h1) || !slices.Contains(got, zh) ||
						len(got) != 5 {
						t.Errorf("locked is %q, with %s and %s", got, h1, zh)
					}
				}
			}
		}
	})
}

// Clients have special cases that users and operators of a mirror should know.
func TestMirrorTraps(t *testing.T) {
	t.Parallel()
	o, s := serveOrigin(t), serve(t, t.TempDir(), "--require-token")
	here, elsewhere := platforms()[0], platforms()[1]
	for _, v := range []string{"1.0.0", "2.0.0-rc.1", "3.0.0+build.5"} {
		o.publish(t, "acme/note", v, here, elsewhere)
	}
	f := o.fill(t, s.data, "")
	for _, version := range []string{"1.0.0", "2.0.0-rc.1", "3.0.0+build.5"} {
		f.run(
			t,
			0,
			nil,
			"mirror",
			"add",
			"bücher.example.com/acme/note",
			"--version",
			version,
			"--platform",
			"all",
			"--upstream",
			o.upstream(),
		)
	}
	f.run(
		t,
		0,
		nil,
		"mirror",
		"add",
		"registry.opentofu.org/acme/note",
		"--version",
		"1.0.0",
		"--platform",
		"all",
		"--upstream",
		o.upstream(),
	)
	key := token(t, s.data, "--name", "key", "--scope", "read:mirror/**")
	t.Run("clients", func(t *testing.T) {
		clients.Each(t, func(t *testing.T, c clients.Client) {
			session := session(t, c, s)
			session.Config = installation(s.mirrorURL(), "") + credentials(s.Host, key)
			// Clients request a Unicode hostname in punycode, and a version
			// with pre-release and build metadata.
			for _, version := range []string{"1.0.0", "2.0.0-rc.1", "3.0.0+build.5"} {
				if out := inits(t, session, need(t, "bücher.example.com/acme/note "+version)); !strings.Contains(
					out,
					"bücher.example.com/acme/note v"+version+" (verified checksum)",
				) {
					t.Error(out)
				}
			}
			// Clients cannot use a mirror for a hostname with a port.
			initFails(t, session, need(t, "one.example.com:8443/acme/note 1.0.0"), "unsupported protocol scheme")
			initFails(
				t,
				session,
				need(t, "bücher.example.com/acme/none 1.0.0"),
				"was not found in any of the search locations",
			)
			// With trust_all_hashes, OpenTofu trusts the hashes of all
			// platforms, but only for providers of its own registry.
			if c.Name == "tofu" {
				trusting := session
				trusting.Config = strings.Replace(
					session.Config,
					"network_mirror {",
					"network_mirror {\n    trust_all_hashes = true",
					1,
				)
				for address, want := range map[string]int{"registry.opentofu.org/acme/note": 4, "bücher.example.com/acme/note": 2} {
					dir := need(t, address+" 1.0.0")
					inits(t, trusting, dir)
					if got := locked(t, dir, strings.Replace(address, "bücher", "xn--bcher-kva", 1)); len(got) != want {
						t.Errorf("%s: locked is %q, want %d", address, got, want)
					}
				}
			}
			// Without the final slash, clients drop the last segment of the
			// URL.
			session.Config = installation(strings.TrimSuffix(s.mirrorURL(), "/"), "") + credentials(s.Host, key)
			initFails(
				t,
				session,
				need(t, "bücher.example.com/acme/note 1.0.0"),
				"was not found in any of the search locations",
			)
			session.Config = installation(strings.Replace(s.mirrorURL(), "https:", "http:", 1), "")
			initFails(t, session, need(t, "bücher.example.com/acme/note 1.0.0"), "the mirror must be at an https: URL")
		})
	})
	found, _ := clients.Find()
	if n := len(s.requests(t, "path=/v1/xn--bcher-kva.example.com/acme/note/index.json", "status=404")); n < len(
		found,
	) {
		t.Errorf("%d clients have sent %d requests without the last segment", len(found), n)
	}
}
