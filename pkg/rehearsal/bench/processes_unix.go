//go:build unix

package main

import (
	"os"
	"syscall"
)

// maxResident returns the most memory that an ended process had, in bytes, where
// the system counts it in KiB.
func maxResident(state *os.ProcessState) int64 {
	used, ok := state.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	return used.Maxrss << 10
}
