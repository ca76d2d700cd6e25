package client

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/opentofu/svchost"

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/registry/errs"
)

const (
	maxAttempts  = 3
	maxRedirects = 5
	// firstWait is the time before the second attempt.
	firstWait = 500 * time.Millisecond
	// maxWait bounds the time between attempts, whatever a server's Retry-After
	// requests.
	maxWait = 10 * time.Second
	// maxRefusal bounds the body of an error response, in bytes.
	maxRefusal = 64 << 10
	// smallAnswer is the size of a response, in bytes, up to which it is not
	// large for [OnLarge].
	smallAnswer = 64 << 10
)

type onLarge struct{}

// OnLarge returns a context whose requests call reserve before they read a
// document of more than 64 KiB to its end. So the caller can limit how many large
// documents are in memory. The error of reserve is that of the request.
func OnLarge(ctx context.Context, reserve func(context.Context) error) context.Context {
	return context.WithValue(ctx, onLarge{}, reserve)
}

// readDocument reads a document of at most limit bytes.
func readDocument(ctx context.Context, from io.Reader, limit int) ([]byte, error) {
	var body bytes.Buffer
	_, err := body.ReadFrom(io.LimitReader(from, smallAnswer+1))
	if err != nil || body.Len() <= smallAnswer {
		return body.Bytes(), err
	}
	if reserve, ok := ctx.Value(onLarge{}).(func(context.Context) error); ok {
		if err := reserve(ctx); err != nil {
			return nil, failed{err}
		}
	}
	_, err = body.ReadFrom(io.LimitReader(from, int64(limit-body.Len()+1)))
	if err == nil && body.Len() > limit {
		return nil, failed{registry.Errorf(registry.ErrInvalid, "the answer has more than %d bytes", limit)}
	}
	return body.Bytes(), err
}

func newRequest(ctx context.Context, a requestInfo, payload []byte) (*retryablehttp.Request, error) {
	var body any
	if payload != nil {
		body = payload
	}
	request, err := retryablehttp.NewRequestWithContext(ctx, a.method, a.url.String(), body)
	if err != nil {
		// The error would quote the URL.
		return nil, registry.Errorf(registry.ErrInvalid, "cannot %s: the request is malformed", a)
	}
	return request, nil
}

// send sends a request up to maxAttempts times. If begin is not nil, it is
// called before each attempt. send returns the last response, whatever its
// status.
func (c *Client) send(
	through *http.Client, request *retryablehttp.Request, check retryablehttp.CheckRetry, begin func(),
) (*http.Response, error) {
	request.Header.Set("User-Agent", c.agent)
	sender := &retryablehttp.Client{
		HTTPClient:   through,
		RetryMax:     maxAttempts - 1,
		RetryWaitMin: cmp.Or(c.Wait, firstWait),
		RetryWaitMax: maxWait,
		Backoff:      backoff,
		CheckRetry:   check,
		RequestLogHook: func(retryablehttp.Logger, *http.Request, int) {
			if begin != nil {
				begin()
			}
		},
		ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}
	response, err := sender.Do(request)
	if err != nil {
		if response != nil {
			_ = response.Body.Close()
		}
		return nil, err
	}
	return response, nil
}

// exchange sends a request and reads the response of at most limit bytes. A
// response that ends early counts as a failed attempt.
func (c *Client) exchange(request *retryablehttp.Request, again bool, limit int) (*http.Response, []byte, error) {
	var body []byte
	read := func(response *http.Response) (err error) {
		if response.StatusCode < 200 || response.StatusCode > 299 {
			body, _ = io.ReadAll(io.LimitReader(response.Body, maxRefusal)) // the status is sufficient
			return nil
		}
		body, err = readDocument(request.Context(), response.Body, limit)
		return err
	}
	request.SetResponseHandler(read)
	response, err := c.send(c.metadata, request, retry(again), nil)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	if body == nil { // after the last of several failures
		if err := read(response); err != nil {
			return nil, nil, err
		}
	}
	return response, body, nil
}

// retry returns the policy for a request that may be repeated, or not.
func retry(again bool) retryablehttp.CheckRetry {
	return func(ctx context.Context, response *http.Response, err error) (bool, error) {
		return shouldRetry(ctx, response, err, again)
	}
}

// shouldRetry reports whether another attempt may succeed. A request that must
// not be repeated is sent again only if it cannot have arrived.
func shouldRetry(ctx context.Context, response *http.Response, err error, again bool) (bool, error) {
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if err != nil {
		if _, own := errors.AsType[failed](err); own || errors.Is(err, http.ErrSchemeMismatch) {
			return false, nil
		}
		if name, ok := errors.AsType[*net.DNSError](err); ok && name.IsNotFound {
			return false, nil
		}
		if op, ok := errors.AsType[*net.OpError](err); !again && (!ok || op.Op != "dial") {
			return false, nil
		}
	} else if response.StatusCode == http.StatusServiceUnavailable && isAboutIssuer(response) {
		return false, nil
	} else if end, ok := ctx.Deadline(); ok && time.Now().Add(backoff(0, maxWait, 0, response)).After(end) {
		return false, nil // the next attempt would be too late
	} else if !again {
		return response.StatusCode == http.StatusTooManyRequests, nil
	}
	return retryablehttp.DefaultRetryPolicy(ctx, response, err)
}

// isAboutIssuer reports whether a Larder registry returned registry.ErrIssuer,
// which another attempt does not fix. The body can still be read afterwards. A
// policy may be called again after the body was read.
func isAboutIssuer(response *http.Response) bool {
	if peeked, ok := response.Body.(*peekedBody); ok {
		return peeked.isAboutIssuer
	}
	text, _ := io.ReadAll(io.LimitReader(response.Body, maxRefusal))
	peeked := &peekedBody{
		Reader: io.MultiReader(bytes.NewReader(text), response.Body), Closer: response.Body,
		isAboutIssuer: parseErrorBody(response.Header, text).Code == errs.CodeIssuer,
	}
	response.Body = peeked
	return peeked.isAboutIssuer
}

// peekedBody is a body that isAboutIssuer has read.
type peekedBody struct {
	io.Reader
	io.Closer
	isAboutIssuer bool
}

func backoff(least, most time.Duration, attempt int, response *http.Response) time.Duration {
	wait := retryablehttp.DefaultBackoff(least, most, attempt, response)
	if wait < 0 || wait > most { // a Retry-After that overflows a duration is negative
		return most
	}
	return wait
}

// redirect checks a redirect. The credential belongs to one host and port, but
// net/http would also send it to other ports and subdomains.
func redirect(request *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return failed{registry.Errorf(registry.ErrInvalid, "the server redirects more than %d times", maxRedirects)}
	}
	target, before := request.URL, via[len(via)-1].URL
	switch {
	case target.Scheme == "https":
	case target.Scheme == "http" && (before.Scheme == "http" || isLoopback(target) && isLoopback(via[0].URL)):
	default:
		return failed{registry.Errorf(registry.ErrInvalid, "the server redirects from https to another scheme")}
	}
	if !isPrivate(target) || target.Scheme != via[0].URL.Scheme || origin(target) != origin(via[0].URL) {
		request.Header.Del("Authorization")
	}
	// The header would send the next host the query of this URL, which may be a
	// presigned URL's signature.
	request.Header.Del("Referer")
	target.User = nil
	return nil
}

func origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"https": "443", "http": "80"}[u.Scheme]
	}
	return net.JoinHostPort(string(registry.CanonicalHost(u.Hostname())), port)
}

func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// discoveryTransport sends the requests of discovery with retries, and returns
// errors with hints.
type discoveryTransport struct{ client *Client }

func (d discoveryTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	host := svchost.Hostname(r.URL.Host)
	a := requestInfo{method: r.Method, url: r.URL, host: host, own: d.client.config.ownVariable(host),
		missing: d.client.config.missing, config: d.client.config.named}
	if r.Header.Get("Authorization") != "" {
		_, a.from, _ = d.client.config.token(r.Context(), a.host) // the configuration caches it
	}
	request, err := retryablehttp.FromRequest(r.Clone(r.Context()))
	if err != nil {
		return nil, failed{registry.Errorf(registry.ErrInvalid, "cannot %s: the request is malformed", a)}
	}
	response, body, err := d.client.exchange(request, true, maxDescription)
	if err != nil {
		return nil, failed{a.connectionError(r.Context(), err)}
	}
	// A host without the document offers no services.
	if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusNotFound {
		return nil, failed{a.statusError(response.StatusCode, complaint{})}
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response, nil
}
