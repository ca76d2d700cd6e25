package local_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/registry"
)

// A malformed address is an error with a hint.
func TestAddressErrors(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	for _, address := range []string{
		"127.0.0.1:80a", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:https", "127.0.0.1", "127.0.0.1:",
		"8443", "", ":8443", "::1:8443", "[::1]:8443", "r.example.com:8443", "0.0.0.0:0",
	} {
		t.Run(address, func(t *testing.T) {
			t.Parallel()
			err := local.Options{Address: address}.Check(t.Context())
			if !errors.Is(err, registry.ErrInvalid) {
				t.Fatalf("%v is not registry.ErrInvalid", err)
			}
			if registry.Hint(err) == "" {
				t.Error("there is no hint")
			}
			texts.Error(t, err)
		})
	}
}

// A secret that cannot be read is an error at the start.
func TestSecretFile(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	dir := t.TempDir()
	empty, good := filepath.Join(dir, "empty"), filepath.Join(dir, "good")
	for path, text := range map[string]string{empty: "\n", good: "s3cret\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	writeAccess := func(secret string) {
		t.Helper()
		text := fmt.Sprintf(`{
			"issuers": [{"issuer": "https://idp.example.com", "audiences": ["a"],
				"rules": [{"claims": {"groups": "platform"}, "scopes": ["read:**"]}]}],
			"login": {"issuer": "https://idp.example.com", "client": "cli", "web": {"client": "w", "secretFile": %q}}
		}`, secret)
		if err := os.WriteFile(filepath.Join(dir, "access.json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{filepath.Join(dir, "missing"), dir, empty} {
		o := local.Options{Address: "127.0.0.1:0", AccessFile: filepath.Join(dir, "access.json")}
		writeAccess(path)
		err := o.Check(t.Context())
		if !errors.Is(err, registry.ErrInvalid) {
			t.Errorf("%s: %v is not ErrInvalid", path, err)
		}
		if _, again := new(local.Data).Listen(t.Context(), o, slog.New(slog.DiscardHandler)); again == nil {
			t.Errorf("%s: the server listens", path)
		}
		texts.Error(t, err, dir, "DIR", filepath.Base(dir), "DIR")
		writeAccess(good)
		if err := o.Check(t.Context()); err != nil {
			t.Errorf("a good secret: %v", err)
		}
	}
}

// A port that the server cannot listen on is an error with a hint.
func TestListenErrors(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	in := taken.Addr().String()
	texts.Error(t, local.Options{Address: in}.Check(t.Context()), in, "127.0.0.1:PORT")
	// An address for documentation, which no machine has.
	_, err = local.Listen(t.Context(), net.IPv4(192, 0, 2, 1), "0")
	texts.Error(t, err)
	// Ports below 1024 are for privileged programs, such as these tests may be.
	loopback := net.IPv4(127, 0, 0, 1)
	texts.Error(t, local.ListenError("127.0.0.1:80", loopback, os.NewSyscallError("bind", syscall.EACCES)))
	// The text of other errors does not contain the name of a system call.
	other := &net.OpError{Op: "listen", Err: os.NewSyscallError("socket", syscall.EMFILE)}
	err = local.ListenError("127.0.0.1:80", loopback, other)
	if strings.Contains(err.Error(), "socket") {
		t.Errorf("%v has the name of a system call", err)
	}
	texts.Error(t, err, syscall.EMFILE.Error(), "REASON")
}
