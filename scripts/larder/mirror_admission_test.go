package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/clients"
	"github.com/larder-registry/larder/pkg/protocol"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/scripts/larder/failure"
)

// longAgo is older than every minimum age of these tests.
var longAgo = time.Date(2023, 3, 10, 9, 30, 0, 0, time.UTC)

// timedOrigin is a proxy for an origin that can change what the origin reports
// about time.
type timedOrigin struct {
	*httptest.Server
	// backdated are the versions that were published at [longAgo], separated by
	// spaces.
	backdated atomic.Value
	// ahead is by how much the clock of the origin is ahead.
	ahead atomic.Int64
}

func (o *origin) timed(t *testing.T, backdated string) *timedOrigin {
	t.Helper()
	p := new(timedOrigin)
	p.backdated.Store(backdated)
	p.Server = o.proxy(t, func(w http.ResponseWriter, r *http.Request, status int, body []byte) {
		if strings.HasSuffix(r.URL.Path, "/versions") && status == http.StatusOK {
			body = p.change(body)
		}
		now := time.Now().Add(time.Duration(p.ahead.Load()))
		w.Header().Set("Date", now.UTC().Format(http.TimeFormat))
		w.WriteHeader(status)
		_, _ = w.Write(body)
	})
	return p
}

// change changes the publication times in a listing.
func (p *timedOrigin) change(body []byte) []byte {
	var listing protocol.ProviderListing
	if err := json.Unmarshal(body, &listing); err != nil {
		panic(err)
	}
	for i := range listing.Versions {
		v := &listing.Versions[i]
		if slices.Contains(strings.Fields(p.backdated.Load().(string)), v.Version.String()) {
			v.PublishedAt = longAgo
		}
	}
	return must(json.Marshal(listing))
}

// block returns a host block with the URL of the proxy.
func (p *timedOrigin) block() string {
	return fmt.Sprintf("host %q {\n  services = {\n    \"providers.v1\" = \"%s/v1/providers/\"\n  }\n}\n",
		originHost, p.URL)
}

// policy sets the mirror policy.
func (f filler) policy(t *testing.T, text string) {
	t.Helper()
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"policy.hcl": text})
	f.run(t, 0, nil, "mirror", "policy", "set", filepath.Join(dir, "policy.hcl"))
}

// stored returns the objects of the mirror.
func (f filler) stored(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(f.data, "objects/mirror/*/*/*/*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// diagnose runs `larder doctor --mirror` for a registry. It fails the test if the
// output lacks one of the texts.
func diagnose(t *testing.T, s *server, address string, texts ...string) {
	t.Helper()
	out, _, _ := runTrusting(t, s.CAFile, "doctor", "https://"+s.Host, "--mirror", address)
	for _, want := range texts {
		if !strings.Contains(plain(out), want) {
			t.Errorf("the output of larder doctor does not contain %q:\n%s", want, out)
		}
	}
}

// Clients get a version only when it is old enough. Until then they get the
// version before it.
func TestMirrorMinimumAge(t *testing.T) {
	t.Parallel()
	o, s := serveOrigin(t), serve(t, t.TempDir())
	here := platforms()[0]
	address := originHost + "/acme/note"
	o.publish(t, "acme/note", "1.0.0", here)
	o.publish(t, "acme/note", "1.1.0", here)
	p := o.timed(t, "1.0.0")
	f := o.fill(t, s.data, p.block())
	f.env = append(f.env, "SSL_CERT_FILE="+trust(t, o.CAFile, authority(t, p.Server)))
	f.policy(t, `allow "`+originHost+`/*/*" { min_age = "7d" }`)
	add := func(args ...string) []string {
		return append([]string{"mirror", "add", address, "--platform", here}, args...)
	}

	f.run(t, 0, []string{"Mirrored " + address + " 1.0.0\n", "1.1.0 is too new until "}, add()...)
	f.run(t, failure.ExitNotAdmitted, []string{"1.1.0", "too new", "mirror admit " + address}, add("--version", "1.1.0")...)
	f.check(t, address, "1.0.0 "+here)
	f.run(t, 0, []string{"NOT MIRRORED", "too new  from ", "minimum age 7 days, published "}, "list", address)
	if got := f.run(t, 0, nil, "list", address, "--quiet"); got != "1.0.0\n" {
		t.Errorf("list --quiet prints %q, want 1.0.0", got)
	}
	t.Run("older version", func(t *testing.T) {
		clients.Each(t, func(t *testing.T, c clients.Client) {
			session := session(t, c, s)
			session.Config = installation(s.mirrorURL(), "")
			if out := inits(t, session, need(t, address+" ~> 1.0")); !strings.Contains(out, "Installed "+address+" v1.0.0") {
				t.Errorf("init does not install 1.0.0:\n%s", out)
			}
			initFails(t, session, need(t, address+" 1.1.0"), "no available releases match the given constraints 1.1.0")
		})
	})
	diagnose(t, s, address, "1.1.0 is too new: ", "larder mirror admit "+address+" 1.1.0")
	t.Run("clocks", func(t *testing.T) { o.clocks(t, p, f, add()) })
	t.Run("admitted", func(t *testing.T) {
		f.run(t, failure.ExitUsage, []string{"--reason is missing"}, "mirror", "admit", address, "1.1.0")
		f.run(t, failure.ExitNotFound, []string{"9.0.0"}, "mirror", "admit", address, "9.0.0", "--reason", "urgent")
		f.run(t, 0, []string{"Mirrored " + address + " 1.1.0\n"},
			"mirror", "admit", address, "1.1.0", "--reason", "CVE-1 affects us")
		f.run(t, 0, []string{"CVE-1 affects us"}, "list", address)
		f.run(t, 0, []string{" admit ", address + " 1.1.0", "CVE-1 affects us"}, "audit", address)
		clients.Each(t, func(t *testing.T, c clients.Client) {
			session := session(t, c, s)
			session.Config = installation(s.mirrorURL(), "")
			inits(t, session, need(t, address+" 1.1.0"))
		})
	})
}

// Each command that shows a version as too new names a command that mirrors it,
// also if the mirror has no version yet. The list of versions that the mirror has
// seen at the origin does not deny that.
func TestMirrorAdmitHints(t *testing.T) {
	t.Parallel()
	o := serveOrigin(t)
	here, address := platforms()[0], originHost+"/acme/note"
	o.publish(t, "acme/note", "1.0.0", here)
	f := o.fill(t, newData(t), o.block())
	f.policy(t, strings.Replace(pullPolicy(registry.PullClosed, map[string]string{originHost: o.upstream()}),
		"{\n", "{\n  min_age = \"7d\"\n", 1))
	s := serveIn(t, []string{"SSL_CERT_FILE=" + o.CAFile}, f.data)
	_, refused, _ := f.try(t, "mirror", "add", address, "--platform", here)
	listed := f.run(t, 0, []string{"NOT MIRRORED", "too new  from "}, "list", address)
	diagnosed, _, _ := runTrusting(t, s.CAFile, "doctor", "https://"+s.Host, "--mirror", address)
	checked := f.run(t, 0, []string{"The mirror has checked the origin: "}, "list", address)
	for _, denial := range []string{"never", "not check", "Until a check"} {
		if strings.Contains(listed+checked, denial) {
			t.Errorf("list prints %q:\n%s\n%s", denial, listed, checked)
		}
	}
	command := regexp.MustCompile("`larder (mirror admit [^`]+)`")
	want := []string{"mirror", "admit", address, "1.0.0", "--reason", "urgent", "--platform", here}
	inserted := strings.NewReplacer("VERSION", "1.0.0", "WHY", "urgent", "…", "urgent", "PLATFORMS", here)
	for name, printed := range map[string]string{"mirror add": refused, "list": listed, "doctor": plain(diagnosed)} {
		found := command.FindStringSubmatch(printed)
		if found == nil {
			t.Errorf("%s names no command:\n%s", name, printed)
			continue
		}
		args := strings.Fields(inserted.Replace(found[1]))
		if i := slices.Index(args, "--store"); i >= 0 { // the filler adds it
			args = slices.Delete(args, i, i+2)
		}
		if diff := cmp.Diff(want, args); diff != "" {
			t.Errorf("the command of %s (-want +got):\n%s", name, diff)
		}
	}
	f.run(t, 0, []string{"Mirrored " + address + " 1.0.0\n"}, want...)
}

// clocks checks that neither a changed time at the origin nor a wrong clock
// mirrors a version early. It mirrors nothing.
func (o *origin) clocks(t *testing.T, p *timedOrigin, f filler, add []string) {
	t.Helper()
	newest := append(slices.Clone(add), "--version", "1.1.0", "--dry-run")
	p.backdated.Store("1.0.0 1.1.0")
	f.run(t, failure.ExitNotAdmitted, []string{"too new"}, newest...)
	later := func(code int, want string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "larder-in-8-days", append(newest, "--store", "dir:"+f.data)...)
		cmd.Env = append(os.Environ(), f.env...)
		out, _ := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != code {
			t.Errorf("in 8 days: exit code %d, want %d", got, code)
		}
		if !bytes.Contains(out, []byte(want)) {
			t.Errorf("in 8 days, the output does not contain %q:\n%s", want, out)
		}
	}
	later(failure.ExitInvalid, "clock")
	p.ahead.Store(int64(8 * 24 * time.Hour))
	f.run(t, failure.ExitInvalid, []string{"clock"}, newest...)
	later(0, "Would mirror "+originHost+"/acme/note 1.1.0\n")
	p.ahead.Store(0)
}

// A version that another key signed is refused until an operator trusts the
// key. Until then clients get the version before it.
func TestMirrorChangedKey(t *testing.T) {
	t.Parallel()
	o, s := serveOrigin(t), serve(t, t.TempDir())
	here := platforms()[0]
	address := originHost + "/acme/note"
	o.publish(t, "acme/note", "1.0.0", here)
	f := o.fill(t, s.data, o.block())
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"mirror.hcl": fmt.Sprintf(
		"platforms = [%q]\nprovider %q {\n  versions = [\">= 1.0.0\"]\n}\n", here, address)})
	sync := []string{"mirror", "sync", filepath.Join(dir, "mirror.hcl")}
	f.run(t, 0, []string{"Mirrored " + address + " 1.0.0\n"}, sync...)

	changed := signingKey(t, "P-256")
	addKey(t, o.data, "acme", changed)
	o.private = filepath.Join(dir, "changed.asc")
	writeFiles(t, dir, map[string]string{"changed.asc": string(changed.Private)})
	o.publish(t, "acme/note", "1.1.0", here)
	before := f.stored(t)
	f.run(t, failure.ExitNotAdmitted, []string{"1.1.0", "key", "mirror trust " + address}, sync...)
	if after := f.stored(t); !slices.Equal(after, before) {
		t.Errorf("stored is %q, want %q", after, before)
	}
	f.check(t, address, "1.0.0 "+here)
	out := f.run(t, 0, []string{"refused  signed by key "}, "list", address)
	key := regexp.MustCompile("larder mirror trust " + regexp.QuoteMeta(address) + " ([0-9A-F]{16}) --reason WHY ").FindStringSubmatch(out)
	if key == nil {
		t.Fatalf("list does not print how to trust the key:\n%s", out)
	}
	f.run(t, 0, []string{" refuse-key ", address + " 1.1.0", key[1]}, "audit", address)
	t.Run("older version", func(t *testing.T) {
		clients.Each(t, func(t *testing.T, c clients.Client) {
			session := session(t, c, s)
			session.Config = installation(s.mirrorURL(), "")
			if out := inits(t, session, need(t, address+" ~> 1.0")); !strings.Contains(out, "Installed "+address+" v1.0.0") {
				t.Errorf("init does not install 1.0.0:\n%s", out)
			}
		})
	})
	diagnose(t, s, address, "1.1.0 is refused", "larder mirror trust "+address+" "+key[1])
	f.run(t, failure.ExitNotFound, nil, "mirror", "trust", address, "0123456789ABCDEF")
	f.run(t, 0, []string{"now trusts key ", key[1]}, "mirror", "trust", address, key[1], "--reason", "announced")
	f.run(t, 0, []string{"Unchanged: ", key[1]}, "mirror", "trust", address, key[1])
	f.run(t, 0, []string{" trust-key ", "announced"}, "audit", address)
	f.run(t, 0, []string{"Mirrored " + address + " 1.1.0\n", "signed by " + key[1]}, sync...)
	f.run(t, 0, []string{"0 faults"}, "verify")
	t.Run("trusted", func(t *testing.T) {
		clients.Each(t, func(t *testing.T, c clients.Client) {
			session := session(t, c, s)
			session.Config = installation(s.mirrorURL(), "")
			inits(t, session, need(t, address+" 1.1.0"))
		})
	})
}

// Every command needs --allow-unsigned for an origin without keys. If other
// versions are signed, an operator must accept that the origin does not sign.
func TestMirrorUnsignedOrigin(t *testing.T) {
	t.Parallel()
	o, here, address := serveOrigin(t), platforms()[0], originHost+"/acme/note"
	var zips string
	for _, version := range []string{"1.0.0", "1.1.0", "1.2.0", "2.0.0", "2.1.0"} {
		folder := o.publish(t, "acme/note", version, here)
		if version == "1.2.0" {
			zips = folder
		}
	}
	unsigned := o.proxy(t, func(w http.ResponseWriter, r *http.Request, status int, body []byte) {
		if !strings.Contains(r.URL.Path, "/2.0.0/") {
			body = bytes.Replace(body, []byte(`"signing_keys"`), []byte(`"other_keys"`), 1)
		}
		w.WriteHeader(status)
		_, _ = w.Write(body)
	})
	f := o.fill(t, t.TempDir(), strings.ReplaceAll(o.block(), o.upstream(), unsigned.URL))
	f.env = append(f.env, "SSL_CERT_FILE="+trust(t, o.CAFile, authority(t, unsigned)))
	h1, _ := hashes(t, filepath.Join(zips, "terraform-provider-note_1.2.0_"+here+".zip"))
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{
		"lock.hcl": fmt.Sprintf("provider %q {\n  version = \"1.2.0\"\n  hashes  = [%q]\n}\n", address, h1),
	})
	fill := func(code int, text string, args ...string) {
		t.Helper()
		f.run(t, code, []string{text}, append([]string{"mirror"}, args...)...)
	}
	add := func(version string) []string {
		return []string{"add", address, "--version", version, "--platform", here}
	}
	for version, args := range map[string][]string{
		"1.0.0": add("1.0.0"),
		"1.1.0": {"admit", address, "1.1.0", "--reason", "urgent", "--platform", here},
		"1.2.0": {"lock", filepath.Join(dir, "lock.hcl"), "--platform", here},
	} {
		fill(failure.ExitInvalid, "--allow-unsigned", args...)
		fill(0, "Mirrored "+address+" "+version+"\n", append(args, "--allow-unsigned")...)
	}
	fill(0, "signed by ", add("2.0.0")...)
	again := append(add("2.1.0"), "--allow-unsigned")
	fill(failure.ExitNotAdmitted, "mirror trust "+address+" unsigned", again...)
	fill(0, "The mirror now accepts versions of "+address+" without a signature.", "trust", address, "unsigned")
	fill(0, "Mirrored "+address+" 2.1.0\n", again...)
}

// The policy's refusal has an exit code and a code of its own. An operator can
// overrule the policy with a reason, which is recorded.
func TestMirrorPolicyApplies(t *testing.T) {
	t.Parallel()
	o := serveOrigin(t)
	here, address := platforms()[0], originHost+"/acme/note"
	o.publish(t, "acme/note", "1.0.0", here)
	f := o.fill(t, t.TempDir(), o.block())
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{
		"mirror.hcl": fmt.Sprintf("platforms = [%q]\nprovider %q {\n  versions = [\"1.0.0\"]\n}\n", here, address),
	})
	f.policy(t, `allow "*/*/*" { min_age = "7d" }`)
	add := []string{"mirror", "add", address, "--platform", here}
	f.run(t, failure.ExitNotAdmitted, []string{"too new"}, add...)
	var failed struct{ Code string }
	out := f.run(t, failure.ExitNotAdmitted, nil, append(add, "--json")...)
	if err := json.Unmarshal([]byte(out), &failed); err != nil || failed.Code != "not_admitted" {
		t.Errorf("code %q, want not_admitted (%v)", failed.Code, err)
	}
	// A cool-down does not make a sync fail every night.
	f.run(t, 0, []string{"Skipped " + address + " 1.0.0\n", "too new"}, "mirror", "sync", filepath.Join(dir, "mirror.hcl"))
	f.check(t, address)
	f.run(t, failure.ExitUsage, []string{"--overrule"}, append(add, "--overrule", " ")...)
	f.run(t, 0, []string{"Mirrored " + address + " 1.0.0\n"}, append(add, "--overrule", "for the demo")...)
	f.run(t, 0, []string{" overrule ", address + " 1.0.0", "for the demo"}, "audit", address)
}
