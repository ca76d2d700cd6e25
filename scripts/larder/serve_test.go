package main

import (
	"encoding/json"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/internal/testkit/poll"
	"github.com/larder-registry/larder/scripts/larder/failure"
	"github.com/larder-registry/larder/scripts/larder/place"
)

// serve accepts its folder as a path and with the prefix dir:. With --quiet it prints only its URL, besides its log.
func TestServedFolder(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"store": {"--store", "data"}, "dir": {"--store", "dir:data"},
		"colon": {"--store", "dir:da:ta"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, s := t.TempDir(), new(servedView)
			out, _ := announced(t, dir, append(args, "--json")...)
			if err := json.Unmarshal([]byte(out), s); err != nil {
				t.Fatal(err)
			}
			data := strings.TrimPrefix(args[1], "dir:")
			want := servedView{
				URL: "https://" + s.Host, Host: s.Address, Address: s.Address, CAFile: filepath.Join(dir, data, "tls/ca.pem"),
				Store:   place.Folder(filepath.Join(dir, data)).Name,
				Created: true, Open: true, Process: s.Process,
			}
			if diff := cmp.Diff(want, *s, cmp.AllowUnexported(servedView{})); diff != "" {
				t.Errorf("announced (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("quiet", func(t *testing.T) {
		t.Parallel()
		if out, _ := announced(t, t.TempDir(), "--quiet"); !regexp.MustCompile(`^https://127\.0\.0\.1:[0-9]+\n$`).
			MatchString(out) {
			t.Errorf("printed %q", out)
		}
	})
	t.Run("text", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		contexts := filepath.Join(dir, ".config/larder/config.json")
		writeFiles(t, filepath.Dir(contexts), map[string]string{
			"config.json": `{"contexts": {
				"local": {"store": "/elsewhere"},
				"mine": {"store": "` + filepath.Join(dir, "known") + `"}
			}}`,
		})
		for data, want := range map[string]string{
			"new":   "larder context add local2 " + filepath.Join(dir, "new") + "\n",
			"known": "larder publish module DIR acme/vpc/aws 1.0.0 --context mine\n",
		} {
			out, hints := announced(t, dir, "--store", data)
			if !strings.Contains(hints, want) {
				t.Errorf("%s: want %q:\n%s", data, want, hints)
			}
			if !strings.HasSuffix(out, "Stopped.\n") {
				t.Errorf("%s: the output does not end with Stopped.:\n%s", data, out)
			}
			if strings.Contains(hints, "context add mine") {
				t.Errorf("%s: a hint suggests to add the context again:\n%s", data, hints)
			}
		}
	})
}

// announced runs a server until it has printed its URL and accepts connections
// there. It returns what the server printed.
func announced(t *testing.T, dir string, args ...string) (stdout, stderr string) {
	t.Helper()
	out, log := new(serverLog), new(serverLog)
	args = append([]string{"serve", "--listen", "127.0.0.1:0"}, args...)
	cmd := exec.CommandContext(t.Context(), "larder", args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, out, log
	cmd.Env = append(os.Environ(), "XDG_CONFIG_HOME="+filepath.Join(dir, ".config"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { t.Logf("larder serve:\n%s", log) })
	var address string
	served := regexp.MustCompile(`https://(127\.0\.0\.1:[0-9]+)\b`)
	poll.Until(t, "the server prints its URL", func() bool {
		url := served.FindStringSubmatch(out.String() + log.String())
		if url != nil {
			address = url[1]
		}
		return url != nil
	})
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp4", address)
	if err != nil {
		t.Fatalf("the server accepts no connection: %v\n%s", err, log)
	}
	_ = conn.Close()
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("larder serve: %v\n%s", err, log)
	}
	return out.String(), log.String()
}

// serve rejects a store that is not a folder.
func TestServeNeedsFolder(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	for _, args := range [][]string{
		{"--store", "stack:larder"}, {"--registry", "https://registry.example.com"},
	} {
		texts.Text(t, fails(t, failure.ExitUsage, append([]string{"serve"}, args...)...)+"\n")
	}
}

// A second server of a folder warns about the first one, and that reading needs
// a credential only there. Commands print the host of a running server.
func TestServedTwice(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := serve(t, dir, "--require-token")
	second := serve(t, dir)
	texts := golden.New(t)
	second.log.waitFor(t, "https://"+second.Host+"\n")
	for line := range strings.Lines(second.log.String()) {
		if strings.HasPrefix(line, "warning: ") {
			texts.Text(t, line, first.Host, "FIRST", second.Host, "SECOND", strconv.Itoa(first.cmd.Process.Pid), "PID")
		}
	}
	host := func() string {
		t.Helper()
		var made createdTokenView
		name := strconv.Itoa(rand.Int())
		out := larder(t, "token", "create", "--name", name, "--scope", "read:**", "--json", "--store", "dir:"+dir)
		if err := json.Unmarshal([]byte(out), &made); err != nil {
			t.Fatal(err)
		}
		return made.Host
	}
	if got := host(); got != second.Host {
		t.Errorf("both run: %s, want %s", got, second.Host)
	}
	second.stop(t)
	if got := host(); got != first.Host {
		t.Errorf("the first runs: %s, want %s", got, first.Host)
	}
	first.stop(t)
	if got := host(); got != first.Host {
		t.Errorf("none runs: %s, want %s", got, first.Host)
	}
}

// The hint for trusting an authority depends on the system and on
// SSL_CERT_FILE.
func TestTrustHint(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	for name, test := range map[string]struct{ set, system string }{
		"linux":                  {"", "linux"},
		"linux, trusted already": {"/d/ca.pem", "linux"},
		"linux, another file":    {"/x.pem", "linux"},
		"darwin":                 {"", "darwin"},
	} {
		t.Run(name, func(t *testing.T) {
			texts.Text(t, place.TrustHint("/d/ca.pem", test.set, test.system))
		})
	}
}

// With --log-format json, each line of standard error is JSON: records of the
// start, warnings, requests, and errors of the HTTP server.
func TestJSONLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{
		"access.json": `{"public": ["modules/acme/*"]}`,
	})
	serve(t, filepath.Join(dir, "data"))
	s := serve(t, filepath.Join(dir, "data"), "--log-format", "json", "--access", filepath.Join(dir, "access.json"))
	for _, request := range []string{"GET / HTTP/1.1\r\n\r\n", "no TLS at all\r\n\r\n"} {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp4", s.Host)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte(request)); err != nil {
			t.Error(err)
		}
		_ = conn.Close()
	}
	s.log.waitFor(t, "TLS handshake error")
	s.stop(t)
	var messages []string
	for line := range strings.Lines(s.log.String()) {
		var record struct{ Time, Level, Msg string }
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Errorf("not JSON: %v: %s", err, line)
		}
		if record.Time == "" || record.Level == "" {
			t.Errorf("a record has no time or level: %s", line)
		}
		messages = append(messages, record.Msg)
	}
	for _, want := range []string{"already serves this folder", "TLS handshake error"} {
		if !strings.Contains(strings.Join(messages, "\n"), want) {
			t.Errorf("no record has %q:\n%s", want, s.log)
		}
	}
}

// With --log-format json, the server prints nothing but records, without hints.
func TestJSONAnnouncement(t *testing.T) {
	t.Parallel()
	var messages []string
	out, log := announced(t, t.TempDir(), "--log-format", "json")
	for line := range strings.Lines(out + log) {
		var record struct{ Msg string }
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Errorf("not JSON: %s", line)
		}
		messages = append(messages, record.Msg)
	}
	if !slices.Contains(messages, "serving") {
		t.Errorf("the records are %q, want one of them to be serving", messages)
	}
}

// The server announces the URL of its metrics, which has no credential.
func TestServedMetrics(t *testing.T) {
	t.Parallel()
	out, _ := announced(t, t.TempDir(), "--metrics", ":0")
	want := regexp.MustCompile(`Prometheus can read metrics from http://127\.0\.0\.1:[0-9]+/metrics\n`)
	if !want.MatchString(out) {
		t.Errorf("printed %s", out)
	}
}

// serve rejects options out of their range, and then creates no registry.
func TestServeOptions(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	for name, args := range map[string][]string{
		"log format":      {"--log-format", "xml"},
		"metrics":         {"--metrics", "example.com:9100"},
		"metrics host":    {"--metrics-host", "http://larder/"},
		"connections":     {"--max-connections", "1"},
		"zero":            {"--max-connections", "0"},
		"of each client":  {"--max-connections", "100", "--max-connections-per-client", "101"},
		"negative number": {"--max-connections-per-client", "-1"},
		"two listeners":   {"--listen", "127.0.0.1:0", "--listen-plain", "127.0.0.1:0", "--host", "registry.example.com"},
		"plain, no host":  {"--listen-plain", "127.0.0.1:0"},
		"plain for all":   {"--listen-plain", ":0", "--host", "registry.example.com"},
		"proxy name":      {"--trusted-proxies", "proxy1"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			texts.Text(t, fails(t, failure.ExitUsage, append([]string{"serve", "--store", dir}, args...)...))
			if _, err := os.Stat(dir); err == nil {
				t.Error("the folder exists")
			}
		})
	}
}
