package rehearsal

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/larder-registry/larder/internal/testkit/awstest"
	"github.com/larder-registry/larder/pkg/catalog"
	"github.com/larder-registry/larder/pkg/catalog/dynamodb"
	"github.com/larder-registry/larder/pkg/objects"
	"github.com/larder-registry/larder/pkg/settings"
)

// testPublisher uses the role of the publish function like an attacker who has
// taken it over, with the objects and records of a rehearsal.
func testPublisher(t *testing.T, d *deployment, stack *Stack) {
	t.Helper()
	roles, _, _, err := stack.Roles()
	if err != nil {
		t.Fatal(err)
	}
	account, err := StartAccount(t.Context(), d.Endpoint, stack.Account, stack.Region)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(account.Close)
	config := awstest.Config(account.URL)
	config.RetryMaxAttempts = 1
	config.Credentials = credentials.NewStaticCredentialsProvider(account.Add("publish", roles["publish"]),
		awstest.SecretKey, "session")
	path := func(o *s3.Options) { o.UsePathStyle = true }
	bucket, everything, role := aws.String(stack.Outputs[settings.OutputBucket]), s3.NewFromConfig(d.Account,
		path), s3.NewFromConfig(config, path)
	listed, err := everything.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: bucket})
	if err != nil {
		t.Fatal(err)
	}
	tags := func(key string) string {
		tags, err := account.tags(t.Context(), *bucket, key)
		if err != nil {
			t.Fatal(err)
		}
		return tags[objects.Tag]
	}
	refused := func(what string, err error) {
		t.Helper()
		if n := len(account.Denied()); err == nil || n == 0 {
			t.Errorf("%s: %v, %q", what, err, account.Denied())
		}
		account.mu.Lock()
		account.denied = nil
		account.mu.Unlock()
	}
	uploaded, others := 0, 0
	for _, object := range listed.Contents {
		key := object.Key
		put := func(tag string, once bool) error {
			in := &s3.PutObjectInput{Bucket: bucket, Key: key, Body: strings.NewReader("other")}
			if tag != "" {
				in.Tagging = aws.String(objects.Tag + "=" + tag)
			}
			if once {
				in.IfNoneMatch = aws.String("*")
			}
			_, err := role.PutObject(t.Context(), in)
			return err
		}
		tag := func(value string) error {
			_, err := role.PutObjectTagging(t.Context(),
				&s3.PutObjectTaggingInput{Bucket: bucket, Key: key,
					Tagging: &types.Tagging{TagSet: []types.Tag{{Key: aws.String(objects.Tag), Value: &value}}}})
			return err
		}
		if strings.Contains(*key, "/api/") {
			uploaded++
			// Uploads that were not published expire, and nobody depends on
			// them.
			if tags(*key) != objects.TagKept {
				continue
			}
			if err := put(objects.TagStaged, true); status(err) != http.StatusPreconditionFailed {
				t.Errorf("replacing %s: %v", *key, err)
			}
		} else {
			others++
			refused("putting "+*key, put(objects.TagStaged, true))
			_, err := role.GetObject(t.Context(), &s3.GetObjectInput{Bucket: bucket, Key: key})
			refused("reading "+*key, err)
		}
		refused("replacing "+*key, put(objects.TagStaged, false))
		refused("putting for good "+*key, put(objects.TagKept, true))
		refused("putting without a tag "+*key, put("", true))
		refused("tagging "+*key, tag(objects.TagStaged))
		refused("tagging "+*key, tag(objects.TagKept))
		_, err := role.DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: bucket, Key: key})
		refused("deleting "+*key, err)
		_, err = role.DeleteObjectTagging(t.Context(), &s3.DeleteObjectTaggingInput{Bucket: bucket, Key: key})
		refused("untagging "+*key, err)
	}
	// One archive each of a module by a token and by a job, and the zip, the
	// sums and the signature of a provider.
	if uploaded < 5 || others < 5 {
		t.Errorf("%d objects came through the publish API, and %d otherwise", uploaded, others)
	}
	testPublisherOfTable(t, d, dynamodb.New(config, stack.Outputs[settings.OutputTable]), refused)
}

// testPublisherOfTable is the part of testPublisher about the table. refused
// checks that a call was denied.
func testPublisherOfTable(t *testing.T, d *deployment, table catalog.Table, refused func(what string, err error)) {
	t.Helper()
	module := "modules/" + d.namespace + "-fresh/published/null"
	for what, change := range map[string]catalog.Change{
		"making a token": {Key: catalog.Key{Partition: "tokens", Sort: strings.Repeat("0", 64)},
			Data: []byte("{}")},
		"adding a key": {Key: catalog.Key{Partition: "keys/" + d.namespace + "-fresh",
			Sort: "0000000000000000"}, Data: []byte("{}")},
		"mirroring": {Key: catalog.Key{Partition: "mirror/example.com/" + d.namespace + "/note",
			Sort: "version/2.0.0"}, Data: []byte("{}")},
		"revoking a token": {Key: catalog.Key{Partition: "tokens", Sort: strings.Repeat("0", 64)}, Revision: 1,
			Delete: true},
		"removing a key": {Key: catalog.Key{Partition: "keys/" + d.namespace + "-fresh",
			Sort: "0000000000000000"}, Revision: 1, Delete: true},
		"removing a version": {Key: catalog.Key{Partition: module, Sort: "version/1.0.0"}, Revision: 1, Delete: true},
	} {
		refused(what, table.Write(t.Context(), change))
	}
	_, err := table.Query(t.Context(), catalog.Query{Partition: "tokens"})
	refused("listing tokens", err)
	_, err = table.Query(t.Context(), catalog.Query{Partition: "namespaces"})
	refused("listing namespaces", err)
	// A permitted read succeeds, so the denials above are not for lack of any
	// access.
	if _, err := table.Get(t.Context(), catalog.Key{Partition: module, Sort: "version/1.0.0"}); err != nil {
		t.Error(err)
	}
}

// status returns the HTTP status of an error of S3, or 0.
func status(err error) int {
	var failed *awshttp.ResponseError
	if errors.As(err, &failed) {
		return failed.HTTPStatusCode()
	}
	return 0
}
