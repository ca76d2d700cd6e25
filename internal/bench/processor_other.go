//go:build !unix

package main

import "time"

// processorTime returns 0, because functions are measured only on Linux.
func processorTime() time.Duration { return 0 }
