//go:build unix

package inspection

import (
	"os/exec"
	"runtime"
	"syscall"
)

// detach prevents a terminal's signals, such as that of Ctrl-C, from reaching a
// child.
func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// limitBySystem sets the system's limits for this process. It may not write
// files, and may not use all processors for longer than its time.
func limitBySystem(a assignment) {
	seconds := (uint64(a.Timeout.Seconds()) + 1) * uint64(runtime.NumCPU())
	for resource, most := range map[int]uint64{
		syscall.RLIMIT_CORE:  0,
		syscall.RLIMIT_FSIZE: 0,
		syscall.RLIMIT_CPU:   seconds,
		syscall.RLIMIT_DATA:  uint64(a.MaxMemory) + goReserve + raceReserve,
	} {
		// The other limits apply even if the system rejects one.
		_ = syscall.Setrlimit(resource, &syscall.Rlimit{Cur: most, Max: most})
	}
}

// goReserve is the memory that Go's runtime maps beyond what it uses, in bytes.
const goReserve = 256 << 20
