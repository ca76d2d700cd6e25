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

// Document is a JSON document that is stored compressed. Both methods fail if
// it is damaged.
type Document interface {
	// Gzip returns it as it is stored, compressed with gzip.
	Gzip() ([]byte, error)
	// JSON returns its text.
	JSON() ([]byte, error)
}

// WriteDocument answers 200 with a stored document: compressed if the client
// takes gzip, as Go's clients do, and unpacked otherwise. If the document is
// damaged it returns the error and answers nothing.
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
	w.Header().Set("Vary", "Accept-Encoding")
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
