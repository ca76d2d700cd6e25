//go:build !linux

package s3test

// hasAttributes reports that nothing is known of extended attributes.
func hasAttributes(string) bool { return false }
