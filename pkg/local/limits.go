package local

import (
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// maxConnections is how many connections a server has open at once. Each takes
	// about 50 KiB with TLS.
	maxConnections = 1024
	// writeTimeout is how long a client may take to read one write of the server,
	// which is at most 32 KiB. A download may take as long as it needs.
	writeTimeout = time.Minute
)

// limits bound what clients can hold of a server without reading its answers.
type limits struct {
	connections int
	write       time.Duration
}

var defaultLimits = limits{connections: maxConnections, write: writeTimeout}

// apply makes a server keep to the limits, and returns the listener that it must
// serve. If all connections are taken, the one that has waited longest for a
// request is closed for a new one. If each has a request under way, new ones wait.
//
// The write timeout begins with each write. So it bounds neither a download nor
// the time before a handler writes, as http.Server.WriteTimeout would.
func (lim limits) apply(server *http.Server, inner net.Listener) net.Listener {
	l := &boundedListener{Listener: inner, limits: lim, waiting: make(map[*timedConn]time.Time)}
	l.changed = sync.NewCond(&l.mu)
	server.ConnState = l.track
	server.Handler = lim.timeStreams(server.Handler)
	return l
}

// timeStreams sets a deadline for each write to a stream of HTTP/2, which waits
// for its client without a write to the connection.
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

// Unwrap lets http.ResponseController reach the stream.
func (s *timedStream) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// boundedListener accepts no more connections than its limit.
type boundedListener struct {
	net.Listener
	limits limits

	mu      sync.Mutex
	changed *sync.Cond
	open    int
	closed  bool
	waiting map[*timedConn]time.Time // connections without a request, since when
	closing *timedConn               // the one that makes room now, or nil
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
		// Another change may wake it before the room is there: one at a time is closed.
		if longest := l.longestWaiting(); longest != nil && l.closing == nil {
			l.closing = longest
			delete(l.waiting, longest)
			go func() { _ = longest.Close() }() // needs the lock
		}
		l.changed.Wait()
	}
	l.open++
	l.waiting[c] = time.Now()
	return c, nil
}

// longestWaiting returns the connection that has waited longest for a request,
// or nil.
func (l *boundedListener) longestWaiting() *timedConn {
	var longest *timedConn
	for c, since := range l.waiting {
		if longest == nil || since.Before(l.waiting[longest]) {
			longest = c
		}
	}
	return longest
}

// track is called by a server when a connection changes its state.
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
		// Accept has put it there.
	case http.StateIdle:
		l.waiting[c] = time.Now()
		l.changed.Signal()
	default:
		delete(l.waiting, c)
	}
}

// forget makes room for another connection.
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

// Close also ends an Accept that waits for room.
func (l *boundedListener) Close() error {
	l.mu.Lock()
	l.closed = true
	l.changed.Broadcast()
	l.mu.Unlock()
	return l.Listener.Close()
}

// timedConn is a connection each of whose writes has a deadline of its own.
type timedConn struct {
	net.Conn
	listener *boundedListener
	forget   sync.Once

	mu       sync.Mutex
	deadline time.Time // what the server has set, or zero
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
