package pull

import (
	"net/http"
	"time"

	"github.com/larder-registry/larder/pkg/client"
)

// NewClient returns a client for [Options]. It has no credentials, because those
// of this machine or of a reader must not reach an origin. It uses no proxy,
// because a proxy would look up host names itself, and could then connect to any
// address.
func NewClient(userAgent string) *client.Client {
	c := client.New(nil, userAgent, &http.Transport{
		ForceAttemptHTTP2:   true,
		MaxIdleConns:        20,
		IdleConnTimeout:     time.Minute,
		TLSHandshakeTimeout: 5 * time.Second,
	})
	c.Wait = firstWait
	c.MinRate = minRate
	return c
}

// minRate is the rate below which a download of a package ends. Otherwise, a few
// slow origins could prevent the copies of all others. Several downloads at once
// share the link of the mirror, so it is low.
var minRate = client.Rate{Bytes: 64 << 10, Window: time.Minute}

// firstWait is the time before the second attempt. It is short, because a client
// of the mirror waits for each request to an origin that is down.
const firstWait = 200 * time.Millisecond
