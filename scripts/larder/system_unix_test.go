//go:build unix

package main

import (
	"os"
	"syscall"
	"time"
)

// cpuTime returns the CPU time of this process.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// peakMemory returns the peak memory of a process that has ended, in bytes on
// Linux.
func peakMemory(ended *os.ProcessState) (peak int64, ok bool) {
	usage, ok := ended.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0, false
	}
	return int64(usage.Maxrss) << 10, true //nolint:unconvert // Maxrss has another type on other systems
}
