package httpapi

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
)

const contentTypeJSON = "application/json"

// WriteJSON answers with v as JSON.
func WriteJSON(w http.ResponseWriter, status int, cacheControl string, v any) {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false) // URLs stay readable
	if err := encoder.Encode(v); err != nil {
		// Every v is a type of this project that encodes; to a caller this is as good as a panic.
		panic(fmt.Sprintf("httpapi: encoding %T: %v", v, err))
	}
	writeBody(w, status, cacheControl, body.Bytes())
}

// WriteNoContent answers 204. It names the content type of the answer that a body would have had.
func WriteNoContent(w http.ResponseWriter, cacheControl string) {
	h := w.Header()
	h.Set("Content-Type", contentTypeJSON)
	h.Set("Cache-Control", cacheControl)
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusNoContent)
}

// WriteCompressedJSON answers 200 with a JSON body that is stored gzip-compressed: as it is where the client takes gzip
// (Go's clients do), unpacked where it does not.
func WriteCompressedJSON(w http.ResponseWriter, r *http.Request, cacheControl string, compressed []byte) error {
	w.Header().Set("Vary", "Accept-Encoding")
	if Accepts(r.Header.Values("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Encoding", "gzip")
		writeBody(w, http.StatusOK, cacheControl, compressed)
		return nil
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return fmt.Errorf("stored body: %w", err)
	}
	body, err := io.ReadAll(unpacked)
	if err != nil {
		return fmt.Errorf("stored body: %w", err)
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
	_, _ = w.Write(body) // the client has gone; there is nobody to tell
}

// Accepts says whether a header of the kind of Accept or Accept-Encoding names value itself (a wildcard is no name) with
// a weight above zero (RFC 9110, section 12.5).
func Accepts(header []string, value string) bool {
	for _, line := range header {
		for element := range strings.SplitSeq(line, ",") {
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
