package dynamodb

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"strconv"

	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// maxResponse bounds a response, in bytes. A response has at most 1 MB of
// items, which grow when they are written as JSON.
const maxResponse = 16 << 20

// verifyChecksum makes the client verify the checksum of each response while
// reading it. A retry can fix a wrong checksum. The SDK does not retry errors
// in reading, so they get a type that it retries.
//
// Source:
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Programming.LowLevelAPI.html,
// X-Amz-Crc32.
func verifyChecksum(stack *middleware.Stack) error {
	verify := func(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (
		middleware.DeserializeOutput, middleware.Metadata, error,
	) {
		out, metadata, err := next.HandleDeserialize(ctx, in)
		if response, ok := out.RawResponse.(*smithyhttp.Response); ok && err == nil {
			want := response.Header.Get("X-Amz-Crc32")
			response.Body = &verified{ReadCloser: response.Body, want: want, sum: crc32.NewIEEE()}
		}
		return out, metadata, err
	}
	return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc("VerifyChecksum", verify), middleware.After)
}

// verified is the body of a response. Reading it fails if it has been altered
// or cut off.
type verified struct {
	io.ReadCloser
	want string // empty if the response has no checksum
	sum  hash.Hash32
	read int
}

func (v *verified) Read(p []byte) (int, error) {
	n, err := v.ReadCloser.Read(p)
	_, _ = v.sum.Write(p[:n]) // it never fails
	v.read += n
	switch {
	case v.read > maxResponse:
		err = fmt.Errorf("it has more than %d bytes", maxResponse)
	case errors.Is(err, io.EOF):
		if v.want == "" || v.want == strconv.FormatUint(uint64(v.sum.Sum32()), 10) {
			return n, err
		}
		err = errors.New("its checksum does not match")
	}
	if err != nil {
		return n, unreadable{err}
	}
	return n, nil
}

// unreadable is the error for a response that did not arrive as it was sent.
type unreadable struct{ error }

func (u unreadable) Error() string { return "cannot read the response: " + u.error.Error() }
func (u unreadable) Unwrap() error { return u.error }

// RetryableError implements the interface by which the SDK recognizes errors to
// retry.
func (u unreadable) RetryableError() bool { return true }
