package fetch

import "time"

// SetLimits lowers the bounds for tests.
func SetLimits(bytes int64, files, directory int, objects uint32, step time.Duration) {
	maxBytes, maxFiles, maxDirectory, maxObjects, stepTimeout = bytes, files, directory, objects, step
}
