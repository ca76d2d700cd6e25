//go:build unix

package rehearsal

import (
	"os/exec"
	"syscall"
)

// startGroup has a command start in a group of processes of its own, all of which endGroup ends.
func startGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func endGroup(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
