// Package protocol defines the documents of the module registry, provider
// registry and provider network mirror protocols, and of Larder's own publish
// API.
//
// It has no HTTP and no storage, so that the catalog can render a document and
// a handler can return it unchanged.
package protocol

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
	"sync/atomic"
)

// Document is a stored JSON document. It is compressed with gzip and ready to
// be sent.
type Document []byte

// Compress encodes v as a document.
func Compress(v any) (Document, error) {
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	encoder := json.NewEncoder(compressed)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return nil, fmt.Errorf("cannot encode %T: %w", v, err)
	}
	if err := compressed.Close(); err != nil {
		return nil, fmt.Errorf("cannot compress %T: %w", v, err)
	}
	return out.Bytes(), nil
}

// maxDocument bounds the size of a decompressed document in bytes.
const maxDocument = 64 << 20

// Decode decodes a document made by [Compress].
func Decode[T any](d Document) (v T, err error) {
	text, err := d.inflate()
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	if err != nil {
		// Not wrapped: a registry.ErrInvalid would blame the caller.
		err = fmt.Errorf("cannot decode a stored document: %s", err.Error())
	}
	return v, err
}

// JSON returns the decompressed document.
func (d Document) JSON() ([]byte, error) {
	text, err := d.inflate()
	if err == nil && !json.Valid(text) {
		err = errors.New("invalid JSON")
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read a stored document: %w", err)
	}
	return text, nil
}

// Gzip returns the compressed document after checking that it is valid.
func (d Document) Gzip() ([]byte, error) {
	sum := maphash.Bytes(seed, d) | 1 // 0 means none
	place := &valid[sum/2%uint64(len(valid))]
	if place.Load() == sum {
		return d, nil
	}
	if _, err := d.JSON(); err != nil {
		return nil, err
	}
	place.Store(sum)
	return d, nil
}

// valid caches hashes of valid documents, each in the slot that its hash
// selects. A document that is sent repeatedly is decompressed only once.
var (
	valid [1024]atomic.Uint64
	seed  = maphash.MakeSeed()
)

// inflate decompresses a document to its end, which verifies its checksum. It
// allocates the size that the document declares, up to maxDocument.
func (d Document) inflate() ([]byte, error) {
	unpacked, err := gzip.NewReader(bytes.NewReader(d))
	if err != nil {
		return nil, err
	}
	// RFC 1952, ISIZE. A document with a header has more than 4 bytes.
	size := binary.LittleEndian.Uint32(d[len(d)-4:])
	if size > maxDocument {
		return nil, fmt.Errorf("it has %d bytes, more than %d", size, maxDocument)
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(unpacked, text); err != nil {
		return nil, err
	}
	if n, err := unpacked.Read(make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) {
		return nil, cmp.Or(err, fmt.Errorf("it has more than the %d bytes that it declares", size))
	}
	return text, nil
}
