package s3_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/objects/s3"
	"github.com/larder-registry/larder/pkg/objects/storetest"
	"github.com/larder-registry/larder/pkg/registry"
	"github.com/larder-registry/larder/pkg/rehearsal"
)

// Each test of the suite has a bucket of its own on one server.
func TestStore(t *testing.T) {
	t.Parallel()
	server := rehearsal.S3ForTest(t, "first")
	var buckets atomic.Int64
	storetest.Run(t, func(t *testing.T) storetest.Backend {
		bucket := fmt.Sprintf("bucket-%d", buckets.Add(1))
		client := awss3.NewFromConfig(rehearsal.Config(server.URL), func(o *awss3.Options) { o.UsePathStyle = true })
		if _, err := client.CreateBucket(t.Context(), &awss3.CreateBucketInput{Bucket: &bucket}); err != nil {
			t.Fatal(err)
		}
		return storetest.Backend{
			Store:  s3.New(rehearsal.Config(server.URL), bucket, s3.Options{PathStyle: true}),
			Client: http.DefaultClient,
			SignFor: func(t *testing.T, key string, lifetime time.Duration) string {
				wait := lifetime < 0
				if wait { // nobody can sign for the past; a URL of a second is over after two
					lifetime = time.Second
				}
				u, err := s3.New(rehearsal.Config(server.URL), bucket, s3.Options{PathStyle: true, Lifetime: lifetime}).SignGet(t.Context(), key)
				if err != nil {
					t.Fatal(err)
				}
				if wait {
					time.Sleep(2100 * time.Millisecond)
				}
				return u
			},
		}
	})
}

// A presigned URL is good for any client: of all headers it signs the host alone. It holds for an hour.
func TestSignedHeaders(t *testing.T) {
	t.Parallel()
	config := rehearsal.Config("https://unused.example.com")
	config.BaseEndpoint = nil
	signed, err := s3.New(config, "bucket", s3.Options{}).SignGet(t.Context(), "modules/acme/vpc/aws/1.0.0+build.5/00.tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(signed)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	if q.Get("X-Amz-SignedHeaders") != "host" || q.Get("X-Amz-Expires") != "3600" {
		t.Errorf("signed headers %q, expires %q", q.Get("X-Amz-SignedHeaders"), q.Get("X-Amz-Expires"))
	}
	for name := range q {
		switch name {
		case "X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-SignedHeaders", "X-Amz-Signature", "x-id":
		default:
			t.Errorf("the query has %s", name)
		}
	}
	// A plus in a path means itself to Go and a space to others.
	if u.Scheme != "https" || u.Host != "bucket.s3.eu-central-1.amazonaws.com" || !strings.Contains(signed, "/1.0.0%2Bbuild.5/") {
		t.Errorf("the URL is %s://%s%s", u.Scheme, u.Host, u.EscapedPath())
	}
}

// A function's credentials have a session token. It goes into the query, and the whole fits into a header.
func TestSessionToken(t *testing.T) {
	t.Parallel()
	config := rehearsal.Config("https://unused.example.com")
	config.BaseEndpoint = nil
	token := strings.Repeat("IQoJb3JpZ2luX2VjEA", 60)
	config.Credentials = credentials.NewStaticCredentialsProvider("AKID", "secret", token)
	signed, err := s3.New(config, "bucket", s3.Options{}).SignGet(t.Context(), "modules/acme/vpc/aws/1.0.0/00.tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(signed)
	if err != nil {
		t.Fatal(err)
	}
	if q := u.Query(); q.Get("X-Amz-Security-Token") != token || q.Get("X-Amz-SignedHeaders") != "host" || len(signed) > 4<<10 {
		t.Errorf("%d bytes, signed headers %q", len(signed), q.Get("X-Amz-SignedHeaders"))
	}
}

// The request puts once, and carries the sum that S3 verifies; the body is read once.
func TestPutRequest(t *testing.T) {
	t.Parallel()
	var got http.Header
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header }))
	defer server.Close()
	store := s3.New(rehearsal.Config(server.URL), "bucket", s3.Options{PathStyle: true})
	const sum = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	body := &counted{ReadSeeker: strings.NewReader("test")}
	if err := store.PutOnce(t.Context(), "key", body, objects.Digest{SHA256: sum, Size: 4}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"If-None-Match": "*", "X-Amz-Checksum-Sha256": "n4bQgYhMfWWaL+qgxVrQFaO/TxsrC4Is0V1sFbDwCgg=", "X-Amz-Content-Sha256": sum, "Content-Length": "4", "Content-Encoding": "",
	} {
		if got.Get(name) != want {
			t.Errorf("%s is %q, want %q", name, got.Get(name), want)
		}
	}
	if body.read != 4 {
		t.Errorf("%d bytes of 4 were read", body.read)
	}
}

type counted struct {
	io.ReadSeeker
	read int
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.ReadSeeker.Read(p)
	c.read += n
	return n, err
}

func TestErrors(t *testing.T) {
	t.Parallel()
	for code, test := range map[string]struct {
		status int
		want   error
	}{
		"PreconditionFailed":         {412, registry.ErrExists},
		"NoSuchKey":                  {404, registry.ErrNotFound},
		"BadDigest":                  {400, registry.ErrInvalid},
		"XAmzContentSHA256Mismatch":  {400, registry.ErrInvalid},
		"SlowDown":                   {503, registry.ErrUnavailable},
		"InternalError":              {500, registry.ErrUnavailable},
		"ConditionalRequestConflict": {409, registry.ErrUnavailable},
		"EntityTooLarge":             {400, registry.ErrInvalid},
		"AccessDenied":               {403, nil},
	} {
		calls := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			calls++
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(test.status)
			_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code></Error>", code)
		}))
		config := rehearsal.Config(server.URL)
		config.Retryer = func() aws.Retryer { return aws.NopRetryer{} }
		store := s3.New(config, "bucket", s3.Options{PathStyle: true})
		err := store.PutOnce(t.Context(), "key", strings.NewReader(""), objects.Digest{SHA256: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"})
		for _, sentinel := range []error{registry.ErrExists, registry.ErrNotFound, registry.ErrInvalid, registry.ErrUnavailable} {
			wanted := test.want != nil && errors.Is(test.want, sentinel)
			if err == nil || errors.Is(err, sentinel) != wanted {
				t.Errorf("%s: %v", code, err)
			}
		}
		if want := map[bool]int{true: 5, false: 1}[code == "ConditionalRequestConflict"]; calls != want {
			t.Errorf("%s: asked %d times, want %d", code, calls, want)
		}
		server.Close()
		if _, err := store.Stat(t.Context(), "key"); !errors.Is(err, registry.ErrUnavailable) {
			t.Errorf("nobody answers: %v", err)
		}
	}
}
