package s3_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/larder-registry/larder/internal/testkit/awstest"
	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/objects/s3"
	"github.com/larder-registry/larder/pkg/registry"
)

// scripted is a client that answers each request with a status and an error
// code from a function.
type scripted func(r *http.Request) (status int, code string)

func (s scripted) Do(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_, _ = io.Copy(io.Discard, r.Body)
	}
	status, code := s(r)
	body := ""
	if code != "" && r.Method != http.MethodHead {
		body = "<Error><Code>" + code + "</Code></Error>"
	}
	if r.Method == http.MethodGet && status == http.StatusOK {
		body = code
	}
	return &http.Response{
		StatusCode: status, Status: http.StatusText(status), Header: http.Header{"Content-Type": {"application/xml"}},
		Body: io.NopCloser(strings.NewReader(body)), Request: r,
	}, nil
}

func (s scripted) store() *s3.Store {
	config := awstest.Config("http://127.0.0.1:1")
	config.HTTPClient = s
	config.Retryer = func() aws.Retryer { return aws.NopRetryer{} }
	return s3.New(config, "bucket", s3.Options{PathStyle: true})
}

// TestPutOnceOfWhatComesAndGoes checks that PutOnce retries for some seconds if
// S3 reports that an object exists but does not find it.
func TestPutOnceOfWhatComesAndGoes(t *testing.T) {
	t.Parallel()
	empty := objects.Digest{SHA256: "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}
	for name, test := range map[string]struct {
		refusals int
		status   int
		code     string
		there    bool // whether the object exists in the end
		want     error
	}{
		"deleted":               {9, 412, "PreconditionFailed", false, nil},
		"put by somebody":       {9, 412, "PreconditionFailed", true, registry.ErrExists},
		"never seen":            {1000, 412, "PreconditionFailed", false, registry.ErrUnavailable},
		"another request":       {4, 409, "ConditionalRequestConflict", false, nil},
		"a folder that goes":    {4, 409, "ExistingObjectIsDirectory", false, nil},
		"another request stays": {1000, 409, "OperationAborted", false, registry.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				puts := 0
				err := scripted(func(r *http.Request) (int, string) {
					switch {
					case r.Method == http.MethodHead && test.there && puts >= test.refusals:
						return 200, ""
					case r.Method == http.MethodHead:
						return 404, "NotFound"
					}
					if puts++; puts <= test.refusals || test.there {
						return test.status, test.code
					}
					return 200, ""
				}).store().PutOnce(t.Context(), "key", strings.NewReader(""), empty)
				if !errors.Is(err, test.want) || errors.Is(err, registry.ErrNotFound) {
					t.Errorf("%v, want %v", err, test.want)
				}
			})
		})
	}
}

// TestRemoveAtOnce checks that an object removed by another client is not an
// error.
func TestRemoveAtOnce(t *testing.T) {
	t.Parallel()
	const version = "<Version><Key>%s</Key><VersionId>null</VersionId></Version>"
	const list = "<ListVersionsResult>%s</ListVersionsResult>"
	left := []string{"a/1", "a/2"}
	store := scripted(func(r *http.Request) (int, string) {
		if r.Method == http.MethodGet {
			all := ""
			for _, key := range left {
				all += fmt.Sprintf(version, key)
			}
			return 200, fmt.Sprintf(list, all)
		}
		first := strings.HasSuffix(r.URL.Path, "/a/1")
		left = nil
		if first {
			return 404, "NoSuchKey"
		}
		return 204, ""
	}).store()
	if removed, err := store.Remove(t.Context(), "a/"); removed != 1 || err != nil {
		t.Errorf("%d, %v", removed, err)
	}
	left = []string{"a/1"}
	stays := scripted(func(r *http.Request) (int, string) {
		if r.Method == http.MethodGet {
			return 200, fmt.Sprintf(list, fmt.Sprintf(version, "a/1"))
		}
		return 404, "NoSuchKey"
	}).store()
	_, err := stays.Remove(t.Context(), "a/")
	golden.New(t).Error(t, err)
}
