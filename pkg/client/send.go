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
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/opentofu/svchost"

	"github.com/larder-registry/larder/pkg/registry"
)

const (
	maxAttempts  = 3
	maxRedirects = 5
	// firstWait is before the second attempt.
	firstWait = 500 * time.Millisecond
	// maxWait bounds a wait, whatever a server's Retry-After says.
	maxWait = 10 * time.Second
	// maxRefusal bounds the body of a refusal, of which a few words are shown.
	maxRefusal = 64 << 10
)

func newRequest(ctx context.Context, a asked, payload []byte) (*retryablehttp.Request, error) {
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

// send makes a request as often as it takes. begin, if not nil, is called before each attempt. The last answer counts,
// whatever its status.
func (c *Client) send(through *http.Client, request *retryablehttp.Request, check retryablehttp.CheckRetry, begin func()) (*http.Response, error) {
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

// exchange sends a request and reads the answer. One that ends early counts as a failed attempt.
func (c *Client) exchange(request *retryablehttp.Request, again bool) (*http.Response, []byte, error) {
	var body []byte
	read := func(response *http.Response) (err error) {
		if response.StatusCode < 200 || response.StatusCode > 299 {
			body, _ = io.ReadAll(io.LimitReader(response.Body, maxRefusal)) // the status says enough
			return nil
		}
		if body, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer+1)); err == nil && len(body) > maxAnswer {
			return failed{registry.Errorf(registry.ErrInvalid, "the answer has more than %d bytes", maxAnswer)}
		}
		return err
	}
	request.SetResponseHandler(read)
	response, err := c.send(c.metadata, request, retry(again), nil)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	if body == nil { // the last of several failures
		if err := read(response); err != nil {
			return nil, nil, err
		}
	}
	return response, body, nil
}

// retry is the policy for a request that may, or may not, be repeated.
func retry(again bool) retryablehttp.CheckRetry {
	return func(ctx context.Context, response *http.Response, err error) (bool, error) {
		return shouldRetry(ctx, response, err, again)
	}
}

// shouldRetry says whether a failure may pass. What may not be repeated is sent again only if it cannot have arrived.
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
	} else if !again {
		return response.StatusCode == http.StatusTooManyRequests, nil
	}
	return retryablehttp.DefaultRetryPolicy(ctx, response, err)
}

// isAboutIssuer reports whether a Larder answers registry.ErrIssuer, which trying
// again does not mend. The body can be read all the same. A policy may be asked
// again when it has been.
func isAboutIssuer(response *http.Response) bool {
	if seen, ok := response.Body.(*seenBody); ok {
		return seen.isAboutIssuer
	}
	text, _ := io.ReadAll(io.LimitReader(response.Body, maxRefusal))
	seen := &seenBody{
		Reader: io.MultiReader(bytes.NewReader(text), response.Body), Closer: response.Body,
		isAboutIssuer: parseErrorBody(response.Header, text).Code == registry.CodeIssuer,
	}
	response.Body = seen
	return seen.isAboutIssuer
}

// seenBody is a body whose code is known.
type seenBody struct {
	io.Reader
	io.Closer
	isAboutIssuer bool
}

func backoff(least, most time.Duration, attempt int, response *http.Response) time.Duration {
	wait := retryablehttp.DefaultBackoff(least, most, attempt, response)
	if wait < 0 || wait > most { // a Retry-After beyond what a duration holds is negative
		return most
	}
	return wait
}

// redirect decides on a redirect. The credential is for one host and port, where net/http would send it to another port and
// to names below it too.
func redirect(request *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return failed{registry.Errorf(registry.ErrInvalid, "it redirects more than %d times", maxRedirects)}
	}
	target, before := request.URL, via[len(via)-1].URL
	switch {
	case target.Scheme == "https":
	case target.Scheme == "http" && (before.Scheme == "http" || isLoopback(target) && isLoopback(via[0].URL)):
	default:
		return failed{registry.Errorf(registry.ErrInvalid, "it redirects from https to something else")}
	}
	if !isPrivate(target) || target.Scheme != via[0].URL.Scheme || origin(target) != origin(via[0].URL) {
		request.Header.Del("Authorization")
	}
	// It would tell the next host the query of this one's URL, by which a presigned URL holds.
	request.Header.Del("Referer")
	target.User = nil
	return nil
}

// origin is a URL's host with its port.
func origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"https": "443", "http": "80"}[u.Scheme]
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// stay leaves a redirect to be an answer like any other.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// discovering is how discovery reaches a host: with retries, and with errors that say what to do.
type discovering struct{ client *Client }

func (d discovering) RoundTrip(r *http.Request) (*http.Response, error) {
	a := asked{method: r.Method, url: r.URL, host: svchost.Hostname(r.URL.Host), missing: d.client.config.missing,
		config: d.client.config.named}
	if r.Header.Get("Authorization") != "" {
		_, a.from, _ = d.client.config.token(r.Context(), a.host) // it is kept from the first time
	}
	request, err := retryablehttp.FromRequest(r.Clone(r.Context()))
	if err != nil {
		return nil, failed{registry.Errorf(registry.ErrInvalid, "cannot %s: the request is malformed", a)}
	}
	response, body, err := d.client.exchange(request, true)
	if err != nil {
		return nil, failed{a.broken(r.Context(), err)}
	}
	// A host without the document is one without services.
	if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusNotFound {
		return nil, failed{a.refused(response.StatusCode, complaint{})}
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response, nil
}
