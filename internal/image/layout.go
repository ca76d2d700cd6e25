package main

import (
	"context"
	"errors"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	// baseName is an annotation of ko. It has the address of the base image, with
	// a port that differs for each build.
	baseName = "org.opencontainers.image.base.name"
	// tag is the annotation with an image's tag in a layout.
	tag = "org.opencontainers.image.ref.name"
)

// finish copies the images that ko pushed to a new layout, as one index. It
// returns the digest of the index, by which clients pull the image.
func finish(ctx context.Context, reference, folder, version string) (string, error) {
	images, err := pushed(ctx, reference)
	if err != nil {
		return "", err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, image := range images {
		config, err := image.ConfigFile()
		if err != nil {
			return "", err
		}
		annotated, ok := mutate.Annotations(image, map[string]string{baseName: "larder-base"}).(v1.Image)
		if !ok {
			return "", errors.New("an annotated image is not an image")
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: annotated, Descriptor: v1.Descriptor{
			MediaType: types.OCIManifestSchema1,
			Platform:  &v1.Platform{OS: config.OS, Architecture: config.Architecture},
		}})
	}
	digest, err := index.Digest()
	if err != nil {
		return "", err
	}
	to, err := layout.Write(folder, empty.Index)
	if err != nil {
		return "", err
	}
	return digest.String(), to.AppendIndex(index, layout.WithAnnotations(map[string]string{tag: version}))
}

// pushed returns the images at a reference. ko pushes one image for one
// platform, and an index for several.
func pushed(ctx context.Context, reference string) ([]v1.Image, error) {
	ref, err := name.ParseReference(reference)
	if err != nil {
		return nil, err
	}
	found, err := remote.Get(ref, remote.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	if !found.MediaType.IsIndex() {
		image, err := found.Image()
		return []v1.Image{image}, err
	}
	index, err := found.ImageIndex()
	if err != nil {
		return nil, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	var images []v1.Image
	for _, d := range manifest.Manifests {
		image, err := index.Image(d.Digest)
		if err != nil {
			return nil, err
		}
		images = append(images, image)
	}
	return images, nil
}
