package dynamodb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"

	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// maxAnswer bounds an answer, in bytes: one has 1 MB of items at most, and these grow as they are written as JSON.
const maxAnswer = 16 << 20

// readWhole has each answer read to its end, and its checksum verified, before anything is made of it. What is wrong
// with that may be right the next time, which the SDK tries for no error of its own in reading.
//
// Source: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Programming.LowLevelAPI.html, X-Amz-Crc32.
func readWhole(stack *middleware.Stack) error {
	return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc("ReadWhole", func(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
		out, metadata, err := next.HandleDeserialize(ctx, in)
		if response, ok := out.RawResponse.(*smithyhttp.Response); ok && err == nil {
			err = whole(response)
		}
		return out, metadata, err
	}), middleware.After)
}

func whole(response *smithyhttp.Response) error {
	var read bytes.Buffer
	read.Grow(int(min(max(response.ContentLength, 0), maxAnswer)) + bytes.MinRead)
	_, err := read.ReadFrom(io.LimitReader(response.Body, maxAnswer+1))
	_ = response.Body.Close() // it was only read
	body := read.Bytes()
	response.Body = io.NopCloser(&read)
	if err == nil && len(body) > maxAnswer {
		err = fmt.Errorf("it has more than %d bytes", maxAnswer)
	}
	if want := response.Header.Get("X-Amz-Crc32"); err == nil && want != "" {
		if got := strconv.FormatUint(uint64(crc32.ChecksumIEEE(body)), 10); got != want {
			err = errors.New("its checksum is another")
		}
	}
	if err != nil {
		return unreadable{err}
	}
	return nil
}

// unreadable is an answer that did not come as it was sent.
type unreadable struct{ error }

func (u unreadable) Error() string { return "reading an answer: " + u.error.Error() }
func (u unreadable) Unwrap() error { return u.error }

// RetryableError is what the SDK asks.
func (u unreadable) RetryableError() bool { return true }
