//go:build unix

package main

import (
	"os"
	"syscall"
	"time"
)

// pause has a process stand still until it is resumed.
func pause(p *os.Process)  { _ = p.Signal(syscall.SIGSTOP) }
func resume(p *os.Process) { _ = p.Signal(syscall.SIGCONT) }

// cpuTime is what this process has taken of processors.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// peakMemory is the most that a process had that has ended, in bytes as Linux tells it.
func peakMemory(ended *os.ProcessState) (peak int64, told bool) {
	usage, told := ended.SysUsage().(*syscall.Rusage)
	if !told {
		return 0, false
	}
	return int64(usage.Maxrss) << 10, true //nolint:unconvert // it has other types elsewhere
}
