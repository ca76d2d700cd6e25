package httpapi

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
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
	body, err := inflate(data)
	if err == nil {
		err = json.Unmarshal(body, v)
	}
	if err != nil {
		return fmt.Errorf("stored body: %s", err.Error()) // not wrapped: what is wrong with it is no caller's fault
	}
	return nil
}

// unpack returns a stored body as JSON.
func unpack(compressed []byte) ([]byte, error) {
	body, err := inflate(compressed)
	if err == nil && !json.Valid(body) {
		err = errors.New("it is no JSON")
	}
	if err != nil {
		return nil, fmt.Errorf("stored body: %w", err)
	}
	return body, nil
}

// inflate reads a stored body to its end, so that the checksum there counts. It takes no more memory than the body has, and
// none for one that says that it is too large.
func inflate(compressed []byte) ([]byte, error) {
	unpacked, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, err
	}
	size := binary.LittleEndian.Uint32(compressed[len(compressed)-4:]) // RFC 1952, ISIZE; what has a header is longer
	if size > maxUnpacked {
		return nil, fmt.Errorf("it has %d bytes, more than %d", size, maxUnpacked)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(unpacked, body); err != nil {
		return nil, err
	}
	if n, err := unpacked.Read(make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) {
		return nil, cmp.Or(err, fmt.Errorf("it has more than the %d bytes that it says", size))
	}
	return body, nil
}

// intact are the stored bodies that were found so, by a hash, each in the place that its hash has: who hands the same one
// over again and again looks at it once.
var (
	intact [1024]atomic.Uint64
	seed   = maphash.MakeSeed()
)

// check says whether a stored body can be handed over.
func check(compressed []byte) error {
	sum := maphash.Bytes(seed, compressed) | 1 // 0 is none
	seen := &intact[sum/2%uint64(len(intact))]
	if seen.Load() == sum {
		return nil
	}
	_, err := unpack(compressed)
	if err == nil {
		seen.Store(sum)
	}
	return err
}

// WriteCompressedJSON answers 200 with a JSON body that is stored gzip-compressed: as it is where the client takes gzip
// (Go's clients do), unpacked where it does not. One that is damaged is an error and no answer.
func WriteCompressedJSON(w http.ResponseWriter, r *http.Request, cacheControl string, compressed []byte) error {
	body := compressed
	var err error
	gzipped := Accepts(r.Header.Values("Accept-Encoding"), "gzip")
	if gzipped {
		err = check(compressed)
	} else {
		body, err = unpack(compressed)
	}
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
