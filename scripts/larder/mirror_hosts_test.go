package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/clients"
	"github.com/larder-registry/larder/pkg/registry"
)

// publicHosts are the hosts of sources that name none.
var publicHosts = []string{"registry.opentofu.org", "registry.terraform.io"}

// hostBlocks returns host blocks with the URLs of the provider registry protocol.
func hostBlocks(urls map[string]string) (blocks string) {
	for host, u := range urls {
		blocks += fmt.Sprintf("host %q {\n  services = { \"providers.v1\" = %q }\n}\n", host, u)
	}
	return blocks
}

// providersOf returns host blocks that lead to the mirror of a server.
func (s *server) providersOf(hosts ...string) string {
	urls := make(map[string]string)
	for _, host := range hosts {
		urls[host] = "https://" + s.Host + "/v1/providers-of/" + host + "/"
	}
	return hostBlocks(urls)
}

// withoutPackages starts a proxy for the origin that leaves out the field of OpenTofu,
// which registry.terraform.io does not have.
func (o *origin) withoutPackages(t *testing.T) (url, caFile string) {
	t.Helper()
	s := o.proxy(t, func(w http.ResponseWriter, r *http.Request, status int, body []byte) {
		var answer map[string]any
		if strings.Contains(r.URL.Path, "/download/") && json.Unmarshal(body, &answer) == nil {
			delete(answer, "packages")
			body = must(json.Marshal(answer))
		}
		w.Header().Del("Content-Length")
		w.WriteHeader(status)
		_, _ = w.Write(body)
	})
	return s.URL, authority(t, s)
}

// installedLines returns the lines of init about installed providers, sorted.
func installedLines(out string) (lines []string) {
	lines = regexp.MustCompile(`Installed \S+ v\S+ \([^)]*\)`).FindAllString(plain(out), -1)
	slices.Sort(lines)
	return lines
}

// result is what a client does.
type result struct {
	Installed []string
	Lock      string
}

// initialized runs init without what an earlier run has left.
func initialized(t *testing.T, s clients.Session, dir string, args ...string) result {
	t.Helper()
	for _, name := range []string{".terraform", ".terraform.lock.hcl"} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	out := inits(t, s, dir, args...)
	if strings.Contains(out, "Incomplete lock file") {
		t.Errorf("init warns of an incomplete lock file:\n%s", out)
	}
	return result{installedLines(out), lockFile(t, dir)}
}

func lockFile(t *testing.T, dir string) string {
	t.Helper()
	return string(must(os.ReadFile(filepath.Join(dir, ".terraform.lock.hcl"))))
}

// With one host block for each public registry, clients do the same as without a
// mirror: they verify the author's signature, and write the same lock file.
func TestMirrorByHost(t *testing.T) {
	t.Parallel()
	all := append(slices.Clone(platforms()), thirdPlatform)
	var addresses, required []string
	upstreams, direct := make(map[string]string), make(map[string]string)
	var authorities []string
	var origins []*origin
	for _, host := range publicHosts {
		o := serveOrigin(t)
		origins = append(origins, o)
		upstreams[host], authorities = o.upstream(), append(authorities, o.CAFile)
		if host == "registry.terraform.io" {
			proxied, ca := o.withoutPackages(t)
			upstreams[host], authorities = proxied, append(authorities, ca)
		}
		direct[host] = upstreams[host] + "/v1/providers/"
		for _, name := range []string{"acme/note", "acme/ink"} {
			o.publish(t, name, "1.0.0", all...)
			addresses, required = append(addresses, host+"/"+name), append(required, host+"/"+name+" ~> 1.0")
		}
	}
	lockArgs := []string{"providers", "lock"}
	for _, p := range all {
		lockArgs = append(lockArgs, "-platform="+p)
	}
	type reader struct {
		session clients.Session
		server  *server
		dir     string
		want    result // as without a mirror
		locked  string // by `providers lock`
	}
	readers := make(map[string]*reader)
	found, _ := clients.Find()
	for _, c := range found {
		origin := session(t, c, origins[0].server)
		origin.Config, origin.CAFile = hostBlocks(direct), trust(t, authorities...)
		dir := need(t, required...)
		want := initialized(t, origin, dir)
		if len(want.Installed) != len(addresses) || !strings.Contains(want.Installed[0], "signed, key ID") {
			t.Fatalf("%s installs from the origin: %q", c.Name, want.Installed)
		}
		if out, err := origin.Run(t.Context(), dir, lockArgs...); err != nil {
			t.Fatalf("providers lock with the origin: %v\n%s", err, out)
		}
		locked := lockFile(t, dir)
		for _, mode := range pullModes {
			s := servePulling(t, mode, upstreams, trust(t, authorities...))
			r := &reader{session(t, c, s), s, need(t, required...), want, locked}
			r.session.Config = s.providersOf(publicHosts...)
			if mode == registry.PullOpen {
				r.session.CAFile = trust(t, append(slices.Clone(authorities), s.CAFile)...)
			}
			readers[c.Name+string(mode)] = r
		}
	}
	each := func(t *testing.T, test func(*testing.T, *reader)) {
		t.Helper()
		clients.Each(t, func(t *testing.T, c clients.Client) {
			for _, mode := range pullModes {
				t.Run(string(mode), func(t *testing.T) { test(t, readers[c.Name+string(mode)]) })
			}
		})
	}
	same := func(t *testing.T, r *reader) {
		t.Helper()
		if diff := cmp.Diff(r.want, initialized(t, r.session, r.dir)); diff != "" {
			t.Errorf("(-origin +mirror):\n%s", diff)
		}
	}
	t.Run("cold", func(t *testing.T) {
		each(t, func(t *testing.T, r *reader) {
			same(t, r)
			waitForCopies(t, opened(t, r.server.data), "1.0.0", addresses...)
		})
	})
	t.Run("warm", func(t *testing.T) { each(t, same) })
	for _, o := range origins {
		o.stop(t)
	}
	t.Run("origins stopped", func(t *testing.T) {
		each(t, func(t *testing.T, r *reader) {
			d := opened(t, r.server.data)
			for _, address := range addresses {
				age(t, d, address, time.Hour)
			}
			same(t, r)
			if err := os.RemoveAll(filepath.Join(r.dir, ".terraform")); err != nil {
				t.Fatal(err)
			}
			inits(t, r.session, r.dir, "-lockfile=readonly")
			if out, err := r.session.Run(t.Context(), r.dir, lockArgs...); err != nil {
				t.Errorf("providers lock: %v\n%s", err, out)
			}
			if diff := cmp.Diff(r.locked, lockFile(t, r.dir)); diff != "" {
				t.Errorf("providers lock (-origin +mirror):\n%s", diff)
			}
			folder := t.TempDir()
			if out, err := r.session.Run(t.Context(), r.dir, "providers", "mirror", "-platform="+all[0], folder); err != nil {
				t.Errorf("providers mirror: %v\n%s", err, out)
			}
			for _, address := range addresses {
				if zips := must(filepath.Glob(filepath.Join(folder, address, "*.zip"))); len(zips) != 1 {
					t.Errorf("providers mirror wrote %d packages of %s", len(zips), address)
				}
			}
			// A network_mirror block has the same packages.
			network := r.session
			network.Config = installation(r.server.mirrorURL(), "")
			dir := need(t, required...)
			if out := inits(t, network, dir); !strings.Contains(out, "(verified checksum)") {
				t.Errorf("with network_mirror:\n%s", out)
			}
		})
	})
}

// varyingInErrors matches what differs from run to run in the messages of clients.
var varyingInErrors = regexp.MustCompile(`https?://[^\s"]+|[0-9A-F]{16}|[0-9a-f]{64}|/[^\s"]*/T[^\s"]+|on [a-z]+_[a-z0-9]+`)

// outcome returns what init does in one line.
func outcome(t *testing.T, s clients.Session, dir string) string {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(dir, ".terraform")); err != nil {
		t.Fatal(err)
	}
	out, err := s.Run(t.Context(), dir, "init", "-no-color", "-input=false")
	if err == nil {
		return strings.Join(installedLines(varyingInErrors.ReplaceAllString(out, "…")), ", ")
	}
	_, text, found := strings.Cut(plain(out), "Error: ")
	if !found {
		t.Fatalf("init fails without an error: %v\n%s", err, out)
	}
	return varyingInErrors.ReplaceAllString(strings.ReplaceAll(text, "|", "/"), "…")
}
