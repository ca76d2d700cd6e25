package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/larder-registry/larder/pkg/registry"
)

// Download reads what is at a URL that needs no credential into w, as it is: at most limit bytes, more of which are
// ErrInvalid. None are sent. begin, if not nil, is told the size as the first byte comes, or 0 where the server does not say
// it, and what it returns how many bytes came each time some did.
//
// It is asked again as long as nothing has come; once something has, an error leaves it to the caller to start anew.
// There is no limit to how long it takes, but one to how long it takes without a byte.
func (c *Client) Download(ctx context.Context, address string, w io.Writer, limit int64, begin func(size int64) (received func(int64))) error {
	// An error would quote the URL.
	target, err := url.Parse(address)
	if err != nil || target.Scheme != "https" && target.Scheme != "http" || target.Hostname() == "" || target.User != nil {
		return registry.Errorf(registry.ErrInvalid, "the URL of a file must be one with https or http, without a user")
	}
	what := asked{method: http.MethodGet, url: target, file: true}

	ctx, idle, done := c.watch(ctx)
	defer done()

	request, err := newRequest(ctx, what, nil)
	if err != nil {
		return err
	}
	// Bytes are hashed and counted as they are stored, so the transport must not unpack them.
	request.Header.Set("Accept-Encoding", "identity")
	response, err := c.send(c.downloads, request, retry(true), func() { idle.Reset(c.idle) })
	if err != nil {
		return what.broken(ctx, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return what.refused(response.StatusCode, complaint{})
	}
	tooLarge := registry.Errorf(registry.ErrInvalid, "cannot %s: the file has more than %d bytes", what, limit)
	if response.ContentLength > limit {
		return tooLarge
	}
	received := func(int64) {}
	if begin != nil {
		received = begin(max(response.ContentLength, 0))
	}
	var size int64
	for buffer := make([]byte, 64<<10); ; {
		idle.Reset(c.idle)
		n, err := response.Body.Read(buffer)
		idle.Stop() // w may be slow
		if size += int64(n); size > limit {
			return tooLarge
		}
		if _, err := w.Write(buffer[:n]); err != nil {
			return fmt.Errorf("cannot %s: writing what came: %w", what, err)
		}
		if n > 0 {
			received(int64(n))
		}
		// A server that notices the end of ctx may end the file as if it were whole.
		if errors.Is(err, io.EOF) && ctx.Err() == nil {
			break
		} else if err != nil {
			return what.broken(ctx, err)
		}
	}
	if response.ContentLength >= 0 && size != response.ContentLength {
		return registry.WithHint(registry.Errorf(registry.ErrUnavailable,
			"cannot %s: %d bytes came of %d", what, size, response.ContentLength), "Try again.")
	}
	return nil
}

// watch ends a context when the timer that it returns has not been reset for so long that nothing comes any more.
func (c *Client) watch(ctx context.Context) (watched context.Context, idle *time.Timer, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	idle = time.AfterFunc(c.idle, func() {
		err := registry.Errorf(registry.ErrUnavailable, "no byte in %s", c.idle)
		cancel(failed{registry.WithHint(err, TryLater)})
	})
	return ctx, idle, func() {
		idle.Stop()
		cancel(nil)
	}
}
