// Image builds the container image of Larder with ko, as an OCI layout.
//
// The base image is made here: a bundle of certificate authorities, a user, and
// two folders. The bundle is Mozilla's, from a Go module that go.sum pins, so
// that everyone gets the same bytes. A registry on a loopback address serves
// the base image to ko.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

const (
	ko     = ".tools/ko-v0.19.1/ko"
	source = "https://github.com/larder-registry/larder"
	// baseTag is the tag of the base image in the repository that ko uses.
	baseTag   = "base"
	platforms = "linux/amd64,linux/arm64"
)

var versions = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// run builds the image. Its arguments are the checked out commit, its time in
// seconds since 1970, and the arguments of scripts/image.
func run(ctx context.Context, args []string) error {
	if len(args) < 4 || len(args) > 5 {
		return errors.New("usage: scripts/image VERSION FOLDER [PLATFORMS]")
	}
	commit, date, version, folder, targets := args[0], args[1], strings.TrimPrefix(args[2], "v"), args[3], platforms
	if len(args) == 5 {
		targets = args[4]
	}
	if !versions.MatchString(version) {
		return fmt.Errorf("%q is not a version such as 1.2.3", args[2])
	}
	if _, err := os.Lstat(folder); err == nil {
		return fmt.Errorf("%s exists: name a new folder", folder)
	}
	index, err := base()
	if err != nil {
		return err
	}
	repository, end, err := serve(ctx, index)
	if err != nil {
		return err
	}
	defer end()
	if err := build(ctx, version, targets, repository, commit, date); err != nil {
		return err
	}
	digest, err := finish(ctx, repository+":"+version, folder, version)
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", folder, err)
	}
	fmt.Println(digest)
	return nil
}

// serve runs a registry on a loopback address until end is called. It returns
// the name of a repository with the base image.
func serve(ctx context.Context, index v1.ImageIndex) (repository string, end func(), err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	server := &http.Server{
		Handler: registry.New(registry.Logger(log.New(io.Discard, "", 0))), ReadHeaderTimeout: 10 * time.Second,
	}
	go func() { _ = server.Serve(listener) }()
	end = func() { _ = server.Close() }
	repository = listener.Addr().String() + "/larder"
	reference, err := name.NewTag(repository + ":" + baseTag)
	if err == nil {
		err = remote.WriteIndex(reference, index, remote.WithContext(ctx))
	}
	if err != nil {
		end()
		return "", nil, fmt.Errorf("cannot serve the base image: %w", err)
	}
	return repository, end, nil
}

// build runs ko, which pushes the image to the repository.
func build(ctx context.Context, version, targets, repository, commit, date string) error {
	args := []string{
		"build", "./scripts/larder", "--bare", "--platform", targets, "--tags", version,
		"--sbom", "none", // the release has the SBOM of each program
	}
	for _, label := range []string{
		"title=Larder", "description=Private registry for OpenTofu and Terraform", "licenses=Apache-2.0",
		"source=" + source, "url=" + source, "documentation=" + source + "/blob/main/docs/container.md",
		"version=" + version, "revision=" + commit,
	} {
		args = append(args, "--image-label", "org.opencontainers.image."+label)
	}
	cmd := exec.CommandContext(ctx, ko, args...)
	cmd.Env = append(environment(), "KO_DOCKER_REPO="+repository, "KO_DEFAULTBASEIMAGE="+repository+":"+baseTag,
		"LARDER_RELEASE="+version, "SOURCE_DATE_EPOCH="+date, "KO_DATA_DATE_EPOCH="+date,
		"TZ=UTC") // ko writes times of the builder's zone
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("cannot build the image: %w", err)
	}
	return nil
}

// environment returns the variables of this process without settings of ko. ko
// also rejects variables for one platform.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(variable string) bool {
		key, _, _ := strings.Cut(variable, "=")
		return strings.HasPrefix(key, "KO_") || key == "KOCACHE" || key == "GOOS" || key == "GOARCH" || key == "GOARM"
	})
}
