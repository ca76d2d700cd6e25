package monitoring

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/larder-registry/larder/pkg/local"
	"github.com/larder-registry/larder/pkg/registry"
)

const (
	// maxReaders bounds the connections of clients that read metrics.
	maxReaders = 16
	// timeout bounds a whole request for the metrics.
	timeout = 30 * time.Second
	// idleTimeout is shorter than the usual interval of Prometheus.
	idleTimeout = 5 * time.Second
)

// ParseAddress returns the address and port to listen on. A port without
// an address, such as 9100 or :9100, is one of 127.0.0.1. Anyone who reaches the
// address can read the metrics. ParseAddress returns [registry.ErrInvalid] for a
// malformed address.
func ParseAddress(text string) (netip.AddrPort, error) {
	port := strings.TrimPrefix(text, ":")
	if number, err := strconv.ParseUint(port, 10, 16); err == nil {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(number)), nil
	}
	address, err := netip.ParseAddrPort(text)
	if err != nil {
		return address, registry.WithHint(
			registry.Errorf(registry.ErrInvalid, "cannot serve metrics on %.100q: it is not an IP address and a port", text),
			"Write a port such as 9100, which only this machine can reach, or ADDRESS:PORT.")
	}
	return address, nil
}

// hostPattern matches a name or an address, with an optional port.
var hostPattern = regexp.MustCompile(`^([\w.-]+|\[[^\]]+\])(:\d+)?$`)

// CheckHost returns [registry.ErrInvalid] for a text that is not a host, such as
// a URL.
func CheckHost(text string) error {
	if _, err := registry.ParseHost(text); err != nil && !hostPattern.MatchString(text) {
		return registry.WithHint(fmt.Errorf("%w metrics host %.100q", registry.ErrInvalid, text),
			"Give `--metrics-host` a name with an optional port, such as larder:9100.")
	}
	return nil
}

// Listen listens on an address for Prometheus.
func Listen(ctx context.Context, address netip.AddrPort) (net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address.String())
	if err != nil {
		if call, ok := errors.AsType[*os.SyscallError](err); ok {
			err = call.Err
		}
		return nil, registry.WithHint(fmt.Errorf("cannot serve metrics on %s: %w", address, err),
			"Choose another address or port with `--metrics`.")
	}
	return listener, nil
}

// Handler serves the metrics at /metrics, and nothing else. Requests must name
// an IP address, localhost, or one of the hosts. So no page in a browser can
// read the metrics with a name of its own that leads to this address.
func (m *Metrics) Handler(hosts ...string) http.Handler {
	hosts = append(hosts, "localhost")
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		host := registry.CanonicalName(r.Host)
		_, err := netip.ParseAddr(string(host))
		if err != nil && !slices.ContainsFunc(hosts, func(known string) bool {
			return host != "" && host == registry.CanonicalName(known)
		}) {
			http.Error(w, "Use an IP address, localhost, or a name that --metrics-host permits.",
				http.StatusMisdirectedRequest)
			return
		}
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		m.write(r.Context(), w)
	})
	return mux
}

// Serve answers requests for the metrics until ctx ends, as [Metrics.Handler]
// does. It closes the listener.
func (m *Metrics) Serve(ctx context.Context, listener net.Listener, log *slog.Logger, hosts ...string) {
	server := &http.Server{
		Handler:           m.Handler(hosts...),
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       timeout,
		WriteTimeout:      timeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelInfo),
	}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	err := server.Serve(local.Bound(server, listener, maxReaders))
	if err != nil && !errors.Is(err, http.ErrServerClosed) {
		log.LogAttrs(ctx, slog.LevelError, "cannot serve metrics", slog.Any("error", err))
	}
}
