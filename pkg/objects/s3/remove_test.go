package s3_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/larder-registry/larder/internal/testkit/awstest"
	"github.com/larder-registry/larder/internal/testkit/golden"
	"github.com/larder-registry/larder/internal/testkit/s3test"
	"github.com/larder-registry/larder/pkg/objects/s3"
	"github.com/larder-registry/larder/pkg/registry"
)

// refusing is a client whose requests with a method and a query are denied.
type refusing struct{ method, query string }

func (f refusing) Do(r *http.Request) (*http.Response, error) {
	if r.Method == f.method && strings.Contains(r.URL.RawQuery, f.query) {
		body := `<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>`
		return &http.Response{
			StatusCode: http.StatusForbidden, Status: "403 Forbidden",
			Header: http.Header{"Content-Type": {"application/xml"}},
			Body:   io.NopCloser(strings.NewReader(body)), Request: r,
		}, nil
	}
	return http.DefaultClient.Do(r)
}

// lying is a client of a store that confirms deletions without deleting.
type lying struct{}

func (lying) Do(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodDelete {
		return &http.Response{
			StatusCode: http.StatusNoContent, Status: "204 No Content",
			Header: http.Header{}, Body: http.NoBody, Request: r,
		}, nil
	}
	return http.DefaultClient.Do(r)
}

// TestRemoveVersions removes all versions and delete markers from a bucket. It
// checks that errors name a missing permission, and that the next call
// completes the removal.
func TestRemoveVersions(t *testing.T) {
	t.Parallel()
	const bucket, below = "versioned", "modules/acme/vpc/aws/1.0.0/"
	server := s3test.ForTest(t, bucket)
	client := awss3.NewFromConfig(awstest.Config(server.URL), func(o *awss3.Options) { o.UsePathStyle = true })
	_, err := client.PutBucketVersioning(t.Context(), &awss3.PutBucketVersioningInput{
		Bucket:                  aws.String(bucket),
		VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled},
	})
	if err != nil {
		t.Fatal(err)
	}
	put := func(key, body string) {
		t.Helper()
		in := &awss3.PutObjectInput{Bucket: aws.String(bucket), Key: &key, Body: strings.NewReader(body)}
		if _, err := client.PutObject(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(key string) {
		t.Helper()
		in := &awss3.DeleteObjectInput{Bucket: aws.String(bucket), Key: &key}
		if _, err := client.DeleteObject(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}
	versions := func() (all []string) {
		t.Helper()
		out, err := client.ListObjectVersions(t.Context(), &awss3.ListObjectVersionsInput{Bucket: aws.String(bucket)})
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range out.Versions {
			all = append(all, aws.ToString(v.Key))
		}
		for _, m := range out.DeleteMarkers {
			all = append(all, aws.ToString(m.Key)+" (marker)")
		}
		return all
	}
	put(below+"a", "secret")
	remove(below + "a")
	put(below+"a", "secret again")
	put(below+"api/00/b", "secret")
	remove(below + "api/00/b")
	const other = "modules/acme/vpc/aws/1.0.0+a/a"
	put(other, "other")
	if got := versions(); len(got) != 6 {
		t.Fatalf("the server has %q", got)
	}
	for _, test := range []struct{ method, query, permission string }{
		{http.MethodGet, "versions", "s3:ListBucketVersions"}, {http.MethodDelete, "versionId", "s3:DeleteObjectVersion"},
	} {
		config := awstest.Config(server.URL)
		config.HTTPClient = refusing{test.method, test.query}
		removed, err := s3.New(config, bucket, s3.Options{PathStyle: true}).Remove(t.Context(), below)
		if !errors.Is(err, registry.ErrForbidden) {
			t.Errorf("without %s: got error %v, want ErrForbidden", test.permission, err)
		}
		if !strings.Contains(fmt.Sprint(err), test.permission) {
			t.Errorf("without %s: the error does not name it: %v", test.permission, err)
		}
		if removed != 0 {
			t.Errorf("without %s: %d removed", test.permission, removed)
		}
	}
	config := awstest.Config(server.URL)
	config.HTTPClient = lying{}
	options := s3.Options{PathStyle: true}
	_, err = s3.New(config, bucket, options).Remove(t.Context(), below)
	if err == nil {
		t.Fatal("Remove from a store that does not delete succeeds")
	}
	version := regexp.MustCompile(`version \w+`).FindString(err.Error())
	golden.New(t).Error(t, err, version, "version ID")
	removed, err := s3.New(awstest.Config(server.URL), bucket, options).Remove(t.Context(), below)
	if removed != 5 || err != nil {
		t.Errorf("Remove: %d, %v", removed, err)
	}
	if got := fmt.Sprint(versions()); got != "["+other+"]" {
		t.Errorf("stored afterwards: %s", got)
	}
}
