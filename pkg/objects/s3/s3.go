// Package s3 implements [objects.Store] and [objects.Stage] in an S3 bucket.
//
// PutOnce sends a single conditional PutObject, so that S3 itself rejects a
// replacement and verifies the SHA-256 of all bytes. This limits objects to 5
// GB.
//
// Presigned URLs to GET sign only the host, so that any client can use them.
// URLs to PUT sign the headers that PutOnce would send, and the tag of a staged
// object. The bucket needs a lifecycle rule that expires objects with this tag.
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

// Options are the options of [New].
type Options struct {
	// Lifetime of signed URLs. If zero, it is 60 minutes. A URL expires earlier if
	// the credentials that signed it do.
	Lifetime time.Duration
	// PutLifetime is the lifetime of URLs to PUT. If zero, it is 60 minutes. A
	// request must begin within it.
	PutLifetime time.Duration
	// PathStyle puts the bucket into the path instead of the host, which emulators
	// of S3 need.
	PathStyle bool
	// DualStack uses the host of S3 that has IPv6 addresses too, unless the
	// configuration has an endpoint.
	DualStack bool
}

// Store is an [objects.Store] and an [objects.Stage] in S3.
type Store struct {
	client *s3.Client
	bucket string
	put    *s3.PresignClient
	get    *presign.Signer
	// getErr is set if get is nil because the endpoint is not valid. It is
	// returned when a URL is signed, because all requests fail then.
	getErr error
}

var (
	_ objects.Store = (*Store)(nil)
	_ objects.Stage = (*Store)(nil)
)

// New returns the store in a bucket.
func New(config aws.Config, bucket string, options Options) *Store {
	client := s3.NewFromConfig(config, func(o *s3.Options) {
		o.UsePathStyle = options.PathStyle
		if options.DualStack && o.BaseEndpoint == nil {
			o.EndpointOptions.UseDualStackEndpoint = aws.DualStackEndpointStateEnabled
		}
		// The requests set checksums explicitly. Users of presigned URLs would have to
		// send any others that the SDK adds.
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
	})
	store := &Store{
		client: client,
		bucket: bucket,
		put:    s3.NewPresignClient(client, s3.WithPresignExpires(cmp.Or(options.PutLifetime, time.Hour))),
	}
	// Use the client's endpoint, because S3 can have one of its own.
	config.BaseEndpoint = client.Options().BaseEndpoint
	store.get, store.getErr = presign.New(
		config,
		bucket,
		presign.Options{Lifetime: options.Lifetime, PathStyle: options.PathStyle, DualStack: options.DualStack},
	)
	return store
}

const (
	// maxConflicts is the number of attempts while S3 answers with 409 because
	// another client is storing or deleting the object. With several attempts,
	// the slower of two writers learns which one succeeded.
	maxConflicts = 5
	// maxAppearing is the number of attempts while S3 reports that the object
	// exists, but does not find it. Another client may have deleted it. Some
	// servers also reserve an object's name before they have the object.
	maxAppearing = 10
	// maxWait is the longest wait between two attempts.
	maxWait = 1600 * time.Millisecond
)

// PutOnce implements objects.Store.
func (s *Store) PutOnce(ctx context.Context, key string, body io.ReadSeeker, digest objects.Digest) error {
	return s.store(ctx, key, body, digest, false)
}

// PutStaged implements [objects.Stage].
func (s *Store) PutStaged(ctx context.Context, key string, body io.ReadSeeker, digest objects.Digest) error {
	return s.store(ctx, key, body, digest, true)
}

func (s *Store) store(ctx context.Context, key string, body io.ReadSeeker, digest objects.Digest, staged bool) error {
	if err := errors.Join(objects.CheckKey(key), digest.Check()); err != nil {
		return err
	}
	begin, err := body.Seek(0, io.SeekCurrent)
	if err != nil {
		return fmt.Errorf("object %s: %w", key, err)
	}
	// S3 would store only the first bytes of a longer body.
	if end, err := body.Seek(0, io.SeekEnd); err != nil || end-begin != digest.Size {
		return fmt.Errorf("%w object %s: its body has %d bytes instead of %d",
			registry.ErrInvalid, key, end-begin, digest.Size)
	}
	for attempt := 1; ; attempt++ {
		if _, err := body.Seek(begin, io.SeekStart); err != nil {
			return fmt.Errorf("object %s: %w", key, err)
		}
		in := s.putOnce(key, digest)
		in.Body = body
		if staged {
			in.Tagging = aws.String(objects.Tag + "=" + objects.TagStaged)
		}
		_, err := s.client.PutObject(ctx, in, s3.WithAPIOptions(withPayloadHash(digest.SHA256)))
		failed := s.translate(key, err)
		most := 1
		switch {
		case code(err) == "PreconditionFailed" && staged:
		case code(err) == "PreconditionFailed":
			failed = cmp.Or(s.ensureKept(ctx, key), failed)
			if errors.Is(failed, registry.ErrNotFound) {
				most = maxAppearing
				failed = fmt.Errorf("bucket %s: object %s: %w: it exists, but S3 does not find it: %w",
					s.bucket, key, registry.ErrUnavailable, err)
			}
		case status(err) == http.StatusConflict:
			most = maxConflicts
		}
		if attempt >= most {
			return failed
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(rand.N(min(100*time.Millisecond<<attempt, maxWait))): //nolint:gosec // jitter, not a secret
		}
	}
}

// putOnce returns the request to store an object with a valid digest.
func (s *Store) putOnce(key string, digest objects.Digest) *s3.PutObjectInput {
	sum, _ := hex.DecodeString(digest.SHA256)
	return &s3.PutObjectInput{
		Bucket: &s.bucket, Key: &key, ContentLength: &digest.Size,
		IfNoneMatch:    aws.String("*"),
		ChecksumSHA256: aws.String(base64.StdEncoding.EncodeToString(sum)),
		ContentType:    aws.String("application/octet-stream"),
	}
}

// ensureKept makes sure that an existing object is permanent, because the
// caller relies on it. Most writers cannot read tags, but S3 reports the expiry
// of an object to every reader.
//
// Source: x-amz-expiration of
// https://docs.aws.amazon.com/AmazonS3/latest/API/API_HeadObject.html
func (s *Store) ensureKept(ctx context.Context, key string) error {
	out, err := s.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &s.bucket, Key: &key})
	if err != nil {
		return s.translate(key, err)
	}
	if !strings.Contains(aws.ToString(out.Expiration), `rule-id="`+objects.StagedRule+`"`) {
		return nil
	}
	if _, err := s.Keep(ctx, key); err != nil {
		return registry.WithHint(
			fmt.Errorf("%w: object %s is an unfinished upload that expires soon (%s), and cannot be made permanent: %w",
				registry.ErrConflict, key, aws.ToString(out.Expiration), err),
			"Publish in the same way as before, or try again after it has expired.")
	}
	return nil
}

// SignPut implements [objects.Stage]. S3 rejects unsigned headers that begin
// with x-amz-. Keep checks the others.
func (s *Store) SignPut(ctx context.Context, key string, digest objects.Digest) (objects.Upload, error) {
	if err := objects.CheckUpload(key, digest); err != nil {
		return objects.Upload{}, err
	}
	in := s.putOnce(key, digest)
	in.Tagging = aws.String(objects.Tag + "=" + objects.TagStaged)
	request, err := s.put.PresignPutObject(ctx, in)
	if err != nil {
		return objects.Upload{}, fmt.Errorf("cannot sign a URL for %s: %w", key, err)
	}
	upload := objects.Upload{URL: request.URL, Header: make(map[string]string)}
	for name := range request.SignedHeader {
		if name != "Host" { // the URL has the host
			upload.Header[name] = request.SignedHeader.Get(name)
		}
	}
	return upload, nil
}

// Keep implements [objects.Stage]. An object without the tag was stored by
// PutOnce, and is permanent.
func (s *Store) Keep(ctx context.Context, key string) (objects.Info, error) {
	if err := objects.CheckKey(key); err != nil {
		return objects.Info{}, err
	}
	tags, staged, err := s.tags(ctx, key)
	if err != nil {
		return objects.Info{}, err
	}
	out, err := s.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &s.bucket, Key: &key})
	if err != nil {
		return objects.Info{}, s.translate(key, err)
	}
	info := infoOf(key, out)
	if !staged {
		return info, nil
	}
	// Clients would unpack an archive with a Content-Encoding. S3 accepts this
	// header even if it is not signed.
	if encoding := aws.ToString(out.ContentEncoding); encoding != "" {
		return info, fmt.Errorf("%w object %s: it was put with Content-Encoding %q", registry.ErrInvalid, key, encoding)
	}
	_, err = s.client.PutObjectTagging(ctx, &s3.PutObjectTaggingInput{
		Bucket: &s.bucket, Key: &key, Tagging: &types.Tagging{TagSet: tags},
	})
	if err != nil {
		// If two clients call Keep at once, the later one may not change the tag.
		if _, staged, again := s.tags(ctx, key); again == nil && !staged {
			return info, nil
		}
	}
	return info, s.translate(key, err)
}

func infoOf(key string, out *s3.HeadObjectOutput) objects.Info {
	return objects.Info{Key: key, Size: aws.ToInt64(out.ContentLength), Modified: aws.ToTime(out.LastModified)}
}

// tags reports whether an object is staged. It returns the tags that make it
// permanent, including its other tags.
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

// withPayloadHash sets the hash of the body, so that the signer does not read
// the body to compute it.
func withPayloadHash(sha256 string) func(*middleware.Stack) error {
	return func(stack *middleware.Stack) error {
		return stack.Finalize.Insert(middleware.FinalizeMiddlewareFunc("KnownPayloadHash",
			func(
				ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler,
			) (middleware.FinalizeOutput, middleware.Metadata, error) {
				return next.HandleFinalize(v4.SetPayloadHash(ctx, sha256), in)
			}), "ComputePayloadHash", middleware.Before)
	}
}

// SignGet implements objects.Store.
func (s *Store) SignGet(ctx context.Context, key string) (string, error) {
	if s.getErr != nil {
		return "", fmt.Errorf("cannot sign a URL for %s: %w", key, s.getErr)
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
	// S3 does not support empty ranges, including those at the end.
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
	return infoOf(key, out), nil
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
			info := objects.Info{
				Key: aws.ToString(object.Key), Size: aws.ToInt64(object.Size), Modified: aws.ToTime(object.LastModified),
			}
			if err := visit(info); err != nil {
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

// status returns the HTTP status of an error. It returns 0 if there was no
// response, and -1 if there was no request.
func status(err error) int {
	if response, ok := errors.AsType[*awshttp.ResponseError](err); ok {
		return response.HTTPStatusCode()
	}
	return -1
}

// translate wraps an error with the sentinel for the caller.
func (s *Store) translate(key string, err error) error {
	if err == nil {
		return nil
	}
	sentinel := errors.New("S3")
	status := status(err)
	switch code := code(err); {
	case code == "PreconditionFailed":
		sentinel = registry.ErrExists
		// S3 can return MethodNotAllowed for the tags of an expired object in a bucket
		// with versions.
	case code == "NoSuchKey" || code == "NotFound" || code == "MethodNotAllowed":
		sentinel = registry.ErrNotFound
	case code == "InvalidRange" || code == "BadDigest" || code == "EntityTooLarge",
		code == "XAmzContentSHA256Mismatch" || code == "XAmzContentChecksumMismatch":
		sentinel = registry.ErrInvalid
		// A response with a status below 400 could not be read. It may be another
		// server's.
	case code == "SlowDown" || status == http.StatusConflict,
		status >= 0 && status < http.StatusBadRequest || status >= http.StatusInternalServerError:
		sentinel = registry.ErrUnavailable
	}
	return fmt.Errorf("bucket %s: object %s: %w: %w", s.bucket, key, sentinel, err)
}
