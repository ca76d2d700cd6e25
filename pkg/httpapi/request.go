package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/larder-registry/larder/pkg/registry/errs"
	"github.com/larder-registry/larder/pkg/text/printable"
)

// ReadJSON decodes the body of a request into `into`. The body must be one JSON
// value of at most limit bytes, without unknown fields. Its type, if there is
// one, must be application/json. Errors are errs.ErrInvalid with an [Explain]
// text for the caller. After an error, `into` may be partly set.
func ReadJSON(r *http.Request, limit int64, into any) error {
	for _, contentType := range r.Header.Values("Content-Type") {
		if !isJSON(contentType) {
			return unreadable(nil, "the body must be application/json in UTF-8")
		}
	}
	if r.ContentLength > limit {
		return tooLong(limit)
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, limit+1))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return unreadable(err, "the body arrives too slowly")
	case err != nil:
		return unreadable(err, "the body cannot be read")
	case int64(len(body)) > limit:
		return tooLong(limit)
	case !utf8.Valid(body):
		return unreadable(nil, "the body is not valid UTF-8")
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return unreadable(err, whyNot(err))
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return unreadable(nil, "the body has data after its JSON value")
	}
	return nil
}

func isJSON(contentType string) bool {
	name, params, err := mime.ParseMediaType(contentType)
	charset, given := params["charset"]
	return err == nil && name == contentTypeJSON && (!given || strings.EqualFold(charset, "utf-8"))
}

func tooLong(limit int64) error {
	return unreadable(nil, fmt.Sprintf("the body has more than %d bytes", limit))
}

func unreadable(cause error, text string) error {
	err := fmt.Errorf("%w body", errs.ErrInvalid)
	if cause != nil {
		// It may quote the complete body.
		err = fmt.Errorf("%w: %s", err, printable.Line(cause.Error(), 200))
	}
	return Explain(err, text)
}

// whyNot returns the reason why JSON is invalid, without names of this
// program's types.
func whyNot(err error) string {
	const unknown = `json: unknown field `
	if mismatch, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		if mismatch.Field == "" {
			return fmt.Sprintf("the body cannot be a JSON %.100s", mismatch.Value)
		}
		return fmt.Sprintf("field %.100q of the body cannot be a JSON %.100s", mismatch.Field, mismatch.Value)
	}
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Sprintf("the body is invalid JSON at byte %d", syntax.Offset)
	}
	switch {
	case errors.Is(err, io.EOF):
		return "the body is empty, but must be JSON"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "the body ends before its JSON is complete"
	case strings.HasPrefix(err.Error(), unknown):
		return fmt.Sprintf("the body has an unknown field: %.100s", err.Error()[len(unknown):])
	}
	return "a value in the body is invalid"
}
