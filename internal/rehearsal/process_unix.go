//go:build unix

package rehearsal

import (
	"os/exec"
	"syscall"
)

// startGroup makes a command start in its own process group, which endGroup
// kills.
func startGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func endGroup(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
