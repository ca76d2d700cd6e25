package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A server takes its folder by --store, a context or --data, as the flag was once
// called. With --quiet it prints its URL and nothing else beside its log.
func TestServedFolder(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"store": {"--store", "data"}, "dir": {"--store", "dir:data"},
		"data": {"--data", "data"}, "colon": {"--data", "da:ta"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, s := t.TempDir(), new(servedView)
			if err := json.Unmarshal([]byte(announced(t, dir, append(args, "--json")...)), s); err != nil {
				t.Fatal(err)
			}
			data := strings.TrimPrefix(args[1], "dir:")
			want := servedView{
				URL: "https://" + s.Host, Host: s.Address, Address: s.Address, CAFile: filepath.Join(dir, data, "tls/ca.pem"),
				Store:   folder(filepath.Join(dir, data)).name,
				Created: true, Open: true, Process: s.Process,
			}
			if diff := cmp.Diff(want, *s, cmp.AllowUnexported(servedView{})); diff != "" {
				t.Errorf("announced (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("quiet", func(t *testing.T) {
		t.Parallel()
		if out := announced(t, t.TempDir(), "--quiet"); !regexp.MustCompile(`^https://127\.0\.0\.1:[0-9]+\n$`).MatchString(out) {
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
			out := announced(t, dir, "--store", data)
			if !strings.Contains(out, want) {
				t.Errorf("%s: want %q:\n%s", data, want, out)
			}
			if !strings.HasSuffix(out, "Stopped.\n") || strings.Contains(out, "context add mine") {
				t.Errorf("%s:\n%s", data, out)
			}
		}
	})
}

// announced runs a server until it answers, and returns what it has printed.
func announced(t *testing.T, dir string, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	log := new(serverLog)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "larder", append([]string{"serve", "--listen", address}, args...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, log
	cmd.Env = append(os.Environ(), "XDG_CONFIG_HOME="+filepath.Join(dir, ".config"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp4", address)
		if err == nil {
			_ = conn.Close()
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the server does not answer: %v\n%s", err, log)
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("larder serve: %v\n%s", err, log)
	}
	return out.String()
}

// A server refuses a store that is not a folder.
func TestServeNeedsFolder(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--store", "stack:larder"}, {"--registry", "https://registry.example.com"}, {"--store", "a", "--data", "b"},
	} {
		out := fails(t, exitUsage, append([]string{"serve"}, args...)...)
		if !strings.Contains(out, "larder serve --store ./larder-data") && !strings.Contains(out, "--store and --data both") {
			t.Errorf("%q:\n%s", args, out)
		}
	}
}

// A second server of a folder says so, and that it is more open than the first. The
// host that commands print is that of a server that runs.
func TestServedTwice(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := serve(t, dir, "--require-token")
	second := serve(t, dir)
	want := fmt.Sprintf("warning: this folder is served already at https://%s by process %d; "+
		"reading there needs a credential, and reading at https://%s needs none\n", first.Host, first.cmd.Process.Pid, second.Host)
	second.log.waitFor(t, want)
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

// A file with an authority is trusted as the system demands.
func TestTrustHint(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ set, system, want string }{
		{"", "linux", "Trust its authority with `export SSL_CERT_FILE=/d/ca.pem`."},
		{"/d/ca.pem", "linux", "Trust its authority with `export SSL_CERT_FILE=/d/ca.pem`."},
		{"/x.pem", "linux", "Add its authority, /d/ca.pem, to the file that SSL_CERT_FILE names, /x.pem, " +
			"or run `export SSL_CERT_FILE=/d/ca.pem`."},
		{"", "darwin", "Add its authority, /d/ca.pem, to those that this system trusts."},
	} {
		if got := trustHint("/d/ca.pem", test.set, test.system); got != test.want {
			t.Errorf("%s, %q: %s, want %s", test.system, test.set, got, test.want)
		}
	}
}
