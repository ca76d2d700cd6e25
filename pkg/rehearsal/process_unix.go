//go:build unix

package rehearsal

import (
	"os"
	"os/exec"
	"syscall"
)

// startGroup has a command start in a group of processes of its own, all of which endGroup ends.
func startGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func endGroup(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

// tryLock locks an open file, unless another process has it locked. Closing it gives the lock back.
func tryLock(f *os.File) bool {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}
