package deployed

import (
	"context"
	"net"
	"time"
)

// readTimeout bounds each read of a connection. Without it, a response of S3
// that stops in the middle would last until the function's deadline.
const readTimeout = 20 * time.Second

// dial connects to an address. Each read of the connection has a timeout.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return readTimeoutConn{c}, nil
}

type readTimeoutConn struct{ net.Conn }

func (c readTimeoutConn) Read(p []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(readTimeout)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}
