package deployed

import (
	"context"
	"net"
	"time"
)

// stall is how long nothing may come of an answer that has begun. Without a bound a stream that S3 neither goes on with nor
// ends would last as long as the function.
const stall = 20 * time.Second

// dial dials connections whose reads wait no longer than that.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return lively{c}, nil
}

type lively struct{ net.Conn }

func (l lively) Read(p []byte) (int, error) {
	if err := l.SetReadDeadline(time.Now().Add(stall)); err != nil {
		return 0, err
	}
	return l.Conn.Read(p)
}
