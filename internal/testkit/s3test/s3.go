// Package s3test runs an S3 server.
package s3test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/larder-registry/larder/internal/testkit/awstest"
	"github.com/larder-registry/larder/internal/testkit/programs"
)

// versitygw is where scripts/test puts the S3 server, within the checkout.
const versitygw = ".tools/versitygw-v1.8.0/versitygw"

// Server is an S3 server, in a process of its own, that checks signatures, expiry, conditions and checksums as S3 does.
type Server struct {
	URL string
	cmd *exec.Cmd
	out bytes.Buffer
}

// ErrNotBuilt says that scripts/test has not built the S3 server.
var ErrNotBuilt = errors.New("the S3 server is not there: scripts/test builds it")

// Start starts a server with one empty bucket, whose objects are files below dir. It keeps versions where that is enabled.
func Start(ctx context.Context, dir, bucket string) (*Server, error) {
	path, err := programs.InCheckout(versitygw)
	if err != nil {
		return nil, ErrNotBuilt
	}
	address, err := programs.FreeAddress(ctx)
	if err != nil {
		return nil, err
	}
	for _, d := range []string{"buckets", "sidecar", "versions"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			return nil, err
		}
	}
	s := &Server{URL: "http://" + address}
	args := []string{
		"--port", address, "--region", awstest.Region, "--quiet",
		"posix", "--versioning-dir", filepath.Join(dir, "versions"),
	}
	// With its attributes in other files, the server writes and removes them apart
	// from the object. A put and a removal at once then leave attributes without an
	// object, which is there to puts and missing to reads.
	if !hasAttributes(dir) {
		args = append(args, "--sidecar", filepath.Join(dir, "sidecar"))
	}
	s.cmd = exec.CommandContext(ctx, path, append(args, filepath.Join(dir, "buckets"))...)
	s.cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY_ID="+awstest.AccessKey, "ROOT_SECRET_ACCESS_KEY="+awstest.SecretKey)
	s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.out
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting S3: %w", err)
	}
	client := s3.NewFromConfig(awstest.Config(s.URL), func(o *s3.Options) { o.UsePathStyle = true })
	for attempt := 0; ; attempt++ {
		_, err := client.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: &bucket})
		if err == nil {
			return s, nil
		}
		if attempt == 600 {
			s.Close()
			return nil, fmt.Errorf("starting S3: %w\n%s", err, &s.out)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// Close ends the server.
func (s *Server) Close() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// ForTest starts an S3 server that ends with the test. Where there is none the test is left out, unless scripts/test
// runs it.
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
