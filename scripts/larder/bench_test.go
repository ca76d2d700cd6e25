package main

import (
	"archive/zip"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/larder-registry/larder/internal/testkit/awstest"
	"github.com/larder-registry/larder/internal/testkit/dynamodbtest"
	"github.com/larder-registry/larder/internal/testkit/s3test"
)

// Publishing a zip of 1 GiB needs at most 128 MiB of memory. scripts/bench runs
// this test.
func TestGibibyte(t *testing.T) {
	if os.Getenv("LARDER_BENCH") == "" {
		t.Skip("scripts/bench runs it")
	}
	const size, bound = 1 << 30, 128 << 20
	key := signingKey(t, "Ed25519")
	dir, data := t.TempDir(), newData(t)
	const name = "terraform-provider-note_1.0.0"
	f, err := os.Create(filepath.Join(dir, name+"_linux_amd64.zip"))
	if err != nil {
		t.Fatal(err)
	}
	hash := sha256.New()
	z := zip.NewWriter(io.MultiWriter(f, hash))
	header := &zip.FileHeader{Name: "terraform-provider-note_v1.0.0", Method: zip.Store}
	header.SetMode(0o755)
	w, err := z.CreateHeader(header)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(w, rand.Reader, size); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	writeFiles(t, dir, map[string]string{
		name + "_SHA256SUMS":    fmt.Sprintf("%s  %s_linux_amd64.zip\n", hex.EncodeToString(hash.Sum(nil)), name),
		name + "_manifest.json": `{"version": 1, "metadata": {"protocol_versions": ["6.0"]}}`,
	})
	if err := key.SignRelease(dir); err != nil {
		t.Fatal(err)
	}
	for store, env := range map[string][]string{"dir:" + data: nil, "stack:larder": onStack(t)} {
		run := func(args ...string) *exec.Cmd {
			cmd := exec.CommandContext(t.Context(), "larder", append(args, "--store", store)...)
			cmd.Env = append(os.Environ(), env...)
			return cmd
		}
		if out, err := run("key", "add", "acme", keyFile(t, key)).CombinedOutput(); err != nil {
			t.Fatal(err, string(out))
		}
		cmd := run("publish", "provider", dir, "acme/note")
		begun := time.Now()
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatal(err, string(out))
		}
		peak, ok := peakMemory(cmd.ProcessState)
		if !ok {
			t.Skip("LEFT OUT: this system does not report the peak memory")
		}
		t.Logf("%s: peak memory %d MiB, %.1f s", store, peak>>20, time.Since(begun).Seconds())
		if peak > bound {
			t.Errorf("%s: peak memory is %d MiB, more than %d", store, peak>>20, bound>>20)
		}
	}
}

// onStack starts emulators of AWS services. It returns the environment in which
// stack:larder uses them.
func onStack(t *testing.T) (env []string) {
	t.Helper()
	s3 := s3test.ForTest(t, "larder-objects")
	dynamo, err := dynamodbtest.Start(t.Context(), "larder-table")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dynamo.Close)
	cloud := account(
		t,
		map[string]string{
			"TableName":   "larder-table",
			"BucketName":  "larder-objects",
			"RegistryURL": "https://registry.example.com",
		},
	)
	return []string{
		"AWS_ACCESS_KEY_ID=" + awstest.AccessKey, "AWS_SECRET_ACCESS_KEY=" + awstest.SecretKey,
		"AWS_REGION=" + awstest.Region, "AWS_EC2_METADATA_DISABLED=true",
		"AWS_ENDPOINT_URL_DYNAMODB=" + dynamo.URL, "AWS_ENDPOINT_URL_S3=" + s3.URL,
		"AWS_ENDPOINT_URL_CLOUDFORMATION=" + cloud, "AWS_ENDPOINT_URL_STS=" + cloud, "LARDER_S3_PATH_STYLE=true",
	}
}
