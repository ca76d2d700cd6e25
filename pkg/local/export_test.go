package local

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Limit applies the limits of a test to a server. They allow one client all
// connections but one.
func Limit(server *http.Server, inner net.Listener, connections int, write time.Duration) net.Listener {
	return limits{connections: connections, client: connections - 1, write: write}.apply(server, inner)
}

// Counts calls counts of a listener that Limit has returned.
func Counts(l net.Listener) (open, limit, rejected int) {
	bounded, _ := l.(*boundedListener)
	return bounded.counts()
}

// LimitsOf returns the limits of a registry's server.
func LimitsOf(s *Server) (connections, client int, write time.Duration) {
	if s.server.ConnState == nil {
		return 0, 0, 0
	}
	lim := s.connections.limits
	return lim.connections, lim.client, lim.write
}

// Watch calls watch.
func (d *Data) Watch(ctx context.Context, ticks <-chan time.Time, log *slog.Logger) {
	d.watch(ctx, ticks, log)
}

// RemoveExpiredAt calls removeExpired.
func (d *Data) RemoveExpiredAt(ctx context.Context, ticks <-chan time.Time, log *slog.Logger) {
	d.removeExpired(ctx, ticks, log)
}

// These variables give tests access to functions.
var (
	Listen      = listen
	ListenError = listenError
	Unreadable  = unreadable
)

// ListenAddress calls address.
func (o Options) ListenAddress() (address, port string, err error) { return o.address() }

// Register calls register.
func (s *Server) Register(ctx context.Context, dir string, named bool) ([]Running, error) {
	return s.register(ctx, dir, named)
}

// Forget calls forget.
func (s *Server) Forget(dir string) { s.forget(dir) }

// WriteServers stores the servers of a folder.
var WriteServers = writeServers

// ListenerOf returns a server's listener.
func ListenerOf(s *Server) net.Listener { return s.listener }

// Health returns a handler of health checks, and a function that makes it stop.
func Health(check func(context.Context) error, log *slog.Logger) (h http.Handler, stop func()) {
	return HealthOnDisk(check, func() bool { return false }, log)
}

// HealthOnDisk is like Health, with a function that reports whether the disk is
// nearly full.
func HealthOnDisk(
	check func(context.Context) error, isFull func() bool, log *slog.Logger,
) (h http.Handler, stop func()) {
	health := newHealth(check, isFull, log)
	return health.handler(http.NotFoundHandler()), health.stop
}

// CheckReady calls checkReady.
func (d *Data) CheckReady(ctx context.Context) error { return d.checkReady(ctx) }

// FillReserve calls fillReserve.
func FillReserve(dir string) { fillReserve(dir, 0) }

// LimitBehind is like Limit, for a server behind the trusted proxies of options.
func LimitBehind(server *http.Server, inner net.Listener, connections int, o Options) (net.Listener, error) {
	trusted, err := o.proxies()
	return limits{
		connections: connections, client: connections - 1, write: time.Minute, proxies: trusted, plain: o.PlainAddress != "",
	}.apply(server, inner), err
}

// Forwarded returns the client of a request from a peer, if it is a proxy that
// the options trust. Otherwise it returns the peer.
func (o Options) Forwarded(peer net.Addr, header http.Header) (string, error) {
	trusted, err := o.proxies()
	client := addressOf(peer)
	if trusted.trust(peer) {
		client = trusted.forwarded(client, header)
	}
	return shown(client), err
}

// ListenUnix calls listenUnix.
var ListenUnix = listenUnix
