package local

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unicode"

	"github.com/larder-registry/larder/pkg/registry"
)

// addressError is the error for an address that a server cannot listen on.
type addressError struct {
	address, reason string
	kind            error
}

func (e *addressError) Error() string { return "cannot listen on " + e.address + ": " + e.reason }

func (e *addressError) Unwrap() error { return e.kind }

// address returns the address and the port to listen on, for [listen]. The
// address is an IP address, a name of this machine, or empty for all addresses.
// It returns [registry.ErrInvalid] for a malformed address, and for one that
// needs a host but has none. For a Unix socket both are empty.
func (o Options) address() (address, port string, err error) {
	if o.PlainAddress != "" {
		return o.plainAddress()
	}
	wrong := func(hint, format string, args ...any) (string, string, error) {
		reason := &addressError{o.Address, fmt.Sprintf(format, args...), registry.ErrInvalid}
		return "", "", registry.WithHint(reason, "%s", hint)
	}
	const (
		example  = "Write ADDRESS:PORT, such as 127.0.0.1:8443."
		needHost = "Give `--host`, `--cert` and `--key`, or listen on 127.0.0.1 for only this machine."
	)
	address, port, err = net.SplitHostPort(o.Address)
	switch failed, _ := errors.AsType[*net.AddrError](err); {
	case failed != nil && failed.Err == "missing port in address":
		if _, err := strconv.ParseUint(o.Address, 10, 16); err == nil {
			return wrong("Write 127.0.0.1:"+o.Address+" for only this machine.", "the address before the port is missing")
		}
		return wrong(example, "the port is missing")
	case err != nil:
		return wrong(example, "it is not an address and a port; an IPv6 address needs brackets")
	case port == "":
		return wrong(example, "the port is missing")
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return wrong(example, "the port %.100q is not a number from 0 to 65535", port)
	}
	switch address {
	case "*":
		address = ""
	case "localhost":
		address = "127.0.0.1"
	}
	ip, notIP := netip.ParseAddr(address)
	if notIP == nil {
		ip = ip.Unmap()
		address = ip.String()
	}
	switch {
	case notIP != nil && address != "" && !isName(address):
		return wrong(example, "%.100q is not an address or a name of a machine", address)
	case o.Host != "", o.CertificateFile != "", o.KeyFile != "": // source checks that all are set
	case notIP != nil && address != "":
		return wrong("`--host` names the registry; `--listen` takes an address of this machine.",
			"a name of this machine needs a host name and a certificate that clients trust")
	case ip.Is6() && ip.IsLoopback():
		return wrong(needHost, "clients accept no IPv6 address as the host of a registry")
	case !ip.Is4() || !ip.IsLoopback():
		return wrong(needHost, "other machines need a host name and a certificate that they trust")
	}
	return address, port, nil
}

// isName reports whether a text can be the name of a machine.
func isName(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool {
		return r != '-' && r != '.' && r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
}

// The values of syscall.EADDRINUSE and syscall.EADDRNOTAVAIL on Windows.
const (
	wsaAddressInUse        = syscall.Errno(10048)
	wsaAddressNotAvailable = syscall.Errno(10049)
)

func isInUse(err error) bool {
	return errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, wsaAddressInUse)
}

// listen listens on an address, as [Options.address] returns it. An IPv4 address
// accepts only IPv4. No address, and ::, accept both.
func listen(ctx context.Context, address, port string) (net.Listener, error) {
	network := "tcp"
	if ip, err := netip.ParseAddr(address); err == nil && ip.Is4() {
		network = "tcp4" // otherwise 0.0.0.0 would accept IPv6 too
	}
	listener, err := new(net.ListenConfig).Listen(ctx, network, net.JoinHostPort(address, port))
	if err != nil {
		return nil, listenError(address, port, err)
	}
	return listener, nil
}

// listenError returns the error for a port that the server cannot listen on.
func listenError(address, port string, err error) error {
	failed := &addressError{address: net.JoinHostPort(address, port), kind: err}
	hint := ""
	unknown, isUnknown := errors.AsType[*net.DNSError](err)
	switch {
	case isInUse(err) && port == "443": // another port would change the host of all addresses
		failed.reason = "another program is using it"
		hint = "Stop it. If it is a web server, let it forward requests to Larder: see docs/reverse-proxy.md."
	case isInUse(err):
		failed.reason = "another program is using it"
		hint = "Stop it if it is a registry that you no longer need, or choose another port: " +
			"`--listen " + net.JoinHostPort(address, "0") + "` picks a free one."
	case errors.Is(err, syscall.EADDRNOTAVAIL), errors.Is(err, wsaAddressNotAvailable), isUnknown && unknown.IsNotFound:
		failed.reason = address + " is not an address of this machine"
		hint = "Write 127.0.0.1 for only this machine, or 0.0.0.0 for all of its addresses."
	case errors.Is(err, os.ErrPermission):
		failed.reason = "this user may not use port " + port
		hint = "On Linux, the packaged service may use it. For another program, run " +
			"`sudo setcap cap_net_bind_service=+ep \"$(readlink -f \"$(command -v larder)\")\"` after each installation. " +
			"For a trial, choose a port above 1023, such as 8443."
	default:
		failed.reason = err.Error()
		if call, ok := errors.AsType[*os.SyscallError](err); ok {
			failed.reason = call.Err.Error()
		}
	}
	return registry.WithHint(failed, "%s", hint)
}
