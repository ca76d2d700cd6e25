package local

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Limit makes a server keep to limits of a test.
func Limit(server *http.Server, inner net.Listener, connections int, write time.Duration) net.Listener {
	return limits{connections, write}.apply(server, inner)
}

// LimitsOf returns what a registry's server is bounded by.
func LimitsOf(s *Server) (connections int, write time.Duration) {
	l, ok := s.listener.(*boundedListener)
	if !ok || s.server.ConnState == nil {
		return 0, 0
	}
	return l.limits.connections, l.limits.write
}

// Watch is what a server does at each tick.
func (d *Data) Watch(ctx context.Context, ticks <-chan time.Time, log *slog.Logger) {
	d.watch(ctx, ticks, log)
}

// Listen and ListenError are how a server gets its port.
var (
	Listen      = listen
	ListenError = listenError
)

// Remember stores a server as the newest of a folder.
func (s *Server) Remember(ctx context.Context, dir string, named bool) ([]Running, error) {
	return s.remember(ctx, dir, named)
}

// Forget removes a server from a folder's.
func (s *Server) Forget(dir string) { s.forget(dir) }

// WriteServers stores the servers of a folder.
var WriteServers = writeServers

// ListenerOf returns what a server listens by.
func ListenerOf(s *Server) net.Listener { return s.listener }
