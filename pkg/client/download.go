package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"time"

	"github.com/opentofu/svchost/svcauth"

	"github.com/larder-registry/larder/pkg/registry"
)

// ErrTooLarge means that a file has more bytes than the caller accepts. It comes
// with registry.ErrInvalid.
var ErrTooLarge = errors.New("too large")

// Download writes the file at a URL to w, unchanged. It sends no credential. A
// file of more than limit bytes is [ErrTooLarge].
//
// If begin is not nil, Download calls it when the first byte arrives. size is the
// size of the file, or 0 if the server does not send it. Download calls the
// function that begin returns each time bytes arrive, with their number.
//
// Download repeats the request until the first byte arrives. After that, it
// returns an error and the caller must start over. If c has a minimum rate, a
// slower download is [ErrSlow], also if no bytes arrive. Otherwise it may take any
// time as long as bytes arrive.
func (c *Client) Download(
	ctx context.Context, address string, w io.Writer, limit int64, begin func(size int64) (received func(int64)),
) error {
	return c.download(ctx, address, "", w, limit, begin)
}

// Download is [Client.Download] with the credential of the service's host. The
// URL must have the same host and port as the service. It returns
// registry.ErrInvalid otherwise, because the credential is for no other server.
func (s *Service) Download(
	ctx context.Context, address string, w io.Writer, limit int64, begin func(size int64) (received func(int64)),
) error {
	target, err := url.Parse(address)
	if err != nil || origin(target) != origin(s.URL) || !isPrivate(target) {
		return registry.Errorf(registry.ErrInvalid,
			"the registry requires its credential for a file of another server, to which it is not sent")
	}
	token, _, err := s.credential(ctx, target)
	if err != nil {
		return err
	}
	return s.client.download(ctx, address, token, w, limit, begin)
}

// download is [Client.Download] with a token, which can be empty.
func (c *Client) download(
	ctx context.Context, address, token string, w io.Writer, limit int64,
	begin func(size int64) (received func(int64)),
) error {
	// The error would quote the URL.
	target, err := url.Parse(address)
	if err != nil || target.Scheme != "https" && target.Scheme != "http" || target.Hostname() == "" || target.User != nil {
		return registry.Errorf(registry.ErrInvalid, "the URL of a file must use https or http and have no user")
	}
	what := requestInfo{method: http.MethodGet, url: target, file: true}

	ctx, idle, done := c.watch(ctx)
	defer done()

	request, err := newRequest(ctx, what, nil)
	if err != nil {
		return err
	}
	// Bytes are hashed and counted as they are stored, so the transport must
	// not decompress them.
	request.Header.Set("Accept-Encoding", "identity")
	if token != "" {
		svcauth.HostCredentialsToken(token).PrepareRequest(request.Request)
	}
	response, err := c.send(c.downloads, request, retry(true), func() { idle.Reset(idleTimeout) })
	if err != nil {
		return what.connectionError(ctx, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return what.statusError(response.StatusCode, complaint{})
	}
	tooLarge := registry.Errorf(ErrTooLarge, "%w",
		registry.Errorf(registry.ErrInvalid, "cannot %s: the file has more than %d bytes", what, limit))
	if response.ContentLength > limit {
		return tooLarge
	}
	received := func(int64) {}
	if begin != nil {
		received = begin(max(response.ContentLength, 0))
	}
	var size int64
	body := steady{Reader: response.Body, rate: c.MinRate, now: time.Now}
	for buffer := make([]byte, 64<<10); ; {
		idle.Reset(idleTimeout)
		n, err := body.Read(buffer)
		idle.Stop() // w may be slow
		if size += int64(n); size > limit {
			return tooLarge
		}
		if _, err := w.Write(buffer[:n]); err != nil {
			return fmt.Errorf("cannot %s: cannot write the file: %w", what, err)
		}
		if n > 0 {
			received(int64(n))
		}
		// A server that notices the end of ctx may end the file as if it were
		// complete.
		if errors.Is(err, io.EOF) && ctx.Err() == nil {
			break
		} else if err != nil {
			return what.connectionError(ctx, err)
		}
	}
	if response.ContentLength >= 0 && size != response.ContentLength {
		return registry.WithHint(registry.Errorf(registry.ErrUnavailable,
			"cannot %s: received %d of %d bytes", what, size, response.ContentLength), "Try again.")
	}
	return nil
}

// ErrSlow means that a download was slower than [Client.MinRate]. The same
// download would probably be slow again.
var ErrSlow = errors.New("too slow")

// Rate is a minimum rate of bytes in each window of time.
type Rate struct {
	Bytes  int64
	Window time.Duration
}

// steady is a reader that returns [ErrSlow] at the end of a window in which too
// few bytes arrived.
type steady struct {
	io.Reader
	rate     Rate
	now      func() time.Time
	begin    time.Time // of the window
	received int64     // in the window, in bytes
}

func (s *steady) Read(b []byte) (int, error) {
	if s.begin.IsZero() {
		s.begin = s.now().Round(0)
	}
	n, err := s.Reader.Read(b)
	s.received += int64(n)
	// Round removes the monotonic clock, which stops while a function is frozen.
	now := s.now().Round(0)
	took := now.Sub(s.begin)
	if err != nil || s.rate.Window == 0 || took < s.rate.Window {
		return n, err
	}
	if least := float64(s.rate.Bytes) * took.Seconds() / s.rate.Window.Seconds(); float64(s.received) < least {
		return n, failed{registry.Errorf(ErrSlow, "only %d bytes arrived in %s", s.received, took.Round(time.Second))}
	}
	s.begin, s.received = now, 0
	return n, nil
}

// watch returns a context that is canceled when the timer idle expires. If c has
// a minimum rate, the cause is [ErrSlow]. Callers reset the timer when bytes
// arrive, and call done at the end.
func (c *Client) watch(ctx context.Context) (watched context.Context, idle *time.Timer, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	kind := registry.ErrUnavailable
	if c.MinRate.Window > 0 {
		kind = ErrSlow
	}
	idle = time.AfterFunc(idleTimeout, func() {
		err := registry.Errorf(kind, "no bytes were transferred for %s", idleTimeout)
		cancel(failed{registry.WithHint(err, TryLater)})
	})
	return ctx, idle, func() {
		idle.Stop()
		cancel(nil)
	}
}

// Elsewhere requests a URL that is not an archive, and returns the location to
// which its X-Terraform-Get header leads, with the URL of the request. It sends
// no credential. It returns registry.ErrNotFound if there is no such header.
//
// Source: go-getter, "HTTP".
func (c *Client) Elsewhere(ctx context.Context, address string) (reference string, base *url.URL, err error) {
	target, err := url.Parse(address)
	if err != nil || target.Hostname() == "" || target.User != nil || target.Scheme != "https" && !isPrivate(target) {
		return "", nil, registry.Errorf(registry.ErrInvalid, "the URL of a module must use https and have no user")
	}
	query := target.Query()
	query.Set("terraform-get", "1")
	target.RawQuery = query.Encode()
	what := requestInfo{method: http.MethodGet, url: target, file: true}
	response, _, err := c.anonymous(ctx, what, nil, nil, maxDescription)
	if err != nil {
		return "", nil, err
	}
	reference = response.Header.Get("X-Terraform-Get")
	if reference == "" {
		return "", nil, registry.Errorf(registry.ErrNotFound, "cannot %s: it is not an archive, and leads to none", what)
	}
	return reference, target, nil
}

// Request sends a GET to a URL, or a POST if body is not nil. It returns the
// response of at most limit bytes, and its URL after redirects. The URL must be
// https, or http on a loopback address.
//
// It sends no credential. It repeats the request after a failure, so the request
// must change nothing.
func (c *Client) Request(
	ctx context.Context, address string, header http.Header, body []byte, limit int,
) (read []byte, final *url.URL, err error) {
	target, err := url.Parse(address)
	if err != nil || target.Hostname() == "" || target.User != nil || !isPrivate(target) {
		return nil, nil, registry.Errorf(registry.ErrInvalid, "the URL of a request must use https and have no user")
	}
	what := requestInfo{method: http.MethodGet, url: target, file: true}
	if body != nil {
		what.method = http.MethodPost
	}
	response, read, err := c.anonymous(ctx, what, header, body, limit)
	if err != nil {
		return nil, nil, err
	}
	return read, response.Request.URL, nil
}

// anonymous sends a request without a credential, and reads the response. Any
// status but 2xx is an error.
func (c *Client) anonymous(
	ctx context.Context, what requestInfo, header http.Header, body []byte, limit int,
) (*http.Response, []byte, error) {
	request, err := newRequest(ctx, what, body)
	if err != nil {
		return nil, nil, err
	}
	maps.Copy(request.Header, header)
	response, read, err := c.exchange(request, true, limit)
	if err != nil {
		return nil, nil, what.connectionError(ctx, err)
	}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return nil, nil, what.statusError(response.StatusCode, complaint{})
	}
	return response, read, nil
}
