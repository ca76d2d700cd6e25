package s3test

import (
	"os"
	"syscall"
)

// hasAttributes reports whether files in a folder can have extended attributes.
func hasAttributes(dir string) bool {
	f, err := os.CreateTemp(dir, "attributes-*")
	if err != nil {
		return false
	}
	defer os.Remove(f.Name())
	defer f.Close()
	return syscall.Setxattr(f.Name(), "user.larder", []byte("x"), 0) == nil
}
