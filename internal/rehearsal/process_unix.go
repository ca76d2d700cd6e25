//go:build unix

package rehearsal

import (
	"os/exec"
	"syscall"
)

// inGroup makes a command start in its own process group, which its Cancel
// kills.
func inGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
