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

// maxAnswer bounds an answer, in bytes: one has 1 MB of items at most, and these grow as they are written as JSON.
const maxAnswer = 16 << 20

// verifyChecksum has each answer verified by its checksum as it is read, to its end. What is wrong with that may be right the
// next time, which the SDK tries for no error of its own in reading.
//
// Source: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Programming.LowLevelAPI.html, X-Amz-Crc32.
func verifyChecksum(stack *middleware.Stack) error {
	return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc("ReadWhole", func(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
		out, metadata, err := next.HandleDeserialize(ctx, in)
		if response, ok := out.RawResponse.(*smithyhttp.Response); ok && err == nil {
			response.Body = &verified{ReadCloser: response.Body, want: response.Header.Get("X-Amz-Crc32"), sum: crc32.NewIEEE()}
		}
		return out, metadata, err
	}), middleware.After)
}

// verified is an answer's body, which ends in an error where it is not as it was sent.
type verified struct {
	io.ReadCloser
	want string // empty where nobody says
	sum  hash.Hash32
	read int
}

func (v *verified) Read(p []byte) (int, error) {
	n, err := v.ReadCloser.Read(p)
	_, _ = v.sum.Write(p[:n]) // it never fails
	v.read += n
	switch {
	case v.read > maxAnswer:
		err = fmt.Errorf("it has more than %d bytes", maxAnswer)
	case errors.Is(err, io.EOF):
		if v.want == "" || v.want == strconv.FormatUint(uint64(v.sum.Sum32()), 10) {
			return n, err
		}
		err = errors.New("its checksum is another")
	}
	if err != nil {
		return n, unreadable{err}
	}
	return n, nil
}

// unreadable is an answer that did not come as it was sent.
type unreadable struct{ error }

func (u unreadable) Error() string { return "reading an answer: " + u.error.Error() }
func (u unreadable) Unwrap() error { return u.error }

// RetryableError is what the SDK asks.
func (u unreadable) RetryableError() bool { return true }
