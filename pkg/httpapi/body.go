package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
)

const contentTypeJSON = "application/json"

// WriteJSON writes a response with v as JSON.
func WriteJSON(w http.ResponseWriter, status int, cacheControl string, v any) {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false) // for readable URLs
	if err := encoder.Encode(v); err != nil {
		// Only types of this project that encode are passed, so this is a bug
		// in the caller.
		panic(fmt.Sprintf("httpapi: encoding %T: %v", v, err))
	}
	writeBody(w, status, cacheControl, body.Bytes())
}

// WriteNoContent writes a 204 with [WriteEmpty].
func WriteNoContent(w http.ResponseWriter, cacheControl string) {
	WriteEmpty(w, http.StatusNoContent, cacheControl)
}

// WriteEmpty writes a response without a body, such as a redirect. It sets the
// content type that a body would have.
func WriteEmpty(w http.ResponseWriter, status int, cacheControl string) {
	h := w.Header()
	h.Set("Content-Type", contentTypeJSON)
	h.Set("Cache-Control", cacheControl)
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
}

// WriteFile writes a 200 with a file of a publisher. Nothing in it can run in a
// browser, whatever its name and its content are. Caches do not store it,
// because it may be withdrawn.
func WriteFile(w http.ResponseWriter, mediaType string, data []byte) {
	h := w.Header()
	h.Set("Content-Type", mediaType)
	h.Set("Content-Length", strconv.Itoa(len(data)))
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "private, no-store")
	h.Add("Vary", "Authorization")
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(data) // an error means that the client has disconnected
}

// Document is a JSON document that is stored compressed. Both methods fail if
// it is damaged.
type Document interface {
	// Gzip returns the stored document, which is compressed with gzip.
	Gzip() ([]byte, error)
	// JSON returns the document's text.
	JSON() ([]byte, error)
}

// WriteDocument writes a 200 with a stored document. It is compressed if the
// client accepts gzip, as Go's clients do, and uncompressed otherwise. If the
// document is damaged, WriteDocument returns the error and writes nothing.
func WriteDocument(w http.ResponseWriter, r *http.Request, cacheControl string, d Document) error {
	read := d.JSON
	gzipped := Accepts(r.Header.Values("Accept-Encoding"), "gzip")
	if gzipped {
		read = d.Gzip
	}
	body, err := read()
	if err != nil {
		return err
	}
	w.Header().Add("Vary", "Accept-Encoding")
	if gzipped {
		w.Header().Set("Content-Encoding", "gzip")
	}
	writeBody(w, http.StatusOK, cacheControl, body)
	return nil
}

func writeBody(w http.ResponseWriter, status int, cacheControl string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", contentTypeJSON)
	h.Set("Cache-Control", cacheControl)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(body) // an error means that the client has disconnected
}

// Accepts reports whether an Accept or Accept-Encoding header names value with
// a weight above zero (RFC 9110, section 12.5). Wildcards do not count.
func Accepts(header []string, value string) bool {
	for _, line := range header {
		for element := range strings.SplitSeq(line, ",") {
			if strings.TrimSpace(element) == value {
				return true
			}
			name, params, err := mime.ParseMediaType(element)
			if err != nil || name != value {
				continue
			}
			if q, given := params["q"]; given {
				if weight, err := strconv.ParseFloat(q, 64); err != nil || weight <= 0 {
					continue
				}
			}
			return true
		}
	}
	return false
}

// HasTag reports whether an If-None-Match header has a tag (RFC 9110, section
// 13.1.2). Tags are compared weakly.
func HasTag(header []string, tag string) bool {
	for _, line := range header {
		for one := range strings.SplitSeq(line, ",") {
			one = strings.TrimSpace(one)
			if one == "*" || strings.TrimPrefix(one, "W/") == strings.TrimPrefix(tag, "W/") {
				return true
			}
		}
	}
	return false
}
