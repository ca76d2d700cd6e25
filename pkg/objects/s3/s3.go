// Package s3 is objects.Store on one S3 bucket.
//
// An object is put by a single conditional PutObject, so that S3 itself refuses to replace it and verifies the SHA-256 of
// all its bytes; 5 GB is the most that takes. Presigned URLs sign the host and nothing else of what a client sends, so
// that any client can use them.
package s3

import (
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
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"

	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/registry"
)

// Options of New.
type Options struct {
	// Lifetime of signed URLs; 60 minutes where it is zero. They end earlier where the credentials that sign them do.
	Lifetime time.Duration
	// PathStyle puts the bucket into the path and not into the host, as S3's emulators need it.
	PathStyle bool
}

// Store is an objects.Store in S3.
type Store struct {
	client  *s3.Client
	presign *s3.PresignClient
	bucket  string
}

var _ objects.Store = (*Store)(nil)

// New returns the store in a bucket.
func New(config aws.Config, bucket string, options Options) *Store {
	client := s3.NewFromConfig(config, func(o *s3.Options) {
		o.UsePathStyle = options.PathStyle
		// Checksums are given where they count. What the SDK would add on its own would have to be sent by whoever uses a
		// presigned URL.
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
	})
	lifetime := options.Lifetime
	if lifetime == 0 {
		lifetime = time.Hour
	}
	return &Store{client: client, presign: s3.NewPresignClient(client, s3.WithPresignExpires(lifetime)), bucket: bucket}
}

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
	sum, err := hex.DecodeString(digest.SHA256)
	if err != nil {
		return fmt.Errorf("object %s: %w", key, err)
	}
	const attempts = 5
	for attempt := 1; ; attempt++ {
		if _, err := body.Seek(begin, io.SeekStart); err != nil {
			return fmt.Errorf("object %s: %w", key, err)
		}
		_, err := s.client.PutObject(ctx, &s3.PutObjectInput{
			Bucket: &s.bucket, Key: &key, Body: body, ContentLength: &digest.Size,
			IfNoneMatch:    aws.String("*"),
			ChecksumSHA256: aws.String(base64.StdEncoding.EncodeToString(sum)),
			ContentType:    aws.String("application/octet-stream"),
		}, s3.WithAPIOptions(withPayloadHash(digest.SHA256)))
		// Two writers at once: S3 asks the slower one to find out who won.
		if err == nil || code(err) != "ConditionalRequestConflict" || attempt == attempts {
			return s.translate(key, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(rand.N(100 * time.Millisecond << attempt)): //nolint:gosec // jitter, not a secret
		}
	}
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
	if err := objects.CheckKey(key); err != nil {
		return "", err
	}
	request, err := s.presign.PresignGetObject(ctx, &s3.GetObjectInput{Bucket: &s.bucket, Key: &key})
	if err != nil {
		return "", fmt.Errorf("signing a URL for %s: %w", key, err)
	}
	return request.URL, nil
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
	return objects.Info{Key: key, Size: aws.ToInt64(out.ContentLength)}, nil
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
			if err := visit(objects.Info{Key: aws.ToString(object.Key), Size: aws.ToInt64(object.Size)}); err != nil {
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

// translate gives an error the sentinel on which a caller can act.
func (s *Store) translate(key string, err error) error {
	if err == nil {
		return nil
	}
	sentinel := errors.New("S3")
	var response *awshttp.ResponseError
	status := -1
	if errors.As(err, &response) {
		status = response.HTTPStatusCode() // 0 where there was no answer
	}
	switch code := code(err); {
	case code == "PreconditionFailed":
		sentinel = registry.ErrExists
	case code == "NoSuchKey" || code == "NotFound":
		sentinel = registry.ErrNotFound
	case code == "InvalidRange" || code == "BadDigest" || code == "XAmzContentSHA256Mismatch" || code == "XAmzContentChecksumMismatch":
		sentinel = registry.ErrInvalid
	case code == "EntityTooLarge":
		sentinel = registry.ErrInvalid
	case code == "SlowDown" || code == "ConditionalRequestConflict" || status == 0 || status >= http.StatusInternalServerError:
		sentinel = registry.ErrUnavailable
	}
	return fmt.Errorf("bucket %s: object %s: %w: %w", s.bucket, key, sentinel, err)
}
