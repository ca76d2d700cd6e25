// Package s3 is objects.Store on one S3 bucket.
//
// An object is put by a single conditional PutObject, so that S3 itself refuses to replace it and verifies the SHA-256 of
// all its bytes; 5 GB is the most that takes. Presigned URLs to GET sign the host and nothing else of what a client sends,
// so that any client can use them; those to PUT sign all that makes the request the one which PutOnce would send, and the
// tag of a staged object. The bucket needs a lifecycle rule that expires objects with that tag.
package s3

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"

	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/objects/presign"
	"github.com/larder-registry/larder/pkg/registry"
)

// Options of New.
type Options struct {
	// Lifetime of signed URLs; 60 minutes where it is zero. They end earlier where the credentials that sign them do.
	Lifetime time.Duration
	// PutLifetime is that of URLs to PUT; 60 minutes where it is zero. A request must begin within it.
	PutLifetime time.Duration
	// PathStyle puts the bucket into the path and not into the host, as S3's emulators need it.
	PathStyle bool
}

// Store is an objects.Store and an objects.Stage in S3.
type Store struct {
	client *s3.Client
	bucket string
	put    *s3.PresignClient
	get    *presign.Signer
	// noGet is why there is no get: an endpoint of no use for any request, and that is when it is told.
	noGet error
}

var (
	_ objects.Store = (*Store)(nil)
	_ objects.Stage = (*Store)(nil)
)

// New returns the store in a bucket.
func New(config aws.Config, bucket string, options Options) *Store {
	client := s3.NewFromConfig(config, func(o *s3.Options) {
		o.UsePathStyle = options.PathStyle
		// Checksums are given where they count. What the SDK would add on its own would have to be sent by whoever uses a
		// presigned URL.
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
	})
	store := &Store{client: client, bucket: bucket, put: s3.NewPresignClient(client, s3.WithPresignExpires(cmp.Or(options.PutLifetime, time.Hour)))}
	// There may be an endpoint for S3 alone, which the client has found.
	config.BaseEndpoint = client.Options().BaseEndpoint
	store.get, store.noGet = presign.New(config, bucket, presign.Options{Lifetime: options.Lifetime, PathStyle: options.PathStyle})
	return store
}

const (
	// maxConflicts is how often an object is put while S3 answers that somebody else
	// is putting or deleting it, with 409. Of two writers at once, the slower one so
	// finds out who won.
	maxConflicts = 5
	// maxAppearing is how often an object is put that S3 says is there, and that is
	// not there when it is looked at: somebody has deleted it, or, on servers that
	// take an object's name before they have the object, is about to put it.
	maxAppearing = 10
	// maxWait bounds the wait between two attempts.
	maxWait = 1600 * time.Millisecond
)

// PutOnce implements objects.Store.
func (s *Store) PutOnce(ctx context.Context, key string, body io.ReadSeeker, digest objects.Digest) error {
	if err := errors.Join(objects.CheckKey(key), digest.Check()); err != nil {
		return err
	}
	begin, err := body.Seek(0, io.SeekCurrent)
	if err != nil {
		return fmt.Errorf("object %s: %w", key, err)
	}
	// A body that is too long would be cut off and stored before anyone noticed.
	if end, err := body.Seek(0, io.SeekEnd); err != nil || end-begin != digest.Size {
		return fmt.Errorf("%w object %s: its body has %d bytes, not %d", registry.ErrInvalid, key, end-begin, digest.Size)
	}
	for attempt := 1; ; attempt++ {
		if _, err := body.Seek(begin, io.SeekStart); err != nil {
			return fmt.Errorf("object %s: %w", key, err)
		}
		in := s.putOnce(key, digest)
		in.Body = body
		_, err := s.client.PutObject(ctx, in, s3.WithAPIOptions(withPayloadHash(digest.SHA256)))
		refused := s.translate(key, err)
		most := 1
		switch {
		case code(err) == "PreconditionFailed":
			refused = cmp.Or(s.settle(ctx, key), refused)
			if errors.Is(refused, registry.ErrNotFound) {
				most = maxAppearing
				refused = fmt.Errorf("bucket %s: object %s: %w: it was there, and was gone when it was looked at: %w",
					s.bucket, key, registry.ErrUnavailable, err)
			}
		case status(err) == http.StatusConflict:
			most = maxConflicts
		}
		if attempt >= most {
			return refused
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(rand.N(min(100*time.Millisecond<<attempt, maxWait))): //nolint:gosec // jitter, not a secret
		}
	}
}

// putOnce is a request to put an object whose digest was checked.
func (s *Store) putOnce(key string, digest objects.Digest) *s3.PutObjectInput {
	sum, _ := hex.DecodeString(digest.SHA256)
	return &s3.PutObjectInput{
		Bucket: &s.bucket, Key: &key, ContentLength: &digest.Size,
		IfNoneMatch:    aws.String("*"),
		ChecksumSHA256: aws.String(base64.StdEncoding.EncodeToString(sum)),
		ContentType:    aws.String("application/octet-stream"),
	}
}

// settle makes sure that an object which is there will stay, for a caller that counts on it. Most who put cannot read
// tags; that an object is about to expire, S3 tells whoever may read it.
//
// Source: x-amz-expiration of https://docs.aws.amazon.com/AmazonS3/latest/API/API_HeadObject.html
func (s *Store) settle(ctx context.Context, key string) error {
	out, err := s.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &s.bucket, Key: &key})
	if err != nil {
		return s.translate(key, err)
	}
	if !strings.Contains(aws.ToString(out.Expiration), `rule-id="`+objects.StagedRule+`"`) {
		return nil
	}
	if err := s.Keep(ctx, key); err != nil {
		return fmt.Errorf("%w: object %s was uploaded to be published, was not, and is about to expire (%s): publish it as that was begun, or try again when it is gone: %w", registry.ErrConflict, key, aws.ToString(out.Expiration), err)
	}
	return nil
}

// SignPut implements objects.Stage. S3 refuses headers that begin with x-amz- and are not signed; Keep looks for the others.
func (s *Store) SignPut(ctx context.Context, key string, digest objects.Digest) (objects.Upload, error) {
	if err := objects.CheckUpload(key, digest); err != nil {
		return objects.Upload{}, err
	}
	in := s.putOnce(key, digest)
	in.Tagging = aws.String(objects.Tag + "=" + objects.TagStaged)
	request, err := s.put.PresignPutObject(ctx, in)
	if err != nil {
		return objects.Upload{}, fmt.Errorf("signing a URL for %s: %w", key, err)
	}
	upload := objects.Upload{URL: request.URL, Header: make(map[string]string)}
	for name := range request.SignedHeader {
		if name != "Host" { // which is in the URL
			upload.Header[name] = request.SignedHeader.Get(name)
		}
	}
	return upload, nil
}

// Keep implements objects.Stage. An object without a tag was put by PutOnce, and is kept.
func (s *Store) Keep(ctx context.Context, key string) error {
	if err := objects.CheckKey(key); err != nil {
		return err
	}
	tags, staged, err := s.tags(ctx, key)
	if err != nil || !staged {
		return err
	}
	// A header that is not signed cannot be forbidden, and this one has clients unpack the archive on the way.
	out, err := s.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &s.bucket, Key: &key})
	if err != nil {
		return s.translate(key, err)
	}
	if encoding := aws.ToString(out.ContentEncoding); encoding != "" {
		return fmt.Errorf("%w object %s: it was put with Content-Encoding %q", registry.ErrInvalid, key, encoding)
	}
	_, err = s.client.PutObjectTagging(ctx, &s3.PutObjectTaggingInput{Bucket: &s.bucket, Key: &key, Tagging: &types.Tagging{TagSet: tags}})
	if err != nil {
		// Of two who keep it at once, the later one meets a tag that nobody may change.
		if _, staged, again := s.tags(ctx, key); again == nil && !staged {
			return nil
		}
	}
	return s.translate(key, err)
}

// tags says whether an object is staged, and returns the tags of one that is kept, for it may have others too.
func (s *Store) tags(ctx context.Context, key string) (kept []types.Tag, staged bool, err error) {
	out, err := s.client.GetObjectTagging(ctx, &s3.GetObjectTaggingInput{Bucket: &s.bucket, Key: &key})
	if err != nil {
		return nil, false, s.translate(key, err)
	}
	for _, tag := range out.TagSet {
		if aws.ToString(tag.Key) == objects.Tag {
			staged = aws.ToString(tag.Value) == objects.TagStaged
			tag.Value = aws.String(objects.TagKept)
		}
		kept = append(kept, tag)
	}
	return kept, staged, nil
}

// withPayloadHash tells the signer the hash of the body, which it would otherwise read the body to compute.
func withPayloadHash(sha256 string) func(*middleware.Stack) error {
	return func(stack *middleware.Stack) error {
		return stack.Finalize.Insert(middleware.FinalizeMiddlewareFunc("KnownPayloadHash",
			func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
				return next.HandleFinalize(v4.SetPayloadHash(ctx, sha256), in)
			}), "ComputePayloadHash", middleware.Before)
	}
}

// SignGet implements objects.Store.
func (s *Store) SignGet(ctx context.Context, key string) (string, error) {
	if s.noGet != nil {
		return "", fmt.Errorf("signing a URL for %s: %w", key, s.noGet)
	}
	return s.get.SignGet(ctx, key)
}

// Open implements objects.Store.
func (s *Store) Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	if err := objects.CheckKey(key); err != nil {
		return nil, err
	}
	in := &s3.GetObjectInput{Bucket: &s.bucket, Key: &key}
	switch {
	case length >= 0:
		in.Range = aws.String(fmt.Sprintf("bytes=%d-%d", offset, offset+length-1))
	case offset > 0:
		in.Range = aws.String(fmt.Sprintf("bytes=%d-", offset))
	}
	if length != 0 {
		out, err := s.client.GetObject(ctx, in)
		if err == nil {
			return out.Body, nil
		}
		if code(err) != "InvalidRange" {
			return nil, s.translate(key, err)
		}
	}
	// S3 knows no empty range. One that is asked for, or begins at the end, is one all the same.
	info, err := s.Stat(ctx, key)
	if err != nil {
		return nil, err
	}
	if offset > info.Size {
		return nil, fmt.Errorf("%w range: object %s has %d bytes", registry.ErrInvalid, key, info.Size)
	}
	return io.NopCloser(strings.NewReader("")), nil
}

// Stat implements objects.Store.
func (s *Store) Stat(ctx context.Context, key string) (objects.Info, error) {
	if err := objects.CheckKey(key); err != nil {
		return objects.Info{}, err
	}
	out, err := s.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &s.bucket, Key: &key})
	if err != nil {
		return objects.Info{}, s.translate(key, err)
	}
	return objects.Info{Key: key, Size: aws.ToInt64(out.ContentLength), Modified: aws.ToTime(out.LastModified)}, nil
}

// Walk implements objects.Store.
func (s *Store) Walk(ctx context.Context, prefix string, visit func(objects.Info) error) error {
	pages := s3.NewListObjectsV2Paginator(s.client, &s3.ListObjectsV2Input{Bucket: &s.bucket, Prefix: &prefix})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return s.translate(prefix, err)
		}
		for _, object := range page.Contents {
			if err := visit(objects.Info{Key: aws.ToString(object.Key), Size: aws.ToInt64(object.Size), Modified: aws.ToTime(object.LastModified)}); err != nil {
				return err
			}
		}
	}
	return nil
}

func code(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return ""
}

// status returns the HTTP status of an error: 0 if there was no response, and -1 if
// there was no request.
func status(err error) int {
	if response, ok := errors.AsType[*awshttp.ResponseError](err); ok {
		return response.HTTPStatusCode()
	}
	return -1
}

// translate gives an error the sentinel on which a caller can act.
func (s *Store) translate(key string, err error) error {
	if err == nil {
		return nil
	}
	sentinel := errors.New("S3")
	status := status(err)
	switch code := code(err); {
	case code == "PreconditionFailed":
		sentinel = registry.ErrExists
	// The last one is what S3 may say of the tags of an object that has expired in a bucket with versions.
	case code == "NoSuchKey" || code == "NotFound" || code == "MethodNotAllowed":
		sentinel = registry.ErrNotFound
	case code == "InvalidRange" || code == "BadDigest" || code == "XAmzContentSHA256Mismatch" || code == "XAmzContentChecksumMismatch":
		sentinel = registry.ErrInvalid
	case code == "EntityTooLarge":
		sentinel = registry.ErrInvalid
	// What is below an error's status cannot be read, and is perhaps another's.
	case code == "SlowDown" || status == http.StatusConflict,
		status >= 0 && status < http.StatusBadRequest || status >= http.StatusInternalServerError:
		sentinel = registry.ErrUnavailable
	}
	return fmt.Errorf("bucket %s: object %s: %w: %w", s.bucket, key, sentinel, err)
}
