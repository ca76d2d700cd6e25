package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/larder-registry/larder/pkg/printable"
	"github.com/larder-registry/larder/pkg/registry/core"
)

// ReadJSON reads a request's body, strictly: one JSON value of at most limit bytes, without fields that into does not
// have, and of type application/json where a type is given. Errors are core.ErrInvalid and tell the caller what is
// wrong, by Explain; into may have been written to in part.
func ReadJSON(r *http.Request, limit int64, into any) error {
	for _, contentType := range r.Header.Values("Content-Type") {
		if !isJSON(contentType) {
			return unreadable(nil, "the body must be application/json, in UTF-8")
		}
	}
	if r.ContentLength > limit {
		return tooLong(limit)
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, limit+1))
	switch {
	case err != nil:
		return unreadable(err, "the body cannot be read")
	case int64(len(body)) > limit:
		return tooLong(limit)
	case !utf8.Valid(body):
		return unreadable(nil, "the body is not in UTF-8")
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return unreadable(err, whyNot(err))
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return unreadable(nil, "there is something behind the JSON value of the body")
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
	err := fmt.Errorf("%w body", core.ErrInvalid)
	if cause != nil {
		// It may quote as much of the body as there is.
		err = fmt.Errorf("%w: %s", err, printable.Line(cause.Error(), 200))
	}
	return Explain(err, text)
}

// whyNot says why JSON cannot be read, in words that have none of this program's types in them.
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
		return "there is no body, and it must be JSON"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "the body ends within its JSON"
	case strings.HasPrefix(err.Error(), unknown):
		return fmt.Sprintf("the body has a field that is unknown: %.100s", err.Error()[len(unknown):])
	}
	return "a value in the body is not what belongs there"
}
