// Package s3test runs an S3 server.
package s3test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/larder-registry/larder/internal/testkit/awstest"
	"github.com/larder-registry/larder/internal/testkit/programs"
)

// versitygw is the path of the S3 server from scripts/tools, within the
// checkout.
const versitygw = ".tools/versitygw-v1.8.0/versitygw"

// Server is an S3 server in its own process. It checks signatures, expiry,
// conditions and checksums like S3.
type Server struct {
	URL string
	*programs.Server
}

// ErrNotBuilt means that the S3 server has not been built.
var ErrNotBuilt = errors.New("found no S3 server, which scripts/tools builds")

// Start starts a server with one empty bucket, whose objects are files below
// dir. If versioning is enabled, it stores versions. The caller closes the
// server.
func Start(ctx context.Context, dir, bucket string) (*Server, error) {
	path, err := programs.InCheckout(versitygw)
	if err != nil {
		return nil, ErrNotBuilt
	}
	address, err := programs.ReserveAddress(ctx)
	if err != nil {
		return nil, err
	}
	for _, d := range []string{"buckets", "sidecar", "versions"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			return nil, err
		}
	}
	args := []string{
		"--port", address, "--region", awstest.Region, "--quiet",
		"posix", "--versioning-dir", filepath.Join(dir, "versions"),
	}
	// If attributes are in other files, the server writes and removes them
	// separately from the object. A concurrent put and removal then leave
	// attributes without an object, which puts find and reads do not.
	if !hasAttributes(dir) {
		args = append(args, "--sidecar", filepath.Join(dir, "sidecar"))
	}
	cmd := exec.CommandContext(ctx, path, append(args, filepath.Join(dir, "buckets"))...)
	cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY_ID="+awstest.AccessKey,
		"ROOT_SECRET_ACCESS_KEY="+awstest.SecretKey)
	server, err := programs.Serve(ctx, cmd, address)
	if err != nil {
		return nil, fmt.Errorf("cannot start S3: %w", err)
	}
	s := &Server{"http://" + address, server}
	client := s3.NewFromConfig(awstest.Config(s.URL), func(o *s3.Options) { o.UsePathStyle = true })
	if _, err := client.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: &bucket}); err != nil {
		s.Close()
		return nil, fmt.Errorf("cannot start S3: %w", err)
	}
	return s, nil
}

// ForTest starts an S3 server that stops with the test. If the server has not
// been built, the test is skipped, or fails under scripts/test --all.
func ForTest(t *testing.T, bucket string) *Server {
	t.Helper()
	s, err := Start(t.Context(), t.TempDir(), bucket)
	if err != nil && !programs.Required() {
		t.Skip("LEFT OUT:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}
