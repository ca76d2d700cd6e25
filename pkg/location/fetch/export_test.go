package fetch

// SetLimits lowers the bounds for tests.
func SetLimits(bytes int64, files, directory int) {
	maxBytes, maxFiles, maxDirectory = bytes, files, directory
}
