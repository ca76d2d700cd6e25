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

// addressError is why a server cannot listen.
type addressError struct {
	address, reason string
	kind            error
}

func (e *addressError) Error() string { return "cannot listen on " + e.address + ": " + e.reason }

func (e *addressError) Unwrap() error { return e.kind }

// address returns the IPv4 address and the port to listen on. Errors are
// registry.ErrInvalid.
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
			return wrong("Write 127.0.0.1:"+o.Address+" for this machine alone.", "the address before the port is missing")
		}
		return wrong(example, "the port is missing")
	case err != nil:
		return wrong(example, "it is not an address and a port")
	case port == "":
		return wrong(example, "the port is missing")
	case host == "":
		return wrong("Write 127.0.0.1 for this machine alone, or 0.0.0.0 for all of its addresses.", "the address is missing")
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
		return wrong("Use an IPv4 address, or a proxy that listens on this one.",
			"it is an IPv6 address, and clients take no registry whose host has no dot")
	}
	return ip, port, nil
}

// The numbers that Windows has for syscall.EADDRINUSE and syscall.EADDRNOTAVAIL.
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

// listenError returns the error for a port that cannot be had.
func listenError(address string, ip net.IP, err error) error {
	_, port, _ := net.SplitHostPort(address)
	failed := &addressError{address: address, kind: err}
	hint := ""
	switch {
	case isInUse(err):
		failed.reason = "another program listens there"
		hint = "Stop it if it is a registry that you no longer need, or choose another port: " +
			"`--listen " + ip.String() + ":0` picks a free one."
	case errors.Is(err, syscall.EADDRNOTAVAIL), errors.Is(err, wsaAddressNotAvailable):
		failed.reason = ip.String() + " is not an address of this machine"
		hint = "Write 127.0.0.1 for this machine alone, or 0.0.0.0 for all of its addresses."
	case errors.Is(err, os.ErrPermission):
		failed.reason = "this user may not use port " + port
		hint = "Systems keep the ports below 1024 for privileged programs. Choose another, such as 8443, " +
			"and let a proxy pass on what comes to port " + port + "."
	default:
		failed.reason = err.Error()
		if call, ok := errors.AsType[*os.SyscallError](err); ok {
			failed.reason = call.Err.Error()
		}
	}
	return registry.WithHint(failed, "%s", hint)
}
