package local_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/registry"
)

// A server with a host listens on every address of this machine. Without one, it
// listens on IPv4 loopback addresses only, because clients need a host with a
// dot.
func TestAddresses(t *testing.T) {
	t.Parallel()
	own, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	named := local.Options{Host: "r.example.com", CertificateFile: "cert.pem", KeyFile: "key.pem"}
	ipv4, ipv6, all := []string{"127.0.0.1"}, []string{"::1"}, []string{"127.0.0.1", "::1"}
	for address, test := range map[string]struct {
		reachable []string // addresses at which clients reach it with a host
		alone     bool     // it needs no host
	}{
		"127.0.0.1": {ipv4, true}, "localhost": {ipv4, true}, "[::ffff:127.0.0.1]": {ipv4, true},
		"0.0.0.0": {ipv4, false}, "[::1]": {ipv6, false},
		"[::]": {all, false}, "": {all, false}, "*": {all, false}, own: {nil, false},
	} {
		t.Run(address, func(t *testing.T) {
			t.Parallel()
			if _, _, err := (local.Options{Address: address + ":0"}).ListenAddress(); (err == nil) != test.alone {
				t.Errorf("without a host: %v", err)
			} else if err != nil && (!errors.Is(err, registry.ErrInvalid) || registry.Hint(err) == "") {
				t.Errorf("without a host: %v is not ErrInvalid with a hint", err)
			}
			o := named
			o.Address = address + ":0"
			if err := o.CheckFlags(); err != nil {
				t.Fatal(err)
			}
			ip, port, err := o.ListenAddress()
			if err != nil {
				t.Fatal(err)
			}
			if test.reachable != nil && slices.Contains(test.reachable, "::1") && !hasIPv6(t) {
				t.Skip("LEFT OUT: this machine has no IPv6 loopback address")
			}
			listener, err := local.Listen(t.Context(), ip, port)
			if err != nil && address == own {
				t.Skip("LEFT OUT: this machine does not know its own name:", err)
			} else if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			_, port, err = net.SplitHostPort(listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			for _, at := range all {
				conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", net.JoinHostPort(at, port))
				if err == nil {
					_ = conn.Close()
				}
				if reached := err == nil; test.reachable != nil && reached != slices.Contains(test.reachable, at) {
					t.Errorf("reached at %s: %t", at, reached)
				}
			}
		})
	}
}

// hasIPv6 reports whether this machine has the IPv6 loopback address.
func hasIPv6(t *testing.T) bool {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp6", "[::1]:0")
	if err == nil {
		_ = listener.Close()
	}
	return err == nil
}

// A malformed address is an error with a hint.
func TestAddressErrors(t *testing.T) {
	t.Parallel()
	texts := golden.New(t)
	for _, address := range []string{
		"127.0.0.1:80a", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:https", "127.0.0.1", "127.0.0.1:",
		"8443", "", ":8443", "*:8443", "::1:8443", "[::1]:8443", "[::]:8443", "r.example.com:8443", "0.0.0.0:0", "r/x:8443",
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

// If the server's user may not read a file, the hint refers to the commands that
// give it to that user. An ACME client leaves such a file.
func TestUnreadableFile(t *testing.T) {
	t.Parallel()
	failed := &os.PathError{Op: "open", Path: "access.json", Err: syscall.EACCES}
	golden.New(t).Error(t, local.Unreadable("access.json", "", failed))
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
	_, err = local.Listen(t.Context(), "192.0.2.1", "0")
	texts.Error(t, err)
	// A name without an address.
	texts.Error(t, local.ListenError("r.invalid", "0", &net.DNSError{Err: "no such host", IsNotFound: true}))
	// Ports below 1024 are for privileged programs, such as these tests may be.
	const loopback, port = "127.0.0.1", "443"
	texts.Error(t, local.ListenError(loopback, port, os.NewSyscallError("bind", syscall.EACCES)))
	texts.Error(t, local.ListenError(loopback, port, os.NewSyscallError("bind", syscall.EADDRINUSE)))
	// The text of other errors does not contain the name of a system call.
	other := &net.OpError{Op: "listen", Err: os.NewSyscallError("socket", syscall.EMFILE)}
	err = local.ListenError(loopback, port, other)
	if strings.Contains(err.Error(), "socket") {
		t.Errorf("%v has the name of a system call", err)
	}
	texts.Error(t, err, syscall.EMFILE.Error(), "REASON")
}
