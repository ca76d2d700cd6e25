package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/larder-registry/larder/pkg/registry"
)

// socketPrefix is the prefix of addresses that are paths of Unix sockets.
const socketPrefix = "unix:"

// maxSocketPath is the length in bytes that every system accepts for a socket.
const maxSocketPath = 100

// plainAddress is like [Options.address] for the plain listener. It returns empty
// texts for a Unix socket.
func (o Options) plainAddress() (address, port string, err error) {
	wrong := func(hint, text string) (string, string, error) {
		reason := &addressError{o.PlainAddress, text, registry.ErrInvalid}
		return "", "", registry.WithHint(reason, "%s", hint)
	}
	switch path, isSocket := strings.CutPrefix(o.PlainAddress, socketPrefix); {
	case o.Host == "":
		return wrong("Give `--host` the name that clients use for the proxy.", "a plain listener needs the name of the host")
	case o.CertificateFile+o.KeyFile != "":
		return wrong("Give `--cert` and `--key` to the proxy, which ends TLS.", "a plain listener uses no certificate")
	case isSocket && (!filepath.IsAbs(path) || len(path) > maxSocketPath):
		return wrong("Write unix: and a path, such as unix:/run/larder/larder.sock.",
			fmt.Sprintf("the socket needs an absolute path of at most %d bytes", maxSocketPath))
	case isSocket:
		_, err := namedHost(o.Host)
		return "", "", err
	}
	if _, err := namedHost(o.Host); err != nil {
		return "", "", err
	}
	secure := o
	secure.Address, secure.PlainAddress = o.PlainAddress, ""
	if address, port, err = secure.address(); err != nil {
		return "", "", err
	}
	trusted, err := o.proxies()
	if err != nil {
		return "", "", err
	}
	if ip, err := netip.ParseAddr(address); (err != nil || !ip.IsLoopback()) && len(trusted.networks) == 0 {
		return wrong("Name the proxies with `--trusted-proxies`, or listen on 127.0.0.1 or a Unix socket.",
			"without TLS, only this machine and named proxies may connect")
	}
	return address, port, nil
}

// namedHost parses the host that clients use, which must have a dot.
func namedHost(text string) (registry.Host, error) {
	host, err := registry.ParseHost(text)
	if err == nil && !strings.Contains(host.Name(), ".") {
		err = registry.WithHint(
			fmt.Errorf("%w host %q: clients accept only a host name with a dot", registry.ErrInvalid, text),
			"Write a name such as registry.example.com, with a port unless that is 443.")
	}
	return host, err
}

// listen listens where the options have it, or continues with the listener of the
// last process. address and port are the result of [Options.address].
func (o Options) listen(ctx context.Context, address, port string) (net.Listener, error) {
	if l := o.Handover.listener(o.listensAt()); l != nil {
		return l, nil
	}
	if path, isSocket := strings.CutPrefix(o.PlainAddress, socketPrefix); isSocket {
		return listenUnix(ctx, path)
	}
	return listen(ctx, address, port)
}

// listensAt returns the address of the options that is in use.
func (o Options) listensAt() string { return cmp.Or(o.PlainAddress, o.Address) }

// listenUnix listens on a Unix socket, which its owner and group can use. It
// replaces the socket of a server that was killed.
func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if isInUse(err) && isUnusedSocket(ctx, path) {
		if err = os.Remove(path); err == nil {
			listener, err = new(net.ListenConfig).Listen(ctx, "unix", path)
		}
	}
	if err == nil {
		if err = os.Chmod(path, 0o660); err == nil { //nolint:gosec // the proxy is in the group
			return listener, nil
		}
		_ = listener.Close()
	}
	failed := &addressError{address: socketPrefix + path, reason: err.Error(), kind: err}
	hint := "Its folder must exist, and this user must be able to write there."
	if call, ok := errors.AsType[*os.SyscallError](err); ok {
		failed.reason = call.Err.Error()
	}
	if isInUse(err) {
		failed.reason = "another program is using it, or it is not a socket"
		hint = "Stop that program, or choose another path."
	}
	return nil, registry.WithHint(failed, "%s", hint)
}

// isUnusedSocket reports whether a path is a socket on which no program listens.
func isUnusedSocket(ctx context.Context, path string) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode().Type() != os.ModeSocket {
		return false
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err == nil {
		_ = conn.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// listensOn returns the address of a listener for people.
func listensOn(l net.Listener) string {
	if l.Addr().Network() == "unix" {
		return socketPrefix + l.Addr().String()
	}
	return l.Addr().String()
}
