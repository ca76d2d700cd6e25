package lambda

import (
	"bytes"
	"compress/flate"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/larder-registry/larder/internal/testkit/programs"
)

// BuildBare builds a function that does nothing, as a base for comparisons.
// path is the output, and architecture is Lambda's name for it. The build is
// like that of scripts/build.
func BuildBare(ctx context.Context, architecture, path string) error {
	checkout, err := programs.InCheckout(".")
	if err != nil {
		return err
	}
	if path, err = filepath.Abs(path); err != nil {
		return err
	}
	goarch := map[string]string{"arm64": "arm64", "x86_64": "amd64"}[architecture]
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-tags", "lambda.norpc",
		"-ldflags", "-s -w -buildid=", "-o", path, "./functions/testdata/bare")
	cmd.Dir = checkout
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "GOWORK=off", "GOEXPERIMENT=", "CGO_ENABLED=0",
		"GOOS=linux", "GOARCH="+goarch)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build the bare function: %w\n%s", err, out)
	}
	return nil
}

// PackedSize returns the size of a file in a zip, which Lambda has to download,
// in bytes.
func PackedSize(name string) (int, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return 0, err
	}
	var out bytes.Buffer
	w, err := flate.NewWriter(&out, flate.BestCompression)
	if err != nil {
		return 0, err
	}
	if _, err := w.Write(data); err != nil {
		return 0, err
	}
	if err := w.Close(); err != nil {
		return 0, err
	}
	return out.Len(), nil
}

// Architecture returns Lambda's name for this machine's architecture.
func Architecture() string {
	if runtime.GOARCH == "arm64" {
		return "arm64"
	}
	return "x86_64"
}
