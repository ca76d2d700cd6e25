package fetch

// SetLimits lowers the bounds for tests.
func SetLimits(bytes int64, files int) { maxBytes, maxFiles = bytes, files }
