package publish

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/larder-registry/larder/pkg/content/archive"
	"github.com/larder-registry/larder/pkg/progress"
	"github.com/larder-registry/larder/pkg/registry"
)

// A provider's zips are large, and unpacking them takes longer than reading
// them. Each zip is therefore read twice, and unpacked during the upload. Its
// signature is verified before the upload.

// hashing is the body of an upload of a zip. It unpacks and hashes the files of
// the zip while it is read. It never returns the end of a damaged zip, so that
// no store receives it completely.
type hashing struct {
	io.ReadSeeker
	zip  *archive.ProviderZip
	fail func(error) // called for a damaged zip, because the store may retry after an error of Read

	at     int64          // offset of the next read
	hashed int64          // number of hashed bytes
	pipe   *io.PipeWriter // to the goroutine that hashes, or nil
	ended  chan error
	h1     string // of the zip after its last complete read
}

var errRestarted = errors.New("the upload was restarted")

// Seek implements io.Seeker. A reader that seeks starts again from the
// beginning.
func (h *hashing) Seek(offset int64, whence int) (at int64, err error) {
	if at, err = h.ReadSeeker.Seek(offset, whence); err == nil {
		h.at = at
	}
	return at, err
}

func (h *hashing) Read(b []byte) (int, error) {
	n, err := h.ReadSeeker.Read(b)
	if h.at+int64(n) > h.zip.Size || errors.Is(err, io.EOF) && h.at+int64(n) < h.zip.Size {
		h.fail(errChanged)
		return 0, errChanged
	}
	if n == 0 {
		return n, err
	}
	if hashErr := h.hash(b[:n]); hashErr != nil {
		h.fail(hashErr)
		return 0, hashErr
	}
	return n, err
}

// hash passes bytes to the goroutine that hashes. After the last byte, it waits
// for the result.
func (h *hashing) hash(b []byte) error {
	if h.at == 0 {
		h.begin()
	}
	if h.at != h.hashed || h.pipe == nil {
		return fmt.Errorf("the zip is read at offset %d, but hashed up to %d", h.at, h.hashed)
	}
	n, err := h.pipe.Write(b)
	h.at += int64(n)
	h.hashed = h.at
	if err == nil && h.at >= h.zip.Size {
		err = h.end(nil)
	}
	return err
}

func (h *hashing) begin() {
	_ = h.end(errRestarted)
	in, out := io.Pipe()
	h.pipe, h.hashed, h.ended, h.h1 = out, 0, make(chan error, 1), ""
	go func() {
		h1, err := h.zip.HashFiles(in)
		h.h1 = h1
		_ = in.CloseWithError(err) // if err is nil, nothing more is written
		h.ended <- err
	}()
}

// end ends the goroutine that hashes, and returns its error. If reason is nil,
// all bytes were written.
func (h *hashing) end(reason error) error {
	if h.pipe == nil {
		return nil
	}
	_ = h.pipe.CloseWithError(reason) // it is always nil
	h.pipe = nil
	return <-h.ended
}

// sendZip stores a zip under the key of its record, and sets its h1.
func (p *Publisher) sendZip(ctx context.Context, f file, total func(int64)) error {
	opened, err := f.Open()
	if err != nil {
		return err
	}
	defer opened.Close()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	body := &hashing{ReadSeeker: opened, zip: f.Zip, fail: fail}
	there, err := p.put(ctx, f.Name, body, f.StoredFile, total)
	_ = body.end(errRestarted)
	if bad := context.Cause(ctx); bad != nil {
		return bad
	}
	if err != nil {
		return err
	}
	if there {
		// Another publisher has stored the zip meanwhile, so the store has not
		// verified the bytes that were read here.
		return p.hashZip(ctx, f)
	}
	*f.h1 = body.h1
	return nil
}

// hashZip sets the h1 of a zip that is not uploaded.
func (p *Publisher) hashZip(ctx context.Context, f file) error {
	opened, err := f.Open()
	if err != nil {
		return err
	}
	defer opened.Close()
	hash := sha256.New()
	moved, end := progress.Or(p.Progress).Transfer("unpacking "+f.Name, f.Size)
	defer end()
	in := io.TeeReader(progress.WithContext(ctx, progress.Reader(opened, moved)), hash)
	*f.h1, err = f.Zip.HashFiles(in)
	if err == nil && hex.EncodeToString(hash.Sum(nil)) != f.SHA256 {
		err = errChanged
	}
	return err
}

var errChanged = fmt.Errorf("%w release: the zip changed while it was published", registry.ErrInvalid)
