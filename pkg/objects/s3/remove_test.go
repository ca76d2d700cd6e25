package s3_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/larder-registry/larder/internal/testkit/awstest"
	"github.com/larder-registry/larder/internal/testkit/s3test"
	"github.com/larder-registry/larder/pkg/objects/s3"
	"github.com/larder-registry/larder/pkg/registry"
)

// refusing is a client that is denied requests of a method, or with a query.
type refusing struct{ method, query string }

func (f refusing) Do(r *http.Request) (*http.Response, error) {
	if r.Method == f.method && strings.Contains(r.URL.RawQuery, f.query) {
		body := `<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>`
		return &http.Response{StatusCode: http.StatusForbidden, Status: "403 Forbidden", Header: http.Header{"Content-Type": {"application/xml"}}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
	}
	return http.DefaultClient.Do(r)
}

// lying is a client of a store that says that it deletes, and does not.
type lying struct{}

func (lying) Do(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodDelete {
		return &http.Response{StatusCode: http.StatusNoContent, Status: "204 No Content", Header: http.Header{}, Body: http.NoBody, Request: r}, nil
	}
	return http.DefaultClient.Do(r)
}

// In a bucket with versions nothing stays: neither what was deleted before, nor the markers of that. Who lacks a permission is
// told which, and who has it goes on.
func TestRemoveVersions(t *testing.T) {
	t.Parallel()
	const bucket, below = "versioned", "modules/acme/vpc/aws/1.0.0/"
	server := s3test.ForTest(t, bucket)
	client := awss3.NewFromConfig(awstest.Config(server.URL), func(o *awss3.Options) { o.UsePathStyle = true })
	if _, err := client.PutBucketVersioning(t.Context(), &awss3.PutBucketVersioningInput{Bucket: aws.String(bucket), VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled}}); err != nil {
		t.Fatal(err)
	}
	put := func(key, body string) {
		t.Helper()
		if _, err := client.PutObject(t.Context(), &awss3.PutObjectInput{Bucket: aws.String(bucket), Key: &key, Body: strings.NewReader(body)}); err != nil {
			t.Fatal(err)
		}
	}
	lose := func(key string) {
		t.Helper()
		if _, err := client.DeleteObject(t.Context(), &awss3.DeleteObjectInput{Bucket: aws.String(bucket), Key: &key}); err != nil {
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
	lose(below + "a")
	put(below+"a", "secret again")
	put(below+"api/00/b", "secret")
	lose(below + "api/00/b")
	const other = "modules/acme/vpc/aws/1.0.0+a/a"
	put(other, "other")
	if got := versions(); len(got) != 6 {
		t.Fatalf("the server keeps %q", got)
	}
	for _, test := range []struct{ method, query, permission string }{
		{http.MethodGet, "versions", "s3:ListBucketVersions"}, {http.MethodDelete, "versionId", "s3:DeleteObjectVersion"},
	} {
		config := awstest.Config(server.URL)
		config.HTTPClient = refusing{test.method, test.query}
		removed, err := s3.New(config, bucket, s3.Options{PathStyle: true}).Remove(t.Context(), below)
		if removed != 0 || !errors.Is(err, registry.ErrForbidden) || !strings.Contains(fmt.Sprint(err), test.permission) {
			t.Errorf("without %s: %d, %v", test.permission, removed, err)
		}
	}
	config := awstest.Config(server.URL)
	config.HTTPClient = lying{}
	if _, err := s3.New(config, bucket, s3.Options{PathStyle: true}).Remove(t.Context(), below); err == nil || !strings.Contains(err.Error(), "is still there") {
		t.Errorf("of a store that lies: %v", err)
	}
	if removed, err := s3.New(awstest.Config(server.URL), bucket, s3.Options{PathStyle: true}).Remove(t.Context(), below); removed != 5 || err != nil {
		t.Errorf("Remove: %d, %v", removed, err)
	}
	if got := fmt.Sprint(versions()); got != "["+other+"]" {
		t.Errorf("what is left: %s", got)
	}
}
