package local

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"

	"github.com/larder-registry/larder/pkg/registry"
)

// addressError is the error for an address that a server cannot listen on.
type addressError struct {
	address, reason string
	kind            error
}

func (e *addressError) Error() string { return "cannot listen on " + e.address + ": " + e.reason }

func (e *addressError) Unwrap() error { return e.kind }

// address returns the IPv4 address and the port to listen on. It returns
// [registry.ErrInvalid] for a malformed address.
func (o Options) address() (ip net.IP, port string, err error) {
	wrong := func(hint, format string, args ...any) (net.IP, string, error) {
		reason := &addressError{o.Address, fmt.Sprintf(format, args...), registry.ErrInvalid}
		return nil, "", registry.WithHint(reason, "%s", hint)
	}
	const example = "Write ADDRESS:PORT, such as 127.0.0.1:8443."
	host, port, err := net.SplitHostPort(o.Address)
	switch failed, _ := errors.AsType[*net.AddrError](err); {
	case failed != nil && failed.Err == "missing port in address":
		if _, err := strconv.ParseUint(o.Address, 10, 16); err == nil {
			return wrong("Write 127.0.0.1:"+o.Address+" for only this machine.", "the address before the port is missing")
		}
		return wrong(example, "the port is missing")
	case err != nil:
		return wrong(example, "it is not an address and a port")
	case port == "":
		return wrong(example, "the port is missing")
	case host == "":
		return wrong("Write 127.0.0.1 for only this machine, or 0.0.0.0 for all of its addresses.", "the address is missing")
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return wrong(example, "the port %.100q is not a number from 0 to 65535", port)
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	switch ip = net.ParseIP(host); {
	case ip == nil:
		return wrong("`--host` names the registry; `--listen` takes an address of this machine.",
			"%.100q is not an IPv4 address", host)
	case ip.To4() == nil:
		return wrong("Use an IPv4 address, or a proxy that listens on this address.",
			"it is an IPv6 address, and clients accept no registry host without a dot")
	}
	return ip, port, nil
}

// The values of syscall.EADDRINUSE and syscall.EADDRNOTAVAIL on Windows.
const (
	wsaAddressInUse        = syscall.Errno(10048)
	wsaAddressNotAvailable = syscall.Errno(10049)
)

func isInUse(err error) bool {
	return errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, wsaAddressInUse)
}

func listen(ctx context.Context, ip net.IP, port string) (net.Listener, error) {
	var config net.ListenConfig
	address := net.JoinHostPort(ip.String(), port)
	listener, err := config.Listen(ctx, "tcp4", address)
	if err != nil {
		return nil, listenError(address, ip, err)
	}
	return listener, nil
}

// listenError returns the error for a port that the server cannot listen on.
func listenError(address string, ip net.IP, err error) error {
	_, port, _ := net.SplitHostPort(address)
	failed := &addressError{address: address, kind: err}
	hint := ""
	switch {
	case isInUse(err):
		failed.reason = "another program is using it"
		hint = "Stop it if it is a registry that you no longer need, or choose another port: " +
			"`--listen " + ip.String() + ":0` picks a free one."
	case errors.Is(err, syscall.EADDRNOTAVAIL), errors.Is(err, wsaAddressNotAvailable):
		failed.reason = ip.String() + " is not an address of this machine"
		hint = "Write 127.0.0.1 for only this machine, or 0.0.0.0 for all of its addresses."
	case errors.Is(err, os.ErrPermission):
		failed.reason = "this user may not use port " + port
		hint = "Ports below 1024 are reserved for privileged programs. Choose another, such as 8443, " +
			"and let a proxy forward port " + port + " to it."
	default:
		failed.reason = err.Error()
		if call, ok := errors.AsType[*os.SyscallError](err); ok {
			failed.reason = call.Err.Error()
		}
	}
	return registry.WithHint(failed, "%s", hint)
}
