package main

import (
	"errors"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	// baseName is an annotation of ko. It has the address of the base image, with
	// a port that differs for each build.
	baseName = "org.opencontainers.image.base.name"
	// tag is the annotation with an image's tag in a layout.
	tag = "org.opencontainers.image.ref.name"
)

// finish copies the images in the layout of ko to a new layout, as one index.
// It returns the digest of the index, by which clients pull the image.
func finish(built, folder, version string) (string, error) {
	root, err := layout.ImageIndexFromPath(built)
	if err != nil {
		return "", err
	}
	images, err := flatten(root)
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

// flatten returns the images of an index and of the indexes in it. ko writes
// one image for one platform, and an index for several.
func flatten(index v1.ImageIndex) ([]v1.Image, error) {
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	var images []v1.Image
	for _, d := range manifest.Manifests {
		if d.MediaType.IsIndex() {
			below, err := index.ImageIndex(d.Digest)
			if err != nil {
				return nil, err
			}
			more, err := flatten(below)
			if err != nil {
				return nil, err
			}
			images = append(images, more...)
			continue
		}
		image, err := index.Image(d.Digest)
		if err != nil {
			return nil, err
		}
		images = append(images, image)
	}
	return images, nil
}
