package protocol

import "github.com/larder-registry/larder/pkg/registry"

// ContentsOf decodes stored contents. Those that are missing or cannot be read are
// empty.
func ContentsOf(d Document) registry.Contents {
	if len(d) == 0 {
		return registry.Contents{}
	}
	c, err := Decode[registry.Contents](d)
	if err != nil {
		return registry.Contents{}
	}
	return c
}
