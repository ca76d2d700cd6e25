package local

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/larder-registry/larder/pkg/httpapi"
	"github.com/larder-registry/larder/pkg/registry"
)

const (
	// DefaultMaxConnections is the default of [Options.MaxConnections]. Each
	// connection uses about 50 KiB with TLS.
	DefaultMaxConnections = 1024
	// minConnections and maxConnections are the range of that option.
	minConnections, maxConnections = 16, 1 << 20
	// maxStreams is the maximum number of concurrent requests on a connection.
	maxStreams = 100
	// writeTimeout is how long a client may take to read one write of the server,
	// of at most 32 KiB. It does not limit a whole download.
	writeTimeout = time.Minute
	// bodyTimeout is how long a client may take to send bodyPart bytes of a
	// request's body, or the rest of the body. It does not limit a whole upload.
	bodyTimeout = 20 * time.Second
	bodyPart    = 32 << 10
	// headerTimeout is how long a proxy may take to send a header of the PROXY
	// protocol.
	headerTimeout = 10 * time.Second
)

// errTooMany ends a connection whose client has too many.
var errTooMany = errors.New("the client has too many connections")

// limits bound the resources of clients that do not read their responses, or
// do not send their requests.
type limits struct {
	connections int
	// client is the maximum number of open connections of one client.
	client int
	write  time.Duration
	// proxies may name the addresses of their clients.
	proxies proxies
	// plain reports whether only they and this machine may connect, because there is
	// no TLS.
	plain bool
}

// limits returns the limits in the options, or [registry.ErrInvalid] for one
// that is out of its range.
func (o Options) limits() (limits, error) {
	lim := limits{
		connections: cmp.Or(o.MaxConnections, DefaultMaxConnections), write: writeTimeout, plain: o.PlainAddress != "",
	}
	lim.client = cmp.Or(o.MaxClientConnections, lim.connections*3/4)
	if lim.connections < minConnections || lim.connections > maxConnections {
		return limits{}, registry.WithHint(
			fmt.Errorf("%w maximum of %d connections", registry.ErrInvalid, lim.connections),
			"Give `--max-connections` a number from %d to %d.", minConnections, maxConnections)
	}
	if lim.client < 1 || lim.client > lim.connections {
		return limits{}, registry.WithHint(
			fmt.Errorf("%w maximum of %d connections for each client", registry.ErrInvalid, lim.client),
			"Give `--max-connections-per-client` a number from 1 to %d, the maximum of all clients.", lim.connections)
	}
	var err error
	if lim.proxies, err = o.proxies(); err != nil {
		return limits{}, err
	}
	isSocket := strings.HasPrefix(o.PlainAddress, socketPrefix)
	if p := lim.proxies; p.unix && !isSocket || isSocket && !p.unix && len(p.networks) > 0 {
		return limits{}, registry.WithHint(
			fmt.Errorf("%w trusted proxies: only those of a Unix socket have the name unix", registry.ErrInvalid),
			"Give `--trusted-proxies` the value unix if `--listen-plain` names a socket, and only then.")
	}
	return lim, nil
}

// Bound limits a server to a number of connections, as [Options.MaxConnections]
// does, and returns the listener that the server must serve. It is for further
// servers, such as that of the metrics.
func Bound(server *http.Server, inner net.Listener, connections int) net.Listener {
	return limits{connections: connections, client: connections * 3 / 4, write: writeTimeout}.apply(server, inner)
}

// apply sets the limits of a server, and returns the listener that it must
// serve. If all connections are in use, a new one closes the one that has been
// idle for longest. If all of them have a running request, new ones wait. A
// connection is also idle while it waits for the body of a request.
//
// If a client has its maximum of connections, a new one closes the one of this
// client that has been idle for longest. If all of them have a running request,
// the new one is closed. The connections of a trusted proxy have many clients. So
// each running request counts for its client instead, and one too many gets status
// 429. With the PROXY protocol, each connection has one client again.
//
// The write timeout begins with each write. Unlike [http.Server.WriteTimeout]
// it limits neither a download nor the time before a handler writes.
func (lim limits) apply(server *http.Server, inner net.Listener) *boundedListener {
	l := &boundedListener{
		Listener: inner, limits: lim, log: server.ErrorLog,
		clients: make(map[netip.Addr]int), waiting: make(map[*timedConn]time.Time),
	}
	l.changed = sync.NewCond(&l.mu)
	server.ConnState = l.track
	server.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, timed(conn))
	}
	server.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: maxStreams}
	server.Handler = l.timeRequests(server.Handler)
	return l
}

type connKey struct{}

// timed returns the connection that the listener has accepted.
func timed(conn net.Conn) *timedConn {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	if withHeader, ok := conn.(*proxyproto.Conn); ok {
		conn = withHeader.Raw()
	}
	c, _ := conn.(*timedConn)
	return c
}

// timeRequests sets a deadline for each read of a body, and for each write to an
// HTTP/2 stream. A stream can wait for its client without a write to the
// connection. It also sets RemoteAddr to the address of the client, without a port.
func (l *boundedListener) timeRequests(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, _ := r.Context().Value(connKey{}).(*timedConn)
		if c == nil { // not a request of the server's own connections
			next.ServeHTTP(w, r)
			return
		}
		client := c.peer
		if c.forwards {
			client = l.limits.proxies.forwarded(c.peer, r.Header)
			if !l.enter(c, clientOf(client)) {
				w.Header().Set("Retry-After", "1")
				httpapi.StatusError(w, http.StatusTooManyRequests)
				return
			}
			defer l.leave(clientOf(client))
		}
		r.RemoteAddr = shown(client)
		l.begin(c)
		t := &timedRequest{
			ResponseWriter: w, control: http.NewResponseController(w), conn: c, stream: r.ProtoMajor == 2,
			left: bodyTimeout, complete: r.Body == http.NoBody,
		}
		defer func() { l.end(c, !t.complete) }() // the server reads the rest of the body
		if !t.complete {
			body := r.Body
			r = r.WithContext(r.Context()) // the server compares the body of its own request
			r.Body = &timedBody{body, t}
			if t.stream {
				t.clear()
			} else {
				t.extend() // the server reads a body that the handler does not
			}
		}
		next.ServeHTTP(t, r)
	})
}

// timedRequest is a request that is being served.
type timedRequest struct {
	http.ResponseWriter
	control *http.ResponseController
	conn    *timedConn
	stream  bool // of HTTP/2

	complete bool          // the handler has read the body
	left     time.Duration // for the rest of a part of the body
	received int           // bytes of this part
	deadline time.Time     // the last one that was set
}

func (t *timedRequest) Write(b []byte) (int, error) {
	l := t.conn.listener
	if t.stream {
		if err := t.control.SetWriteDeadline(time.Now().Add(l.limits.write)); err != nil {
			return 0, err
		}
	} else if !t.complete {
		// The server reads the rest of the body before it sends anything.
		l.await(t.conn)
		defer l.proceed(t.conn)
	}
	return t.ResponseWriter.Write(b)
}

// Unwrap lets [http.ResponseController] reach the stream.
func (t *timedRequest) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// extend sets the deadline for the next part of the body, if it differs much
// from the last one. Only the time in which the handler waits for the client
// counts.
func (t *timedRequest) extend() {
	if deadline := time.Now().Add(t.left); deadline.Sub(t.deadline) > bodyTimeout/20 {
		t.deadline = deadline
		_ = t.control.SetReadDeadline(deadline) // the connections of this package have deadlines
	}
}

// clear removes the deadline. The deadline of a stream ends its body for good,
// also while nobody reads.
func (t *timedRequest) clear() {
	t.deadline = time.Time{}
	_ = t.control.SetReadDeadline(t.deadline)
}

// timedBody is the body of a request.
type timedBody struct {
	io.ReadCloser
	request *timedRequest
}

func (b *timedBody) Read(p []byte) (int, error) {
	t := b.request
	t.extend()
	begin := time.Now()
	t.conn.listener.await(t.conn)
	n, err := b.ReadCloser.Read(p)
	t.conn.listener.proceed(t.conn)
	t.left -= time.Since(begin)
	if t.received += n; t.received >= bodyPart {
		t.received, t.left = 0, bodyTimeout
	}
	switch {
	case errors.Is(err, io.EOF) && !t.complete:
		t.complete = true
		t.clear() // the handler may take its time
	case err == nil && t.stream:
		t.clear()
	}
	return n, err
}

// boundedListener limits the number of accepted connections.
type boundedListener struct {
	net.Listener
	limits limits
	log    *log.Logger // or nil

	mu       sync.Mutex
	changed  *sync.Cond
	open     int
	unused   int                // open connections that had no request yet
	clients  map[netip.Addr]int // open connections of each client, and requests through proxies
	rejected int
	closed   bool
	waiting  map[*timedConn]time.Time // idle connections, and since when
	closing  *timedConn               // the connection that is being closed, or nil
}

func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		inner, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &timedConn{Conn: inner, listener: l, peer: addressOf(inner.RemoteAddr())}
		isProxy := l.limits.proxies.trust(inner.RemoteAddr())
		switch {
		case isProxy:
			c.awaitsHeader = l.limits.proxies.protocol
			c.forwards = !c.awaitsHeader
		case l.limits.plain && c.peer.IsValid() && !c.peer.IsLoopback():
			l.logf("closed a connection from %s, which is not a trusted proxy", c.peer)
			_ = inner.Close()
			continue
		default:
			c.client = clientOf(c.peer)
		}
		if !l.admit(c) {
			_ = inner.Close()
			continue
		}
		if c.awaitsHeader {
			// The goroutine of the connection reads the header.
			timeout, validate := proxyproto.SetReadHeaderTimeout(headerTimeout), proxyproto.ValidateHeader(c.identify)
			return proxyproto.NewConn(c, timeout, validate), nil
		}
		return c, nil
	}
}

func (l *boundedListener) logf(format string, args ...any) {
	if l.log != nil {
		l.log.Printf(format, args...)
	}
}

// identify sets the client of a connection from a header of the PROXY protocol.
// It returns an error, which ends the connection, if the client has too many.
func (c *timedConn) identify(h *proxyproto.Header) error {
	l := c.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	c.awaitsHeader = false
	address, found := source(h)
	if !found {
		return nil
	}
	c.peer = address
	if c.forwards = l.limits.proxies.contain(address); c.forwards || c.dropped {
		return nil
	}
	client := clientOf(address)
	if !l.makeRoom(client) {
		return errTooMany
	}
	l.uncount(c.client)
	c.client = client
	l.clients[client]++
	return nil
}

// enter counts a request that a trusted proxy sends for a client. It returns false
// if the client has too many.
func (l *boundedListener) enter(c *timedConn, client netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.use(c)
	if client.IsValid() && l.clients[client] >= l.limits.client {
		l.rejected++
		return false
	}
	l.clients[client]++
	return true
}

// leave stops counting a request.
func (l *boundedListener) leave(client netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.uncount(client)
}

// uncount stops counting a connection or a request of a client. The caller has
// locked the listener.
func (l *boundedListener) uncount(client netip.Addr) {
	if l.clients[client]--; l.clients[client] == 0 {
		delete(l.clients, client)
	}
}

// makeRoom closes the connection of a client that has been idle for longest, if
// the client has its maximum. It returns false if all of them have a running
// request. The caller has locked the listener.
func (l *boundedListener) makeRoom(client netip.Addr) bool {
	if !client.IsValid() || l.clients[client] < l.limits.client {
		return true
	}
	longest := l.longestWaiting(client)
	if longest == nil {
		l.rejected++
		return false
	}
	l.drop(longest)
	if l.closing == nil {
		l.closing = longest // it makes room, so that no other client's is closed
	}
	go func() { _ = longest.Close() }() // Close needs the lock
	return true
}

// admit waits until there is room for a connection, and adds it. It returns
// false if the client has too many connections with a running request.
func (l *boundedListener) admit(c *timedConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.makeRoom(c.client) {
		return false
	}
	for l.open >= l.limits.connections && !l.closed {
		// Wait also wakes up for other changes. Close only one connection at a time.
		if longest := l.longestWaiting(netip.Addr{}); longest != nil && l.closing == nil {
			l.closing = longest
			delete(l.waiting, longest)
			go func() { _ = longest.Close() }() // Close needs the lock
		}
		l.changed.Wait()
	}
	l.open++
	l.unused++
	l.clients[c.client]++
	l.waiting[c] = time.Now()
	return true
}

// longestWaiting returns the connection of a client that has been idle for
// longest, or nil. The zero address stands for all clients.
func (l *boundedListener) longestWaiting(client netip.Addr) *timedConn {
	var longest *timedConn
	for c, since := range l.waiting {
		if client.IsValid() && c.client != client {
			continue
		}
		if longest == nil || since.Before(l.waiting[longest]) {
			longest = c
		}
	}
	return longest
}

// drop stops counting a connection for its client.
func (l *boundedListener) drop(c *timedConn) {
	delete(l.waiting, c)
	if c.dropped {
		return
	}
	c.dropped = true
	l.uncount(c.client)
}

// counts returns the number of open connections, its limit, and the number of
// connections that were closed because their client had too many.
func (l *boundedListener) counts() (open, limit, rejected int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open, l.limits.connections, l.rejected
}

// track is the server's ConnState callback.
func (l *boundedListener) track(conn net.Conn, state http.ConnState) {
	c := timed(conn)
	if c == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c.idle = state == http.StateIdle
	switch state {
	case http.StateNew:
		// Accept has added it.
	case http.StateIdle:
		l.wait(c)
	default:
		delete(l.waiting, c)
	}
}

// wait makes a connection idle. The caller has locked the listener.
func (l *boundedListener) wait(c *timedConn) {
	if c.dropped {
		return // it is being closed
	}
	l.waiting[c] = time.Now()
	l.changed.Signal()
}

// resume ends wait, unless the client has reset all requests. The caller has
// locked the listener.
func (l *boundedListener) resume(c *timedConn) {
	if !c.idle {
		delete(l.waiting, c)
	}
}

// begin counts a request of a connection.
func (l *boundedListener) begin(c *timedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.requests++
	l.resume(c)
	l.use(c)
}

// use notes that a connection has a request, or that it will have none. The caller
// has locked the listener.
func (l *boundedListener) use(c *timedConn) {
	if !c.used {
		c.used = true
		l.unused--
		l.changed.Signal()
	}
}

// awaitRequests waits until each open connection has had a request. It closes
// those that have none after a timeout, and returns their number. The listener is
// closed.
func (l *boundedListener) awaitRequests(timeout time.Duration) (closed int) {
	var late bool
	defer time.AfterFunc(timeout, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		late = true
		l.changed.Broadcast()
	}).Stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.unused > 0 && !late {
		l.changed.Wait()
	}
	for c := range l.waiting {
		if !c.used {
			closed++
			go func() { _ = c.Close() }() // Close needs the lock
		}
	}
	return closed
}

// end stops counting a request. waits reports whether the server still waits for
// its body.
func (l *boundedListener) end(c *timedConn, waits bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.requests--
	if waits && c.requests == 0 || c.requests > 0 && c.awaiting >= c.requests {
		l.wait(c)
	}
}

// await notes that a request waits for its body. If all requests of the
// connection do, it is idle.
func (l *boundedListener) await(c *timedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.awaiting++; c.awaiting >= c.requests {
		l.wait(c)
	}
}

func (l *boundedListener) proceed(c *timedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.awaiting--
	l.resume(c)
}

// forget removes a connection, which makes room for another.
func (l *boundedListener) forget(c *timedConn) {
	l.mu.Lock()
	sentNoHeader, peer := c.awaitsHeader && !c.dropped && l.closing != c, c.peer
	l.drop(c)
	if l.closing == c {
		l.closing = nil
	}
	l.open--
	l.use(c)
	l.changed.Signal()
	l.mu.Unlock()
	if sentNoHeader {
		l.logf("closed a connection from the proxy %s, which sent no valid header of the PROXY protocol", shown(peer))
	}
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
	// peer is the address of the other end, or the one in a header of the PROXY
	// protocol. forwards reports whether it is a trusted proxy, whose requests name
	// their clients. Both are set before the first request.
	peer     netip.Addr
	forwards bool

	// The listener's mu protects these.
	client             netip.Addr
	awaitsHeader       bool // of the PROXY protocol
	dropped            bool
	used               bool // it has had a request
	idle               bool // by the server's state, which ignores running handlers
	requests, awaiting int  // requests that are served, and those of them that wait for their body

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
