package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/clients"
	"github.com/larder-registry/larder/internal/testkit/poll"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/scripts/larder/failure"
)

// pullModes are the modes in which the mirror fetches what it lacks.
var pullModes = []registry.PullMode{registry.PullOpen, registry.PullClosed}

// servePulling runs a mirror that fetches providers in a mode until the test
// ends. upstreams are the URLs of the origins by hostname, and caFile has their
// authorities.
func servePulling(
	t *testing.T, mode registry.PullMode, upstreams map[string]string, caFile string, args ...string,
) *server {
	t.Helper()
	f := filler{data: newData(t)}
	f.policy(t, pullPolicy(mode, upstreams))
	return serveIn(t, []string{"SSL_CERT_FILE=" + caFile}, f.data, args...)
}

// pullPolicy returns a policy that lets clients make the mirror fetch the
// providers of hosts.
func pullPolicy(mode registry.PullMode, upstreams map[string]string) string {
	var text strings.Builder
	for host, url := range upstreams {
		fmt.Fprintf(&text, "allow \"%s/*/*\" {\n  pull     = %q\n  upstream = %q\n  networks = [\"127.0.0.0/8\"]\n}\n",
			host, mode, url)
	}
	return text.String()
}

// opened opens the registry in a folder until the test ends.
func opened(t testing.TB, data string) *local.Data {
	t.Helper()
	d, err := local.Open(t.Context(), data)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// waitForCopies waits until version 1.0.0 of each provider is mirrored.
func waitForCopies(t *testing.T, d *local.Data, addresses ...string) {
	t.Helper()
	for _, address := range addresses {
		poll.Until(t, address+" 1.0.0 is copied", func() bool {
			_, err := d.Catalog.Mirror.Get(t.Context(), must(registry.ParseMirrorProvider(address)), parsed("1.0.0"))
			if err != nil && !errors.Is(err, registry.ErrNotFound) {
				t.Fatal(err)
			}
			return err == nil
		})
	}
}

// age makes the last look at the origin of a provider older.
func age(t *testing.T, d *local.Data, address string, by time.Duration) {
	t.Helper()
	p := must(registry.ParseMirrorProvider(address))
	state, err := d.Catalog.Mirror.State(t.Context(), p, p.Hostname, nil, time.Now())
	if err == nil {
		err = state.Update(t.Context(), func() error {
			state.Pulled.CheckedAt = state.Pulled.CheckedAt.Add(-by)
			return nil
		})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// checkInstalled checks that init has installed a version of each provider, and
// has locked the hashes of its zip.
func checkInstalled(t *testing.T, c clients.Client, dir, out, version string, zips map[string]string) {
	t.Helper()
	for address, zip := range zips {
		if want := "Installed " + address + " v" + version + " (verified checksum)"; !strings.Contains(out, want) {
			t.Errorf("the output of init does not contain %q:\n%s", want, out)
		}
		if diff := cmp.Diff(mirrorLock(t, c, zip), locked(t, dir, address)); diff != "" {
			t.Errorf("%s: locked (-want +got):\n%s", address, diff)
		}
	}
}

// An empty mirror fetches five providers of two origins when clients request
// them. Clients then need the origins no longer.
func TestPullThrough(t *testing.T) {
	t.Parallel()
	here := platforms()[0]
	origins := map[string]*origin{"one.example.com": serveOrigin(t), "two.example.com": serveOrigin(t)}
	addresses := []string{
		"one.example.com/acme/note", "one.example.com/acme/pad", "one.example.com/acme/pen",
		"two.example.com/acme/ink", "two.example.com/acme/note",
	}
	var required []string
	zips := make(map[string]string)
	for _, address := range addresses {
		host, name, _ := strings.Cut(address, "/")
		dir := origins[host].publish(t, name, "1.0.0", here)
		zips[address] = filepath.Join(dir, "terraform-provider-"+filepath.Base(name)+"_1.0.0_"+here+".zip")
		required = append(required, address+" ~> 1.0")
	}
	upstreams := make(map[string]string)
	var authorities []string
	for host, o := range origins {
		upstreams[host] = o.upstream()
		authorities = append(authorities, o.CAFile)
	}
	type reader struct {
		session clients.Session
		mirror  *server
		data    *local.Data
		dir     string
	}
	readers := make(map[string]reader) // by client and mode
	found, _ := clients.Find()
	for _, c := range found {
		for _, mode := range pullModes {
			s := servePulling(t, mode, upstreams, trust(t, authorities...))
			r := reader{session(t, c, s), s, opened(t, s.data), need(t, required...)}
			r.session.Config = installation(s.mirrorURL(), "")
			readers[c.Name+string(mode)] = r
		}
	}
	each := func(t *testing.T, test func(*testing.T, registry.PullMode, reader)) {
		clients.Each(t, func(t *testing.T, c clients.Client) {
			for _, mode := range pullModes {
				t.Run(string(mode), func(t *testing.T) { test(t, mode, readers[c.Name+string(mode)]) })
			}
		})
	}

	t.Run("empty mirror", func(t *testing.T) {
		each(t, func(t *testing.T, mode registry.PullMode, r reader) {
			if mode == registry.PullOpen {
				// Clients download the packages from their origins.
				r.session.CAFile = trust(t, append(slices.Clone(authorities), r.mirror.CAFile)...)
			}
			checkInstalled(t, r.session.Client, r.dir, inits(t, r.session, r.dir), "1.0.0", zips)
			waitForCopies(t, r.data, addresses...)
			if out := larder(t, "verify", "--store", "dir:"+r.mirror.data); !strings.Contains(out, "0 faults") {
				t.Errorf("verify:\n%s", out)
			}
		})
	})
	downloads := 0
	for _, o := range origins {
		downloads += len(o.requests(t, "method=GET", "path=/objects/", ".zip "))
	}
	// The mirrors have downloaded each package once. Clients of the open mirrors
	// have too.
	if want := len(addresses) * 3 * len(found); downloads != want {
		t.Errorf("the origins have sent %d packages, want %d", downloads, want)
	}
	t.Run("origins stopped", func(t *testing.T) {
		each(t, func(t *testing.T, _ registry.PullMode, r reader) {
			for _, address := range addresses {
				age(t, r.data, address, time.Hour)
			}
			remove := func(names ...string) {
				for _, name := range names {
					if err := os.RemoveAll(filepath.Join(r.dir, name)); err != nil {
						t.Fatal(err)
					}
				}
			}
			remove(".terraform")
			inits(t, r.session, r.dir, "-lockfile=readonly")
			remove(".terraform", ".terraform.lock.hcl")
			checkInstalled(t, r.session.Client, r.dir, inits(t, r.session, r.dir), "1.0.0", zips)
		})
	})
}

// Clients get the versions that their lock files name, and versions that the
// origin has released since the mirror looked.
func TestPullThroughPins(t *testing.T) {
	t.Parallel()
	o, here, address := serveOrigin(t), platforms()[0], originHost+"/acme/note"
	zipOf := func(version string) map[string]string {
		dir := o.publish(t, "acme/note", version, here, platforms()[1])
		return map[string]string{address: filepath.Join(dir, "terraform-provider-note_"+version+"_"+here+".zip")}
	}
	zipOf("1.0.0")
	zipOf("1.0.1")
	mirrors := make(map[string]*server) // by client
	found, _ := clients.Find()
	for _, c := range found {
		mirrors[c.Name] = servePulling(t, registry.PullClosed, map[string]string{originHost: o.upstream()}, o.CAFile)
	}
	t.Run("lock file", func(t *testing.T) {
		clients.Each(t, func(t *testing.T, c clients.Client) {
			s, dir := mirrors[c.Name], need(t, address+" 1.0.0")
			direct := session(t, c, o.server)
			direct.Config = o.block()
			inits(t, direct, dir)
			writeFiles(t, dir, map[string]string{"main.tf": strings.Replace(
				string(must(os.ReadFile(filepath.Join(dir, "main.tf")))), `"1.0.0"`, `"~> 1.0"`, 1)})
			if err := os.RemoveAll(filepath.Join(dir, ".terraform")); err != nil {
				t.Fatal(err)
			}
			session := session(t, c, s)
			session.Config = installation(s.mirrorURL(), "")
			out := inits(t, session, dir, "-lockfile=readonly")
			if want := "Installed " + address + " v1.0.0"; !strings.Contains(out, want) {
				t.Errorf("the output of init does not contain %q:\n%s", want, out)
			}
		})
	})
	newer := zipOf("1.1.0")
	t.Run("newer version", func(t *testing.T) {
		clients.Each(t, func(t *testing.T, c clients.Client) {
			s := mirrors[c.Name]
			only := session(t, c, s)
			only.Config = installation(s.mirrorURL(), "")
			initFails(t, only, need(t, address+" 1.1.0"), "no available releases match the given constraints 1.1.0")
			// A client with a second source requests the version although the mirror
			// does not list it.
			both := session(t, c, s)
			both.CAFile = trust(t, s.CAFile, o.CAFile)
			both.Config = o.block() + installation(s.mirrorURL(), "  direct {}\n")
			age(t, opened(t, s.data), address, 2*registry.PullRetry)
			dir := need(t, address+" 1.1.0")
			checkInstalled(t, c, dir, inits(t, both, dir), "1.1.0", newer)
			dir = need(t, address+" ~> 1.1")
			checkInstalled(t, c, dir, inits(t, only, dir), "1.1.0", newer)
		})
	})
}

// Callers without permission do not make the mirror fetch anything. The
// credential of a caller never reaches the origin.
func TestPullThroughAccess(t *testing.T) {
	t.Parallel()
	o, here, address := serveOrigin(t), platforms()[0], originHost+"/acme/note"
	dir := o.publish(t, "acme/note", "1.0.0", here)
	zips := map[string]string{address: filepath.Join(dir, "terraform-provider-note_1.0.0_"+here+".zip")}
	var mu sync.Mutex
	var all []*http.Request
	received := func() []*http.Request {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
	proxy := o.proxy(t, func(w http.ResponseWriter, r *http.Request, status int, body []byte) {
		mu.Lock()
		all = append(all, r.Clone(context.Background()))
		mu.Unlock()
		w.WriteHeader(status)
		_, _ = w.Write(body)
	})
	ca := authority(t, proxy)
	upstreams := map[string]string{originHost: proxy.URL}
	mirrors, tokens := make(map[string]*server), make(map[string]string) // by client
	found, _ := clients.Find()
	for _, c := range found {
		s := servePulling(t, registry.PullOpen, upstreams, ca, "--require-token")
		mirrors[c.Name] = s
		tokens[c.Name] = token(t, s.data, "--name", "good", "--scope", "read:mirror/"+originHost+"/**")
	}
	t.Run("refused", func(t *testing.T) {
		clients.Each(t, func(t *testing.T, c clients.Client) {
			s := mirrors[c.Name]
			other := token(t, s.data, "--name", "other", "--scope", "read:mirror/two.example.com/**")
			for name, config := range map[string]string{
				"no token":      "",
				"another scope": credentials(s.Host, other),
			} {
				t.Run(name, func(t *testing.T) {
					session := session(t, c, s)
					session.Config = installation(s.mirrorURL(), "") + config
					initFails(t, session, need(t, address+" 1.0.0"), "rejected the given authentication credentials")
				})
			}
		})
	})
	if n := len(received()); n > 0 {
		t.Errorf("for callers without permission, the origin has received %d requests", n)
	}
	t.Run("allowed", func(t *testing.T) {
		clients.Each(t, func(t *testing.T, c clients.Client) {
			s := mirrors[c.Name]
			session := session(t, c, s)
			session.CAFile = trust(t, s.CAFile, ca)
			session.Config = installation(s.mirrorURL(), "") + credentials(s.Host, tokens[c.Name])
			dir := need(t, address+" 1.0.0")
			checkInstalled(t, c, dir, inits(t, session, dir), "1.0.0", zips)
			waitForCopies(t, opened(t, s.data), address)
			s.stop(t)
		})
	})
	if len(found) > 0 && len(received()) == 0 {
		t.Error("the origin has received nothing")
	}
	for _, r := range received() {
		for _, name := range []string{"Authorization", "Cookie", "X-Terraform-Version"} {
			if value := r.Header.Get(name); value != "" {
				t.Errorf("%s %s has the header %s", r.Method, r.URL.Path, name)
			}
		}
		for client, token := range tokens {
			if sent := fmt.Sprint(r.URL, r.Header); strings.Contains(sent, token) {
				t.Errorf("%s %s has the token of %s", r.Method, r.URL.Path, client)
			}
			if secret := r.URL.RawQuery; secret != "" && strings.Contains(mirrors[client].log.String(), secret) {
				t.Errorf("the log for %s has the URL of %s", client, r.URL.Path)
			}
		}
	}
	for client, token := range tokens {
		if strings.Contains(mirrors[client].log.String(), token) {
			t.Errorf("the log for %s has its token", client)
		}
	}
}

// A server ends although clients wait for an origin that does not answer.
func TestPullThroughInterrupted(t *testing.T) {
	t.Parallel()
	o, index := serveOrigin(t), "/v1/mirror/"+originHost+"/acme/note/index.json"
	o.publish(t, "acme/note", "1.0.0", platforms()[0])
	waiting := make(chan struct{}, 10)
	proxy := o.proxy(t, func(w http.ResponseWriter, r *http.Request, status int, body []byte) {
		if strings.HasSuffix(r.URL.Path, "/versions") {
			waiting <- struct{}{}
			<-r.Context().Done()
			panic(http.ErrAbortHandler) // a response could still arrive
		}
		w.WriteHeader(status)
		_, _ = w.Write(body)
	})
	server := servePulling(t, registry.PullOpen, map[string]string{originHost: proxy.URL}, authority(t, proxy))
	done := make(chan int, 1)
	go func() {
		status, _, _ := server.try(t.Context(), index)
		done <- status
	}()
	<-waiting
	server.stop(t)
	if status := <-done; status != http.StatusServiceUnavailable {
		t.Errorf("the waiting client gets status %d, want %d", status, http.StatusServiceUnavailable)
	}
}

// A running server applies a new policy at once, although it has answered a
// client before.
func TestPullThroughPolicySet(t *testing.T) {
	t.Parallel()
	o := serveOrigin(t)
	o.publish(t, "acme/note", "1.0.0", platforms()[0])
	f := filler{data: newData(t)}
	s := serveIn(t, []string{"SSL_CERT_FILE=" + o.CAFile}, f.data)
	index := "/v1/mirror/" + originHost + "/acme/note/index.json"
	if status, body := s.get(t, index); status != http.StatusNotFound {
		t.Errorf("without a policy: %d\n%s", status, body)
	}
	f.policy(t, pullPolicy(registry.PullClosed, map[string]string{originHost: o.upstream()}))
	poll.Until(t, "it serves with a policy", func() bool {
		status, _ := s.get(t, index)
		return status == http.StatusOK
	})
}

// An operator can withdraw a version that is not mirrored, although clients have got
// it from its origin. The mirror then neither lists nor fetches it. The error without
// --missing suggests no other version, but a similar provider for an unknown one.
func TestPullThroughWithdrawn(t *testing.T) {
	t.Parallel()
	for _, mode := range pullModes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			o, address := serveOrigin(t), originHost+"/acme/note"
			o.publish(t, "acme/note", "1.0.0", platforms()[0])
			o.publish(t, "acme/note", "1.1.0", platforms()[0])
			s := servePulling(t, mode, map[string]string{originHost: o.upstream()}, o.CAFile)
			f := filler{data: s.data}
			read := func(document, want string) {
				t.Helper()
				if _, body := s.get(t, "/v1/mirror/"+address+"/"+document); !strings.Contains(string(body), want) {
					t.Errorf("%s is %s, want %s", document, body, want)
				}
			}
			read("index.json", `{"1.0.0":{},"1.1.0":{}}`)
			read("1.0.0.json", `_1.0.0_`)
			waitForCopies(t, opened(t, s.data), address)

			withdraw := func(address string) []string {
				return []string{"withdraw", address, "1.1.0", "--reason", "a leak", "--yes"}
			}
			for typed, hint := range map[string]string{
				address:       "It is not mirrored. To keep it out of the mirror, use --missing. ",
				address + "s": "Did you mean " + address + "? To keep " + address + "s out of the mirror, use --missing.\n",
			} {
				_, text, code := f.try(t, withdraw(typed)...)
				if code != failure.ExitNotFound {
					t.Errorf("%s: exit code %d, want %d", typed, code, failure.ExitNotFound)
				}
				if !strings.Contains(text, "\n"+hint) {
					t.Errorf("%s: the hint is wrong:\n%s", typed, text)
				}
			}
			f.run(t, 0, nil, append(withdraw(address), "--missing")...)
			read("1.1.0.json", `{"archives":{}}`)
			read("index.json", `{"versions":{"1.0.0":{}},`)
			f.run(t, 0, []string{"1.1.0    withdrawn"}, "list", address)
			if found := o.requests(t, "path=/v1/providers/acme/note/1.1.0/"); len(found) > 0 {
				t.Errorf("the mirror requested the withdrawn version:\n%s", strings.Join(found, ""))
			}
		})
	}
}

// get returns the response to a request to the server, which it trusts.
func (s *server) get(t *testing.T, path string) (status int, body []byte) {
	t.Helper()
	status, body, err := s.try(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	return status, body
}

// try is get with an error if there is no response.
func (s *server) try(ctx context.Context, path string) (status int, body []byte, err error) {
	transport := &http.Transport{TLSClientConfig: secured(s.CAFile)}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+s.Host+path, nil)
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Accept", "application/json")
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	body, err = io.ReadAll(response.Body)
	return response.StatusCode, body, err
}
