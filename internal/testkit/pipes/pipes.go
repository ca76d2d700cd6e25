// Package pipes has a listener without a network. A bubble of testing/synctest
// can contain its server and its clients.
package pipes

import (
	"context"
	"net"
	"sync"
)

// Listener is a listener within the process. Its connections buffer nothing.
// Create one with [Listen].
type Listener struct {
	// Accepted has the server's ends of new connections, which Accept returns.
	Accepted chan net.Conn
	closed   chan struct{}
	once     sync.Once
}

// Listen returns a new listener.
func Listen() *Listener {
	return &Listener{Accepted: make(chan net.Conn), closed: make(chan struct{})}
}

// Dial connects from this machine.
func (l *Listener) Dial(ctx context.Context) (net.Conn, error) {
	return l.DialFrom(ctx, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4711})
}

// DialFrom connects from an address.
func (l *Listener) DialFrom(ctx context.Context, address net.Addr) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case l.Accepted <- from{server, address}:
		return client, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// from is a connection whose client has an address.
type from struct {
	net.Conn
	address net.Addr
}

// RemoteAddr implements [net.Conn].
func (c from) RemoteAddr() net.Addr { return c.address }

// Accept implements [net.Listener].
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.Accepted:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements [net.Listener].
func (l *Listener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8443} }
