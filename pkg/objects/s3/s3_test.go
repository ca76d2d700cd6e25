package s3_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/larder-registry/larder/internal/testkit/awstest"
	"github.com/larder-registry/larder/internal/testkit/s3test"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/objects/s3"
	"github.com/larder-registry/larder/pkg/objects/storetest"
	"github.com/larder-registry/larder/pkg/registry"
)

// TestStore runs the suite on one server, with a bucket for each test.
func TestStore(t *testing.T) {
	t.Parallel()
	server := s3test.ForTest(t, "first")
	var buckets atomic.Int64
	storetest.Run(t, func(t *testing.T) storetest.Backend {
		bucket := fmt.Sprintf("bucket-%d", buckets.Add(1))
		client := awss3.NewFromConfig(awstest.Config(server.URL), func(o *awss3.Options) { o.UsePathStyle = true })
		if _, err := client.CreateBucket(t.Context(), &awss3.CreateBucketInput{Bucket: &bucket}); err != nil {
			t.Fatal(err)
		}
		// A URL cannot be signed for the past, so wait until a URL of a second
		// has expired.
		signer := func(lifetime time.Duration) (store *s3.Store, wait func()) {
			if wait = func() {}; lifetime < 0 {
				lifetime, wait = time.Second, func() { time.Sleep(2100 * time.Millisecond) }
			}
			options := s3.Options{PathStyle: true, Lifetime: lifetime, PutLifetime: lifetime}
			return s3.New(awstest.Config(server.URL), bucket, options), wait
		}
		staged := func(ctx context.Context, key string) (bool, error) {
			out, err := client.GetObjectTagging(ctx, &awss3.GetObjectTaggingInput{Bucket: &bucket, Key: &key})
			if err != nil {
				return false, err
			}
			return slices.ContainsFunc(out.TagSet, func(tag types.Tag) bool {
				return aws.ToString(tag.Key) == "larder" && aws.ToString(tag.Value) == "staged"
			}), nil
		}
		config := awstest.Config(server.URL)
		config.HTTPClient = &expiring{bucket, staged}
		store := s3.New(config, bucket, s3.Options{PathStyle: true})
		return storetest.Backend{
			Store:   store,
			Stage:   store,
			Remover: store,
			Client:  http.DefaultClient,
			SignFor: func(t *testing.T, key string, lifetime time.Duration) string {
				store, wait := signer(lifetime)
				u, err := store.SignGet(t.Context(), key)
				if err != nil {
					t.Fatal(err)
				}
				wait()
				return u
			},
			SignPutFor: func(t *testing.T, key string, digest objects.Digest, lifetime time.Duration) objects.Upload {
				store, wait := signer(lifetime)
				u, err := store.SignPut(t.Context(), key, digest)
				if err != nil {
					t.Fatal(err)
				}
				wait()
				return u
			},
			Staged: func(t *testing.T, key string) bool {
				is, err := staged(t.Context(), key)
				if err != nil {
					t.Fatal(err)
				}
				return is
			},
		}
	})
}

// expiring is a client of a bucket with the lifecycle rule, which versitygw
// does not support. S3 reports the expiry of an object in responses to GET and
// HEAD.
type expiring struct {
	bucket string
	staged func(ctx context.Context, key string) (bool, error)
}

func (e *expiring) Do(r *http.Request) (*http.Response, error) {
	response, err := http.DefaultClient.Do(r)
	if err != nil || r.Method != http.MethodHead || response.StatusCode != http.StatusOK {
		return response, err
	}
	staged, err := e.staged(r.Context(), strings.TrimPrefix(r.URL.Path, "/"+e.bucket+"/"))
	if err == nil && staged {
		response.Header.Set("X-Amz-Expiration", `expiry-date="Fri, 23 Dec 2033 00:00:00 GMT", rule-id="larder-staged"`)
	}
	return response, err
}

const signedKey = "modules/acme/vpc/aws/1.0.0+build.5/00.tar.gz"

// onAWS is the configuration for S3 itself.
func onAWS() aws.Config {
	config := awstest.Config("https://unused.example.com")
	config.BaseEndpoint = nil
	return config
}

// query returns the query of a URL for signedKey. It checks the rest of the URL,
// and that the query has only a signature and names.
func query(t *testing.T, signed string, names ...string) url.Values {
	t.Helper()
	u, err := url.Parse(signed)
	if err != nil {
		t.Fatal(err)
	}
	// Go reads a plus sign in a path as a plus sign, and other programs as a
	// space.
	if u.Scheme != "https" || u.Host != "bucket.s3.eu-central-1.amazonaws.com" ||
		!strings.Contains(signed, "/1.0.0%2Bbuild.5/") {
		t.Errorf("the URL is %s://%s%s", u.Scheme, u.Host, u.EscapedPath())
	}
	names = append(names, "X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-SignedHeaders",
		"X-Amz-Signature", "x-id")
	for name := range u.Query() {
		if !slices.Contains(names, name) {
			t.Errorf("the query has %s", name)
		}
	}
	return u.Query()
}

// TestSignedHeaders checks that a presigned URL only signs the host, so that
// any client can use it, and expires after an hour. The query has the session
// token of a function's credentials, and the URL fits into a header.
func TestSignedHeaders(t *testing.T) {
	t.Parallel()
	for _, token := range []string{"", strings.Repeat("IQoJb3JpZ2luX2VjEA", 60)} {
		config := onAWS()
		config.Credentials = credentials.NewStaticCredentialsProvider("AKID", "secret", token)
		signed, err := s3.New(config, "bucket", s3.Options{}).SignGet(t.Context(), signedKey)
		if err != nil {
			t.Fatal(err)
		}
		q := query(t, signed, "X-Amz-Security-Token")
		if q.Get("X-Amz-SignedHeaders") != "host" || q.Get("X-Amz-Expires") != "3600" {
			t.Errorf("signed headers %q, expires %q", q.Get("X-Amz-SignedHeaders"), q.Get("X-Amz-Expires"))
		}
		if got := q.Get("X-Amz-Security-Token"); got != token || q.Has("X-Amz-Security-Token") != (token != "") {
			t.Errorf("token %q", got)
		}
		if len(signed) > 4<<10 {
			t.Errorf("the URL has %d bytes", len(signed))
		}
	}
}

// TestSignedEndpoint checks that URLs use the endpoint of S3 itself, and that
// an invalid endpoint is an error.
func TestSignedEndpoint(t *testing.T) {
	t.Setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
	t.Setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:2")
	t.Setenv("AWS_ACCESS_KEY_ID", "AKID")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	config, err := awsconfig.LoadDefaultConfig(t.Context(), awsconfig.WithRegion("eu-central-1"))
	if err != nil {
		t.Fatal(err)
	}
	signed, err := s3.New(config, "bucket", s3.Options{PathStyle: true}).SignGet(t.Context(), "key")
	if err != nil || !strings.HasPrefix(signed, "http://127.0.0.1:2/bucket/key?") {
		t.Errorf("%s, %v", signed, err)
	}
	if signed, err := s3.New(awstest.Config("localhost"), "bucket", s3.Options{}).SignGet(t.Context(), "key"); err == nil {
		t.Errorf("signed %s", signed)
	}
}

// With dual stack, URLs to GET and to PUT name the host with IPv6 addresses, unless
// there is an endpoint.
func TestDualStack(t *testing.T) {
	t.Parallel()
	const sum = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	for want, config := range map[string]aws.Config{
		"https://bucket.s3.dualstack.eu-central-1.amazonaws.com/": onAWS(),
		"http://127.0.0.1:1/bucket/":                              awstest.Config("http://127.0.0.1:1"),
	} {
		store := s3.New(config, "bucket", s3.Options{DualStack: true, PathStyle: config.BaseEndpoint != nil})
		get, err := store.SignGet(t.Context(), signedKey)
		if err != nil || !strings.HasPrefix(get, want) {
			t.Errorf("%s, %v", get, err)
		}
		put, err := store.SignPut(t.Context(), signedKey, objects.Digest{SHA256: sum, Size: 4})
		if err != nil || !strings.HasPrefix(put.URL, want) {
			t.Errorf("%s, %v", put.URL, err)
		}
	}
}

// TestSignedUpload checks that a URL to PUT is for exactly one request, and
// expires after an hour. All headers are signed, and none is in the query,
// where S3 would ignore it.
func TestSignedUpload(t *testing.T) {
	t.Parallel()
	const sum = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	for lifetime, want := range map[time.Duration]string{0: "3600", 10 * time.Minute: "600"} {
		store := s3.New(onAWS(), "bucket", s3.Options{PutLifetime: lifetime, Lifetime: time.Minute})
		upload, err := store.SignPut(t.Context(), signedKey, objects.Digest{SHA256: sum, Size: 4})
		if err != nil {
			t.Fatal(err)
		}
		q := query(t, upload.URL, "X-Amz-Content-Sha256")
		const headers = "content-length;content-type;host;if-none-match;x-amz-checksum-sha256;x-amz-tagging"
		if got := q.Get("X-Amz-SignedHeaders"); got != headers {
			t.Errorf("signed headers %q", got)
		}
		if q.Get("X-Amz-Expires") != want {
			t.Errorf("expires %q, want %q", q.Get("X-Amz-Expires"), want)
		}
		if want := map[string]string{
			"Content-Length": "4", "Content-Type": "application/octet-stream", "If-None-Match": "*",
			"X-Amz-Tagging": "larder=staged", "X-Amz-Checksum-Sha256": "n4bQgYhMfWWaL+qgxVrQFaO/TxsrC4Is0V1sFbDwCgg=",
		}; !maps.Equal(upload.Header, want) {
			t.Errorf("headers %v", upload.Header)
		}
	}
}

// bucket is a bucket with one object, whose tags are protected by a policy like
// that of the template.
type bucket struct {
	tags     string // as XML
	encoding string // of the object
	expires  string
	gone     string // the error code if the object is missing
	denied   bool   // tagging is denied
	late     bool   // another client makes the object permanent just before
	requests []string
}

func (b *bucket) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, tagging := r.URL.Query()["tagging"]
	what := r.Method
	if tagging {
		what += " tags"
	}
	b.requests = append(b.requests, what)
	fail := func(status int, code string) {
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code></Error>", code)
	}
	kept := func() bool { return strings.Contains(b.tags, "<Value>kept<") }
	w.Header().Set("Content-Type", "application/xml")
	switch {
	case b.gone != "":
		fail(map[bool]int{true: 405, false: 404}[b.gone == "MethodNotAllowed"], b.gone)
	case tagging && b.denied:
		fail(403, "AccessDenied")
	case what == "GET tags":
		_, _ = fmt.Fprintf(w, "<Tagging><TagSet>%s</TagSet></Tagging>", b.tags)
	case what == "PUT tags":
		if b.late {
			b.tags = tag("larder", "kept")
		}
		if kept() {
			fail(403, "AccessDenied")
			return
		}
		body, _ := io.ReadAll(r.Body)
		_, tags, _ := strings.Cut(string(body), "<TagSet>")
		b.tags, _, _ = strings.Cut(tags, "</TagSet>")
	case what == "HEAD":
		if b.encoding != "" {
			w.Header().Set("Content-Encoding", b.encoding)
		}
		if b.expires != "" {
			w.Header().Set("X-Amz-Expiration", b.expires)
		}
	default:
		fail(412, "PreconditionFailed")
	}
}

func tag(key, value string) string {
	return "<Tag><Key>" + key + "</Key><Value>" + value + "</Value></Tag>"
}

// TestKeep checks that Keep only changes the tags of a staged object. The
// policy denies other changes.
func TestKeep(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		bucket   bucket
		want     error
		tags     string
		requests string
	}{
		"staged":        {bucket{tags: tag("larder", "staged")}, nil, tag("larder", "kept"), "GET tags, HEAD, PUT tags"},
		"kept":          {bucket{tags: tag("larder", "kept")}, nil, tag("larder", "kept"), "GET tags, HEAD"},
		"no tag":        {bucket{}, nil, "", "GET tags, HEAD"},
		"another's tag": {bucket{tags: tag("owner", "staged")}, nil, tag("owner", "staged"), "GET tags, HEAD"},
		"several tags": {
			bucket{tags: tag("owner", "me") + tag("larder", "staged")}, nil, tag("owner", "me") + tag("larder", "kept"),
			"GET tags, HEAD, PUT tags",
		},
		"two at once": {
			bucket{tags: tag("larder", "staged"), late: true}, nil, tag("larder", "kept"),
			"GET tags, HEAD, PUT tags, GET tags",
		},
		"encoded": {
			bucket{tags: tag("larder", "staged"), encoding: "gzip"}, registry.ErrInvalid, tag("larder", "staged"),
			"GET tags, HEAD",
		},
		"expired":        {bucket{gone: "NoSuchKey"}, registry.ErrNotFound, "", "GET tags"},
		"delete marker":  {bucket{gone: "MethodNotAllowed"}, registry.ErrNotFound, "", "GET tags"},
		"not permission": {bucket{tags: tag("larder", "staged"), denied: true}, errAny, tag("larder", "staged"), "GET tags"},
	} {
		server := httptest.NewServer(&test.bucket)
		_, err := s3.New(awstest.Config(server.URL), "bucket", s3.Options{PathStyle: true}).Keep(t.Context(), "key")
		server.Close()
		if !errors.Is(err, test.want) && (!errors.Is(test.want, errAny) || err == nil) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
		if got := strings.Join(test.bucket.requests, ", "); got != test.requests || test.bucket.tags != test.tags {
			t.Errorf("%s: requests: %s; the tags are %s", name, got, test.bucket.tags)
		}
	}
}

var errAny = errors.New("any error")

// TestPutOnceOfStaged checks that PutOnce of a staged object makes it
// permanent, or returns ErrConflict. Most writers cannot read tags.
func TestPutOnceOfStaged(t *testing.T) {
	t.Parallel()
	const expires = `expiry-date="Fri, 23 Dec 2033 00:00:00 GMT", rule-id="larder-staged"`
	for name, test := range map[string]struct {
		bucket   bucket
		want     error
		requests string
	}{
		"kept": {bucket{tags: tag("larder", "kept"), denied: true}, registry.ErrExists, "PUT, HEAD"},
		"another rule": {
			bucket{denied: true, expires: `expiry-date="Fri, 23 Dec 2033 00:00:00 GMT", rule-id="ten-years"`},
			registry.ErrExists, "PUT, HEAD",
		},
		"staged": {
			bucket{tags: tag("larder", "staged"), expires: expires}, registry.ErrExists,
			"PUT, HEAD, GET tags, HEAD, PUT tags",
		},
		"staged, tagging denied": {
			bucket{tags: tag("larder", "staged"), expires: expires, denied: true}, registry.ErrConflict,
			"PUT, HEAD, GET tags",
		},
	} {
		server := httptest.NewServer(&test.bucket)
		store := s3.New(awstest.Config(server.URL), "bucket", s3.Options{PathStyle: true})
		const sum = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
		err := store.PutOnce(t.Context(), "key", strings.NewReader("test"), objects.Digest{SHA256: sum, Size: 4})
		server.Close()
		if !errors.Is(err, test.want) || errors.Is(err, registry.ErrExists) != errors.Is(test.want, registry.ErrExists) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
		if got := strings.Join(test.bucket.requests, ", "); got != test.requests {
			t.Errorf("%s: requests: %s", name, got)
		}
	}
}

// TestPutRequest checks that the request is conditional and has the sum that S3
// verifies, and that the body is read once.
func TestPutRequest(t *testing.T) {
	t.Parallel()
	var got http.Header
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header }))
	defer server.Close()
	store := s3.New(awstest.Config(server.URL), "bucket", s3.Options{PathStyle: true})
	const sum = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	body := &counted{ReadSeeker: strings.NewReader("test")}
	if err := store.PutOnce(t.Context(), "key", body, objects.Digest{SHA256: sum, Size: 4}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"If-None-Match": "*", "X-Amz-Checksum-Sha256": "n4bQgYhMfWWaL+qgxVrQFaO/TxsrC4Is0V1sFbDwCgg=",
		"X-Amz-Content-Sha256": sum, "Content-Length": "4", "Content-Encoding": "",
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
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodHead {
				return // the object exists
			}
			calls++
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(test.status)
			_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code></Error>", code)
		}))
		config := awstest.Config(server.URL)
		config.Retryer = func() aws.Retryer { return aws.NopRetryer{} }
		store := s3.New(config, "bucket", s3.Options{PathStyle: true})
		const empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
		err := store.PutOnce(t.Context(), "key", strings.NewReader(""), objects.Digest{SHA256: empty})
		for _, sentinel := range []error{
			registry.ErrExists, registry.ErrNotFound, registry.ErrInvalid, registry.ErrUnavailable,
		} {
			wanted := test.want != nil && errors.Is(test.want, sentinel)
			if err == nil || errors.Is(err, sentinel) != wanted {
				t.Errorf("%s: %v", code, err)
			}
		}
		if want := map[bool]int{true: 5, false: 1}[code == "ConditionalRequestConflict"]; calls != want {
			t.Errorf("%s: %d requests, want %d", code, calls, want)
		}
		server.Close()
		if _, err := store.Stat(t.Context(), "key"); !errors.Is(err, registry.ErrUnavailable) {
			t.Errorf("without a server: %v", err)
		}
	}
}
