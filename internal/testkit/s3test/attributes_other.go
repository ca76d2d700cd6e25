//go:build !linux

package s3test

// hasAttributes returns false, since other systems are not checked.
func hasAttributes(string) bool { return false }
