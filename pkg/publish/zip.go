package publish

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/larder-registry/larder/pkg/archive"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/progress"
	"github.com/larder-registry/larder/pkg/registry"
)

// A provider's zips are large, and to unpack them takes longer than to read them: so each is read twice, and unpacked on
// its way to the store. What it takes to know that they are the ones which were signed is known before.

// hashing is the body of an upload of a zip, whose files are unpacked and hashed as it is read. The end of a zip that
// proves bad is never read of it, so that no store has it whole.
type hashing struct {
	io.ReadSeeker
	zip  *archive.ProviderZip
	fail func(error) // called when the zip proves bad, since whoever reads may take that for a mishap and try again

	at     int64          // where the next byte is read
	hashed int64          // how much is hashed
	pipe   *io.PipeWriter // to what hashes; nil where nothing does
	ended  chan error
	h1     string // of the zip when it was last read to its end
}

var errBegunAnew = errors.New("the upload has begun anew")

// Seek implements io.Seeker. Who reads the zip again begins at its beginning.
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

// hash has more of the zip hashed, which is all that was read when it ends.
func (h *hashing) hash(b []byte) error {
	if h.at == 0 {
		h.begin()
	}
	if h.at != h.hashed || h.pipe == nil {
		return fmt.Errorf("a zip is read at %d, and hashed up to %d", h.at, h.hashed)
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
	_ = h.end(errBegunAnew)
	in, out := io.Pipe()
	h.pipe, h.hashed, h.ended, h.h1 = out, 0, make(chan error, 1), ""
	go func() {
		h1, err := h.zip.HashFiles(in)
		h.h1 = h1
		_ = in.CloseWithError(err) // nil for none, and then nothing is written any more
		h.ended <- err
	}()
}

// end ends what hashes, for a reason or, where that is nil, since it has all.
func (h *hashing) end(reason error) error {
	if h.pipe == nil {
		return nil
	}
	_ = h.pipe.CloseWithError(reason) // it is always nil
	h.pipe = nil
	return <-h.ended
}

// sendZip puts a zip where its record says, and finds out its h1.
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
	_ = body.end(errBegunAnew)
	if bad := context.Cause(ctx); bad != nil {
		return bad
	}
	if err != nil {
		return err
	}
	if there {
		// Somebody has stored it meanwhile, and what was read here of it the store has not looked at.
		return p.hashZip(ctx, f)
	}
	*f.h1 = body.h1
	return nil
}

// hashZip finds out the h1 of a zip that is not sent.
func (p *Publisher) hashZip(ctx context.Context, f file) error {
	opened, err := f.Open()
	if err != nil {
		return err
	}
	defer opened.Close()
	hash := sha256.New()
	moved, end := progress.Or(p.Progress).Transfer("unpacking "+f.Name, f.Size)
	defer end()
	*f.h1, err = f.Zip.HashFiles(io.TeeReader(objects.ContextReader(ctx, progress.Reader(opened, moved)), hash))
	if err == nil && hex.EncodeToString(hash.Sum(nil)) != f.SHA256 {
		err = errChanged
	}
	return err
}

var errChanged = fmt.Errorf("%w release: the zip has changed while it was published", registry.ErrInvalid)
