package local

import (
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// maxConnections is the maximum number of open connections. Each uses about 50
	// KiB with TLS.
	maxConnections = 1024
	// writeTimeout is how long a client may take to read one write of the server,
	// of at most 32 KiB. It does not limit a whole download.
	writeTimeout = time.Minute
)

// limits bound the resources of clients that do not read their responses.
type limits struct {
	connections int
	write       time.Duration
}

var defaultLimits = limits{connections: maxConnections, write: writeTimeout}

// apply sets the limits of a server, and returns the listener that it must
// serve. If all connections are in use, a new one closes the one that has been
// idle for longest. If all of them have a running request, new ones wait.
//
// The write timeout begins with each write. Unlike [http.Server.WriteTimeout]
// it limits neither a download nor the time before a handler writes.
func (lim limits) apply(server *http.Server, inner net.Listener) net.Listener {
	l := &boundedListener{Listener: inner, limits: lim, waiting: make(map[*timedConn]time.Time)}
	l.changed = sync.NewCond(&l.mu)
	server.ConnState = l.track
	server.Handler = lim.timeStreams(server.Handler)
	return l
}

// timeStreams sets a deadline for each write to an HTTP/2 stream. A stream can
// wait for its client without a write to the connection.
func (lim limits) timeStreams(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 {
			w = &timedStream{w, http.NewResponseController(w), lim.write}
		}
		next.ServeHTTP(w, r)
	})
}

type timedStream struct {
	http.ResponseWriter
	controller *http.ResponseController
	timeout    time.Duration
}

func (s *timedStream) Write(b []byte) (int, error) {
	if err := s.controller.SetWriteDeadline(time.Now().Add(s.timeout)); err != nil {
		return 0, err
	}
	return s.ResponseWriter.Write(b)
}

// Unwrap lets [http.ResponseController] reach the stream.
func (s *timedStream) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// boundedListener limits the number of accepted connections.
type boundedListener struct {
	net.Listener
	limits limits

	mu      sync.Mutex
	changed *sync.Cond
	open    int
	closed  bool
	waiting map[*timedConn]time.Time // idle connections, and since when
	closing *timedConn               // the connection that is being closed, or nil
}

func (l *boundedListener) Accept() (net.Conn, error) {
	inner, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &timedConn{Conn: inner, listener: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.open >= l.limits.connections && !l.closed {
		// Wait also wakes up for other changes. Close only one connection at a time.
		if longest := l.longestWaiting(); longest != nil && l.closing == nil {
			l.closing = longest
			delete(l.waiting, longest)
			go func() { _ = longest.Close() }() // Close needs the lock
		}
		l.changed.Wait()
	}
	l.open++
	l.waiting[c] = time.Now()
	return c, nil
}

// longestWaiting returns the connection that has been idle for longest, or nil.
func (l *boundedListener) longestWaiting() *timedConn {
	var longest *timedConn
	for c, since := range l.waiting {
		if longest == nil || since.Before(l.waiting[longest]) {
			longest = c
		}
	}
	return longest
}

// track is the server's ConnState callback.
func (l *boundedListener) track(conn net.Conn, state http.ConnState) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	c, ok := conn.(*timedConn)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch state {
	case http.StateNew:
		// Accept has added it.
	case http.StateIdle:
		l.waiting[c] = time.Now()
		l.changed.Signal()
	default:
		delete(l.waiting, c)
	}
}

// forget removes a connection, which makes room for another.
func (l *boundedListener) forget(c *timedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.waiting, c)
	if l.closing == c {
		l.closing = nil
	}
	l.open--
	l.changed.Signal()
}

// Close closes the listener, and ends an Accept that waits for room.
func (l *boundedListener) Close() error {
	l.mu.Lock()
	l.closed = true
	l.changed.Broadcast()
	l.mu.Unlock()
	return l.Listener.Close()
}

// timedConn is a connection with a deadline for each write.
type timedConn struct {
	net.Conn
	listener *boundedListener
	forget   sync.Once

	mu       sync.Mutex
	deadline time.Time // the server's own deadline, or zero
}

func (c *timedConn) Write(b []byte) (int, error) {
	c.mu.Lock()
	deadline := time.Now().Add(c.listener.limits.write)
	if !c.deadline.IsZero() && c.deadline.Before(deadline) {
		deadline = c.deadline
	}
	err := c.Conn.SetWriteDeadline(deadline)
	c.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

func (c *timedConn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
	return c.Conn.SetWriteDeadline(t)
}

func (c *timedConn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

func (c *timedConn) Close() error {
	err := c.Conn.Close()
	c.forget.Do(func() { c.listener.forget(c) })
	return err
}
