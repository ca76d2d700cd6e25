//go:build unix

package inspection

import (
	"os/exec"
	"runtime"
	"syscall"
)

// detach keeps the signals of a terminal, such as that of Ctrl-C, from a child.
func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// limitBySystem has the system end this process too: it may write no file, and
// not use all processors for longer than its time.
func limitBySystem(a assignment) {
	seconds := (uint64(a.Timeout.Seconds()) + 1) * uint64(runtime.NumCPU())
	for resource, most := range map[int]uint64{
		syscall.RLIMIT_CORE:  0,
		syscall.RLIMIT_FSIZE: 0,
		syscall.RLIMIT_CPU:   seconds,
		syscall.RLIMIT_DATA:  uint64(a.MaxMemory) + goReserve + raceReserve,
	} {
		// The other limits are there where the system refuses one.
		_ = syscall.Setrlimit(resource, &syscall.Rlimit{Cur: most, Max: most})
	}
}

// goReserve is what Go's runtime maps beyond what it uses, in bytes.
const goReserve = 256 << 20
