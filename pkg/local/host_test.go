package local_test

import (
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/larder-registry/larder/pkg/local"
)

// A folder has the host by which it is served, or was served last.
func TestHost(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := create(t, dir)
	defer func() { _ = data.Close() }()
	if data.Host != "" {
		t.Errorf("never served: %q", data.Host)
	}
	listen := func(name string) (*local.Server, net.Listener) {
		t.Helper()
		s, err := data.Listen(t.Context(), local.Options{Address: "127.0.0.1:0"}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if name != "" {
			s.Host = name
			if _, err := s.Register(t.Context(), dir, true); err != nil {
				t.Fatal(err)
			}
		}
		return s, local.ListenerOf(s)
	}
	first, _ := listen("")
	if got := local.Host(dir); got != first.Address {
		t.Errorf("the first server: %q, want %q", got, first.Address)
	}
	if len(first.Others) > 0 {
		t.Errorf("the first server is not alone: %+v", first.Others)
	}
	second, _ := listen("")
	if got := local.Host(dir); got != second.Address {
		t.Errorf("the second server: %q, want %q", got, second.Address)
	}
	want := []local.Running{{Host: first.Host, Address: first.Address, Open: true, Process: os.Getpid()}}
	if diff := cmp.Diff(want, second.Others); diff != "" {
		t.Errorf("servers beside the second (-want +got):\n%s", diff)
	}
	const name = "registry.example.com:8443"
	_, named := listen(name)
	if got := local.Host(dir); got != name {
		t.Errorf("a server with a name: %q", got)
	}
	beside, _ := listen("")
	if got := local.Host(dir); got != name {
		t.Errorf("a server without a name beside one with a name: %q", got)
	}
	if err := named.Close(); err != nil {
		t.Fatal(err)
	}
	last, _ := listen("")
	if got := local.Host(dir); got != last.Address {
		t.Errorf("after the server with a name: %q, want %q", got, last.Address)
	}
	last.Forget(dir)
	if got := local.Host(dir); got != beside.Address {
		t.Errorf("after the last server: %q, want %q", got, beside.Address)
	}
	for _, s := range []*local.Server{beside, first, second} {
		s.Forget(dir)
	}
	if got := local.Host(dir); got != second.Address {
		t.Errorf("after all servers: %q, want %q", got, second.Address)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "served.json-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if err := data.Close(); err != nil {
		t.Fatal(err)
	}
	var err error
	if data, err = local.Open(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if data.Host != second.Address {
		t.Errorf("Open: %q, want %q", data.Host, second.Address)
	}
}

// A server that was killed is not taken for one that runs, unless it was the last.
func TestHostOfKilled(t *testing.T) {
	t.Parallel()
	killed := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")
	if err := killed.Run(); err != nil {
		t.Fatal(err)
	}
	runs := local.Running{Host: "127.0.0.1:1", Address: "127.0.0.1:1", Process: os.Getpid()}
	ended := local.Running{Host: "127.0.0.1:2", Address: "127.0.0.1:2", Process: killed.Process.Pid}
	named := local.Running{Host: "r.example.com", Named: true, Address: "127.0.0.1:3", Process: killed.Process.Pid}
	for name, test := range map[string]struct {
		servers []local.Running
		want    string
	}{
		"one that runs":          {[]local.Running{runs, ended, named}, runs.Host},
		"one that runs is newer": {[]local.Running{named, ended, runs}, runs.Host},
		"none runs":              {[]local.Running{named, ended}, ended.Host},
		"none":                   {nil, ""},
	} {
		dir := t.TempDir()
		if err := local.WriteServers(dir, test.servers); err != nil {
			t.Fatal(err)
		}
		if got := local.Host(dir); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// The authority of a folder is that of the hosts at which it vouches for itself.
func TestAuthorityOf(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	servers := []local.Running{{Host: "127.0.0.1:1"}, {Host: "r.example.com", Named: true}}
	if err := local.WriteServers(dir, servers); err != nil {
		t.Fatal(err)
	}
	if got := local.AuthorityOf(dir, "127.0.0.1:1"); got != "" {
		t.Errorf("a folder without an authority: %q", got)
	}
	authority := filepath.Join(dir, "tls", "ca.pem")
	if err := errors.Join(os.Mkdir(filepath.Dir(authority), 0o700), os.WriteFile(authority, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]string{"127.0.0.1:1": authority, "127.0.0.1:2": "", "r.example.com": ""} {
		if got := local.AuthorityOf(dir, host); got != want {
			t.Errorf("%s: %q, want %q", host, got, want)
		}
	}
}

// A server that cannot listen makes no authority that clients would have to trust.
func TestNoAuthorityWithoutPort(t *testing.T) {
	t.Parallel()
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	dir := t.TempDir()
	data := create(t, dir)
	defer data.Close()
	options := local.Options{Address: taken.Addr().String()}
	if _, err := data.Listen(t.Context(), options, slog.New(slog.DiscardHandler)); err == nil {
		t.Fatal("it listens")
	}
	for _, name := range []string{"tls", "served.json"} {
		if _, err := os.Stat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A file that no server has written is as good as none.
func TestHostDamaged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := create(t, dir)
	if err := data.Close(); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"", "{", "[]", `{"servers": 1}`, `{"servers": [{"host": 1}]}`, `{"servers": [{"host": "a\u001b[31m"}]}`,
		`{"servers": [{}]}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, "served.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := local.Host(dir); got != "" {
			t.Errorf("%s: %q", text, got)
		}
	}
}
