package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/larder-registry/larder/pkg/files/regularfile"
	"github.com/larder-registry/larder/pkg/registry"
)

// Upload is a file to upload to a URL that itself grants the permission.
type Upload struct {
	URL string
	// Header is sent unchanged. A Content-Length in it must equal Size.
	Header map[string]string
	Size   int64
	// Open returns a new reader of the file, from its beginning.
	Open func() (io.ReadCloser, error)
	// Sent, if not nil, is called each time bytes are sent, with their number.
	// The number is negative if they must be sent again.
	Sent func(int64)
}

// Upload sends a file with a PUT request, without a credential. If an attempt
// fails and another one may succeed, it sends the file again. An upload may
// take any time as long as bytes are sent. Upload does not follow redirects.
//
// It returns registry.ErrExists if the object exists already, and
// registry.ErrForbidden if the URL has expired.
func (c *Client) Upload(ctx context.Context, u Upload) error {
	// The error would quote the URL.
	target, err := url.Parse(u.URL)
	if err != nil || target.Hostname() == "" || target.User != nil || !isPrivate(target) {
		return registry.Errorf(registry.ErrInvalid, "the URL for an upload must use https and have no user")
	}
	what := requestInfo{method: http.MethodPut, url: target, file: true}

	ctx, idle, done := c.watch(ctx)
	defer done()

	request, err := newRequest(ctx, what, nil)
	if err != nil {
		return err
	}
	for name, value := range u.Header {
		switch name = http.CanonicalHeaderKey(name); {
		case name == "Content-Length" && value == strconv.FormatInt(u.Size, 10):
		case name == "Host" && strings.EqualFold(value, target.Host):
		case name == "Content-Length", name == "Host", name == "Authorization":
			return registry.Errorf(registry.ErrInvalid, "cannot %s: an upload must not have the header %s", what, name)
		default:
			request.Header.Set(name, value)
		}
	}
	body := &sending{upload: u, moved: func() { idle.Reset(idleTimeout) }}
	if err := request.SetBody(body.begin); err != nil {
		return err
	}
	request.ContentLength = u.Size
	if u.Size > 64<<10 {
		// An error response then arrives before the file is sent, and not as a
		// broken connection.
		request.Header.Set("Expect", "100-continue")
	}
	response, err := c.send(c.uploads, request, retryUpload, body.moved)
	if err != nil {
		body.stop(0)
		return what.connectionError(ctx, err)
	}
	defer response.Body.Close()
	switch code := storeCode(response); {
	case response.StatusCode >= 200 && response.StatusCode <= 299:
		body.stop(u.Size)
		return nil
	case response.StatusCode == http.StatusPreconditionFailed:
		body.stop(u.Size) // the object has this content already
		return what.statusError(response.StatusCode, complaint{text: code})
	case code == "ExpiredToken":
		// The signer's own credentials expired before the URL.
		body.stop(0)
		return what.statusError(http.StatusForbidden, complaint{text: code})
	default:
		body.stop(0)
		return what.statusError(response.StatusCode, complaint{text: code})
	}
}

// continueTimeout is how long to wait for 100 Continue before sending the file.
// A server that does not support it gets the file after that.
const continueTimeout = 3 * time.Second

// expecting returns a transport that waits for 100 Continue, if it can.
// Otherwise an error response would arrive during the upload, and the
// connection may break before the client reads it.
func expecting(transport http.RoundTripper) http.RoundTripper {
	t, ok := transport.(*http.Transport)
	if !ok {
		return transport
	}
	t = t.Clone()
	t.ExpectContinueTimeout = continueTimeout
	return t
}

// retryUpload reports whether another attempt may succeed. S3 has its own
// statuses for that.
func retryUpload(ctx context.Context, response *http.Response, err error) (bool, error) {
	again, checked := shouldRetry(ctx, response, err, true)
	if err == nil && !again && checked == nil {
		again = response.StatusCode == http.StatusConflict ||
			response.StatusCode == http.StatusBadRequest && storeCode(response) == "RequestTimeout"
	}
	return again, checked
}

var codes = regexp.MustCompile(`<Code>([A-Za-z0-9]{1,64})</Code>`)

// storeCode returns the code in S3's error response. The rest of the response
// must not be shown.
//
// Source: https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html.
func storeCode(response *http.Response) string {
	if response.StatusCode < 400 {
		return ""
	}
	text, _ := io.ReadAll(io.LimitReader(response.Body, maxRefusal)) // the status is sufficient
	_ = response.Body.Close()
	response.Body = io.NopCloser(bytes.NewReader(text))
	if found := codes.FindSubmatch(text); found != nil {
		return string(found[1])
	}
	return ""
}

// sending is an upload in progress, possibly in a second attempt. A failed
// attempt may still read for a while.
type sending struct {
	upload Upload
	moved  func()

	mu  sync.Mutex
	now *attempt
}

// attempt is the body of one request.
type attempt struct {
	io.ReadCloser
	of *sending
	at int64
}

func (s *sending) begin() (io.Reader, error) {
	file, err := s.upload.Open()
	if err != nil {
		return nil, failed{err}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count(0)
	s.now = &attempt{ReadCloser: file, of: s}
	return s.now, nil
}

// stop ends counting, after at bytes were sent.
func (s *sending) stop(at int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count(at)
	s.now = nil
}

// count reports the progress of the current attempt.
func (s *sending) count(at int64) {
	if s.now == nil || s.now.at == at {
		return
	}
	if s.upload.Sent != nil {
		s.upload.Sent(at - s.now.at)
	}
	s.now.at = at
}

func (a *attempt) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	a.of.mu.Lock()
	defer a.of.mu.Unlock()
	if a.of.now != a {
		return n, err
	}
	a.of.moved()
	a.of.count(a.at + int64(n))
	switch {
	case errors.Is(err, io.EOF) && a.at < a.of.upload.Size, a.at > a.of.upload.Size:
		return n, failed{registry.Errorf(registry.ErrInvalid, "the size of the file changed during the upload")}
	case err != nil && !errors.Is(err, io.EOF):
		return n, failed{registry.Errorf(err, "cannot read the file: %s", regularfile.Reason(err))}
	}
	return n, err
}
