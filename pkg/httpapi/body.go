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

// maxUnpacked bounds a stored body that is unpacked, in bytes of JSON.
const maxUnpacked = 64 << 20

// CompressJSON renders v as JSON, gzip-compressed: a body that is stored once and handed over at each request.
func CompressJSON(v any) ([]byte, error) {
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	encoder := json.NewEncoder(compressed)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, fmt.Errorf("encoding %T: %w", v, err)
	}
	if err := compressed.Close(); err != nil {
		return nil, fmt.Errorf("compressing %T: %w", v, err)
	}
	return out.Bytes(), nil
}

// DecompressJSON reads into v what CompressJSON was given.
func DecompressJSON(data []byte, v any) error {
	body, err := unpack(data)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("stored body: %w", err)
	}
	return nil
}

// unpack reads a stored body to its end, so that the checksum there counts.
func unpack(compressed []byte) ([]byte, error) {
	unpacked, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, fmt.Errorf("stored body: %w", err)
	}
	body, err := io.ReadAll(io.LimitReader(unpacked, maxUnpacked))
	if err != nil {
		return nil, fmt.Errorf("stored body: %w", err)
	}
	return body, nil
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
	body, err := unpack(compressed)
	if err != nil {
		return err
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
