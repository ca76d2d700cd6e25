package presign

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/larder-registry/larder/pkg/registry"
)

// Reader reads objects from presigned URLs. It is for small objects in functions
// that must start quickly, since it does without the SDK's S3 client. It sends
// each request once.
type Reader struct {
	signer *Signer
	client Client
}

// Client sends requests, such as an http.Client. Its timeout bounds reading an
// object.
type Client interface {
	Do(*http.Request) (*http.Response, error)
}

// NewReader returns a Reader of the objects for which a signer signs URLs.
func NewReader(s *Signer, c Client) *Reader { return &Reader{s, c} }

// Open reads length bytes of an object from an offset. A negative length reads
// to its end. The caller closes the result. It returns registry.ErrNotFound if
// there is no object. It returns registry.ErrInvalid if no object can have the
// key, or if the offset is beyond its end. Other errors are
// registry.ErrUnavailable. No error contains the URL, with which anyone can read
// the object.
//
// S3 returns 403 for a missing object unless the role may list the bucket, which
// this needs for nothing else. So a 403 is registry.ErrNotFound too. The text of
// the error has the status.
func (r *Reader) Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	signed, err := r.signer.SignGet(ctx, key)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, signed, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("cannot read object %s: %w", key, withoutURL(err))
	}
	want := http.StatusOK
	switch {
	case length == 0:
		return http.NoBody, nil
	case length > 0:
		request.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", offset, offset+length-1))
		want = http.StatusPartialContent
	case offset > 0:
		request.Header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
		want = http.StatusPartialContent
	}
	response, err := r.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("cannot read object %s: %w: %w", key, registry.ErrUnavailable, withoutURL(err))
	}
	if response.StatusCode == want {
		return response.Body, nil
	}
	_ = response.Body.Close() // nothing was written
	reason := registry.ErrUnavailable
	switch response.StatusCode {
	case http.StatusNotFound, http.StatusForbidden:
		reason = registry.ErrNotFound
	case http.StatusRequestedRangeNotSatisfiable:
		reason = registry.ErrInvalid
	}
	return nil, fmt.Errorf("cannot read object %s: %w: S3 returns %s", key, reason, response.Status)
}

// withoutURL returns the cause of an HTTP client's error.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}
