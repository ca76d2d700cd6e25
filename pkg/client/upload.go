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

	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/regularfile"
)

// Upload is a file to send, by a URL that itself is the permission to do so.
type Upload struct {
	URL string
	// Header is sent as it is. A Content-Length in it must be Size.
	Header map[string]string
	Size   int64
	// Open returns the file from its beginning, each time anew.
	Open func() (io.ReadCloser, error)
	// Sent, if not nil, is told how many bytes went on their way each time some did, by a negative number when they have
	// to go again.
	Sent func(int64)
}

// Upload sends a file by a PUT request, to which no credential is added. It is sent again, from its beginning, where that
// may help. There is no limit to how long it takes, but one to how long it takes without a byte. Redirects are not
// followed.
//
// registry.ErrExists says that something is there already, and registry.ErrForbidden that the URL holds no longer.
func (c *Client) Upload(ctx context.Context, u Upload) error {
	// An error would quote the URL.
	target, err := url.Parse(u.URL)
	if err != nil || target.Hostname() == "" || target.User != nil || !isPrivate(target) {
		return registry.Errorf(registry.ErrInvalid, "the URL to upload to must be one with https, without a user")
	}
	what := asked{method: http.MethodPut, url: target, file: true}

	ctx, idle, done := c.watch(ctx)
	defer done()

	request, err := newRequest(ctx, what, nil)
	if err != nil {
		return err
	}
	for name, value := range u.Header {
		switch name = http.CanonicalHeaderKey(name); {
		case name == "Content-Length" && value == strconv.FormatInt(u.Size, 10), name == "Host" && strings.EqualFold(value, target.Host):
		case name == "Content-Length", name == "Host", name == "Authorization":
			return registry.Errorf(registry.ErrInvalid, "cannot %s: an upload must not have the header %s", what, name)
		default:
			request.Header.Set(name, value)
		}
	}
	body := &sending{upload: u, moved: func() { idle.Reset(c.idle) }}
	if err := request.SetBody(body.begin); err != nil {
		return err
	}
	request.ContentLength = u.Size
	if u.Size > 64<<10 {
		// A refusal comes before the file has gone then, and not as a broken connection.
		request.Header.Set("Expect", "100-continue")
	}
	response, err := c.send(c.uploads, request, retryUpload, body.moved)
	if err != nil {
		body.stop(0)
		return what.broken(ctx, err)
	}
	defer response.Body.Close()
	switch code := storeCode(response); {
	case response.StatusCode >= 200 && response.StatusCode <= 299:
		body.stop(u.Size)
		return nil
	case response.StatusCode == http.StatusPreconditionFailed:
		body.stop(u.Size) // as good as sent
		return what.refused(response.StatusCode, complaint{text: code})
	case code == "ExpiredToken":
		// The signer's own credentials have ended before the URL.
		body.stop(0)
		return what.refused(http.StatusForbidden, complaint{text: code})
	default:
		body.stop(0)
		return what.refused(response.StatusCode, complaint{text: code})
	}
}

// permission is how long a server may take to say that a file is to be sent. One that never says it gets the file then.
const permission = 3 * time.Second

// expecting returns a transport that waits for such a permission, if it can: without waiting, a refusal arrives while the
// file is on its way, and the connection may break before it is read.
func expecting(transport http.RoundTripper) http.RoundTripper {
	t, ok := transport.(*http.Transport)
	if !ok {
		return transport
	}
	t = t.Clone()
	t.ExpectContinueTimeout = permission
	return t
}

// retryUpload says whether an upload that failed may go well. S3 has statuses of its own for that.
func retryUpload(ctx context.Context, response *http.Response, err error) (bool, error) {
	again, checked := shouldRetry(ctx, response, err, true)
	if err == nil && !again && checked == nil {
		again = response.StatusCode == http.StatusConflict || response.StatusCode == http.StatusBadRequest && storeCode(response) == "RequestTimeout"
	}
	return again, checked
}

var codes = regexp.MustCompile(`<Code>([A-Za-z0-9]{1,64})</Code>`)

// storeCode returns the code in S3's words, in which there is more that must not be shown.
//
// Source: https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html.
func storeCode(response *http.Response) string {
	if response.StatusCode < 400 {
		return ""
	}
	text, _ := io.ReadAll(io.LimitReader(response.Body, maxRefusal)) // the status says enough
	_ = response.Body.Close()
	response.Body = io.NopCloser(bytes.NewReader(text))
	if found := codes.FindSubmatch(text); found != nil {
		return string(found[1])
	}
	return ""
}

// sending is a file on its way, perhaps for the second time: an attempt that has failed may go on reading for a while.
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

// stop ends counting, when so much has been sent.
func (s *sending) stop(at int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count(at)
	s.now = nil
}

// count tells how far the current attempt is.
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
		return n, failed{registry.Errorf(registry.ErrInvalid, "the size of the file has changed meanwhile")}
	case err != nil && !errors.Is(err, io.EOF):
		return n, failed{registry.Errorf(err, "cannot read the file to send: %s", regularfile.Reason(err))}
	}
	return n, err
}
